/* Builds a machine part by part. Lists grow in the arena; outgrown copies stay there until the end.
 */
#include "base/array.h"
#include "base/printable.h"
#include "machine/builder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_BYTES = 64 };

/* 100 Gbit/s, and the latency of a message over RDMA. */
const struct machine_port machine_usual_network = {12.5e9, 5e-6};

/* Names come from command lines, files and hwloc, and go into tables and JSON. */
static enum status copy(arena *memory, const char *text, const char **out)
{
    enum { LONGEST_ESCAPE = 4 };
    char *escaped;
    if (!text || printable_is(text))
        return arena_copy_text(memory, text ? text : "", out);
    size_t n_bytes = LONGEST_ESCAPE * strlen(text) + 1;
    TRY(arena_alloc_array(memory, n_bytes, 1, &escaped));
    printable_copy(escaped, n_bytes, text);
    *out = escaped;
    return STATUS_OK;
}

/* ---- beginning and ending ---- */

enum status machine_begin(const char *name, const char *source, struct machine_builder *b)
{
    arena *memory;
    *b = (struct machine_builder){0};
    TRY(arena_create(&memory));
    enum status st;
    TRY_GOTO(st, arena_alloc(memory, sizeof *b->m, &b->m), fail);
    b->m->memory = memory;
    TRY_GOTO(st, copy(memory, name, &b->m->name), fail);
    TRY_GOTO(st, copy(memory, source, &b->m->source), fail);
    b->m->links_note = "";
    return STATUS_OK;
fail:
    arena_destroy(memory);
    return st;
}

void machine_destroy(struct machine *m)
{
    if (m)
        arena_destroy(m->memory);
}

void machine_abandon(struct machine_builder *b)
{
    machine_destroy(b->m);
    b->m = NULL;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct machine_pair *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

enum status machine_finish(struct machine_builder *b, struct machine **out)
{
    struct machine *m = b->m;
    if (m->n_pairs)
        qsort(m->pairs, (size_t)m->n_pairs, sizeof *m->pairs, compare_pairs);
    enum status st = machine_check(m);
    if (st != STATUS_OK) {
        machine_abandon(b);
        return st;
    }
    *out = m;
    b->m = NULL;
    return STATUS_OK;
}

/* ---- kinds ---- */

enum status machine_add_kind(struct machine_builder *b, const struct machine_kind *kind, int *out)
{
    struct machine *m = b->m;
    TRY(array_reserve(m->memory, &m->kinds, m->n_kinds + 1, &b->kinds_room, sizeof *m->kinds));
    struct machine_kind *k = &m->kinds[m->n_kinds];
    *k = *kind;
    TRY(copy(m->memory, kind->name, &k->name));
    TRY(copy(m->memory, kind->about, &k->about));
    TRY(copy(m->memory, kind->note, &k->note));
    TRY(copy(m->memory, kind->sold, &k->sold));
    *out = m->n_kinds++;
    return STATUS_OK;
}

int machine_find_kind(const struct machine *m, const char *name)
{
    for (int i = 0; i < m->n_kinds; i++)
        if (!strcasecmp(m->kinds[i].name, name))
            return i;
    return -1;
}

enum status machine_use_kind(struct machine_builder *b, const char *name, int *out)
{
    *out = machine_find_kind(b->m, name);
    if (*out >= 0)
        return STATUS_OK;
    struct machine_kind kind;
    bool found;
    TRY(machine_library_kind(name, b->m->memory, &kind, &found));
    return found ? machine_add_kind(b, &kind, out) : STATUS_OK;
}

/* A kind is known by its name: "p100", and "p100@8589934592" if another memory has that name. */
enum status machine_use_memory(struct machine_builder *b, const char *name, int64_t memory_bytes,
                               int *out)
{
    struct machine *m = b->m;
    struct machine_kind kind;
    bool found;
    *out = -1;
    TRY(machine_library_kind(name, m->memory, &kind, &found));
    if (!found)
        return STATUS_OK;
    if (memory_bytes > 0 && kind.class == MACHINE_GPU)
        kind.memory_bytes = memory_bytes;
    *out = machine_find_kind(m, kind.name);
    if (*out >= 0 && m->kinds[*out].memory_bytes != kind.memory_bytes) {
        TRY(arena_print(m->memory, &kind.name, "%s@%lld", kind.name, (long long)kind.memory_bytes));
        *out = machine_find_kind(m, kind.name);
    }
    return *out >= 0 ? STATUS_OK : machine_add_kind(b, &kind, out);
}

struct machine_port machine_kind_port(const struct machine_kind *kind)
{
    return (struct machine_port){kind->link_bytes_per_s, kind->link_latency_s};
}

/* ---- links of nodes as sold ---- */

/* One for every `each` of n devices. */
static int count_adapters(int n, int each)
{
    return (n + each - 1) / each;
}

/* A node's adapters count as one link: sums use all of them, and so do messages of all devices. A
 * message of a single device alone would get no more than its own adapter. */
struct machine_port machine_sold_network(const struct machine *m)
{
    const struct machine_node *node = &m->nodes[m->n_nodes - 1];
    struct machine_port port = {0, machine_usual_network.latency_s};
    for (int k = 0; k < m->n_kinds; k++) {
        const struct machine_kind *kind = &m->kinds[k];
        int n = 0, each = kind->adapter_devices;
        for (int i = node->first_device; i < node->first_device + node->n_devices; i++)
            n += m->devices[i].kind == k;
        if (each > 0)
            port.bytes_per_s += count_adapters(n, each) * kind->adapter_bytes_per_s;
    }
    return port.bytes_per_s > 0 ? port : machine_usual_network;
}

/* "h200 nodes as sold (DGX H200: ...): 450 GB/s for each device, 400 GB/s for each node" */
static enum status describe_links(const struct machine *m, const struct machine_kind *kind,
                                  bool intra, bool inter, const char **out)
{
    char each[64] = "", node[64] = "";
    if (intra)
        (void)snprintf(each, sizeof each, "%.4g GB/s for each device",
                       kind->link_bytes_per_s / 1e9);
    if (inter)
        (void)snprintf(node, sizeof node, "%s%.4g GB/s for each node of %d", intra ? ", " : "",
                       machine_sold_network(m).bytes_per_s / 1e9,
                       m->nodes[m->n_nodes - 1].n_devices);
    return arena_print(m->memory, out, "%s nodes%s%s%s: %s%s", kind->name,
                       *kind->sold ? " as sold (" : "", kind->sold, *kind->sold ? ")" : "", each,
                       node);
}

enum status machine_note_links(struct machine_builder *b, bool intra, bool inter)
{
    struct machine *m = b->m;
    const struct machine_node *node = &m->nodes[m->n_nodes - 1];
    intra = intra && node->n_devices > 1;
    for (int k = 0; k < m->n_kinds && (intra || inter); k++) {
        bool has = false;
        const char *text;
        for (int i = node->first_device; i < node->first_device + node->n_devices; i++)
            has |= m->devices[i].kind == k;
        if (!has || m->kinds[k].class == MACHINE_CPU)
            continue;
        TRY(describe_links(m, &m->kinds[k], intra, inter, &text));
        if (strstr(m->links_note, text))
            continue;
        const char *before = *m->links_note ? m->links_note : "links of";
        TRY(arena_print(m->memory, &m->links_note, "%s%s %s", before, *m->links_note ? ";" : "",
                        text));
    }
    return STATUS_OK;
}

/* ---- nodes and devices ---- */

enum status machine_add_node(struct machine_builder *b, const struct machine_node *node)
{
    struct machine *m = b->m;
    int room = b->nodes_room, n = m->n_nodes;
    TRY(array_reserve(m->memory, &m->nodes, n + 1, &b->nodes_room, sizeof *m->nodes));
    int again = room;
    TRY(array_reserve(m->memory, &m->node_out, n + 1, &again, sizeof *m->node_out));
    TRY(array_reserve(m->memory, &m->node_in, n + 1, &room, sizeof *m->node_in));
    struct machine_node *to = &m->nodes[n];
    *to = (struct machine_node){.first_device = m->n_devices,
                                .memory_bytes = node->memory_bytes,
                                .cores = node->cores,
                                .own_cores = node->own_cores};
    if (node->name)
        TRY(copy(m->memory, node->name, &to->name));
    else
        TRY(arena_print(m->memory, &to->name, "node%d", n));
    TRY(copy(m->memory, node->about, &to->about));
    TRY(copy(m->memory, node->host, &to->host));
    m->node_out[n] = m->node_in[n] = MACHINE_NO_LINK;
    m->n_nodes++;
    return STATUS_OK;
}

enum status machine_add_device(struct machine_builder *b, int kind)
{
    struct machine *m = b->m;
    int n = m->n_devices, room = b->devices_room, again = room;
    if (n == MACHINE_MAX_DEVICES)
        return status_fail(STATUS_USAGE, "machine '%.80s' has more than %d devices", m->name,
                           MACHINE_MAX_DEVICES);
    TRY(array_reserve(m->memory, &m->devices, n + 1, &b->devices_room, sizeof *m->devices));
    TRY(array_reserve(m->memory, &m->device_out, n + 1, &again, sizeof *m->device_out));
    TRY(array_reserve(m->memory, &m->device_in, n + 1, &room, sizeof *m->device_in));
    m->devices[n] = (struct machine_device){.kind = kind, .node = m->n_nodes - 1};
    m->device_out[n] = m->device_in[n] = MACHINE_NO_LINK;
    m->nodes[m->n_nodes - 1].n_devices++;
    m->n_devices++;
    return STATUS_OK;
}

/* ---- links ---- */

enum status machine_add_link(struct machine_builder *b, const char *name, struct machine_port port,
                             int *out)
{
    struct machine *m = b->m;
    TRY(array_reserve(m->memory, &m->links, m->n_links + 1, &b->links_room, sizeof *m->links));
    struct machine_link *link = &m->links[m->n_links];
    *link = (struct machine_link){.bytes_per_s = port.bytes_per_s, .latency_s = port.latency_s};
    TRY(copy(m->memory, name, &link->name));
    *out = m->n_links++;
    return STATUS_OK;
}

/* "dev3.out" and "dev3.in", with half of the latency each; existing links stay. */
static enum status add_port(struct machine_builder *b, const char *what, int number,
                            struct machine_port port, int *out, int *in)
{
    char name[NAME_BYTES];
    port.latency_s /= 2;
    if (*out == MACHINE_NO_LINK) {
        (void)snprintf(name, sizeof name, "%s%d.out", what, number);
        TRY(machine_add_link(b, name, port, out));
    }
    if (*in == MACHINE_NO_LINK) {
        (void)snprintf(name, sizeof name, "%s%d.in", what, number);
        TRY(machine_add_link(b, name, port, in));
    }
    return STATUS_OK;
}

enum status machine_add_device_port(struct machine_builder *b, struct machine_port p)
{
    int n = b->m->n_devices - 1;
    return add_port(b, "dev", n, p, &b->m->device_out[n], &b->m->device_in[n]);
}

enum status machine_add_node_port(struct machine_builder *b, struct machine_port p)
{
    int n = b->m->n_nodes - 1;
    return add_port(b, "node", n, p, &b->m->node_out[n], &b->m->node_in[n]);
}

enum status machine_add_pair(struct machine_builder *b, struct machine_pair pair)
{
    struct machine *m = b->m;
    TRY(array_reserve(m->memory, &m->pairs, m->n_pairs + 1, &b->pairs_room, sizeof *m->pairs));
    m->pairs[m->n_pairs++] = pair;
    return STATUS_OK;
}

/* One link each way, with the whole latency: no other link is on the route. */
enum status machine_add_pair_port(struct machine_builder *b, int one, int other,
                                  struct machine_port p)
{
    const int ends[2][2] = {{one, other}, {other, one}};
    for (int i = 0; i < 2; i++) {
        char name[NAME_BYTES];
        struct machine_pair pair = {.from = ends[i][0], .to = ends[i][1]};
        (void)snprintf(name, sizeof name, "dev%d.dev%d", pair.from, pair.to);
        TRY(machine_add_link(b, name, p, &pair.link));
        TRY(machine_add_pair(b, pair));
    }
    return STATUS_OK;
}

/* ---- curves ---- */

static enum status copy_curve(arena *memory, const struct machine_curve *from,
                              struct machine_curve *to)
{
    struct machine_point *points;
    *to = *from;
    TRY(copy(memory, from->transport, &to->transport));
    TRY(arena_alloc_array(memory, (size_t)from->n_points, sizeof *points, &points));
    if (from->n_points)
        memcpy(points, from->points, (size_t)from->n_points * sizeof *points);
    to->points = points;
    return STATUS_OK;
}

enum status machine_add_curve(struct machine_builder *b, const struct machine_curve *curve)
{
    struct machine *m = b->m;
    TRY(array_reserve(m->memory, &m->curves, m->n_curves + 1, &b->curves_room, sizeof *m->curves));
    TRY(copy_curve(m->memory, curve, &m->curves[m->n_curves]));
    m->n_curves++;
    return STATUS_OK;
}

enum status machine_replace_curves(struct machine *m, const char *transport,
                                   const struct machine_curve *curves, int n)
{
    struct machine_curve *all;
    int kept = 0;
    TRY(arena_alloc_array(m->memory, (size_t)(m->n_curves + n), sizeof *all, &all));
    for (int i = 0; i < m->n_curves; i++)
        if (strcmp(m->curves[i].transport, transport) != 0)
            all[kept++] = m->curves[i];
    for (int i = 0; i < n; i++)
        TRY(copy_curve(m->memory, &curves[i], &all[kept++]));
    m->curves = all;
    m->n_curves = kept;
    return STATUS_OK;
}
