/* The programs of all workers at once, and twins among them: every worker that is said to be the
 * twin of another is lowered as well, and the two programs are compared, instruction by instruction
 * and buffer by buffer. */
#include "plan/shared.h"
#include "session.h"
#include "verify/verify.h"

static const struct backend *backend;
static device *on_device;

/* ---- two programs that are the same but for the samples ---- */

#define same_ints(x, y, n) (memcmp((x), (y), (size_t)(n) * sizeof *(x)) == 0)

static bool same_instr(const struct instr *a, const struct instr *b)
{
    return a->kind == b->kind && a->stream == b->stream && a->micro == b->micro &&
           a->group == b->group && a->pass == b->pass && a->param == b->param &&
           a->index == b->index && a->n_reads == b->n_reads && a->n_writes == b->n_writes &&
           a->n_waits == b->n_waits && same_ints(a->reads, b->reads, a->n_reads) &&
           same_ints(a->writes, b->writes, a->n_writes) &&
           same_ints(a->waits, b->waits, a->n_waits);
}

static bool same_buffer(const struct buffer *a, const struct buffer *b)
{
    return strcmp(a->name, b->name) == 0 && a->class == b->class && a->layout == b->layout &&
           a->n_bytes == b->n_bytes && a->parent == b->parent &&
           a->parent_offset == b->parent_offset && a->offset == b->offset &&
           a->first_write == b->first_write && a->last_use == b->last_use;
}

static bool same_needs(const struct group_needs *a, const struct group_needs *b)
{
    return a->saved_bytes == b->saved_bytes && a->statistics_count == b->statistics_count &&
           a->forward_workspace_bytes == b->forward_workspace_bytes &&
           a->backward_workspace_bytes == b->backward_workspace_bytes &&
           a->reads_input == b->reads_input && a->reads_output == b->reads_output &&
           a->in_place_gradient == b->in_place_gradient && a->output_is_input == b->output_is_input;
}

/* All but the origin of the samples. */
static bool same_group(const struct program_group *a, const struct program_group *b)
{
    const struct group_spec *x = &a->spec, *y = &b->spec;
    return a->first_node == b->first_node && a->last_node == b->last_node &&
           op_equal(&x->op, &y->op) && x->activation == y->activation &&
           x->residual == y->residual && x->training == y->training &&
           x->input_gradient == y->input_gradient && x->random_stream == y->random_stream &&
           x->global_batch == y->global_batch && shape_equal(&x->whole, &y->whole) &&
           same_ints(x->origin + 1, y->origin + 1, SHAPE_MAX_RANK - 1) &&
           x->shared_statistics == y->shared_statistics &&
           x->statistics_count == y->statistics_count && same_needs(&a->needs, &b->needs);
}

static bool same_run(const struct program_run *a, const struct program_run *b)
{
    return same_ints(a->input, b->input, OP_MAX_INPUTS) && a->residual == b->residual &&
           a->output == b->output && same_ints(a->param, b->param, OP_MAX_PARAMS) &&
           a->saved == b->saved && a->workspace == b->workspace && a->statistics == b->statistics &&
           a->labels == b->labels && a->n_output_grads == b->n_output_grads &&
           same_ints(a->output_grad, b->output_grad, a->n_output_grads) &&
           a->folded_grad == b->folded_grad &&
           same_ints(a->input_grad, b->input_grad, OP_MAX_INPUTS) &&
           same_ints(a->param_grad, b->param_grad, OP_MAX_PARAMS) &&
           a->first_sample == b->first_sample && a->again == b->again;
}

static bool same_fold(const struct program_fold *a, const struct program_fold *b)
{
    return a->n_addends == b->n_addends && same_ints(a->addend, b->addend, a->n_addends) &&
           a->activation == b->activation && a->output == b->output && a->to == b->to;
}

static bool same_copy(const struct program_copy *a, const struct program_copy *b)
{
    const struct region_copy *x = &a->region, *y = &b->region;
    return a->from == b->from && a->to == b->to && x->from_layout == y->from_layout &&
           x->to_layout == y->to_layout && x->add == y->add &&
           same_ints(x->from_begin, y->from_begin, SHAPE_MAX_RANK) &&
           same_ints(x->to_begin, y->to_begin, SHAPE_MAX_RANK) &&
           same_ints(x->extent, y->extent, SHAPE_MAX_RANK);
}

static bool same_length(struct range a, struct range b)
{
    return a.end - a.begin == b.end - b.begin;
}

static bool same_load(const struct program_load *a, const struct program_load *b)
{
    return a->images == b->images && a->labels == b->labels &&
           same_length(a->image_samples, b->image_samples) &&
           same_length(a->label_samples, b->label_samples);
}

static bool same_result(const struct program_result *a, const struct program_result *b)
{
    return a->micro == b->micro && a->losses == b->losses && a->logits == b->logits &&
           same_length(a->samples, b->samples);
}

static bool same_reduction(const struct program_reduction *a, const struct program_reduction *b)
{
    const struct comm_reduction *x = &a->spec, *y = &b->spec;
    return a->buffer == b->buffer && a->workspace == b->workspace && x->method == y->method &&
           x->type == y->type && x->node_size == y->node_size && x->count == y->count &&
           x->tag == y->tag && x->n_members == y->n_members &&
           same_ints(x->members, y->members, x->n_members);
}

static bool same_param(const struct program_param *a, const struct program_param *b)
{
    bool same = a->weight == b->weight && a->gradient == b->gradient &&
                same_ints(a->state, b->state, 2) && a->n_holders == b->n_holders &&
                same_ints(a->holders, b->holders, a->n_holders) && a->has_state == b->has_state;
    for (int i = 0; same && i < SHAPE_MAX_RANK; i++)
        same = a->region[i].begin == b->region[i].begin && a->region[i].end == b->region[i].end;
    return same;
}

#define assert_same_table(name, a, b, n, table, same)                                            \
    do {                                                                                         \
        if ((a)->n != (b)->n)                                                                    \
            fail_msg("%s: worker %d has %d " #table ", worker %d %d", name, (a)->worker, (a)->n, \
                     (b)->worker, (b)->n);                                                       \
        for (int i_ = 0; i_ < (a)->n; i_++)                                                      \
            if (!same(&(a)->table[i_], &(b)->table[i_]))                                         \
                fail_msg("%s: workers %d and %d differ in " #table " %d", name, (a)->worker,     \
                         (b)->worker, i_);                                                       \
    } while (0)

/* Of a worker whose program has no messages. */
static int64_t count_sent(const struct program *p, int worker)
{
    int64_t total = 0;
    for (int i = 0; i < p->n_reductions; i++) {
        const struct comm_reduction *r = &p->reductions[i].spec;
        int position = 0;
        while (r->members[position] != worker)
            position++;
        total += comm_reduce_sent_bytes(r, position);
    }
    return total;
}

static void assert_twins(const char *name, const struct program *a, const struct program *b)
{
    assert_int_equal(a->n_messages + b->n_messages, 0);
    assert_same_table(name, a, b, n_instrs, instrs, same_instr);
    assert_same_table(name, a, b, n_buffers, buffers, same_buffer);
    assert_same_table(name, a, b, n_groups, groups, same_group);
    assert_same_table(name, a, b, n_runs, runs, same_run);
    assert_same_table(name, a, b, n_folds, folds, same_fold);
    assert_same_table(name, a, b, n_copies, copies, same_copy);
    assert_same_table(name, a, b, n_loads, loads, same_load);
    assert_same_table(name, a, b, n_results, results, same_result);
    assert_same_table(name, a, b, n_reductions, reductions, same_reduction);
    for (int i = 0; i < a->graph->n_params; i++)
        if (!same_param(&a->params[i], &b->params[i]))
            fail_msg("%s: workers %d and %d differ in parameter %d", name, a->worker, b->worker, i);
    assert_true(same_length(a->samples, b->samples));
    assert_true(same_ints(a->slab_bytes, b->slab_bytes, BUFFER_CLASS_COUNT));
    assert_int_equal(program_sent_bytes_by(a, b->worker), count_sent(b, b->worker));
    assert_int_equal(program_sent_bytes(b), count_sent(b, b->worker));
}

/* ---- plans ---- */

struct study {
    char name[128];
    struct graph *graph;
    struct plan *plan;
    struct program_set alone, twins; /* each lowered; only one of each set of twins */
};

static struct program_options options_of(const struct study *s, bool training)
{
    return (struct program_options){.backend = backend,
                                    .device = on_device,
                                    .training = training,
                                    .n_states = training ? 1 : 0,
                                    .plan = s->plan,
                                    .transport = comm_find_table("threads")};
}

static void study_lower(struct study *s, bool training)
{
    struct program_options o = options_of(s, training);
    assert_ok(program_create_all(s->graph, &o, NULL, false, &s->alone));
    assert_ok(program_create_all(s->graph, &o, NULL, true, &s->twins));
}

static struct graph *build(const char *model, int64_t batch)
{
    bool large = strcmp(model, "alexnet") == 0 || strcmp(model, "googlenet") == 0 ||
                 strcmp(model, "inceptionv3") == 0;
    int64_t side = large ? 64 : 32;
    struct graph_variant v = {batch, 3, side, side, 10, !large, -1};
    struct graph *g;
    assert_ok(network_build(model, &v, &g));
    return g;
}

/* False if the strategy cannot use so many workers. */
static bool study_open(struct study *s, const char *model, int64_t batch, const char *strategy,
                       const struct plan_request *request, bool training)
{
    *s = (struct study){0};
    (void)snprintf(s->name, sizeof s->name, "%s batch %lld %s %d", model, (long long)batch,
                   strategy, request->n_workers);
    s->graph = build(model, batch);
    if (plan_build(strategy, s->graph, request, &s->plan) != STATUS_OK) {
        session_expect_refusal(strategy, request->n_workers);
        graph_destroy(s->graph);
        return false;
    }
    study_lower(s, training);
    return true;
}

static void study_open_plan(struct study *s, const char *model, int64_t batch, const char *plan)
{
    *s = (struct study){.name = "written plan"};
    s->graph = build(model, batch);
    assert_ok(plan_parse(plan, strlen(plan), "plan", s->graph, &s->plan));
    study_lower(s, true);
}

static void study_close(struct study *s)
{
    program_destroy_all(&s->alone);
    program_destroy_all(&s->twins);
    plan_destroy(s->plan);
    graph_destroy(s->graph);
}

/* Compares every claim of `twins` with `alone`. Returns the number of programs. */
static int check(const struct study *s)
{
    int distinct = 0;
    assert_int_equal(s->twins.n_workers, s->plan->n_workers);
    for (int i = 0; i < s->plan->n_workers; i++) {
        int twin = s->twins.twin_of[i];
        assert_int_equal(s->alone.twin_of[i], i);
        assert_int_equal(s->alone.programs[i]->worker, i);
        assert_true(twin >= 0 && twin <= i && s->twins.twin_of[twin] == twin);
        assert_ptr_equal(s->twins.programs[i], s->twins.programs[twin]);
        assert_int_equal(s->twins.programs[i]->worker, twin);
        if (twin != i)
            assert_twins(s->name, s->alone.programs[twin], s->alone.programs[i]);
        distinct += twin == i;
    }
    return distinct;
}

/* ---- tests ---- */

static void test_even_data_parallel_workers_are_all_twins(void **state)
{
    (void)state;
    static const char *const models[] = {"lenet5", "resnet18", "googlenet", "inceptionv3",
                                         "mobilenetv2"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int micros = 1; micros <= 2; micros++) {
            struct study s;
            struct plan_request r = {.n_workers = 4, .micro_batches = micros};
            assert_true(study_open(&s, models[i], 16, "data", &r, true));
            assert_int_equal(check(&s), 1);
            study_close(&s);
        }
}

static void test_uneven_workers_are_twins_of_their_like(void **state)
{
    (void)state;
    struct study s;
    struct plan_request r = {.n_workers = 4};
    assert_true(study_open(&s, "resnet18", 10, "data", &r, true)); /* 2, 3, 2, 3 samples */
    assert_int_equal(check(&s), 2);
    assert_int_equal(s.twins.twin_of[2], 0);
    assert_int_equal(s.twins.twin_of[3], 1);
    study_close(&s);
    assert_true(study_open(&s, "resnet18", 10, "data", &r, false));
    assert_int_equal(check(&s), 2);
    study_close(&s);
    /* No two workers have the same shares of micro-batches of 3 and of 2 samples. */
    r.micro_batches = 4;
    assert_true(study_open(&s, "lenet5", 10, "data", &r, true));
    assert_true(check(&s) > 1);
    study_close(&s);
}

static void test_workers_without_samples_stand_alone(void **state)
{
    (void)state;
    struct study s;
    struct plan_request r = {.n_workers = 6};
    assert_true(study_open(&s, "resnet18", 4, "data", &r, true)); /* running statistics are sent */
    assert_int_equal(check(&s), 6);
    study_close(&s);
    assert_true(study_open(&s, "lenet5", 4, "data", &r, true)); /* none are there */
    assert_int_equal(check(&s), 2);
    study_close(&s);
}

static void test_sums_of_any_method(void **state)
{
    (void)state;
    static const enum plan_sync methods[] = {PLAN_RING, PLAN_TREE, PLAN_HIERARCHICAL};
    for (int i = 0; i < 3; i++) {
        struct study s;
        struct plan_request r = {.n_workers = 6, .sync = methods[i], .workers_per_node = 2};
        assert_true(study_open(&s, "resnet18", 12, "data", &r, true));
        assert_int_equal(check(&s), 1);
        study_close(&s);
    }
}

/* Every claim must be true. */
static void test_any_strategy(void **state)
{
    (void)state;
    static const char *const models[] = {"lenet5", "resnet18", "alexnet"};
    for (const struct plan_strategy *strategy = plan_strategies(); strategy->name; strategy++)
        for (int m = 0; m < 3; m++)
            for (int n = 2; n <= 6; n += 2) {
                struct study s;
                struct plan_request r = {.n_workers = n};
                if (!study_open(&s, models[m], 8, strategy->name, &r, true))
                    continue;
                (void)check(&s);
                study_close(&s);
            }
}

static void test_workers_with_messages_stand_alone(void **state)
{
    (void)state;
    static const char *const strategies[] = {"model", "spatial", "gpipe", "1f1b", "ps", "hybrid"};
    for (int i = 0; i < 6; i++) {
        struct study s;
        struct plan_request r = {.n_workers = 4};
        assert_true(study_open(&s, "resnet18", 8, strategies[i], &r, true));
        assert_int_equal(check(&s), 4);
        study_close(&s);
    }
}

/* Two stages of data parallelism; no edge between them is crossed by one worker alone. */
static const char mixed_plan[] = "{\"cleave_plan\": 1, \"name\": \"mixed\", \"workers\": 5,\n"
                                 " \"stages\": [{\"workers\": [4, 2, 0, 1, 3]}],\n"
                                 " \"default\": {\"cut\": {\"n\": [2, 1, 2, 1, 2]}}}";
static const char odd_layer_plan[] =
    "{\"cleave_plan\": 1, \"name\": \"odd\", \"workers\": 4,\n"
    " \"stages\": [{\"workers\": [0, 1, 2, 3]}],\n"
    " \"default\": {\"cut\": {\"n\": 4}},\n"
    " \"layers\": {\"features.3\": {\"cut\": {\"n\": [1, 1, 3, 3]}}}}";

static void test_written_plans(void **state)
{
    (void)state;
    struct study s;
    study_open_plan(&s, "resnet18", 16, mixed_plan); /* worker 4: 4 samples, 2: 2, 0: 4, .. */
    assert_int_equal(check(&s), 2);
    assert_int_equal(s.twins.twin_of[3], 0);
    assert_int_equal(s.twins.twin_of[4], 0);
    assert_int_equal(s.twins.twin_of[2], 1);
    study_close(&s);
    study_open_plan(&s, "vgg11", 16, odd_layer_plan); /* samples move around one layer */
    (void)check(&s);
    study_close(&s);
}

static char *dump(const struct program *p)
{
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    program_dump(p, f);
    (void)fclose(f);
    return text;
}

static void assert_same_dump(const char *name, const struct program *a, const struct program *b)
{
    char *x = dump(a), *y = dump(b);
    if (strcmp(x, y) != 0)
        fail_msg("%s: worker %d's program is another", name, a->worker);
    free(x);
    free(y);
}

/* Programs lowered all at once equal those lowered one by one, and are sound together. */
static void test_all_are_what_each_is(void **state)
{
    (void)state;
    static const char *const strategies[] = {"data", "model", "gpipe", "ps"};
    for (int i = 0; i < 4; i++) {
        struct study s;
        struct plan_request r = {.n_workers = 3};
        assert_true(study_open(&s, "resnet18", 6, strategies[i], &r, true));
        for (int w = 0; w < 3; w++) {
            struct program_options o = options_of(&s, true);
            struct program *p;
            o.worker = w;
            assert_ok(program_create(s.graph, &o, &p));
            assert_same_dump(s.name, s.alone.programs[w], p);
            program_destroy(p);
        }
        assert_ok(verify_programs((const struct program *const *)s.alone.programs, 3));
        study_close(&s);
    }
}

static void test_a_set_shares_the_weights_of_another(void **state)
{
    (void)state;
    struct study s;
    struct plan_request r = {.n_workers = 3};
    /* The cpu backend would lay out some weights otherwise for so few samples. */
    assert_true(study_open(&s, "resnet18", 99, "data", &r, true));
    struct graph *rest = build("resnet18", 5);
    struct program_options o = options_of(&s, true);
    struct program_set set;
    assert_ok(program_create_all(rest, &o, &s.twins, true, &set));
    assert_int_equal(set.twin_of[2], 1); /* 1, 2, 2 samples */
    for (int w = 0; w < 3; w++) {
        const struct program *mine = set.programs[w], *whole = s.alone.programs[w];
        for (int i = 0; i < rest->n_params; i++) {
            const struct buffer *a = &mine->buffers[mine->params[i].weight];
            const struct buffer *b = &whole->buffers[whole->params[i].weight];
            assert_true(a->offset == b->offset && a->layout == b->layout);
        }
    }
    program_destroy_all(&set);
    graph_destroy(rest);
    study_close(&s);
}

static void test_one_worker_without_a_plan(void **state)
{
    (void)state;
    struct graph *g = build("lenet5", 4);
    struct program_options o = {
        .backend = backend, .device = on_device, .training = true, .n_states = 1};
    struct program_set set;
    assert_ok(program_create_all(g, &o, NULL, true, &set));
    assert_int_equal(set.n_workers, 1);
    assert_int_equal(set.twin_of[0], 0);
    assert_ok(verify_program(set.programs[0]));
    program_destroy_all(&set);
    program_destroy_all(&set); /* zeroed: nothing happens */
    graph_destroy(g);
}

/* Rows of padding wider than the window, which plan_check would refuse. */
static void test_what_cannot_be_lowered_leaves_nothing(void **state)
{
    (void)state;
    struct graph_variant variant = {6, 1, 8, 8, 10, true, -1};
    graph_builder *b;
    struct graph *g;
    struct plan *plan;
    struct plan_request r = {.n_workers = 6};
    struct program_set set;
    assert_ok(graph_builder_create("padded", &variant, &b));
    int conv = graph_add_conv(b, "conv", 0, 2, (struct graph_window){1, 1, 2}, 1, true);
    int flat = graph_add_simple(b, "flatten", OP_FLATTEN, conv);
    assert_ok(graph_builder_finish(b, graph_add_linear(b, "fc", flat, 10), &g));
    assert_ok(plan_build("data", g, &r, &plan));
    struct loop_nest nest;
    op_get_loops(&g->nodes[conv].op, &nest);
    plan->layers[conv].cut[0].loop = plan_find_loop(&nest, "p");
    struct program_options o = {
        .backend = backend, .device = on_device, .training = true, .n_states = 1, .plan = plan};
    assert_fails(program_create_all(g, &o, NULL, true, &set), STATUS_USAGE, "read only padding");
    assert_null(set.programs);
    assert_null(set.memory);
    plan_destroy(plan);
    graph_destroy(g);
}

static int open_device(void **state)
{
    (void)state;
    backend = backend_list()[0];
    struct device_options o = {.threads = 1, .describe_only = true};
    return backend->device_open(&o, &on_device) == STATUS_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    backend->device_close(on_device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even_data_parallel_workers_are_all_twins),
        cmocka_unit_test(test_uneven_workers_are_twins_of_their_like),
        cmocka_unit_test(test_workers_without_samples_stand_alone),
        cmocka_unit_test(test_sums_of_any_method),
        cmocka_unit_test(test_any_strategy),
        cmocka_unit_test(test_workers_with_messages_stand_alone),
        cmocka_unit_test(test_written_plans),
        cmocka_unit_test(test_all_are_what_each_is),
        cmocka_unit_test(test_a_set_shares_the_weights_of_another),
        cmocka_unit_test(test_one_worker_without_a_plan),
        cmocka_unit_test(test_what_cannot_be_lowered_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
