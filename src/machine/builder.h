/* builder.h: how the files of this room build a machine. For src/machine alone.
 *
 *     struct machine_builder b;
 *     TRY(machine_begin("two", "by hand", &b));
 *     TRY_GOTO(st, machine_use_kind(&b, "p100", &kind), fail);
 *     TRY_GOTO(st, machine_add_node(&b, &(struct machine_node){.name = "a"}), fail);
 *     TRY_GOTO(st, machine_add_device(&b, kind, port), fail);      // on the last node
 *     return machine_finish(&b, out);                              // checked; b is gone
 * fail:
 *     machine_abandon(&b);
 */
#ifndef CLEAVE_MACHINE_BUILDER_H
#define CLEAVE_MACHINE_BUILDER_H

#include "base/json.h"
#include "machine/machine.h"

enum { MACHINE_NO_LINK = -1 };

/* The connection of a device or node, each way: each of its two links has half of the latency. */
struct machine_port {
    double bytes_per_s, latency_s;
};
extern const struct machine_port machine_usual_network; /* of a node: one adapter */

/* ---- building (build.c) ---- */

struct machine_builder {
    struct machine *m;
    int kinds_room, nodes_room, devices_room, links_room, pairs_room, curves_room;
};

enum status machine_begin(const char *name, const char *source, struct machine_builder *b) MUST_USE;
void machine_abandon(struct machine_builder *b);
/* Sorts, checks (machine_check) and hands out; on failure destroys. */
enum status machine_finish(struct machine_builder *b, struct machine **out) MUST_USE;

/* All texts are copied. */
enum status machine_add_kind(struct machine_builder *b, const struct machine_kind *kind,
                             int *out) MUST_USE;
enum status machine_add_link(struct machine_builder *b, const char *name, struct machine_port port,
                             int *out) MUST_USE;
/* Copies name, about, memory_bytes, cores and host; the node has no links yet. A NULL name:
 * "node3".
 */
enum status machine_add_node(struct machine_builder *b, const struct machine_node *node) MUST_USE;
/* On the last node; no links yet. */
enum status machine_add_device(struct machine_builder *b, int kind) MUST_USE;
/* An out and an in link of the last device ("dev3.out", "dev3.in"), of the last node, or of a pair
 * of devices. */
enum status machine_add_device_port(struct machine_builder *b, struct machine_port p) MUST_USE;
enum status machine_add_node_port(struct machine_builder *b, struct machine_port p) MUST_USE;
enum status machine_add_pair_port(struct machine_builder *b, int one, int other,
                                  struct machine_port p) MUST_USE;
enum status machine_add_pair(struct machine_builder *b, struct machine_pair pair) MUST_USE;
/* Points are copied. */
enum status machine_add_curve(struct machine_builder *b,
                              const struct machine_curve *curve) MUST_USE;

/* The kind of that name among the machine's own (case does not count); -1: none. */
int machine_find_kind(const struct machine *m, const char *name);
/* The same, or else the kind of machines/devices.json, which is then added; -1 in *out: none. */
enum status machine_use_kind(struct machine_builder *b, const char *name, int *out) MUST_USE;
/* The kind of machines/devices.json, if it is a GPU with this memory (0: its own), added if it is
 * new; -1 in *out: none. */
enum status machine_use_memory(struct machine_builder *b, const char *name, int64_t memory_bytes,
                               int *out) MUST_USE;

struct machine_port machine_kind_port(const struct machine_kind *kind);
/* Of the last node, from its devices: that of its adapters together, as the node is sold. */
struct machine_port machine_sold_network(const struct machine *m);
/* Adds to links_note, unless it is there, which figures of the last node are defaults. */
enum status machine_note_links(struct machine_builder *b, bool intra, bool inter) MUST_USE;

/* Replaces the transport's curves in a finished machine. */
enum status machine_replace_curves(struct machine *m, const char *transport,
                                   const struct machine_curve *curves, int n) MUST_USE;

/* ---- compiled-in files (library.c; the arrays are made from machines/ by the build) ---- */

struct machine_file {
    const char *name; /* "optcnn" for machines/optcnn.json */
    const char *text;
    size_t n_bytes;
};
extern const struct machine_file machine_files[]; /* ends with a NULL name */

const struct machine_file *machine_find_file(const char *name); /* NULL: none; not "devices" */
/* The kind in devices.json of that name, or, of a GPU, that which is in the model's name as its
 * driver tells it ("Tesla P100-SXM2-16GB"), or among its numbers ("[10de:15f9]"). *found is false
 * if there is none. Texts in `memory`. */
enum status machine_library_kind(const char *name, arena *memory, struct machine_kind *out,
                                 bool *found) MUST_USE;
enum status machine_library_match(const char *model, arena *memory, struct machine_kind *out,
                                  bool *found) MUST_USE;

/* ---- ways in ---- */

enum status machine_parse_string(const char *text, struct machine **out) MUST_USE; /* string.c */

/* The members of a kind over what *k holds; texts live as long as the JSON. Other members are not
 * looked at. (read.c) */
enum status machine_read_kind(struct json_place at, struct machine_kind *k) MUST_USE;

/* ---- hosts (host.c builds; discover.c or discover_none.c inspects) ---- */

enum { MACHINE_HOST_GPUS = 64, MACHINE_HOST_TEXT = 160 };

struct machine_host {
    char name[64];
    char cpu[MACHINE_HOST_TEXT];   /* the model, "" if unknown */
    char about[MACHINE_HOST_TEXT]; /* packages, cores, caches */
    int units, cores;              /* usable processing units, and the cores that have them */
    int64_t memory_bytes;          /* 0: unknown; not read where it is this one */
    bool here;                     /* this process runs on it */
    int n_gpus;
    char gpus[MACHINE_HOST_GPUS][MACHINE_HOST_TEXT]; /* models */
};

/* `gpus_alone`: if there are GPUs, only they are devices. GPUs of unknown models are left out
 * and named in the log. */
enum status machine_build_host(const struct machine_host *host, int threads, bool gpus_alone,
                               const char *name, const char *source, struct machine **out) MUST_USE;

/* The host that an hwloc XML text or a synthetic string describes; STATUS_USAGE if it does not, or
 * in a build without hwloc. */
enum status machine_parse_xml(const char *text, size_t n_bytes, const char *where,
                              struct machine **out) MUST_USE;
enum status machine_parse_synthetic(const char *text, struct machine **out) MUST_USE;

#endif
