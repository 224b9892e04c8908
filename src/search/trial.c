#include "search/trial.h"

#include "base/log.h"
#include "base/numbers.h"
#include "base/timer.h"
#include "plan/plan.h"
#include "runtime/stop.h"
#include "search/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ENOUGH_ROUNDS = 8 };
static const double slice_s = 0.1, long_s = 0.03;

/* What is done with one of the plans. */
struct entrant {
    char *text; /* of the plan, for the training */
    training *training;
    int64_t n_seen;                   /* of the training's times */
    double round_s[TRIAL_MAX_ROUNDS]; /* of a step; the first n_rounds of the plan are set */
};

struct trial {
    const struct trial_request *request;
    int n, n_rounds;
    struct trial_plan *plans;
    struct entrant *entrants; /* by plan */
    int64_t began_ns;
};

/* ---- building ---- */

static enum status open_entrant(const struct trial *t, int i)
{
    const struct trial_request *r = t->request;
    const struct trial_plan *p = &t->plans[i];
    struct entrant *e = &t->entrants[i];
    if (!r->quiet)
        log_progress("building %s for a trial", p->name);
    TRY(plan_print(p->plan, r->graph, &e->text));
    struct training_request asked = {.model = r->model,
                                     .data = r->data,
                                     .plan = e->text,
                                     .backend = r->backend,
                                     .workers = p->plan->n_workers,
                                     .threads = r->threads,
                                     .window = p->plan->window,
                                     .batch = r->batch,
                                     .slice_s = slice_s,
                                     .long_s = long_s};
    return training_open(&asked, &e->training);
}

static enum status open_all(struct trial *t)
{
    for (int i = 0; i < t->n && !stop_requested(); i++)
        TRY(open_entrant(t, i));
    t->began_ns = timer_now_ns();
    return STATUS_OK;
}

static void close_all(struct trial *t)
{
    for (int i = 0; i < t->n; i++) {
        training_close(t->entrants[i].training);
        free(t->entrants[i].text);
    }
    free(t->entrants);
}

/* ---- rounds ---- */

static double elapsed_s(const struct trial *t)
{
    return (double)(timer_now_ns() - t->began_ns) * 1e-9;
}

/* The middle of the steps that were not seen before. */
static enum status take_times(struct trial_plan *p, struct entrant *e)
{
    const int64_t *times_ns;
    int64_t n = training_times(e->training, &times_ns) - e->n_seen;
    if (n < 1)
        return status_fail(STATUS_USAGE, "%s: the data have too few whole batches to try it",
                           p->name);
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted)
        return status_no_memory((size_t)n * sizeof *sorted);
    for (int64_t i = 0; i < n; i++)
        sorted[i] = (double)times_ns[e->n_seen + i] * 1e-9;
    numbers_sort(sorted, (int)n);
    e->round_s[p->n_rounds++] = numbers_middle(sorted, (int)n);
    e->n_seen += n;
    free(sorted);
    return STATUS_OK;
}

/* Every round begins with another plan: who comes first after a sleep of the machine, or last, is
 * not always the same. */
static enum status play_round(struct trial *t)
{
    for (int i = 0; i < t->n; i++) {
        int who = (t->n_rounds + i) % t->n;
        struct entrant *e = &t->entrants[who];
        if (t->plans[who].behind)
            continue;
        if (!t->request->quiet)
            log_progress("trying %s, round %d", t->plans[who].name, t->n_rounds + 1);
        enum status st = training_let(e->training);
        if (stop_requested()) { /* the training may have heard of it as well */
            status_clear();
            return STATUS_OK;
        }
        TRY(st);
        TRY(take_times(&t->plans[who], e));
    }
    t->n_rounds++;
    return STATUS_OK;
}

/* ---- comparing ---- */

/* A plan's steps against the first plan's in the rounds that both had: the middle, and how far off
 * it may be. */
static void compare(struct trial *t, int i)
{
    double ratio[TRIAL_MAX_ROUNDS];
    const double *first_s = t->entrants[0].round_s, *own_s = t->entrants[i].round_s;
    struct trial_plan *p = &t->plans[i];
    int n = p->n_rounds < t->plans[0].n_rounds ? p->n_rounds : t->plans[0].n_rounds;
    p->step_s = 0;
    if (n < 1)
        return;
    for (int k = 0; k < n; k++)
        ratio[k] = own_s[k] / first_s[k];
    numbers_sort(ratio, n);
    double middle = numbers_middle(ratio, n);
    double spread = numbers_quantile(ratio, n, 0.75) - numbers_quantile(ratio, n, 0.25);
    p->step_s = middle;
    p->noise = 0.93 * spread / sqrt(n) / middle; /* of a middle of normal numbers */
}

static void compare_all(struct trial *t)
{
    double sorted[TRIAL_MAX_ROUNDS];
    int n = t->plans[0].n_rounds;
    for (int i = 0; i < t->n; i++)
        compare(t, i);
    if (n < 1)
        return;
    memcpy(sorted, t->entrants[0].round_s, (size_t)n * sizeof *sorted);
    numbers_sort(sorted, n);
    double first_s = numbers_middle(sorted, n);
    for (int i = 0; i < t->n; i++)
        t->plans[i].step_s *= first_s;
}

/* The first one stays: all are compared with it. The more rounds there were, the less it takes; the
 * noise of few rounds is itself little known. */
static void leave_out(struct trial *t)
{
    double best_s = INFINITY;
    for (int i = 0; i < t->n; i++)
        if (!t->plans[i].aside)
            best_s = fmin(best_s, t->plans[i].step_s);
    double margin = fmax(0.05, 1.0 / t->n_rounds);
    for (int i = 1; i < t->n; i++) {
        struct trial_plan *p = &t->plans[i];
        if (p->aside || p->step_s > best_s * (1 + fmax(margin, 3 * p->noise)))
            p->behind = true;
    }
}

/* Enough rounds, and no two of those that are left whose order is still in doubt. */
static bool is_decided(const struct trial *t)
{
    static const double EQUAL = 0.003;
    const struct trial_plan *best = &t->plans[0]; /* is never left out */
    for (int i = 1; i < t->n; i++)
        if (!t->plans[i].behind && t->plans[i].step_s < best->step_s)
            best = &t->plans[i];
    for (int i = 0; i < t->n; i++) {
        const struct trial_plan *p = &t->plans[i];
        double noise = hypot(p->noise, best->noise);
        if (!p->behind && p != best && noise > EQUAL && p->step_s < best->step_s * (1 + 3 * noise))
            return false;
    }
    return t->n_rounds >= ENOUGH_ROUNDS;
}

static bool is_over(const struct trial *t)
{
    bool decided = !t->request->whole_time && is_decided(t);
    bool late = elapsed_s(t) > t->request->limit_s && t->n_rounds >= TRIAL_LEAST_ROUNDS;
    return decided || late || t->n_rounds == TRIAL_MAX_ROUNDS || stop_requested();
}

static enum status play(struct trial *t)
{
    TRY(open_all(t));
    while (!is_over(t)) {
        TRY(play_round(t));
        compare_all(t);
        leave_out(t);
    }
    return STATUS_OK;
}

enum status trial_run(const struct trial_request *request, struct trial_plan *plans, int n)
{
    struct trial t = {.request = request, .n = n, .plans = plans};
    t.entrants = calloc((size_t)n, sizeof *t.entrants);
    if (!t.entrants)
        return status_no_memory((size_t)n * sizeof *t.entrants);
    for (int i = 0; i < n; i++) {
        plans[i].step_s = plans[i].noise = 0;
        plans[i].n_rounds = 0;
        plans[i].behind = false;
    }
    enum status st = play(&t);
    log_progress_end();
    close_all(&t);
    return st;
}
