#include "random_graphs.h"

/* ---- numbers ---- */

struct draw draw_begin(uint64_t seed, uint32_t sequence)
{
    return (struct draw){.key = {.seed = seed, .use = RANDOM_TEST, .stream = sequence}};
}

int draw_number(struct draw *d, int least, int most)
{
    uint32_t width = (uint32_t)(most - least) + 1;
    return least + (int)(random_word(d->key, 0, d->next++) % width);
}

bool draw_chance(struct draw *d, int percent)
{
    return draw_number(d, 1, 100) <= percent;
}

void draw_shuffle(struct draw *d, int n, int *values)
{
    for (int i = n - 1; i > 0; i--) {
        int k = draw_number(d, 0, i), kept = values[i];
        values[i] = values[k];
        values[k] = kept;
    }
}

/* ---- layers ---- */

struct graph_draw {
    struct draw *d;
    const struct graph_wish *wish;
    graph_builder *builder;
    int n_names;
    int left; /* layers that may still be added */
};

static const char *draw_name(struct graph_draw *g, const char *what, char buffer[32])
{
    (void)snprintf(buffer, 32, "%s%d", what, ++g->n_names);
    return buffer;
}

static int draw_add(struct graph_draw *g, const char *what, enum op_kind op,
                    const struct op_attrs *attrs, int n_inputs, const int *inputs)
{
    char name[32];
    g->left--;
    return graph_add(g->builder, draw_name(g, what, name), op, attrs, n_inputs, inputs);
}

static int64_t draw_extent(const struct graph_draw *g, int x, int axis)
{
    return graph_shape(g->builder, x).dim[axis];
}

static int64_t draw_divisor(struct graph_draw *g, int64_t of)
{
    int64_t divisor;
    do
        divisor = draw_number(g->d, 1, (int)of);
    while (of % divisor);
    return divisor;
}

/* Fills groups and out_channels: plain, with groups, or every channel its own. */
static void draw_channels(struct graph_draw *g, int64_t in, struct op_attrs *a)
{
    a->groups = 1;
    a->out_channels = draw_number(g->d, 1, g->wish->wide ? 40 : 7);
    if (!draw_chance(g->d, 35))
        return;
    a->groups = draw_chance(g->d, 50) ? in : draw_divisor(g, in);
    int64_t most = 8 / a->groups;
    a->out_channels = a->groups * draw_number(g->d, 1, most > 1 ? (int)most : 1);
}

/* A window on one axis that fits `extent` pixels and reads some of them wherever it stands. */
static void draw_window(struct graph_draw *g, int64_t extent, int axis, bool pool,
                        struct op_attrs *a)
{
    int kernel = draw_number(g->d, 1, extent >= 3 ? 3 : (int)extent);
    bool dilated = !pool && kernel > 1 && 2 * (kernel - 1) + 1 <= extent && draw_chance(g->d, 20);
    int most_pad = kernel - 1;
    a->kernel[axis] = kernel;
    a->dilation[axis] = dilated ? 2 : 1;
    a->stride[axis] = draw_chance(g->d, 60) ? 1 : draw_number(g->d, 1, 3);
    a->pad_before[axis] = draw_number(g->d, 0, most_pad);
    a->pad_after[axis] =
        draw_chance(g->d, 60) ? a->pad_before[axis] : draw_number(g->d, 0, most_pad);
}

static int draw_conv(struct graph_draw *g, int x)
{
    struct op_attrs a = {.bias = draw_chance(g->d, 60)};
    draw_channels(g, draw_extent(g, x, 1), &a);
    for (int axis = 0; axis < 2; axis++)
        draw_window(g, draw_extent(g, x, 2 + axis), axis, false, &a);
    return draw_add(g, "conv", OP_CONV2D, &a, 1, &x);
}

/* One that keeps height and width; channels 0: keeps them, too. */
static int draw_same_conv(struct graph_draw *g, int x, int64_t channels)
{
    int64_t in = draw_extent(g, x, 1);
    struct op_attrs a = {.out_channels = channels ? channels : in, .bias = draw_chance(g->d, 50)};
    a.groups = channels == 0 && draw_chance(g->d, 30) ? draw_divisor(g, in) : 1;
    int pad = draw_number(g->d, 0, 1);
    for (int axis = 0; axis < 2; axis++) {
        a.kernel[axis] = 2 * pad + 1;
        a.stride[axis] = a.dilation[axis] = 1;
        a.pad_before[axis] = a.pad_after[axis] = pad;
    }
    return draw_add(g, "conv", OP_CONV2D, &a, 1, &x);
}

static int draw_pool(struct graph_draw *g, int x)
{
    bool max = draw_chance(g->d, 50);
    struct op_attrs a = {.count_padding = !max && draw_chance(g->d, 50)};
    for (int axis = 0; axis < 2; axis++)
        draw_window(g, draw_extent(g, x, 2 + axis), axis, true, &a);
    return draw_add(g, max ? "max" : "average", max ? OP_MAX_POOL : OP_AVERAGE_POOL, &a, 1, &x);
}

static int draw_adaptive_pool(struct graph_draw *g, int x)
{
    struct op_attrs a = {.out_size = {draw_number(g->d, 1, 5), draw_number(g->d, 1, 5)}};
    return draw_add(g, "adaptive", OP_ADAPTIVE_POOL, &a, 1, &x);
}

static int draw_batch_norm(struct graph_draw *g, int x)
{
    struct op_attrs a = {.momentum = 0.1};
    a.epsilon = g->wish->well_behaved ? 0.5 : draw_chance(g->d, 50) ? 1e-5 : 1e-2;
    return draw_add(g, "norm", OP_BATCH_NORM, &a, 1, &x);
}

static int draw_local_norm(struct graph_draw *g, int x)
{
    struct op_attrs a = {
        .lrn_size = draw_number(g->d, 1, 5), .lrn_alpha = 0.5, .lrn_beta = 0.75, .lrn_k = 1};
    return draw_add(g, "lrn", OP_LOCAL_RESPONSE_NORM, &a, 1, &x);
}

static int draw_dropout(struct graph_draw *g, int x)
{
    struct op_attrs a = {.drop_probability = draw_number(g->d, 0, 6) * 0.1};
    return draw_add(g, "drop", OP_DROPOUT, &a, 1, &x);
}

static int draw_activation(struct graph_draw *g, int x)
{
    static const enum op_kind ops[] = {OP_RELU, OP_RELU, OP_RELU6, OP_LOGISTIC, OP_TANH};
    static const char *const names[] = {"relu", "relu", "relu6_", "logistic", "tanh"};
    int i = draw_number(g->d, 0, 4);
    return draw_add(g, names[i], ops[i], NULL, 1, &x);
}

/* ---- branches ---- */

/* A layer that keeps its input's shape. */
static int draw_same(struct graph_draw *g, int x)
{
    bool flat = graph_shape(g->builder, x).rank == 2;
    switch (draw_number(g->d, 0, 4)) {
    case 0:
        return draw_batch_norm(g, x);
    case 1:
        return draw_activation(g, x);
    case 2:
        return draw_dropout(g, x);
    default:
        if (!flat)
            return draw_same_conv(g, x, 0);
        struct op_attrs a = {.out_channels = draw_extent(g, x, 1), .bias = draw_chance(g->d, 70)};
        return draw_add(g, "fc", OP_LINEAR, &a, 1, &x);
    }
}

/* x + f(x), sometimes x + f(x) + h(x), so that x has two or three readers. */
static int draw_residual(struct graph_draw *g, int x)
{
    int branch = draw_same(g, x);
    if (draw_chance(g->d, 50))
        branch = draw_same(g, branch);
    int both[2] = {branch, x};
    if (draw_chance(g->d, 30)) {
        both[0] = x;
        both[1] = branch;
    }
    int sum = draw_add(g, "sum", OP_ADD, NULL, 2, both);
    if (!draw_chance(g->d, 30))
        return sum;
    int more[2] = {sum, draw_same(g, x)};
    return draw_add(g, "sum", OP_ADD, NULL, 2, more);
}

static int draw_branch(struct graph_draw *g, int x)
{
    struct shape shape = graph_shape(g->builder, x);
    int kind = draw_number(g->d, 0, 3);
    if (kind == 0)
        return x;
    if (kind == 1)
        return draw_same(g, x);
    if (shape.rank == 2) {
        struct op_attrs a = {.out_channels = draw_number(g->d, 1, 5), .bias = true};
        return draw_add(g, "fc", OP_LINEAR, &a, 1, &x);
    }
    return draw_same_conv(g, x, draw_number(g->d, 1, g->wish->wide ? 20 : 4));
}

static int draw_concat(struct graph_draw *g, int x)
{
    int inputs[3], n = draw_number(g->d, 2, 3);
    for (int i = 0; i < n; i++)
        inputs[i] = draw_branch(g, x);
    return draw_add(g, "concat", OP_CONCAT, NULL, n, inputs);
}

/* ---- networks ---- */

static int draw_image_layer(struct graph_draw *g, int x)
{
    switch (draw_number(g->d, 0, 11)) {
    case 0:
        return draw_pool(g, x);
    case 1:
        return draw_batch_norm(g, x);
    case 2:
        return draw_local_norm(g, x);
    case 3:
        return draw_activation(g, x);
    case 4:
        return draw_dropout(g, x);
    case 5:
    case 6:
        return draw_residual(g, x);
    case 7:
        return draw_concat(g, x);
    case 8:
        return draw_chance(g->d, 40) ? draw_adaptive_pool(g, x) : draw_pool(g, x);
    default:
        x = draw_conv(g, x);
        return draw_chance(g->d, 50) ? draw_activation(g, x) : x;
    }
}

static int draw_flat_layer(struct graph_draw *g, int x)
{
    struct op_attrs a = {.out_channels = draw_number(g->d, 1, 9), .bias = draw_chance(g->d, 80)};
    switch (draw_number(g->d, 0, 5)) {
    case 0:
        return draw_residual(g, x);
    case 1:
        return draw_concat(g, x);
    case 2:
        return draw_same(g, x);
    default:
        x = draw_add(g, "fc", OP_LINEAR, &a, 1, &x);
        return draw_chance(g->d, 50) ? draw_activation(g, x) : x;
    }
}

/* From images to one number per class. */
static int draw_head(struct graph_draw *g, int x, int64_t classes)
{
    if (draw_chance(g->d, 30)) {
        if (draw_chance(g->d, 50))
            x = draw_same_conv(g, x, draw_number(g->d, 1, 7));
        x = draw_add(g, "global", OP_GLOBAL_POOL, NULL, 1, &x);
    } else if (draw_chance(g->d, 30)) {
        x = draw_adaptive_pool(g, x);
    }
    x = draw_add(g, "flatten", OP_FLATTEN, NULL, 1, &x);
    while (g->left > 1 && draw_chance(g->d, 60))
        x = draw_flat_layer(g, x);
    struct op_attrs a = {.out_channels = classes, .bias = draw_chance(g->d, 80)};
    return draw_add(g, "fc", OP_LINEAR, &a, 1, &x);
}

struct graph *draw_graph(struct draw *d, const struct graph_wish *wish)
{
    struct graph_variant v = {.batch = draw_number(d, 1, 9),
                              .channels = draw_number(d, 1, 7),
                              .height = draw_number(d, 5, 12),
                              .width = draw_number(d, 5, 12),
                              .classes = draw_number(d, 2, 5),
                              .drop_probability = -1};
    struct graph_draw g = {.d = d, .wish = wish, .left = draw_number(d, 3, 12)};
    struct graph *graph = NULL;
    assert_ok(graph_builder_create("random", &v, &g.builder));
    int x = 0;
    do
        x = draw_image_layer(&g, x);
    while (g.left > 3);
    x = draw_head(&g, x, v.classes);
    assert_ok(graph_builder_finish(g.builder, x, &graph));
    assert_ok(graph_check(graph));
    return graph;
}

/* ---- printing ---- */

void graph_print(const struct graph *g, FILE *to)
{
    char text[64];
    for (int i = 0; i < g->n_nodes; i++) {
        const struct graph_node *node = &g->nodes[i];
        const struct op_attrs *a = &node->op.attrs;
        (void)fprintf(to, "  %2d %-12s %s %s, reads", i, node->name, op_get_info(node->op.op)->name,
                      shape_text(text, sizeof text, &node->op.output));
        for (int k = 0; k < node->op.n_inputs; k++)
            (void)fprintf(to, " %d", node->input[k]);
        if (a->kernel[0])
            (void)fprintf(
                to,
                "; kernel %lldx%lld stride %lldx%lld dilation %lldx%lld pad %lld+%lldx%lld+%lld",
                (long long)a->kernel[0], (long long)a->kernel[1], (long long)a->stride[0],
                (long long)a->stride[1], (long long)a->dilation[0], (long long)a->dilation[1],
                (long long)a->pad_before[0], (long long)a->pad_after[0],
                (long long)a->pad_before[1], (long long)a->pad_after[1]);
        (void)fprintf(to, "%s", a->bias ? "; bias" : "");
        if (a->groups > 1)
            (void)fprintf(to, "; groups %lld", (long long)a->groups);
        (void)fprintf(to, "\n");
    }
}
