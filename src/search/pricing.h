/* pricing.h: the cost of a layer under a choice, and of an edge under two, without lowering.
 *
 * The additive model (docs/cost-model.md, "The search's own model"): a step takes the sum over
 * layers of
 *
 *     compute     forward and backward of the slowest piece, and the update of its weights
 *     statistics  the sums of batch norm's statistics, where its n, h or w is cut
 *     sync        summing the gradients of weights over the pieces that share them
 *
 * and over edges of the moves: the parts of a tensor that a consumer's pieces read and do not own,
 * forward, and the same back, by the busiest port, card or core. Nothing overlaps; hidden_sync says
 * how much of `sync` is taken to hide behind backward. The clock knows better, and has the last
 * word; this is the model that can be minimised exactly.
 *
 * Equal layers and equal edges are priced once and share their tables.
 */
#ifndef CLEAVE_SEARCH_PRICING_H
#define CLEAVE_SEARCH_PRICING_H

#include "profile/costs.h"
#include "search/choices.h"
#include "search/problem.h"

struct pricing_request {
    const struct graph *graph;
    const struct machine *machine;
    const char *transport; /* whose curves count on CPU hosts: "threads", "mpi" */
    /* The costs of computing, by kind of device. */
    const struct cost_source *sources;
    enum precision precision;
    int first_device, n_workers; /* worker w is on device (first_device + w) % n_devices */
    int64_t samples;             /* of a (micro-)batch; 0: the graph's batch */
    int n_states;                /* of the optimizer, per weight */
    int64_t bucket_bytes;        /* 0: 25 MiB */
    enum plan_sync sync;         /* how gradients are summed; a ring by default */
    int node_size;               /* PLAN_HIERARCHICAL: workers of a node */
    double hidden_sync;          /* 0 .. 1 */
    bool norms_by_worker;        /* plan_norms_by_worker */
    int max_choices;             /* of a layer; 0: 400 */
    bool only_batch;             /* cut along the batch alone */
};

/* Seconds of one (micro-)batch but sync_s and update_s, which are of a step; bytes of the worker
 * that has most. */
struct pricing_cost {
    double forward_s, backward_s, update_s, statistics_s;
    double sync_s;       /* all of it; (1 - hidden_sync) counts */
    double inside_s;     /* moves between the layer's own nodes (partial sums) */
    double weight_bytes; /* of the gradients of all parameters it holds */
    double kept_bytes;   /* activations and gradients of one (micro-)batch, none freed */
};

/* The weight of a choice in the sum. */
double pricing_total(const struct pricing_request *request, const struct pricing_cost *cost);

/* A worker's memory for it: weights, gradients and the optimizer's state, and kept activations. */
double pricing_bytes(const struct pricing_request *request, const struct pricing_cost *cost);

/* The part of parameters of weight_bytes: weights and so many older versions of them, masters,
 * gradients, the optimizer's state. */
double pricing_weights_bytes(const struct pricing_request *request, double weight_bytes,
                             int versions);

struct pricing_layer {
    struct choice_layer nodes;
    int n_choices;
    const struct choice *choices;
    const struct pricing_cost *costs; /* by choice */
    double *totals;                   /* pricing_total of each */
};

/* From layer `from` to layer `to`; several for layers with several inputs. */
struct pricing_edge {
    int from, to;
    int node, input;     /* graph: node number of the reader, and which of its inputs */
    const double *table; /* [choices of from][choices of to], seconds there and back */
    double tensor_bytes; /* of a (micro-)batch */
};

struct pricing {
    arena *memory; /* owns everything below */
    struct pricing_request request;
    int n_layers;
    struct pricing_layer *layers;
    int *layer_of; /* by node of the graph; -1: the input */
    int n_edges;
    struct pricing_edge *edges;
    int n_priced_layers, n_priced_edges; /* different ones */
    struct search_problem problem;       /* the same, for search_solve */
};

/* Prices everything. `options` (NULL: none) may stop it: STATUS_STOPPED. */
enum status pricing_create(const struct pricing_request *request,
                           const struct search_options *options, struct pricing **out) MUST_USE;
void pricing_destroy(struct pricing *p); /* NULL is fine */

/* The same costs with another part of the sums of gradients taken to hide: new totals. */
void pricing_hide_sync(struct pricing *p, double hidden_sync);

#endif
