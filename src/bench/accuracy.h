/* accuracy.h: predictions beside measured training steps, for networks and plans.
 *
 * Predicting and training take turns, for the speed of a machine that others use, too, changes by
 * tens of percent within a second: in each round every plan is predicted, which measures costs that
 * the profile lacks (with --fresh all of them), and trained between the rounds, twenty times a
 * second. A turn's time is the mean of its steps without the tenths at both ends; predicted,
 * measured and error of a case are the medians of its turns. How far the turns'
 * times are apart is the noise of the machine, below which no prediction can be told from a better
 * one. Where the errors of a plan's turns are so far apart that theirs is in doubt, it may get more
 * turns than others; how large the error is makes no difference to that.
 */
#ifndef CLEAVE_BENCH_ACCURACY_H
#define CLEAVE_BENCH_ACCURACY_H

#include "base/arena.h"
#include "bench/bench.h"

/* Less than this, and the error of a plan is not in doubt. */
static const double accuracy_little_doubt = 0.02;

/* One plan of a task. */
struct accuracy_case {
    const char *plan; /* a strategy or a file */
    int workers;
    const char *skipped; /* why it was not run; then nothing below counts */

    int n_predicted;
    double predicted_rounds_s[ACCURACY_MAX_ROUNDS];
    double predicted_s, error_s; /* of a step: their median, and the error bar */
    double share[COST_ORIGIN_COUNT];
    int64_t predicted_memory, predicted_moved; /* bytes */

    int window;      /* steps that one run of its programs covers */
    int64_t n_steps; /* of the last turn that counted */
    int n_rounds;    /* that were trained so far */
    double rounds_s[ACCURACY_MAX_ROUNDS];
    int64_t memory, moved; /* bytes */
};

/* A network that is trained on one kind of data. */
struct accuracy_task {
    const char *model, *data;
    struct graph *graph; /* NULL: it cannot be built for the data, and all cases say why */
    char data_name[64];
    int64_t n_train; /* images of an epoch */
    int n_cases;
    struct accuracy_case *cases;
    double weight; /* its share of the work, for guessing the remaining time */
};

struct accuracy_study {
    const struct bench_accuracy *options;
    arena *memory;
    int n_tasks;
    struct accuracy_task *tasks;
    int64_t began_ns;
    double weight_done; /* of the tasks that are done; all of them have 1 */
};

/* Removes the file, and those that SQLite may have put beside it. */
void accuracy_clear_profile(const char *path);

/* Predicts and trains all cases of one task (accuracy_run.c). A plan that cannot be used gets its
 * reason in `skipped`; any other failure is returned. */
enum status accuracy_measure(struct accuracy_study *s, struct accuracy_task *task) MUST_USE;

/* An error that is about these cases alone becomes their reason; any other is returned. */
enum status accuracy_skip(struct accuracy_study *s, struct accuracy_case *cases, int n,
                          enum status st) MUST_USE;

/* ---- figures (accuracy_report.c) ---- */

/* Of up to ACCURACY_MAX_ROUNDS. */
double accuracy_median(const double *values, int n);
/* The standard error of the mean of the turns' errors; INFINITY for fewer than two. */
double accuracy_doubt(const struct accuracy_case *c);

/* Reports a task when it is done, and in the end all of them. The latter is STATUS_FAILED
 * where memory or bytes were not as predicted. */
void accuracy_report_task(const struct accuracy_study *study, const struct accuracy_task *s,
                          struct results *r);
enum status accuracy_report_end(const struct accuracy_study *s, struct results *r) MUST_USE;

#endif
