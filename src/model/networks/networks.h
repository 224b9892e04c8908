/* networks.h: the list of the built-in networks, and what several of their files share.
 *
 * A new network is one name in the list and one `const struct network network_NAME` in a file here:
 *
 *     static int build(graph_builder *b, const struct network *self)
 *     {
 *         (void)self;
 *         int x = graph_add_simple(b, "flatten", OP_FLATTEN, 0);
 *         return graph_add_linear(b, "fc", x, graph_builder_variant(b)->classes);
 *     }
 *
 *     const struct network network_softmax = {
 *         .name = "softmax",
 *         .about = "one linear layer on the pixels",
 *         .build = build,
 *         .sgd_rate = NETWORK_SGD_RATE,
 *         .small = true,
 *     };
 */
#ifndef CLEAVE_MODEL_NETWORKS_NETWORKS_H
#define CLEAVE_MODEL_NETWORKS_NETWORKS_H

#include "model/network.h"

#define NETWORKS(X) \
    X(mlp)          \
    X(lenet5)       \
    X(alexnet)      \
    X(alexnet7)     \
    X(vgg11)        \
    X(vgg16)        \
    X(resnet18)     \
    X(resnet50)     \
    X(resnet101)    \
    X(resnet152)    \
    X(mobilenetv2)  \
    X(googlenet)    \
    X(inceptionv3)

#define DECLARE_NETWORK(id) extern const struct network network_##id;
NETWORKS(DECLARE_NETWORK)
#undef DECLARE_NETWORK

/* "avgpool" over the whole map, "flatten", "dropout" (none where the probability is 0), and the
 * linear layer `name` to the classes. */
int network_add_pooled_head(graph_builder *b, const char *name, int input, double drop_probability);

/* The unit of GoogLeNet and Inception: NAME.conv without bias, NAME.bn (epsilon 1e-3), NAME.relu.
 */
struct basic_conv {
    int64_t channels;
    int64_t kernel[2]; /* height, width */
    int64_t stride;
    bool same; /* padded so that stride 1 keeps the size; otherwise no padding */
};
int network_add_basic_conv(graph_builder *b, const char *name, int input,
                           const struct basic_conv *conv);

#endif
