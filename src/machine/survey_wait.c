/* What waiting for messages of other hosts takes from computing.
 *
 * MPI wakes nobody: a thread that waits for a message looks again and again. Where it has no core
 * to itself, whoever computes there pays for it. So: work alone, then the same work while a second
 * thread waits for a message of the node before, which is sent only when the work is done. */
#include "machine/survey.h"

#include "base/timer.h"
#include "comm/bell.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { WAIT_TAG = 5, TURNS = 5, WORK_BYTES = 1 << 18, WORK_ROUNDS = 1000 };
static const double work_s = 0.02;

struct waiter {
    struct survey *s;
    int from, to; /* workers */
    atomic_bool worked;
    double cpu_s;
    enum status status;
    struct status_error error;
};

static double thread_cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum status wait_and_send(struct waiter *w)
{
    comm *end = w->s->end;
    comm_op receive, send;
    char in, out = 0;
    TRY(end->table->start_receive(end, w->from, WAIT_TAG, &in, 1, &receive));
    double before_s = thread_cpu_s();
    while (!atomic_load(&w->worked)) {
        bool done;
        TRY(end->table->poll(end, &receive, &done));
        if (done)
            break; /* its sender was faster: the rest of the work is without it */
        TRY(end->table->pause(end, work_s));
    }
    w->cpu_s = thread_cpu_s() - before_s;
    while (!atomic_load(&w->worked))
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    TRY(end->table->start_send(end, w->to, WAIT_TAG, &out, 1, &send));
    TRY(survey_finish(end, &send));
    return survey_finish(end, &receive);
}

static void *run_waiter(void *user)
{
    struct waiter *w = user;
    bell_be_prompt();
    w->status = wait_and_send(w);
    if (w->status != STATUS_OK)
        status_take(w->status, &w->error);
    return NULL;
}

/* Reads and writes what fits into a core's cache, so often. */
static double work(char *data, int rounds)
{
    int64_t begin_ns = timer_now_ns();
    for (int i = 0; i < rounds; i++)
        memmove(data, data + 64, WORK_BYTES - 64);
    return (double)(timer_now_ns() - begin_ns) / 1e9;
}

/* One turn: the share of the work's time that waiting took. */
static enum status take_turn(struct survey *s, int from, int to, int rounds, double *share)
{
    struct waiter w = {.s = s, .from = from, .to = to};
    pthread_t thread;
    double alone_s = work(s->data, rounds);
    if (pthread_create(&thread, NULL, run_waiter, &w) != 0)
        return status_fail(STATUS_FAILED, "cannot start a thread");
    double beside_s = work(s->data, rounds);
    atomic_store(&w.worked, true);
    s->end->table->wake(s->end);
    (void)pthread_join(thread, NULL);
    *share = fmax(1 - alone_s / beside_s, w.cpu_s / beside_s);
    return w.status == STATUS_OK ? STATUS_OK : status_give(&w.error);
}

enum status survey_measure_wait(struct survey *s)
{
    int node = s->node_of[s->end->rank], n = s->n_nodes;
    double shares[TURNS], mine = 0, *all;
    TRY(arena_alloc_array(s->memory, (size_t)s->end->size, sizeof *all, &all));
    bool takes_part = s->end->rank == survey_first_worker(s, node) && s->data_bytes >= WORK_BYTES;
    int rounds = (int)fmax(1, WORK_ROUNDS * work_s / work(s->data, WORK_ROUNDS));
    for (int i = 0; i < TURNS; i++) {
        TRY(s->end->table->exchange(s->end, &mine, sizeof mine, all));
        if (takes_part)
            TRY(take_turn(s, survey_first_worker(s, (node + n - 1) % n),
                          survey_first_worker(s, (node + 1) % n), rounds, &shares[i]));
    }
    mine = takes_part ? survey_median(shares, TURNS) : 0;
    TRY(s->end->table->exchange(s->end, &mine, sizeof mine, all));
    for (int i = 0; i < s->end->size; i++)
        s->wait_share = fmax(s->wait_share, fmin(0.9, all[i]));
    return STATUS_OK;
}
