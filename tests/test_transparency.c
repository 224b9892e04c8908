/* Transparency: whatever the plan, the losses are those of one worker.
 *
 * Every strategy and plans made by hand, on threads, against the serial run with the same
 * micro-batches; asynchronous plans against a serial run with the same staleness. By default a
 * sample of the matrix; all of it with CLEAVE_TEST_ALL=1 (some hours on two cores: the reference
 * backend is plain C), of which CLEAVE_TEST_ONLY=NETWORK/STRATEGY runs one row,
 * CLEAVE_TEST_ONLY=by-hand/N the Nth plan made by hand and CLEAVE_TEST_ONLY=others all others, so
 * that many can run side by side; patterns choose several rows (lenet5/?*). */
#include "asynchronous.h"
#include "plan_suite.h"
#include "team.h"

#include "plan/plan.h"

#include <fnmatch.h>

enum { MOST_STEPS = 64 };

static int n_asked_for;

static bool is_asked_for(const char *model, const char *strategy)
{
    const char *only = getenv("CLEAVE_TEST_ONLY");
    char name[64];
    (void)snprintf(name, sizeof name, "%s/%s", model, strategy);
    bool asked = strcmp(strategy, "serial") != 0 && (!only || fnmatch(only, name, 0) == 0);
    n_asked_for += asked;
    return asked;
}

/* ---- comparing ---- */

struct trial {
    const char *backend;
    int n_steps;
    double learning_rate, tolerance;
};

/* Rounding grows with training, most through batch norm and most where training diverges: the rates
 * of the large networks are kept small, in float still smaller. */
static const struct trial exact = {"reference", 10, 0.02, 1e-5};
static const struct trial fast = {"cpu", 10, 5e-5, 1e-4};

/* The inception networks normalise over the few pixels that are left of small images: at a rate of
 * 0.002 a step multiplies a difference in the weights by ten thousand, and the last bit of a double
 * is seen in the fifth loss. At a thousandth of that the loss still moves by percents a step. */
static double find_rate(const struct trial *t, const char *model)
{
    bool cpu = strcmp(t->backend, "cpu") == 0;
    bool delicate = strcmp(model, "googlenet") == 0 || strcmp(model, "inceptionv3") == 0;
    double share = delicate ? 1e-4 : 0.1;
    if (strcmp(model, "lenet5") == 0 || (cpu && !delicate))
        share = 1;
    else if (cpu)
        share = 0.01;
    return share * t->learning_rate;
}

static struct team_run describe(const struct trial *t, const struct graph *g,
                                const struct plan *plan, int n_steps)
{
    bool cpu = strcmp(t->backend, "cpu") == 0;
    return (struct team_run){.graph = g,
                             .plan = plan,
                             .backend = t->backend,
                             .precision = cpu ? PRECISION_FLOAT : PRECISION_DOUBLE,
                             .rule = {.kind = UPDATE_SGD,
                                      .learning_rate = find_rate(t, g->name),
                                      .momentum = 0.9,
                                      .weight_decay = 1e-4},
                             .n_steps = n_steps,
                             .evaluate = true};
}

/* What to compare with: the serial losses, and how far they may be missed. Deep networks with batch
 * norm magnify rounding: in float a run whose weights are nudged by one bit tells how much, and
 * four times that is allowed where it is more than the tolerance. */
struct expected {
    double loss[MOST_STEPS], slack[MOST_STEPS];
};

static void compare(const char *what, const struct trial *t, const struct expected *serial,
                    const double *split, int n)
{
    for (int i = 0; i < n; i++) {
        double allowed = t->tolerance * fabs(serial->loss[i]);
        allowed = fmax(allowed, serial->slack[i]);
        if (!(fabs(serial->loss[i] - split[i]) <= allowed))
            fail_msg("%s on %s: loss %d is %.9g, serially %.9g, off by more than %.2g", what,
                     t->backend, i, split[i], serial->loss[i], allowed);
    }
}

static float nudged_weight(const struct graph_param *param, int number, int64_t element)
{
    float w = team_weight(param, number, element);
    return nextafterf(w, element % 2 ? INFINITY : -INFINITY);
}

/* The serial run with the plan's micro-batches, which decide batch-norm statistics. The last answer
 * is kept: strategies come one after the other. */
static const struct expected *train_serially(const struct trial *t, const struct graph *g,
                                             const struct plan *like, int n_steps)
{
    static struct expected kept;
    static char kept_for[160];
    char key[160];
    double nudged[MOST_STEPS];
    struct plan *serial;
    struct plan_request request = {.n_workers = 1, .micro_batches = like->micro_batches};
    (void)snprintf(key, sizeof key, "%s %s batch %lld micro %d schedule %d steps %d", t->backend,
                   g->name, (long long)g->batch, like->micro_batches, (int)like->schedule, n_steps);
    if (strcmp(key, kept_for) == 0)
        return &kept;
    assert_ok(plan_build("serial", g, &request, &serial));
    serial->micro_batches = like->micro_batches;
    serial->schedule = like->schedule;
    struct team_run run = describe(t, g, serial, n_steps);
    assert_ok(team_train(&run, kept.loss));
    memset(kept.slack, 0, sizeof kept.slack);
    if (run.precision == PRECISION_FLOAT) {
        run.weight = nudged_weight;
        assert_ok(team_train(&run, nudged));
        for (int i = 0; i <= n_steps; i++)
            kept.slack[i] = 4 * fabs(nudged[i] - kept.loss[i]);
    }
    plan_destroy(serial);
    memcpy(kept_for, key, sizeof kept_for);
    return &kept;
}

static void check_plan(const char *what, const struct trial *t, const struct graph *g,
                       const struct plan *plan, int n_steps)
{
    double split[MOST_STEPS];
    struct team_run run = describe(t, g, plan, n_steps);
    assert_ok(team_train(&run, split));
    /* Inception's gradients in float are off by percents at this size: one bit more or less in the
     * weights moves the second loss by half a percent. Only the first can be compared. */
    bool chaotic = run.precision == PRECISION_FLOAT && strcmp(g->name, "inceptionv3") == 0;
    compare(what, t, train_serially(t, g, plan, n_steps), split, chaotic ? 1 : n_steps + 1);
    assert_int_equal(run.counted_bytes, run.expected_bytes);
}

/* ---- strategies ---- */

static void check_strategy(const char *model, const char *strategy, int workers,
                           const struct trial *t, int n_steps)
{
    char what[128];
    struct graph *g = suite_build(model, strcmp(t->backend, "cpu") == 0 ? 16 : 8);
    struct plan *plan;
    struct plan_request request = {.n_workers = workers};
    (void)snprintf(what, sizeof what, "%s %s with %d workers", model, strategy, workers);
    assert_ok(plan_build(strategy, g, &request, &plan));
    if (!plan_is_stale(plan)) {
        check_plan(what, t, g, plan, n_steps);
        if (test_runs_all())
            print_message("%s on %s: %d losses agree\n", what, t->backend, n_steps + 1);
    }
    plan_destroy(plan);
    graph_destroy(g);
}

static void test_strategies_on_reference(void **state)
{
    (void)state;
    int n_networks = test_runs_all() ? SUITE_NETWORKS : 1;
    for (int m = 0; m < n_networks; m++)
        for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
            for (int w = 0; w < 4; w++)
                if (is_asked_for(suite_networks[m], s->name))
                    check_strategy(suite_networks[m], s->name, suite_workers[w], &exact,
                                   exact.n_steps);
}

static void test_strategies_on_cpu(void **state)
{
    (void)state;
    if (!session_has_backend("cpu"))
        skip_because("this build has no backend 'cpu'");
    struct test_sample sample =
        test_sample("strategies on cpu", suite_size(), TEST_UNDER_SANITIZER ? 7 : 16);
    for (int m = 0; m < SUITE_NETWORKS; m++)
        for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
            for (int w = 0; w < SUITE_WORKERS; w++)
                if (test_sample_takes(&sample) && is_asked_for(suite_networks[m], s->name))
                    check_strategy(suite_networks[m], s->name, suite_workers[w], &fast,
                                   test_runs_all() ? fast.n_steps : 2);
}

/* ---- plans made by hand ---- */

static void test_hand_made_plans(void **state)
{
    (void)state;
    for (int i = 0; i < SUITE_PLANS; i++) {
        const struct suite_plan *h = &suite_plans[i];
        struct plan *plan;
        char number[12];
        (void)snprintf(number, sizeof number, "%d", i);
        if (!is_asked_for("by-hand", number))
            continue;
        bool small = strcmp(h->model, "lenet5") == 0;
        struct graph *g = suite_build_for(h);
        assert_ok(plan_parse(h->text, strlen(h->text), h->what, g, &plan));
        if (small || test_runs_all())
            check_plan(h->what, &exact, g, plan, exact.n_steps);
        if (session_has_backend("cpu"))
            check_plan(h->what, &fast, g, plan, test_runs_all() ? fast.n_steps : 4);
        if (test_runs_all())
            print_message("%s of %s: losses agree\n", h->what, h->model);
        plan_destroy(plan);
        graph_destroy(g);
    }
}

/* ---- batch norm over each worker's samples ---- */

/* One worker with as many micro-batches sees the same slices. Running statistics differ (a worker
 * sees one slice of a step alone), and with them an evaluation. */
static void check_norms_by_worker(const char *model, const char *text, int n_slices)
{
    double split[MOST_STEPS];
    struct graph *g = suite_build(model, 8);
    struct plan *plan;
    struct plan_request request = {.n_workers = n_slices, .batch_norm = PLAN_NORM_WORKER};
    if (text)
        assert_ok(plan_parse(text, strlen(text), "by hand", g, &plan));
    else
        assert_ok(plan_build("data", g, &request, &plan));
    struct plan like = *plan;
    struct team_run run = describe(&exact, g, plan, 2);
    run.evaluate = false;
    run.check = true;
    like.micro_batches = n_slices;
    assert_ok(team_train(&run, split));
    compare(model, &exact, train_serially(&exact, g, &like, 2), split, 2);
    assert_int_equal(run.counted_bytes, run.expected_bytes);
    plan_destroy(plan);
    graph_destroy(g);
}

static void test_norms_by_worker(void **state)
{
    static const char meshes[][160] = {
        "{\"cleave_plan\": 1, \"workers\": 4, \"stages\": [{\"workers\": [0, 1, 2, 3], \"cut\": "
        "{\"n\": 2, \"height\": 2}}], \"batch_norm\": \"worker\"}",
        "{\"cleave_plan\": 1, \"workers\": 4, \"stages\": [{\"workers\": [0, 1, 2, 3], \"cut\": "
        "{\"n\": 2, \"channels\": 2}}], \"batch_norm\": \"worker\"}"};
    (void)state;
    for (int m = 0; m < (test_runs_all() ? 2 : 1); m++) {
        const char *model = m ? "mobilenetv2" : "resnet18";
        for (int w = test_runs_all() ? 0 : 1; w < (test_runs_all() ? SUITE_WORKERS : 2); w++)
            check_norms_by_worker(model, NULL, suite_workers[w]);
        for (int i = 0; i < 2; i++)
            check_norms_by_worker(model, meshes[i], 2);
    }
}

/* ---- streams that run behind the host ---- */

/* A stream that is late gives the same bits: what the host and the transport read has been waited
 * for, and what a stream still reads has not been written. */
static void test_asynchronous_streams(void **state)
{
    static const char *const strategies[] = {"serial", "data", "hybrid", "1f1b", "pipedream", "ps"};
    (void)state;
    struct graph *g = suite_build("lenet5", 8);
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        double losses[2][MOST_STEPS];
        uint64_t hashes[2];
        int n_workers = s == 0 ? 1 : 3;
        struct plan *plan;
        assert_ok(
            plan_build(strategies[s], g, &(struct plan_request){.n_workers = n_workers}, &plan));
        for (int i = 0; i < 2; i++) {
            struct team_run run =
                describe(&exact, g, plan, strcmp(strategies[s], "pipedream") ? 3 : 12);
            run.backend = i ? "asynchronous" : "reference";
            asynchronous_delay(i ? 0.05 : 0, s + 1);
            assert_ok(team_train(&run, losses[i]));
            hashes[i] = run.hash;
            if (i)
                assert_memory_equal(losses[0], losses[1], (size_t)run.n_steps * sizeof(double));
        }
        assert_that(hashes[0] == hashes[1], "%s: other bits", strategies[s]);
        plan_destroy(plan);
    }
    asynchronous_delay(0, 0);
    graph_destroy(g);
}

/* ---- frozen weights ---- */

static const float *weights_of(const struct graph *g, const float *all, int param)
{
    for (int i = 0; i < param; i++)
        all += shape_elements(&g->params[i].spec.shape);
    return all;
}

/* The weights after two steps, and the bytes that were sent. */
static float *train_with(const struct graph *g, const char *strategy, int workers, int64_t *sent)
{
    double losses[MOST_STEPS];
    struct plan *plan;
    struct plan_request request = {.n_workers = workers};
    assert_ok(plan_build(strategy, g, &request, &plan));
    struct team_run run = describe(&exact, g, plan, 2);
    run.check = true;
    run.weights = malloc((size_t)team_weight_elements(g) * sizeof(float));
    assert_ok(team_train(&run, losses));
    *sent = run.sent_bytes;
    plan_destroy(plan);
    return run.weights;
}

/* Frozen weights keep every bit, the others learn as with one worker, and gradients of frozen
 * weights are not sent. */
static void test_frozen(void **state)
{
    static const char *const strategies[] = {"data", "hybrid", "1f1b", "ps"};
    (void)state;
    for (int s = 0; s < 4; s++) {
        struct graph *g = suite_build("lenet5", 8);
        int64_t sent, sent_frozen, none;
        free(train_with(g, strategies[s], 3, &sent));
        assert_ok(graph_freeze(g, "conv*,fc2.bias"));
        float *serial = train_with(g, "serial", 1, &none);
        float *team = train_with(g, strategies[s], 3, &sent_frozen);
        for (int i = 0; i < g->n_params; i++) {
            const float *x = weights_of(g, serial, i), *y = weights_of(g, team, i);
            bool same = true, close = true;
            for (int64_t k = 0; k < shape_elements(&g->params[i].spec.shape); k++) {
                same &= y[k] == team_weight(&g->params[i], i, k);
                close &= fabs((double)x[k] - (double)y[k]) <= 1e-5 * fmax(0.1, fabs((double)x[k]));
            }
            assert_true(close);
            assert_int_equal(same, g->params[i].group.frozen);
        }
        if (strcmp(strategies[s], "data") == 0) /* a ring of 3 sends each gradient 4 times */
            assert_true(sent - sent_frozen >= 4 * 8 * graph_count_frozen(g) * 9 / 10);
        assert_true(sent_frozen < sent);
        free(serial);
        free(team);
        graph_destroy(g);
    }
}

/* A call that is refused leaves the groups as they were. */
static void test_freezing_is_refused(void **state)
{
    (void)state;
    struct graph *g = suite_build("lenet5", 8);
    assert_int_equal(graph_freeze(g, "fc*,conv9.*"), STATUS_USAGE);
    assert_non_null(strstr(status_message(), "'conv9.*'"));
    status_clear();
    assert_int_equal(graph_count_frozen(g), 0);
    assert_int_equal(graph_freeze(g, "*"), STATUS_USAGE);
    assert_non_null(strstr(status_message(), "no weight of lenet5 to learn"));
    status_clear();
    assert_int_equal(graph_count_frozen(g), 0);
    assert_ok(graph_freeze(g, "conv1.*"));
    int64_t frozen = graph_count_frozen(g);
    assert_true(frozen > 0);
    assert_int_equal(graph_freeze(g, "fc1.*,conv9.*"), STATUS_USAGE);
    status_clear();
    assert_int_equal(graph_count_frozen(g), frozen);
    graph_destroy(g);
}

/* ---- groups of weights ---- */

/* By how much one step of SGD moves the weights. */
static float *move_once(const struct graph *g, double decay)
{
    double losses[MOST_STEPS];
    struct plan *plan;
    assert_ok(plan_build("serial", g, &(struct plan_request){.n_workers = 1}, &plan));
    struct team_run run = describe(&exact, g, plan, 1);
    run.rule.weight_decay = decay;
    run.weights = malloc((size_t)team_weight_elements(g) * sizeof(float));
    assert_ok(team_train(&run, losses));
    float *at = run.weights;
    for (int i = 0; i < g->n_params; i++)
        for (int64_t k = 0; k < shape_elements(&g->params[i].spec.shape); k++, at++)
            *at -= team_weight(&g->params[i], i, k);
    plan_destroy(plan);
    return run.weights;
}

static double largest_difference(const struct graph *g, int param, const float *x, double factor,
                                 const float *y)
{
    double most = 0;
    x = weights_of(g, x, param);
    y = weights_of(g, y, param);
    for (int64_t k = 0; k < shape_elements(&g->params[param].spec.shape); k++)
        most = fmax(most, fabs(factor * (double)x[k] - (double)y[k]));
    return most;
}

/* A step moves weights of half the rate half as far, those without decay by their gradient alone,
 * and teams move all of them as one worker does. */
static void test_groups(void **state)
{
    (void)state;
    struct graph *plain = suite_build("lenet5", 8), *g = suite_build("lenet5", 8);
    assert_ok(graph_scale_rates(g, "fc*=2,fc1.weight=0.5"));
    assert_ok(graph_skip_decay(g, "*.weight"));
    float *decays = move_once(plain, 0.1), *gradient = move_once(plain, 0),
          *moves = move_once(g, 0.1);
    for (int i = 0; i < g->n_params; i++) {
        const char *name = g->params[i].name;
        double factor = strncmp(name, "fc", 2) != 0 ? 1 : strcmp(name, "fc1.weight") == 0 ? 0.5 : 2;
        bool skips = strstr(name, ".weight") != NULL;
        assert_true(largest_difference(g, i, skips ? gradient : decays, factor, moves) < 1e-7);
        if (skips)
            assert_true(largest_difference(g, i, decays, factor, moves) > 1e-5);
    }
    static const char *const strategies[] = {"data", "hybrid", "1f1b", "ps"};
    int64_t sent;
    float *serial = train_with(g, "serial", 1, &sent);
    for (int s = 0; s < 4; s++) {
        float *team = train_with(g, strategies[s], 3, &sent);
        for (int i = 0; i < g->n_params; i++)
            assert_true(largest_difference(g, i, serial, 1, team) < 1e-5);
        free(team);
    }
    free(serial);
    free(decays);
    free(gradient);
    free(moves);
    static const char *const wrong[] = {"fc1.weight", "fc1.weight=0", "fc1.weight=x",
                                        "fc9=2",      "=2",           "fc1.*=3,fc9=2"};
    struct graph *untouched = suite_build("lenet5", 8);
    assert_ok(graph_scale_rates(untouched, "fc*=2,fc1.weight=0.5"));
    assert_ok(graph_skip_decay(untouched, "*.weight"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(graph_scale_rates(g, wrong[i]), STATUS_USAGE);
        assert_non_null(strstr(status_message(), "--lr-factor"));
        status_clear();
    }
    assert_int_equal(graph_skip_decay(g, "*.bias,fc9.*"), STATUS_USAGE);
    status_clear();
    for (int i = 0; i < g->n_params; i++) { /* a refused call changes nothing */
        const struct param_group *a = &g->params[i].group, *b = &untouched->params[i].group;
        assert_int_equal(a->skips_decay, b->skips_decay);
        assert_true(a->rate_factor == b->rate_factor);
    }
    graph_destroy(untouched);
    graph_destroy(plain);
    graph_destroy(g);
}

/* ---- few samples ---- */

static void test_more_workers_than_samples(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        const struct trial *t =
            m && session_has_backend("cpu") && !test_runs_all() ? &fast : &exact;
        struct graph *g = suite_build(suite_small[m].model, suite_small[m].batch);
        struct plan *plan;
        struct plan_request request = {.n_workers = 4};
        assert_ok(plan_build("data", g, &request, &plan));
        /* Batch norm over three samples and one pixel magnifies rounding: few steps. */
        check_plan(suite_small[m].model, t, g, plan, m ? 1 : 5);
        plan_destroy(plan);
        graph_destroy(g);
    }
}

/* ---- asynchronous plans ---- */

/* All weights as the test keeps them, by version. */
struct weights {
    float **values; /* by parameter */
};

struct oracle {
    struct session s;
    const struct graph *g;
    struct weights version[MOST_STEPS * 4 + 1];
    int n_versions;
};

static int64_t param_elements(const struct graph *g, int k)
{
    return shape_elements(&g->params[k].spec.shape);
}

static void oracle_open(struct oracle *o, const char *model, int64_t batch)
{
    struct graph_variant v = suite_variant(model, batch);
    session_open(&o->s, "reference", PRECISION_DOUBLE);
    (void)session_add(&o->s, model, &v, true, 1);
    session_start(&o->s);
    o->g = o->s.graph[0];
    o->n_versions = 1;
    o->version[0].values = calloc((size_t)o->g->n_params, sizeof(float *));
    for (int k = 0; k < o->g->n_params; k++) {
        int64_t n = param_elements(o->g, k);
        o->version[0].values[k] = malloc((size_t)n * sizeof(float));
        for (int64_t i = 0; i < n; i++)
            o->version[0].values[k][i] = team_weight(&o->g->params[k], k, i);
    }
}

static void oracle_close(struct oracle *o)
{
    for (int v = 0; v < o->n_versions; v++) {
        for (int k = 0; k < o->g->n_params; k++)
            free(o->version[v].values[k]);
        free(o->version[v].values);
    }
    session_close(&o->s);
}

/* The loss with parameter k as it was in version[k], and a new version that is the last one moved
 * by the gradient. */
static double oracle_step(struct oracle *o, const struct executor_batch *batch, const int *version,
                          double rate)
{
    /* Without movement and from a zero state, the momentum buffer becomes the gradient. */
    struct update_rule still = {.kind = UPDATE_SGD, .momentum = 0.9};
    struct step_state state = {.seed = 1, .step = 1};
    struct executor_result result;
    struct weights *last = &o->version[o->n_versions - 1], *next = &o->version[o->n_versions++];
    for (int k = 0; k < o->g->n_params; k++) {
        float *zero = calloc((size_t)param_elements(o->g, k), sizeof *zero);
        assert_ok(
            executor_write(o->s.executor, k, TENSOR_WEIGHT, o->version[version[k]].values[k]));
        if (o->g->params[k].spec.trained)
            assert_ok(executor_write(o->s.executor, k, TENSOR_STATE_0, zero));
        free(zero);
    }
    assert_ok(executor_step(o->s.executor, 0, batch, &state, &still, &result));
    next->values = calloc((size_t)o->g->n_params, sizeof *next->values);
    for (int k = 0; k < o->g->n_params; k++) {
        int64_t n = param_elements(o->g, k);
        float *gradient = calloc((size_t)n, sizeof *gradient);
        next->values[k] = malloc((size_t)n * sizeof(float));
        if (o->g->params[k].spec.trained)
            assert_ok(executor_read(o->s.executor, k, TENSOR_STATE_0, gradient));
        for (int64_t i = 0; i < n; i++)
            next->values[k][i] = (float)((double)last->values[k][i] - rate * (double)gradient[i]);
        free(gradient);
    }
    return result.loss;
}

static const double RATE = 0.02;

static struct team_run describe_plain(const struct graph *g, const struct plan *plan, int n_steps)
{
    struct team_run run = describe(&exact, g, plan, n_steps);
    run.rule = (struct update_rule){.kind = UPDATE_SGD, .learning_rate = RATE};
    run.evaluate = false;
    return run;
}

/* Stage s of S works on step i with the weights after step i - (S - 1 - s), but never with older
 * ones than at the last flush. */
static void check_pipedream(const struct plan_request *request)
{
    enum { WINDOW = SUITE_WINDOW };
    struct graph *g = suite_build("lenet5", 8);
    struct plan *plan;
    struct oracle o = {0};
    double split[2 * WINDOW];
    struct expected serial = {0};
    int version[64];
    assert_ok(plan_build("pipedream", g, request, &plan));
    struct team_run run = describe_plain(g, plan, 2 * WINDOW);
    assert_ok(team_train(&run, split));
    oracle_open(&o, "lenet5", 8);
    for (int i = 0; i < 2 * WINDOW; i++) {
        struct fixture_batch b = fixture_make_batch(g, (uint64_t)i);
        struct executor_batch batch = {b.images, b.labels, 0};
        int flushed = i / WINDOW * WINDOW;
        for (int k = 0; k < g->n_params; k++) {
            int behind = plan->n_stages - 1 - plan->layers[g->params[k].node].stage;
            version[k] = i - behind > flushed ? i - behind : flushed;
        }
        serial.loss[i] = oracle_step(&o, &batch, version, RATE);
        fixture_free_batch(&b);
    }
    compare("pipedream", &exact, &serial, split, 2 * WINDOW);
    oracle_close(&o);
    plan_destroy(plan);
    graph_destroy(g);
}

static void test_pipedream(void **state)
{
    (void)state;
    for (int i = 0; i < SUITE_PIPEDREAMS; i++)
        check_pipedream(&suite_pipedreams[i]);
}

/* Worker w's gradient of step t is number t N + w that the server applies; it was computed with the
 * weights after number (t - 1) N + w, the worker's own last one. */
static void check_asynchronous_server(const struct plan_request *request)
{
    enum { STEPS = 6 };
    int n = request->n_workers - request->n_servers;
    int64_t part = SUITE_SERVER_SAMPLES;
    struct graph *g = suite_build("lenet5", n * part);
    struct plan *plan;
    struct oracle o = {0};
    double split[STEPS];
    struct expected serial = {0};
    int version[64];
    assert_ok(plan_build("ps", g, request, &plan));
    struct team_run run = describe_plain(g, plan, STEPS);
    assert_ok(team_train(&run, split));
    oracle_open(&o, "lenet5", part);
    for (int t = 0; t < STEPS; t++) {
        struct fixture_batch b = fixture_make_batch(g, (uint64_t)t);
        for (int w = 0; w < n; w++) {
            for (int k = 0; k < g->n_params; k++)
                version[k] = t ? (t - 1) * n + w + 1 : 0;
            struct executor_batch batch = {b.images + w * part * 28 * 28, b.labels + w * part, 0};
            serial.loss[t] += oracle_step(&o, &batch, version, RATE) / n;
        }
        fixture_free_batch(&b);
    }
    compare("asynchronous server", &exact, &serial, split, STEPS);
    oracle_close(&o);
    plan_destroy(plan);
    graph_destroy(g);
}

static void test_asynchronous_server(void **state)
{
    (void)state;
    for (int i = 0; i < SUITE_SERVERS; i++)
        check_asynchronous_server(&suite_servers[i]);
}

/* ---- the same bits ---- */

static void test_same_bits(void **state)
{
    (void)state;
    const char *backend = session_has_backend("cpu") ? "cpu" : "reference";
    struct trial t = {backend, 3, 0.02, 0};
    static const char *const strategies[] = {"data", "hybrid", "spatial", "1f1b", "ps"};
    for (int i = 0; i < (TEST_UNDER_SANITIZER ? 1 : 5); i++) {
        struct graph *g = suite_build("resnet18", 8);
        struct plan *plan;
        struct plan_request request = {.n_workers = 3};
        double losses[2][4];
        uint64_t hash[2];
        assert_ok(plan_build(strategies[i], g, &request, &plan));
        for (int k = 0; k < 2; k++) {
            struct team_run run = describe(&t, g, plan, t.n_steps);
            assert_ok(team_train(&run, losses[k]));
            hash[k] = run.hash;
        }
        assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
        assert_int_equal(hash[0], hash[1]);
        plan_destroy(plan);
        graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest matrix[] = {
        cmocka_unit_test(test_strategies_on_reference),
        cmocka_unit_test(test_strategies_on_cpu),
        cmocka_unit_test(test_hand_made_plans),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(test_norms_by_worker), cmocka_unit_test(test_asynchronous_streams),
        cmocka_unit_test(test_frozen),          cmocka_unit_test(test_freezing_is_refused),
        cmocka_unit_test(test_groups),          cmocka_unit_test(test_more_workers_than_samples),
        cmocka_unit_test(test_pipedream),       cmocka_unit_test(test_asynchronous_server),
        cmocka_unit_test(test_same_bits),
    };
    const char *only = getenv("CLEAVE_TEST_ONLY");
    int failed = 0;
    if (!only || strcmp(only, "others") != 0)
        failed += cmocka_run_group_tests(matrix, NULL, NULL);
    if (!only || strcmp(only, "others") == 0)
        failed += cmocka_run_group_tests(others, NULL, NULL);
    if (only && strcmp(only, "others") != 0 && n_asked_for == 0) {
        (void)fprintf(stderr, "CLEAVE_TEST_ONLY=%s: there is no such row here\n", only);
        failed++;
    }
    return failed;
}
