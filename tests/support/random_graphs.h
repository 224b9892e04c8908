/* random_graphs.h: small random networks for tests, the same ones for the same seed.
 *
 *     struct draw d = draw_begin(seed, 0);
 *     struct graph *g = draw_graph(&d, &(struct graph_wish){0});
 *     ...
 *     graph_print(g, stdout);
 *     graph_destroy(g);
 *
 * Images of 5x5 to 12x12 with 1 to 7 channels, 2 to 5 classes, batches of 1 to 9; 3 to 12 layers
 * and their activations over all ops, with residual sums, branches, and layers that several others
 * read.
 */
#ifndef CLEAVE_TESTS_RANDOM_GRAPHS_H
#define CLEAVE_TESTS_RANDOM_GRAPHS_H

#include "base/random.h"
#include "model/graph.h"
#include "testing.h"

/* ---- numbers ---- */

struct draw {
    struct random_key key;
    uint64_t next;
};

struct draw draw_begin(uint64_t seed, uint32_t sequence);

/* least <= number <= most */
int draw_number(struct draw *d, int least, int most);

bool draw_chance(struct draw *d, int percent);

void draw_shuffle(struct draw *d, int n, int *values);

/* ---- layers ---- */

struct graph_wish {
    bool well_behaved; /* no batch norm divides by a tiny deviation: for single precision */
    bool wide;         /* up to 40 channels, over the blocks of vector layouts */
};

/* ---- networks ---- */

struct graph *draw_graph(struct draw *d, const struct graph_wish *wish);

/* ---- printing ---- */

void graph_print(const struct graph *g, FILE *to);

#endif
