#include "plan/shared.h"

#include <assert.h>
#include <string.h>

const char *const plan_schedule_names[PLAN_SCHEDULE_COUNT + 1] = {
    [PLAN_GPIPE] = "gpipe", [PLAN_1F1B] = "1f1b", [PLAN_PIPEDREAM] = "pipedream"};
const char *const plan_batch_norm_names[PLAN_NORM_COUNT + 1] = {
    [PLAN_NORM_BATCH] = "batch", [PLAN_NORM_WORKER] = "worker"};
const char *const plan_sync_names[PLAN_SYNC_COUNT + 1] = {[PLAN_RING] = "ring",
                                                          [PLAN_TREE] = "tree",
                                                          [PLAN_HIERARCHICAL] = "hierarchical",
                                                          [PLAN_SERVER] = "server"};
const char *const plan_loop_uses[4] = {"channels", "height", "width", NULL};

static enum status fill_plan(arena *memory, const struct graph *graph, const char *name,
                             int n_workers, int n_stages, struct plan **out)
{
    struct plan *p;
    TRY(arena_alloc(memory, sizeof *p, &p));
    *p = (struct plan){.memory = memory,
                       .n_workers = n_workers,
                       .n_stages = n_stages,
                       .n_layers = graph->n_nodes,
                       .micro_batches = 1,
                       .window = 1,
                       .bucket_bytes = PLAN_BUCKET_BYTES,
                       .workers_per_node = n_workers};
    TRY(arena_copy_text(memory, name, &p->name));
    TRY(arena_alloc_array(memory, (size_t)n_stages, sizeof *p->stages, &p->stages));
    TRY(arena_alloc_array(memory, (size_t)p->n_layers, sizeof *p->layers, &p->layers));
    *out = p;
    return STATUS_OK;
}

enum status plan_create(const struct graph *graph, const char *name, int n_workers, int n_stages,
                        struct plan **out)
{
    arena *memory;
    TRY(arena_create(&memory));
    enum status st = fill_plan(memory, graph, name, n_workers, n_stages, out);
    if (st != STATUS_OK)
        arena_destroy(memory);
    return st;
}

static enum status copy_array(arena *a, const void *from, int count, size_t element_bytes,
                              void *out)
{
    void *copy;
    *(void **)out = NULL;
    if (!from)
        return STATUS_OK;
    TRY(arena_alloc_array(a, (size_t)count, element_bytes, &copy));
    memcpy(copy, from, (size_t)count * element_bytes);
    *(void **)out = copy;
    return STATUS_OK;
}

/* The arrays that the plan points to, and those that these point to. */
static enum status copy_arrays(const struct plan *from, struct plan *to)
{
    arena *a = to->memory;
    TRY(arena_copy_text(a, from->name, &to->name));
    TRY(plan_copy_made_for(a, &from->made_for, &to->made_for));
    TRY(copy_array(a, from->stages, from->n_stages, sizeof *from->stages, &to->stages));
    TRY(copy_array(a, from->layers, from->n_layers, sizeof *from->layers, &to->layers));
    TRY(copy_array(a, from->servers, from->n_servers, sizeof *from->servers, &to->servers));
    for (int i = 0; i < from->n_stages; i++) {
        const struct plan_stage *stage = &from->stages[i];
        TRY(copy_array(a, stage->workers, stage->n_workers, sizeof(int), &to->stages[i].workers));
    }
    for (int i = 0; i < from->n_layers; i++) {
        const struct plan_layer *layer = &from->layers[i];
        struct plan_layer *copy = &to->layers[i];
        TRY(copy_array(a, layer->workers, layer->n_pieces, sizeof(int), &copy->workers));
        for (int k = 0; k < layer->n_cuts; k++)
            TRY(copy_array(a, layer->cut[k].sizes, layer->cut[k].n_parts, sizeof(int64_t),
                           &copy->cut[k].sizes));
    }
    return STATUS_OK;
}

enum status plan_copy(const struct plan *plan, struct plan **out)
{
    arena *a;
    struct plan *copy = NULL;
    TRY(arena_create(&a));
    enum status st = arena_alloc(a, sizeof *copy, &copy);
    if (st == STATUS_OK) {
        *copy = *plan;
        copy->memory = a;
        st = copy_arrays(plan, copy);
    }
    if (st == STATUS_OK)
        *out = copy;
    else
        arena_destroy(a);
    return st;
}

void plan_destroy(struct plan *p)
{
    if (p)
        arena_destroy(p->memory);
}

void plan_settle_layer(struct plan *plan, int node)
{
    struct plan_layer *layer = &plan->layers[node];
    layer->n_pieces = 1;
    for (int i = 0; i < layer->n_cuts; i++)
        if (layer->n_pieces <= PLAN_MAX_WORKERS) /* the product stays within an int */
            layer->n_pieces *= layer->cut[i].n_parts;
    if (!layer->workers)
        layer->workers = plan->stages[layer->stage].workers;
}

/* The boundary before part i. Even parts differ by one at most; sizes are scaled to the extent, and
 * rounded to the nearest. */
static int64_t find_boundary(const struct plan_cut *cut, int i, int64_t extent)
{
    if (!cut->sizes)
        return extent * i / cut->n_parts;
    int64_t before = 0, sum = 0;
    for (int j = 0; j < cut->n_parts; j++) {
        before += j < i ? cut->sizes[j] : 0;
        sum += cut->sizes[j];
    }
    if (sum <= 0) /* plan_check refuses such sizes */
        return 0;
    return (2 * before * extent + sum) / (2 * sum);
}

struct range plan_part(const struct plan_cut *cut, int i, int64_t extent)
{
    return (struct range){find_boundary(cut, i, extent), find_boundary(cut, i + 1, extent)};
}

void plan_piece_box(const struct plan_layer *layer, const struct loop_nest *nest, int i,
                    struct box *box)
{
    loop_nest_whole(nest, box);
    for (int c = layer->n_cuts - 1; c >= 0; c--) {
        const struct plan_cut *cut = &layer->cut[c];
        box->range[cut->loop] = plan_part(cut, i % cut->n_parts, nest->loop[cut->loop].extent);
        i /= cut->n_parts;
    }
}

int plan_find_loop(const struct loop_nest *nest, const char *name)
{
    for (int i = 0; i < nest->n_loops; i++)
        if (!strcmp(nest->loop[i].name, name))
            return i;
    return -1;
}

int plan_find_loop_by_use(const struct loop_nest *nest, const char *name)
{
    static const enum loop_use uses[] = {USE_CHANNEL, USE_ROW, USE_COLUMN};
    static_assert(sizeof uses / sizeof *uses == sizeof plan_loop_uses / sizeof *plan_loop_uses - 1,
                  "a use for each name");
    for (int i = 0; plan_loop_uses[i]; i++)
        if (strcmp(plan_loop_uses[i], name) == 0)
            return loop_nest_find(nest, uses[i]);
    return -1;
}

bool plan_can_cut(const struct loop_nest *nest, int number, int64_t n_parts)
{
    const struct loop *loop = &nest->loop[number];
    return loop->cut != CUT_NEVER && (loop->use == USE_BATCH || loop->extent >= n_parts);
}

bool plan_cuts_only_batch(const struct plan_layer *layer, const struct op_case *op)
{
    struct loop_nest nest;
    if (layer->n_cuts != 1)
        return layer->n_cuts == 0;
    op_get_loops(op, &nest);
    return nest.loop[layer->cut[0].loop].use == USE_BATCH;
}

static bool is_indexed_by(const struct tensor_map *map, int loop)
{
    for (int a = 0; a < map->rank; a++)
        for (int t = 0; t < map->axis[a].n_terms; t++)
            if (map->axis[a].term[t].loop == loop)
                return true;
    return false;
}

int plan_server_of(const struct plan *plan, const struct graph *graph, int param)
{
    const struct graph_param *of = &graph->params[param];
    const struct graph_node *node = &graph->nodes[of->node];
    const struct plan_layer *layer = &plan->layers[of->node];
    struct loop_nest nest;
    if (plan->n_servers == 0 || !graph_param_learns(of))
        return -1;
    op_get_loops(&node->op, &nest);
    for (int i = 0; i < layer->n_cuts; i++)
        if (is_indexed_by(&nest.param[param - node->first_param], layer->cut[i].loop))
            return -1;
    return plan->servers[param % plan->n_servers];
}

bool plan_norms_by_worker(const struct plan *plan)
{
    return plan->batch_norm == PLAN_NORM_WORKER || plan->asynchronous;
}

unsigned plan_summed_statistics(bool by_worker, const struct loop_nest *nest, unsigned loops)
{
    for (int l = 0; by_worker && l < nest->n_loops; l++)
        if (nest->loop[l].use == USE_BATCH)
            loops &= ~(1U << l);
    return loops;
}

bool plan_cuts_norms(const struct plan *plan, const struct graph *graph)
{
    for (int i = 1; i < graph->n_nodes; i++) {
        struct loop_nest nest;
        unsigned cut = 0;
        op_get_loops(&graph->nodes[i].op, &nest);
        for (int k = 0; k < plan->layers[i].n_cuts; k++)
            if (nest.loop[plan->layers[i].cut[k].loop].role == LOOP_STATISTIC)
                cut |= 1U << plan->layers[i].cut[k].loop;
        if (plan_summed_statistics(true, &nest, cut) != cut)
            return true;
    }
    return false;
}

bool plan_is_stale(const struct plan *plan)
{
    return plan->schedule == PLAN_PIPEDREAM || plan->asynchronous;
}

bool plan_recomputes(const struct plan *plan)
{
    for (int i = 1; i < plan->n_layers; i++)
        if (plan->layers[i].recompute)
            return true;
    return false;
}
