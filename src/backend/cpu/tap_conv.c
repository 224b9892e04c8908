/* Convolution of tiny images with many channels, as matrix products of one window element (a tap)
 * at a time.
 *
 * Where an image has only a few places, most of a window lies in the padding, and the rest is
 * little work over many weights. Tensors are repacked with places outermost, [h, w, n, c], so that
 * the images of neighbouring places are the rows of one matrix. Then, for every tap (r, s) and
 * every run of output places q..q+len of one row that it reaches,
 *
 *     forward    Y[p, q..]  += X[h, w..] W[r, s]         rows: len n, columns: output channels
 *     data       dX[h, w..] += dY[p, q..] W[r, s]^T
 *     weights    dW[r, s]   += X[h, w..]^T dY[p, q..]
 *
 * with W as [r, s, c, k]. Taps that reach no place are never touched. */
#include "backend/cpu/tap_conv.h"

#include "backend/cpu/convert.h"

#include <string.h>

/* Winograd's convolution needs more places than this, or more images, to pay for its transforms of
 * the weights. */
enum { LEAST_CHANNELS = 16, FEW_PLACES = 4, MOST_PLACES = 16, MOST_ROWS = 256 };

bool tap_conv_suits(const group *g)
{
    const struct op_case *op = &g->spec.op;
    const struct shape *in = &op->input[0], *out = &op->output;
    int64_t places = out->dim[2] * out->dim[3];
    bool few = places <= FEW_PLACES || (places <= MOST_PLACES && out->dim[0] * places <= MOST_ROWS);
    return few && op->attrs.groups == 1 && in->dim[1] >= LEAST_CHANNELS &&
           out->dim[1] >= LEAST_CHANNELS && in->dim[2] * in->dim[3] <= 16 * MOST_PLACES;
}

/* A tensor as [h, w, n, c]. */
struct packed {
    int64_t n, height, width, channels; /* channels rounded up */
    float *at;
};

struct taps {
    const group *g;
    struct packed x, y;
};

static struct packed describe(const device *d, const struct shape *s)
{
    return (struct packed){s->dim[0], s->dim[2], s->dim[3], round_up(s->dim[1], d->loops->lanes),
                           NULL};
}

static int64_t floats_of(const struct packed *p)
{
    return p->n * p->height * p->width * p->channels;
}

static struct taps sizes_of(const group *g)
{
    return (struct taps){.g = g,
                         .x = describe(g->device, &g->spec.op.input[0]),
                         .y = describe(g->device, &g->spec.op.output)};
}

static struct taps taps_of(const group *g, void *workspace)
{
    struct taps t = sizes_of(g);
    t.x.at = workspace;
    t.y.at = t.x.at + floats_of(&t.x);
    return t;
}

static enum status create(group *g)
{
    const struct op_attrs *a = &g->spec.op.attrs;
    struct taps t = sizes_of(g);
    const dnnl_dims_t dims = {t.y.channels, t.x.channels, a->kernel[0], a->kernel[1]};
    TRY(layout_get_params(g, dims, dnnl_hwio));
    TRY(layout_get_blocked(g->device, &g->spec.op.output, &g->layouts.output));
    int64_t floats = floats_of(&t.x) + floats_of(&t.y);
    g->needs.reads_input = true;
    g->needs.forward_workspace_bytes = floats * (int64_t)sizeof(float);
    g->needs.backward_workspace_bytes = floats * (int64_t)sizeof(float);
    return STATUS_OK;
}

/* ---- between [n, C/B, h, w, B] and [h, w, n, c] ---- */

static void repack(const device *d, const struct packed *p, float *blocked, bool back)
{
    int64_t lanes = d->loops->lanes, blocks = p->channels / lanes, places = p->height * p->width;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t b = 0; b < blocks; b++)
            for (int64_t place = 0; place < places; place++) {
                float *there = blocked + ((n * blocks + b) * places + place) * lanes;
                float *here = p->at + (place * p->n + n) * p->channels + b * lanes;
                memcpy(back ? there : here, back ? here : there, (size_t)lanes * sizeof *here);
            }
}

static void pack(const device *d, const struct packed *p, const void *blocked)
{
    repack(d, p, (float *)blocked, false);
}

/* ---- runs of places that one tap reaches ---- */

struct tap_run {
    int64_t rows; /* places times images */
    float *x, *y;
};

/* Calls of next_run go through the runs of tap (r, s); p and q begin at 0. */
struct tap_walk {
    int64_t r, s, p, q;
};

static bool next_run(const struct taps *t, struct tap_walk *w, struct tap_run *run)
{
    const struct op_attrs *a = &t->g->spec.op.attrs;
    int64_t down = a->dilation[0] ? a->dilation[0] : 1, right = a->dilation[1] ? a->dilation[1] : 1;
    for (; w->p < t->y.height; w->p++, w->q = 0) {
        int64_t h = w->p * a->stride[0] - a->pad_before[0] + w->r * down;
        for (; h >= 0 && h < t->x.height && w->q < t->y.width; w->q++) {
            int64_t x = w->q * a->stride[1] - a->pad_before[1] + w->s * right, length = 1;
            if (x < 0 || x >= t->x.width)
                continue;
            while (a->stride[1] == 1 && w->q + length < t->y.width && x + length < t->x.width)
                length++;
            run->rows = length * t->x.n;
            run->x = t->x.at + (h * t->x.width + x) * t->x.n * t->x.channels;
            run->y = t->y.at + (w->p * t->y.width + w->q) * t->y.n * t->y.channels;
            w->q += length;
            return true;
        }
    }
    return false;
}

/* Called for every run of every tap; `first` of its tap. */
typedef enum status run_function(const struct taps *t, const struct tap_run *run, float *weights,
                                 bool first);

static enum status for_all_runs(const struct taps *t, float *weights, run_function *run_one,
                                bool clear_unreached)
{
    const struct op_attrs *a = &t->g->spec.op.attrs;
    int64_t size = t->x.channels * t->y.channels;
    for (int64_t r = 0; r < a->kernel[0]; r++)
        for (int64_t s = 0; s < a->kernel[1]; s++, weights += size) {
            struct tap_walk walk = {.r = r, .s = s};
            struct tap_run run;
            bool first = true;
            for (; next_run(t, &walk, &run); first = false)
                TRY(run_one(t, &run, weights, first));
            if (first && clear_unreached)
                memset(weights, 0, (size_t)size * sizeof *weights);
        }
    return STATUS_OK;
}

static enum status multiply_forward(const struct taps *t, const struct tap_run *run, float *weights,
                                    bool first)
{
    (void)first;
    int64_t c = t->x.channels, k = t->y.channels;
    TRY_DNNL(dnnl_sgemm('N', 'N', run->rows, k, c, 1, run->x, c, weights, k, 1, run->y, k));
    return STATUS_OK;
}

static enum status multiply_data(const struct taps *t, const struct tap_run *run, float *weights,
                                 bool first)
{
    (void)first;
    int64_t c = t->x.channels, k = t->y.channels;
    TRY_DNNL(dnnl_sgemm('N', 'T', run->rows, c, k, 1, run->y, k, weights, k, 1, run->x, c));
    return STATUS_OK;
}

static enum status multiply_weights(const struct taps *t, const struct tap_run *run, float *weights,
                                    bool first)
{
    int64_t c = t->x.channels, k = t->y.channels;
    TRY_DNNL(
        dnnl_sgemm('T', 'N', c, k, run->rows, 1, run->x, c, run->y, k, first ? 0 : 1, weights, k));
    return STATUS_OK;
}

/* ---- the passes ---- */

static enum status forward(group *g, const struct group_args *args)
{
    struct taps t = taps_of(g, args->workspace);
    const float *bias = args->param[1];
    size_t row_bytes = (size_t)t.y.channels * sizeof(float);
    pack(g->device, &t.x, args->input[0]);
    for (int64_t i = 0; i < floats_of(&t.y); i += t.y.channels) {
        if (bias)
            memcpy(t.y.at + i, bias, row_bytes);
        else
            memset(t.y.at + i, 0, row_bytes);
    }
    TRY(for_all_runs(&t, args->param[0], multiply_forward, false));
    repack(g->device, &t.y, args->output, true);
    if (g->spec.activation != ACTIVATION_NONE)
        cpu_activate(g->device, g->layouts.output, g->spec.activation, args->output, args->output);
    return STATUS_OK;
}

static enum status backward_data(group *g, const struct group_args *args)
{
    struct taps t = taps_of(g, args->workspace);
    pack(g->device, &t.y, args->output_grad[0]);
    memset(t.x.at, 0, (size_t)floats_of(&t.x) * sizeof(float));
    TRY(for_all_runs(&t, args->param[0], multiply_data, false));
    repack(g->device, &t.x, args->input_grad[0], true);
    return STATUS_OK;
}

static enum status backward_weights(group *g, const struct group_args *args)
{
    struct taps t = taps_of(g, args->workspace);
    float *db = args->param_grad[1];
    pack(g->device, &t.x, args->input[0]);
    pack(g->device, &t.y, args->output_grad[0]);
    TRY(for_all_runs(&t, args->param_grad[0], multiply_weights, true));
    if (!db)
        return STATUS_OK;
    memset(db, 0, (size_t)t.y.channels * sizeof *db);
    for (int64_t i = 0; i < floats_of(&t.y); i += t.y.channels)
        for (int64_t k = 0; k < t.y.channels; k++)
            db[k] += t.y.at[i + k];
    return STATUS_OK;
}

const struct op_kernels cpu_tap_conv = {
    .group_bytes = sizeof(struct group),
    .wants_blocked = true,
    .create = create,
    .run = {[PASS_FORWARD] = forward,
            [PASS_BACKWARD_DATA] = backward_data,
            [PASS_BACKWARD_WEIGHTS] = backward_weights},
};
