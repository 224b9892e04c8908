#include "search/roads.h"

#include <math.h>
#include <string.h>

/* Where a host's transfers were not measured, as in the clock. */
static const double UNKNOWN_LATENCY_S = 10e-6;
static const double UNKNOWN_BYTES_PER_S = 4e9;

enum { POINTS_PER_OCTAVE = 2 };

/* ---- workers and nodes ---- */

static double link_speed(const struct machine *m, int link)
{
    return link < 0 ? (double)INFINITY : m->links[link].bytes_per_s;
}

static enum status find_workers(struct roads *r, int first_device)
{
    const struct machine *m = r->machine;
    size_t n = (size_t)r->n_workers;
    int *device, *node_of;
    double *in, *out, *in_s, *out_s, *copy;
    TRY(arena_alloc_array(r->memory, n, sizeof *device, &device));
    TRY(arena_alloc_array(r->memory, n, sizeof *node_of, &node_of));
    TRY(arena_alloc_array(r->memory, n, sizeof *in, &in));
    TRY(arena_alloc_array(r->memory, n, sizeof *out, &out));
    TRY(arena_alloc_array(r->memory, n, sizeof *in_s, &in_s));
    TRY(arena_alloc_array(r->memory, n, sizeof *out_s, &out_s));
    TRY(arena_alloc_array(r->memory, n, sizeof *copy, &copy));
    r->ports_alike = true;
    for (int i = 0; i < r->n_workers; i++) {
        int d = device[i] = (first_device + i) % m->n_devices;
        const struct machine_kind *kind = &m->kinds[m->devices[d].kind];
        in[i] = link_speed(m, m->device_in[d]);
        out[i] = link_speed(m, m->device_out[d]);
        in_s[i] = 1 / in[i];
        out_s[i] = 1 / out[i];
        r->ports_alike &= in[i] == in[0] && out[i] == out[0];
        copy[i] = kind->reached_bytes_per_s;
        r->launch_s = fmax(r->launch_s, kind->launch_s);
        r->on_cpu |= kind->class == MACHINE_CPU;
    }
    r->device = device;
    r->node_of = node_of;
    r->in_bytes_per_s = in;
    r->out_bytes_per_s = out;
    r->in_s_per_byte = in_s;
    r->out_s_per_byte = out_s;
    r->copy_bytes_per_s = copy;
    TRY(arena_alloc_array(r->memory, n, sizeof *r->nodes, &r->nodes));
    for (int i = 0; i < r->n_workers; i++) {
        int node = m->devices[device[i]].node;
        if (i == 0 || node != m->devices[device[i - 1]].node)
            r->nodes[r->n_nodes++] =
                (struct road_node){.first = i,
                                   .in_bytes_per_s = link_speed(m, m->node_in[node]),
                                   .out_bytes_per_s = link_speed(m, m->node_out[node])};
        node_of[i] = r->n_nodes - 1;
        r->nodes[r->n_nodes - 1].n++;
    }
    return STATUS_OK;
}

/* ---- who is looked at ---- */

static bool links_alike(const struct machine *m, int a, int b)
{
    if (a < 0 || b < 0)
        return a == b;
    return m->links[a].bytes_per_s == m->links[b].bytes_per_s &&
           m->links[a].latency_s == m->links[b].latency_s;
}

bool roads_workers_alike(const struct roads *r, int a, int b)
{
    const struct machine *m = r->machine;
    int x = r->device[a], y = r->device[b];
    return m->devices[x].kind == m->devices[y].kind &&
           links_alike(m, m->device_in[x], m->device_in[y]) &&
           links_alike(m, m->device_out[x], m->device_out[y]);
}

bool roads_cards_alike(const struct roads *r, int a, int b)
{
    const struct machine *m = r->machine;
    int x = m->devices[r->device[a]].node, y = m->devices[r->device[b]].node;
    return links_alike(m, m->node_in[x], m->node_in[y]) &&
           links_alike(m, m->node_out[x], m->node_out[y]);
}

static bool nodes_alike(const struct roads *r, const struct road_node *x, const struct road_node *y)
{
    if (x->n != y->n || !roads_cards_alike(r, x->first, y->first))
        return false;
    for (int i = 0; i < x->n; i++)
        if (!roads_workers_alike(r, x->first + i, y->first + i))
            return false;
    return true;
}

/* The first two nodes (one has a neighbour on each side), and of others the first of each sort. */
static bool is_seen(const struct roads *r, int node)
{
    if (node < 2)
        return true;
    for (int i = 0; i < node; i++)
        if (nodes_alike(r, &r->nodes[i], &r->nodes[node]))
            return false;
    return true;
}

static enum status find_seen(struct roads *r)
{
    int *seen;
    int most = r->n_nodes == 1 ? ROADS_MOST_SEEN : ROADS_MOST_SEEN / 2;
    TRY(arena_alloc_array(r->memory, (size_t)r->n_workers, sizeof *seen, &seen));
    for (int g = 0; g < r->n_nodes; g++) {
        struct road_node *node = &r->nodes[g];
        node->first_seen = r->n_seen;
        if (!is_seen(r, g))
            continue;
        node->n_seen = node->n < most ? node->n : most;
        for (int i = 0; i < node->n_seen; i++)
            seen[r->n_seen++] = node->n_seen == node->n
                                    ? node->first + i
                                    : node->first + i * (node->n - 1) / (node->n_seen - 1);
    }
    r->seen = seen;
    return STATUS_OK;
}

/* ---- curves ---- */

static double host_seconds(const struct roads *r, bool reduces, enum comm_method method,
                           int members, double n_bytes)
{
    const struct machine_curve *curve =
        machine_find_curve(r->machine, r->transport, reduces, method, members);
    if (curve)
        return machine_curve_at(curve, n_bytes).seconds;
    return UNKNOWN_LATENCY_S + (reduces ? 2 : 1) * n_bytes / UNKNOWN_BYTES_PER_S;
}

static void read_curve(struct roads *r)
{
    for (int i = 0; i < ROADS_CURVE_POINTS; i++)
        r->message.seconds[i] =
            host_seconds(r, false, COMM_GATHER, 2, exp2((double)i / POINTS_PER_OCTAVE));
    r->message.known = true;
}

double roads_host_message_s(const struct roads *r, double n_bytes)
{
    if (n_bytes < 1)
        return n_bytes > 0 ? r->message.seconds[0] : 0;
    double at = log2(n_bytes) * POINTS_PER_OCTAVE;
    int i = (int)at;
    if (i + 1 >= ROADS_CURVE_POINTS)
        return host_seconds(r, false, COMM_GATHER, 2, n_bytes);
    return r->message.seconds[i] + (at - i) * (r->message.seconds[i + 1] - r->message.seconds[i]);
}

/* ---- ways ---- */

static double latency_between(const struct roads *r, int from, int to)
{
    int hops[MACHINE_MAX_HOPS];
    int n = machine_route(r->machine, r->device[from], r->device[to], hops);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += r->machine->links[hops[i]].latency_s;
    return sum;
}

static void find_latencies(struct roads *r)
{
    for (int g = 0; g < r->n_nodes; g++)
        if (r->nodes[g].n > 1)
            r->near_s =
                fmax(r->near_s, latency_between(r, r->nodes[g].first, r->nodes[g].first + 1));
    for (int g = 0; r->n_nodes > 1 && g < r->n_nodes; g++) { /* as a ring goes */
        int next = (g + 1) % r->n_nodes;
        r->far_s = fmax(r->far_s, latency_between(r, r->nodes[g].first, r->nodes[next].first));
    }
}

enum status roads_create(const struct machine *machine, const char *transport, int first_device,
                         int n_workers, arena *memory, struct roads *out)
{
    *out = (struct roads){
        .machine = machine, .transport = transport, .memory = memory, .n_workers = n_workers};
    TRY(find_workers(out, first_device));
    TRY(find_seen(out));
    find_latencies(out);
    if (out->on_cpu)
        read_curve(out);
    return STATUS_OK;
}

double roads_message_s(const struct roads *r, int from, int to, double n_bytes)
{
    int hops[MACHINE_MAX_HOPS];
    int n = machine_route(r->machine, r->device[from], r->device[to], hops);
    double latency_s = 0, slowest = INFINITY;
    if (from == to || n_bytes <= 0)
        return 0;
    if (r->on_cpu && r->node_of[from] == r->node_of[to])
        return roads_host_message_s(r, n_bytes);
    for (int i = 0; i < n; i++) {
        latency_s += r->machine->links[hops[i]].latency_s;
        slowest = fmin(slowest, r->machine->links[hops[i]].bytes_per_s);
    }
    return latency_s + n_bytes / slowest;
}

/* ---- sums ---- */

struct group_shape {
    int nodes, most_on_one;
    double slowest_port, slowest_card;
};

static struct group_shape shape_group(const struct roads *r, const int *members, int n)
{
    struct group_shape s = {0, 0, INFINITY, INFINITY};
    int here = 0;
    for (int i = 0; i < n; i++) {
        int w = members[i];
        const struct road_node *node = &r->nodes[r->node_of[w]];
        bool first = i == 0 || r->node_of[members[i - 1]] != r->node_of[w];
        here = first ? 1 : here + 1;
        s.nodes += first;
        s.most_on_one = here > s.most_on_one ? here : s.most_on_one;
        s.slowest_port = fmin(s.slowest_port, fmin(r->in_bytes_per_s[w], r->out_bytes_per_s[w]));
        s.slowest_card = fmin(s.slowest_card, fmin(node->in_bytes_per_s, node->out_bytes_per_s));
    }
    return s;
}

double roads_ring_s(const struct roads *r, const int *members, int n, int alike, double n_bytes)
{
    if (n < 2 || n_bytes <= 0)
        return 0;
    struct group_shape s = shape_group(r, members, n);
    if (r->on_cpu && s.nodes == 1)
        return host_seconds(r, true, COMM_RING, n, n_bytes);
    double each = 2.0 * (n - 1) / n * n_bytes, seconds = each / s.slowest_port;
    if (s.nodes > 1)
        seconds = fmax(seconds, alike * each / s.slowest_card);
    return seconds + 2.0 * (n - 1) * (s.nodes > 1 ? r->far_s : r->near_s);
}

double roads_gather_s(const struct roads *r, const int *members, int n, int alike, double n_bytes)
{
    if (n < 2 || n_bytes <= 0)
        return 0;
    struct group_shape s = shape_group(r, members, n);
    if (r->on_cpu && s.nodes == 1)
        return host_seconds(r, true, COMM_GATHER, n, n_bytes);
    double seconds = (n - 1) * n_bytes / s.slowest_port;
    if (s.nodes > 1)
        seconds = fmax(seconds, (double)alike * s.most_on_one * (n - s.most_on_one) * n_bytes /
                                    s.slowest_card);
    return seconds + (s.nodes > 1 ? r->far_s : r->near_s);
}
