/* bench_accuracy.h: predictions beside what training really takes, for networks and plans.
 *
 * Predicting and training take turns, for the speed of a machine that others use, too, changes by
 * tens of percent within a second: in each round every plan is predicted, which measures what the
 * profile lacks (with --fresh everything), and trained between the rehearsals, twenty times a
 * second. A turn's time is the mean of its steps without the tenths at both ends; predicted,
 * measured and error of a case are the medians of its turns. How far the turns'
 * times are apart is the noise of the machine, below which no prediction can be told from a better
 * one. Where the errors of a plan's turns are so far apart that theirs is in doubt, it may get more
 * turns than others; how large the error is makes no difference to that.
 */
#ifndef CLEAVE_CLI_BENCH_ACCURACY_H
#define CLEAVE_CLI_BENCH_ACCURACY_H

#include "base/arena.h"
#include "cli/forecast.h"

enum { ACCURACY_MAX_ROUNDS = 32 };

/* Less than this, and the error of a plan is not in doubt. */
static const double accuracy_little_doubt = 0.02;

struct accuracy_options {
    struct forecast_options forecast; /* its model and data are those of the subject at hand */
    const char *models, *data, *plans, *workers;
    int64_t steps;       /* of each turn that count; 0: as many as there are */
    int64_t rounds;      /* that every plan gets ... */
    int64_t most_rounds; /* ... and where its error is in doubt; 0: no more than that */
    bool fresh, json, quiet;
};

/* One plan of a subject. */
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
    int64_t rounds_ns[ACCURACY_MAX_ROUNDS];
    int64_t memory, moved; /* bytes */
};

struct accuracy_subject {
    const char *model, *data;
    char data_name[64];
    int64_t n_train; /* images of an epoch */
    int n_cases;
    struct accuracy_case *cases;
    double weight; /* its share of the work, for guessing the time that is left */
};

struct accuracy_study {
    const struct accuracy_options *options;
    arena *memory;
    int n_subjects;
    struct accuracy_subject *subjects;
    int64_t began_ns;
    double weight_done; /* of the subjects that are done; all of them have 1 */
};

/* Removes the file, and what SQLite may have put beside it. */
void accuracy_clear_profile(const char *path);

/* Predicts and trains all cases of one subject (bench_accuracy_run.c). A plan that cannot be used
 * gets its reason in `skipped`; what else fails comes out. */
enum status accuracy_measure(struct accuracy_study *s, struct accuracy_subject *subject) MUST_USE;

/* ---- figures (bench_accuracy_report.c) ---- */

/* Of up to ACCURACY_MAX_ROUNDS. */
double accuracy_median(const double *values, int n);
/* The median of the rounds. */
double accuracy_measured_s(const struct accuracy_case *c);
/* Predicted over measured, less 1: the median of the turns. */
double accuracy_error(const struct accuracy_case *c);
/* The standard error of the mean of the turns' errors; INFINITY for fewer than two. */
double accuracy_doubt(const struct accuracy_case *c);
/* The distance between the slowest and the fastest round over the median; 0 for one round. */
double accuracy_noise(const struct accuracy_case *c);

/* The plans that `workers` workers can choose from: those for just so many, and serial. */
struct accuracy_choice {
    int workers, n_plans;
    const struct accuracy_case *predicted, *measured; /* the fastest */
    double regret;      /* how much slower the one predicted fastest is than the fastest, over it */
    double correlation; /* Spearman's, of the orders; NAN where it is not defined */
};
/* False: fewer than two plans were run. */
bool accuracy_choose(const struct accuracy_subject *subject, int workers,
                     struct accuracy_choice *out);

/* What a subject came to, when it is done, and in the end all of them. The latter is STATUS_FAILED
 * where memory or bytes were not as predicted. */
enum status accuracy_report_subject(const struct accuracy_study *s,
                                    const struct accuracy_subject *subject) MUST_USE;
enum status accuracy_report_end(const struct accuracy_study *s) MUST_USE;

#endif
