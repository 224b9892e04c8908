/* Winograd's convolution over blocked tensors: transform tiles, multiply, transform back.
 *
 * Forward, and the gradient of the data, which is the same convolution with the windows flipped and
 * the two channel axes exchanged:
 *
 *     weights  w [k, c, 3, 3]  ->  u [16][k pair][c][2 blocks of k]         once per pass, shared
 *     for each chunk of tiles, by one thread, in its own part of the workspace:
 *         input   x tiles      ->  v [16][c block][tile][lanes]
 *         product v u          ->  m [16][k block][tile][lanes]
 *         output  m            ->  y tiles, with bias and activation
 *
 * The gradient of the weights sums over tiles, so the threads share each chunk:
 *         x tiles -> v, dy tiles -> z;   s [16][c block][k block][c][k] += v z;   at the end s ->
 * dw
 *
 * Every element is summed in an order that the chunks and the threads do not change. */
#include "backend/cpu/winograd.h"

#include "backend/cpu/convert.h"

#include <omp.h>
#include <string.h>

enum { PLACES = 16, MAX_CHANNELS = 8192 };

/* One convolution: sizes in blocks of channels. */
struct convolution {
    const device *device;
    int64_t n, c_blocks, k_blocks, k_pairs;
    struct winograd_plane in, out;
    int64_t tiles_per_image, tiles;
    int64_t chunk; /* tiles that one thread takes at a time */
};

static int64_t even(int64_t n)
{
    return n + n % 2;
}

/* The convolution of a tensor of `in` to one of `out`, with so much padding before it. */
static struct convolution describe(const device *d, const struct shape *in, const struct shape *out,
                                   int64_t pad_top, int64_t pad_left)
{
    int64_t lanes = d->loops->lanes;
    int64_t tiles_y = (out->dim[2] + 1) / 2, tiles_x = (out->dim[3] + 1) / 2;
    struct convolution c = {
        .device = d,
        .n = in->dim[0],
        .c_blocks = round_up(in->dim[1], lanes) / lanes,
        .k_blocks = round_up(out->dim[1], lanes) / lanes,
        .in = {in->dim[2], in->dim[3], pad_top, pad_left, tiles_x},
        .out = {out->dim[2], out->dim[3], 0, 0, tiles_x},
        .tiles_per_image = tiles_y * tiles_x,
    };
    c.k_pairs = even(c.k_blocks) / 2;
    c.tiles = c.n * c.tiles_per_image;
    return c;
}

/* Tiles per chunk: enough that the weights, streamed once per chunk, cost little; few enough that
 * the chunk stays in a core's cache; and work for every thread. */
static int64_t choose_chunk(const struct convolution *c)
{
    enum { CACHE_FLOATS = 1 << 18, LEAST = 48, MOST = 192 };
    int64_t rows = c->device->loops->winograd_rows, lanes = c->device->loops->lanes;
    int64_t chunk = CACHE_FLOATS / (PLACES * lanes * (c->c_blocks + c->k_blocks));
    chunk = chunk < LEAST ? LEAST : chunk > MOST ? MOST : chunk;
    int64_t share = (c->tiles + c->device->threads - 1) / c->device->threads;
    return round_up(share < chunk ? share : chunk, rows);
}

static struct convolution forward_of(const group *g)
{
    const struct op_case *op = &g->spec.op;
    struct convolution c = describe(g->device, &op->input[0], &op->output, op->attrs.pad_before[0],
                                    op->attrs.pad_before[1]);
    c.chunk = choose_chunk(&c);
    return c;
}

/* dx is dy convolved with the flipped windows; padding that the forward pass left out comes back.
 */
static struct convolution data_gradient_of(const group *g)
{
    const struct op_case *op = &g->spec.op;
    struct convolution c = describe(g->device, &op->output, &op->input[0],
                                    2 - op->attrs.pad_before[0], 2 - op->attrs.pad_before[1]);
    c.chunk = choose_chunk(&c);
    return c;
}

bool winograd_suits(const group *g)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    const struct shape *in = &g->spec.op.input[0], *out = &g->spec.op.output;
    bool window = a->kernel[0] == 3 && a->kernel[1] == 3 && a->stride[0] == 1 &&
                  a->stride[1] == 1 && a->dilation[0] <= 1 && a->dilation[1] <= 1;
    for (int i = 0; i < 2; i++)
        window = window && a->pad_before[i] <= 2 && a->pad_after[i] <= 2;
    return window && a->groups == 1 && in->dim[1] >= 16 && a->out_channels >= 16 &&
           in->dim[1] <= MAX_CHANNELS && a->out_channels <= MAX_CHANNELS && out->dim[2] >= 2 &&
           out->dim[3] >= 2;
}

/* ---- the parts of the workspace, in floats ---- */

static int64_t weights_floats(const struct convolution *c)
{
    int64_t lanes = c->device->loops->lanes;
    return PLACES * c->k_pairs * 2 * lanes * c->c_blocks * lanes;
}

static int64_t chunk_floats(const struct convolution *c)
{
    int64_t lanes = c->device->loops->lanes;
    return PLACES * c->chunk * lanes * (c->c_blocks + even(c->k_blocks));
}

static int64_t pass_floats(const struct convolution *c)
{
    return weights_floats(c) + c->device->threads * chunk_floats(c);
}

/* Tiles per chunk of the weight gradient: as many as the threads' caches hold, since the threads
 * meet twice per chunk. The sums do not depend on it. */
static int64_t gradient_chunk(const struct convolution *c)
{
    enum { CACHE_FLOATS = 1 << 17, LEAST = 128 };
    int64_t lanes = c->device->loops->lanes;
    int64_t chunk =
        c->device->threads * (int64_t)CACHE_FLOATS / (PLACES * lanes * (c->c_blocks + c->k_blocks));
    chunk = chunk < LEAST ? LEAST : chunk;
    return chunk < c->tiles ? chunk : c->tiles;
}

static int64_t weight_gradient_floats(const struct convolution *c)
{
    int64_t lanes = c->device->loops->lanes;
    int64_t sums = PLACES * c->c_blocks * even(c->k_blocks) * lanes * lanes;
    return sums + PLACES * gradient_chunk(c) * lanes * (c->c_blocks + even(c->k_blocks));
}

/* ---- creation ---- */

static enum status get_weight_layouts(group *g)
{
    int64_t lanes = g->device->loops->lanes;
    const dnnl_dims_t dims = {round_up(g->spec.op.attrs.out_channels, lanes),
                              round_up(g->spec.op.input[0].dim[1], lanes), 3, 3};
    return layout_get_params(g, dims, lanes == 16 ? dnnl_OIhw16i16o : dnnl_OIhw8i8o);
}

static enum status create(group *g)
{
    struct convolution forward = forward_of(g), data = data_gradient_of(g);
    TRY(get_weight_layouts(g));
    TRY(layout_get_blocked(g->device, &g->spec.op.output, &g->layouts.output));
    int64_t data_floats = g->spec.input_gradient ? pass_floats(&data) : 0;
    int64_t weight_floats = weight_gradient_floats(&forward);
    int64_t backward = data_floats > weight_floats ? data_floats : weight_floats;
    g->needs.reads_input = true;
    g->needs.forward_workspace_bytes = pass_floats(&forward) * (int64_t)sizeof(float);
    g->needs.backward_workspace_bytes = backward * (int64_t)sizeof(float);
    return STATUS_OK;
}

/* ---- forward, and the gradient of the data ---- */

static void clear_weights(const struct convolution *c, float *u, int64_t row, int64_t place)
{
    int lanes = c->device->loops->lanes;
    for (int e = 0; e < PLACES; e++)
        for (int l = 0; l < lanes; l++)
            memset(u + e * place + l * row, 0, (size_t)lanes * sizeof *u);
}

/* Block (kb, cb) of the weights, [k block][c block][3][3][c lanes][k lanes], into its rows of u.
 * For the data gradient the roles of k and c are exchanged. */
static void transform_weights(const struct convolution *c, bool turned, const float *w, float *u)
{
    int64_t lanes = c->device->loops->lanes, block = 9 * lanes * lanes;
    int64_t row = 2 * lanes, panel = c->c_blocks * lanes * row, place = c->k_pairs * panel;
#pragma omp for collapse(2) schedule(static)
    for (int64_t kb = 0; kb < even(c->k_blocks); kb++)
        for (int64_t cb = 0; cb < c->c_blocks; cb++) {
            int64_t from = turned ? cb * c->k_blocks + kb : kb * c->c_blocks + cb;
            float *to = u + kb / 2 * panel + cb * lanes * row + kb % 2 * lanes;
            if (kb < c->k_blocks)
                c->device->loops->winograd_weights(turned, w + from * block, to, row, place);
            else /* the second half of the last pair stands for nothing */
                clear_weights(c, to, row, place);
        }
}

/* Calls a loop for the tiles [first, first + count) of all images, image by image. */
struct tile_run {
    int64_t image, first, count, at;
};

static bool next_run(const struct convolution *c, int64_t first, int64_t count, struct tile_run *r)
{
    int64_t done = r->at + r->count;
    if (done >= count)
        return false;
    r->at = done;
    r->image = (first + done) / c->tiles_per_image;
    r->first = (first + done) % c->tiles_per_image;
    r->count = c->tiles_per_image - r->first;
    if (r->count > count - done)
        r->count = count - done;
    return true;
}

typedef void transform(const struct winograd_plane *p, int64_t first, int64_t count, const float *x,
                       float *v, int64_t place);

/* One block of channels of tiles [first, first + count) of x, to `to`. */
static void transform_block(const struct convolution *c, transform *f,
                            const struct winograd_plane *plane, int64_t blocks, int64_t block,
                            int64_t first, int64_t count, const float *x, float *to, int64_t place)
{
    int64_t lanes = c->device->loops->lanes, plane_floats = plane->height * plane->width * lanes;
    for (struct tile_run r = {0}; next_run(c, first, count, &r);)
        f(plane, r.first, r.count, x + (r.image * blocks + block) * plane_floats, to + r.at * lanes,
          place);
}

/* Common to the chunks of tiles of one pass. */
struct chunk_pass {
    const struct convolution *c;
    enum activation activation;
    const float *x, *u, *bias;
    float *y;
};

static void write_tiles(const struct chunk_pass *t, int64_t block, int64_t first, int64_t count,
                        const float *m, int64_t m_place)
{
    const struct convolution *c = t->c;
    int64_t lanes = c->device->loops->lanes, plane = c->out.height * c->out.width * lanes;
    for (struct tile_run r = {0}; next_run(c, first, count, &r);)
        c->device->loops->winograd_output(
            &c->out, t->activation, r.first, r.count, m + block * c->chunk * lanes + r.at * lanes,
            m_place, t->bias + block * lanes, t->y + (r.image * c->k_blocks + block) * plane);
}

static void convolve_chunk(const struct chunk_pass *t, int64_t number, float *work)
{
    const struct convolution *c = t->c;
    const struct cpu_loops *loops = c->device->loops;
    int64_t lanes = loops->lanes, block = c->chunk * lanes, first = number * c->chunk;
    int64_t count = c->tiles - first < c->chunk ? c->tiles - first : c->chunk;
    int64_t v_place = c->c_blocks * block, m_place = even(c->k_blocks) * block;
    float *v = work, *m = v + PLACES * v_place;
    for (int64_t b = 0; b < c->c_blocks; b++)
        transform_block(c, loops->winograd_input, &c->in, c->c_blocks, b, first, count, t->x,
                        v + b * block, v_place);
    int64_t panel = c->c_blocks * lanes * 2 * lanes, rows = round_up(count, loops->winograd_rows);
    for (int e = 0; e < PLACES; e++)
        for (int64_t pair = 0; pair < c->k_pairs; pair++)
            loops->winograd_product(rows, c->c_blocks, block, v + e * v_place,
                                    t->u + (e * c->k_pairs + pair) * panel, block,
                                    m + e * m_place + 2 * pair * block);
    for (int64_t b = 0; b < c->k_blocks; b++)
        write_tiles(t, b, first, count, m, m_place);
}

static void convolve(struct chunk_pass *pass, bool turned, const float *w, float *workspace)
{
    const struct convolution *c = pass->c;
    float *u = workspace, *chunks = workspace + weights_floats(c);
    int64_t n_chunks = (c->tiles + c->chunk - 1) / c->chunk;
    pass->u = u;
#pragma omp parallel num_threads(c->device->threads)
    {
        transform_weights(c, turned, w, u);
        float *own = chunks + omp_get_thread_num() * chunk_floats(c);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < n_chunks; i++)
            convolve_chunk(pass, i, own);
    }
}

/* Added where there is no bias. */
static const float no_bias[MAX_CHANNELS];

static enum status forward(group *g, const struct group_args *args)
{
    struct convolution c = forward_of(g);
    enum activation a = g->spec.activation;
    bool folds = can_fold(a);
    struct chunk_pass pass = {.c = &c,
                              .activation = folds ? a : ACTIVATION_NONE,
                              .x = args->input[0],
                              .bias = args->param[1] ? args->param[1] : no_bias,
                              .y = args->output};
    convolve(&pass, false, args->param[0], args->workspace);
    if (!folds && a != ACTIVATION_NONE)
        cpu_activate(g->device, g->layouts.output, a, args->output, args->output);
    return STATUS_OK;
}

static enum status backward_data(group *g, const struct group_args *args)
{
    struct convolution c = data_gradient_of(g);
    struct chunk_pass pass = {.c = &c,
                              .activation = ACTIVATION_NONE,
                              .x = args->output_grad[0],
                              .bias = no_bias,
                              .y = args->input_grad[0]};
    convolve(&pass, true, args->param[0], args->workspace);
    return STATUS_OK;
}

/* ---- the gradient of the weights ---- */

/* Shared by the threads while they sum over the tiles. */
struct weight_sums {
    const struct convolution *c;
    const float *x, *dy;
    float *s, *v, *z;
    int64_t block, v_place, z_place; /* of v and z, in floats */
};

static void transform_both(const struct weight_sums *w, int64_t first, int64_t count)
{
    enum { RUN = 64 }; /* tiles; enough items for every thread */
    const struct convolution *c = w->c;
    const struct cpu_loops *loops = c->device->loops;
#pragma omp for collapse(2) schedule(static)
    for (int64_t b = 0; b < c->c_blocks + c->k_blocks; b++)
        for (int64_t at = 0; at < count; at += RUN) {
            int64_t k = b - c->c_blocks, n = count - at < RUN ? count - at : RUN;
            int64_t to = at * loops->lanes;
            if (k < 0)
                transform_block(c, loops->winograd_input, &c->in, c->c_blocks, b, first + at, n,
                                w->x, w->v + b * w->block + to, w->v_place);
            else
                transform_block(c, loops->winograd_gradient, &c->out, c->k_blocks, k, first + at, n,
                                w->dy, w->z + k * w->block + to, w->z_place);
        }
}

static void multiply_both(const struct weight_sums *w, int64_t count)
{
    const struct convolution *c = w->c;
    int64_t lanes = c->device->loops->lanes, square = lanes * lanes;
#pragma omp for collapse(2) schedule(static)
    for (int64_t e = 0; e < PLACES; e++)
        for (int64_t cb = 0; cb < c->c_blocks; cb++)
            for (int64_t pair = 0; pair < c->k_pairs; pair++)
                c->device->loops->winograd_outer(
                    count, w->v + e * w->v_place + cb * w->block, w->block,
                    w->z + e * w->z_place + 2 * pair * w->block, square,
                    w->s + ((e * c->c_blocks + cb) * even(c->k_blocks) + 2 * pair) * square);
}

static void write_gradient(const struct weight_sums *w, float *dw)
{
    const struct convolution *c = w->c;
    int64_t lanes = c->device->loops->lanes, square = lanes * lanes;
    int64_t place = c->c_blocks * even(c->k_blocks) * square;
#pragma omp for collapse(2) schedule(static)
    for (int64_t kb = 0; kb < c->k_blocks; kb++)
        for (int64_t cb = 0; cb < c->c_blocks; cb++)
            c->device->loops->winograd_weights_gradient(
                w->s + (cb * even(c->k_blocks) + kb) * square, place,
                dw + (kb * c->c_blocks + cb) * 9 * square);
}

static void sum_bias_gradient(const struct convolution *c, const float *dy, float *db)
{
    const struct cpu_loops *loops = c->device->loops;
    int64_t plane = c->out.height * c->out.width;
#pragma omp for schedule(static)
    for (int64_t b = 0; b < c->k_blocks; b++) {
        float part[LOOPS_MAX_LANES], *sum = db + b * loops->lanes;
        for (int l = 0; l < loops->lanes; l++)
            sum[l] = 0;
        for (int64_t n = 0; n < c->n; n++) {
            struct lane_plane p = {plane, loops->lanes, loops->lanes};
            loops->sum_plane(p, dy + (n * c->k_blocks + b) * plane * loops->lanes, part);
            for (int l = 0; l < loops->lanes; l++)
                sum[l] += part[l];
        }
    }
}

static enum status backward_weights(group *g, const struct group_args *args)
{
    struct convolution c = forward_of(g);
    int64_t lanes = g->device->loops->lanes, chunk = gradient_chunk(&c), block = chunk * lanes;
    int64_t sums = PLACES * c.c_blocks * even(c.k_blocks) * lanes * lanes;
    struct weight_sums w = {.c = &c,
                            .x = args->input[0],
                            .dy = args->output_grad[0],
                            .s = args->workspace,
                            .v = (float *)args->workspace + sums,
                            .block = block,
                            .v_place = c.c_blocks * block,
                            .z_place = even(c.k_blocks) * block};
    w.z = w.v + PLACES * w.v_place;
    memset(w.s, 0, (size_t)sums * sizeof *w.s);
#pragma omp parallel num_threads(g->device->threads)
    {
        for (int64_t first = 0; first < c.tiles; first += chunk) {
            int64_t left = c.tiles - first, count = left < chunk ? left : chunk;
            transform_both(&w, first, count);
            multiply_both(&w, count);
        }
        write_gradient(&w, args->param_grad[0]);
        if (args->param_grad[1])
            sum_bias_gradient(&c, w.dy, args->param_grad[1]);
    }
    return STATUS_OK;
}

const struct op_kernels cpu_winograd = {
    .group_bytes = sizeof(struct group),
    .wants_blocked = true,
    .create = create,
    .run = {[PASS_FORWARD] = forward,
            [PASS_BACKWARD_DATA] = backward_data,
            [PASS_BACKWARD_WEIGHTS] = backward_weights},
};
