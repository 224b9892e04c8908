/* bench_step.c: `cleave bench step`: whole training steps on one batch that stays in memory. */
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>

struct step_options {
    struct bench_common common;
    const char *model, *data;
    int64_t batch, steps, warmup;
    bool interactive, floor;
    double floor_s; /* 0: not measured */
};

static enum status parse(int argc, char **argv, struct step_options *o, bool *help)
{
    *o = (struct step_options){0};
    const struct option options[] = {
        OPTION_TEXT("--data", "SPEC", &o->data, "imagenet", "the data whose shape is used"),
        OPTION_INTEGER("--batch", "N", &o->batch, 1, SUBJECT_LARGEST_BATCH, "16",
                       "images in a step"),
        OPTION_INTEGER("--steps", "N", &o->steps, 1, 100000, "10", "steps that are timed"),
        OPTION_INTEGER("--warmup", "N", &o->warmup, 0, 1000, "2", "steps before them"),
        OPTION_FLAG("--interactive", &o->interactive,
                    "after the warm-up say {\"event\":\"ready\",...}; then answer each line N of "
                    "standard input with the times of N steps, {\"steps_s\":[...],\"loss\":x}"),
        OPTION_FLAG("--floor", &o->floor,
                    "also measure the floor: the sum of the least times of the library's own "
                    "convolution and matrix primitives, each alone"),
        BENCH_COMMON_OPTIONS(&o->common),
        OPTION_END,
    };
    const struct positional positionals[] = {{"MODEL", &o->model, subject_model_help()}, {0}};
    const struct option_set set = {
        .command = "bench step",
        .about = "Times whole training steps: loading one batch of noise, forward, backward, SGD\n"
                 "with momentum, and reading the loss.",
        .positionals = positionals,
        .options = options,
        .notes = subject_data_notes,
        .examples = "  cleave bench step resnet18 --data synthetic:3x224x224/1000 --batch 16\n"
                    "  printf '5\\n5\\n' | cleave bench step lenet5 --data mnist --batch 128 "
                    "--interactive\n",
    };
    return options_parse(&set, argc, argv, help);
}

static enum status run_steps(struct bench_run *r, int64_t n_steps, int64_t *times_ns, double *loss)
{
    struct progress progress = {0};
    for (int64_t i = 0; i < n_steps; i++) {
        progress_show(&progress, (double)i / (double)n_steps, "step %lld of %lld", (long long)i + 1,
                      (long long)n_steps);
        TRY(bench_run_step(r, &times_ns[i], loss));
    }
    log_progress_end();
    return STATUS_OK;
}

/* ---- the floor ---- */

static enum status measure_floor(const struct bench_run *r, double *floor_s)
{
    const struct bench_device *d = r->device;
    const struct program *p = r->program;
    struct progress progress = {0};
    if (!d->backend->measure_floor)
        return STATUS_OK;
    for (int i = 0; i < p->n_groups; i++) {
        double seconds;
        TRY(d->backend->measure_floor(d->device, &p->groups[i].spec, &seconds));
        *floor_s += seconds;
        progress_show(&progress, (double)i / p->n_groups, "measuring the floor");
    }
    log_progress_end();
    return STATUS_OK;
}

static json_t *floor_json(const struct step_options *o)
{
    return o->floor_s > 0 ? json_real(o->floor_s) : json_null();
}

/* ---- one measurement ---- */

static enum status print_result(const struct step_options *o, const struct bench_run *r,
                                int64_t *times_ns, double loss)
{
    double median_s = (double)bench_median(times_ns, o->steps) * 1e-9;
    double least_s = (double)times_ns[0] * 1e-9;
    double images_per_s = (double)o->batch / median_s;
    int64_t memory_bytes = executor_memory_bytes(r->executor);
    if (o->common.json)
        return output_json(json_pack(
            "{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:o, s:I, s:o, s:s}", "model", o->model, "data",
            r->data.name, "batch", (json_int_t)o->batch, "steps", (json_int_t)o->steps,
            "median_step_s", median_s, "least_step_s", least_s, "images_per_s", images_per_s,
            "loss", output_number(loss), "memory_bytes", (json_int_t)memory_bytes, "floor_s",
            floor_json(o), "device", r->device->backend->device_describe(r->device->device)));
    char median[32], least[32], memory[32];
    output_line(2, "%s, %s, batch %lld: median step %s, least %s, %.1f images/s, memory %s",
                o->model, r->data.name, (long long)o->batch,
                text_seconds(median, sizeof median, median_s),
                text_seconds(least, sizeof least, least_s), images_per_s,
                text_bytes(memory, sizeof memory, (double)memory_bytes));
    if (o->floor_s > 0)
        printf("floor %s, step / floor %.2f\n", text_seconds(median, sizeof median, o->floor_s),
               median_s / o->floor_s);
    return STATUS_OK;
}

static enum status measure(const struct step_options *o, struct bench_run *r)
{
    int64_t *times_ns = calloc((size_t)o->steps, sizeof *times_ns);
    if (!times_ns)
        return status_no_memory((size_t)o->steps * sizeof *times_ns);
    double loss = 0;
    enum status st = run_steps(r, o->steps, times_ns, &loss);
    if (st == STATUS_OK)
        st = print_result(o, r, times_ns, loss);
    free(times_ns);
    return st;
}

/* ---- the conversation ---- */

enum { MAX_STEPS_PER_LINE = 100000 };

static enum status say_ready(const struct step_options *o, const struct bench_run *r)
{
    const struct bench_device *d = r->device;
    return output_json(
        json_pack("{s:s, s:I, s:o, s:s, s:s, s:i, s:I}", "event", "ready", "memory_bytes",
                  (json_int_t)executor_memory_bytes(r->executor), "floor_s", floor_json(o),
                  "backend", d->backend->name, "device", d->backend->device_describe(d->device),
                  "threads", d->backend->device_threads(d->device), "batch", (json_int_t)o->batch));
}

static enum status answer(struct bench_run *r, int64_t n_steps)
{
    int64_t *times_ns = calloc((size_t)n_steps, sizeof *times_ns);
    if (!times_ns)
        return status_no_memory((size_t)n_steps * sizeof *times_ns);
    double loss = 0;
    enum status st = run_steps(r, n_steps, times_ns, &loss);
    if (st == STATUS_OK) {
        json_t *steps = json_array();
        for (int64_t i = 0; i < n_steps; i++)
            (void)json_array_append_new(steps, json_real((double)times_ns[i] * 1e-9));
        st = output_json(json_pack("{s:o, s:o}", "steps_s", steps, "loss", output_number(loss)));
    }
    free(times_ns);
    return st;
}

static enum status converse(const struct step_options *o, struct bench_run *r)
{
    TRY(say_ready(o, r));
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\r\n")] = '\0';
        int64_t n_steps;
        TRY(text_parse_integer("the number of steps on standard input", line, 1, MAX_STEPS_PER_LINE,
                               &n_steps));
        TRY(answer(r, n_steps));
    }
    return STATUS_OK;
}

static enum status warm_up(struct bench_run *r, int64_t n_steps)
{
    int64_t t_ns;
    double loss;
    for (int64_t i = 0; i < n_steps; i++)
        TRY(bench_run_step(r, &t_ns, &loss));
    return STATUS_OK;
}

enum status command_bench_step(int argc, char **argv)
{
    struct step_options o;
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    struct bench_device on;
    TRY(bench_device_open(&o.common, &on));
    struct bench_run run;
    enum status st;
    TRY_GOTO(st, bench_run_open(&on, o.model, o.data, o.batch, &run), close_device);
    if (o.floor)
        TRY_GOTO(st, measure_floor(&run, &o.floor_s), close_run);
    TRY_GOTO(st, warm_up(&run, o.warmup), close_run);
    TRY_GOTO(st, o.interactive ? converse(&o, &run) : measure(&o, &run), close_run);
close_run:
    bench_run_close(&run);
close_device:
    bench_device_close(&on);
    return st;
}
