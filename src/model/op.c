#include "model/op.h"

#include "model/op_rules.h"

#include <assert.h>
#include <stdio.h>

#define ONE_INPUT .min_inputs = 1, .max_inputs = 1

static const struct op_info table[] = {
    [OP_INPUT] = {.name = "input",
                  .infer = op_infer_same,
                  .loops = op_loops_elementwise,
                  .flops = op_flops_none},
    [OP_CONV2D] = {.name = "conv2d",
                   ONE_INPUT,
                   .flags = OP_GRADIENT_READS_INPUT | OP_SPLIT_GRADIENT | OP_TAKES_ACTIVATION,
                   .infer = op_infer_conv2d,
                   .params = op_params_conv2d,
                   .loops = op_loops_conv2d,
                   .piece = op_piece_conv2d,
                   .flops = op_flops_product},
    [OP_LINEAR] = {.name = "linear",
                   ONE_INPUT,
                   .flags = OP_GRADIENT_READS_INPUT | OP_SPLIT_GRADIENT | OP_TAKES_ACTIVATION,
                   .infer = op_infer_linear,
                   .params = op_params_linear,
                   .loops = op_loops_linear,
                   .piece = op_piece_linear,
                   .flops = op_flops_product},
    [OP_MAX_POOL] = {.name = "max_pool",
                     ONE_INPUT,
                     .flags = OP_GRADIENT_READS_INPUT,
                     .infer = op_infer_pool,
                     .loops = op_loops_pool,
                     .piece = op_piece_pool,
                     .flops = op_flops_window},
    [OP_AVERAGE_POOL] = {.name = "average_pool",
                         ONE_INPUT,
                         .infer = op_infer_pool,
                         .loops = op_loops_pool,
                         .piece = op_piece_pool,
                         .flops = op_flops_window},
    [OP_GLOBAL_POOL] = {.name = "global_pool",
                        ONE_INPUT,
                        .infer = op_infer_global_pool,
                        .loops = op_loops_global_pool,
                        .piece = op_piece_global_pool,
                        .flops = op_flops_window},
    [OP_ADAPTIVE_POOL] = {.name = "adaptive_pool",
                          ONE_INPUT,
                          .infer = op_infer_adaptive_pool,
                          .loops = op_loops_adaptive_pool,
                          .piece = op_piece_adaptive_pool,
                          .flops = op_flops_window},
    [OP_BATCH_NORM] = {.name = "batch_norm",
                       ONE_INPUT,
                       .flags = OP_GRADIENT_READS_INPUT | OP_TAKES_ACTIVATION | OP_TAKES_RESIDUAL |
                                OP_FOLDS_GRADIENTS,
                       .infer = op_infer_batch_norm,
                       .params = op_params_batch_norm,
                       .loops = op_loops_batch_norm,
                       .flops = op_flops_batch_norm},
    [OP_LOCAL_RESPONSE_NORM] = {.name = "local_response_norm",
                                ONE_INPUT,
                                .flags = OP_GRADIENT_READS_INPUT,
                                .infer = op_infer_local_response_norm,
                                .loops = op_loops_local_response_norm,
                                .flops = op_flops_local_response_norm},
    [OP_RELU] = {.name = "relu",
                 ONE_INPUT,
                 .flags = OP_GRADIENT_READS_OUTPUT,
                 .activation = ACTIVATION_RELU,
                 .infer = op_infer_same,
                 .loops = op_loops_elementwise,
                 .flops = op_flops_elementwise},
    [OP_RELU6] = {.name = "relu6",
                  ONE_INPUT,
                  .flags = OP_GRADIENT_READS_OUTPUT,
                  .activation = ACTIVATION_RELU6,
                  .infer = op_infer_same,
                  .loops = op_loops_elementwise,
                  .flops = op_flops_elementwise},
    [OP_LOGISTIC] = {.name = "logistic",
                     ONE_INPUT,
                     .flags = OP_GRADIENT_READS_OUTPUT,
                     .activation = ACTIVATION_LOGISTIC,
                     .infer = op_infer_same,
                     .loops = op_loops_elementwise,
                     .flops = op_flops_elementwise},
    [OP_TANH] = {.name = "tanh",
                 ONE_INPUT,
                 .flags = OP_GRADIENT_READS_OUTPUT,
                 .activation = ACTIVATION_TANH,
                 .infer = op_infer_same,
                 .loops = op_loops_elementwise,
                 .flops = op_flops_elementwise},
    [OP_DROPOUT] = {.name = "dropout",
                    ONE_INPUT,
                    .flags = OP_IDENTITY_IN_EVALUATION,
                    .infer = op_infer_dropout,
                    .loops = op_loops_elementwise,
                    .flops = op_flops_elementwise},
    [OP_ADD] = {.name = "add",
                .min_inputs = 2,
                .max_inputs = OP_MAX_INPUTS,
                .flags = OP_TAKES_ACTIVATION | OP_PASSES_GRADIENT,
                .infer = op_infer_add,
                .loops = op_loops_elementwise,
                .flops = op_flops_elementwise},
    [OP_CONCAT] = {.name = "concat",
                   .min_inputs = 1,
                   .max_inputs = OP_MAX_INPUTS,
                   .infer = op_infer_concat,
                   .loops = op_loops_concat,
                   .flops = op_flops_none},
    [OP_FLATTEN] = {.name = "flatten",
                    ONE_INPUT,
                    .infer = op_infer_flatten,
                    .loops = op_loops_flatten,
                    .flops = op_flops_none},
    [OP_SOFTMAX_CROSS_ENTROPY] = {.name = "softmax_cross_entropy",
                                  ONE_INPUT,
                                  .flags = OP_GRADIENT_READS_INPUT | OP_IS_LOSS,
                                  .infer = op_infer_softmax_cross_entropy,
                                  .loops = op_loops_softmax_cross_entropy,
                                  .flops = op_flops_softmax_cross_entropy},
};
static_assert(sizeof table / sizeof table[0] == OP_KIND_COUNT, "one row per op");

const struct op_info *op_get_info(enum op_kind op)
{
    assert((unsigned)op < OP_KIND_COUNT);
    return &table[op];
}

/* ---- axes ---- */

const char *const loop_use_names[LOOP_USE_COUNT + 1] = {[USE_BATCH] = "batch",
                                                        [USE_TOKEN] = "token",
                                                        [USE_CHANNEL] = "channel",
                                                        [USE_HEAD] = "head",
                                                        [USE_ROW] = "row",
                                                        [USE_COLUMN] = "column",
                                                        [USE_VOCABULARY] = "vocabulary",
                                                        [USE_EXPERT] = "expert",
                                                        [USE_WINDOW] = "window"};

struct axes axes_of_images(int rank)
{
    return (struct axes){rank, {USE_BATCH, USE_CHANNEL, USE_ROW, USE_COLUMN}};
}

bool axes_equal(const struct axes *a, const struct axes *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->use[i] != b->use[i])
            return false;
    return true;
}

int axes_find(const struct axes *axes, enum loop_use use)
{
    for (int i = 0; i < axes->rank; i++)
        if (axes->use[i] == use)
            return i;
    return -1;
}

const char *axes_text(char *buffer, size_t size, const struct axes *axes)
{
    size_t used = (size_t)snprintf(buffer, size, "[");
    for (int i = 0; i < axes->rank && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", i ? ", " : "",
                                 loop_use_names[axes->use[i]]);
    if (used < size)
        (void)snprintf(buffer + used, size - used, "]");
    return buffer;
}

/* ---- shapes ---- */

/* Loops are named by what they go over (op_loops.c), and the batch is one. */
static enum status check_axes(const struct op_case *c, const struct shape *of)
{
    const char *name = op_get_info(c->op)->name;
    int n[LOOP_USE_COUNT] = {0};
    if (c->axes.rank != of->rank)
        return status_fail(STATUS_USAGE, "%s: its tensor has %d axes, but the uses of %d are given",
                           name, of->rank, c->axes.rank);
    for (int i = 0; i < c->axes.rank; i++) {
        enum loop_use use = c->axes.use[i];
        if ((unsigned)use >= USE_WINDOW || ++n[use] > (use == USE_BATCH ? 1 : 2)) {
            char text[AXES_TEXT_BYTES];
            return status_fail(STATUS_USAGE, "%s: a tensor cannot have the axes %s", name,
                               axes_text(text, sizeof text, &c->axes));
        }
    }
    return STATUS_OK;
}

enum status op_infer_shape(struct op_case *c)
{
    const struct op_info *info = op_get_info(c->op);
    if (c->op == OP_INPUT) { /* its shape is given, not inferred */
        c->output_axes = c->axes;
        return check_axes(c, &c->output);
    }
    if (c->n_inputs < info->min_inputs || c->n_inputs > info->max_inputs)
        return status_fail(STATUS_USAGE, "%s takes %d to %d inputs, not %d", info->name,
                           info->min_inputs, info->max_inputs, c->n_inputs);
    TRY(info->infer(c));
    TRY(check_axes(c, &c->input[0]));
    struct loop_nest nest;
    op_get_loops(c, &nest);
    c->output_axes = tensor_map_axes(&nest.output);
    return STATUS_OK;
}

int64_t op_extent(const struct op_case *op, enum loop_use use)
{
    int axis = axes_find(&op->output_axes, use);
    return axis < 0 ? 1 : op->output.dim[axis];
}

static void resize_axis(const struct tensor_map *map, enum loop_use use, int64_t n, struct shape *s)
{
    for (int i = 0; i < map->rank; i++)
        if (map->axis[i].use == use)
            s->dim[i] = n;
}

struct op_case op_resize(const struct op_case *op, enum loop_use use, int64_t n)
{
    struct op_case c = *op;
    struct loop_nest nest;
    op_get_loops(op, &nest);
    for (int i = 0; i < c.n_inputs; i++)
        resize_axis(&nest.input[i], use, n, &c.input[i]);
    resize_axis(&nest.output, use, n, &c.output);
    return c;
}

int op_get_params(const struct op_case *c, struct op_param params[OP_MAX_PARAMS])
{
    const struct op_info *info = op_get_info(c->op);
    return info->params ? info->params(c, params) : 0;
}

/* An axis is what its first term's loop goes over. */
static void set_uses(const struct loop_nest *nest, struct tensor_map *map)
{
    for (int i = 0; i < map->rank; i++)
        map->axis[i].use = nest->loop[map->axis[i].term[0].loop].use;
}

void op_get_loops(const struct op_case *c, struct loop_nest *nest)
{
    *nest = (struct loop_nest){.n_inputs = c->n_inputs};
    op_get_info(c->op)->loops(c, nest);
    set_uses(nest, &nest->output);
    for (int i = 0; i < nest->n_inputs; i++)
        set_uses(nest, &nest->input[i]);
    for (int i = 0; i < nest->n_params; i++)
        set_uses(nest, &nest->param[i]);
}
