/* The builder and the invariants of a graph. */
#include "model/graph.h"
#include "testing.h"

static const struct graph_variant variant = {
    .batch = 4, .channels = 3, .height = 8, .width = 8, .classes = 10, .drop_probability = -1};

static graph_builder *begin(const struct graph_variant *v)
{
    graph_builder *b;
    assert_ok(graph_builder_create("tiny", v, &b));
    return b;
}

/* A residual block with a dropout before the head: every kind of edge that graph_check looks at. */
static struct graph *build_tiny(const struct graph_variant *v)
{
    graph_builder *b = begin(v);
    graph_enter(b, "block%d", 1);
    int x = graph_add_conv(b, "conv", 0, 3, (struct graph_window){3, 1, 1}, 1, true);
    x = graph_add_batch_norm(b, "bn", x, 1e-5);
    x = graph_add_sum(b, "add", x, 0);
    graph_leave(b);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    x = graph_add_dropout(b, "drop", x, 0.5);
    x = graph_add_linear(b, "fc", x, v->classes);
    struct graph *g;
    assert_ok(graph_builder_finish(b, x, &g));
    return g;
}

static void test_builds_nodes_and_parameters(void **state)
{
    (void)state;
    static const char *const nodes[] = {"input",   "block1.conv", "block1.bn", "block1.add",
                                        "flatten", "drop",        "fc",        "loss"};
    static const char *const params[] = {
        "block1.conv.weight",     "block1.conv.bias",      "block1.bn.weight", "block1.bn.bias",
        "block1.bn.running_mean", "block1.bn.running_var", "fc.weight",        "fc.bias"};
    struct graph *g = build_tiny(&variant);
    assert_string_equal(g->name, "tiny");
    assert_int_equal(g->n_nodes, sizeof nodes / sizeof *nodes);
    for (int i = 0; i < g->n_nodes; i++)
        assert_string_equal(g->nodes[i].name, nodes[i]);
    assert_int_equal(g->n_params, sizeof params / sizeof *params);
    for (int i = 0; i < g->n_params; i++)
        assert_string_equal(g->params[i].name, params[i]);
    assert_int_equal(g->nodes[3].input[0], 2);
    assert_int_equal(g->nodes[3].input[1], 0);
    assert_int_equal(graph_count_parameters(g), 3 * 3 * 9 + 3 + 2 * 3 + 192 * 10 + 10);
    struct shape loss = SHAPE1(4);
    assert_true(shape_equal(&g->nodes[7].op.output, &loss));
    assert_ok(graph_check(g));
    graph_destroy(g);
    graph_destroy(NULL);
}

static void test_variant_replaces_dropout(void **state)
{
    (void)state;
    struct graph *g = build_tiny(&variant);
    assert_true(g->nodes[5].op.attrs.drop_probability == 0.5);
    graph_destroy(g);

    struct graph_variant other = variant;
    other.drop_probability = 0;
    g = build_tiny(&other);
    assert_true(g->nodes[5].op.attrs.drop_probability == 0);
    graph_destroy(g);

    other.drop_probability = 1.5;
    graph_builder *b = begin(&other);
    int x = graph_add_dropout(b, "drop", 0, 0.5);
    assert_fails(graph_builder_finish(b, x, &g), STATUS_USAGE, "tiny layer 'drop'");
}

static void test_first_error_wins_and_names_the_layer(void **state)
{
    (void)state;
    struct graph *g = NULL;
    graph_builder *b = begin(&variant);
    graph_enter(b, "stem");
    int x = graph_add_conv(b, "conv", 0, 4, (struct graph_window){9, 1, 0}, 1, true);
    assert_int_equal(x, -1);
    graph_enter(b, "deeper");
    assert_int_equal(graph_add_linear(b, "fc", 0, 10), -1);
    graph_leave(b);
    assert_int_equal(graph_shape(b, 0).rank, 0);
    assert_non_null(strstr(status_message(), "3x8x8"));
    assert_fails(graph_builder_finish(b, x, &g), STATUS_USAGE, "tiny layer 'stem.conv': conv2d");
    assert_null(g);
}

static void test_refuses_impossible_requests(void **state)
{
    (void)state;
    struct graph *g;
    graph_builder *b = begin(&variant);
    int x = graph_add_sum(b, "add", 0, 7);
    assert_fails(graph_builder_finish(b, x, &g), STATUS_USAGE, "tiny layer 'add'");

    b = begin(&variant);
    x = graph_add_concat(b, "cat", 9, (const int[9]){0});
    assert_fails(graph_builder_finish(b, x, &g), STATUS_USAGE, "tiny layer 'cat'");

    b = begin(&variant);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, 0);
    assert_fails(graph_builder_finish(b, x, &g), STATUS_USAGE, "4x10");

    b = begin(&variant);
    assert_fails(graph_builder_finish(b, -1, &g), STATUS_USAGE, "tiny layer 'loss'");

    b = begin(&variant);
    for (int i = 0; i < 20; i++)
        graph_enter(b, "scope%d", i);
    assert_fails(graph_builder_finish(b, 0, &g), STATUS_USAGE, "nested");

    struct graph_variant other = variant;
    other.height = 0;
    assert_fails(graph_builder_create("tiny", &other, &b), STATUS_USAGE, "3x0x8");
    other.height = INT64_C(1) << 31;
    other.width = INT64_C(1) << 31;
    assert_fails(graph_builder_create("tiny", &other, &b), STATUS_USAGE, "input");
}

static void test_counts_do_not_overflow(void **state)
{
    (void)state;
    struct graph_variant wide = variant;
    wide.height = wide.width = INT64_C(1) << 26;
    struct graph *g;
    graph_builder *b = begin(&wide);
    int x = graph_add_simple(b, "flatten", OP_FLATTEN, 0);
    x = graph_add_linear(b, "fc", x, 1 << 20);
    assert_fails(graph_builder_finish(b, x, &g), STATUS_USAGE, "tiny layer 'fc'");
}

static void test_scopes_nest(void **state)
{
    (void)state;
    graph_builder *b = begin(&variant);
    graph_enter(b, "a");
    graph_enter(b, "b.%d", 2);
    int x = graph_add_simple(b, "relu", OP_RELU, 0);
    graph_leave(b);
    x = graph_add_simple(b, "relu", OP_RELU, x);
    graph_leave(b);
    graph_leave(b); /* one too many does nothing */
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    x = graph_add_linear(b, "fc", x, 10);
    struct graph *g;
    assert_ok(graph_builder_finish(b, x, &g));
    assert_string_equal(g->nodes[1].name, "a.b.2.relu");
    assert_string_equal(g->nodes[2].name, "a.relu");
    assert_string_equal(g->nodes[3].name, "flatten");
    graph_destroy(g);
}

/* Extent, window, and PyTorch's extent of max_pool2d(ceil_mode=True); 0: PyTorch refuses it. */
static void test_ceil_mode_is_pytorchs(void **state)
{
    (void)state;
    static const struct {
        int64_t extent;
        struct graph_window window;
        int64_t out;
    } cases[] = {
        {112, {3, 2, 0}, 56}, {56, {3, 2, 0}, 28}, {14, {2, 2, 0}, 7}, {7, {3, 2, 0}, 3},
        {6, {3, 2, 0}, 3},    {2, {3, 2, 0}, 1},   {1, {3, 2, 0}, 0},  {1, {2, 2, 0}, 1},
        {3, {2, 2, 0}, 2},    {7, {3, 1, 1}, 7},   {1, {3, 1, 1}, 1},  {5, {3, 2, 1}, 3},
        {6, {3, 2, 1}, 4},    {3, {2, 2, 1}, 2},   {5, {3, 5, 1}, 2},  {4, {2, 3, 1}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph_variant v = variant;
        v.height = cases[i].extent;
        graph_builder *b = begin(&v);
        int x = graph_add_max_pool(b, "pool", 0, cases[i].window, true);
        int64_t out = graph_shape(b, x).dim[2];
        assert_that(out == cases[i].out, "extent %d, kernel %d: %d", (int)cases[i].extent,
                    (int)cases[i].window.kernel, (int)out);
        struct graph *g;
        assert_int_equal(graph_builder_finish(b, -1, &g), STATUS_USAGE);
        status_clear();
    }
}

/* graph_check must notice each of these; the graph is made anew for every one. */
static void break_order(struct graph *g)
{
    g->nodes[3].input[1] = 3;
}
static void break_input_shape(struct graph *g)
{
    g->nodes[3].op.input[1].dim[2] = 7;
}
static void break_output_shape(struct graph *g)
{
    g->nodes[1].op.output.dim[3] = 9;
    g->nodes[2].op.input[0].dim[3] = 9;
}
static void break_attributes(struct graph *g)
{
    g->nodes[1].op.attrs.kernel[0] = 100;
}
static void break_param_range(struct graph *g)
{
    g->nodes[2].first_param = 1;
}
static void break_param_count(struct graph *g)
{
    g->n_params++;
}
static void break_param_shape(struct graph *g)
{
    g->params[0].spec.shape.dim[0] = 5;
}
static void break_param_name(struct graph *g)
{
    g->params[1].name = "block1.conv.weight";
}
static void break_param_node(struct graph *g)
{
    g->params[1].node = 2;
}
static void break_node_name(struct graph *g)
{
    g->nodes[5].name = "flatten";
}
static void break_consumer(struct graph *g)
{
    g->nodes[3].input[0] = 0;
}
static void break_loss(struct graph *g)
{
    g->n_nodes--;
}
static void break_batch(struct graph *g)
{
    g->batch = 5;
}
static void break_classes(struct graph *g)
{
    g->classes = 11;
}

static void add_foreign_attribute(struct graph *g)
{
    g->nodes[3].op.attrs.bias = true;
}

static void test_check_notices(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(struct graph *g);
        const char *message;
    } cases[] = {
        {break_order, "'block1.add': an input is not computed before it"},
        {break_input_shape, "'block1.add': an input's shape"},
        {break_output_shape, "'block1.conv': its output's shape"},
        {break_attributes, "'block1.conv': conv2d"},
        {break_param_range, "'block1.bn': its range"},
        {break_param_count, "no node uses"},
        {break_param_shape, "'block1.conv': a parameter"},
        {break_param_name, "'block1.conv': a parameter"},
        {break_param_node, "'block1.conv': a parameter"},
        {break_node_name, "'flatten': an earlier node"},
        {break_consumer, "'block1.bn': no other node"},
        {break_loss, "'fc': the last node"},
        {break_batch, "'input'"},
        {break_classes, "'loss'"},
        {add_foreign_attribute, "'block1.add': add has no bias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph *g = build_tiny(&variant);
        cases[i].spoil(g);
        assert_fails(graph_check(g), STATUS_FAILED, cases[i].message);
        graph_destroy(g);
    }
}

/* ---- attributes of ops ---- */

static size_t n_bytes_of(const struct op_attr *attr)
{
    static const size_t n_bytes[] = {[ATTR_INTEGER] = sizeof(int64_t),
                                     [ATTR_PAIR] = sizeof(int64_t[2]),
                                     [ATTR_FLAG] = sizeof(bool),
                                     [ATTR_REAL] = sizeof(double)};
    return n_bytes[attr->type];
}

/* Every byte of op_attrs that is not padding is in exactly one row: no field lacks one. */
static void test_every_attribute_has_a_row(void **state)
{
    struct op_attrs attrs;
    unsigned char uncovered[sizeof attrs];
    (void)state;
    memset(&attrs, 1, sizeof attrs);
#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&attrs);
#else
    skip(); /* padding is known to gcc alone */
#endif
#endif
    memcpy(uncovered, &attrs, sizeof attrs);
    for (const struct op_attr *attr = op_attr_table; attr->name; attr++) {
        assert_that(attr->key && attr->ops, "%s: its key or its ops are missing", attr->name);
        for (size_t i = 0; i < n_bytes_of(attr); i++)
            assert_int_equal(uncovered[attr->offset + i]--, 1);
    }
    for (size_t i = 0; i < sizeof attrs; i++)
        assert_that(uncovered[i] == 0, "byte %zu of op_attrs is in no row", i);
}

static void test_every_byte_of_an_attribute_counts(void **state)
{
    struct graph *g = build_tiny(&variant);
    const struct op_case op = g->nodes[1].op;
    struct op_case other = op;
    (void)state;
    assert_true(op_equal(&op, &other));
    for (const struct op_attr *attr = op_attr_table; attr->name; attr++)
        for (size_t i = 0; i < n_bytes_of(attr); i++) {
            ((unsigned char *)&other.attrs)[attr->offset + i] ^= 1;
            assert_that(!op_equal(&op, &other), "%s: byte %zu", attr->name, i);
            other = op;
        }
    other.output.dim[2]++;
    assert_false(op_equal(&op, &other));
    other = op;
    other.input[0].rank--;
    assert_false(op_equal(&op, &other));
    other = op;
    other.op = OP_LINEAR;
    assert_false(op_equal(&op, &other));
    graph_destroy(g);
}

static void test_shape_text(void **state)
{
    (void)state;
    char text[64], tiny[6];
    struct shape s = SHAPE4(16, 64, 56, 56);
    assert_string_equal(shape_text(text, sizeof text, &s), "16x64x56x56");
    assert_string_equal(shape_text(tiny, sizeof tiny, &s), "16x64");
    s = (struct shape){0};
    assert_string_equal(shape_text(text, sizeof text, &s), "scalar");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builds_nodes_and_parameters),
        cmocka_unit_test(test_variant_replaces_dropout),
        cmocka_unit_test(test_first_error_wins_and_names_the_layer),
        cmocka_unit_test(test_refuses_impossible_requests),
        cmocka_unit_test(test_counts_do_not_overflow),
        cmocka_unit_test(test_scopes_nest),
        cmocka_unit_test(test_ceil_mode_is_pytorchs),
        cmocka_unit_test(test_check_notices),
        cmocka_unit_test(test_every_attribute_has_a_row),
        cmocka_unit_test(test_every_byte_of_an_attribute_counts),
        cmocka_unit_test(test_shape_text),
    };
    return test_run(tests);
}
