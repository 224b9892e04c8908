#include "model/networks/networks.h"

#include <stdio.h>

enum { N_BLOCKS = 5 };
static const int64_t block_channels[N_BLOCKS] = {64, 128, 256, 512, 512};

struct layout {
    int n_convs[N_BLOCKS]; /* 3x3 convolutions per block; a 2x2 max pool ends each */
};

/* features.N, where N counts convolutions, ReLUs and pools. */
static const char *count_layer(char name[16], int *n_layers)
{
    (void)snprintf(name, 16, "%d", (*n_layers)++);
    return name;
}

static int add_features(graph_builder *b, const struct layout *layout)
{
    static const struct graph_window small = {3, 1, 1}, halve = {2, 2, 0};
    bool small_form = graph_builder_variant(b)->small_form;
    int x = 0, n_layers = 0;
    char name[16];
    graph_enter(b, "features");
    for (int block = 0; block < N_BLOCKS; block++) {
        for (int i = 0; i < layout->n_convs[block]; i++) {
            x = graph_add_conv(b, count_layer(name, &n_layers), x, block_channels[block], small, 1,
                               true);
            x = graph_add_simple(b, count_layer(name, &n_layers), OP_RELU, x);
        }
        /* The small form has no pool where nothing is left to halve: 28x28 images reach 1x1 after
         * four. The large form lets the shape rule refuse such images. */
        bool halves = graph_extent(b, x, USE_ROW) > 1 && graph_extent(b, x, USE_COLUMN) > 1;
        if (!small_form || halves)
            x = graph_add_max_pool(b, count_layer(name, &n_layers), x, halve, false);
    }
    graph_leave(b);
    return x;
}

static int add_small_head(graph_builder *b, int x)
{
    if (graph_extent(b, x, USE_ROW) != 1 || graph_extent(b, x, USE_COLUMN) != 1)
        x = graph_add_simple(b, "avgpool", OP_GLOBAL_POOL, x);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    return graph_add_linear(b, "classifier", x, graph_builder_variant(b)->classes);
}

static int add_large_head(graph_builder *b, int x)
{
    x = graph_add_adaptive_pool(b, "avgpool", x, 7);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    graph_enter(b, "classifier");
    x = graph_add_linear(b, "0", x, 4096);
    x = graph_add_simple(b, "1", OP_RELU, x);
    x = graph_add_dropout(b, "2", x, 0.5);
    x = graph_add_linear(b, "3", x, 4096);
    x = graph_add_simple(b, "4", OP_RELU, x);
    x = graph_add_dropout(b, "5", x, 0.5);
    x = graph_add_linear(b, "6", x, graph_builder_variant(b)->classes);
    graph_leave(b);
    return x;
}

/* VGG (Simonyan and Zisserman 2015) without batch norm. */
static int build(graph_builder *b, const struct network *self)
{
    int x = add_features(b, self->layout);
    return graph_builder_variant(b)->small_form ? add_small_head(b, x) : add_large_head(b, x);
}

static const struct layout vgg11 = {{1, 1, 2, 2, 2}}, vgg16 = {{2, 2, 3, 3, 3}};

/* As torchvision fills it. torchvision has no small form: with these weights, without batch norm
 * and with few input channels, its activations are so small that it does not begin to learn. */
static const struct network_init init = {
    .conv = {.weight = INIT_KAIMING_NORMAL, .bias = INIT_ZERO, .by_outputs = true},
    .linear = {.weight = INIT_NORMAL, .bias = INIT_ZERO, .deviation = 0.01},
    .large_only = true,
};

const struct network network_vgg11 = {
    .name = "vgg11",
    .about = "VGG-11: 3x3 convolutions in five blocks",
    .build = build,
    .layout = &vgg11,
    .sgd_rate = 0.01,
    .init = &init,
};
const struct network network_vgg16 = {
    .name = "vgg16",
    .about = "VGG-16: 3x3 convolutions in five blocks",
    .build = build,
    .layout = &vgg16,
    .sgd_rate = 0.01,
    .init = &init,
};
