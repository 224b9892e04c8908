/* Batch norm with the residual sum and the activation behind it, in two passes over memory each
 * way:
 *
 *     forward   moments:  sum and square sum of x - shift, per channel (shift: the first element,
 *                         so that large means cost no precision)
 *               apply:    y = act(scale x + offset + residual)
 *     backward  sums:     dz = act'(y) sum(dy), sum of dz, sum of dz (x - mean)
 *               apply:    dx = a dz + b x + c
 *
 * An item is one block of channels of one chunk of images. How a batch is cut into chunks depends
 * on the batch alone, and partial sums are added in chunk order, so the result does not depend on
 * the number of threads. With enough blocks each thread does both passes of a block while it is
 * still in the cache; with few, all threads share the items of each pass. */
#include "backend/cpu/internal.h"

#include <math.h>

enum { MAX_CHUNKS = 16 };

struct norm {
    const group *g;
    const struct cpu_loops *loops;
    const struct group_args *args;
    struct view view;
    int64_t chunks;
    /* per channel, rounded up: saved between the passes */
    float *mean, *inverse;
    /* per channel, in the workspace */
    float *scale, *offset, *a, *b, *c;
    /* per chunk and channel, in the workspace: sums and square sums, or the gradient's sums */
    float *sums, *products;
};

static int64_t rounded_channels(const group *g)
{
    return round_up(g->spec.op.input[0].dim[1], g->device->loops->lanes);
}

static int64_t chunks_of(const group *g)
{
    int64_t n = g->spec.op.input[0].dim[0];
    return n < MAX_CHUNKS ? n : MAX_CHUNKS;
}

/* The mask of a folded activation can be told from x, unless something else was added in. */
static bool reads_output(const struct group_spec *spec)
{
    if (spec->activation == ACTIVATION_NONE)
        return false;
    return spec->residual || spec->activation == ACTIVATION_LOGISTIC ||
           spec->activation == ACTIVATION_TANH;
}

static enum status create(group *g)
{
    struct shape channels = SHAPE1(g->spec.op.input[0].dim[1]);
    const dnnl_dims_t rounded = {rounded_channels(g)};
    dnnl_memory_desc_t desc;
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&desc, 1, rounded, dnnl_f32, dnnl_a));
    for (int k = 0; k < 4; k++)
        if (!g->layouts.param[k])
            TRY(layout_get_weights(g->device, &channels, &desc, &g->layouts.param[k]));
    TRY(layout_like(g->device, g->layouts.input[0], &g->spec.op.output, &g->layouts.output));
    int64_t per_channel = rounded_channels(g) * (int64_t)sizeof(float);
    g->needs.saved_bytes = 2 * per_channel;
    g->needs.forward_workspace_bytes = (5 + 2 * chunks_of(g)) * per_channel;
    g->needs.backward_workspace_bytes = (5 + 2 * chunks_of(g)) * per_channel;
    g->needs.reads_input = true;
    g->needs.reads_output = reads_output(&g->spec);
    g->needs.in_place_gradient = true;
    return STATUS_OK;
}

static void init(const group *g, const struct group_args *args, struct norm *m)
{
    int64_t channels = rounded_channels(g);
    float *at = args->workspace;
    *m = (struct norm){.g = g, .loops = g->device->loops, .args = args, .chunks = chunks_of(g)};
    layout_view(g->device, g->layouts.input[0], &m->view);
    m->mean = args->saved;
    m->inverse = m->mean + channels;
    float **const arrays[] = {&m->scale, &m->offset, &m->a, &m->b, &m->c};
    for (int i = 0; i < 5; i++, at += channels)
        *arrays[i] = at;
    m->sums = at;
    m->products = at + m->chunks * channels;
}

static struct lane_plane plane_of(const struct norm *m, int64_t block)
{
    int64_t left = m->view.channels - block * m->view.block;
    bool blocked = m->g->layouts.input[0]->kind == LAYOUT_BLOCKED;
    int64_t lanes = blocked || left > m->view.block ? m->view.block : left;
    return (struct lane_plane){m->view.plane, m->view.position_stride, (int)lanes};
}

static int64_t place_of(const struct norm *m, int64_t image, int64_t block)
{
    return image * m->view.n_stride + block * m->view.block_stride;
}

static struct range images_of(const struct norm *m, int64_t chunk)
{
    return (struct range){chunk * m->view.n / m->chunks, (chunk + 1) * m->view.n / m->chunks};
}

/* Where chunk and block keep their partial sums. */
static int64_t partial_of(const struct norm *m, int64_t chunk, int64_t block)
{
    return (chunk * m->view.blocks + block) * m->view.block;
}

/* ---- forward ---- */

static void measure_item(const struct norm *m, int64_t block, int64_t chunk)
{
    const float *x = m->args->input[0];
    const float *shift = x + place_of(m, 0, block);
    struct lane_plane plane = plane_of(m, block);
    struct range images = images_of(m, chunk);
    float *sum = m->sums + partial_of(m, chunk, block);
    float *square = m->products + partial_of(m, chunk, block);
    for (int64_t n = images.begin; n < images.end; n++) {
        struct lane_moments part;
        m->loops->moments(plane, x + place_of(m, n, block), shift, &part);
        for (int l = 0; l < plane.lanes; l++) {
            sum[l] = (n == images.begin ? 0 : sum[l]) + part.sum[l];
            square[l] = (n == images.begin ? 0 : square[l]) + part.square[l];
        }
    }
}

static void keep_running(const struct norm *m, int64_t channel, double mean, double variance,
                         double count)
{
    double momentum = m->g->spec.op.attrs.momentum;
    float *running_mean = m->args->param[2], *running_variance = m->args->param[3];
    double unbiased = count > 1 ? variance * count / (count - 1) : variance;
    running_mean[channel] =
        (float)((1 - momentum) * (double)running_mean[channel] + momentum * mean);
    running_variance[channel] =
        (float)((1 - momentum) * (double)running_variance[channel] + momentum * unbiased);
}

static void finish_moments(const struct norm *m, int64_t block)
{
    const float *shift = (const float *)m->args->input[0] + place_of(m, 0, block);
    const float *gamma = m->args->param[0], *beta = m->args->param[1];
    double count = (double)(m->view.n * m->view.plane);
    struct lane_plane plane = plane_of(m, block);
    for (int l = 0; l < plane.lanes; l++) {
        double sum = 0, square = 0;
        for (int64_t c = 0; c < m->chunks; c++) {
            sum += (double)m->sums[partial_of(m, c, block) + l];
            square += (double)m->products[partial_of(m, c, block) + l];
        }
        int64_t channel = block * m->view.block + l;
        double distance = sum / count, mean = (double)shift[l] + distance;
        double variance = square / count - distance * distance;
        if (variance < 0)
            variance = 0;
        m->mean[channel] = (float)mean;
        m->inverse[channel] = (float)(1 / sqrt(variance + m->g->spec.op.attrs.epsilon));
        m->scale[channel] = gamma[channel] * m->inverse[channel];
        m->offset[channel] = beta[channel] - m->mean[channel] * m->scale[channel];
        if (channel < m->view.channels)
            keep_running(m, channel, mean, variance, count);
    }
}

static void use_running(const struct norm *m, int64_t block)
{
    const float *gamma = m->args->param[0], *beta = m->args->param[1];
    const float *mean = m->args->param[2], *variance = m->args->param[3];
    struct lane_plane plane = plane_of(m, block);
    for (int64_t c = block * m->view.block, l = 0; l < plane.lanes; l++, c++) {
        m->scale[c] =
            (float)((double)gamma[c] / sqrt((double)variance[c] + m->g->spec.op.attrs.epsilon));
        m->offset[c] = beta[c] - mean[c] * m->scale[c];
    }
}

static void apply_item(const struct norm *m, int64_t block, int64_t chunk)
{
    const float *x = m->args->input[0], *residual = m->args->residual;
    float *y = m->args->output;
    struct range images = images_of(m, chunk);
    int64_t channel = block * m->view.block;
    for (int64_t n = images.begin; n < images.end; n++) {
        int64_t at = place_of(m, n, block);
        m->loops->normalize(plane_of(m, block), m->g->spec.activation, m->scale + channel,
                            m->offset + channel, x + at, residual ? residual + at : NULL, y + at);
    }
}

/* ---- backward ---- */

static const float *gradient_of_sum(const struct norm *m)
{
    return m->args->folded_grad ? m->args->folded_grad : m->args->output_grad[0];
}

static void sum_item(const struct norm *m, int64_t block, int64_t chunk)
{
    const struct group_args *args = m->args;
    const float *x = args->input[0], *y = m->g->needs.reads_output ? args->output : NULL;
    float *dz = args->folded_grad;
    struct lane_plane plane = plane_of(m, block);
    struct range images = images_of(m, chunk);
    int64_t channel = block * m->view.block;
    float *sum = m->sums + partial_of(m, chunk, block);
    float *product = m->products + partial_of(m, chunk, block);
    for (int l = 0; l < plane.lanes; l++)
        sum[l] = product[l] = 0;
    for (int64_t n = images.begin; n < images.end; n++) {
        int64_t at = place_of(m, n, block);
        const float *dy[GROUP_MAX_ADDENDS];
        for (int k = 0; k < args->n_output_grads; k++)
            dy[k] = (const float *)args->output_grad[k] + at;
        struct norm_sums sums = {.n_dy = args->n_output_grads,
                                 .dy = dy,
                                 .x = x + at,
                                 .y = y ? y + at : NULL,
                                 .scale = m->scale + channel,
                                 .offset = m->offset + channel,
                                 .mean = m->mean + channel,
                                 .dz = dz ? dz + at : NULL,
                                 .sum = sum,
                                 .product = product};
        m->loops->norm_gradient_sums(plane, m->g->spec.activation, &sums);
    }
}

static void prepare_block(const struct norm *m, int64_t block)
{
    const float *gamma = m->args->param[0], *beta = m->args->param[1];
    struct lane_plane plane = plane_of(m, block);
    for (int64_t c = block * m->view.block, l = 0; l < plane.lanes; l++, c++) {
        m->scale[c] = gamma[c] * m->inverse[c];
        m->offset[c] = beta[c] - m->mean[c] * m->scale[c];
    }
}

static void finish_sums(const struct norm *m, int64_t block)
{
    float *dgamma = m->args->param_grad[0], *dbeta = m->args->param_grad[1];
    double count = (double)(m->view.n * m->view.plane);
    struct lane_plane plane = plane_of(m, block);
    for (int l = 0; l < plane.lanes; l++) {
        double sum = 0, product = 0;
        for (int64_t c = 0; c < m->chunks; c++) {
            sum += (double)m->sums[partial_of(m, c, block) + l];
            product += (double)m->products[partial_of(m, c, block) + l];
        }
        int64_t c = block * m->view.block + l;
        double inverse = (double)m->inverse[c], scale = (double)m->scale[c];
        double b = -scale * inverse * inverse * product / count;
        dbeta[c] = (float)sum;
        dgamma[c] = (float)(product * inverse);
        m->a[c] = m->scale[c];
        m->b[c] = (float)b;
        m->c[c] = (float)(-scale * sum / count - b * (double)m->mean[c]);
    }
}

static void gradient_item(const struct norm *m, int64_t block, int64_t chunk)
{
    const float *x = m->args->input[0], *dz = gradient_of_sum(m);
    float *dx = m->args->input_grad[0];
    struct range images = images_of(m, chunk);
    int64_t channel = block * m->view.block;
    for (int64_t n = images.begin; n < images.end; n++) {
        int64_t at = place_of(m, n, block);
        m->loops->norm_gradient(plane_of(m, block), m->a + channel, m->b + channel, m->c + channel,
                                x + at, dz + at, dx + at);
    }
}

/* ---- both ways ---- */

typedef void item_function(const struct norm *m, int64_t block, int64_t chunk);
typedef void block_function(const struct norm *m, int64_t block);

/* Any of the three may be NULL. */
static void run_items(const struct norm *m, item_function *first, block_function *between,
                      item_function *second)
{
    int64_t blocks = m->view.blocks, chunks = m->chunks;
    if (blocks >= 2 * m->g->device->threads) {
#pragma omp parallel for num_threads(m->g->device->threads) schedule(dynamic)
        for (int64_t b = 0; b < blocks; b++) {
            for (int64_t c = 0; first && c < chunks; c++)
                first(m, b, c);
            between(m, b);
            for (int64_t c = 0; second && c < chunks; c++)
                second(m, b, c);
        }
        return;
    }
#pragma omp parallel num_threads(m->g->device->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < blocks * chunks; i++)
            if (first)
                first(m, i % blocks, i / blocks);
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b++)
            between(m, b);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < blocks * chunks; i++)
            if (second)
                second(m, i % blocks, i / blocks);
    }
}

static enum status forward(group *g, const struct group_args *args, const struct step_state *step)
{
    (void)step;
    struct norm m;
    init(g, args, &m);
    if (g->spec.training)
        run_items(&m, measure_item, finish_moments, apply_item);
    else
        run_items(&m, NULL, use_running, apply_item);
    return STATUS_OK;
}

static enum status backward(group *g, const struct group_args *args, const struct step_state *step)
{
    (void)step;
    struct norm m;
    init(g, args, &m);
    for (int64_t b = 0; b < m.view.blocks; b++)
        prepare_block(&m, b);
    run_items(&m, sum_item, finish_sums, args->input_grad[0] ? gradient_item : NULL);
    return STATUS_OK;
}

const struct kernel_family cpu_batch_norm = {
    .group_bytes = sizeof(struct group),
    .wants_blocked = true,
    .create = create,
    .run = {[PASS_FORWARD] = forward, [PASS_BACKWARD] = backward},
};
