/* Convolution. Two ways, the first that oneDNN has a fast kernel for:
 *   blocked  activations blocked, channels rounded up; images of 1 or 3 channels are read plain
 *   plain    row-major inside, converted at both ends: windows and groups that the blocked kernels
 *            do not take */
#include "backend/cpu/product.h"

static dnnl_status_t describe_forward(const struct op_case *op, const struct product_tensors *t,
                                      union product_desc *desc)
{
    struct cpu_window w = cpu_window(&op->attrs);
    return dnnl_dilated_convolution_forward_desc_init(
        &desc->convolution, dnnl_forward_training, dnnl_convolution_direct, &t->source, &t->weights,
        t->has_bias ? &t->bias : NULL, &t->target, w.stride, w.dilates, w.before, w.after);
}

static dnnl_status_t describe_data(const struct op_case *op, const struct product_tensors *t,
                                   union product_desc *desc)
{
    struct cpu_window w = cpu_window(&op->attrs);
    return dnnl_dilated_convolution_backward_data_desc_init(
        &desc->convolution, dnnl_convolution_direct, &t->source, &t->weights, &t->target, w.stride,
        w.dilates, w.before, w.after);
}

static dnnl_status_t describe_weights(const struct op_case *op, const struct product_tensors *t,
                                      union product_desc *desc)
{
    struct cpu_window w = cpu_window(&op->attrs);
    return dnnl_dilated_convolution_backward_weights_desc_init(
        &desc->convolution, dnnl_convolution_direct, &t->source, &t->weights,
        t->has_bias ? &t->bias : NULL, &t->target, w.stride, w.dilates, w.before, w.after);
}

product_describe *const conv_describe[PASS_COUNT] = {
    [PASS_FORWARD] = describe_forward,
    [PASS_BACKWARD_DATA] = describe_data,
    [PASS_BACKWARD_WEIGHTS] = describe_weights,
};

/* oneDNN reads images of 1 or 3 channels as they come. */
static bool reads_image(const group *g)
{
    int64_t channels = g->spec.op.input[0].dim[1];
    return g->layouts.input[0]->kind == LAYOUT_PLAIN && g->spec.op.attrs.groups == 1 &&
           (channels == 1 || channels == 3);
}

/* Weights and bias over channels rounded up to `multiple`, in any format. */
static enum status describe_weights_tensors(const group *g, int64_t multiple,
                                            struct product_tensors *t)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    const struct shape *in = &g->spec.op.input[0];
    int64_t out = a->out_channels / a->groups, ins = in->dim[1] / a->groups, groups = a->groups;
    bool depthwise = groups > 1 && out == 1 && ins == 1;
    if (depthwise) {
        groups = round_up(groups, multiple);
    } else if (groups == 1) {
        out = round_up(out, multiple);
        if (!reads_image(g))
            ins = round_up(ins, multiple);
    }
    const dnnl_dims_t grouped = {groups, out, ins, a->kernel[0], a->kernel[1]};
    const dnnl_dims_t whole = {out, ins, a->kernel[0], a->kernel[1]};
    const dnnl_dims_t bias = {groups * out};
    bool has_groups = groups > 1;
    t->has_bias = a->bias;
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&t->bias, 1, bias, dnnl_f32, dnnl_a));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&t->weights, has_groups ? 5 : 4,
                                          has_groups ? grouped : whole, dnnl_f32,
                                          dnnl_format_tag_any));
    return STATUS_OK;
}

/* Blocked kernels need whole blocks per group, except depthwise. */
static bool groups_suit_blocks(const group *g)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    int64_t out = a->out_channels / a->groups, ins = g->spec.op.input[0].dim[1] / a->groups;
    int64_t lanes = g->device->loops->lanes;
    return a->groups == 1 || (out == 1 && ins == 1) || (out % lanes == 0 && ins % lanes == 0);
}

static enum status create_blocked(struct product_group *g, bool *found)
{
    group *b = &g->base;
    *found = false;
    if (!groups_suit_blocks(b) || (b->layouts.input[0]->kind == LAYOUT_PLAIN && !reads_image(b)))
        return STATUS_OK;
    struct product_tensors t;
    TRY(describe_weights_tensors(b, b->device->loops->lanes, &t));
    const layout *target;
    TRY(layout_get_blocked(b->device, &b->spec.op.output, &target));
    t.source = b->layouts.input[0]->desc;
    t.target = target->desc;
    TRY(product_create(g, &t, conv_describe, false, found));
    if (*found)
        b->layouts.output = target;
    return STATUS_OK;
}

static enum status create_plain(struct product_group *g)
{
    group *b = &g->base;
    const layout *source;
    struct product_tensors t;
    bool found;
    TRY(describe_weights_tensors(b, 1, &t));
    TRY(layout_get_plain(b->device, &b->spec.op.input[0], &source));
    TRY(layout_get_plain(b->device, &b->spec.op.output, &g->plain_target));
    TRY(layout_get_blocked(b->device, &b->spec.op.output, &b->layouts.output));
    if (b->layouts.input[0] != source)
        g->plain_source = source;
    t.source = source->desc;
    t.target = g->plain_target->desc;
    TRY(product_create(g, &t, conv_describe, true, &found));
    if (!found)
        return status_fail(STATUS_FAILED, "oneDNN has no convolution for this shape");
    return STATUS_OK;
}

static enum status create(group *base)
{
    struct product_group *g = (struct product_group *)base;
    bool found;
    TRY(create_blocked(g, &found));
    return found ? STATUS_OK : create_plain(g);
}

const struct op_kernels cpu_conv = {
    .group_bytes = sizeof(struct product_group),
    .create = create,
    .destroy = product_destroy,
    .run = {[PASS_FORWARD] = product_forward,
            [PASS_BACKWARD_DATA] = product_backward_data,
            [PASS_BACKWARD_WEIGHTS] = product_backward_weights},
};
