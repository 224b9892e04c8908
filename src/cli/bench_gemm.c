/* bench_gemm.c: `cleave bench gemm`: what a fully connected layer loses when its batch shrinks.
 *
 * Its product is b x IN * IN x OUT. Splitting the batch over n workers leaves b = B / n rows on
 * each: a degenerate matrix, which kernels compute at a lower rate, so that n workers are less than
 * n times as fast even if communication is free (Keuper and Pfreundt, "Distributed Training of Deep
 * Neural Networks: Theoretical and Practical Limits of Parallel Scalability", figure 9). */
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"

#include <stdlib.h>

struct gemm_options {
    struct bench_common common;
    const char *batch, *csv;
    int64_t in, out, repeat;
};

struct gemm_row {
    struct bench_product product;
    double flops_per_s;
    double speedup, ideal; /* against the largest batch */
};

struct gemm_study {
    const struct gemm_options *options;
    const struct bench_device *device;
    int n_rows;
    struct gemm_row rows[SUBJECT_MAX_BATCHES];
};

static enum status parse(int argc, char **argv, struct gemm_options *o, bool *help)
{
    *o = (struct gemm_options){0};
    const struct option options[] = {
        OPTION_TEXT("--batch", "B,...", &o->batch, "256,128,64,32,16,8,4,2,1",
                    "rows of the left matrix"),
        OPTION_INTEGER("--in", "N", &o->in, 1, 65536, "4096", "its columns"),
        OPTION_INTEGER("--out", "N", &o->out, 1, 65536, "9192", "columns of the right matrix"),
        OPTION_INTEGER("--repeat", "N", &o->repeat, 1, 1000, "10", "measurements at least"),
        OPTION_TEXT("--csv", "FILE", &o->csv, NULL, "write CSV instead; - is standard output"),
        BENCH_COMMON_OPTIONS(&o->common),
        OPTION_END,
    };
    const struct positional positionals[] = {{0}};
    const struct option_set set = {
        .command = "bench gemm",
        .about =
            "Times the matrix product of a fully connected layer, b x 4096 * 4096 x 9192, over\n"
            "batch sizes b: median time, rate, and the speed-up that shrinking the batch gives\n"
            "beside the ideal one.",
        .positionals = positionals,
        .options = options,
        .examples = "  cleave bench gemm --threads 2\n"
                    "  cleave bench gemm --in 1024 --out 1000 --batch 64,16,4,1 --csv -\n",
    };
    return options_parse(&set, argc, argv, help);
}

static enum status measure(struct gemm_study *s)
{
    const struct gemm_options *o = s->options;
    int64_t sizes[SUBJECT_MAX_BATCHES];
    TRY(subject_parse_batches("--batch", o->batch, sizes, &s->n_rows));
    struct progress progress = {0};
    int largest = 0;
    for (int i = 0; i < s->n_rows; i++) {
        progress_show(&progress, (double)i / s->n_rows, "batch %lld", (long long)sizes[i]);
        struct bench_product *p = &s->rows[i].product;
        *p = (struct bench_product){.rows = sizes[i], .inner = o->in, .columns = o->out};
        TRY(bench_product_measure(s->device, o->repeat, p));
        s->rows[i].flops_per_s =
            2e9 * (double)p->rows * (double)p->inner * (double)p->columns / (double)p->median_ns;
        if (sizes[i] > sizes[largest])
            largest = i;
    }
    log_progress_end();
    for (int i = 0; i < s->n_rows; i++) {
        s->rows[i].ideal = (double)sizes[largest] / (double)sizes[i];
        s->rows[i].speedup =
            (double)s->rows[largest].product.median_ns / (double)s->rows[i].product.median_ns;
    }
    return STATUS_OK;
}

static enum status print_table(const struct gemm_study *s)
{
    static const struct table_column columns[] = {
        {"batch", TABLE_RIGHT, 0},    {"time", TABLE_RIGHT, 0},  {"GFLOP/s", TABLE_RIGHT, 0},
        {"speed-up", TABLE_RIGHT, 0}, {"ideal", TABLE_RIGHT, 0}, {"of ideal", TABLE_RIGHT, 0}};
    const struct backend *b = s->device->backend;
    int threads = b->device_threads(s->device->device);
    printf("b x %lld * %lld x %lld on %s (%s), %d thread%s\n\n", (long long)s->options->in,
           (long long)s->options->in, (long long)s->options->out, b->name,
           b->device_describe(s->device->device), threads, threads == 1 ? "" : "s");
    table *t;
    TRY(table_create(columns, 6, &t));
    for (int i = 0; i < s->n_rows; i++) {
        const struct gemm_row *r = &s->rows[i];
        char time[32];
        table_cell(t, "%lld", (long long)r->product.rows);
        table_cell(t, "%s", text_seconds(time, sizeof time, (double)r->product.median_ns * 1e-9));
        table_cell(t, "%.1f", r->flops_per_s * 1e-9);
        table_cell(t, "%.2f", r->speedup);
        table_cell(t, "%g", r->ideal);
        table_cell(t, "%.0f %%", 100 * r->speedup / r->ideal);
    }
    return table_finish(t, stdout);
}

static enum status write_csv(const struct gemm_study *s)
{
    FILE *f;
    TRY(bench_csv_open(s->options->csv, &f));
    (void)fprintf(f, "batch,in,out,median_s,least_s,flops_per_s,speedup,ideal\n");
    for (int i = 0; i < s->n_rows; i++) {
        const struct gemm_row *r = &s->rows[i];
        (void)fprintf(f, "%lld,%lld,%lld,%.9g,%.9g,%.6g,%.6g,%.6g\n", (long long)r->product.rows,
                      (long long)r->product.inner, (long long)r->product.columns,
                      (double)r->product.median_ns * 1e-9, (double)r->product.least_ns * 1e-9,
                      r->flops_per_s, r->speedup, r->ideal);
    }
    return bench_csv_close(f, s->options->csv);
}

static enum status print_json(const struct gemm_study *s)
{
    json_t *rows = json_array();
    for (int i = 0; i < s->n_rows; i++) {
        const struct gemm_row *r = &s->rows[i];
        (void)json_array_append_new(
            rows, json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "batch", (json_int_t)r->product.rows,
                            "median_s", (double)r->product.median_ns * 1e-9, "least_s",
                            (double)r->product.least_ns * 1e-9, "flops_per_s", r->flops_per_s,
                            "speedup", r->speedup, "ideal", r->ideal));
    }
    const struct bench_device *d = s->device;
    return output_json(json_pack("{s:I, s:I, s:s, s:s, s:i, s:o}", "in", (json_int_t)s->options->in,
                                 "out", (json_int_t)s->options->out, "backend", d->backend->name,
                                 "device", d->backend->device_describe(d->device), "threads",
                                 d->backend->device_threads(d->device), "rows", rows));
}

enum status command_bench_gemm(int argc, char **argv)
{
    struct gemm_options o;
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    TRY(bench_csv_check(o.csv, o.common.json));
    struct bench_device on;
    TRY(bench_device_open(&o.common, &on));
    struct gemm_study study = {.options = &o, .device = &on};
    enum status st;
    TRY_GOTO(st, measure(&study), out);
    if (o.csv)
        TRY_GOTO(st, write_csv(&study), out);
    if (o.common.json)
        TRY_GOTO(st, print_json(&study), out);
    if (!o.csv && !o.common.json)
        TRY_GOTO(st, print_table(&study), out);
out:
    bench_device_close(&on);
    return st;
}
