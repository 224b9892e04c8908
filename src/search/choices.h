/* choices.h: in how many ways a layer can be cut.
 *
 * The search does not cut every node of the graph by itself. A layer here is a node and the nodes
 * behind it that are cut like it anyway because that costs nothing: batch norm, activations,
 * dropout, each the only reader of the one before.
 *
 *     conv1 ──► bn1 ──► relu ──► pool        layers: {conv1, bn1, relu}, {pool}
 *
 * A choice cuts the loops of the first node into parts, and says on which workers the pieces run;
 * the followers are cut along the axes of the tensor that they pass on. Where a summed loop is cut,
 * the output is a partial sum; followers then cannot go on with it: they are cut along channels in
 * its place, and the sum is taken between the two (a reduce-scatter).
 *
 * Left out, because they never help: cuts of a window's loops (r, s of a convolution), a width cut
 * finer than the height or much coarser, pieces of less than two rows, and numbers of parts that
 * are neither divisors of the workers nor powers of two (up to eight workers: any). Cuts of more
 * than three loops at once are left out, and so are cuts of more than two that use a part of the
 * workers. Loops may be cut by any number of parts that their extent allows; the batch by as many
 * as it has samples.
 */
#ifndef CLEAVE_SEARCH_CHOICES_H
#define CLEAVE_SEARCH_CHOICES_H

#include "machine/machine.h"
#include "plan/plan.h"

enum { LAYER_MAX_FOLLOWERS = 6, CHOICE_MAX_CUTS = 3 };

/* How pieces are laid over workers where there are fewer pieces than workers. */
enum choice_place {
    PLACE_SPREAD, /* piece i on worker i * workers / pieces: near the samples it gets */
    PLACE_PACKED, /* on the first workers, which are near each other */
    PLACE_FAST,   /* on the fastest devices */
};

struct choice {
    int n_cuts;
    struct plan_cut cut[CHOICE_MAX_CUTS]; /* of the first node's loops, outermost first */
    int n_pieces;
    enum choice_place place;
    const int *workers; /* n_pieces of them */
    bool partial;       /* the first node's output is a partial sum */
};

/* Which nodes one layer of the search is made of. */
struct choice_layer {
    int n_nodes;
    int node[1 + LAYER_MAX_FOLLOWERS]; /* of the graph, the first node first */
};

/* The layers of a graph, in the order of their first nodes; the input (node 0) is in none.
 * layer_of[node] is filled for all nodes, -1 for node 0. */
enum status choice_find_layers(const struct graph *graph, arena *memory,
                               struct choice_layer **layers, int *n_layers,
                               int **layer_of) MUST_USE;

struct choice_request {
    const struct graph *graph;
    int64_t samples; /* in a (micro-)batch */
    const struct machine *machine;
    int first_device; /* worker w of n_workers is on device first_device + w */
    int n_workers;
    const double *speed; /* by worker; NULL: all alike. Parts of a loop over workers of different
                            speed get sizes in proportion. */
    int max_choices;     /* 0: 400; beyond, those with the fewest cuts are kept */
    bool only_batch;     /* cuts of the batch alone */
};

/* The choices of a layer, the whole on one worker first. Every one of them passes plan_check and
 * can be lowered. */
enum status choice_list(const struct choice_request *request, const struct choice_layer *layer,
                        arena *memory, const struct choice **choices, int *n_choices) MUST_USE;

/* The plan's cuts and workers of node number `member` of the layer under a choice (workers are
 * numbered from 0, the lists are allocated in `memory`). stage and recompute stay as they are. */
enum status choice_write(const struct graph *graph, const struct choice_layer *layer, int member,
                         const struct choice *c, arena *memory, struct plan_layer *out) MUST_USE;

/* "n=4 p=2", or "whole"; with fewer pieces than workers " on 2" follows. */
const char *choice_text(const struct graph *graph, const struct choice_layer *layer,
                        const struct choice *c, int n_workers, char *text, size_t size);

#endif
