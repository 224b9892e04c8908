/* Machines from JSON (docs/machines.md has the format).
 *
 * Two ways of writing mix freely: links by name, as machine_write does it, or bandwidths ("intra",
 * "inter") from which each device and node gets links of its own. */
#include "machine/builder.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 1, MOST_REPEATS = MACHINE_MAX_DEVICES };

struct reading {
    struct machine_builder builder;
    struct json_place top;
    int n_named;    /* links that stand in the file, and can be named */
    int last_used;  /* of them: files name them in order, so the next is looked for from here */
    bool networked; /* more than one node */
    bool intra_left_out; /* a device of the last node got its kind's link */
};

/* ---- numbers with units ---- */

static enum status read_bandwidth(struct json_place at, double *out)
{
    if (!json_is_string(at.value))
        TRY(json_read_real(at, out));
    else if (!machine_parse_bandwidth(json_string_value(at.value), out))
        return json_fail_form(at, "a bandwidth like \"15GB/s\" or \"100Gbit/s\"");
    return at.value && !(*out > 0) ? json_fail_form(at, "a bandwidth above 0") : STATUS_OK;
}

static enum status read_seconds(struct json_place at, double *out)
{
    if (!json_is_string(at.value))
        return json_read_real(at, out);
    if (!machine_parse_seconds(json_string_value(at.value), out))
        return json_fail_form(at, "a time like \"5us\"");
    return STATUS_OK;
}

static enum status read_bytes(struct json_place at, int64_t *out)
{
    if (!json_is_string(at.value))
        return json_read_integer(at, 0, INT64_MAX, out);
    if (!machine_parse_bytes(json_string_value(at.value), out))
        return json_fail_form(at, "a size like \"16GiB\"");
    return STATUS_OK;
}

/* What "intra" or "inter" and its latency say; 0 and -1: nothing. */
struct link_request {
    double bytes_per_s, latency_s;
};

static enum status read_link_request(struct json_place at, const char *bandwidth,
                                     const char *latency, struct link_request *request)
{
    TRY(read_bandwidth(json_member(at, bandwidth), &request->bytes_per_s));
    return read_seconds(json_member(at, latency), &request->latency_s);
}

static struct machine_port port_of(struct link_request request, struct machine_port usual)
{
    return (struct machine_port){request.bytes_per_s > 0 ? request.bytes_per_s : usual.bytes_per_s,
                                 request.latency_s >= 0 ? request.latency_s : usual.latency_s};
}

/* ---- kinds ---- */

/* "rates": {"fp16": {"peak": 125e12, "reached": 90e12}}. Rates that are not named stay. */
static enum status read_rates(struct json_place at, struct machine_rate *rates)
{
    static const char *const keys[] = {"peak", "reached", NULL};
    if (!at.value)
        return STATUS_OK;
    TRY(json_check_object(at, arithmetic_names));
    for (int i = 0; i < ARITHMETIC_COUNT; i++) {
        struct json_place rate = json_member(at, arithmetic_names[i]);
        if (!rate.value)
            continue;
        TRY(json_check_object(rate, keys));
        TRY(json_read_real(json_member(rate, "peak"), &rates[i].peak));
        TRY(json_read_real(json_member(rate, "reached"), &rates[i].reached));
    }
    return STATUS_OK;
}

enum status machine_read_kind(struct json_place at, struct machine_kind *k)
{
    static const char *const classes[] = {
        [MACHINE_CPU] = "cpu", [MACHINE_GPU] = "gpu", [MACHINE_GPU + 1] = NULL};
    int class = (int)k->class;
    TRY(json_read_text(json_member(at, "name"), &k->name));
    TRY(json_read_text(json_member(at, "about"), &k->about));
    TRY(json_read_text(json_member(at, "note"), &k->note));
    TRY(json_read_choice(json_member(at, "class"), classes, &class));
    struct machine_rate *single = &k->rates[ARITHMETIC_F32];
    TRY(json_read_real(json_member(at, "peak_flops_per_s"), &single->peak));
    TRY(json_read_real(json_member(at, "reached_flops_per_s"), &single->reached));
    TRY(read_rates(json_member(at, "rates"), k->rates));
    TRY(read_bandwidth(json_member(at, "peak_bytes_per_s"), &k->peak_bytes_per_s));
    TRY(read_bandwidth(json_member(at, "reached_bytes_per_s"), &k->reached_bytes_per_s));
    TRY(read_bytes(json_member(at, "memory_bytes"), &k->memory_bytes));
    TRY(read_seconds(json_member(at, "launch_s"), &k->launch_s));
    TRY(json_read_int(json_member(at, "cores"), 0, 1 << 20, &k->cores));
    TRY(read_bandwidth(json_member(at, "link_bytes_per_s"), &k->link_bytes_per_s));
    TRY(read_seconds(json_member(at, "link_latency_s"), &k->link_latency_s));
    TRY(read_bandwidth(json_member(at, "adapter_bytes_per_s"), &k->adapter_bytes_per_s));
    TRY(json_read_int(json_member(at, "adapter_devices"), 0, MACHINE_MAX_DEVICES,
                      &k->adapter_devices));
    TRY(json_read_text(json_member(at, "sold"), &k->sold));
    k->class = (enum machine_device_class) class;
    return *k->name ? STATUS_OK : json_fail(at, "a kind needs a \"name\"");
}

/* Of the machine itself or of machines/devices.json. */
static enum status find_kind(struct reading *r, struct json_place at, const char *name, int *out)
{
    struct machine *m = r->builder.m;
    const char *const *known;
    const char **names;
    int n = 0;
    TRY(machine_use_kind(&r->builder, name, out));
    if (*out >= 0)
        return STATUS_OK;
    TRY(machine_kind_names(m->memory, &known));
    while (known[n])
        n++;
    TRY(arena_alloc_array(m->memory, (size_t)(m->n_kinds + n) + 1, sizeof *names, &names));
    for (int i = 0; i < m->n_kinds; i++)
        names[i] = m->kinds[i].name;
    memcpy(names + m->n_kinds, known, (size_t)n * sizeof *names);
    return json_fail_unknown(at, "device", name, names);
}

static enum status read_kind(struct reading *r, struct json_place at)
{
    static const char *const keys[] = {"name",
                                       "like",
                                       "about",
                                       "note",
                                       "class",
                                       "peak_flops_per_s",
                                       "reached_flops_per_s",
                                       "rates",
                                       "peak_bytes_per_s",
                                       "reached_bytes_per_s",
                                       "memory_bytes",
                                       "launch_s",
                                       "cores",
                                       "link_bytes_per_s",
                                       "link_latency_s",
                                       "adapter_bytes_per_s",
                                       "adapter_devices",
                                       "sold",
                                       NULL};
    struct machine_kind kind = {
        .name = "", .about = "", .note = "", .sold = "", .class = MACHINE_GPU};
    const char *like = NULL, *const * names;
    bool found = true;
    int number = 0;
    TRY(json_check_object(at, keys));
    TRY(json_read_text(json_member(at, "like"), &like));
    if (like)
        TRY(machine_library_kind(like, r->builder.m->memory, &kind, &found));
    if (!found) {
        TRY(machine_kind_names(r->builder.m->memory, &names));
        return json_fail_unknown(at, "device", like, names);
    }
    TRY(machine_read_kind(at, &kind));
    if (machine_find_kind(r->builder.m, kind.name) >= 0)
        return json_fail(at, "kind '%.80s' is there twice", kind.name);
    return machine_add_kind(&r->builder, &kind, &number);
}

/* ---- links ---- */

static enum status read_link(struct reading *r, struct json_place at)
{
    static const char *const keys[] = {"name", "bytes_per_s", "latency_s", "burst_bytes", NULL};
    const char *name = "";
    struct machine_port port = {0};
    double burst_bytes = 0;
    int link;
    TRY(json_check_object(at, keys));
    TRY(json_read_text(json_member(at, "name"), &name));
    TRY(read_bandwidth(json_member(at, "bytes_per_s"), &port.bytes_per_s));
    TRY(read_seconds(json_member(at, "latency_s"), &port.latency_s));
    TRY(json_read_real(json_member(at, "burst_bytes"), &burst_bytes));
    if (!*name || !(port.bytes_per_s > 0))
        return json_fail(at, "a link needs its \"%s\"", *name ? "bytes_per_s" : "name");
    TRY(machine_add_link(&r->builder, name, port, &link));
    r->builder.m->links[link].burst_bytes = burst_bytes;
    r->n_named++;
    return STATUS_OK;
}

/* The link whose name stands there. */
static enum status find_link(struct reading *r, struct json_place at, int *out)
{
    const struct machine *m = r->builder.m;
    const char *name = NULL, **names;
    TRY(json_read_text(at, &name));
    for (int i = 0; i < r->n_named; i++) {
        int link = (r->last_used + i) % r->n_named;
        if (!strcmp(m->links[link].name, name)) {
            *out = r->last_used = link;
            return STATUS_OK;
        }
    }
    TRY(arena_alloc_array(m->memory, (size_t)r->n_named + 1, sizeof *names, &names));
    for (int i = 0; i < r->n_named; i++)
        names[i] = m->links[i].name;
    return json_fail_unknown(at, "link", name, names);
}

/* "out" and "in": names of links; null: there is none in the way. Neither is said: the owner gets
 * links of its own. */
static enum status read_ends(struct reading *r, struct json_place at, int *out, int *in, bool *said)
{
    struct json_place from = json_member(at, "out"), to = json_member(at, "in");
    *out = *in = MACHINE_NO_LINK;
    *said = from.value;
    if (from.value && !json_is_null(from.value))
        TRY(find_link(r, from, out));
    if (to.value && !json_is_null(to.value))
        TRY(find_link(r, to, in));
    if (!from.value != !to.value)
        return json_fail(at, "names its \"%s\" link but not its \"%s\" link",
                         from.value ? "out" : "in", from.value ? "in" : "out");
    return STATUS_OK;
}

/* ---- devices ---- */

static enum status add_device(struct reading *r, struct json_place at, int kind,
                              struct link_request request)
{
    struct machine *m = r->builder.m;
    bool said = false;
    int out, in;
    TRY(read_ends(r, at, &out, &in, &said));
    if (m->n_devices == MACHINE_MAX_DEVICES)
        return json_fail(at, "more than %d devices", MACHINE_MAX_DEVICES);
    TRY(machine_add_device(&r->builder, kind));
    if (said) {
        m->device_out[m->n_devices - 1] = out;
        m->device_in[m->n_devices - 1] = in;
        return STATUS_OK;
    }
    struct machine_port port = port_of(request, machine_kind_port(&m->kinds[kind]));
    if (!(port.bytes_per_s > 0))
        return json_fail(at, "nothing says how fast its link is: \"intra\" here, of the node or of "
                             "the machine, or \"link_bytes_per_s\" of its kind");
    r->intra_left_out |= !(request.bytes_per_s > 0);
    return machine_add_device_port(&r->builder, port);
}

/* A kind's name, or an object. */
static enum status read_device(struct reading *r, struct json_place at, struct link_request request)
{
    static const char *const keys[] = {"kind", "count", "intra", "intra_latency",
                                       "out",  "in",    NULL};
    const char *name = json_string_value(at.value);
    int count = 1, kind = 0;
    if (!name) {
        TRY(json_check_object(at, keys));
        TRY(json_read_text(json_member(at, "kind"), &name));
        TRY(json_read_int(json_member(at, "count"), 1, MOST_REPEATS, &count));
        TRY(read_link_request(at, "intra", "intra_latency", &request));
    }
    if (!name)
        return json_fail(at, "a device needs its \"kind\"");
    TRY(find_kind(r, at, name, &kind));
    for (int i = 0; i < count; i++)
        TRY(add_device(r, at, kind, request));
    return STATUS_OK;
}

/* ---- pairs ---- */

/* The number of a device of the last node, from its place in the node. */
static enum status find_device(const struct reading *r, struct json_place pair, const json_t *value,
                               int *out)
{
    const struct machine *m = r->builder.m;
    const struct machine_node *node = &m->nodes[m->n_nodes - 1];
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number >= node->n_devices)
        return json_fail(pair, "a pair is of devices of its node, numbers from 0 to %d",
                         node->n_devices - 1);
    *out = node->first_device + (int)number;
    return STATUS_OK;
}

/* A bridge between two devices, both ways, or one way over a named link. */
static enum status read_pair(struct reading *r, struct json_place at)
{
    static const char *const bridge[] = {"between", "bytes_per_s", "latency_s", NULL};
    static const char *const one_way[] = {"from", "to", "link", NULL};
    const json_t *between = json_object_get(at.value, "between");
    struct machine_port port = {0};
    struct machine_pair pair = {0};
    TRY(json_check_object(at, between ? bridge : one_way));
    if (!between) {
        TRY(find_device(r, at, json_object_get(at.value, "from"), &pair.from));
        TRY(find_device(r, at, json_object_get(at.value, "to"), &pair.to));
        if (!json_member(at, "link").value)
            return json_fail(at, "a pair needs its \"link\"");
        TRY(find_link(r, json_member(at, "link"), &pair.link));
        return machine_add_pair(&r->builder, pair);
    }
    bool two = json_array_size(between) == 2;
    if (two) {
        TRY(find_device(r, at, json_array_get(between, 0), &pair.from));
        TRY(find_device(r, at, json_array_get(between, 1), &pair.to));
    }
    if (!two || pair.from == pair.to)
        return json_fail(at, "\"between\" must be two devices of the node, like [0, 1]");
    TRY(read_bandwidth(json_member(at, "bytes_per_s"), &port.bytes_per_s));
    TRY(read_seconds(json_member(at, "latency_s"), &port.latency_s));
    if (!(port.bytes_per_s > 0))
        return json_fail(at, "a pair needs its \"bytes_per_s\"");
    return machine_add_pair_port(&r->builder, pair.from, pair.to, port);
}

/* ---- nodes ---- */

typedef enum status read_element(struct reading *r, struct json_place at);

/* A list that may be missing. */
static enum status read_each(struct reading *r, struct json_place list, read_element *read)
{
    if (!list.value)
        return STATUS_OK;
    TRY(json_check_list(list, 0, SIZE_MAX));
    for (size_t i = 0; i < json_array_size(list.value); i++)
        TRY(read(r, json_element(list, i)));
    return STATUS_OK;
}

static enum status add_node(struct reading *r, struct json_place at,
                            const struct machine_node *node)
{
    struct machine *m = r->builder.m;
    struct json_place devices = json_member(at, "devices");
    struct link_request intra = {0, -1}, inter = {0, -1};
    bool said = false;
    int out, in;
    TRY(read_link_request(r->top, "intra", "intra_latency", &intra));
    TRY(read_link_request(at, "intra", "intra_latency", &intra));
    TRY(read_link_request(r->top, "inter", "latency", &inter));
    TRY(read_link_request(at, "inter", "latency", &inter));
    TRY(read_ends(r, at, &out, &in, &said));
    TRY(machine_add_node(&r->builder, node));
    m->node_out[m->n_nodes - 1] = out;
    m->node_in[m->n_nodes - 1] = in;
    if (!devices.value)
        return json_fail(at, "a node needs its \"devices\"");
    TRY(json_check_list(devices, 1, SIZE_MAX));
    r->intra_left_out = false;
    for (size_t i = 0; i < json_array_size(devices.value); i++)
        TRY(read_device(r, json_element(devices, i), intra));
    TRY(read_each(r, json_member(at, "pairs"), read_pair));
    bool joined = !said && r->networked;
    TRY(machine_note_links(&r->builder, r->intra_left_out, joined && !(inter.bytes_per_s > 0)));
    if (!joined)
        return STATUS_OK;
    return machine_add_node_port(&r->builder, port_of(inter, machine_sold_network(m)));
}

/* One entry may be of several nodes: "gpu0", "gpu1", .. */
static enum status read_node(struct reading *r, struct json_place at)
{
    static const char *const keys[] = {"name",          "about",   "count",     "memory_bytes",
                                       "devices",       "intra",   "inter",     "pairs",
                                       "intra_latency", "latency", "out",       "in",
                                       "cores",         "host",    "own_cores", NULL};
    struct machine_node node = {0};
    int count = 1;
    TRY(json_check_object(at, keys));
    TRY(json_read_text(json_member(at, "name"), &node.name));
    TRY(json_read_text(json_member(at, "about"), &node.about));
    TRY(read_bytes(json_member(at, "memory_bytes"), &node.memory_bytes));
    TRY(json_read_text(json_member(at, "host"), &node.host));
    TRY(json_read_int(json_member(at, "own_cores"), 0, MACHINE_MAX_DEVICES, &node.own_cores));
    TRY(json_read_int(json_member(at, "cores"), 0, MACHINE_MAX_DEVICES, &node.cores));
    TRY(json_read_int(json_member(at, "count"), 1, MOST_REPEATS, &count));
    for (int i = 0; i < count; i++) {
        struct machine_node numbered = node;
        char name[120];
        (void)snprintf(name, sizeof name, "%.80s%d", node.name ? node.name : "", i);
        if (node.name && count > 1)
            numbered.name = name;
        TRY(add_node(r, at, &numbered));
    }
    return STATUS_OK;
}

/* ---- curves ---- */

static enum status read_point(struct json_place at, struct machine_point *out)
{
    double *const parts[] = {&out->bytes, &out->seconds, &out->cpu_s, &out->sent_s};
    size_t n = json_array_size(at.value);
    bool fine = n == 3 || n == 4;
    for (size_t i = 0; fine && i < n; i++) {
        fine = json_is_number(json_array_get(at.value, i));
        *parts[i] = json_number_value(json_array_get(at.value, i));
    }
    return fine ? STATUS_OK : json_fail_form(at, "[bytes, seconds, cpu_s]");
}

static enum status read_curve(struct reading *r, struct json_place at)
{
    static const char *const keys[] = {"transport", "operation", "members",
                                       "nodes",     "points",    NULL};
    const char *operations[COMM_METHOD_COUNT + 2] = {NULL};
    struct json_place list = json_member(at, "points");
    struct machine_curve curve = {.transport = "", .members = 2, .nodes = 1};
    struct machine_point *points;
    int operation = -1;
    for (int i = 0; i < COMM_METHOD_COUNT; i++)
        operations[i] = comm_method_name((enum comm_method)i);
    operations[COMM_METHOD_COUNT] = "message";
    TRY(json_check_object(at, keys));
    TRY(json_read_text(json_member(at, "transport"), &curve.transport));
    TRY(json_read_choice(json_member(at, "operation"), operations, &operation));
    if (!*curve.transport || operation < 0)
        return json_fail(at, "a curve needs its \"%s\"",
                         *curve.transport ? "operation" : "transport");
    TRY(json_read_int(json_member(at, "members"), 2, MACHINE_MAX_DEVICES, &curve.members));
    TRY(json_read_int(json_member(at, "nodes"), 1, MACHINE_MAX_DEVICES, &curve.nodes));
    if (!list.value)
        return json_fail(at, "a curve needs its \"points\"");
    TRY(json_check_list(list, 1, SIZE_MAX));
    curve.n_points = (int)json_array_size(list.value);
    TRY(arena_alloc_array(r->builder.m->memory, (size_t)curve.n_points, sizeof *points, &points));
    for (int i = 0; i < curve.n_points; i++)
        TRY(read_point(json_element(list, (size_t)i), &points[i]));
    curve.points = points;
    curve.reduces = operation < COMM_METHOD_COUNT;
    curve.method = curve.reduces ? (enum comm_method)operation : COMM_GATHER;
    return machine_add_curve(&r->builder, &curve);
}

/* ---- all of it ---- */

static enum status read_all(struct reading *r)
{
    struct machine *m = r->builder.m;
    struct json_place top = r->top, nodes = json_member(top, "nodes");
    TRY(read_each(r, json_member(top, "kinds"), read_kind));
    TRY(read_each(r, json_member(top, "links"), read_link));
    if (!nodes.value)
        return json_fail(top, "a machine needs its \"nodes\"");
    TRY(json_check_list(nodes, 1, SIZE_MAX));
    r->networked = json_array_size(nodes.value) > 1 ||
                   json_integer_value(json_member(json_element(nodes, 0), "count").value) > 1;
    TRY(read_each(r, nodes, read_node));
    TRY(read_each(r, json_member(top, "curves"), read_curve));
    TRY(read_seconds(json_member(top, "wake_s"), &m->wake_s));
    m->deep_wake_s = m->wake_s;
    TRY(read_seconds(json_member(top, "deep_wake_s"), &m->deep_wake_s));
    TRY(json_read_real(json_member(top, "wait_share"), &m->wait_share));
    TRY(json_read_real(json_member(top, "far_byte_s"), &m->far_byte_s));
    TRY(read_seconds(json_member(top, "ring_s"), &m->ring_s));
    return read_seconds(json_member(top, "step_s"), &m->step_s);
}

static enum status read_machine(struct json_place top, struct machine **out)
{
    static const char *const keys[] = {
        "cleave_machine", "name",   "source",  "kinds",      "links",         "nodes",
        "intra",          "inter",  "latency", "curves",     "intra_latency", "wake_s",
        "deep_wake_s",    "ring_s", "step_s",  "wait_share", "far_byte_s",    NULL};
    struct reading r = {.top = top};
    const char *name = top.in->name, *source = top.in->name;
    struct status_error error;
    TRY(json_check_object(top, NULL));
    TRY(json_check_version(top, "cleave_machine", VERSION, VERSION));
    TRY(json_check_object(top, keys));
    TRY(json_read_text(json_member(top, "name"), &name));
    TRY(json_read_text(json_member(top, "source"), &source));
    TRY(machine_begin(name, source, &r.builder));
    enum status st = read_all(&r);
    if (st != STATUS_OK) {
        machine_abandon(&r.builder);
        return st;
    }
    st = machine_finish(&r.builder, out);
    if (st == STATUS_OK)
        return STATUS_OK;
    status_take(st, &error); /* machine_check knows no file */
    return json_fail(top, "%.500s", error.message);
}

enum status machine_parse_json(const char *text, size_t n_bytes, const char *where,
                               struct machine **out)
{
    struct json_text json = {.name = where ? where : "the machine",
                             .what = "machine",
                             .text = text,
                             .n_bytes = n_bytes,
                             .says_paths = true,
                             .typed = !where};
    TRY(json_open(&json));
    enum status st = read_machine(json_top(&json), out);
    json_close(&json);
    return st;
}
