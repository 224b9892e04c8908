/* trial.h: plans trained for real on this host, in turns of a moment each, so that all of them meet
 * the machine as fast or as slow as it is; only comparisons within a round count.
 *
 *     struct trial_plan plans[2] = {{.name = "data", .plan = a}, ...};
 *     struct trial_request r = {.forecast = &options, .graph = g, .limit_s = 10};
 *     TRY(trial_run(&r, plans, 2));
 *     plans[0].step_s < plans[1].step_s ...
 *
 * All are compared with the first plan, which is in every round: a plan's result is the median of
 * its ratios to it, times the median of the first one's rounds. A plan that is slower than the
 * fastest one beyond the error bar has no further rounds, so that the time goes to those whose
 * order is in doubt, and is no longer in memory. If memory does not hold all plans at once they are
 * trained in groups, the first plan in each.
 */
#ifndef CLEAVE_SEARCH_TRIAL_H
#define CLEAVE_SEARCH_TRIAL_H

#include "predict/forecast.h"

#include <stdint.h>

struct graph;
struct plan;

enum { TRIAL_MAX_PLANS = 16, TRIAL_LEAST_ROUNDS = 3, TRIAL_MAX_ROUNDS = 2000 };

/* Of the host's memory: so much the plans that are built at the same time may take together. */
#define TRIAL_MOST_MEMORY 0.75

struct trial_request {
    const struct forecast_options *forecast; /* the data, the backend, the threads and the run */
    const struct graph *graph;               /* of a step */
    /* About how long, building and the first round not counted; but every plan that stays has
     * TRIAL_LEAST_ROUNDS, however long they take. */
    double limit_s;
    bool quiet;
};

struct trial_plan {
    const char *name; /* for people */
    const struct plan *plan;
    double memory_share; /* of the host's; 0: little */
    bool aside;          /* no rival: it has one round, and nobody is behind because of it */

    /* ---- set by trial_run ---- */
    double step_s; /* 0: there was no round of it */
    double noise;  /* relative: of step_s against the first one's */
    int n_rounds;
    bool behind; /* clearly: it had no further rounds */
};

/* Stopping (Ctrl-C) is no failure: the rounds so far count. */
enum status trial_run(const struct trial_request *request, struct trial_plan *plans,
                      int n) MUST_USE;

/* How many plans from number `first` on are built at the same time beside plan 0: at least one. */
int trial_count_together(const struct trial_plan *plans, int n, int first);

/* Sets noise and behind, and step_s as if the first plan's were 1, from the ratios to the first
 * plan's rounds: ratios[i] has n_rounds of plan i, for i from 1 on. */
void trial_compare(struct trial_plan *plans, int n, const double *const *ratios);

#endif
