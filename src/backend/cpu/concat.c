/* Concat and flatten: copies. */
#include "backend/cpu/convert.h"

#include <string.h>

/* ---- concat ---- */

static enum status create_concat(group *g)
{
    return layout_like(g->device, g->layouts.input[0], &g->spec.op.output, &g->layouts.output);
}

/* One image of input k between its own tensor and its channels of the whole. Where those begin and
 * end at block borders it is one run of memory. */
static void copy_part(const struct view *whole, const struct view *part, int64_t first_channel,
                      float *whole_at, float *part_at, bool to_whole)
{
    bool runs =
        first_channel % whole->block == 0 &&
        (part->channels % whole->block == 0 || first_channel + part->channels == whole->channels);
    if (whole->position_stride != whole->block) /* plain [n, c] */
        runs = true;
    if (runs) {
        bool plain = whole->position_stride != whole->block;
        float *at =
            whole_at + (plain ? first_channel : first_channel / whole->block * whole->block_stride);
        size_t n_bytes = (size_t)part->n_stride * sizeof *at;
        memcpy(to_whole ? at : part_at, to_whole ? part_at : at, n_bytes);
        return;
    }
    for (int64_t c = 0; c < part->channels; c++) {
        int64_t there = first_channel + c;
        float *w = whole_at + there / whole->block * whole->block_stride + there % whole->block;
        float *p = part_at + c / part->block * part->block_stride + c % part->block;
        for (int64_t i = 0; i < whole->plane; i++, w += whole->block, p += part->block) {
            if (to_whole)
                *w = *p;
            else
                *p = *w;
        }
    }
}

/* Between the whole and the parts; where parts[k] is NULL, part k is left out. */
static void copy_parts(group *g, float *whole, float *const *parts, bool to_whole)
{
    struct view w;
    layout_view(g->device, g->layouts.output, &w);
    int64_t first = 0;
    for (int k = 0; k < g->spec.op.n_inputs; k++) {
        struct view p;
        layout_view(g->device, g->layouts.input[k], &p);
        if (parts[k]) {
            if (!to_whole)
                clear_added_channels(g->device, g->layouts.input[k], parts[k]);
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
            for (int64_t n = 0; n < w.n; n++)
                copy_part(&w, &p, first, whole + n * w.n_stride, parts[k] + n * p.n_stride,
                          to_whole);
        }
        first += p.channels;
    }
    if (to_whole)
        clear_added_channels(g->device, g->layouts.output, whole);
}

static enum status forward_concat(group *g, const struct group_args *args)
{
    float *parts[OP_MAX_INPUTS];
    for (int k = 0; k < g->spec.op.n_inputs; k++)
        parts[k] = (float *)(uintptr_t)args->input[k];
    copy_parts(g, args->output, parts, true);
    return STATUS_OK;
}

static enum status backward_concat(group *g, const struct group_args *args)
{
    float *parts[OP_MAX_INPUTS];
    for (int k = 0; k < g->spec.op.n_inputs; k++)
        parts[k] = args->input_grad[k];
    copy_parts(g, (float *)(uintptr_t)args->output_grad[0], parts, false);
    return STATUS_OK;
}

const struct op_kernels cpu_concat = {
    .group_bytes = sizeof(struct group),
    .wants_blocked = true,
    .create = create_concat,
    .run = {[PASS_FORWARD] = forward_concat, [PASS_BACKWARD] = backward_concat},
};

/* ---- flatten ---- */

static enum status create_flatten(group *g)
{
    const layout *in = g->layouts.input[0];
    const struct shape *s = &in->shape;
    bool same_bytes = in->kind == LAYOUT_PLAIN ||
                      (s->dim[2] * s->dim[3] == 1 && s->dim[1] % g->device->loops->lanes == 0);
    g->needs.output_is_input = same_bytes;
    return layout_get_plain(g->device, &g->spec.op.output, &g->layouts.output);
}

static enum status forward_flatten(group *g, const struct group_args *args)
{
    convert_to_plain(g->device, &g->spec.op.input[0], args->input[0], args->output);
    return STATUS_OK;
}

static enum status backward_flatten(group *g, const struct group_args *args)
{
    if (args->input_grad[0])
        convert_to_blocked(g->device, &g->spec.op.input[0], args->output_grad[0],
                           args->input_grad[0]);
    return STATUS_OK;
}

const struct op_kernels cpu_flatten = {
    .group_bytes = sizeof(struct group),
    .create = create_flatten,
    .run = {[PASS_FORWARD] = forward_flatten, [PASS_BACKWARD] = backward_flatten},
};
