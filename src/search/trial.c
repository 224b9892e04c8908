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

enum { LEAST_ROUNDS = 3, ENOUGH_ROUNDS = 8 };
static const double slice_s = 0.1, long_s = 0.03;

/* One plan in the trial. */
struct entrant {
    struct trial_plan *plan;
    char *text; /* of the plan, for the training */
    training *training;
    bool out;                         /* of further rounds */
    int64_t n_seen;                   /* of the training's times */
    double round_s[TRIAL_MAX_ROUNDS]; /* of a step; the first plan->n_rounds are set */
};

struct trial {
    const struct trial_request *request;
    int n, n_rounds;
    struct entrant *entrants;
    int64_t began_ns;
};

/* ---- building ---- */

static enum status open_entrant(const struct trial *t, struct entrant *e)
{
    const struct trial_request *r = t->request;
    if (!r->quiet)
        log_progress("building %s for a trial", e->plan->name);
    TRY(plan_print(e->plan->plan, r->graph, &e->text));
    struct training_request asked = {.model = r->model,
                                     .data = r->data,
                                     .plan = e->text,
                                     .backend = r->backend,
                                     .workers = e->plan->plan->n_workers,
                                     .threads = r->threads,
                                     .window = e->plan->plan->window,
                                     .batch = r->batch,
                                     .slice_s = slice_s,
                                     .long_s = long_s};
    return training_open(&asked, &e->training);
}

static enum status open_all(struct trial *t)
{
    for (int i = 0; i < t->n && !stop_requested(); i++)
        TRY(open_entrant(t, &t->entrants[i]));
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
static enum status take_times(struct entrant *e)
{
    const int64_t *times_ns;
    int64_t n = training_times(e->training, &times_ns) - e->n_seen;
    if (n < 1)
        return status_fail(STATUS_USAGE, "%s: the data have too few whole batches to try it",
                           e->plan->name);
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted)
        return status_no_memory((size_t)n * sizeof *sorted);
    for (int64_t i = 0; i < n; i++)
        sorted[i] = (double)times_ns[e->n_seen + i] * 1e-9;
    numbers_sort(sorted, (int)n);
    e->round_s[e->plan->n_rounds++] = numbers_middle(sorted, (int)n);
    e->n_seen += n;
    free(sorted);
    return STATUS_OK;
}

/* Every round begins with another plan: who comes first after a sleep of the machine, or last, is
 * not always the same. */
static enum status play_round(struct trial *t)
{
    for (int i = 0; i < t->n; i++) {
        struct entrant *e = &t->entrants[(t->n_rounds + i) % t->n];
        if (e->out)
            continue;
        if (!t->request->quiet)
            log_progress("trying %s, round %d", e->plan->name, t->n_rounds + 1);
        TRY(training_let(e->training));
        TRY(take_times(e));
        if (stop_requested())
            return STATUS_OK;
    }
    t->n_rounds++;
    return STATUS_OK;
}

/* ---- comparing ---- */

/* A plan's steps against the first plan's in the rounds that both had: the middle, and how far off
 * it may be. */
static void compare(const struct entrant *first, struct entrant *e)
{
    double ratio[TRIAL_MAX_ROUNDS];
    int n = e->plan->n_rounds < first->plan->n_rounds ? e->plan->n_rounds : first->plan->n_rounds;
    e->plan->step_s = 0;
    if (n < 1)
        return;
    for (int i = 0; i < n; i++)
        ratio[i] = e->round_s[i] / first->round_s[i];
    numbers_sort(ratio, n);
    double middle = numbers_middle(ratio, n);
    double spread = numbers_quantile(ratio, n, 0.75) - numbers_quantile(ratio, n, 0.25);
    e->plan->step_s = middle;
    e->plan->noise = 0.93 * spread / sqrt(n) / middle; /* of a middle of normal numbers */
}

static void compare_all(struct trial *t)
{
    struct entrant *first = &t->entrants[0];
    double sorted[TRIAL_MAX_ROUNDS];
    int n = first->plan->n_rounds;
    for (int i = 0; i < t->n; i++)
        compare(first, &t->entrants[i]);
    if (n < 1)
        return;
    memcpy(sorted, first->round_s, (size_t)n * sizeof *sorted);
    numbers_sort(sorted, n);
    double first_s = numbers_middle(sorted, n);
    for (int i = 0; i < t->n; i++)
        t->entrants[i].plan->step_s *= first_s;
}

/* The first one stays: all are compared with it. The more rounds there were, the less it takes. */
static void leave_out(struct trial *t)
{
    double best_s = INFINITY;
    for (int i = 0; i < t->n; i++)
        best_s = fmin(best_s, t->entrants[i].plan->step_s);
    double margin = t->n_rounds == 1 ? 0.5 : t->n_rounds == 2 ? 0.25 : 0.05;
    for (int i = 1; i < t->n; i++) {
        const struct trial_plan *p = t->entrants[i].plan;
        if (p->step_s > best_s * (1 + fmax(margin, 3 * p->noise)))
            t->entrants[i].out = true;
    }
}

/* Enough rounds, and no two of those that are left whose order is still in doubt. */
static bool is_decided(const struct trial *t)
{
    static const double EQUAL = 0.003;
    const struct trial_plan *best = NULL;
    for (int i = 0; i < t->n; i++)
        if (!t->entrants[i].out && (!best || t->entrants[i].plan->step_s < best->step_s))
            best = t->entrants[i].plan;
    for (int i = 0; i < t->n; i++) {
        const struct trial_plan *p = t->entrants[i].plan;
        double noise = hypot(p->noise, best->noise);
        if (!t->entrants[i].out && p != best && noise > EQUAL &&
            p->step_s < best->step_s * (1 + 3 * noise))
            return false;
    }
    return t->n_rounds >= ENOUGH_ROUNDS;
}

static bool is_over(const struct trial *t)
{
    bool decided = !t->request->keeps_all && is_decided(t);
    bool late = elapsed_s(t) > t->request->limit_s && t->n_rounds >= LEAST_ROUNDS;
    return decided || late || t->n_rounds == TRIAL_MAX_ROUNDS || stop_requested();
}

static enum status play(struct trial *t)
{
    TRY(open_all(t));
    while (!is_over(t)) {
        TRY(play_round(t));
        compare_all(t);
        if (!t->request->keeps_all)
            leave_out(t);
    }
    return STATUS_OK;
}

enum status trial_run(const struct trial_request *request, struct trial_plan *plans, int n)
{
    struct trial t = {.request = request, .n = n};
    t.entrants = calloc((size_t)n, sizeof *t.entrants);
    if (!t.entrants)
        return status_no_memory((size_t)n * sizeof *t.entrants);
    for (int i = 0; i < n; i++) {
        plans[i].step_s = plans[i].noise = 0;
        plans[i].n_rounds = 0;
        t.entrants[i].plan = &plans[i];
    }
    enum status st = play(&t);
    log_progress_end();
    close_all(&t);
    return st;
}
