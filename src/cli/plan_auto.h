/* plan_auto.h: `cleave train --plan auto`: the plan that `cleave plan` would recommend for this
 * host, ready to be trained with.
 *
 *     struct auto_plan planned;
 *     TRY(auto_plan_find(&request, &planned));
 *     trainer_options.plan = planned.text;         // lives until auto_plan_free
 */
#ifndef CLEAVE_CLI_PLAN_AUTO_H
#define CLEAVE_CLI_PLAN_AUTO_H

#include "predict/forecast.h"

#include <jansson.h>
#include <stdint.h>

struct auto_request {
    const char *model, *data, *backend;
    int64_t batch, eval_batch, threads, workers, micro_batches; /* 0: not given */
    struct forecast_run run;
    bool no_eval, quiet;
};

struct auto_plan {
    char *text; /* the plan's JSON; NULL: there is none */
    double step_s, error_s;
    json_t *search; /* what `cleave plan --json` says of the candidates */
};

/* Measures unknown costs, for a minute at most, and prints the result on stderr.
 * STATUS_NO_FIT if nothing fits; STATUS_STOPPED by Ctrl-C. */
enum status auto_plan_find(const struct auto_request *request, struct auto_plan *out) MUST_USE;
void auto_plan_free(struct auto_plan *p);

/* Predicted beside measured, on stdout. Nothing without a plan. */
void auto_plan_compare(const struct auto_plan *p, double measured_step_s);

#endif
