#include "model/networks/networks.h"

static int build(graph_builder *b, const struct network *self)
{
    (void)self;
    int x = graph_add_simple(b, "flatten", OP_FLATTEN, 0);
    x = graph_add_linear(b, "fc1", x, 512);
    x = graph_add_simple(b, "relu1", OP_RELU, x);
    x = graph_add_linear(b, "fc2", x, 256);
    x = graph_add_simple(b, "relu2", OP_RELU, x);
    return graph_add_linear(b, "fc3", x, graph_builder_variant(b)->classes);
}

const struct network network_mlp = {
    .name = "mlp",
    .about = "three linear layers, 512 and 256 hidden units",
    .build = build,
    .sgd_rate = NETWORK_SGD_RATE,
    .small = true,
};
