/* random_plans.h: random plans for random networks (random_graphs.h), the same ones for the same
 * seed: any cuts, stages, servers, schedules and sums that a plan file can say.
 *
 *     struct sketch s = draw_sketch(&d, graph);
 *     char *text = write_sketch(graph, &s);          // JSON; plan_parse may refuse it with a
 * reason
 *     ...
 *     free(text);
 */
#ifndef CLEAVE_TESTS_RANDOM_PLANS_H
#define CLEAVE_TESTS_RANDOM_PLANS_H

#include "plan/plan.h"
#include "random_graphs.h"

enum { MAX_WORKERS = 7, MAX_STAGES = 3, MAX_LAYERS = 40, MAX_STEPS = 3 };

/* ---- plans, in a form that can be changed piece by piece ---- */

struct sketch_cut {
    int loop, n_parts;
    bool sized; /* written as sizes, not as a number of parts */
    int size[MAX_WORKERS];
};

struct sketch_layer {
    int stage;
    bool named; /* under "layers" with cuts of its own; else it takes the default */
    int n_cuts;
    struct sketch_cut cut[OP_MAX_LOOPS];
    int n_workers, workers[MAX_WORKERS]; /* 0: not written */
    bool recompute;
};

struct sketch {
    int n_workers, n_stages, n_layers;
    struct {
        int n_workers, workers[MAX_WORKERS];
    } stages[MAX_STAGES];
    struct sketch_layer layers[MAX_LAYERS];
    const char *default_use; /* "n", "channels", ...; NULL: no default */
    int default_parts;
    int n_servers, servers[MAX_WORKERS];
    int micro_batches, workers_per_node, n_steps;
    long long bucket_bytes;
    const char *schedule, *sync;
    bool norms_by_worker;
    int segments; /* recomputed so; 0: layers by name are */
};

/* ---- drawing one ---- */

int count_pieces(const struct sketch_layer *layer);

struct sketch draw_sketch(struct draw *d, const struct graph *g);

/* ---- as JSON ---- */

/* The caller frees it. */
char *write_sketch(const struct graph *g, const struct sketch *s);

#endif
