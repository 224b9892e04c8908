/* Who is behind in a step is chance: what comes out is the mean of both ways. */
#include "base/numbers.h"
#include "plan_suite.h"
#include "predict/paces.h"
#include "profile/measure.h"
#include "scene.h"

#include <math.h>

/* The expected place of the slower of two draws, in deviations, by the approximation in use. */
static double place_of_two(void)
{
    return numbers_normal_place(1, 2);
}

static void open_pair(struct scene *s)
{
    scene_open(s, suite_build("lenet5", 4));
    scene_split(s, "data", &(struct plan_request){.n_workers = 2});
    scene_place(s, "1x2:cpu");
    s->options.free_communication = true;
    s->options.keep_times = true;
    scene_cost(s, 0, scene_find_run(s->programs[0], false, 0, 0), 0.5);
}

static double step_with(struct scene *s, double drift)
{
    const struct paces paces = {.drift = drift};
    assert_ok(paces_run_clock(&paces, s->workers, s->n, &s->options, s->memory, &s->result));
    return s->result.step_s;
}

/* It is as often ahead as behind. */
static void test_who_computes_alone_takes_as_long_as_usual(void **state)
{
    (void)state;
    struct scene s;
    open_pair(&s);
    assert_seconds(step_with(&s, 0), 0.5);
    assert_seconds(step_with(&s, 0.1), 0.5);
    assert_seconds(s.result.workers[0].compute_s, 0.5);
    scene_close(&s);
}

/* And times that are kept end when the mean does. */
static void test_who_meets_waits_for_the_slower(void **state)
{
    (void)state;
    struct scene s;
    open_pair(&s);
    int instr = scene_find_run(s.programs[1], false, 0, 0);
    scene_cost(&s, 1, instr, 0.5);
    double slower_s = 0.5 * (1 + 0.1 * place_of_two());
    assert_seconds(step_with(&s, 0.1), slower_s);
    for (int w = 0; w < 2; w++)
        assert_seconds(s.result.workers[w].compute_s, 0.5);
    assert_true(scene_took(&s, 0, instr) <= slower_s + 1e-9);
    scene_close(&s);

    open_pair(&s);
    (void)step_with(&s, 0.1); /* alone: its first run was not as long as the mean */
    assert_seconds(scene_took(&s, 0, scene_find_run(s.programs[0], false, 0, 0)), 0.5);
    scene_close(&s);
}

/* A worker with little to do, for whom nobody waits, is not the last of them. */
static void test_who_has_little_to_do_has_places_of_its_own(void **state)
{
    (void)state;
    for (int light = 0; light < 3; light++) {
        struct scene s;
        scene_open(&s, suite_build("lenet5", 6));
        scene_split(&s, "data", &(struct plan_request){.n_workers = 3});
        scene_place(&s, "1x3:cpu");
        s.options.free_communication = true;
        for (int w = 0; w < 3; w++)
            scene_cost(&s, w, scene_find_run(s.programs[w], false, 0, 0), w == light ? 0.1 : 0.5);
        assert_seconds(step_with(&s, 0.1), 0.5 * (1 + 0.1 * place_of_two()));
        scene_close(&s);
    }
}

/* One stage after the other: whatever is drawn after a wait is drawn the other way, too. */
static void test_jitter_cancels_out(void **state)
{
    (void)state;
    for (int with_drift = 0; with_drift < 2; with_drift++) {
        struct scene s;
        scene_open(&s, suite_build("lenet5", 4));
        scene_split(&s, "layers", &(struct plan_request){.n_workers = 2});
        scene_place(&s, "1x2:cpu");
        s.options.free_communication = true;
        for (int w = 0; w < 2; w++)
            for (int backward = 0; backward < 2; backward++)
                scene_cost(&s, w, scene_find_run(s.programs[w], backward, 0, 0), 0.5);
        const struct paces paces = {.drift = with_drift ? 0.1 : 0, .jitter = 0.2};
        assert_seconds(scene_step(&s), 2);
        assert_ok(paces_run_clock(&paces, s.workers, s.n, &s.options, s.memory, &s.result));
        assert_seconds(s.result.step_s, 2);
        for (int w = 0; w < 2; w++)
            assert_seconds(s.result.workers[w].compute_s, 1);
        s.workers[0].jitter = s.workers[1].jitter = 0.2; /* one run alone is off */
        assert_true(fabs(scene_step(&s) - 2) > 1e-3);
        scene_close(&s);
    }
}

static void add_drift(profile *p, const struct profile_setting *s, const char *key, double spread)
{
    const struct profile_entry e = {
        .key = key, .work = {.family = "drift"}, .cost = {0, spread, 1}};
    assert_ok(profile_add(p, s, &e, 1));
}

/* A plan's own drift counts; of one that was not rehearsed itself, that of the first that was. */
static void test_each_plan_has_its_own(void **state)
{
    (void)state;
    const struct profile_setting setting = {"a processor", 1, 2};
    struct scene s;
    struct paces paces;
    profile *p;
    char key[MEASURE_KEY_BYTES];
    open_pair(&s);
    assert_ok(profile_open(NULL, &p));
    paces_find(p, &setting, s.graph, s.plan, &paces);
    assert_true(paces.drift == 0);
    add_drift(p, &setting, MEASURE_DRIFT_KEY, 0.3);
    paces_find(p, &setting, s.graph, s.plan, &paces);
    assert_true(paces.drift == 0.3);
    add_drift(p, &setting, measure_plan_key(MEASURE_DRIFT_KEY, s.graph, s.plan, key, sizeof key),
              0.1);
    paces_find(p, &setting, s.graph, s.plan, &paces);
    assert_true(paces.drift == 0.1);
    profile_close(p);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_computes_alone_takes_as_long_as_usual),
        cmocka_unit_test(test_who_meets_waits_for_the_slower),
        cmocka_unit_test(test_who_has_little_to_do_has_places_of_its_own),
        cmocka_unit_test(test_jitter_cancels_out),
        cmocka_unit_test(test_each_plan_has_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
