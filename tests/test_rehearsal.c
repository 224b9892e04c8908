/* Who computes when in a rehearsal, seen by a backend that looks on. */
#include "base/timer.h"
#include "plan_suite.h"
#include "profile/rehearsal.h"
#include "profile/turns.h"
#include "scene.h"

#include <pthread.h>
#include <time.h>

/* The reference backend, with an eye on its kernels: who runs them, and which. */
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

static enum status take_nothing(void *user, const struct program *p, int n_rounds,
                                const double *seconds)
{
    (void)user, (void)p, (void)n_rounds, (void)seconds;
    return STATUS_OK;
}

static struct rehearsal_request request_of(const struct scene *s)
{
    static const int workers[] = {0, 1};
    return (struct rehearsal_request){.graph = s->graph,
                                      .plan = s->plan,
                                      .backend = &spy.backend,
                                      .threads = 1,
                                      .n_states = 1,
                                      .n = 2,
                                      .workers = workers,
                                      .n_places = 2,
                                      .budget_s = 1e-6};
}

static enum status rehearse(const struct scene *s, bool takes_turns,
                            enum status (*between)(void *user, double share), int n_rounds)
{
    struct rehearsal_request r = request_of(s);
    struct rehearsal_result result;
    r.takes_turns = takes_turns;
    r.least_rounds = r.most_rounds = n_rounds;
    r.between = between;
    return rehearsal_run(&r, take_nothing, NULL, &result);
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
    assert_ok(rehearse(&s, false, note_round, 3));
    assert_int_equal(spy.n_between, 4);
    scene_close(&s);
}

/* ---- which rounds ---- */

/* What each of the second worker's rounds takes by the clock on the wall, at its first kernel. */
static struct {
    int per_pass, n_mine;
    bool sleeps;                  /* the core is others' meanwhile; else it is busy */
    double (*takes_s)(int round); /* from 0, the one that is not kept */
    int n_taken;
    double longest_s; /* of those that were taken */
} rounds;

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

static enum status take_rounds(void *user, const struct program *p, int n_rounds,
                               const double *seconds)
{
    (void)user;
    rounds.n_taken = n_rounds;
    for (int i = 0; i < n_rounds * p->n_instrs; i++)
        rounds.longest_s = seconds[i] > rounds.longest_s ? seconds[i] : rounds.longest_s;
    return STATUS_OK;
}

static struct rehearsal_result play(bool sleeps, double (*takes_s)(int round), double most_s,
                                    int most_rounds)
{
    struct scene s;
    struct rehearsal_result result;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2});
    spy_open(take_their_time);
    spy.idle = true;
    rounds.sleeps = sleeps;
    rounds.takes_s = takes_s;
    rounds.n_taken = 0;
    rounds.longest_s = 0;
    struct rehearsal_request r = request_of(&s);
    r.budget_s = most_s > 0 ? 1e-6 : 60;
    r.most_s = most_s;
    r.least_rounds = 2;
    r.most_rounds = most_rounds;
    r.between = begin_round;
    assert_ok(rehearsal_run(&r, take_rounds, NULL, &result));
    scene_close(&s);
    return result;
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
    struct rehearsal_result r = {.disturbed = 1};
    for (int tries = 0; tries < 5 && r.disturbed > 0; tries++) /* others may disturb all */
        r = play(true, nap_every_other, 0, 40);
    assert_in_range(rounds.n_taken, 2, 20);
    assert_true(rounds.longest_s < nap_s && r.disturbed == 0);
    r = play(true, nap_always, 0, 6);
    assert_int_equal(rounds.n_taken, 6);
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
    struct rehearsal_result r = {.disturbed = 1};
    for (int tries = 0; tries < 5 && r.disturbed > 0; tries++)
        r = play(true, nap_at_first, 1e-6, 100);
    assert_int_equal(rounds.n_taken, 2);
    assert_true(rounds.longest_s < nap_s && r.disturbed == 0);
    (void)play(true, nap_always, 1e-6, 100); /* but not for ever */
    assert_int_equal(rounds.n_taken, 4);
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
    struct rehearsal_result r = play(false, slower_and_slower, most_s, 10000);
    assert_true((double)(timer_now_ns() - start_ns) * 1e-9 >= most_s);
    assert_true(r.wander < 0 || r.wander > 0.1); /* other programs may leave few rounds */
}

/* ---- in turn ---- */

/* What happens, in words: "0f 0f ~1f 1b ~0b", a worker's forward and backward, and whether it slept
 * before. */
static struct {
    char text[4096];
    bool keeps;
} story;

static void tell(bool slept, int worker, enum pass pass)
{
    bool forward = pass == PASS_FORWARD || pass == PASS_FORWARD_STATISTICS;
    size_t n = strlen(story.text);
    (void)snprintf(story.text + n, sizeof story.text - n, "%s%s%d%c", n ? " " : "",
                   slept ? "~" : "", worker, forward ? 'f' : 'b');
}

/* Goes through a program, of which the first run of each micro-batch's forward and of its backward
 * take a second, and nothing else does. */
struct reader {
    const struct program *program;
    int at;
    bool sleeps, slept; /* before this instruction; since the last that was told of */
};

static bool is_told(const struct program *p, int i)
{
    const struct instr *instr = &p->instrs[i];
    return instr->kind == INSTR_RUN && (scene_find_run(p, false, instr->micro, 0) == i ||
                                        scene_find_run(p, true, instr->micro, 0) == i);
}

/* Until it would sleep; false: it has ended. */
static bool read_on(turns *t, struct reader *r, int who)
{
    for (; r->at < r->program->n_instrs; r->at++) {
        const struct instr *instr = &r->program->instrs[r->at];
        if (instr->stream != STREAM_COMPUTE)
            continue;
        if (!r->sleeps && instr->n_waits > 0 && turns_sleep_s(t, who, r->at) > 0)
            return r->sleeps = r->slept = true;
        r->sleeps = false;
        bool told = is_told(r->program, r->at);
        turns_compute(t, who, r->at, told);
        if (!told)
            continue;
        tell(r->slept, who, instr->pass);
        r->slept = false;
    }
    return false;
}

static void read_all(const struct scene *s)
{
    struct reader readers[SCENE_MAX_WORKERS];
    turns *t;
    assert_ok(turns_create((const struct program *const *)s->programs, s->n, &t));
    for (int round = 0; round < 2; round++) { /* the second is as the first */
        for (int i = 0; i < s->n; i++)
            readers[i] = (struct reader){.program = s->programs[i]};
        turns_begin(t);
        story.text[0] = '\0';
        for (int who = turns_pass(t, -1); who >= 0; who = turns_pass(t, who))
            if (!read_on(t, &readers[who], who))
                turns_end(t, who);
        for (int i = 0; i < s->n; i++)
            assert_int_equal(readers[i].at, s->programs[i]->n_instrs);
    }
    turns_destroy(t);
}

static void open_stages(struct scene *s, const char *strategy, int n_workers, int micro_batches)
{
    scene_open(s, suite_build("lenet5", 8));
    scene_split(s, strategy,
                &(struct plan_request){.n_workers = n_workers, .micro_batches = micro_batches});
}

/* Who sleeps in a step sleeps here, and who does not goes on. */
static void test_turns_follow_a_step(void **state)
{
    static const struct {
        const char *strategy;
        int n_workers, micro_batches;
        const char *story;
    } cases[] = {
        {"layers", 2, 0, "0f ~1f 1b ~0b"},
        {"layers", 3, 0, "0f ~1f ~2f 2b ~1b ~0b"},
        {"gpipe", 2, 2, "0f 0f ~1f 1f 1b 1b ~0b 0b"}, /* what comes in time is not slept for */
        {"1f1b", 2, 3, "0f 0f ~1f 1b 1f 1b ~0b 0f 0b ~1f 1b ~0b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene s;
        open_stages(&s, cases[i].strategy, cases[i].n_workers, cases[i].micro_batches);
        read_all(&s);
        assert_string_equal(story.text, cases[i].story);
        scene_close(&s);
    }
}

/* What comes from a worker that does not take part is there: the last stage and the middle one. */
static void test_turns_of_some(void **state)
{
    (void)state;
    struct scene s;
    open_stages(&s, "layers", 3, 0);
    s.programs[0] = (program_destroy(s.programs[0]), s.programs[2]);
    s.n = 2;
    read_all(&s);
    assert_string_equal(story.text, "1f ~0f 0b ~1b");
    s.n = 3;
    s.programs[0] = NULL;
    scene_close(&s);
}

static double pass_s; /* what every pass of a worker takes */

static enum status listen(int worker, enum pass pass)
{
    static int last_worker;
    static bool last_forward;
    bool forward = pass == PASS_FORWARD || pass == PASS_FORWARD_STATISTICS;
    bool begins = !story.text[0] || worker != last_worker || forward != last_forward;
    if (begins && story.keeps)
        tell(false, worker, pass);
    if (begins)
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(pass_s * 1e9)}, NULL);
    last_worker = worker;
    last_forward = forward;
    return STATUS_OK;
}

static enum status keep_last_round(void *user, double share)
{
    (void)user, (void)share;
    story.keeps = spy.n_between++ == 2;
    story.text[0] = '\0';
    return STATUS_OK;
}

/* Where a stage waits so long for the other that it would sleep, its backward comes after the
 * other's; else it does not wait. */
static void test_rehearsed_in_the_order_of_a_step(void **state)
{
    (void)state;
    for (int is_long = 0; is_long < 2; is_long++) {
        struct scene s;
        open_stages(&s, "layers", 2, 0);
        pass_s = is_long ? COMM_SPIN_S : 0;
        /* on a machine that is busy with other things the short ones may be long */
        for (int tries = 0; tries < 5; tries++) {
            spy_open(listen);
            spy.idle = true;
            assert_ok(rehearse(&s, true, keep_last_round, 2));
            if (strcmp(story.text, is_long ? "0f 1f 1b 0b" : "0f 0b 1f 1b") == 0)
                break;
        }
        assert_string_equal(story.text, is_long ? "0f 1f 1b 0b" : "0f 0b 1f 1b");
        scene_close(&s);
    }
}

/* The first worker has nothing to do. */
static enum status nap(int worker, enum pass pass)
{
    (void)pass;
    if (worker > 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return STATUS_OK;
}

/* It has to wait while the other plays, which it would not in a step: the core must not rest for
 * that. */
static void test_who_waits_for_its_turn_looks_on(void **state)
{
    enum { ROUNDS = 10 };
    (void)state;
    struct scene s;
    long sleeps = ROUNDS;
    open_stages(&s, "layers", 2, 0);
    spy_open(nap);
    spy.idle = true;
    /* between rounds it may sleep, on a machine that is busy with other things */
    for (int tries = 0; tries < 5 && sleeps >= ROUNDS / 2; tries++) {
        long before = test_count_sleeps();
        assert_ok(rehearse(&s, true, NULL, ROUNDS));
        sleeps = test_count_sleeps() - before;
    }
    assert_true(sleeps < ROUNDS / 2);
    scene_close(&s);
}

/* Of the last round: who computed, one after the other. */
static struct {
    int longer; /* who has more to do */
    int last;
    char who[64];
} order;

static enum status take_long(int worker, enum pass pass)
{
    (void)pass;
    if (worker != order.last && strlen(order.who) + 1 < sizeof order.who)
        (void)snprintf(order.who + strlen(order.who), 2, "%d", worker);
    order.last = worker;
    (void)nanosleep(&(struct timespec){.tv_nsec = worker == order.longer ? 3000000 : 500000}, NULL);
    return STATUS_OK;
}

static enum status begin_order(void *user, double share)
{
    (void)user, (void)share;
    order.last = -1;
    order.who[0] = '\0';
    return STATUS_OK;
}

/* Whoever would not have slept in a step goes on here, too, though what it waits for has yet to be
 * computed by another: the stage with more to do, once it has begun. The first stage of two, if it
 * has less to do, sleeps after its forwards. */
static void test_who_would_not_sleep_goes_on(void **state)
{
    static const char *const orders[] = {"01", "010"};
    (void)state;
    for (order.longer = 0; order.longer < 2; order.longer++) {
        struct scene s;
        open_stages(&s, "1f1b", 2, 3);
        spy_open(take_long);
        /* On a machine that is busy with other things the one with less to do may take longer. */
        for (int tries = 0; tries < 5; tries++) {
            assert_ok(rehearse(&s, true, begin_order, 3));
            if (strcmp(order.who, orders[order.longer]) == 0)
                break;
        }
        assert_string_equal(order.who, orders[order.longer]);
        scene_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours_of_the_longest_are_busy),
        cmocka_unit_test(test_disturbed_rounds_are_left_out),
        cmocka_unit_test(test_disturbed_rounds_are_made_up_for),
        cmocka_unit_test(test_an_unsteady_host_is_measured_for_longer),
        cmocka_unit_test(test_turns_follow_a_step),
        cmocka_unit_test(test_turns_of_some),
        cmocka_unit_test(test_rehearsed_in_the_order_of_a_step),
        cmocka_unit_test(test_who_waits_for_its_turn_looks_on),
        cmocka_unit_test(test_who_would_not_sleep_goes_on),
    };
    return test_run(tests);
}
