/* Keys and work of instructions: equal where the same is done, different where anything differs
 * that takes time; every instruction of every strategy has a key. */
#include "base/timer.h"
#include "program/work.h"
#include "session.h"

enum { MAX_WORKERS = 4 };

static struct graph_variant small_variant(const char *model, int64_t batch)
{
    struct graph_variant v = {batch, 3, 32, 32, 10, true, -1};
    static const char *const large[] = {"alexnet", "alexnet7", "googlenet", "inceptionv3"};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        if (strcmp(model, large[i]) == 0) {
            v.height = v.width = i == 3 ? 96 : 64;
            v.small_form = false;
        }
    return v;
}

static struct program *lower(struct session *s, const struct graph *g, const struct plan *plan,
                             int worker, bool training)
{
    struct program *p = NULL;
    struct program_options o = {.backend = s->backend,
                                .device = s->device,
                                .training = training,
                                .n_states = training,
                                .plan = plan,
                                .worker = worker};
    assert_ok(program_create(g, &o, &p));
    return p;
}

static const char *key_of(const struct program *p, int i)
{
    static char key[2][WORK_KEY_BYTES];
    static int turn;
    turn = !turn;
    return program_instr_key(p, i, key[turn], sizeof key[turn]);
}

static bool computes(const struct program *p, int i)
{
    return p->instrs[i].stream == STREAM_COMPUTE;
}

/* ---- every instruction has a key and finite work ---- */

static void check_instr(const struct program *p, int i, const char *what)
{
    struct instr_work work;
    const char *key = key_of(p, i);
    size_t n = strlen(key);
    assert_that(n > 0 && n < WORK_KEY_BYTES - 1, "%s: instruction %d: '%s'", what, i, key);
    program_instr_work(p, i, &work);
    assert_that(isfinite(work.amount.flops) && work.amount.flops >= 0 &&
                    isfinite(work.amount.bytes) && work.amount.bytes > 0,
                "%s: '%s': %g flops, %g bytes", what, key, work.amount.flops, work.amount.bytes);
    assert_that(strlen(work.family) > 0 && strlen(work.family) < WORK_FAMILY_BYTES - 1, "%s: '%s'",
                what, key);
}

static void check_plan(struct session *s, const struct graph *g, const struct plan *plan,
                       const char *what)
{
    for (int w = 0; w < plan->n_workers; w++) {
        struct program *p = lower(s, g, plan, w, true);
        for (int i = 0; i < p->n_instrs; i++)
            if (computes(p, i))
                check_instr(p, i, what);
        program_destroy(p);
    }
}

static void check_strategies(struct session *s, const char *model, int n_workers)
{
    struct graph_variant variant = small_variant(model, 8);
    struct graph *g;
    assert_ok(network_build(model, &variant, &g));
    for (const struct plan_strategy *strategy = plan_strategies(); strategy->name; strategy++) {
        struct plan_request request = {.n_workers = n_workers};
        struct plan *plan;
        char what[96];
        (void)snprintf(what, sizeof what, "%s %s %d", model, strategy->name, n_workers);
        if (plan_build(strategy->name, g, &request, &plan) != STATUS_OK) {
            session_expect_refusal(strategy->name, n_workers);
            continue;
        }
        check_plan(s, g, plan, what);
        plan_destroy(plan);
    }
    graph_destroy(g);
}

static void test_all_have_keys(void **state)
{
    struct session s;
    (void)state;
    session_open(&s, "reference", PRECISION_FLOAT);
    for (const char *const *model = network_names(); *model; model++)
        check_strategies(&s, *model, strncmp(*model, "resnet1", 7) == 0 ? 2 : 4);
    session_close(&s);
    session_open(&s, "cpu", PRECISION_FLOAT);
    check_strategies(&s, "lenet5", 3);
    check_strategies(&s, "resnet18", 2);
    session_close(&s);
}

/* ---- keys are equal where, and only where, the same is done ---- */

static const layout *layout_of(const struct program *p, int buffer)
{
    return buffer == NO_BUFFER ? NULL : p->buffers[buffer].layout;
}

static bool same_attrs(const struct op_attrs *a, const struct op_attrs *b)
{
    bool same = a->groups == b->groups && a->bias == b->bias && a->lrn_size == b->lrn_size &&
                a->count_padding == b->count_padding;
    for (int i = 0; i < 2; i++)
        same &= a->kernel[i] == b->kernel[i] && a->stride[i] == b->stride[i] &&
                a->dilation[i] == b->dilation[i] && a->pad_before[i] == b->pad_before[i] &&
                a->pad_after[i] == b->pad_after[i];
    return same;
}

static bool same_spec(const struct group_spec *a, const struct group_spec *b)
{
    bool same = a->op.op == b->op.op && same_attrs(&a->op.attrs, &b->op.attrs) &&
                a->op.n_inputs == b->op.n_inputs && shape_equal(&a->op.output, &b->op.output) &&
                a->activation == b->activation && a->residual == b->residual &&
                a->training == b->training && a->input_gradient == b->input_gradient &&
                a->shared_statistics == b->shared_statistics;
    for (int k = 0; same && k < a->op.n_inputs; k++)
        same = shape_equal(&a->op.input[k], &b->op.input[k]);
    return same;
}

static bool in_place(const struct program_run *run)
{
    return run->input_grad[0] != NO_BUFFER && run->input_grad[0] == run->folded_grad;
}

/* Layouts of a device are equal where their pointers are. */
static bool same_run(const struct program *p, int i, int j)
{
    const struct instr *x = &p->instrs[i], *y = &p->instrs[j];
    const struct program_run *a = &p->runs[x->index], *b = &p->runs[y->index];
    bool forward = x->pass == PASS_FORWARD || x->pass == PASS_FORWARD_STATISTICS;
    bool same = x->pass == y->pass &&
                same_spec(&p->groups[x->group].spec, &p->groups[y->group].spec) &&
                a->again == b->again && layout_of(p, a->residual) == layout_of(p, b->residual) &&
                layout_of(p, a->param[0]) == layout_of(p, b->param[0]);
    for (int k = 0; same && k < OP_MAX_INPUTS; k++)
        same = layout_of(p, a->input[k]) == layout_of(p, b->input[k]);
    if (same && !forward)
        same = a->n_output_grads == b->n_output_grads && in_place(a) == in_place(b);
    for (int k = 0; same && !forward && k < OP_MAX_INPUTS; k++)
        same = (a->input_grad[k] == NO_BUFFER) == (b->input_grad[k] == NO_BUFFER);
    return same;
}

static int count_equal_keys(const struct program *p)
{
    int n_equal = 0;
    for (int i = 0; i < p->n_instrs; i++)
        for (int j = 0; j < i; j++) {
            if (p->instrs[i].kind != INSTR_RUN || p->instrs[j].kind != INSTR_RUN)
                continue;
            const char *x = key_of(p, i), *y = key_of(p, j);
            bool equal = strcmp(x, y) == 0;
            assert_that(equal == same_run(p, i, j), "instructions %d and %d: '%s' and '%s'", i, j,
                        x, y);
            n_equal += equal;
        }
    return n_equal;
}

static void check_equal_keys(const char *backend, const char *model, const char *strategy,
                             bool training)
{
    struct session s;
    struct graph_variant variant = small_variant(model, 8);
    struct graph *g;
    struct plan *plan;
    session_open(&s, backend, PRECISION_FLOAT);
    assert_ok(network_build(model, &variant, &g));
    assert_ok(plan_build(strategy, g, &(struct plan_request){.n_workers = 2}, &plan));
    struct program *p = lower(&s, g, plan, 0, training);
    assert_true(count_equal_keys(p) > 0);
    program_destroy(p);
    plan_destroy(plan);
    graph_destroy(g);
    session_close(&s);
}

static void test_equal_keys(void **state)
{
    (void)state;
    check_equal_keys("reference", "resnet18", "data", true);
    check_equal_keys("reference", "googlenet", "gpipe", true);
    check_equal_keys("cpu", "resnet18", "model", true);
    check_equal_keys("cpu", "mobilenetv2", "spatial", true);
    check_equal_keys("cpu", "resnet18", "spatial", false);
}

/* ---- changes of a key, one by one ---- */

/* The instruction that runs `pass` of the first group of that op. */
static int find_run(const struct program *p, enum op_kind op, enum pass pass)
{
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].kind == INSTR_RUN && p->instrs[i].pass == pass &&
            p->groups[p->instrs[i].group].spec.op.op == op)
            return i;
    fail_msg("no such instruction");
    return -1;
}

struct change {
    const char *name;
    bool matters;
    void (*apply)(struct group_spec *spec, struct program_run *run, struct instr *instr);
};

#define CHANGE(NAME, STATEMENT)                                                 \
    static void change_##NAME(struct group_spec *spec, struct program_run *run, \
                              struct instr *instr)                              \
    {                                                                           \
        (void)spec;                                                             \
        (void)run;                                                              \
        (void)instr;                                                            \
        STATEMENT;                                                              \
    }

CHANGE(op, spec->op.op = OP_LINEAR)
CHANGE(output, spec->op.output.dim[2]++)
CHANGE(activation, spec->activation = ACTIVATION_TANH)
CHANGE(residual, spec->residual = !spec->residual)
CHANGE(training, spec->training = false)
CHANGE(input_gradient, spec->input_gradient = !spec->input_gradient)
CHANGE(shared, spec->shared_statistics = true)
CHANGE(pass, instr->pass = PASS_BACKWARD_DATA)
CHANGE(again, run->again = true)
CHANGE(grads, run->n_output_grads = 3)
CHANGE(input_layout, run->input[0] = run->param[0])
CHANGE(random, spec->random_stream += 7)
CHANGE(global_batch, spec->global_batch *= 2)
CHANGE(origin, spec->origin[0] += 4)
CHANGE(whole, spec->whole = SHAPE4(64, 64, 64, 64))
CHANGE(first_sample, run->first_sample += 4)
CHANGE(micro, instr->micro++)

static const struct change changes[] = {
    {"op", true, change_op},
    {"output", true, change_output},
    {"activation", true, change_activation},
    {"residual", true, change_residual},
    {"training", true, change_training},
    {"input_gradient", true, change_input_gradient},
    {"shared", true, change_shared},
    {"pass", true, change_pass},
    {"again", true, change_again},
    {"grads", true, change_grads},
    {"input_layout", true, change_input_layout},
    {"random", false, change_random},
    {"global_batch", false, change_global_batch},
    {"origin", false, change_origin},
    {"whole", false, change_whole},
    {"first_sample", false, change_first_sample},
    {"micro", false, change_micro},
};

static void change_attribute(const struct op_attr *attr, struct op_attrs *attrs)
{
    const int64_t number = 7;
    const double real = 0.7;
    const bool flag = true;
    char *at = (char *)attrs + attr->offset;
    if (attr->type == ATTR_FLAG)
        memcpy(at, &flag, sizeof flag);
    else if (attr->type == ATTR_REAL)
        memcpy(at, &real, sizeof real);
    else
        memcpy(at, &number, sizeof number);
}

static void test_changes(void **state)
{
    struct session s;
    struct graph_variant variant = small_variant("resnet18", 8);
    (void)state;
    session_open(&s, "reference", PRECISION_FLOAT);
    struct program *p = session_add(&s, "resnet18", &variant, true, 1);
    int i = find_run(p, OP_CONV2D, PASS_BACKWARD_WEIGHTS);
    struct instr *instr = &p->instrs[i];
    struct group_spec *spec = &p->groups[instr->group].spec;
    struct program_run *run = &p->runs[instr->index];
    const struct instr instr_was = *instr;
    const struct group_spec spec_was = *spec;
    const struct program_run run_was = *run;
    char before[WORK_KEY_BYTES], after[WORK_KEY_BYTES];
    program_instr_key(p, i, before, sizeof before);
    for (size_t k = 0; k < sizeof changes / sizeof changes[0]; k++) {
        changes[k].apply(spec, run, instr);
        program_instr_key(p, i, after, sizeof after);
        assert_that((strcmp(before, after) != 0) == changes[k].matters, "%s: '%s' and '%s'",
                    changes[k].name, before, after);
        *instr = instr_was;
        *spec = spec_was;
        *run = run_was;
    }
    for (const struct op_attr *attr = op_attr_table; attr->name; attr++) {
        change_attribute(attr, &spec->op.attrs);
        program_instr_key(p, i, after, sizeof after);
        assert_that((strcmp(before, after) != 0) == (attr->key[0] != '\0'), "%s: '%s' and '%s'",
                    attr->name, before, after);
        *spec = spec_was;
    }
    session_close(&s);
}

/* Another batch is other work; the same network again is the same. */
static void test_batches(void **state)
{
    static const int64_t batches[3] = {8, 8, 16};
    struct session s;
    char keys[3][WORK_KEY_BYTES];
    (void)state;
    session_open(&s, "cpu", PRECISION_FLOAT);
    for (int k = 0; k < 3; k++) {
        struct graph_variant variant = small_variant("lenet5", batches[k]);
        struct program *p = session_add(&s, "lenet5", &variant, true, 1);
        program_instr_key(p, find_run(p, OP_CONV2D, PASS_FORWARD), keys[k], sizeof keys[k]);
    }
    assert_string_equal(keys[0], keys[1]);
    assert_string_not_equal(keys[0], keys[2]);
    session_close(&s);
}

/* Where a region begins in its blocks matters, but not in which block; and both layouts do. */
static void test_copies(void **state)
{
    struct session s;
    const struct axes images = axes_of_images(4);
    struct shape wide = SHAPE4(2, 64, 4, 4), narrow = SHAPE4(2, 20, 4, 4);
    const layout *plain, *blocked, *small;
    (void)state;
    session_open(&s, "cpu", PRECISION_FLOAT);
    assert_ok(s.backend->layout_plain(s.device, ELEMENT_F32, &wide, &plain));
    assert_ok(s.backend->layout_transfer(s.device, ELEMENT_F32, &wide, &images, &blocked));
    assert_ok(s.backend->layout_transfer(s.device, ELEMENT_F32, &narrow, &images, &small));
    struct instr instr = {.kind = INSTR_COPY};
    struct program_copy copy = {
        .region = {.from_layout = blocked, .to_layout = small, .extent = {2, 8, 4, 4}}};
    struct program p = {
        .backend = s.backend, .device = s.device, .instrs = &instr, .n_instrs = 1, .copies = &copy};
    struct region_copy *c = &copy.region;
    char first[WORK_KEY_BYTES];
    program_instr_key(&p, 0, first, sizeof first);
    c->from_begin[1] = 32;
    c->from_begin[2] = 1;
    assert_string_equal(first, key_of(&p, 0));
    c->from_begin[1] = 33;
    assert_string_not_equal(first, key_of(&p, 0));
    c->from_begin[1] = 0;
    c->to_begin[1] = 12; /* reaches the last channel, and so the zeros behind it */
    assert_string_not_equal(first, key_of(&p, 0));
    c->to_begin[1] = 0;
    c->add = true;
    assert_string_not_equal(first, key_of(&p, 0));
    c->add = false;
    c->from_layout = plain;
    assert_string_not_equal(first, key_of(&p, 0));
    c->from_layout = blocked;
    c->extent[3] = 3;
    assert_string_not_equal(first, key_of(&p, 0));
    session_close(&s);
}

/* A key that does not fit still tells instructions apart. */
static void test_long_keys(void **state)
{
    enum { SMALL = 40 };
    struct session s;
    struct graph_variant variant = small_variant("lenet5", 8);
    (void)state;
    session_open(&s, "reference", PRECISION_FLOAT);
    struct program *p = session_add(&s, "lenet5", &variant, true, 1);
    int i = find_run(p, OP_CONV2D, PASS_FORWARD);
    char first[SMALL], second[SMALL];
    program_instr_key(p, i, first, sizeof first);
    p->groups[p->instrs[i].group].spec.op.output.dim[3]++; /* the end of the text */
    program_instr_key(p, i, second, sizeof second);
    assert_int_equal(strlen(first), SMALL - 1);
    assert_int_equal(strlen(second), SMALL - 1);
    assert_memory_equal(first, second, SMALL - 18);
    assert_string_not_equal(first, second);
    session_close(&s);
}

/* ---- layouts as text ---- */

static void test_layout_texts(void **state)
{
    struct session s;
    char text[160];
    const layout *l;
    (void)state;
    session_open(&s, "reference", PRECISION_FLOAT);
    assert_ok(s.backend->layout_plain(s.device, ELEMENT_F32, &SHAPE2(64, 10), &l));
    assert_string_equal(s.backend->layout_text(l, text, sizeof text), "plain 64x10");
    assert_string_equal(s.backend->layout_text(l, text, 4), "pla");
    session_close(&s);
    session_open(&s, "cpu", PRECISION_FLOAT);
    assert_ok(s.backend->layout_plain(s.device, ELEMENT_F32, &SHAPE2(64, 10), &l));
    assert_string_equal(s.backend->layout_text(l, text, sizeof text), "plain 64x10");
    assert_string_equal(s.backend->layout_text(l, text, 4), "pla");
    const struct axes images = axes_of_images(4);
    assert_ok(s.backend->layout_transfer(s.device, ELEMENT_F32, &SHAPE4(2, 20, 5, 6), &images, &l));
    assert_memory_equal(s.backend->layout_text(l, text, sizeof text), "blocked", 7);
    assert_non_null(strstr(text, " 2x20x5x6"));
    session_close(&s);
}

/* All weights of a network: other layouts have other texts. */
static void test_weight_texts(void **state)
{
    struct session s;
    struct graph_variant variant = small_variant("mobilenetv2", 8);
    (void)state;
    session_open(&s, "cpu", PRECISION_FLOAT);
    const struct program *p = session_add(&s, "mobilenetv2", &variant, true, 1);
    for (int i = 0; i < p->n_buffers; i++)
        for (int j = 0; j < i; j++) {
            const layout *a = p->buffers[i].layout, *b = p->buffers[j].layout;
            char x[160], y[160];
            if (!a || !b)
                continue;
            bool equal = strcmp(s.backend->layout_text(a, x, sizeof x),
                                s.backend->layout_text(b, y, sizeof y)) == 0;
            assert_that(equal == (a == b), "'%s' and '%s'", x, y);
        }
    session_close(&s);
}

/* ---- work ---- */

static void test_work(void **state)
{
    struct session s;
    struct graph_variant variant = {8, 3, 32, 32, 10, true, -1};
    struct instr_work work;
    (void)state;
    session_open(&s, "reference", PRECISION_FLOAT);
    const struct program *p = session_add(&s, "resnet18", &variant, true, 1);
    program_instr_work(p, find_run(p, OP_CONV2D, PASS_FORWARD), &work);
    assert_string_equal(work.family, "conv2d k3 s1 forward");
    double in = 8.0 * 3 * 32 * 32, out = 8.0 * 64 * 32 * 32, weights = 64 * 27;
    assert_near(work.amount.flops, out * 27 * 2, 1e-9);
    assert_near(work.amount.bytes, 4 * (in + out + weights), 1e-9);
    program_instr_work(p, find_run(p, OP_BATCH_NORM, PASS_BACKWARD), &work);
    assert_string_equal(work.family, "batch_norm twice backward");
    /* 6 + 4 operations and the activation's slope; reads the gradient and the input twice, writes
     * the input's gradient and the folded one, and parameters both ways */
    out = 8.0 * 512 * 4 * 4;
    assert_near(work.amount.flops, 11 * out, 1e-9);
    assert_near(work.amount.bytes, 4 * (6 * out + 4 * 512 + 2 * 512), 1e-9);
    double updated = 0, parameters = 0;
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].kind == INSTR_UPDATE) {
            program_instr_work(p, i, &work);
            assert_string_equal(work.family, "update 1");
            updated += work.amount.bytes;
        }
    for (int i = 0; i < p->graph->n_params; i++)
        if (p->graph->params[i].spec.trained)
            parameters += (double)shape_elements(&p->graph->params[i].spec.shape);
    assert_near(updated, 4 * 5 * parameters, 1e-5); /* a few bytes are rounded up */
    session_close(&s);
}

/* ---- speed ---- */

/* The least of a few rounds: all keys together take milliseconds, and another program may have the
 * core meanwhile. */
static void test_speed(void **state)
{
    struct session s;
    struct graph_variant variant = small_variant("inceptionv3", 8);
    int64_t n = 0, keys_ns = INT64_MAX, work_ns = INT64_MAX;
    (void)state;
    session_open(&s, "cpu", PRECISION_FLOAT);
    const struct program *p = session_add(&s, "inceptionv3", &variant, true, 1);
    for (int round = 0; round < 5; round++) {
        int64_t start_ns = timer_now_ns();
        n = 0;
        for (int i = 0; i < p->n_instrs; i++)
            n += (int64_t)strlen(key_of(p, i));
        int64_t middle_ns = timer_now_ns();
        for (int i = 0; i < p->n_instrs; i++) {
            struct instr_work work;
            program_instr_work(p, i, &work);
        }
        int64_t end_ns = timer_now_ns();
        keys_ns = middle_ns - start_ns < keys_ns ? middle_ns - start_ns : keys_ns;
        work_ns = end_ns - middle_ns < work_ns ? end_ns - middle_ns : work_ns;
    }
    print_message("%d instructions: %lld ns and %lld bytes a key, %lld ns its work\n", p->n_instrs,
                  (long long)(keys_ns / p->n_instrs), (long long)(n / p->n_instrs),
                  (long long)(work_ns / p->n_instrs));
    if (!TEST_UNDER_SANITIZER)
        assert_true(keys_ns / p->n_instrs < 20000);
    session_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_have_keys), cmocka_unit_test(test_equal_keys),
        cmocka_unit_test(test_changes),       cmocka_unit_test(test_batches),
        cmocka_unit_test(test_copies),        cmocka_unit_test(test_long_keys),
        cmocka_unit_test(test_layout_texts),  cmocka_unit_test(test_weight_texts),
        cmocka_unit_test(test_work),          cmocka_unit_test(test_speed),
    };
    return test_run(tests);
}
