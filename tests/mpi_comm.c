/* The MPI transport: one rank of a job that tests/CMakeLists.txt starts with mpirun.
 *
 *     mpirun -n 3 mpi_comm cases      every case of comm_cases.h
 *     mpirun -n 2 mpi_comm order      messages arrive in the order of their sends, whatever their
 *                                     lengths: to other hosts, so netns.sh starts this one
 *     mpirun -n 3 mpi_comm missing    rank 1 comes late: the others' time-outs name it
 *     mpirun -n 3 mpi_comm abort      rank 1 gives up: the others hear why, soon
 *     mpirun -n 3 mpi_comm exit       rank 1 ends without a word: the others notice
 *     mpirun -n 3 mpi_comm holder     a thread of rank 1 dies while it holds the lock of the shared
 *                                     memory: an abort still reaches all, and the lists behind the
 *                                     lock are used no more
 *
 * Exit status 0 if this rank saw what it should.
 */
#include "comm_cases.h"

#include <pthread.h>
#include <unistd.h>

static const char why[] = "worker 1: step 7: the disk is full";

static bool run_cases(comm *c, struct cases_report *report)
{
    return cases_run_control(c, report) && cases_run_transfers(c, report) &&
           (c->size == 1 || cases_run_tag_reuse(c, report)) &&
           cases_run_reductions(c, 500009, report) && cases_run_many_at_once(c, report) &&
           cases_run_control(c, report);
}

/* Two messages at once, of which the first is longer than the part of one that is started at a
 * time: its end must not queue up behind the second. The sender looks after them only when the
 * second would long have come. */
static bool run_order(comm *c, struct cases_report *report)
{
    enum { LONG = 3 << 20, SHORT = 1 << 16 };
    static char first[LONG], second[SHORT];
    comm_op ops[2];
    bool done[2] = {false, false};
    if (c->rank == 0) {
        memset(first, 1, sizeof first);
        memset(second, 2, sizeof second);
        CASES_OK(report, c->table->start_send(c, 1, 1, first, LONG, &ops[0]));
        CASES_OK(report, c->table->start_send(c, 1, 2, second, SHORT, &ops[1]));
        (void)usleep(300000);
        return cases_wait(c, ops, 2, report);
    }
    CASES_OK(report, c->table->start_receive(c, 0, 1, first, LONG, &ops[0]));
    CASES_OK(report, c->table->start_receive(c, 0, 2, second, SHORT, &ops[1]));
    while (!done[1]) {
        CASES_OK(report, c->table->poll(c, &ops[1], &done[1]));
        CASES_OK(report, done[0] ? STATUS_OK : c->table->poll(c, &ops[0], &done[0]));
    }
    CASES_CHECK(report, done[0], "the second of two messages has come first");
    CASES_CHECK(report, first[LONG - 1] == 1 && second[SHORT - 1] == 2, "wrong bytes");
    return true;
}

static bool run_missing(comm *c, struct cases_report *report)
{
    int mine = c->rank, all[CASES_MAX_WORKERS];
    if (c->rank == 1) {
        (void)usleep(1500000);
    } else {
        c->timeout_s = 0.3;
        int64_t start_ns = timer_now_ns();
        enum status st = c->table->exchange(c, &mine, sizeof mine, all);
        double waited_s = (double)(timer_now_ns() - start_ns) * 1e-9;
        CASES_CHECK(report, st == STATUS_TIMEOUT && strstr(status_message(), "worker 1 "),
                    "status %d: %s", (int)st, status_message());
        CASES_CHECK(report, waited_s < 1.2, "after %g s", waited_s);
        status_clear();
        c->timeout_s = 20;
    }
    return true;
}

/* Polls a reduction that rank 1 never joins, until it fails. */
static enum status wait_in_vain(comm *c, double *waited_s)
{
    int members[CASES_MAX_WORKERS];
    struct comm_reduction r = {.method = COMM_RING, .members = members, .count = 1000, .tag = 4};
    r.n_members = cases_subset(c->size, 0, members);
    float data[1000] = {0};
    char workspace[1 << 18];
    comm_op op;
    int64_t start_ns = timer_now_ns(), checked_ns = start_ns;
    enum status st = c->table->start_reduce(c, &r, data, workspace, &op);
    for (bool done = false; st == STATUS_OK && !done;) {
        st = c->table->poll(c, &op, &done);
        if (st == STATUS_OK && timer_now_ns() - checked_ns > 500000000) {
            checked_ns = timer_now_ns();
            st = c->table->check_peers(c);
        }
        if (st == STATUS_OK)
            st = c->table->pause(c, 0.1);
        *waited_s = (double)(timer_now_ns() - start_ns) * 1e-9;
        if (*waited_s > 20)
            return STATUS_OK;
    }
    return st;
}

static bool run_abort(comm *c, struct cases_report *report)
{
    if (c->rank == 1) {
        (void)usleep(200000);
        c->table->abort(c, STATUS_TIMEOUT, why);
        return true;
    }
    double waited_s = 0;
    enum status st = wait_in_vain(c, &waited_s);
    CASES_CHECK(report, st == STATUS_LOST && strstr(status_message(), why), "status %d: %s",
                (int)st, status_message());
    CASES_CHECK(report, c->cause == STATUS_TIMEOUT && c->told, "the cause is %d", (int)c->cause);
    CASES_CHECK(report, waited_s < 5, "after %g s", waited_s);
    return true;
}

static bool run_exit(comm *c, struct cases_report *report)
{
    if (c->rank == 1) {
        (void)usleep(200000);
        (void)fprintf(stderr, "worker 1 leaves\n"); /* mpi_run.sh looks for it */
        _exit(0);
    }
    double waited_s = 0;
    enum status st = wait_in_vain(c, &waited_s);
    CASES_CHECK(report, st == STATUS_LOST && strstr(status_message(), "worker 1 (process"),
                "status %d: %s", (int)st, status_message());
    (void)fprintf(stderr, "worker %d: after %.2f s: %s\n", c->rank, waited_s, status_message());
    return true;
}

/* In place of the library's: the transport locks the memory of a host with it. */
static _Thread_local bool dies_with_lock;

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until)
{
    int error = pthread_mutex_clocklock(mutex, CLOCK_REALTIME, until);
    if (!error && dies_with_lock)
        pthread_exit(NULL);
    return error;
}

static enum status start_small(comm *c, comm_op *op)
{
    static float data[10];
    static int members[CASES_MAX_WORKERS];
    struct comm_reduction r = {.method = COMM_RING, .members = members, .count = 10, .tag = 9};
    r.n_members = cases_subset(c->size, 0, members);
    return c->table->start_reduce(c, &r, data, NULL, op);
}

static void *die_with_lock(void *user)
{
    comm_op op;
    dies_with_lock = true;
    (void)start_small(user, &op);
    return NULL;
}

static bool run_holder(comm *c, struct cases_report *report)
{
    comm_op op;
    if (c->rank == 1) {
        pthread_t thread;
        (void)usleep(300000);
        CASES_CHECK(report, pthread_create(&thread, NULL, die_with_lock, c) == 0, "no thread");
        (void)pthread_join(thread, NULL);
        return true;
    }
    if (c->rank == 0) {
        (void)usleep(800000);
        c->table->abort(c, STATUS_TIMEOUT, why);
        for (int i = 0; i < 2; i++) {
            enum status st = start_small(c, &op);
            CASES_CHECK(report, st == STATUS_LOST, "start %d gives status %d", i, (int)st);
            status_clear();
        }
        return true;
    }
    double waited_s = 0;
    enum status st = wait_in_vain(c, &waited_s);
    CASES_CHECK(report, st == STATUS_LOST && strstr(status_message(), why), "status %d: %s",
                (int)st, status_message());
    CASES_CHECK(report, waited_s < 5, "after %g s", waited_s);
    return true;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "cases";
    comm *c;
    int rank, size;
    if (!comm_mpi_launched(&rank, &size)) {
        (void)fprintf(stderr, "start this with mpirun\n");
        return 2;
    }
    if (comm_mpi_create(60, &c) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n%s", status_message(), status_trace_text());
        return 1;
    }
    struct cases_report report = {""};
    bool ok = rank == c->rank && size == c->size;
    if (strcmp(what, "order") == 0)
        ok = ok && run_order(c, &report);
    else if (strcmp(what, "missing") == 0)
        ok = ok && run_missing(c, &report);
    else if (strcmp(what, "abort") == 0)
        ok = ok && run_abort(c, &report);
    else if (strcmp(what, "exit") == 0)
        ok = ok && run_exit(c, &report);
    else if (strcmp(what, "holder") == 0)
        ok = ok && run_holder(c, &report);
    else
        ok = ok && run_cases(c, &report);
    if (!ok) {
        (void)fprintf(stderr, "FAILED: worker %d of %d: %s: %s\n", c->rank, c->size, what,
                      report.text);
        c->table->abort(c, STATUS_FAILED, report.text);
    }
    c->table->destroy(c);
    return ok ? 0 : 1;
}
