#include "model/networks/networks.h"

/* Inception-v3 (Szegedy et al. 2016) as in torchvision, without the auxiliary head.
 *
 * A block is a list of rows. A row reads the block's input or an earlier row; the rows that join
 * are concatenated, in order. Convolutions of stride 1 keep the size, those of stride 2 have no
 * padding; so with the pools.
 */
enum { MAX_ROWS = 12 };
enum row_op { END, CONV, AVERAGE, MAX };
enum row_source { BLOCK, PREVIOUS, BEFORE_PREVIOUS }; /* how many rows back; 0: the block's input */
enum { WIDTH = -1 };                                  /* channels: those that the stage gives */

struct row {
    const char *name;
    enum row_op op;
    enum row_source reads;
    int64_t channels, kernel[2], stride;
    bool joins;
};

static const struct row block_a[MAX_ROWS] = {
    {"branch1x1", CONV, BLOCK, 64, {1, 1}, 1, true},
    {"branch5x5_1", CONV, BLOCK, 48, {1, 1}, 1, false},
    {"branch5x5_2", CONV, PREVIOUS, 64, {5, 5}, 1, true},
    {"branch3x3dbl_1", CONV, BLOCK, 64, {1, 1}, 1, false},
    {"branch3x3dbl_2", CONV, PREVIOUS, 96, {3, 3}, 1, false},
    {"branch3x3dbl_3", CONV, PREVIOUS, 96, {3, 3}, 1, true},
    {"branch_pool.pool", AVERAGE, BLOCK, 0, {3, 3}, 1, false},
    {"branch_pool", CONV, PREVIOUS, WIDTH, {1, 1}, 1, true},
};

static const struct row block_b[MAX_ROWS] = {
    {"branch3x3", CONV, BLOCK, 384, {3, 3}, 2, true},
    {"branch3x3dbl_1", CONV, BLOCK, 64, {1, 1}, 1, false},
    {"branch3x3dbl_2", CONV, PREVIOUS, 96, {3, 3}, 1, false},
    {"branch3x3dbl_3", CONV, PREVIOUS, 96, {3, 3}, 2, true},
    {"branch_pool", MAX, BLOCK, 0, {3, 3}, 2, true},
};

static const struct row block_c[MAX_ROWS] = {
    {"branch1x1", CONV, BLOCK, 192, {1, 1}, 1, true},
    {"branch7x7_1", CONV, BLOCK, WIDTH, {1, 1}, 1, false},
    {"branch7x7_2", CONV, PREVIOUS, WIDTH, {1, 7}, 1, false},
    {"branch7x7_3", CONV, PREVIOUS, 192, {7, 1}, 1, true},
    {"branch7x7dbl_1", CONV, BLOCK, WIDTH, {1, 1}, 1, false},
    {"branch7x7dbl_2", CONV, PREVIOUS, WIDTH, {7, 1}, 1, false},
    {"branch7x7dbl_3", CONV, PREVIOUS, WIDTH, {1, 7}, 1, false},
    {"branch7x7dbl_4", CONV, PREVIOUS, WIDTH, {7, 1}, 1, false},
    {"branch7x7dbl_5", CONV, PREVIOUS, 192, {1, 7}, 1, true},
    {"branch_pool.pool", AVERAGE, BLOCK, 0, {3, 3}, 1, false},
    {"branch_pool", CONV, PREVIOUS, 192, {1, 1}, 1, true},
};

static const struct row block_d[MAX_ROWS] = {
    {"branch3x3_1", CONV, BLOCK, 192, {1, 1}, 1, false},
    {"branch3x3_2", CONV, PREVIOUS, 320, {3, 3}, 2, true},
    {"branch7x7x3_1", CONV, BLOCK, 192, {1, 1}, 1, false},
    {"branch7x7x3_2", CONV, PREVIOUS, 192, {1, 7}, 1, false},
    {"branch7x7x3_3", CONV, PREVIOUS, 192, {7, 1}, 1, false},
    {"branch7x7x3_4", CONV, PREVIOUS, 192, {3, 3}, 2, true},
    {"branch_pool", MAX, BLOCK, 0, {3, 3}, 2, true},
};

/* Two of its branches fork; their concatenations are parts of the block's one. */
static const struct row block_e[MAX_ROWS] = {
    {"branch1x1", CONV, BLOCK, 320, {1, 1}, 1, true},
    {"branch3x3_1", CONV, BLOCK, 384, {1, 1}, 1, false},
    {"branch3x3_2a", CONV, PREVIOUS, 384, {1, 3}, 1, true},
    {"branch3x3_2b", CONV, BEFORE_PREVIOUS, 384, {3, 1}, 1, true},
    {"branch3x3dbl_1", CONV, BLOCK, 448, {1, 1}, 1, false},
    {"branch3x3dbl_2", CONV, PREVIOUS, 384, {3, 3}, 1, false},
    {"branch3x3dbl_3a", CONV, PREVIOUS, 384, {1, 3}, 1, true},
    {"branch3x3dbl_3b", CONV, BEFORE_PREVIOUS, 384, {3, 1}, 1, true},
    {"branch_pool.pool", AVERAGE, BLOCK, 0, {3, 3}, 1, false},
    {"branch_pool", CONV, PREVIOUS, 192, {1, 1}, 1, true},
};

static const struct stage {
    const char *name;
    const struct row *rows;
    int64_t width;
} stages[] = {
    {"Mixed_5b", block_a, 32},  {"Mixed_5c", block_a, 64},  {"Mixed_5d", block_a, 64},
    {"Mixed_6a", block_b, 0},   {"Mixed_6b", block_c, 128}, {"Mixed_6c", block_c, 160},
    {"Mixed_6d", block_c, 160}, {"Mixed_6e", block_c, 192}, {"Mixed_7a", block_d, 0},
    {"Mixed_7b", block_e, 0},   {"Mixed_7c", block_e, 0},
};

static int add_row(graph_builder *b, const struct row *row, int64_t width, int input)
{
    bool same = row->stride == 1;
    struct graph_window window = {row->kernel[0], row->stride, same ? (row->kernel[0] - 1) / 2 : 0};
    if (row->op == MAX)
        return graph_add_max_pool(b, row->name, input, window, false);
    if (row->op == AVERAGE)
        return graph_add_average_pool(b, row->name, input, window);
    struct basic_conv conv = {row->channels == WIDTH ? width : row->channels,
                              {row->kernel[0], row->kernel[1]},
                              row->stride,
                              same};
    return network_add_basic_conv(b, row->name, input, &conv);
}

static int add_block(graph_builder *b, const struct stage *stage, int input)
{
    int node[MAX_ROWS], joined[OP_MAX_INPUTS];
    int n_joined = 0;
    graph_enter(b, "%s", stage->name);
    for (int i = 0; i < MAX_ROWS && stage->rows[i].op != END; i++) {
        const struct row *row = &stage->rows[i];
        node[i] =
            add_row(b, row, stage->width, row->reads == BLOCK ? input : node[i - (int)row->reads]);
        if (row->joins)
            joined[n_joined++] = node[i];
    }
    int x = graph_add_concat(b, "cat", n_joined, joined);
    graph_leave(b);
    return x;
}

/* The network is made for 299x299 and divides the size by 32 in all; under 75 pixels nothing would
 * be left at the end. There the first convolution keeps the size (the parameters are the same), so
 * that 64x64 images fit. */
static int64_t choose_first_stride(const struct graph_variant *v)
{
    return v->height < 75 || v->width < 75 ? 1 : 2;
}

static int add_stem(graph_builder *b)
{
    static const struct graph_window pool = {3, 2, 0};
    struct basic_conv conv_1a = {32, {3, 3}, choose_first_stride(graph_builder_variant(b)), false};
    static const struct basic_conv conv_2a = {32, {3, 3}, 1, false},
                                   conv_2b = {64, {3, 3}, 1, true},
                                   conv_3b = {80, {1, 1}, 1, false},
                                   conv_4a = {192, {3, 3}, 1, false};
    int x = network_add_basic_conv(b, "Conv2d_1a_3x3", 0, &conv_1a);
    x = network_add_basic_conv(b, "Conv2d_2a_3x3", x, &conv_2a);
    x = network_add_basic_conv(b, "Conv2d_2b_3x3", x, &conv_2b);
    x = graph_add_max_pool(b, "maxpool1", x, pool, false);
    x = network_add_basic_conv(b, "Conv2d_3b_1x1", x, &conv_3b);
    x = network_add_basic_conv(b, "Conv2d_4a_3x3", x, &conv_4a);
    return graph_add_max_pool(b, "maxpool2", x, pool, false);
}

static int build(graph_builder *b, const struct network *self)
{
    (void)self;
    int x = add_stem(b);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        x = add_block(b, &stages[i], x);
    return network_add_pooled_head(b, "fc", x, 0.5);
}

/* As torchvision fills it. Its normal numbers are cut at +-2, 20 deviations away. */
static const struct network_init init = {
    .conv = {.weight = INIT_NORMAL, .bias = INIT_ZERO, .deviation = 0.1},
    .linear = {.weight = INIT_NORMAL, .bias = INIT_KAIMING_UNIFORM, .deviation = 0.1},
};

const struct network network_inceptionv3 = {
    .name = "inceptionv3",
    .about = "Inception-v3: eleven blocks of three or four branches",
    .build = build,
    .sgd_rate = NETWORK_SGD_RATE,
    .init = &init,
};
