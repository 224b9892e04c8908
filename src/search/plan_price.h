/* plan_price.h: the time of a step of a given plan by the additive model (pricing.h), found in a
 * few milliseconds, and a lower bound of it. Nothing is lowered, and costs are rooflines.
 *
 * The price decides in which order plans go through the clock, and which of them need not. With
 * t(s) the time of a stage's forward and backward on one micro-batch and of the moves inside it,
 * x(s) that of the moves from other stages, and g(s) that of updates and of those sums of
 * gradients that do not hide behind backward, a step of m micro-batches takes (as in pipelines.h)
 *
 *     sum over s of t(s) + x(s)  +  max over s of (m - 1) t(s) + g(s)
 *
 * If m does not divide the batch, m is as many micro-batches of the commoner size as make a batch.
 *
 * The bound is the arithmetic of convolutions and linear layers alone, shared evenly by the workers
 * of a stage: no cut, overlap, schedule or link makes a step shorter.
 */
#ifndef CLEAVE_SEARCH_PLAN_PRICE_H
#define CLEAVE_SEARCH_PLAN_PRICE_H

#include "machine/machine.h"
#include "plan/plan.h"
#include "profile/costs.h"

struct plan_price {
    double step_s, bound_s;
    double compute_s, sync_s; /* of step_s, of the stage that has most */
};

enum status plan_price(const struct graph *graph, const struct plan *plan,
                       const struct machine *machine, enum precision precision,
                       struct cost_scales scales, struct plan_price *out) MUST_USE;

#endif
