/* How far workers drift apart, out of rounds that are made up. */
#include "base/numbers.h"
#include "profile/pace.h"
#include "testing.h"

#include <math.h>

enum { ROUNDS = 8 };

static struct pace pace_of(const struct pace_row *rows, int n)
{
    arena *memory;
    struct pace pace;
    assert_ok(arena_create(&memory));
    assert_ok(pace_find(rows, n, memory, &pace));
    arena_destroy(memory);
    return pace;
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

/* As many draws, by the approximation in use. */
static double place_of_last(int n)
{
    return numbers_normal_place(n - 1, n);
}

/* All are slow at the same time: nobody is behind. */
static void test_common_drift_does_not_count(void **state)
{
    (void)state;
    const double a[ROUNDS] = {2, 4, 2, 4, 2, 4, 2, 4}, b[ROUNDS] = {3, 6, 3, 6, 3, 6, 3, 6};
    const struct pace_row rows[] = {{0, 3, ROUNDS, 1, a}, {0, 4.5, ROUNDS, 1, b}};
    assert_true(fabs(pace_of(rows, 2).drift) < 1e-12);
}

/* One of two that are said to take 10 always takes 12 where the other takes 8. */
static void test_a_slow_core_counts(void **state)
{
    (void)state;
    const double a[ROUNDS] = {8, 8, 8, 8, 8, 8, 8, 8}, b[ROUNDS] = {12, 12, 12, 12, 12, 12, 12, 12};
    const struct pace_row same[] = {{0, 10, ROUNDS, 1, a}, {0, 10, ROUNDS, 1, b}};
    assert_true(fabs(pace_of(same, 2).drift - 0.2 / place_of_last(2)) < 1e-12);
    /* of other programs it is what they take */
    const struct pace_row others[] = {{0, 8, ROUNDS, 1, a}, {0, 12, ROUNDS, 1, b}};
    assert_true(fabs(pace_of(others, 2).drift) < 1e-12);
    /* rows of two rehearsals did not run together, and one alone says nothing */
    const struct pace_row apart[] = {{0, 10, ROUNDS, 1, a}, {1, 10, ROUNDS, 1, b}};
    assert_true(pace_of(apart, 2).drift < 0);
    assert_true(pace_of(same, 1).drift < 0);
}

/* One of eight is half as slow again, another one in every round: quartiles would not see it. */
static void test_the_last_is_waited_for(void **state)
{
    (void)state;
    double seconds[ROUNDS][ROUNDS];
    struct pace_row rows[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        for (int round = 0; round < ROUNDS; round++)
            seconds[i][round] = i == round ? 1.5 : 1;
        rows[i] = (struct pace_row){0, 1, ROUNDS, 1, seconds[i]};
    }
    double mean = (1.5 + ROUNDS - 1) / ROUNDS, behind = 1.5 / mean - 1;
    assert_true(fabs(pace_of(rows, ROUNDS).drift - behind / place_of_last(ROUNDS)) < 1e-12);
}

/* A server's few microseconds scatter far, and nobody waits because of it. */
static void test_who_has_little_to_do_does_not_count(void **state)
{
    (void)state;
    const double a[ROUNDS] = {8, 8, 8, 8, 8, 8, 8, 8}, b[ROUNDS] = {1, 2, 1, 2, 1, 2, 1, 2};
    const struct pace_row rows[] = {{0, 8, ROUNDS, 1, a}, {0, 1.5, ROUNDS, 1, b}};
    assert_true(pace_of(rows, 2).drift < 0);
    const struct pace_row three[] = {
        {0, 8, ROUNDS, 1, a}, {0, 1.5, ROUNDS, 1, b}, {0, 8, ROUNDS, 1, a}};
    assert_true(fabs(pace_of(three, 3).drift) < 1e-12);
}

/* Blocks that take 1.1 or 0.9 times as long as usual, in rounds that take the same in all, or three
 * times as long. */
static void test_jitter_is_within_a_round(void **state)
{
    (void)state;
    const double a[ROUNDS][2] = {{1.1, 0.9}, {0.9, 1.1}, {1.1, 0.9}, {0.9, 1.1},
                                 {1.1, 0.9}, {0.9, 1.1}, {3.3, 2.7}, {2.7, 3.3}};
    const double steady[ROUNDS][2] = {{1, 2}, {2, 4}, {1, 2}, {2, 4},
                                      {1, 2}, {2, 4}, {1, 2}, {2, 4}};
    const struct pace_row row = {0, 2, ROUNDS, 2, &a[0][0]};
    const struct pace_row level = {0, 1, ROUNDS, 2, &steady[0][0]};
    const struct pace_row whole = {0, 1, ROUNDS, 1, &a[0][0]};
    assert_true(fabs(pace_of(&row, 1).jitter - 0.1 * sqrt(2) / 0.7979) < 1e-9);
    assert_true(fabs(pace_of(&level, 1).jitter) < 1e-12);
    assert_true(pace_of(&whole, 1).jitter < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_middles),
        cmocka_unit_test(test_common_drift_does_not_count),
        cmocka_unit_test(test_a_slow_core_counts),
        cmocka_unit_test(test_the_last_is_waited_for),
        cmocka_unit_test(test_who_has_little_to_do_does_not_count),
        cmocka_unit_test(test_jitter_is_within_a_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
