/* Predictions are exact where they can be: memory to the byte, bytes moved to the byte, for every
 * plan that test_transparency trains with: a sample of them, or all with CLEAVE_TEST_ALL=1. */
#include "plan_suite.h"
#include "team.h"

#include "predict/predict.h"

/* ---- a backend that counts ---- */

/* The buffers allocated through it. Memory is not touched: nothing runs. */
static struct {
    int n;
    int64_t sizes[BUFFER_CLASS_COUNT + 1];
} allocated;

static enum status count_alloc(device *d, int64_t n_bytes, void **out)
{
    (void)d;
    assert_true(allocated.n < BUFFER_CLASS_COUNT);
    allocated.sizes[allocated.n++] = n_bytes;
    *out = calloc(1, (size_t)n_bytes);
    return *out ? STATUS_OK : status_no_memory((size_t)n_bytes);
}

static void count_free(device *d, void *p)
{
    (void)d;
    free(p);
}

static struct backend counting(const struct backend *like)
{
    struct backend b = *like;
    b.memory_alloc = count_alloc;
    b.memory_free = count_free;
    return b;
}

/* ---- one plan ---- */

struct trial {
    const char *backend;
    const struct graph *graph;
    const struct plan *plan;
    const char *what;
};

static struct machine *machine; /* any with enough devices */

static struct predict_request request_for(const struct graph *g, const struct plan *plan,
                                          const struct backend *backend)
{
    return (struct predict_request){.graph = g,
                                    .plan = plan,
                                    .machine = machine,
                                    .backend = backend,
                                    .transport = "threads",
                                    .device.threads = 1,
                                    .n_states = 1};
}

static struct prediction *predict(const struct trial *t, const struct backend *backend)
{
    struct predict_request r = request_for(t->graph, t->plan, backend);
    r.n_others = 1;
    r.others[0].graph = t->graph;
    struct prediction *p;
    assert_ok(predict_plan(&r, &p));
    return p;
}

/* As a run makes them: a training and an evaluation program over one set of weights. Returns what
 * the first sends in a run. */
static int64_t check_worker(const struct trial *t, const struct backend *backend, device *d,
                            int worker, comm *end, const struct prediction *predicted)
{
    struct program *train, *eval;
    executor *e;
    struct program_options o = {.backend = backend,
                                .device = d,
                                .training = true,
                                .n_states = 1,
                                .plan = t->plan,
                                .worker = worker,
                                .transport = end ? end->table : NULL};
    assert_ok(program_create(t->graph, &o, &train));
    o.training = false;
    o.shares_params_of = train;
    assert_ok(program_create(t->graph, &o, &eval));
    allocated.n = 0;
    assert_ok(executor_create((const struct program *[]){train, eval}, 2, end, &e));
    int at = 0;
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        if (predicted->memory[worker][k]) {
            assert_that(at < allocated.n && allocated.sizes[at] == predicted->memory[worker][k],
                        "%s on %s: worker %d: %s: predicted %lld bytes, allocated %lld", t->what,
                        t->backend, worker, buffer_class_name((enum buffer_class)k),
                        (long long)predicted->memory[worker][k],
                        at < allocated.n ? (long long)allocated.sizes[at] : 0);
            at++;
        }
    assert_int_equal(at, allocated.n);
    int64_t sent = program_sent_bytes(train);
    assert_int_equal(predicted->clock.workers[worker].sent_bytes, sent);
    executor_destroy(e);
    program_destroy(eval);
    program_destroy(train);
    return sent;
}

static void check_plan(const struct trial *t)
{
    const struct backend *real;
    device *d;
    comm *ends[TEAM_MAX_WORKERS] = {0};
    int n = t->plan->n_workers;
    assert_ok(backend_find(t->backend, &real));
    struct backend backend = counting(real);
    assert_ok(real->device_open(&(struct device_options){.threads = 1}, &d));
    if (n > 1)
        assert_ok(comm_threads_create(n, 1, ends));
    struct prediction *p = predict(t, real);
    int64_t sent = 0, largest = 0;
    for (int w = 0; w < n; w++) {
        int64_t all = 0;
        sent += check_worker(t, &backend, d, w, ends[w], p);
        for (int i = 0; i < allocated.n; i++)
            all += allocated.sizes[i];
        largest = all > largest ? all : largest;
    }
    assert_int_equal(p->largest_bytes, largest);
    assert_int_equal(p->clock.bytes_moved * p->programs[0]->n_steps, sent);
    prediction_destroy(p);
    for (int w = 0; w < n; w++)
        if (ends[w])
            ends[w]->table->destroy(ends[w]);
    real->device_close(d);
}

/* ---- all of them ---- */

static bool try_strategy(const char *backend, const char *model, const char *strategy, int workers)
{
    char what[128];
    struct graph *g = suite_build(model, strcmp(backend, "cpu") == 0 ? 16 : 8);
    struct plan *plan = NULL;
    (void)snprintf(what, sizeof what, "%s %s with %d workers", model, strategy, workers);
    enum status st = plan_build(strategy, g, &(struct plan_request){.n_workers = workers}, &plan);
    if (st == STATUS_OK)
        check_plan(&(struct trial){backend, g, plan, what});
    else
        session_expect_refusal(strategy, workers);
    plan_destroy(plan);
    graph_destroy(g);
    return st == STATUS_OK;
}

static void check_matrix(const char *backend, int n_wanted)
{
    struct test_sample sample = test_sample(backend, suite_size(), n_wanted);
    int n_checked = 0;
    for (int m = 0; m < SUITE_NETWORKS; m++)
        for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
            for (int w = 0; w < SUITE_WORKERS; w++)
                if (test_sample_takes(&sample))
                    n_checked +=
                        try_strategy(backend, suite_networks[m], s->name, suite_workers[w]);
    print_message("%d plans on %s\n", n_checked, backend);
}

static void test_matrix_on_reference(void **state)
{
    (void)state;
    check_matrix("reference", TEST_UNDER_SANITIZER ? 24 : 150);
}

static void test_matrix_on_cpu(void **state)
{
    (void)state;
    if (!session_has_backend("cpu"))
        skip_because("this build has no backend 'cpu'");
    check_matrix("cpu", TEST_UNDER_SANITIZER ? 5 : 45);
}

static void check_hand_made(const char *backend)
{
    for (int i = 0; i < SUITE_PLANS; i++) {
        struct graph *g = suite_build_for(&suite_plans[i]);
        struct plan *plan;
        const char *text = suite_plans[i].text;
        assert_ok(plan_parse(text, strlen(text), suite_plans[i].what, g, &plan));
        check_plan(&(struct trial){backend, g, plan, suite_plans[i].what});
        plan_destroy(plan);
        graph_destroy(g);
    }
}

static void test_hand_made_plans(void **state)
{
    (void)state;
    check_hand_made("reference");
    if (session_has_backend("cpu") && !TEST_UNDER_SANITIZER)
        check_hand_made("cpu");
}

static void check_request(const char *strategy, const char *model, int64_t batch,
                          const struct plan_request *request)
{
    struct graph *g = suite_build(model, batch);
    struct plan *plan;
    assert_ok(plan_build(strategy, g, request, &plan));
    check_plan(&(struct trial){"reference", g, plan, strategy});
    plan_destroy(plan);
    graph_destroy(g);
}

static void test_other_plans(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        check_request("data", suite_small[i].model, suite_small[i].batch,
                      &(struct plan_request){.n_workers = 4});
    for (int i = 0; i < SUITE_PIPEDREAMS; i++)
        check_request("pipedream", "lenet5", 8, &suite_pipedreams[i]);
    for (int i = 0; i < SUITE_SERVERS; i++) {
        const struct plan_request *r = &suite_servers[i];
        check_request("ps", "lenet5", (r->n_workers - r->n_servers) * SUITE_SERVER_SAMPLES, r);
    }
}

/* ---- what a run really does ---- */

/* Trains for a few steps, every worker a thread. */
static void run_plan(const struct trial *t)
{
    const struct backend *backend;
    double losses[64];
    assert_ok(backend_find(t->backend, &backend));
    struct prediction *p = predict(t, backend);
    int window = p->programs[0]->n_steps;
    struct team_run run = {.graph = t->graph,
                           .plan = t->plan,
                           .backend = t->backend,
                           .rule = {.kind = UPDATE_SGD, .learning_rate = 1e-4, .momentum = 0.9},
                           .n_steps = window};
    assert_ok(team_train(&run, losses));
    assert_that(run.counted_bytes == p->clock.bytes_moved * run.n_steps,
                "%s: predicted %lld bytes a step, counted %lld in %d steps", t->what,
                (long long)p->clock.bytes_moved, (long long)run.counted_bytes, run.n_steps);
    for (int w = 0; w < t->plan->n_workers; w++) {
        int64_t predicted = 0;
        for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
            predicted += p->memory[w][k];
        assert_int_equal(predicted, run.memory_bytes[w]);
    }
    prediction_destroy(p);
}

static void run_strategy(const char *backend, const char *model, const char *strategy, int workers,
                         enum plan_sync sync)
{
    struct graph *g = suite_build(model, 8);
    struct plan *plan = NULL;
    struct plan_request request = {.n_workers = workers, .sync = sync};
    if (plan_build(strategy, g, &request, &plan) == STATUS_OK)
        run_plan(&(struct trial){backend, g, plan, strategy});
    else
        session_expect_refusal(strategy, workers);
    plan_destroy(plan);
    graph_destroy(g);
}

static void test_runs(void **state)
{
    (void)state;
    struct test_sample sample =
        test_sample("with batch norm", suite_size() / SUITE_NETWORKS, TEST_UNDER_SANITIZER ? 1 : 5);
    const char *backend = session_has_backend("cpu") ? "cpu" : "reference";
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
        for (int w = 0; w < SUITE_WORKERS; w++) {
            run_strategy(backend, "lenet5", s->name, suite_workers[w], PLAN_RING);
            if (test_sample_takes(&sample))
                run_strategy(backend, "mobilenetv2", s->name, suite_workers[w], PLAN_RING);
        }
}

/* Some parameters are a server's, some in parts. */
static void test_runs_with_servers(void **state)
{
    (void)state;
    static const char *const strategies[] = {"owt", "model", "hybrid", "spatial", "1f1b"};
    const char *backend = session_has_backend("cpu") ? "cpu" : "reference";
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        run_strategy(backend, "lenet5", strategies[i], 3, PLAN_SERVER);
        run_strategy(backend, "lenet5", strategies[i], 5, PLAN_SERVER);
    }
    run_strategy(backend, "mobilenetv2", "hybrid", 5, PLAN_SERVER);
}

/* ---- what else a prediction says ---- */

/* A whole run has more programs than the step; all share one set of slabs. */
static void test_other_programs_count(void **state)
{
    (void)state;
    struct graph *small = suite_build("lenet5", 2), *large = suite_build("lenet5", 64);
    struct plan *plan;
    const struct backend *backend;
    assert_ok(backend_find("reference", &backend));
    assert_ok(plan_build("data", small, &(struct plan_request){.n_workers = 2}, &plan));
    struct trial t = {"reference", small, plan, "small"};
    struct prediction *alone = predict(&t, backend), *both;
    struct predict_request r = request_for(small, plan, backend);
    r.n_others = 1;
    r.others[0].graph = large;
    assert_ok(predict_plan(&r, &both));
    assert_int_equal(both->memory[0][BUFFER_WEIGHTS], alone->memory[0][BUFFER_WEIGHTS]);
    assert_true(both->memory[0][BUFFER_ACTIVATIONS] > alone->memory[0][BUFFER_ACTIVATIONS]);
    assert_true(both->clock.step_s == alone->clock.step_s);
    prediction_destroy(both);
    prediction_destroy(alone);
    plan_destroy(plan);
    graph_destroy(large);
    graph_destroy(small);
}

/* Processes add in a workspace, threads in each other's memory. */
static void test_workspace_of_processes(void **state)
{
    (void)state;
    if (!comm_find_table("mpi"))
        skip_because("this build has no MPI");
    struct graph *g = suite_build("lenet5", 8);
    struct plan *plan;
    const struct backend *backend;
    device *d;
    assert_ok(backend_find("reference", &backend));
    assert_ok(backend->device_open(&(struct device_options){.threads = 1}, &d));
    assert_ok(plan_build("data", g, &(struct plan_request){.n_workers = 3}, &plan));
    struct predict_request r = request_for(g, plan, backend);
    r.transport = "mpi";
    struct prediction *p, *threads = predict(&(struct trial){"reference", g, plan, ""}, backend);
    assert_ok(predict_plan(&r, &p));
    assert_true(p->memory[0][BUFFER_TRANSFER] > threads->memory[0][BUFFER_TRANSFER]);
    for (int w = 0; w < 3; w++) {
        struct program *program;
        struct program_options o = {.backend = backend,
                                    .device = d,
                                    .training = true,
                                    .n_states = 1,
                                    .plan = plan,
                                    .worker = w,
                                    .transport = comm_find_table("mpi")};
        assert_ok(program_create(g, &o, &program));
        assert_memory_equal(p->memory[w], program->slab_bytes, sizeof p->memory[w]);
        program_destroy(program);
    }
    prediction_destroy(threads);
    prediction_destroy(p);
    plan_destroy(plan);
    backend->device_close(d);
    graph_destroy(g);
}

/* Every instruction of a device that nobody has measured costs what its roofline says. */
static void test_rooflines(void **state)
{
    (void)state;
    struct graph *g = suite_build("lenet5", 8);
    struct plan *plan;
    const struct backend *backend;
    assert_ok(backend_find("reference", &backend));
    assert_ok(plan_build("serial", g, &(struct plan_request){.n_workers = 1}, &plan));
    struct prediction *p = predict(&(struct trial){"reference", g, plan, "serial"}, backend);
    const struct machine_kind *kind = &machine->kinds[0];
    double sum = 0;
    for (int i = 0; i < p->programs[0]->n_instrs; i++) {
        struct instr_work work;
        char key[WORK_KEY_BYTES];
        program_instr_work(p->programs[0], i, &work);
        if (*program_instr_key(p->programs[0], i, key, sizeof key))
            sum += kind->launch_s + fmax(work.amount.flops / kind->rates[ARITHMETIC_F32].reached,
                                         work.amount.bytes / kind->reached_bytes_per_s);
    }
    assert_near(p->clock.step_s, sum, 1e-12);
    assert_near(p->clock.share[COST_ROOFLINE], 1, 1e-12);
    assert_near(p->clock.error_s, 0.3 * sum, 1e-12);
    assert_true(p->host_error == 0); /* not this host */
    prediction_destroy(p);
    plan_destroy(plan);
    graph_destroy(g);
}

/* A known speed of a network scales its convolutions; the rest of it stays as near to the peaks. */
static void test_scales(void **state)
{
    (void)state;
    struct graph *g = suite_build("lenet5", 8);
    struct plan *plan;
    const struct backend *backend;
    assert_ok(backend_find("reference", &backend));
    assert_ok(plan_build("serial", g, &(struct plan_request){.n_workers = 1}, &plan));
    struct predict_request r = request_for(g, plan, backend);
    struct prediction *plain, *scaled;
    assert_ok(predict_plan(&r, &plain));
    r.scales = (struct cost_scales){.convolutions = 3, .others = 0.5};
    assert_ok(predict_plan(&r, &scaled));
    double launch_s = machine->kinds[0].launch_s;
    int n_convolutions = 0;
    for (int i = 0; i < plain->programs[0]->n_instrs; i++) {
        bool convolves = program_instr_amount(plain->programs[0], i).convolves;
        if (plain->costs[0][i].busy_s <= 0)
            continue;
        assert_near(scaled->costs[0][i].busy_s - launch_s,
                    (convolves ? 3 : 0.5) * (plain->costs[0][i].busy_s - launch_s), 1e-12);
        n_convolutions += convolves;
    }
    assert_int_equal(n_convolutions, 5); /* two layers of three passes, but no gradient of images */
    prediction_destroy(scaled);
    prediction_destroy(plain);
    plan_destroy(plan);
    graph_destroy(g);
}

static void test_too_few_devices(void **state)
{
    (void)state;
    struct graph *g = suite_build("lenet5", 8);
    struct plan *plan;
    struct prediction *p;
    const struct backend *backend;
    assert_ok(backend_find("reference", &backend));
    assert_ok(plan_build("data", g, &(struct plan_request){.n_workers = 8}, &plan));
    struct predict_request r = request_for(g, plan, backend);
    assert_fails(predict_plan(&r, &p), STATUS_USAGE, "has 7 devices");
    plan_destroy(plan);
    graph_destroy(g);
}

/* It lies in the profile with the measured costs, but this process may have less of it, or more. */
static void test_memory_of_this_host_is_looked_up(void **state)
{
    (void)state;
    char name[MEASURE_DEVICE_BYTES + 64], processor[MEASURE_DEVICE_BYTES], *text;
    struct machine *host, *found;
    profile *p;
    assert_ok(profile_open(NULL, &p));
    assert_ok(machine_discover(1, &host));
    int64_t memory_bytes = host->nodes[0].memory_bytes;
    host->nodes[0].memory_bytes = memory_bytes / 2;
    host->wake_s = 1; /* so that it is known again */
    assert_ok(machine_write_text(host, &text));
    (void)snprintf(name, sizeof name, "machine of 2 workers with 1 threads on %s",
                   profile_describe_processor(processor, sizeof processor));
    assert_ok(profile_put_text(p, name, text));
    assert_ok(predict_local_machine(p, 2, 1, true, NULL, &found));
    assert_near(found->wake_s, 1, 1e-12);
    assert_int_equal(found->nodes[0].memory_bytes, memory_bytes);
    machine_destroy(found);
    machine_destroy(host);
    free(text);
    profile_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix_on_reference),
        cmocka_unit_test(test_matrix_on_cpu),
        cmocka_unit_test(test_hand_made_plans),
        cmocka_unit_test(test_other_plans),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_runs_with_servers),
        cmocka_unit_test(test_other_programs_count),
        cmocka_unit_test(test_workspace_of_processes),
        cmocka_unit_test(test_rooflines),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_too_few_devices),
        cmocka_unit_test(test_memory_of_this_host_is_looked_up),
    };
    if (machine_parse("1x7:p100", &machine) != STATUS_OK)
        return 1;
    int failed = test_run(tests);
    machine_destroy(machine);
    return failed;
}
