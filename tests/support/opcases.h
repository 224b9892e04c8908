/* opcases.h: the ops' test cases, and running one of them on any backend.
 *
 *     struct opdevice device;
 *     opdevice_open(&device, &backend_reference, PRECISION_DOUBLE, 1);
 *     for (int i = 0; i < opcase_count(); i++) {
 *         struct oprun run;
 *         oprun_open(&run, &device, opcase_get(i), NULL); // group made, tensors filled
 *         oprun_forward(&run);
 *         oprun_backward(&run);
 *         float *dx = oprun_download(&run, run.args.input_grad[0], run.layouts.input[0]);
 *         ...
 *         free(dx);
 *         oprun_close(&run);
 *     }
 *     opdevice_close(&device);
 *
 * Tensors are filled with numbers that depend on the case and the tensor only, so that two backends
 * see the same ones. Outputs and gradients start as NaN: a pass that does not write all of them
 * shows. Gradients with several addends or a folded activation are folded with backend->fold for
 * ops that do not do so themselves, as the runtime does. Failures end the cmocka test.
 */
#ifndef CLEAVE_TESTS_OPCASES_H
#define CLEAVE_TESTS_OPCASES_H

#include "backend/backend.h"
#include "base/random.h"
#include "testing.h"

/* ---- the cases ---- */

enum opcase_fill {
    FILL_UNIFORM,  /* in [-2, 2] */
    FILL_DISTINCT, /* a shuffled grid over [-8, 8]: no two values are near, none is near 0 or 6 */
};

struct opcase {
    char name[96];
    struct group_spec spec;
    enum opcase_fill fill; /* of the inputs */
    int n_output_grads;
    bool all_folds; /* a base case: also with every activation, residual and more gradients */
};

#define OPCASE_WINDOW(kh, kw, sh, sw) .kernel = {kh, kw}, .stride = {sh, sw}
#define OPCASE_PAD(top, left, bottom, right) .pad_before = {top, left}, .pad_after = {bottom, right}
#define OPCASE_SPEC(kind, shape, ...) \
    .n_output_grads = 1,              \
    .spec = {.training = true,        \
             .input_gradient = true,  \
             .random_stream = 3,      \
             .global_batch = 5,       \
             .op = {.op = kind, .n_inputs = 1, .input = {shape}, .attrs = {__VA_ARGS__}}}
#define OPCASE_CONV(shape, out, ...) OPCASE_SPEC(OP_CONV2D, shape, .out_channels = out, __VA_ARGS__)
#define OPCASE_NORM(shape) \
    OPCASE_SPEC(OP_BATCH_NORM, shape, .epsilon = 1e-5, .momentum = 0.1), .all_folds = true
#define OPCASE_LRN(shape, size)                                                    \
    OPCASE_SPEC(OP_LOCAL_RESPONSE_NORM, shape, .lrn_size = size, .lrn_alpha = 0.3, \
                .lrn_beta = 0.75, .lrn_k = 1.5)

/* The base case, and where it asks for them its foldings. */
void opcase_append_foldings(const struct opcase *base);

/* op_infer_shape for a case that need not say what the axes of its input are: those of images. */
void opcase_infer(struct op_case *op);

/* All cases, each base one followed by its foldings. */
int opcase_count(void);

const struct opcase *opcase_get(int i);

/* The case of that name. */
const struct opcase *opcase_find(const char *name);

/* ---- a device ---- */

struct opdevice {
    const struct backend *backend;
    device *device;
    stream *stream;
    enum precision precision;
    bool rounds; /* tensors are filled with numbers of bf16, whatever their type */
};

void opdevice_open(struct opdevice *d, const struct backend *backend, enum precision precision,
                   int threads);

void opdevice_close(struct opdevice *d);

/* ---- one case on one device ---- */

enum { OPRUN_MAX_BLOCKS = 64 };

struct oprun {
    const struct opdevice *on;
    struct opcase c;
    group *group;
    struct group_layouts layouts;
    const layout *param_grad_layout[OP_MAX_PARAMS];
    struct group_needs needs;
    /* As the runtime would bind them. output_grad holds what flows in, addends and all; where the
     * op does not fold by itself, backward sees folded_grad as its only one. */
    struct group_args args;
    struct step_state step;
    int n_params;
    struct op_param param[OP_MAX_PARAMS];
    int32_t labels[64]; /* host copy */
    int n_blocks;
    void *block[OPRUN_MAX_BLOCKS]; /* device memory to free */
};

void *oprun_alloc(struct oprun *r, int64_t n_bytes);

int64_t oprun_elements(const struct oprun *r, const layout *l);

/* The values of a tensor on the host, for the caller to free. */
float *oprun_download(struct oprun *r, const void *from, const layout *l);

void oprun_upload(struct oprun *r, const float *host, void *to, const layout *l);

/* A new tensor of NaN, to be overwritten. */
void *oprun_result(struct oprun *r, const layout *l);

/* Makes the group and fills its tensors. Layouts in `given` (of this device; may be NULL) are kept;
 * inputs and residual not given are plain. */
void oprun_open(struct oprun *r, const struct opdevice *on, const struct opcase *c,
                const struct group_layouts *given);

void oprun_close(struct oprun *r);

void oprun_forward(struct oprun *r);

/* Where the residual's gradient is after oprun_backward. */
const void *oprun_residual_grad(const struct oprun *r);

/* All gradients: the inputs', the params', and the residual's (oprun_residual_grad). */
void oprun_backward(struct oprun *r);

#endif
