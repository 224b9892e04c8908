/* network.h: the built-in networks, by name.
 *
 * A network is one short file in networks/ over the graph builder, and one line in the list in
 * networks/networks.h. Parameter names, shapes and counts are those of torchvision (large form) and
 * of the usual CIFAR-10 versions (small form), so that PyTorch loads the weights by name; their
 * order is that of computation, where a residual block's shortcut comes first.
 */
#ifndef CLEAVE_MODEL_NETWORK_H
#define CLEAVE_MODEL_NETWORK_H

#include "model/graph.h"

/* How the fresh weights and biases of one kind of layer are filled. */
struct layer_init {
    enum op_init weight, bias;
    bool by_outputs;  /* INIT_KAIMING_NORMAL: the fan of a convolution is what an input reaches */
    double deviation; /* INIT_NORMAL */
};
struct network_init {
    struct layer_init conv, linear;
    bool large_only; /* the small form has the usual one */
};

struct network {
    const char *name;
    const char *about; /* one line for people */
    /* adds the layers behind node 0 and returns the node of the logits [n, classes] */
    int (*build)(graph_builder *b, const struct network *self);
    const void *layout; /* per-network numbers for build, e.g. the block counts of a ResNet */
    double sgd_rate;    /* the learning rate of SGD where none is given */
    const struct network_init *init; /* NULL: the usual one of each op */
    bool small; /* made for images of MNIST's size: what it is meant for without data */
};

/* Most networks'; deep ones without batch norm diverge at it. */
#define NETWORK_SGD_RATE 0.05

/* All names, ending with NULL, for help and for messages. */
const char *const *network_names(void);

/* The network of that name, in whatever case; STATUS_USAGE with the nearest match if there is none.
 */
enum status network_find(const char *name, const struct network **out) MUST_USE;

/* Builds a network for a variant. STATUS_USAGE names the layer at which the shapes do not fit. */
enum status network_build(const char *name, const struct graph_variant *variant,
                          struct graph **out) MUST_USE;

#endif
