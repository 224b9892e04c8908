/* Global and adaptive average pooling: each output position averages its own window of the input,
 * rows floor(p H/P) to ceil((p+1) H/P). Global pooling is the window that is everything. */
#include "backend/cpu/cpu_parts.h"

#include <string.h>

struct extents {
    int64_t h, w, p, q; /* of the tensors */
    /* A piece's windows are those of the whole: its extents, and where the piece begins in them. */
    int64_t in[2], out[2], first_in[2], first_out[2];
    int64_t area; /* that divides the sums; 0: the window's own */
};

static struct extents extents_of(const group *g)
{
    const int64_t *in = g->spec.op.input[0].dim, *out = g->spec.op.output.dim;
    const struct op_attrs *a = &g->spec.op.attrs;
    struct extents e = {.h = in[2], .w = in[3], .p = out[2], .q = out[3], .in = {in[2], in[3]}};
    e.out[0] = e.p;
    e.out[1] = e.q;
    if (!a->whole_in[0])
        return e;
    if (g->spec.op.op == OP_GLOBAL_POOL) {
        e.area = a->whole_in[0] * a->whole_in[1];
        return e;
    }
    for (int i = 0; i < 2; i++) {
        e.in[i] = a->whole_in[i];
        e.out[i] = a->whole_out[i];
        e.first_in[i] = a->first_in[i];
        e.first_out[i] = a->first_out[i];
    }
    return e;
}

static struct range window(const struct extents *e, int axis, int64_t at)
{
    int64_t in = e->in[axis], out = e->out[axis], first = e->first_in[axis];
    at += e->first_out[axis];
    return (struct range){at * in / out - first, ((at + 1) * in + out - 1) / out - first};
}

static float area_of(const struct extents *e, struct range rows, struct range columns)
{
    int64_t own = (rows.end - rows.begin) * (columns.end - columns.begin);
    return (float)(e->area ? e->area : own);
}

static enum status create(group *g)
{
    struct extents e = extents_of(g);
    bool same = e.area <= 1;
    for (int i = 0; i < 2; i++)
        same = same && e.in[i] == e.out[i];
    g->needs.output_is_input = same && e.h == e.p && e.w == e.q;
    return layout_get_blocked(g->device, &g->spec.op.output, &g->layouts.output);
}

/* One block of channels of one image. */
static void forward_block(const struct cpu_loops *loops, const struct extents *e, const float *x,
                          float *y)
{
    int64_t block = loops->lanes;
    for (int64_t p = 0; p < e->p; p++)
        for (int64_t q = 0; q < e->q; q++, y += block) {
            struct range rows = window(e, 0, p), columns = window(e, 1, q);
            float total[LOOPS_MAX_LANES] = {0}, row[LOOPS_MAX_LANES];
            for (int64_t r = rows.begin; r < rows.end; r++) {
                struct lane_plane plane = {columns.end - columns.begin, block, loops->lanes};
                loops->sum_plane(plane, x + (r * e->w + columns.begin) * block, row);
                for (int64_t l = 0; l < block; l++)
                    total[l] += row[l];
            }
            float scale = 1 / area_of(e, rows, columns);
            for (int64_t l = 0; l < block; l++)
                y[l] = total[l] * scale;
        }
}

static void backward_block(const struct cpu_loops *loops, const struct extents *e, const float *dy,
                           float *dx)
{
    int64_t block = loops->lanes;
    memset(dx, 0, (size_t)(e->h * e->w * block) * sizeof *dx);
    for (int64_t p = 0; p < e->p; p++)
        for (int64_t q = 0; q < e->q; q++, dy += block) {
            struct range rows = window(e, 0, p), columns = window(e, 1, q);
            float area = area_of(e, rows, columns);
            for (int64_t r = rows.begin; r < rows.end; r++)
                for (int64_t c = columns.begin; c < columns.end; c++)
                    for (int64_t l = 0; l < block; l++)
                        dx[(r * e->w + c) * block + l] += dy[l] / area;
        }
}

static enum status forward(group *g, const struct group_args *args)
{
    struct extents e = extents_of(g);
    struct view in, out;
    layout_view(g->device, g->layouts.input[0], &in);
    layout_view(g->device, g->layouts.output, &out);
    const float *x = args->input[0];
    float *y = args->output;
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < in.n * in.blocks; i++)
        forward_block(g->device->loops, &e, x + i * in.block_stride, y + i * out.block_stride);
    return STATUS_OK;
}

static enum status backward(group *g, const struct group_args *args)
{
    struct extents e = extents_of(g);
    struct view in, out;
    layout_view(g->device, g->layouts.input[0], &in);
    layout_view(g->device, g->layouts.output, &out);
    const float *dy = args->output_grad[0];
    float *dx = args->input_grad[0];
    if (!dx)
        return STATUS_OK;
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < in.n * in.blocks; i++)
        backward_block(g->device->loops, &e, dy + i * out.block_stride, dx + i * in.block_stride);
    return STATUS_OK;
}

const struct op_kernels cpu_mean_pool = {
    .group_bytes = sizeof(struct group),
    .wants_blocked = true,
    .create = create,
    .run = {[PASS_FORWARD] = forward, [PASS_BACKWARD] = backward},
};
