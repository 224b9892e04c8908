/* estimate.h: about what a step of any plan takes, in a millisecond, and what it takes at least.
 *
 * It decides in which order plans go through the clock, and which of them need not. Nothing is
 * lowered: of each layer the longest piece is taken, and of what moves a few workers' shares.
 *
 *     t(layer)  forward and backward of the largest piece by the roofline
 *               + what a worker reads of the layer's inputs and does not hold, there and back
 *     sync      2 (h - 1) / h * bytes of weights over the slowest link between the h holders
 *
 *     one stage   sum of t + what of the sync does not hide behind backward
 *     pipeline    sum over stages + the longest stage of all other micro-batches + likewise
 *
 * The bound counts operations alone, of the worker that has most, and the sums of gradients: no
 * overlap, schedule or link makes a step shorter, whatever else the clock knows.
 */
#ifndef CLEAVE_SEARCH_ESTIMATE_H
#define CLEAVE_SEARCH_ESTIMATE_H

#include "machine/machine.h"
#include "plan/plan.h"
#include "profile/costs.h"

struct plan_estimate {
    double step_s, bound_s;
    double compute_s; /* of step_s, of the longest stage */
    double move_s, sync_s;
};

enum status estimate_plan(const struct graph *graph, const struct plan *plan,
                          const struct machine *machine, struct cost_scales scales,
                          struct plan_estimate *out) MUST_USE;

#endif
