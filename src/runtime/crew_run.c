/* Running a program on all workers, and what comes out of it. */
#include "runtime/crew_parts.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* What a process tells the others after a run. */
struct crew_report {
    struct crew_words words;
    struct crew_result results[]; /* by step */
};

static size_t report_bytes(int n_steps)
{
    return offsetof(struct crew_report, results) + (size_t)n_steps * sizeof(struct crew_result);
}

static struct crew_feed *feed_of(struct crew_worker *w, enum crew_program which)
{
    return crew_trains(which) ? &w->train : &w->test;
}

/* ---- one worker ---- */

struct run_call {
    enum crew_program which;
    const struct step_state *states;
    const struct update_rule *rules;
};

/* What fails before or after the instructions has no step in its message yet. */
static enum status name_step(const struct crew_worker *w, uint32_t step, enum status st)
{
    struct status_error cause;
    status_take(st, &cause);
    if (w->crew->info.n_workers > 1)
        return status_fail(st, "worker %d, step %u: %.940s", w->number, step, cause.message);
    return status_fail(st, "step %u: %.960s", step, cause.message);
}

static enum status run_program(struct crew_worker *w, const struct run_call *call)
{
    struct crew_feed *data = feed_of(w, call->which);
    struct executor_feed feed = {crew_feed_next, data};
    data->taken = 0;
    data->wait_ns = 0;
    TRY(executor_run(w->executor, w->executor_program[call->which], &feed, call->states,
                     call->rules, w->results));
    enum status st = crew_feed_finish(data, w->programs[call->which]->n_steps);
    if (st != STATUS_OK)
        return name_step(w, call->states[0].step, st);
    if (w->kept && crew_trains(call->which))
        crew_keep_times(w, call->which, call->states[0].step);
    return STATUS_OK;
}

/* Nobody is to wait for a worker that has failed. */
static enum status run_worker(struct crew_worker *w, void *user)
{
    enum status st = run_program(w, user);
    if (st != STATUS_OK && w->end)
        w->end->table->abort(w->end, st, status_message());
    return st;
}

/* ---- all of them ---- */

static void add_result(struct crew_result *to, const struct crew_result *r)
{
    to->loss_sum += r->loss_sum;
    to->n_samples += r->n_samples;
    to->correct += r->correct;
    to->compute_ns += r->compute_ns;
    to->wait_ns += r->wait_ns;
    to->communicate_ns += r->communicate_ns;
    to->data_ns += r->data_ns;
}

/* In worker order, so that threads and processes come to the same bits. */
static void sum_local(crew *c, enum crew_program which, int n_steps, struct crew_result *sums)
{
    memset(sums, 0, (size_t)n_steps * sizeof *sums);
    for (int i = 0; i < c->info.n_local; i++) {
        struct crew_worker *w = &c->workers[i];
        for (int s = 0; s < n_steps; s++) {
            const struct executor_result *r = &w->results[s];
            struct crew_result one = {.loss_sum = r->loss_sum,
                                      .n_samples = r->n_samples,
                                      .correct = r->correct,
                                      .compute_ns = r->compute_ns,
                                      .wait_ns = r->wait_ns,
                                      .communicate_ns = r->communicate_ns,
                                      .data_ns = s == 0 ? feed_of(w, which)->wait_ns : 0};
            add_result(&sums[s], &one);
        }
    }
}

static enum status alloc_reports(crew *c, const comm *end)
{
    if (c->mine)
        return STATUS_OK;
    size_t n_bytes = report_bytes(c->most_steps);
    TRY(arena_alloc(c->memory, n_bytes, &c->mine));
    return arena_alloc_array(c->memory, (size_t)end->size, n_bytes, &c->all);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static enum status sum_processes(crew *c, int n_steps, struct crew_result *sums,
                                 struct crew_words *words)
{
    comm *end = crew_process(c);
    TRY(alloc_reports(c, end));
    size_t n_bytes = report_bytes(n_steps);
    c->mine->words = *words;
    memcpy(c->mine->results, sums, (size_t)n_steps * sizeof *sums);
    TRY(end->table->exchange(end, c->mine, (int64_t)n_bytes, c->all));
    memset(sums, 0, (size_t)n_steps * sizeof *sums);
    for (int i = 0; i < end->size; i++) {
        const struct crew_report *r =
            (const struct crew_report *)((const char *)c->all + (size_t)i * n_bytes);
        words->stop = larger(words->stop, r->words.stop);
        words->save = larger(words->save, r->words.save);
        for (int s = 0; s < n_steps; s++)
            add_result(&sums[s], &r->results[s]);
    }
    return STATUS_OK;
}

static enum status find_losses(const crew *c, const struct step_state *states, int n_steps,
                               struct crew_result *sums)
{
    for (int s = 0; s < n_steps; s++) {
        if (sums[s].n_samples == 0)
            continue;
        sums[s].loss = sums[s].loss_sum / (double)sums[s].n_samples;
        if (isfinite(sums[s].loss))
            continue;
        crew_note_common_failure(c);
        return executor_refuse_loss(states[s].step, sums[s].loss);
    }
    return STATUS_OK;
}

enum status crew_run(crew *c, enum crew_program which, const struct step_state *states,
                     const struct update_rule *rules, struct crew_result *results,
                     struct crew_words *words)
{
    struct crew_words none = {0};
    struct run_call call = {which, states, rules};
    int n_steps = crew_count_steps(c, which);
    if (n_steps == 0)
        return status_fail(STATUS_FAILED, "the crew has no program for such a batch");
    TRY(crew_do(c, run_worker, &call));
    sum_local(c, which, n_steps, results);
    if (!c->info.alone) {
        enum status st = sum_processes(c, n_steps, results, words ? words : &none);
        if (st != STATUS_OK)
            return name_step(&c->workers[0], states[0].step, st);
    }
    return find_losses(c, states, n_steps, results);
}

/* ---- epochs ---- */

enum status crew_start_epoch(crew *c, enum crew_program which, int64_t epoch, int64_t first_batch)
{
    for (int i = 0; i < c->info.n_local; i++) {
        struct crew_feed *f = feed_of(&c->workers[i], which);
        f->holds = false; /* loader_start gives it back */
        if (f->loader)
            TRY(loader_start(f->loader, epoch, first_batch));
    }
    return STATUS_OK;
}
