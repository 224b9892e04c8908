/* A device of the cpu backend that only describes, held against a real one: the programs of every
 * built-in network, whole and in pieces, must come out the same to the byte; and running is
 * refused.
 */
#include "session.h"

#include "backend/cpu/cpu.h"

static device *open_device(int threads, bool describe_only)
{
    struct device_options o = {.threads = threads, .describe_only = describe_only};
    device *d;
    assert_ok(backend_cpu.device_open(&o, &d));
    return d;
}

/* ---- programs ---- */

static bool same_layout(const layout *a, const layout *b)
{
    char x[160], y[160];
    if (!a || !b)
        return a == b;
    return backend_cpu.layout_bytes(a) == backend_cpu.layout_bytes(b) &&
           strcmp(backend_cpu.layout_text(a, x, sizeof x),
                  backend_cpu.layout_text(b, y, sizeof y)) == 0;
}

static void assert_same_needs(const char *name, const struct program_group *a,
                              const struct program_group *b)
{
    const struct group_needs *x = &a->needs, *y = &b->needs;
    bool same = x->saved_bytes == y->saved_bytes && x->statistics_count == y->statistics_count &&
                x->forward_workspace_bytes == y->forward_workspace_bytes &&
                x->backward_workspace_bytes == y->backward_workspace_bytes &&
                x->reads_input == y->reads_input && x->reads_output == y->reads_output &&
                x->in_place_gradient == y->in_place_gradient &&
                x->output_is_input == y->output_is_input;
    assert_that(same, "%s: the needs of %s differ", name, a->name);
}

static void assert_same_program(const char *name, const struct program *a, const struct program *b)
{
    assert_int_equal(a->n_groups, b->n_groups);
    assert_int_equal(a->n_buffers, b->n_buffers);
    assert_int_equal(a->n_instrs, b->n_instrs);
    for (int i = 0; i < a->n_groups; i++)
        assert_same_needs(name, &a->groups[i], &b->groups[i]);
    for (int i = 0; i < a->n_buffers; i++) {
        const struct buffer *x = &a->buffers[i], *y = &b->buffers[i];
        assert_that(same_layout(x->layout, y->layout), "%s: the layouts of %s differ", name,
                    x->name);
        assert_that(x->n_bytes == y->n_bytes && x->offset == y->offset, "%s: %s lies elsewhere",
                    name, x->name);
    }
    for (int i = 0; i < BUFFER_CLASS_COUNT; i++)
        assert_int_equal(a->slab_bytes[i], b->slab_bytes[i]);
}

static void compare_plan(const char *name, const struct graph *g, const struct plan *plan,
                         int threads, bool training)
{
    device *d[2];
    struct program_set set[2];
    for (int i = 0; i < 2; i++) {
        d[i] = open_device(threads, i == 1);
        struct program_options o = {.backend = &backend_cpu,
                                    .device = d[i],
                                    .training = training,
                                    .n_states = training,
                                    .plan = plan};
        assert_ok(program_create_all(g, &o, NULL, false, &set[i]));
    }
    assert_int_equal(set[0].n_workers, set[1].n_workers);
    for (int w = 0; w < set[0].n_workers; w++)
        assert_same_program(name, set[0].programs[w], set[1].programs[w]);
    for (int i = 0; i < 2; i++) {
        program_destroy_all(&set[i]);
        backend_cpu.device_close(d[i]);
    }
}

/* False where the network cannot be cut that way. */
static bool compare(const char *model, const struct graph_variant *variant, const char *strategy,
                    int n_workers, int threads, bool training)
{
    char name[96];
    struct graph *g;
    struct plan *plan;
    struct plan_request r = {.n_workers = n_workers};
    (void)snprintf(name, sizeof name, "%s %lldx%lld %s %d", model, (long long)variant->channels,
                   (long long)variant->height, strategy, n_workers);
    assert_ok(network_build(model, variant, &g));
    bool can = plan_build(strategy, g, &r, &plan) == STATUS_OK;
    if (can) {
        compare_plan(name, g, plan, threads, training);
        plan_destroy(plan);
    }
    status_clear();
    graph_destroy(g);
    return can;
}

/* ---- tests ---- */

static void test_every_network(void **state)
{
    (void)state;
    static const struct graph_variant small = {8, 3, 32, 32, 10, true, -1},
                                      large = {4, 3, 224, 224, 1000, false, -1};
    for (const char *const *model = network_names(); *model; model++) {
        bool image = strcmp(*model, "mlp") == 0 || strcmp(*model, "lenet5") == 0;
        assert_true(compare(*model, image ? &small : &large, "serial", 1, 1, true));
        assert_true(compare(*model, image ? &small : &large, "serial", 1, 3, false));
    }
}

static void test_small_forms_in_pieces(void **state)
{
    (void)state;
    static const char *const strategies[] = {"data", "model", "spatial", "gpipe"};
    static const struct graph_variant small = {6, 3, 32, 32, 10, true, -1},
                                      large = {6, 3, 96, 96, 10, false, -1};
    int compared = 0;
    for (const char *const *model = network_names(); *model; model++)
        for (int i = 0; i < 4; i++) {
            bool deep = strstr(*model, "resnet1") && strcmp(*model, "resnet18") != 0;
            bool wide = strstr(*model, "alexnet") || strcmp(*model, "googlenet") == 0 ||
                        strcmp(*model, "inceptionv3") == 0;
            if (!deep) /* they have the pieces of the others */
                compared += compare(*model, wide ? &large : &small, strategies[i], 3, 1, true);
        }
    assert_true(compared > 25);
}

/* ---- groups ---- */

static struct group_spec conv_spec(int64_t samples)
{
    struct group_spec spec = {.op = {.op = OP_CONV2D,
                                     .attrs = {.out_channels = 32,
                                               .kernel = {1, 1},
                                               .stride = {2, 2},
                                               .dilation = {1, 1},
                                               .groups = 1},
                                     .n_inputs = 1,
                                     .input = {SHAPE4(samples, 16, 1, 1)}},
                              .training = true,
                              .input_gradient = true,
                              .global_batch = samples};
    assert_ok(op_infer_shape(&spec.op));
    return spec;
}

/* From an input in the layout of its choice. */
static group *create(device *d, const struct group_spec *spec, struct group_layouts *io)
{
    group *g;
    *io = (struct group_layouts){0};
    assert_ok(backend_cpu.layout_transfer(d, ELEMENT_F32, &spec->op.input[0], &spec->op.axes,
                                          &io->input[0]));
    assert_ok(backend_cpu.group_create(d, spec, io, &g));
    return g;
}

static void test_running_is_refused(void **state)
{
    (void)state;
    device *d = open_device(1, true);
    struct group_spec spec = conv_spec(2);
    struct group_layouts io;
    struct group_args args = {0};
    struct step_state step = {0};
    group *g = create(d, &spec, &io);
    stream *s;
    double seconds;
    assert_ok(backend_cpu.stream_create(d, &s));
    for (int pass = 0; pass < PASS_COUNT; pass++)
        assert_fails(backend_cpu.group_run(g, (enum pass)pass, s, &args, &step), STATUS_FAILED,
                     "to describe");
    assert_fails(backend_cpu.measure_floor(d, &spec, &seconds), STATUS_FAILED, "to describe");
    backend_cpu.stream_destroy(s);
    backend_cpu.group_destroy(g);
    backend_cpu.device_close(d);
}

/* Where a piece lies in the whole is for its kernels alone. */
static void test_groups_that_are_alike_are_one(void **state)
{
    (void)state;
    device *d = open_device(1, true);
    struct group_spec spec = conv_spec(2), moved = spec;
    struct group_layouts io, again;
    group *g = create(d, &spec, &io);
    moved.whole = SHAPE4(8, 32, 1, 1);
    moved.origin[0] = 4;
    moved.global_batch = 8;
    moved.random_stream = 7;
    assert_ptr_equal(create(d, &moved, &again), g);
    assert_ptr_equal(again.output, io.output);
    assert_ptr_equal(again.param[0], io.param[0]);
    assert_ptr_equal(create(d, &spec, &again), g);
    backend_cpu.device_close(d);
}

static void test_groups_that_are_not_alike_are_several(void **state)
{
    (void)state;
    device *d = open_device(1, true);
    struct group_spec spec[8];
    struct group_layouts io;
    group *g[8];
    for (int i = 0; i < 8; i++)
        spec[i] = conv_spec(i == 1 ? 3 : 2);
    spec[2].op.attrs.stride[1] = 1;
    spec[3].op.attrs.bias = true;
    spec[4].training = false;
    spec[5].input_gradient = false;
    spec[6].activation = ACTIVATION_RELU;
    spec[7].op.attrs.kernel[0] = 3;
    spec[7].op.attrs.pad_before[0] = spec[7].op.attrs.pad_after[0] = 1;
    for (int i = 0; i < 8; i++) {
        g[i] = create(d, &spec[i], &io);
        for (int k = 0; k < i; k++)
            assert_that(g[i] != g[k], "groups %d and %d are one", k, i);
    }
    backend_cpu.device_close(d);
}

static void test_layouts_and_statistics_make_another_group(void **state)
{
    (void)state;
    device *d = open_device(1, true);
    struct group_spec spec = conv_spec(2);
    struct group_layouts io, plain = {0}, given = {0};
    struct group_needs mine, theirs;
    struct shape weight = SHAPE4(32, 16, 1, 1);
    group *g = create(d, &spec, &io), *other;
    assert_ok(backend_cpu.layout_plain(d, ELEMENT_F32, &spec.op.input[0], &plain.input[0]));
    assert_ok(backend_cpu.group_create(d, &spec, &plain, &other));
    assert_ptr_not_equal(other, g);
    given.input[0] = io.input[0];
    assert_ok(backend_cpu.layout_plain(d, ELEMENT_F32, &weight, &given.param[0]));
    assert_ok(backend_cpu.group_create(d, &spec, &given, &other));
    assert_ptr_not_equal(other, g);
    spec.op = (struct op_case){.op = OP_BATCH_NORM,
                               .attrs = {.epsilon = 1e-5, .momentum = 0.1},
                               .n_inputs = 1,
                               .input = {SHAPE4(2, 16, 4, 4)}};
    assert_ok(op_infer_shape(&spec.op));
    backend_cpu.group_get_needs(create(d, &spec, &io), &mine);
    spec.shared_statistics = true;
    backend_cpu.group_get_needs(create(d, &spec, &io), &theirs);
    assert_int_equal(mine.statistics_count, 0);
    assert_true(theirs.statistics_count > 0);
    backend_cpu.device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_network),
        cmocka_unit_test(test_small_forms_in_pieces),
        cmocka_unit_test(test_running_is_refused),
        cmocka_unit_test(test_groups_that_are_alike_are_one),
        cmocka_unit_test(test_groups_that_are_not_alike_are_several),
        cmocka_unit_test(test_layouts_and_statistics_make_another_group),
    };
    return test_run(tests);
}
