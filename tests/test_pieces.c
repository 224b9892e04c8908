/* Pieces of ops: an op is cut along its loops, every piece runs by itself on regions of the whole's
 * tensors, and the assembled results are those of the whole. Below are the parts that this rests
 * on: regions copied between layouts, layouts of weights given to another group, devices side by
 * side.
 */
#include "pieces.h"

#include <pthread.h>

enum { CUTS_PER_CASE = 8 };

/* ---- the cases ---- */

/* The number of cuts of each loop, over all cases: a test that cuts nothing proves nothing. */
static int n_cuts[OP_KIND_COUNT][OP_MAX_LOOPS];

static void run_case(const struct opdevice *fast, const struct opdevice *exact,
                     const struct opcase *c, uint32_t seed)
{
    struct truth t;
    truth_open(&t, exact, c);
    for (uint32_t i = 0; i < CUTS_PER_CASE; i++) {
        struct dice dice = {seed + i, 0};
        struct cut cut;
        choose_cut(&dice, &c->spec, (int)i, &cut);
        if (run_cut(fast, &t, &dice, &cut))
            for (int l = 0; l < cut.n_loops; l++)
                n_cuts[c->spec.op.op][l] += cut.parts[l] > 1;
        dice = (struct dice){seed + i, 1000};
        (void)run_cut(exact, &t, &dice, &cut);
    }
    truth_close(&t);
}

static void test_op_cases(void **state)
{
    (void)state;
    struct opdevice fast, exact;
    open_both(&fast, &exact, 1);
    for (int i = 0; i < opcase_count(); i++)
        run_case(&fast, &exact, opcase_get(i), 1000 + 100 * (uint32_t)i);
    opdevice_close(&fast);
    opdevice_close(&exact);
}

#define PLAIN_CONV(shape, out, ...) OPCASE_CONV(shape, out, .groups = 1, __VA_ARGS__)

/* Channels enough for whole blocks and for kernels that want them. */
static void test_wide_cases(void **state)
{
    (void)state;
    const struct opcase cases[] = {
        {"wide conv 3x3", PLAIN_CONV(SHAPE4(3, 24, 10, 9), 40, OPCASE_WINDOW(3, 3, 1, 1),
                                     OPCASE_PAD(1, 1, 1, 1), .bias = true)},
        {"wide conv 3x3, 2 of padding",
         PLAIN_CONV(SHAPE4(2, 16, 7, 8), 32, OPCASE_WINDOW(3, 3, 1, 1), OPCASE_PAD(2, 0, 2, 1))},
        {"wide conv 3x3 stride 2",
         PLAIN_CONV(SHAPE4(2, 32, 11, 12), 24, OPCASE_WINDOW(3, 3, 2, 2), OPCASE_PAD(1, 1, 1, 1))},
        {"wide conv 1x1",
         PLAIN_CONV(SHAPE4(3, 48, 6, 5), 33, OPCASE_WINDOW(1, 1, 1, 1), .bias = true)},
        {"wide conv 1x1 stride 2", PLAIN_CONV(SHAPE4(2, 32, 9, 8), 48, OPCASE_WINDOW(1, 1, 2, 2))},
        {"wide conv 5x5",
         PLAIN_CONV(SHAPE4(2, 24, 9, 8), 16, OPCASE_WINDOW(5, 5, 1, 1), OPCASE_PAD(2, 2, 2, 2))},
        {"wide conv 1x7",
         PLAIN_CONV(SHAPE4(2, 16, 6, 9), 24, OPCASE_WINDOW(1, 7, 1, 1), OPCASE_PAD(0, 3, 0, 3))},
        {"wide conv 3x3 dilation 2", PLAIN_CONV(SHAPE4(2, 16, 9, 9), 16, OPCASE_WINDOW(3, 3, 1, 1),
                                                OPCASE_PAD(2, 2, 2, 2), .dilation = {2, 2})},
        {"wide conv 4 groups", OPCASE_CONV(SHAPE4(2, 64, 6, 7), 64, OPCASE_WINDOW(3, 3, 1, 1),
                                           OPCASE_PAD(1, 1, 1, 1), .groups = 4)},
        {"wide conv depthwise", OPCASE_CONV(SHAPE4(2, 40, 9, 8), 40, OPCASE_WINDOW(3, 3, 2, 2),
                                            OPCASE_PAD(1, 1, 1, 1), .groups = 40, .bias = true)},
        {"wide linear", OPCASE_SPEC(OP_LINEAR, SHAPE2(9, 70), .out_channels = 45, .bias = true)},
        {"wide max pool 3x3 stride 2",
         OPCASE_SPEC(OP_MAX_POOL, SHAPE4(2, 24, 11, 10), OPCASE_WINDOW(3, 3, 2, 2),
                     OPCASE_PAD(1, 1, 1, 1)),
         .fill = FILL_DISTINCT},
        {"wide average pool 3x3", OPCASE_SPEC(OP_AVERAGE_POOL, SHAPE4(2, 24, 9, 8),
                                              OPCASE_WINDOW(3, 3, 1, 1), OPCASE_PAD(1, 1, 1, 1))},
        {"wide global pool", OPCASE_SPEC(OP_GLOBAL_POOL, SHAPE4(3, 24, 7, 6))},
        {"wide adaptive pool",
         OPCASE_SPEC(OP_ADAPTIVE_POOL, SHAPE4(2, 24, 13, 9), .out_size = {6, 4})},
        {"wide batch norm", OPCASE_NORM(SHAPE4(4, 40, 6, 5))},
        {"wide batch norm of features", OPCASE_NORM(SHAPE2(9, 37))},
        {"wide dropout", OPCASE_SPEC(OP_DROPOUT, SHAPE4(3, 24, 5, 6), .drop_probability = 0.4)},
        {"dropout of many features",
         OPCASE_SPEC(OP_DROPOUT, SHAPE2(7, 1500), .drop_probability = 0.4)},
        {"wide flatten", OPCASE_SPEC(OP_FLATTEN, SHAPE4(3, 24, 3, 4))},
        {"wide concat", .n_output_grads = 1,
         .spec = {.training = true,
                  .input_gradient = true,
                  .op = {.op = OP_CONCAT,
                         .n_inputs = 3,
                         .input = {SHAPE4(2, 24, 5, 4), SHAPE4(2, 13, 5, 4),
                                   SHAPE4(2, 16, 5, 4)}}}},
    };
    int first = opcase_count();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        opcase_append_foldings(&cases[i]);
    struct opdevice fast, exact;
    open_both(&fast, &exact, 3);
    for (int i = first; i < opcase_count(); i++)
        run_case(&fast, &exact, opcase_get(i), 50000 + 100 * (uint32_t)i);
    opdevice_close(&fast);
    opdevice_close(&exact);
}

/* Layers that read images, whose gradient is never needed, have kernels of their own. */
static void test_image_cases(void **state)
{
    (void)state;
    struct opcase cases[] = {
        {"image conv 11x11 stride 4",
         PLAIN_CONV(SHAPE4(2, 3, 35, 31), 40, OPCASE_WINDOW(11, 11, 4, 4), OPCASE_PAD(2, 2, 2, 2),
                    .bias = true)},
        {"image conv 5x5 to six", PLAIN_CONV(SHAPE4(5, 1, 14, 13), 6, OPCASE_WINDOW(5, 5, 1, 1),
                                             OPCASE_PAD(2, 2, 2, 2), .bias = true)},
        {"image conv 3x3 stride 3 to many",
         PLAIN_CONV(SHAPE4(2, 2, 20, 23), 37, OPCASE_WINDOW(5, 7, 3, 3), OPCASE_PAD(0, 3, 2, 1))},
        {"image conv 7x7 stride 2",
         PLAIN_CONV(SHAPE4(2, 3, 21, 19), 24, OPCASE_WINDOW(7, 7, 2, 2), OPCASE_PAD(3, 3, 3, 3))},
        {"image conv 3x3 to many",
         PLAIN_CONV(SHAPE4(2, 3, 9, 10), 64, OPCASE_WINDOW(3, 3, 1, 1), OPCASE_PAD(1, 1, 1, 1))},
    };
    struct opdevice fast, exact;
    open_both(&fast, &exact, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cases[i].spec.input_gradient = false;
        assert_ok(op_infer_shape(&cases[i].spec.op));
        run_case(&fast, &exact, &cases[i], 90000 + 100 * (uint32_t)i);
    }
    opdevice_close(&fast);
    opdevice_close(&exact);
}

/* Every loop that may be cut was cut, in some case. */
static void test_every_loop_was_cut(void **state)
{
    (void)state;
    for (int i = 0; i < opcase_count(); i++) {
        const struct op_case *op = &opcase_get(i)->spec.op;
        struct loop_nest nest = {0};
        op_get_loops(op, &nest);
        for (int l = 0; l < nest.n_loops; l++)
            if (nest.loop[l].cut != CUT_NEVER && nest.loop[l].extent > 1)
                assert_that(n_cuts[op->op][l] > 0, "loop %s of %s was never cut", nest.loop[l].name,
                            op_get_info(op->op)->name);
    }
}

/* ---- dropout, batch norm again ---- */

/* Micro-batches draw the random numbers of the batch. */
static void test_dropout_by_sample(void **state)
{
    (void)state;
    const struct opcase *whole_case = opcase_find("dropout half");
    struct opdevice both[2];
    open_both(&both[0], &both[1], 2);
    for (int d = 0; d < 2; d++) {
        struct opcase half = *whole_case;
        int64_t per_half = shape_elements(&half.spec.op.input[0]) / 2;
        half.spec.op.input[0].dim[0] = half.spec.op.output.dim[0] = 1;
        struct oprun whole, part;
        oprun_open(&whole, &both[d], whole_case, NULL);
        oprun_forward(&whole);
        float *y = oprun_download(&whole, whole.args.output, whole.layouts.output);
        float *x = oprun_download(&whole, whole.args.input[0], whole.layouts.input[0]);
        for (int64_t sample = 0; sample < 2; sample++) {
            oprun_open(&part, &both[d], &half, NULL);
            part.args.first_sample = sample;
            oprun_upload(&part, x + sample * per_half, writable(part.args.input[0]),
                         part.layouts.input[0]);
            oprun_forward(&part);
            float *z = oprun_download(&part, part.args.output, part.layouts.output);
            assert_memory_equal(z, y + sample * per_half, (size_t)per_half * sizeof *z);
            free(z);
            oprun_close(&part);
        }
        free(x);
        free(y);
        oprun_close(&whole);
        opdevice_close(&both[d]);
    }
}

/* Forward run again gives the same output and leaves the running statistics. */
static void test_again(void **state)
{
    (void)state;
    struct opdevice both[2];
    open_both(&both[0], &both[1], 1);
    for (int d = 0; d < 2; d++) {
        struct oprun r;
        oprun_open(&r, &both[d], opcase_find("batch norm, relu"), NULL);
        for (int k = 0; k < 2; k++) {
            oprun_forward(&r);
            float *before = oprun_download(&r, r.args.param[2], r.layouts.param[2]);
            r.args.again = true;
            oprun_forward(&r);
            float *after = oprun_download(&r, r.args.param[2], r.layouts.param[2]);
            size_t n_bytes = (size_t)oprun_elements(&r, r.layouts.param[2]) * sizeof *after;
            assert_memory_equal(before, after, n_bytes);
            r.args.again = false;
            oprun_forward(&r);
            free(after);
            after = oprun_download(&r, r.args.param[2], r.layouts.param[2]);
            assert_memory_not_equal(before, after, n_bytes);
            free(before);
            free(after);
        }
        oprun_close(&r);
        opdevice_close(&both[d]);
    }
}

/* ---- regions ---- */

/* The layout in which some convolution keeps its weights. */
static const layout *weights_layout(const struct opdevice *d, struct dice *dice, int64_t k,
                                    int64_t c, int64_t window)
{
    struct group_spec spec = {
        .training = true,
        .input_gradient = roll(dice, 2),
        .precision = d->precision,
        .op = {.op = OP_CONV2D,
               .n_inputs = 1,
               .input = {SHAPE4(2, c, 12, 12)},
               .attrs = {.out_channels = k, .groups = 1, OPCASE_WINDOW(window, window, 1, 1)}}};
    struct group_layouts io = {
        .input = {choose_layout(d, &spec.op.input[0], roll(dice, 2))},
    };
    group *g;
    assert_ok(op_infer_shape(&spec.op));
    assert_ok(d->backend->group_create(d->device, &spec, &io, &g));
    d->backend->group_destroy(g);
    return io.param[0];
}

static struct shape random_shape(struct dice *dice, int rank, bool large)
{
    struct shape s = {.rank = rank};
    for (int a = 0; a < rank; a++)
        s.dim[a] = 1 + roll(dice, rank > 4 ? 6 : a == 0 ? 4 : a == 1 ? 40 : large ? 30 : 9);
    return s;
}

static const layout *random_layout(const struct opdevice *d, struct dice *dice, int rank,
                                   bool large)
{
    if (rank == 4 && roll(dice, 4) == 0)
        return weights_layout(d, dice, 1 + roll(dice, 40), 1 + roll(dice, 40), 1 + roll(dice, 4));
    struct shape shape = random_shape(dice, rank, large);
    return choose_layout(d, &shape, roll(dice, 3) == 0);
}

static void random_box(const struct opdevice *d, struct dice *dice, struct region_copy *c)
{
    const struct shape *from = d->backend->layout_shape(c->from_layout);
    const struct shape *to = d->backend->layout_shape(c->to_layout);
    for (int a = 0; a < from->rank; a++) {
        int64_t most = from->dim[a] < to->dim[a] ? from->dim[a] : to->dim[a];
        c->extent[a] = roll(dice, 3) ? 1 + roll(dice, most) : most;
        c->from_begin[a] = roll(dice, from->dim[a] - c->extent[a] + 1);
        c->to_begin[a] = roll(dice, to->dim[a] - c->extent[a] + 1);
        if (a == 1 && roll(dice, 2)) { /* block borders */
            c->from_begin[a] = c->from_begin[a] / 8 * 8;
            c->to_begin[a] = c->to_begin[a] / 8 * 8;
        }
    }
}

/* The same in row-major floats, one element at a time. */
static void copy_plainly(const struct region_copy *c, const struct shape *from,
                         const struct shape *to, const float *x, float *y)
{
    int64_t count = 1;
    for (int a = 0; a < from->rank; a++)
        count *= c->extent[a];
    for (int64_t i = 0; i < count; i++) {
        int64_t there = 0, here = 0, place[SHAPE_MAX_RANK], left = i;
        for (int a = from->rank - 1; a >= 0; a--) {
            place[a] = left % c->extent[a];
            left /= c->extent[a];
        }
        for (int a = 0; a < from->rank; a++) {
            there = there * from->dim[a] + c->from_begin[a] + place[a];
            here = here * to->dim[a] + c->to_begin[a] + place[a];
        }
        y[here] = c->add ? y[here] + x[there] : x[there];
    }
}

/* Values that are never zero and add without rounding. */
static struct tensor random_tensor(const struct opdevice *d, struct dice *dice, const layout *l)
{
    int64_t count = shape_elements(d->backend->layout_shape(l));
    float *host = calloc((size_t)count, sizeof *host);
    assert_non_null(host);
    for (int64_t i = 0; i < count; i++)
        host[i] = (float)(1 + roll(dice, 1 << 20));
    struct tensor t = tensor_open(d, l, host);
    free(host);
    return t;
}

static void run_region(const struct opdevice *d, struct dice *dice)
{
    static const int ranks[] = {1, 2, 3, 4, 4, 4, 5, 6};
    int rank = ranks[roll(dice, 8)];
    bool large = roll(dice, 4) == 0;
    char name[32];
    (void)snprintf(name, sizeof name, "region, seed %u", dice->seed);
    struct region_copy c = {.add = roll(dice, 2)};
    c.from_layout = random_layout(d, dice, rank, large);
    c.to_layout = roll(dice, 4) ? random_layout(d, dice, rank, large) : c.from_layout;
    random_box(d, dice, &c);
    struct tensor from = random_tensor(d, dice, c.from_layout);
    struct tensor to = random_tensor(d, dice, c.to_layout);
    float *x = tensor_read(&from), *expected = tensor_read(&to);
    copy_plainly(&c, d->backend->layout_shape(c.from_layout), d->backend->layout_shape(c.to_layout),
                 x, expected);
    assert_ok(d->backend->copy_region(d->stream, &c, from.memory, to.memory));
    float *y = tensor_read(&to);
    for (int64_t i = 0; i < tensor_elements(&to); i++)
        assert_that(y[i] == expected[i], "%s on %s: element %lld is %g, not %g", name,
                    d->backend->name, (long long)i, (double)y[i], (double)expected[i]);
    assert_padding_is_zero(name, &to);
    free(x);
    free(y);
    free(expected);
    tensor_close(&from);
    tensor_close(&to);
}

static void test_regions(void **state)
{
    (void)state;
    struct opdevice both[2];
    open_both(&both[0], &both[1], 3);
    for (int d = 0; d < 2; d++) {
        for (uint32_t seed = 1; seed <= 1500; seed++) {
            struct dice dice = {seed, 0};
            run_region(&both[d], &dice);
        }
        opdevice_close(&both[d]);
    }
}

static void test_regions_outside_are_refused(void **state)
{
    (void)state;
    struct opdevice both[2];
    open_both(&both[0], &both[1], 1);
    for (int d = 0; d < 2; d++) {
        const struct backend *b = both[d].backend;
        struct shape shape = SHAPE2(3, 5);
        struct region_copy c = {.extent = {2, 3}, .from_begin = {0, 3}};
        c.from_layout = c.to_layout = choose_layout(&both[d], &shape, true);
        struct tensor t = tensor_open(&both[d], c.to_layout, NULL);
        assert_fails(b->copy_region(both[d].stream, &c, t.memory, t.memory), STATUS_FAILED,
                     "outside");
        tensor_close(&t);
        opdevice_close(&both[d]);
    }
}

/* Both sides of a transfer must come to the same layout. Images travel in blocks where kernels have
 * them so, and nothing else does, whatever its rank. */
static void test_transfer_layouts(void **state)
{
    (void)state;
    struct opdevice both[2];
    open_both(&both[0], &both[1], 1);
    bool blocks = find_cpu() != NULL;
    const struct backend *b = both[0].backend;
    const struct {
        struct shape region;
        struct axes axes;
        bool blocked;
    } cases[] = {
        {SHAPE4(2, 16, 3, 3), axes_of_images(4), true},
        {SHAPE4(2, 5, 3, 3), axes_of_images(4), true},
        {SHAPE2(2, 16), axes_of_images(2), false},
        {{3, {2, 16, 8}}, {3, {USE_BATCH, USE_TOKEN, USE_CHANNEL}}, false},
        {SHAPE4(2, 16, 8, 8), {4, {USE_BATCH, USE_HEAD, USE_TOKEN, USE_CHANNEL}}, false},
        {SHAPE4(16, 2, 3, 3), {4, {USE_CHANNEL, USE_BATCH, USE_ROW, USE_COLUMN}}, false},
        {{5, {6, 2, 16, 3, 3}},
         {5, {USE_TOKEN, USE_BATCH, USE_CHANNEL, USE_ROW, USE_COLUMN}},
         false},
        {{6, {2, 3, 4, 6, 6, 16}},
         {6, {USE_BATCH, USE_EXPERT, USE_HEAD, USE_TOKEN, USE_TOKEN, USE_CHANNEL}},
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const layout *l, *again, *plain;
        const struct shape *region = &cases[i].region;
        const struct axes *axes = &cases[i].axes;
        assert_ok(b->layout_transfer(both[0].device, ELEMENT_F32, region, axes, &l));
        assert_ok(b->layout_transfer(both[0].device, ELEMENT_F32, region, axes, &again));
        assert_ok(b->layout_plain(both[0].device, ELEMENT_F32, region, &plain));
        assert_ptr_equal(l, again);
        assert_that((l != plain) == (blocks && cases[i].blocked), "case %zu", i);
    }
    opdevice_close(&both[0]);
    opdevice_close(&both[1]);
}

/* Runs of memory of all lengths, small and large enough for several threads. */
static void test_memory_runs(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 7, 16, 1000, 40001, 200003};
    struct opdevice both[2];
    open_both(&both[0], &both[1], 3);
    for (int d = 0; d < 2; d++) {
        const struct backend *b = both[d].backend;
        stream *s = both[d].stream;
        enum element type = precision_get_info(both[d].precision)->activation;
        int64_t size = element_bytes(type);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            int64_t n = counts[i];
            struct shape shape = SHAPE1(n + 3);
            struct dice dice = {(uint32_t)i + 1, 0};
            const layout *l = choose_layout(&both[d], &shape, true);
            struct tensor x = random_tensor(&both[d], &dice, l);
            struct tensor y = random_tensor(&both[d], &dice, l);
            float *a = tensor_read(&x), *c = tensor_read(&y);
            assert_ok(b->accumulate(s, type, n, x.memory, y.memory));
            float *sum = tensor_read(&y);
            assert_ok(b->copy(s, x.memory, y.memory, n * size));
            float *copied = tensor_read(&y);
            assert_ok(b->clear(s, y.memory, n * size));
            float *cleared = tensor_read(&y);
            for (int64_t k = 0; k < n + 3; k++) {
                assert_true(sum[k] == (k < n ? a[k] + c[k] : c[k]));
                assert_true(copied[k] == (k < n ? a[k] : c[k]));
                assert_true(cleared[k] == (k < n ? 0 : c[k]));
            }
            free(a);
            free(c);
            free(sum);
            free(copied);
            free(cleared);
            tensor_close(&x);
            tensor_close(&y);
        }
        opdevice_close(&both[d]);
    }
}

/* ---- weights laid out by another group of the layer ---- */

enum { VARIANTS = 6 };

/* One layer for other batches, image sizes and uses. Kernels differ between them. */
static struct opcase variant_of(const struct opcase *base, int variant, bool *plain)
{
    struct opcase c = *base;
    struct shape *in = &c.spec.op.input[0];
    *plain = variant == 1;
    if (variant == 2)
        c.spec.input_gradient = false;
    if (variant == 3) { /* one output */
        for (int a = 0; a < 2; a++)
            if (in->rank == 4)
                in->dim[2 + a] = c.spec.op.attrs.kernel[a] - 1;
        in->dim[0] = 1;
    }
    if (variant == 4) {
        c.spec.training = c.spec.input_gradient = false;
        in->dim[0] = 1;
    }
    if (variant == 5) {
        *plain = true;
        c.spec.input_gradient = false;
    }
    return c;
}

static void run_with_layouts(const struct opdevice *fast, const struct opdevice *exact,
                             const struct opcase *c, const struct group_layouts *given)
{
    struct oprun r;
    struct truth t;
    truth_open(&t, exact, c);
    oprun_open(&r, fast, c, given);
    for (int k = 0; k < r.n_params; k++)
        if (given->param[k])
            assert_ptr_equal(r.layouts.param[k], given->param[k]);
    poison(&r);
    oprun_forward(&r);
    struct tensor out = {fast, r.layouts.output, r.args.output};
    assert_near_all(c->name, "output", &out, t.output);
    if (c->spec.training) {
        if (r.args.workspace)
            memset(r.args.workspace, 0xff, (size_t)r.needs.backward_workspace_bytes);
        oprun_backward(&r);
        struct tensor dx = {fast, r.layouts.input[0], r.args.input_grad[0]};
        if (dx.memory)
            assert_near_all(c->name, "input gradient", &dx, t.input_grad[0]);
        for (int k = 0; k < r.n_params; k++) {
            struct tensor dw = {fast, r.layouts.param[k], r.args.param_grad[k]};
            assert_near_all(c->name, "parameter gradient", &dw, t.param_grad[k]);
            assert_padding_is_zero(c->name, &dw);
        }
    }
    oprun_close(&r);
    truth_close(&t);
}

/* All ordered pairs of variants: the second is given the params of the first. */
static void run_variants(const struct opdevice *fast, const struct opdevice *exact,
                         const struct opcase *base)
{
    for (int i = 0; i < VARIANTS * VARIANTS; i++) {
        bool plain[2];
        struct opcase c[2] = {variant_of(base, i / VARIANTS, &plain[0]),
                              variant_of(base, i % VARIANTS, &plain[1])};
        struct group_layouts io = {0};
        for (int k = 0; k < 2; k++) {
            opcase_infer(&c[k].spec.op);
            (void)snprintf(c[k].name, sizeof c[k].name, "%.40s, variant %d after %d", base->name,
                           i % VARIANTS, i / VARIANTS);
            io.input[0] = choose_layout(fast, &c[k].spec.op.input[0], plain[k]);
            io.output = NULL;
            if (k == 1)
                run_with_layouts(fast, exact, &c[k], &io);
            group *g;
            assert_ok(fast->backend->group_create(fast->device, &c[k].spec, &io, &g));
            fast->backend->group_destroy(g);
        }
    }
}

static void test_given_layouts(void **state)
{
    (void)state;
    const struct opcase cases[] = {
        {"3x3, few to few", PLAIN_CONV(SHAPE4(3, 3, 9, 8), 6, OPCASE_WINDOW(3, 3, 1, 1),
                                       OPCASE_PAD(1, 1, 1, 1), .bias = true)},
        {"3x3, many to many", PLAIN_CONV(SHAPE4(3, 24, 9, 8), 20, OPCASE_WINDOW(3, 3, 1, 1),
                                         OPCASE_PAD(1, 1, 1, 1), .bias = true)},
        {"3x3, few to many", PLAIN_CONV(SHAPE4(2, 3, 9, 8), 37, OPCASE_WINDOW(3, 3, 1, 1),
                                        OPCASE_PAD(1, 1, 1, 1), .bias = true)},
        {"5x5 stride 3, few to many",
         PLAIN_CONV(SHAPE4(2, 4, 14, 17), 37, OPCASE_WINDOW(5, 5, 3, 3), OPCASE_PAD(1, 1, 1, 1),
                    .bias = true)},
        {"5x5 stride 3, one to some",
         PLAIN_CONV(SHAPE4(2, 1, 14, 17), 11, OPCASE_WINDOW(5, 5, 3, 3), OPCASE_PAD(1, 1, 1, 1))},
        {"3x3, 3 groups of odd sizes",
         OPCASE_CONV(SHAPE4(2, 15, 6, 7), 9, OPCASE_WINDOW(3, 3, 1, 1), OPCASE_PAD(1, 1, 1, 1),
                     .groups = 3, .bias = true)},
        {"depthwise", OPCASE_CONV(SHAPE4(2, 19, 6, 7), 19, OPCASE_WINDOW(3, 3, 1, 1),
                                  OPCASE_PAD(1, 1, 1, 1), .groups = 19, .bias = true)},
        {"linear", OPCASE_SPEC(OP_LINEAR, SHAPE2(5, 33), .out_channels = 21, .bias = true)},
    };
    struct opdevice fast, exact;
    open_both(&fast, &exact, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_variants(&fast, &exact, &cases[i]);
    opdevice_close(&fast);
    opdevice_close(&exact);
}

/* ---- devices side by side ---- */

enum { WORKERS = 3, ROUNDS = 4 };

/* One thread with its own device runs a few ops, and keeps the results. */
struct worker {
    pthread_t thread;
    int threads;
    float *result[2];
    int64_t count;
};

static void *work(void *argument)
{
    static const char *const names[] = {"wide conv 3x3", "wide batch norm, relu",
                                        "wide conv 1x1 stride 2", "wide linear"};
    struct worker *w = argument;
    struct opdevice d;
    const struct backend *cpu = find_cpu();
    opdevice_open(&d, cpu ? cpu : &backend_reference, PRECISION_FLOAT, w->threads);
    w->count = 0;
    float *all = NULL;
    for (size_t i = 0; i < (size_t)ROUNDS * sizeof names / sizeof names[0]; i++) {
        struct oprun r;
        oprun_open(&r, &d, opcase_find(names[i % (sizeof names / sizeof names[0])]), NULL);
        oprun_forward(&r);
        oprun_backward(&r);
        const void *from[] = {r.args.output, r.args.input_grad[0]};
        const layout *l[] = {r.layouts.output, r.layouts.input[0]};
        for (int k = 0; k < 2; k++) {
            int64_t n = oprun_elements(&r, l[k]);
            float *values = oprun_download(&r, from[k], l[k]);
            all = realloc(all, (size_t)(w->count + n) * sizeof *all);
            memcpy(all + w->count, values, (size_t)n * sizeof *all);
            w->count += n;
            free(values);
        }
        oprun_close(&r);
    }
    opdevice_close(&d);
    w->result[w->result[0] != NULL] = all;
    return NULL;
}

static void test_devices_side_by_side(void **state)
{
    (void)state;
    struct worker w[WORKERS] = {0};
    for (int i = 0; i < WORKERS; i++) {
        w[i].threads = i + 1;
        (void)work(&w[i]);
    }
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
        assert_memory_equal(w[i].result[0], w[i].result[1],
                            (size_t)w[i].count * sizeof *w[i].result[0]);
        free(w[i].result[0]);
        free(w[i].result[1]);
    }
}

/* oneDNN takes the number of threads from the calling thread. It must be the device's own number,
 * not that of the device opened last: the order in which weight gradients are summed depends on it.
 */
static void test_devices_in_one_thread(void **state)
{
    (void)state;
    struct opcase c = {"conv", PLAIN_CONV(SHAPE4(8, 32, 28, 28), 32, OPCASE_WINDOW(3, 3, 2, 2),
                                          OPCASE_PAD(1, 1, 1, 1))};
    const struct backend *cpu = find_cpu();
    float *result[2];
    assert_ok(op_infer_shape(&c.spec.op));
    size_t n_bytes = 0;
    for (int k = 0; k < 2; k++) {
        struct opdevice first, second;
        struct oprun r;
        opdevice_open(&first, cpu ? cpu : &backend_reference, PRECISION_FLOAT, 1);
        if (k == 1)
            opdevice_open(&second, cpu ? cpu : &backend_reference, PRECISION_FLOAT, 4);
        oprun_open(&r, &first, &c, NULL);
        oprun_forward(&r);
        oprun_backward(&r);
        result[k] = oprun_download(&r, r.args.param_grad[0], r.layouts.param[0]);
        n_bytes = (size_t)oprun_elements(&r, r.layouts.param[0]) * sizeof *result[k];
        oprun_close(&r);
        opdevice_close(&first);
        if (k == 1)
            opdevice_close(&second);
    }
    assert_memory_equal(result[0], result[1], n_bytes);
    free(result[0]);
    free(result[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_regions_outside_are_refused),
        cmocka_unit_test(test_transfer_layouts),
        cmocka_unit_test(test_memory_runs),
        cmocka_unit_test(test_op_cases),
        cmocka_unit_test(test_wide_cases),
        cmocka_unit_test(test_image_cases),
        cmocka_unit_test(test_every_loop_was_cut),
        cmocka_unit_test(test_dropout_by_sample),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_given_layouts),
        cmocka_unit_test(test_devices_side_by_side),
        cmocka_unit_test(test_devices_in_one_thread),
    };
    return test_run(tests);
}
