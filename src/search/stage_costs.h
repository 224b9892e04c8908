/* stage_costs.h: the cost of a run of layers as one stage on some workers; inside of pipelines.h.
 */
#ifndef CLEAVE_SEARCH_STAGE_COSTS_H
#define CLEAVE_SEARCH_STAGE_COSTS_H

#include "search/pricing.h"
#include "search/topology.h"

/* The layers cut in one way on one range of workers, with sums over their first l layers. */
struct stage_setting {
    int first_worker, n_workers;
    bool only_batch;
    struct pricing *pricing;
    int *choice;                                                     /* by layer */
    double *time_s, *forward_s, *step_s, *weight_bytes, *kept_bytes; /* [n_layers + 1] */
    double *moves_s; /* [n_blocks + 1][n_blocks + 1]: inside blocks i .. j - 1 */
};

/* Where stages may end: block b is layers first[b] .. first[b + 1] - 1. */
struct stage_blocks {
    int n;
    int *first;           /* [n + 1] */
    double *sample_bytes; /* [n + 1]: of one sample, that pass from before block b to behind */
};

enum status stage_find_blocks(const struct pricing *p, arena *memory,
                              struct stage_blocks *out) MUST_USE;

/* Prices and cuts all layers on these workers; `memory` holds the arrays, and the caller destroys
 * setting->pricing. */
enum status stage_setting_create(const struct pricing_request *request,
                                 const struct search_options *options,
                                 const struct stage_blocks *blocks, arena *memory,
                                 struct stage_setting *out) MUST_USE;

/* Of blocks first .. end - 1. */
struct stage_cost {
    double time_s;                                /* forward and backward of a micro-batch */
    double forward_s;                             /* of it */
    double step_s;                                /* once a step: sums of gradients, updates */
    double weight_bytes, kept_bytes, input_bytes; /* the last two of a micro-batch */
};
struct stage_cost stage_cost_of(const struct stage_setting *s, const struct stage_blocks *blocks,
                                int first, int end);

/* Seconds from n workers, from first_worker on, to the next_n from `next` on, one way. */
double stage_cross_s(const struct topology *t, int first_worker, int n, int next, int next_n,
                     double n_bytes);

#endif
