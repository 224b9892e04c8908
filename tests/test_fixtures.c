/* Ten steps of training against PyTorch's: every network of fixtures/ on every backend, through
 * graph, program and executor. What the files hold is in fixtures/README.md. */
#include "session.h"

#include <glob.h>
#include <jansson.h>

enum { N_STEPS = 10, MAX_CASES = 64 };

/* The reference backend is plain C on one thread, about 2 GFLOP/s and under sanitizers a tenth: of
 * the networks whose ten steps cost more than SMALL_FLOPS, a sample is trained there, and none that
 * costs more than MOST_FLOPS. CLEAVE_TEST_ALL=1 trains all. */
static const double SMALL_FLOPS = 3e9, MOST_FLOPS = TEST_UNDER_SANITIZER ? 3e9 : 60e9;

/* How far from PyTorch in double. Sums are compared as the README says, relative to
 * sqrt(elements * squares). */
static const struct tolerance {
    const char *backend;
    enum precision precision;
    double loss, params, gradients;
    double drifts; /* of gradients, too: this many times the fixture's nudged_drift of losses */
} tolerances[] = {
    {"cpu", PRECISION_FLOAT, 1e-4, 1e-5, 1e-3, 5e3},
    {"reference", PRECISION_DOUBLE, 1e-5, 1e-6, 1e-5, 0},
};
static const double smallest_value = 1e-4;
enum { N_BACKENDS = sizeof tolerances / sizeof tolerances[0] };

struct test_case {
    char file[PATH_MAX], name[128];
    const struct tolerance *near;
    bool taken; /* by the sample */
};

static double number(const json_t *of, const char *key)
{
    const json_t *value = json_object_get(of, key);
    assert_that(json_is_number(value), "'%s' is not a number", key);
    return json_number_value(value);
}

static const char *text(const json_t *of, const char *key)
{
    const char *value = json_string_value(json_object_get(of, key));
    assert_that(value, "'%s' is not a text", key);
    return value;
}

static struct graph_variant read_variant(const json_t *fixture)
{
    const json_t *shape = json_object_get(fixture, "shape");
    return (struct graph_variant){.batch = (int64_t)number(fixture, "batch"),
                                  .channels = json_integer_value(json_array_get(shape, 0)),
                                  .height = json_integer_value(json_array_get(shape, 1)),
                                  .width = json_integer_value(json_array_get(shape, 2)),
                                  .classes = (int64_t)number(fixture, "classes"),
                                  .small_form = strcmp(text(fixture, "form"), "small") == 0,
                                  .drop_probability = 0};
}

static struct update_rule read_rule(const json_t *fixture)
{
    struct update_rule rule = {.kind = UPDATE_SGD,
                               .learning_rate = number(fixture, "lr"),
                               .weight_decay = number(fixture, "weight_decay")};
    if (strcmp(text(fixture, "optimizer"), "adamw") == 0) {
        rule.kind = UPDATE_ADAMW;
        rule.beta1 = number(fixture, "beta1");
        rule.beta2 = number(fixture, "beta2");
        rule.epsilon = number(fixture, "epsilon");
        return rule;
    }
    rule.momentum = number(fixture, "momentum");
    rule.nesterov = json_is_true(json_object_get(fixture, "nesterov"));
    return rule;
}

/* ---- parameters ---- */

static int find_param(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_params; i++)
        if (strcmp(g->params[i].name, name) == 0)
            return i;
    fail_msg("the graph has no parameter '%s'", name);
    return -1;
}

static int64_t param_elements(const struct graph *g, int param)
{
    return shape_elements(&g->params[param].spec.shape);
}

/* Elements of the largest parameter. */
static int64_t most_elements(const struct graph *g)
{
    int64_t most = 0;
    for (int i = 0; i < g->n_params; i++)
        most = param_elements(g, i) > most ? param_elements(g, i) : most;
    return most;
}

/* The start value of all elements of fixture parameter number `tensor`, graph parameter `param`. */
static void fill_param(const json_t *fixture, const struct graph *g, int param, uint64_t tensor,
                       float *to)
{
    const struct graph_param *p = &g->params[param];
    int64_t n = param_elements(g, param);
    bool weight = strcmp(p->spec.name, "weight") == 0;
    double scale = 0.05, offset = 0, gain = 1;
    if (g->nodes[p->node].op.op == OP_BATCH_NORM) {
        scale = 0.1;
        offset = weight ? 1.0 : number(fixture, "bn_bias");
    } else if (weight) {
        int64_t fan_in = n / p->spec.shape.dim[0];
        scale = sqrt(6.0 / (double)fan_in);
        if (strcmp(g->nodes[p->node].name, text(fixture, "head")) == 0)
            gain = number(fixture, "head_gain");
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)(gain * (scale * fixture_number(tensor, (uint64_t)i)) + offset);
}

static void write_params(struct session *s, const json_t *fixture, float *values)
{
    const struct graph *g = s->graph[0];
    const json_t *listed = json_object_get(fixture, "parameters"), *row;
    size_t tensor;
    int n_trained = 0;
    for (int i = 0; i < g->n_params; i++) { /* statistics: means 0, variances 1 */
        bool variance = strcmp(g->params[i].spec.name, "running_var") == 0;
        n_trained += g->params[i].spec.trained;
        for (int64_t e = 0; e < param_elements(g, i); e++)
            values[e] = variance ? 1.0F : 0.0F;
        assert_ok(executor_write(s->executor, i, TENSOR_WEIGHT, values));
    }
    assert_int_equal(n_trained, (int)json_array_size(listed));
    json_array_foreach(listed, tensor, row)
    {
        int param = find_param(g, text(row, "name"));
        fill_param(fixture, g, param, tensor, values);
        assert_ok(executor_write(s->executor, param, TENSOR_WEIGHT, values));
    }
}

/* ---- comparing ---- */

static void compare_loss(const char *what, int step, double loss, double expected, double tolerance)
{
    assert_that(fabs(loss - expected) <= tolerance * fabs(expected),
                "%s %d: %.9g, PyTorch has %.9g", what, step, loss, expected);
}

/* The sum and the sum of squares of a tensor against those of a row of the fixture. */
static void compare_sums(const json_t *row, const char *prefix, const float *values, int64_t n,
                         double tolerance)
{
    char key[64];
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    (void)snprintf(key, sizeof key, "%ssum", prefix);
    double expected_sum = number(row, key);
    (void)snprintf(key, sizeof key, "%ssquares", prefix);
    double expected_squares = number(row, key);
    /* A gradient that is zero but for rounding (a bias in front of batch norm) has no scale. */
    double small = (double)n * smallest_value * smallest_value;
    double scale = sqrt((double)n * (expected_squares + small));
    assert_that(fabs(sum - expected_sum) <= tolerance * scale,
                "%s: %ssum is %.9g, PyTorch has %.9g (scale %.3g)", text(row, "name"), prefix, sum,
                expected_sum, scale);
    assert_that(fabs(squares - expected_squares) <= 2 * tolerance * (expected_squares + small),
                "%s: %ssquares is %.9g, PyTorch has %.9g", text(row, "name"), prefix, squares,
                expected_squares);
}

/* After step 0 the optimizer's state gives the gradient away: SGD's momentum buffer is the gradient
 * with the decay of the weights before the step, AdamW's first moment is (1 - beta1) of it. */
static void compare_first_gradients(struct session *s, const json_t *fixture,
                                    const struct update_rule *rule, double tolerance, float *values,
                                    float *state)
{
    const json_t *row;
    size_t tensor;
    json_array_foreach(json_object_get(fixture, "parameters"), tensor, row)
    {
        int param = find_param(s->graph[0], text(row, "name"));
        int64_t n = param_elements(s->graph[0], param);
        fill_param(fixture, s->graph[0], param, tensor, values);
        assert_ok(executor_read(s->executor, param, TENSOR_STATE_0, state));
        for (int64_t i = 0; i < n; i++)
            values[i] = rule->kind == UPDATE_ADAMW
                            ? (float)((double)state[i] / (1 - rule->beta1))
                            : (float)((double)state[i] - rule->weight_decay * (double)values[i]);
        compare_sums(row, "first_gradient_", values, n, tolerance);
    }
}

static void compare_params(struct session *s, const json_t *fixture, const char *list,
                           double tolerance, float *values)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(fixture, list), i, row)
    {
        int param = find_param(s->graph[0], text(row, "name"));
        assert_ok(executor_read(s->executor, param, TENSOR_WEIGHT, values));
        compare_sums(row, "", values, param_elements(s->graph[0], param), tolerance);
    }
}

static double steps_flops(const struct graph *g)
{
    double flops = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        struct op_cost cost;
        op_get_cost(&g->nodes[i].op, &cost);
        flops += cost.forward_flops + cost.data_gradient_flops + cost.weight_gradient_flops;
    }
    return N_STEPS * flops;
}

static void train(struct session *s, const json_t *fixture, const struct tolerance *near)
{
    struct update_rule rule = read_rule(fixture);
    struct fixture_batch batch = fixture_make_batch(s->graph[0], 0);
    const json_t *losses = json_object_get(fixture, "losses");
    double gradients = near->gradients + near->drifts * number(fixture, "nudged_drift");
    size_t most = (size_t)most_elements(s->graph[0]) + 1;
    float *values = calloc(most, sizeof *values), *state = calloc(most, sizeof *state);
    assert_true(values && state);
    assert_int_equal(json_array_size(losses), N_STEPS);
    write_params(s, fixture, values);
    for (uint32_t step = 0; step < N_STEPS; step++) {
        fixture_fill_batch(s->graph[0], step, &batch);
        rule.step = step + 1;
        double loss = session_step(s, 0, &batch, &rule, step);
        compare_loss("loss of step", (int)step, loss,
                     json_number_value(json_array_get(losses, step)), near->loss);
        if (step == 0)
            compare_first_gradients(s, fixture, &rule, gradients, values, state);
    }
    compare_params(s, fixture, "parameters", near->params, values);
    compare_params(s, fixture, "statistics", near->params, values);
    fixture_fill_batch(s->graph[0], N_STEPS, &batch);
    compare_loss("evaluation after step", N_STEPS, session_step(s, 1, &batch, NULL, N_STEPS),
                 number(fixture, "evaluation_loss"), near->loss);
    free(values);
    free(state);
    fixture_free_batch(&batch);
}

static void test_fixture(void **state)
{
    const struct test_case *c = *state;
    struct session s;
    json_error_t error;
    session_open(&s, c->near->backend, c->near->precision);
    json_t *fixture = json_load_file(c->file, 0, &error);
    assert_that(fixture, "%s: %s", c->file, error.text);
    struct graph_variant variant = read_variant(fixture);
    struct update_rule rule = read_rule(fixture);
    const char *model = text(fixture, "model");
    session_add(&s, model, &variant, true, update_rule_states(&rule));
    session_add(&s, model, &variant, false, 0);
    double flops = steps_flops(s.graph[0]);
    bool slow = strcmp(c->near->backend, "reference") == 0 && flops > SMALL_FLOPS;
    bool left_out = slow && !test_runs_all() && (!c->taken || flops > MOST_FLOPS);
    if (!left_out) {
        session_start(&s);
        train(&s, fixture, c->near);
    }
    session_close(&s);
    json_decref(fixture);
    if (left_out && flops > MOST_FLOPS)
        skip_because("%.1f GFLOP, the limit on the reference backend here is %.0f", flops * 1e-9,
                     MOST_FLOPS * 1e-9);
    if (left_out)
        skip_because("%.1f GFLOP, not in the sample of CLEAVE_TEST_SEED=%llu", flops * 1e-9,
                     (unsigned long long)test_seed());
}

/* The first values of the README: a mistake here would otherwise look like one everywhere. */
static void test_numbers(void **state)
{
    (void)state;
    assert_true(fixture_bits(0, 0) == 0x6e789e6aa1b965f4);
    assert_true(fixture_bits(1, 2) == 0x987bbcbfdd7e532f);
    assert_true(fixture_bits(FIXTURE_IMAGES, 1) == 0xf2f9c19b9a0d3c0c);
    assert_near(fixture_number(0, 0), -0.136944056, 1e-9);
    const uint64_t labels[] = {4, 9, 6, 1};
    for (uint64_t i = 0; i < 4; i++)
        assert_true(fixture_bits(FIXTURE_LABELS, i) % 10 == labels[i]);
}

static int find_cases(struct test_case *cases)
{
    glob_t found;
    int n = 0;
    if (glob(TESTS_DIR "/fixtures/*.json", 0, NULL, &found) != 0)
        return 0;
    struct test_sample sample = test_sample("fixtures on reference", (int)found.gl_pathc, 4);
    for (size_t i = 0; i < found.gl_pathc; i++)
        for (int k = 0; k < N_BACKENDS && n < MAX_CASES; k++) {
            const char *name = strrchr(found.gl_pathv[i], '/') + 1;
            struct test_case *c = &cases[n++];
            (void)snprintf(c->file, sizeof c->file, "%s", found.gl_pathv[i]);
            (void)snprintf(c->name, sizeof c->name, "%.*s on %s", (int)strcspn(name, "."), name,
                           tolerances[k].backend);
            c->near = &tolerances[k];
            c->taken =
                strcmp(tolerances[k].backend, "reference") == 0 && test_sample_takes(&sample);
        }
    globfree(&found);
    return n;
}

int main(void)
{
    static struct test_case cases[MAX_CASES];
    struct CMUnitTest tests[1 + MAX_CASES] = {cmocka_unit_test(test_numbers)};
    int n = find_cases(cases);
    for (int i = 0; i < n; i++)
        tests[1 + i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_fixture, .initial_state = &cases[i]};
    if (n == 0 || n == MAX_CASES) {
        (void)fprintf(stderr, "%s/fixtures: %d cases\n", TESTS_DIR, n);
        return 1;
    }
    return _cmocka_run_group_tests("fixtures", tests, 1 + (size_t)n, NULL, test_remove_folder);
}
