/* Named strategies: functions that write a plan, and nothing else. */
#include "base/numbers.h"
#include "base/text.h"
#include "plan/shared.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the frame of every plan ---- */

static void take_request(struct plan *p, const struct plan_request *request)
{
    p->sync = request->sync;
    if (request->micro_batches)
        p->micro_batches = request->micro_batches;
    if (p->n_stages == 1 && p->micro_batches > 1)
        p->schedule = PLAN_1F1B; /* gradient accumulation keeps one micro-batch's tensors */
    if (request->bucket_bytes)
        p->bucket_bytes = request->bucket_bytes;
    if (request->workers_per_node)
        p->workers_per_node = request->workers_per_node;
}

static enum status list_workers(struct plan *p, int first, int n, const int **out)
{
    int *workers;
    TRY(arena_alloc_array(p->memory, (size_t)n, sizeof *workers, &workers));
    for (int i = 0; i < n; i++)
        workers[i] = first + i;
    *out = workers;
    return STATUS_OK;
}

static enum status fill_stages(struct plan *p, const int *stage_workers)
{
    int first = 0;
    for (int s = 0; s < p->n_stages; s++) {
        p->stages[s].n_workers = stage_workers[s];
        TRY(list_workers(p, first, stage_workers[s], &p->stages[s].workers));
        first += stage_workers[s];
    }
    return STATUS_OK;
}

/* Stage s has the next stage_workers[s] workers. */
static enum status start_plan(const char *name, const struct graph *graph,
                              const struct plan_request *request, int n_stages,
                              const int *stage_workers, struct plan **out)
{
    TRY(plan_create(graph, name, request->n_workers, n_stages, out));
    take_request(*out, request);
    enum status st = fill_stages(*out, stage_workers);
    if (st != STATUS_OK)
        plan_destroy(*out);
    return st;
}

/* ---- cuts ---- */

/* A plan under construction; its nodes are cut in graph order. */
struct draft {
    struct plan *plan;
    const struct graph *graph;
    int data, model; /* the mesh of all workers: samples x channels */
};

/* `loop` is a number in the layer's nest, found by its use. */
static void cut_loop(struct plan_layer *layer, int loop, int n_parts)
{
    if (n_parts > 1)
        layer->cut[layer->n_cuts++] = (struct plan_cut){.loop = loop, .n_parts = n_parts};
}

/* Along the batch, over all workers of the stage. */
static void cut_batch(const struct draft *d, int node)
{
    struct plan_layer *layer = &d->plan->layers[node];
    struct loop_nest nest;
    op_get_loops(&d->graph->nodes[node].op, &nest);
    layer->n_cuts = 0;
    cut_loop(layer, loop_nest_find(&nest, USE_BATCH), d->plan->stages[layer->stage].n_workers);
    plan_settle_layer(d->plan, node);
}

static int count_parts(const struct plan_layer *layer, int loop)
{
    for (int i = 0; i < layer->n_cuts; i++)
        if (layer->cut[i].loop == loop)
            return layer->cut[i].n_parts;
    return 1;
}

/* The parts of a node's channels; 1 where they are not cut. */
static int count_channel_parts(const struct draft *d, int node)
{
    struct loop_nest nest;
    op_get_loops(&d->graph->nodes[node].op, &nest);
    int loop = loop_nest_find(&nest, USE_CHANNEL);
    return loop < 0 ? 1 : count_parts(&d->plan->layers[node], loop);
}

/* Whether the loop indexes the first input's channels, too: each piece then reads the channels it
 * writes, and cutting as the input is cut moves nothing. */
static bool keeps_channels(const struct loop_nest *nest, int loop)
{
    int axis = tensor_map_find(&nest->input[0], USE_CHANNEL);
    return axis >= 0 && nest->input[0].axis[axis].term[0].loop == loop;
}

/* How many parts the channels of a node get: at most the mesh's, at most as many as there are, and
 * those of the input where channels are kept. 1: the node is cut along the batch instead. */
static int choose_channel_parts(const struct draft *d, int node, const struct loop_nest *nest,
                                int loop)
{
    if (loop < 0 || nest->loop[loop].cut == CUT_NEVER)
        return 1;
    int wanted = (int)int64_min(d->model, nest->loop[loop].extent);
    int feeder = d->graph->nodes[node].input[0];
    if (feeder == 0 || !keeps_channels(nest, loop))
        return wanted;
    int parts = count_channel_parts(d, feeder);
    if (parts > 1)
        return (int)int64_min(parts, wanted);
    bool free_batch = nest->loop[loop_nest_find(nest, USE_BATCH)].cut == CUT_FREE;
    return free_batch ? 1 : wanted; /* not batch norm: it would exchange */
}

/* Where a layer uses fewer than the mesh's columns, its pieces stay in their own rows. */
static enum status use_columns(const struct draft *d, struct plan_layer *layer, int columns)
{
    int *workers;
    TRY(arena_alloc_array(d->plan->memory, (size_t)(d->data * columns), sizeof *workers, &workers));
    for (int i = 0; i < d->data * columns; i++)
        workers[i] = i / columns * d->model + i % columns;
    layer->workers = workers;
    return STATUS_OK;
}

/* Samples x channels over the mesh. */
static enum status cut_mesh(const struct draft *d, int node)
{
    struct plan_layer *layer = &d->plan->layers[node];
    struct loop_nest nest;
    op_get_loops(&d->graph->nodes[node].op, &nest);
    int loop = loop_nest_find(&nest, USE_CHANNEL);
    int parts = choose_channel_parts(d, node, &nest, loop);
    if (parts < 2) {
        cut_batch(d, node);
        return STATUS_OK;
    }
    cut_loop(layer, loop_nest_find(&nest, USE_BATCH), d->data);
    cut_loop(layer, loop, parts);
    if (parts < d->model && d->data > 1)
        TRY(use_columns(d, layer, parts));
    plan_settle_layer(d->plan, node);
    return STATUS_OK;
}

/* ---- one stage ---- */

typedef enum status cut_rule(const struct draft *d, int node);

static enum status cut_stage(const struct plan_strategy *self, cut_rule *cut,
                             const struct graph *graph, const struct plan_request *request,
                             int model_workers, struct plan **out)
{
    struct draft d = {
        .graph = graph, .data = request->n_workers / model_workers, .model = model_workers};
    TRY(start_plan(self->name, graph, request, 1, &request->n_workers, &d.plan));
    for (int i = 1; i < graph->n_nodes; i++) {
        enum status st = cut(&d, i);
        if (st != STATUS_OK) {
            plan_destroy(d.plan);
            return st;
        }
    }
    *out = d.plan;
    return STATUS_OK;
}

/* The divisor nearest to the square root; of two that are equally near, the smaller. */
static int find_middle_divisor(int n)
{
    int below = 1;
    while ((int64_t)(below + 1) * (below + 1) <= n)
        below++;
    while (n % below != 0)
        below--;
    return below; /* n / below is never nearer: its distance is below's times the root / below */
}

/* "One weird trick" (Krizhevsky 2014): convolutions by samples, linear layers by channels: those
 * with weights whose output is no image. Layers behind a linear one follow its cut; layers before
 * the first one do not. */
static enum status cut_owt(const struct draft *d, int node)
{
    const struct graph_node *n = &d->graph->nodes[node];
    bool is_linear = op_get_info(n->op.op)->flags & OP_SPLIT_GRADIENT;
    bool follows = count_channel_parts(d, n->input[0]) > 1;
    if (axes_find(&n->op.output_axes, USE_ROW) < 0 && (is_linear || follows))
        return cut_mesh(d, node);
    cut_batch(d, node);
    return STATUS_OK;
}

static int count_spatial_parts(const struct loop_nest *nest, int loop, int wanted)
{
    if (loop < 0 || nest->loop[loop].cut == CUT_NEVER)
        return 1;
    return (int)int64_min(wanted, nest->loop[loop].extent);
}

/* Rows and columns over the mesh, of which `data` is the larger side. Where a piece would read
 * nothing but padding the longer side gets fewer parts; a layer that has no room in its image is
 * cut along the batch. */
static enum status cut_spatial(const struct draft *d, int node)
{
    const struct op_case *op = &d->graph->nodes[node].op;
    struct plan_layer *layer = &d->plan->layers[node];
    struct loop_nest nest;
    op_get_loops(op, &nest);
    int height = loop_nest_find(&nest, USE_ROW);
    int width = loop_nest_find(&nest, USE_COLUMN);
    int rows = count_spatial_parts(&nest, height, d->data);
    int columns = count_spatial_parts(&nest, width, d->model);
    while (rows > 1 || columns > 1) {
        int piece;
        layer->n_cuts = 0;
        cut_loop(layer, height, rows);
        cut_loop(layer, width, columns);
        if (!plan_reads_only_padding(layer, op, &piece)) {
            plan_settle_layer(d->plan, node);
            return STATUS_OK;
        }
        if (rows >= columns)
            rows--;
        else
            columns--;
    }
    cut_batch(d, node);
    return STATUS_OK;
}

/* A rule that cuts every layer, and the number of workers along the mesh's second side. */
struct one_stage {
    cut_rule *cut;
    enum { ONE_COLUMN, ALL_COLUMNS, MIDDLE_COLUMNS } columns;
};

static enum status build_one_stage(const struct plan_strategy *self, const struct graph *graph,
                                   const struct plan_request *request, struct plan **out)
{
    const struct one_stage *how = self->how;
    int n = request->n_workers;
    int columns = how->columns == ALL_COLUMNS      ? n
                  : how->columns == MIDDLE_COLUMNS ? find_middle_divisor(n)
                                                   : 1;
    return cut_stage(self, how->cut, graph, request, columns, out);
}

static enum status build_serial(const struct plan_strategy *self, const struct graph *graph,
                                const struct plan_request *request, struct plan **out)
{
    if (request->n_workers != 1)
        return status_fail(STATUS_USAGE, "the strategy serial uses at most 1 worker, not %d",
                           request->n_workers);
    return cut_stage(self, cut_mesh, graph, request, 1, out);
}

static enum status build_hybrid(const struct plan_strategy *self, const struct graph *graph,
                                const struct plan_request *request, struct plan **out)
{
    int model =
        request->model_workers ? request->model_workers : find_middle_divisor(request->n_workers);
    if (model < 1 || request->n_workers % model != 0)
        return status_fail(STATUS_USAGE,
                           "the strategy hybrid cannot give %d of %d workers to channels: it is no "
                           "divisor",
                           model, request->n_workers);
    return cut_stage(self, cut_mesh, graph, request, model, out);
}

/* ---- pipelines ---- */

struct pipeline {
    enum plan_schedule schedule;
    bool micro_batches; /* several by default */
};

static enum status fill_pipeline(const struct draft *d, const int *replicas)
{
    int *stage;
    TRY(arena_alloc_array(d->plan->memory, (size_t)d->graph->n_nodes, sizeof *stage, &stage));
    TRY(plan_balance_stages(d->graph, d->plan->micro_batches, d->plan->n_stages, replicas, stage));
    for (int i = 1; i < d->graph->n_nodes; i++) {
        d->plan->layers[i].stage = stage[i];
        cut_batch(d, i);
    }
    return STATUS_OK;
}

static enum status check_replicas(const struct plan_request *request)
{
    int64_t sum = 0;
    for (int s = 0; s < request->n_stages; s++) {
        if (request->replicas[s] < 1)
            return status_fail(STATUS_USAGE, "stage %d would have %d workers", s,
                               request->replicas[s]);
        sum += request->replicas[s];
    }
    if (sum != request->n_workers)
        return status_fail(STATUS_USAGE, "the stages' workers sum to %lld, not to %d",
                           (long long)sum, request->n_workers);
    return STATUS_OK;
}

static enum status build_with_replicas(const struct plan_strategy *self, const struct graph *graph,
                                       const struct plan_request *request, int n_stages,
                                       const int *replicas, struct plan **out)
{
    const struct pipeline *kind = self->how;
    struct draft d = {.graph = graph};
    TRY(start_plan(self->name, graph, request, n_stages, replicas, &d.plan));
    d.plan->schedule = kind->schedule;
    if (!request->micro_batches && kind->micro_batches)
        d.plan->micro_batches = (int)int64_min(graph->batch, 4 * (int64_t)n_stages);
    if (kind->schedule == PLAN_PIPEDREAM)
        d.plan->window = request->window ? request->window : 4 * n_stages;
    enum status st = fill_pipeline(&d, replicas);
    if (st != STATUS_OK)
        plan_destroy(d.plan);
    else
        *out = d.plan;
    return st;
}

static enum status build_pipeline(const struct plan_strategy *self, const struct graph *graph,
                                  const struct plan_request *request, struct plan **out)
{
    if (request->replicas) {
        TRY(check_replicas(request));
        return build_with_replicas(self, graph, request, request->n_stages, request->replicas, out);
    }
    int *ones = calloc((size_t)request->n_workers, sizeof *ones);
    if (!ones)
        return status_no_memory((size_t)request->n_workers * sizeof *ones);
    for (int i = 0; i < request->n_workers; i++)
        ones[i] = 1;
    enum status st = build_with_replicas(self, graph, request, request->n_workers, ones, out);
    free(ones);
    return st;
}

/* ---- parameter servers ---- */

/* The last workers are servers; the strategy splits the work among the others. */
static enum status build_with_servers(const struct plan_strategy *strategy,
                                      const struct graph *graph, const struct plan_request *request,
                                      struct plan **out)
{
    struct plan_request training = *request;
    int n_servers = request->n_servers ? request->n_servers : request->n_workers / 4;
    n_servers = n_servers ? n_servers : 1;
    training.n_workers = request->n_workers - n_servers;
    if (n_servers < 1 || training.n_workers < 1)
        return status_fail(STATUS_USAGE,
                           "the strategy %s needs at least one server and one other worker; %d "
                           "worker%s with %d server%s",
                           strategy->name, request->n_workers, request->n_workers == 1 ? "" : "s",
                           n_servers, n_servers == 1 ? "" : "s");
    TRY(strategy->build(strategy, graph, &training, out));
    struct plan *p = *out;
    p->n_workers = request->n_workers;
    p->workers_per_node = p->n_workers; /* of no use to a server */
    p->sync = PLAN_SERVER;
    p->asynchronous = request->asynchronous;
    p->n_servers = n_servers;
    enum status st = list_workers(p, training.n_workers, n_servers, &p->servers);
    if (st != STATUS_OK)
        plan_destroy(p);
    return st;
}

/* ---- the list ---- */

static const struct one_stage by_samples = {cut_mesh, ONE_COLUMN};
static const struct one_stage by_channels = {cut_mesh, ALL_COLUMNS};
static const struct one_stage by_image = {cut_spatial, MIDDLE_COLUMNS};
static const struct one_stage by_weird_trick = {cut_owt, ALL_COLUMNS};
static const struct pipeline one_batch = {PLAN_GPIPE, false};
static const struct pipeline gpipe = {PLAN_GPIPE, true};
static const struct pipeline one_forward_one_backward = {PLAN_1F1B, true};
static const struct pipeline pipedream = {PLAN_PIPEDREAM, false};

static const struct plan_strategy strategies[] = {
    {"serial", "one worker", PLAN_TAKES_SYNC, build_serial, NULL},
    {"data", "every layer split along the batch", PLAN_TAKES_SYNC, build_one_stage, &by_samples},
    {"model", "every layer split along its channels", PLAN_TAKES_SYNC, build_one_stage,
     &by_channels},
    {"spatial", "images split by rows and columns", PLAN_TAKES_SYNC, build_one_stage, &by_image},
    {"owt", "convolutions split along the batch, linear layers along channels", PLAN_TAKES_SYNC,
     build_one_stage, &by_weird_trick},
    {"layers", "a run of layers for each worker, one after the other",
     PLAN_TAKES_SYNC | PLAN_TAKES_REPLICAS, build_pipeline, &one_batch},
    {"gpipe", "stages; all micro-batches forward, then all backward",
     PLAN_TAKES_SYNC | PLAN_TAKES_REPLICAS, build_pipeline, &gpipe},
    {"1f1b", "stages; one micro-batch forward, one backward, in turn",
     PLAN_TAKES_SYNC | PLAN_TAKES_REPLICAS, build_pipeline, &one_forward_one_backward},
    {"pipedream", "stages; steps overlap, each with the weights it began with",
     PLAN_TAKES_SYNC | PLAN_TAKES_REPLICAS | PLAN_TAKES_WINDOW, build_pipeline, &pipedream},
    {"ps", "split along the batch; some workers keep the weights", PLAN_TAKES_SERVERS,
     build_one_stage, &by_samples},
    {"hybrid", "a mesh: the batch one way, channels the other",
     PLAN_TAKES_SYNC | PLAN_TAKES_MODEL_WORKERS, build_hybrid, NULL},
    {NULL, NULL, 0, NULL, NULL}};

enum { STRATEGY_COUNT = sizeof strategies / sizeof *strategies - 1 };

const struct plan_strategy *plan_strategies(void)
{
    return strategies;
}

static enum status find_strategy(const char *name, const struct plan_strategy **out)
{
    const char *names[STRATEGY_COUNT + 1] = {NULL};
    for (int i = 0; i < STRATEGY_COUNT; i++) {
        names[i] = strategies[i].name;
        if (!strcasecmp(names[i], name)) {
            *out = &strategies[i];
            return STATUS_OK;
        }
    }
    return text_fail_unknown("strategy", name, names);
}

int64_t plan_more_micro_batches(int64_t m, int64_t batch)
{
    return 2 * m <= batch ? 2 * m : m < batch ? batch : 0;
}

enum status plan_build(const char *strategy, const struct graph *graph,
                       const struct plan_request *request, struct plan **out)
{
    const struct plan_strategy *chosen = NULL;
    struct plan *p;
    TRY(find_strategy(strategy, &chosen));
    if (request->n_workers < 1 || request->n_workers > PLAN_MAX_WORKERS)
        return status_fail(STATUS_USAGE, "%d workers: a plan has 1 to %d", request->n_workers,
                           PLAN_MAX_WORKERS);
    bool served = chosen->takes & PLAN_TAKES_SERVERS || request->sync == PLAN_SERVER;
    TRY(served ? build_with_servers(chosen, graph, request, &p)
               : chosen->build(chosen, graph, request, &p));
    p->batch_norm = request->batch_norm;
    enum status st = STATUS_OK;
    if (request->segments)
        st = plan_recompute_segments(p, graph, request->segments);
    if (st == STATUS_OK)
        st = plan_check(p, graph);
    if (st != STATUS_OK)
        plan_destroy(p);
    else
        *out = p;
    return st;
}
