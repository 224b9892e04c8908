/* Shared by all kernels: reading arguments, and folding into an output. */

static const REAL *input_of(const struct kernel_call *call, int i)
{
    return call->args->input[i];
}

static double activate(enum activation activation, double x)
{
    switch (activation) { /* comparisons are such that NaN passes through */
    case ACTIVATION_RELU:
        return x < 0 ? 0 : x;
    case ACTIVATION_RELU6:
        return x < 0 ? 0 : x > 6 ? 6 : x;
    case ACTIVATION_LOGISTIC:
        return 1 / (1 + exp(-x));
    case ACTIVATION_TANH:
        return tanh(x);
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
        break;
    }
    return x;
}

/* The derivative, from the activation's output. */
static double activation_slope(enum activation activation, double y)
{
    switch (activation) {
    case ACTIVATION_RELU:
        return y > 0;
    case ACTIVATION_RELU6:
        return y > 0 && y < 6;
    case ACTIVATION_LOGISTIC:
        return y * (1 - y);
    case ACTIVATION_TANH:
        return 1 - y * y;
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
        break;
    }
    return 1;
}

/* Every forward kernel hands its results over here: output[i] = activation(value + residual[i]). */
static void emit(const struct kernel_call *call, int64_t i, double value)
{
    const REAL *residual = call->args->residual;
    REAL *output = call->args->output;
    if (residual)
        value += (double)residual[i];
    output[i] = (REAL)activate(call->spec->activation, value);
}

/* y += scale * x over `count` elements, the i-th ones lying x_step and y_step apart. */
static void add_scaled(int64_t count, double scale, const REAL *restrict x, int64_t x_step,
                       double *restrict y, int64_t y_step)
{
    if (x_step == 1 && y_step == 1)
        for (int64_t i = 0; i < count; i++)
            y[i] += scale * (double)x[i];
    else
        for (int64_t i = 0; i < count; i++)
            y[i * y_step] += scale * (double)x[i * x_step];
}

/* The sum of x * y, where x lies x_step apart. Four sums, so that additions overlap in time. */
static double dot(int64_t count, const REAL *restrict x, int64_t x_step, const REAL *restrict y)
{
    double sum[4] = {0, 0, 0, 0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int64_t j = 0; j < 4; j++)
            sum[j] += (double)x[(i + j) * x_step] * (double)y[i + j];
    for (; i < count; i++)
        sum[0] += (double)x[i * x_step] * (double)y[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static void set_zero(int64_t count, double *x)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = 0;
}

static void copy_rounded(int64_t count, const double *from, REAL *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (REAL)from[i];
}
