/* How much a host wanders: out of rounds that are made up, and kept with a profile. */
#include "profile/wander.h"
#include "testing.h"

#include <math.h>
#include <string.h>

enum { MANY = 400 };

static const struct profile_setting setting = {"a processor", 1, 2};
static const struct profile_setting other = {"a processor", 1, 1};

/* Rounds of `a` and of `b` seconds, so many of each one after the other. */
static void alternate(double *round_s, int n, int spell, double a, double b)
{
    for (int i = 0; i < n; i++)
        round_s[i] = i / spell % 2 ? b : a;
}

static void test_spells_count_and_single_rounds_do_not(void **state)
{
    (void)state;
    double round_s[MANY];
    alternate(round_s, MANY, 1, 0.01, 0.01);
    assert_true(fabs(wander_of_rounds(round_s, MANY)) < 1e-6);
    assert_true(wander_is_steady(round_s, MANY));
    alternate(round_s, MANY, 1, 0.009, 0.011); /* every slice has as many of both */
    assert_true(wander_of_rounds(round_s, MANY) < 0.02);
    assert_true(wander_is_steady(round_s, MANY));
    alternate(round_s, MANY, 50, 0.009, 0.011); /* half a second of each */
    double wander = wander_of_rounds(round_s, MANY);
    assert_in_range(1000 * wander, 100, 250);
    assert_false(wander_is_steady(round_s, 100));
    double longer[MANY];
    for (int i = 0; i < MANY; i++)
        longer[i] = 100 * round_s[i]; /* each a slice of its own */
    assert_true(wander_of_rounds(longer, MANY) > 0.1);
}

static void test_few_slices_say_nothing(void **state)
{
    (void)state;
    double round_s[MANY];
    alternate(round_s, MANY, 1, 0.01, 0.01);
    int two = (int)(2.5 * WANDER_SLICE_S / 0.01);
    assert_true(wander_of_rounds(round_s, two) < 0);
    assert_false(wander_is_steady(round_s, two));
    assert_true(wander_of_rounds(NULL, 0) < 0);
    assert_false(wander_is_steady(NULL, 0));
}

static double known(profile *p, const struct profile_setting *s)
{
    double wander;
    assert_ok(wander_find(p, s, &wander));
    return wander;
}

/* What was seen outweighs what is usual, by and by, and the last counts more than the first. */
static void test_it_is_learnt(void **state)
{
    (void)state;
    profile *p;
    assert_ok(profile_open(NULL, &p));
    double usual = known(p, &setting);
    assert_true(usual > 0 && usual < 0.1);
    assert_ok(wander_note(p, &setting, -1)); /* not known */
    assert_ok(wander_note(p, &setting, NAN));
    assert_true(known(p, &setting) == usual);
    assert_ok(wander_note(p, &setting, 0.4));
    double once = known(p, &setting);
    assert_true(once > usual && once < 0.4);
    for (int i = 0; i < 20; i++) /* more than are kept */
        assert_ok(wander_note(p, &setting, 0.4));
    assert_true(known(p, &setting) > 0.33 && known(p, &setting) < 0.4);
    assert_true(known(p, &other) == usual);
    for (int i = 0; i < 100; i++)
        assert_ok(wander_note(p, &setting, 0));
    assert_true(known(p, &setting) < usual);
    profile_close(p);
}

static void test_what_cannot_be_read_is_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "x", "-3 0.1", "3", "3 -1", "3 inf", "1000000 9"};
    const char *name = "wander of 2 workers with 1 threads on a processor";
    profile *p;
    assert_ok(profile_open(NULL, &p));
    double usual = known(p, &setting);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_ok(profile_put_text(p, name, texts[i]));
        assert_that(known(p, &setting) <= usual, "'%s' is taken for %g", texts[i],
                    known(p, &setting));
    }
    assert_ok(profile_put_text(p, name, "4 0.16"));
    assert_true(known(p, &setting) > 2 * usual);
    profile_close(p);
}

static void test_now_and_then(void **state)
{
    (void)state;
    assert_true(wander_between(3, 3) == 0);
    assert_true(fabs(wander_between(2, 1) - wander_between(1, 2)) < 1e-12);
    assert_true(fabs(wander_between(1.1, 1) - 0.0674) < 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spells_count_and_single_rounds_do_not),
        cmocka_unit_test(test_few_slices_say_nothing),
        cmocka_unit_test(test_it_is_learnt),
        cmocka_unit_test(test_what_cannot_be_read_is_nothing),
        cmocka_unit_test(test_now_and_then),
    };
    return test_run(tests);
}
