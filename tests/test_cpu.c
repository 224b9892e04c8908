/* The cpu backend against the reference: every op case, forward and gradients, from plain and from
 * blocked inputs, with one thread and with three. */
#include "opcases.h"

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

/* A layout of the backend's own choice for a tensor: that of a sum's output. */
static const layout *chosen_layout(const struct opdevice *d, const struct shape *shape,
                                   const struct axes *axes)
{
    struct group_spec spec = {
        .op = {.op = OP_ADD, .n_inputs = 2, .input = {*shape, *shape}, .axes = *axes}};
    struct group_layouts io = {0};
    group *g;
    assert_ok(op_infer_shape(&spec.op));
    assert_ok(d->backend->layout_plain(d->device, ELEMENT_F32, shape, &io.input[0]));
    io.input[1] = io.input[0];
    assert_ok(d->backend->group_create(d->device, &spec, &io, &g));
    d->backend->group_destroy(g);
    return io.output;
}

/* |a - b| relative to the largest element of b. */
static void assert_tensors_near(const char *name, const char *what, int64_t n, const float *a,
                                const float *b)
{
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double apart = fabs((double)a[i] - (double)b[i]);
        largest = fmax(largest, fabs((double)b[i]));
        worst = apart <= worst ? worst : apart; /* NaN counts as the worst */
    }
    if (!(worst <= 2e-5 * fmax(largest, 1e-3)))
        fail_msg("%s: %s differs by %g (largest value %g)", name, what, worst, largest);
}

static void compare(struct oprun *r, struct oprun *o, const char *what, const void *mine,
                    const layout *my_layout, const void *truth, const layout *true_layout)
{
    if (!truth || !mine) {
        assert_true(!truth && !mine);
        return;
    }
    float *a = oprun_download(r, mine, my_layout), *b = oprun_download(o, truth, true_layout);
    assert_tensors_near(r->c.name, what, oprun_elements(r, my_layout), a, b);
    free(a);
    free(b);
}

/* An output that shares its input's bytes was never written: look at the input instead. */
static const void *output_of(const struct oprun *r)
{
    return r->needs.output_is_input ? r->args.input[0] : r->args.output;
}

static void compare_case(const struct opdevice *cpu, const struct opdevice *reference,
                         const struct opcase *c, const struct group_layouts *given)
{
    struct oprun r, o;
    oprun_open(&r, cpu, c, given);
    oprun_open(&o, reference, c, NULL);
    oprun_forward(&r);
    oprun_forward(&o);
    compare(&r, &o, "output", output_of(&r), r.layouts.output, output_of(&o), o.layouts.output);
    for (int i = 0; i < r.n_params; i++)
        compare(&r, &o, r.param[i].name, r.args.param[i], r.layouts.param[i], o.args.param[i],
                o.layouts.param[i]);
    /* A sum's gradient is handed on by the program, not computed. */
    bool passes = op_get_info(c->spec.op.op)->flags & OP_PASSES_GRADIENT;
    if (c->spec.training && !passes) {
        oprun_backward(&r);
        oprun_backward(&o);
        for (int i = 0; !r.needs.output_is_input && i < c->spec.op.n_inputs; i++)
            compare(&r, &o, "input gradient", r.args.input_grad[i], r.layouts.input[i],
                    o.args.input_grad[i], o.layouts.input[i]);
        for (int i = 0; i < r.n_params; i++)
            compare(&r, &o, "parameter gradient", r.args.param_grad[i], r.layouts.param[i],
                    o.args.param_grad[i], o.layouts.param[i]);
        if (c->spec.residual)
            compare(&r, &o, "residual gradient", oprun_residual_grad(&r), r.layouts.output,
                    oprun_residual_grad(&o), o.layouts.output);
    }
    oprun_close(&r);
    oprun_close(&o);
}

static void open_cpu(struct opdevice *d, int threads)
{
    opdevice_open(d, &backend_cpu, PRECISION_FLOAT, threads);
}

/* Cases without a shape of their output yet, each with the activations before `end`. */
static void compare_list(const struct opdevice *cpu, const struct opcase *cases, size_t n,
                         enum activation end)
{
    struct opdevice reference;
    opdevice_open(&reference, &backend_reference, PRECISION_DOUBLE, 1);
    for (size_t i = 0; i < n; i++) {
        struct opcase c = cases[i];
        opcase_infer(&c.spec.op);
        for (enum activation a = ACTIVATION_NONE; a < end; a++) {
            c.spec.activation = a;
            compare_case(cpu, &reference, &c, NULL);
        }
    }
    opdevice_close(&reference);
}

static void compare_all(int threads, bool blocked)
{
    struct opdevice cpu, reference;
    opdevice_open(&reference, &backend_reference, PRECISION_DOUBLE, 1);
    open_cpu(&cpu, threads);
    for (int i = 0; i < opcase_count(); i++) {
        const struct opcase *c = opcase_get(i);
        struct group_layouts given = {0};
        for (int k = 0; blocked && k < c->spec.op.n_inputs; k++)
            given.input[k] = chosen_layout(&cpu, &c->spec.op.input[k], &c->spec.op.axes);
        if (blocked && c->spec.residual)
            given.residual = chosen_layout(&cpu, &c->spec.op.output, &c->spec.op.output_axes);
        compare_case(&cpu, &reference, c, &given);
    }
    opdevice_close(&cpu);
    opdevice_close(&reference);
}

static void test_plain_inputs(void **state)
{
    (void)state;
    compare_all(1, false);
}

static void test_blocked_inputs(void **state)
{
    (void)state;
    compare_all(1, true);
}

static void test_three_threads(void **state)
{
    (void)state;
    compare_all(3, true);
}

/* Few tiles of many channels, and images that three threads cannot share alike. */
static void test_uneven_convolutions(void **state)
{
    (void)state;
    const struct opcase cases[] = {
        {.name = "3x3 of 256 channels",
         OPCASE_CONV(SHAPE4(6, 256, 6, 6), 272, OPCASE_WINDOW(3, 3, 1, 1), OPCASE_PAD(1, 1, 1, 1),
                     .groups = 1, .bias = true)},
        {.name = "3x3 stride 2, thirteen images",
         OPCASE_CONV(SHAPE4(13, 32, 9, 7), 48, OPCASE_WINDOW(3, 3, 2, 2), OPCASE_PAD(1, 1, 1, 1),
                     .groups = 1, .bias = true)},
        {.name = "1x1 stride 2, twelve images",
         OPCASE_CONV(SHAPE4(12, 20, 9, 9), 33, OPCASE_WINDOW(1, 1, 2, 2), OPCASE_PAD(0, 0, 0, 0),
                     .groups = 1)},
    };
    struct opdevice cpu;
    open_cpu(&cpu, 3);
    compare_list(&cpu, cases, sizeof cases / sizeof cases[0], ACTIVATION_NONE + 1);
    opdevice_close(&cpu);
}

/* Layers that read images: no gradient of the input, and long strides over few channels. */
static void test_images(void **state)
{
    (void)state;
    const struct opcase cases[] = {
        {.name = "11x11 stride 4",
         OPCASE_CONV(SHAPE4(2, 3, 35, 31), 16, OPCASE_WINDOW(11, 11, 4, 4), OPCASE_PAD(2, 2, 2, 2),
                     .groups = 1, .bias = true)},
        {.name = "5x7 stride 3, uneven padding, odd channels",
         OPCASE_CONV(SHAPE4(3, 2, 20, 23), 11, OPCASE_WINDOW(5, 7, 3, 3), OPCASE_PAD(0, 3, 2, 1),
                     .groups = 1)},
        {.name = "4x4 stride 4, one channel",
         OPCASE_CONV(SHAPE4(1, 1, 17, 16), 8, OPCASE_WINDOW(4, 4, 4, 4), OPCASE_PAD(0, 0, 0, 0),
                     .groups = 1, .bias = true)},
        {.name = "5x5, one channel to six",
         OPCASE_CONV(SHAPE4(19, 1, 28, 28), 6, OPCASE_WINDOW(5, 5, 1, 1), OPCASE_PAD(2, 2, 2, 2),
                     .groups = 1, .bias = true)},
        {.name = "3x6 stride 2 and 1, uneven padding, to 13",
         OPCASE_CONV(SHAPE4(2, 4, 9, 31), 13, OPCASE_WINDOW(3, 6, 2, 1), OPCASE_PAD(1, 0, 0, 2),
                     .groups = 1)},
        {.name = "11x11 stride 4 to many channels",
         OPCASE_CONV(SHAPE4(2, 3, 35, 31), 40, OPCASE_WINDOW(11, 11, 4, 4), OPCASE_PAD(2, 2, 2, 2),
                     .groups = 1, .bias = true)},
        {.name = "5x7 stride 3 to odd channels",
         OPCASE_CONV(SHAPE4(3, 2, 20, 23), 37, OPCASE_WINDOW(5, 7, 3, 3), OPCASE_PAD(0, 3, 2, 1),
                     .groups = 1)},
        {.name = "7x7 stride 2",
         OPCASE_CONV(SHAPE4(2, 3, 21, 19), 24, OPCASE_WINDOW(7, 7, 2, 2), OPCASE_PAD(3, 3, 3, 3),
                     .groups = 1)},
    };
    struct opcase images[sizeof cases / sizeof cases[0]];
    struct opdevice cpu;
    open_cpu(&cpu, 3);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        images[i] = cases[i];
        images[i].spec.input_gradient = false;
    }
    compare_list(&cpu, images, sizeof images / sizeof images[0], ACTIVATION_COUNT);
    opdevice_close(&cpu);
}

/* NaN comes out as NaN, as in the reference: a network that has diverged must not
 * look like one that has not. First element and last: whole vectors, and the rest. */
static void test_nan_passes(void **state)
{
    (void)state;
    static const char *const names[] = {"relu",         "relu of features",  "relu6",
                                        "max pool 2x2", "batch norm, relu6", "add, relu"};
    struct opdevice cpu;
    open_cpu(&cpu, 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct oprun r;
        oprun_open(&r, &cpu, opcase_find(names[i]), NULL);
        void *input = (void *)(uintptr_t)r.args.input[0];
        float *x = oprun_download(&r, input, r.layouts.input[0]);
        x[0] = x[oprun_elements(&r, r.layouts.input[0]) - 1] = NAN;
        oprun_upload(&r, x, input, r.layouts.input[0]);
        oprun_forward(&r);
        float *y = oprun_download(&r, r.args.output, r.layouts.output);
        int64_t last = oprun_elements(&r, r.layouts.output) - 1;
        assert_that(isnan(y[0]) && isnan(y[last]), "%s: %g, %g", names[i], (double)y[0],
                    (double)y[last]);
        free(x);
        free(y);
        oprun_close(&r);
    }
    opdevice_close(&cpu);
}

/* ---- threads ---- */

/* Something that differs as soon as one thread of the process has ended and another began. */
static int64_t sum_of_thread_ids(void)
{
    int64_t sum = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *e = readdir(tasks); e; e = readdir(tasks))
        sum += strtoll(e->d_name, NULL, 10);
    assert_int_equal(closedir(tasks), 0);
    return sum;
}

/* Weights with work for some of the threads only must not end the others. */
static void test_threads_stay(void **state)
{
    (void)state;
    static float weights[1 << 18], gradients[1 << 18];
    const struct update_rule rule = {.kind = UPDATE_SGD, .learning_rate = 0.1};
    struct opdevice cpu;
    open_cpu(&cpu, 4);
    int64_t before = 0;
    for (int64_t count = 1 << 18; count >= 1 << 14; count /= 2) {
        const struct update_args args = {
            .count = count, .type = ELEMENT_F32, .weight = weights, .gradient = gradients};
        assert_ok(backend_cpu.update(cpu.stream, &rule, &args));
        assert_ok(backend_cpu.stream_synchronize(cpu.stream));
        if (!before)
            before = sum_of_thread_ids();
        assert_int_equal(sum_of_thread_ids(), before);
    }
    opdevice_close(&cpu);
}

/* Plain inputs are converted, and their gradients back: by the pass that makes them alone. The
 * other one may come later, when its workspace has held something else. */
static void test_weights_leave_input_gradients(void **state)
{
    (void)state;
    struct opdevice cpu;
    struct oprun r;
    open_cpu(&cpu, 2);
    oprun_open(&r, &cpu, opcase_find("conv 17 to 16 channels"), NULL);
    oprun_forward(&r);
    oprun_backward(&r);
    float *before = oprun_download(&r, r.args.input_grad[0], r.layouts.input[0]);
    memset(r.args.workspace, 0, (size_t)r.needs.backward_workspace_bytes);
    assert_ok(backend_cpu.group_run(r.group, PASS_BACKWARD_WEIGHTS, cpu.stream, &r.args, &r.step));
    float *after = oprun_download(&r, r.args.input_grad[0], r.layouts.input[0]);
    for (int64_t i = 0; i < oprun_elements(&r, r.layouts.input[0]); i++)
        assert_true(before[i] == after[i]);
    free(after);
    free(before);
    oprun_close(&r);
    opdevice_close(&cpu);
}

static void test_double_is_refused(void **state)
{
    (void)state;
    assert_fails(backend_check_precision(&backend_cpu, PRECISION_DOUBLE), STATUS_USAGE,
                 "the cpu backend computes in float, bf16; for double use --backend reference");
    assert_fails(backend_check_precision(&backend_cpu, PRECISION_TF32), STATUS_USAGE,
                 "tf32 is for the predictions of other devices");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_inputs),
        cmocka_unit_test(test_blocked_inputs),
        cmocka_unit_test(test_three_threads),
        cmocka_unit_test(test_uneven_convolutions),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_threads_stay),
        cmocka_unit_test(test_weights_leave_input_gradients),
        cmocka_unit_test(test_double_is_refused),
        cmocka_unit_test(test_nan_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
