#include "cost/cost.h"

#include <math.h>

/* Where a host's transfers were not measured: */
static const double UNKNOWN_LATENCY_S = 10e-6;
static const double UNKNOWN_BYTES_PER_S = 4e9;

double cost_compute(const struct machine_kind *kind, const struct cost_work *work)
{
    double scale = work->scale > 0 ? work->scale : 1;
    double flops_s =
        work->flops > 0 ? work->flops / machine_kind_rate(kind, work->arithmetic).reached : 0;
    return kind->launch_s + scale * fmax(flops_s, work->bytes / kind->reached_bytes_per_s);
}

enum status cost_create(const struct machine *machine, arena *memory, struct cost *out)
{
    size_t n = (size_t)machine->n_links;
    *out = (struct cost){0};
    TRY(arena_alloc_array(memory, n, sizeof *out->links, &out->links));
    TRY(arena_alloc_array(memory, n, sizeof *out->link_bytes, &out->link_bytes));
    TRY(arena_alloc_array(memory, n, sizeof *out->joins_nodes, &out->joins_nodes));
    for (int i = 0; i < machine->n_nodes; i++) {
        if (machine->node_in[i] >= 0)
            out->joins_nodes[machine->node_in[i]] = true;
        if (machine->node_out[i] >= 0)
            out->joins_nodes[machine->node_out[i]] = true;
    }
    return STATUS_OK;
}

/* ---- links ---- */

static void add_link(const struct machine *m, struct cost *c, int link, double n_bytes)
{
    if (link < 0)
        return;
    if (n_bytes > 0) {
        if (c->link_bytes[link] <= 0)
            c->links[c->n_links++] = link;
        c->link_bytes[link] += n_bytes;
    }
    c->slowest = fmin(c->slowest, m->links[link].bytes_per_s);
}

static void add_way(const struct machine *m, struct cost *c, int from, int to, double n_bytes)
{
    int hops[MACHINE_MAX_HOPS];
    int n = machine_route(m, from, to, hops);
    double latency_s = 0;
    for (int i = 0; i < n; i++) {
        add_link(m, c, hops[i], n_bytes);
        latency_s += m->links[hops[i]].latency_s;
    }
    c->way_s = fmax(c->way_s, latency_s);
}

double cost_latency_s(const struct machine *machine, int from, int to)
{
    int hops[MACHINE_MAX_HOPS];
    int n = machine_route(machine, from, to, hops);
    double latency_s = 0;
    for (int i = 0; i < n; i++)
        latency_s += machine->links[hops[i]].latency_s;
    return latency_s;
}

/* ---- sums over links ---- */

/* How often a ring passes its slices round: once to add, once to hand out. */
static int ring_rounds(enum comm_kind kind)
{
    return kind == COMM_ALL_REDUCE ? 2 : 1;
}

/* Bytes that each member of a ring sends. */
static double ring_bytes(enum comm_kind kind, int n, double n_bytes)
{
    return (double)ring_rounds(kind) * (n - 1) / n * n_bytes;
}

/* Over every stride-th of the devices; its latency. */
static double ring(const struct machine *m, struct cost *c, enum comm_kind kind, const int *devices,
                   int n, int stride, double n_bytes)
{
    for (int i = 0; i < n; i++)
        add_way(m, c, devices[i * stride], devices[(i + 1) % n * stride],
                ring_bytes(kind, n, n_bytes));
    return (double)ring_rounds(kind) * (n - 1) * c->way_s;
}

static double tree(const struct machine *m, struct cost *c, const int *devices, int n,
                   double n_bytes)
{
    int levels = 0;
    for (int d = 1; d < n; d *= 2, levels++)
        for (int i = 0; i + d < n; i += 2 * d) {
            add_way(m, c, devices[i + d], devices[i], n_bytes);
            add_way(m, c, devices[i], devices[i + d], n_bytes);
        }
    return 2.0 * levels * (c->way_s + n_bytes / c->slowest);
}

/* Node by node instead of pair by pair: `here` members on a node send to n - here others. */
static double gather(const struct machine *m, struct cost *c, const int *devices, int n,
                     double n_bytes)
{
    for (int first = 0, end; first < n; first = end) {
        int node = m->devices[devices[first]].node;
        for (end = first; end < n && m->devices[devices[end]].node == node; end++) {
            add_link(m, c, m->device_out[devices[end]], (n - 1) * n_bytes);
            add_link(m, c, m->device_in[devices[end]], (n - 1) * n_bytes);
        }
        int here = end - first;
        add_link(m, c, m->node_out[node], (double)here * (n - here) * n_bytes);
        add_link(m, c, m->node_in[node], (double)here * (n - here) * n_bytes);
    }
    if (n > 1) /* the longest way, for its latency */
        add_way(m, c, devices[0], devices[n - 1], 0);
    return c->way_s;
}

static double hierarchical(const struct machine *m, struct cost *c, const struct cost_call *call,
                           const int *devices, double n_bytes)
{
    int n = call->n_members, size = call->node_size, n_nodes = (n + size - 1) / size;
    for (int i = 0; i < n; i++) {
        int leader = i / size * size;
        if (i == leader)
            continue;
        add_way(m, c, devices[i], devices[leader], n_bytes);
        add_way(m, c, devices[leader], devices[i], n_bytes);
    }
    int local = size < n ? size : n;
    double inside_s = local > 1 ? 2 * (c->way_s + (local - 1) * n_bytes / c->slowest) : 0;
    if (n_nodes < 2)
        return inside_s;
    double latency_s = ring(m, c, COMM_ALL_REDUCE, devices, n_nodes, size, n_bytes);
    return inside_s + latency_s + ring_bytes(COMM_ALL_REDUCE, n_nodes, n_bytes) / c->slowest;
}

/* ---- within a CPU host ---- */

static bool is_cpu(const struct machine *m, int device)
{
    return m->kinds[m->devices[device].kind].class == MACHINE_CPU;
}

static bool share_host(const struct machine *m, const int *devices, int n)
{
    for (int i = 0; i < n; i++)
        if (!is_cpu(m, devices[i]) || m->devices[devices[i]].node != m->devices[devices[0]].node)
            return false;
    return true;
}

/* All-reduces are measured: a half takes half as long. */
static struct machine_point half_of_ring(const struct cost_call *call, struct machine_point p)
{
    double share = call->reduces ? ring_rounds(call->kind) / 2.0 : 1;
    p.seconds *= share;
    p.cpu_s *= share;
    return p;
}

struct machine_point cost_on_host(const struct machine *machine, const struct cost_call *call,
                                  double n_bytes)
{
    const struct machine_curve *curve =
        machine_find_curve(machine, call->transport, call->reduces, call->method, call->n_members);
    if (curve)
        return half_of_ring(call, machine_curve_at(curve, n_bytes));
    double copies = call->reduces ? ring_rounds(call->kind) : 1;
    double s = UNKNOWN_LATENCY_S + copies * n_bytes / UNKNOWN_BYTES_PER_S;
    return (struct machine_point){n_bytes, s, s, 0};
}

/* The time of a call of no bytes is that of taking part; of the rest each member does its chunks.
 */
static void call_on_host(const struct machine *m, const struct cost_call *call, struct cost *c)
{
    int64_t size = call->reduces ? element_bytes(call->type) : 1;
    struct machine_point p = cost_on_host(m, call, (double)call->n_bytes);
    struct machine_point nothing = cost_on_host(m, call, 0);
    int64_t count = call->n_bytes / size;
    double n_chunks = (double)comm_cut(count, size, call->n_members).n;
    c->least_s = p.seconds;
    c->core_s = p.cpu_s;
    c->each_s = nothing.cpu_s;
    c->work_s = fmin(call->n_members, n_chunks) * fmax(0, p.cpu_s - nothing.cpu_s);
    c->visit = fmin(1, COMM_CHUNKS_PER_POLL / n_chunks);
}

/* ---- between CPU hosts ---- */

/* With one member on each node there is nothing but the ring. */
static enum comm_method method_of(const struct cost_call *call)
{
    bool is_ring = call->method == COMM_HIERARCHICAL && call->node_size == 1;
    return is_ring ? COMM_RING : call->method;
}

/* On how many nodes the members are; 0 if one of them is no CPU. */
static int count_nodes(const struct machine *m, const int *devices, int n)
{
    int nodes = 0;
    for (int i = 0; i < n; i++) {
        if (!is_cpu(m, devices[i]))
            return 0;
        nodes += i == 0 || m->devices[devices[i]].node != m->devices[devices[i - 1]].node;
    }
    return nodes;
}

/* Of the time that a core was seen at work with nothing else to do, so much is left when others
 * want to compute: the rest is polling. */
static const double NEEDED = 0.4;

/* How much longer the sums that were measured take than the ring's bytes on the slowest link. */
static double find_slowness(const struct machine_curve *curve, const struct cost *c,
                            const struct machine_point *p)
{
    int n = curve->members;
    if (curve->method != COMM_RING || !isfinite(c->slowest))
        return 1;
    double ring_s =
        ring_bytes(COMM_ALL_REDUCE, n, p->bytes) / c->slowest + 2.0 * (n - 1) * c->way_s;
    return fmax(1, p->seconds / ring_s);
}

/* Networks take time of the cores, too, which was measured. How long a call takes follows from the
 * links, unless a sum over just as many members was measured itself; other sums are slower than
 * their bytes by as much as the measured one. */
static void add_network(const struct machine *m, const struct cost_call *call, const int *devices,
                        double n_bytes, struct cost *c)
{
    enum comm_method method = call->reduces ? method_of(call) : COMM_GATHER;
    int n = call->n_members, nodes = count_nodes(m, devices, n);
    if (nodes < 2)
        return;
    const struct machine_curve *curve =
        machine_find_network_curve(m, call->transport, call->reduces, method, n, nodes);
    if (!curve)
        return;
    struct machine_point p = half_of_ring(call, machine_curve_at(curve, n_bytes));
    if (m->far_byte_s > 0)
        c->core_byte_s = m->far_byte_s;
    else
        c->core_s = NEEDED * p.cpu_s;
    if (!call->reduces) {
        c->sent_left = p.sent_s > 0 ? 1 - p.sent_s / p.seconds : 0;
    } else if (curve->method == method && curve->members == n && curve->nodes == nodes) {
        c->least_s = p.seconds;
        c->latency_s = 0;
    } else {
        struct machine_point whole = machine_curve_at(curve, n_bytes);
        double way_s = ring_bytes(call->kind, n, n_bytes) / c->slowest;
        c->least_s = fmax(c->least_s, way_s) * find_slowness(curve, c, &whole);
    }
}

/* ---- all of it ---- */

void cost_call(const struct machine *machine, const struct cost_call *call, const int *devices,
               struct cost *out)
{
    int n = call->n_members;
    double n_bytes = (double)call->n_bytes;
    for (int i = 0; i < out->n_links; i++)
        out->link_bytes[out->links[i]] = 0;
    *out = (struct cost){.links = out->links,
                         .link_bytes = out->link_bytes,
                         .joins_nodes = out->joins_nodes,
                         .slowest = INFINITY};
    if (share_host(machine, devices, n)) {
        call_on_host(machine, call, out);
        return;
    }
    if (!call->reduces) {
        add_way(machine, out, devices[0], devices[1], n_bytes);
        out->latency_s = out->way_s;
    } else if (method_of(call) == COMM_RING) {
        out->latency_s = ring(machine, out, call->kind, devices, n, 1, n_bytes);
    } else if (call->method == COMM_TREE) {
        out->least_s = tree(machine, out, devices, n, n_bytes);
    } else if (call->method == COMM_HIERARCHICAL) {
        out->least_s = hierarchical(machine, out, call, devices, n_bytes);
    } else {
        out->latency_s = gather(machine, out, devices, n, n_bytes);
    }
    add_network(machine, call, devices, n_bytes, out);
}

double cost_core_s(const struct cost_call *call, const struct cost *cost, int i)
{
    double core_s = cost->core_s;
    if (cost->core_byte_s > 0) {
        /* Each member's bytes out, and as many in; a message's go out here and in there. */
        const struct comm_reduction r = {
            .kind = call->kind,
            .method = call->method,
            .type = call->type,
            .n_members = call->n_members,
            .node_size = call->node_size,
            .count = call->reduces ? call->n_bytes / element_bytes(call->type) : 0,
        };
        double n_bytes =
            call->reduces ? 2.0 * (double)comm_reduce_sent_bytes(&r, i) : (double)call->n_bytes;
        core_s += cost->core_byte_s * n_bytes;
    }
    return core_s;
}

double cost_alone_s(const struct machine *machine, const struct cost_call *call,
                    const struct cost *cost, int alike)
{
    double flow_s = cost->least_s;
    for (int i = 0; i < cost->n_links; i++) {
        int link = cost->links[i];
        double n_bytes = (cost->joins_nodes[link] ? alike : 1) * cost->link_bytes[link];
        flow_s = fmax(flow_s, n_bytes / machine->links[link].bytes_per_s);
    }
    return cost->latency_s + fmax(flow_s, cost_core_s(call, cost, 0));
}
