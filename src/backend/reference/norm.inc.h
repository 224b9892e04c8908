/* Batch norm and local response norm. */

/* ---- batch norm: xhat = (x - mean) * scale, output = weight * xhat + bias, per channel ----
 *
 * Over the m = n h w values of a channel: mean, biased variance, scale = 1 / sqrt(variance +
 * epsilon). The gradients, with g the output's:
 *
 *     bias' = sum g      weight' = sum g xhat
 *     x' = weight scale (g - bias' / m - xhat weight' / m)
 */

enum { NORM_WEIGHT, NORM_BIAS, NORM_RUNNING_MEAN, NORM_RUNNING_VAR };

struct statistics {
    double mean, variance; /* biased */
};

static struct statistics channel_statistics(const struct dims *d, const REAL *input, int64_t c)
{
    const int64_t plane = d->h * d->w;
    const double count = (double)(d->n * plane);
    struct statistics s = {0, 0};
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t i = 0; i < plane; i++)
            s.mean += (double)input[(n * d->c + c) * plane + i];
    s.mean /= count;
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t i = 0; i < plane; i++) {
            double x = (double)input[(n * d->c + c) * plane + i] - s.mean;
            s.variance += x * x;
        }
    s.variance /= count;
    return s;
}

/* running = (1 - momentum) running + momentum batch; the variance is the unbiased one, which a
 * single value does not have: then its biased one, 0, stands in. */
static void update_running(const struct kernel_call *call, int64_t c, struct statistics batch,
                           int64_t count)
{
    REAL *mean = call->args->param[NORM_RUNNING_MEAN], *var = call->args->param[NORM_RUNNING_VAR];
    const double m = call->spec->op.attrs.momentum;
    double unbiased = count > 1 ? batch.variance * (double)count / (double)(count - 1) : 0;
    mean[c] = (REAL)((1 - m) * (double)mean[c] + m * batch.mean);
    var[c] = (REAL)((1 - m) * (double)var[c] + m * unbiased);
}

/* Sums over a channel of the piece, shifted by its first element so that a large mean costs nothing
 * while they are taken. */
static enum status batch_norm_statistics(const struct kernel_call *call)
{
    const struct dims d = dims_of(&call->spec->op.input[0]);
    const REAL *input = input_of(call, 0);
    double *sums = call->args->statistics, *squares = sums + d.c;
    const int64_t plane = d.h * d.w;
    const double count = (double)(d.n * plane);
    for (int64_t c = 0; c < d.c; c++) {
        const double shift = (double)input[c * plane];
        double sum = 0, square = 0;
        for (int64_t n = 0; n < d.n; n++)
            for (int64_t i = (n * d.c + c) * plane; i < (n * d.c + c + 1) * plane; i++) {
                const double x = (double)input[i] - shift;
                sum += x;
                square += x * x;
            }
        sums[c] = sum + count * shift;
        squares[c] = square + shift * (2 * sum + count * shift);
    }
    return STATUS_OK;
}

/* From the sums of all pieces. */
static struct statistics shared_statistics(const struct kernel_call *call, int64_t c)
{
    const int64_t channels = call->spec->op.input[0].dim[1];
    const double count = (double)call->spec->statistics_count;
    struct statistics s = {.mean = call->args->statistics[c] / count};
    s.variance = call->args->statistics[channels + c] / count - s.mean * s.mean;
    if (s.variance < 0)
        s.variance = 0;
    return s;
}

static struct statistics forward_statistics(const struct kernel_call *call, int64_t c)
{
    const struct dims d = dims_of(&call->spec->op.input[0]);
    const REAL *mean = call->args->param[NORM_RUNNING_MEAN];
    const REAL *var = call->args->param[NORM_RUNNING_VAR];
    if (!call->spec->training)
        return (struct statistics){(double)mean[c], (double)var[c]};
    const bool shared = call->spec->shared_statistics;
    struct statistics s =
        shared ? shared_statistics(call, c) : channel_statistics(&d, input_of(call, 0), c);
    if (!call->args->again)
        update_running(call, c, s, shared ? call->spec->statistics_count : d.n * d.h * d.w);
    return s;
}

static enum status batch_norm_forward(const struct kernel_call *call)
{
    const struct dims d = dims_of(&call->spec->op.input[0]);
    const REAL *input = input_of(call, 0);
    const REAL *weight = call->args->param[NORM_WEIGHT], *bias = call->args->param[NORM_BIAS];
    double *saved = call->args->saved; /* [c] of mean, scale */
    const int64_t plane = d.h * d.w;
    for (int64_t c = 0; c < d.c; c++) {
        const struct statistics s = forward_statistics(call, c);
        const double scale = 1 / sqrt(s.variance + call->spec->op.attrs.epsilon);
        for (int64_t n = 0; n < d.n; n++)
            for (int64_t i = (n * d.c + c) * plane; i < (n * d.c + c + 1) * plane; i++)
                emit(call, i,
                     (double)weight[c] * (((double)input[i] - s.mean) * scale) + (double)bias[c]);
        if (call->spec->training) {
            saved[2 * c] = s.mean;
            saved[2 * c + 1] = scale;
        }
    }
    return STATUS_OK;
}

/* The sums of the gradient over a channel: g, and g (x - mean). */
struct norm_sums {
    double sum, product;
};

static struct norm_sums gradient_sums(const struct kernel_call *call, const struct dims *d,
                                      int64_t c)
{
    const REAL *input = input_of(call, 0), *output_grad = call->output_grad;
    const double mean = ((const double *)call->args->saved)[2 * c];
    const int64_t plane = d->h * d->w;
    struct norm_sums s = {0, 0};
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t i = (n * d->c + c) * plane; i < (n * d->c + c + 1) * plane; i++) {
            s.sum += (double)output_grad[i];
            s.product += (double)output_grad[i] * ((double)input[i] - mean);
        }
    return s;
}

static void set_param_gradients(const struct kernel_call *call, int64_t c, struct norm_sums s)
{
    REAL *weight_grad = call->args->param_grad[NORM_WEIGHT];
    REAL *bias_grad = call->args->param_grad[NORM_BIAS];
    if (weight_grad)
        weight_grad[c] = (REAL)(s.product * ((const double *)call->args->saved)[2 * c + 1]);
    if (bias_grad)
        bias_grad[c] = (REAL)s.sum;
}

static void set_input_gradient(const struct kernel_call *call, const struct dims *d, int64_t c,
                               struct norm_sums s, double count)
{
    const REAL *input = input_of(call, 0), *output_grad = call->output_grad;
    const double weight = (double)((const REAL *)call->args->param[NORM_WEIGHT])[c];
    const double *saved = call->args->saved;
    const double mean = saved[2 * c], scale = saved[2 * c + 1];
    REAL *input_grad = call->args->input_grad[0];
    const int64_t plane = d->h * d->w;
    for (int64_t n = 0; input_grad && n < d->n; n++)
        for (int64_t i = (n * d->c + c) * plane; i < (n * d->c + c + 1) * plane; i++) {
            double xhat = ((double)input[i] - mean) * scale;
            double g = (double)output_grad[i] - s.sum / count - xhat * s.product * scale / count;
            input_grad[i] = (REAL)(weight * scale * g);
        }
}

static enum status batch_norm_backward_statistics(const struct kernel_call *call)
{
    const struct dims d = dims_of(&call->spec->op.input[0]);
    for (int64_t c = 0; c < d.c; c++) {
        const struct norm_sums s = gradient_sums(call, &d, c);
        set_param_gradients(call, c, s);
        call->args->statistics[c] = s.sum;
        call->args->statistics[d.c + c] = s.product;
    }
    return STATUS_OK;
}

static enum status batch_norm_backward(const struct kernel_call *call)
{
    const struct dims d = dims_of(&call->spec->op.input[0]);
    const double *statistics = call->args->statistics;
    for (int64_t c = 0; c < d.c; c++) {
        if (call->spec->shared_statistics) {
            const struct norm_sums all = {statistics[c], statistics[d.c + c]};
            set_input_gradient(call, &d, c, all, (double)call->spec->statistics_count);
            continue;
        }
        const struct norm_sums s = gradient_sums(call, &d, c);
        set_param_gradients(call, c, s);
        set_input_gradient(call, &d, c, s, (double)(d.n * d.h * d.w));
    }
    return STATUS_OK;
}

/* ---- local response norm: output = x / d^beta, d = k + alpha / size * sum of x^2 ----
 *
 * The sum is over `size` channels from c - size / 2 on. With g the output's gradient,
 *
 *     x'[j] = g[j] d[j]^-beta - 2 alpha beta / size * x[j] * sum of g[c] x[c] d[c]^(-beta - 1)
 *
 * over those c in whose window j lies.
 */

static int64_t clamp(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

/* d of channel c; x points at channel 0 of one pixel, channels lie `plane` apart. */
static double lrn_denominator(const struct op_attrs *a, const REAL *x, int64_t plane,
                              int64_t n_channels, int64_t c)
{
    const int64_t first = c - a->lrn_size / 2;
    const int64_t begin = clamp(first, n_channels), end = clamp(first + a->lrn_size, n_channels);
    double sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += (double)x[i * plane] * (double)x[i * plane];
    return a->lrn_k + a->lrn_alpha / (double)a->lrn_size * sum;
}

static enum status lrn_forward(const struct kernel_call *call)
{
    const struct op_attrs *a = &call->spec->op.attrs;
    const struct dims d = dims_of(&call->spec->op.input[0]);
    const REAL *input = input_of(call, 0);
    const int64_t plane = d.h * d.w;
    for (int64_t n = 0; n < d.n; n++)
        for (int64_t c = 0; c < d.c; c++)
            for (int64_t i = 0; i < plane; i++) {
                const REAL *x = input + n * d.c * plane + i;
                double denominator = lrn_denominator(a, x, plane, d.c, c);
                emit(call, (n * d.c + c) * plane + i,
                     (double)x[c * plane] * pow(denominator, -a->lrn_beta));
            }
    return STATUS_OK;
}

static enum status lrn_backward(const struct kernel_call *call)
{
    const struct op_attrs *a = &call->spec->op.attrs;
    const struct dims d = dims_of(&call->spec->op.input[0]);
    const REAL *input = input_of(call, 0), *output_grad = call->output_grad;
    REAL *input_grad = call->args->input_grad[0];
    const int64_t plane = d.h * d.w, size = a->lrn_size;
    double *power = call->args->workspace, *term = power + d.c; /* [c] each, of one pixel */
    for (int64_t pixel = 0; input_grad && pixel < d.n * plane; pixel++) {
        const int64_t first = pixel / plane * d.c * plane + pixel % plane;
        const REAL *x = input + first, *g = output_grad + first;
        for (int64_t c = 0; c < d.c; c++) {
            double denominator = lrn_denominator(a, x, plane, d.c, c);
            power[c] = pow(denominator, -a->lrn_beta);
            term[c] = (double)g[c * plane] * (double)x[c * plane] * power[c] / denominator;
        }
        for (int64_t j = 0; j < d.c; j++) {
            double sum = 0;
            for (int64_t c = clamp(j + size / 2 - size + 1, d.c); c <= j + size / 2 && c < d.c; c++)
                sum += term[c];
            double factor = 2 * a->lrn_alpha * a->lrn_beta / (double)size;
            input_grad[first + j * plane] =
                (REAL)((double)g[j * plane] * power[j] - factor * (double)x[j * plane] * sum);
        }
    }
    return STATUS_OK;
}
