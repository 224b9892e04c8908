/* Convolution of an image, directly: one vector holds the output channels of a block, so that each
 * pixel is multiplied into all of them at once. An image is first copied with its padding around
 * it, which spares the loops all borders. The weight gradient is summed per chunk of images and
 * then over the chunks, in an order that the threads do not change. */
#include "backend/cpu/small_conv.h"

#include "backend/cpu/convert.h"

#include <omp.h>
#include <string.h>

enum { MAX_CHUNKS = 16 };

bool small_conv_suits(const group *g)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    bool dilated = a->dilation[0] > 1 || a->dilation[1] > 1;
    return g->layouts.input[0]->kind == LAYOUT_PLAIN && a->groups == 1 && !dilated &&
           !g->spec.input_gradient && g->spec.op.input[0].dim[1] <= 4 &&
           a->out_channels <= 2 * (int64_t)g->device->loops->lanes;
}

/* Sizes of one group, in floats where nothing else is said. */
struct small {
    const group *g;
    const struct cpu_loops *loops;
    struct image_window window;
    int64_t n, blocks, height, width; /* of the output */
    int64_t padded_height, padded;    /* of a channel of the padded image, and the whole of it */
    int64_t weights;                  /* of one block of output channels */
    int64_t chunks;
};

static struct small sizes_of(const group *g)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    const struct shape *in = &g->spec.op.input[0], *out = &g->spec.op.output;
    struct small s = {.g = g, .loops = g->device->loops, .n = in->dim[0]};
    s.blocks = round_up(a->out_channels, s.loops->lanes) / s.loops->lanes;
    s.height = out->dim[2];
    s.width = out->dim[3];
    s.padded_height = in->dim[2] + a->pad_before[0] + a->pad_after[0];
    s.window = (struct image_window){.channels = in->dim[1],
                                     .height = a->kernel[0],
                                     .width = a->kernel[1],
                                     .stride = a->stride[1],
                                     .row = in->dim[3] + a->pad_before[1] + a->pad_after[1]};
    s.window.plane = s.padded_height * s.window.row;
    s.padded = round_up(s.window.plane * in->dim[1], 16);
    s.weights = in->dim[1] * a->kernel[0] * a->kernel[1] * s.loops->lanes;
    s.chunks = s.n < MAX_CHUNKS ? s.n : MAX_CHUNKS;
    return s;
}

static enum status create(group *g)
{
    struct small s = sizes_of(g);
    int64_t lanes = s.loops->lanes, threads = g->device->threads;
    const dnnl_dims_t dims = {s.blocks * lanes, s.window.channels, s.window.height, s.window.width};
    TRY(layout_get_params(g, dims, lanes == 16 ? dnnl_Abcd16a : dnnl_Abcd8a));
    TRY(layout_get_blocked(g->device, &g->spec.op.output, &g->layouts.output));
    int64_t sums = s.chunks * s.blocks * (s.weights + lanes);
    g->needs.reads_input = true;
    g->needs.forward_workspace_bytes = threads * s.padded * (int64_t)sizeof(float);
    g->needs.backward_workspace_bytes = (threads * s.padded + sums) * (int64_t)sizeof(float);
    return STATUS_OK;
}

/* Image n with its padding, in the calling thread's part of the workspace. */
static float *pad_image(const struct small *s, const struct group_args *args, int64_t n)
{
    const struct op_attrs *a = &s->g->spec.op.attrs;
    const struct shape *in = &s->g->spec.op.input[0];
    float *to = (float *)args->workspace + omp_get_thread_num() * s->padded;
    const float *from = (const float *)args->input[0] + n * in->dim[1] * in->dim[2] * in->dim[3];
    memset(to, 0, (size_t)s->padded * sizeof *to);
    for (int64_t c = 0; c < in->dim[1]; c++)
        for (int64_t h = 0; h < in->dim[2]; h++, from += in->dim[3])
            memcpy(to + c * s->window.plane + (h + a->pad_before[0]) * s->window.row +
                       a->pad_before[1],
                   from, (size_t)in->dim[3] * sizeof *to);
    return to;
}

static void forward_image(const struct small *s, const struct group_args *args, enum activation a,
                          int64_t n)
{
    const float *x = pad_image(s, args, n), *w = args->param[0], *bias = args->param[1];
    static const float none[LOOPS_MAX_LANES];
    int64_t lanes = s->loops->lanes, stride = s->g->spec.op.attrs.stride[0];
    for (int64_t b = 0; b < s->blocks; b++)
        for (int64_t p = 0; p < s->height; p++)
            s->loops->image_row(&s->window, a, s->width, x + p * stride * s->window.row,
                                w + b * s->weights, bias ? bias + b * lanes : none,
                                (float *)args->output +
                                    ((n * s->blocks + b) * s->height + p) * s->width * lanes);
}

static enum status forward(group *g, const struct group_args *args)
{
    const struct small s = sizes_of(g);
    enum activation a = g->spec.activation;
    bool folds = can_fold(a);
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t n = 0; n < s.n; n++)
        forward_image(&s, args, folds ? a : ACTIVATION_NONE, n);
    if (!folds && a != ACTIVATION_NONE)
        cpu_activate(g->device, g->layouts.output, a, args->output, args->output);
    return STATUS_OK;
}

/* The sums of one chunk of images: weights, then bias, block by block. */
static void sum_chunk(const struct small *s, const struct group_args *args, int64_t chunk,
                      float *sums)
{
    int64_t lanes = s->loops->lanes, stride = s->g->spec.op.attrs.stride[0];
    int64_t per_block = s->weights + lanes, plane = s->height * s->width * lanes;
    memset(sums, 0, (size_t)(s->blocks * per_block) * sizeof *sums);
    for (int64_t n = chunk * s->n / s->chunks; n < (chunk + 1) * s->n / s->chunks; n++) {
        const float *x = pad_image(s, args, n);
        for (int64_t b = 0; b < s->blocks; b++) {
            const float *dy = (const float *)args->output_grad[0] + (n * s->blocks + b) * plane;
            float *to = sums + b * per_block, part[LOOPS_MAX_LANES];
            for (int64_t p = 0; p < s->height; p++)
                s->loops->image_gradient(&s->window, s->width, x + p * stride * s->window.row,
                                         dy + p * s->width * lanes, to);
            struct lane_plane whole = {s->height * s->width, lanes, s->loops->lanes};
            s->loops->sum_plane(whole, dy, part);
            for (int64_t l = 0; l < lanes; l++)
                to[s->weights + l] += part[l];
        }
    }
}

static enum status backward_weights(group *g, const struct group_args *args)
{
    const struct small s = sizes_of(g);
    int64_t lanes = s.loops->lanes, per_block = s.weights + lanes;
    float *sums = (float *)args->workspace + g->device->threads * s.padded;
    float *dw = args->param_grad[0], *db = args->param_grad[1];
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t c = 0; c < s.chunks; c++)
        sum_chunk(&s, args, c, sums + c * s.blocks * per_block);
    for (int64_t b = 0; b < s.blocks; b++)
        for (int64_t i = 0; i < per_block; i++) {
            float total = 0;
            for (int64_t c = 0; c < s.chunks; c++)
                total += sums[(c * s.blocks + b) * per_block + i];
            if (i < s.weights)
                dw[b * s.weights + i] = total;
            else if (db)
                db[b * lanes + i - s.weights] = total;
        }
    return STATUS_OK;
}

const struct op_kernels cpu_small_conv = {
    .group_bytes = sizeof(struct group),
    .create = create,
    .run = {[PASS_FORWARD] = forward, [PASS_BACKWARD_WEIGHTS] = backward_weights},
};
