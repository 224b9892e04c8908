#include "program/groundwork.h"

static bool is_view(const struct partition *part, int tensor)
{
    return part->tensors[tensor].source != NO_TENSOR;
}

/* ---- traffic ---- */

static enum status find_traffic(struct groundwork *w, arena *scratch)
{
    const struct partition *part = w->part;
    TRY(arena_alloc_array(w->memory, (size_t)part->n_tensors * PARTITION_MAX_CLASSES,
                          sizeof *w->traffic, &w->traffic));
    for (int t = 0; t < part->n_tensors; t++)
        for (int c = 0; is_view(part, t) && c < part->n_classes; c++)
            TRY(traffic_find(part, w->plan->n_workers, t, c, w->memory, scratch,
                             &w->traffic[t * PARTITION_MAX_CLASSES + c]));
    return STATUS_OK;
}

/* ---- stages ---- */

static enum status list_groups(struct groundwork *w, int stage)
{
    const struct partition *part = w->part;
    struct stage_work *s = &w->stages[stage];
    int *groups;
    for (int g = 0; g < part->n_groups; g++)
        s->n_groups += part->groups[g].stage == stage;
    TRY(arena_alloc_array(w->memory, (size_t)s->n_groups, sizeof *groups, &groups));
    for (int g = 0, n = 0; g < part->n_groups; g++)
        if (part->groups[g].stage == stage)
            groups[n++] = g;
    s->groups = groups;
    return STATUS_OK;
}

static bool reads_images(const struct groundwork *w, const struct part_group *g)
{
    for (int k = 0; k < w->graph->nodes[g->first_node].op.n_inputs; k++)
        if (g->input[k] == TENSOR_IMAGES || w->part->tensors[g->input[k]].source == TENSOR_IMAGES)
            return true;
    return false;
}

/* The messages of a view are those of a task of `stage`. */
static void add_messages(const struct groundwork *w, int stage, enum direction direction, int view,
                         bool *concerns)
{
    for (int c = 0; c < w->part->n_classes; c++) {
        const struct traffic *t = &w->traffic[view * PARTITION_MAX_CLASSES + c];
        w->stages[stage].n_messages[direction][c] += t->n_messages;
        for (int i = 0; i < t->of_view[w->plan->n_workers]; i++) {
            concerns[t->in_source[i].peer] |= t->in_source[i].message[direction] >= 0;
            concerns[t->in_view[i].peer] |= t->in_view[i].message[direction] >= 0;
        }
    }
}

/* Sends stand where their tensor is made: a view's in the task of its source's stage, those of its
 * gradient in the task of its first consumer's. */
static enum status describe_stage(struct groundwork *w, int stage)
{
    const struct plan *plan = w->plan;
    const struct plan_stage *members = &plan->stages[stage];
    struct stage_work *s = &w->stages[stage];
    bool *concerns;
    TRY(list_groups(w, stage));
    TRY(arena_alloc_array(w->memory, (size_t)plan->n_workers, sizeof *concerns, &concerns));
    for (int i = 0; i < plan->n_workers; i++)
        concerns[i] = plan->n_servers > 0; /* servers, and who they serve, count messages, too */
    for (int i = 0; i < members->n_workers; i++)
        concerns[members->workers[i]] = true;
    for (int i = 0; i < s->n_groups; i++) {
        const struct part_group *g = &w->part->groups[s->groups[i]];
        s->reads_images |= reads_images(w, g);
        for (int t = w->part->tensors[g->output].first_view; t != NO_TENSOR;
             t = w->part->tensors[t].next_view)
            add_messages(w, stage, TO_VIEW, t, concerns);
        for (int t = g->first_view; t < g->output; t++)
            if (w->part->tensors[t].needs_gradient)
                add_messages(w, stage, TO_SOURCE, t, concerns);
    }
    s->concerns = concerns;
    return STATUS_OK;
}

static enum status describe_stages(struct groundwork *w)
{
    TRY(arena_alloc_array(w->memory, (size_t)w->plan->n_stages, sizeof *w->stages, &w->stages));
    for (int s = 0; s < w->plan->n_stages; s++)
        TRY(describe_stage(w, s));
    return STATUS_OK;
}

/* ---- groups ---- */

static bool has_empty_piece(const struct groundwork *w, const struct part_group *g, int class)
{
    const struct plan_layer *layer = &w->plan->layers[g->first_node];
    const struct part_tensor *out = &w->part->tensors[g->output];
    for (int i = 0; i < layer->n_pieces; i++)
        if (region_is_empty(&out->at[class][layer->workers[i]], out->rank))
            return true;
    return false;
}

static enum status find_empty_pieces(struct groundwork *w)
{
    const struct partition *part = w->part;
    TRY(arena_alloc_array(w->memory, (size_t)part->n_groups * PARTITION_MAX_CLASSES,
                          sizeof *w->has_empty, &w->has_empty));
    for (int g = 0; g < part->n_groups; g++)
        for (int c = 0; c < part->n_classes; c++)
            w->has_empty[g * PARTITION_MAX_CLASSES + c] = has_empty_piece(w, &part->groups[g], c);
    return STATUS_OK;
}

void groundwork_find_case(const struct groundwork *w, int group, int class, struct group_case *out)
{
    const struct part_group *g = &w->part->groups[group];
    out->op = op_resize(&w->graph->nodes[g->first_node].op, w->part->class_size[class]);
    op_get_loops(&out->op, &out->nest);
}

static enum status find_cases(struct groundwork *w)
{
    const struct partition *part = w->part;
    TRY(arena_alloc_array(w->memory, (size_t)part->n_groups * PARTITION_MAX_CLASSES,
                          sizeof(struct group_case *), &w->cases));
    for (int g = 0; g < part->n_groups; g++)
        for (int c = 0; c < part->n_classes; c++) {
            struct group_case **one = &w->cases[g * PARTITION_MAX_CLASSES + c];
            if (w->plan->layers[part->groups[g].first_node].n_pieces < 2)
                continue;
            TRY(arena_alloc(w->memory, sizeof **one, one));
            groundwork_find_case(w, g, c, *one);
        }
    return STATUS_OK;
}

static bool shares_statistics(const struct groundwork *w)
{
    for (int i = 1; i < w->graph->n_nodes; i++) {
        const struct plan_layer *layer = &w->plan->layers[i];
        struct loop_nest nest;
        if (layer->n_cuts == 0)
            continue;
        op_get_loops(&w->graph->nodes[i].op, &nest);
        for (int k = 0; k < layer->n_cuts; k++)
            if (nest.loop[layer->cut[k].loop].role == LOOP_STATISTIC)
                return !w->plan->asynchronous;
    }
    return false;
}

/* ---- the whole ---- */

static void count_micros(struct groundwork *w, int n_steps)
{
    w->n_micros = w->training ? w->plan->micro_batches : 1;
    if (w->n_micros > w->graph->batch)
        w->n_micros = (int)w->graph->batch; /* a short last batch */
    w->n_steps = 1;
    if (w->training && w->plan->schedule == PLAN_PIPEDREAM)
        w->n_steps = n_steps ? n_steps : w->plan->window;
}

static enum status find_all(struct groundwork *w)
{
    TRY(partition_create(w->graph, w->plan, w->n_micros, w->memory, &w->part));
    TRY(order_tasks(w->plan, w->n_steps * w->n_micros, w->training, w->memory, &w->tasks,
                    &w->n_tasks));
    arena *scratch;
    TRY(arena_create(&scratch));
    enum status st = find_traffic(w, scratch);
    arena_destroy(scratch);
    TRY(st);
    TRY(describe_stages(w));
    TRY(find_empty_pieces(w));
    TRY(find_cases(w));
    w->shares_statistics = shares_statistics(w);
    return holders_find(w->graph, w->plan, w->part, w->memory, &w->params);
}

enum status groundwork_create(const struct graph *graph, const struct plan *plan, bool training,
                              int n_steps, struct groundwork **out)
{
    arena *memory;
    struct groundwork *w;
    TRY(arena_create(&memory));
    enum status st = arena_alloc(memory, sizeof *w, &w);
    if (st == STATUS_OK) {
        *w = (struct groundwork){
            .memory = memory, .graph = graph, .plan = plan, .training = training};
        count_micros(w, n_steps);
        st = find_all(w);
    }
    if (st != STATUS_OK) {
        arena_destroy(memory);
        return st;
    }
    *out = w;
    return STATUS_OK;
}

void groundwork_destroy(struct groundwork *w)
{
    if (w)
        arena_destroy(w->memory);
}
