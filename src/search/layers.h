/* layers.h: the best plan that cuts layers over all workers, one stage.
 *
 *     struct layers_request r = {.pricing = {.graph = g, .machine = m, .transport = "threads",
 *                                            .sources = sources, .n_workers = 4, .n_states = 1}};
 *     struct layers_answer *a;
 *     TRY(search_layers(&r, &a));
 *     a->plan, a->step_s, a->layers[i].chosen, a->layers[i].alternatives[0], ...
 *     layers_answer_destroy(a);
 */
#ifndef CLEAVE_SEARCH_LAYERS_H
#define CLEAVE_SEARCH_LAYERS_H

#include "search/pricing.h"

enum { LAYERS_MAX_ALTERNATIVES = 3 };

struct layers_request {
    struct pricing_request pricing; /* samples, first_device are set by the search */
    const char *name;               /* of the plan; NULL: "searched" */
    struct search_options options;
    bool
        ignore_memory; /* else a plan that the estimate puts over the limit is bent until it fits */
};

/* One layer under one choice, everything else being as chosen. */
struct layers_option {
    const char *text; /* "n=4", "k=2 on 2" */
    double seconds;   /* its own and those of its edges */
    struct pricing_cost cost;
    double moves_s; /* of all its edges */
};

struct layers_layer {
    int n_nodes;
    const int *nodes; /* of the graph, first node first */
    struct layers_option chosen;
    int n_alternatives; /* the best others, best first */
    struct layers_option alternatives[LAYERS_MAX_ALTERNATIVES];
};

struct layers_answer {
    arena *memory;       /* owns everything but the plan */
    struct plan *plan;   /* the answer owns it; set to NULL to keep it */
    double step_s;       /* of the additive model */
    double bound_s;      /* no plan of the space is below it */
    bool optimal;        /* proven; false: stopped, or bent to fit */
    bool fits;           /* by the estimate */
    double memory_bytes; /* estimate: the worker that needs most */
    double search_s, pricing_s;
    int n_layers;
    struct layers_layer *layers;
    int n_edges, n_priced_layers, n_priced_edges;
    int64_t n_choices;  /* sum over layers */
    double log10_plans; /* how many plans there are: the product, as a logarithm */
};

/* STATUS_STOPPED if it was stopped before any plan was known. */
enum status search_layers(const struct layers_request *request,
                          struct layers_answer **out) MUST_USE;
/* With costs that are priced already (request->pricing does not count; pricing_s stays 0). */
enum status search_layers_priced(const struct layers_request *request, const struct pricing *p,
                                 struct layers_answer **out) MUST_USE;
void layers_answer_destroy(struct layers_answer *a); /* NULL is fine */

#endif
