/* Queries of a finished machine. */
#include "machine/machine.h"

#include <stdio.h>

#include "base/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- routes ---- */

/* The link of the pair, or -1; pairs are sorted. */
static int find_pair(const struct machine *m, int from, int to)
{
    int low = 0, high = m->n_pairs;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct machine_pair *p = &m->pairs[middle];
        if (p->from == from && p->to == to)
            return p->link;
        if (p->from < from || (p->from == from && p->to < to))
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static void add_hop(int *hops, int *n, int link)
{
    if (link >= 0)
        hops[(*n)++] = link;
}

struct machine_rate machine_kind_rate(const struct machine_kind *k, enum arithmetic type)
{
    const struct machine_rate single = k->rates[ARITHMETIC_F32];
    if (k->rates[type].reached > 0 || k->class != MACHINE_CPU)
        return k->rates[type];
    if (type == ARITHMETIC_BF16)
        return single;
    if (type == ARITHMETIC_F64)
        return (struct machine_rate){single.peak / 2, single.reached / 2};
    return k->rates[type];
}

static bool has_rate(const struct machine_kind *k, enum precision precision)
{
    return machine_kind_rate(k, precision_get_info(precision)->products).reached > 0;
}

enum status machine_check_rates(const struct machine *m, enum precision precision)
{
    for (int i = 0; i < m->n_kinds; i++) {
        const struct machine_kind *k = &m->kinds[i];
        char able[64] = "";
        size_t used = 0;
        if (has_rate(k, precision))
            continue;
        for (int p = 0; p < PRECISION_COUNT && used < sizeof able; p++)
            if (has_rate(k, (enum precision)p))
                used += (size_t)snprintf(able + used, sizeof able - used, "%s%s", used ? ", " : "",
                                         precision_names[p]);
        return status_fail(STATUS_USAGE,
                           "device '%.80s' has no rate for %s: it has those for %s (a machine file "
                           "can add \"rates\")",
                           k->name, precision_names[precision], able);
    }
    return STATUS_OK;
}

int machine_route(const struct machine *m, int a, int b, int hops[MACHINE_MAX_HOPS])
{
    int n = 0;
    if (a == b)
        return 0;
    int from = m->devices[a].node, to = m->devices[b].node;
    int direct = from == to ? find_pair(m, a, b) : -1;
    if (direct >= 0) {
        add_hop(hops, &n, direct);
        return n;
    }
    add_hop(hops, &n, m->device_out[a]);
    if (from != to) {
        add_hop(hops, &n, m->node_out[from]);
        add_hop(hops, &n, m->node_in[to]);
    }
    add_hop(hops, &n, m->device_in[b]);
    return n;
}

/* ---- memory ---- */

int machine_find_host(const struct machine *m, int node)
{
    for (int i = 0; i < node && *m->nodes[node].host; i++)
        if (!strcmp(m->nodes[i].host, m->nodes[node].host))
            return i;
    return node;
}

int64_t machine_device_memory(const struct machine *m, int device)
{
    const struct machine_device *d = &m->devices[device];
    const struct machine_node *node = &m->nodes[d->node];
    if (m->kinds[d->kind].class == MACHINE_GPU)
        return m->kinds[d->kind].memory_bytes;
    int cpus = 0;
    for (int i = node->first_device; i < node->first_device + node->n_devices; i++)
        cpus += m->kinds[m->devices[i].kind].class == MACHINE_CPU;
    return cpus ? node->memory_bytes / cpus : 0;
}

/* ---- curves ---- */

/* How far a curve is from the wanted one; a different method weighs most, then the number of nodes,
 * then of members. Negative: the curve cannot stand in. */
static double distance(const struct machine_curve *c, bool reduces, enum comm_method method,
                       int members, int nodes)
{
    enum { OTHER_METHOD = 10000, OTHER_NODES = 100 };
    int on = int_max(c->nodes, 1);
    if (c->reduces != reduces || c->n_points < 1 || (on > 1) != (nodes > 1))
        return -1;
    double d = fabs(log2((double)c->members / (double)(members > 1 ? members : 2)));
    d += OTHER_NODES * fabs(log2((double)on / (double)nodes));
    /* Among other methods ring is nearest: its members share the work evenly. */
    if (reduces && c->method != method)
        d += c->method == COMM_RING ? OTHER_METHOD : 2 * OTHER_METHOD;
    return d;
}

static const struct machine_curve *find(const struct machine *m, const char *transport,
                                        bool reduces, enum comm_method method, int members,
                                        int nodes)
{
    const struct machine_curve *best = NULL;
    double best_distance = INFINITY;
    for (int i = 0; i < m->n_curves; i++) {
        const struct machine_curve *c = &m->curves[i];
        double d = distance(c, reduces, method, members, nodes);
        if (d < 0 || d >= best_distance || strcmp(c->transport, transport) != 0)
            continue;
        best = c;
        best_distance = d;
    }
    return best;
}

const struct machine_curve *machine_find_curve(const struct machine *m, const char *transport,
                                               bool reduces, enum comm_method method, int members)
{
    return find(m, transport, reduces, method, members, 1);
}

const struct machine_curve *machine_find_network_curve(const struct machine *m,
                                                       const char *transport, bool reduces,
                                                       enum comm_method method, int members,
                                                       int nodes)
{
    return find(m, transport, reduces, method, members, int_max(nodes, 2));
}

/* Interpolates from a to b, on logarithms if both are positive. */
static double between(double a, double b, double t)
{
    if (a > 0 && b > 0)
        return exp(log(a) + t * (log(b) - log(a)));
    return a + t * (b - a);
}

struct machine_point machine_curve_at(const struct machine_curve *c, double bytes)
{
    const struct machine_point *p = c->points, *last = &p[c->n_points - 1];
    if (bytes <= p[0].bytes)
        return (struct machine_point){bytes, p[0].seconds, p[0].cpu_s, p[0].sent_s};
    if (bytes >= last->bytes) { /* the buffers do not grow */
        double times = bytes / last->bytes, seconds = last->seconds * times;
        double sent_s = last->sent_s > 0 ? seconds - (last->seconds - last->sent_s) : 0;
        return (struct machine_point){bytes, seconds, last->cpu_s * times, sent_s};
    }
    while (p[1].bytes < bytes)
        p++;
    double t = log(bytes / p[0].bytes) / log(p[1].bytes / p[0].bytes);
    return (struct machine_point){bytes, between(p[0].seconds, p[1].seconds, t),
                                  between(p[0].cpu_s, p[1].cpu_s, t),
                                  between(p[0].sent_s, p[1].sent_s, t)};
}
