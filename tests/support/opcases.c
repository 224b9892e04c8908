#include "opcases.h"

#include "base/bf16.h"

/* ---- the cases ---- */

enum { OPCASE_MAX = 256 };

static struct opcase opcase_table[OPCASE_MAX];

static int opcase_n;

static void opcase_append(const struct opcase *base, enum activation activation, bool residual,
                          int n_output_grads)
{
    static const char *const names[ACTIVATION_COUNT] = {"", ", relu", ", relu6", ", logistic",
                                                        ", tanh"};
    assert_true(opcase_n < OPCASE_MAX);
    struct opcase *c = &opcase_table[opcase_n++];
    *c = *base;
    c->spec.activation = activation;
    c->spec.residual = residual;
    c->n_output_grads = n_output_grads;
    if (c->spec.op.op == OP_CONV2D && c->spec.op.attrs.groups == 0)
        c->spec.op.attrs.groups = 1;
    char grads[32] = "";
    if (n_output_grads > 1)
        (void)snprintf(grads, sizeof grads, ", %d gradients", n_output_grads);
    (void)snprintf(c->name, sizeof c->name, "%.48s%s%s%s", base->name, residual ? ", residual" : "",
                   names[activation], grads);
    opcase_infer(&c->spec.op);
}

void opcase_infer(struct op_case *op)
{
    if (op->axes.rank == 0)
        op->axes = axes_of_images(op->input[0].rank);
    assert_ok(op_infer_shape(op));
}

void opcase_append_foldings(const struct opcase *base)
{
    unsigned flags = op_get_info(base->spec.op.op)->flags;
    opcase_append(base, ACTIVATION_NONE, false, flags & OP_IS_LOSS ? 0 : 1);
    if (!base->all_folds)
        return;
    for (enum activation a = ACTIVATION_NONE; a < ACTIVATION_COUNT; a++)
        for (int residual = 0; residual <= !!(flags & OP_TAKES_RESIDUAL); residual++)
            for (int n_grads = 1; n_grads <= 3; n_grads += 2)
                if (a != ACTIVATION_NONE || residual || n_grads > 1)
                    opcase_append(base, a, residual, n_grads);
}

static void opcase_build_product(void)
{
    const struct opcase base[] = {
        /* convolution */
        {"conv 1x1", OPCASE_CONV(SHAPE4(2, 3, 5, 4), 7, OPCASE_WINDOW(1, 1, 1, 1))},
        {"conv 1x1 bias, batch 1",
         OPCASE_CONV(SHAPE4(1, 17, 3, 3), 3, OPCASE_WINDOW(1, 1, 1, 1), .bias = true)},
        {"conv 1x1 stride 2", OPCASE_CONV(SHAPE4(2, 7, 6, 7), 5, OPCASE_WINDOW(1, 1, 2, 2))},
        {"conv 1x1 padded",
         OPCASE_CONV(SHAPE4(1, 2, 3, 3), 3, OPCASE_WINDOW(1, 1, 1, 1), OPCASE_PAD(1, 0, 0, 1))},
        {"conv 1x1 padded, same size",
         OPCASE_CONV(SHAPE4(1, 2, 4, 4), 2, OPCASE_WINDOW(1, 1, 2, 1), OPCASE_PAD(2, 0, 2, 0))},
        {"conv 3x3 pad 1 bias",
         OPCASE_CONV(SHAPE4(2, 3, 7, 5), 4, OPCASE_WINDOW(3, 3, 1, 1), OPCASE_PAD(1, 1, 1, 1),
                     .bias = true),
         .all_folds = true},
        {"conv 3x3 no pad", OPCASE_CONV(SHAPE4(3, 1, 6, 5), 3, OPCASE_WINDOW(3, 3, 1, 1))},
        {"conv 3x3 stride 2 pad 1",
         OPCASE_CONV(SHAPE4(2, 3, 8, 7), 5, OPCASE_WINDOW(3, 3, 2, 2), OPCASE_PAD(1, 1, 1, 1))},
        {"conv 3x2 stride 2x3, uneven pad",
         OPCASE_CONV(SHAPE4(2, 2, 7, 9), 3, OPCASE_WINDOW(3, 2, 2, 3), OPCASE_PAD(2, 0, 1, 1))},
        {"conv 1x7",
         OPCASE_CONV(SHAPE4(1, 3, 5, 8), 2, OPCASE_WINDOW(1, 7, 1, 1), OPCASE_PAD(0, 3, 0, 3))},
        {"conv 7x1",
         OPCASE_CONV(SHAPE4(1, 3, 3, 3), 2, OPCASE_WINDOW(7, 1, 1, 1), OPCASE_PAD(3, 0, 3, 0))},
        {"conv 7x7 stride 2 pad 3",
         OPCASE_CONV(SHAPE4(2, 3, 9, 11), 4, OPCASE_WINDOW(7, 7, 2, 2), OPCASE_PAD(3, 3, 3, 3))},
        {"conv 5x5 wider than its input",
         OPCASE_CONV(SHAPE4(2, 3, 2, 3), 4, OPCASE_WINDOW(5, 5, 1, 1), OPCASE_PAD(2, 2, 2, 2),
                     .bias = true)},
        {"conv 11x11 stride 4",
         OPCASE_CONV(SHAPE4(1, 1, 15, 19), 2, OPCASE_WINDOW(11, 11, 4, 4), OPCASE_PAD(2, 2, 2, 2))},
        {"conv dilation 2", OPCASE_CONV(SHAPE4(2, 3, 8, 7), 3, OPCASE_WINDOW(3, 3, 1, 1),
                                        OPCASE_PAD(2, 2, 2, 2), .dilation = {2, 2})},
        {"conv dilation 1x3 stride 2x1",
         OPCASE_CONV(SHAPE4(1, 2, 6, 9), 3, OPCASE_WINDOW(2, 3, 2, 1), OPCASE_PAD(0, 2, 1, 1),
                     .dilation = {1, 3})},
        {"conv 3 groups", OPCASE_CONV(SHAPE4(2, 6, 5, 4), 9, OPCASE_WINDOW(3, 3, 1, 1),
                                      OPCASE_PAD(1, 1, 1, 1), .groups = 3, .bias = true)},
        {"conv 2 groups 1x1",
         OPCASE_CONV(SHAPE4(2, 4, 3, 5), 6, OPCASE_WINDOW(1, 1, 1, 1), .groups = 2)},
        {"conv depthwise", OPCASE_CONV(SHAPE4(2, 7, 5, 6), 7, OPCASE_WINDOW(3, 3, 1, 1),
                                       OPCASE_PAD(1, 1, 1, 1), .groups = 7)},
        {"conv depthwise stride 2",
         OPCASE_CONV(SHAPE4(2, 17, 7, 6), 17, OPCASE_WINDOW(3, 3, 2, 2), OPCASE_PAD(1, 1, 1, 1),
                     .groups = 17, .bias = true)},
        {"conv depthwise, 2 outputs each",
         OPCASE_CONV(SHAPE4(1, 3, 5, 5), 6, OPCASE_WINDOW(3, 3, 1, 1), OPCASE_PAD(1, 1, 1, 1),
                     .groups = 3)},
        {"conv 17 to 16 channels",
         OPCASE_CONV(SHAPE4(1, 17, 4, 4), 16, OPCASE_WINDOW(3, 3, 1, 1), OPCASE_PAD(1, 1, 1, 1))},
        {"conv to 1x1",
         OPCASE_CONV(SHAPE4(3, 4, 4, 3), 5, OPCASE_WINDOW(4, 3, 1, 1), .bias = true)},
        {"conv stride past its kernel",
         OPCASE_CONV(SHAPE4(2, 3, 7, 8), 3, OPCASE_WINDOW(2, 1, 3, 2), OPCASE_PAD(1, 1, 0, 0))},
        /* linear */
        {"linear", OPCASE_SPEC(OP_LINEAR, SHAPE2(4, 7), .out_channels = 5)},
        {"linear bias", OPCASE_SPEC(OP_LINEAR, SHAPE2(3, 17), .out_channels = 6, .bias = true),
         .all_folds = true},
        {"linear batch 1", OPCASE_SPEC(OP_LINEAR, SHAPE2(1, 33), .out_channels = 1, .bias = true)},
        {"linear 1 to 3", OPCASE_SPEC(OP_LINEAR, SHAPE2(2, 1), .out_channels = 3)},
    };
    for (size_t i = 0; i < sizeof base / sizeof base[0]; i++)
        opcase_append_foldings(&base[i]);
}

static void opcase_build_pool(void)
{
    const struct opcase base[] = {
        /* maximum */
        {"max pool 2x2", OPCASE_SPEC(OP_MAX_POOL, SHAPE4(2, 3, 6, 8), OPCASE_WINDOW(2, 2, 2, 2)),
         .fill = FILL_DISTINCT},
        {"max pool 3x3 stride 2 pad 1",
         OPCASE_SPEC(OP_MAX_POOL, SHAPE4(2, 3, 7, 8), OPCASE_WINDOW(3, 3, 2, 2),
                     OPCASE_PAD(1, 1, 1, 1)),
         .fill = FILL_DISTINCT},
        {"max pool 3x3 stride 1 pad 1",
         OPCASE_SPEC(OP_MAX_POOL, SHAPE4(1, 7, 4, 5), OPCASE_WINDOW(3, 3, 1, 1),
                     OPCASE_PAD(1, 1, 1, 1)),
         .fill = FILL_DISTINCT},
        {"max pool 3x3 stride 2, pad after",
         OPCASE_SPEC(OP_MAX_POOL, SHAPE4(1, 17, 6, 6), OPCASE_WINDOW(3, 3, 2, 2),
                     OPCASE_PAD(0, 0, 1, 1)),
         .fill = FILL_DISTINCT},
        {"max pool 3x2 stride 1x3",
         OPCASE_SPEC(OP_MAX_POOL, SHAPE4(1, 1, 5, 7), OPCASE_WINDOW(3, 2, 1, 3),
                     OPCASE_PAD(2, 1, 0, 1)),
         .fill = FILL_DISTINCT},
        {"max pool wider than its input",
         OPCASE_SPEC(OP_MAX_POOL, SHAPE4(2, 3, 2, 1), OPCASE_WINDOW(3, 3, 2, 2),
                     OPCASE_PAD(1, 1, 1, 1)),
         .fill = FILL_DISTINCT},
        /* averages */
        {"average pool 2x2",
         OPCASE_SPEC(OP_AVERAGE_POOL, SHAPE4(2, 3, 6, 8), OPCASE_WINDOW(2, 2, 2, 2))},
        {"average pool 3x3 pad 1", OPCASE_SPEC(OP_AVERAGE_POOL, SHAPE4(2, 3, 5, 4),
                                               OPCASE_WINDOW(3, 3, 1, 1), OPCASE_PAD(1, 1, 1, 1))},
        {"average pool 3x3 pad 1, padding counts",
         OPCASE_SPEC(OP_AVERAGE_POOL, SHAPE4(2, 3, 5, 4), OPCASE_WINDOW(3, 3, 1, 1),
                     OPCASE_PAD(1, 1, 1, 1), .count_padding = true)},
        {"average pool 3x2 stride 2x3, uneven pad",
         OPCASE_SPEC(OP_AVERAGE_POOL, SHAPE4(1, 7, 7, 8), OPCASE_WINDOW(3, 2, 2, 3),
                     OPCASE_PAD(2, 0, 1, 1))},
        {"average pool 5x5 stride 3, channels 17",
         OPCASE_SPEC(OP_AVERAGE_POOL, SHAPE4(1, 17, 8, 5), OPCASE_WINDOW(5, 5, 3, 3))},
        {"global pool", OPCASE_SPEC(OP_GLOBAL_POOL, SHAPE4(2, 3, 5, 7))},
        {"global pool of 1x1", OPCASE_SPEC(OP_GLOBAL_POOL, SHAPE4(1, 17, 1, 1))},
        {"adaptive pool 7x5 to 3x2",
         OPCASE_SPEC(OP_ADAPTIVE_POOL, SHAPE4(2, 3, 7, 5), .out_size = {3, 2})},
        {"adaptive pool 6x6 to 6x6",
         OPCASE_SPEC(OP_ADAPTIVE_POOL, SHAPE4(1, 2, 6, 6), .out_size = {6, 6})},
        {"adaptive pool 2x3 to 5x7",
         OPCASE_SPEC(OP_ADAPTIVE_POOL, SHAPE4(2, 1, 2, 3), .out_size = {5, 7})},
        {"adaptive pool 8x8 to 1x1",
         OPCASE_SPEC(OP_ADAPTIVE_POOL, SHAPE4(2, 3, 8, 8), .out_size = {1, 1})},
    };
    for (size_t i = 0; i < sizeof base / sizeof base[0]; i++)
        opcase_append_foldings(&base[i]);
}

static void opcase_build_rest(void)
{
    const struct opcase base[] = {
        /* norms */
        {"batch norm", OPCASE_NORM(SHAPE4(3, 3, 4, 5))},
        {"batch norm batch 1, channels 17", OPCASE_NORM(SHAPE4(1, 17, 3, 2))},
        {"batch norm of features", OPCASE_NORM(SHAPE2(7, 5))},
        {"batch norm one channel", OPCASE_NORM(SHAPE4(4, 1, 3, 3))},
        {"local response norm 5", OPCASE_LRN(SHAPE4(2, 7, 3, 2), 5)},
        {"local response norm 4", OPCASE_LRN(SHAPE4(1, 17, 2, 2), 4)},
        {"local response norm wider than its input", OPCASE_LRN(SHAPE4(2, 3, 2, 3), 9)},
        {"local response norm 1", OPCASE_LRN(SHAPE4(2, 3, 2, 3), 1)},
        /* element by element */
        {"relu", OPCASE_SPEC(OP_RELU, SHAPE4(2, 3, 5, 7)), .fill = FILL_DISTINCT},
        {"relu of features", OPCASE_SPEC(OP_RELU, SHAPE2(3, 17)), .fill = FILL_DISTINCT},
        {"relu6", OPCASE_SPEC(OP_RELU6, SHAPE4(2, 7, 3, 5)), .fill = FILL_DISTINCT},
        {"logistic", OPCASE_SPEC(OP_LOGISTIC, SHAPE4(2, 3, 3, 3))},
        {"tanh", OPCASE_SPEC(OP_TANH, SHAPE4(1, 17, 3, 3))},
        {"dropout half", OPCASE_SPEC(OP_DROPOUT, SHAPE4(2, 3, 5, 7), .drop_probability = 0.5)},
        {"dropout fifth", OPCASE_SPEC(OP_DROPOUT, SHAPE2(3, 17), .drop_probability = 0.2)},
        {"dropout none", OPCASE_SPEC(OP_DROPOUT, SHAPE2(2, 3), .drop_probability = 0)},
        {"flatten", OPCASE_SPEC(OP_FLATTEN, SHAPE4(2, 3, 4, 5))},
        {"flatten of 1x1", OPCASE_SPEC(OP_FLATTEN, SHAPE4(3, 17, 1, 1))},
        /* several inputs */
        {"add", .n_output_grads = 1, .all_folds = true,
         .spec = {.training = true,
                  .input_gradient = true,
                  .op = {.op = OP_ADD,
                         .n_inputs = 2,
                         .input = {SHAPE4(2, 3, 5, 4), SHAPE4(2, 3, 5, 4)}}}},
        {"add of three features", .n_output_grads = 1,
         .spec = {.training = true,
                  .input_gradient = true,
                  .op = {.op = OP_ADD,
                         .n_inputs = 3,
                         .input = {SHAPE2(3, 7), SHAPE2(3, 7), SHAPE2(3, 7)}}}},
        {"concat", .n_output_grads = 1,
         .spec = {.training = true,
                  .input_gradient = true,
                  .op = {.op = OP_CONCAT,
                         .n_inputs = 3,
                         .input = {SHAPE4(2, 3, 3, 4), SHAPE4(2, 1, 3, 4), SHAPE4(2, 7, 3, 4)}}}},
        {"concat of 16 and 8 channels", .n_output_grads = 1,
         .spec = {.training = true,
                  .input_gradient = true,
                  .op = {.op = OP_CONCAT,
                         .n_inputs = 2,
                         .input = {SHAPE4(2, 16, 3, 3), SHAPE4(2, 8, 3, 3)}}}},
        {"concat of features", .n_output_grads = 1,
         .spec = {.training = true,
                  .input_gradient = true,
                  .op = {.op = OP_CONCAT, .n_inputs = 2, .input = {SHAPE2(3, 5), SHAPE2(3, 2)}}}},
        /* tensors of any axes */
        {"tanh of tokens", .n_output_grads = 1,
         .spec = {.training = true,
                  .input_gradient = true,
                  .op = {.op = OP_TANH,
                         .n_inputs = 1,
                         .input = {{3, {4, 2, 5}}},
                         .axes = {3, {USE_TOKEN, USE_BATCH, USE_CHANNEL}}}}},
        {"dropout of heads", .n_output_grads = 1,
         .spec = {.training = true,
                  .input_gradient = true,
                  .random_stream = 3,
                  .op = {.op = OP_DROPOUT,
                         .n_inputs = 1,
                         .input = {SHAPE4(2, 3, 5, 4)},
                         .axes = {4, {USE_BATCH, USE_HEAD, USE_TOKEN, USE_CHANNEL}},
                         .attrs.drop_probability = 0.4}}},
        {"dropout of five axes", .n_output_grads = 1,
         .spec = {.training = true,
                  .input_gradient = true,
                  .random_stream = 3,
                  .op = {.op = OP_DROPOUT,
                         .n_inputs = 1,
                         .input = {{5, {3, 2, 2, 3, 2}}},
                         .axes = {5, {USE_TOKEN, USE_BATCH, USE_CHANNEL, USE_ROW, USE_COLUMN}},
                         .attrs.drop_probability = 0.4}}},
        {"add of six axes", .n_output_grads = 1, .all_folds = true,
         .spec = {.training = true,
                  .input_gradient = true,
                  .op = {.op = OP_ADD,
                         .n_inputs = 2,
                         .input = {{6, {2, 2, 2, 3, 2, 2}}, {6, {2, 2, 2, 3, 2, 2}}},
                         .axes = {6,
                                  {USE_EXPERT, USE_BATCH, USE_HEAD, USE_TOKEN, USE_TOKEN,
                                   USE_CHANNEL}}}}},
        /* the loss */
        {"softmax cross-entropy", OPCASE_SPEC(OP_SOFTMAX_CROSS_ENTROPY, SHAPE2(5, 10))},
        {"softmax cross-entropy part of a batch",
         OPCASE_SPEC(OP_SOFTMAX_CROSS_ENTROPY, SHAPE2(2, 17))},
        {"softmax cross-entropy one class", OPCASE_SPEC(OP_SOFTMAX_CROSS_ENTROPY, SHAPE2(5, 1))},
    };
    for (size_t i = 0; i < sizeof base / sizeof base[0]; i++)
        opcase_append_foldings(&base[i]);
}

int opcase_count(void)
{
    if (!opcase_n) {
        opcase_build_product();
        opcase_build_pool();
        opcase_build_rest();
    }
    return opcase_n;
}

const struct opcase *opcase_get(int i)
{
    assert_true(i >= 0 && i < opcase_count());
    return &opcase_table[i];
}

const struct opcase *opcase_find(const char *name)
{
    for (int i = 0; i < opcase_count(); i++)
        if (strcmp(opcase_get(i)->name, name) == 0)
            return opcase_get(i);
    fail_msg("no op case '%s'", name);
    return NULL;
}

/* ---- a device ---- */

void opdevice_open(struct opdevice *d, const struct backend *backend, enum precision precision,
                   int threads)
{
    struct device_options options = {.threads = threads};
    d->precision = precision;
    d->rounds = false;
    d->backend = backend;
    assert_ok(backend->device_open(&options, &d->device));
    assert_ok(backend->stream_create(d->device, &d->stream));
}

void opdevice_close(struct opdevice *d)
{
    d->backend->stream_destroy(d->stream);
    d->backend->device_close(d->device);
}

/* ---- one case on one device ---- */

void *oprun_alloc(struct oprun *r, int64_t n_bytes)
{
    assert_true(r->n_blocks < OPRUN_MAX_BLOCKS);
    void *p = NULL;
    assert_ok(r->on->backend->memory_alloc(r->on->device, n_bytes, &p));
    r->block[r->n_blocks++] = p;
    return p;
}

int64_t oprun_elements(const struct oprun *r, const layout *l)
{
    return shape_elements(r->on->backend->layout_shape(l));
}

float *oprun_download(struct oprun *r, const void *from, const layout *l)
{
    float *host = calloc((size_t)oprun_elements(r, l) + 1, sizeof *host);
    assert_non_null(host);
    assert_ok(r->on->backend->download(r->on->stream, from, l, host));
    assert_ok(r->on->backend->stream_synchronize(r->on->stream));
    return host;
}

void oprun_upload(struct oprun *r, const float *host, void *to, const layout *l)
{
    assert_ok(r->on->backend->upload(r->on->stream, host, to, l));
    assert_ok(r->on->backend->stream_synchronize(r->on->stream));
}

/* Element i of `count` of tensor number `tensor`, within +-size. */
static float oprun_value(enum opcase_fill fill, uint32_t tensor, int64_t i, int64_t count,
                         double size)
{
    struct random_key key = {.seed = 20, .use = RANDOM_TEST, .stream = tensor};
    if (fill == FILL_UNIFORM)
        return (float)(size * (2 * random_uniform(key, 0, (uint64_t)i) - 1));
    double place = (double)random_permute(key, (uint64_t)count, (uint64_t)i);
    return (float)((place + 0.3 - (double)(count / 2)) * 16 / (double)count);
}

/* A new tensor of `shift` plus values within +-size. */
static void *oprun_tensor(struct oprun *r, const layout *l, enum opcase_fill fill, uint32_t tensor,
                          double shift, double size)
{
    int64_t count = oprun_elements(r, l);
    float *host = calloc((size_t)count + 1, sizeof *host);
    assert_non_null(host);
    for (int64_t i = 0; i < count; i++)
        host[i] = (float)(shift + (double)oprun_value(fill, tensor, i, count, size));
    for (int64_t i = 0; r->on->rounds && i < count; i++)
        host[i] = bf16_widen(bf16_round(host[i]));
    void *p = oprun_alloc(r, r->on->backend->layout_bytes(l));
    oprun_upload(r, host, p, l);
    free(host);
    return p;
}

void *oprun_result(struct oprun *r, const layout *l)
{
    return oprun_tensor(r, l, FILL_UNIFORM, 0, NAN, 0);
}

static void oprun_bind_params(struct oprun *r)
{
    for (int i = 0; i < r->n_params; i++) {
        bool variance = strcmp(r->param[i].name, "running_var") == 0;
        bool norm_weight = r->c.spec.op.op == OP_BATCH_NORM && i == 0;
        double size = variance ? 0.75 : norm_weight ? 4 : 1;
        r->args.param[i] = oprun_tensor(r, r->layouts.param[i], FILL_UNIFORM, 100 + (uint32_t)i,
                                        variance ? 1.25 : 0, size);
        assert_ok(r->on->backend->layout_in_type(r->on->device,
                                                 precision_get_info(r->on->precision)->gradient,
                                                 r->layouts.param[i], &r->param_grad_layout[i]));
        if (r->param[i].trained && r->c.spec.training)
            r->args.param_grad[i] = oprun_result(r, r->param_grad_layout[i]);
    }
}

static void oprun_bind_labels(struct oprun *r)
{
    const struct shape *logits = &r->c.spec.op.input[0];
    assert_true(logits->dim[0] <= (int64_t)(sizeof r->labels / sizeof r->labels[0]));
    for (int64_t i = 0; i < logits->dim[0]; i++)
        r->labels[i] = (int32_t)(7 * i % logits->dim[1]);
    int32_t *to = oprun_alloc(r, logits->dim[0] * (int64_t)sizeof *to);
    assert_ok(r->on->backend->upload_labels(r->on->stream, r->labels, logits->dim[0], to));
    r->args.labels = to;
}

static void oprun_bind_gradients(struct oprun *r)
{
    const struct group_spec *spec = &r->c.spec;
    r->args.n_output_grads = r->c.n_output_grads;
    for (int i = 0; i < r->c.n_output_grads; i++)
        r->args.output_grad[i] =
            oprun_tensor(r, r->layouts.output, FILL_UNIFORM, 200 + (uint32_t)i, 0, 1);
    if (r->c.n_output_grads > 1 || (r->c.n_output_grads && spec->activation != ACTIVATION_NONE))
        r->args.folded_grad = oprun_result(r, r->layouts.output);
    if (!spec->input_gradient)
        return;
    for (int i = 0; i < spec->op.n_inputs; i++)
        if (r->needs.output_is_input) /* then the gradients are one tensor too */
            r->args.input_grad[i] = (void *)(uintptr_t)r->args.output_grad[0];
        else
            r->args.input_grad[i] = oprun_result(r, r->layouts.input[i]);
}

static void oprun_bind(struct oprun *r)
{
    const struct group_spec *spec = &r->c.spec;
    for (int i = 0; i < spec->op.n_inputs; i++)
        r->args.input[i] = oprun_tensor(r, r->layouts.input[i], r->c.fill, 1 + (uint32_t)i, 0, 2);
    if (spec->residual)
        r->args.residual = oprun_tensor(r, r->layouts.residual, FILL_UNIFORM, 50, 0, 2);
    r->args.output = r->needs.output_is_input ? (void *)(uintptr_t)r->args.input[0]
                                              : oprun_result(r, r->layouts.output);
    oprun_bind_params(r);
    if (op_get_info(spec->op.op)->flags & OP_IS_LOSS)
        oprun_bind_labels(r);
    if (spec->training)
        oprun_bind_gradients(r);
    int64_t workspace_bytes = r->needs.forward_workspace_bytes;
    if (workspace_bytes < r->needs.backward_workspace_bytes)
        workspace_bytes = r->needs.backward_workspace_bytes;
    r->args.workspace = workspace_bytes ? oprun_alloc(r, workspace_bytes) : NULL;
    r->args.saved = r->needs.saved_bytes ? oprun_alloc(r, r->needs.saved_bytes) : NULL;
}

void oprun_open(struct oprun *r, const struct opdevice *on, const struct opcase *c,
                const struct group_layouts *given)
{
    const struct backend *b = on->backend;
    *r = (struct oprun){.on = on, .c = *c, .step = {.seed = 7, .step = 2}};
    const enum element type = precision_get_info(on->precision)->activation;
    r->c.spec.precision = on->precision;
    if (given)
        r->layouts = *given;
    for (int i = 0; i < c->spec.op.n_inputs; i++)
        if (!r->layouts.input[i])
            assert_ok(
                b->layout_plain(on->device, type, &c->spec.op.input[i], &r->layouts.input[i]));
    if (c->spec.residual && !r->layouts.residual)
        assert_ok(b->layout_plain(on->device, type, &c->spec.op.output, &r->layouts.residual));
    assert_ok(b->group_create(on->device, &r->c.spec, &r->layouts, &r->group));
    b->group_get_needs(r->group, &r->needs);
    r->n_params = op_get_params(&c->spec.op, r->param);
    oprun_bind(r);
}

void oprun_close(struct oprun *r)
{
    r->on->backend->group_destroy(r->group);
    for (int i = 0; i < r->n_blocks; i++)
        r->on->backend->memory_free(r->on->device, r->block[i]);
    *r = (struct oprun){0};
}

void oprun_forward(struct oprun *r)
{
    if (r->needs.output_is_input)
        return;
    const struct backend *b = r->on->backend;
    assert_ok(b->group_run(r->group, PASS_FORWARD, r->on->stream, &r->args, &r->step));
    assert_ok(b->stream_synchronize(r->on->stream));
}

const void *oprun_residual_grad(const struct oprun *r)
{
    return r->args.folded_grad ? r->args.folded_grad : r->args.output_grad[0];
}

void oprun_backward(struct oprun *r)
{
    if (r->needs.output_is_input)
        return;
    const struct backend *b = r->on->backend;
    const struct group_spec *spec = &r->c.spec;
    unsigned flags = op_get_info(spec->op.op)->flags;
    struct group_args args = r->args;
    if (args.folded_grad && !(flags & OP_FOLDS_GRADIENTS)) {
        assert_ok(b->fold(r->on->stream, r->layouts.output, args.n_output_grads, args.output_grad,
                          spec->activation, args.output, args.folded_grad));
        args.n_output_grads = 1;
        args.output_grad[0] = args.folded_grad;
    }
    if (!(flags & OP_SPLIT_GRADIENT)) {
        assert_ok(b->group_run(r->group, PASS_BACKWARD, r->on->stream, &args, &r->step));
    } else {
        if (spec->input_gradient)
            assert_ok(b->group_run(r->group, PASS_BACKWARD_DATA, r->on->stream, &args, &r->step));
        assert_ok(b->group_run(r->group, PASS_BACKWARD_WEIGHTS, r->on->stream, &args, &r->step));
    }
    assert_ok(b->stream_synchronize(r->on->stream));
}
