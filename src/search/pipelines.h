/* pipelines.h: the best pipelines: stages x replicas x cuts inside stages x micro-batches x
 * schedule x recomputation, under each device's memory.
 *
 * Layers in graph order; stage s has the next layers and the next workers (devices). Stages end
 * where a single tensor passes from one layer to the next (anywhere, if a network has few such
 * places). The costs of a stage's layers on r workers are known from pricing: either all cut along
 * the batch, or, up to eight workers of a node, cut as the per-layer optimum for r
 * workers has it, whichever is less. Beyond 16 workers stages get sixteenths of them.
 *
 * With t(s) the time of a stage's forward and backward on one micro-batch (and of forward again,
 * where activations do not fit and are recomputed), x(s) that of a transfer to the next stage, and
 * g(s) that of summing gradients and updating, a step of m micro-batches takes
 *
 *     sum over s of t(s) + 2 x(s)  +  max over s of max((m - 1) t(s) + g(s), (m - 1) 2 x(s))
 *
 * (where m does not divide the batch t is of the largest and m as many of those as make a batch),
 * and one of pipedream, of a window of w steps, with t' = t + g,
 *
 *     (sum over s of t'(s) + 2 x(s)  +  (w - 1) max over s of max(t'(s), 2 x(s))) / w
 *
 * A stage of 1f1b or pipedream with b behind it has b + 1 micro-batches under way, so these follow
 * each other no faster than every (b + 1)-th part of a round trip to the end and back; gpipe has
 * all under way, and holds their activations.
 *
 * stage_split.h has the dynamic programme (after section 3.1 of Narayanan et al. 2019), which is
 * exact for this cost.
 */
#ifndef CLEAVE_SEARCH_PIPELINES_H
#define CLEAVE_SEARCH_PIPELINES_H

#include "search/layers.h"

struct pipelines_request {
    struct pricing_request pricing;    /* samples, first_device, only_batch are set by the search */
    int max_stages;                    /* 0: 8; at most 16 */
    int micro_batches;                 /* 0: tries several */
    bool without[PLAN_SCHEDULE_COUNT]; /* schedules that are not wanted */
    bool synchronous;                  /* no pipedream, either */
    bool no_recompute;
    bool only_batch; /* no cuts inside stages but of the batch */
    struct search_options options;
};

struct pipelines_found {
    struct plan *plan; /* the caller's: plan_destroy */
    double step_s;
    double memory_bytes; /* estimate: the worker that needs most */
    bool recompute;      /* in some stage */
    int n_stages, micro_batches;
};

/* The best plans, best first, at most `room`: one for each schedule and number of stages (2 and
 * more), as far as they fit by the estimate. *n_found may be 0: nothing fits, there are too few
 * workers or layers, or it was stopped. */
enum status search_pipelines(const struct pipelines_request *request, struct pipelines_found *found,
                             int room, int *n_found) MUST_USE;

#endif
