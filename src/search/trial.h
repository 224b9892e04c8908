/* trial.h: plans trained for real on this host, in turns of a moment each, so that all of them meet
 * the machine in the same weather; what counts is how they compare within a round.
 *
 *     struct trial_plan plans[2] = {{.name = "data", .plan = a}, ...};
 *     struct trial_request r = {.model = "lenet5", .data = "fashion-mnist", .graph = g,
 *                               .batch = 128, .limit_s = 10};
 *     TRY(trial_run(&r, plans, 2));
 *     plans[0].step_s < plans[1].step_s ...
 *
 * Who is clearly behind (contest.h) has no further rounds, so that the time goes to those whose
 * order is in doubt, and is no longer in memory. Those that stay are in memory together.
 */
#ifndef CLEAVE_SEARCH_TRIAL_H
#define CLEAVE_SEARCH_TRIAL_H

#include "predict/forecast.h"
#include "search/contest.h"

#include <stdint.h>

struct graph;
struct plan;

enum { TRIAL_MAX_PLANS = 16, TRIAL_LEAST_ROUNDS = CONTEST_LEAST_ROUNDS };

struct trial_request {
    const char *model, *data, *backend; /* backend NULL: the best of this build */
    const struct graph *graph;
    int64_t batch;
    int threads; /* of each worker; 0: all cores, shared out */
    struct forecast_run run;
    /* About how long, building and the first round not counted; but every plan that stays has
     * TRIAL_LEAST_ROUNDS, whatever they take. */
    double limit_s;
    bool quiet;
};

struct trial_plan {
    const char *name; /* for people */
    const struct plan *plan;
    bool aside; /* these, and what follows, as in struct contestant */

    /* ---- set by trial_run ---- */
    double step_s; /* 0: there was no round of it */
    double noise;
    int n_rounds;
    bool behind;
};

/* Stopping (Ctrl-C) is no failure: the rounds so far count. */
enum status trial_run(const struct trial_request *request, struct trial_plan *plans,
                      int n) MUST_USE;

#endif
