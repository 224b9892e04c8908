#include "program/analysis.h"

static bool is_view(const struct partition *part, int tensor)
{
    return part->tensors[tensor].source != NO_TENSOR;
}

static enum status find_traffic(struct analysis *a, arena *scratch)
{
    const struct partition *part = a->part;
    TRY(arena_alloc_array(a->memory, (size_t)part->n_tensors, sizeof *a->traffic, &a->traffic));
    for (int t = 0; t < part->n_tensors; t++)
        for (int s = 0; is_view(part, t) && s < part->n_sizes; s++)
            TRY(traffic_find(part, a->plan->n_workers, t, s, a->memory, scratch,
                             &a->traffic[t][s]));
    return STATUS_OK;
}

/* ---- stages ---- */

static bool reads_images(const struct analysis *a, const struct part_group *g)
{
    for (int k = 0; k < a->graph->nodes[g->first_node].op.n_inputs; k++)
        if (g->input[k] == TENSOR_IMAGES || a->part->tensors[g->input[k]].source == TENSOR_IMAGES)
            return true;
    return false;
}

/* The messages of a view are those of a task of `stage`. */
static void add_messages(const struct analysis *a, int stage, enum direction direction, int view,
                         bool *concerns)
{
    for (int s = 0; s < a->part->n_sizes; s++) {
        const struct traffic *t = &a->traffic[view][s];
        a->stages[stage].n_messages[direction][s] += t->n_messages;
        for (int i = 0; i < t->of_view[a->plan->n_workers]; i++) {
            concerns[t->in_source[i].peer] |= t->in_source[i].message[direction] >= 0;
            concerns[t->in_view[i].peer] |= t->in_view[i].message[direction] >= 0;
        }
    }
}

/* A message is sent in the task that makes its tensor: a view's in the task of its source's stage,
 * that of a view's gradient in the task of its first consumer's stage. */
static enum status describe_stage(struct analysis *a, int stage)
{
    const struct partition *part = a->part;
    const struct plan_stage *members = &a->plan->stages[stage];
    struct stage_work *s = &a->stages[stage];
    bool *concerns;
    int *groups;
    TRY(arena_alloc_array(a->memory, (size_t)part->n_groups, sizeof *groups, &groups));
    TRY(arena_alloc_array(a->memory, (size_t)a->plan->n_workers, sizeof *concerns, &concerns));
    /* Servers, and the workers that they serve, count messages, too. */
    for (int i = 0; i < a->plan->n_workers; i++)
        concerns[i] = a->plan->n_servers > 0;
    for (int i = 0; i < members->n_workers; i++)
        concerns[members->workers[i]] = true;
    for (int i = 0; i < part->n_groups; i++) {
        const struct part_group *g = &part->groups[i];
        if (g->stage != stage)
            continue;
        groups[s->n_groups++] = i;
        s->reads_images |= reads_images(a, g);
        for (int t = part->tensors[g->output].first_view; t != NO_TENSOR;
             t = part->tensors[t].next_view)
            add_messages(a, stage, TO_VIEW, t, concerns);
        for (int t = g->first_view; t < g->output; t++)
            if (part->tensors[t].needs_gradient)
                add_messages(a, stage, TO_SOURCE, t, concerns);
    }
    s->groups = groups;
    s->concerns = concerns;
    return STATUS_OK;
}

/* ---- groups ---- */

void analysis_find_case(const struct analysis *a, int group, int size, struct group_case *out)
{
    const struct part_group *g = &a->part->groups[group];
    out->op =
        op_resize(&a->graph->nodes[g->first_node].op, USE_BATCH, a->part->samples_of_size[size]);
    op_get_loops(&out->op, &out->nest);
}

static enum status describe_group(struct analysis *a, int group, int size)
{
    const struct part_group *g = &a->part->groups[group];
    const struct plan_layer *layer = &a->plan->layers[g->first_node];
    const struct part_tensor *out = &a->part->tensors[g->output];
    struct group_case **one = &a->cases[group][size];
    for (int i = 0; i < layer->n_pieces; i++)
        a->has_empty[group][size] |=
            region_is_empty(&out->at[size][layer->workers[i]], out->axes.rank);
    if (layer->n_pieces < 2)
        return STATUS_OK;
    TRY(arena_alloc(a->memory, sizeof **one, one));
    analysis_find_case(a, group, size, *one);
    return STATUS_OK;
}

static bool shares_statistics(const struct analysis *a)
{
    for (int i = 1; i < a->graph->n_nodes; i++) {
        const struct plan_layer *layer = &a->plan->layers[i];
        struct loop_nest nest;
        if (layer->n_cuts == 0)
            continue;
        op_get_loops(&a->graph->nodes[i].op, &nest);
        for (int k = 0; k < layer->n_cuts; k++)
            if (nest.loop[layer->cut[k].loop].role == LOOP_STATISTIC &&
                plan_summed_statistics(plan_norms_by_worker(a->plan), &nest,
                                       1U << layer->cut[k].loop))
                return true;
    }
    return false;
}

/* ---- the whole ---- */

static enum status find_all(struct analysis *a)
{
    size_t n_groups;
    arena *scratch;
    TRY(partition_create(a->graph, a->plan, a->n_micros, a->memory, &a->part));
    TRY(order_tasks(a->plan, a->n_steps * a->n_micros, a->training, a->memory, &a->tasks,
                    &a->n_tasks));
    TRY(arena_create(&scratch));
    enum status st = find_traffic(a, scratch);
    arena_destroy(scratch);
    TRY(st);
    TRY(arena_alloc_array(a->memory, (size_t)a->plan->n_stages, sizeof *a->stages, &a->stages));
    for (int s = 0; s < a->plan->n_stages; s++)
        TRY(describe_stage(a, s));
    n_groups = (size_t)a->part->n_groups;
    TRY(arena_alloc_array(a->memory, n_groups, sizeof *a->has_empty, &a->has_empty));
    TRY(arena_alloc_array(a->memory, n_groups, sizeof *a->cases, &a->cases));
    for (int g = 0; g < a->part->n_groups; g++)
        for (int s = 0; s < a->part->n_sizes; s++)
            TRY(describe_group(a, g, s));
    a->shares_statistics = shares_statistics(a);
    return holders_find(a->graph, a->plan, a->part, a->memory, &a->params);
}

enum status analysis_create(const struct graph *graph, const struct plan *plan, bool training,
                            int n_steps, struct analysis **out)
{
    arena *memory;
    struct analysis *a;
    enum status st;
    TRY(arena_create(&memory));
    TRY_GOTO(st, arena_alloc(memory, sizeof *a, &a), fail);
    *a = (struct analysis){
        .memory = memory, .graph = graph, .plan = plan, .training = training, .n_steps = 1};
    a->n_micros = training ? plan->micro_batches : 1;
    if (a->n_micros > graph->batch)
        a->n_micros = (int)graph->batch; /* a short last batch */
    if (training && plan->schedule == PLAN_PIPEDREAM)
        a->n_steps = n_steps ? n_steps : plan->window;
    TRY_GOTO(st, find_all(a), fail);
    *out = a;
    return STATUS_OK;
fail:
    arena_destroy(memory);
    return st;
}

void analysis_destroy(struct analysis *a)
{
    if (a)
        arena_destroy(a->memory);
}
