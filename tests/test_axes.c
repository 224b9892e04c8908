/* Nothing finds the batch, the channels or the rows by position: each room is given a network whose
 * tensors are [token, batch, channel, row, column] (odd_axes.h). */
#include "described.h"
#include "odd_axes.h"
#include "opcases.h"
#include "plans.h"
#include "program/partition.h"
#include "search/choices.h"
#include "verify/verify.h"

enum { BATCH = 8, N_WORKERS = 4 };

/* ---- the op table ---- */

/* A loop for each axis, named by what it goes over, and found by that alone. */
static void test_loops_have_uses(void **state)
{
    static const char *const names[] = {"t", "n", "c", "h", "w"};
    struct op_case op = odd_case(OP_ADD, BATCH);
    struct loop_nest nest;
    (void)state;
    op_get_loops(&op, &nest);
    assert_int_equal(nest.n_loops, 5);
    assert_true(axes_equal(&op.output_axes, &odd_axes));
    for (int i = 0; i < 5; i++) {
        enum loop_use use = odd_axes.use[i];
        assert_string_equal(nest.loop[i].name, names[i]);
        assert_int_equal(loop_nest_find(&nest, use), i);
        assert_int_equal(axes_find(&op.output_axes, use), i);
        for (int k = 0; k < 2; k++)
            assert_int_equal(tensor_map_find(&nest.input[k], use), i);
        assert_int_equal(op_extent(&op, use), op.output.dim[i]);
    }
    assert_int_equal(loop_nest_find(&nest, USE_HEAD), -1);
    assert_int_equal(op_extent(&op, USE_HEAD), 1);
}

/* Of ops that work on images: a convolution's channels are those of its groups where it has some,
 * and windows are no tensor's axis. */
static void test_uses_of_images(void **state)
{
    struct op_case conv = {.op = OP_CONV2D,
                           .n_inputs = 1,
                           .input = {SHAPE4(2, 6, 5, 4)},
                           .attrs = {.out_channels = 4,
                                     .groups = 1,
                                     .kernel = {3, 3},
                                     .stride = {1, 1},
                                     .pad_before = {1, 1},
                                     .pad_after = {1, 1}}};
    const struct axes images = axes_of_images(4);
    struct loop_nest nest;
    (void)state;
    assert_ok(op_infer_shape(&conv));
    assert_true(axes_equal(&conv.axes, &images) && axes_equal(&conv.output_axes, &images));
    op_get_loops(&conv, &nest);
    assert_string_equal(nest.loop[loop_nest_find(&nest, USE_CHANNEL)].name, "k");
    assert_string_equal(nest.loop[loop_nest_find(&nest, USE_ROW)].name, "p");
    assert_int_equal(nest.param[0].axis[0].use, USE_CHANNEL);
    assert_int_equal(nest.param[0].axis[2].use, USE_WINDOW);
    assert_int_equal(loop_nest_find(&nest, USE_WINDOW), -1); /* it is summed */
    conv.attrs.groups = 2;
    assert_ok(op_infer_shape(&conv));
    op_get_loops(&conv, &nest);
    assert_string_equal(nest.loop[loop_nest_find(&nest, USE_CHANNEL)].name, "g");

    struct op_case flat = {.op = OP_FLATTEN, .n_inputs = 1, .input = {SHAPE4(2, 3, 4, 5)}};
    assert_ok(op_infer_shape(&flat));
    assert_int_equal(axes_find(&flat.output_axes, USE_CHANNEL), 1);
    assert_int_equal(axes_find(&flat.output_axes, USE_ROW), -1);
    struct op_case pool = {.op = OP_GLOBAL_POOL, .n_inputs = 1, .input = {SHAPE4(2, 3, 4, 5)}};
    assert_ok(op_infer_shape(&pool));
    op_get_loops(&pool, &nest);
    assert_int_equal(nest.input[0].axis[2].use, USE_ROW); /* its summed loops go over all rows */
}

static void test_other_forms_are_refused(void **state)
{
    const struct axes two_batches = {2, {USE_BATCH, USE_BATCH}};
    struct op_case op = odd_case(OP_RELU, BATCH);
    (void)state;
    op.axes.rank = 0;
    assert_fails(op_infer_shape(&op), STATUS_USAGE, "5 axes, but the uses of 0");
    op = (struct op_case){.op = OP_RELU, .n_inputs = 1, .input = {SHAPE2(2, 3)}};
    op.axes = two_batches;
    assert_fails(op_infer_shape(&op), STATUS_USAGE, "cannot have the axes [batch, batch]");
    op = (struct op_case){.op = OP_GLOBAL_POOL, .n_inputs = 1, .input = {SHAPE4(2, 3, 4, 5)}};
    op.axes = (struct axes){4, {USE_BATCH, USE_HEAD, USE_TOKEN, USE_CHANNEL}};
    assert_fails(op_infer_shape(&op), STATUS_USAGE,
                 "the axes [batch, channel, row, column], not [batch, head, token, channel]");
}

/* Two axes of one use have loops of two names; ops of other axes are other ops. */
static void test_two_axes_of_one_use(void **state)
{
    struct op_case scores = {.op = OP_RELU, .n_inputs = 1, .input = {SHAPE4(2, 3, 5, 5)}}, other;
    struct loop_nest nest;
    (void)state;
    scores.axes = (struct axes){4, {USE_BATCH, USE_HEAD, USE_TOKEN, USE_TOKEN}};
    assert_ok(op_infer_shape(&scores));
    op_get_loops(&scores, &nest);
    assert_string_equal(nest.loop[2].name, "t");
    assert_string_equal(nest.loop[3].name, "t2");
    other = scores;
    assert_true(op_equal(&scores, &other));
    other.axes.use[3] = USE_CHANNEL;
    assert_false(op_equal(&scores, &other));
}

static void test_resizing(void **state)
{
    static const enum loop_use uses[] = {USE_BATCH, USE_TOKEN};
    struct op_case op = odd_case(OP_ADD, BATCH);
    (void)state;
    for (int u = 0; u < 2; u++) {
        struct op_case other = op_resize(&op, uses[u], 77);
        for (int i = 0; i < 5; i++) {
            int64_t expected = odd_axes.use[i] == uses[u] ? 77 : op.output.dim[i];
            assert_int_equal(other.output.dim[i], expected);
            assert_int_equal(other.input[0].dim[i], expected);
            assert_int_equal(other.input[1].dim[i], expected);
        }
    }
    struct graph *g = odd_graph(BATCH), *small;
    assert_ok(graph_resize(g, 3, &small));
    assert_int_equal(small->batch, 3);
    for (int i = 0; i < small->n_nodes; i++) {
        assert_int_equal(op_extent(&small->nodes[i].op, USE_BATCH), 3);
        assert_int_equal(op_extent(&small->nodes[i].op, USE_TOKEN), ODD_TOKENS);
    }
    assert_int_equal(graph_sample_elements(small),
                     ODD_TOKENS * ODD_CHANNELS * ODD_ROWS * ODD_COLUMNS);
    graph_destroy(small);
    graph_destroy(g);
}

/* The input's axes are stated, and all others must follow from them; the loader needs the batch
 * outside. */
static void test_graphs_state_axes(void **state)
{
    struct graph *g = build(0);
    (void)state;
    assert_ok(graph_check(g));
    struct graph_node *relu = &g->nodes[2];
    assert_int_equal(relu->op.op, OP_RELU);
    relu->op.axes.use[1] = relu->op.output_axes.use[1] = USE_HEAD;
    assert_fails(graph_check(g), STATUS_FAILED, "relu needs the axes [batch, head, row, column]");
    relu->op.axes.use[1] = relu->op.output_axes.use[1] = USE_CHANNEL;
    assert_ok(graph_check(g));
    g->batch = 9;
    assert_fails(graph_check(g), STATUS_FAILED, "not of the batch");
    graph_destroy(g);
    g = odd_graph(BATCH);
    assert_fails(graph_check(g), STATUS_FAILED, "its samples do not lie one behind the other");
    graph_destroy(g);
}

/* ---- plans ---- */

static void assert_cut(const struct plan *p, const struct graph *g, const char *expected)
{
    for (int i = 1; i < g->n_nodes; i++)
        assert_string_equal(cuts_text(p, g, g->nodes[i].name), expected);
}

static void test_strategies_cut_uses(void **state)
{
    static const struct {
        const char *strategy, *cuts;
        int n_workers;
    } cases[] = {{"data", "n 4", 4},  {"data", "n 7", 7}, /* of 8 samples */
                 {"model", "c 5", 7}, {"spatial", "h 4 w 3", 12}, {"owt", "n 4", 4}, /* of images */
                 {"hybrid", "n 4", 4}};
    struct graph *g = odd_graph(BATCH);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan *p = make(g, cases[i].strategy, cases[i].n_workers);
        if (strcmp(cases[i].strategy, "hybrid") != 0)
            assert_cut(p, g, cases[i].cuts);
        else /* whose first layer reads the input */
            assert_string_equal(cuts_text(p, g, "relu"), "n 2 c 2");
        check_round_trip(p, g);
        plan_destroy(p);
    }
    graph_destroy(g);
}

/* A plan with these cuts of all layers. */
static enum status parse(const struct graph *g, int n_workers, const char *cut, const char *rest,
                         struct plan **out)
{
    char text[400];
    (void)snprintf(text, sizeof text,
                   "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":%d,\"stages\":[{\"workers\":["
                   "0,1%s]}],\"layers\":{\"relu\":{\"cut\":%s},\"drop\":{\"cut\":%s},"
                   "\"sum\":{\"cut\":%s},\"tanh\":{\"cut\":%s}}%s}",
                   n_workers, n_workers > 2 ? ",2" : "", cut, cut, cut, cut, rest);
    return plan_parse(text, strlen(text), "plan", g, out);
}

/* Sizes of the batch's parts are proportions, and there may be more parts than samples; of no other
 * loop. */
static void test_plan_checks_know_the_batch(void **state)
{
    static const char asynchronous[] =
        ",\"sync\":{\"method\":\"server\",\"servers\":[2],\"asynchronous\":true}";
    struct graph *g = odd_graph(BATCH), *two = odd_graph(2);
    struct plan *p;
    (void)state;
    assert_ok(parse(g, 2, "{\"n\":[1,3]}", "", &p));
    plan_destroy(p);
    assert_fails(parse(g, 2, "{\"t\":[1,3]}", "", &p), STATUS_FAILED,
                 "the sizes of loop t sum to 4, but it has 6 iterations");
    assert_ok(parse(two, 3, "{\"n\":3}", "", &p));
    plan_destroy(p);
    assert_fails(parse(g, 2, "{\"t\":7}", "", &p), STATUS_FAILED, "too few for 7 parts");

    char text[400];
    static const char *const loops[] = {"n", "t"};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":3,"
                       "\"stages\":[{\"workers\":[0,1]}],\"default\":{\"cut\":{\"%s\":2}}%s}",
                       loops[i], asynchronous);
        enum status st = plan_parse(text, strlen(text), "plan", g, &p);
        if (i == 0) {
            assert_ok(st);
            plan_destroy(p);
        } else {
            assert_fails(st, STATUS_FAILED, "every layer is cut along n alone");
        }
    }
    graph_destroy(g);
    graph_destroy(two);
}

/* ---- regions and programs ---- */

/* Every worker's region is its part of each micro-batch's samples, along the batch axis. */
static void test_regions(void **state)
{
    enum { MICROS = 3 };
    struct graph *g = odd_graph(BATCH);
    struct plan *p = make(g, "data", N_WORKERS);
    struct partition *part;
    arena *memory;
    (void)state;
    assert_ok(arena_create(&memory));
    assert_ok(partition_create(g, p, MICROS, memory, &part));
    assert_int_equal(part->n_sizes, 2);
    for (int t = 0; t < part->n_tensors; t++)
        for (int s = 0; s < part->n_sizes; s++)
            for (int w = 0; w < N_WORKERS; w++) {
                const struct part_tensor *tensor = &part->tensors[t];
                const struct region *r = &tensor->at[s][w];
                struct range samples = plan_part(&p->layers[1].cut[0], w, part->samples_of_size[s]);
                assert_true(axes_equal(&tensor->axes, &odd_axes));
                if (samples.begin == samples.end) {
                    assert_true(region_is_empty(r, 5));
                    continue;
                }
                for (int a = 0; a < 5; a++) {
                    struct range all = {0, g->nodes[0].op.output.dim[a]};
                    struct range expected = a == ODD_BATCH_AXIS ? samples : all;
                    assert_int_equal(r->axis[a].begin, expected.begin);
                    assert_int_equal(r->axis[a].end, expected.end);
                }
            }
    arena_destroy(memory);
    plan_destroy(p);
    graph_destroy(g);
}

/* All layers cut otherwise, so that each reads regions of several others. */
static const char mixed[] =
    "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":4,\"stages\":[{\"workers\":[0,1,2,3]}],"
    "\"layers\":{\"relu\":{\"cut\":{\"n\":[1,2,1,2]}},\"drop\":{\"cut\":{\"t\":3}},"
    "\"sum\":{\"cut\":{\"c\":2,\"h\":2}},\"tanh\":{\"cut\":{\"n\":2,\"w\":2}}},"
    "\"micro_batches\":3}";
static const char stages[] =
    "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":4,\"schedule\":\"1f1b\","
    "\"stages\":[{\"workers\":[0,1]},{\"workers\":[2,3]}],\"default\":{\"cut\":{\"n\":2}},"
    "\"layers\":{\"sum\":{\"stage\":1}},\"micro_batches\":3}";

static void check_programs(const struct graph *g, const struct plan *p, bool training)
{
    struct program_options options = described_options(p);
    struct program_set set;
    options.training = training;
    assert_ok(program_create_all(g, &options, NULL, false, &set));
    assert_ok(verify_programs((const struct program *const *)set.programs, set.n_workers));
    for (int w = 0; w < set.n_workers; w++)
        for (int i = 0; i < set.programs[w]->n_loads; i++) {
            const struct program *q = set.programs[w];
            const struct program_load *load = &q->loads[i];
            const struct shape *held = q->backend->layout_shape(q->buffers[load->images].layout);
            assert_int_equal(held->dim[ODD_BATCH_AXIS],
                             load->image_samples.end - load->image_samples.begin);
            assert_int_equal(held->dim[0], ODD_TOKENS);
        }
    program_destroy_all(&set);
}

static void test_programs(void **state)
{
    static const char *const texts[] = {mixed, stages};
    struct graph *g = odd_graph(BATCH);
    (void)state;
    for (int training = 0; training < 2; training++) {
        for (int i = 0; i < 2; i++) {
            struct plan *p;
            assert_ok(plan_parse(texts[i], strlen(texts[i]), "plan", g, &p));
            check_programs(g, p, training);
            plan_destroy(p);
        }
        for (int i = 0; plan_strategies()[i].name; i++) {
            struct plan *p = NULL;
            const struct plan_strategy *strategy = &plan_strategies()[i];
            if (plan_build(strategy->name, g, &(struct plan_request){.n_workers = 3}, &p) !=
                STATUS_OK) {
                session_expect_refusal(strategy->name, 3);
                status_clear();
                continue;
            }
            check_programs(g, p, training);
            plan_destroy(p);
        }
    }
    graph_destroy(g);
}

/* Workers that do the same on other samples, and only those, are twins. */
static void test_twins(void **state)
{
    static const char *const strategies[] = {"data", "model"};
    struct graph *g = odd_graph(BATCH);
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct plan *p = make(g, strategies[i], N_WORKERS);
        struct program_options options = described_options(p);
        struct program_set set;
        assert_ok(program_create_all(g, &options, NULL, true, &set));
        for (int w = 0; w < N_WORKERS; w++)
            assert_int_equal(set.twin_of[w], i == 0 ? 0 : w);
        program_destroy_all(&set);
        plan_destroy(p);
    }
    graph_destroy(g);
}

/* A piece draws its mask by the elements' numbers in the whole, wherever the batch is: the spec
 * says them even where nothing is cut, if a micro-batch is no run of elements. */
static void test_numbering_of_pieces(void **state)
{
    struct graph *g = odd_graph(BATCH);
    struct plan *p = described_plan("serial", g, 1, 2);
    struct program_options options = described_options(p);
    struct program *made;
    (void)state;
    assert_ok(program_create(g, &options, &made));
    for (int i = 0; i < made->n_groups; i++)
        assert_true(shape_equal(&made->groups[i].spec.whole, &g->nodes[0].op.output));
    program_destroy(made);
    plan_destroy(p);
    graph_destroy(g);
}

/* ---- the search ---- */

static void test_choices(void **state)
{
    struct graph *g = odd_graph(BATCH);
    struct choice_layer *layers;
    const struct choice *choices;
    struct machine *m;
    arena *memory;
    int n_layers, n_choices, *layer_of;
    bool batch = false, channels = false, rows = false;
    (void)state;
    assert_ok(arena_create(&memory));
    assert_ok(machine_parse("1x4:p100", &m));
    assert_ok(choice_find_layers(g, memory, &layers, &n_layers, &layer_of));
    assert_int_equal(n_layers, 3); /* tanh goes with the sum */
    struct choice_request r = {.graph = g, .samples = BATCH, .machine = m, .n_workers = N_WORKERS};
    assert_ok(choice_list(&r, &layers[2], memory, &choices, &n_choices));
    for (int x = 0; x < n_choices; x++) {
        const struct choice *c = &choices[x];
        for (int i = 0; i < c->n_cuts; i++)
            assert_int_not_equal(c->cut[i].loop, 0); /* tokens: not in the search's space */
        batch |= c->n_cuts == 1 && c->cut[0].loop == 1 && c->cut[0].n_parts == 4;
        channels |= c->n_cuts == 1 && c->cut[0].loop == 2 && c->cut[0].n_parts == 2;
        rows |= c->n_cuts == 1 && c->cut[0].loop == 3 && c->cut[0].n_parts == 2;
    }
    assert_true(batch && channels && rows);
    machine_destroy(m);
    arena_destroy(memory);
    graph_destroy(g);
}

/* ---- kernels ---- */

/* The mask of a sample does not depend on the micro-batch that it is in. */
static void check_dropout(const struct opdevice *on)
{
    enum { PARTS = 2 };
    const struct opcase whole_case = {
        .name = "dropout of the whole",
        .n_output_grads = 1,
        .spec = {.training = true, .random_stream = 3, .op = odd_case(OP_DROPOUT, BATCH)}};
    struct oprun whole, part;
    oprun_open(&whole, on, &whole_case, NULL);
    oprun_forward(&whole);
    float *y = oprun_download(&whole, whole.args.output, whole.layouts.output);
    float *x = oprun_download(&whole, whole.args.input[0], whole.layouts.input[0]);
    int64_t inner = ODD_CHANNELS * ODD_ROWS * ODD_COLUMNS, n = BATCH / PARTS, dropped = 0;
    for (int64_t k = 0; k < PARTS; k++) {
        struct opcase c = whole_case;
        c.spec.op = odd_case(OP_DROPOUT, n);
        c.spec.whole = whole_case.spec.op.output;
        oprun_open(&part, on, &c, NULL);
        float *mine = oprun_download(&part, part.args.input[0], part.layouts.input[0]);
        for (int64_t t = 0; t < ODD_TOKENS; t++)
            memcpy(mine + t * n * inner, x + (t * BATCH + k * n) * inner,
                   (size_t)(n * inner) * sizeof *x);
        oprun_upload(&part, mine, (void *)(uintptr_t)part.args.input[0], part.layouts.input[0]);
        free(mine);
        part.args.first_sample = k * n;
        oprun_forward(&part);
        float *out = oprun_download(&part, part.args.output, part.layouts.output);
        for (int64_t t = 0; t < ODD_TOKENS; t++)
            for (int64_t i = 0; i < n * inner; i++) {
                float expected = y[(t * BATCH + k * n) * inner + i];
                assert_that(out[t * n * inner + i] == expected, "%s: part %lld, token %lld",
                            on->backend->name, (long long)k, (long long)t);
                dropped += expected == 0;
            }
        free(out);
        oprun_close(&part);
    }
    assert_true(dropped > BATCH * ODD_TOKENS * inner / 4);
    free(x);
    free(y);
    oprun_close(&whole);
}

static void test_dropout(void **state)
{
    (void)state;
    for (const struct backend *const *b = backend_list(); *b; b++) {
        struct opdevice d;
        opdevice_open(&d, *b, PRECISION_FLOAT, 2);
        check_dropout(&d);
        opdevice_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loops_have_uses),
        cmocka_unit_test(test_uses_of_images),
        cmocka_unit_test(test_other_forms_are_refused),
        cmocka_unit_test(test_two_axes_of_one_use),
        cmocka_unit_test(test_resizing),
        cmocka_unit_test(test_graphs_state_axes),
        cmocka_unit_test(test_strategies_cut_uses),
        cmocka_unit_test(test_plan_checks_know_the_batch),
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_numbering_of_pieces),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_dropout),
    };
    return cmocka_run_group_tests(tests, described_open, described_close);
}
