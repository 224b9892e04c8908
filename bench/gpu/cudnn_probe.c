/* cudnn_probe.c: which engines of cuDNN's graph interface take the graphs of a convolutional
 * network's training step, what each takes, and whether they run on a share of the multiprocessors
 * and inside a captured CUDA graph.
 *
 *     cudnn_probe GRAPH N C H W K R STRIDE [type=bf16|fp32] [sm=COUNT] [target=no] [from=CONFIG]
 *
 * prints one line for each engine configuration that the heuristics offer:
 *
 *     graph shape type sm config engine notes workspace build_ms eager_us captured_us
 *
 * Notes: R compiled at run time, G can be put into a CUDA graph natively, T on tensor cores, N not
 * deterministic. sm: on a share of so many multiprocessors; target=no: the heuristics do not hear
 * of it. Engines of the fallback list are asked only where the heuristics have none.
 *
 * A configuration that does not end within two seconds prints HANG and ends the process with exit
 * code 9: the caller goes on with from=CONFIG+1 (probe.sh). Inputs are random.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <cudnn_backend.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK_CUDA(call)                                                            \
    do {                                                                            \
        cudaError_t e_ = (call);                                                    \
        if (e_ != cudaSuccess) {                                                    \
            printf("ERROR %s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)
#define CHECK_DRIVER(call)                                                        \
    do {                                                                          \
        CUresult e_ = (call);                                                     \
        if (e_ != CUDA_SUCCESS) {                                                 \
            printf("ERROR %s:%d driver error %d\n", __FILE__, __LINE__, (int)e_); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)
#define CHECK_CUDNN(call)                                                                        \
    do {                                                                                         \
        cudnnStatus_t e_ = (call);                                                               \
        if (e_ != CUDNN_STATUS_SUCCESS) {                                                        \
            char text_[512] = "";                                                                \
            cudnnGetLastErrorString(text_, sizeof text_);                                        \
            printf("REFUSED %s:%d %s %s\n", __FILE__, __LINE__, cudnnGetErrorString(e_), text_); \
            exit(2);                                                                             \
        }                                                                                        \
    } while (0)

typedef cudnnBackendDescriptor_t desc;

enum { MAX_TENSORS = 32, MAX_OPS = 16, MAX_CONFIGS = 64 };

static struct {
    int n_tensors, n_ops;
    int64_t uid[MAX_TENSORS];
    void *data[MAX_TENSORS];
    desc op[MAX_OPS];
    cudnnDataType_t type; /* of activations and weights */
    double flops, bytes;  /* bytes: of tensors that are not virtual, each once */
} g;

static desc make(cudnnBackendDescriptorType_t type)
{
    desc d;
    CHECK_CUDNN(cudnnBackendCreateDescriptor(type, &d));
    return d;
}
static void set(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t n, const void *value)
{
    CHECK_CUDNN(cudnnBackendSetAttribute(d, name, type, n, value));
}
static void set_desc(desc d, cudnnBackendAttributeName_t name, desc value)
{
    if (value != NULL)
        set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static uint32_t state = 12345;
static float next_random(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}
static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* A tensor [n, c, h, w] with channels last. */
static desc tensor(int64_t n, int64_t c, int64_t h, int64_t w, cudnnDataType_t type,
                   bool is_virtual)
{
    desc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t dims[4] = {n, c, h, w}, strides[4] = {c * h * w, 1, c * w, c};
    int64_t uid = g.n_tensors + 1, alignment = 16;
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    CHECK_CUDNN(cudnnBackendFinalize(d));
    g.uid[g.n_tensors] = uid;
    g.data[g.n_tensors] = NULL;
    if (!is_virtual) {
        size_t count = (size_t)(n * c * h * w);
        size_t size = type == CUDNN_DATA_BFLOAT16  ? 2
                      : type == CUDNN_DATA_BOOLEAN ? 1
                                                   : 4,
               filled = count < 1 << 20 ? count : 1 << 20;
        void *host = malloc(filled * size);
        for (size_t i = 0; i < filled; i++) {
            float x = next_random();
            if (size == 1)
                ((uint8_t *)host)[i] = x > 0;
            else if (size == 2)
                ((uint16_t *)host)[i] = to_bf16(x);
            else
                ((float *)host)[i] = n == 1 && h == 1 ? fabsf(x) + 0.1f : x;
        }
        char *data;
        CHECK_CUDA(cudaMalloc((void **)&data, count * size));
        CHECK_CUDA(cudaMemcpy(data, host, filled * size, cudaMemcpyHostToDevice));
        for (; filled < count; filled *= 2)
            CHECK_CUDA(cudaMemcpy(data + filled * size, data,
                                  (count - filled < filled ? count - filled : filled) * size,
                                  cudaMemcpyDeviceToDevice));
        free(host);
        g.data[g.n_tensors] = data;
        g.bytes += (double)(count * size);
    }
    g.n_tensors++;
    return d;
}
static desc scalar(float value)
{
    desc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t dims[4] = {1, 1, 1, 1}, uid = g.n_tensors + 1, alignment = 16;
    bool by_value = true;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, dims);
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    CHECK_CUDNN(cudnnBackendFinalize(d));
    float *kept = malloc(sizeof *kept);
    *kept = value;
    g.uid[g.n_tensors] = uid;
    g.data[g.n_tensors++] = kept;
    return d;
}

static void add_op(desc op)
{
    CHECK_CUDNN(cudnnBackendFinalize(op));
    g.op[g.n_ops++] = op;
}

static desc convolution(int64_t r, int64_t stride)
{
    desc d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    int64_t spatial = 2, pad[2] = {r / 2, r / 2}, strides[2] = {stride, stride}, ones[2] = {1, 1};
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
    CHECK_CUDNN(cudnnBackendFinalize(d));
    return d;
}
static void conv_forward(desc conv, desc x, desc w, desc y)
{
    desc op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    float one = 1, zero = 0;
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    add_op(op);
}
static void conv_data(desc conv, desc dy, desc w, desc dx)
{
    desc op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    float one = 1, zero = 0;
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy);
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w);
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx);
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, conv);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    add_op(op);
}
static void conv_weights(desc conv, desc x, desc dy, desc dw)
{
    desc op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    float one = 1, zero = 0;
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x);
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy);
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw);
    set_desc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, conv);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    add_op(op);
}
/* y = mode(x, b); for a backward mode: dx (as y) = mode(dy (as b), x). */
static void pointwise(cudnnPointwiseMode_t mode, desc x, desc b, desc y)
{
    desc pw = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    set(pw, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(pw, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    CHECK_CUDNN(cudnnBackendFinalize(pw));
    desc op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pw);
    set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (mode == CUDNN_POINTWISE_RELU_BWD) {
        set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, b);
        set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, y);
    } else {
        set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
        set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    }
    add_op(op);
}
static void statistics(desc x, desc sum, desc squares)
{
    desc op = make(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    set(op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set(op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_desc(op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
    set_desc(op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    set_desc(op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    add_op(op);
}
static desc per_channel(int64_t c)
{
    return tensor(1, c, 1, 1, CUDNN_DATA_FLOAT, false);
}

static void norm_forward(desc x, desc y, int64_t c)
{
    desc op = make(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    set(op, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    set(op, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x);
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, scalar(1e-5f));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, scalar(0.1f));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y);
    add_op(op);
}
static void norm_backward(desc x, desc dy, desc dx, int64_t c)
{
    desc op = make(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    set(op, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, x);
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy);
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, dx);
    add_op(op);
}
static void norm_weights(desc x, desc dy, desc mean, desc inv, desc gamma, int64_t c)
{
    desc op = make(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    set(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x);
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, dy);
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, mean);
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, inv);
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, gamma);
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, per_channel(c));
    set_desc(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, per_channel(c));
    add_op(op);
}

struct shape {
    int64_t n, c, h, w, k, r, stride;
};

/* The graphs by name. V: virtual, in float; M: in memory. */
static bool build(const char *name, const struct shape *s)
{
    int64_t p = (s->h + 2 * (s->r / 2) - s->r) / s->stride + 1;
    int64_t q = (s->w + 2 * (s->r / 2) - s->r) / s->stride + 1;
    cudnnDataType_t type = g.type, single = CUDNN_DATA_FLOAT;
    desc conv = convolution(s->r, s->stride);
    g.flops = 2.0 * (double)(s->n * s->k * p * q * s->c * s->r * s->r);
#define IN_M() tensor(s->n, s->c, s->h, s->w, type, false)
#define IN_V() tensor(s->n, s->c, s->h, s->w, single, true)
#define OUT_M() tensor(s->n, s->k, p, q, type, false)
#define OUT_V() tensor(s->n, s->k, p, q, single, true)
#define WEIGHT() tensor(s->k, s->c, s->r, s->r, type, false)
    if (strcmp(name, "conv") == 0) {
        conv_forward(conv, IN_M(), WEIGHT(), OUT_M());
    } else if (strcmp(name, "conv-bias-relu") == 0) {
        desc a = OUT_V(), b = OUT_V();
        conv_forward(conv, IN_M(), WEIGHT(), a);
        pointwise(CUDNN_POINTWISE_ADD, a, per_channel(s->k), b);
        pointwise(CUDNN_POINTWISE_RELU_FWD, b, NULL, OUT_M());
    } else if (strcmp(name, "conv-bias-add-relu") == 0) {
        desc a = OUT_V(), b = OUT_V(), c = OUT_V();
        conv_forward(conv, IN_M(), WEIGHT(), a);
        pointwise(CUDNN_POINTWISE_ADD, a, per_channel(s->k), b);
        pointwise(CUDNN_POINTWISE_ADD, b, OUT_M(), c);
        pointwise(CUDNN_POINTWISE_RELU_FWD, c, NULL, OUT_M());
    } else if (strcmp(name, "conv-stats") == 0) {
        desc y = OUT_M();
        conv_forward(conv, IN_M(), WEIGHT(), y);
        statistics(y, per_channel(s->k), per_channel(s->k));
    } else if (strcmp(name, "scale-bias-relu-conv-stats") == 0) {
        desc a = IN_V(), b = IN_V(), c = tensor(s->n, s->c, s->h, s->w, type, true), y = OUT_M();
        pointwise(CUDNN_POINTWISE_MUL, IN_M(), tensor(1, s->c, 1, 1, type, false), a);
        pointwise(CUDNN_POINTWISE_ADD, a, tensor(1, s->c, 1, 1, type, false), b);
        pointwise(CUDNN_POINTWISE_RELU_FWD, b, NULL, c);
        conv_forward(conv, c, WEIGHT(), y);
        statistics(y, per_channel(s->k), per_channel(s->k));
    } else if (strcmp(name, "dgrad") == 0) {
        conv_data(conv, OUT_M(), WEIGHT(), IN_M());
    } else if (strcmp(name, "dgrad-drelu") == 0) {
        desc a = IN_V();
        conv_data(conv, OUT_M(), WEIGHT(), a);
        pointwise(CUDNN_POINTWISE_RELU_BWD, IN_M(), a, IN_M());
    } else if (strcmp(name, "dgrad-add") == 0) {
        desc a = IN_V();
        conv_data(conv, OUT_M(), WEIGHT(), a);
        pointwise(CUDNN_POINTWISE_ADD, a, IN_M(), IN_M());
    } else if (strcmp(name, "dgrad-drelu-bnweights") == 0) {
        desc a = IN_V(), x = IN_M(), dy = IN_M(), b = IN_V(), c = IN_V(), f = IN_V();
        desc mean = per_channel(s->c), inv = per_channel(s->c), gamma = per_channel(s->c),
             beta = per_channel(s->c), e = IN_V();
        pointwise(CUDNN_POINTWISE_SUB, x, mean, b);
        pointwise(CUDNN_POINTWISE_MUL, b, inv, c);
        pointwise(CUDNN_POINTWISE_MUL, c, gamma, e);
        pointwise(CUDNN_POINTWISE_ADD, e, beta, f);
        conv_data(conv, OUT_M(), WEIGHT(), a);
        pointwise(CUDNN_POINTWISE_RELU_BWD, f, a, dy);
        norm_weights(x, dy, mean, inv, gamma, s->c);
    } else if (strcmp(name, "wgrad") == 0 || strcmp(name, "wgrad-fp32") == 0) {
        conv_weights(conv, IN_M(), OUT_M(),
                     tensor(s->k, s->c, s->r, s->r, name[5] != '\0' ? single : type, false));
    } else if (strcmp(name, "scale-bias-relu-wgrad") == 0) {
        desc a = IN_V(), b = IN_V(), c = tensor(s->n, s->c, s->h, s->w, type, true);
        pointwise(CUDNN_POINTWISE_MUL, IN_M(), tensor(1, s->c, 1, 1, type, false), a);
        pointwise(CUDNN_POINTWISE_ADD, a, tensor(1, s->c, 1, 1, type, false), b);
        pointwise(CUDNN_POINTWISE_RELU_FWD, b, NULL, c);
        conv_weights(conv, c, OUT_M(), WEIGHT());
    } else if (strcmp(name, "bn") == 0) {
        norm_forward(OUT_M(), OUT_M(), s->k);
    } else if (strcmp(name, "bn-relu") == 0) {
        desc a = OUT_V();
        norm_forward(OUT_M(), a, s->k);
        pointwise(CUDNN_POINTWISE_RELU_FWD, a, NULL, OUT_M());
    } else if (strcmp(name, "bn-add-relu") == 0) {
        desc a = OUT_V(), b = OUT_V();
        norm_forward(OUT_M(), a, s->k);
        pointwise(CUDNN_POINTWISE_ADD, a, OUT_M(), b);
        pointwise(CUDNN_POINTWISE_RELU_FWD, b, NULL, OUT_M());
    } else if (strcmp(name, "bn-backward") == 0) {
        norm_backward(OUT_M(), OUT_M(), OUT_M(), s->k);
    } else if (strcmp(name, "drelu-bn-backward") == 0) {
        desc a = OUT_V();
        pointwise(CUDNN_POINTWISE_RELU_BWD, OUT_M(), OUT_M(), a);
        norm_backward(OUT_M(), a, OUT_M(), s->k);
    } else if (strcmp(name, "drelu-fork-bn-backward") == 0) {
        desc a = OUT_M();
        pointwise(CUDNN_POINTWISE_RELU_BWD, OUT_M(), OUT_M(), a);
        norm_backward(OUT_M(), a, OUT_M(), s->k);
    } else if (strcmp(name, "drelu-mask-bn-backward") == 0 ||
               strcmp(name, "drelu-mask-fork-bn-backward") == 0) {
        desc a = strstr(name, "fork") != NULL ? OUT_M() : OUT_V();
        desc mask = tensor(s->n, s->k, p, q, CUDNN_DATA_BOOLEAN, false);
        pointwise(CUDNN_POINTWISE_RELU_BWD, mask, OUT_M(), a);
        norm_backward(OUT_M(), a, OUT_M(), s->k);
    } else if (strcmp(name, "scale-bias-add-relu") == 0) {
        desc a = OUT_V(), b = OUT_V(), c = OUT_V();
        pointwise(CUDNN_POINTWISE_MUL, OUT_M(), per_channel(s->k), a);
        pointwise(CUDNN_POINTWISE_ADD, a, per_channel(s->k), b);
        pointwise(CUDNN_POINTWISE_ADD, b, OUT_M(), c);
        pointwise(CUDNN_POINTWISE_RELU_FWD, c, NULL, OUT_M());
    } else {
        return false;
    }
    return true;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* False: it did not end within two seconds. */
static bool ends(cudaStream_t stream)
{
    for (double start = now_ms(); now_ms() - start < 2000;) {
        cudaError_t e = cudaStreamQuery(stream);
        if (e == cudaSuccess)
            return true;
        if (e != cudaErrorNotReady) {
            printf("ERROR %s\n", cudaGetErrorString(e));
            exit(1);
        }
    }
    return false;
}

static cudaStream_t share_stream(int n_multiprocessors)
{
    CUdevice device;
    CUdevResource all, parts[16];
    unsigned int n_parts = 16;
    CUdevResourceDesc description;
    CUgreenCtx context;
    CUstream stream;
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_DRIVER(cuDevSmResourceSplitByCount(parts, &n_parts, &all, NULL, 0,
                                             (unsigned int)n_multiprocessors));
    CHECK_DRIVER(cuDevResourceGenerateDesc(&description, parts, 1));
    CHECK_DRIVER(cuGreenCtxCreate(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK_DRIVER(cuGreenCtxStreamCreate(&stream, context, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

int main(int argc, char **argv)
{
    if (argc < 9) {
        fprintf(stderr, "usage: cudnn_probe GRAPH N C H W K R STRIDE [type=] [sm=] [from=]\n");
        return 2;
    }
    struct shape s;
    int64_t *field = &s.n;
    for (int i = 0; i < 7; i++)
        field[i] = atoll(argv[2 + i]);
    const char *type = "bf16";
    int sm = 0, from = 0;
    bool tells = true;
    for (int i = 9; i < argc; i++) {
        if (strncmp(argv[i], "type=", 5) == 0)
            type = argv[i] + 5;
        else if (strncmp(argv[i], "sm=", 3) == 0)
            sm = atoi(argv[i] + 3);
        else if (strcmp(argv[i], "target=no") == 0)
            tells = false;
        else if (strncmp(argv[i], "from=", 5) == 0)
            from = atoi(argv[i] + 5);
    }
    g.type = strcmp(type, "bf16") == 0 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    CHECK_CUDA(cudaFree(NULL));
    cudaStream_t stream;
    if (sm > 0)
        stream = share_stream(sm);
    else
        CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudnnHandle_t handle;
    CHECK_CUDNN(cudnnCreate(&handle));
    CHECK_CUDNN(cudnnSetStream(handle, stream));
    char shape[64];
    snprintf(shape, sizeof shape, "%ldx%ldx%ldx%ld-k%ld-r%ld-s%ld", (long)s.n, (long)s.c, (long)s.h,
             (long)s.w, (long)s.k, (long)s.r, (long)s.stride);
    if (!build(argv[1], &s)) {
        fprintf(stderr, "unknown graph %s\n", argv[1]);
        return 2;
    }
    desc graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g.n_ops, g.op);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    CHECK_CUDNN(cudnnBackendFinalize(graph));

    int index = 0, n_ran = 0;
    double best_us = 1e30;
    cudnnBackendHeurMode_t modes[2] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    for (int m = 0; m < 2 && (m == 0 || index == 0); m++) {
        desc heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        set_desc(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
        set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &modes[m]);
        int32_t target = sm;
        if (sm > 0 && tells)
            (void)cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET,
                                           CUDNN_TYPE_INT32, 1, &target);
        if (cudnnBackendFinalize(heuristic) != CUDNN_STATUS_SUCCESS)
            continue;
        desc configs[MAX_CONFIGS];
        for (int i = 0; i < MAX_CONFIGS; i++)
            configs[i] = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        int64_t n = 0;
        if (cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n,
                                     configs) != CUDNN_STATUS_SUCCESS)
            continue;
        if (n > 6)
            n = 6; /* the heuristics sort them: the best come first */
        for (int64_t i = 0; i < n; i++, index++) {
            if (index < from)
                continue;
            desc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), plan;
            int64_t got = 0, number = -1, n_notes = 0, n_numeric = 0;
            cudnnBackendBehaviorNote_t notes[8];
            cudnnBackendNumericalNote_t numeric[16];
            (void)cudnnBackendGetAttribute(configs[i], CUDNN_ATTR_ENGINECFG_ENGINE,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &engine);
            (void)cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                           1, &got, &number);
            (void)cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                           CUDNN_TYPE_BEHAVIOR_NOTE, 8, &n_notes, notes);
            (void)cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                           CUDNN_TYPE_NUMERICAL_NOTE, 16, &n_numeric, numeric);
            char text[32] = "";
            for (int64_t k = 0; k < n_notes; k++)
                strcat(text, notes[k] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION ? "R"
                             : notes[k] == CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API
                                 ? "G"
                                 : "o");
            for (int64_t k = 0; k < n_numeric; k++)
                strcat(text, numeric[k] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ? "N"
                             : numeric[k] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE    ? "T"
                                                                                 : "");
            double start = now_ms();
            plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
            set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
            set_desc(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i]);
            if (cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS)
                continue;
            double build_ms = now_ms() - start;
            int64_t workspace_bytes = 0;
            (void)cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                           CUDNN_TYPE_INT64, 1, &got, &workspace_bytes);
            void *workspace = NULL;
            CHECK_CUDA(cudaMalloc(&workspace, (size_t)workspace_bytes + 16));
            CHECK_CUDA(cudaMemset(workspace, 0, (size_t)workspace_bytes + 16));
            CHECK_CUDA(cudaDeviceSynchronize());
            desc pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
            int64_t uids[MAX_TENSORS];
            void *pointers[MAX_TENSORS];
            int64_t n_real = 0;
            for (int k = 0; k < g.n_tensors; k++)
                if (g.data[k] != NULL) {
                    uids[n_real] = g.uid[k];
                    pointers[n_real++] = g.data[k];
                }
            set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n_real, uids);
            set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n_real, pointers);
            set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
            CHECK_CUDNN(cudnnBackendFinalize(pack));
            cudnnStatus_t st = cudnnBackendExecute(handle, plan, pack);
            if (st != CUDNN_STATUS_SUCCESS) {
                printf("%s %s %s %d %d %ld %s cannot-run: %s\n", argv[1], shape, type, sm, index,
                       (long)number, text, cudnnGetErrorString(st));
                continue;
            }
            if (!ends(stream)) {
                printf("%s %s %s %d %d %ld %s HANG\n", argv[1], shape, type, sm, index,
                       (long)number, text);
                fflush(stdout);
                _Exit(9);
            }
            /* Eager: the median of single runs between events, in blocks of 10. */
            cudaEvent_t a, b;
            CHECK_CUDA(cudaEventCreate(&a));
            CHECK_CUDA(cudaEventCreate(&b));
            float eager_us = 1e30f, captured_us = -1;
            for (int round = 0; round < 5; round++) {
                CHECK_CUDA(cudaEventRecord(a, stream));
                for (int k = 0; k < 10; k++)
                    (void)cudnnBackendExecute(handle, plan, pack);
                CHECK_CUDA(cudaEventRecord(b, stream));
                if (!ends(stream)) {
                    printf("%s %s %s %d %d %ld %s HANG-repeated\n", argv[1], shape, type, sm, index,
                           (long)number, text);
                    fflush(stdout);
                    _Exit(9);
                }
                float ms = 0;
                CHECK_CUDA(cudaEventElapsedTime(&ms, a, b));
                if (ms * 100 < eager_us)
                    eager_us = ms * 100;
            }
            cudaGraph_t captured;
            cudaGraphExec_t exec;
            if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
                bool good = true;
                for (int k = 0; k < 10 && good; k++)
                    good = cudnnBackendExecute(handle, plan, pack) == CUDNN_STATUS_SUCCESS;
                if (cudaStreamEndCapture(stream, &captured) == cudaSuccess && good &&
                    cudaGraphInstantiate(&exec, captured, 0) == cudaSuccess) {
                    captured_us = 1e30f;
                    for (int round = 0; round < 5; round++) {
                        CHECK_CUDA(cudaEventRecord(a, stream));
                        CHECK_CUDA(cudaGraphLaunch(exec, stream));
                        CHECK_CUDA(cudaEventRecord(b, stream));
                        if (!ends(stream)) {
                            printf("%s %s %s %d %d %ld %s HANG-captured\n", argv[1], shape, type,
                                   sm, index, (long)number, text);
                            fflush(stdout);
                            _Exit(9);
                        }
                        float ms = 0;
                        CHECK_CUDA(cudaEventElapsedTime(&ms, a, b));
                        if (ms * 100 < captured_us)
                            captured_us = ms * 100;
                    }
                }
                (void)cudaGetLastError();
            }
            printf("%s %s %s %d %d %ld %s %.1fMB %.0fms %.1f %.1f\n", argv[1], shape, type, sm,
                   index, (long)number, text[0] != '\0' ? text : "-", (double)workspace_bytes / 1e6,
                   build_ms, eager_us, captured_us);
            fflush(stdout);
            n_ran++;
            if (captured_us > 0 && captured_us < best_us)
                best_us = captured_us;
            CHECK_CUDA(cudaFree(workspace));
        }
    }
    if (n_ran == 0)
        printf("%s %s %s %d - - - none of %d configurations runs\n", argv[1], shape, type, sm,
               index);
    else
        printf("# %s %s %s %d: %.1f us, %.1f TFLOP/s, %.2f TB/s\n", argv[1], shape, type, sm,
               best_us, g.flops / best_us * 1e-6, g.bytes / best_us * 1e-6);
    return 0;
}
