#include "runtime/executor.h"

#include "base/random.h"
#include "base/timer.h"
#include "runtime/executor_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- binding ---- */

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

static enum status create(const struct program *const *programs, int n_programs, comm *end,
                          bool rehearses, executor **out)
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
                    .rehearses = rehearses,
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
    return create(programs, n_programs, end, false, out);
}

/* The one whose memory stays, see executor_destroy; held here, it is not lost. */
static executor *_Atomic left_behind;

/* After a failure messages may be under way that nobody polls any more. A transport that works by
 * itself reads and writes their memory until it is destroyed, which comes after this. */
static bool is_still_used(const executor *e)
{
    return e->has_thread && atomic_load(&e->failed);
}

void executor_destroy(executor *e)
{
    if (!e)
        return;
    executor_comm_destroy(e);
    if (is_still_used(e)) {
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

/* One run of a program. */
struct run {
    executor *e;
    const struct bound_program *b;
    const struct executor_feed *feed;
    const struct step_state *states;
    const struct update_rule *rules;
    struct executor_result *results;
    int fed; /* steps whose batch has come */
    struct executor_batch batch;
    int64_t before_ns;
};

static int step_of(const struct program *p, const struct instr *instr)
{
    return instr->micro < 0 ? 0 : instr->micro / p->n_micros;
}

static int64_t sample_elements(const struct program *p)
{
    const struct shape *images = &p->graph->nodes[0].op.output;
    return shape_elements(images) / images->dim[0];
}

static enum status run_load(struct run *r, const struct instr *instr)
{
    const struct program *p = r->b->program;
    const struct program_load *load = &p->loads[instr->index];
    executor *e = r->e;
    for (; r->fed <= step_of(p, instr); r->fed++)
        TRY(r->feed->next(r->feed->user, &r->batch));
    if (load->images != NO_BUFFER) {
        int64_t at = load->image_samples.begin - r->batch.first_sample;
        TRY(e->backend->upload(e->stream, r->batch.images + at * sample_elements(p),
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

static enum status run_update(executor *e, const struct program *p, int number,
                              const struct update_rule *rule)
{
    const struct program_param *param = &p->params[number];
    void *const state[2] = {executor_place(e, p, param->state[0]),
                            executor_place(e, p, param->state[1])};
    return e->backend->update(e->stream, rule, p->buffers[param->weight].n_bytes,
                              executor_place(e, p, param->weight),
                              executor_place(e, p, param->gradient), state);
}

static enum status run_copy(executor *e, const struct program *p, const struct instr *instr)
{
    const struct program_copy *c = &p->copies[instr->index];
    const void *from = executor_place(e, p, c->from);
    void *to = executor_place(e, p, c->to);
    int64_t n_bytes = p->buffers[c->to].n_bytes;
    switch (instr->kind) {
    case INSTR_COPY:
        return e->backend->copy_region(e->stream, &c->region, from, to);
    case INSTR_CLEAR:
        return e->backend->clear(e->stream, to, n_bytes);
    case INSTR_ACCUMULATE:
        return e->backend->accumulate(e->stream, from, to, n_bytes);
    default:
        return e->backend->copy(e->stream, from, to, n_bytes);
    }
}

static enum status run_instr(struct run *r, const struct instr *instr)
{
    executor *e = r->e;
    const struct program *p = r->b->program;
    int step = step_of(p, instr);
    switch (instr->kind) {
    case INSTR_LOAD:
        return run_load(r, instr);
    case INSTR_RUN:
        return e->backend->group_run(p->groups[instr->group].kernels, instr->pass, e->stream,
                                     &r->b->args[instr->index], &r->states[step]);
    case INSTR_FOLD:
        return run_fold(e, p, &p->folds[instr->index]);
    case INSTR_UPDATE:
        return run_update(e, p, instr->param, &r->rules[step]);
    default:
        return run_copy(e, p, instr);
    }
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

static bool waits_for_others(const struct program *p, const struct instr *instr)
{
    for (int k = 0; k < instr->n_waits; k++)
        if (p->instrs[instr->waits[k]].kind != INSTR_SEND)
            return true;
    return false;
}

/* Waits for communication; returns how long. */
static enum status wait_before(struct run *r, int number, int64_t *waited_ns)
{
    const struct instr *instr = &r->b->program->instrs[number];
    *waited_ns = 0;
    if (instr->n_waits == 0)
        return STATUS_OK;
    int64_t start_ns = timer_now_ns();
    if (r->e->wait && waits_for_others(r->b->program, instr))
        r->e->wait(r->e->wait_user, number);
    for (int k = 0; k < instr->n_waits && !r->e->rehearses; k++)
        TRY(executor_comm_wait(r->e, r->b, instr->waits[k]));
    *waited_ns = timer_now_ns() - start_ns;
    return STATUS_OK;
}

static enum status compute(struct run *r, int number)
{
    executor *e = r->e;
    const struct instr *instr = &r->b->program->instrs[number];
    struct executor_result *result = &r->results[step_of(r->b->program, instr)];
    int64_t reached_ns = timer_now_ns(), waited_ns;
    TRY(wait_before(r, number, &waited_ns));
    result->wait_ns += waited_ns;
    enum status st = run_instr(r, instr);
    if (st != STATUS_OK)
        return executor_name_instr(st, r->b->program, number, r->states[0].step);
    if (r->b->wakes_comm[number])
        TRY(e->backend->stream_synchronize(e->stream));
    if (e->times_ns || r->b->times)
        TRY(e->backend->stream_synchronize(e->stream));
    int64_t now_ns = timer_now_ns();
    if (instr->kind != INSTR_LOAD)
        result->compute_ns += now_ns - reached_ns - waited_ns;
    if (e->times_ns && r->b == &e->programs[0])
        e->times_ns[number] += now_ns - reached_ns;
    if (r->b->times)
        r->b->times[number] = (struct executor_time){reached_ns, reached_ns + waited_ns, now_ns};
    return e->rehearses ? STATUS_OK : executor_comm_computed(e, r->b, number);
}

/* Writes the rehearsal's numbers over device memory, again and again. */
static enum status fill_memory(executor *e, void *to, int64_t n_bytes)
{
    int64_t element = e->backend->device_precision(e->device) == PRECISION_DOUBLE ? 8 : 4;
    for (int64_t at = 0, n = n_bytes / element; at < n; at += REHEARSAL_NUMBERS) {
        struct shape part = SHAPE1(n - at < REHEARSAL_NUMBERS ? n - at : REHEARSAL_NUMBERS);
        const layout *plain;
        TRY(e->backend->layout_plain(e->device, &part, &plain));
        TRY(e->backend->upload(e->stream, e->numbers, (char *)to + at * element, plain));
    }
    return STATUS_OK;
}

/* What a rehearsal does for a message that does not come: its memory may have held what is no
 * number, and as one would be slow to compute with (indices of a pool are denormal floats). */
static enum status pretend_to_receive(struct run *r, const struct instr *instr)
{
    const struct program *p = r->b->program;
    const struct program_message *m = &p->messages[instr->index];
    return fill_memory(r->e, executor_place(r->e, p, m->buffer), m->n_bytes);
}

static bool is_stopped(const executor *e)
{
    return e->over && atomic_load_explicit(e->over, memory_order_relaxed);
}

static enum status run_all(struct run *r)
{
    const struct program *p = r->b->program;
    for (int i = 0; i < p->n_instrs && !is_stopped(r->e); i++)
        if (p->instrs[i].stream == STREAM_COMPUTE)
            TRY(compute(r, i));
        else if (r->e->rehearses && p->instrs[i].kind == INSTR_RECEIVE)
            TRY(pretend_to_receive(r, &p->instrs[i]));
    return r->e->backend->stream_synchronize(r->e->stream);
}

enum status executor_run(executor *e, int program, const struct executor_feed *feed,
                         const struct step_state *states, const struct update_rule *rules,
                         struct executor_result *results)
{
    const struct bound_program *b = &e->programs[program];
    if (e->rehearses)
        return status_fail(STATUS_FAILED, "this executor can only rehearse");
    struct run r = {
        .e = e, .b = b, .feed = feed, .states = states, .rules = rules, .results = results};
    memset(results, 0, (size_t)b->program->n_steps * sizeof *results);
    e->step = states[0].step;
    enum status st = executor_comm_start(e, b);
    if (st == STATUS_OK)
        st = run_all(&r);
    if (st != STATUS_OK)
        executor_fail(e, st);
    TRY(executor_comm_finish(e));
    if (st != STATUS_OK)
        return status_give(&e->error);
    results[0].communicate_ns = e->communicate_ns;
    for (int i = 0; i < b->program->n_results; i++)
        TRY(read_result(&r, &b->program->results[i]));
    return STATUS_OK;
}

static enum status feed_once(void *user, struct executor_batch *batch)
{
    *batch = *(const struct executor_batch *)user;
    return STATUS_OK;
}

enum status executor_step(executor *e, int program, const struct executor_batch *batch,
                          const struct step_state *state, const struct update_rule *rule,
                          struct executor_result *result)
{
    struct executor_batch copy = *batch;
    struct executor_feed feed = {feed_once, &copy};
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

/* ---- rehearsing ---- */

/* Those of an optimizer are positive, because it takes roots of them. */
static void draw_numbers(executor *e, bool positive)
{
    const struct random_key key = {1, RANDOM_TEST, 0};
    for (int i = 0; i < REHEARSAL_NUMBERS; i++)
        e->numbers[i] =
            (float)(0.1 * random_uniform(key, 0, (uint64_t)i) + (positive ? 0.01 : -0.05));
}

static enum status fill_slabs(executor *e)
{
    TRY(arena_alloc_array(e->memory, REHEARSAL_NUMBERS, sizeof *e->numbers, &e->numbers));
    draw_numbers(e, true);
    TRY(fill_memory(e, e->slab[BUFFER_OPTIMIZER], e->slab_bytes[BUFFER_OPTIMIZER]));
    draw_numbers(e, false);
    for (int c = 0; c < BUFFER_CLASS_COUNT; c++)
        if (c != BUFFER_OPTIMIZER)
            TRY(fill_memory(e, e->slab[c], e->slab_bytes[c]));
    return e->backend->stream_synchronize(e->stream);
}

enum status executor_create_rehearsal(const struct program *const *programs, int n_programs,
                                      executor **out)
{
    executor *e = NULL;
    TRY(create(programs, n_programs, NULL, true, &e));
    enum status st = executor_keep_times(e);
    if (st == STATUS_OK)
        st = fill_slabs(e);
    if (st != STATUS_OK) {
        executor_destroy(e);
        return st;
    }
    *out = e;
    return STATUS_OK;
}

void executor_wait_in_rehearsal(executor *e, executor_wait *wait, void *user)
{
    e->wait = wait;
    e->wait_user = user;
}

void executor_stop_rehearsal(executor *e, const atomic_bool *over)
{
    e->over = over;
}

static enum status rehearse_steps(struct run *r, int n_steps, struct step_state *states,
                                  struct update_rule *rules, const struct update_rule *rule)
{
    for (int i = 0; i < n_steps; i++) {
        states[i] = (struct step_state){.seed = 1, .step = (uint32_t)i + 1};
        rules[i] = *rule;
        rules[i].step = i + 1;
    }
    r->states = states;
    r->rules = rules;
    return run_all(r);
}

enum status executor_rehearse(executor *e, int program, const struct executor_batch *batch,
                              const struct update_rule *rule)
{
    const struct bound_program *b = &e->programs[program];
    size_t n = (size_t)b->program->n_steps;
    struct executor_batch copy = *batch;
    struct executor_feed feed = {feed_once, &copy};
    struct run r = {.e = e, .b = b, .feed = &feed};
    if (!e->rehearses)
        return status_fail(STATUS_FAILED, "this executor was not made for rehearsing");
    r.results = calloc(n, sizeof *r.results);
    struct step_state *states = calloc(n, sizeof *states);
    struct update_rule *rules = calloc(n, sizeof *rules);
    enum status st = r.results && states && rules
                         ? rehearse_steps(&r, (int)n, states, rules, rule)
                         : status_no_memory(n * (sizeof *states + sizeof *rules));
    free(rules);
    free(states);
    free(r.results);
    return st;
}

/* ---- parameters ---- */

static enum status find_param(const executor *e, int param, enum executor_tensor which, int *buffer)
{
    const struct program *p = e->programs[0].program;
    const struct program_param *at = &p->params[param];
    *buffer = which == TENSOR_WEIGHT ? at->weight : at->state[which - TENSOR_STATE_0];
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
    return e->backend->upload(e->stream, from, executor_place(e, p, buffer),
                              p->buffers[buffer].layout);
}
