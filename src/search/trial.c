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

static const double slice_s = 0.1, long_s = 0.03;
/* A plan is not dropped for less than this; nor before TRIAL_LEAST_ROUNDS unless it takes four
 * times as long, for a single round may have met anything. */
static const double LEAST_MARGIN = 0.05, EARLY_MARGIN = 3;
enum { ENOUGH_ROUNDS = 8 };
static const double WELL_KNOWN = 0.003;

/* The state of one of the plans. */
struct entrant {
    training *training;
    int64_t n_taken;                 /* of the training's times */
    double round_s;                  /* of a step, in this round */
    double rounds[TRIAL_MAX_ROUNDS]; /* of the first plan: round_s; else its ratio to the first's */
};

struct trial {
    const struct trial_request *request;
    struct trial_plan *plans;
    int n;
    struct entrant entrants[TRIAL_MAX_PLANS]; /* by plan */
    int round;                                /* of the group */
    int64_t trained_ns;                       /* by the group, after its first round */
};

/* ---- statistics ---- */

/* The quartiles of few numbers say little of how they scatter: then it is the whole range. */
static double find_median(const double *numbers, int n, double *spread)
{
    double sorted[TRIAL_MAX_ROUNDS];
    double tail = n < ENOUGH_ROUNDS ? 0 : 0.25;
    memcpy(sorted, numbers, (size_t)n * sizeof *sorted);
    numbers_sort(sorted, n);
    *spread = numbers_quantile(sorted, n, 1 - tail) - numbers_quantile(sorted, n, tail);
    return numbers_quantile(sorted, n, 0.5);
}

void trial_compare(struct trial_plan *plans, int n, const double *const *ratios)
{
    double best = plans[0].step_s = 1, spread;
    for (int i = 1; i < n; i++) {
        struct trial_plan *p = &plans[i];
        if (p->n_rounds == 0)
            continue;
        p->step_s = find_median(ratios[i], p->n_rounds, &spread);
        p->noise = 0.93 * spread / sqrt(p->n_rounds) / p->step_s; /* as of normal numbers */
        best = p->aside ? best : fmin(best, p->step_s);
    }
    for (int i = 1; i < n; i++) {
        struct trial_plan *p = &plans[i];
        double margin = p->n_rounds < TRIAL_LEAST_ROUNDS
                            ? EARLY_MARGIN
                            : fmax(3 * p->noise, fmax(LEAST_MARGIN, 1.0 / p->n_rounds));
        if (p->n_rounds > 0 && (p->aside || p->step_s > best * (1 + margin)))
            p->behind = true;
    }
}

/* ---- turns ---- */

static enum status open_entrant(struct trial *t, int i)
{
    const struct trial_request *r = t->request;
    const struct trial_plan *p = &t->plans[i];
    struct entrant *e = &t->entrants[i];
    if (!r->quiet)
        log_progress("building %s for a trial", p->name);
    struct training_request asked = {.forecast = r->forecast,
                                     .graph = r->graph,
                                     .plan = p->plan,
                                     .slice_s = slice_s,
                                     .long_s = long_s};
    return training_open(&asked, &e->training);
}

static void close_entrant(struct entrant *e)
{
    training_close(e->training);
    e->training = NULL;
}

/* The median of the steps of this slice. */
static enum status take_times(struct trial *t, int i)
{
    struct entrant *e = &t->entrants[i];
    const int64_t *times_ns;
    int64_t n = training_times(e->training, &times_ns) - e->n_taken;
    if (n < 1)
        return status_fail(STATUS_USAGE, "%s: the data have too few whole batches to try it",
                           t->plans[i].name);
    int64_t *copy = malloc((size_t)n * sizeof *copy);
    if (!copy)
        return status_no_memory((size_t)n * sizeof *copy);
    memcpy(copy, times_ns + e->n_taken, (size_t)n * sizeof *copy);
    e->round_s = numbers_median_ns(copy, n) * 1e-9;
    e->n_taken += n;
    free(copy);
    return STATUS_OK;
}

static enum status take_turn(struct trial *t, int i)
{
    struct entrant *e = &t->entrants[i];
    if (!e->training)
        TRY(open_entrant(t, i));
    if (!t->request->quiet)
        log_progress("trying %s, round %d", t->plans[i].name, t->round + 1);
    int64_t began_ns = timer_now_ns();
    enum status st = training_let(e->training);
    if (t->round > 0)
        t->trained_ns += timer_now_ns() - began_ns;
    if (stop_requested()) { /* the training may have heard of it as well */
        status_clear();
        return STATUS_OK;
    }
    TRY(st);
    return take_times(t, i);
}

/* ---- rounds ---- */

static void add_round(struct trial *t, int i)
{
    struct trial_plan *p = &t->plans[i];
    const struct entrant *first = &t->entrants[0];
    if (p->n_rounds < TRIAL_MAX_ROUNDS)
        t->entrants[i].rounds[p->n_rounds++] =
            i == 0 ? first->round_s : t->entrants[i].round_s / first->round_s;
}

/* A plan that is dropped leaves its memory to the others: pages are scarce where all plans of a
 * large network are built, and those that remain would be slower than alone. */
static void drop_slow(struct trial *t)
{
    const double *ratios[TRIAL_MAX_PLANS];
    for (int i = 0; i < t->n; i++)
        ratios[i] = t->entrants[i].rounds;
    trial_compare(t->plans, t->n, ratios);
    for (int i = 0; i < t->n; i++)
        if (t->plans[i].behind)
            close_entrant(&t->entrants[i]);
}

/* Plan 0 and those from `first` to `end`. Every round begins with another one: the plan that comes
 * first after a rest of the machine, or last, is not always the same. In the first round each plan
 * is built when its turn comes, so that one far behind is gone before the next one is built. */
static enum status play_round(struct trial *t, int first, int end)
{
    int n = end - first + 1;
    for (int k = 0; k < n; k++) {
        int at = (t->round + k) % n, i = at == 0 ? 0 : first + at - 1;
        if (t->plans[i].behind)
            continue;
        TRY(take_turn(t, i));
        if (stop_requested())
            return STATUS_OK;
        if (t->round == 0) {
            add_round(t, i);
            drop_slow(t);
        }
    }
    for (int at = 0; at < n && t->round > 0; at++) {
        int i = at == 0 ? 0 : first + at - 1;
        if (!t->plans[i].behind)
            add_round(t, i);
    }
    drop_slow(t);
    t->round++;
    return STATUS_OK;
}

/* The time is over; or one plan is left, or all that are left are known well. */
static bool is_over(const struct trial *t, int first, int end, double limit_s)
{
    bool decided = t->round >= ENOUGH_ROUNDS;
    for (int i = first; i < end; i++)
        decided = decided && (t->plans[i].behind || t->plans[i].noise <= WELL_KNOWN);
    bool late = (double)t->trained_ns * 1e-9 > limit_s && t->round >= TRIAL_LEAST_ROUNDS;
    return decided || late || t->round == TRIAL_MAX_ROUNDS || stop_requested();
}

int trial_count_together(const struct trial_plan *plans, int n, int first)
{
    double share = plans[0].memory_share;
    int end = first;
    do
        share += plans[end++].memory_share;
    while (end < n && share + plans[end].memory_share <= TRIAL_MOST_MEMORY);
    return end - first;
}

/* Each group has its part of the time. */
static enum status play_groups(struct trial *t)
{
    int first = 1;
    do {
        int end = first < t->n ? first + trial_count_together(t->plans, t->n, first) : first;
        double limit_s = t->request->limit_s * (t->n > 1 ? (double)(end - first) / (t->n - 1) : 1);
        t->round = 0;
        t->trained_ns = 0;
        while (!is_over(t, first, end, limit_s))
            TRY(play_round(t, first, end));
        for (int i = first; i < end; i++)
            close_entrant(&t->entrants[i]);
        first = end;
    } while (first < t->n && !stop_requested());
    return STATUS_OK;
}

enum status trial_run(const struct trial_request *request, struct trial_plan *plans, int n)
{
    double spread;
    struct trial *t = calloc(1, sizeof *t);
    if (!t)
        return status_no_memory(sizeof *t);
    t->request = request;
    t->plans = plans;
    t->n = n;
    for (int i = 0; i < n; i++) {
        plans[i].step_s = plans[i].noise = plans[i].n_rounds = 0;
        plans[i].behind = false;
    }
    enum status st = play_groups(t);
    double first_s =
        plans[0].n_rounds > 0 ? find_median(t->entrants[0].rounds, plans[0].n_rounds, &spread) : 0;
    for (int i = 0; i < n; i++) {
        plans[i].step_s *= first_s;
        close_entrant(&t->entrants[i]);
    }
    log_progress_end();
    free(t);
    return st;
}
