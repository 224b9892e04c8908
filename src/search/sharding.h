/* sharding.h: the regions of a tensor that the workers hold or read, and the time of a move from
 * one sharding to another; inside of pricing.h.
 *
 *     own     worker 0: rows 0..13      read   worker 0: rows 0..14
 *             worker 1: rows 14..27            worker 1: rows 13..27        one row each way
 *
 * Pieces of a mesh differ by axis, so sums over all workers are products of sums over axes, and
 * only the sampled workers of topology.h are ever intersected one by one.
 */
#ifndef CLEAVE_SEARCH_SHARDING_H
#define CLEAVE_SEARCH_SHARDING_H

#include "plan/plan.h"
#include "search/topology.h"

/* Where the regions of the workers that are looked at begin and end on each axis, and how many
 * elements they have. Side by side by worker, so that one region is intersected with those of all
 * workers of a node at once; and in single precision, which is exact for extents below 2^24. There
 * are four axes at least, which are multiplied at once. Those that the tensor does not have: 0 ..
 * 1; a worker without a region: all 0. */
enum { SHARDING_USUAL_AXES = 4 };
struct sharding_regions {
    int n_axes;
    const float *begin[SHAPE_MAX_RANK], *end[SHAPE_MAX_RANK]; /* by number in topology->sampled */
    const double *volume;
    const int *run; /* how many from here on are alike, of the same node */
};

/* Sums over the parts of one axis, by place x; NULL: it is not cut. */
struct sharding_axis {
    /* How much of [0, x) all parts have together, each counted; NULL: just x. */
    const int64_t *covers;
    /* How many parts begin before x, and how many end at or before it; on CPUs only, where every
     * message counts. */
    const int32_t *begun, *ended;
};

struct sharding {
    struct sharding_regions at;
    double copies;  /* own: holders of each region, whose sum it is */
    double repeats; /* read: workers that read the same region */
    struct sharding_axis axis[SHAPE_MAX_RANK];
    bool tiles;    /* read: no axis has covers */
    double copy_s; /* of the worker that takes longest to copy an element's byte of its region */
};

/* Makes shardings of one layer after another, and remembers ranges within a layer. */
struct sharding_maker {
    const struct topology *topology;
    arena *memory;
    const int *piece_of; /* by worker, of the layer at hand; -1: none */
    int n_ranges, n_inverses;
    struct sharding_ranges {
        const struct tensor_map *map;
        int axis, loop, n_parts;
        const int64_t *sizes;
        const struct range *ranges;
        struct sharding_axis known;
    } ranges[256];
    struct sharding_inverse {
        const int *workers;
        const int *piece_of; /* by worker; -1: none */
    } inverses[256];
};

void sharding_maker_forget(struct sharding_maker *m);

/* The regions of a tensor that the pieces of a layer touch. */
enum status sharding_make(struct sharding_maker *m, const struct loop_nest *nest,
                          const struct tensor_map *map, const struct plan_layer *layer,
                          struct sharding *out) MUST_USE;

/* Seconds to move a tensor from its owners to its readers, and the gradient back. */
double sharding_move_s(const struct topology *t, const struct sharding *own,
                       const struct sharding *read, double element_bytes);

#endif
