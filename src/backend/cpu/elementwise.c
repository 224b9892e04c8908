/* Activations, sums, dropout, and the folding of gradients: one pass over flat memory, cut evenly
 * among the threads. */
#include "backend/cpu/convert.h"
#include "base/numbers.h"
#include "base/random.h"

/* Less than this is not worth waking other threads for. */
enum { SERIAL_FLOATS = 1 << 13 };

/* Into how many pieces n floats are cut. */
static int pieces_of(const device *d, int64_t n)
{
    return n < SERIAL_FLOATS ? 1 : d->threads;
}

static int64_t floats_of(const layout *l)
{
    return l->n_bytes / (int64_t)sizeof(float);
}

void cpu_activate(const device *d, const layout *l, enum activation a, const float *x, float *y)
{
    int64_t n = floats_of(l);
    int pieces = pieces_of(d, n);
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = floats_part(n, pieces, i);
        d->loops->activate(a, r.end - r.begin, x + r.begin, y + r.begin);
    }
    if (a == ACTIVATION_LOGISTIC) /* the one that does not keep zero */
        clear_added_channels(d, l, y);
}

enum status cpu_fold(stream *s, const layout *l, int n_addends, const void *const *addends,
                     enum activation activation, const void *output, void *to)
{
    const device *d = s->device;
    int64_t n = floats_of(l);
    int pieces = pieces_of(d, n);
    if (l->type == ELEMENT_BF16) {
        narrow_fold(d, l->n_bytes / element_bytes(l->type), n_addends, addends, activation, output,
                    to);
        return STATUS_OK;
    }
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = floats_part(n, pieces, i);
        const float *from[GROUP_MAX_ADDENDS];
        for (int k = 0; k < n_addends; k++)
            from[k] = (const float *)addends[k] + r.begin;
        d->loops->fold(activation, r.end - r.begin, n_addends, from,
                       output ? (const float *)output + r.begin : NULL, (float *)to + r.begin);
    }
    return STATUS_OK;
}

/* ---- activation ---- */

static enum activation activation_of_op(const group *g)
{
    return op_get_info(g->spec.op.op)->activation;
}

static enum status create_activation(group *g)
{
    g->layouts.output = g->layouts.input[0];
    g->needs.reads_output = true;
    g->needs.in_place_gradient = true;
    return STATUS_OK;
}

static enum status forward_activation(group *g, const struct group_args *args)
{
    cpu_activate(g->device, g->layouts.output, activation_of_op(g), args->input[0], args->output);
    return STATUS_OK;
}

static enum status backward_activation(group *g, const struct group_args *args)
{
    stream s = {g->device};
    if (!args->input_grad[0])
        return STATUS_OK;
    return cpu_fold(&s, g->layouts.output, args->n_output_grads, args->output_grad,
                    activation_of_op(g), args->output, args->input_grad[0]);
}

const struct op_kernels cpu_activation = {
    .group_bytes = sizeof(struct group),
    .create = create_activation,
    .run = {[PASS_FORWARD] = forward_activation, [PASS_BACKWARD] = backward_activation},
};

/* ---- sum ---- */

static enum status create_add(group *g)
{
    return layout_like(g->device, g->layouts.input[0], &g->spec.op.output, &g->layouts.output);
}

static enum status forward_add(group *g, const struct group_args *args)
{
    const device *d = g->device;
    int64_t n = floats_of(g->layouts.output);
    int n_inputs = g->spec.op.n_inputs;
    int pieces = pieces_of(d, n);
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = floats_part(n, pieces, i);
        const float *from[OP_MAX_INPUTS];
        for (int k = 0; k < n_inputs; k++)
            from[k] = (const float *)args->input[k] + r.begin;
        d->loops->add(g->spec.activation, r.end - r.begin, n_inputs, from,
                      (float *)args->output + r.begin);
    }
    if (g->spec.activation == ACTIVATION_LOGISTIC)
        clear_added_channels(d, g->layouts.output, args->output);
    return STATUS_OK;
}

/* Its gradient is handed on without a computation (OP_PASSES_GRADIENT). */
const struct op_kernels cpu_add = {
    .group_bytes = sizeof(struct group),
    .wants_blocked = true,
    .create = create_add,
    .run = {[PASS_FORWARD] = forward_add},
};

/* ---- dropout ---- */

static enum status create_dropout(group *g)
{
    g->layouts.output = g->layouts.input[0];
    g->needs.output_is_input = !g->spec.training || g->spec.op.attrs.drop_probability == 0;
    g->needs.in_place_gradient = true;
    return STATUS_OK;
}

/* How the elements of a piece are numbered: by their index in the whole tensor. */
struct numbering {
    int rank;
    int64_t local[SHAPE_MAX_RANK], whole[SHAPE_MAX_RANK], origin[SHAPE_MAX_RANK];
};

/* The first axis is never multiplied with, so it need not be as long as the batch. */
static struct numbering numbering_of(const group *g, const struct group_args *args)
{
    const struct shape *out = &g->spec.op.output, *whole = &g->spec.whole;
    struct numbering n = {.rank = out->rank};
    for (int a = 0; a < n.rank; a++) {
        n.local[a] = out->dim[a];
        n.whole[a] = whole->rank ? whole->dim[a] : out->dim[a];
        n.origin[a] = whole->rank ? g->spec.origin[a] : 0;
        if (g->spec.op.output_axes.use[a] == USE_BATCH)
            n.origin[a] += args->first_sample;
    }
    return n;
}

static int64_t index_of(const struct numbering *n, const int64_t *at)
{
    int64_t index = 0;
    for (int a = 0; a < n->rank; a++)
        index = index * n->whole[a] + n->origin[a] + at[a];
    return index;
}

/* One pass of dropout over x. */
struct dropping {
    const group *g;
    const struct step_state *step;
    struct numbering numbering;
    uint32_t threshold;
    float scale;
    const float *x;
    float *y;
};

/* A run of elements whose numbers follow each other. */
static void drop_run(const struct dropping *d, int64_t at, int64_t n, int64_t index)
{
    d->g->device->loops->dropout(n, d->step->seed, d->g->spec.random_stream, d->step->step,
                                 (uint64_t)index, d->threshold, d->scale, d->x + at, d->y + at);
}

/* Blocked tensors: the mask belongs to the element's plain index, wherever the element lies. */
static void drop_blocked(const struct dropping *d)
{
    const group *g = d->g;
    const struct random_key key = {d->step->seed, RANDOM_DROPOUT, g->spec.random_stream};
    const int64_t width = int64_max(d->numbering.local[3], 1);
    struct view v;
    layout_view(g->device, g->layouts.output, &v);
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < v.n * v.blocks; i++)
        for (int64_t k = 0; k < v.block_stride; k++) {
            int64_t channel = i % v.blocks * v.block + k % v.block, place = k / v.block;
            const int64_t at[] = {i / v.blocks, channel, place / width, place % width};
            int64_t to = i * v.block_stride + k;
            bool kept = channel < v.channels &&
                        random_word(key, d->step->step, (uint64_t)index_of(&d->numbering, at)) >=
                            d->threshold;
            d->y[to] = kept ? d->x[to] * d->scale : 0;
        }
}

/* Plain tensors, in runs as long as the whole has no gaps; the whole itself is one run, which the
 * threads share. */
static void drop_plain(const struct dropping *d)
{
    const struct numbering *n = &d->numbering;
    const device *dev = d->g->device;
    int axis = n->rank - 1;
    int64_t run = n->local[axis], rows = 1;
    while (axis > 0 && n->local[axis] == n->whole[axis])
        run *= n->local[--axis];
    for (int a = 0; a < axis; a++)
        rows *= n->local[a];
    int pieces = pieces_of(dev, rows * run);
    if (rows == 1) {
        int64_t first = index_of(n, (const int64_t[SHAPE_MAX_RANK]){0});
#pragma omp parallel for num_threads(pieces) schedule(static)
        for (int i = 0; i < pieces; i++) {
            struct range r = floats_part(run, pieces, i);
            drop_run(d, r.begin, r.end - r.begin, first + r.begin);
        }
        return;
    }
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at[SHAPE_MAX_RANK] = {0}, left = row;
        for (int a = axis - 1; a >= 0; left /= n->local[a--])
            at[a] = left % n->local[a];
        drop_run(d, row * run, run, index_of(n, at));
    }
}

static struct dropping dropping_of(const group *g, const struct group_args *args)
{
    double p = g->spec.op.attrs.drop_probability;
    return (struct dropping){.g = g,
                             .step = g->step,
                             .numbering = numbering_of(g, args),
                             .threshold = (uint32_t)(p * 0x1p32),
                             .scale = (float)(1 / (1 - p))};
}

static void drop(const struct dropping *d)
{
    bool blocked = d->g->layouts.output->kind == LAYOUT_BLOCKED;
    struct view v = {0};
    if (blocked)
        layout_view(d->g->device, d->g->layouts.output, &v);
    if (blocked && (v.plane > 1 || v.channels % v.block)) /* otherwise plain in all but name */
        drop_blocked(d);
    else
        drop_plain(d);
}

static enum status forward_dropout(group *g, const struct group_args *args)
{
    struct dropping d = dropping_of(g, args);
    d.x = args->input[0];
    d.y = args->output;
    drop(&d);
    return STATUS_OK;
}

static enum status backward_dropout(group *g, const struct group_args *args)
{
    struct dropping d = dropping_of(g, args);
    d.x = args->output_grad[0];
    d.y = args->input_grad[0];
    if (d.y)
        drop(&d);
    return STATUS_OK;
}

const struct op_kernels cpu_dropout = {
    .group_bytes = sizeof(struct group),
    .create = create_dropout,
    .run = {[PASS_FORWARD] = forward_dropout, [PASS_BACKWARD] = backward_dropout},
};
