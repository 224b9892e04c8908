#include "model/networks/networks.h"

struct layout {
    int64_t pooled; /* rows and columns that the linear layers see */
};

/* "One weird trick" AlexNet (Krizhevsky 2014), as in torchvision: one column, no response norm. */
static int build(graph_builder *b, const struct network *self)
{
    const struct layout *layout = self->layout;
    static const struct graph_window pool = {3, 2, 0}, small = {3, 1, 1};

    graph_enter(b, "features");
    int x = graph_add_conv(b, "0", 0, 64, (struct graph_window){11, 4, 2}, 1, true);
    x = graph_add_simple(b, "1", OP_RELU, x);
    x = graph_add_max_pool(b, "2", x, pool, false);
    x = graph_add_conv(b, "3", x, 192, (struct graph_window){5, 1, 2}, 1, true);
    x = graph_add_simple(b, "4", OP_RELU, x);
    x = graph_add_max_pool(b, "5", x, pool, false);
    x = graph_add_conv(b, "6", x, 384, small, 1, true);
    x = graph_add_simple(b, "7", OP_RELU, x);
    x = graph_add_conv(b, "8", x, 256, small, 1, true);
    x = graph_add_simple(b, "9", OP_RELU, x);
    x = graph_add_conv(b, "10", x, 256, small, 1, true);
    x = graph_add_simple(b, "11", OP_RELU, x);
    x = graph_add_max_pool(b, "12", x, pool, false);
    graph_leave(b);

    x = graph_add_adaptive_pool(b, "avgpool", x, layout->pooled);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);

    graph_enter(b, "classifier");
    x = graph_add_dropout(b, "0", x, 0.5);
    x = graph_add_linear(b, "1", x, 4096);
    x = graph_add_simple(b, "2", OP_RELU, x);
    x = graph_add_dropout(b, "3", x, 0.5);
    x = graph_add_linear(b, "4", x, 4096);
    x = graph_add_simple(b, "5", OP_RELU, x);
    x = graph_add_linear(b, "6", x, graph_builder_variant(b)->classes);
    graph_leave(b);
    return x;
}

static const struct layout alexnet = {6}, alexnet7 = {7};

/* As torchvision fills it: by PyTorch's defaults. */
static const struct network_init init = {
    .conv = {.weight = INIT_KAIMING_UNIFORM, .bias = INIT_KAIMING_UNIFORM},
    .linear = {.weight = INIT_KAIMING_UNIFORM, .bias = INIT_KAIMING_UNIFORM},
};

const struct network network_alexnet = {
    .name = "alexnet",
    .about = "AlexNet: five convolutions, three large linear layers",
    .build = build,
    .layout = &alexnet,
    .sgd_rate = 0.01,
    .init = &init,
};

/* That of the tables of DeePa and OptCNN (arXiv 1802.04924), whose bytes are those of 74.7 M
 * parameters: the first linear layer has 7x7x256 inputs. */
const struct network network_alexnet7 = {
    .name = "alexnet7",
    .about = "AlexNet with 7x7 instead of 6x6 images before its linear layers",
    .build = build,
    .layout = &alexnet7,
    .sgd_rate = 0.01,
    .init = &init,
};
