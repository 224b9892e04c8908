/* A plan out of its JSON text: read, resolved against the graph, checked.
 *
 * Defaults are resolved here and nowhere else: the resulting plan names the stage, the cuts and the
 * workers of every layer. */
#include "plan/shared.h"

#include "base/json.h"
#include "base/numbers.h"
#include "base/text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUT_KEYS_MAX = 32 };

/* The cuts of a layer, of a stage or of "default", as written. */
struct cut_list {
    struct json_place place; /* of the object that holds them; no value: none was written */
    int n;
    struct {
        const char *key; /* a loop's name or use; lives as long as the JSON */
        struct plan_cut cut;
    } item[CUT_KEYS_MAX];
};

/* Where the cuts of a layer came from. */
struct origin {
    struct json_place place; /* no value: from nowhere */
    const char *key[OP_MAX_LOOPS];
};

struct parser {
    const struct graph *graph;
    struct json_place top, layers; /* layers may be missing */
    struct plan *plan;
    const char **names;         /* names allowed in a list of layers; ends with NULL */
    const char **loops;         /* names allowed in the cuts of a default; ends with NULL */
    struct cut_list by_default; /* "default" */
    struct cut_list *by_stage;
    struct origin *origins; /* by node */
};

/* ---- lists ---- */

static enum status read_workers(const struct parser *p, struct json_place at, int *n,
                                const int **out)
{
    int *workers;
    TRY(json_check_list(at, 1, PLAN_MAX_WORKERS));
    size_t count = json_array_size(at.value);
    TRY(arena_alloc_array(p->plan->memory, count, sizeof *workers, &workers));
    for (size_t i = 0; i < count; i++)
        TRY(json_read_int(json_element(at, i), 0, INT_MAX, &workers[i]));
    *n = (int)count;
    *out = workers;
    return STATUS_OK;
}

/* A number of parts, or a list of their sizes. */
static enum status read_cut(const struct parser *p, struct json_place at, struct plan_cut *cut)
{
    int64_t *sizes;
    *cut = (struct plan_cut){0};
    if (!json_is_array(at.value))
        return json_read_int(at, 1, PLAN_MAX_WORKERS, &cut->n_parts);
    TRY(json_check_list(at, 2, PLAN_MAX_WORKERS));
    cut->n_parts = (int)json_array_size(at.value);
    TRY(arena_alloc_array(p->plan->memory, (size_t)cut->n_parts, sizeof *sizes, &sizes));
    for (size_t i = 0; i < (size_t)cut->n_parts; i++)
        TRY(json_read_integer(json_element(at, i), 1, PLAN_MAX_SIZE_SUM, &sizes[i]));
    cut->sizes = sizes;
    return STATUS_OK;
}

/* The member "cut" of `owner`, if it has one; keys must be among `allowed`. */
static enum status read_cuts(const struct parser *p, struct json_place owner, const char *what,
                             const char *const *allowed, struct cut_list *list)
{
    const char *key;
    json_t *value;
    *list = (struct cut_list){.place = json_member(owner, "cut")};
    if (!list->place.value)
        return STATUS_OK;
    TRY(json_check_object(list->place, NULL));
    json_object_foreach((json_t *)list->place.value, key, value)
    {
        struct json_place at = json_member(list->place, key);
        if (text_find(key, allowed) < 0 || list->n == CUT_KEYS_MAX)
            return json_fail_unknown(at, what, key, allowed);
        list->item[list->n].key = key;
        TRY(read_cut(p, at, &list->item[list->n].cut));
        list->n++;
    }
    return STATUS_OK;
}

/* ---- the top ---- */

/* Version, model, workers and the number of stages: enough to create the plan. */
static enum status read_head(struct parser *p)
{
    static const char *const keys[] = {"cleave_plan", "name",     "model",  "workers",
                                       "stages",      "default",  "layers", "micro_batches",
                                       "schedule",    "window",   "sync",   "recompute",
                                       "batch_norm",  "made_for", NULL};
    struct json_place stages = json_member(p->top, "stages");
    struct json_place workers = json_member(p->top, "workers");
    struct plan_made_for made;
    const char *name = "unnamed";
    int n_workers = 0;
    TRY(json_check_object(p->top, NULL));
    TRY(json_check_version(p->top, "cleave_plan", 1, PLAN_VERSION)); /* others have other keys */
    TRY(json_check_object(p->top, keys));
    TRY(plan_parse_made_for(p->top, &made));
    TRY(plan_check_made_for(p->top, &made, p->graph));
    TRY(json_read_text(json_member(p->top, "name"), &name));
    if (!workers.value || !stages.value)
        return json_fail(json_member(p->top, "cleave_plan"), "the plan does not say its \"%s\"",
                         workers.value ? "stages" : "workers");
    TRY(json_read_int(workers, 1, PLAN_MAX_WORKERS, &n_workers));
    TRY(json_check_list(stages, 1, (size_t)n_workers));
    TRY(plan_create(p->graph, name, n_workers, (int)json_array_size(stages.value), &p->plan));
    return plan_copy_made_for(p->plan->memory, &made, &p->plan->made_for);
}

static enum status read_stages(struct parser *p)
{
    static const char *const keys[] = {"workers", "cut", NULL};
    struct json_place by_default = json_member(p->top, "default");
    for (int s = 0; s < p->plan->n_stages; s++) {
        struct plan_stage *stage = &p->plan->stages[s];
        struct json_place at = json_element(json_member(p->top, "stages"), (size_t)s);
        struct json_place workers = json_member(at, "workers");
        TRY(json_check_object(at, keys));
        if (!workers.value)
            return json_fail(at, "stage %d does not say its \"workers\"", s);
        TRY(read_workers(p, workers, &stage->n_workers, &stage->workers));
        TRY(read_cuts(p, at, "loop", p->loops, &p->by_stage[s]));
    }
    if (by_default.value)
        TRY(json_check_object(by_default, keys + 1));
    return read_cuts(p, by_default, "loop", p->loops, &p->by_default);
}

static enum status read_sync(struct parser *p)
{
    static const char *const keys[] = {"method",  "bucket_bytes", "workers_per_node",
                                       "servers", "asynchronous", NULL};
    struct json_place at = json_member(p->top, "sync");
    struct plan *plan = p->plan;
    int method = PLAN_RING;
    if (!at.value)
        return STATUS_OK;
    TRY(json_check_object(at, keys));
    TRY(json_read_choice(json_member(at, "method"), plan_sync_names, &method));
    plan->sync = (enum plan_sync)method;
    TRY(json_read_integer(json_member(at, "bucket_bytes"), 1, INT64_MAX, &plan->bucket_bytes));
    TRY(json_read_int(json_member(at, "workers_per_node"), 1, INT_MAX, &plan->workers_per_node));
    if (json_member(at, "servers").value)
        TRY(read_workers(p, json_member(at, "servers"), &plan->n_servers, &plan->servers));
    return json_read_bool(json_member(at, "asynchronous"), &plan->asynchronous);
}

static enum status read_schedule(struct parser *p)
{
    struct plan *plan = p->plan;
    int schedule = PLAN_GPIPE;
    TRY(json_read_choice(json_member(p->top, "schedule"), plan_schedule_names, &schedule));
    plan->schedule = (enum plan_schedule)schedule;
    if (schedule == PLAN_PIPEDREAM)
        plan->window = 4 * plan->n_stages;
    TRY(json_read_int(json_member(p->top, "micro_batches"), 1, INT_MAX, &plan->micro_batches));
    return json_read_int(json_member(p->top, "window"), 1, INT_MAX, &plan->window);
}

static enum status read_batch_norm(struct parser *p)
{
    int batch_norm = PLAN_NORM_BATCH;
    TRY(json_read_choice(json_member(p->top, "batch_norm"), plan_batch_norm_names, &batch_norm));
    p->plan->batch_norm = (enum plan_batch_norm)batch_norm;
    return STATUS_OK;
}

/* ---- layers ---- */

/* The node of that name; the input is no layer. */
static enum status find_layer(const struct parser *p, struct json_place at, const char *name,
                              int *node)
{
    for (int i = 1; i < p->graph->n_nodes; i++)
        if (!strcmp(p->graph->nodes[i].name, name)) {
            *node = i;
            return STATUS_OK;
        }
    return json_fail_unknown(at, "layer", name, p->names);
}

static enum status check_layer_names(const struct parser *p)
{
    static const char *const keys[] = {"stage", "cut", "workers", NULL};
    const char *name;
    json_t *value;
    int node;
    if (!p->layers.value)
        return STATUS_OK;
    TRY(json_check_object(p->layers, NULL));
    json_object_foreach((json_t *)p->layers.value, name, value)
    {
        struct json_place at = json_member(p->layers, name);
        TRY(find_layer(p, at, name, &node));
        TRY(json_check_object(at, keys));
    }
    return STATUS_OK;
}

static enum status resolve_stages(struct parser *p)
{
    struct plan *plan = p->plan;
    int last_written = 0;
    for (int i = 1; i < plan->n_layers; i++) {
        const struct graph_node *node = &p->graph->nodes[i];
        struct json_place at = json_member(json_member(p->layers, node->name), "stage");
        int *stage = &plan->layers[i].stage;
        *stage = int_max(plan->layers[node->input[0]].stage, last_written);
        TRY(json_read_int(at, 0, INT_MAX, stage));
        if (*stage >= plan->n_stages)
            return json_fail(at, "layer '%s': there is no stage %d (stages: 0 to %d)", node->name,
                             *stage, plan->n_stages - 1);
        if (at.value)
            last_written = *stage;
    }
    return STATUS_OK;
}

/* Gives a layer its cuts. Of a default, those that the layer cannot have are left out. */
static enum status apply_cuts(struct parser *p, int node, const struct cut_list *list,
                              bool is_default)
{
    struct plan_layer *layer = &p->plan->layers[node];
    struct origin *origin = &p->origins[node];
    struct loop_nest nest;
    op_get_loops(&p->graph->nodes[node].op, &nest);
    origin->place = list->place;
    for (int i = 0; i < list->n; i++) {
        struct plan_cut cut = list->item[i].cut;
        const char *key = list->item[i].key;
        cut.loop = plan_find_loop(&nest, key);
        if (cut.loop < 0 && is_default)
            cut.loop = plan_find_loop_by_use(&nest, key);
        if (cut.loop < 0 || cut.n_parts < 2)
            continue;
        if (is_default && !plan_can_cut(&nest, cut.loop, cut.n_parts))
            continue;
        for (int j = 0; j < layer->n_cuts; j++)
            if (layer->cut[j].loop == cut.loop)
                return json_fail(json_member(list->place, key),
                                 "layer '%s': '%s' and '%s' cut the same loop",
                                 p->graph->nodes[node].name, origin->key[j], key);
        origin->key[layer->n_cuts] = key;
        layer->cut[layer->n_cuts++] = cut;
    }
    return STATUS_OK;
}

static enum status resolve_cuts(struct parser *p, int node, struct json_place at)
{
    const struct cut_list *by_stage = &p->by_stage[p->plan->layers[node].stage];
    if (!json_member(at, "cut").value)
        return apply_cuts(p, node, by_stage->place.value ? by_stage : &p->by_default, true);
    struct loop_nest nest;
    struct cut_list own;
    const char *loops[OP_MAX_LOOPS + 1] = {NULL};
    char what[120];
    op_get_loops(&p->graph->nodes[node].op, &nest);
    for (int i = 0; i < nest.n_loops; i++)
        loops[i] = nest.loop[i].name;
    (void)snprintf(what, sizeof what, "loop of layer '%.80s'", p->graph->nodes[node].name);
    TRY(read_cuts(p, at, what, loops, &own));
    return apply_cuts(p, node, &own, false);
}

static enum status resolve_layer(struct parser *p, int node)
{
    struct plan_layer *layer = &p->plan->layers[node];
    const char *name = p->graph->nodes[node].name;
    struct json_place at = json_member(p->layers, name), workers = json_member(at, "workers");
    int n_own = 0;
    TRY(resolve_cuts(p, node, at));
    if (workers.value)
        TRY(read_workers(p, workers, &n_own, &layer->workers));
    plan_settle_layer(p->plan, node);
    if (workers.value && n_own != layer->n_pieces)
        return json_fail(workers, "layer '%s' names %d workers, but is cut into %d pieces", name,
                         n_own, layer->n_pieces);
    return STATUS_OK;
}

/* Names of layers, a number of segments, or "auto". */
static enum status read_recompute(struct parser *p)
{
    struct json_place at = json_member(p->top, "recompute");
    if (!at.value)
        return STATUS_OK;
    if (json_is_string(at.value) && strcmp(json_string_value(at.value), "auto") == 0)
        return plan_recompute_segments(p->plan, p->graph, PLAN_SEGMENTS_AUTO);
    if (json_is_integer(at.value)) {
        int n_segments = 0;
        TRY(json_read_int(at, 1, PLAN_MAX_SEGMENTS, &n_segments));
        return plan_recompute_segments(p->plan, p->graph, n_segments);
    }
    if (!json_is_array(at.value))
        return json_fail_form(at, "a list of layers, a number of segments or \"auto\"");
    TRY(json_check_list(at, 0, (size_t)p->graph->n_nodes));
    for (size_t i = 0; i < json_array_size(at.value); i++) {
        const char *name = NULL;
        int node = 0;
        TRY(json_read_text(json_element(at, i), &name));
        TRY(find_layer(p, json_element(at, i), name, &node));
        p->plan->layers[node].recompute = true;
    }
    return STATUS_OK;
}

/* ---- faults ---- */

/* Where the fault stands in the text: a cut of a default is at fault in the default. */
static struct json_place find_fault_place(const struct parser *p, const struct plan_fault *fault)
{
    struct json_place stages = json_member(p->top, "stages");
    if (fault->place == FAULT_IN_PLAN)
        return json_member(p->top, fault->key);
    if (fault->place == FAULT_IN_SYNC)
        return json_member(json_member(p->top, "sync"), fault->key);
    if (fault->place == FAULT_IN_STAGE) {
        struct json_place stage = json_element(stages, (size_t)fault->index);
        return fault->key ? json_member(stage, fault->key) : stage;
    }
    const struct origin *origin = &p->origins[fault->index];
    struct json_place layer = json_member(p->layers, p->graph->nodes[fault->index].name);
    if (!strcmp(fault->key, "cut") && origin->place.value)
        return fault->cut < 0 ? origin->place : json_member(origin->place, origin->key[fault->cut]);
    if (layer.value)
        return json_member(layer, fault->key);
    return json_element(stages, (size_t)p->plan->layers[fault->index].stage);
}

/* ---- all of it ---- */

/* The names that a plan may use: the layers, and the loops that any of them has. */
static enum status list_names(struct parser *p)
{
    const struct graph *g = p->graph;
    int n = 0;
    TRY(arena_alloc_array(p->plan->memory, (size_t)g->n_nodes, sizeof *p->names, &p->names));
    for (int i = 1; i < g->n_nodes; i++)
        p->names[i - 1] = g->nodes[i].name;
    TRY(arena_alloc_array(p->plan->memory, CUT_KEYS_MAX + 1, sizeof *p->loops, &p->loops));
    p->loops[n++] = "n";
    for (const char *const *use = plan_loop_uses; *use; use++)
        p->loops[n++] = *use;
    for (int i = 1; i < g->n_nodes; i++) {
        struct loop_nest nest;
        op_get_loops(&g->nodes[i].op, &nest);
        for (int l = 0; l < nest.n_loops && n < CUT_KEYS_MAX; l++)
            if (text_find(nest.loop[l].name, p->loops) < 0)
                p->loops[n++] = nest.loop[l].name;
    }
    return STATUS_OK;
}

static enum status parse(struct parser *p)
{
    TRY(read_head(p));
    if (!p->plan)
        return status_fail(STATUS_FAILED, "the plan has no head");
    arena *memory = p->plan->memory;
    TRY(list_names(p));
    TRY(arena_alloc_array(memory, (size_t)p->plan->n_stages, sizeof *p->by_stage, &p->by_stage));
    TRY(arena_alloc_array(memory, (size_t)p->graph->n_nodes, sizeof *p->origins, &p->origins));
    p->layers = json_member(p->top, "layers");
    TRY(read_stages(p));
    TRY(read_sync(p));
    TRY(read_schedule(p));
    TRY(read_batch_norm(p));
    TRY(check_layer_names(p));
    TRY(resolve_stages(p));
    for (int i = 1; i < p->plan->n_layers; i++)
        TRY(resolve_layer(p, i));
    TRY(read_recompute(p));
    struct plan_fault fault;
    if (plan_find_fault(p->plan, p->graph, &fault))
        return json_fail(find_fault_place(p, &fault), "%s", fault.message);
    return STATUS_OK;
}

static enum status parse_text(struct json_text *json, const struct graph *graph, struct plan **out)
{
    TRY(json_open(json));
    struct parser p = {.graph = graph, .top = json_top(json)};
    enum status st = parse(&p);
    if (st != STATUS_OK)
        plan_destroy(p.plan);
    else
        *out = p.plan;
    json_close(json);
    return st;
}

enum status plan_parse(const char *text, size_t n_bytes, const char *where,
                       const struct graph *graph, struct plan **out)
{
    struct json_text json = {.name = where, .what = "plan", .text = text, .n_bytes = n_bytes};
    return parse_text(&json, graph, out);
}

enum status plan_parse_request(const char *text, const char *where, const struct graph *graph,
                               struct plan **out)
{
    struct json_text json = {
        .name = where, .what = "plan", .text = text, .n_bytes = strlen(text), .typed = true};
    return parse_text(&json, graph, out);
}

enum status plan_read(const char *path, const struct graph *graph, struct plan **out)
{
    char *text;
    size_t n_bytes;
    TRY(text_read_file(path, "plan", &text, &n_bytes));
    enum status st = plan_parse(text, n_bytes, path, graph, out);
    free(text);
    return st;
}
