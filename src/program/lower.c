/* Goes through the tasks of all workers in their global order and emits this worker's part. */
#include "program/lowering.h"

static int64_t count_all(const struct emitter *e, int64_t n)
{
    return n * e->n_micros;
}

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

static enum status allocate(struct emitter *e, arena *scratch)
{
    size_t n_groups = (size_t)e->part->n_groups, n_tensors = (size_t)e->part->n_tensors;
    size_t n_params = (size_t)e->p->graph->n_params, n_micros = (size_t)e->n_micros;
    TRY(arena_alloc_array(scratch, n_groups * PARTITION_MAX_CLASSES, sizeof *e->kernels,
                          &e->kernels));
    TRY(arena_alloc_array(scratch, n_tensors * PARTITION_MAX_CLASSES, sizeof *e->layouts,
                          &e->layouts));
    TRY(arena_alloc_array(scratch, n_tensors * n_micros, sizeof *e->instances, &e->instances));
    TRY(arena_alloc_array(scratch, n_groups * n_micros, sizeof *e->group_instances,
                          &e->group_instances));
    TRY(arena_alloc_array(scratch, n_params * n_micros, sizeof *e->stash, &e->stash));
    TRY(arena_alloc_array(scratch, n_params, sizeof *e->bucket_of, &e->bucket_of));
    for (int64_t i = 0; i < count_all(e, e->part->n_tensors); i++)
        e->instances[i].buffer = e->instances[i].direct = e->instances[i].sent_grad = NO_BUFFER;
    for (int64_t i = 0; i < count_all(e, e->part->n_groups); i++)
        forget_buffers(&e->group_instances[i].run);
    for (int64_t i = 0; i < count_all(e, e->p->graph->n_params); i++)
        e->stash[i] = NO_BUFFER;
    return STATUS_OK;
}

static enum status forward_task(struct emitter *e, const struct task *t)
{
    TRY(emit_load(e, t->stage, t->micro));
    for (int g = 0; g < e->part->n_groups; g++)
        if (e->part->groups[g].stage == t->stage)
            TRY(emit_forward(e, g, t->micro, false));
    return STATUS_OK;
}

static bool has_params(const struct emitter *e, int group_number)
{
    return e->p->graph->nodes[e->part->groups[group_number].first_node].n_params > 0;
}

static enum status backward_task(struct emitter *e, const struct task *t)
{
    int step = emit_completed_step(e, t->micro);
    for (int g = e->part->n_groups - 1; g >= 0; g--) {
        if (e->part->groups[g].stage != t->stage)
            continue;
        TRY(emit_backward(e, g, t->micro));
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

/* Whether any layer's statistics are those of several workers. */
static bool shares_statistics(const struct program *p)
{
    for (int i = 1; i < p->graph->n_nodes; i++) {
        struct loop_nest nest;
        op_get_loops(&p->graph->nodes[i].op, &nest);
        const struct plan_layer *layer = &p->plan->layers[i];
        for (int k = 0; k < layer->n_cuts; k++)
            if (nest.loop[layer->cut[k].loop].role == LOOP_STATISTIC)
                return !p->plan->asynchronous;
    }
    return false;
}

static enum status emit_tasks(struct emitter *e, const struct task *tasks, int n_tasks)
{
    bool bucketed = false;
    for (int i = 0; i < n_tasks; i++) {
        if (tasks[i].forward) {
            TRY(forward_task(e, &tasks[i]));
            continue;
        }
        /* By now this worker has seen all of its groups forward, and so all of its parameters. The
         * first backward of any stage is soon enough: every stage runs forward before. */
        if (!bucketed)
            TRY(emit_buckets(e));
        bucketed = true;
        TRY(backward_task(e, &tasks[i]));
    }
    return STATUS_OK;
}

static enum status emit_all(struct program *p, const struct program *shares, arena *scratch)
{
    struct partition *part;
    struct task *tasks;
    int n_tasks;
    struct emitter e = {.p = p, .shares = shares, .me = p->worker};
    TRY(partition_create(p->graph, p->plan, p->n_micros, scratch, &part));
    e.part = part;
    e.n_micros = p->n_steps * p->n_micros;
    e.delays_weights = shares_statistics(p);
    TRY(order_tasks(p->plan, e.n_micros, p->training, scratch, &tasks, &n_tasks));
    TRY(allocate(&e, scratch));
    TRY(emit_params(&e));
    return emit_tasks(&e, tasks, n_tasks);
}

enum status lowering_emit(struct program *p, const struct program *shares)
{
    arena *scratch;
    TRY(arena_create(&scratch));
    enum status st = emit_all(p, shares, scratch);
    arena_destroy(scratch);
    return st;
}
