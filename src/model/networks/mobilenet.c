#include "model/networks/networks.h"

static const double epsilon = 1e-5;

/* MobileNetV2 (Sandler et al. 2018). A block widens by 1x1, convolves each channel by itself 3x3,
 * and narrows by 1x1. */
static const struct stage {
    int64_t expansion, channels;
    int n_blocks;
    int64_t large_stride, small_stride; /* of the first block */
} stages[] = {
    {1, 16, 1, 1, 1}, {6, 24, 2, 2, 1},  {6, 32, 3, 2, 2},  {6, 64, 4, 2, 2},
    {6, 96, 3, 1, 1}, {6, 160, 3, 2, 2}, {6, 320, 1, 1, 1},
};
enum { N_STAGES = sizeof stages / sizeof *stages };

/* The names of one conv, batch norm and activation; no activation where that is NULL. */
struct unit {
    const char *conv, *norm, *activation;
};

static int add_unit(graph_builder *b, struct unit unit, enum op_kind activation, int input,
                    int64_t channels, struct graph_window window, int64_t groups)
{
    int x = graph_add_conv(b, unit.conv, input, channels, window, groups, false);
    x = graph_add_batch_norm(b, unit.norm, x, epsilon);
    return unit.activation ? graph_add_simple(b, unit.activation, activation, x) : x;
}

static const struct graph_window point = {1, 1, 0};

/* The shortcut comes first, so that the sum directly follows the last batch norm. */
static int add_small_shortcut(graph_builder *b, int input, int64_t channels, int64_t stride)
{
    if (stride != 1)
        return -1;
    if (graph_extent(b, input, USE_CHANNEL) == channels)
        return input;
    return add_unit(b, (struct unit){"shortcut.0", "shortcut.1", NULL}, OP_RELU, input, channels,
                    point, 1);
}

/* The small form always widens, and projects its shortcut where the channels change. */
static int add_small_block(graph_builder *b, int input, const struct stage *stage, int64_t stride)
{
    int64_t width = stage->expansion * graph_extent(b, input, USE_CHANNEL);
    int shortcut = add_small_shortcut(b, input, stage->channels, stride);
    int x = add_unit(b, (struct unit){"conv1", "bn1", "relu1"}, OP_RELU6, input, width, point, 1);
    x = add_unit(b, (struct unit){"conv2", "bn2", "relu2"}, OP_RELU6, x, width,
                 (struct graph_window){3, stride, 1}, width);
    x = add_unit(b, (struct unit){"conv3", "bn3", NULL}, OP_RELU6, x, stage->channels, point, 1);
    return stride == 1 ? graph_add_sum(b, "add", x, shortcut) : x;
}

/* The large form has a shortcut only where it can be the identity. Its names count the steps. */
static int add_large_block(graph_builder *b, int input, const struct stage *stage, int64_t stride)
{
    static const struct unit widen = {"conv.0.0", "conv.0.1", "conv.0.2"};
    static const struct unit deep[2] = {{"conv.0.0", "conv.0.1", "conv.0.2"},
                                        {"conv.1.0", "conv.1.1", "conv.1.2"}};
    static const struct unit narrow[2] = {{"conv.1", "conv.2", NULL}, {"conv.2", "conv.3", NULL}};
    int64_t in_channels = graph_extent(b, input, USE_CHANNEL),
            width = stage->expansion * in_channels;
    int widens = stage->expansion != 1;
    int x = input;
    if (widens)
        x = add_unit(b, widen, OP_RELU6, x, width, point, 1);
    x = add_unit(b, deep[widens], OP_RELU6, x, width, (struct graph_window){3, stride, 1}, width);
    x = add_unit(b, narrow[widens], OP_RELU6, x, stage->channels, point, 1);
    bool adds = stride == 1 && in_channels == stage->channels;
    return adds ? graph_add_sum(b, "add", x, input) : x;
}

static int build_small(graph_builder *b)
{
    int x = add_unit(b, (struct unit){"conv1", "bn1", "relu1"}, OP_RELU, 0, 32,
                     (struct graph_window){3, 1, 1}, 1);
    for (int s = 0, number = 0; s < N_STAGES; s++)
        for (int i = 0; i < stages[s].n_blocks; i++) {
            graph_enter(b, "layers.%d", number++);
            x = add_small_block(b, x, &stages[s], i == 0 ? stages[s].small_stride : 1);
            graph_leave(b);
        }
    x = add_unit(b, (struct unit){"conv2", "bn2", "relu2"}, OP_RELU, x, 1280, point, 1);
    return network_add_pooled_head(b, "linear", x, 0);
}

static int build_large(graph_builder *b)
{
    static const struct unit numbered = {"0", "1", "2"};
    int number = 0;
    graph_enter(b, "features.%d", number++);
    int x = add_unit(b, numbered, OP_RELU6, 0, 32, (struct graph_window){3, 2, 1}, 1);
    graph_leave(b);
    for (int s = 0; s < N_STAGES; s++)
        for (int i = 0; i < stages[s].n_blocks; i++) {
            graph_enter(b, "features.%d", number++);
            x = add_large_block(b, x, &stages[s], i == 0 ? stages[s].large_stride : 1);
            graph_leave(b);
        }
    graph_enter(b, "features.%d", number);
    x = add_unit(b, numbered, OP_RELU6, x, 1280, point, 1);
    graph_leave(b);
    x = graph_add_simple(b, "avgpool", OP_GLOBAL_POOL, x);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    x = graph_add_dropout(b, "classifier.0", x, 0.2);
    return graph_add_linear(b, "classifier.1", x, graph_builder_variant(b)->classes);
}

static int build(graph_builder *b, const struct network *self)
{
    (void)self;
    return graph_builder_variant(b)->small_form ? build_small(b) : build_large(b);
}

/* As torchvision fills it; of a depthwise convolution all outputs count, too. */
static const struct network_init init = {
    .conv = {.weight = INIT_KAIMING_NORMAL, .bias = INIT_ZERO, .by_outputs = true},
    .linear = {.weight = INIT_NORMAL, .bias = INIT_ZERO, .deviation = 0.01},
};

const struct network network_mobilenetv2 = {
    .name = "mobilenetv2",
    .about = "MobileNetV2: inverted residual blocks, depthwise convolutions",
    .build = build,
    .sgd_rate = NETWORK_SGD_RATE,
    .init = &init,
};
