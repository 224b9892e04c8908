/* step_times.c: whole training steps on one batch that stays in memory. */
#include "base/log.h"
#include "base/numbers.h"
#include "base/progress.h"
#include "base/text.h"
#include "bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS_PER_LINE = 100000 };

/* *times_ns is the caller's to free. */
static enum status run_steps(struct bench_run *run, int64_t n_steps, int64_t **times_ns,
                             double *loss)
{
    struct progress progress = {0};
    *loss = 0;
    *times_ns = calloc((size_t)n_steps, sizeof **times_ns);
    if (!*times_ns)
        return status_no_memory((size_t)n_steps * sizeof **times_ns);
    for (int64_t i = 0; i < n_steps; i++) {
        progress_show(&progress, (double)i / (double)n_steps, "step %lld of %lld", (long long)i + 1,
                      (long long)n_steps);
        TRY(bench_run_step(run, &(*times_ns)[i], loss));
    }
    log_progress_end();
    return STATUS_OK;
}

/* NAN where the backend has no floor to measure. */
static enum status measure_floor(const struct bench_run *run, double *floor_s)
{
    const struct bench_device *d = run->device;
    const struct program *p = run->program;
    struct progress progress = {0};
    if (!d->backend->measure_floor)
        return STATUS_OK;
    *floor_s = 0;
    for (int i = 0; i < p->n_groups; i++) {
        double seconds;
        TRY(d->backend->measure_floor(d->device, &p->groups[i].spec, &seconds));
        *floor_s += seconds;
        progress_show(&progress, (double)i / p->n_groups, "measuring the floor");
    }
    log_progress_end();
    return STATUS_OK;
}

/* ---- one measurement ---- */

static void report(const struct bench_step *s, const struct bench_run *run, double floor_s,
                   int64_t *times_ns, double loss, struct results *r)
{
    double median_s = numbers_median_ns(times_ns, s->steps) * 1e-9;
    double least_s = (double)times_ns[0] * 1e-9; /* they are sorted now */
    double images_per_s = (double)s->batch / median_s;
    int64_t memory_bytes = executor_memory_bytes(run->executor);
    char median[32], least[32], memory[32];
    results_put(r, "model", v_text(s->model));
    results_put(r, "data", v_text(run->data.name));
    results_put(r, "batch", v_int(s->batch));
    results_put(r, "steps", v_int(s->steps));
    results_put(r, "median_step_s", v_real(median_s));
    results_put(r, "least_step_s", v_real(least_s));
    results_put(r, "images_per_s", v_real(images_per_s));
    results_put(r, "loss", v_real(loss));
    results_put(r, "memory_bytes", v_int(memory_bytes));
    results_put(r, "floor_s", v_real(floor_s));
    bench_put_device(r, run->device);
    results_say(r, 2, "%s, %s, batch %lld: median step %s, least %s, %.1f images/s, memory %s",
                s->model, run->data.name, (long long)s->batch,
                text_seconds(median, sizeof median, median_s),
                text_seconds(least, sizeof least, least_s), images_per_s,
                text_bytes(memory, sizeof memory, (double)memory_bytes));
    if (floor_s > 0)
        results_say(r, 2, "floor %s, step / floor %.2f",
                    text_seconds(median, sizeof median, floor_s), median_s / floor_s);
}

/* ---- on request ---- */

static enum status answer(struct bench_run *run, const char *line)
{
    int64_t n_steps, *times_ns;
    double loss;
    TRY(text_parse_integer("the number of steps on standard input", line, 1, MAX_STEPS_PER_LINE,
                           &n_steps));
    enum status st = run_steps(run, n_steps, &times_ns, &loss);
    if (st == STATUS_OK) {
        json_t *steps = json_array();
        for (int64_t i = 0; i < n_steps; i++)
            (void)json_array_append_new(steps, json_real((double)times_ns[i] * 1e-9));
        st = output_json(json_pack("{s:o, s:o}", "steps_s", steps, "loss", output_number(loss)));
    }
    free(times_ns);
    return st;
}

static enum status answer_lines(const struct bench_step *s, struct bench_run *run, double floor_s)
{
    const struct bench_device *d = run->device;
    char line[64];
    TRY(output_json(json_pack(
        "{s:s, s:I, s:o, s:s, s:s, s:i, s:I}", "event", "ready", "memory_bytes",
        (json_int_t)executor_memory_bytes(run->executor), "floor_s", output_number(floor_s),
        "backend", d->backend->name, "device", d->backend->device_describe(d->device), "threads",
        d->backend->device_threads(d->device), "batch", (json_int_t)s->batch)));
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\r\n")] = '\0';
        TRY(answer(run, line));
    }
    return STATUS_OK;
}

static enum status measure(const struct bench_step *s, struct bench_run *run, struct results *r)
{
    int64_t t_ns, *times_ns;
    double loss, floor_s = NAN;
    if (s->floor)
        TRY(measure_floor(run, &floor_s));
    for (int64_t i = 0; i < s->warmup; i++)
        TRY(bench_run_step(run, &t_ns, &loss));
    if (s->interactive)
        return answer_lines(s, run, floor_s);
    enum status st = run_steps(run, s->steps, &times_ns, &loss);
    if (st == STATUS_OK)
        report(s, run, floor_s, times_ns, loss, r);
    free(times_ns);
    return st;
}

enum status bench_step(const struct bench_step *s, struct results *r)
{
    struct bench_device d;
    struct bench_run run;
    TRY(bench_device_open(&s->backend, &d));
    enum status st = bench_run_open(&d, s->model, s->data, s->batch, &run);
    if (st == STATUS_OK) {
        st = measure(s, &run, r);
        bench_run_close(&run);
    }
    bench_device_close(&d);
    return st;
}
