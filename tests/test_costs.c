/* What instructions take alone and beside others, from a profile that is made by hand. */
#include "plan_suite.h"
#include "profile/costs.h"
#include "profiles.h"
#include "scene.h"

static const struct profile_setting beside = {"some device", 1, 2},
                                    by_itself = {"some device", 1, 1};

/* Two stages, and what their instructions take. */
struct stage_costs {
    struct scene scene;
    profile *profile;
};

/* Every other instruction takes more, the rest less. */
static double alone_of(int i, double alone_s, double apart)
{
    return alone_s + (i % 2 ? apart : -apart);
}

static void add(profile *p, const struct profile_setting *setting, const char *key, double seconds)
{
    const struct profile_entry entry = {
        .key = key, .work = {"a family", 1, 1}, .cost = {seconds, 0.1, 3, 0}};
    assert_ok(profile_add(p, setting, &entry, 1));
}

static void open_stages(struct stage_costs *s, const char *file)
{
    scene_open(&s->scene, suite_build("lenet5", 4));
    scene_split(&s->scene, "layers", &(struct plan_request){.n_workers = 2});
    scene_place(&s->scene, "1x2:cpu");
    s->profile = open_profile(file);
}

static void close_stages(struct stage_costs *s)
{
    profile_close(s->profile);
    scene_close(&s->scene);
}

/* The number of an instruction's key among those of both stages: the first that has it. */
static int number_of(const struct scene *s, int worker, int instr, char key[WORK_KEY_BYTES])
{
    int n = 0;
    char other[WORK_KEY_BYTES];
    (void)program_instr_key(s->programs[worker], instr, key, WORK_KEY_BYTES);
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < s->programs[w]->n_instrs; i++, n++)
            if (s->programs[w]->instrs[i].stream == STREAM_COMPUTE &&
                strcmp(program_instr_key(s->programs[w], i, other, sizeof other), key) == 0)
                return n;
    return -1;
}

static bool is_costly(const struct scene *s, int worker, int instr)
{
    const struct program *p = s->programs[worker];
    return p->instrs[instr].stream == STREAM_COMPUTE && !program_instr_is_free(p, instr);
}

/* 1 s each beside others; alone as above, those of the second stage or all. */
static void fill(struct stage_costs *s, double alone_s, double apart, bool first_too)
{
    char key[WORK_KEY_BYTES];
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < s->scene.programs[w]->n_instrs; i++) {
            if (!is_costly(&s->scene, w, i))
                continue;
            int number = number_of(&s->scene, w, i, key);
            add(s->profile, &beside, key, 1);
            if (w > 0 || first_too)
                add(s->profile, &by_itself, key, alone_of(number, alone_s, apart));
        }
}

static void find(struct stage_costs *s)
{
    const struct cost_source source = {.profile = s->profile,
                                       .busy = beside,
                                       .alone = by_itself,
                                       .kind = &s->scene.machine->kinds[0]};
    struct cost_sums sums = {0};
    for (int w = 0; w < 2; w++)
        costs_find(&source, s->scene.programs[w], s->scene.costs[w], &sums);
    for (int w = 0; w < 2; w++)
        costs_settle_alone(&sums, s->scene.costs[w], s->scene.programs[w]->n_instrs);
}

/* The mean of costs measured alone stays as it was, however far single costs are off. */
static void check_alone(const struct stage_costs *s, double alone_s, double apart)
{
    char key[WORK_KEY_BYTES];
    int n = 0;
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < s->scene.programs[w]->n_instrs; i++) {
            const struct instr_cost *cost = &s->scene.costs[w][i];
            if (!is_costly(&s->scene, w, i))
                continue;
            assert_seconds(cost->busy_s, 1);
            assert_seconds(cost->alone_s,
                           alone_of(number_of(&s->scene, w, i, key), alone_s, apart));
            n++;
        }
    assert_true(n > 20);
}

static void test_alone_is_as_it_was_measured(void **state)
{
    (void)state;
    struct stage_costs s;
    open_stages(&s, "noisy.db");
    fill(&s, 0.95, 0.2, true);
    find(&s);
    check_alone(&s, 0.95, 0.2);
    close_stages(&s);
}

/* In a slow moment. */
static void test_alone_is_not_believed(void **state)
{
    (void)state;
    struct stage_costs s;
    open_stages(&s, "slow.db");
    fill(&s, 1.1, 0.7, true);
    find(&s);
    check_alone(&s, 1, 0);
    close_stages(&s);
}

/* A cost not known alone says nothing about those that are. */
static void test_alone_is_not_known(void **state)
{
    (void)state;
    struct stage_costs s;
    char key[WORK_KEY_BYTES];
    open_stages(&s, "half.db");
    fill(&s, 1.4, 0, false);
    struct profile_cost cost;
    int first = scene_find_run(s.scene.programs[0], false, 0, 0);
    (void)number_of(&s.scene, 0, first, key);
    assert_false(profile_find(s.profile, &by_itself, key, &cost));
    find(&s);
    check_alone(&s, 1, 0);
    close_stages(&s);
}

/* Uneven micro-batches: of two sizes, which repeat each other in turns. Each instruction costs what
 * it would if there were no other. */
static void test_rooflines_are_each_ones_own(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("resnet18", 7));
    scene_split(&s, "1f1b", &(struct plan_request){.n_workers = 2, .micro_batches = 4});
    scene_place(&s, "1x2:p100,intra=1GB/s");
    const struct cost_source source = {.kind = &s.machine->kinds[0]};
    struct cost_sums sums = {0};
    int n_runs = 0;
    for (int w = 0; w < 2; w++) {
        const struct program *p = s.programs[w];
        costs_find(&source, p, s.costs[w], &sums);
        for (int i = 0; i < p->n_instrs; i++) {
            struct instr_work work;
            program_instr_work(p, i, &work);
            double expected = is_costly(&s, w, i) ? costs_estimate(&source, &work) : 0;
            assert_float_equal(s.costs[w][i].busy_s, expected, 0);
            assert_int_equal(s.costs[w][i].origin, is_costly(&s, w, i) ? COST_ROOFLINE : COST_NONE);
            n_runs += is_costly(&s, w, i) && p->instrs[i].kind == INSTR_RUN;
        }
    }
    assert_true(n_runs > 400);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rooflines_are_each_ones_own),
        cmocka_unit_test(test_alone_is_as_it_was_measured),
        cmocka_unit_test(test_alone_is_not_believed),
        cmocka_unit_test(test_alone_is_not_known),
    };
    return test_run(tests);
}
