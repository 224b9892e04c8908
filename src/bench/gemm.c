/* gemm.c: the speed that a fully connected layer loses when its batch shrinks.
 *
 * Its product is b x inner * inner x columns. Splitting the batch over n workers leaves b = B / n
 * rows on each: a degenerate matrix, which kernels compute at a lower rate, so that n workers are
 * less than n times as fast even if communication is free (Keuper and Pfreundt, "Distributed
 * Training of Deep Neural Networks: Theoretical and Practical Limits of Parallel Scalability",
 * figure 9). */
#include "base/log.h"
#include "base/progress.h"
#include "bench/bench.h"

static enum status measure(const struct bench_device *d, const struct bench_gemm *s,
                           struct bench_product *products)
{
    struct progress progress = {0};
    for (int i = 0; i < s->batches.n; i++) {
        int64_t rows = s->batches.sizes[i];
        progress_show(&progress, (double)i / s->batches.n, "batch %lld", (long long)rows);
        products[i] =
            (struct bench_product){.rows = rows, .inner = s->inner, .columns = s->columns};
        TRY(bench_product_measure(d, s->repeat, &products[i]));
    }
    log_progress_end();
    return STATUS_OK;
}

static void report(const struct bench_gemm *s, const struct bench_product *products,
                   struct results *r)
{
    static const struct field fields[] = {{"batch", "batch", ">", 0, 0},
                                          HIDDEN("in"),
                                          HIDDEN("out"),
                                          {"time", "median_s", "seconds", 0, 0},
                                          HIDDEN("least_s"),
                                          {"GFLOP/s", "flops_per_s", "%.1f", 1e-9, 0},
                                          {"speed-up", "speedup", "%.2f", 0, 0},
                                          {"ideal", "ideal", "%g", 0, 0},
                                          {"of ideal", NULL, "%.0f %%", 100, 0},
                                          {0}};
    const struct bench_product *largest = &products[0];
    for (int i = 1; i < s->batches.n; i++)
        if (products[i].rows > largest->rows)
            largest = &products[i];
    results_table(r, "rows", fields, FOR_ALL);
    for (int i = 0; i < s->batches.n; i++) {
        const struct bench_product *p = &products[i];
        double speedup = largest->median_s / p->median_s;
        double ideal = (double)largest->rows / (double)p->rows;
        RESULTS_ROW(r, v_int(p->rows), v_int(p->inner), v_int(p->columns), v_real(p->median_s),
                    v_real(p->least_s), v_real(bench_product_flops(p) / p->median_s),
                    v_real(speedup), v_real(ideal), v_real(speedup / ideal));
    }
    results_table_end(r);
}

enum status bench_gemm(const struct bench_gemm *s, struct results *r)
{
    struct bench_product products[BENCH_MAX_BATCHES];
    struct bench_device d;
    TRY(bench_device_open(&s->backend, &d));
    enum status st = measure(&d, s, products);
    if (st == STATUS_OK) {
        int threads = d.backend->device_threads(d.device);
        results_put(r, "in", v_int(s->inner));
        results_put(r, "out", v_int(s->columns));
        bench_put_device(r, &d);
        results_say(r, 0, "b x %lld * %lld x %lld on %s (%s), %d thread%s", (long long)s->inner,
                    (long long)s->inner, (long long)s->columns, d.backend->name,
                    d.backend->device_describe(d.device), threads, threads == 1 ? "" : "s");
        results_say(r, 0, "%s", "");
        report(s, products, r);
    }
    bench_device_close(&d);
    return st;
}
