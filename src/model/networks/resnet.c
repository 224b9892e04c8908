#include "model/networks/networks.h"

#include <stdio.h>

enum { N_STAGES = 4 };
static const double epsilon = 1e-5;

struct layout {
    int n_blocks[N_STAGES];
    bool bottleneck; /* 1x1, 3x3, 1x1 to four times the width; otherwise two 3x3 */
};

/* convN and bnN. */
static int add_conv_bn(graph_builder *b, int number, int input, int64_t channels,
                       struct graph_window window)
{
    char name[16];
    (void)snprintf(name, sizeof name, "conv%d", number);
    int x = graph_add_conv(b, name, input, channels, window, 1, false);
    (void)snprintf(name, sizeof name, "bn%d", number);
    return graph_add_batch_norm(b, name, x, epsilon);
}

static int add_conv_bn_relu(graph_builder *b, int number, int input, int64_t channels,
                            struct graph_window window)
{
    int x = add_conv_bn(b, number, input, channels, window);
    char name[16];
    (void)snprintf(name, sizeof name, "relu%d", number);
    return graph_add_simple(b, name, OP_RELU, x);
}

/* The shortcut comes first, so that the sum directly follows the batch norm that can take it in. */
static int add_shortcut(graph_builder *b, int input, int64_t channels, int64_t stride)
{
    if (stride == 1 && graph_extent(b, input, USE_CHANNEL) == channels)
        return input;
    int x = graph_add_conv(b, "downsample.0", input, channels, (struct graph_window){1, stride, 0},
                           1, false);
    return graph_add_batch_norm(b, "downsample.1", x, epsilon);
}

static int add_block(graph_builder *b, int input, bool bottleneck, int64_t width, int64_t stride)
{
    static const struct graph_window point = {1, 1, 0}, small = {3, 1, 1};
    struct graph_window strided = {3, stride, 1};
    int64_t channels = bottleneck ? 4 * width : width;
    int shortcut = add_shortcut(b, input, channels, stride);
    int x;
    if (bottleneck) {
        x = add_conv_bn_relu(b, 1, input, width, point);
        x = add_conv_bn_relu(b, 2, x, width, strided);
        x = add_conv_bn(b, 3, x, channels, point);
    } else {
        x = add_conv_bn_relu(b, 1, input, width, strided);
        x = add_conv_bn(b, 2, x, channels, small);
    }
    x = graph_add_sum(b, "add", x, shortcut);
    return graph_add_simple(b, "relu", OP_RELU, x);
}

/* The small form keeps the size of the images in its stem, the large one divides it by four. */
static int add_stem(graph_builder *b)
{
    if (graph_builder_variant(b)->small_form)
        return add_conv_bn_relu(b, 1, 0, 64, (struct graph_window){3, 1, 1});
    int x = add_conv_bn_relu(b, 1, 0, 64, (struct graph_window){7, 2, 3});
    return graph_add_max_pool(b, "maxpool", x, (struct graph_window){3, 2, 1}, false);
}

/* ResNet (He et al. 2016); the stride of a bottleneck is in its 3x3 convolution. */
static int build(graph_builder *b, const struct network *self)
{
    const struct layout *layout = self->layout;
    int x = add_stem(b);
    for (int stage = 0; stage < N_STAGES; stage++)
        for (int block = 0; block < layout->n_blocks[stage]; block++) {
            int64_t stride = stage > 0 && block == 0 ? 2 : 1;
            graph_enter(b, "layer%d.%d", stage + 1, block);
            x = add_block(b, x, layout->bottleneck, INT64_C(64) << stage, stride);
            graph_leave(b);
        }
    return network_add_pooled_head(b, "fc", x, 0);
}

static const struct layout resnet18 = {{2, 2, 2, 2}, false}, resnet50 = {{3, 4, 6, 3}, true},
                           resnet101 = {{3, 4, 23, 3}, true}, resnet152 = {{3, 8, 36, 3}, true};

/* As torchvision fills it. */
static const struct network_init init = {
    .conv = {.weight = INIT_KAIMING_NORMAL, .bias = INIT_ZERO, .by_outputs = true},
    .linear = {.weight = INIT_KAIMING_UNIFORM, .bias = INIT_KAIMING_UNIFORM},
};

const struct network network_resnet18 = {
    .name = "resnet18",
    .about = "ResNet-18: residual blocks of two 3x3",
    .build = build,
    .layout = &resnet18,
    .sgd_rate = NETWORK_SGD_RATE,
    .init = &init,
};
const struct network network_resnet50 = {
    .name = "resnet50",
    .about = "ResNet-50: residual bottleneck blocks",
    .build = build,
    .layout = &resnet50,
    .sgd_rate = NETWORK_SGD_RATE,
    .init = &init,
};
const struct network network_resnet101 = {
    .name = "resnet101",
    .about = "ResNet-101: residual bottleneck blocks",
    .build = build,
    .layout = &resnet101,
    .sgd_rate = NETWORK_SGD_RATE,
    .init = &init,
};
const struct network network_resnet152 = {
    .name = "resnet152",
    .about = "ResNet-152: residual bottleneck blocks",
    .build = build,
    .layout = &resnet152,
    .sgd_rate = NETWORK_SGD_RATE,
    .init = &init,
};
