/* Batch norm with the residual sum and the activation behind it, in two passes over memory each
 * way:
 *
 *     forward   moments:  sum and square sum of x - shift, per channel (shift: the first element,
 *                         so that large means cost no precision)
 *               apply:    y = act(scale x + offset + residual)
 *     backward  sums:     dz = act'(y) sum(dy), sum of dz, sum of dz (x - mean)
 *               apply:    dx = a dz + b x + c
 *
 * A piece whose statistics are shared stops between the passes: it hands out sums of x and x^2, or
 * of dz and dz (x - mean), in double, and goes on with those of all pieces.
 *
 * An item is one block of channels of one chunk of images. How a batch is cut into chunks depends
 * on the batch alone, and partial sums are added in chunk order, so the result does not depend on
 * the number of threads. With enough blocks each thread does both passes of a block while it is
 * still in the cache; with few, all threads share the items of each pass. */
#include "backend/cpu/convert.h"

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
    if (g->spec.shared_statistics && g->spec.training)
        g->needs.statistics_count = 2 * g->spec.op.input[0].dim[1];
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

/* Adds up the sums of all chunks for one lane of a block. */
static void sum_chunks(const struct norm *m, int64_t block, int lane, double *sum, double *product)
{
    *sum = *product = 0;
    for (int64_t c = 0; c < m->chunks; c++) {
        *sum += (double)m->sums[partial_of(m, c, block) + lane];
        *product += (double)m->products[partial_of(m, c, block) + lane];
    }
}

static void set_moments(const struct norm *m, int64_t channel, double mean, double variance,
                        double count)
{
    const float *gamma = m->args->param[0], *beta = m->args->param[1];
    if (variance < 0)
        variance = 0;
    m->mean[channel] = (float)mean;
    m->inverse[channel] = (float)(1 / sqrt(variance + m->g->spec.op.attrs.epsilon));
    m->scale[channel] = gamma[channel] * m->inverse[channel];
    m->offset[channel] = beta[channel] - m->mean[channel] * m->scale[channel];
    if (channel < m->view.channels && !m->args->again)
        keep_running(m, channel, mean, variance, count);
}

static void finish_moments(const struct norm *m, int64_t block)
{
    const float *shift = (const float *)m->args->input[0] + place_of(m, 0, block);
    double count = (double)(m->view.n * m->view.plane), sum, square;
    struct lane_plane plane = plane_of(m, block);
    for (int l = 0; l < plane.lanes; l++) {
        sum_chunks(m, block, l, &sum, &square);
        double distance = sum / count;
        set_moments(m, block * m->view.block + l, (double)shift[l] + distance,
                    square / count - distance * distance, count);
    }
}

/* How many lanes of a block are channels. */
static int real_lanes(const struct norm *m, int64_t block)
{
    int64_t left = m->view.channels - block * m->view.block;
    return (int)(left < m->view.block ? left : m->view.block);
}

/* Sums of x and of x^2, of the piece: back from those of x - shift. */
static void hand_out_moments(const struct norm *m, int64_t block)
{
    const float *shifts = (const float *)m->args->input[0] + place_of(m, 0, block);
    double count = (double)(m->view.n * m->view.plane), sum, square;
    double *sums = m->args->statistics + block * m->view.block;
    double *squares = sums + m->view.channels;
    for (int l = 0; l < real_lanes(m, block); l++) {
        double shift = (double)shifts[l];
        sum_chunks(m, block, l, &sum, &square);
        sums[l] = sum + count * shift;
        squares[l] = square + shift * (2 * sum + count * shift);
    }
}

/* From the sums of all pieces. */
static void use_moments(const struct norm *m, int64_t block)
{
    const double *sums = m->args->statistics + block * m->view.block;
    const double *squares = sums + m->view.channels;
    double count = (double)m->g->spec.statistics_count;
    int real = real_lanes(m, block);
    for (int l = 0; l < plane_of(m, block).lanes; l++) {
        double mean = l < real ? sums[l] / count : 0;
        double variance = l < real ? squares[l] / count - mean * mean : 0;
        set_moments(m, block * m->view.block + l, mean, variance, count);
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

static void set_param_gradients(const struct norm *m, int64_t c, double sum, double product)
{
    float *dgamma = m->args->param_grad[0], *dbeta = m->args->param_grad[1];
    dbeta[c] = (float)sum;
    dgamma[c] = (float)(product * (double)m->inverse[c]);
}

/* The params are rounded up even where the tensor is not. */
static void clear_added_gradients(const struct norm *m, int64_t block)
{
    float *dgamma = m->args->param_grad[0], *dbeta = m->args->param_grad[1];
    for (int64_t l = plane_of(m, block).lanes; l < m->view.block; l++)
        dgamma[block * m->view.block + l] = dbeta[block * m->view.block + l] = 0;
}

/* The factors of the input's gradient. */
static void set_factors(const struct norm *m, int64_t c, double sum, double product, double count)
{
    double inverse = (double)m->inverse[c], scale = (double)m->scale[c];
    double b = -scale * inverse * inverse * product / count;
    m->a[c] = m->scale[c];
    m->b[c] = (float)b;
    m->c[c] = (float)(-scale * sum / count - b * (double)m->mean[c]);
}

static void finish_sums(const struct norm *m, int64_t block)
{
    double count = (double)(m->view.n * m->view.plane), sum, product;
    struct lane_plane plane = plane_of(m, block);
    for (int l = 0; l < plane.lanes; l++) {
        int64_t c = block * m->view.block + l;
        sum_chunks(m, block, l, &sum, &product);
        set_param_gradients(m, c, sum, product);
        set_factors(m, c, sum, product, count);
    }
    clear_added_gradients(m, block);
}

/* The piece's own sums, and its own part of the params' gradients. */
static void hand_out_sums(const struct norm *m, int64_t block)
{
    double *sums = m->args->statistics + block * m->view.block, sum, product;
    int real = real_lanes(m, block);
    for (int l = 0; l < plane_of(m, block).lanes; l++) {
        sum_chunks(m, block, l, &sum, &product);
        set_param_gradients(m, block * m->view.block + l, sum, product);
        if (l < real) {
            sums[l] = sum;
            sums[m->view.channels + l] = product;
        }
    }
    clear_added_gradients(m, block);
}

static void use_sums(const struct norm *m, int64_t block)
{
    const double *sums = m->args->statistics + block * m->view.block;
    double count = (double)m->g->spec.statistics_count;
    int real = real_lanes(m, block);
    for (int l = 0; l < plane_of(m, block).lanes; l++)
        set_factors(m, block * m->view.block + l, l < real ? sums[l] : 0,
                    l < real ? sums[m->view.channels + l] : 0, count);
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

/* Either item function may be NULL. */
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

static bool shares(const group *g)
{
    return g->spec.shared_statistics && g->spec.training;
}

static enum status forward(group *g, const struct group_args *args)
{
    struct norm m;
    init(g, args, &m);
    if (shares(g))
        run_items(&m, NULL, use_moments, apply_item);
    else if (g->spec.training)
        run_items(&m, measure_item, finish_moments, apply_item);
    else
        run_items(&m, NULL, use_running, apply_item);
    if (g->spec.activation == ACTIVATION_LOGISTIC) /* the one that does not keep zero */
        clear_added_channels(g->device, g->layouts.output, args->output);
    return STATUS_OK;
}

static enum status forward_statistics(group *g, const struct group_args *args)
{
    struct norm m;
    init(g, args, &m);
    run_items(&m, measure_item, hand_out_moments, NULL);
    return STATUS_OK;
}

static void init_backward(const group *g, const struct group_args *args, struct norm *m)
{
    init(g, args, m);
    for (int64_t b = 0; b < m->view.blocks; b++)
        prepare_block(m, b);
}

static enum status backward(group *g, const struct group_args *args)
{
    struct norm m;
    init_backward(g, args, &m);
    bool shared = shares(g);
    item_function *gradient = args->input_grad[0] ? gradient_item : NULL;
    run_items(&m, shared ? NULL : sum_item, shared ? use_sums : finish_sums, gradient);
    return STATUS_OK;
}

static enum status backward_statistics(group *g, const struct group_args *args)
{
    struct norm m;
    init_backward(g, args, &m);
    run_items(&m, sum_item, hand_out_sums, NULL);
    return STATUS_OK;
}

const struct op_kernels cpu_batch_norm = {
    .group_bytes = sizeof(struct group),
    .wants_blocked = true,
    .create = create,
    .run = {[PASS_FORWARD] = forward,
            [PASS_BACKWARD] = backward,
            [PASS_FORWARD_STATISTICS] = forward_statistics,
            [PASS_BACKWARD_STATISTICS] = backward_statistics},
};
