/* limits.h: how far a plan scales, and its limits: predicted steps over numbers of
 * workers, at a fixed batch and at one that grows with them.
 *
 * A step's time is split so that its parts add up:
 *
 *     step = compute + wait + exposed
 *     free = compute + wait              the step, did transfers and sums take no time
 *
 * `compute` is a worker's, on average; `exposed` is what communication adds; `wait` is the rest
 * of a step with free communication: for slower workers, for the bubbles of a pipeline, for data.
 * `communicate`, a step in which computing takes no time, is in none of these: communication that
 * computing hides costs nothing.
 */
#ifndef CLEAVE_BENCH_LIMITS_H
#define CLEAVE_BENCH_LIMITS_H

#include "base/arena.h"
#include "bench/bench.h"
#include "bench/layer_times.h"

/* More workers are worth their price as long as each doubling gives this much speed. */
#define LIMITS_WORTH 1.5

struct limits_point {
    int workers;
    int64_t batch;
    double step_s, error_s;
    double compute_s, wait_s, exposed_s;
    double free_s, communicate_s;
    double type_s[TYPE_COUNT]; /* of compute_s */
    int64_t memory_bytes, bytes_moved;
    bool fits;
};

struct limits_curve {
    bool grows;           /* the batch, with the workers */
    int64_t batch;        /* of all workers, or where it grows of one */
    const char *ended_at; /* why there are no points for more workers; NULL: there are all */
    int n_points;         /* at least one: that of one worker */
    struct limits_point points[BENCH_MAX_COUNTS];
};

struct limits_study {
    const struct bench_limits *options;
    arena *memory;
    const char *model, *machine;
    int n_counts, counts[BENCH_MAX_COUNTS]; /* of workers, ascending, from 1 */
    int cut_at; /* the machine's devices, which cut the usual counts; 0: they did not */
    struct limits_curve fixed, growing;
};

/* The results, and the figures that they hold beside the points (limits_report.c). */
void limits_report(const struct limits_study *s, struct results *r);

#endif
