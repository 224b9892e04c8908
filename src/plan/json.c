/* A plan out of its JSON text: read, resolved against the graph, checked.
 *
 * Defaults are resolved here and nowhere else: what comes out names the stage, the cuts and the
 * workers of every layer. */
#include "plan/internal.h"
#include "plan/reader.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUT_KEYS_MAX = 32, FILE_BYTES_MAX = 64 << 20 };

/* The cuts of a layer, of a stage or of "default", as written. */
struct cut_list {
    struct plan_path path; /* of the object that holds them; n == 0: none was written */
    int n;
    struct {
        const char *key; /* a loop's name or use; lives as long as the JSON */
        struct plan_cut cut;
    } item[CUT_KEYS_MAX];
};

/* Where the cuts of a layer came from. */
struct origin {
    struct plan_path path; /* n == 0: from nowhere */
    const char *key[OP_MAX_LOOPS];
};

struct parser {
    struct plan_reader reader;
    const struct graph *graph;
    const json_t *root, *layers; /* layers may be NULL */
    struct plan *plan;
    const char **names;         /* what may stand in a list of layers; ends with NULL */
    const char **loops;         /* what may stand in the cuts of a default; ends with NULL */
    struct cut_list by_default; /* "default" */
    struct cut_list *by_stage;
    struct origin *origins; /* by node */
};

static struct plan_path at(const char *key)
{
    return plan_path_add((struct plan_path){0}, key);
}

/* ---- lists ---- */

static enum status read_workers(const struct parser *p, struct plan_path path, const json_t *value,
                                int *n, const int **out)
{
    int *workers;
    TRY(plan_get_array(&p->reader, path, value, 1, PLAN_MAX_WORKERS));
    size_t count = json_array_size(value);
    TRY(arena_alloc_array(p->plan->memory, count, sizeof *workers, &workers));
    for (size_t i = 0; i < count; i++) {
        int64_t worker;
        TRY(plan_get_integer(&p->reader, plan_path_at(path, i), json_array_get(value, i), 0,
                             INT_MAX, &worker));
        workers[i] = (int)worker;
    }
    *n = (int)count;
    *out = workers;
    return STATUS_OK;
}

/* A number of parts, or a list of their sizes. */
static enum status read_cut(const struct parser *p, struct plan_path path, const json_t *value,
                            struct plan_cut *cut)
{
    int64_t n_parts, *sizes;
    *cut = (struct plan_cut){0};
    if (!json_is_array(value)) {
        TRY(plan_get_integer(&p->reader, path, value, 1, PLAN_MAX_WORKERS, &n_parts));
        cut->n_parts = (int)n_parts;
        return STATUS_OK;
    }
    TRY(plan_get_array(&p->reader, path, value, 2, PLAN_MAX_WORKERS));
    cut->n_parts = (int)json_array_size(value);
    TRY(arena_alloc_array(p->plan->memory, (size_t)cut->n_parts, sizeof *sizes, &sizes));
    for (size_t i = 0; i < (size_t)cut->n_parts; i++)
        TRY(plan_get_integer(&p->reader, plan_path_at(path, i), json_array_get(value, i), 1,
                             PLAN_MAX_SIZE_SUM, &sizes[i]));
    cut->sizes = sizes;
    return STATUS_OK;
}

static bool is_among(const char *word, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(*names, word))
            return true;
    return false;
}

/* The member "cut" of `owner`, if it has one; keys must be among `allowed`. */
static enum status read_cuts(const struct parser *p, struct plan_path path, const json_t *owner,
                             const char *what, const char *const *allowed, struct cut_list *list)
{
    const json_t *cuts = json_object_get(owner, "cut");
    const char *key;
    json_t *value;
    *list = (struct cut_list){0};
    if (!cuts)
        return STATUS_OK;
    list->path = plan_path_add(path, "cut");
    TRY(plan_get_object(&p->reader, list->path, cuts, NULL));
    json_object_foreach((json_t *)cuts, key, value)
    {
        struct plan_path where = plan_path_add(list->path, key);
        if (!is_among(key, allowed) || list->n == CUT_KEYS_MAX)
            return plan_fail_unknown(&p->reader, where, what, key, allowed);
        list->item[list->n].key = key;
        TRY(read_cut(p, where, value, &list->item[list->n].cut));
        list->n++;
    }
    return STATUS_OK;
}

/* ---- the top ---- */

static enum status read_version(const struct parser *p)
{
    const json_t *value = json_object_get(p->root, "cleave_plan");
    if (!value)
        return plan_fail_at(&p->reader, at("cleave_plan"),
                            "this is no plan: it does not begin with \"cleave_plan\": %d",
                            PLAN_VERSION);
    if (!json_is_integer(value) || json_integer_value(value) != PLAN_VERSION)
        return plan_fail_at(&p->reader, at("cleave_plan"),
                            "the plan is of another version: this program reads version %d",
                            PLAN_VERSION);
    return STATUS_OK;
}

static enum status read_model(const struct parser *p)
{
    const json_t *value = json_object_get(p->root, "model");
    const char *model;
    if (!value)
        return STATUS_OK;
    TRY(plan_get_text(&p->reader, at("model"), value, &model));
    if (strcmp(model, p->graph->name) != 0)
        return plan_fail_at(
            &p->reader, at("model"),
            "the plan is for %.80s, not for %s ('cleave plan %s -o FILE' makes one)", model,
            p->graph->name, p->graph->name);
    return STATUS_OK;
}

/* Version, model, workers and the number of stages: enough to create the plan. */
static enum status read_head(struct parser *p)
{
    static const char *const keys[] = {
        "cleave_plan",   "name",     "model",  "workers", "stages",    "default", "layers",
        "micro_batches", "schedule", "window", "sync",    "recompute", NULL};
    const json_t *stages = json_object_get(p->root, "stages");
    const json_t *workers = json_object_get(p->root, "workers");
    const json_t *name = json_object_get(p->root, "name");
    const char *text = "unnamed";
    int64_t n_workers;
    TRY(plan_get_object(&p->reader, (struct plan_path){0}, p->root, NULL));
    TRY(read_version(p)); /* before the keys: another version may have others */
    TRY(plan_get_object(&p->reader, (struct plan_path){0}, p->root, keys));
    TRY(read_model(p));
    if (name)
        TRY(plan_get_text(&p->reader, at("name"), name, &text));
    if (!workers || !stages)
        return plan_fail_at(&p->reader, at("cleave_plan"), "the plan does not say its \"%s\"",
                            workers ? "stages" : "workers");
    TRY(plan_get_integer(&p->reader, at("workers"), workers, 1, PLAN_MAX_WORKERS, &n_workers));
    TRY(plan_get_array(&p->reader, at("stages"), stages, 1, (size_t)n_workers));
    return plan_create(p->graph, text, (int)n_workers, (int)json_array_size(stages), &p->plan);
}

static enum status read_stages(struct parser *p)
{
    static const char *const keys[] = {"workers", "cut", NULL};
    const json_t *stages = json_object_get(p->root, "stages");
    for (int s = 0; s < p->plan->n_stages; s++) {
        struct plan_stage *stage = &p->plan->stages[s];
        struct plan_path path = plan_path_at(at("stages"), (size_t)s);
        const json_t *value = json_array_get(stages, (size_t)s);
        TRY(plan_get_object(&p->reader, path, value, keys));
        const json_t *workers = json_object_get(value, "workers");
        if (!workers)
            return plan_fail_at(&p->reader, path, "stage %d does not say its \"workers\"", s);
        TRY(read_workers(p, plan_path_add(path, "workers"), workers, &stage->n_workers,
                         &stage->workers));
        TRY(read_cuts(p, path, value, "loop", p->loops, &p->by_stage[s]));
    }
    const json_t *by_default = json_object_get(p->root, "default");
    if (by_default) {
        TRY(plan_get_object(&p->reader, at("default"), by_default, keys + 1));
        TRY(read_cuts(p, at("default"), by_default, "loop", p->loops, &p->by_default));
    }
    return STATUS_OK;
}

/* An optional whole number of an object. */
static enum status read_number(const struct parser *p, struct plan_path path, const json_t *value,
                               int *out)
{
    int64_t number;
    if (!value)
        return STATUS_OK;
    TRY(plan_get_integer(&p->reader, path, value, 1, INT_MAX, &number));
    *out = (int)number;
    return STATUS_OK;
}

static enum status read_sync(struct parser *p)
{
    static const char *const keys[] = {"method",  "bucket_bytes", "workers_per_node",
                                       "servers", "asynchronous", NULL};
    const json_t *sync = json_object_get(p->root, "sync");
    struct plan *plan = p->plan;
    const json_t *value;
    int method = PLAN_RING;
    if (!sync)
        return STATUS_OK;
    TRY(plan_get_object(&p->reader, at("sync"), sync, keys));
    if ((value = json_object_get(sync, "method")))
        TRY(plan_get_choice(&p->reader, plan_path_add(at("sync"), "method"), value, plan_sync_names,
                            &method));
    plan->sync = (enum plan_sync)method;
    if ((value = json_object_get(sync, "bucket_bytes")))
        TRY(plan_get_integer(&p->reader, plan_path_add(at("sync"), "bucket_bytes"), value, 1,
                             INT64_MAX, &plan->bucket_bytes));
    TRY(read_number(p, plan_path_add(at("sync"), "workers_per_node"),
                    json_object_get(sync, "workers_per_node"), &plan->workers_per_node));
    if ((value = json_object_get(sync, "servers")))
        TRY(read_workers(p, plan_path_add(at("sync"), "servers"), value, &plan->n_servers,
                         &plan->servers));
    if ((value = json_object_get(sync, "asynchronous")))
        TRY(plan_get_bool(&p->reader, plan_path_add(at("sync"), "asynchronous"), value,
                          &plan->asynchronous));
    return STATUS_OK;
}

static enum status read_schedule(struct parser *p)
{
    const json_t *value = json_object_get(p->root, "schedule");
    int schedule = PLAN_GPIPE;
    if (value)
        TRY(plan_get_choice(&p->reader, at("schedule"), value, plan_schedule_names, &schedule));
    p->plan->schedule = (enum plan_schedule)schedule;
    if (schedule == PLAN_PIPEDREAM)
        p->plan->window = 4 * p->plan->n_stages;
    TRY(read_number(p, at("micro_batches"), json_object_get(p->root, "micro_batches"),
                    &p->plan->micro_batches));
    return read_number(p, at("window"), json_object_get(p->root, "window"), &p->plan->window);
}

/* ---- layers ---- */

/* The node of that name; the input is no layer. */
static enum status find_layer(const struct parser *p, struct plan_path path, const char *name,
                              int *node)
{
    for (int i = 1; i < p->graph->n_nodes; i++)
        if (!strcmp(p->graph->nodes[i].name, name)) {
            *node = i;
            return STATUS_OK;
        }
    return plan_fail_unknown(&p->reader, path, "layer", name, p->names);
}

static enum status check_layer_names(const struct parser *p)
{
    static const char *const keys[] = {"stage", "cut", "workers", NULL};
    const char *name;
    json_t *value;
    int node;
    if (!p->layers)
        return STATUS_OK;
    TRY(plan_get_object(&p->reader, at("layers"), p->layers, NULL));
    json_object_foreach((json_t *)p->layers, name, value)
    {
        struct plan_path path = plan_path_add(at("layers"), name);
        TRY(find_layer(p, path, name, &node));
        TRY(plan_get_object(&p->reader, path, value, keys));
    }
    return STATUS_OK;
}

static enum status resolve_stages(struct parser *p)
{
    struct plan *plan = p->plan;
    int last_written = 0;
    for (int i = 1; i < plan->n_layers; i++) {
        const struct graph_node *node = &p->graph->nodes[i];
        const json_t *value = json_object_get(json_object_get(p->layers, node->name), "stage");
        int *stage = &plan->layers[i].stage;
        *stage = plan->layers[node->input[0]].stage;
        if (*stage < last_written)
            *stage = last_written;
        if (!value)
            continue;
        struct plan_path path = plan_path_add(plan_path_add(at("layers"), node->name), "stage");
        int64_t number;
        TRY(plan_get_integer(&p->reader, path, value, 0, INT_MAX, &number));
        if (number >= plan->n_stages)
            return plan_fail_at(&p->reader, path,
                                "layer '%s': there is no stage %lld (stages: 0 to %d)", node->name,
                                (long long)number, plan->n_stages - 1);
        *stage = last_written = (int)number;
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
    origin->path = list->path;
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
                return plan_fail_at(&p->reader, plan_path_add(list->path, key),
                                    "layer '%s': '%s' and '%s' cut the same loop",
                                    p->graph->nodes[node].name, origin->key[j], key);
        origin->key[layer->n_cuts] = key;
        layer->cut[layer->n_cuts++] = cut;
    }
    return STATUS_OK;
}

static enum status resolve_cuts(struct parser *p, int node, const json_t *entry,
                                struct plan_path path)
{
    const struct cut_list *by_stage = &p->by_stage[p->plan->layers[node].stage];
    if (!json_object_get(entry, "cut"))
        return apply_cuts(p, node, by_stage->path.n ? by_stage : &p->by_default, true);
    struct loop_nest nest;
    struct cut_list own;
    const char *loops[OP_MAX_LOOPS + 1] = {NULL};
    char what[120];
    op_get_loops(&p->graph->nodes[node].op, &nest);
    for (int i = 0; i < nest.n_loops; i++)
        loops[i] = nest.loop[i].name;
    (void)snprintf(what, sizeof what, "loop of layer '%.80s'", p->graph->nodes[node].name);
    TRY(read_cuts(p, path, entry, what, loops, &own));
    return apply_cuts(p, node, &own, false);
}

static enum status resolve_layer(struct parser *p, int node)
{
    struct plan_layer *layer = &p->plan->layers[node];
    const char *name = p->graph->nodes[node].name;
    const json_t *entry = json_object_get(p->layers, name);
    const json_t *workers = json_object_get(entry, "workers");
    struct plan_path path = plan_path_add(at("layers"), name);
    int n_own = 0;
    TRY(resolve_cuts(p, node, entry, path));
    if (workers)
        TRY(read_workers(p, plan_path_add(path, "workers"), workers, &n_own, &layer->workers));
    plan_settle_layer(p->plan, node);
    if (workers && n_own != layer->n_pieces)
        return plan_fail_at(&p->reader, plan_path_add(path, "workers"),
                            "layer '%s' names %d workers, but is cut into %d pieces", name, n_own,
                            layer->n_pieces);
    return STATUS_OK;
}

static enum status read_recompute(struct parser *p)
{
    const json_t *list = json_object_get(p->root, "recompute");
    if (!list)
        return STATUS_OK;
    TRY(plan_get_array(&p->reader, at("recompute"), list, 0, (size_t)p->graph->n_nodes));
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct plan_path path = plan_path_at(at("recompute"), i);
        const char *name = NULL;
        int node = 0;
        TRY(plan_get_text(&p->reader, path, json_array_get(list, i), &name));
        TRY(find_layer(p, path, name, &node));
        p->plan->layers[node].recompute = true;
    }
    return STATUS_OK;
}

/* ---- faults ---- */

/* Where the fault stands in the text: a cut of a default is at fault in the default. */
static struct plan_path find_fault_path(const struct parser *p, const struct plan_fault *fault)
{
    if (fault->place == FAULT_IN_PLAN)
        return at(fault->key);
    if (fault->place == FAULT_IN_SYNC)
        return plan_path_add(at("sync"), fault->key);
    if (fault->place == FAULT_IN_STAGE) {
        struct plan_path path = plan_path_at(at("stages"), (size_t)fault->index);
        return fault->key ? plan_path_add(path, fault->key) : path;
    }
    const struct origin *origin = &p->origins[fault->index];
    const char *name = p->graph->nodes[fault->index].name;
    if (!strcmp(fault->key, "cut") && origin->path.n)
        return fault->cut < 0 ? origin->path : plan_path_add(origin->path, origin->key[fault->cut]);
    if (json_object_get(p->layers, name))
        return plan_path_add(plan_path_add(at("layers"), name), fault->key);
    return plan_path_at(at("stages"), (size_t)p->plan->layers[fault->index].stage);
}

static enum status check(const struct parser *p)
{
    struct plan_fault fault;
    if (plan_find_fault(p->plan, p->graph, &fault))
        return plan_fail_at(&p->reader, find_fault_path(p, &fault), "%s", fault.message);
    return STATUS_OK;
}

/* ---- all of it ---- */

/* What may be named: the layers, and the loops that any of them has. */
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
            if (!is_among(nest.loop[l].name, p->loops))
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
    p->layers = json_object_get(p->root, "layers");
    TRY(read_stages(p));
    TRY(read_sync(p));
    TRY(read_schedule(p));
    TRY(check_layer_names(p));
    TRY(resolve_stages(p));
    for (int i = 1; i < p->plan->n_layers; i++)
        TRY(resolve_layer(p, i));
    TRY(read_recompute(p));
    return check(p);
}

enum status plan_parse(const char *text, size_t n_bytes, const char *where,
                       const struct graph *graph, struct plan **out)
{
    struct parser p = {.reader = {text, n_bytes, where}, .graph = graph};
    json_t *root;
    TRY(plan_load_json(&p.reader, &root));
    p.root = root;
    enum status st = parse(&p);
    if (st != STATUS_OK)
        plan_destroy(p.plan);
    else
        *out = p.plan;
    json_decref(root);
    return st;
}

static enum status read_file(const char *path, char **out, size_t *n_bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return status_fail(STATUS_FAILED, "%s: cannot open: %s", path, strerror(errno));
    char *text = NULL;
    size_t size = 0;
    FILE *copy = open_memstream(&text, &size);
    char block[4096];
    size_t n, total = 0;
    bool fine = copy;
    while (fine && (n = fread(block, 1, sizeof block, f)) > 0) {
        total += n;
        fine = fwrite(block, 1, n, copy) == n && total <= FILE_BYTES_MAX;
    }
    fine = fine && !ferror(f);
    if (copy && fclose(copy) != 0)
        fine = false;
    (void)fclose(f);
    if (!fine) {
        free(text);
        return status_fail(STATUS_FAILED, "%s: cannot read it as a plan", path);
    }
    *out = text;
    *n_bytes = size;
    return STATUS_OK;
}

enum status plan_read(const char *path, const struct graph *graph, struct plan **out)
{
    char *text;
    size_t n_bytes;
    TRY(read_file(path, &text, &n_bytes));
    enum status st = plan_parse(text, n_bytes, path, graph, out);
    free(text);
    return st;
}
