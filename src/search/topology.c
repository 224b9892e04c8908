#include "search/topology.h"

#include <math.h>
#include <string.h>

enum { POINTS_PER_OCTAVE = 2 };

/* ---- workers and nodes ---- */

static double link_speed(const struct machine *m, int link)
{
    return link < 0 ? (double)INFINITY : m->links[link].bytes_per_s;
}

static enum status find_workers(struct topology *t, int first_device)
{
    const struct machine *m = t->machine;
    size_t n = (size_t)t->n_workers;
    int *device, *node_of;
    double *in, *out, *in_s, *out_s, *copy;
    TRY(arena_alloc_array(t->memory, n, sizeof *device, &device));
    TRY(arena_alloc_array(t->memory, n, sizeof *node_of, &node_of));
    TRY(arena_alloc_array(t->memory, n, sizeof *in, &in));
    TRY(arena_alloc_array(t->memory, n, sizeof *out, &out));
    TRY(arena_alloc_array(t->memory, n, sizeof *in_s, &in_s));
    TRY(arena_alloc_array(t->memory, n, sizeof *out_s, &out_s));
    TRY(arena_alloc_array(t->memory, n, sizeof *copy, &copy));
    t->ports_alike = true;
    for (int i = 0; i < t->n_workers; i++) {
        int d = device[i] = (first_device + i) % m->n_devices;
        const struct machine_kind *kind = &m->kinds[m->devices[d].kind];
        in[i] = link_speed(m, m->device_in[d]);
        out[i] = link_speed(m, m->device_out[d]);
        in_s[i] = 1 / in[i];
        out_s[i] = 1 / out[i];
        t->ports_alike &= in[i] == in[0] && out[i] == out[0];
        copy[i] = kind->reached_bytes_per_s;
        t->launch_s = fmax(t->launch_s, kind->launch_s);
        t->on_cpu |= kind->class == MACHINE_CPU;
    }
    t->device = device;
    t->node_of = node_of;
    t->in_bytes_per_s = in;
    t->out_bytes_per_s = out;
    t->in_s_per_byte = in_s;
    t->out_s_per_byte = out_s;
    t->copy_bytes_per_s = copy;
    TRY(arena_alloc_array(t->memory, n, sizeof *t->nodes, &t->nodes));
    for (int i = 0; i < t->n_workers; i++) {
        int node = m->devices[device[i]].node;
        if (i == 0 || node != m->devices[device[i - 1]].node)
            t->nodes[t->n_nodes++] =
                (struct topology_node){.first = i,
                                       .in_bytes_per_s = link_speed(m, m->node_in[node]),
                                       .out_bytes_per_s = link_speed(m, m->node_out[node])};
        node_of[i] = t->n_nodes - 1;
        t->nodes[t->n_nodes - 1].n++;
    }
    return STATUS_OK;
}

/* ---- the sample ---- */

static bool links_alike(const struct machine *m, int a, int b)
{
    if (a < 0 || b < 0)
        return a == b;
    return m->links[a].bytes_per_s == m->links[b].bytes_per_s &&
           m->links[a].latency_s == m->links[b].latency_s;
}

bool topology_workers_alike(const struct topology *t, int a, int b)
{
    const struct machine *m = t->machine;
    int x = t->device[a], y = t->device[b];
    return m->devices[x].kind == m->devices[y].kind &&
           links_alike(m, m->device_in[x], m->device_in[y]) &&
           links_alike(m, m->device_out[x], m->device_out[y]);
}

bool topology_cards_alike(const struct topology *t, int a, int b)
{
    const struct machine *m = t->machine;
    int x = m->devices[t->device[a]].node, y = m->devices[t->device[b]].node;
    return links_alike(m, m->node_in[x], m->node_in[y]) &&
           links_alike(m, m->node_out[x], m->node_out[y]);
}

static bool nodes_alike(const struct topology *t, const struct topology_node *x,
                        const struct topology_node *y)
{
    if (x->n != y->n || !topology_cards_alike(t, x->first, y->first))
        return false;
    for (int i = 0; i < x->n; i++)
        if (!topology_workers_alike(t, x->first + i, y->first + i))
            return false;
    return true;
}

/* The first two nodes (one has a neighbour on each side), and of others the first of each sort. */
static bool is_sampled(const struct topology *t, int node)
{
    if (node < 2)
        return true;
    for (int i = 0; i < node; i++)
        if (nodes_alike(t, &t->nodes[i], &t->nodes[node]))
            return false;
    return true;
}

static enum status choose_sample(struct topology *t)
{
    int *sampled;
    int most = t->n_nodes == 1 ? TOPOLOGY_MOST_SAMPLED : TOPOLOGY_MOST_SAMPLED / 2;
    TRY(arena_alloc_array(t->memory, (size_t)t->n_workers, sizeof *sampled, &sampled));
    for (int g = 0; g < t->n_nodes; g++) {
        struct topology_node *node = &t->nodes[g];
        node->first_sampled = t->n_sampled;
        if (!is_sampled(t, g))
            continue;
        node->n_sampled = node->n < most ? node->n : most;
        for (int i = 0; i < node->n_sampled; i++)
            sampled[t->n_sampled++] = node->n_sampled == node->n
                                          ? node->first + i
                                          : node->first + i * (node->n - 1) / (node->n_sampled - 1);
    }
    t->sampled = sampled;
    return STATUS_OK;
}

/* ---- messages ---- */

static double host_message_s(const struct topology *t, double n_bytes)
{
    const struct cost_call call = {
        .transport = t->transport, .method = COMM_GATHER, .n_members = 2};
    return cost_on_host(t->machine, &call, n_bytes).seconds;
}

double topology_host_message_s(const struct topology *t, double n_bytes)
{
    if (n_bytes < 1)
        return n_bytes > 0 ? t->host_message_s[0] : 0;
    double at = log2(n_bytes) * POINTS_PER_OCTAVE;
    int i = (int)at;
    if (i + 1 >= TOPOLOGY_CURVE_POINTS)
        return host_message_s(t, n_bytes);
    return t->host_message_s[i] + (at - i) * (t->host_message_s[i + 1] - t->host_message_s[i]);
}

static void find_latencies(struct topology *t)
{
    const struct machine *m = t->machine;
    for (int g = 0; g < t->n_nodes; g++) {
        int first = t->nodes[g].first, next = t->nodes[(g + 1) % t->n_nodes].first;
        if (t->nodes[g].n > 1)
            t->near_s = fmax(t->near_s, cost_latency_s(m, t->device[first], t->device[first + 1]));
        if (t->n_nodes > 1)
            t->far_s = fmax(t->far_s, cost_latency_s(m, t->device[first], t->device[next]));
    }
}

enum status topology_create(const struct machine *machine, const char *transport, int first_device,
                            int n_workers, arena *memory, struct topology *out)
{
    *out = (struct topology){
        .machine = machine, .transport = transport, .memory = memory, .n_workers = n_workers};
    TRY(find_workers(out, first_device));
    TRY(choose_sample(out));
    find_latencies(out);
    for (int i = 0; out->on_cpu && i < TOPOLOGY_CURVE_POINTS; i++)
        out->host_message_s[i] = host_message_s(out, exp2((double)i / POINTS_PER_OCTAVE));
    TRY(arena_alloc_array(memory, (size_t)n_workers, sizeof *out->members, &out->members));
    TRY(arena_alloc(memory, sizeof *out->cost, &out->cost));
    return cost_create(machine, memory, out->cost);
}

double topology_sum_s(const struct topology *t, const struct topology_sum *sum, const int *members,
                      double n_bytes)
{
    if (sum->n < 2 || n_bytes <= 0)
        return 0;
    const struct cost_call call = {.transport = t->transport,
                                   .reduces = true,
                                   .method = sum->method,
                                   .node_size = sum->node_size,
                                   .type = sum->type,
                                   .n_bytes = (int64_t)n_bytes,
                                   .n_members = sum->n};
    for (int i = 0; i < sum->n; i++)
        t->members[i] = t->device[members[i]];
    cost_call(t->machine, &call, t->members, t->cost);
    return cost_alone_s(t->machine, &call, t->cost, sum->alike);
}
