#include "model/graph.h"

#include "base/array.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCOPE_BYTES = 256, SCOPE_DEPTH = 8 };

/* Counts of elements stay far enough below the largest integer for bytes to be counted, too. */
static const int64_t max_elements = INT64_MAX / 64;

struct graph_builder {
    struct graph *graph;
    struct graph_variant variant;
    enum status status; /* of the first failure; its message is the thread's recorded error */
    int node_capacity, param_capacity;
    char scope[SCOPE_BYTES]; /* "layer1.0." */
    int scope_end[SCOPE_DEPTH];
    int scope_depth;
};

void graph_destroy(struct graph *g)
{
    if (g)
        arena_destroy(g->memory); /* the graph itself lies in it */
}

int64_t graph_sample_elements(const struct graph *g)
{
    const struct op_case *input = &g->nodes[0].op;
    return shape_elements(&input->output) / op_extent(input, USE_BATCH);
}

int64_t graph_count_parameters(const struct graph *g)
{
    int64_t count = 0;
    for (int i = 0; i < g->n_params; i++)
        if (g->params[i].spec.trained)
            count += shape_elements(&g->params[i].spec.shape);
    return count;
}

int64_t graph_node_parameters(const struct graph *g, const struct graph_node *node)
{
    int64_t count = 0;
    for (int i = 0; i < node->n_params; i++) {
        const struct op_param *p = &g->params[node->first_param + i].spec;
        count += p->trained ? shape_elements(&p->shape) : 0;
    }
    return count;
}

/* ---- building: nodes and parameters ---- */

static void builder_destroy(graph_builder *b)
{
    if (b)
        graph_destroy(b->graph);
    free(b);
}

static enum status check_elements(const char *what, const struct shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        if (__builtin_mul_overflow(n, s->dim[i], &n) || n > max_elements) {
            char text[128];
            return status_fail(STATUS_USAGE,
                               "the %s would be %s, which is more than can be counted", what,
                               shape_text(text, sizeof text, s));
        }
    return STATUS_OK;
}

/* Appends a node whose name, op and inputs are filled in, and the parameters of its op. */
static enum status append_node(graph_builder *b, const struct graph_node *filled)
{
    struct graph *g = b->graph;
    TRY(array_reserve(g->memory, &g->nodes, g->n_nodes + 1, &b->node_capacity, sizeof *g->nodes));
    struct graph_node *node = &g->nodes[g->n_nodes];
    *node = *filled;
    node->first_param = g->n_params;

    struct op_param specs[OP_MAX_PARAMS];
    node->n_params = op_get_params(&node->op, specs);
    for (int i = 0; i < node->n_params; i++) {
        TRY(check_elements(specs[i].name, &specs[i].shape));
        TRY(array_reserve(g->memory, &g->params, g->n_params + 1, &b->param_capacity,
                          sizeof *g->params));
        struct graph_param *param = &g->params[g->n_params++];
        *param = (struct graph_param){.node = g->n_nodes, .spec = specs[i]};
        TRY(arena_print(g->memory, &param->name, "%s.%s", node->name, specs[i].name));
    }
    g->n_nodes++;
    return STATUS_OK;
}

/* Every input has the axes that the op's loops give it. */
static enum status check_axes(const struct graph *g, const struct graph_node *node)
{
    struct loop_nest nest;
    op_get_loops(&node->op, &nest);
    for (int k = 0; k < node->op.n_inputs; k++) {
        const struct axes needs = tensor_map_axes(&nest.input[k]);
        const struct axes *has = &g->nodes[node->input[k]].op.output_axes;
        char text[AXES_TEXT_BYTES], other[AXES_TEXT_BYTES];
        if (!axes_equal(&needs, has))
            return status_fail(STATUS_USAGE, "%s needs the axes %s for input %d, which has %s",
                               op_get_info(node->op.op)->name, axes_text(text, sizeof text, &needs),
                               k, axes_text(other, sizeof other, has));
    }
    return STATUS_OK;
}

static enum status try_add(graph_builder *b, const char *name, enum op_kind op,
                           const struct op_attrs *attrs, int n_inputs, const int *inputs)
{
    const struct op_info *info = op_get_info(op);
    if (n_inputs < info->min_inputs || n_inputs > info->max_inputs || n_inputs > OP_MAX_INPUTS)
        return status_fail(STATUS_USAGE, "%s: reads %d to %d layers, not %d", info->name,
                           info->min_inputs, info->max_inputs, n_inputs);
    struct graph_node node = {.name = name, .op = {.op = op, .n_inputs = n_inputs}};
    if (attrs)
        node.op.attrs = *attrs;
    if (op == OP_DROPOUT && b->variant.drop_probability >= 0)
        node.op.attrs.drop_probability = b->variant.drop_probability;
    for (int i = 0; i < n_inputs; i++) {
        if (inputs[i] < 0 || inputs[i] >= b->graph->n_nodes)
            return status_fail(STATUS_USAGE, "%s: reads layer number %d, which is not there",
                               info->name, inputs[i]);
        node.input[i] = inputs[i];
        node.op.input[i] = b->graph->nodes[inputs[i]].op.output;
    }
    node.op.axes = b->graph->nodes[inputs[0]].op.output_axes;
    TRY(op_infer_shape(&node.op));
    TRY(check_axes(b->graph, &node));
    TRY(check_elements("output", &node.op.output));
    return append_node(b, &node);
}

/* Puts the network's and the layer's name, and the size of the images that led there, around the
 * recorded error. */
static void fail_at(graph_builder *b, enum status status, const char *layer)
{
    struct status_error why;
    status_take(status, &why);
    struct shape image = {.rank = 3,
                          .dim = {b->variant.channels, b->variant.height, b->variant.width}};
    char text[128];
    b->status = status_fail(
        why.status, "%s layer '%s': %s; the images are %s: take others, or another network",
        b->graph->name, layer, why.message, shape_text(text, sizeof text, &image));
}

int graph_add(graph_builder *b, const char *name, enum op_kind op, const struct op_attrs *attrs,
              int n_inputs, const int *inputs)
{
    if (b->status != STATUS_OK)
        return -1;
    const char *full_name = name;
    enum status st = arena_print(b->graph->memory, &full_name, "%s%s", b->scope, name);
    if (st == STATUS_OK)
        st = try_add(b, full_name, op, attrs, n_inputs, inputs);
    if (st == STATUS_OK)
        return b->graph->n_nodes - 1;
    fail_at(b, st, full_name);
    return -1;
}

/* ---- building: begin, look, end ---- */

static enum status check_variant(const char *name, const struct graph_variant *v)
{
    if (v->batch < 1 || v->channels < 1 || v->height < 1 || v->width < 1 || v->classes < 1)
        return status_fail(STATUS_USAGE,
                           "%s: batch %lld, images %lldx%lldx%lld, %lld classes: each of these "
                           "must be at least 1",
                           name, (long long)v->batch, (long long)v->channels, (long long)v->height,
                           (long long)v->width, (long long)v->classes);
    return STATUS_OK;
}

static enum status create_graph(const char *name, int64_t batch, int64_t classes,
                                struct graph **out)
{
    arena *memory;
    TRY(arena_create(&memory));
    struct graph *g = NULL;
    enum status st;
    TRY_GOTO(st, arena_alloc(memory, sizeof *g, &g), failed);
    TRY_GOTO(st, arena_copy_text(memory, name, &g->name), failed);
    g->memory = memory;
    g->batch = batch;
    g->classes = classes;
    *out = g;
    return STATUS_OK;
failed:
    arena_destroy(memory);
    return st;
}

enum status graph_builder_create(const char *name, const struct graph_variant *variant,
                                 graph_builder **out)
{
    TRY(check_variant(name, variant));
    struct graph_node input = {.name = "input", .op = {.op = OP_INPUT, .axes = axes_of_images(4)}};
    input.op.output = SHAPE4(variant->batch, variant->channels, variant->height, variant->width);
    TRY(op_infer_shape(&input.op));
    TRY(check_elements("input", &input.op.output));
    graph_builder *b = calloc(1, sizeof *b);
    if (!b)
        return status_no_memory(sizeof *b);
    b->variant = *variant;
    enum status st;
    TRY_GOTO(st, create_graph(name, variant->batch, variant->classes, &b->graph), failed);
    TRY_GOTO(st, append_node(b, &input), failed);
    *out = b;
    return STATUS_OK;
failed:
    builder_destroy(b);
    return st;
}

void graph_enter(graph_builder *b, const char *format, ...)
{
    if (b->status != STATUS_OK)
        return;
    size_t used = strlen(b->scope), room = sizeof b->scope - used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(b->scope + used, room, format, args);
    va_end(args);
    if (b->scope_depth == SCOPE_DEPTH || n < 0 || (size_t)n + 2 > room) {
        enum status st = status_fail(STATUS_USAGE, "layers are nested too deeply");
        fail_at(b, st, b->scope);
        return;
    }
    b->scope_end[b->scope_depth++] = (int)used;
    (void)snprintf(b->scope + used + n, room - (size_t)n, ".");
}

void graph_leave(graph_builder *b)
{
    if (b->status == STATUS_OK && b->scope_depth > 0)
        b->scope[b->scope_end[--b->scope_depth]] = '\0';
}

struct shape graph_shape(const graph_builder *b, int node)
{
    if (b->status != STATUS_OK || node < 0 || node >= b->graph->n_nodes)
        return (struct shape){0};
    return b->graph->nodes[node].op.output;
}

int64_t graph_extent(const graph_builder *b, int node, enum loop_use use)
{
    if (b->status != STATUS_OK || node < 0 || node >= b->graph->n_nodes)
        return 0;
    return op_extent(&b->graph->nodes[node].op, use);
}

const struct graph_variant *graph_builder_variant(const graph_builder *b)
{
    return &b->variant;
}

static void add_loss(graph_builder *b, int logits)
{
    struct shape expected = SHAPE2(b->variant.batch, b->variant.classes);
    struct shape found = graph_shape(b, logits);
    if (b->status == STATUS_OK && !shape_equal(&found, &expected)) {
        char have[128], want[128];
        enum status st = status_fail(
            STATUS_USAGE, "needs %s, one number per image and class, not %s",
            shape_text(want, sizeof want, &expected), shape_text(have, sizeof have, &found));
        fail_at(b, st, "loss");
    }
    (void)graph_add(b, "loss", OP_SOFTMAX_CROSS_ENTROPY, NULL, 1, &logits);
}

enum status graph_builder_finish(graph_builder *b, int logits, struct graph **out)
{
    b->scope[0] = '\0';
    add_loss(b, logits);
    enum status st = b->status;
#ifndef NDEBUG
    if (st == STATUS_OK)
        st = graph_check(b->graph);
#endif
    if (st == STATUS_OK) {
        *out = b->graph;
        b->graph = NULL;
    }
    builder_destroy(b);
    return st;
}

/* ---- another batch size ---- */

static enum status append_resized(graph_builder *b, const struct graph_node *node)
{
    struct graph_node copy = *node;
    copy.op = op_resize(&node->op, USE_BATCH, b->graph->batch);
    TRY(arena_copy_text(b->graph->memory, node->name, &copy.name));
    TRY(check_elements(node->name, &copy.op.output));
    return append_node(b, &copy);
}

enum status graph_resize(const struct graph *g, int64_t batch, struct graph **out)
{
    graph_builder b = {.status = STATUS_OK};
    if (batch < 1)
        return status_fail(STATUS_USAGE, "%s: batch %lld must be at least 1", g->name,
                           (long long)batch);
    TRY(create_graph(g->name, batch, g->classes, &b.graph));
    for (int i = 0; i < g->n_nodes; i++) {
        enum status st = append_resized(&b, &g->nodes[i]);
        if (st != STATUS_OK) {
            graph_destroy(b.graph);
            return st;
        }
    }
    for (int i = 0; i < g->n_params; i++) {
        b.graph->params[i].group = g->params[i].group;
        b.graph->params[i].spec = g->params[i].spec; /* of another initialisation than the op's */
    }
    *out = b.graph;
    return STATUS_OK;
}

/* ---- shorthands ---- */

static void set_window(struct op_attrs *attrs, struct graph_window window)
{
    for (int i = 0; i < 2; i++) {
        attrs->kernel[i] = window.kernel;
        attrs->stride[i] = window.stride ? window.stride : 1;
        attrs->dilation[i] = 1;
        attrs->pad_before[i] = attrs->pad_after[i] = window.pad;
    }
}

int graph_add_conv(graph_builder *b, const char *name, int input, int64_t out_channels,
                   struct graph_window window, int64_t groups, bool bias)
{
    struct op_attrs attrs = {.out_channels = out_channels, .groups = groups, .bias = bias};
    set_window(&attrs, window);
    return graph_add(b, name, OP_CONV2D, &attrs, 1, &input);
}

int graph_add_linear(graph_builder *b, const char *name, int input, int64_t out_features)
{
    struct op_attrs attrs = {.out_channels = out_features, .bias = true};
    return graph_add(b, name, OP_LINEAR, &attrs, 1, &input);
}

int graph_add_batch_norm(graph_builder *b, const char *name, int input, double epsilon)
{
    struct op_attrs attrs = {.epsilon = epsilon, .momentum = 0.1};
    return graph_add(b, name, OP_BATCH_NORM, &attrs, 1, &input);
}

/* PyTorch's ceil_mode as padding behind: the windows cover the input to its end, as long as the
 * last one starts inside the input or the padding before it.
 *
 *     extent 6, kernel 3, stride 2:   0 1 2 3 4 5 .     windows at 0, 2, 4; pad behind 1
 */
static int64_t pad_after_for_ceil(int64_t extent, int64_t kernel, int64_t stride, int64_t pad)
{
    int64_t beyond_first = extent + 2 * pad - kernel;
    if (beyond_first <= -stride)
        return pad; /* not even one window starts: left to the shape rule to refuse */
    int64_t steps = beyond_first > 0 ? (beyond_first + stride - 1) / stride : 0;
    if (steps * stride >= extent + pad)
        steps--;
    int64_t needed = steps * stride + kernel - extent - pad;
    return needed > pad ? needed : pad;
}

int graph_add_max_pool(graph_builder *b, const char *name, int input, struct graph_window window,
                       bool ceil_mode)
{
    struct op_attrs attrs = {0};
    set_window(&attrs, window);
    const int64_t in[2] = {graph_extent(b, input, USE_ROW), graph_extent(b, input, USE_COLUMN)};
    for (int i = 0; ceil_mode && i < 2; i++)
        attrs.pad_after[i] = pad_after_for_ceil(in[i], window.kernel, attrs.stride[i], window.pad);
    return graph_add(b, name, OP_MAX_POOL, &attrs, 1, &input);
}

int graph_add_average_pool(graph_builder *b, const char *name, int input,
                           struct graph_window window)
{
    struct op_attrs attrs = {.count_padding = true};
    set_window(&attrs, window);
    return graph_add(b, name, OP_AVERAGE_POOL, &attrs, 1, &input);
}

int graph_add_adaptive_pool(graph_builder *b, const char *name, int input, int64_t out_size)
{
    struct op_attrs attrs = {.out_size = {out_size, out_size}};
    return graph_add(b, name, OP_ADAPTIVE_POOL, &attrs, 1, &input);
}

int graph_add_concat(graph_builder *b, const char *name, int n_inputs, const int *inputs)
{
    return graph_add(b, name, OP_CONCAT, NULL, n_inputs, inputs);
}

int graph_add_simple(graph_builder *b, const char *name, enum op_kind op, int input)
{
    return graph_add(b, name, op, NULL, 1, &input);
}

int graph_add_dropout(graph_builder *b, const char *name, int input, double probability)
{
    struct op_attrs attrs = {.drop_probability = probability};
    return graph_add(b, name, OP_DROPOUT, &attrs, 1, &input);
}

int graph_add_sum(graph_builder *b, const char *name, int left, int right)
{
    return graph_add(b, name, OP_ADD, NULL, 2, (const int[]){left, right});
}

/* ---- checking ---- */

static enum status fail_check(const struct graph *g, int node, const char *what)
{
    return status_fail(STATUS_FAILED, "graph %s, node %d '%s': %s", g->name, node,
                       g->nodes[node].name, what);
}

static enum status check_shapes(const struct graph *g, int i)
{
    const struct graph_node *node = &g->nodes[i];
    for (int k = 0; k < node->op.n_inputs; k++) {
        if (node->input[k] < 0 || node->input[k] >= i)
            return fail_check(g, i, "an input is not computed before it");
        if (!shape_equal(&node->op.input[k], &g->nodes[node->input[k]].op.output))
            return fail_check(g, i, "an input's shape is not its producer's");
    }
    const struct op_attr *foreign = op_attr_find_foreign(node->op.op, &node->op.attrs);
    if (foreign)
        return status_fail(STATUS_FAILED, "graph %s, node %d '%s': %s has no %s", g->name, i,
                           node->name, op_get_info(node->op.op)->name, foreign->name);
    struct op_case again = node->op;
    enum status st = op_infer_shape(&again);
    if (st == STATUS_OK)
        st = check_axes(g, node);
    if (st != STATUS_OK) {
        struct status_error why;
        status_take(st, &why);
        return fail_check(g, i, why.message);
    }
    if (!shape_equal(&again.output, &node->op.output) ||
        !axes_equal(&again.output_axes, &node->op.output_axes))
        return fail_check(g, i, "its output's shape is not what its op gives");
    int batch = axes_find(&node->op.output_axes, USE_BATCH);
    if (batch < 0 || node->op.output.dim[batch] != g->batch)
        return fail_check(g, i, "its output is not of the batch");
    return STATUS_OK;
}

static bool is_param_of(const struct graph_param *param, const struct graph_node *node,
                        const struct op_param *spec)
{
    size_t n = strlen(node->name);
    return strncmp(param->name, node->name, n) == 0 && param->name[n] == '.' &&
           strcmp(param->name + n + 1, spec->name) == 0 &&
           strcmp(param->spec.name, spec->name) == 0 && param->spec.trained == spec->trained &&
           shape_equal(&param->spec.shape, &spec->shape);
}

/* Parameters stand in the order of their nodes: `next` is where the node's must begin. */
static enum status check_params(const struct graph *g, int i, int *next)
{
    const struct graph_node *node = &g->nodes[i];
    struct op_param specs[OP_MAX_PARAMS];
    int n_params = op_get_params(&node->op, specs);
    if (node->n_params != n_params || node->first_param != *next ||
        node->first_param + n_params > g->n_params)
        return fail_check(g, i, "its range of parameters is wrong");
    for (int k = 0; k < n_params; k++) {
        const struct graph_param *param = &g->params[node->first_param + k];
        if (param->node != i || !is_param_of(param, node, &specs[k]))
            return fail_check(g, i, "a parameter is not what its op says");
    }
    *next += n_params;
    return STATUS_OK;
}

/* Names of different nodes differ; with them the names of parameters, "NODE.weight", do too. */
static enum status check_name(const struct graph *g, int i)
{
    for (int k = 0; k < i; k++)
        if (strcmp(g->nodes[k].name, g->nodes[i].name) == 0)
            return fail_check(g, i, "an earlier node has the same name");
    return STATUS_OK;
}

static enum status check_role(const struct graph *g, int i)
{
    const struct graph_node *node = &g->nodes[i];
    bool is_last = i == g->n_nodes - 1;
    bool is_loss = (op_get_info(node->op.op)->flags & OP_IS_LOSS) != 0;
    if ((i == 0) != (node->op.op == OP_INPUT))
        return fail_check(g, i, "the first node, and only that, is the input");
    if (i == 0 && axes_find(&node->op.output_axes, USE_BATCH) != 0)
        return fail_check(g, i, "its samples do not lie one behind the other");
    if (is_last != is_loss)
        return fail_check(g, i, "the last node, and only that, is the loss");
    bool is_read = false;
    for (int k = i + 1; k < g->n_nodes; k++)
        for (int n = 0; n < g->nodes[k].op.n_inputs; n++)
            is_read |= g->nodes[k].input[n] == i;
    if (!is_last && !is_read)
        return fail_check(g, i, "no other node reads it");
    return STATUS_OK;
}

enum status graph_check(const struct graph *g)
{
    if (g->n_nodes < 2)
        return status_fail(STATUS_FAILED, "graph %s has no layers", g->name);
    int next_param = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        TRY(check_role(g, i));
        TRY(check_name(g, i));
        TRY(check_shapes(g, i));
        TRY(check_params(g, i, &next_param));
    }
    if (next_param != g->n_params)
        return status_fail(STATUS_FAILED, "graph %s has parameters that no node uses", g->name);
    const struct op_case *loss = &g->nodes[g->n_nodes - 1].op;
    int classes = axes_find(&loss->axes, USE_CHANNEL);
    if (classes < 0 || loss->input[0].dim[classes] != g->classes)
        return fail_check(g, g->n_nodes - 1, "the loss does not read one number per class");
    return STATUS_OK;
}
