#include "model/networks/networks.h"

/* LeNet-5 (LeCun et al. 1998) as it is usually written now: ReLU and max pooling. */
static int build(graph_builder *b, const struct network *self)
{
    (void)self;
    static const struct graph_window halve = {2, 2, 0};
    int x = graph_add_conv(b, "conv1", 0, 6, (struct graph_window){5, 1, 2}, 1, true);
    x = graph_add_simple(b, "relu1", OP_RELU, x);
    x = graph_add_max_pool(b, "pool1", x, halve, false);
    x = graph_add_conv(b, "conv2", x, 16, (struct graph_window){5, 1, 0}, 1, true);
    x = graph_add_simple(b, "relu2", OP_RELU, x);
    x = graph_add_max_pool(b, "pool2", x, halve, false);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    x = graph_add_linear(b, "fc1", x, 120);
    x = graph_add_simple(b, "relu3", OP_RELU, x);
    x = graph_add_linear(b, "fc2", x, 84);
    x = graph_add_simple(b, "relu4", OP_RELU, x);
    return graph_add_linear(b, "fc3", x, graph_builder_variant(b)->classes);
}

const struct network network_lenet5 = {
    .name = "lenet5",
    .about = "LeNet-5: two convolutions, three linear layers",
    .build = build,
    .sgd_rate = NETWORK_SGD_RATE,
    .small = true,
};
