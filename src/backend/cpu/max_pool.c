/* Max pooling: a vector holds a position of a block of channels; beside each maximum the place in
 * its window that it came from is saved for the gradient. */
#include "backend/cpu/cpu_parts.h"

#include <string.h>

static struct pool_plane plane_of(const group *g)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    const int64_t *in = g->spec.op.input[0].dim, *out = g->spec.op.output.dim;
    struct pool_plane p = {.in = {in[2], in[3]}, .out = {out[2], out[3]}};
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = a->kernel[i];
        p.stride[i] = a->stride[i];
        p.dilation[i] = a->dilation[i] > 1 ? a->dilation[i] : 1;
        p.pad[i] = a->pad_before[i];
    }
    return p;
}

static enum status create(group *g)
{
    TRY(layout_get_blocked(g->device, &g->spec.op.output, &g->layouts.output));
    if (g->spec.training) /* an int32_t for every output */
        g->needs.saved_bytes = g->layouts.output->n_bytes;
    return STATUS_OK;
}

static enum status forward(group *g, const struct group_args *args)
{
    const struct pool_plane p = plane_of(g);
    struct view in, out;
    layout_view(g->device, g->layouts.input[0], &in);
    layout_view(g->device, g->layouts.output, &out);
    const float *x = args->input[0];
    float *y = args->output;
    int32_t *from = args->saved;
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < in.n * in.blocks; i++)
        g->device->loops->max_pool(&p, x + i * in.block_stride, y + i * out.block_stride,
                                   g->spec.training ? from + i * out.block_stride : NULL);
    return STATUS_OK;
}

static enum status backward(group *g, const struct group_args *args)
{
    const struct pool_plane p = plane_of(g);
    struct view in, out;
    layout_view(g->device, g->layouts.input[0], &in);
    layout_view(g->device, g->layouts.output, &out);
    const float *dy = args->output_grad[0];
    const int32_t *from = args->saved;
    float *dx = args->input_grad[0];
    if (!dx)
        return STATUS_OK;
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < in.n * in.blocks; i++) {
        memset(dx + i * in.block_stride, 0, (size_t)in.block_stride * sizeof *dx);
        g->device->loops->max_pool_gradient(&p, dy + i * out.block_stride,
                                            from + i * out.block_stride, dx + i * in.block_stride);
    }
    return STATUS_OK;
}

const struct op_kernels cpu_max_pool = {
    .group_bytes = sizeof(struct group),
    .wants_blocked = true,
    .create = create,
    .run = {[PASS_FORWARD] = forward, [PASS_BACKWARD] = backward},
};
