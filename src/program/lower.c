/* Emission: this worker's instructions.
 *
 * All workers go through the same tasks in the same global order, and each emits the part that
 * concerns it:
 *
 *     task               worker 0 (stage 0)        worker 1 (stage 1)
 *     F stage 0 micro 0  load, run.., send 0       receive 0
 *     F stage 0 micro 1  load, run.., send 1       receive 1
 *     F stage 1 micro 0                            run..
 *     B stage 1 micro 0  receive 2                 run.., send 2
 *
 * Messages are numbered along the way on all workers, also by those that take no part in them, so
 * both sides of a message come to the same tag. */
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
    for (int s = 0; s < e->part->n_sizes; s++)
        if (!region_is_empty(&t->at[s][e->me], t->axes.rank))
            return true;
    return false;
}

/* Of tensors that this worker holds, of the sources of those, and of all views of them. */
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
    int most_groups = 0; /* of the program: one for each piece and size */
    TRY(arena_alloc_array(e->scratch, (size_t)e->part->n_groups, sizeof(struct group_instance *),
                          &e->group_instances));
    for (int g = 0; g < e->part->n_groups; g++) {
        const struct part_group *part = &e->part->groups[g];
        bool here = e->part->piece_of[part->first_node][e->me] != NO_PIECE;
        most_groups += here ? e->part->n_sizes : 0;
        if (!here && !part->recompute)
            continue;
        TRY(arena_alloc_array(e->scratch, (size_t)e->n_micros, sizeof(struct group_instance),
                              &e->group_instances[g]));
        for (int m = 0; m < e->n_micros; m++)
            forget_buffers(&e->group_instances[g][m].run);
    }
    return arena_alloc_array(e->p->memory, (size_t)most_groups, sizeof *e->p->groups,
                             &e->p->groups);
}

static enum status allocate(struct emitter *e)
{
    const struct plan *plan = e->p->plan;
    size_t n_params = (size_t)e->p->graph->n_params, n_micros = (size_t)e->n_micros;
    TRY(arena_alloc_array(e->scratch, (size_t)e->part->n_groups, sizeof *e->kernels, &e->kernels));
    TRY(arena_alloc_array(e->scratch, (size_t)e->part->n_tensors, sizeof *e->layouts, &e->layouts));
    TRY(arena_alloc_array(e->scratch, (size_t)plan->n_workers, sizeof *e->received_from,
                          &e->received_from));
    TRY(arena_alloc_array(e->scratch, n_params, sizeof *e->bucket_of, &e->bucket_of));
    TRY(arena_alloc_array(e->scratch, (size_t)plan->n_stages, sizeof *e->last, &e->last));
    TRY(add_instances(e));
    TRY(add_group_instances(e));
    if (plan->schedule != PLAN_PIPEDREAM)
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

static enum status backward_task(struct emitter *e, const struct task *t)
{
    const struct stage_work *stage = &e->analysis->stages[t->stage];
    const struct task *last = &e->last[t->stage];
    int step = emit_completed_step(e, t->micro);
    e->fresh = last->forward && last->micro == t->micro ? t->stage : -1;
    for (int i = stage->n_groups - 1; i >= 0; i--) {
        int g = stage->groups[i];
        const struct part_group *part = &e->part->groups[g];
        TRY(emit_backward(e, g, t->micro));
        if (e->part->tensors[part->output].needs_gradient)
            e->fresh = -1;
        if (e->has_delayed && e->delayed.group_number == g)
            continue; /* synchronised with its weights */
        if (step >= 0 && e->p->graph->nodes[part->first_node].n_params > 0) {
            TRY(emit_delayed_weights(e)); /* buckets are filled in this order */
            TRY(emit_synchronise(e, g, step));
        }
    }
    TRY(emit_delayed_weights(e));
    return step >= 0 ? emit_stage_updates(e, t->stage, step) : STATUS_OK;
}

static enum status emit_tasks(struct emitter *e)
{
    bool bucketed = false;
    for (int i = 0; i < e->analysis->n_tasks; i++) {
        const struct task *t = &e->analysis->tasks[i];
        const struct stage_work *stage = &e->analysis->stages[t->stage];
        /* Before the first backward of any stage every stage runs forward, so this worker knows all
         * of its groups by then, and all of its parameters. */
        if (!t->forward && !bucketed) {
            TRY(emit_buckets(e));
            bucketed = true;
        }
        overlap_begin_task(e, t);
        if (!stage->concerns[e->me]) /* its messages are counted, so that tags agree */
            e->next_message +=
                stage->n_messages[t->forward ? TO_VIEW : TO_SOURCE][emit_size(e, t->micro)];
        else
            TRY(t->forward ? forward_task(e, t) : backward_task(e, t));
        overlap_end_task(e);
        e->last[t->stage] = *t;
    }
    return STATUS_OK;
}

enum status lowering_emit(struct program *p, const struct lowering *given)
{
    const struct analysis *a = given->analysis;
    struct emitter e = {.p = p,
                        .arrays = &given->memory->arrays,
                        .scratch = given->memory->scratch,
                        .analysis = a,
                        .part = a->part,
                        .shares = given->shares,
                        .me = p->worker,
                        .fresh = -1,
                        .n_micros = a->n_steps * a->n_micros};
    TRY(allocate(&e));
    TRY(emit_params(&e));
    TRY(emit_tasks(&e));
    return overlap_settle(&e);
}
