/* The reference backend: every op's gradients against central finite differences in double, its
 * results against small examples computed by hand, and its manners. */
#include "backend/reference/reference.h"

#include "opcases.h"

static struct opdevice in_double, in_float;

static int open_devices(void **state)
{
    (void)state;
    opdevice_open(&in_double, &backend_reference, PRECISION_DOUBLE, 1);
    opdevice_open(&in_float, &backend_reference, PRECISION_FLOAT, 1);
    return 0;
}

static int close_devices(void **state)
{
    opdevice_close(&in_double);
    opdevice_close(&in_float);
    return test_remove_folder(state);
}

/* ---- gradients against finite differences ---- */

static const double DIFFERENCE = 1e-5;

/* What the gradients are of: the sum of output times all output gradients; of the loss, its sum
 * over the global batch. Taken as the difference between two outputs, where equal terms cancel
 * exactly. */
static double objective_difference(const struct oprun *r, const double *plus, const double *minus)
{
    int64_t count = shape_elements(&r->c.spec.op.output);
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double weight = r->c.n_output_grads ? 0 : 1 / (double)r->c.spec.global_batch;
        for (int j = 0; j < r->c.n_output_grads; j++)
            weight += ((const double *)r->args.output_grad[j])[i];
        sum += weight * (plus[i] - minus[i]);
    }
    return sum;
}

static double difference_quotient(struct oprun *r, double *element, double *plus)
{
    const double at = *element;
    double *output = r->args.output;
    size_t n_bytes = (size_t)shape_elements(&r->c.spec.op.output) * sizeof *output;
    *element = at + DIFFERENCE;
    oprun_forward(r);
    memcpy(plus, output, n_bytes);
    *element = at - DIFFERENCE;
    oprun_forward(r);
    *element = at;
    return objective_difference(r, plus, output) / (2 * DIFFERENCE);
}

static void check_gradient(struct oprun *r, const char *tensor, const layout *l, void *values,
                           const void *gradient)
{
    int64_t count = oprun_elements(r, l);
    double *expected = calloc((size_t)count, sizeof *expected);
    double *plus = calloc((size_t)shape_elements(&r->c.spec.op.output), sizeof *plus);
    assert_true(expected && plus);
    double scale = 1e-2;
    for (int64_t i = 0; i < count; i++) {
        expected[i] = difference_quotient(r, (double *)values + i, plus);
        scale = fmax(scale, fabs(expected[i]));
    }
    for (int64_t i = 0; i < count; i++) {
        double actual = ((const double *)gradient)[i];
        assert_that(fabs(actual - expected[i]) <= 1e-6 * scale,
                    "%s: gradient of %s, element %lld: %.12g, but by differences %.12g", r->c.name,
                    tensor, (long long)i, actual, expected[i]);
    }
    free(plus);
    free(expected);
}

static void check_gradients(const struct opcase *c)
{
    struct oprun r;
    oprun_open(&r, &in_double, c, NULL);
    if (!r.needs.output_is_input) { /* then there is nothing to run */
        oprun_forward(&r);
        oprun_backward(&r);
        for (int i = 0; i < c->spec.op.n_inputs; i++)
            check_gradient(&r, "input", r.layouts.input[i], (void *)(uintptr_t)r.args.input[i],
                           r.args.input_grad[i]);
        if (c->spec.residual)
            check_gradient(&r, "residual", r.layouts.residual, (void *)(uintptr_t)r.args.residual,
                           oprun_residual_grad(&r));
        for (int i = 0; i < r.n_params; i++)
            if (r.param[i].trained)
                check_gradient(&r, r.param[i].name, r.layouts.param[i], r.args.param[i],
                               r.args.param_grad[i]);
    }
    oprun_close(&r);
}

static void test_gradients(void **state)
{
    (void)state;
    bool seen[OP_KIND_COUNT] = {[OP_INPUT] = true};
    for (int i = 0; i < opcase_count(); i++) {
        check_gradients(opcase_get(i));
        seen[opcase_get(i)->spec.op.op] = true;
    }
    for (int i = 0; i < OP_KIND_COUNT; i++)
        assert_that(seen[i], "%s has no case", op_get_info((enum op_kind)i)->name);
}

/* The first layer's input gets no gradient: its weights' gradients must not depend on that. */
static void test_no_input_gradient(void **state)
{
    (void)state;
    const char *const names[] = {"conv 3x3 pad 1 bias", "linear bias", "batch norm"};
    for (int i = 0; i < 3; i++) {
        struct opcase c = *opcase_find(names[i]);
        struct oprun with, without;
        oprun_open(&with, &in_double, &c, NULL);
        c.spec.input_gradient = false;
        oprun_open(&without, &in_double, &c, NULL);
        assert_null(without.args.input_grad[0]);
        oprun_forward(&with);
        oprun_forward(&without);
        oprun_backward(&with);
        oprun_backward(&without);
        for (int j = 0; j < 2; j++)
            assert_memory_equal(with.args.param_grad[j], without.args.param_grad[j],
                                (size_t)backend_reference.layout_bytes(with.layouts.param[j]));
        oprun_close(&with);
        oprun_close(&without);
    }
}

/* Flatten shares its buffer with its input, but its kernel must work where a caller does not. */
static void test_flatten_copies(void **state)
{
    (void)state;
    struct oprun r;
    oprun_open(&r, &in_double, opcase_find("flatten"), NULL);
    assert_true(r.needs.output_is_input);
    assert_ptr_equal(r.args.output, r.args.input[0]);
    r.args.output = oprun_result(&r, r.layouts.output);
    r.args.input_grad[0] = oprun_result(&r, r.layouts.input[0]);
    assert_ok(backend_reference.group_run(r.group, PASS_FORWARD, NULL, &r.args, &r.step));
    assert_ok(backend_reference.group_run(r.group, PASS_BACKWARD, NULL, &r.args, &r.step));
    size_t n_bytes = (size_t)backend_reference.layout_bytes(r.layouts.output);
    assert_memory_equal(r.args.output, r.args.input[0], n_bytes);
    assert_memory_equal(r.args.input_grad[0], r.args.output_grad[0], n_bytes);
    oprun_close(&r);
}

/* ---- float against double ---- */

static void check_close(struct oprun *a, struct oprun *b, const char *tensor, const void *in_a,
                        const void *in_b, const layout *l, const layout *l_b)
{
    float *x = oprun_download(a, in_a, l), *y = oprun_download(b, in_b, l_b);
    double scale = 1;
    for (int64_t i = 0; i < oprun_elements(b, l_b); i++)
        scale = fmax(scale, fabs((double)y[i]));
    for (int64_t i = 0; i < oprun_elements(b, l_b); i++)
        assert_that(fabs((double)x[i] - (double)y[i]) <= 1e-5 * scale,
                    "%s: %s, element %lld: %g in float, %g in double", a->c.name, tensor,
                    (long long)i, (double)x[i], (double)y[i]);
    free(x);
    free(y);
}

static void test_float_is_near_double(void **state)
{
    (void)state;
    for (int i = 0; i < opcase_count(); i++) {
        struct oprun a, b;
        oprun_open(&a, &in_float, opcase_get(i), NULL);
        oprun_open(&b, &in_double, opcase_get(i), NULL);
        oprun_forward(&a);
        oprun_forward(&b);
        check_close(&a, &b, "output", a.args.output, b.args.output, a.layouts.output,
                    b.layouts.output);
        oprun_backward(&a);
        oprun_backward(&b);
        for (int j = 0; j < a.c.spec.op.n_inputs; j++)
            check_close(&a, &b, "input gradient", a.args.input_grad[j], b.args.input_grad[j],
                        a.layouts.input[j], b.layouts.input[j]);
        for (int j = 0; j < a.n_params; j++) {
            check_close(&a, &b, a.param[j].name, a.args.param[j], b.args.param[j],
                        a.layouts.param[j], b.layouts.param[j]);
            if (a.param[j].trained)
                check_close(&a, &b, "param gradient", a.args.param_grad[j], b.args.param_grad[j],
                            a.layouts.param[j], b.layouts.param[j]);
        }
        oprun_close(&a);
        oprun_close(&b);
    }
}

/* Without training nothing is saved, and all but batch norm and dropout compute the same. */
static void test_evaluation(void **state)
{
    (void)state;
    for (int i = 0; i < opcase_count(); i++) {
        struct opcase c = *opcase_get(i);
        struct oprun training, evaluation;
        oprun_open(&training, &in_double, &c, NULL);
        c.spec.training = c.spec.input_gradient = false;
        oprun_open(&evaluation, &in_double, &c, NULL);
        assert_int_equal(evaluation.needs.saved_bytes, 0);
        assert_int_equal(evaluation.needs.backward_workspace_bytes, 0);
        oprun_forward(&training);
        oprun_forward(&evaluation);
        if (c.spec.op.op != OP_BATCH_NORM && c.spec.op.op != OP_DROPOUT)
            assert_memory_equal(training.args.output, evaluation.args.output,
                                (size_t)backend_reference.layout_bytes(training.layouts.output));
        oprun_close(&training);
        oprun_close(&evaluation);
    }
}

/* ---- small examples by hand ---- */

/* A group of spec on doubles: forward on `input` (and params), then compared with `expected`. */
struct example {
    struct group_spec spec;
    const double *input, *param[OP_MAX_PARAMS];
    const double *expected;
};

static struct opcase example_case(const struct group_spec *spec)
{
    struct opcase c = {.name = "example", .spec = *spec, .n_output_grads = 1};
    if (c.spec.op.n_inputs == 0)
        c.spec.op.n_inputs = 1;
    opcase_infer(&c.spec.op);
    return c;
}

static void open_example(struct oprun *r, const struct example *e)
{
    struct opcase c = example_case(&e->spec);
    oprun_open(r, &in_double, &c, NULL);
    memcpy((void *)(uintptr_t)r->args.input[0], e->input,
           (size_t)backend_reference.layout_bytes(r->layouts.input[0]));
    for (int i = 0; i < r->n_params; i++)
        if (e->param[i])
            memcpy(r->args.param[i], e->param[i],
                   (size_t)backend_reference.layout_bytes(r->layouts.param[i]));
}

static void assert_values(const void *actual, const double *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_near(((const double *)actual)[i], expected[i], 1e-12);
}

static void check_example(const struct example *e)
{
    struct oprun r;
    open_example(&r, e);
    oprun_forward(&r);
    assert_values(r.args.output, e->expected, shape_elements(&r.c.spec.op.output));
    oprun_close(&r);
}

static void test_conv_by_hand(void **state)
{
    (void)state;
    const double input[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, weight[4] = {1, 10, 100, 1000};
    const double bias[1] = {0.5};
    const struct example plain = {.spec.op = {.op = OP_CONV2D,
                                              .input = {SHAPE4(1, 1, 3, 3)},
                                              .attrs = {.out_channels = 1,
                                                        OPCASE_WINDOW(2, 2, 1, 1),
                                                        .groups = 1,
                                                        .bias = true}},
                                  .input = input,
                                  .param = {weight, bias},
                                  .expected = (const double[]){5421.5, 6532.5, 8754.5, 9865.5}};
    check_example(&plain);

    struct example padded = plain; /* one row above, one column to the right; every second place */
    padded.spec.op.attrs.pad_before[0] = padded.spec.op.attrs.pad_after[1] = 1;
    padded.spec.op.attrs.stride[0] = padded.spec.op.attrs.stride[1] = 2;
    padded.expected = (const double[]){2100.5, 300.5, 8754.5, 906.5};
    check_example(&padded);

    struct example dilated = plain; /* the corners */
    dilated.spec.op.attrs.dilation[0] = dilated.spec.op.attrs.dilation[1] = 2;
    dilated.expected = (const double[]){1 + 30 + 700 + 9000 + 0.5};
    check_example(&dilated);

    struct example activated = plain;
    activated.spec.activation = ACTIVATION_RELU6;
    activated.param[0] = (const double[]){1, 0, 0, 0};
    activated.param[1] = (const double[]){-2};
    activated.input = (const double[]){1, 2, 3, 4, 50, 6, 7, 8, 9};
    activated.expected = (const double[]){0, 0, 2, 6};
    check_example(&activated);
}

static void test_groups_by_hand(void **state)
{
    (void)state;
    const struct example depthwise = {
        .spec.op = {.op = OP_CONV2D,
                    .input = {SHAPE4(1, 2, 1, 2)},
                    .attrs = {.out_channels = 4, OPCASE_WINDOW(1, 2, 1, 1), .groups = 2}},
        .input = (const double[]){1, 2, 3, 4},
        .param = {(const double[]){1, 10, 2, 20, 3, 30, 4, 40}},
        .expected = (const double[]){21, 42, 129, 172}};
    check_example(&depthwise);
}

static void test_linear_by_hand(void **state)
{
    (void)state;
    const struct example linear = {
        .spec.op = {.op = OP_LINEAR,
                    .input = {SHAPE2(2, 3)},
                    .attrs = {.out_channels = 2, .bias = true}},
        .input = (const double[]){1, 2, 3, -1, 0, 1},
        .param = {(const double[]){1, 10, 100, 2, 0, -2}, (const double[]){0.5, -0.5}},
        .expected = (const double[]){321.5, -4.5, 99.5, -4.5}};
    check_example(&linear);
}

static void test_pools_by_hand(void **state)
{
    (void)state;
    const double input[9] = {-1, -2, -3, -4, -5, -6, -7, -8, -9};
    struct example pool = {
        .spec.op = {.op = OP_MAX_POOL,
                    .input = {SHAPE4(1, 1, 3, 3)},
                    .attrs = {OPCASE_WINDOW(2, 2, 2, 2), OPCASE_PAD(1, 1, 0, 0)}},
        .input = input,
        .expected = (const double[]){-1, -2, -4, -5}};
    check_example(&pool); /* padding, though greater than all, never wins */

    pool.spec.op.op = OP_AVERAGE_POOL;
    pool.expected = (const double[]){-1, -2.5, -5.5, -7};
    check_example(&pool);
    pool.spec.op.attrs.count_padding = true;
    pool.expected = (const double[]){-0.25, -1.25, -2.75, -7};
    check_example(&pool);

    pool.spec.op.op = OP_GLOBAL_POOL;
    pool.expected = (const double[]){-5};
    check_example(&pool);
    pool.spec.op.op = OP_ADAPTIVE_POOL; /* 3 to 2: elements 0-1 and 1-2 */
    pool.spec.op.attrs.out_size[0] = pool.spec.op.attrs.out_size[1] = 2;
    pool.expected = (const double[]){-3, -4, -6, -7};
    check_example(&pool);
}

/* Of equal maxima the first in scan order gets the gradient; overlapping windows add up. */
static void test_max_pool_ties(void **state)
{
    (void)state;
    const struct example e = {
        .spec = {.training = true,
                 .input_gradient = true,
                 .op = {.op = OP_MAX_POOL,
                        .input = {SHAPE4(1, 1, 1, 4)},
                        .attrs = {OPCASE_WINDOW(1, 2, 1, 1)}}},
        .input = (const double[]){3, 3, 3, 1},
    };
    struct oprun r;
    open_example(&r, &e);
    oprun_forward(&r);
    memcpy((void *)(uintptr_t)r.args.output_grad[0], (const double[]){1, 10, 100},
           3 * sizeof(double));
    oprun_backward(&r);
    assert_values(r.args.input_grad[0], (const double[]){1, 10, 100, 0}, 4);
    assert_false(r.needs.reads_input || r.needs.reads_output);
    oprun_close(&r);
}

static void test_local_response_norm_by_hand(void **state)
{
    (void)state;
    /* A window of 2 is the channel before and the channel itself. */
    const struct example e = {
        .spec.op = {.op = OP_LOCAL_RESPONSE_NORM,
                    .input = {SHAPE4(1, 3, 1, 1)},
                    .attrs = {.lrn_size = 2, .lrn_alpha = 2, .lrn_beta = 0.5, .lrn_k = 3}},
        .input = (const double[]){1, 2, 3},
        .expected = (const double[]){1 / sqrt(4), 2 / sqrt(8), 3 / sqrt(16)}};
    check_example(&e);
}

static void test_activations_by_hand(void **state)
{
    (void)state;
    const double input[4] = {-1, 0.5, 3, 7};
    const double expected[][4] = {
        {0, 0.5, 3, 7},
        {0, 0.5, 3, 6},
        {1 / (1 + exp(1)), 1 / (1 + exp(-0.5)), 1 / (1 + exp(-3)), 1 / (1 + exp(-7))},
        {tanh(-1), tanh(0.5), tanh(3), tanh(7)}};
    const enum op_kind ops[] = {OP_RELU, OP_RELU6, OP_LOGISTIC, OP_TANH};
    for (int i = 0; i < 4; i++) {
        const struct example e = {.spec.op = {.op = ops[i], .input = {SHAPE2(1, 4)}},
                                  .input = input,
                                  .expected = expected[i]};
        check_example(&e);
    }
}

/* ---- batch norm ---- */

static const struct group_spec norm_spec = {.training = true,
                                            .input_gradient = true,
                                            .op = {.op = OP_BATCH_NORM,
                                                   .input = {{4, {2, 2, 1, 2}}},
                                                   .attrs = {.epsilon = 0.25, .momentum = 0.1}}};
/* Channel 0 holds 1 2 3 6: mean 3, biased variance 3.5, unbiased 14/3. Channel 1 is constant. */
static const double norm_input[8] = {1, 2, 5, 5, 3, 6, 5, 5};

static void test_batch_norm_training(void **state)
{
    (void)state;
    const struct example e = {.spec = norm_spec,
                              .input = norm_input,
                              .param = {(const double[]){2, 3}, (const double[]){10, 20},
                                        (const double[]){1, -1}, (const double[]){2, 4}}};
    struct oprun r;
    open_example(&r, &e);
    oprun_forward(&r);
    const double s = 2 / sqrt(3.75);
    const double expected[8] = {10 - 2 * s, 10 - s, 20, 20, 10, 10 + 3 * s, 20, 20};
    assert_values(r.args.output, expected, 8);
    assert_values(r.args.param[2], (const double[]){0.9 + 0.3, -0.9 + 0.5}, 2);
    assert_values(r.args.param[3], (const double[]){1.8 + 0.1 * 14 / 3, 3.6}, 2);
    oprun_close(&r);
}

static void test_batch_norm_evaluation(void **state)
{
    (void)state;
    struct example e = {.spec = norm_spec,
                        .input = norm_input,
                        .param = {(const double[]){2, 3}, (const double[]){10, 20},
                                  (const double[]){1, 4}, (const double[]){2, 0.75}}};
    e.spec.training = false;
    const double s = 2 / 1.5, t = 3 / 1.0;
    e.expected =
        (const double[]){10, 10 + s, 20 + t, 20 + t, 10 + 2 * s, 10 + 5 * s, 20 + t, 20 + t};
    struct oprun r;
    open_example(&r, &e);
    assert_int_equal(r.needs.saved_bytes, 0);
    oprun_forward(&r);
    assert_values(r.args.output, e.expected, 8);
    assert_values(r.args.param[2], e.param[2], 2);
    assert_values(r.args.param[3], e.param[3], 2);
    assert_fails(backend_reference.group_run(r.group, PASS_BACKWARD, NULL, &r.args, &r.step),
                 STATUS_FAILED, "evaluation");
    oprun_close(&r);
}

/* One value has no unbiased variance; the running one must not become NaN. */
static void test_batch_norm_of_one_value(void **state)
{
    (void)state;
    const struct example e = {.spec = {.training = true,
                                       .op = {.op = OP_BATCH_NORM,
                                              .input = {SHAPE2(1, 1)},
                                              .attrs = {.epsilon = 1, .momentum = 0.5}}},
                              .input = (const double[]){4},
                              .param = {(const double[]){2}, (const double[]){3},
                                        (const double[]){0}, (const double[]){1}}};
    struct oprun r;
    open_example(&r, &e);
    oprun_forward(&r);
    assert_values(r.args.output, (const double[]){3}, 1);
    assert_values(r.args.param[2], (const double[]){2}, 1);
    assert_values(r.args.param[3], (const double[]){0.5}, 1);
    oprun_close(&r);
}

/* ---- dropout ---- */

/* The kept elements of an input of ones, for a batch of n samples of 1000, into `kept`. */
static void draw_mask(int64_t n, double probability, struct step_state step, bool training,
                      uint32_t random_stream, double *kept)
{
    struct group_spec spec = {.training = training,
                              .input_gradient = true,
                              .random_stream = random_stream,
                              .op = {.op = OP_DROPOUT,
                                     .input = {SHAPE2(n, 1000)},
                                     .attrs.drop_probability = probability}};
    struct opcase c = example_case(&spec);
    struct oprun r;
    oprun_open(&r, &in_double, &c, NULL);
    double *input = (void *)(uintptr_t)r.args.input[0];
    for (int64_t i = 0; i < n * 1000; i++)
        input[i] = 1;
    r.step = step;
    oprun_forward(&r);
    memcpy(kept, r.args.output, (size_t)(n * 1000) * sizeof *kept);
    if (training) { /* the gradient of ones goes through the same mask */
        r.args.output_grad[0] = input;
        oprun_backward(&r);
        assert_memory_equal(r.args.input_grad[0], kept, (size_t)(n * 1000) * sizeof *kept);
    }
    oprun_close(&r);
}

static void test_dropout(void **state)
{
    (void)state;
    enum { N = 20, COUNT = N * 1000 };
    static double first[COUNT], other[COUNT];
    const struct step_state step = {.seed = 11, .step = 4}, next = {.seed = 11, .step = 5};

    draw_mask(N, 0.3, step, true, 1, first);
    int n_dropped = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_true(first[i] == 0 || fabs(first[i] - 1 / 0.7) < 1e-12);
        n_dropped += first[i] == 0;
    }
    /* 6000 expected, standard deviation 65 */
    assert_in_range(n_dropped, 5700, 6300);

    /* The rule itself, which other backends share. */
    const struct random_key key = {11, RANDOM_DROPOUT, 1};
    for (uint64_t i = 0; i < COUNT; i++)
        assert_int_equal(first[i] == 0, random_word(key, 4, i) < 0.3 * 0x1p32);

    draw_mask(N, 0.3, step, true, 1, other);
    assert_memory_equal(first, other, sizeof first);
    draw_mask(7, 0.3, step, true, 1, other); /* a smaller batch sees the same first samples */
    assert_memory_equal(first, other, 7 * 1000 * sizeof *first);
    draw_mask(N, 0.3, next, true, 1, other);
    assert_memory_not_equal(first, other, sizeof first);
    draw_mask(N, 0.3, step, true, 2, other);
    assert_memory_not_equal(first, other, sizeof first);
    draw_mask(N, 0.3, step, false, 1, other);
    for (int i = 0; i < COUNT; i++)
        assert_true(other[i] == 1);
    draw_mask(N, 0, step, true, 1, other);
    for (int i = 0; i < COUNT; i++)
        assert_true(other[i] == 1);
}

/* ---- the loss ---- */

static void test_loss_by_hand(void **state)
{
    (void)state;
    /* Exponents that overflow if taken as they are; probabilities 1/3 and 2/3. */
    const struct example e = {
        .spec = {.training = true,
                 .input_gradient = true,
                 .global_batch = 8,
                 .op = {.op = OP_SOFTMAX_CROSS_ENTROPY, .input = {SHAPE2(2, 2)}}},
        .input = (const double[]){1000, 1000 + log(2), -1000, -1000 + log(2)}};
    struct opcase c = example_case(&e.spec);
    c.n_output_grads = 0;
    struct oprun r;
    oprun_open(&r, &in_double, &c, NULL);
    memcpy((void *)(uintptr_t)r.args.input[0], e.input, 4 * sizeof(double));
    assert_int_equal(r.labels[0], 0);
    assert_int_equal(r.labels[1], 1);
    oprun_forward(&r);
    oprun_backward(&r);
    assert_values(r.args.output, (const double[]){log(3), log(1.5)}, 2);
    assert_values(r.args.input_grad[0], (const double[]){-2.0 / 24, 2.0 / 24, 1.0 / 24, -1.0 / 24},
                  4);
    oprun_close(&r);
}

static void test_wrong_labels(void **state)
{
    (void)state;
    struct oprun r;
    oprun_open(&r, &in_double, opcase_find("softmax cross-entropy"), NULL);
    int32_t *labels = (void *)(uintptr_t)r.args.labels;
    labels[3] = 10;
    assert_fails(backend_reference.group_run(r.group, PASS_FORWARD, NULL, &r.args, &r.step),
                 STATUS_FAILED, "sample 3 of the batch has label 10");
    labels[3] = -1;
    assert_fails(backend_reference.group_run(r.group, PASS_FORWARD, NULL, &r.args, &r.step),
                 STATUS_FAILED, "label -1");
    oprun_close(&r);
}

/* ---- optimizers ---- */

/* Steps of one weight that starts at 1, with the gradients given. */
static void check_update(struct update_rule rule, int n_steps, const double *gradients,
                         const double *weights)
{
    double weight = 1, first = 0, second = 0;
    for (int i = 0; i < n_steps; i++) {
        const struct update_args args = {.count = 1,
                                         .type = ELEMENT_F64,
                                         .weight = &weight,
                                         .gradient = &gradients[i],
                                         .state = {&first, &second}};
        rule.step = i + 1;
        assert_ok(backend_reference.update(in_double.stream, &rule, &args));
        assert_near(weight, weights[i], 1e-12);
    }
    assert_true(update_rule_states(&rule) > 1 || second == 0);
    assert_true(update_rule_states(&rule) > 0 || first == 0);
}

static void test_updates(void **state)
{
    (void)state;
    const double gradients[3] = {1, 2, -1};
    struct update_rule rule = {.kind = UPDATE_SGD, .learning_rate = 0.1};
    check_update(rule, 3, gradients, (const double[]){0.9, 0.7, 0.8});

    rule.momentum = 0.5; /* buffers 1, 2.5, 0.25 */
    check_update(rule, 3, gradients, (const double[]){0.9, 0.65, 0.625});

    rule.nesterov = true; /* directions 1.5, 3.25, -0.875 */
    check_update(rule, 3, gradients, (const double[]){0.85, 0.525, 0.6125});

    rule.nesterov = false;
    rule.weight_decay = 0.5; /* g + w/2: 1.5, then 2.425 with buffer 3.175 */
    check_update(rule, 2, gradients, (const double[]){0.85, 0.85 - 0.3175});

    /* With corrected moments the first step of Adam has size 1: m = g, v = g^2. Then
     * m = (0.9 * 0.1 * 1 + 0.1 * 2) / 0.19, v = (0.99 * 0.01 * 1 + 0.01 * 4) / 0.0199. */
    const struct update_rule adamw = {.kind = UPDATE_ADAMW,
                                      .learning_rate = 0.1,
                                      .weight_decay = 0.5,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .epsilon = 0.25};
    const double w1 = 0.95 - 0.1 / 1.25;
    const double w2 = w1 * 0.95 - 0.1 * (0.29 / 0.19) / (sqrt(0.0499 / 0.0199) + 0.25);
    check_update(adamw, 2, gradients, (const double[]){w1, w2});
}

/* Padding elements of blocked tensors are zero and stay so. */
static void test_updates_keep_zero(void **state)
{
    (void)state;
    const double zero[1] = {0};
    double weight = 0, first = 0, second = 0;
    const struct update_args args = {.count = 1,
                                     .type = ELEMENT_F64,
                                     .weight = &weight,
                                     .gradient = zero,
                                     .state = {&first, &second}};
    const struct update_rule rules[] = {
        {.kind = UPDATE_SGD, .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1},
        {.kind = UPDATE_ADAMW,
         .learning_rate = 0.1,
         .beta1 = 0.9,
         .beta2 = 0.99,
         .epsilon = 1e-8,
         .step = 1}};
    for (int i = 0; i < 2; i++) {
        assert_ok(backend_reference.update(in_double.stream, &rules[i], &args));
        assert_true(weight == 0 && first == 0 && second == 0);
    }
}

/* ---- the rest of the contract ---- */

static void test_fold_in_place(void **state)
{
    (void)state;
    double a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
    const double output[3] = {0, 0.5, 6};
    const struct shape shape = SHAPE1(3);
    const layout *l = NULL;
    assert_ok(backend_reference.layout_plain(in_double.device, ELEMENT_F64, &shape, &l));
    const void *addends[2] = {a, b};
    assert_ok(backend_reference.fold(in_double.stream, l, 2, addends, ACTIVATION_RELU6, output, b));
    assert_values(b, (const double[]){0, 22, 0}, 3);
    assert_ok(backend_reference.fold(in_double.stream, l, 2, addends, ACTIVATION_NONE, NULL, a));
    assert_values(a, (const double[]){1, 24, 3}, 3);
}

static void test_layouts_are_interned(void **state)
{
    (void)state;
    const struct shape a = SHAPE4(2, 3, 4, 5), b = SHAPE2(6, 20);
    const layout *first = NULL, *again = NULL, *other = NULL;
    assert_ok(backend_reference.layout_plain(in_float.device, ELEMENT_F32, &a, &first));
    assert_ok(backend_reference.layout_plain(in_float.device, ELEMENT_F32, &b, &other));
    assert_ok(backend_reference.layout_plain(in_float.device, ELEMENT_F32, &a, &again));
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(first, other);
    assert_int_equal(backend_reference.layout_bytes(first), 480);
    assert_true(shape_equal(backend_reference.layout_shape(first), &a));
    char text[160];
    assert_string_equal(backend_reference.layout_text(first, text, sizeof text), "plain 2x3x4x5");
    assert_ok(backend_reference.layout_plain(in_float.device, ELEMENT_F64, &a, &other));
    assert_ptr_not_equal(first, other); /* the same shape in another type */
    assert_int_equal(backend_reference.layout_bytes(other), 960);
    assert_int_equal(backend_reference.layout_type(other), ELEMENT_F64);
    assert_string_equal(backend_reference.layout_text(other, text, sizeof text),
                        "plain:f64 2x3x4x5");
    assert_ok(backend_reference.layout_plain(in_float.device, ELEMENT_BF16, &a, &other));
    assert_int_equal(backend_reference.layout_bytes(other), 240);
}

static void test_memory(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, 1, 64, 1000};
    for (int i = 0; i < 4; i++) {
        char *p = NULL;
        assert_ok(backend_reference.memory_alloc(in_float.device, sizes[i], (void **)&p));
        assert_int_equal((uintptr_t)p % 64, 0);
        for (int64_t j = 0; j < sizes[i]; j++)
            assert_int_equal(p[j], 0);
        backend_reference.memory_free(in_float.device, p);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct oprun r;
    oprun_open(&r, &in_double, opcase_find("conv 3x3 pad 1 bias"), NULL);
    struct group_args args = r.args;
    assert_fails(backend_reference.group_run(r.group, PASS_BACKWARD, NULL, &args, &r.step),
                 STATUS_FAILED, "conv2d: a group for training has no backward pass");
    args.n_output_grads = 0;
    assert_fails(backend_reference.group_run(r.group, PASS_BACKWARD_DATA, NULL, &args, &r.step),
                 STATUS_FAILED, "output gradient is missing");
    args = r.args;
    args.workspace = NULL;
    assert_fails(backend_reference.group_run(r.group, PASS_FORWARD, NULL, &args, &r.step),
                 STATUS_FAILED, "workspace is missing");

    const struct shape wrong = SHAPE4(2, 3, 7, 6);
    struct group_layouts layouts = r.layouts;
    group *g = NULL;
    assert_ok(
        backend_reference.layout_plain(in_double.device, ELEMENT_F64, &wrong, &layouts.input[0]));
    assert_fails(backend_reference.group_create(in_double.device, &r.c.spec, &layouts, &g),
                 STATUS_FAILED, "its input should be 2x3x7x5, but the layout is 2x3x7x6");
    struct shape right = r.c.spec.op.input[0];
    assert_ok(
        backend_reference.layout_plain(in_double.device, ELEMENT_F32, &right, &layouts.input[0]));
    assert_fails(backend_reference.group_create(in_double.device, &r.c.spec, &layouts, &g),
                 STATUS_FAILED, "its input should be f64, but the layout is f32");
    struct group_spec nothing = {.op = {.op = OP_INPUT}};
    assert_fails(backend_reference.group_create(in_double.device, &nothing, &layouts, &g),
                 STATUS_FAILED, "input computes nothing");
    oprun_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_no_input_gradient),
        cmocka_unit_test(test_flatten_copies),
        cmocka_unit_test(test_float_is_near_double),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_conv_by_hand),
        cmocka_unit_test(test_groups_by_hand),
        cmocka_unit_test(test_linear_by_hand),
        cmocka_unit_test(test_pools_by_hand),
        cmocka_unit_test(test_max_pool_ties),
        cmocka_unit_test(test_local_response_norm_by_hand),
        cmocka_unit_test(test_activations_by_hand),
        cmocka_unit_test(test_batch_norm_training),
        cmocka_unit_test(test_batch_norm_evaluation),
        cmocka_unit_test(test_batch_norm_of_one_value),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_loss_by_hand),
        cmocka_unit_test(test_wrong_labels),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_updates_keep_zero),
        cmocka_unit_test(test_fold_in_place),
        cmocka_unit_test(test_layouts_are_interned),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
