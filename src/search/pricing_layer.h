/* pricing_layer.h: one layer under one choice; inside of pricing.h. */
#ifndef CLEAVE_SEARCH_PRICING_LAYER_H
#define CLEAVE_SEARCH_PRICING_LAYER_H

#include "search/patterns.h"
#include "search/pricing.h"

/* A layer's nodes, resized to the (micro-)batch, and what of its surroundings counts. */
struct layer_case {
    const struct choice_layer *layer;
    int n_nodes;
    struct op_case op[1 + LAYER_MAX_FOLLOWERS];
    struct loop_nest nest[1 + LAYER_MAX_FOLLOWERS];
    bool input_gradient; /* the first node's inputs need one */
    bool folded_sum;     /* a sum that the node before it takes in */
    int n_readers;       /* of the last node's output */
};

struct layer_pricer {
    const struct pricing_request *request;
    const struct topology *topology;
    arena *memory;
    struct pattern_maker *maker;
    int *members; /* scratch, by worker */
};

/* The cuts of all nodes of the layer under the choice are left in `cuts`. */
enum status layer_price(const struct layer_pricer *p, const struct layer_case *c,
                        const struct choice *choice, struct plan_layer *cuts,
                        struct pricing_cost *out) MUST_USE;

#endif
