/* Shape rules and parameters of the op table's rows. */
#include "model/op_rules.h"

/* A dimension past this is a mistake, and a product of two of them still fits 64 bits. */
static const int64_t DIM_MAX = INT64_C(1) << 31;

/* The op reads images, [batch, channel, row, column], or (rank 2) flattened ones: its kernels know
 * no other form. */
static enum status need_images(const char *op, struct op_case *c, int rank)
{
    const struct axes form = axes_of_images(rank);
    char text[SHAPE_TEXT_BYTES], need[AXES_TEXT_BYTES], have[AXES_TEXT_BYTES];
    if (c->input[0].rank != rank)
        return status_fail(STATUS_USAGE, "%s needs an input of %d dimensions, not %s", op, rank,
                           shape_text(text, sizeof text, &c->input[0]));
    if (c->axes.rank == 0)
        c->axes = form;
    if (axes_equal(&c->axes, &form))
        return STATUS_OK;
    return status_fail(STATUS_USAGE, "%s needs an input of the axes %s, not %s", op,
                       axes_text(need, sizeof need, &form), axes_text(have, sizeof have, &c->axes));
}

/* The height (axis 0) or width of a windowed op's output: how many strides the window fits. */
static enum status infer_window(const char *op, struct op_case *c, int axis)
{
    static const char *const names[2] = {"height", "width"};
    const struct op_attrs *a = &c->attrs;
    int64_t kernel = a->kernel[axis], stride = a->stride[axis], in = c->input[0].dim[2 + axis];
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
    c->output.dim[2 + axis] = (padded - span) / stride + 1;
    return STATUS_OK;
}

enum status op_infer_same(struct op_case *c)
{
    c->output = c->input[0];
    return STATUS_OK;
}

enum status op_infer_conv2d(struct op_case *c)
{
    TRY(need_images("conv2d", c, 4));
    int64_t groups = c->attrs.groups, in_channels = c->input[0].dim[1];
    if (groups < 1 || c->attrs.out_channels < 1 || c->attrs.out_channels > DIM_MAX ||
        in_channels % groups || c->attrs.out_channels % groups)
        return status_fail(
            STATUS_USAGE, "conv2d: %lld groups must divide %lld input and %lld output channels",
            (long long)groups, (long long)in_channels, (long long)c->attrs.out_channels);
    c->output = SHAPE4(c->input[0].dim[0], c->attrs.out_channels, 0, 0);
    TRY(infer_window("conv2d", c, 0));
    return infer_window("conv2d", c, 1);
}

enum status op_infer_linear(struct op_case *c)
{
    TRY(need_images("linear", c, 2));
    if (c->attrs.out_channels < 1 || c->attrs.out_channels > DIM_MAX)
        return status_fail(STATUS_USAGE, "linear: %lld output features",
                           (long long)c->attrs.out_channels);
    c->output = SHAPE2(c->input[0].dim[0], c->attrs.out_channels);
    return STATUS_OK;
}

enum status op_infer_pool(struct op_case *c)
{
    TRY(need_images("pool", c, 4));
    for (int axis = 0; axis < 2; axis++)
        if (c->attrs.pad_before[axis] >= c->attrs.kernel[axis] ||
            c->attrs.pad_after[axis] >= c->attrs.kernel[axis])
            return status_fail(STATUS_USAGE, "pool: padding must be smaller than the window (%lld)",
                               (long long)c->attrs.kernel[axis]);
    c->output = SHAPE4(c->input[0].dim[0], c->input[0].dim[1], 0, 0);
    TRY(infer_window("pool", c, 0));
    return infer_window("pool", c, 1);
}

enum status op_infer_global_pool(struct op_case *c)
{
    TRY(need_images("global_pool", c, 4));
    c->output = SHAPE4(c->input[0].dim[0], c->input[0].dim[1], 1, 1);
    return STATUS_OK;
}

enum status op_infer_adaptive_pool(struct op_case *c)
{
    TRY(need_images("adaptive_pool", c, 4));
    if (c->attrs.out_size[0] < 1 || c->attrs.out_size[1] < 1 || c->attrs.out_size[0] > DIM_MAX ||
        c->attrs.out_size[1] > DIM_MAX)
        return status_fail(STATUS_USAGE, "adaptive_pool: output size %lldx%lld",
                           (long long)c->attrs.out_size[0], (long long)c->attrs.out_size[1]);
    c->output =
        SHAPE4(c->input[0].dim[0], c->input[0].dim[1], c->attrs.out_size[0], c->attrs.out_size[1]);
    return STATUS_OK;
}

enum status op_infer_batch_norm(struct op_case *c)
{
    TRY(need_images("batch_norm", c, c->input[0].rank == 4 ? 4 : 2));
    if (!(c->attrs.epsilon > 0) || !(c->attrs.momentum >= 0 && c->attrs.momentum <= 1))
        return status_fail(STATUS_USAGE, "batch_norm: epsilon %g and momentum %g", c->attrs.epsilon,
                           c->attrs.momentum);
    return op_infer_same(c);
}

enum status op_infer_local_response_norm(struct op_case *c)
{
    TRY(need_images("local_response_norm", c, 4));
    if (c->attrs.lrn_size < 1 || c->attrs.lrn_size > DIM_MAX)
        return status_fail(STATUS_USAGE, "local_response_norm: window of %lld channels",
                           (long long)c->attrs.lrn_size);
    return op_infer_same(c);
}

enum status op_infer_dropout(struct op_case *c)
{
    if (!(c->attrs.drop_probability >= 0 && c->attrs.drop_probability < 1))
        return status_fail(STATUS_USAGE, "dropout: probability %g is not in [0, 1)",
                           c->attrs.drop_probability);
    return op_infer_same(c);
}

enum status op_infer_add(struct op_case *c)
{
    char first[SHAPE_TEXT_BYTES], other[SHAPE_TEXT_BYTES];
    for (int i = 1; i < c->n_inputs; i++)
        if (!shape_equal(&c->input[0], &c->input[i]))
            return status_fail(STATUS_USAGE, "add: shapes %s and %s differ",
                               shape_text(first, sizeof first, &c->input[0]),
                               shape_text(other, sizeof other, &c->input[i]));
    return op_infer_same(c);
}

enum status op_infer_concat(struct op_case *c)
{
    char first[SHAPE_TEXT_BYTES], other[SHAPE_TEXT_BYTES];
    TRY(need_images("concat", c, c->input[0].rank == 4 ? 4 : 2));
    int channels = axes_find(&c->axes, USE_CHANNEL);
    c->output = c->input[0];
    for (int i = 1; i < c->n_inputs; i++) {
        bool fits = c->input[i].rank == c->input[0].rank;
        for (int d = 0; fits && d < c->input[0].rank; d++)
            fits = d == channels || c->input[i].dim[d] == c->input[0].dim[d];
        if (!fits)
            return status_fail(STATUS_USAGE, "concat: shapes %s and %s differ beyond channels",
                               shape_text(first, sizeof first, &c->input[0]),
                               shape_text(other, sizeof other, &c->input[i]));
        c->output.dim[channels] += c->input[i].dim[channels];
    }
    return STATUS_OK;
}

enum status op_infer_flatten(struct op_case *c)
{
    TRY(need_images("flatten", c, 4));
    c->output =
        SHAPE2(c->input[0].dim[0], c->input[0].dim[1] * c->input[0].dim[2] * c->input[0].dim[3]);
    return STATUS_OK;
}

enum status op_infer_softmax_cross_entropy(struct op_case *c)
{
    TRY(need_images("softmax_cross_entropy", c, 2));
    c->output = SHAPE1(c->input[0].dim[0]);
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
