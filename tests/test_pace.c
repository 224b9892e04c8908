/* How far workers drift apart, out of rounds that are made up. */
#include "base/numbers.h"
#include "profile/pace.h"
#include "testing.h"

#include <math.h>

enum { ROUNDS = 8 };

static double spread_of(const struct pace_row *rows, int n)
{
    arena *memory;
    double spread = -1;
    assert_ok(arena_create(&memory));
    assert_ok(pace_find_spread(rows, n, memory, &spread));
    arena_destroy(memory);
    return spread;
}

static void test_middles(void **state)
{
    (void)state;
    double n[] = {9, 1, 2, 3, 4, 5, 6, 7, 8, 1000};
    numbers_sort(n, 10);
    assert_true(fabs(numbers_quantile(n, 10, 0.5) - 5.5) < 1e-12);
    assert_true(fabs(numbers_quantile(n, 10, 0) - 1) < 1e-12);
    assert_true(fabs(numbers_quantile(n, 10, 1) - 1000) < 1e-12);
    assert_true(fabs(numbers_middle(n, 10) - 5.5) < 1e-12); /* neither 1 nor 1000 */
    assert_true(fabs(numbers_middle(n, 1) - 1) < 1e-12);
}

/* All are slow at the same time: nobody is behind. */
static void test_common_drift_does_not_count(void **state)
{
    (void)state;
    const double a[ROUNDS] = {1, 2, 1, 2, 1, 2, 1, 2}, b[ROUNDS] = {3, 6, 3, 6, 3, 6, 3, 6};
    const struct pace_row rows[] = {{0, 1, ROUNDS, a}, {0, 2, ROUNDS, b}};
    assert_true(spread_of(rows, 2) < 1e-12);
}

/* One of two that do the same always takes 1.2 where the other takes 0.8. */
static void test_a_slow_core_counts(void **state)
{
    (void)state;
    const double a[ROUNDS] = {8, 8, 8, 8, 8, 8, 8, 8}, b[ROUNDS] = {12, 12, 12, 12, 12, 12, 12, 12};
    const struct pace_row same[] = {{0, 1, ROUNDS, a}, {0, 1, ROUNDS, b}};
    assert_true(fabs(spread_of(same, 2) - 0.2 * sqrt(2)) < 1e-12);
    /* with other programs it is what they take */
    const struct pace_row others[] = {{0, 1, ROUNDS, a}, {0, 2, ROUNDS, b}};
    assert_true(spread_of(others, 2) < 1e-12);
    /* nor did rows of two rehearsals run together */
    const struct pace_row apart[] = {{0, 1, ROUNDS, a}, {1, 1, ROUNDS, b}};
    assert_true(spread_of(apart, 2) < 1e-12);
    assert_true(spread_of(same, 1) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_middles),
        cmocka_unit_test(test_common_drift_does_not_count),
        cmocka_unit_test(test_a_slow_core_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
