/* Linear layers: oneDNN's inner product over row-major matrices. */
#include "backend/cpu/product.h"

static dnnl_status_t describe_forward(const struct op_case *op, const struct product_tensors *t,
                                      union product_desc *desc)
{
    (void)op;
    return dnnl_inner_product_forward_desc_init(&desc->inner_product, dnnl_forward_training,
                                                &t->source, &t->weights,
                                                t->has_bias ? &t->bias : NULL, &t->target);
}

static dnnl_status_t describe_data(const struct op_case *op, const struct product_tensors *t,
                                   union product_desc *desc)
{
    (void)op;
    return dnnl_inner_product_backward_data_desc_init(&desc->inner_product, &t->source, &t->weights,
                                                      &t->target);
}

static dnnl_status_t describe_weights(const struct op_case *op, const struct product_tensors *t,
                                      union product_desc *desc)
{
    (void)op;
    return dnnl_inner_product_backward_weights_desc_init(
        &desc->inner_product, &t->source, &t->weights, t->has_bias ? &t->bias : NULL, &t->target);
}

product_describe *const linear_describe[PASS_COUNT] = {
    [PASS_FORWARD] = describe_forward,
    [PASS_BACKWARD_DATA] = describe_data,
    [PASS_BACKWARD_WEIGHTS] = describe_weights,
};

static enum status create(group *base)
{
    struct product_group *g = (struct product_group *)base;
    const struct op_case *op = &base->spec.op;
    struct op_param params[OP_MAX_PARAMS];
    (void)op_get_params(op, params);
    const layout *weights, *bias;
    struct shape bias_shape = SHAPE1(op->attrs.out_channels);
    TRY(layout_get_plain(base->device, &op->output, &base->layouts.output));
    TRY(layout_get_plain(base->device, &params[0].shape, &weights));
    TRY(layout_get_plain(base->device, &bias_shape, &bias));
    struct product_tensors t = {.source = base->layouts.input[0]->desc,
                                .weights = weights->desc,
                                .bias = bias->desc,
                                .target = base->layouts.output->desc,
                                .has_bias = op->attrs.bias};
    if (!base->layouts.param[0])
        base->layouts.param[0] = weights;
    if (op->attrs.bias && !base->layouts.param[1])
        base->layouts.param[1] = bias;
    bool found;
    TRY(product_create(g, &t, linear_describe, true, &found));
    if (!found)
        return status_fail(STATUS_FAILED, "oneDNN has no inner product for this shape");
    return STATUS_OK;
}

const struct op_kernels cpu_linear = {
    .group_bytes = sizeof(struct product_group),
    .create = create,
    .destroy = product_destroy,
    .run = {[PASS_FORWARD] = product_forward,
            [PASS_BACKWARD_DATA] = product_backward_data,
            [PASS_BACKWARD_WEIGHTS] = product_backward_weights},
};
