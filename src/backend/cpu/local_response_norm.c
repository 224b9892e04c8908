/* Local response norm: y = x u^-beta with u = k + alpha/size * sum of x^2 over the window of
 * channels that begins at c - size/2. The gradient is
 *     dx_c = dy_c u_c^-beta - 2 alpha beta/size x_c * sum over the d whose window holds c of
 *            dy_d x_d u_d^(-beta-1).
 * One position at a time: its channels are gathered from their blocks into a row. */
#include "backend/cpu/cpu_parts.h"

#include <math.h>
#include <omp.h>

static enum status create(group *g)
{
    int64_t row = round_up(g->spec.op.input[0].dim[1], 16) * (int64_t)sizeof(float);
    g->needs.forward_workspace_bytes = 3 * row * g->device->threads;
    g->needs.backward_workspace_bytes = 3 * row * g->device->threads;
    g->needs.reads_input = true;
    return layout_get_blocked(g->device, &g->spec.op.output, &g->layouts.output);
}

static void gather(const struct view *v, const float *from, float *row)
{
    for (int64_t c = 0; c < v->channels; c++)
        row[c] = from[c / v->block * v->block_stride + c % v->block];
}

static void scatter(const struct view *v, const float *row, float *to)
{
    for (int64_t c = 0; c < v->blocks * v->block; c++)
        to[c / v->block * v->block_stride + c % v->block] = c < v->channels ? row[c] : 0;
}

static struct range window_of(const struct op_attrs *a, int64_t channel, int64_t channels)
{
    int64_t begin = channel - a->lrn_size / 2, end = begin + a->lrn_size;
    return (struct range){begin < 0 ? 0 : begin, end > channels ? channels : end};
}

static void find_u(const struct op_attrs *a, int64_t channels, const float *x, float *u)
{
    for (int64_t c = 0; c < channels; c++) {
        struct range w = window_of(a, c, channels);
        double sum = 0;
        for (int64_t i = w.begin; i < w.end; i++)
            sum += (double)x[i] * (double)x[i];
        u[c] = (float)(a->lrn_k + a->lrn_alpha / (double)a->lrn_size * sum);
    }
}

/* Three rows of the workspace of the calling thread. */
static float *rows_of(const group *g, const struct group_args *args, int64_t *row)
{
    *row = round_up(g->spec.op.input[0].dim[1], 16);
    return (float *)args->workspace + 3 * *row * omp_get_thread_num();
}

static enum status forward(group *g, const struct group_args *args)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    struct view v;
    layout_view(g->device, g->layouts.input[0], &v);
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < v.n * v.plane; i++) {
        int64_t row, at = i / v.plane * v.n_stride + i % v.plane * v.block;
        float *x = rows_of(g, args, &row), *u = x + row;
        gather(&v, (const float *)args->input[0] + at, x);
        find_u(a, v.channels, x, u);
        for (int64_t c = 0; c < v.channels; c++)
            x[c] *= powf(u[c], (float)-a->lrn_beta);
        scatter(&v, x, (float *)args->output + at);
    }
    return STATUS_OK;
}

/* The gradient of one row, over dy; u becomes dy_d x_d u_d^(-beta-1). */
static void row_gradient(const struct op_attrs *a, int64_t channels, const float *x, float *u,
                         float *dy)
{
    float beta = (float)a->lrn_beta;
    float factor = (float)(2 * a->lrn_alpha * a->lrn_beta / (double)a->lrn_size);
    for (int64_t c = 0; c < channels; c++) {
        float power = powf(u[c], -beta), t = dy[c] * x[c] * power / u[c];
        dy[c] *= power;
        u[c] = t;
    }
    /* Channel c lies in the windows of the channels d with d - size/2 <= c < d - size/2 + size. */
    for (int64_t c = 0; c < channels; c++) {
        int64_t begin = c + a->lrn_size / 2 - a->lrn_size + 1, end = c + a->lrn_size / 2 + 1;
        float sum = 0;
        for (int64_t d = begin < 0 ? 0 : begin; d < end && d < channels; d++)
            sum += u[d];
        dy[c] -= factor * x[c] * sum;
    }
}

static enum status backward(group *g, const struct group_args *args)
{
    struct view v;
    layout_view(g->device, g->layouts.input[0], &v);
    if (!args->input_grad[0])
        return STATUS_OK;
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < v.n * v.plane; i++) {
        int64_t row, at = i / v.plane * v.n_stride + i % v.plane * v.block;
        float *x = rows_of(g, args, &row), *u = x + row, *dy = u + row;
        gather(&v, (const float *)args->input[0] + at, x);
        gather(&v, (const float *)args->output_grad[0] + at, dy);
        find_u(&g->spec.op.attrs, v.channels, x, u);
        row_gradient(&g->spec.op.attrs, v.channels, x, u, dy);
        scatter(&v, dy, (float *)args->input_grad[0] + at);
    }
    return STATUS_OK;
}

const struct op_kernels cpu_local_response_norm = {
    .group_bytes = sizeof(struct group),
    .wants_blocked = true,
    .create = create,
    .run = {[PASS_FORWARD] = forward, [PASS_BACKWARD] = backward},
};
