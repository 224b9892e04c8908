/* Which worker computes when in a round, and which rounds are kept, seen by a backend that records
 * every run. */
#include "base/timer.h"
#include "plan_suite.h"
#include "profile/rounds.h"
#include "scene.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

/* The reference backend, which reports its kernels: the worker and the pass of each. */
static struct {
    struct backend backend;
    const struct backend *real;
    pthread_t first; /* the first worker's thread, which is the caller's */
    enum status (*look)(int worker, enum pass pass);
    int n_between; /* rounds begun, with the one that is not kept */
    bool idle;     /* nothing is computed, so that it takes no time */
} spy;

static enum status spy_run(group *g, enum pass pass, stream *s, const struct group_args *args,
                           const struct step_state *step)
{
    TRY(spy.look(pthread_equal(pthread_self(), spy.first) ? 0 : 1, pass));
    return spy.idle ? STATUS_OK : spy.real->group_run(g, pass, s, args, step);
}

static void spy_open(enum status (*look)(int worker, enum pass pass))
{
    assert_ok(backend_find("reference", &spy.real));
    spy.backend = *spy.real;
    spy.backend.group_run = spy_run;
    spy.first = pthread_self();
    spy.look = look;
    spy.n_between = 0;
    spy.idle = false;
}

/* What each of the second worker's rounds takes by the clock on the wall, at its first kernel. */
static struct {
    int per_pass, n_mine;
    bool sleeps;                  /* the core is others' meanwhile; else it is busy */
    double (*takes_s)(int round); /* from 0, the one that is not kept */
    double longest_s;             /* of the kept rounds */
} rounds;

/* `r` is given the programs and the workers. */
static void run_rounds(const struct scene *s, struct rounds *r)
{
    static const int workers[] = {0, 1};
    device *d;
    assert_ok(spy.real->device_open(&(struct device_options){.threads = 1}, &d));
    struct program_set set;
    struct program_options o = {
        .backend = &spy.backend, .device = d, .training = true, .n_states = 1, .plan = s->plan};
    assert_ok(program_create_all(s->graph, &o, NULL, true, &set));
    r->programs = (const struct program *const *)set.programs;
    r->n = r->n_places = 2;
    r->workers = workers;
    r->budget_s = r->budget_s > 0 ? r->budget_s : 1e-6;
    assert_ok(rounds_run(r));
    for (int i = 0; i < 2; i++)
        for (int round = 0; round < r->n_rounds; round++)
            for (int k = 0; k < rounds_program(r, i)->n_instrs; k++)
                rounds.longest_s = fmax(rounds.longest_s, rounds_seconds(r, i, round)[k]);
    rounds_free(r);
    program_destroy_all(&set);
    spy.real->device_close(d);
}

static int count_runs(const struct program *p)
{
    int n = 0;
    for (int i = 0; i < p->n_instrs; i++)
        n += p->instrs[i].kind == INSTR_RUN;
    return n;
}

/* ---- together ---- */

/* The second worker's last kernel of a round waits until the first has begun anew. */
static struct {
    int per_pass, n_mine, before;
    atomic_int n_theirs;
} longest;

static enum status be_longest(int worker, enum pass pass)
{
    (void)pass;
    if (worker == 0) {
        atomic_fetch_add(&longest.n_theirs, 1);
        return STATUS_OK;
    }
    if (++longest.n_mine % longest.per_pass != 0 || spy.n_between < 2)
        return STATUS_OK;
    int64_t until_ns = timer_now_ns() + (int64_t)5e9;
    while (atomic_load(&longest.n_theirs) <= longest.before + longest.per_pass) {
        if (timer_now_ns() > until_ns)
            return status_fail(STATUS_FAILED, "the neighbour is idle");
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return STATUS_OK;
}

/* The second worker may have begun anew in the round before, and was stopped. */
static enum status note_round(void *user, double share)
{
    (void)user, (void)share;
    spy.n_between++;
    longest.n_mine = 0;
    longest.before = atomic_load(&longest.n_theirs);
    return STATUS_OK;
}

static void test_neighbours_of_the_longest_are_busy(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2});
    spy_open(be_longest);
    longest.per_pass = count_runs(s.programs[0]);
    struct rounds r = {.least_rounds = 3, .most_rounds = 3, .between = note_round};
    run_rounds(&s, &r);
    assert_int_equal(spy.n_between, 4);
    scene_close(&s);
}

/* ---- which rounds ---- */

static enum status take_their_time(int worker, enum pass pass)
{
    (void)pass;
    if (worker == 0 || rounds.n_mine++ != 0)
        return STATUS_OK;
    double seconds = rounds.takes_s(spy.n_between - 1);
    int64_t until_ns = timer_now_ns() + (int64_t)(seconds * 1e9);
    if (rounds.sleeps && seconds > 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
    while (timer_now_ns() < until_ns)
        ;
    return STATUS_OK;
}

static enum status begin_round(void *user, double share)
{
    (void)user, (void)share;
    spy.n_between++;
    rounds.n_mine = 0;
    return STATUS_OK;
}

static struct rounds play(bool sleeps, double (*takes_s)(int round), double most_s, int most_rounds)
{
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2});
    spy_open(take_their_time);
    spy.idle = true;
    rounds.sleeps = sleeps;
    rounds.takes_s = takes_s;
    rounds.longest_s = 0;
    struct rounds r = {.budget_s = most_s > 0 ? 1e-6 : 60,
                       .most_s = most_s,
                       .least_rounds = 2,
                       .most_rounds = most_rounds,
                       .between = begin_round};
    run_rounds(&s, &r);
    scene_close(&s);
    return r;
}

static const double nap_s = 0.03;

static double nap_every_other(int round)
{
    return round % 2 ? nap_s : 0;
}

static double nap_always(int round)
{
    (void)round;
    return nap_s;
}

/* Where other programs had a core, it says nothing about the plan; unless there is nothing else. */
static void test_disturbed_rounds_are_left_out(void **state)
{
    (void)state;
    struct rounds r = {.disturbed = 1};
    for (int tries = 0; tries < 5 && r.disturbed > 0; tries++) /* others may disturb all */
        r = play(true, nap_every_other, 0, 40);
    assert_in_range(r.n_rounds, 2, 20);
    assert_true(rounds.longest_s < nap_s && r.disturbed == 0);
    r = play(true, nap_always, 0, 6);
    assert_int_equal(r.n_rounds, 6);
    assert_true(rounds.longest_s >= nap_s && r.disturbed == 1);
}

static double nap_at_first(int round)
{
    return round < 3 ? nap_s : 0;
}

/* Even where the budget is spent: here after the two that are kept at least. */
static void test_disturbed_rounds_are_made_up_for(void **state)
{
    (void)state;
    struct rounds r = {.disturbed = 1};
    for (int tries = 0; tries < 5 && r.disturbed > 0; tries++)
        r = play(true, nap_at_first, 1e-6, 100);
    assert_int_equal(r.n_rounds, 2);
    assert_true(rounds.longest_s < nap_s && r.disturbed == 0);
    r = play(true, nap_always, 1e-6, 100); /* but not for ever */
    assert_int_equal(r.n_rounds, 4);
}

static double always_alike(int round)
{
    (void)round;
    return 0.02;
}

static double slower_and_slower(int round)
{
    return 0.01 + 0.002 * round;
}

/* It goes on while the host gets slower or faster, but not for ever. */
static void test_an_unsteady_host_is_measured_for_longer(void **state)
{
    (void)state;
    const double most_s = 3;
    int64_t start_ns = timer_now_ns();
    (void)play(false, always_alike, 100 * most_s, 10000);
    assert_true((double)(timer_now_ns() - start_ns) * 1e-9 < 50 * most_s);
    start_ns = timer_now_ns();
    (void)play(false, slower_and_slower, most_s, 10000);
    assert_true((double)(timer_now_ns() - start_ns) * 1e-9 >= most_s);
}

/* ---- in turn ---- */

/* Which worker computed what in a round, one after the other: "0f 1f 1b 0b". */
static struct {
    char text[4096];
    bool keeps;
    int last_worker, last_forward;
} story;

static enum status tell(int worker, enum pass pass)
{
    bool forward = pass == PASS_FORWARD || pass == PASS_FORWARD_STATISTICS;
    size_t n = strlen(story.text);
    if (story.keeps && (worker != story.last_worker || forward != story.last_forward))
        (void)snprintf(story.text + n, sizeof story.text - n, "%s%d%c", n ? " " : "", worker,
                       forward ? 'f' : 'b');
    story.last_worker = worker;
    story.last_forward = forward;
    return STATUS_OK;
}

static enum status keep_last_round(void *user, double share)
{
    (void)user, (void)share;
    story.keeps = spy.n_between++ == 2;
    story.text[0] = '\0';
    story.last_worker = -1;
    return STATUS_OK;
}

/* Each worker hands the turn on where it waits for others in a step, so that it sleeps meanwhile;
 * when it has finished it runs its program again from the begin to the end. */
static void test_one_computes_at_a_time(void **state)
{
    static const struct {
        const char *strategy;
        int micro_batches;
        const char *story;
    } cases[] = {
        {"layers", 0, "0f 1f 1b 1f 1b 0b 0f 0b"},
        {"gpipe", 2, "0f 1f 0b 1f 1b 1f 1b 0b 0f 0b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene s;
        scene_open(&s, suite_build("lenet5", 8));
        scene_split(
            &s, cases[i].strategy,
            &(struct plan_request){.n_workers = 2, .micro_batches = cases[i].micro_batches});
        spy_open(tell);
        struct rounds r = {
            .in_turn = true, .least_rounds = 2, .most_rounds = 2, .between = keep_last_round};
        run_rounds(&s, &r);
        assert_true(r.cold >= 1);
        assert_string_equal(story.text, cases[i].story);
        scene_close(&s);
    }
}

static enum status slow_after_sleeps(int worker, enum pass pass)
{
    bool forward = pass == PASS_FORWARD || pass == PASS_FORWARD_STATISTICS;
    bool wakes = worker != story.last_worker || forward != story.last_forward;
    int64_t until_ns = timer_now_ns() + (wakes && worker != story.last_worker ? 6000000 : 1000000);
    while (wakes && timer_now_ns() < until_ns)
        ;
    story.last_worker = worker;
    story.last_forward = forward;
    return STATUS_OK;
}

/* Of four stretches (a forward and a backward of each stage) two begin after another worker's, and
 * take six times as long. */
static void test_the_cold_factor(void **state)
{
    (void)state;
    struct rounds r = {.cold = 0};
    for (int tries = 0; tries < 20 && fabs(r.cold - 3.5) > 0.7; tries++) {
        struct scene s;
        scene_open(&s, suite_build("lenet5", 8));
        scene_split(&s, "layers", &(struct plan_request){.n_workers = 2});
        spy_open(slow_after_sleeps);
        spy.idle = true;
        r = (struct rounds){.in_turn = true, .least_rounds = 3, .most_rounds = 5};
        run_rounds(&s, &r);
        scene_close(&s);
    }
    assert_that(fabs(r.cold - 3.5) <= 0.7, "%g", r.cold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours_of_the_longest_are_busy),
        cmocka_unit_test(test_disturbed_rounds_are_left_out),
        cmocka_unit_test(test_disturbed_rounds_are_made_up_for),
        cmocka_unit_test(test_an_unsteady_host_is_measured_for_longer),
        cmocka_unit_test(test_one_computes_at_a_time),
        cmocka_unit_test(test_the_cold_factor),
    };
    return test_run(tests);
}
