/* bench.h: the experiments of `cleave bench`, and what they share. Each is a function of its
 * settings that fills results (base/results.h):
 *
 *     struct bench_gemm settings = {.device.threads = 2, .inner = 4096, ...};
 *     struct results r;
 *     TRY(results_open(&r, true, NULL));
 *     return results_close(&r, bench_gemm(&settings, &r));
 */
#ifndef CLEAVE_BENCH_BENCH_H
#define CLEAVE_BENCH_BENCH_H

#include "backend/backend.h"
#include "base/results.h"
#include "plan/plan.h"
#include "predict/forecast.h"
#include "runtime/executor.h"
#include "search/chooser.h"

enum { BENCH_MAX_BATCHES = TABLE_MAX_COLUMNS - 1, BENCH_MAX_COUNTS = 32, BENCH_MAX_ROUNDS = 100 };

/* The backend that computes. */
struct bench_backend {
    const char *name; /* NULL: the best of this build */
    int64_t threads;  /* 0: all cores */
};

/* Batch sizes, in the order in which they are measured. */
struct bench_batches {
    int n;
    int64_t sizes[BENCH_MAX_BATCHES];
};

/* ---- the experiments ---- */

/* Where the time of a training step goes, by layer and by layer type. */
struct bench_layers {
    struct bench_backend backend;
    const char *model, *data;
    struct bench_batches batches;
    int64_t repeat; /* steps of each batch size; the median of an instruction counts */
};
enum status bench_layers(const struct bench_layers *o, struct results *r) MUST_USE;

/* The speed that a fully connected layer loses when its batch shrinks. */
struct bench_gemm {
    struct bench_backend backend;
    struct bench_batches batches;
    int64_t inner, columns; /* of the products b x inner * inner x columns */
    int64_t repeat;         /* measurements at least */
};
enum status bench_gemm(const struct bench_gemm *s, struct results *r) MUST_USE;

/* Whole training steps on one batch that stays in memory. */
struct bench_step {
    struct bench_backend backend;
    const char *model, *data;
    int64_t batch, steps, warmup;
    bool interactive; /* steps are asked for by the lines of stdin, and answered in JSON */
    bool floor;       /* also the sum of the least times of the library's own primitives */
};
enum status bench_step(const struct bench_step *s, struct results *r) MUST_USE;

/* How long the search for a plan takes, on one core, with costs known. */
struct bench_search {
    const char *cases; /* "lenet5:4,vgg16:16"; NULL: all that have a time to keep */
    const char *device;
    int64_t per_node, batch_per_worker, rounds;
    bool no_pipelines;
    bool check; /* STATUS_FAILED where one takes longer than its time to keep */
};
enum status bench_search(const struct bench_search *o, struct results *r) MUST_USE;

/* Predictions beside measured training, for networks and plans (accuracy.h). */
struct bench_accuracy {
    struct forecast_options forecast; /* its graph and data are those of the case at hand */
    const char *models, *data, *plans, *workers;
    int64_t steps;       /* of each turn that count; 0: as many as there are */
    int64_t rounds;      /* that every plan gets ... */
    int64_t most_rounds; /* ... and where its error is in doubt; 0: no more than that */
    bool fresh, quiet;
};
enum { ACCURACY_MAX_ROUNDS = 32 };
enum status bench_accuracy(struct bench_accuracy *o, struct results *r) MUST_USE;

/* Is the recommended plan the fastest? It is trained beside every named strategy, in turns. */
struct bench_recommend {
    struct chooser_options chooser;
    const char *models;
    double seconds; /* of training a network, all plans together */
};
enum status bench_recommend(const struct bench_recommend *o, struct results *r) MUST_USE;

/* How far a plan scales, and its limits (limits.h). */
struct bench_limits {
    const char *model;
    struct forecast_options forecast; /* its batch is the fixed one */
    struct plan_request request;      /* how the strategy splits; its workers do not count */
    const char *plan;
    int n_counts;
    int64_t counts[BENCH_MAX_COUNTS]; /* of workers; one is always among them */
    bool usual_counts;                /* nobody asked for them: they end where the machine does */
    const char *inter, *latency;      /* of the network between hosts like this one */
    int64_t batch_per_worker;
};
enum status bench_limits(const struct bench_limits *o, struct results *r) MUST_USE;

/* ---- what they share ---- */

struct bench_device {
    const struct backend *backend;
    device *device;
    stream *stream;
};

enum status bench_device_open(const struct bench_backend *backend,
                              struct bench_device *out) MUST_USE;
void bench_device_close(struct bench_device *d);
/* Members "backend", "device" and "threads". */
void bench_put_device(struct results *r, const struct bench_device *d);

/* A network in training on one batch of noise: SGD with momentum at a small rate, so that the loss
 * stays finite however often the batch is seen. */
struct bench_run {
    const struct bench_device *device;
    struct dataset_info data;
    struct graph *graph;
    struct program *program;
    executor *executor;
    float *images;   /* [n, c, h, w] */
    int32_t *labels; /* [n] */
    uint32_t step;   /* steps done */
};

/* Only the shape of the data is used; no file is read. */
enum status bench_run_open(const struct bench_device *d, const char *model, const char *data,
                           int64_t batch, struct bench_run *out) MUST_USE;
void bench_run_close(struct bench_run *r);

/* One whole step and its wall-clock time. */
enum status bench_run_step(struct bench_run *r, int64_t *t_ns, double *loss) MUST_USE;

/* A product [rows, inner] x [inner, columns], as the forward pass of a linear layer without bias,
 * run at least `repeat` times and at least 0.2 s: the median and the least time of a run. */
struct bench_product {
    int64_t rows, inner, columns;
    double median_s, least_s;
};
enum status bench_product_measure(const struct bench_device *d, int64_t repeat,
                                  struct bench_product *p) MUST_USE;
double bench_product_flops(const struct bench_product *p);

/* The machine's peak as measured: the best FLOP/s of square matrix products of sizes up to 2048 (or
 * less where that would take seconds), and the size that gave it. */
struct bench_peak {
    double flops_per_s;
    int64_t size;
};
enum status bench_peak_measure(const struct bench_device *d, struct bench_peak *out) MUST_USE;

/* STATUS_USAGE, with the nearest match, for a name that is no strategy. */
enum status bench_check_strategy(const char *name) MUST_USE;

#endif
