/* Rehearsing: the computing instructions of a program alone, on numbers that mean nothing. */
#include "base/random.h"
#include "base/timer.h"
#include "runtime/executor_parts.h"

#include <stdlib.h>

/* ---- numbers ---- */

enum { REHEARSAL_NUMBERS = 1 << 16 };

/* Writes the numbers of a round over device memory, again and again. */
static enum status fill_memory(executor *e, void *to, int64_t n_bytes)
{
    enum element type = precision_get_info(e->programs[0].program->precision)->activation;
    int64_t element = element_bytes(type);
    for (int64_t at = 0, n = n_bytes / element; at < n; at += REHEARSAL_NUMBERS) {
        struct shape part = SHAPE1(n - at < REHEARSAL_NUMBERS ? n - at : REHEARSAL_NUMBERS);
        const layout *plain;
        TRY(e->backend->layout_plain(e->device, type, &part, &plain));
        TRY(e->backend->upload(e->stream, e->numbers, (char *)to + at * element, plain));
    }
    return STATUS_OK;
}

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

enum status executor_create_measuring(const struct program *const *programs, int n_programs,
                                      executor **out)
{
    executor *e = NULL;
    TRY(executor_create_kind(programs, n_programs, NULL, true, &e));
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

/* ---- running ---- */

void executor_call_at_waits(executor *e, executor_wait *wait, void *user)
{
    e->wait = wait;
    e->wait_user = user;
}

void executor_stop_measuring(executor *e, const atomic_bool *over)
{
    e->over = over;
}

/* In place of a message its memory is written again: it may have held other data, which would be
 * slow to compute with as floats (indices of a pool are denormal floats). */
static enum status receive_nothing(const struct run *r, const struct instr *instr)
{
    const struct program *p = r->b->program;
    const struct program_message *m = &p->messages[instr->index];
    return fill_memory(r->e, executor_place(r->e, p, m->buffer), m->n_bytes);
}

static bool waits_for_others(const struct program *p, const struct instr *instr)
{
    for (int k = 0; k < instr->n_waits; k++)
        if (p->instrs[instr->waits[k]].kind != INSTR_SEND)
            return true;
    return false;
}

static enum status run_computing(struct run *r)
{
    executor *e = r->e;
    const struct program *p = r->b->program;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        if (e->over && atomic_load_explicit(e->over, memory_order_relaxed))
            break;
        if (instr->kind == INSTR_RECEIVE)
            TRY(receive_nothing(r, instr));
        if (instr->stream != STREAM_COMPUTE)
            continue;
        int64_t reached_ns = timer_now_ns(), begin_ns = reached_ns;
        if (e->wait && waits_for_others(p, instr)) {
            e->wait(e->wait_user, i);
            begin_ns = timer_now_ns();
        }
        TRY(executor_compute(r, i));
        executor_keep_time(r, i, reached_ns, begin_ns);
    }
    return e->backend->stream_synchronize(e->stream);
}

enum status executor_measure(executor *e, int program, const struct executor_batch *batch,
                             const struct update_rule *rule)
{
    const struct bound_program *b = &e->programs[program];
    size_t n = (size_t)b->program->n_steps;
    struct executor_batch copy = *batch;
    struct executor_feed feed = {executor_feed_once, &copy};
    if (!e->measures)
        return status_fail(STATUS_FAILED, "this executor was not made for measuring");
    struct executor_result *results = calloc(n, sizeof *results);
    struct step_state *states = calloc(n, sizeof *states);
    struct update_rule *rules = calloc(n, sizeof *rules);
    enum status st = results && states && rules
                         ? STATUS_OK
                         : status_no_memory(n * (sizeof *states + sizeof *rules));
    for (size_t i = 0; i < n && st == STATUS_OK; i++) {
        states[i] = (struct step_state){.seed = 1, .step = (uint32_t)i + 1};
        rules[i] = *rule;
        rules[i].step = (int64_t)i + 1;
    }
    if (st == STATUS_OK)
        st = run_computing(&(struct run){
            .e = e, .b = b, .feed = &feed, .states = states, .rules = rules, .results = results});
    free(rules);
    free(states);
    free(results);
    return st;
}
