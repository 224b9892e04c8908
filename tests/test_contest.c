/* Times of rounds that are made up: who is behind, who stays, and when the order is certain. */
#include "search/contest.h"
#include "testing.h"

static const double long_s = 100; /* of rounds: their number alone decides */

/* One round of two: the second takes `ratio` times as long as the first, the machine `weather`
 * times as long for both. */
static void play(struct contestant *c, double weather, double ratio)
{
    contest_add(&c[0], weather);
    if (!c[1].behind)
        contest_add(&c[1], weather * ratio);
    contest_judge(c, 2, long_s);
}

/* Rounds until the second is left out. */
static int rounds_of(double ratio)
{
    struct contestant c[2] = {{0}};
    for (int k = 0; k < 100 && !c[1].behind; k++)
        play(c, 1, ratio);
    return c[1].behind ? c[1].n_rounds : 0;
}

static void test_weather_does_not_count(void **state)
{
    (void)state;
    struct contestant c[2] = {{0}};
    for (int k = 0; k < 12; k++)
        play(c, k % 3 + 1, 0.9);
    assert_near(c[1].step_s / c[0].step_s, 0.9, 1e-9);
    assert_near(c[0].step_s, 2, 1e-9);
    assert_true(c[1].noise < 1e-12 && !c[1].behind);
}

static void test_the_further_behind_the_sooner_out(void **state)
{
    (void)state;
    assert_int_equal(rounds_of(5), 1);
    assert_int_equal(rounds_of(2), CONTEST_LEAST_ROUNDS);
    assert_int_equal(rounds_of(1.15), 7);
    assert_int_equal(rounds_of(1.06), 17);
    assert_int_equal(rounds_of(1.04), 0);
}

/* Wherever it is: a faster plan that met something else once is not lost. */
static void test_one_bad_round_is_forgiven(void **state)
{
    (void)state;
    for (int bad = 0; bad < 6; bad++) {
        struct contestant c[2] = {{0}};
        for (int k = 0; k < 30; k++)
            play(c, 1, k == bad ? 3.5 : 0.9);
        assert_int_equal(c[1].n_rounds, 30);
        assert_true(c[1].step_s < c[0].step_s);
    }
}

/* Within a round, too, there is a judgement: of those who have had their turn. */
static void test_who_had_no_turn_waits(void **state)
{
    (void)state;
    struct contestant c[4] = {{0}, {0}, {0}, {.aside = true}};
    contest_add(&c[0], 1);
    contest_add(&c[1], 5);
    contest_judge(c, 4, long_s);
    assert_true(c[1].behind && !c[0].behind && !c[2].behind && !c[3].behind);
    contest_add(&c[2], 0.9);
    contest_add(&c[3], 0.1);
    contest_judge(c, 4, long_s);
    assert_true(c[3].behind && !c[0].behind && !c[2].behind);
    assert_near(c[2].step_s, 0.9, 1e-9);
}

/* All are compared with it. */
static void test_first_one_stays(void **state)
{
    (void)state;
    struct contestant c[2] = {{0}};
    for (int k = 0; k < 10; k++)
        play(c, 1, 0.1);
    assert_true(!c[0].behind && !c[1].behind);
}

static void test_aside_is_no_rival(void **state)
{
    (void)state;
    struct contestant c[3] = {{0}, {0}, {.aside = true}};
    for (int k = 0; k < 10; k++) {
        contest_add(&c[0], 1);
        contest_add(&c[1], 1.01);
        if (!c[2].behind)
            contest_add(&c[2], 0.1);
        contest_judge(c, 3, long_s);
    }
    assert_int_equal(c[2].n_rounds, 1);
    assert_near(c[2].step_s, 0.1, 1e-9);
    assert_false(c[1].behind);
}

/* Many rounds within a second may all have met the same. */
static void test_few_seconds_leave_out_few(void **state)
{
    (void)state;
    static const struct {
        double ratio, until_s;
    } table[] = {{1.3, 2}, {1.12, 5}, {1.06, 9}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct contestant c[2] = {{0}};
        double seconds = 0;
        while (!c[1].behind && seconds < 20) {
            contest_add(&c[0], 0.01);
            contest_add(&c[1], 0.01 * table[i].ratio);
            contest_judge(c, 2, seconds += 0.1);
        }
        assert_true(seconds > 0.8 * table[i].until_s && seconds < 1.2 * table[i].until_s);
    }
}

/* One is left, or all are known well. */
static void test_decided(void **state)
{
    (void)state;
    struct contestant clear[2] = {{0}}, doubtful[2] = {{0}}, known[2] = {{0}};
    for (int k = 0; k < 30; k++) {
        assert_int_equal(contest_is_decided(clear, 2), k >= 8);
        assert_int_equal(contest_is_decided(known, 2), k >= 8);
        assert_false(contest_is_decided(doubtful, 2));
        play(clear, 1, k % 2 ? 3.8 : 4.2);
        play(known, 1, 0.97);
        play(doubtful, 1, k % 2 ? 0.95 : 1);
    }
    assert_true(clear[1].behind && !known[1].behind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weather_does_not_count),
        cmocka_unit_test(test_the_further_behind_the_sooner_out),
        cmocka_unit_test(test_one_bad_round_is_forgiven),
        cmocka_unit_test(test_who_had_no_turn_waits),
        cmocka_unit_test(test_first_one_stays),
        cmocka_unit_test(test_aside_is_no_rival),
        cmocka_unit_test(test_few_seconds_leave_out_few),
        cmocka_unit_test(test_decided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
