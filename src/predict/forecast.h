/* forecast.h: what all predictions of a command share: options, the machine, the profile; and the
 * prediction of one plan.
 *
 *     struct forecast f;
 *     TRY_GOTO(st, forecast_open(&f, &options), out);
 *     ... a plan for f.graph ...
 *     TRY_GOTO(st, forecast_find_machine(&f, plan->n_workers), out);
 *     TRY_GOTO(st, forecast_plan(&f, plan, &prediction), out);
 *     out: forecast_close(&f);
 */
#ifndef CLEAVE_PREDICT_FORECAST_H
#define CLEAVE_PREDICT_FORECAST_H

#include "data/dataset.h"
#include "predict/predict.h"

/* Options of a run, beside network, data and batch, that change its time or memory. */
struct forecast_run {
    int optimizer;           /* enum update_kind */
    double momentum;         /* of SGD; without any it keeps no state */
    int precision;           /* enum precision */
    double drop_probability; /* replaces every dropout's; negative: the network's own */
    int64_t limit;           /* it trains on the first so many images; 0: on all */
    bool augment;            /* flips and crops the images */
    const char *freeze;      /* globs of the weights that do not learn (graph_freeze); NULL: none */
};
/* The defaults of 'cleave train'. */
extern const struct forecast_run forecast_usual_run;

struct forecast_options {
    const struct graph *graph; /* of the data, for any batch; it must outlive the forecast */
    const char *data, *machine, *backend, *profile;
    int64_t batch, threads;
    int64_t eval_batch;      /* 0: batch */
    struct forecast_run run; /* begin with forecast_usual_run */
    double calibrate;        /* images/s of one device alone; 0: rooflines as they are */
    int64_t calibrate_batch; /* with which it reaches them; 0: batch */
    /* Its callbacks, where they are not set, show progress and listen to Ctrl-C. */
    struct measure_options measure;
    bool no_data;
    bool shape_only; /* only the shape of the data counts: there are as many samples as a step takes
                      */
    bool no_eval;    /* the run has no test: its programs need no memory */
    bool quiet;      /* no progress line */
};

struct forecast {
    const struct forecast_options *options;
    struct dataset_info data;
    struct graph *graph;
    /* Graphs of the other programs of a run (predict_other). */
    struct graph *train_short, *eval, *eval_short;
    const struct backend *backend;
    profile *profile;
    struct machine *machine;
    bool local;
    bool foreign; /* none of the machine's devices is like this host's */
    const bool
        *kinds_here; /* of the machine, where it is not this host; NULL: it is, or has none */
    int threads;
    const char *transport;
    struct cost_scales scales;
    struct clock_feed feed;
    int n_measured; /* entries that were added to the profile so far */
};

/* Builds the options' graph by its name, as the data, the batch and the run ask. The caller
 * destroys *out. */
enum status forecast_build_graph(struct forecast_options *o, const char *model,
                                 struct graph **out) MUST_USE;

/* The data and the graphs. Where there are fewer images than the batch has, a step takes all. */
enum status forecast_open(struct forecast *f, const struct forecast_options *o) MUST_USE;
/* The rest, before anything is predicted. `workers`: how many will share this host, at most.
 * Measures links and data where they are not known yet. */
enum status forecast_find_machine(struct forecast *f, int workers) MUST_USE;
void forecast_close(struct forecast *f);

/* A forecast for another batch: it has graphs of its own, the rest is f's, which must outlive it.
 */
struct forecast_batch {
    struct forecast_options options;
    struct forecast forecast;
};
enum status forecast_open_batch(const struct forecast *f, int64_t batch,
                                struct forecast_batch *out) MUST_USE;
/* For another batch of the test, too. */
enum status forecast_open_batches(const struct forecast *f, int64_t batch, int64_t eval_batch,
                                  struct forecast_batch *out) MUST_USE;
void forecast_close_batch(struct forecast_batch *b);

enum status forecast_plan(struct forecast *f, const struct plan *plan, bool keep_times,
                          struct prediction **out) MUST_USE;
/* The request of such a prediction. */
struct predict_request forecast_request(struct forecast *f, const struct plan *plan,
                                        bool keep_times);

#endif
