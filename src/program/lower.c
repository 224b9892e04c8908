/* Goes through the tasks of all workers in their global order and emits this worker's part. */
#include "program/lowering.h"

static void forget_buffers(struct program_run *run)
{
    *run = (struct program_run){.residual = NO_BUFFER,
                                .output = NO_BUFFER,
                                .saved = NO_BUFFER,
                                .workspace = NO_BUFFER,
                                .statistics = NO_BUFFER,
                                .labels = NO_BUFFER,
                                .folded_grad = NO_BUFFER};
    for (int k = 0; k < OP_MAX_INPUTS; k++)
        run->input[k] = run->input_grad[k] = NO_BUFFER;
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        run->param[k] = run->param_grad[k] = NO_BUFFER;
}

static bool holds(const struct emitter *e, int tensor)
{
    const struct part_tensor *t = &e->part->tensors[tensor];
    for (int c = 0; c < e->part->n_sizes; c++)
        if (!region_is_empty(&t->at[c][e->me], t->rank))
            return true;
    return false;
}

/* What this worker holds, what it is a view of, and the views of it. */
static enum status add_instances(struct emitter *e)
{
    const struct part_tensor *tensors = e->part->tensors;
    size_t n = (size_t)e->part->n_tensors;
    bool *wanted;
    TRY(arena_alloc_array(e->scratch, n, sizeof(struct instance *), &e->instances));
    TRY(arena_alloc_array(e->scratch, n, sizeof *wanted, &wanted));
    for (int t = 0; t < e->part->n_tensors; t++) {
        if (!holds(e, t))
            continue;
        wanted[t] = true;
        if (tensors[t].source != NO_TENSOR)
            wanted[tensors[t].source] = true;
        for (int v = tensors[t].first_view; v != NO_TENSOR; v = tensors[v].next_view)
            wanted[v] = true;
    }
    for (int t = 0; t < e->part->n_tensors; t++) {
        if (!wanted[t])
            continue;
        TRY(arena_alloc_array(e->scratch, (size_t)e->n_micros, sizeof(struct instance),
                              &e->instances[t]));
        for (int m = 0; m < e->n_micros; m++)
            e->instances[t][m].buffer = e->instances[t][m].direct = e->instances[t][m].sent_grad =
                NO_BUFFER;
    }
    return STATUS_OK;
}

static enum status add_group_instances(struct emitter *e)
{
    TRY(arena_alloc_array(e->scratch, (size_t)e->part->n_groups, sizeof(struct group_instance *),
                          &e->group_instances));
    for (int g = 0; g < e->part->n_groups; g++) {
        const struct part_group *part = &e->part->groups[g];
        if (e->part->piece_of[part->first_node][e->me] == NO_PIECE && !part->recompute)
            continue;
        TRY(arena_alloc_array(e->scratch, (size_t)e->n_micros, sizeof(struct group_instance),
                              &e->group_instances[g]));
        for (int m = 0; m < e->n_micros; m++)
            forget_buffers(&e->group_instances[g][m].run);
    }
    return STATUS_OK;
}

/* One for each piece and size at most. */
static enum status make_room_for_groups(struct emitter *e)
{
    int n = 0;
    for (int g = 0; g < e->part->n_groups; g++)
        if (e->part->piece_of[e->part->groups[g].first_node][e->me] != NO_PIECE)
            n += e->part->n_sizes;
    return arena_alloc_array(e->p->memory, (size_t)n, sizeof *e->p->groups, &e->p->groups);
}

static enum status allocate(struct emitter *e)
{
    size_t n_params = (size_t)e->p->graph->n_params, n_micros = (size_t)e->n_micros;
    TRY(arena_alloc_array(e->scratch, (size_t)e->part->n_groups, sizeof *e->kernels, &e->kernels));
    TRY(arena_alloc_array(e->scratch, (size_t)e->part->n_tensors, sizeof *e->layouts, &e->layouts));
    TRY(arena_alloc_array(e->scratch, (size_t)e->p->plan->n_workers, sizeof *e->received_from,
                          &e->received_from));
    TRY(add_instances(e));
    TRY(add_group_instances(e));
    TRY(make_room_for_groups(e));
    TRY(arena_alloc_array(e->scratch, n_params, sizeof *e->bucket_of, &e->bucket_of));
    TRY(arena_alloc_array(e->scratch, (size_t)e->p->plan->n_stages, sizeof *e->last, &e->last));
    if (e->p->plan->schedule != PLAN_PIPEDREAM)
        return STATUS_OK;
    TRY(arena_alloc_array(e->scratch, n_params * n_micros, sizeof *e->stash, &e->stash));
    for (size_t i = 0; i < n_params * n_micros; i++)
        e->stash[i] = NO_BUFFER;
    return STATUS_OK;
}

static enum status forward_task(struct emitter *e, const struct task *t)
{
    const struct stage_work *stage = &e->analysis->stages[t->stage];
    TRY(emit_load(e, t->stage, t->micro));
    for (int i = 0; i < stage->n_groups; i++)
        TRY(emit_forward(e, stage->groups[i], t->micro, false));
    return STATUS_OK;
}

static bool has_params(const struct emitter *e, int group_number)
{
    return e->p->graph->nodes[e->part->groups[group_number].first_node].n_params > 0;
}

/* Whether the stage's task before this backward was the forward of the same micro-batch. */
static bool follows_forward(const struct emitter *e, const struct task *t)
{
    const struct task *last = &e->last[t->stage];
    return last->forward && last->micro == t->micro;
}

static enum status backward_task(struct emitter *e, const struct task *t)
{
    const struct stage_work *stage = &e->analysis->stages[t->stage];
    int step = emit_completed_step(e, t->micro);
    e->fresh = follows_forward(e, t) ? t->stage : -1;
    for (int i = stage->n_groups - 1; i >= 0; i--) {
        int g = stage->groups[i];
        TRY(emit_backward(e, g, t->micro));
        if (e->part->tensors[e->part->groups[g].output].needs_gradient)
            e->fresh = -1;
        if (e->has_delayed && e->delayed.group_number == g)
            continue; /* synchronised with its weights */
        if (step >= 0 && has_params(e, g)) {
            TRY(emit_delayed_weights(e)); /* buckets are filled in this order */
            TRY(emit_synchronise(e, g, step));
        }
    }
    TRY(emit_delayed_weights(e));
    return step >= 0 ? emit_stage_updates(e, t->stage, step) : STATUS_OK;
}

/* A task in which this worker has no part: its messages are counted, so that tags agree. */
static void pass_by(struct emitter *e, const struct task *t)
{
    enum direction direction = t->forward ? TO_VIEW : TO_SOURCE;
    e->next_message += e->analysis->stages[t->stage].n_messages[direction][emit_size(e, t->micro)];
}

static enum status emit_tasks(struct emitter *e)
{
    bool bucketed = false;
    for (int i = 0; i < e->analysis->n_tasks; i++) {
        const struct task *t = &e->analysis->tasks[i];
        /* By now this worker has seen all of its groups forward, and so all of its parameters. The
         * first backward of any stage is soon enough: every stage runs forward before. */
        if (!t->forward && !bucketed) {
            TRY(emit_buckets(e));
            bucketed = true;
        }
        overlap_begin_task(e, t);
        if (!e->analysis->stages[t->stage].concerns[e->me])
            pass_by(e, t);
        else if (t->forward)
            TRY(forward_task(e, t));
        else
            TRY(backward_task(e, t));
        overlap_end_task(e);
        e->last[t->stage] = *t;
    }
    return STATUS_OK;
}

static enum status emit_all(struct emitter *e)
{
    TRY(allocate(e));
    TRY(emit_params(e));
    TRY(emit_tasks(e));
    return overlap_settle(e);
}

enum status lowering_emit(struct program *p, const struct lowering *given)
{
    const struct analysis *work = given->analysis;
    struct emitter e = {.p = p,
                        .arrays = &given->memory->arrays,
                        .scratch = given->memory->scratch,
                        .analysis = work,
                        .part = work->part,
                        .shares = given->shares,
                        .me = p->worker,
                        .fresh = -1,
                        .n_micros = work->n_steps * work->n_micros};
    return emit_all(&e);
}
