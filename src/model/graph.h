/* graph.h: a network: nodes over the op table, in the order they are computed.
 *
 * Node 0 is the input; every node's inputs have smaller numbers; the last node is the loss. Node
 * and parameter names are PyTorch's ("layer1.0.conv1", "layer1.0.conv1.weight"). Shapes hold the
 * batch: a graph is built for one batch size. The input says what its axes are (op.h), the batch
 * first, because samples are loaded one behind the other; those of all other tensors follow from
 * the op table. A finished graph never changes.
 *
 * Built with a builder that remembers the first error, so that a network reads as its layers:
 *
 *     graph_builder *b;
 *     TRY(graph_builder_create("tiny", &variant, &b));
 *     int x = graph_add_conv(b, "conv1", 0, 64, (struct graph_window){7, 2, 3}, 1, true);
 *     x = graph_add_simple(b, "relu", OP_RELU, x);
 *     x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
 *     x = graph_add_linear(b, "fc", x, variant.classes);
 *     TRY(graph_builder_finish(b, x, &g)); // any error of the lines above comes out here
 *     ...
 *     graph_destroy(g);
 */
#ifndef CLEAVE_MODEL_GRAPH_H
#define CLEAVE_MODEL_GRAPH_H

#include "base/arena.h"
#include "model/op.h"

enum { GRAPH_LARGEST_BATCH = 1 << 20 };

struct graph_node {
    const char *name;
    struct op_case op;         /* kind, attributes, shapes */
    int input[OP_MAX_INPUTS];  /* node numbers; op.n_inputs of them */
    int first_param, n_params; /* into graph->params */
};

/* How a weight learns; zeroed: as the update rule says. */
struct param_group {
    bool frozen;        /* training leaves it as it is, see graph_freeze */
    bool skips_decay;   /* its weight decay is 0 */
    double rate_factor; /* of the rule's learning rate; 0 stands for 1 */
};

struct graph_param {
    const char *name;
    int node;
    struct op_param spec;
    struct param_group group;
};

struct graph {
    arena *memory; /* owns everything below */
    const char *name;
    int64_t batch, classes;
    int n_nodes;
    struct graph_node *nodes;
    int n_params;
    struct graph_param *params;
};

/* What a network depends on beside its name: the batch and the dataset. */
struct graph_variant {
    int64_t batch, channels, height, width, classes;
    bool small_form;         /* the MNIST and CIFAR-10 forms of the networks */
    double drop_probability; /* replaces every dropout's; negative: the network's own */
};

void graph_destroy(struct graph *g); /* NULL is fine */

/* The same network for another batch size, on its own: `g` may be destroyed before it.
 * STATUS_USAGE if the batch is less than 1 or makes a tensor larger than can be counted. */
enum status graph_resize(const struct graph *g, int64_t batch, struct graph **out) MUST_USE;

/* Checks the invariants above, that shapes and parameters are what the op table says, that node
 * names (and so parameter names) are unique, and that every node but the loss is read by another.
 * STATUS_FAILED names the node. For tests and debug builds. */
enum status graph_check(const struct graph *g) MUST_USE;

/* ---- parameter groups (param_groups.c) ----
 *
 * Set before the graph is used by others. Weights are named by globs, with commas between them
 * (* ? [] as in a shell: "features.*,*.bias"); STATUS_USAGE for a glob that matches no weight. A
 * call that is refused changes no group. */

/* A frozen weight has no gradient and no optimizer state, and nothing is sent for it; running
 * statistics go on. The gradient stops behind the last layer whose own and earlier weights are all
 * frozen. STATUS_USAGE if no weight is left to learn. */
enum status graph_freeze(struct graph *g, const char *globs) MUST_USE;
enum status graph_skip_decay(struct graph *g, const char *globs) MUST_USE;
/* "features.*=0.1,fc.*=10"; of several globs that match a weight the last one counts. */
enum status graph_scale_rates(struct graph *g, const char *factors) MUST_USE;

/* Whether a step changes it by its gradient: a weight that is not frozen. */
bool graph_param_learns(const struct graph_param *param);
/* Of a node's parameters those that learn, a bit each. */
unsigned graph_node_learns(const struct graph *g, const struct graph_node *node);
int64_t graph_count_frozen(const struct graph *g); /* elements */
/* "2 frozen, 5 without decay, 0 of another rate (1a2b3c4d)", in weights, or "none"; the same text
 * for the same groups alone. 80 bytes suffice; NULL has no groups. */
const char *graph_groups_text(const struct graph *g, char *text, size_t size);

/* Numbers of one sample of the input. */
int64_t graph_sample_elements(const struct graph *g);

int64_t graph_count_parameters(const struct graph *g); /* trained ones, as PyTorch counts */
int64_t graph_node_parameters(const struct graph *g, const struct graph_node *node);

/* ---- building ---- */

typedef struct graph_builder graph_builder;

/* The graph starts with its input node, number 0. */
enum status graph_builder_create(const char *name, const struct graph_variant *variant,
                                 graph_builder **out) MUST_USE;

/* Appends a node and returns its number. After an error (recorded, with the node's name) this and
 * all further calls return -1 and do nothing. `name` is copied and may be a printf format result.
 */
int graph_add(graph_builder *b, const char *name, enum op_kind op, const struct op_attrs *attrs,
              int n_inputs, const int *inputs);

/* Between enter and leave, names get "SCOPE." in front, as in PyTorch's nested modules:
 *     graph_enter(b, "layer%d.%d", 1, 0);    "conv1" is then "layer1.0.conv1"
 * Scopes nest. */
void graph_enter(graph_builder *b, const char *format, ...) PRINTF_LIKE(2, 3);
void graph_leave(graph_builder *b);

/* The shape of a node built so far; a zero shape after an error. */
struct shape graph_shape(const graph_builder *b, int node);
/* The extent of its axis of that use; 1 where it has none, 0 after an error. */
int64_t graph_extent(const graph_builder *b, int node, enum loop_use use);

const struct graph_variant *graph_builder_variant(const graph_builder *b);

/* Adds the loss behind `logits` and hands the graph over, or returns the first error. The builder
 * is destroyed either way. */
enum status graph_builder_finish(graph_builder *b, int logits, struct graph **out) MUST_USE;

/* Shorthands over graph_add. Square windows; attributes not named are the usual ones (PyTorch's
 * defaults). A max pool in ceil_mode gets the padding behind that makes its last window fit. The
 * average pool counts its padding. */
struct graph_window {
    int64_t kernel, stride, pad; /* stride 0 means 1 */
};
int graph_add_conv(graph_builder *b, const char *name, int input, int64_t out_channels,
                   struct graph_window window, int64_t groups, bool bias);
int graph_add_linear(graph_builder *b, const char *name, int input, int64_t out_features);
int graph_add_batch_norm(graph_builder *b, const char *name, int input, double epsilon);
int graph_add_max_pool(graph_builder *b, const char *name, int input, struct graph_window window,
                       bool ceil_mode);
int graph_add_average_pool(graph_builder *b, const char *name, int input,
                           struct graph_window window);
int graph_add_adaptive_pool(graph_builder *b, const char *name, int input, int64_t out_size);
int graph_add_concat(graph_builder *b, const char *name, int n_inputs, const int *inputs);
int graph_add_simple(graph_builder *b, const char *name, enum op_kind op, int input);
int graph_add_dropout(graph_builder *b, const char *name, int input, double probability);
int graph_add_sum(graph_builder *b, const char *name, int left, int right);

#endif
