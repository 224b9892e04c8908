/* Measured costs: found again, estimated, moved and looked at. Their files are tested in
 * test_profile_files. */
#include "base/random.h"
#include "base/timer.h"
#include "profiles.h"

#include <float.h>

static double uniform(uint32_t stream, uint64_t i)
{
    return random_uniform((struct random_key){7, RANDOM_TEST, stream}, 0, i);
}

static profile *open_in_memory(void)
{
    profile *p;
    assert_ok(profile_open(NULL, &p));
    return p;
}

/* ---- finding ---- */

static void test_finds_what_was_added(void **state)
{
    (void)state;
    profile *p = open_profile("find.db");
    struct profile_cost c;
    assert_false(profile_find(p, &one, "a", &c));
    add_numbered(p, &one, 0, 5000);
    for (int i = 0; i < 5000; i++)
        assert_true(has_numbered(p, &one, i));
    assert_false(has_numbered(p, &one, 5000));
    assert_false(profile_find(p, &one, "", &c));
    assert_false(profile_find(p, &one, "conv2d [0,0,8,8] 3x3 s1 forwar", &c));
    assert_false(profile_find(p, &one, "conv2d [0,0,8,8] 3x3 s1 forward ", &c));
    add_numbered(p, &one, 5000, 3); /* beside those in memory already */
    for (int i = 0; i < 5003; i++)
        assert_true(has_numbered(p, &one, i));
    profile_close(p);
}

static void test_settings_are_apart(void **state)
{
    (void)state;
    profile *p = open_profile("settings.db");
    const struct profile_setting others[] = {loaded, {one.device, 1, 1}, {"cpu", 2, 1}, gpu};
    add_numbered(p, &one, 0, 10);
    for (int k = 0; k < 4; k++) {
        assert_false(has_numbered(p, &others[k], 0));
        add_numbered(p, &others[k], 10 * (k + 1), 10);
    }
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 50; i++)
            assert_int_equal(has_numbered(p, &others[k], i), i / 10 == k + 1);
    profile_close(p);
}

static void test_what_is_there_stays(void **state)
{
    (void)state;
    profile *p = open_profile("stays.db");
    struct profile_entry e[] = {{"a", {"f", 1, 1}, {1, 0, 1, 0}},
                                {"a", {"f", 1, 1}, {2, 0, 1, 0}},
                                {"b", {"f", 1, 1}, {3, 0, 1, 0}}};
    struct profile_cost c;
    assert_ok(profile_add(p, &one, e, 0));
    assert_ok(profile_add(p, &one, e, 2));
    assert_true(profile_find(p, &one, "a", &c) && c.seconds == 1);
    e[0].cost.seconds = 4;
    assert_ok(profile_add(p, &one, e, 3));
    assert_true(profile_find(p, &one, "a", &c) && c.seconds == 1);
    assert_true(profile_find(p, &one, "b", &c) && c.seconds == 3);
    profile_close(p);
    p = open_profile("stays.db");
    assert_true(profile_find(p, &one, "a", &c) && c.seconds == 1);
    profile_close(p);
}

static void test_stays_on_disk(void **state)
{
    (void)state;
    profile *p = open_profile("deep/er/still/disk.db"); /* makes its folders */
    add_numbered(p, &one, 0, 300);
    add_numbered(p, &loaded, 300, 3);
    profile_close(p);
    p = open_profile("deep/er/still/disk.db");
    for (int i = 0; i < 300; i++)
        assert_true(has_numbered(p, &one, i));
    assert_true(has_numbered(p, &loaded, 302));
    assert_false(has_numbered(p, &loaded, 0));
    profile_close(p);
    profile_close(NULL);
}

static void test_bad_entries_are_refused_whole(void **state)
{
    (void)state;
    profile *p = open_profile("bad.db");
    const struct profile_entry good = {"good", {"f", 1, 1}, {1, 0, 1, 0}};
    const struct profile_entry bad[] = {
        {"", {"f", 1, 1}, {1, 0, 1, 0}},         {"x", {"f", NAN, 1}, {1, 0, 1, 0}},
        {"x", {"f", 1, INFINITY}, {1, 0, 1, 0}}, {"x", {"f", -1, 1}, {1, 0, 1, 0}},
        {"x", {"f", 1, 1}, {-1, 0, 1, 0}},       {"x", {"f", 1, 1}, {NAN, 0, 1, 0}},
        {"x", {"f", 1, 1}, {1, NAN, 1, 0}},      {"x", {"f", 1, 1}, {1, 0, 0, 0}},
    };
    const struct profile_setting nobody = {"", 1, 1}, idle = {"cpu", 1, 0};
    struct profile_cost c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct profile_entry both[] = {good, bad[i]};
        assert_fails(profile_add(p, &one, both, 2), STATUS_FAILED, "bad.db: cannot keep");
        assert_false(profile_find(p, &one, "good", &c));
    }
    assert_fails(profile_add(p, &nobody, &good, 1), STATUS_FAILED, "device");
    assert_fails(profile_add(p, &idle, &good, 1), STATUS_FAILED, "load");
    assert_ok(profile_add(p, &one, &good, 1));
    assert_true(profile_find(p, &one, "good", &c));
    profile_close(p);
}

static void test_long_keys_are_compared_in_full(void **state)
{
    (void)state;
    enum { LENGTH = 20000 };
    profile *p = open_profile("long.db");
    char *key = malloc(LENGTH + 1);
    assert_non_null(key);
    memset(key, 'k', LENGTH);
    key[LENGTH] = '\0';
    struct profile_entry e = {key, {"f", 1, 1}, {1, 0, 1, 0}};
    struct profile_cost c;
    assert_ok(profile_add(p, &one, &e, 1));
    assert_true(profile_find(p, &one, key, &c));
    key[LENGTH - 1] = 'l';
    assert_false(profile_find(p, &one, key, &c));
    free(key);
    profile_close(p);
}

static void test_others_entries_come_with_the_next_add(void **state)
{
    (void)state;
    profile *a = open_profile("both.db"), *b = open_profile("both.db");
    add_numbered(a, &one, 0, 5);
    assert_true(has_numbered(a, &one, 0));
    const struct profile_entry mine = {"k", {"f", 1, 1}, {1, 0, 1, 0}};
    const struct profile_entry theirs = {"k", {"f", 1, 1}, {2, 0, 1, 0}};
    assert_ok(profile_add(b, &one, &theirs, 1));
    add_numbered(b, &loaded, 5, 5);
    struct profile_cost c;
    assert_ok(profile_add(a, &one, &mine, 1));
    assert_true(profile_find(a, &one, "k", &c) && c.seconds == 2); /* came first */
    assert_true(has_numbered(a, &loaded, 9));
    profile_close(a);
    profile_close(b);
}

static void test_ten_thousand_lookups(void **state)
{
    (void)state;
    enum { N = 10000 };
    profile *p = open_profile("speed.db");
    add_numbered(p, &one, 0, N);
    profile_close(p);
    int64_t t0 = timer_now_ns();
    p = open_profile("speed.db");
    int64_t t1 = timer_now_ns();
    assert_true(has_numbered(p, &one, 0));
    int64_t t2 = timer_now_ns();
    for (int i = 0; i < N; i++)
        assert_true(has_numbered(p, &one, i));
    int64_t t3 = timer_now_ns();
    print_message("%d entries: open %.1f ms, first lookup %.1f ms, %d lookups %.1f ms\n", N,
                  (double)(t1 - t0) / 1e6, (double)(t2 - t1) / 1e6, N, (double)(t3 - t2) / 1e6);
    assert_true(t3 - t2 < 1000000000); /* a few ms, but other tests may be running */
    profile_close(p);
}

/* ---- estimating ---- */

static void add_plane(profile *p, const struct profile_setting *s, const char *family,
                      const double of[3], double noise, int n)
{
    for (int i = 0; i < n; i++) {
        double flops = 1e6 * exp(8 * uniform(1, (uint64_t)i)),
               bytes = 1e4 * exp(6 * uniform(2, (uint64_t)i));
        double seconds = (of[0] + of[1] * flops + of[2] * bytes) *
                         (1 + noise * (2 * uniform(3, (uint64_t)i) - 1));
        char key[64];
        (void)snprintf(key, sizeof key, "%s %d", family, i);
        struct profile_entry e = {key, {family, flops, bytes}, {seconds, 0.01, 5, 0}};
        assert_ok(profile_add(p, s, &e, 1));
    }
}

static void test_planes_are_recovered(void **state)
{
    (void)state;
    static const double planes[][3] = {{1e-5, 2e-11, 3e-10}, {0, 2e-11, 3e-10}, {1e-5, 0, 3e-10},
                                       {1e-5, 2e-11, 0},     {1e-5, 0, 0},      {0, 2e-11, 0},
                                       {0, 0, 3e-10}};
    profile *p = open_in_memory();
    for (int k = 0; k < 7; k++) {
        char family[32];
        (void)snprintf(family, sizeof family, "plane %d", k);
        add_plane(p, &one, family, planes[k], 0, 12);
        for (int i = 0; i < 20; i++) {
            struct profile_work w = {family, 1e8 * i, 1e6 * (20 - i)};
            double expected = planes[k][0] + planes[k][1] * w.flops + planes[k][2] * w.bytes;
            struct profile_cost c;
            assert_true(profile_estimate(p, &one, &w, &c));
            assert_that(fabs(c.seconds - expected) <= 1e-7 * expected, "%s: %g, not %g", family,
                        c.seconds, expected);
            assert_true(c.count == 0 && c.spread == 0.02);
        }
    }
    profile_close(p);
}

static void test_noise_shows_in_the_spread(void **state)
{
    (void)state;
    static const double plane[3] = {1e-5, 2e-11, 3e-10};
    profile *p = open_in_memory();
    add_plane(p, &one, "noisy", plane, 0.3, 60); /* root mean square: 0.3 / sqrt(3) = 0.17 */
    struct profile_work w = {"noisy", 5e8, 1e6};
    struct profile_cost c;
    assert_true(profile_estimate(p, &one, &w, &c));
    double expected = plane[0] + plane[1] * w.flops + plane[2] * w.bytes;
    assert_true(c.spread > 0.13 && c.spread < 0.22);
    assert_true(fabs(c.seconds / expected - 1) < 0.1);
    profile_close(p);
}

static void test_three_entries_are_enough(void **state)
{
    (void)state;
    static const double plane[3] = {1e-5, 2e-11, 3e-10};
    profile *p = open_in_memory();
    struct profile_work w = {"few", 5e8, 1e6};
    struct profile_cost c;
    for (int n = 0; n < 5; n++) {
        assert_int_equal(profile_estimate(p, &one, &w, &c), n >= 3);
        add_plane(p, &one, "few", plane, 0, n + 1);
    }
    w.family = "others";
    assert_false(profile_estimate(p, &one, &w, &c));
    assert_false(profile_estimate(p, &gpu, &w, &c));
    profile_close(p);
}

static void test_the_nearest_load_serves(void **state)
{
    (void)state;
    profile *p = open_in_memory();
    static const int loads[] = {1, 4, 16};
    struct profile_setting s = one;
    struct profile_work w = {"f", 1e8, 1e6};
    struct profile_cost c;
    for (int k = 0; k < 3; k++) {
        s.load = loads[k];
        add_plane(p, &s, "f", (double[]){1e-3 * loads[k], 0, 0}, 0, 4);
    }
    static const int asked[][2] = {{1, 1}, {2, 1}, {3, 4}, {5, 4}, {9, 4}, {11, 16}, {99, 16}};
    for (int k = 0; k < 7; k++) {
        s.load = asked[k][0];
        assert_true(profile_estimate(p, &s, &w, &c));
        assert_near(c.seconds, 1e-3 * asked[k][1], 1e-9);
    }
    s.load = 4; /* too few of another family here: those of load 16 */
    add_plane(p, &s, "g", (double[]){1, 0, 0}, 0, 2);
    s.load = 16;
    add_plane(p, &s, "g", (double[]){2, 0, 0}, 0, 3);
    s.load = 4;
    w.family = "g";
    assert_true(profile_estimate(p, &s, &w, &c));
    assert_near(c.seconds, 2, 1e-9);
    s.threads = 3;
    assert_false(profile_estimate(p, &s, &w, &c));
    profile_close(p);
}

/* Costs replace those measured less calmly, and those measured as calmly but earlier. */
static void test_calmer_costs_replace(void **state)
{
    (void)state;
    static const struct {
        double seconds, disturbed, expected;
    } cases[] = {{4, 0.5, 4}, {9, 0.75, 4}, {3, 0.5, 3}, {2, 0, 2}, {8, 0.25, 2}, {1, 0, 1}};
    profile *p = open_profile("calm.db"), *other = open_profile("calm.db");
    struct profile_cost c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct profile_entry e = {"k", {"f", 1, 1}, {cases[i].seconds, 0, 1, cases[i].disturbed}};
        assert_ok(profile_replace(p, &one, &e, 1));
        assert_true(profile_find(p, &one, "k", &c) && c.seconds == cases[i].expected);
        assert_true(profile_find(other, &one, "k", &c)); /* as it read it first */
        e.cost.seconds = 100;
        assert_ok(profile_add(p, &one, &e, 1));
        assert_true(profile_find(p, &one, "k", &c) && c.seconds == cases[i].expected);
    }
    profile_close(other);
    profile_close(p);
    p = open_profile("calm.db");
    assert_true(profile_find(p, &one, "k", &c) && c.seconds == 1 && c.disturbed == 0);
    profile_close(p);
}

static void test_checked_while_open(void **state)
{
    (void)state;
    profile *p = open_profile("checked.db");
    add_numbered(p, &one, 0, 3);
    const char *key = "conv2d [1,1,8,8] 3x3 s1 forward";
    assert_false(profile_is_checked(p, &one, key));
    profile_note_checked(p, &one, key);
    profile_note_checked(p, &one, "no such key");
    assert_true(profile_is_checked(p, &one, key));
    assert_false(profile_is_checked(p, &loaded, key));
    assert_false(profile_is_checked(p, &one, "conv2d [2,2,8,8] 3x3 s1 forward"));
    add_numbered(p, &one, 3, 3); /* of this process: costs in memory stay */
    assert_true(profile_is_checked(p, &one, key));
    profile_close(p);
    p = open_profile("checked.db");
    assert_false(profile_is_checked(p, &one, key));
    profile_close(p);
}

static void test_fits_follow_what_is_added(void **state)
{
    (void)state;
    profile *p = open_profile("follow.db");
    struct profile_work w = {"f", 1e8, 1e6};
    struct profile_cost c, again;
    add_plane(p, &one, "f", (double[]){1e-3, 0, 0}, 0, 4);
    assert_true(profile_estimate(p, &one, &w, &c));
    assert_near(c.seconds, 1e-3, 1e-9);
    for (int i = 0; i < 40; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "more %d", 99 - i);
        struct profile_entry e = {key, {"f", 1e8, 1e6}, {2e-3, 0, 1, 0}};
        assert_ok(profile_add(p, &one, &e, 1));
    }
    assert_true(profile_estimate(p, &one, &w, &c));
    assert_true(c.seconds > 1.5e-3);
    profile_close(p);
    p = open_profile("follow.db"); /* the same bits from disk, where the order is another */
    assert_true(profile_estimate(p, &one, &w, &again));
    assert_true(again.seconds == c.seconds && again.spread == c.spread);
    profile_close(p);
}

/* At the best point with no coefficient below zero, the slope along each is zero where it is
 * positive and not downwards where it is zero. */
static void check_is_best(const struct fit_point *points, int n, const struct fit *f)
{
    double slope[3] = {0}, size[3] = {0};
    for (int i = 0; i < n; i++) {
        double x[3] = {1 / points[i].seconds, points[i].flops / points[i].seconds,
                       points[i].bytes / points[i].seconds};
        double error = x[0] * f->of[0] + x[1] * f->of[1] + x[2] * f->of[2] - 1;
        for (int k = 0; k < 3; k++) {
            slope[k] += error * x[k];
            size[k] += x[k] * x[k];
        }
    }
    for (int k = 0; k < 3; k++) {
        double relative = size[k] > 0 ? slope[k] / sqrt(size[k] * n) : 0;
        assert_true(f->of[k] >= 0);
        assert_that(relative > -1e-6, "unknown %d could grow: %g", k, relative);
        assert_that(f->of[k] == 0 || relative < 1e-6, "unknown %d could shrink: %g", k, relative);
    }
}

static void test_fits_are_the_best_without_negatives(void **state)
{
    (void)state;
    enum { N = 20 };
    int n_bound = 0;
    for (uint32_t trial = 0; trial < 3000; trial++) {
        struct fit_point points[N];
        int n = 3 + (int)(trial % (N - 3));
        for (int i = 0; i < n; i++) {
            uint64_t at = 3 * (uint64_t)i;
            double flops = 1e6 * exp(8 * uniform(trial, at)),
                   bytes = 1e4 * exp(6 * uniform(trial, at + 1));
            if (trial % 5 == 0)
                bytes = flops / 16; /* one says what the other does */
            if (trial % 7 == 0)
                flops = 0;
            points[i] = (struct fit_point){flops, bytes, 1e-5 * exp(5 * uniform(trial, at + 2))};
        }
        struct fit f;
        assert_true(fit_points(points, n, &f));
        check_is_best(points, n, &f);
        assert_true(isfinite(f.spread) && f.spread >= 0.02);
        n_bound += f.of[0] == 0 || f.of[1] == 0 || f.of[2] == 0;
    }
    assert_true(n_bound > 1000 && n_bound < 3000);
}

static void test_strange_points_give_numbers(void **state)
{
    (void)state;
    static const struct fit_point strange[][4] = {
        {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}},
        {{0, 0, 1}, {0, 0, 1}, {0, 0, 1}, {0, 0, 1}},
        {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
        {{DBL_MAX, DBL_MAX, 1e-9}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}},
        {{DBL_MIN, DBL_MIN, DBL_MIN}, {1, 1, DBL_MAX}, {2, 2, 2}, {3, 3, 3}},
    };
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        struct fit f;
        assert_true(fit_points(strange[i], 4, &f));
        assert_true(isfinite(fit_seconds(&f, 1, 1)) && fit_seconds(&f, 1, 1) >= 0);
        assert_true(f.spread >= 0.02);
    }
}

/* ---- moving ---- */

static void test_texts_are_kept(void **state)
{
    (void)state;
    profile *p = open_profile("texts.db");
    char *text = NULL;
    assert_ok(profile_get_text(p, "links", &text));
    assert_null(text);
    assert_ok(profile_put_text(p, "links", "a\tb\nc\\\r"));
    assert_ok(profile_put_text(p, "other", ""));
    assert_ok(profile_put_text(p, "links", "a\tb\nc\\\r\n"));
    profile_close(p);
    p = open_profile("texts.db");
    assert_ok(profile_get_text(p, "links", &text));
    assert_string_equal(text, "a\tb\nc\\\r\n");
    free(text);
    assert_ok(profile_get_text(p, "other", &text));
    assert_string_equal(text, "");
    free(text);
    profile_close(p);
}

static void fill_strangely(profile *p)
{
    static const double numbers[] = {0,       1e-300, DBL_MIN, DBL_MAX,  4.9e-324, 0.1,
                                     1.0 / 3, 1e15,   -0.0,    123456.7, 1e22,     M_PI};
    static const char *const texts[] = {"plain", "a tab\t", "a\nline",  "\\n\\", "\r",
                                        "größe", "# no",    " spaces ", "a'b\"", "\t\t"};
    for (int i = 0; i < 12; i++)
        for (int k = 0; k < 10; k++) {
            char key[64];
            (void)snprintf(key, sizeof key, "%s%d", texts[k], i);
            struct profile_entry e = {
                key,
                {texts[(k + 1) % 10], numbers[i], numbers[(i + 1) % 12]},
                {numbers[(i + 2) % 12], numbers[(i + 3) % 12], 1 + i, i / 11.0}};
            struct profile_setting s = {texts[(k + 2) % 10], i % 3, 1 + i % 2};
            assert_ok(profile_add(p, &s, &e, 1));
        }
    for (int k = 0; k < 10; k++)
        assert_ok(profile_put_text(p, texts[k], texts[9 - k]));
}

static void test_text_goes_round(void **state)
{
    (void)state;
    char path[PATH_MAX];
    int64_t added;
    profile *a = open_profile("from.db"), *b = open_profile("to.db");
    fill_strangely(a);
    char *text = export_text(a);
    assert_int_equal(strncmp(text, "cleave profile 2\n", 17), 0);
    test_write_file(test_path(path, "strange.txt"), text, strlen(text));
    assert_ok(profile_import(b, path, &added));
    assert_int_equal(added, 130);
    assert_same_export(a, b);
    assert_ok(profile_import(b, path, &added));
    assert_int_equal(added, 0);
    profile_close(b);
    b = open_profile("to.db");
    assert_same_export(a, b);
    profile_close(b);
    profile_close(a);
    free(text);
}

static void test_profiles_merge(void **state)
{
    (void)state;
    char path[PATH_MAX];
    int64_t added;
    struct profile_cost c;
    profile *a = open_profile("merged.db"), *b = open_profile("second.db");
    const struct profile_entry mine = {"k", {"f", 1, 1}, {1, 0, 1, 0}};
    const struct profile_entry theirs = {"k", {"f", 1, 1}, {2, 0, 1, 0}};
    assert_ok(profile_add(a, &one, &mine, 1));
    add_numbered(a, &one, 0, 100);
    assert_ok(profile_put_text(a, "t", "mine"));
    assert_ok(profile_add(b, &one, &theirs, 1));
    add_numbered(b, &one, 50, 100);
    add_numbered(b, &gpu, 0, 5);
    assert_ok(profile_put_text(b, "t", "theirs"));
    assert_ok(profile_put_text(b, "u", "theirs"));
    assert_true(has_numbered(a, &one, 0)); /* in memory */
    assert_ok(profile_import(a, test_path(path, "second.db"), &added));
    assert_int_equal(added, 50 + 5 + 1);
    assert_true(profile_find(a, &one, "k", &c) && c.seconds == 1);
    for (int i = 0; i < 150; i++)
        assert_true(has_numbered(a, &one, i));
    assert_true(has_numbered(a, &gpu, 4));
    char *text;
    assert_ok(profile_get_text(a, "t", &text));
    assert_string_equal(text, "mine");
    free(text);
    assert_ok(profile_import(a, test_path(path, "merged.db"), &added)); /* itself */
    assert_int_equal(added, 0);
    assert_ok(profile_import(b, test_path(path, "merged.db"), &added));
    assert_int_equal(added, 50);
    profile_close(a);
    profile_close(b);
}

#define COST "cost\tcpu\t1\t1\tk\tf\t1\t2\t3\t0.1\t5\t2025-01-31T12:00:00Z\n"

static void test_bad_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", ": is empty"},
        {"\n", ":1: is no profile"},
        {"hello\n", ":1: is no profile"},
        {"cleave profile\n", ":1: is no profile"},
        {"cleave profile 3\n", ":1: version '3'"},
        {"cleave profile 1x\n", ":1: version '1x'"},
        {"cleave profile \n", ":1: version ''"},
        {"cleave profile 1\nhello\n", ":2:1: 'hello' must be 'cost' or 'text'"},
        {"cleave profile 1\n" COST "cost\n", ":3: 1 fields where a 'cost' has 12"},
        {"cleave profile 1\n" COST "text\ta\n", ":3: 2 fields where a 'text' has 3"},
        {"cleave profile 1\n" COST "text\ta\tb\tc\n", ":3: 4 fields where a 'text' has 3"},
        {"cleave profile 1\n# a\n\n" COST
         "cost\tcpu\tx\t1\tk\tf\t1\t2\t3\t0.1\t5\t2025-01-31T12:00:00Z",
         ":5:10: threads 'x' must be a whole number"},
        {"cleave profile 1\n" COST "cost\tcpu\t1\t0\tk\tf\t1\t2\t3\t0.1\t5\t2025-01-31T12:00:00Z",
         ":3:12: load '0' must be a whole number from 1"},
        {"cleave profile 1\n" COST
         "cost\tcpu\t1\t1\tk\tf\t1e999\t2\t3\t0.1\t5\t2025-01-31T12:00:00Z",
         ":3:18: flops '1e999' must be a number"},
        {"cleave profile 1\n" COST "cost\tcpu\t1\t1\tk\tf\t1\t2\t-3\t0.1\t5\t2025-01-31T12:00:00Z",
         ":3:22: seconds '-3' must be a number"},
        {"cleave profile 1\n" COST "cost\tcpu\t1\t1\tk\tf\t1\t2\t3\tnan\t5\t2025-01-31T12:00:00Z",
         ":3:24: spread 'nan' must"},
        {"cleave profile 1\n" COST "cost\tcpu\t1\t1\tk\tf\t1\t2\t3\t\t5\t2025-01-31T12:00:00Z",
         ":3:24: spread '' must"},
        {"cleave profile 1\n" COST
         "cost\tcpu\t1\t1\tk\tf\t1\t2\t3\t0.1\t99999999999\t2025-01-31T12:00:00Z",
         ":3:28: count '99999999999' must"},
        {"cleave profile 1\n" COST "cost\tcpu\t1\t1\tk\tf\t1\t2\t3\t0.1\t5\t2025-01-31",
         ":3: the time must be like"},
        {"cleave profile 1\n" COST "cost\t\t1\t1\tk\tf\t1\t2\t3\t0.1\t5\t2025-01-31T12:00:00Z",
         ":3: the device must not be empty"},
        {"cleave profile 1\n" COST "cost\tcpu\t1\t1\t\tf\t1\t2\t3\t0.1\t5\t2025-01-31T12:00:00Z",
         ":3: the key must not be empty"},
        {"cleave profile 1\n" COST "text\ta\tb\\x\n", ":3:8: 'b\\x' has a \\"},
        {"cleave profile 1\n" COST "text\ta\\\tb\n", ":3:6: 'a\\' has a \\"},
        {"cleave profile 1\n" COST "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\n", ":3: more than 13 fields"},
        {"cleave profile 2\n" COST, ":2: 12 fields where a 'cost' has 13"},
        {"cleave profile 2\ncost\tcpu\t1\t1\tk\tf\t1\t2\t3\t0.1\t5\t2025-01-31T12:00:00Z\t2\n",
         ":2: the disturbed share must be from 0 to 1"},
    };
    char path[PATH_MAX], message[PATH_MAX];
    int64_t added;
    profile *p = open_profile("lines.db");
    test_path(path, "lines.txt");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_write_file(path, cases[i].text, strlen(cases[i].text));
        (void)snprintf(message, sizeof message, "lines.txt%s", cases[i].message);
        assert_fails(profile_import(p, path, &added), STATUS_FAILED, message);
    }
    static const char zero[] = "cleave profile 1\ntext\ta\0b\tc\n";
    test_write_file(path, zero, sizeof zero - 1);
    assert_fails(profile_import(p, path, &added), STATUS_FAILED, "lines.txt:2: a zero byte");
    assert_fails(profile_import(p, test_folder(), &added), STATUS_FAILED, "cannot read");
    assert_fails(profile_import(p, "nowhere", &added), STATUS_FAILED, "nowhere: cannot read");
    char *text = export_text(p); /* nothing got in */
    assert_null(strstr(text, "\ncost"));
    free(text);
    static const char windows[] = "cleave profile 1\r\ntext\ta\tb\r\n";
    test_write_file(path, windows, sizeof windows - 1);
    assert_ok(profile_import(p, path, &added));
    assert_ok(profile_get_text(p, "a", &text));
    assert_string_equal(text, "b");
    free(text);
    profile_close(p);
}

static void test_bad_files_are_not_imported(void **state)
{
    (void)state;
    char path[PATH_MAX];
    int64_t added;
    profile *p = open_profile("importer.db");
    write_sample("imported.db");
    change_file(test_path(path, "imported.db"), "UPDATE entry SET count = 3");
    assert_fails(profile_import(p, path, &added), STATUS_FAILED, "imported.db: the profile is dam");
    test_write_file(test_path(path, "start.db"), "SQLite format 3", 15);
    assert_fails(profile_import(p, path, &added), STATUS_FAILED, "start.db: is no profile");
    assert_false(has_numbered(p, &one, 0));
    profile_close(p);
}

static void test_exports_that_cannot_be_written(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        skip_because("this host has no /dev/full");
    write_sample("full.db");
    profile *p = open_profile("full.db");
    assert_fails(profile_export(p, full), STATUS_FAILED, "cannot write the exported profile");
    (void)fclose(full);
    profile_close(p);
}

/* ---- looking ---- */

struct listing {
    struct profile_summary seen[8];
    int n;
    profile *forget_in; /* NULL: nothing is forgotten */
};

static enum status note_summary(const struct profile_summary *s, void *user)
{
    struct listing *l = user;
    assert_true(l->n < 8);
    l->seen[l->n++] = *s;
    assert_int_equal(strlen(s->measured), 20);
    assert_true(!strncmp(s->measured, "20", 2));
    return l->forget_in ? profile_forget(l->forget_in, &s->setting) : STATUS_OK;
}

static enum status refuse_summary(const struct profile_summary *s, void *user)
{
    (void)user;
    return status_fail(STATUS_USAGE, "enough of %s", s->setting.device);
}

static void test_lists_and_forgets(void **state)
{
    (void)state;
    profile *p = open_profile("list.db");
    struct listing l = {0};
    assert_ok(profile_list(p, note_summary, &l));
    assert_int_equal(l.n, 0);
    add_numbered(p, &gpu, 0, 3);
    add_numbered(p, &loaded, 0, 20);
    add_numbered(p, &one, 0, 10);
    assert_ok(profile_put_text(p, "t", "u"));
    assert_ok(profile_list(p, note_summary, &l));
    assert_int_equal(l.n, 3);
    assert_true(l.seen[0].setting.load == 1 && l.seen[0].n_entries == 10);
    assert_true(l.seen[1].setting.load == 4 && l.seen[1].n_entries == 20);
    assert_true(l.seen[2].setting.threads == 0 && l.seen[2].n_entries == 3);
    assert_fails(profile_list(p, refuse_summary, NULL), STATUS_USAGE, "enough of cpu");
    assert_true(has_numbered(p, &one, 0));
    assert_ok(profile_forget(p, &one));
    assert_false(has_numbered(p, &one, 0));
    assert_true(has_numbered(p, &loaded, 0));
    assert_ok(profile_forget(p, &one)); /* is forgotten already */
    add_numbered(p, &one, 5, 1);
    assert_true(has_numbered(p, &one, 5));
    l = (struct listing){.forget_in = p};
    assert_ok(profile_list(p, note_summary, &l));
    assert_int_equal(l.n, 3);
    l = (struct listing){0};
    assert_ok(profile_list(p, note_summary, &l));
    assert_int_equal(l.n, 0);
    add_numbered(p, &one, 0, 1);
    assert_ok(profile_forget(p, NULL));
    char *text;
    assert_ok(profile_get_text(p, "t", &text));
    assert_null(text);
    assert_false(has_numbered(p, &one, 0));
    profile_close(p);
}

static void set_or_unset(const char *name, const char *value)
{
    assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

static void test_the_usual_place(void **state)
{
    (void)state;
    static const struct {
        const char *profile, *cache, *home, *path;
    } cases[] = {
        {"mine.db", "/c", "/h", "mine.db"},
        {NULL, "/c", "/h", "/c/cleave/profile.db"},
        {"", "/c", "/h", "/c/cleave/profile.db"},
        {NULL, "relative", "/h", "/h/.cache/cleave/profile.db"},
        {NULL, NULL, "/h", "/h/.cache/cleave/profile.db"},
    };
    char path[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_or_unset("CLEAVE_PROFILE", cases[i].profile);
        set_or_unset("XDG_CACHE_HOME", cases[i].cache);
        set_or_unset("HOME", cases[i].home);
        assert_ok(profile_default_path(path, sizeof path));
        assert_string_equal(path, cases[i].path);
    }
    assert_fails(profile_default_path(path, 8), STATUS_FAILED, "too long");
    set_or_unset("HOME", NULL);
    assert_fails(profile_default_path(path, sizeof path), STATUS_FAILED, "CLEAVE_PROFILE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_what_was_added),
        cmocka_unit_test(test_settings_are_apart),
        cmocka_unit_test(test_what_is_there_stays),
        cmocka_unit_test(test_stays_on_disk),
        cmocka_unit_test(test_bad_entries_are_refused_whole),
        cmocka_unit_test(test_long_keys_are_compared_in_full),
        cmocka_unit_test(test_others_entries_come_with_the_next_add),
        cmocka_unit_test(test_ten_thousand_lookups),
        cmocka_unit_test(test_planes_are_recovered),
        cmocka_unit_test(test_noise_shows_in_the_spread),
        cmocka_unit_test(test_three_entries_are_enough),
        cmocka_unit_test(test_the_nearest_load_serves),
        cmocka_unit_test(test_fits_follow_what_is_added),
        cmocka_unit_test(test_calmer_costs_replace),
        cmocka_unit_test(test_checked_while_open),
        cmocka_unit_test(test_fits_are_the_best_without_negatives),
        cmocka_unit_test(test_strange_points_give_numbers),
        cmocka_unit_test(test_texts_are_kept),
        cmocka_unit_test(test_text_goes_round),
        cmocka_unit_test(test_profiles_merge),
        cmocka_unit_test(test_bad_lines_are_named),
        cmocka_unit_test(test_bad_files_are_not_imported),
        cmocka_unit_test(test_exports_that_cannot_be_written),
        cmocka_unit_test(test_lists_and_forgets),
        cmocka_unit_test(test_the_usual_place),
    };
    return test_run(tests);
}
