/* bench_limits.h: how far a plan scales, and what stops it: predicted steps over numbers of
 * workers, at a fixed batch and at one that grows with them.
 *
 * A step's time is split so that its parts add up:
 *
 *     step = compute + wait + exposed
 *     free = compute + wait              the step, did transfers and sums take no time
 *
 * `compute` is a worker's, on average; `exposed` is what communication adds; `wait` is what is left
 * of a step with free communication: for slower workers, for the bubbles of a pipeline, for data.
 * `communicate`, a step in which computing takes no time, is in none of these: what of it hides
 * behind computing costs nothing.
 */
#ifndef CLEAVE_CLI_BENCH_LIMITS_H
#define CLEAVE_CLI_BENCH_LIMITS_H

#include "base/arena.h"
#include "cli/bench_layers.h"
#include "cli/forecast.h"
#include "cli/split.h"

enum { LIMITS_MAX_POINTS = 32 };

/* More workers are worth their price as long as each doubling gives this much speed. */
#define LIMITS_WORTH 1.5

struct limits_options {
    struct forecast_options forecast; /* its batch is the fixed one */
    struct split_options split;
    const char *plan, *workers, *inter, *latency;
    int64_t batch_per_worker;
    bool json;
};

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
    struct limits_point points[LIMITS_MAX_POINTS];
};

struct limits_study {
    const struct limits_options *options;
    arena *memory;
    const char *model, *machine;
    int n_counts, counts[LIMITS_MAX_POINTS]; /* of workers, ascending, from 1 */
    struct limits_curve fixed, growing;
};

/* Predicts all points (bench_limits_run.c). A number of workers for which the plan cannot be made
 * ends its curve. */
enum status limits_predict(struct limits_study *s) MUST_USE;

/* ---- figures (bench_limits_figures.c) ---- */

/* Images per second against those of one worker. */
double limits_speedup(const struct limits_curve *c, int i);
/* The same with free communication. */
double limits_free_speedup(const struct limits_curve *c, int i);

/* The number of workers, interpolated, from which on communication takes longer than computing; or
 * from which on what of it is exposed does. 0: there is none. */
double limits_crossing(const struct limits_curve *c, bool exposed);

/* The largest number of workers that fits and whose speed against every smaller one is at least
 * LIMITS_WORTH for each doubling. */
int limits_worth(const struct limits_curve *c);

/* Amdahl's law from two points of the curve of a fixed batch, one worker and the most: computing
 * time that does not shrink.
 *
 *     t(n) = serial + (t(1) - serial) / n
 *
 * Work that only comes with the cuts, copies for example, is among it. */
double limits_serial_s(const struct limits_curve *c, int type);
/* Over all types, as a share of t(1). */
double limits_serial_share(const struct limits_curve *c);
double limits_amdahl(double serial_share, int workers);

/* Tables or JSON on stdout (bench_limits_report.c). */
enum status limits_print_tables(const struct limits_study *s) MUST_USE;
enum status limits_print_json(const struct limits_study *s) MUST_USE;

#endif
