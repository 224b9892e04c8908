/* layers.h: the best plan that cuts layers over all workers, one stage.
 *
 *     struct layers_request r = {.pricing = {.graph = g, .machine = m, .transport = "threads",
 *                                            .sources = sources, .n_workers = 4, .n_states = 1}};
 *     struct layers_answer *a;
 *     TRY(search_layers(&r, &a));
 *     a->plan, a->step_s, a->choice[layer], ...
 *     layers_answer_destroy(a);
 */
#ifndef CLEAVE_SEARCH_LAYERS_H
#define CLEAVE_SEARCH_LAYERS_H

#include "search/pricing.h"

struct layers_request {
    struct pricing_request pricing; /* samples, first_device are set by the search */
    const char *name;               /* of the plan; NULL: "searched" */
    struct search_options options;
    bool ignore_memory; /* else a plan over the limit, by the estimate, is bent until it fits */
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
    double n_sums; /* that were compared: the work, whatever machine does it */
    int n_layers;
    const int *choice; /* by layer of the pricing */
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
