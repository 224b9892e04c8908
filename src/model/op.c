#include "model/op.h"

#include "model/op_rules.h"

#include <assert.h>

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

enum status op_infer_shape(struct op_case *c)
{
    const struct op_info *info = op_get_info(c->op);
    if (c->op == OP_INPUT) /* its shape is given, not inferred */
        return STATUS_OK;
    if (c->n_inputs < info->min_inputs || c->n_inputs > info->max_inputs)
        return status_fail(STATUS_USAGE, "%s takes %d to %d inputs, not %d", info->name,
                           info->min_inputs, info->max_inputs, c->n_inputs);
    return info->infer(c);
}

struct op_case op_resize(const struct op_case *op, int64_t samples)
{
    struct op_case c = *op;
    for (int i = 0; i < c.n_inputs; i++)
        c.input[i].dim[0] = samples;
    c.output.dim[0] = samples;
    return c;
}

int op_get_params(const struct op_case *c, struct op_param params[OP_MAX_PARAMS])
{
    const struct op_info *info = op_get_info(c->op);
    return info->params ? info->params(c, params) : 0;
}

void op_get_loops(const struct op_case *c, struct loop_nest *nest)
{
    *nest = (struct loop_nest){.n_inputs = c->n_inputs};
    op_get_info(c->op)->loops(c, nest);
}
