/* bench.h: what the benchmarks share: an open device, a training step on one batch that stays in
 * memory, matrix products, medians.
 *
 *     struct bench_device d;
 *     TRY(bench_device_open(NULL, 2, &d));           // the best backend, 2 threads
 *     struct bench_run r;
 *     TRY_GOTO(st, bench_run_open(&d, "alexnet", "imagenet", 64, &r), out);
 *     TRY_GOTO(st, bench_run_step(&r, &t_ns, &loss), out_run);
 *     ...
 *     bench_run_close(&r);
 *     bench_device_close(&d);
 */
#ifndef CLEAVE_CLI_BENCH_H
#define CLEAVE_CLI_BENCH_H

#include "backend/backend.h"
#include "cli/subject.h"
#include "runtime/executor.h"

#include <stdio.h>

/* What every benchmark accepts. */
struct bench_common {
    const char *backend; /* NULL: the best of this build */
    int64_t threads;     /* 0: all cores */
    bool json;
};

#define BENCH_COMMON_OPTIONS(common)                                                          \
    OPTION_TEXT("--backend", "BACKEND", &(common)->backend, NULL,                             \
                "what computes: cpu (fast) or reference (plain C) [the best of this build]"), \
        OPTION_INTEGER("--threads", "N", &(common)->threads, 1, BACKEND_MAX_THREADS, NULL,    \
                       "of the backend [all cores]"),                                         \
        OPTION_FLAG("--json", &(common)->json, "print JSON")

struct bench_device {
    const struct backend *backend;
    device *device;
    stream *stream;
};

enum status bench_device_open(const struct bench_common *common, struct bench_device *out) MUST_USE;
void bench_device_close(struct bench_device *d);

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
    int64_t median_ns, least_ns;
};
enum status bench_product_measure(const struct bench_device *d, int64_t repeat,
                                  struct bench_product *p) MUST_USE;

/* The machine's peak as measured: the best FLOP/s of square matrix products of sizes up to 2048 (or
 * less where that would take seconds), and the size that gave it. */
struct bench_peak {
    double flops_per_s;
    int64_t size;
};
enum status bench_peak_measure(const struct bench_device *d, struct bench_peak *out) MUST_USE;

/* Sorts values[] (count > 0) and returns the middle one, or the mean of the two. */
int64_t bench_median(int64_t *values, int64_t count);

/* A file for --csv: stdout for "-". STATUS_USAGE where JSON is to go there, too, and STATUS_FAILED
 * where it cannot be written. */
enum status bench_csv_check(const char *path, bool json) MUST_USE;
enum status bench_csv_open(const char *path, FILE **out) MUST_USE;
enum status bench_csv_close(FILE *f, const char *path) MUST_USE;

#endif
