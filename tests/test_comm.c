/* The threads transport: every case of comm_cases.h, and failures. */
#include "testing.h"

#include "comm/eventcount.h"
#include "comm_cases.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

typedef bool worker_fn(comm *c, struct cases_report *report);

struct worker {
    pthread_t thread;
    comm *c;
    worker_fn *run;
    struct cases_report report;
    bool ok;
};

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    w->ok = w->run(w->c, &w->report);
    if (!w->ok)
        /* so that the others do not wait for it */
        w->c->table->abort(w->c, STATUS_FAILED, w->report.text);
    w->c->table->destroy(w->c);
    return NULL;
}

/* Runs `run` on `size` workers; the first failure is the test's. */
static void on_threads(int size, double timeout_s, worker_fn *run)
{
    struct worker workers[CASES_MAX_WORKERS] = {0};
    comm *ends[CASES_MAX_WORKERS];
    assert_ok(comm_threads_create(size, timeout_s, ends));
    for (int i = 0; i < size; i++) {
        workers[i].c = ends[i];
        workers[i].run = run;
    }
    for (int i = 0; i < size; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    for (int i = 0; i < size; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < size; i++)
        assert_that(workers[i].ok, "%d workers, worker %d: %s", size, i, workers[i].report.text);
}

static const int sizes[] = {1, 2, 3, 4, 7};

#define FOR_ALL_SIZES(run)                                    \
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) \
    on_threads(sizes[i], 60, (run))

static bool run_reductions(comm *c, struct cases_report *report)
{
    return cases_run_reductions(c, 200003, report);
}

static void test_reductions(void **state)
{
    (void)state;
    FOR_ALL_SIZES(run_reductions);
}

static void test_many_at_once(void **state)
{
    (void)state;
    FOR_ALL_SIZES(cases_run_many_at_once);
}

static void test_transfers(void **state)
{
    (void)state;
    FOR_ALL_SIZES(cases_run_transfers);
}

static void test_tags_are_used_again(void **state)
{
    (void)state;
    on_threads(2, 60, cases_run_tag_reuse);
}

static void test_control(void **state)
{
    (void)state;
    FOR_ALL_SIZES(cases_run_control);
}

/* ---- failures ---- */

/* Worker 1 of 3 never comes. */
static bool run_missing(comm *c, struct cases_report *report)
{
    if (c->rank == 1)
        return true;
    int mine = c->rank, all[3];
    int64_t start_ns = timer_now_ns();
    enum status st = c->table->exchange(c, &mine, sizeof mine, all);
    double waited_s = (double)(timer_now_ns() - start_ns) * 1e-9;
    CASES_CHECK(report, st == STATUS_TIMEOUT && strstr(status_message(), "worker 1 "),
                "status %d: %s", (int)st, status_message());
    CASES_CHECK(report, waited_s > 0.15 && waited_s < 5, "after %g s", waited_s);
    status_clear();
    return true;
}

static void test_timeouts_name_the_missing(void **state)
{
    (void)state;
    on_threads(3, 0.2, run_missing);
}

/* A message that is not received is withdrawn: the next one is the one that arrives. */
static bool run_withdrawn(comm *c, struct cases_report *report)
{
    int value = 0;
    if (c->rank == 0) {
        c->timeout_s = 0.05;
        value = 13;
        enum status st = c->table->send(c, 1, &value, sizeof value);
        CASES_CHECK(report, st == STATUS_TIMEOUT, "status %d", (int)st);
        status_clear();
        c->timeout_s = 30;
        value = 14;
        comm_op op;
        CASES_OK(report, c->table->start_send(c, 1, 1, &value, sizeof value, &op));
        if (!cases_wait(c, &op, 1, report))
            return false;
        value = 15;
        CASES_OK(report, c->table->send(c, 1, &value, sizeof value));
        return true;
    }
    comm_op op;
    CASES_OK(report, c->table->start_receive(c, 0, 1, &value, sizeof value, &op));
    if (!cases_wait(c, &op, 1, report))
        return false;
    CASES_CHECK(report, value == 14, "%d", value);
    CASES_OK(report, c->table->receive(c, 0, &value, sizeof value));
    CASES_CHECK(report, value == 15, "%d", value);
    return true;
}

static void test_a_message_not_taken_is_withdrawn(void **state)
{
    (void)state;
    on_threads(2, 30, run_withdrawn);
}

/* Worker 2 fails in the midst of large reductions and frees its memory: the others stop, with its
 * words, and touch nothing of it. */
static bool run_abort(comm *c, struct cases_report *report)
{
    enum { COUNT = 3000000 };
    int members[] = {0, 1, 2, 3};
    struct comm_reduction r = {
        .method = COMM_RING, .n_members = 4, .members = members, .count = COUNT, .tag = 3};
    float *data = calloc(COUNT, sizeof *data);
    comm_op op;
    enum status st = c->table->start_reduce(c, &r, data, NULL, &op);
    bool done = false;
    for (int polls = 0; st == STATUS_OK && !done; polls++) {
        if (c->rank == 2 && polls == 1)
            c->table->abort(c, STATUS_FAILED, "worker 2: the disk is full");
        st = c->table->poll(c, &op, &done);
        if (st == STATUS_OK && !done)
            st = c->table->pause(c, 1);
    }
    free(data);
    if (c->rank == 2)
        c->table->abort(c, STATUS_FAILED,
                        st == STATUS_OK ? "worker 2: the disk is full" : "a second cause");
    /* A worker may have finished just before; then its next operation fails. */
    if (st == STATUS_OK) {
        int mine = 0, all[4];
        st = c->table->exchange(c, &mine, sizeof mine, all);
    }
    CASES_CHECK(report, st == STATUS_LOST && strstr(status_message(), "the disk is full"),
                "worker %d: status %d: %s", c->rank, (int)st, status_message());
    status_clear();
    return true;
}

static void test_abort(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        on_threads(4, 30, run_abort);
}

/* Wakes the sleepers, too. */
static bool run_abort_while_asleep(comm *c, struct cases_report *report)
{
    if (c->rank == 1) {
        struct timespec t = {.tv_nsec = 50000000};
        (void)nanosleep(&t, NULL);
        c->table->abort(c, STATUS_FAILED, "no reason");
        return true;
    }
    int64_t start_ns = timer_now_ns();
    enum status st = c->table->pause(c, 20);
    CASES_CHECK(report, st == STATUS_LOST && timer_now_ns() - start_ns < 10000000000,
                "status %d after %g s", (int)st, (double)(timer_now_ns() - start_ns) * 1e-9);
    status_clear();
    return true;
}

static void test_abort_wakes(void **state)
{
    (void)state;
    on_threads(3, 30, run_abort_while_asleep);
}

static void *wake_soon(void *argument)
{
    comm *c = argument;
    struct timespec t = {.tv_nsec = 20000000};
    (void)nanosleep(&t, NULL);
    c->table->wake(c);
    return NULL;
}

/* A waiting worker spins where there is a core for each, and sleeps at once where not. */
static void test_waiting_workers_spin(void **state)
{
    (void)state;
    comm *ends[CASES_MAX_WORKERS];
    int cores = comm_count_cores();
    for (int size = cores; size <= cores + 1; size++) {
        if (size > CASES_MAX_WORKERS)
            skip_because("this host has more than %d cores", CASES_MAX_WORKERS - 1);
        assert_ok(comm_threads_create(size, 60, ends));
        long before = test_count_sleeps();
        assert_ok(ends[0]->table->pause(ends[0], COMM_SPIN_S / 2));
        assert_int_equal(test_count_sleeps() > before, size > cores);
        for (int i = 0; i < size; i++)
            ends[i]->table->destroy(ends[i]);
    }
}

static void test_wake(void **state)
{
    (void)state;
    comm *c;
    pthread_t thread;
    assert_ok(comm_threads_create(1, 1, &c));
    int64_t start_ns = timer_now_ns(); /* before: this thread may lose its core behind it */
    assert_int_equal(pthread_create(&thread, NULL, wake_soon, c), 0);
    assert_ok(c->table->pause(c, 20));
    double waited_s = (double)(timer_now_ns() - start_ns) * 1e-9;
    assert_that(waited_s > 0.01 && waited_s < 10, "%g s", waited_s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    /* A call that comes before the pause is not lost. */
    c->table->wake(c);
    start_ns = timer_now_ns();
    assert_ok(c->table->pause(c, 20));
    assert_true(timer_now_ns() - start_ns < 10000000000);
    /* And without one it takes its time. */
    start_ns = timer_now_ns();
    assert_ok(c->table->pause(c, 0.05));
    assert_true(timer_now_ns() - start_ns > 40000000);
    c->table->destroy(c);
}

static void test_mistakes_are_refused(void **state)
{
    (void)state;
    comm *ends[2];
    comm_op op, op2;
    float x[4] = {0};
    assert_fails(comm_threads_create(0, 1, ends), STATUS_USAGE, "workers");
    assert_ok(comm_threads_create(2, 1, ends));
    const struct comm_table *t = ends[0]->table;
    assert_fails(t->start_send(ends[0], 2, 0, x, 4, &op), STATUS_USAGE, "worker 2");
    assert_fails(t->start_receive(ends[0], 0, 0, x, 4, &op), STATUS_USAGE, "worker 0");
    int descending[] = {1, 0}, both[] = {0, 1}, other[] = {1};
    struct comm_reduction r = {.n_members = 2, .members = descending, .count = 4};
    assert_fails(t->start_reduce(ends[0], &r, x, NULL, &op), STATUS_USAGE, "ascending");
    r = (struct comm_reduction){.n_members = 1, .members = other, .count = 4};
    assert_fails(t->start_reduce(ends[0], &r, x, NULL, &op), STATUS_USAGE, "worker 0 is not");
    r = (struct comm_reduction){.type = ELEMENT_BF16, .n_members = 2, .members = both, .count = 4};
    assert_fails(t->start_reduce(ends[0], &r, x, NULL, &op), STATUS_USAGE, "of bf16, which is not");
    r = (struct comm_reduction){.n_members = 2, .members = both, .count = 4, .tag = 8};
    assert_ok(t->start_reduce(ends[0], &r, x, NULL, &op));
    r.count = 3;
    assert_fails(t->start_reduce(ends[1], &r, x, NULL, &op2), STATUS_FAILED, "disagree");
    assert_ok(t->start_send(ends[0], 1, 7, x, 4, &op));
    assert_fails(t->start_receive(ends[1], 0, 7, x, 8, &op2), STATUS_FAILED, "4 bytes");
    t->destroy(ends[0]);
    t->destroy(ends[1]);
}

static void test_sent_bytes(void **state)
{
    (void)state;
    struct comm_reduction r = {.n_members = 4, .count = 1000, .node_size = 2};
    static const struct {
        enum comm_method method;
        int64_t elements[4];
    } cases[] = {
        {COMM_GATHER, {3000, 3000, 3000, 3000}},
        {COMM_RING, {1500, 1500, 1500, 1500}},
        {COMM_TREE, {2000, 1000, 2000, 1000}},
        {COMM_HIERARCHICAL, {2000, 1000, 2000, 1000}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r.method = cases[i].method;
        for (int p = 0; p < 4; p++) {
            int64_t bytes = comm_reduce_sent_bytes(&r, p);
            assert_that(bytes == 4 * cases[i].elements[p], "%s, position %d: %lld bytes",
                        comm_method_name(r.method), p, (long long)bytes);
        }
    }
}

static void test_launched(void **state)
{
    (void)state;
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",      "PMI_SIZE", "PMIX_RANK",
        "SLURM_PROCID",         "SLURM_NTASKS",         "SLURM_MPI_TYPE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(unsetenv(names[i]), 0);
    int rank = -1, size = -1;
    assert_false(comm_mpi_launched(&rank, &size));
    assert_int_equal(setenv("SLURM_PROCID", "3", 1), 0);
    assert_int_equal(setenv("SLURM_NTASKS", "8", 1), 0);
    assert_false(comm_mpi_launched(&rank, &size)); /* srun without MPI */
    assert_int_equal(setenv("SLURM_MPI_TYPE", "none", 1), 0);
    assert_false(comm_mpi_launched(&rank, &size));
    assert_int_equal(setenv("SLURM_MPI_TYPE", "pmix_v4", 1), 0);
    assert_true(comm_mpi_launched(&rank, &size) && rank == 3 && size == 8);
    assert_int_equal(setenv("OMPI_COMM_WORLD_RANK", "0", 1), 0);
    assert_int_equal(setenv("OMPI_COMM_WORLD_SIZE", "1", 1), 0);
    assert_true(comm_mpi_launched(&rank, &size) && rank == 0 && size == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_tags_are_used_again),
        cmocka_unit_test(test_control),
        cmocka_unit_test(test_timeouts_name_the_missing),
        cmocka_unit_test(test_a_message_not_taken_is_withdrawn),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_abort_wakes),
        cmocka_unit_test(test_waiting_workers_spin),
        cmocka_unit_test(test_wake),
        cmocka_unit_test(test_mistakes_are_refused),
        cmocka_unit_test(test_sent_bytes),
        cmocka_unit_test(test_launched),
    };
    return test_run(tests);
}
