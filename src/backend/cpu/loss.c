/* Softmax cross-entropy: the loss of each sample, and (softmax - one hot) / global batch. */
#include "backend/cpu/cpu_parts.h"

#include <math.h>

static enum status create(group *g)
{
    g->needs.reads_input = true;
    return layout_get_plain(g->device, &g->spec.op.output, &g->layouts.output);
}

static enum status check_labels(const group *g, const int32_t *labels)
{
    int64_t classes = g->spec.op.input[0].dim[1];
    for (int64_t n = 0; n < g->spec.op.input[0].dim[0]; n++)
        if (labels[n] < 0 || labels[n] >= classes)
            return status_fail(STATUS_FAILED,
                               "sample %lld of the batch has label %d, but the network has %lld "
                               "classes",
                               (long long)n, labels[n], (long long)classes);
    return STATUS_OK;
}

/* log of the sum of exponentials, kept from overflowing by the largest logit. */
static float log_sum(const float *row, int64_t classes, float *largest)
{
    float top = row[0];
    double sum = 0;
    for (int64_t k = 1; k < classes; k++)
        top = row[k] > top ? row[k] : top;
    for (int64_t k = 0; k < classes; k++)
        sum += (double)expf(row[k] - top);
    *largest = top;
    return (float)log(sum);
}

static enum status forward(group *g, const struct group_args *args)
{
    int64_t n = g->spec.op.input[0].dim[0], classes = g->spec.op.input[0].dim[1];
    const float *logits = args->input[0];
    float *losses = args->output;
    TRY(check_labels(g, args->labels));
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float *row = logits + i * classes;
        float top, lse = log_sum(row, classes, &top);
        losses[i] = lse - (row[args->labels[i]] - top);
    }
    return STATUS_OK;
}

static enum status backward(group *g, const struct group_args *args)
{
    int64_t n = g->spec.op.input[0].dim[0], classes = g->spec.op.input[0].dim[1];
    float scale = (float)(1 / (double)g->spec.global_batch);
    const float *logits = args->input[0];
    float *gradient = args->input_grad[0];
    if (!gradient)
        return STATUS_OK;
#pragma omp parallel for num_threads(g->device->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float *row = logits + i * classes;
        float *to = gradient + i * classes;
        float top, lse = log_sum(row, classes, &top);
        for (int64_t k = 0; k < classes; k++)
            to[k] = scale * expf(row[k] - top - lse);
        to[args->labels[i]] -= scale;
    }
    return STATUS_OK;
}

const struct op_kernels cpu_loss = {
    .group_bytes = sizeof(struct group),
    .create = create,
    .run = {[PASS_FORWARD] = forward, [PASS_BACKWARD] = backward},
};
