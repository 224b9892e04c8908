/* Learning rate schedules, and the first weights. */
#include "testing.h"

#include "runtime/initialise.h"
#include "runtime/schedule.h"

static double rate_of(const char *text, int64_t warmup_steps, int64_t step)
{
    struct schedule s;
    assert_ok(schedule_parse(text, &s));
    s.warmup_steps = warmup_steps;
    return schedule_rate(&s, 0.5, step, 10, 100);
}

static void test_rates(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t warmup_steps, step;
        double expected;
    } cases[] = {
        {"constant", 0, 0, 0.5},
        {"constant", 0, 99, 0.5},
        {"constant", 5, 0, 0.1},
        {"constant", 5, 3, 0.4},
        {"constant", 5, 4, 0.5},
        {"constant", 5, 5, 0.5},
        {"step:3:0.1", 0, 29, 0.5},
        {"step:3:0.1", 0, 30, 0.05},
        {"step:3:0.1", 0, 60, 0.005},
        {"step:3:0.1", 35, 30, 0.5 * 31 / 35},
        {"step:1:0.5", 0, 25, 0.125},
        {"cosine", 0, 0, 0.5},
        {"cosine", 0, 50, 0.25},
        {"cosine", 0, 75, 0.25 * (1 - 0.70710678118654752)},
        {"cosine", 0, 99, 0.25 * (1 + -0.99950656036573156)},
        {"cosine", 0, 1000, 0.25 * (1 + -0.99950656036573156)}, /* past the end: the last */
        {"cosine", 20, 19, 0.5},
        {"cosine", 20, 20, 0.5},
        {"cosine", 20, 60, 0.25},
        {"cosine:0.2", 0, 50, 0.5 * 0.6},
        {"cosine:1", 0, 77, 0.5},
        {"cosine", 200, 99, 0.25}, /* a warm-up longer than the run never ends */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double rate = rate_of(cases[i].text, cases[i].warmup_steps, cases[i].step);
        assert_that(fabs(rate - cases[i].expected) < 1e-12, "case %zu: %.17g for %.17g", i, rate,
                    cases[i].expected);
    }
}

static void test_cosine_falls_all_the_way(void **state)
{
    (void)state;
    double before = 1;
    for (int64_t step = 0; step < 100; step++) {
        double rate = rate_of("cosine", 0, step);
        assert_true(rate < before && rate > 0);
        before = rate;
    }
}

static void test_zero_schedule_is_constant(void **state)
{
    (void)state;
    struct schedule s = {0};
    assert_true(schedule_rate(&s, 0.3, 12, 0, 0) == 0.3);
}

static void test_text_goes_round(void **state)
{
    (void)state;
    static const char *const texts[] = {"constant", "step:30:0.1", "cosine", "cosine:0.05",
                                        "step:1:1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct schedule a, b;
        char buffer[80];
        assert_ok(schedule_parse(texts[i], &a));
        assert_ok(schedule_parse(schedule_text(buffer, sizeof buffer, &a), &b));
        assert_true(a.kind == b.kind && a.drop_epochs == b.drop_epochs &&
                    a.drop_factor == b.drop_factor && a.floor == b.floor && b.warmup_steps == 0);
    }
}

static void test_bad_texts(void **state)
{
    (void)state;
    struct schedule s;
    assert_fails(schedule_parse("cosin", &s), STATUS_USAGE, "did you mean 'cosine'?");
    assert_fails(schedule_parse("", &s), STATUS_USAGE, "constant, step, cosine");
    assert_fails(schedule_parse("step", &s), STATUS_USAGE, "step:EPOCHS:FACTOR");
    assert_fails(schedule_parse("step:30", &s), STATUS_USAGE, "step:EPOCHS:FACTOR");
    assert_fails(schedule_parse("step:0:0.1", &s), STATUS_USAGE, "from 1 to");
    assert_fails(schedule_parse("step:30:2", &s), STATUS_USAGE, "from 0 to 1");
    assert_fails(schedule_parse("step:30:0.1:7", &s), STATUS_USAGE, "not one of");
    assert_fails(schedule_parse("cosine:x", &s), STATUS_USAGE, "floor");
    assert_fails(schedule_parse("cosine:0.1:2", &s), STATUS_USAGE, "too many parts");
    assert_fails(schedule_parse("constant:1", &s), STATUS_USAGE, "too many parts");
    assert_fails(schedule_parse("step:111111111111111111111111111111111111111:1", &s), STATUS_USAGE,
                 "not one of");
}

/* ---- first weights --------------------------------------------------------------------------- */

enum { N_VALUES = 64 * 32 * 9 };

static struct graph_param make_param(enum op_init init, int64_t fan)
{
    return (struct graph_param){.name = "w",
                                .spec = {.shape = SHAPE4(64, 32, 3, 3), .init = init, .fan = fan}};
}

static void test_initial_distributions(void **state)
{
    (void)state;
    static float v[N_VALUES];
    struct graph_param normal = make_param(INIT_KAIMING_NORMAL, 288);
    initialise_parameter(&normal, 3, 1, v);
    double sum = 0, squares = 0;
    for (int i = 0; i < N_VALUES; i++) {
        sum += v[i];
        squares += (double)v[i] * v[i];
    }
    double variance = 2.0 / 288;
    assert_true(fabs(sum / N_VALUES) < 5 * sqrt(variance / N_VALUES));
    assert_true(fabs(squares / N_VALUES / variance - 1) < 5 * sqrt(2.0 / N_VALUES));

    struct graph_param uniform = make_param(INIT_KAIMING_UNIFORM, 100);
    initialise_parameter(&uniform, 3, 1, v);
    double most = 0;
    sum = 0;
    for (int i = 0; i < N_VALUES; i++) {
        sum += v[i];
        most = fmax(most, fabs((double)v[i]));
    }
    assert_true(most <= 0.1 && most > 0.0999);
    assert_true(fabs(sum / N_VALUES) < 5 * 0.1 / sqrt(3.0 * N_VALUES));
}

static void test_initial_constants(void **state)
{
    (void)state;
    static float v[N_VALUES];
    struct graph_param one = make_param(INIT_ONE, 0), zero = make_param(INIT_ZERO, 0);
    initialise_parameter(&one, 0, 1, v);
    for (int i = 0; i < N_VALUES; i++)
        assert_true(v[i] == 1);
    initialise_parameter(&zero, 0, 1, v);
    for (int i = 0; i < N_VALUES; i++)
        assert_true(v[i] == 0);
}

static void test_initial_values_depend_on_seed_and_parameter(void **state)
{
    (void)state;
    static float v[4][N_VALUES];
    struct graph_param p = make_param(INIT_KAIMING_NORMAL, 288);
    initialise_parameter(&p, 3, 1, v[0]);
    initialise_parameter(&p, 3, 1, v[1]);
    initialise_parameter(&p, 4, 1, v[2]);
    initialise_parameter(&p, 3, 2, v[3]);
    assert_memory_equal(v[0], v[1], sizeof v[0]);
    for (int other = 2; other < 4; other++) {
        int n_same = 0;
        for (int i = 0; i < N_VALUES; i++)
            n_same += v[0][i] == v[other][i];
        assert_in_range(n_same, 0, 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_cosine_falls_all_the_way),
        cmocka_unit_test(test_zero_schedule_is_constant),
        cmocka_unit_test(test_text_goes_round),
        cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_initial_distributions),
        cmocka_unit_test(test_initial_constants),
        cmocka_unit_test(test_initial_values_depend_on_seed_and_parameter),
    };
    return test_run(tests);
}
