/* Shape rules and parameters of the op table's rows. */
#include "model/op_rules.h"

/* A dimension past this is a mistake, and a product of two of them still fits 64 bits. */
static const int64_t DIM_MAX = INT64_C(1) << 31;

static enum status need_rank(const char *op, const struct shape *input, int rank)
{
    char text[64];
    if (input->rank == rank)
        return STATUS_OK;
    return status_fail(STATUS_USAGE, "%s needs an input of %d dimensions, not %s", op, rank,
                       shape_text(text, sizeof text, input));
}

/* One extent of a windowed op's output: how many strides the window fits. */
static enum status infer_window(const char *op, const struct op_attrs *a, int axis, int64_t in,
                                int64_t *out)
{
    static const char *const names[2] = {"height", "width"};
    int64_t kernel = a->kernel[axis], stride = a->stride[axis];
    int64_t dilation = a->dilation[axis] ? a->dilation[axis] : 1;
    if (kernel < 1 || stride < 1 || dilation < 1 || a->pad_before[axis] < 0 ||
        a->pad_after[axis] < 0 || kernel > DIM_MAX || stride > DIM_MAX || dilation > DIM_MAX ||
        a->pad_before[axis] > DIM_MAX || a->pad_after[axis] > DIM_MAX)
        return status_fail(STATUS_USAGE,
                           "%s: %s needs kernel, stride and dilation of at least 1 and padding of "
                           "at least 0",
                           op, names[axis]);
    int64_t padded = in + a->pad_before[axis] + a->pad_after[axis];
    int64_t span = dilation * (kernel - 1) + 1;
    if (padded < span)
        return status_fail(STATUS_USAGE,
                           "%s: the window spans %lld but the input's %s is only %lld "
                           "(with padding %lld)",
                           op, (long long)span, names[axis], (long long)in, (long long)padded);
    *out = (padded - span) / stride + 1;
    return STATUS_OK;
}

INFER(op_infer_same)
{
    (void)attrs;
    (void)n_inputs;
    *output = inputs[0];
    return STATUS_OK;
}

INFER(op_infer_conv2d)
{
    (void)n_inputs;
    TRY(need_rank("conv2d", inputs, 4));
    int64_t groups = attrs->groups, in_channels = inputs->dim[1];
    if (groups < 1 || attrs->out_channels < 1 || attrs->out_channels > DIM_MAX ||
        in_channels % groups || attrs->out_channels % groups)
        return status_fail(
            STATUS_USAGE, "conv2d: %lld groups must divide %lld input and %lld output channels",
            (long long)groups, (long long)in_channels, (long long)attrs->out_channels);
    *output = SHAPE4(inputs->dim[0], attrs->out_channels, 0, 0);
    TRY(infer_window("conv2d", attrs, 0, inputs->dim[2], &output->dim[2]));
    return infer_window("conv2d", attrs, 1, inputs->dim[3], &output->dim[3]);
}

INFER(op_infer_linear)
{
    (void)n_inputs;
    TRY(need_rank("linear", inputs, 2));
    if (attrs->out_channels < 1 || attrs->out_channels > DIM_MAX)
        return status_fail(STATUS_USAGE, "linear: %lld output features",
                           (long long)attrs->out_channels);
    *output = SHAPE2(inputs->dim[0], attrs->out_channels);
    return STATUS_OK;
}

INFER(op_infer_pool)
{
    (void)n_inputs;
    TRY(need_rank("pool", inputs, 4));
    for (int axis = 0; axis < 2; axis++)
        if (attrs->pad_before[axis] >= attrs->kernel[axis] ||
            attrs->pad_after[axis] >= attrs->kernel[axis])
            return status_fail(STATUS_USAGE, "pool: padding must be smaller than the window (%lld)",
                               (long long)attrs->kernel[axis]);
    *output = SHAPE4(inputs->dim[0], inputs->dim[1], 0, 0);
    TRY(infer_window("pool", attrs, 0, inputs->dim[2], &output->dim[2]));
    return infer_window("pool", attrs, 1, inputs->dim[3], &output->dim[3]);
}

INFER(op_infer_global_pool)
{
    (void)attrs;
    (void)n_inputs;
    TRY(need_rank("global_pool", inputs, 4));
    *output = SHAPE4(inputs->dim[0], inputs->dim[1], 1, 1);
    return STATUS_OK;
}

INFER(op_infer_adaptive_pool)
{
    (void)n_inputs;
    TRY(need_rank("adaptive_pool", inputs, 4));
    if (attrs->out_size[0] < 1 || attrs->out_size[1] < 1 || attrs->out_size[0] > DIM_MAX ||
        attrs->out_size[1] > DIM_MAX)
        return status_fail(STATUS_USAGE, "adaptive_pool: output size %lldx%lld",
                           (long long)attrs->out_size[0], (long long)attrs->out_size[1]);
    *output = SHAPE4(inputs->dim[0], inputs->dim[1], attrs->out_size[0], attrs->out_size[1]);
    return STATUS_OK;
}

INFER(op_infer_batch_norm)
{
    if (inputs->rank != 4)
        TRY(need_rank("batch_norm", inputs, 2));
    if (!(attrs->epsilon > 0) || !(attrs->momentum >= 0 && attrs->momentum <= 1))
        return status_fail(STATUS_USAGE, "batch_norm: epsilon %g and momentum %g", attrs->epsilon,
                           attrs->momentum);
    return op_infer_same(attrs, n_inputs, inputs, output);
}

INFER(op_infer_local_response_norm)
{
    TRY(need_rank("local_response_norm", inputs, 4));
    if (attrs->lrn_size < 1 || attrs->lrn_size > DIM_MAX)
        return status_fail(STATUS_USAGE, "local_response_norm: window of %lld channels",
                           (long long)attrs->lrn_size);
    return op_infer_same(attrs, n_inputs, inputs, output);
}

INFER(op_infer_dropout)
{
    if (!(attrs->drop_probability >= 0 && attrs->drop_probability < 1))
        return status_fail(STATUS_USAGE, "dropout: probability %g is not in [0, 1)",
                           attrs->drop_probability);
    return op_infer_same(attrs, n_inputs, inputs, output);
}

INFER(op_infer_add)
{
    char first[64], other[64];
    for (int i = 1; i < n_inputs; i++)
        if (!shape_equal(&inputs[0], &inputs[i]))
            return status_fail(STATUS_USAGE, "add: shapes %s and %s differ",
                               shape_text(first, sizeof first, &inputs[0]),
                               shape_text(other, sizeof other, &inputs[i]));
    return op_infer_same(attrs, n_inputs, inputs, output);
}

INFER(op_infer_concat)
{
    (void)attrs;
    char first[64], other[64];
    *output = inputs[0];
    for (int i = 1; i < n_inputs; i++) {
        bool fits = inputs[i].rank == inputs[0].rank;
        for (int d = 0; fits && d < inputs[0].rank; d++)
            fits = d == 1 || inputs[i].dim[d] == inputs[0].dim[d];
        if (!fits)
            return status_fail(STATUS_USAGE, "concat: shapes %s and %s differ beyond channels",
                               shape_text(first, sizeof first, &inputs[0]),
                               shape_text(other, sizeof other, &inputs[i]));
        output->dim[1] += inputs[i].dim[1];
    }
    return STATUS_OK;
}

INFER(op_infer_flatten)
{
    (void)attrs;
    (void)n_inputs;
    TRY(need_rank("flatten", inputs, 4));
    *output = SHAPE2(inputs->dim[0], inputs->dim[1] * inputs->dim[2] * inputs->dim[3]);
    return STATUS_OK;
}

INFER(op_infer_softmax_cross_entropy)
{
    (void)attrs;
    (void)n_inputs;
    TRY(need_rank("softmax_cross_entropy", inputs, 2));
    *output = SHAPE1(inputs->dim[0]);
    return STATUS_OK;
}

int op_params_conv2d(const struct op_case *c, struct op_param params[OP_MAX_PARAMS])
{
    const struct op_attrs *a = &c->attrs;
    int64_t group_channels = c->input[0].dim[1] / a->groups;
    int64_t window = a->kernel[0] * a->kernel[1];
    params[0] = (struct op_param){
        .name = "weight",
        .shape = SHAPE4(a->out_channels, group_channels, a->kernel[0], a->kernel[1]),
        .trained = true,
        .init = INIT_KAIMING_NORMAL,
        .fan = group_channels * window};
    params[1] = (struct op_param){.name = "bias",
                                  .shape = SHAPE1(a->out_channels),
                                  .trained = true,
                                  .init = INIT_ZERO,
                                  .fan = group_channels * window};
    return a->bias ? 2 : 1;
}

int op_params_linear(const struct op_case *c, struct op_param params[OP_MAX_PARAMS])
{
    const struct op_attrs *a = &c->attrs;
    params[0] = (struct op_param){.name = "weight",
                                  .shape = SHAPE2(a->out_channels, c->input[0].dim[1]),
                                  .trained = true,
                                  .init = INIT_KAIMING_UNIFORM,
                                  .fan = c->input[0].dim[1]};
    params[1] = (struct op_param){.name = "bias",
                                  .shape = SHAPE1(a->out_channels),
                                  .trained = true,
                                  .init = INIT_KAIMING_UNIFORM,
                                  .fan = c->input[0].dim[1]};
    return a->bias ? 2 : 1;
}

int op_params_batch_norm(const struct op_case *c, struct op_param params[OP_MAX_PARAMS])
{
    struct shape channels = SHAPE1(c->input[0].dim[1]);
    params[0] = (struct op_param){
        .name = "weight", .shape = channels, .trained = true, .init = INIT_ONE, .fan = 1};
    params[1] = (struct op_param){
        .name = "bias", .shape = channels, .trained = true, .init = INIT_ZERO, .fan = 1};
    params[2] =
        (struct op_param){.name = "running_mean", .shape = channels, .init = INIT_ZERO, .fan = 1};
    params[3] =
        (struct op_param){.name = "running_var", .shape = channels, .init = INIT_ONE, .fan = 1};
    return 4;
}
