/* plan_auto.h: `cleave train --plan auto`: the plan that `cleave plan` would recommend for this
 * host, ready to be trained with.
 *
 *     struct auto_plan planned;
 *     TRY(auto_plan_find(options, &planned));
 *     trainer_options.resolved_plan = planned.plan; // lives until auto_plan_free
 */
#ifndef CLEAVE_CLI_PLAN_AUTO_H
#define CLEAVE_CLI_PLAN_AUTO_H

#include "search/chooser.h"

#include <jansson.h>

struct auto_plan {
    struct plan *plan; /* NULL: there is none */
    double step_s, error_s;
    json_t *search; /* what `cleave plan --json` says of the candidates */
};

/* The options say what is trained, and on how many workers at most; the machine and the limits of
 * time are set here. Measures unknown costs, for a minute at most, and prints the result on stderr.
 * STATUS_NO_FIT if nothing fits; STATUS_STOPPED by Ctrl-C. */
enum status auto_plan_find(struct chooser_options options, struct auto_plan *out) MUST_USE;
void auto_plan_free(struct auto_plan *p);

/* Predicted beside measured, on stdout. Nothing without a plan. */
void auto_plan_compare(const struct auto_plan *p, double measured_step_s);

#endif
