/* What a transfer or a reduction takes of cores and links.
 *
 * Between workers that share a CPU host's memory it is what was measured there (machine_curve): a
 * time, of which every member's core works a part. Between other devices it is bytes on the links
 * of the way, and between CPU hosts time of the cores as well. A sum is the transfers of its method
 * (comm.h):
 *
 *     ring          every member sends 2 (N-1)/N of the array to the next one, in 2 (N-1) steps
 *     tree          along each edge the array goes up and comes down; levels one after the other
 *     gather        every member sends the array to every other
 *     hierarchical  members send to the first of their node; a ring over those; and back
 */
#include "clock/parts.h"

#include <math.h>

/* Where a host's transfers were not measured: */
static const double UNKNOWN_LATENCY_S = 10e-6;
static const double UNKNOWN_BYTES_PER_S = 4e9;

static int64_t element_bytes(const struct comm_reduction *r)
{
    return r->type == COMM_DOUBLE ? 8 : 4;
}

static int64_t array_bytes(const struct comm_reduction *r)
{
    return r->count * element_bytes(r);
}

/* ---- collecting ---- */

/* Demands by resource while they are put together. */
struct basket {
    struct clock_run *c;
    double *amounts; /* [n_resources]; zero where nothing is demanded */
    int n, *touched;
    double latency_s; /* the largest of any way */
    double slowest;   /* bytes/s of the slowest link on any way */
};

static enum status basket_init(struct basket *b, struct clock_run *c)
{
    *b = (struct basket){.c = c, .slowest = INFINITY};
    if (!c->amounts) {
        TRY(arena_alloc_array(c->scratch, (size_t)c->n_resources, sizeof *c->amounts, &c->amounts));
        TRY(arena_alloc_array(c->scratch, (size_t)c->n_resources, sizeof *c->touched, &c->touched));
    }
    b->amounts = c->amounts;
    b->touched = c->touched;
    return STATUS_OK;
}

static void demand_of(struct basket *b, int resource, double amount)
{
    if (amount <= 0)
        return;
    if (b->amounts[resource] <= 0)
        b->touched[b->n++] = resource;
    b->amounts[resource] += amount;
}

static void demand_link(struct basket *b, int link, double n_bytes)
{
    if (link < 0)
        return;
    demand_of(b, b->c->n_workers + link, n_bytes);
    b->slowest = fmin(b->slowest, b->c->machine->links[link].bytes_per_s);
}

/* n_bytes from worker to worker. */
static void demand_way(struct basket *b, int from, int to, double n_bytes)
{
    const struct machine *m = b->c->machine;
    int hops[MACHINE_MAX_HOPS];
    int n = machine_route(m, b->c->workers[from].device, b->c->workers[to].device, hops);
    double latency_s = 0;
    for (int i = 0; i < n; i++) {
        demand_link(b, hops[i], n_bytes);
        latency_s += m->links[hops[i]].latency_s;
    }
    b->latency_s = fmax(b->latency_s, latency_s);
}

static enum status basket_empty(struct basket *b, struct rendezvous *m)
{
    struct load *load = &m->load;
    if (b->n > load->capacity) {
        TRY(arena_alloc_array(b->c->scratch, (size_t)b->n, sizeof *load->demands, &load->demands));
        load->capacity = b->n;
    }
    for (int i = 0; i < b->n; i++) {
        load->demands[i] = (struct demand){b->touched[i], b->amounts[b->touched[i]]};
        b->amounts[b->touched[i]] = 0;
    }
    load->n_demands = b->n;
    return STATUS_OK;
}

/* ---- within a CPU host ---- */

static bool share_host(const struct clock_run *c, const int *members, int n)
{
    const struct worker *first = &c->workers[members[0]];
    for (int i = 0; i < n; i++)
        if (!c->workers[members[i]].on_cpu || c->workers[members[i]].node != first->node)
            return false;
    return true;
}

static struct machine_point measured(const struct clock_run *c, bool reduces,
                                     enum comm_method method, int members, double n_bytes)
{
    const struct machine_curve *curve =
        machine_find_curve(c->machine, c->options->transport, reduces, method, members);
    if (curve)
        return machine_curve_at(curve, n_bytes);
    double copies = reduces ? 2 : 1, s = UNKNOWN_LATENCY_S + copies * n_bytes / UNKNOWN_BYTES_PER_S;
    return (struct machine_point){n_bytes, s, s, 0};
}

/* What it takes even of nothing is taking part; of the rest each did its chunks. */
static void share_out(const struct clock_run *c, struct rendezvous *m,
                      const struct machine_point *p, const struct machine_point *nothing,
                      struct comm_chunks chunks)
{
    if (!c->attends)
        return;
    double n = (double)chunks.n, hands = fmin(m->n_members, n);
    m->load.each_s = nothing->cpu_s;
    m->load.work_s = hands * fmax(0, p->cpu_s - nothing->cpu_s);
    m->load.visit = fmin(1, COMM_CHUNKS_PER_POLL / n);
}

static void demand_cores(struct basket *b, const int *members, int n, double cpu_s)
{
    for (int i = 0; i < n; i++)
        demand_of(b, members[i], cpu_s);
}

/* ---- between CPU hosts ---- */

/* With one member on each node there is nothing but the ring. */
static enum comm_method method_of(const struct comm_reduction *r)
{
    return r->method == COMM_HIERARCHICAL && r->node_size == 1 ? COMM_RING : r->method;
}

/* On how many nodes the members are; 0 if one of them is no CPU. They ascend, and so do their
 * nodes. */
static int count_nodes(const struct clock_run *c, const int *members, int n)
{
    int nodes = 0;
    for (int i = 0; i < n; i++) {
        const struct worker *w = &c->workers[members[i]];
        if (!w->on_cpu)
            return 0;
        nodes += i == 0 || w->node != c->workers[members[i - 1]].node;
    }
    return nodes;
}

/* Of the time that a core was seen at work with nothing else to do, so much is left when others
 * want to compute: the rest is looking again and again whether something has come. */
static const double NEEDED = 0.4;

/* How much longer the sums that were measured take than the ring's bytes on the slowest link. */
static double find_slowness(const struct machine_curve *curve, const struct basket *b,
                            const struct machine_point *p)
{
    double n = curve->members, each = 2 * (n - 1) / n * p->bytes;
    if (curve->method != COMM_RING || !isfinite(b->slowest))
        return 1;
    return fmax(1, p->seconds / (each / b->slowest + 2 * (n - 1) * b->latency_s));
}

/* Each member's bytes out, and as many in; a message's go out here and in there. */
static void demand_bytes(struct basket *b, const struct rendezvous *m, const int *members, int n,
                         double n_bytes)
{
    for (int i = 0; i < n; i++) {
        double bytes = m->reduces ? 2.0 * (double)comm_reduce_sent_bytes(m->reduction, i) : n_bytes;
        demand_of(b, members[i], bytes * b->c->machine->far_byte_s);
    }
}

/* Networks take time of the cores, too: what was measured. How long it takes follows from the
 * links, unless a sum over just as many was measured itself; other sums are slower than their bytes
 * by as much as the one that was measured. */
static void demand_network(struct basket *b, struct rendezvous *m, const int *members, int n,
                           double n_bytes)
{
    const struct clock_run *c = b->c;
    enum comm_method method = m->reduces ? method_of(m->reduction) : COMM_GATHER;
    int nodes = count_nodes(c, members, n);
    const struct machine_curve *curve =
        nodes > 1 ? machine_find_network_curve(c->machine, c->options->transport, m->reduces,
                                               method, n, nodes)
                  : NULL;
    if (!curve)
        return;
    struct machine_point p = machine_curve_at(curve, n_bytes);
    if (c->machine->far_byte_s > 0)
        demand_bytes(b, m, members, n, n_bytes);
    else
        demand_cores(b, members, n, NEEDED * p.cpu_s);
    if (!m->reduces) {
        m->load.sent_left = p.sent_s > 0 ? 1 - p.sent_s / p.seconds : 0;
    } else if (curve->method == method && curve->members == n && curve->nodes == nodes) {
        m->load.least_s = p.seconds;
        m->latency_s = 0;
    } else {
        double way_s = 2.0 * (n - 1) / n * n_bytes / b->slowest;
        m->load.least_s = fmax(m->load.least_s, way_s) * find_slowness(curve, b, &p);
    }
}

/* ---- sums over links ---- */

static double ring(struct basket *b, const int *members, int n, int stride, double n_bytes)
{
    double each = 2.0 * (n - 1) / n * n_bytes;
    for (int i = 0; i < n; i++)
        demand_way(b, members[i * stride], members[(i + 1) % n * stride], each);
    return 2.0 * (n - 1) * b->latency_s;
}

static double tree(struct basket *b, const int *members, int n, double n_bytes)
{
    int levels = 0;
    for (int d = 1; d < n; d *= 2, levels++)
        for (int i = 0; i + d < n; i += 2 * d) {
            demand_way(b, members[i + d], members[i], n_bytes);
            demand_way(b, members[i], members[i + d], n_bytes);
        }
    return 2.0 * levels * (b->latency_s + n_bytes / b->slowest);
}

/* By sums over each node's members instead of over all pairs. */
static double gather(struct basket *b, const int *members, int n, double n_bytes)
{
    const struct clock_run *c = b->c;
    const struct machine *m = c->machine;
    for (int i = 0; i < n; i++) {
        const struct worker *w = &c->workers[members[i]];
        int here = 0;
        for (int k = i; k >= 0 && c->workers[members[k]].node == w->node; k--)
            here++;
        for (int k = i + 1; k < n && c->workers[members[k]].node == w->node; k++)
            here++;
        demand_link(b, m->device_out[w->device], (n - 1) * n_bytes);
        demand_link(b, m->device_in[w->device], (n - 1) * n_bytes);
        demand_link(b, m->node_out[w->node], (n - here) * n_bytes);
        demand_link(b, m->node_in[w->node], (n - here) * n_bytes);
    }
    if (n > 1) /* the longest way, for its latency */
        demand_way(b, members[0], members[n - 1], 0);
    return b->latency_s;
}

static double hierarchical(struct basket *b, const struct comm_reduction *r, double n_bytes)
{
    int n_nodes = (r->n_members + r->node_size - 1) / r->node_size;
    for (int i = 0; i < r->n_members; i++) {
        int leader = i / r->node_size * r->node_size;
        if (i == leader)
            continue;
        demand_way(b, r->members[i], r->members[leader], n_bytes);
        demand_way(b, r->members[leader], r->members[i], n_bytes);
    }
    int local = r->node_size < r->n_members ? r->node_size : r->n_members;
    double inside_s = local > 1 ? 2 * (b->latency_s + (local - 1) * n_bytes / b->slowest) : 0;
    if (n_nodes < 2)
        return inside_s;
    return inside_s + ring(b, r->members, n_nodes, r->node_size, n_bytes) +
           2.0 * (n_nodes - 1) / n_nodes * n_bytes / b->slowest;
}

static enum status demand_sum(struct clock_run *c, struct rendezvous *m)
{
    const struct comm_reduction *r = m->reduction;
    double n_bytes = (double)array_bytes(r);
    struct basket b;
    TRY(basket_init(&b, c));
    if (share_host(c, r->members, r->n_members)) {
        struct machine_point p = measured(c, true, r->method, r->n_members, n_bytes);
        struct machine_point nothing = measured(c, true, r->method, r->n_members, 0);
        m->load.least_s = p.seconds;
        demand_cores(&b, r->members, r->n_members, p.cpu_s);
        share_out(c, m, &p, &nothing, comm_cut(r->count, element_bytes(r), r->n_members));
    } else if (method_of(r) == COMM_RING) {
        m->latency_s = ring(&b, r->members, r->n_members, 1, n_bytes);
    } else if (r->method == COMM_TREE) {
        m->load.least_s = tree(&b, r->members, r->n_members, n_bytes);
    } else if (r->method == COMM_HIERARCHICAL) {
        m->load.least_s = hierarchical(&b, r, n_bytes);
    } else {
        m->latency_s = gather(&b, r->members, r->n_members, n_bytes);
    }
    demand_network(&b, m, r->members, r->n_members, n_bytes);
    return basket_empty(&b, m);
}

static enum status demand_message(struct clock_run *c, struct rendezvous *m)
{
    int members[2] = {m->first, m->last};
    struct basket b;
    TRY(basket_init(&b, c));
    if (share_host(c, members, 2)) {
        struct machine_point p = measured(c, false, COMM_GATHER, 2, (double)m->n_bytes);
        struct machine_point nothing = measured(c, false, COMM_GATHER, 2, 0);
        m->load.least_s = p.seconds;
        demand_cores(&b, members, 2, p.cpu_s);
        share_out(c, m, &p, &nothing, comm_cut(m->n_bytes, 1, 2));
    } else {
        demand_way(&b, m->first, m->last, (double)m->n_bytes);
        m->latency_s = b.latency_s;
        demand_network(&b, m, members, 2, (double)m->n_bytes);
    }
    return basket_empty(&b, m);
}

enum status demands_find(struct clock_run *c, struct rendezvous *m)
{
    return m->reduces ? demand_sum(c, m) : demand_message(c, m);
}
