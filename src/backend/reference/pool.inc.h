/* Pools: the maximum or the average of a window, per sample and channel. */

/* ---- maximum: padding never wins; the first of equal maxima gets the gradient ---- */

/* The place of the window's maximum in the input plane, -1 where the window is all padding. */
static int64_t max_place(const struct window *rows, const struct window *cols, const REAL *plane,
                         int64_t p, int64_t q)
{
    const struct range r_inside = window_taps(rows, p), s_inside = window_taps(cols, q);
    int64_t best = -1;
    for (int64_t r = r_inside.begin; r < r_inside.end; r++)
        for (int64_t s = s_inside.begin; s < s_inside.end; s++) {
            int64_t i = window_index(rows, p, r) * cols->in + window_index(cols, q, s);
            if (best < 0 || plane[i] > plane[best] || isnan(plane[i]))
                best = i;
        }
    return best;
}

static enum status max_pool_forward(const struct kernel_call *call)
{
    const struct op_case *op = &call->spec->op;
    const struct window rows = window_of(op, 0), cols = window_of(op, 1);
    const REAL *input = input_of(call, 0);
    int32_t *places = call->spec->training ? call->args->saved : NULL; /* [n, c, p, q] */
    const int64_t n_planes = op->input[0].dim[0] * op->input[0].dim[1];
    int64_t o = 0;
    for (int64_t i = 0; i < n_planes; i++) {
        const REAL *plane = input + i * rows.in * cols.in;
        for (int64_t p = 0; p < rows.out; p++)
            for (int64_t q = 0; q < cols.out; q++, o++) {
                int64_t best = max_place(&rows, &cols, plane, p, q);
                emit(call, o, best < 0 ? -INFINITY : (double)plane[best]);
                if (places)
                    places[o] = (int32_t)best;
            }
    }
    return STATUS_OK;
}

static enum status max_pool_backward(const struct kernel_call *call)
{
    const struct op_case *op = &call->spec->op;
    const struct dims in = dims_of(&op->input[0]), out = dims_of(&op->output);
    const REAL *output_grad = call->output_grad;
    const int32_t *places = call->args->saved;
    REAL *input_grad = call->args->input_grad[0];
    const int64_t in_plane = in.h * in.w, out_plane = out.h * out.w;
    double *sum = call->args->workspace; /* [h, w] */
    for (int64_t i = 0; input_grad && i < in.n * in.c; i++) {
        set_zero(in_plane, sum);
        for (int64_t o = i * out_plane; o < (i + 1) * out_plane; o++)
            if (places[o] >= 0)
                sum[places[o]] += (double)output_grad[o];
        copy_rounded(in_plane, sum, input_grad + i * in_plane);
    }
    return STATUS_OK;
}

/* ---- averages: fixed windows, windows that adapt to the sizes, the whole plane ---- */

/* The existing input elements under a window along one axis: first, first + step, ... */
struct span {
    int64_t first, count, step;
};

static struct span average_span(const struct op_case *op, int axis, int64_t place)
{
    const struct window w = window_of(op, axis);
    const struct range taps = window_taps(&w, place);
    return (struct span){window_index(&w, place, taps.begin), taps.end - taps.begin, w.dilation};
}

/* floor(p H / P) .. ceil((p + 1) H / P), of the whole if this is a piece. */
static struct span adaptive_span(const struct op_case *op, int axis, int64_t place)
{
    const struct op_attrs *a = &op->attrs;
    const bool piece = a->whole_in[axis] != 0;
    const int64_t in = piece ? a->whole_in[axis] : op->input[0].dim[2 + axis];
    const int64_t out = piece ? a->whole_out[axis] : op->output.dim[2 + axis];
    if (piece)
        place += a->first_out[axis];
    const int64_t first = place * in / out, end = ((place + 1) * in + out - 1) / out;
    return (struct span){first - (piece ? a->first_in[axis] : 0), end - first, 1};
}

/* All that is there, whether it is the whole or a piece of it. */
static struct span global_span(const struct op_case *op, int axis, int64_t place)
{
    (void)place;
    return (struct span){0, op->input[0].dim[2 + axis], 1};
}

typedef struct span span_rule(const struct op_case *op, int axis, int64_t place);

static span_rule *const span_rules[OP_KIND_COUNT] = {
    [OP_AVERAGE_POOL] = average_span,
    [OP_GLOBAL_POOL] = global_span,
    [OP_ADAPTIVE_POOL] = adaptive_span,
};

static double average_divisor(const struct op_case *op, const struct span *h, const struct span *w)
{
    if (op->op == OP_AVERAGE_POOL && op->attrs.count_padding)
        return (double)(op->attrs.kernel[0] * op->attrs.kernel[1]);
    if (op->op == OP_GLOBAL_POOL && op->attrs.whole_in[0])
        return (double)(op->attrs.whole_in[0] * op->attrs.whole_in[1]);
    return (double)(h->count * w->count);
}

static enum status average_forward(const struct kernel_call *call)
{
    const struct op_case *op = &call->spec->op;
    span_rule *span = span_rules[op->op];
    const struct dims in = dims_of(&op->input[0]), out = dims_of(&op->output);
    const REAL *input = input_of(call, 0);
    for (int64_t p = 0; p < out.h; p++)
        for (int64_t q = 0; q < out.w; q++) {
            const struct span h = span(op, 0, p), w = span(op, 1, q);
            const double divisor = average_divisor(op, &h, &w);
            for (int64_t i = 0; i < in.n * in.c; i++) {
                const REAL *plane = input + i * in.h * in.w;
                double sum = 0;
                for (int64_t r = 0; r < h.count; r++)
                    for (int64_t s = 0; s < w.count; s++)
                        sum += (double)plane[(h.first + r * h.step) * in.w + w.first + s * w.step];
                emit(call, (i * out.h + p) * out.w + q, divisor > 0 ? sum / divisor : 0);
            }
        }
    return STATUS_OK;
}

static enum status average_backward(const struct kernel_call *call)
{
    const struct op_case *op = &call->spec->op;
    span_rule *span = span_rules[op->op];
    const struct dims in = dims_of(&op->input[0]), out = dims_of(&op->output);
    const REAL *output_grad = call->output_grad;
    REAL *input_grad = call->args->input_grad[0];
    double *sum = call->args->workspace; /* [h, w] */
    for (int64_t i = 0; input_grad && i < in.n * in.c; i++) {
        set_zero(in.h * in.w, sum);
        for (int64_t p = 0; p < out.h; p++)
            for (int64_t q = 0; q < out.w; q++) {
                const struct span h = span(op, 0, p), w = span(op, 1, q);
                const double divisor = average_divisor(op, &h, &w);
                const double share = (double)output_grad[(i * out.h + p) * out.w + q] / divisor;
                for (int64_t r = 0; r < h.count; r++)
                    for (int64_t s = 0; s < w.count; s++)
                        sum[(h.first + r * h.step) * in.w + w.first + s * w.step] += share;
            }
        copy_rounded(in.h * in.w, sum, input_grad + i * in.h * in.w);
    }
    return STATUS_OK;
}
