#include "runtime/executor.h"

#include "base/timer.h"
#include "runtime/executor_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- binding ---- */

/* Which of the program's steps the instruction belongs to. */
static int step_of(const struct program *p, const struct instr *instr)
{
    return instr->micro < 0 ? 0 : instr->micro / p->n_micros;
}

void *executor_place(const executor *e, const struct program *p, int buffer)
{
    if (buffer == NO_BUFFER)
        return NULL;
    const struct buffer *b = &p->buffers[buffer];
    return (char *)e->slab[b->class] + b->offset;
}

static void bind_run(const executor *e, const struct program *p, const struct instr *instr,
                     struct group_args *a)
{
    const struct program_run *run = &p->runs[instr->index];
    const struct program_group *g = &p->groups[instr->group];
    for (int k = 0; k < OP_MAX_INPUTS; k++) {
        a->input[k] = executor_place(e, p, run->input[k]);
        a->input_grad[k] = executor_place(e, p, run->input_grad[k]);
    }
    for (int k = 0; k < OP_MAX_PARAMS; k++) {
        a->param[k] = executor_place(e, p, run->param[k]);
        a->param_grad[k] = executor_place(e, p, run->param_grad[k]);
    }
    a->residual = executor_place(e, p, run->residual);
    a->output = executor_place(e, p, run->output);
    a->saved = executor_place(e, p, run->saved);
    a->workspace = executor_place(e, p, run->workspace);
    a->statistics = executor_place(e, p, run->statistics);
    a->labels = executor_place(e, p, run->labels);
    a->first_sample = run->first_sample;
    a->again = run->again;
    if (op_get_info(g->spec.op.op)->flags & OP_FOLDS_GRADIENTS) {
        bool folds = run->n_output_grads > 1 ||
                     (run->n_output_grads && g->spec.activation != ACTIVATION_NONE);
        a->n_output_grads = run->n_output_grads;
        for (int k = 0; k < run->n_output_grads; k++)
            a->output_grad[k] = executor_place(e, p, run->output_grad[k]);
        a->folded_grad = folds ? executor_place(e, p, run->folded_grad) : NULL;
    } else if (run->folded_grad != NO_BUFFER) {
        a->n_output_grads = 1;
        a->output_grad[0] = executor_place(e, p, run->folded_grad);
    }
}

static enum status bind_communication(executor *e, const struct program *p,
                                      struct bound_program *to)
{
    size_t n = (size_t)p->n_instrs;
    for (int i = 0; i < p->n_instrs; i++)
        to->n_comm += p->instrs[i].stream == STREAM_COMMUNICATE;
    TRY(arena_alloc_array(e->memory, n, sizeof *to->wakes_comm, &to->wakes_comm));
    TRY(arena_alloc_array(e->memory, n, sizeof *to->done, &to->done));
    TRY(arena_alloc_array(e->memory, (size_t)to->n_comm, sizeof *to->comm_instrs,
                          &to->comm_instrs));
    TRY(arena_alloc_array(e->memory, (size_t)to->n_comm, sizeof *to->ops, &to->ops));
    for (int i = 0, at = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        if (instr->stream != STREAM_COMMUNICATE)
            continue;
        to->comm_instrs[at++] = i;
        for (int k = 0; k < instr->n_waits; k++)
            to->wakes_comm[instr->waits[k]] = true;
    }
    return STATUS_OK;
}

/* Which of its step's updates of the same weight each update is: an asynchronous server makes one
 * for each worker. */
static enum status count_updates(executor *e, const struct program *p, struct bound_program *to)
{
    TRY(arena_alloc_array(e->memory, (size_t)p->n_instrs, sizeof *to->update_number,
                          &to->update_number));
    TRY(arena_alloc_array(e->memory, (size_t)p->graph->n_params, sizeof *to->n_updates,
                          &to->n_updates));
    int *last_step; /* by parameter, from 1 */
    TRY(arena_alloc_array(e->memory, (size_t)p->graph->n_params, sizeof *last_step, &last_step));
    for (int i = 0; i < p->n_instrs; i++) {
        int param = p->instrs[i].param, step = step_of(p, &p->instrs[i]) + 1;
        if (p->instrs[i].kind != INSTR_UPDATE)
            continue;
        if (last_step[param] != step)
            to->n_updates[param] = 0;
        last_step[param] = step;
        to->update_number[i] = to->n_updates[param]++;
    }
    return STATUS_OK;
}

static enum status bind_program(executor *e, const struct program *p, struct bound_program *to)
{
    size_t most = 0;
    for (int i = 0; i < p->n_results; i++) {
        size_t n = (size_t)(p->results[i].samples.end - p->results[i].samples.begin);
        most = n > most ? n : most;
    }
    to->program = p;
    TRY(arena_alloc_array(e->memory, (size_t)p->n_runs, sizeof *to->args, &to->args));
    TRY(arena_alloc_array(e->memory, most, sizeof *to->losses, &to->losses));
    if (!p->training)
        TRY(arena_alloc_array(e->memory, most * (size_t)p->graph->classes, sizeof *to->logits,
                              &to->logits));
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].kind == INSTR_RUN)
            bind_run(e, p, &p->instrs[i], &to->args[p->instrs[i].index]);
    TRY(count_updates(e, p, to));
    return bind_communication(e, p, to);
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

enum status executor_create_kind(const struct program *const *programs, int n_programs, comm *end,
                                 bool measures, executor **out)
{
    arena *memory;
    TRY(arena_create(&memory));
    executor *e;
    enum status st;
    TRY_GOTO(st, arena_alloc(memory, sizeof *e, &e), fail);
    *e = (executor){.memory = memory,
                    .backend = programs[0]->backend,
                    .device = programs[0]->device,
                    .comm = end,
                    .measures = measures,
                    .n_programs = n_programs};
    TRY_GOTO(st, arena_alloc_array(memory, (size_t)n_programs, sizeof *e->programs, &e->programs),
             fail);
    st = build(e, programs);
    if (st == STATUS_OK)
        st = executor_comm_create(e);
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

enum status executor_create(const struct program *const *programs, int n_programs, comm *end,
                            executor **out)
{
    return executor_create_kind(programs, n_programs, end, false, out);
}

/* The one whose memory stays, see executor_destroy; held here, it is not lost. */
static executor *_Atomic left_behind;

void executor_destroy(executor *e)
{
    if (!e)
        return;
    executor_comm_destroy(e);
    /* After a failure messages may be under way that are polled no more. A transport that works by
     * itself reads and writes their memory until it is destroyed, which comes after this. */
    if (e->has_thread && e->has_failed) {
        atomic_store(&left_behind, e);
        return;
    }
    if (e->stream)
        e->backend->stream_destroy(e->stream);
    for (int c = 0; c < BUFFER_CLASS_COUNT; c++)
        if (e->slab[c])
            e->backend->memory_free(e->device, e->slab[c]);
    arena_destroy(e->memory);
}

/* ---- the interpreter ---- */

static enum status run_load(struct run *r, const struct instr *instr)
{
    const struct program *p = r->b->program;
    const struct program_load *load = &p->loads[instr->index];
    executor *e = r->e;
    for (; r->fed <= step_of(p, instr); r->fed++) {
        if (r->fed > 0) /* uploads may still read the batch before */
            TRY(e->backend->stream_synchronize(e->stream));
        TRY(r->feed->next(r->feed->user, &r->batch));
    }
    if (load->images != NO_BUFFER) {
        int64_t at = load->image_samples.begin - r->batch.first_sample;
        TRY(e->backend->upload(e->stream, r->batch.images + at * graph_sample_elements(p->graph),
                               executor_place(e, p, load->images),
                               p->buffers[load->images].layout));
    }
    if (load->labels == NO_BUFFER)
        return STATUS_OK;
    return e->backend->upload_labels(
        e->stream, r->batch.labels + (load->label_samples.begin - r->batch.first_sample),
        load->label_samples.end - load->label_samples.begin, executor_place(e, p, load->labels));
}

static enum status run_fold(executor *e, const struct program *p, const struct program_fold *fold)
{
    const void *addends[GROUP_MAX_ADDENDS];
    for (int k = 0; k < fold->n_addends; k++)
        addends[k] = executor_place(e, p, fold->addend[k]);
    return e->backend->fold(e->stream, p->buffers[fold->to].layout, fold->n_addends, addends,
                            fold->activation, executor_place(e, p, fold->output),
                            executor_place(e, p, fold->to));
}

/* The rule counts steps; a weight that is updated several times in a step counts updates. The first
 * program, that of a whole batch, says how many: a short batch may have fewer. */
static enum status run_update(struct run *r, int instr, const struct update_rule *of_step)
{
    executor *e = r->e;
    const struct program *p = r->b->program;
    int number = p->instrs[instr].param;
    const struct program_param *param = &p->params[number];
    const struct param_group *own = &p->graph->params[number].group;
    struct update_rule rule = *of_step;
    rule.step =
        (of_step->step - 1) * e->programs[0].n_updates[number] + r->b->update_number[instr] + 1;
    rule.learning_rate *= own->rate_factor > 0 ? own->rate_factor : 1;
    rule.weight_decay = own->skips_decay ? 0 : rule.weight_decay;
    bool wide = param->master != NO_BUFFER;
    int weight = wide ? param->master : param->weight;
    const struct buffer *updated = &p->buffers[weight];
    const struct update_args args = {
        .count = updated->n_bytes / element_bytes(updated->type),
        .type = updated->type,
        .weight = executor_place(e, p, weight),
        .gradient = executor_place(e, p, param->gradient),
        .state = {executor_place(e, p, param->state[0]), executor_place(e, p, param->state[1])},
        .rounded = wide ? executor_place(e, p, param->weight) : NULL,
        .rounded_type = p->buffers[param->weight].type};
    return e->backend->update(e->stream, &rule, &args);
}

static enum status run_copy(executor *e, const struct program *p, const struct instr *instr)
{
    const struct program_copy *c = &p->copies[instr->index];
    const void *from = executor_place(e, p, c->from);
    void *to = executor_place(e, p, c->to);
    const struct buffer *target = &p->buffers[c->to];
    int64_t n_bytes = target->n_bytes;
    switch (instr->kind) {
    case INSTR_COPY:
        return e->backend->copy_region(e->stream, &c->region, from, to);
    case INSTR_CLEAR:
        return e->backend->clear(e->stream, to, n_bytes);
    case INSTR_ACCUMULATE:
        return e->backend->accumulate(e->stream, target->type,
                                      n_bytes / element_bytes(target->type), from, to);
    default:
        return e->backend->copy(e->stream, from, to, n_bytes);
    }
}

enum status executor_compute(struct run *r, int number)
{
    executor *e = r->e;
    const struct program *p = r->b->program;
    const struct instr *instr = &p->instrs[number];
    int step = step_of(p, instr);
    enum status st;
    switch (instr->kind) {
    case INSTR_LOAD:
        st = run_load(r, instr);
        break;
    case INSTR_RUN:
        st = e->backend->group_run(p->groups[instr->group].kernels, instr->pass, e->stream,
                                   &r->b->args[instr->index], &r->states[step]);
        break;
    case INSTR_FOLD:
        st = run_fold(e, p, &p->folds[instr->index]);
        break;
    case INSTR_UPDATE:
        st = run_update(r, number, &r->rules[step]);
        break;
    default:
        st = run_copy(e, p, instr);
    }
    if (st != STATUS_OK)
        return executor_name_instr(st, p, number, r->states[0].step);
    bool is_awaited = r->b->wakes_comm[number] || e->times_ns || r->b->times;
    return is_awaited ? e->backend->stream_synchronize(e->stream) : STATUS_OK;
}

void executor_keep_time(struct run *r, int number, int64_t reached_ns, int64_t begin_ns)
{
    const struct instr *instr = &r->b->program->instrs[number];
    struct executor_result *result = &r->results[step_of(r->b->program, instr)];
    int64_t now_ns = timer_now_ns();
    result->wait_ns += begin_ns - reached_ns;
    if (instr->kind != INSTR_LOAD)
        result->compute_ns += now_ns - begin_ns;
    if (r->e->times_ns && r->b == &r->e->programs[0])
        r->e->times_ns[number] += now_ns - reached_ns;
    if (r->b->times)
        r->b->times[number] = (struct executor_time){reached_ns, begin_ns, now_ns};
}

static int64_t count_correct(const float *logits, int64_t n, int64_t classes, const int32_t *labels)
{
    int64_t correct = 0;
    for (int64_t i = 0; i < n; i++) {
        const float *row = logits + i * classes;
        int64_t best = 0;
        for (int64_t k = 1; k < classes; k++)
            if (row[k] > row[best])
                best = k;
        correct += best == labels[i];
    }
    return correct;
}

enum status executor_refuse_loss(uint32_t step, double loss)
{
    return status_fail(STATUS_FAILED,
                       "step %" PRIu32 ": the loss is %s; the learning rate may be too high", step,
                       isnan(loss) ? "not a number" : "infinite");
}

static enum status read_result(struct run *r, const struct program_result *from)
{
    executor *e = r->e;
    const struct program *p = r->b->program;
    int step = from->micro / p->n_micros;
    struct executor_result *to = &r->results[step];
    int64_t n = from->samples.end - from->samples.begin;
    TRY(e->backend->download(e->stream, executor_place(e, p, from->losses),
                             p->buffers[from->losses].layout, r->b->losses));
    for (int64_t i = 0; i < n; i++)
        to->loss_sum += (double)r->b->losses[i];
    to->n_samples += n;
    to->loss = to->loss_sum / (double)to->n_samples;
    if (!isfinite(to->loss) && !e->comm)
        return executor_refuse_loss(r->states[step].step, to->loss);
    if (from->logits == NO_BUFFER || !r->batch.labels)
        return STATUS_OK;
    TRY(e->backend->download(e->stream, executor_place(e, p, from->logits),
                             p->buffers[from->logits].layout, r->b->logits));
    to->correct += count_correct(r->b->logits, n, p->graph->classes,
                                 r->batch.labels + (from->samples.begin - r->batch.first_sample));
    return STATUS_OK;
}

unsigned executor_count_moves(const executor *e)
{
    return atomic_load(&e->n_moves);
}

enum status executor_refuse_time(const executor *e, double timeout_s)
{
    const struct program *p = e->programs[atomic_load(&e->at_program)].program;
    enum status st = status_fail(
        STATUS_TIMEOUT, "it computes for %g s already; --timeout gives it more time", timeout_s);
    return executor_name_instr(st, p, atomic_load(&e->at_instr),
                               (uint32_t)atomic_load(&e->at_step));
}

/* Where a thread that watches can see that it began, and that it ended. */
static enum status compute_watched(struct run *r, int number)
{
    executor *e = r->e;
    const struct program *p = r->b->program;
    if (p->instrs[number].kind == INSTR_LOAD)
        return executor_compute(r, number);
    atomic_store_explicit(&e->at_program, (int)(r->b - e->programs), memory_order_relaxed);
    atomic_store_explicit(&e->at_instr, number, memory_order_relaxed);
    atomic_store_explicit(&e->at_step, (int)r->states[0].step, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->n_moves, 1, memory_order_release);
    enum status st = executor_compute(r, number);
    atomic_fetch_add_explicit(&e->n_moves, 1, memory_order_release);
    return st;
}

/* The computing instructions in order. Each first waits for the communication that it needs;
 * afterwards the communication that waits for it may start. */
enum status executor_run(executor *e, int program, const struct executor_feed *feed,
                         const struct step_state *states, const struct update_rule *rules,
                         struct executor_result *results)
{
    const struct bound_program *b = &e->programs[program];
    const struct program *p = b->program;
    if (e->measures)
        return status_fail(STATUS_FAILED, "this executor can only measure");
    struct run r = {
        .e = e, .b = b, .feed = feed, .states = states, .rules = rules, .results = results};
    memset(results, 0, (size_t)p->n_steps * sizeof *results);
    e->step = states[0].step;
    enum status st = executor_comm_start(e, b);
    for (int i = 0; i < p->n_instrs && st == STATUS_OK; i++) {
        const struct instr *instr = &p->instrs[i];
        if (instr->stream != STREAM_COMPUTE)
            continue;
        int64_t reached_ns = timer_now_ns();
        for (int k = 0; k < instr->n_waits && st == STATUS_OK; k++)
            st = executor_comm_wait(e, b, instr->waits[k]);
        int64_t begin_ns = instr->n_waits ? timer_now_ns() : reached_ns;
        if (st == STATUS_OK)
            st = compute_watched(&r, i);
        if (st == STATUS_OK) {
            executor_keep_time(&r, i, reached_ns, begin_ns);
            st = executor_comm_computed(e, b, i);
        }
    }
    if (st == STATUS_OK)
        st = e->backend->stream_synchronize(e->stream);
    if (st != STATUS_OK) {
        executor_fail(e, st);
        if (e->backend->stream_synchronize(e->stream) != STATUS_OK) /* it reads the batch */
            status_clear();
    }
    TRY(executor_comm_finish(e));
    if (st != STATUS_OK)
        return status_give(&e->error);
    results[0].communicate_ns = e->communicate_ns;
    for (int i = 0; i < p->n_results; i++)
        TRY(read_result(&r, &p->results[i]));
    return STATUS_OK;
}

enum status executor_feed_once(void *user, struct executor_batch *batch)
{
    *batch = *(const struct executor_batch *)user;
    return STATUS_OK;
}

enum status executor_step(executor *e, int program, const struct executor_batch *batch,
                          const struct step_state *state, const struct update_rule *rule,
                          struct executor_result *result)
{
    struct executor_batch copy = *batch;
    struct executor_feed feed = {executor_feed_once, &copy};
    return executor_run(e, program, &feed, state, rule, result);
}

int64_t executor_memory_bytes(const executor *e)
{
    int64_t total = 0;
    for (int c = 0; c < BUFFER_CLASS_COUNT; c++)
        total += e->slab_bytes[c];
    return total;
}

/* ---- times ---- */

void executor_time_instructions(executor *e, int64_t *times_ns)
{
    e->times_ns = times_ns;
}

enum status executor_keep_times(executor *e)
{
    for (int i = 0; i < e->n_programs; i++)
        if (!e->programs[i].times)
            TRY(arena_alloc_array(e->memory, (size_t)e->programs[i].program->n_instrs,
                                  sizeof *e->programs[i].times, &e->programs[i].times));
    return STATUS_OK;
}

const struct executor_time *executor_get_times(const executor *e, int program)
{
    return e->programs[program].times;
}

/* ---- parameters ---- */

enum status executor_keep_weights(executor *e, void **kept)
{
    int64_t n_bytes = e->slab_bytes[BUFFER_WEIGHTS];
    *kept = NULL;
    if (n_bytes == 0)
        return STATUS_OK;
    TRY(e->backend->memory_alloc(e->device, n_bytes, kept));
    TRY(e->backend->copy(e->stream, e->slab[BUFFER_WEIGHTS], *kept, n_bytes));
    return e->backend->stream_synchronize(e->stream);
}

enum status executor_put_back_weights(executor *e, const void *kept)
{
    if (!kept)
        return STATUS_OK;
    TRY(e->backend->copy(e->stream, kept, e->slab[BUFFER_WEIGHTS], e->slab_bytes[BUFFER_WEIGHTS]));
    return e->backend->stream_synchronize(e->stream);
}

void executor_free_kept(executor *e, void *kept)
{
    if (kept)
        e->backend->memory_free(e->device, kept);
}

static enum status find_param(const executor *e, int param, enum executor_tensor which, int *buffer)
{
    const struct program *p = e->programs[0].program;
    const struct program_param *at = &p->params[param];
    int weight = at->master == NO_BUFFER ? at->weight : at->master;
    *buffer = which == TENSOR_WEIGHT ? weight : at->state[which - TENSOR_STATE_0];
    if (*buffer != NO_BUFFER)
        return STATUS_OK;
    return status_fail(STATUS_FAILED,
                       which == TENSOR_WEIGHT ? "%s is not held by this worker"
                                              : "%s has no optimizer state",
                       p->graph->params[param].name);
}

enum status executor_read(executor *e, int param, enum executor_tensor which, float *to)
{
    const struct program *p = e->programs[0].program;
    int buffer;
    TRY(find_param(e, param, which, &buffer));
    return e->backend->download(e->stream, executor_place(e, p, buffer), p->buffers[buffer].layout,
                                to);
}

enum status executor_write(executor *e, int param, enum executor_tensor which, const float *from)
{
    const struct program *p = e->programs[0].program;
    int buffer;
    TRY(find_param(e, param, which, &buffer));
    int weight = p->params[param].weight;
    if (which == TENSOR_WEIGHT && buffer != weight) /* it has a master */
        TRY(e->backend->upload(e->stream, from, executor_place(e, p, weight),
                               p->buffers[weight].layout));
    TRY(e->backend->upload(e->stream, from, executor_place(e, p, buffer),
                           p->buffers[buffer].layout));
    return e->backend->stream_synchronize(e->stream); /* the caller's memory may go */
}
