/* accuracy_run.c: predicting and training the plans of one task, in turns. */
#include "bench/accuracy.h"

#include "base/log.h"
#include "base/numbers.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/timer.h"
#include "runtime/pin.h"
#include "runtime/plan_choice.h"
#include "runtime/stop.h"
#include "search/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_STEPS = 6, PROGRESS_INTERVAL_NS = 200000000 };
/* A plan is measured and trained in slices so short that both meet the same load of the machine.
 */
static const double slice_s = 0.05, measure_s = 1.5;

/* ---- progress ---- */

static double left_s(const struct accuracy_study *s, const struct accuracy_task *task, int n_done)
{
    double all = (double)task->n_cases * (double)s->options->rounds;
    double done = s->weight_done + task->weight * (double)n_done / all;
    double elapsed_s = (double)(timer_now_ns() - s->began_ns) * 1e-9;
    return done > 0 ? elapsed_s * fmax(0, 1 - done) / done : 0;
}

static void show_progress(const struct accuracy_study *s, const struct accuracy_task *task,
                          const struct accuracy_case *c, int n_done)
{
    char left[32] = "";
    double seconds = left_s(s, task, n_done);
    if (s->options->quiet)
        return;
    if (seconds > 0)
        (void)progress_time(left, sizeof left, seconds);
    log_progress("%s on %s: %s, %d worker%s%s%s%s", task->model, task->data, c->plan, c->workers,
                 c->workers == 1 ? "" : "s", *left ? "; " : "", left, *left ? " left" : "");
}

/* ---- predicting ---- */

enum status accuracy_skip(struct accuracy_study *s, struct accuracy_case *cases, int n,
                          enum status st)
{
    struct status_error error;
    if (st != STATUS_USAGE && st != STATUS_NO_FIT)
        return st;
    status_take(st, &error);
    for (int i = 0; i < n; i++)
        TRY(arena_copy_text(s->memory, error.message, &cases[i].skipped));
    return STATUS_OK;
}

static int64_t count_windows(const struct accuracy_study *s, const struct accuracy_task *task,
                             const struct accuracy_case *c)
{
    return task->n_train / s->options->forecast.batch / c->window;
}

static enum status check_case(const struct accuracy_study *s, const struct accuracy_task *task,
                              const struct accuracy_case *c, const struct prediction *p)
{
    char needed[32], limit[32];
    if (p->too_large_worker >= 0)
        return status_fail(STATUS_NO_FIT, "it does not fit: worker %d needs %s, there are %s",
                           p->too_large_worker,
                           text_bytes(needed, sizeof needed, (double)p->needed_bytes),
                           text_bytes(limit, sizeof limit, (double)p->limit_bytes));
    if (count_windows(s, task, c) < 1)
        return status_fail(STATUS_USAGE, "the data have no %d whole batch%s of %lld", c->window,
                           c->window == 1 ? "" : "es", (long long)s->options->forecast.batch);
    return STATUS_OK;
}

/* ---- predicting and training at the same time ---- */

/* One turn of one case. */
struct turn {
    const struct accuracy_study *study;
    const struct accuracy_task *task;
    const struct accuracy_case *c;
    int n_before; /* turns of the task that are done */
    training *training;
    int64_t next_slice_ns, next_progress_ns;
};

/* While the plan is being measured: a slice of training after each slice of it. */
static enum status alternate(void *user, double share, const char *what)
{
    struct turn *t = user;
    int64_t now_ns = timer_now_ns();
    (void)share, (void)what;
    if (now_ns >= t->next_progress_ns) {
        t->next_progress_ns = now_ns + PROGRESS_INTERVAL_NS;
        show_progress(t->study, t->task, t->c, t->n_before);
    }
    if (now_ns < t->next_slice_ns)
        return STATUS_OK;
    TRY(training_let(t->training));
    t->next_slice_ns = timer_now_ns() + (int64_t)(slice_s * 1e9);
    return STATUS_OK;
}

static enum status train_enough(struct turn *t)
{
    int64_t wanted = t->study->options->steps ? t->study->options->steps : LEAST_STEPS;
    const int64_t *times_ns;
    while (training_times(t->training, &times_ns) < wanted) {
        if (stop_requested())
            return status_fail(STATUS_STOPPED, "stopped while training");
        TRY(training_let(t->training));
    }
    return STATUS_OK;
}

static enum status take_times(const struct turn *t, struct accuracy_case *c)
{
    const int64_t *times_ns;
    int64_t n = training_times(t->training, &times_ns);
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted)
        return status_no_memory((size_t)n * sizeof *sorted);
    for (int64_t i = 0; i < n; i++)
        sorted[i] = (double)times_ns[i];
    numbers_sort(sorted, (int)n);
    c->rounds_s[c->n_rounds++] = numbers_middle(sorted, (int)n) * 1e-9;
    c->n_steps = n;
    c->memory = training_memory_bytes(t->training);
    c->moved = training_bytes_moved(t->training);
    free(sorted);
    return STATUS_OK;
}

static void take_prediction(const struct prediction *p, struct accuracy_case *c)
{
    c->predicted_rounds_s[c->n_predicted++] = p->clock.step_s;
    c->predicted_s = accuracy_median(c->predicted_rounds_s, c->n_predicted);
    c->error_s = p->clock.error_s;
    memcpy(c->share, p->clock.share, sizeof c->share);
    c->predicted_memory = p->largest_bytes;
    c->predicted_moved = p->clock.bytes_moved;
}

/* The next turn measures again: the machine may be faster or slower by then. */
static enum status forget_costs(struct forecast *f, const struct prediction *p)
{
    TRY(profile_forget(f->profile, &p->measured.setting));
    return profile_forget(f->profile, &p->measured.alone);
}

static enum status predict_and_train(struct turn *t, struct forecast *f, const struct plan *plan,
                                     struct accuracy_case *c)
{
    struct prediction *p;
    TRY(forecast_plan(f, plan, false, &p));
    take_prediction(p, c);
    enum status st = t->study->options->fresh ? forget_costs(f, p) : STATUS_OK;
    prediction_destroy(p);
    TRY(st);
    TRY(train_enough(t));
    return take_times(t, c);
}

static enum status open_training(struct turn *t, const struct forecast *f, const struct plan *plan)
{
    struct training_request r = {.forecast = f->options,
                                 .graph = f->graph,
                                 .plan = plan,
                                 .slice_s = slice_s,
                                 .most_steps = t->study->options->steps};
    return training_open(&r, &t->training);
}

static enum status check_plan_fits(const struct accuracy_study *s, const struct accuracy_task *task,
                                   struct forecast *f, const struct plan *plan,
                                   struct accuracy_case *c)
{
    struct prediction *p;
    struct predict_request r = forecast_request(f, plan, false);
    TRY(predict_memory(&r, &p));
    c->window = p->programs[0]->n_steps;
    enum status st = check_case(s, task, c, p);
    prediction_destroy(p);
    return st;
}

static enum status play_together(struct turn *t, struct forecast *f, struct forecast_options *o,
                                 const struct plan *plan, struct accuracy_case *c)
{
    TRY(open_training(t, f, plan));
    o->measure.callbacks.on_progress = alternate;
    o->measure.callbacks.user = t;
    enum status st = predict_and_train(t, f, plan, c);
    o->measure.callbacks = (struct measure_callbacks){0};
    training_close(t->training);
    return st;
}

/* Cores may differ by half. Several workers have the same ones when they are measured and when they
 * train; one alone would run wherever the system puts each of the two threads. */
static void stay_on_one_place(const struct accuracy_study *s, const struct accuracy_case *c)
{
    int64_t threads = s->options->forecast.threads;
    if (c->workers == 1 && threads > 0)
        (void)pin_thread(0, 2, (int)threads);
}

static enum status play_turn(struct turn *t, struct forecast *f, struct forecast_options *o,
                             struct accuracy_case *c)
{
    struct plan_request request = {.n_workers = c->workers};
    struct plan *plan;
    struct pin_mask before;
    TRY(plan_choose(c->plan, f->graph, &request, &plan));
    enum status st = check_plan_fits(t->study, t->task, f, plan, c);
    if (st == STATUS_OK) {
        pin_remember(&before);
        stay_on_one_place(t->study, c);
        st = play_together(t, f, o, plan, c);
        pin_restore(&before);
    }
    plan_destroy(plan);
    return st;
}

/* ---- turns ---- */

/* The cases from `first` on that have as many workers: they share the measurements of the host. */
static int count_alike(const struct accuracy_task *task, int first)
{
    int n = 1;
    while (first + n < task->n_cases &&
           task->cases[first + n].workers == task->cases[first].workers)
        n++;
    return n;
}

/* Every other round goes backwards, and each pair of them begins elsewhere, so that no plan always
 * follows the same one. */
static int choose_turn(int round, int i, int n)
{
    int at = (i + round / 2) % n;
    return round % 2 ? n - 1 - at : at;
}

static bool wants_turn(const struct accuracy_study *s, const struct accuracy_case *c, int round)
{
    return !c->skipped &&
           (round < (int)s->options->rounds || accuracy_doubt(c) > accuracy_little_doubt);
}

static bool any_wants_turn(const struct accuracy_study *s, const struct accuracy_case *cases, int n,
                           int round)
{
    for (int i = 0; i < n; i++)
        if (wants_turn(s, &cases[i], round))
            return true;
    return false;
}

static enum status take_turn(struct accuracy_study *s, struct accuracy_task *task,
                             struct forecast *f, struct forecast_options *o,
                             struct accuracy_case *c, int round, int n_before)
{
    struct turn t = {.study = s, .task = task, .c = c, .n_before = n_before};
    if (!wants_turn(s, c, round))
        return STATUS_OK;
    show_progress(s, task, c, n_before);
    return accuracy_skip(s, c, 1, play_turn(&t, f, o, c));
}

static enum status train_one_by_one(struct accuracy_study *s, struct accuracy_task *task, int round,
                                    int first, int n)
{
    struct forecast_options o = s->options->forecast;
    struct forecast f;
    o.graph = task->graph;
    o.data = task->data;
    o.quiet = s->options->quiet;
    o.measure.budget_s = measure_s;
    enum status st = forecast_open(&f, &o);
    task->n_train = f.data.n_train;
    if (st == STATUS_OK)
        st = forecast_find_machine(&f, task->cases[first].workers);
    if (st != STATUS_OK)
        st = accuracy_skip(s, &task->cases[first], n, st);
    for (int i = 0; i < n && st == STATUS_OK; i++)
        st = take_turn(s, task, &f, &o, &task->cases[first + choose_turn(round, i, n)], round,
                       round * task->n_cases + first + i);
    forecast_close(&f);
    return st;
}

/* The host is measured again, too. */
static enum status take_round(struct accuracy_study *s, struct accuracy_task *task, int round)
{
    if (s->options->fresh)
        accuracy_clear_profile(s->options->forecast.profile);
    for (int i = 0, n; i < task->n_cases; i += n) {
        n = count_alike(task, i);
        if (any_wants_turn(s, &task->cases[i], n, round))
            TRY(train_one_by_one(s, task, round, i, n));
    }
    return STATUS_OK;
}

enum status accuracy_measure(struct accuracy_study *s, struct accuracy_task *task)
{
    const struct bench_accuracy *o = s->options;
    int most = (int)(o->most_rounds ? o->most_rounds : o->rounds);
    struct dataset_info info;
    enum status st = STATUS_OK;
    TRY(dataset_describe(task->data, &info));
    memcpy(task->data_name, info.name, sizeof task->data_name);
    for (int round = 0; round < most && st == STATUS_OK; round++)
        st = take_round(s, task, round);
    log_progress_end();
    return st;
}
