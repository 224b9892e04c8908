/* A convolution over an image with stride s is one with stride 1 over the image folded s x s: each
 * square of s x s pixels becomes one pixel of s s times the channels.
 *
 *     11x11, stride 4, 3 channels of 228x228  =  3x3, stride 1, 48 channels of 57x57
 *
 * The window grows to a multiple of s (here 12x12: 19 % more products, all zero), but oneDNN's
 * blocked kernels take the folded form, where for the original they have only im2col. The folded
 * image is kept for the backward pass in place of the image; the weights are kept plain and folded
 * in each step, which is little next to the image. */
#include "backend/cpu/image_conv.h"

#include "backend/cpu/product.h"

#include <stdlib.h>
#include <string.h>

struct image_conv {
    struct group base;
    struct product_group inner; /* the convolution over the folded image */
    int64_t *weight_place;      /* of each plain weight in the folded weights, in floats */
};

static struct image_conv *image_conv_of(group *g)
{
    return (struct image_conv *)g;
}

bool image_conv_suits(const group *g)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    bool dilated = a->dilation[0] > 1 || a->dilation[1] > 1;
    return g->layouts.input[0]->kind == LAYOUT_PLAIN && a->groups == 1 && !dilated &&
           a->stride[0] == a->stride[1] && a->stride[0] >= 3 && !g->spec.input_gradient &&
           g->spec.op.input[0].dim[1] <= 4;
}

static int64_t divide_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* The op over the folded image: its extent is the reach of the windows. */
static enum status fold_op(const struct op_case *op, struct op_case *folded)
{
    const struct op_attrs *a = &op->attrs;
    const struct shape *in = &op->input[0];
    int64_t s = a->stride[0];
    *folded = (struct op_case){.op = OP_CONV2D, .n_inputs = 1};
    folded->attrs =
        (struct op_attrs){.out_channels = a->out_channels,
                          .kernel = {divide_up(a->kernel[0], s), divide_up(a->kernel[1], s)},
                          .stride = {1, 1},
                          .dilation = {1, 1},
                          .groups = 1,
                          .bias = a->bias};
    folded->input[0] =
        SHAPE4(in->dim[0], in->dim[1] * s * s, op->output.dim[2] + folded->attrs.kernel[0] - 1,
               op->output.dim[3] + folded->attrs.kernel[1] - 1);
    return op_infer_shape(folded);
}

/* ---- weights ---- */

/* Runs through the plain weights [k, c, r, q] and notes where each lies in the folded ones. */
static enum status find_weight_places(struct image_conv *g)
{
    const struct op_attrs *a = &g->base.spec.op.attrs;
    int64_t channels = g->base.spec.op.input[0].dim[1], s = a->stride[0];
    const layout *folded = g->inner.base.layouts.param[0];
    int64_t n = a->out_channels * channels * a->kernel[0] * a->kernel[1];
    g->weight_place = malloc((size_t)n * sizeof *g->weight_place);
    if (!g->weight_place)
        return status_no_memory((size_t)n * sizeof *g->weight_place);
    int64_t *to = g->weight_place;
    for (int64_t k = 0; k < a->out_channels; k++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t r = 0; r < a->kernel[0]; r++)
                for (int64_t q = 0; q < a->kernel[1]; q++) {
                    int64_t channel = (c * s + r % s) * s + q % s;
                    const int64_t at[SHAPE_MAX_RANK] = {k, channel, r / s, q / s};
                    *to++ = layout_place(folded, at);
                }
    return STATUS_OK;
}

static int64_t plain_weights(const struct image_conv *g)
{
    return shape_elements(&g->base.layouts.param[0]->shape);
}

/* ---- the image ---- */

/* One pixel row of the folded image of one sample. */
static void fold_row(const group *g, const struct view *v, const float *image, int64_t y,
                     int64_t width, float *row)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    const struct shape *in = &g->spec.op.input[0];
    int64_t s = a->stride[0];
    for (int64_t x = 0; x < width; x++)
        for (int64_t c = 0; c < v->blocks * v->block; c++) {
            int64_t h = y * s + c / s % s - a->pad_before[0];
            int64_t w = x * s + c % s - a->pad_before[1];
            bool inside = c < v->channels && h >= 0 && h < in->dim[2] && w >= 0 && w < in->dim[3];
            row[c / v->block * v->block_stride + x * v->block + c % v->block] =
                inside ? image[(c / (s * s) * in->dim[2] + h) * in->dim[3] + w] : 0;
        }
}

static void fold_image(const struct image_conv *g, const float *image, float *folded)
{
    const struct shape *in = &g->base.spec.op.input[0];
    const struct shape *to = &g->inner.base.spec.op.input[0];
    struct view v;
    layout_view(g->base.device, g->inner.base.layouts.input[0], &v);
#pragma omp parallel for collapse(2) num_threads(g->base.device->threads) schedule(static)
    for (int64_t n = 0; n < v.n; n++)
        for (int64_t y = 0; y < to->dim[2]; y++)
            fold_row(&g->base, &v, image + n * in->dim[1] * in->dim[2] * in->dim[3], y, to->dim[3],
                     folded + n * v.n_stride + y * to->dim[3] * v.block);
}

/* ---- the kernels ---- */

static enum status create_inner(struct image_conv *g)
{
    group *inner = &g->inner.base;
    inner->device = g->base.device;
    inner->kernels = &cpu_conv;
    inner->spec = g->base.spec;
    TRY(fold_op(&g->base.spec.op, &inner->spec.op));
    TRY(layout_get_blocked(inner->device, &inner->spec.op.input[0], &inner->layouts.input[0]));
    TRY(cpu_conv.create(inner));
    g->base.layouts.output = inner->layouts.output;
    return STATUS_OK;
}

static enum status create(group *base)
{
    struct image_conv *g = image_conv_of(base);
    struct op_param params[OP_MAX_PARAMS];
    (void)op_get_params(&base->spec.op, params);
    TRY(create_inner(g));
    TRY(layout_get_plain(base->device, &params[0].shape, &base->layouts.param[0]));
    base->layouts.param[1] = g->inner.base.layouts.param[1];
    if (!base->device->describe_only)
        TRY(find_weight_places(g));
    const struct group_needs *inner = &g->inner.base.needs;
    int64_t weights = round_up(g->inner.base.layouts.param[0]->n_bytes, 64);
    base->needs.saved_bytes = g->inner.base.layouts.input[0]->n_bytes;
    base->needs.forward_workspace_bytes = weights + inner->forward_workspace_bytes;
    base->needs.backward_workspace_bytes = weights + inner->backward_workspace_bytes;
    return STATUS_OK;
}

static void destroy(group *base)
{
    product_destroy(&image_conv_of(base)->inner.base);
    free(image_conv_of(base)->weight_place);
}

/* The inner group's arguments: folded weights in front of the workspace, the folded image saved. */
static struct group_args inner_args(const struct image_conv *g, const struct group_args *args)
{
    struct group_args inner = *args;
    int64_t weights = round_up(g->inner.base.layouts.param[0]->n_bytes, 64);
    inner.input[0] = args->saved;
    inner.param[0] = inner.param_grad[0] = args->workspace;
    inner.workspace = (char *)args->workspace + weights;
    return inner;
}

static enum status forward(group *base, const struct group_args *args)
{
    struct image_conv *g = image_conv_of(base);
    struct group_args inner = inner_args(g, args);
    const float *plain = args->param[0];
    float *folded = inner.param[0];
    fold_image(g, args->input[0], args->saved);
    memset(folded, 0, (size_t)g->inner.base.layouts.param[0]->n_bytes);
    for (int64_t i = 0; i < plain_weights(g); i++)
        folded[g->weight_place[i]] = plain[i];
    return product_forward(&g->inner.base, &inner);
}

static enum status backward_weights(group *base, const struct group_args *args)
{
    struct image_conv *g = image_conv_of(base);
    struct group_args inner = inner_args(g, args);
    float *plain = args->param_grad[0];
    const float *folded = inner.param_grad[0];
    TRY(product_backward_weights(&g->inner.base, &inner));
    for (int64_t i = 0; i < plain_weights(g); i++)
        plain[i] = folded[g->weight_place[i]];
    return STATUS_OK;
}

const struct op_kernels cpu_image_conv = {
    .group_bytes = sizeof(struct image_conv),
    .create = create,
    .destroy = destroy,
    .run = {[PASS_FORWARD] = forward, [PASS_BACKWARD_WEIGHTS] = backward_weights},
};
