/* Who computes when in a rehearsal, seen by a backend that looks on. */
#include "base/timer.h"
#include "plan_suite.h"
#include "profile/rehearsal.h"
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
} spy;

static enum status spy_run(group *g, enum pass pass, stream *s, const struct group_args *args,
                           const struct step_state *step)
{
    TRY(spy.look(pthread_equal(pthread_self(), spy.first) ? 0 : 1, pass));
    return spy.real->group_run(g, pass, s, args, step);
}

static void spy_open(enum status (*look)(int worker, enum pass pass))
{
    assert_ok(backend_find("reference", &spy.real));
    spy.backend = *spy.real;
    spy.backend.group_run = spy_run;
    spy.first = pthread_self();
    spy.look = look;
    spy.n_between = 0;
}

static enum status take_nothing(void *user, const struct program *p, int n_rounds,
                                const double *seconds)
{
    (void)user, (void)p, (void)n_rounds, (void)seconds;
    return STATUS_OK;
}

static enum status rehearse(const struct scene *s, bool takes_turns,
                            enum status (*between)(void *user, double share), int n_rounds)
{
    const struct rehearsal_request r = {.graph = s->graph,
                                        .plan = s->plan,
                                        .backend = &spy.backend,
                                        .threads = 1,
                                        .n_states = 1,
                                        .n = 2,
                                        .workers = (int[]){0, 1},
                                        .takes_turns = takes_turns,
                                        .n_places = 2,
                                        .budget_s = 1e-6,
                                        .least_rounds = n_rounds,
                                        .most_rounds = n_rounds,
                                        .between = between};
    double start_s;
    return rehearsal_run(&r, take_nothing, NULL, &start_s);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours_of_the_longest_are_busy),
    };
    return test_run(tests);
}
