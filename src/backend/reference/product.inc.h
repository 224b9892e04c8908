/* Convolution and linear: sums of products of inputs and weights.
 *
 *     output[n, k, p, q] = bias[k] + sum over c, r, s of
 *                          weight[k, c, r, s] * input[n, first(k) + c, stride p + dilation r - pad,
 * ...]
 *
 * first(k) is the first input channel of k's group. The three passes walk the same loops: for a
 * pair of channels and a tap (r, s), the rows p whose input row exists, and along a row the q whose
 * input element exists. A pass differs in which of the three tensors it sums into.
 */

struct conv {
    struct dims in, out;
    struct window rows, cols;
    int64_t group_in, group_out; /* channels per group */
    int64_t taps;                /* kernel height times width */
};

static struct conv conv_of(const struct op_case *op)
{
    struct conv v = {.in = dims_of(&op->input[0]),
                     .out = dims_of(&op->output),
                     .rows = window_of(op, 0),
                     .cols = window_of(op, 1)};
    v.group_in = v.in.c / op->attrs.groups;
    v.group_out = v.out.c / op->attrs.groups;
    v.taps = v.rows.kernel * v.cols.kernel;
    /* Equal sizes at stride 1 leave no room for padding. */
    bool pointwise = v.taps == 1 && v.rows.stride == 1 && v.cols.stride == 1 && v.in.h == v.out.h &&
                     v.in.w == v.out.w;
    if (pointwise) { /* a plane is one long row: the loops along rows get long */
        v.in.w = v.out.w = v.cols.in = v.cols.out = v.in.h * v.in.w;
        v.in.h = v.out.h = v.rows.in = v.rows.out = 1;
    }
    return v;
}

/* Where, for one tap, the rows and columns of the output meet existing elements of the input. */
struct tap {
    int64_t r, s;
    struct range p, q;
    int64_t count;    /* along a row */
    int64_t in_start; /* column of the input met by column q.begin */
};

static struct tap tap_of(const struct conv *v, int64_t index)
{
    struct tap t = {.r = index / v->cols.kernel, .s = index % v->cols.kernel};
    t.p = window_places(&v->rows, t.r);
    t.q = window_places(&v->cols, t.s);
    t.count = t.q.end - t.q.begin;
    t.in_start = window_index(&v->cols, t.q.begin, t.s);
    return t;
}

static int64_t in_offset(const struct conv *v, const struct tap *t, int64_t p)
{
    return window_index(&v->rows, p, t->r) * v->in.w + t->in_start;
}

static int64_t out_offset(const struct conv *v, const struct tap *t, int64_t p)
{
    return p * v->out.w + t->q.begin;
}

static enum status conv_forward(const struct kernel_call *call)
{
    const struct conv v = conv_of(&call->spec->op);
    const REAL *input = input_of(call, 0);
    const REAL *weight = call->args->param[0], *bias = call->args->param[1];
    const int64_t in_plane = v.in.h * v.in.w, out_plane = v.out.h * v.out.w;
    double *sum = call->args->workspace; /* [p, q] */
    for (int64_t n = 0; n < v.out.n; n++)
        for (int64_t k = 0; k < v.out.c; k++) {
            for (int64_t i = 0; i < out_plane; i++)
                sum[i] = call->spec->op.attrs.bias ? (double)bias[k] : 0;
            const REAL *x = input + (n * v.in.c + k / v.group_out * v.group_in) * in_plane;
            for (int64_t i = 0; i < v.taps; i++) {
                const struct tap t = tap_of(&v, i);
                for (int64_t c = 0; t.count > 0 && c < v.group_in; c++) {
                    double w = (double)weight[(k * v.group_in + c) * v.taps + i];
                    for (int64_t p = t.p.begin; p < t.p.end; p++)
                        add_scaled(t.count, w, x + c * in_plane + in_offset(&v, &t, p),
                                   v.cols.stride, sum + out_offset(&v, &t, p), 1);
                }
            }
            for (int64_t i = 0; i < out_plane; i++)
                emit(call, (n * v.out.c + k) * out_plane + i, sum[i]);
        }
    return STATUS_OK;
}

static enum status conv_backward_data(const struct kernel_call *call)
{
    const struct conv v = conv_of(&call->spec->op);
    const REAL *weight = call->args->param[0], *output_grad = call->output_grad;
    REAL *input_grad = call->args->input_grad[0];
    const int64_t in_plane = v.in.h * v.in.w, out_plane = v.out.h * v.out.w;
    double *sum = call->args->workspace; /* [h, w] */
    if (!input_grad)
        return STATUS_OK;
    for (int64_t n = 0; n < v.in.n; n++)
        for (int64_t c = 0; c < v.in.c; c++) {
            set_zero(in_plane, sum);
            const int64_t first_k = c / v.group_in * v.group_out;
            for (int64_t i = 0; i < v.taps; i++) {
                const struct tap t = tap_of(&v, i);
                for (int64_t k = first_k; t.count > 0 && k < first_k + v.group_out; k++) {
                    const REAL *dy = output_grad + (n * v.out.c + k) * out_plane;
                    double w = (double)weight[(k * v.group_in + c % v.group_in) * v.taps + i];
                    for (int64_t p = t.p.begin; p < t.p.end; p++)
                        add_scaled(t.count, w, dy + out_offset(&v, &t, p), 1,
                                   sum + in_offset(&v, &t, p), v.cols.stride);
                }
            }
            copy_rounded(in_plane, sum, input_grad + (n * v.in.c + c) * in_plane);
        }
    return STATUS_OK;
}

/* The gradient of weight[k, c, tap i]. */
static double conv_weight_grad(const struct conv *v, const struct tap *t, int64_t k, int64_t c,
                               const REAL *input, const REAL *output_grad)
{
    const int64_t in_plane = v->in.h * v->in.w, out_plane = v->out.h * v->out.w;
    const int64_t in_channel = k / v->group_out * v->group_in + c;
    double sum = 0;
    for (int64_t n = 0; t->count > 0 && n < v->out.n; n++) {
        const REAL *x = input + (n * v->in.c + in_channel) * in_plane;
        const REAL *dy = output_grad + (n * v->out.c + k) * out_plane;
        for (int64_t p = t->p.begin; p < t->p.end; p++)
            sum += dot(t->count, x + in_offset(v, t, p), v->cols.stride, dy + out_offset(v, t, p));
    }
    return sum;
}

/* bias_grad[k] = the sum of output_grad over everything but k. */
static void bias_backward(const struct dims *out, const REAL *output_grad, REAL *bias_grad)
{
    const int64_t plane = out->h * out->w;
    for (int64_t k = 0; k < out->c; k++) {
        double sum = 0;
        for (int64_t n = 0; n < out->n; n++)
            for (int64_t i = 0; i < plane; i++)
                sum += (double)output_grad[(n * out->c + k) * plane + i];
        bias_grad[k] = (REAL)sum;
    }
}

static enum status conv_backward_weights(const struct kernel_call *call)
{
    const struct conv v = conv_of(&call->spec->op);
    const REAL *input = input_of(call, 0), *output_grad = call->output_grad;
    REAL *weight_grad = call->args->param_grad[0], *bias_grad = call->args->param_grad[1];
    for (int64_t k = 0; weight_grad && k < v.out.c; k++)
        for (int64_t i = 0; i < v.taps; i++) {
            const struct tap t = tap_of(&v, i);
            for (int64_t c = 0; c < v.group_in; c++)
                weight_grad[(k * v.group_in + c) * v.taps + i] =
                    (REAL)conv_weight_grad(&v, &t, k, c, input, output_grad);
        }
    if (call->spec->op.attrs.bias && bias_grad)
        bias_backward(&v.out, output_grad, bias_grad);
    return STATUS_OK;
}

/* ---- linear: output[n, o] = bias[o] + sum over i of weight[o, i] * input[n, i] ---- */

static enum status linear_forward(const struct kernel_call *call)
{
    const struct dims in = dims_of(&call->spec->op.input[0]), out = dims_of(&call->spec->op.output);
    const REAL *input = input_of(call, 0);
    const REAL *weight = call->args->param[0], *bias = call->args->param[1];
    for (int64_t n = 0; n < out.n; n++)
        for (int64_t o = 0; o < out.c; o++) {
            double sum = dot(in.c, input + n * in.c, 1, weight + o * in.c);
            if (call->spec->op.attrs.bias)
                sum += (double)bias[o];
            emit(call, n * out.c + o, sum);
        }
    return STATUS_OK;
}

static enum status linear_backward_data(const struct kernel_call *call)
{
    const struct dims in = dims_of(&call->spec->op.input[0]), out = dims_of(&call->spec->op.output);
    const REAL *weight = call->args->param[0], *output_grad = call->output_grad;
    REAL *input_grad = call->args->input_grad[0];
    double *sum = call->args->workspace; /* [i] */
    for (int64_t n = 0; input_grad && n < out.n; n++) {
        set_zero(in.c, sum);
        for (int64_t o = 0; o < out.c; o++)
            add_scaled(in.c, (double)output_grad[n * out.c + o], weight + o * in.c, 1, sum, 1);
        copy_rounded(in.c, sum, input_grad + n * in.c);
    }
    return STATUS_OK;
}

static enum status linear_backward_weights(const struct kernel_call *call)
{
    const struct dims in = dims_of(&call->spec->op.input[0]), out = dims_of(&call->spec->op.output);
    const REAL *input = input_of(call, 0), *output_grad = call->output_grad;
    REAL *weight_grad = call->args->param_grad[0], *bias_grad = call->args->param_grad[1];
    double *sum = call->args->workspace; /* [i] */
    for (int64_t o = 0; weight_grad && o < out.c; o++) {
        set_zero(in.c, sum);
        for (int64_t n = 0; n < out.n; n++)
            add_scaled(in.c, (double)output_grad[n * out.c + o], input + n * in.c, 1, sum, 1);
        copy_rounded(in.c, sum, weight_grad + o * in.c);
    }
    if (call->spec->op.attrs.bias && bias_grad)
        bias_backward(&out, output_grad, bias_grad);
    return STATUS_OK;
}
