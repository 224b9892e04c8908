/* Machines from JSON (docs/machines.md has the format).
 *
 * Two ways of writing mix freely: links by name, as machine_write does it, or bandwidths ("intra",
 * "inter") from which each device and node gets links of its own. */
#include "machine/read.h"
#include "machine/parts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, MOST_REPEATS = MACHINE_MAX_DEVICES };

struct reading {
    struct machine_builder builder;
    const struct machine_place *top;
    const json_t *root;
    int n_named;    /* links that stand in the file, and can be named */
    int last_used;  /* of them: files name them in order, so the next is looked for from here */
    bool networked; /* more than one node */
};

/* What "intra", "inter" and their latencies say; 0 and -1: nothing. */
struct wish {
    double bytes_per_s, latency_s;
};
static const struct wish nothing = {0, -1};

static struct machine_port grant(struct wish wish, struct machine_port usual)
{
    return (struct machine_port){wish.bytes_per_s > 0 ? wish.bytes_per_s : usual.bytes_per_s,
                                 wish.latency_s >= 0 ? wish.latency_s : usual.latency_s};
}

static enum status read_wish(const struct machine_place *at, const json_t *object,
                             const char *bandwidth, const char *latency, struct wish *wish)
{
    TRY(machine_read_bandwidth(at, object, bandwidth, &wish->bytes_per_s));
    return machine_read_seconds(at, object, latency, &wish->latency_s);
}

/* ---- kinds ---- */

enum status machine_read_kind(const struct machine_place *at, const json_t *object,
                              struct machine_kind *k)
{
    static const char *const classes[] = {
        [MACHINE_CPU] = "cpu", [MACHINE_GPU] = "gpu", [MACHINE_GPU + 1] = NULL};
    int class = (int)k->class;
    int64_t cores = k->cores;
    TRY(machine_read_text(at, object, "name", &k->name));
    TRY(machine_read_text(at, object, "about", &k->about));
    TRY(machine_read_text(at, object, "note", &k->note));
    TRY(machine_read_choice(at, object, "class", classes, &class));
    TRY(machine_read_real(at, object, "peak_flops_per_s", &k->peak_flops_per_s));
    TRY(machine_read_real(at, object, "reached_flops_per_s", &k->reached_flops_per_s));
    TRY(machine_read_bandwidth(at, object, "peak_bytes_per_s", &k->peak_bytes_per_s));
    TRY(machine_read_bandwidth(at, object, "reached_bytes_per_s", &k->reached_bytes_per_s));
    TRY(machine_read_bytes(at, object, "memory_bytes", &k->memory_bytes));
    TRY(machine_read_seconds(at, object, "launch_s", &k->launch_s));
    TRY(machine_read_integer(at, object, "cores", 0, 1 << 20, &cores));
    TRY(machine_read_bandwidth(at, object, "link_bytes_per_s", &k->link_bytes_per_s));
    TRY(machine_read_seconds(at, object, "link_latency_s", &k->link_latency_s));
    k->class = (enum machine_device_class) class;
    k->cores = (int)cores;
    if (!*k->name)
        return machine_place_fail(at, "a kind needs a \"name\"");
    return STATUS_OK;
}

static enum status find_kind(struct reading *r, const struct machine_place *at, const char *name,
                             int *out)
{
    TRY(machine_use_kind(&r->builder, name, out));
    if (*out >= 0)
        return STATUS_OK;
    struct machine *m = r->builder.m;
    const char *const *known;
    const char **names;
    int n = 0;
    TRY(machine_kind_names(m->memory, &known));
    while (known[n])
        n++;
    TRY(arena_alloc_array(m->memory, (size_t)(m->n_kinds + n) + 1, sizeof *names, &names));
    for (int i = 0; i < m->n_kinds; i++)
        names[i] = m->kinds[i].name;
    memcpy(names + m->n_kinds, known, (size_t)n * sizeof *names);
    return machine_place_fail_unknown(at, "device", name, names);
}

static enum status read_kind(struct reading *r, const struct machine_place *at,
                             const json_t *object)
{
    static const char *const keys[] = {"name",
                                       "like",
                                       "about",
                                       "note",
                                       "class",
                                       "peak_flops_per_s",
                                       "reached_flops_per_s",
                                       "peak_bytes_per_s",
                                       "reached_bytes_per_s",
                                       "memory_bytes",
                                       "launch_s",
                                       "cores",
                                       "link_bytes_per_s",
                                       "link_latency_s",
                                       NULL};
    struct machine_kind kind = {.name = "", .about = "", .note = "", .class = MACHINE_GPU};
    const char *like = NULL;
    int number = 0;
    TRY(machine_read_object(at, object, keys));
    TRY(machine_read_text(at, object, "like", &like));
    if (like) {
        bool found;
        TRY(machine_library_kind(like, r->builder.m->memory, &kind, &found));
        if (!found) {
            const char *const *names;
            TRY(machine_kind_names(r->builder.m->memory, &names));
            return machine_place_fail_unknown(at, "device", like, names);
        }
    }
    TRY(machine_read_kind(at, object, &kind));
    if (machine_find_kind(r->builder.m, kind.name) >= 0)
        return machine_place_fail(at, "kind '%.80s' is there twice", kind.name);
    return machine_add_kind(&r->builder, &kind, &number);
}

/* ---- links ---- */

static enum status read_link(struct reading *r, const struct machine_place *at,
                             const json_t *object)
{
    static const char *const keys[] = {"name", "bytes_per_s", "latency_s", "burst_bytes", NULL};
    const char *name = NULL;
    struct machine_port port = {0};
    double burst_bytes = 0;
    int link;
    TRY(machine_read_object(at, object, keys));
    TRY(machine_read_text(at, object, "name", &name));
    TRY(machine_read_bandwidth(at, object, "bytes_per_s", &port.bytes_per_s));
    TRY(machine_read_seconds(at, object, "latency_s", &port.latency_s));
    TRY(machine_read_real(at, object, "burst_bytes", &burst_bytes));
    if (!name || !*name || !(port.bytes_per_s > 0))
        return machine_place_fail(at, "a link needs its \"%s\"",
                                  name && *name ? "bytes_per_s" : "name");
    TRY(machine_add_link(&r->builder, name, port, &link));
    r->builder.m->links[link].burst_bytes = burst_bytes;
    r->n_named++;
    return STATUS_OK;
}

static enum status find_link(struct reading *r, const struct machine_place *at, const char *name,
                             int *out)
{
    const struct machine *m = r->builder.m;
    for (int i = 0; i < r->n_named; i++) {
        int link = (r->last_used + i) % r->n_named;
        if (!strcmp(m->links[link].name, name)) {
            r->last_used = link;
            *out = link;
            return STATUS_OK;
        }
    }
    const char **names;
    TRY(arena_alloc_array(m->memory, (size_t)r->n_named + 1, sizeof *names, &names));
    for (int i = 0; i < r->n_named; i++)
        names[i] = m->links[i].name;
    return machine_place_fail_unknown(at, "link", name, names);
}

/* "out" or "in": a link's name; null: there is none. *said: one of the two is there. */
static enum status read_end(struct reading *r, const struct machine_place *at, const json_t *object,
                            const char *key, int *out, bool *said)
{
    const json_t *value = json_object_get(object, key);
    const char *name = NULL;
    struct machine_place here = machine_place_of(at, key);
    *said = value;
    *out = MACHINE_NO_LINK;
    if (!value || json_is_null(value))
        return STATUS_OK;
    TRY(machine_read_text(at, object, key, &name));
    return find_link(r, &here, name, out);
}

/* Both ends, or neither: then the owner gets links of its own. */
static enum status read_ends(struct reading *r, const struct machine_place *at,
                             const json_t *object, int *out, int *in, bool *said)
{
    bool says_out, says_in;
    TRY(read_end(r, at, object, "out", out, &says_out));
    TRY(read_end(r, at, object, "in", in, &says_in));
    if (says_out != says_in)
        return machine_place_fail(at, "names its \"%s\" link but not its \"%s\" link",
                                  says_out ? "out" : "in", says_out ? "in" : "out");
    *said = says_out;
    return STATUS_OK;
}

/* ---- devices ---- */

static enum status add_device(struct reading *r, const struct machine_place *at,
                              const json_t *object, int kind, struct wish wish)
{
    struct machine *m = r->builder.m;
    bool said = false;
    int out, in;
    TRY(read_ends(r, at, object, &out, &in, &said));
    if (m->n_devices == MACHINE_MAX_DEVICES)
        return machine_place_fail(at, "more than %d devices", MACHINE_MAX_DEVICES);
    TRY(machine_add_device(&r->builder, kind));
    if (said) {
        m->device_out[m->n_devices - 1] = out;
        m->device_in[m->n_devices - 1] = in;
        return STATUS_OK;
    }
    struct machine_port port = grant(wish, machine_kind_port(&m->kinds[kind]));
    if (!(port.bytes_per_s > 0))
        return machine_place_fail(at,
                                  "nothing says how fast its link is: \"intra\" here, of the node "
                                  "or of the machine, or \"link_bytes_per_s\" of its kind");
    return machine_add_device_port(&r->builder, port);
}

/* A kind's name, or an object. */
static enum status read_device(struct reading *r, const struct machine_place *at,
                               const json_t *value, struct wish wish)
{
    static const char *const keys[] = {"kind", "count", "intra", "intra_latency",
                                       "out",  "in",    NULL};
    const char *name = json_string_value(value);
    int64_t count = 1;
    int kind = 0;
    if (!name) {
        TRY(machine_read_object(at, value, keys));
        TRY(machine_read_text(at, value, "kind", &name));
        TRY(machine_read_integer(at, value, "count", 1, MOST_REPEATS, &count));
        TRY(read_wish(at, value, "intra", "intra_latency", &wish));
    }
    if (!name)
        return machine_place_fail(at, "a device needs its \"kind\"");
    TRY(find_kind(r, at, name, &kind));
    for (int64_t i = 0; i < count; i++)
        TRY(add_device(r, at, value, kind, wish));
    return STATUS_OK;
}

/* ---- pairs ---- */

/* The number of a device of the last node, from its place in the node. */
static enum status find_device(const struct reading *r, const struct machine_place *at,
                               const json_t *value, int *out)
{
    const struct machine *m = r->builder.m;
    const struct machine_node *node = &m->nodes[m->n_nodes - 1];
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number >= node->n_devices)
        return machine_place_fail(at, "a pair is of devices of its node, numbers from 0 to %d",
                                  node->n_devices - 1);
    *out = node->first_device + (int)number;
    return STATUS_OK;
}

static enum status read_bridge(struct reading *r, const struct machine_place *at,
                               const json_t *object)
{
    const json_t *ends = json_object_get(object, "between");
    struct machine_port port = {0};
    int one = 0, other = 0;
    if (!json_is_array(ends) || json_array_size(ends) != 2)
        return machine_place_fail(at, "\"between\" must be two devices of the node, like [0, 1]");
    TRY(find_device(r, at, json_array_get(ends, 0), &one));
    TRY(find_device(r, at, json_array_get(ends, 1), &other));
    if (one == other)
        return machine_place_fail(at, "\"between\" must be two devices of the node, like [0, 1]");
    TRY(machine_read_bandwidth(at, object, "bytes_per_s", &port.bytes_per_s));
    TRY(machine_read_seconds(at, object, "latency_s", &port.latency_s));
    if (!(port.bytes_per_s > 0))
        return machine_place_fail(at, "a pair needs its \"bytes_per_s\"");
    return machine_add_pair_port(&r->builder, one, other, port);
}

/* One bridge, both ways, or one way over a named link. */
static enum status read_pair(struct reading *r, const struct machine_place *at,
                             const json_t *object)
{
    static const char *const bridge[] = {"between", "bytes_per_s", "latency_s", NULL};
    static const char *const one_way[] = {"from", "to", "link", NULL};
    bool both = json_object_get(object, "between");
    struct machine_pair pair;
    const char *name = NULL;
    TRY(machine_read_object(at, object, both ? bridge : one_way));
    if (both)
        return read_bridge(r, at, object);
    TRY(find_device(r, at, json_object_get(object, "from"), &pair.from));
    TRY(find_device(r, at, json_object_get(object, "to"), &pair.to));
    TRY(machine_read_text(at, object, "link", &name));
    if (!name)
        return machine_place_fail(at, "a pair needs its \"link\"");
    TRY(find_link(r, at, name, &pair.link));
    return machine_add_pair(&r->builder, pair);
}

/* ---- nodes ---- */

typedef enum status read_element(struct reading *r, const struct machine_place *at,
                                 const json_t *value);

/* A list that may be missing. */
static enum status read_each(struct reading *r, const struct machine_place *at,
                             const json_t *object, const char *key, read_element *read)
{
    const json_t *list = json_object_get(object, key);
    struct machine_place here = machine_place_of(at, key);
    if (!list)
        return STATUS_OK;
    TRY(machine_read_list(&here, list, 0));
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct machine_place element = machine_place_at(&here, i);
        TRY(read(r, &element, json_array_get(list, i)));
    }
    return STATUS_OK;
}

static enum status read_devices(struct reading *r, const struct machine_place *at,
                                const json_t *object, struct wish wish)
{
    const json_t *list = json_object_get(object, "devices");
    struct machine_place here = machine_place_of(at, "devices");
    if (!list)
        return machine_place_fail(at, "a node needs its \"devices\"");
    TRY(machine_read_list(&here, list, 1));
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct machine_place element = machine_place_at(&here, i);
        TRY(read_device(r, &element, json_array_get(list, i), wish));
    }
    return STATUS_OK;
}

static enum status add_node(struct reading *r, const struct machine_place *at, const json_t *object,
                            const struct machine_node *node)
{
    struct machine *m = r->builder.m;
    struct wish intra = nothing, inter = nothing;
    bool said = false;
    int out, in;
    TRY(read_wish(r->top, r->root, "intra", "intra_latency", &intra));
    TRY(read_wish(at, object, "intra", "intra_latency", &intra));
    TRY(read_wish(r->top, r->root, "inter", "latency", &inter));
    TRY(read_wish(at, object, "inter", "latency", &inter));
    TRY(read_ends(r, at, object, &out, &in, &said));
    TRY(machine_add_node(&r->builder, node));
    m->node_out[m->n_nodes - 1] = out;
    m->node_in[m->n_nodes - 1] = in;
    TRY(read_devices(r, at, object, intra));
    TRY(read_each(r, at, object, "pairs", read_pair));
    if (said || !r->networked)
        return STATUS_OK;
    return machine_add_node_port(&r->builder, grant(inter, machine_usual_network));
}

/* Several nodes of one entry: "gpu0", "gpu1", .. */
static enum status add_repeated(struct reading *r, const struct machine_place *at,
                                const json_t *object, struct machine_node node, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        char name[120];
        struct machine_node numbered = node;
        (void)snprintf(name, sizeof name, "%.80s%lld", node.name ? node.name : "", (long long)i);
        if (node.name && count > 1)
            numbered.name = name;
        TRY(add_node(r, at, object, &numbered));
    }
    return STATUS_OK;
}

static enum status read_node(struct reading *r, const struct machine_place *at,
                             const json_t *object)
{
    static const char *const keys[] = {"name",          "about",   "count",     "memory_bytes",
                                       "devices",       "intra",   "inter",     "pairs",
                                       "intra_latency", "latency", "out",       "in",
                                       "cores",         "host",    "own_cores", NULL};
    struct machine_node node = {0};
    int64_t count = 1, cores = 0, own_cores = 0;
    TRY(machine_read_object(at, object, keys));
    TRY(machine_read_text(at, object, "name", &node.name));
    TRY(machine_read_text(at, object, "about", &node.about));
    TRY(machine_read_bytes(at, object, "memory_bytes", &node.memory_bytes));
    TRY(machine_read_text(at, object, "host", &node.host));
    TRY(machine_read_integer(at, object, "own_cores", 0, MACHINE_MAX_DEVICES, &own_cores));
    node.own_cores = (int)own_cores;
    TRY(machine_read_integer(at, object, "cores", 0, MACHINE_MAX_DEVICES, &cores));
    node.cores = (int)cores;
    TRY(machine_read_integer(at, object, "count", 1, MOST_REPEATS, &count));
    return add_repeated(r, at, object, node, count);
}

static bool has_several_nodes(const json_t *root)
{
    const json_t *nodes = json_object_get(root, "nodes");
    return json_array_size(nodes) > 1 ||
           json_integer_value(json_object_get(json_array_get(nodes, 0), "count")) > 1;
}

/* ---- curves ---- */

static enum status read_point(const struct machine_place *at, const json_t *value,
                              struct machine_point *out)
{
    double *const parts[] = {&out->bytes, &out->seconds, &out->cpu_s, &out->sent_s};
    size_t n = json_array_size(value);
    bool fine = json_is_array(value) && (n == 3 || n == 4);
    for (size_t i = 0; fine && i < n; i++) {
        fine = json_is_number(json_array_get(value, i));
        *parts[i] = json_number_value(json_array_get(value, i));
    }
    return fine ? STATUS_OK : machine_place_fail(at, "must be [bytes, seconds, cpu_s]");
}

static enum status read_points(struct reading *r, const struct machine_place *at,
                               const json_t *object, struct machine_curve *curve)
{
    const json_t *list = json_object_get(object, "points");
    struct machine_place here = machine_place_of(at, "points");
    struct machine_point *points;
    if (!list)
        return machine_place_fail(at, "a curve needs its \"points\"");
    TRY(machine_read_list(&here, list, 1));
    size_t n = json_array_size(list);
    TRY(arena_alloc_array(r->builder.m->memory, n, sizeof *points, &points));
    for (size_t i = 0; i < n; i++) {
        struct machine_place element = machine_place_at(&here, i);
        TRY(read_point(&element, json_array_get(list, i), &points[i]));
    }
    curve->points = points;
    curve->n_points = (int)n;
    return STATUS_OK;
}

static enum status read_curve(struct reading *r, const struct machine_place *at,
                              const json_t *object)
{
    static const char *const keys[] = {"transport", "operation", "members",
                                       "nodes",     "points",    NULL};
    const char *operations[COMM_METHOD_COUNT + 2] = {NULL};
    struct machine_curve curve = {.transport = ""};
    int64_t members = 2, nodes = 1;
    int operation = -1;
    for (int i = 0; i < COMM_METHOD_COUNT; i++)
        operations[i] = comm_method_name((enum comm_method)i);
    operations[COMM_METHOD_COUNT] = "message";
    TRY(machine_read_object(at, object, keys));
    TRY(machine_read_text(at, object, "transport", &curve.transport));
    TRY(machine_read_choice(at, object, "operation", operations, &operation));
    if (!*curve.transport || operation < 0)
        return machine_place_fail(at, "a curve needs its \"%s\"",
                                  *curve.transport ? "operation" : "transport");
    TRY(machine_read_integer(at, object, "members", 2, MACHINE_MAX_DEVICES, &members));
    TRY(machine_read_integer(at, object, "nodes", 1, MACHINE_MAX_DEVICES, &nodes));
    TRY(read_points(r, at, object, &curve));
    curve.reduces = operation < COMM_METHOD_COUNT;
    curve.method = curve.reduces ? (enum comm_method)operation : COMM_GATHER;
    curve.members = (int)members;
    curve.nodes = (int)nodes;
    return machine_add_curve(&r->builder, &curve);
}

/* ---- all of it ---- */

enum status machine_read_version(const struct machine_place *top, const json_t *root,
                                 const char *key, const char *what)
{
    const json_t *value = json_object_get(root, key);
    if (!value)
        return machine_place_fail(top, "this is no %s file: it does not begin with \"%s\": %d",
                                  what, key, VERSION);
    if (!json_is_integer(value) || json_integer_value(value) != VERSION)
        return machine_place_fail(
            top, "the %s file is of another version: this program reads version %d", what, VERSION);
    return STATUS_OK;
}

static enum status read_all(struct reading *r)
{
    struct machine *m = r->builder.m;
    struct machine_place nodes = machine_place_of(r->top, "nodes");
    TRY(read_each(r, r->top, r->root, "kinds", read_kind));
    TRY(read_each(r, r->top, r->root, "links", read_link));
    if (!json_object_get(r->root, "nodes"))
        return machine_place_fail(r->top, "a machine needs its \"nodes\"");
    TRY(machine_read_list(&nodes, json_object_get(r->root, "nodes"), 1));
    r->networked = has_several_nodes(r->root);
    TRY(read_each(r, r->top, r->root, "nodes", read_node));
    TRY(read_each(r, r->top, r->root, "curves", read_curve));
    TRY(machine_read_seconds(r->top, r->root, "wake_s", &m->wake_s));
    m->deep_wake_s = m->wake_s;
    TRY(machine_read_seconds(r->top, r->root, "deep_wake_s", &m->deep_wake_s));
    TRY(machine_read_real(r->top, r->root, "wait_share", &m->wait_share));
    TRY(machine_read_real(r->top, r->root, "far_byte_s", &m->far_byte_s));
    TRY(machine_read_seconds(r->top, r->root, "ring_s", &m->ring_s));
    return machine_read_seconds(r->top, r->root, "step_s", &m->step_s);
}

/* The rules of machine_check, which knows no file. */
static enum status finish(struct reading *r, struct machine **out)
{
    struct status_error error;
    enum status st = machine_finish(&r->builder, out);
    if (st == STATUS_OK)
        return st;
    status_take(st, &error);
    return machine_place_fail(r->top, "%.500s", error.message);
}

static enum status read_machine(const struct machine_place *top, const json_t *root,
                                struct machine **out)
{
    static const char *const keys[] = {
        "cleave_machine", "name",   "source",  "kinds",      "links",         "nodes",
        "intra",          "inter",  "latency", "curves",     "intra_latency", "wake_s",
        "deep_wake_s",    "ring_s", "step_s",  "wait_share", "far_byte_s",    NULL};
    struct reading r = {.top = top, .root = root};
    const char *name = top->file, *source = top->file;
    if (!json_is_object(root))
        return machine_place_fail(top, "a machine must be an object: {...}");
    TRY(machine_read_version(top, root, "cleave_machine", "machine"));
    TRY(machine_read_object(top, root, keys));
    TRY(machine_read_text(top, root, "name", &name));
    TRY(machine_read_text(top, root, "source", &source));
    TRY(machine_begin(name, source, &r.builder));
    enum status st = read_all(&r);
    if (st == STATUS_OK)
        return finish(&r, out);
    machine_abandon(&r.builder);
    return st;
}

enum status machine_parse_json(const char *text, size_t n_bytes, const char *where,
                               struct machine **out)
{
    const struct machine_place top = {.file = where};
    json_t *root;
    TRY(machine_read_json(text, n_bytes, where, &root));
    enum status st = read_machine(&top, root, out);
    json_decref(root);
    return st;
}
