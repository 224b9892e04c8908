/* Whether a plan can run. Every rule is one function that says false at the first fault. */
#include "plan/shared.h"

#include <stdarg.h>
#include <stdio.h>

struct checker {
    const struct plan *plan;
    const struct graph *graph;
    struct plan_fault *fault;
};

static bool refuse(const struct checker *c, struct plan_fault where, const char *format, ...)
    PRINTF_LIKE(3, 4);

static bool refuse(const struct checker *c, struct plan_fault where, const char *format, ...)
{
    va_list args;
    *c->fault = where;
    va_start(args, format);
    (void)vsnprintf(c->fault->message, sizeof c->fault->message, format, args);
    va_end(args);
    return false;
}

static struct plan_fault in_plan(const char *key)
{
    return (struct plan_fault){.place = FAULT_IN_PLAN, .key = key};
}

static struct plan_fault in_sync(const char *key)
{
    return (struct plan_fault){.place = FAULT_IN_SYNC, .key = key};
}

static struct plan_fault in_stage(int stage, const char *key)
{
    return (struct plan_fault){.place = FAULT_IN_STAGE, .index = stage, .key = key};
}

static struct plan_fault in_layer(int node, const char *key)
{
    return (struct plan_fault){.place = FAULT_IN_LAYER, .index = node, .key = key, .cut = -1};
}

static struct plan_fault in_cut(int node, int cut)
{
    return (struct plan_fault){.place = FAULT_IN_LAYER, .index = node, .key = "cut", .cut = cut};
}

static const char *layer_name(const struct checker *c, int node)
{
    return c->graph->nodes[node].name;
}

/* ---- workers ---- */

enum { FREE = 0, SERVER = -1 }; /* other owners are 1 + the stage */

static bool claim_worker(const struct checker *c, int *owner, int worker, int claimant,
                         struct plan_fault where)
{
    if (worker < 0 || worker >= c->plan->n_workers)
        return refuse(c, where, "worker %d is out of range: the plan has workers 0 to %d", worker,
                      c->plan->n_workers - 1);
    int other = owner[worker];
    if (other == FREE) {
        owner[worker] = claimant;
        return true;
    }
    if (other == SERVER)
        return refuse(c, where, "worker %d is already a server", worker);
    if (claimant == SERVER)
        return refuse(c, where, "worker %d cannot be a server: it is in stage %d", worker,
                      other - 1);
    return refuse(c, where, "worker %d is used twice: it is in stage %d already", worker,
                  other - 1);
}

static bool check_workers(const struct checker *c)
{
    const struct plan *p = c->plan;
    int owner[PLAN_MAX_WORKERS] = {FREE};
    if (p->n_workers < 1 || p->n_workers > PLAN_MAX_WORKERS)
        return refuse(c, in_plan("workers"), "%d workers: a plan has 1 to %d", p->n_workers,
                      PLAN_MAX_WORKERS);
    if (p->n_stages < 1)
        return refuse(c, in_plan("stages"), "the plan has no stage");
    for (int s = 0; s < p->n_stages; s++) {
        if (p->stages[s].n_workers < 1)
            return refuse(c, in_stage(s, "workers"), "stage %d has no workers", s);
        for (int i = 0; i < p->stages[s].n_workers; i++)
            if (!claim_worker(c, owner, p->stages[s].workers[i], 1 + s, in_stage(s, "workers")))
                return false;
    }
    for (int i = 0; i < p->n_servers; i++)
        if (!claim_worker(c, owner, p->servers[i], SERVER, in_sync("servers")))
            return false;
    for (int w = 0; w < p->n_workers; w++)
        if (owner[w] == FREE)
            return refuse(c, in_plan("stages"), "worker %d is in no stage%s", w,
                          p->sync == PLAN_SERVER ? " and is no server" : "");
    return true;
}

/* ---- layers ---- */

static bool check_sizes(const struct checker *c, int node, int number, const struct loop *loop)
{
    const struct plan_cut *cut = &c->plan->layers[node].cut[number];
    int64_t sum = 0;
    for (int i = 0; cut->sizes && i < cut->n_parts; i++) {
        if (cut->sizes[i] < 1 || cut->sizes[i] > PLAN_MAX_SIZE_SUM)
            return refuse(c, in_cut(node, number), "layer '%s': a size of loop %s is %lld",
                          layer_name(c, node), loop->name, (long long)cut->sizes[i]);
        sum += cut->sizes[i];
    }
    if (sum > PLAN_MAX_SIZE_SUM)
        return refuse(c, in_cut(node, number), "layer '%s': the sizes of loop %s sum to over %d",
                      layer_name(c, node), loop->name, PLAN_MAX_SIZE_SUM);
    if (cut->sizes && loop->use != USE_BATCH && sum != loop->extent)
        return refuse(c, in_cut(node, number),
                      "layer '%s': the sizes of loop %s sum to %lld, but it has %lld iterations",
                      layer_name(c, node), loop->name, (long long)sum, (long long)loop->extent);
    return true;
}

static bool check_cut(const struct checker *c, int node, int number, const struct loop_nest *nest)
{
    const struct plan_layer *layer = &c->plan->layers[node];
    const struct plan_cut *cut = &layer->cut[number];
    if (cut->loop < 0 || cut->loop >= nest->n_loops || cut->n_parts < 2)
        return refuse(c, in_cut(node, number), "layer '%s': cut %d is of no loop or of one part",
                      layer_name(c, node), number);
    const struct loop *loop = &nest->loop[cut->loop];
    for (int i = 0; i < number; i++)
        if (layer->cut[i].loop == cut->loop)
            return refuse(c, in_cut(node, number), "layer '%s': loop %s is cut twice",
                          layer_name(c, node), loop->name);
    if (loop->cut == CUT_NEVER)
        return refuse(c, in_cut(node, number), "layer '%s': loop %s of this %s may not be cut",
                      layer_name(c, node), loop->name,
                      op_get_info(c->graph->nodes[node].op.op)->name);
    if (!plan_can_cut(nest, cut->loop, cut->n_parts))
        return refuse(c, in_cut(node, number),
                      "layer '%s': loop %s has %lld iterations, too few for %d parts",
                      layer_name(c, node), loop->name, (long long)loop->extent, cut->n_parts);
    return check_sizes(c, node, number, loop);
}

static bool is_in_stage(const struct plan_stage *stage, int worker)
{
    for (int i = 0; i < stage->n_workers; i++)
        if (stage->workers[i] == worker)
            return true;
    return false;
}

static bool check_layer_workers(const struct checker *c, int node)
{
    const struct plan_layer *layer = &c->plan->layers[node];
    const struct plan_stage *stage = &c->plan->stages[layer->stage];
    if (layer->n_pieces > stage->n_workers)
        return refuse(c, in_layer(node, "cut"),
                      "layer '%s' is cut into %s%d pieces, but stage %d has %d worker%s",
                      layer_name(c, node), layer->n_pieces > PLAN_MAX_WORKERS ? "at least " : "",
                      layer->n_pieces, layer->stage, stage->n_workers,
                      stage->n_workers == 1 ? "" : "s");
    if (layer->workers == stage->workers) /* distinct, as check_workers saw */
        return true;
    for (int i = 0; i < layer->n_pieces; i++) {
        if (!is_in_stage(stage, layer->workers[i]))
            return refuse(c, in_layer(node, "workers"),
                          "layer '%s': worker %d is not in the layer's stage %d",
                          layer_name(c, node), layer->workers[i], layer->stage);
        for (int j = 0; j < i; j++)
            if (layer->workers[j] == layer->workers[i])
                return refuse(c, in_layer(node, "workers"),
                              "layer '%s': worker %d is used twice: it would have two pieces",
                              layer_name(c, node), layer->workers[i]);
    }
    return true;
}

bool plan_reads_only_padding(const struct plan_layer *layer, const struct op_case *op, int *piece)
{
    struct loop_nest nest;
    struct plan_layer images = *layer; /* the cuts of the batch aside: they change nothing here */
    op_get_loops(op, &nest);
    images.n_cuts = 0;
    int64_t n_pieces = 1;
    for (int i = 0; i < layer->n_cuts; i++)
        if (nest.loop[layer->cut[i].loop].use != USE_BATCH) {
            images.cut[images.n_cuts++] = layer->cut[i];
            n_pieces *= layer->cut[i].n_parts;
        }
    for (int i = 0; n_pieces > 1 && i < n_pieces; i++) {
        struct box box;
        struct op_piece unused;
        plan_piece_box(&images, &nest, i, &box);
        if (op_get_piece(op, &box, &unused) != STATUS_OK) {
            status_clear(); /* the caller has its own words for it */
            *piece = i;
            return true;
        }
    }
    return false;
}

static bool check_layer(const struct checker *c, int node)
{
    const struct plan_layer *layer = &c->plan->layers[node];
    struct loop_nest nest;
    op_get_loops(&c->graph->nodes[node].op, &nest);
    if (layer->stage < 0 || layer->stage >= c->plan->n_stages)
        return refuse(c, in_layer(node, "stage"), "layer '%s': there is no stage %d",
                      layer_name(c, node), layer->stage);
    int64_t n_pieces = 1;
    for (int i = 0; i < layer->n_cuts; i++) {
        if (!check_cut(c, node, i, &nest))
            return false;
        n_pieces *= n_pieces <= PLAN_MAX_WORKERS ? layer->cut[i].n_parts : 1;
    }
    if (layer->n_pieces != n_pieces)
        return refuse(c, in_layer(node, "cut"), "layer '%s' has %d pieces, its cuts make %lld",
                      layer_name(c, node), layer->n_pieces, (long long)n_pieces);
    if (!check_layer_workers(c, node))
        return false;
    int piece;
    if (plan_reads_only_padding(layer, &c->graph->nodes[node].op, &piece))
        return refuse(
            c, in_layer(node, "cut"),
            "layer '%s': piece %d would read nothing but padding: cut it into fewer parts",
            layer_name(c, node), piece);
    return true;
}

/* ---- stages ---- */

static bool check_edges(const struct checker *c, int node)
{
    const struct graph_node *n = &c->graph->nodes[node];
    int stage = c->plan->layers[node].stage;
    for (int i = 0; i < n->op.n_inputs; i++) {
        int from = n->input[i];
        if (from != 0 && c->plan->layers[from].stage > stage) /* images are there at any stage */
            return refuse(c, in_layer(node, "stage"),
                          "layer '%s' is in stage %d, but its input '%s' is in the later stage %d",
                          n->name, stage, layer_name(c, from), c->plan->layers[from].stage);
    }
    return true;
}

static bool has_layer(const struct plan *p, int stage)
{
    for (int i = 1; i < p->n_layers; i++)
        if (p->layers[i].stage == stage)
            return true;
    return false;
}

static bool check_stages(const struct checker *c)
{
    const struct plan *p = c->plan;
    int loss = p->n_layers - 1;
    for (int i = 1; i < p->n_layers; i++)
        if (!check_edges(c, i))
            return false;
    for (int s = 0; s < p->n_stages; s++)
        if (!has_layer(p, s))
            return refuse(c, in_stage(s, NULL), "stage %d has no layer", s);
    if (p->layers[loss].stage != p->n_stages - 1)
        return refuse(c, in_layer(loss, "stage"), "'%s' must be in the last stage, %d",
                      layer_name(c, loss), p->n_stages - 1);
    return true;
}

/* ---- the rest ---- */

static bool check_schedule(const struct checker *c)
{
    const struct plan *p = c->plan;
    long long batch = c->graph->batch;
    if ((int)p->schedule < 0 || p->schedule >= PLAN_SCHEDULE_COUNT)
        return refuse(c, in_plan("schedule"), "there is no schedule %d", (int)p->schedule);
    if (p->micro_batches < 1 || p->micro_batches > batch)
        return refuse(c, in_plan("micro_batches"),
                      "%d micro-batches: a batch of %lld can be split into 1 to %lld",
                      p->micro_batches, batch, batch);
    if (p->window < 1 || p->window > PLAN_MAX_WINDOW)
        return refuse(c, in_plan("window"), "a window of %d steps: 1 to %d are allowed", p->window,
                      PLAN_MAX_WINDOW);
    if (p->schedule != PLAN_PIPEDREAM && p->window != 1)
        return refuse(c, in_plan("window"), "only the schedule pipedream has a window");
    if (p->schedule == PLAN_PIPEDREAM && p->micro_batches != 1)
        return refuse(c, in_plan("micro_batches"),
                      "the schedule pipedream has one micro-batch a step, not %d",
                      p->micro_batches);
    if (p->schedule == PLAN_PIPEDREAM && p->sync == PLAN_SERVER)
        return refuse(c, in_plan("schedule"), "the schedule pipedream does not go with a server");
    return true;
}

/* 0: even. */
static int64_t size_of_samples(const struct plan_layer *layer, int i)
{
    return layer->n_cuts && layer->cut[0].sizes ? layer->cut[0].sizes[i] : 0;
}

/* A worker's losses are a mean over its own samples: to a layer that has others they would give
 * gradients that are the mean of nothing. Both layers are cut along n alone, into as many parts. */
static bool check_samples(const struct checker *c, int node)
{
    int loss = c->plan->n_layers - 1;
    const struct plan_layer *here = &c->plan->layers[node], *there = &c->plan->layers[loss];
    for (int i = 0; i < here->n_pieces; i++) {
        bool same_worker = here->workers[i] == there->workers[i];
        if (!same_worker || size_of_samples(here, i) != size_of_samples(there, i))
            return refuse(c, in_layer(node, same_worker ? "cut" : "workers"),
                          "layer '%s': with an asynchronous server every worker has the same "
                          "samples in all layers, those of '%s'",
                          layer_name(c, node), layer_name(c, loss));
    }
    return true;
}

static bool check_asynchronous(const struct checker *c)
{
    const struct plan *p = c->plan;
    if (!p->asynchronous)
        return true;
    if (p->n_stages != 1)
        return refuse(c, in_sync("asynchronous"), "an asynchronous server needs one stage, not %d",
                      p->n_stages);
    /* Each worker's step is the mean over its own samples, and no worker knows the mean of several
     * micro-batches.
     */
    if (p->micro_batches != 1)
        return refuse(c, in_plan("micro_batches"),
                      "an asynchronous server goes with one micro-batch a step, not %d",
                      p->micro_batches);
    for (int i = 1; i < p->n_layers; i++) {
        const struct plan_layer *layer = &p->layers[i];
        bool along_batch = plan_cuts_only_batch(layer, &c->graph->nodes[i].op);
        if (!along_batch || layer->n_pieces != p->stages[0].n_workers)
            return refuse(c, in_layer(i, "cut"),
                          "layer '%s': with an asynchronous server every layer is cut along n "
                          "alone, over all %d workers of the stage",
                          layer_name(c, i), p->stages[0].n_workers);
    }
    for (int i = 1; i < p->n_layers - 1; i++)
        if (!check_samples(c, i))
            return false;
    return true;
}

static bool check_sync(const struct checker *c)
{
    const struct plan *p = c->plan;
    if ((int)p->sync < 0 || p->sync >= PLAN_SYNC_COUNT)
        return refuse(c, in_sync("method"), "there is no method %d", (int)p->sync);
    if (p->bucket_bytes < 1)
        return refuse(c, in_sync("bucket_bytes"), "buckets of %lld bytes: at least 1",
                      (long long)p->bucket_bytes);
    if (p->workers_per_node < 1)
        return refuse(c, in_sync("workers_per_node"), "%d workers per node: at least 1",
                      p->workers_per_node);
    if (p->sync == PLAN_SERVER && p->n_servers < 1)
        return refuse(c, in_sync("method"), "the method server needs workers that are servers");
    if (p->sync != PLAN_SERVER && p->n_servers > 0)
        return refuse(c, in_sync("servers"), "servers go with the method server, not %s",
                      plan_sync_names[p->sync]);
    if (p->sync != PLAN_SERVER && p->asynchronous)
        return refuse(c, in_sync("asynchronous"),
                      "asynchronous goes with the method server, not %s", plan_sync_names[p->sync]);
    return check_asynchronous(c);
}

bool plan_find_fault(const struct plan *plan, const struct graph *graph, struct plan_fault *fault)
{
    struct checker c = {plan, graph, fault};
    if (plan->n_layers != graph->n_nodes)
        return !refuse(&c, in_plan("model"), "the plan has %d layers, %s has %d", plan->n_layers,
                       graph->name, graph->n_nodes);
    if (!check_workers(&c))
        return true;
    for (int i = 1; i < plan->n_layers; i++)
        if (!check_layer(&c, i))
            return true;
    return !(check_stages(&c) && check_schedule(&c) && check_sync(&c));
}

enum status plan_check(const struct plan *plan, const struct graph *graph)
{
    struct plan_fault fault;
    if (plan_find_fault(plan, graph, &fault))
        return status_fail(STATUS_USAGE, "plan '%.80s': %s", plan->name, fault.message);
    return STATUS_OK;
}
