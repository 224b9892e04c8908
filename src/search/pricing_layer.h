/* pricing_layer.h: one layer under one choice; inside of pricing.h. */
#ifndef CLEAVE_SEARCH_PRICING_LAYER_H
#define CLEAVE_SEARCH_PRICING_LAYER_H

#include "search/pricing.h"
#include "search/sharding.h"

/* A layer's nodes, resized to the (micro-)batch, and the facts about its surroundings that count.
 */
struct layer_case {
    const struct choice_layer *layer;
    int n_nodes;
    struct op_case op[1 + LAYER_MAX_FOLLOWERS];
    struct loop_nest nest[1 + LAYER_MAX_FOLLOWERS];
    unsigned learns[1 + LAYER_MAX_FOLLOWERS]; /* of each node: graph_node_learns */
    bool input_gradient;                      /* the first node's inputs need one */
    bool folded_sum;                          /* a sum that the node before it takes in */
    int n_readers;                            /* of the last node's output */
};

struct layer_pricer {
    const struct pricing_request *request;
    const struct topology *topology;
    arena *memory;
    struct sharding_maker *maker;
    int *members; /* scratch, by worker */
};

/* The cuts of all nodes of the layer under the choice are left in `cuts`. */
enum status layer_price(const struct layer_pricer *p, const struct layer_case *c,
                        const struct choice *choice, struct plan_layer *cuts,
                        struct pricing_cost *out) MUST_USE;
/* The same for cuts that need be no choice: cuts[i] is that of node i, its workers are numbers of
 * the topology. */
enum status layer_price_cuts(const struct layer_pricer *p, const struct layer_case *c,
                             const struct plan_layer *cuts, struct pricing_cost *out) MUST_USE;

/* The readers of the outputs of a graph's nodes, for (micro-)batches of so many samples. */
struct layer_readers {
    const struct graph *graph;
    int64_t samples;
    const bool *needs_gradient; /* by node: a weight that learns lies in it or before it */
    const int *count;           /* by node */
};

enum status layer_readers_find(const struct graph *g, int64_t samples, arena *memory,
                               struct layer_readers *out) MUST_USE;
/* All but the loop nests. */
void layer_case_fill(const struct layer_readers *r, const struct choice_layer *layer,
                     struct layer_case *out);

#endif
