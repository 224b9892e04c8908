/* The rules of a machine. */
#include "machine/builder.h"

#include "base/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Beyond these no sum or quotient of the predictions stays finite for sure. They stand in messages,
 * so that nobody has to guess. */
#define LARGEST_TEXT "1e24"
static const double LARGEST = 1e24;

/* Operations or bytes, in a second or not. */
static bool is_amount(double x)
{
    return isfinite(x) && x >= 1 && x <= LARGEST;
}

static bool is_duration(double x)
{
    return isfinite(x) && x >= 0 && x <= LARGEST;
}

static bool is_text(const char *text)
{
    return text && *text;
}

/* ---- kinds ---- */

static enum status fail_kind(const struct machine_kind *k, const char *why)
{
    return status_fail(STATUS_FAILED, "device kind '%.80s': %s", k->name, why);
}

static enum status check_rates(const struct machine_kind *k)
{
    const struct machine_rate *single = &k->rates[ARITHMETIC_F32];
    if (!is_amount(single->peak) || !is_amount(single->reached))
        return fail_kind(k, "peak and reached figures must be from 1 to " LARGEST_TEXT);
    for (int i = 0; i < ARITHMETIC_COUNT; i++) {
        const struct machine_rate *rate = &k->rates[i];
        bool none = rate->peak == 0 && rate->reached == 0;
        if (!none && (!is_amount(rate->peak) || !is_amount(rate->reached)))
            return fail_kind(k, "a rate has a peak and a reached figure from 1 to " LARGEST_TEXT);
        if (rate->reached > rate->peak)
            return fail_kind(k, "reached figures must not be above the peak");
    }
    return STATUS_OK;
}

static enum status check_kind(const struct machine_kind *k)
{
    if (!is_text(k->name))
        return status_fail(STATUS_FAILED, "a device kind has no name");
    TRY(check_rates(k));
    if (!is_amount(k->peak_bytes_per_s) || !is_amount(k->reached_bytes_per_s))
        return fail_kind(k, "peak and reached figures must be from 1 to " LARGEST_TEXT);
    if (k->reached_bytes_per_s > k->peak_bytes_per_s)
        return fail_kind(k, "reached figures must not be above the peak");
    if (k->memory_bytes < 0 || (k->class == MACHINE_GPU) != (k->memory_bytes > 0))
        return fail_kind(k, k->class == MACHINE_GPU ? "memory_bytes must be above 0"
                                                    : "the memory of CPUs is their node's");
    if (k->cores < 0 || (k->class == MACHINE_CPU) != (k->cores > 0))
        return fail_kind(k, k->class == MACHINE_CPU ? "cores must be 1 or more"
                                                    : "only CPUs have cores");
    if (!is_duration(k->launch_s) || !is_duration(k->link_latency_s) ||
        !is_duration(k->link_bytes_per_s))
        return fail_kind(
            k, "launch_s, link_bytes_per_s and link_latency_s must be from 0 to " LARGEST_TEXT);
    if (k->adapter_devices < 0 || !is_duration(k->adapter_bytes_per_s) ||
        (k->adapter_devices > 0) != (k->adapter_bytes_per_s > 0))
        return fail_kind(k, "adapter_devices and adapter_bytes_per_s are given together, above 0");
    return STATUS_OK;
}

/* ---- nodes and devices ---- */

static enum status check_devices_of(const struct machine *m, int node)
{
    const struct machine_node *n = &m->nodes[node];
    for (int i = n->first_device; i < n->first_device + n->n_devices; i++) {
        const struct machine_device *d = &m->devices[i];
        if (d->node != node)
            return status_fail(STATUS_FAILED, "device %d says it is on node %d, but is on %d", i,
                               d->node, node);
        if (d->kind < 0 || d->kind >= m->n_kinds)
            return status_fail(STATUS_FAILED, "device %d is of kind %d of %d", i, d->kind,
                               m->n_kinds);
    }
    return STATUS_OK;
}

static enum status check_cores(const struct machine_node *n)
{
    if (n->own_cores != 0 && n->own_cores != n->cores)
        return status_fail(STATUS_FAILED, "node '%.80s': own_cores is 0 or its %d cores", n->name,
                           n->cores);
    return STATUS_OK;
}

static enum status check_nodes(const struct machine *m)
{
    int first = 0;
    for (int i = 0; i < m->n_nodes; i++) {
        const struct machine_node *n = &m->nodes[i];
        if (!is_text(n->name))
            return status_fail(STATUS_FAILED, "node %d has no name", i);
        if (n->n_devices < 1)
            return status_fail(STATUS_FAILED, "node '%.80s' has no devices", n->name);
        if (n->memory_bytes < 0)
            return status_fail(STATUS_FAILED, "node '%.80s': memory_bytes must be 0 or more",
                               n->name);
        if (n->first_device != first || n->n_devices > m->n_devices - first)
            return status_fail(STATUS_FAILED,
                               "node '%.80s': its devices do not follow those of the node before",
                               n->name);
        TRY(check_cores(n));
        TRY(check_devices_of(m, i));
        first += n->n_devices;
    }
    if (first != m->n_devices)
        return status_fail(STATUS_FAILED, "%d devices are on no node", m->n_devices - first);
    return STATUS_OK;
}

/* ---- links ---- */

static enum status check_index(const struct machine *m, const char *what, int number, int link)
{
    if (link >= MACHINE_NO_LINK && link < m->n_links)
        return STATUS_OK;
    return status_fail(STATUS_FAILED, "%s %d uses link %d of %d", what, number, link, m->n_links);
}

static enum status check_uses(const struct machine *m)
{
    for (int i = 0; i < m->n_devices; i++) {
        TRY(check_index(m, "device", i, m->device_out[i]));
        TRY(check_index(m, "device", i, m->device_in[i]));
    }
    for (int i = 0; i < m->n_nodes; i++) {
        TRY(check_index(m, "node", i, m->node_out[i]));
        TRY(check_index(m, "node", i, m->node_in[i]));
    }
    return STATUS_OK;
}

static enum status check_link(const struct machine_link *link)
{
    if (!is_text(link->name))
        return status_fail(STATUS_FAILED, "a link has no name");
    if (!is_amount(link->bytes_per_s))
        return status_fail(STATUS_FAILED,
                           "link '%.80s': its bandwidth must be from 1 to " LARGEST_TEXT
                           " bytes a second",
                           link->name);
    if (!is_duration(link->latency_s))
        return status_fail(STATUS_FAILED,
                           "link '%.80s': its latency must be from 0 to " LARGEST_TEXT " s",
                           link->name);
    if (!(link->burst_bytes >= 0) || !isfinite(link->burst_bytes))
        return status_fail(STATUS_FAILED, "link '%.80s': its burst must be 0 or more bytes",
                           link->name);
    return STATUS_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* `names` is sorted here. */
static enum status check_unique(const char *what, const char **names, int n)
{
    if (n > 1)
        qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 1; i < n; i++)
        if (!strcmp(names[i - 1], names[i]))
            return status_fail(STATUS_FAILED, "two %s are named '%.80s'", what, names[i]);
    return STATUS_OK;
}

static enum status check_names(const struct machine *m)
{
    int most = int_max(m->n_links, m->n_kinds);
    const char **names = calloc((size_t)most + 1, sizeof *names);
    if (!names)
        return status_no_memory((size_t)most * sizeof *names);
    for (int i = 0; i < m->n_links; i++)
        names[i] = m->links[i].name;
    enum status st = check_unique("links", names, m->n_links);
    for (int i = 0; i < m->n_kinds; i++)
        names[i] = m->kinds[i].name;
    if (st == STATUS_OK)
        st = check_unique("device kinds", names, m->n_kinds);
    free(names);
    return st;
}

static enum status check_pair(const struct machine *m, int number)
{
    const struct machine_pair *p = &m->pairs[number], *before = p - 1;
    if (p->from < 0 || p->from >= m->n_devices || p->to < 0 || p->to >= m->n_devices ||
        p->from == p->to || m->devices[p->from].node != m->devices[p->to].node)
        return status_fail(STATUS_FAILED, "a pair must be two devices of one node, not %d and %d",
                           p->from, p->to);
    if (p->link < 0 || p->link >= m->n_links)
        return status_fail(STATUS_FAILED, "the pair of devices %d and %d has no link", p->from,
                           p->to);
    if (number > 0 && (before->from > p->from || (before->from == p->from && before->to >= p->to)))
        return status_fail(STATUS_FAILED,
                           before->from == p->from && before->to == p->to
                               ? "the pair of devices %d and %d is there twice"
                               : "the pair of devices %d and %d is out of order",
                           p->from, p->to);
    return STATUS_OK;
}

/* ---- curves ---- */

static enum status fail_curve(int number, const char *why)
{
    return status_fail(STATUS_FAILED, "curve %d: %s", number, why);
}

static enum status check_curve(const struct machine *m, int number)
{
    const struct machine_curve *c = &m->curves[number];
    if (!is_text(c->transport))
        return fail_curve(number, "it does not say its transport");
    if ((unsigned)c->method >= COMM_METHOD_COUNT)
        return fail_curve(number, "there is no such method");
    if (c->members < 2 || (!c->reduces && c->members != 2))
        return fail_curve(number,
                          c->reduces ? "a sum has 2 members or more" : "a message has 2 members");
    if (c->nodes < 0 || c->nodes > c->members)
        return fail_curve(number, "its members are on 1 node at least, and at most one each");
    if (c->n_points < 1)
        return fail_curve(number, "it has no points");
    for (int i = 0; i < c->n_points; i++) {
        const struct machine_point *p = &c->points[i];
        if (!is_amount(p->bytes) || !is_duration(p->seconds) || p->seconds == 0 ||
            !is_duration(p->cpu_s))
            return fail_curve(number, "bytes must be from 1, seconds above 0 and cpu_s from 0 "
                                      "on, all up to " LARGEST_TEXT);
        if (p->cpu_s > p->seconds)
            return fail_curve(number, "cpu_s is a part of the seconds");
        if (!is_duration(p->sent_s) || p->sent_s > p->seconds)
            return fail_curve(number, "sent_s is a part of the seconds");
        if (i > 0 && p->bytes <= p[-1].bytes)
            return fail_curve(number, "its points must ascend in bytes");
    }
    return STATUS_OK;
}

enum status machine_check(const struct machine *m)
{
    if (m->n_devices < 1 || m->n_devices > MACHINE_MAX_DEVICES)
        return status_fail(STATUS_FAILED, "a machine has 1 to %d devices, not %d",
                           MACHINE_MAX_DEVICES, m->n_devices);
    for (int i = 0; i < m->n_kinds; i++)
        TRY(check_kind(&m->kinds[i]));
    TRY(check_nodes(m));
    for (int i = 0; i < m->n_links; i++)
        TRY(check_link(&m->links[i]));
    TRY(check_names(m));
    TRY(check_uses(m));
    for (int i = 0; i < m->n_pairs; i++)
        TRY(check_pair(m, i));
    for (int i = 0; i < m->n_curves; i++)
        TRY(check_curve(m, i));
    if (!(m->wait_share >= 0 && m->wait_share < 1) || !is_duration(m->far_byte_s))
        return status_fail(STATUS_FAILED, "far_byte_s must be from 0 to " LARGEST_TEXT
                                          ", wait_share 0 or more and less than 1");
    if (!is_duration(m->wake_s) || !is_duration(m->deep_wake_s) || !is_duration(m->ring_s) ||
        !is_duration(m->step_s))
        return status_fail(
            STATUS_FAILED,
            "wake_s, deep_wake_s, ring_s and step_s must be from 0 to " LARGEST_TEXT);
    return STATUS_OK;
}
