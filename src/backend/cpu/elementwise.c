/* Activations, sums, dropout, and the folding of gradients: one pass over flat memory, cut evenly
 * among the threads. */
#include "backend/cpu/convert.h"
#include "base/random.h"

/* Less than this is not worth waking other threads for. */
enum { SERIAL_FLOATS = 1 << 13 };

/* Into how many pieces n floats are cut, and piece i of them, begun at a whole vector. */
static int pieces_of(const device *d, int64_t n)
{
    return n < SERIAL_FLOATS ? 1 : d->threads;
}

static struct range piece(int64_t n, int pieces, int i)
{
    int64_t vectors = n / LOOPS_MAX_LANES;
    return (struct range){vectors * i / pieces * LOOPS_MAX_LANES,
                          i + 1 == pieces ? n : vectors * (i + 1) / pieces * LOOPS_MAX_LANES};
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
        struct range r = piece(n, pieces, i);
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
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = piece(n, pieces, i);
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

static enum status forward_activation(group *g, const struct group_args *args,
                                      const struct step_state *step)
{
    (void)step;
    cpu_activate(g->device, g->layouts.output, activation_of_op(g), args->input[0], args->output);
    return STATUS_OK;
}

static enum status backward_activation(group *g, const struct group_args *args,
                                       const struct step_state *step)
{
    (void)step;
    stream s = {g->device};
    if (!args->input_grad[0])
        return STATUS_OK;
    return cpu_fold(&s, g->layouts.output, args->n_output_grads, args->output_grad,
                    activation_of_op(g), args->output, args->input_grad[0]);
}

const struct kernel_family cpu_activation = {
    .group_bytes = sizeof(struct group),
    .create = create_activation,
    .run = {[PASS_FORWARD] = forward_activation, [PASS_BACKWARD] = backward_activation},
};

/* ---- sum ---- */

static enum status create_add(group *g)
{
    return layout_like(g->device, g->layouts.input[0], &g->spec.op.output, &g->layouts.output);
}

static enum status forward_add(group *g, const struct group_args *args,
                               const struct step_state *step)
{
    (void)step;
    const device *d = g->device;
    int64_t n = floats_of(g->layouts.output);
    int n_inputs = g->spec.op.n_inputs;
    int pieces = pieces_of(d, n);
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = piece(n, pieces, i);
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
const struct kernel_family cpu_add = {
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

/* Blocked tensors: the mask belongs to the element's plain index, wherever the element lies. */
static void drop_blocked(const group *g, const struct step_state *step, uint32_t threshold,
                         float scale, const float *x, float *y)
{
    const struct random_key key = {step->seed, RANDOM_DROPOUT, g->spec.random_stream};
    struct view v;
    layout_view(g->device, g->layouts.output, &v);
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < v.n * v.blocks; i++)
        for (int64_t k = 0; k < v.block_stride; k++) {
            int64_t channel = i % v.blocks * v.block + k % v.block;
            int64_t index = (i / v.blocks * v.channels + channel) * v.plane + k / v.block;
            int64_t at = i * v.block_stride + k;
            bool kept =
                channel < v.channels && random_word(key, step->step, (uint64_t)index) >= threshold;
            y[at] = kept ? x[at] * scale : 0;
        }
}

static void drop(const group *g, const struct step_state *step, const float *x, float *y)
{
    const device *d = g->device;
    double p = g->spec.op.attrs.drop_probability;
    uint32_t threshold = (uint32_t)(p * 0x1p32);
    float scale = (float)(1 / (1 - p));
    struct view v = {0};
    if (g->layouts.output->kind == LAYOUT_BLOCKED) {
        layout_view(d, g->layouts.output, &v);
        if (v.plane > 1 || v.channels % v.block) {
            drop_blocked(g, step, threshold, scale, x, y);
            return;
        }
    }
    int64_t n = floats_of(g->layouts.output);
    int pieces = pieces_of(d, n);
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = piece(n, pieces, i);
        d->loops->dropout(r.end - r.begin, step->seed, g->spec.random_stream, step->step,
                          (uint64_t)r.begin, threshold, scale, x + r.begin, y + r.begin);
    }
}

static enum status forward_dropout(group *g, const struct group_args *args,
                                   const struct step_state *step)
{
    drop(g, step, args->input[0], args->output);
    return STATUS_OK;
}

static enum status backward_dropout(group *g, const struct group_args *args,
                                    const struct step_state *step)
{
    if (args->input_grad[0])
        drop(g, step, args->output_grad[0], args->input_grad[0]);
    return STATUS_OK;
}

const struct kernel_family cpu_dropout = {
    .group_bytes = sizeof(struct group),
    .create = create_dropout,
    .run = {[PASS_FORWARD] = forward_dropout, [PASS_BACKWARD] = backward_dropout},
};
