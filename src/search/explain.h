/* explain.h: why a plan is as it is: the time that each layer's cut saves, and the plan's limits.
 *
 *     struct explanation *e;
 *     TRY(explain_plan(&predict_request, candidate, &e));
 *     e->layers[i].cut, e->layers[i].seconds, e->layers[i].other, e->layers[i].other_s
 *     e->limit ...
 *     explanation_destroy(e);
 */
#ifndef CLEAVE_SEARCH_EXPLAIN_H
#define CLEAVE_SEARCH_EXPLAIN_H

#include "search/candidates.h"

enum { EXPLAIN_TEXT_BYTES = 96 };

/* A run of neighbouring layers that are cut alike. Times are those of the additive model
 * (pricing.h): computing, sums and the moves of the layers' inputs, there and back. A move of their
 * output is in the time of its readers. */
struct explained_layers {
    const char *first, *last; /* names; the same for one layer */
    int n_layers;
    int stage;
    char cut[EXPLAIN_TEXT_BYTES];   /* "n=4", "whole" */
    double seconds;                 /* -1: not known */
    char other[EXPLAIN_TEXT_BYTES]; /* the best other cut of the layer for which that would cost
                                       least; "": there is none */
    double other_s;                 /* more that it would take, that one layer changed alone */
};

/* The parts of a step's time, for the busiest worker. */
struct explained_limits {
    int worker; /* that computes longest */
    double compute_s, wait_s;
    double free_s;     /* the step, did communication take no time */
    const char *layer; /* that computes longest there, and how long */
    double layer_s;
    const char *link;                  /* the busiest; NULL: none is used */
    double link_share;                 /* of the step that it carries something */
    int64_t needed_bytes, limit_bytes; /* where memory is scarcest; limit 0: not known */
    int tight_worker;
};

struct explanation {
    arena *memory;
    int n_layers;
    struct explained_layers *layers;
    struct explained_limits limits;
    double step_s;
};

/* ---- explain_layers.c ---- */

/* The price of a layer under a plan, and of its best other cut. */
struct priced_node {
    bool known;
    double seconds;
    char other[EXPLAIN_TEXT_BYTES]; /* "": none */
    double other_s;                 /* more */
};

/* priced[node] of the first node of each layer of the search. Not for machines of so many workers
 * that pricing would take longer than the rest: nothing is known then. */
enum { EXPLAIN_MOST_WORKERS = 32 };
enum status explain_price_layers(const struct predict_request *request, const struct prediction *p,
                                 const struct plan *plan, struct priced_node *priced) MUST_USE;

/* ---- all of it ---- */

/* `request` is the one that predicts the candidate's plan. */
enum status explain_plan(const struct predict_request *request, const struct candidate *c,
                         struct explanation **out) MUST_USE;
void explanation_destroy(struct explanation *e); /* NULL is fine */

#endif
