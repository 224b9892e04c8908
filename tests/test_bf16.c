/* Training in bf16: ops against float, plans against one worker, losses against those of float, and
 * memory as it was predicted. On every backend that computes in it. */
#include "backend/reference/reference.h"
#include "base/bf16.h"
#include "base/random.h"
#include "opcases.h"
#include "plan_suite.h"
#include "team.h"

/* ---- numbers ---- */

static void test_rounding(void **state)
{
    (void)state;
    static const struct {
        float from, to;
    } cases[] = {
        {1.0f, 1.0f},
        {-0.0f, -0.0f},
        {1.00390625f, 1.0f},       /* a half: to the even one, below */
        {1.01171875f, 1.015625f},  /* likewise, above */
        {1.00390637f, 1.0078125f}, /* a bit more than a half */
        {3.4e38f, INFINITY},       /* above the largest */
        {-INFINITY, -INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_that(bf16_widen(bf16_round(cases[i].from)) == cases[i].to, "case %zu", i);
    assert_true(isnan(bf16_widen(bf16_round(NAN))));
    for (uint32_t x = 0; x < 1u << 16; x++) { /* a number of bf16 stays as it is */
        float wide = bf16_widen((uint16_t)x);
        assert_true(isnan(wide) || bf16_round(wide) == x);
    }
}

/* ---- ops ---- */

static void compare(struct oprun *narrow, struct oprun *wide, const char *tensor, const void *in_n,
                    const layout *l_n, const void *in_w, const layout *l_w)
{
    /* An element of bf16 is known to one part in 256. Gradients also come of outputs that were
     * rounded, of which the slopes of tanh and the logistic make more, and sums add that up. */
    bool gradient = strstr(tensor, "gradient"), sums = strcmp(tensor, "param gradient") == 0;
    double allowed = (sums ? 5 : gradient ? 2 : 1) / 128.0;
    if (!in_n)
        return;
    float *x = oprun_download(narrow, in_n, l_n), *y = oprun_download(wide, in_w, l_w);
    double scale = 1;
    for (int64_t i = 0; i < oprun_elements(wide, l_w); i++)
        scale = fmax(scale, fabs((double)y[i]));
    for (int64_t i = 0; i < oprun_elements(wide, l_w); i++)
        assert_that(fabs((double)x[i] - (double)y[i]) <= scale * allowed,
                    "%s on %s: %s, element %lld: %g in bf16, %g in float", narrow->c.name,
                    narrow->on->backend->name, tensor, (long long)i, (double)x[i], (double)y[i]);
    free(x);
    free(y);
}

static void compare_case(const struct opdevice *in_bf16, const struct opdevice *in_float,
                         const struct opcase *c)
{
    struct oprun a, b;
    oprun_open(&a, in_bf16, c, NULL);
    oprun_open(&b, in_float, c, NULL);
    oprun_forward(&a);
    oprun_forward(&b);
    compare(&a, &b, "output", a.args.output, a.layouts.output, b.args.output, b.layouts.output);
    bool passes = op_get_info(c->spec.op.op)->flags & OP_PASSES_GRADIENT; /* never asked */
    if (!passes) {
        oprun_backward(&a);
        oprun_backward(&b);
    }
    for (int i = 0; !passes && i < c->spec.op.n_inputs; i++)
        compare(&a, &b, "input gradient", a.args.input_grad[i], a.layouts.input[i],
                b.args.input_grad[i], b.layouts.input[i]);
    if (c->spec.residual && !passes)
        compare(&a, &b, "residual gradient", oprun_residual_grad(&a), a.layouts.output,
                oprun_residual_grad(&b), b.layouts.output);
    for (int i = 0; i < a.n_params; i++) {
        compare(&a, &b, a.param[i].name, a.args.param[i], a.layouts.param[i], b.args.param[i],
                b.layouts.param[i]);
        compare(&a, &b, "param gradient", a.args.param_grad[i], a.param_grad_layout[i],
                b.args.param_grad[i], b.param_grad_layout[i]);
    }
    oprun_close(&a);
    oprun_close(&b);
}

static void test_ops(void **state)
{
    (void)state;
    struct opdevice in_float;
    opdevice_open(&in_float, &backend_reference, PRECISION_FLOAT, 1);
    in_float.rounds = true;
    for (const struct backend *const *b = backend_list(); *b; b++) {
        struct opdevice in_bf16;
        opdevice_open(&in_bf16, *b, PRECISION_BF16, 2);
        in_bf16.rounds = true;
        for (int i = 0; i < opcase_count(); i++)
            compare_case(&in_bf16, &in_float, opcase_get(i));
        opdevice_close(&in_bf16);
    }
    opdevice_close(&in_float);
}

/* ---- whole tensors ---- */

/* A box between layouts and the sum of two, on both backends alike. */
static void test_regions(void **state)
{
    (void)state;
    const struct axes images = axes_of_images(4);
    const struct shape from = SHAPE4(2, 40, 5, 6), to = SHAPE4(3, 21, 4, 6);
    const struct region_copy box = {
        .from_begin = {0, 16, 1, 0}, .to_begin = {1, 0, 0, 0}, .extent = {2, 21, 4, 6}};
    for (const struct backend *const *list = backend_list(); *list; list++)
        for (int way = 0; way < 8; way++) {
            const struct backend *b = *list;
            struct opdevice d;
            struct region_copy c = box;
            void *x, *y;
            opdevice_open(&d, b, PRECISION_BF16, 2);
            c.add = way & 1;
            assert_ok(way & 2 ? b->layout_plain(d.device, ELEMENT_BF16, &from, &c.from_layout)
                              : b->layout_transfer(d.device, ELEMENT_BF16, &from, &images,
                                                   &c.from_layout));
            assert_ok(way & 4
                          ? b->layout_plain(d.device, ELEMENT_BF16, &to, &c.to_layout)
                          : b->layout_transfer(d.device, ELEMENT_BF16, &to, &images, &c.to_layout));
            assert_ok(b->memory_alloc(d.device, b->layout_bytes(c.from_layout), &x));
            assert_ok(b->memory_alloc(d.device, b->layout_bytes(c.to_layout), &y));
            float host[2 * 40 * 5 * 6], own[3 * 21 * 4 * 6], got[3 * 21 * 4 * 6];
            for (int i = 0; i < 2 * 40 * 5 * 6; i++)
                host[i] = (float)(i % 119 - 60);
            for (int i = 0; i < 3 * 21 * 4 * 6; i++)
                own[i] = (float)(i % 7);
            assert_ok(b->upload(d.stream, host, x, c.from_layout));
            assert_ok(b->upload(d.stream, own, y, c.to_layout));
            assert_ok(b->copy_region(d.stream, &c, x, y));
            assert_ok(b->download(d.stream, y, c.to_layout, got));
            for (int n = 0; n < 3; n++)
                for (int k = 0; k < 21; k++)
                    for (int i = 0; i < 24; i++) {
                        int at = (n * 21 + k) * 24 + i;
                        float moved = n ? host[((n - 1) * 40 + 16 + k) * 30 + 6 + i] : 0;
                        float expected = n && !c.add ? moved : own[at] + moved;
                        assert_that(got[at] == expected, "%s, way %d: element %d is %g, not %g",
                                    b->name, way, at, (double)got[at], (double)expected);
                    }
            b->memory_free(d.device, x);
            b->memory_free(d.device, y);
            opdevice_close(&d);
        }
}

/* A step that is far below what a weight of bf16 can tell still moves its master. */
static void test_masters(void **state)
{
    (void)state;
    enum { N = 40 };
    for (const struct backend *const *b = backend_list(); *b; b++) {
        struct opdevice d;
        float master[N], gradient[N], wide[N];
        uint16_t weight[N] = {0};
        opdevice_open(&d, *b, PRECISION_BF16, 1);
        for (int i = 0; i < N; i++) {
            master[i] = 1;
            gradient[i] = -1;
        }
        const struct update_rule rule = {.kind = UPDATE_SGD, .learning_rate = 1e-3};
        const struct update_args args = {.count = N,
                                         .type = ELEMENT_F32,
                                         .weight = master,
                                         .gradient = gradient,
                                         .rounded = weight,
                                         .rounded_type = ELEMENT_BF16};
        for (int step = 1; step <= 8; step++) {
            assert_ok((*b)->update(d.stream, &rule, &args));
            for (int i = 0; i < N; i++) {
                wide[i] = bf16_widen(weight[i]);
                assert_near((double)master[i], 1 + step * 1e-3, 1e-5);
                assert_true(wide[i] == bf16_widen(bf16_round(master[i])));
            }
        }
        assert_true(wide[0] > 1);
        struct update_args other = args;
        other.rounded_type = ELEMENT_F16;
        assert_fails((*b)->update(d.stream, &rule, &other), STATUS_FAILED,
                     "does not round weights");
        assert_near((double)master[0], 1 + 8e-3, 1e-5);
        opdevice_close(&d);
    }
}

/* ---- training ---- */

static struct team_run describe(const struct graph *g, const struct plan *plan, const char *backend,
                                enum precision precision, int n_steps)
{
    return (struct team_run){.graph = g,
                             .plan = plan,
                             .backend = backend,
                             .precision = precision,
                             .rule = {.kind = UPDATE_SGD, .learning_rate = 0.005, .momentum = 0.9},
                             .n_steps = n_steps,
                             .evaluate = true,
                             .check = true};
}

/* Plans train to the losses of one worker, but for the rounding of messages and partial sums. */
static void test_plans(void **state)
{
    (void)state;
    enum { STEPS = 5 };
    static const char *const strategies[] = {"data", "model", "spatial", "1f1b"};
    struct graph *g = suite_build("lenet5", 12);
    for (const struct backend *const *b = backend_list(); *b; b++) {
        double serial[STEPS + 1], split[STEPS + 1];
        struct team_run one = describe(g, NULL, (*b)->name, PRECISION_BF16, STEPS);
        assert_ok(team_train(&one, serial));
        for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++)
            for (int workers = 2; workers <= 3; workers++) {
                struct plan_request request = {.n_workers = workers};
                struct plan *plan;
                assert_ok(plan_build(strategies[i], g, &request, &plan));
                struct team_run run = describe(g, plan, (*b)->name, PRECISION_BF16, STEPS);
                assert_ok(team_train(&run, split));
                for (int step = 0; step <= STEPS; step++)
                    assert_that(fabs(split[step] - serial[step]) <= 5e-3 * serial[step],
                                "%s on %s with %d workers: loss %d is %.6g, serially %.6g",
                                strategies[i], (*b)->name, workers, step, split[step],
                                serial[step]);
                assert_int_equal(run.counted_bytes, run.expected_bytes);
                plan_destroy(plan);
            }
    }
    graph_destroy(g);
}

/* As networks begin (He et al.): wholly random weights magnify every rounding. */
static float usual_weight(const struct graph_param *param, int number, int64_t element)
{
    const struct shape *s = &param->spec.shape;
    const struct random_key key = {.seed = 3, .use = RANDOM_TEST, .stream = (uint32_t)number};
    if (s->rank == 1)
        return strstr(param->name, "weight") || strstr(param->name, "running_var") ? 1 : 0;
    double bound = sqrt(6.0 * (double)s->dim[0] / (double)shape_elements(s));
    return (float)(bound * (2 * random_uniform(key, 0, (uint64_t)element) - 1));
}

/* On the fastest backend. */
static void test_losses_of_resnet(void **state)
{
    (void)state;
    enum { STEPS = 10 };
    const char *backend = backend_list()[0]->name;
    const struct graph_variant variant = {16, 3, 32, 32, 10, true, -1};
    double in_float[STEPS + 1], in_bf16[STEPS + 1];
    struct graph *g;
    assert_ok(network_build("resnet18", &variant, &g));
    struct team_run wide = describe(g, NULL, backend, PRECISION_FLOAT, STEPS);
    struct team_run narrow = describe(g, NULL, backend, PRECISION_BF16, STEPS);
    wide.weight = narrow.weight = usual_weight;
    wide.rule.momentum = narrow.rule.momentum = 0;
    assert_ok(team_train(&wide, in_float));
    assert_ok(team_train(&narrow, in_bf16));
    for (int step = 0; step < STEPS; step++)
        assert_that(fabs(in_bf16[step] - in_float[step]) <= 0.02 * in_float[step],
                    "loss %d is %.6g in bf16, %.6g in float", step, in_bf16[step], in_float[step]);
    graph_destroy(g);
}

/* Activations and weights take half of the bytes, masters are added; and a device that only
 * describes states the memory that an executor allocates. */
static void test_memory(void **state)
{
    (void)state;
    struct graph *g = suite_build("resnet18", 2);
    for (const struct backend *const *b = backend_list(); *b; b++) {
        int64_t slabs[2][BUFFER_CLASS_COUNT];
        for (int narrow = 0; narrow < 2; narrow++) {
            struct team_run run =
                describe(g, NULL, (*b)->name, narrow ? PRECISION_BF16 : PRECISION_FLOAT, 1);
            struct program_options o = {
                .backend = *b, .precision = run.precision, .training = true, .n_states = 1};
            struct program *train, *eval;
            double losses[2];
            int64_t sum = 0;
            assert_ok((*b)->device_open(
                &(struct device_options){.threads = 1, .describe_only = true}, &o.device));
            assert_ok(program_create(g, &o, &train));
            o.training = false;
            o.shares_params_of = train;
            assert_ok(program_create(g, &o, &eval));
            assert_ok(team_train(&run, losses));
            for (int k = 0; k < BUFFER_CLASS_COUNT; k++) {
                slabs[narrow][k] = train->slab_bytes[k];
                sum += train->slab_bytes[k] > eval->slab_bytes[k] ? train->slab_bytes[k]
                                                                  : eval->slab_bytes[k];
            }
            assert_int_equal(run.memory_bytes[0], sum);
            program_destroy(eval);
            program_destroy(train);
            (*b)->device_close(o.device);
        }
        assert_true((double)slabs[1][BUFFER_WEIGHTS] < 0.51 * (double)slabs[0][BUFFER_WEIGHTS]);
        assert_true((double)slabs[1][BUFFER_OPTIMIZER] > 1.99 * (double)slabs[0][BUFFER_OPTIMIZER]);
        assert_true(slabs[1][BUFFER_GRADIENTS] >= slabs[0][BUFFER_GRADIENTS]);
    }
    graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding), cmocka_unit_test(test_ops),
        cmocka_unit_test(test_regions),  cmocka_unit_test(test_masters),
        cmocka_unit_test(test_plans),    cmocka_unit_test(test_losses_of_resnet),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
