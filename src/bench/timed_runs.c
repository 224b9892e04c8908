#include "base/numbers.h"
#include "base/random.h"
#include "base/text.h"
#include "base/timer.h"
#include "bench/bench.h"
#include "predict/subject.h"
#include "runtime/initialise.h"

#include <stdlib.h>
#include <string.h>

enum { PEAK_SIZE = 2048, PEAK_FIRST_SIZE = 256, PEAK_REPEAT = 8, MAX_PRODUCT_RUNS = 1000 };
static const int64_t product_time_ns = 200000000; /* measure at least so long */
static const double peak_run_s = 0.5;             /* of one run of the peak's product, about */
static const uint64_t noise_seed = 20;

/* ---- devices ---- */

enum status bench_device_open(const struct bench_backend *backend, struct bench_device *out)
{
    *out = (struct bench_device){0};
    if (backend->name)
        TRY(backend_find(backend->name, &out->backend));
    else
        out->backend = backend_list()[0];
    struct device_options options = {.threads = (int)backend->threads};
    TRY(out->backend->device_open(&options, &out->device));
    enum status st = out->backend->stream_create(out->device, &out->stream);
    if (st != STATUS_OK)
        out->backend->device_close(out->device);
    return st;
}

void bench_device_close(struct bench_device *d)
{
    d->backend->stream_destroy(d->stream);
    d->backend->device_close(d->device);
}

void bench_put_device(struct results *r, const struct bench_device *d)
{
    results_put(r, "backend", v_text(d->backend->name));
    results_put(r, "device", v_text(d->backend->device_describe(d->device)));
    results_put(r, "threads", v_int(d->backend->device_threads(d->device)));
}

/* ---- whole steps ---- */

static void fill_noise(uint32_t number, float *to, int64_t count)
{
    struct random_key key = {noise_seed, RANDOM_SYNTHETIC, number};
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(2 * random_uniform(key, 0, (uint64_t)i) - 1);
}

static enum status make_batch(struct bench_run *r)
{
    int64_t batch = r->graph->batch, n_floats = batch * dataset_sample_floats(&r->data);
    r->images = malloc((size_t)n_floats * sizeof *r->images);
    r->labels = malloc((size_t)batch * sizeof *r->labels);
    if (!r->images || !r->labels)
        return status_no_memory((size_t)n_floats * sizeof *r->images);
    fill_noise(0, r->images, n_floats);
    struct random_key key = {noise_seed, RANDOM_SYNTHETIC, 1};
    for (int64_t i = 0; i < batch; i++)
        r->labels[i] = (int32_t)(random_word(key, 0, (uint64_t)i) % (uint32_t)r->data.classes);
    return STATUS_OK;
}

enum status bench_run_open(const struct bench_device *d, const char *model, const char *data,
                           int64_t batch, struct bench_run *out)
{
    *out = (struct bench_run){.device = d};
    enum status st;
    TRY(subject_build(model, data, batch, -1, &out->data, &out->graph));
    struct program_options options = {
        .backend = d->backend, .device = d->device, .training = true, .n_states = 1};
    TRY_GOTO(st, program_create(out->graph, &options, &out->program), fail);
    const struct program *programs[] = {out->program};
    TRY_GOTO(st, executor_create(programs, 1, NULL, &out->executor), fail);
    TRY_GOTO(st, initialise_parameters(out->graph, out->executor, 1), fail);
    TRY_GOTO(st, make_batch(out), fail);
    return STATUS_OK;
fail:
    bench_run_close(out);
    return st;
}

void bench_run_close(struct bench_run *r)
{
    free(r->images);
    free(r->labels);
    executor_destroy(r->executor);
    program_destroy(r->program);
    graph_destroy(r->graph);
}

enum status bench_run_step(struct bench_run *r, int64_t *t_ns, double *loss)
{
    const struct executor_batch batch = {.images = r->images, .labels = r->labels};
    const struct step_state state = {.seed = 1, .step = r->step++};
    const struct update_rule rule = {
        .kind = UPDATE_SGD, .learning_rate = 1e-3, .momentum = 0.9, .step = r->step};
    struct executor_result result;
    int64_t began_ns = timer_now_ns();
    TRY(executor_step(r->executor, 0, &batch, &state, &rule, &result));
    *t_ns = timer_now_ns() - began_ns;
    *loss = result.loss;
    return STATUS_OK;
}

/* ---- matrix products ---- */

struct product {
    const struct bench_device *d;
    group *group;
    struct group_args args;
    void *input;
};

static void product_close(struct product *p)
{
    const struct backend *b = p->d->backend;
    void *const blocks[] = {p->input, p->args.param[0], p->args.output, p->args.workspace};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i])
            b->memory_free(p->d->device, blocks[i]);
    b->group_destroy(p->group);
}

/* A device tensor of noise with that layout. */
static enum status make_tensor(const struct bench_device *d, const layout *l, uint32_t number,
                               void **out)
{
    int64_t count = shape_elements(d->backend->layout_shape(l));
    float *host = malloc((size_t)count * sizeof *host);
    if (!host)
        return status_no_memory((size_t)count * sizeof *host);
    fill_noise(number, host, count);
    enum status st;
    TRY_GOTO(st, d->backend->memory_alloc(d->device, d->backend->layout_bytes(l), out), out);
    TRY_GOTO(st, d->backend->upload(d->stream, host, *out, l), out);
    TRY_GOTO(st, d->backend->stream_synchronize(d->stream), out);
out:
    free(host);
    return st;
}

static enum status product_open(const struct bench_device *d, const struct bench_product *size,
                                struct product *out)
{
    const struct backend *b = d->backend;
    *out = (struct product){.d = d};
    struct group_spec spec = {
        .op = {.op = OP_LINEAR,
               .attrs = {.out_channels = size->columns},
               .n_inputs = 1,
               .input = {SHAPE2(size->rows, size->inner)}},
        .global_batch = size->rows,
    };
    TRY(op_infer_shape(&spec.op));
    struct group_layouts layouts = {0};
    TRY(b->layout_plain(d->device, ELEMENT_F32, &spec.op.input[0], &layouts.input[0]));
    TRY(b->group_create(d->device, &spec, &layouts, &out->group));
    struct group_needs needs;
    b->group_get_needs(out->group, &needs);
    enum status st;
    TRY_GOTO(st, make_tensor(d, layouts.input[0], 0, &out->input), fail);
    out->args.input[0] = out->input;
    TRY_GOTO(st, make_tensor(d, layouts.param[0], 1, &out->args.param[0]), fail);
    TRY_GOTO(st, b->memory_alloc(d->device, b->layout_bytes(layouts.output), &out->args.output),
             fail);
    if (needs.forward_workspace_bytes > 0)
        TRY_GOTO(st,
                 b->memory_alloc(d->device, needs.forward_workspace_bytes, &out->args.workspace),
                 fail);
    return STATUS_OK;
fail:
    product_close(out);
    return st;
}

static enum status product_run(struct product *p, int64_t *t_ns)
{
    const struct step_state state = {.seed = 1};
    int64_t began_ns = timer_now_ns();
    TRY(p->d->backend->group_run(p->group, PASS_FORWARD, p->d->stream, &p->args, &state));
    TRY(p->d->backend->stream_synchronize(p->d->stream));
    *t_ns = timer_now_ns() - began_ns;
    return STATUS_OK;
}

enum status bench_product_measure(const struct bench_device *d, int64_t repeat,
                                  struct bench_product *p)
{
    struct product product;
    TRY(product_open(d, p, &product));
    int64_t times_ns[MAX_PRODUCT_RUNS], sum_ns = 0, n = 0;
    enum status st;
    TRY_GOTO(st, product_run(&product, &times_ns[0]), out); /* warm-up */
    while (n < MAX_PRODUCT_RUNS && (n < repeat || sum_ns < product_time_ns)) {
        TRY_GOTO(st, product_run(&product, &times_ns[n]), out);
        sum_ns += times_ns[n++];
    }
    p->median_s = numbers_median_ns(times_ns, n) * 1e-9;
    p->least_s = (double)times_ns[0] * 1e-9; /* they are sorted now */
out:
    product_close(&product);
    return st;
}

double bench_product_flops(const struct bench_product *p)
{
    return 2.0 * (double)p->rows * (double)p->inner * (double)p->columns;
}

enum status bench_peak_measure(const struct bench_device *d, struct bench_peak *out)
{
    *out = (struct bench_peak){0};
    for (int64_t size = PEAK_FIRST_SIZE; size <= PEAK_SIZE; size *= 2) {
        struct bench_product p = {.rows = size, .inner = size, .columns = size};
        TRY(bench_product_measure(d, size == PEAK_SIZE ? PEAK_REPEAT : 1, &p));
        double flops_per_s = bench_product_flops(&p) / p.least_s;
        if (flops_per_s > out->flops_per_s)
            *out = (struct bench_peak){.flops_per_s = flops_per_s, .size = size};
        if (8 * p.least_s > peak_run_s)
            break;
    }
    return STATUS_OK;
}

/* ---- names ---- */

enum status bench_check_strategy(const char *name)
{
    enum { MAX_NAMES = 64 };
    const char *names[MAX_NAMES + 1];
    int n = 0;
    for (const struct plan_strategy *p = plan_strategies(); p->name && n < MAX_NAMES; p++) {
        if (strcmp(p->name, name) == 0)
            return STATUS_OK;
        names[n++] = p->name;
    }
    names[n] = NULL;
    return text_fail_unknown("plan", name, names);
}
