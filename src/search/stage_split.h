/* stage_split.h: the best way to split a row of blocks into stages on a row of workers: the dynamic
 * programme of pipelines.h, which knows neither layers nor devices.
 *
 * Stage s has the next blocks and the next slots (a slot is some workers); all blocks and all slots
 * are used. A stage, and the way from one stage to the next, adds to a sum and has a length; wanted
 * is the least total(sum of sums, greatest length) for each number of stages. From the last stage
 * to the first, with S(s, i, k, r) the pairs (sum, greatest) of the ways to put blocks i.. into s
 * stages on slots k.., the first of them on r slots, that no other beats in both:
 *
 *     S(1, i, k, r)  =  stage(i .. end, k, r)                                  k + r = slots
 *     S(s, i, k, r)  =  unbeaten of  stage(i .. j, k, r) + cross(j, k, r, r') + S(s-1, j, k+r, r')
 *
 * Where a stage with s - 1 behind it has s micro-batches under way and no more, one cannot follow
 * the other faster than a round trip through all of them over s: with `rounds` above 0 the length
 * of S(s, ..) is at least rounds * sum / s.
 */
#ifndef CLEAVE_SEARCH_STAGE_SPLIT_H
#define CLEAVE_SEARCH_STAGE_SPLIT_H

#include "base/arena.h"
#include "search/problem.h"

enum { SPLIT_MAX_STAGES = 16 };

struct split_cost {
    double sum, longest;
};

struct split_problem {
    int n_blocks, n_slots, max_stages;
    double rounds;
    void *user;
    /* Blocks first .. end - 1 on slots slot .. slot + n - 1, with so many stages behind it. False:
     * that cannot be. */
    bool (*stage)(void *user, int first, int end, int slot, int n, int behind,
                  struct split_cost *cost);
    /* From there, before block `at`, to the next_n slots behind. Asked once for each. */
    struct split_cost (*cross)(void *user, int at, int slot, int n, int next_n);
    /* Must not fall where sum or longest grows. */
    double (*total)(void *user, int n_stages, const struct split_cost *cost);
    struct search_options options;
};

struct split_stage {
    int first, end, slot, n_slots;
};

struct split_found {
    int n_stages; /* 0: there is no way */
    double total;
    struct split_cost cost;
    struct split_stage stages[SPLIT_MAX_STAGES];
};

/* found[s] for s = 1 .. max_stages (at most SPLIT_MAX_STAGES): room for max_stages + 1. Stopped, it
 * has the ways with fewer stages. */
enum status split_solve(const struct split_problem *p, struct split_found *found) MUST_USE;

#endif
