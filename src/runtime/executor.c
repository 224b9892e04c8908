#include "runtime/executor.h"

#include "base/timer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A program with every buffer number turned into a pointer. */
struct bound_program {
    const struct program *program;
    struct group_args *forward, *backward; /* by group */
    float *losses, *logits;                /* on the host */
};

struct executor {
    arena *memory;
    const struct backend *backend;
    device *device;
    stream *stream;
    void *slab[BUFFER_CLASS_COUNT];
    int64_t slab_bytes[BUFFER_CLASS_COUNT];
    int n_programs;
    struct bound_program *programs;
    int64_t *times_ns;
};

static void *place(const executor *e, const struct program *p, int buffer)
{
    if (buffer == NO_BUFFER)
        return NULL;
    const struct buffer *b = &p->buffers[buffer];
    return (char *)e->slab[b->class] + b->offset;
}

static void bind_group(const executor *e, const struct program *p, const struct program_group *g,
                       struct group_args *forward, struct group_args *backward)
{
    struct group_args *a = forward;
    for (int k = 0; k < g->spec.op.n_inputs; k++) {
        a->input[k] = place(e, p, g->input[k]);
        a->input_grad[k] = place(e, p, g->input_grad[k]);
    }
    for (int k = 0; k < OP_MAX_PARAMS; k++) {
        a->param[k] = place(e, p, g->param[k]);
        a->param_grad[k] = place(e, p, g->param_grad[k]);
    }
    a->residual = place(e, p, g->residual);
    a->output = place(e, p, g->output);
    a->saved = place(e, p, g->saved);
    a->labels = place(e, p, p->labels);
    if (op_get_info(g->spec.op.op)->flags & OP_FOLDS_GRADIENTS) {
        a->n_output_grads = g->n_output_grads;
        for (int k = 0; k < g->n_output_grads; k++)
            a->output_grad[k] = place(e, p, g->output_grad[k]);
        a->folded_grad = program_group_folds(g) ? place(e, p, g->folded_grad) : NULL;
    } else if (g->folded_grad != NO_BUFFER) {
        a->n_output_grads = 1;
        a->output_grad[0] = place(e, p, g->folded_grad);
    }
    *backward = *forward;
    forward->workspace = place(e, p, g->forward_workspace);
    backward->workspace = place(e, p, g->backward_workspace);
}

static enum status bind_program(executor *e, const struct program *p, struct bound_program *to)
{
    size_t n_groups = (size_t)p->n_groups, batch = (size_t)p->graph->batch;
    to->program = p;
    TRY(arena_alloc_array(e->memory, n_groups, sizeof *to->forward, &to->forward));
    TRY(arena_alloc_array(e->memory, n_groups, sizeof *to->backward, &to->backward));
    TRY(arena_alloc_array(e->memory, batch, sizeof *to->losses, &to->losses));
    if (!p->training)
        TRY(arena_alloc_array(e->memory, batch * (size_t)p->graph->classes, sizeof *to->logits,
                              &to->logits));
    for (int i = 0; i < p->n_groups; i++)
        bind_group(e, p, &p->groups[i], &to->forward[i], &to->backward[i]);
    return STATUS_OK;
}

static enum status build(executor *e, const struct program *const *programs)
{
    for (int i = 0; i < e->n_programs; i++)
        for (int c = 0; c < BUFFER_CLASS_COUNT; c++)
            if (e->slab_bytes[c] < programs[i]->slab_bytes[c])
                e->slab_bytes[c] = programs[i]->slab_bytes[c];
    for (int c = 0; c < BUFFER_CLASS_COUNT; c++)
        if (e->slab_bytes[c])
            TRY(e->backend->memory_alloc(e->device, e->slab_bytes[c], &e->slab[c]));
    TRY(e->backend->stream_create(e->device, &e->stream));
    for (int i = 0; i < e->n_programs; i++)
        TRY(bind_program(e, programs[i], &e->programs[i]));
    return STATUS_OK;
}

enum status executor_create(const struct program *const *programs, int n_programs, executor **out)
{
    arena *memory;
    TRY(arena_create(&memory));
    executor *e;
    enum status st;
    TRY_GOTO(st, arena_alloc(memory, sizeof *e, &e), fail);
    *e = (executor){.memory = memory,
                    .backend = programs[0]->backend,
                    .device = programs[0]->device,
                    .n_programs = n_programs};
    TRY_GOTO(st, arena_alloc_array(memory, (size_t)n_programs, sizeof *e->programs, &e->programs),
             fail);
    st = build(e, programs);
    if (st != STATUS_OK) {
        executor_destroy(e);
        return st;
    }
    *out = e;
    return STATUS_OK;
fail:
    arena_destroy(memory);
    return st;
}

void executor_destroy(executor *e)
{
    if (!e)
        return;
    if (e->stream)
        e->backend->stream_destroy(e->stream);
    for (int c = 0; c < BUFFER_CLASS_COUNT; c++)
        if (e->slab[c])
            e->backend->memory_free(e->device, e->slab[c]);
    arena_destroy(e->memory);
}

/* ---- the interpreter ---- */

static enum status run_load(executor *e, const struct bound_program *b,
                            const struct executor_batch *batch)
{
    const struct program *p = b->program;
    TRY(e->backend->upload(e->stream, batch->images, place(e, p, p->images),
                           p->buffers[p->images].layout));
    return e->backend->upload_labels(e->stream, batch->labels, p->graph->batch,
                                     place(e, p, p->labels));
}

static enum status run_fold(executor *e, const struct program *p, const struct program_group *g)
{
    const void *addends[GROUP_MAX_ADDENDS];
    for (int k = 0; k < g->n_output_grads; k++)
        addends[k] = place(e, p, g->output_grad[k]);
    return e->backend->fold(e->stream, p->buffers[g->folded_grad].layout, g->n_output_grads,
                            addends, g->spec.activation, place(e, p, g->output),
                            place(e, p, g->folded_grad));
}

static enum status run_update(executor *e, const struct program *p, int number,
                              const struct update_rule *rule)
{
    const struct program_param *param = &p->params[number];
    void *const state[2] = {place(e, p, param->state[0]), place(e, p, param->state[1])};
    return e->backend->update(e->stream, rule, p->buffers[param->weight].n_bytes,
                              place(e, p, param->weight), place(e, p, param->gradient), state);
}

static enum status run_instr(executor *e, const struct bound_program *b, const struct instr *instr,
                             const struct executor_batch *batch, const struct step_state *state,
                             const struct update_rule *rule)
{
    const struct program *p = b->program;
    const struct program_group *g = &p->groups[instr->group];
    switch (instr->kind) {
    case INSTR_LOAD:
        return run_load(e, b, batch);
    case INSTR_RUN: {
        const struct group_args *args =
            instr->pass == PASS_FORWARD ? &b->forward[instr->group] : &b->backward[instr->group];
        return e->backend->group_run(g->kernels, instr->pass, e->stream, args, state);
    }
    case INSTR_FOLD:
        return run_fold(e, p, g);
    case INSTR_UPDATE:
        return run_update(e, p, instr->param, rule);
    case INSTR_KIND_COUNT:
        break;
    }
    return status_fail(STATUS_FAILED, "unknown instruction");
}

static enum status name_instr(enum status st, const struct program *p, int number, uint32_t step)
{
    struct status_error cause;
    char text[160];
    status_take(st, &cause);
    return status_fail(st, "step %u, instruction %d (%s): %s", step, number,
                       program_instr_text(p, number, text, sizeof text), cause.message);
}

static int64_t count_correct(const struct bound_program *b, const int32_t *labels)
{
    int64_t classes = b->program->graph->classes, correct = 0;
    for (int64_t n = 0; n < b->program->graph->batch; n++) {
        const float *row = b->logits + n * classes;
        int64_t best = 0;
        for (int64_t k = 1; k < classes; k++)
            if (row[k] > row[best])
                best = k;
        correct += best == labels[n];
    }
    return correct;
}

static enum status read_result(executor *e, const struct bound_program *b,
                               const struct executor_batch *batch, uint32_t step,
                               struct executor_result *result)
{
    const struct program *p = b->program;
    TRY(e->backend->download(e->stream, place(e, p, p->losses), p->buffers[p->losses].layout,
                             b->losses));
    double sum = 0;
    for (int64_t n = 0; n < p->graph->batch; n++)
        sum += (double)b->losses[n];
    result->loss = sum / (double)p->graph->batch;
    if (!isfinite(result->loss))
        return status_fail(STATUS_FAILED,
                           "step %u: the loss is %f; the learning rate may be too high", step,
                           result->loss);
    if (p->training)
        return STATUS_OK;
    TRY(e->backend->download(e->stream, place(e, p, p->logits), p->buffers[p->logits].layout,
                             b->logits));
    result->correct = count_correct(b, batch->labels);
    return STATUS_OK;
}

enum status executor_step(executor *e, int program, const struct executor_batch *batch,
                          const struct step_state *state, const struct update_rule *rule,
                          struct executor_result *result)
{
    const struct bound_program *b = &e->programs[program];
    bool timed = e->times_ns && program == 0;
    int64_t start = timer_now_ns(), before = start;
    *result = (struct executor_result){0};
    for (int i = 0; i < b->program->n_instrs; i++) {
        enum status st = run_instr(e, b, &b->program->instrs[i], batch, state, rule);
        if (st != STATUS_OK)
            return name_instr(st, b->program, i, state->step);
        if (i == 0)
            start = timer_now_ns();
        if (timed) {
            TRY(e->backend->stream_synchronize(e->stream));
            int64_t now = timer_now_ns();
            e->times_ns[i] += now - before;
            before = now;
        }
    }
    TRY(e->backend->stream_synchronize(e->stream));
    result->compute_ns = timer_now_ns() - start;
    return read_result(e, b, batch, state->step, result);
}

int64_t executor_memory_bytes(const executor *e)
{
    int64_t total = 0;
    for (int c = 0; c < BUFFER_CLASS_COUNT; c++)
        total += e->slab_bytes[c];
    return total;
}

void executor_time_instructions(executor *e, int64_t *times_ns)
{
    e->times_ns = times_ns;
}

/* ---- parameters ---- */

static int param_buffer(const struct program *p, int param, enum executor_tensor which)
{
    const struct program_param *at = &p->params[param];
    return which == TENSOR_WEIGHT ? at->weight : at->state[which - TENSOR_STATE_0];
}

enum status executor_read(executor *e, int param, enum executor_tensor which, float *to)
{
    const struct program *p = e->programs[0].program;
    int buffer = param_buffer(p, param, which);
    if (buffer == NO_BUFFER)
        return status_fail(STATUS_FAILED, "%s has no optimizer state",
                           p->graph->params[param].name);
    return e->backend->download(e->stream, place(e, p, buffer), p->buffers[buffer].layout, to);
}

enum status executor_write(executor *e, int param, enum executor_tensor which, const float *from)
{
    const struct program *p = e->programs[0].program;
    int buffer = param_buffer(p, param, which);
    if (buffer == NO_BUFFER)
        return status_fail(STATUS_FAILED, "%s has no optimizer state",
                           p->graph->params[param].name);
    return e->backend->upload(e->stream, from, place(e, p, buffer), p->buffers[buffer].layout);
}
