#include "model/networks/networks.h"

/* GoogLeNet (Szegedy et al. 2015) as in torchvision: with batch norm, without the auxiliary heads,
 * and with a 3x3 where the paper's third branch has a 5x5. */
static const struct block {
    const char *name;
    int64_t branch1, branch2[2], branch3[2], branch4; /* channels: the first of a pair narrows */
    const char *pool_after;                           /* NULL: none */
    int64_t pool_kernel;
} blocks[] = {
    {"inception3a", 64, {96, 128}, {16, 32}, 32, NULL, 0},
    {"inception3b", 128, {128, 192}, {32, 96}, 64, "maxpool3", 3},
    {"inception4a", 192, {96, 208}, {16, 48}, 64, NULL, 0},
    {"inception4b", 160, {112, 224}, {24, 64}, 64, NULL, 0},
    {"inception4c", 128, {128, 256}, {24, 64}, 64, NULL, 0},
    {"inception4d", 112, {144, 288}, {32, 64}, 64, NULL, 0},
    {"inception4e", 256, {160, 320}, {32, 128}, 128, "maxpool4", 2},
    {"inception5a", 256, {160, 320}, {32, 128}, 128, NULL, 0},
    {"inception5b", 384, {192, 384}, {48, 128}, 128, NULL, 0},
};

static int add_conv(graph_builder *b, const char *name, int input, int64_t channels, int64_t kernel,
                    int64_t stride)
{
    struct basic_conv conv = {channels, {kernel, kernel}, stride, true};
    return network_add_basic_conv(b, name, input, &conv);
}

static int add_pair(graph_builder *b, const char *branch, int input, const int64_t channels[2])
{
    graph_enter(b, "%s", branch);
    int x = add_conv(b, "0", input, channels[0], 1, 1);
    x = add_conv(b, "1", x, channels[1], 3, 1);
    graph_leave(b);
    return x;
}

static int add_block(graph_builder *b, const struct block *block, int input)
{
    int branch[4];
    graph_enter(b, "%s", block->name);
    branch[0] = add_conv(b, "branch1", input, block->branch1, 1, 1);
    branch[1] = add_pair(b, "branch2", input, block->branch2);
    branch[2] = add_pair(b, "branch3", input, block->branch3);
    branch[3] = graph_add_max_pool(b, "branch4.0", input, (struct graph_window){3, 1, 1}, true);
    branch[3] = add_conv(b, "branch4.1", branch[3], block->branch4, 1, 1);
    int x = graph_add_concat(b, "cat", 4, branch);
    graph_leave(b);
    return x;
}

static int build(graph_builder *b, const struct network *self)
{
    (void)self;
    int x = add_conv(b, "conv1", 0, 64, 7, 2);
    x = graph_add_max_pool(b, "maxpool1", x, (struct graph_window){3, 2, 0}, true);
    x = add_conv(b, "conv2", x, 64, 1, 1);
    x = add_conv(b, "conv3", x, 192, 3, 1);
    x = graph_add_max_pool(b, "maxpool2", x, (struct graph_window){3, 2, 0}, true);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        x = add_block(b, &blocks[i], x);
        if (blocks[i].pool_after)
            x = graph_add_max_pool(b, blocks[i].pool_after, x,
                                   (struct graph_window){blocks[i].pool_kernel, 2, 0}, true);
    }
    return network_add_pooled_head(b, "fc", x, 0.2);
}

/* As torchvision fills it. Its normal numbers are cut at +-2, 200 deviations away. */
static const struct network_init init = {
    .conv = {.weight = INIT_NORMAL, .bias = INIT_ZERO, .deviation = 0.01},
    .linear = {.weight = INIT_NORMAL, .bias = INIT_KAIMING_UNIFORM, .deviation = 0.01},
};

const struct network network_googlenet = {
    .name = "googlenet",
    .about = "GoogLeNet: nine blocks of four branches",
    .build = build,
    .sgd_rate = NETWORK_SGD_RATE,
    .init = &init,
};
