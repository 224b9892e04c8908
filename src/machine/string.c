/* Machines from strings: "2x4:v100,intra=130GB/s,1x8:k80,inter=10GB/s" (machine.h has the grammar).
 */
#include "machine/builder.h"

#include "base/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GROUPS = 64, TEXT_BYTES_MAX = 1 << 16 };

enum option { INTRA, INTRA_LATENCY, INTER, LATENCY, MEMORY, OPTION_COUNT };

static const char *const option_names[] = {[INTRA] = "intra",   [INTRA_LATENCY] = "intra_latency",
                                           [INTER] = "inter",   [LATENCY] = "latency",
                                           [MEMORY] = "memory", [OPTION_COUNT] = NULL};

#define BANDWIDTH_FORM \
    "a bandwidth like 15GB/s or 100Gbit/s, with its unit: B/s or bit/s with k, M, G or T"
#define TIME_FORM "a time like 5us, with its unit: s, ms, us or ns"
static const char *const option_forms[] = {
    [INTRA] = BANDWIDTH_FORM,
    [INTRA_LATENCY] = TIME_FORM,
    [INTER] = BANDWIDTH_FORM,
    [LATENCY] = TIME_FORM,
    [MEMORY] = "a size like 16GiB, with its unit: B with k, M, G or Ki, Mi, Gi"};

struct group {
    int nodes, devices;
    int n_kinds;
    const char **names; /* of kinds, as written */
    int *kinds;
    bool given[OPTION_COUNT];
    double value[OPTION_COUNT];
};

struct string_parser {
    const char *text; /* as given, for errors */
    struct machine_builder builder;
    int n_groups, n_nodes;
    struct group groups[MAX_GROUPS];
};

static enum status fail(const struct string_parser *p, const char *format, ...) PRINTF_LIKE(2, 3);

static enum status fail(const struct string_parser *p, const char *format, ...)
{
    char why[600];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return status_fail(STATUS_USAGE, "machine '%.120s': %s", p->text, why);
}

static enum status fail_unknown(const struct string_parser *p, const char *what, const char *word,
                                const char *const *names)
{
    char text[560];
    return fail(p, "%s", text_unknown(text, sizeof text, what, word, names));
}

/* ---- reading the text ---- */

/* Reads a number from 1 to MACHINE_MAX_DEVICES at *at and moves *at behind it; 0: no such number.
 */
static int read_count(char **at)
{
    char *end;
    if (**at < '0' || **at > '9')
        return 0;
    long n = strtol(*at, &end, 10);
    *at = end;
    return n >= 1 && n <= MACHINE_MAX_DEVICES ? (int)n : 0;
}

/* Reads "4x4:" at *at and moves *at behind it. */
static enum status read_counts(struct string_parser *p, char **at, struct group *g)
{
    const char *word = *at;
    g->nodes = read_count(at);
    bool fine = g->nodes && (**at == 'x' || **at == 'X');
    if (fine) {
        ++*at;
        g->devices = read_count(at);
        fine = g->devices && **at == ':';
    }
    if (!fine)
        return fail(p,
                    "'%.80s' must be NODESxDEVICES:KIND with numbers from 1 to %d, like 4x4:p100",
                    word, MACHINE_MAX_DEVICES);
    ++*at;
    return STATUS_OK;
}

static enum status read_kinds(struct string_parser *p, char *at, struct group *g)
{
    arena *memory = p->builder.m->memory;
    int most = 1;
    for (const char *c = at; *c; c++)
        most += *c == '+';
    TRY(arena_alloc_array(memory, (size_t)most, sizeof *g->names, &g->names));
    TRY(arena_alloc_array(memory, (size_t)most, sizeof *g->kinds, &g->kinds));
    for (char *next; at; at = next) {
        next = strchr(at, '+');
        if (next)
            *next++ = '\0';
        TRY(arena_copy_text(memory, at, &g->names[g->n_kinds++]));
    }
    if (g->n_kinds != 1 && g->n_kinds != g->devices)
        return fail(p, "%d kinds for %d devices of a node: name one for all, or one for each",
                    g->n_kinds, g->devices);
    return STATUS_OK;
}

static enum status read_group(struct string_parser *p, char *word)
{
    if (p->n_groups == MAX_GROUPS)
        return fail(p, "more than %d groups of nodes; write a file instead", MAX_GROUPS);
    struct group *g = &p->groups[p->n_groups];
    char *at = word;
    TRY(read_counts(p, &at, g));
    TRY(read_kinds(p, at, g));
    p->n_groups++;
    p->n_nodes += g->nodes;
    return STATUS_OK;
}

static bool read_value(int option, const char *text, double *out)
{
    int64_t n_bytes;
    switch ((enum option)option) {
    case INTRA:
    case INTER:
        return machine_parse_bandwidth(text, out);
    case INTRA_LATENCY:
    case LATENCY:
        return machine_parse_seconds(text, out);
    case MEMORY:
        if (!machine_parse_bytes(text, &n_bytes) || n_bytes == 0)
            return false;
        *out = (double)n_bytes;
        return true;
    case OPTION_COUNT:
        break;
    }
    return false;
}

static enum status read_option(struct string_parser *p, char *word, char *value)
{
    double number = 0;
    *value++ = '\0';
    int option = text_find(word, option_names);
    if (option < 0 || option >= OPTION_COUNT)
        return fail_unknown(p, "option", word, option_names);
    if (!read_value(option, value, &number))
        return fail(p, "%s=%.80s must be %s", word, value, option_forms[option]);
    bool taken = false;
    for (int i = 0; i < p->n_groups; i++) {
        if (p->groups[i].given[option])
            continue;
        p->groups[i].given[option] = taken = true;
        p->groups[i].value[option] = number;
    }
    if (!taken)
        return fail(p,
                    p->n_groups ? "%s= is given twice for the same devices"
                                : "%s= must come after its devices",
                    word);
    return STATUS_OK;
}

static enum status read_words(struct string_parser *p, char *at)
{
    for (char *next; at; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = '\0';
        char *equals = strchr(at, '=');
        if (equals)
            TRY(read_option(p, at, equals));
        else
            TRY(read_group(p, at));
    }
    return STATUS_OK;
}

/* ---- building the machine ---- */

static enum status find_kind(struct string_parser *p, const struct group *g, const char *name,
                             int *out)
{
    struct machine_builder *b = &p->builder;
    TRY(machine_use_memory(b, name, g->given[MEMORY] ? (int64_t)g->value[MEMORY] : 0, out));
    if (*out >= 0)
        return STATUS_OK;
    const char *const *names;
    TRY(machine_kind_names(b->m->memory, &names));
    return fail_unknown(p, "device", name, names);
}

static bool has_cpus(const struct machine *m)
{
    const struct machine_node *node = &m->nodes[m->n_nodes - 1];
    for (int i = node->first_device; i < m->n_devices; i++)
        if (m->kinds[m->devices[i].kind].class == MACHINE_CPU)
            return true;
    return false;
}

static struct machine_port choose(const struct group *g, int bandwidth, int latency,
                                  struct machine_port usual)
{
    if (g->given[bandwidth])
        usual.bytes_per_s = g->value[bandwidth];
    if (g->given[latency])
        usual.latency_s = g->value[latency];
    return usual;
}

static enum status add_node(struct string_parser *p, const struct group *g)
{
    struct machine_builder *b = &p->builder;
    TRY(machine_add_node(b, &(struct machine_node){.name = NULL}));
    for (int i = 0; i < g->devices; i++) {
        int kind = g->kinds[g->n_kinds == 1 ? 0 : i];
        TRY(machine_add_device(b, kind));
        TRY(machine_add_device_port(
            b, choose(g, INTRA, INTRA_LATENCY, machine_kind_port(&b->m->kinds[kind]))));
    }
    if (g->given[MEMORY] && has_cpus(b->m))
        b->m->nodes[b->m->n_nodes - 1].memory_bytes = (int64_t)g->value[MEMORY];
    bool joined = p->n_nodes > 1;
    TRY(machine_note_links(b, !g->given[INTRA], joined && !g->given[INTER]));
    if (!joined)
        return STATUS_OK;
    return machine_add_node_port(b, choose(g, INTER, LATENCY, machine_sold_network(b->m)));
}

static enum status add_group(struct string_parser *p, const struct group *g)
{
    for (int i = 0; i < g->n_kinds; i++)
        TRY(find_kind(p, g, g->names[i], &g->kinds[i]));
    for (int n = 0; n < g->nodes; n++)
        TRY(add_node(p, g));
    return STATUS_OK;
}

static enum status parse(struct string_parser *p)
{
    char *copy = strdup(p->text);
    if (!copy)
        return status_no_memory(strlen(p->text));
    enum status st = read_words(p, copy);
    free(copy);
    TRY(st);
    int64_t n_devices = 0;
    for (int i = 0; i < p->n_groups; i++)
        n_devices += (int64_t)p->groups[i].nodes * p->groups[i].devices;
    if (n_devices > MACHINE_MAX_DEVICES)
        return fail(p, "%lld devices are more than %d", (long long)n_devices, MACHINE_MAX_DEVICES);
    for (int i = 0; i < p->n_groups; i++)
        TRY(add_group(p, &p->groups[i]));
    return STATUS_OK;
}

enum status machine_parse_string(const char *text, struct machine **out)
{
    struct string_parser *p = calloc(1, sizeof *p);
    if (!p)
        return status_no_memory(sizeof *p);
    p->text = text;
    enum status st;
    if (strlen(text) > TEXT_BYTES_MAX)
        TRY_GOTO(st, fail(p, "too long; write a file instead"), out);
    TRY_GOTO(st, machine_begin(text, "a string", &p->builder), out);
    st = parse(p);
    if (st == STATUS_OK)
        st = machine_finish(&p->builder, out);
    else
        machine_abandon(&p->builder);
out:
    free(p);
    return st;
}
