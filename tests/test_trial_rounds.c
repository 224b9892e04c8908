/* Rounds of a trial that are made up: which plans are dropped, and which stay. */
#include "search/trial.h"
#include "testing.h"

#include <string.h>

enum { N = 3, MOST = 100 };

/* One plan more or less beside the first. */
struct rounds {
    struct trial_plan plans[N];
    double ratios[N][MOST];
};

static void add(struct rounds *r, int i, double ratio)
{
    if (!r->plans[i].behind)
        r->ratios[i][r->plans[i].n_rounds++] = ratio;
}

static void compare(struct rounds *r, int n)
{
    const double *ratios[N] = {r->ratios[0], r->ratios[1], r->ratios[2]};
    trial_compare(r->plans, n, ratios);
}

/* Rounds until the second is dropped. */
static int rounds_of(double ratio)
{
    struct rounds r = {0};
    for (int k = 0; k < MOST && !r.plans[1].behind; k++) {
        add(&r, 1, ratio);
        compare(&r, 2);
    }
    return r.plans[1].behind ? r.plans[1].n_rounds : 0;
}

static void test_the_slower_the_sooner_dropped(void **state)
{
    (void)state;
    assert_int_equal(rounds_of(5), 1);
    assert_int_equal(rounds_of(2), TRIAL_LEAST_ROUNDS);
    assert_int_equal(rounds_of(1.15), 7);
    assert_int_equal(rounds_of(1.06), 17);
    assert_int_equal(rounds_of(1.04), 0);
}

/* Whichever it is: a faster plan that met something else once is not lost. */
static void test_one_bad_round_is_forgiven(void **state)
{
    (void)state;
    for (int bad = 0; bad < 6; bad++) {
        struct rounds r = {0};
        for (int k = 0; k < 30; k++) {
            add(&r, 1, k == bad ? 3.5 : 0.9);
            compare(&r, 2);
        }
        assert_int_equal(r.plans[1].n_rounds, 30);
        assert_near(r.plans[1].step_s, 0.9, 1e-12);
        assert_true(r.plans[1].noise < 1e-12);
    }
}

/* The fastest one is what the others are held against, and the first one is never dropped. */
static void test_behind_the_fastest(void **state)
{
    (void)state;
    struct rounds r = {0};
    for (int k = 0; k < 30; k++) {
        add(&r, 1, 0.5);
        add(&r, 2, 0.6);
        compare(&r, 3);
    }
    assert_true(!r.plans[0].behind && !r.plans[1].behind && r.plans[2].behind);
    assert_near(r.plans[0].step_s, 1, 0);
}

/* What scatters is known less well. */
static void test_scatter_keeps_a_plan(void **state)
{
    (void)state;
    struct rounds calm = {0}, wild = {0};
    for (int k = 0; k < 20; k++) {
        add(&calm, 1, k % 2 ? 1.19 : 1.21);
        add(&wild, 1, 0.8 + 0.2 * (k % 5));
        compare(&calm, 2);
        compare(&wild, 2);
    }
    assert_true(calm.plans[1].behind && !wild.plans[1].behind);
    assert_true(wild.plans[1].noise > 0.05);
}

static void test_aside_is_no_rival(void **state)
{
    (void)state;
    struct rounds r = {.plans = {{0}, {0}, {.aside = true}}};
    for (int k = 0; k < 10; k++) {
        add(&r, 1, 1.01);
        add(&r, 2, 0.1);
        compare(&r, 3);
    }
    assert_int_equal(r.plans[2].n_rounds, 1);
    assert_near(r.plans[2].step_s, 0.1, 1e-12);
    assert_false(r.plans[1].behind);
}

/* A plan that has had no round yet is not judged. */
static void test_no_round_yet(void **state)
{
    (void)state;
    struct rounds r = {0};
    add(&r, 1, 5);
    compare(&r, 3);
    assert_true(r.plans[1].behind && !r.plans[2].behind);
    assert_true(r.plans[2].step_s <= 0);
}

/* Groups hold as many plans as memory does beside the first, and one at least. */
static void test_groups(void **state)
{
    (void)state;
    struct trial_plan plans[5] = {{.memory_share = 0.2},
                                  {.memory_share = 0.3},
                                  {.memory_share = 0.2},
                                  {.memory_share = 0.3},
                                  {.memory_share = 0.7}};
    assert_int_equal(trial_count_together(plans, 5, 1), 2);
    assert_int_equal(trial_count_together(plans, 5, 3), 1);
    assert_int_equal(trial_count_together(plans, 5, 4), 1);
    memset(plans, 0, sizeof plans);
    assert_int_equal(trial_count_together(plans, 5, 1), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_slower_the_sooner_dropped),
        cmocka_unit_test(test_one_bad_round_is_forgiven),
        cmocka_unit_test(test_behind_the_fastest),
        cmocka_unit_test(test_scatter_keeps_a_plan),
        cmocka_unit_test(test_aside_is_no_rival),
        cmocka_unit_test(test_no_round_yet),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
