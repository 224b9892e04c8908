/* Ops that work element by element, move elements, or end the network. */

static int64_t count_input(const struct kernel_call *call, int i)
{
    return shape_elements(&call->spec->op.input[i]);
}

/* ---- ReLU, ReLU6, logistic, tanh ---- */

static enum status activation_forward(const struct kernel_call *call)
{
    const enum activation activation = op_get_info(call->spec->op.op)->activation;
    const REAL *input = input_of(call, 0);
    for (int64_t i = 0; i < count_input(call, 0); i++)
        emit(call, i, activate(activation, (double)input[i]));
    return STATUS_OK;
}

static enum status activation_backward(const struct kernel_call *call)
{
    const enum activation activation = op_get_info(call->spec->op.op)->activation;
    const REAL *output = call->args->output, *output_grad = call->output_grad;
    REAL *input_grad = call->args->input_grad[0];
    for (int64_t i = 0; input_grad && i < count_input(call, 0); i++)
        input_grad[i] =
            (REAL)((double)output_grad[i] * activation_slope(activation, (double)output[i]));
    return STATUS_OK;
}

/* ---- dropout: the mask is a function of (seed, node, step, element), so it is never kept ---- */

/* The number of element i of the piece in the whole tensor, whose batch it begins somewhere in. */
static int64_t dropout_index(const struct kernel_call *call, int64_t i)
{
    const struct shape *local = &call->spec->op.output, *whole = &call->spec->whole;
    int64_t index = 0, scale = 1;
    for (int a = local->rank - 1; a >= 0; a--) {
        int64_t at = i % local->dim[a] + (whole->rank ? call->spec->origin[a] : 0);
        if (call->spec->op.output_axes.use[a] == USE_BATCH)
            at += call->args->first_sample;
        index += at * scale;
        scale *= whole->rank ? whole->dim[a] : local->dim[a];
        i /= local->dim[a];
    }
    return index;
}

/* The factor of element i: 0 or 1 / (1 - p). */
static double dropout_factor(const struct kernel_call *call, int64_t i)
{
    const uint64_t index = (uint64_t)dropout_index(call, i);
    const double p = call->spec->op.attrs.drop_probability;
    const struct random_key key = {call->step->seed, RANDOM_DROPOUT, call->spec->random_stream};
    bool dropped = (double)random_word(key, call->step->step, index) < p * 0x1p32;
    return dropped ? 0 : 1 / (1 - p);
}

static enum status dropout_forward(const struct kernel_call *call)
{
    const REAL *input = input_of(call, 0);
    for (int64_t i = 0; i < count_input(call, 0); i++)
        emit(call, i, (double)input[i] * (call->spec->training ? dropout_factor(call, i) : 1));
    return STATUS_OK;
}

static enum status dropout_backward(const struct kernel_call *call)
{
    const REAL *output_grad = call->output_grad;
    REAL *input_grad = call->args->input_grad[0];
    for (int64_t i = 0; input_grad && i < count_input(call, 0); i++)
        input_grad[i] = (REAL)((double)output_grad[i] * dropout_factor(call, i));
    return STATUS_OK;
}

/* ---- add, concat, flatten ---- */

static enum status add_forward(const struct kernel_call *call)
{
    for (int64_t i = 0; i < count_input(call, 0); i++) {
        double sum = 0;
        for (int j = 0; j < call->spec->op.n_inputs; j++)
            sum += (double)input_of(call, j)[i];
        emit(call, i, sum);
    }
    return STATUS_OK;
}

/* Of add and of flatten: each input's gradient is the output's, element for element. */
static enum status pass_backward(const struct kernel_call *call)
{
    for (int j = 0; j < call->spec->op.n_inputs; j++)
        if (call->args->input_grad[j])
            memmove(call->args->input_grad[j], call->output_grad,
                    (size_t)count_input(call, j) * sizeof(REAL));
    return STATUS_OK;
}

static enum status flatten_forward(const struct kernel_call *call)
{
    const REAL *input = input_of(call, 0);
    for (int64_t i = 0; i < count_input(call, 0); i++)
        emit(call, i, (double)input[i]);
    return STATUS_OK;
}

/* Of one sample: how many elements input j has, and how many come before them in the output. */
struct slice {
    int64_t count, before, all;
};

static struct slice concat_slice(const struct op_case *op, int j)
{
    struct slice s = {.all = shape_elements(&op->output) / op->output.dim[0]};
    for (int i = 0; i < j; i++)
        s.before += shape_elements(&op->input[i]) / op->output.dim[0];
    s.count = shape_elements(&op->input[j]) / op->output.dim[0];
    return s;
}

static enum status concat_forward(const struct kernel_call *call)
{
    const struct op_case *op = &call->spec->op;
    for (int j = 0; j < op->n_inputs; j++) {
        const struct slice s = concat_slice(op, j);
        for (int64_t n = 0; n < op->output.dim[0]; n++)
            for (int64_t i = 0; i < s.count; i++)
                emit(call, n * s.all + s.before + i, (double)input_of(call, j)[n * s.count + i]);
    }
    return STATUS_OK;
}

static enum status concat_backward(const struct kernel_call *call)
{
    const struct op_case *op = &call->spec->op;
    const REAL *output_grad = call->output_grad;
    for (int j = 0; j < op->n_inputs; j++) {
        const struct slice s = concat_slice(op, j);
        REAL *input_grad = call->args->input_grad[j];
        for (int64_t n = 0; input_grad && n < op->output.dim[0]; n++)
            memcpy(input_grad + n * s.count, output_grad + n * s.all + s.before,
                   (size_t)s.count * sizeof(REAL));
    }
    return STATUS_OK;
}

/* ---- softmax cross-entropy: loss[n] = log(sum of exp(logits[n])) - logits[n, label[n]] ---- */

/* log(sum of exp(x)) without overflow. */
static double log_sum_exp(int64_t count, const REAL *x)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++)
        most = (double)x[i] > most ? (double)x[i] : most;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)x[i] - most);
    return most + log(sum);
}

static enum status check_label(int64_t sample, int32_t label, int64_t classes)
{
    if (label >= 0 && label < classes)
        return STATUS_OK;
    return status_fail(STATUS_FAILED,
                       "sample %lld of the batch has label %ld, but the network has classes 0 to "
                       "%lld",
                       (long long)sample, (long)label, (long long)classes - 1);
}

static enum status loss_forward(const struct kernel_call *call)
{
    const struct dims in = dims_of(&call->spec->op.input[0]);
    const int32_t *labels = call->args->labels;
    for (int64_t n = 0; n < in.n; n++) {
        const REAL *logits = input_of(call, 0) + n * in.c;
        TRY(check_label(n, labels[n], in.c));
        emit(call, n, log_sum_exp(in.c, logits) - (double)logits[labels[n]]);
    }
    return STATUS_OK;
}

/* The gradient of the mean over the global batch: (softmax - one at the label) / global_batch. */
static enum status loss_backward(const struct kernel_call *call)
{
    const struct dims in = dims_of(&call->spec->op.input[0]);
    const int32_t *labels = call->args->labels;
    REAL *input_grad = call->args->input_grad[0];
    for (int64_t n = 0; input_grad && n < in.n; n++) {
        const REAL *logits = input_of(call, 0) + n * in.c;
        TRY(check_label(n, labels[n], in.c));
        const double total = log_sum_exp(in.c, logits);
        for (int64_t k = 0; k < in.c; k++) {
            double probability = exp((double)logits[k] - total);
            input_grad[n * in.c + k] =
                (REAL)((probability - (k == labels[n] ? 1 : 0)) / (double)call->spec->global_batch);
        }
    }
    return STATUS_OK;
}
