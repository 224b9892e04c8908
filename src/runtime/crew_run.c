/* Running a program on all workers, its results, and how processes agree on failures. */
#include "base/numbers.h"
#include "runtime/crew_parts.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- processes ---- */

/* Building (opening data, lowering) and saving may take others much longer than a message. */
static const double PATIENCE_S = 600;

static atomic_bool failed_together;

comm *crew_process(const crew *c)
{
    return c->info.alone ? NULL : c->options.process;
}

void crew_be_patient(crew *c, bool patient)
{
    double usual_s = c->options.timeout_s;
    c->options.process->timeout_s = patient ? fmax(usual_s, PATIENCE_S) : usual_s;
}

void crew_note_common_failure(const crew *c)
{
    if (!c->info.alone)
        atomic_store(&failed_together, true);
}

bool crew_failed_together(void)
{
    return atomic_load(&failed_together);
}

void crew_abort(crew *c, enum status st)
{
    comm *end = c->options.process ? c->options.process : c->workers[0].end;
    if (end)
        end->table->abort(end, st, status_message());
}

enum status crew_agree(comm *process, enum status mine)
{
    if (!process || process->size == 1)
        return mine;
    struct status_error error = {.status = STATUS_OK};
    if (mine != STATUS_OK)
        status_take(mine, &error);
    struct status_error *all = calloc((size_t)process->size, sizeof *all);
    if (!all)
        return status_no_memory((size_t)process->size * sizeof *all);
    double usual_s = process->timeout_s;
    process->timeout_s = fmax(usual_s, PATIENCE_S);
    enum status st = process->table->exchange(process, &error, sizeof error, all);
    process->timeout_s = usual_s;
    for (int i = 0; i < process->size && st == STATUS_OK; i++)
        if (all[i].status != STATUS_OK) {
            atomic_store(&failed_together, true);
            st = status_give(&all[i]);
        }
    free(all);
    return st;
}

/* ---- data ---- */

static void give_back(struct crew_feed *f)
{
    if (f->holds)
        loader_release(f->loader);
    f->holds = false;
}

static enum status take(struct crew_feed *f, struct batch *b)
{
    give_back(f);
    TRY(crew_explain_corrupt(f->crew, loader_next(f->loader, b)));
    TRY(crew_note_skips(f, b));
    if (b->n_global == 0)
        return status_fail(STATUS_FAILED, "the data ended after batch %lld", (long long)b->index);
    f->holds = true;
    f->taken++;
    f->wait_ns += b->wait_ns;
    return STATUS_OK;
}

static enum status feed_executor(void *user, struct executor_batch *batch)
{
    struct batch b;
    TRY(take(user, &b));
    *batch = (struct executor_batch){b.images, b.labels, b.first};
    return STATUS_OK;
}

/* Skips the batches that the program did not ask for, and gives back the one that is held. */
static enum status finish_feed(struct crew_feed *f, int n_steps)
{
    struct batch b;
    while (f->loader && f->taken < n_steps)
        TRY(take(f, &b));
    give_back(f);
    return STATUS_OK;
}

enum status crew_start_epoch(crew *c, enum crew_program which, int64_t epoch, int64_t first_batch)
{
    for (int i = 0; i < c->info.n_local; i++) {
        struct crew_feed *f = crew_feed_of(&c->workers[i], which);
        f->holds = false; /* loader_start gives it back */
        if (f->loader)
            TRY(loader_start(f->loader, epoch, first_batch));
    }
    return STATUS_OK;
}

/* ---- one worker ---- */

struct run_call {
    crew *crew;
    enum crew_program which;
    const struct step_state *states;
    const struct update_rule *rules;
};

/* A failure before or after the instructions has no step in its message yet. */
static enum status name_step(const struct crew_worker *w, uint32_t step, enum status st)
{
    struct status_error cause;
    status_take(st, &cause);
    if (w->crew->info.n_workers > 1)
        return status_fail(st, "worker %d, step %u: %.940s", w->number, step, cause.message);
    return status_fail(st, "step %u: %.960s", step, cause.message);
}

/* On failure it tells the others at once, which would wait for it. */
static enum status run_worker(int number, void *user)
{
    const struct run_call *call = user;
    struct crew_worker *w = &call->crew->workers[number];
    struct crew_feed *data = crew_feed_of(w, call->which);
    struct executor_feed feed = {feed_executor, data};
    uint32_t step = call->states[0].step;
    data->taken = 0;
    data->wait_ns = 0;
    data->n_replaced = 0;
    enum status st = executor_run(w->executor, w->executor_program[call->which], &feed,
                                  call->states, call->rules, w->results);
    if (st == STATUS_OK) {
        st = finish_feed(data, w->programs[call->which]->n_steps);
        if (st != STATUS_OK)
            st = name_step(w, step, st);
        else if (w->kept && crew_trains(call->which))
            crew_keep_times(w, call->which, step);
    }
    if (st != STATUS_OK && w->end)
        w->end->table->abort(w->end, st, status_message());
    return st;
}

/* ---- all of them ---- */

/* Each process sends one to all others after a run. */
struct crew_report {
    struct crew_words words;
    int64_t n_skips;              /* crew_most_skips */
    struct crew_result results[]; /* by step */
};

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
                                      .data_ns = s == 0 ? crew_feed_of(w, which)->wait_ns : 0};
            add_result(&sums[s], &one);
        }
    }
}

static size_t report_bytes(int n_steps)
{
    return offsetof(struct crew_report, results) + (size_t)n_steps * sizeof(struct crew_result);
}

static enum status alloc_reports(crew *c, const comm *end)
{
    if (c->mine)
        return STATUS_OK;
    size_t n_bytes = report_bytes(crew_count_steps(c, CREW_TRAIN));
    TRY(arena_alloc(c->memory, n_bytes, &c->mine));
    return arena_alloc_array(c->memory, (size_t)end->size, n_bytes, &c->all);
}

static enum status sum_processes(crew *c, int n_steps, struct crew_result *sums,
                                 struct crew_words *words, int64_t *n_skips)
{
    comm *end = crew_process(c);
    TRY(alloc_reports(c, end));
    size_t n_bytes = report_bytes(n_steps);
    c->mine->words = *words;
    c->mine->n_skips = *n_skips;
    memcpy(c->mine->results, sums, (size_t)n_steps * sizeof *sums);
    TRY(end->table->exchange(end, c->mine, (int64_t)n_bytes, c->all));
    memset(sums, 0, (size_t)n_steps * sizeof *sums);
    for (int i = 0; i < end->size; i++) {
        const struct crew_report *r =
            (const struct crew_report *)((const char *)c->all + (size_t)i * n_bytes);
        words->stop = int64_max(words->stop, r->words.stop);
        words->save = int64_max(words->save, r->words.save);
        *n_skips = int64_max(*n_skips, r->n_skips);
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
    struct run_call call = {c, which, states, rules};
    int n_steps = crew_count_steps(c, which);
    if (n_steps == 0)
        return status_fail(STATUS_FAILED, "the crew has no program for such a batch");
    TRY(thread_team_run(c->thread_team, run_worker, &call));
    sum_local(c, which, n_steps, results);
    int64_t n_skips = crew_most_skips(c, which);
    enum status st = STATUS_OK;
    if (!c->info.alone)
        st = sum_processes(c, n_steps, results, words ? words : &none, &n_skips);
    if (st != STATUS_OK)
        return name_step(&c->workers[0], states[0].step, st);
    if (n_skips > 0)
        TRY(crew_count_skips(c, which, states[0].step, n_skips));
    return find_losses(c, states, n_steps, results);
}
