/* Measures how much computing slows down under messages of other hosts, and under waiting for them.
 *
 * MPI has no wake-up: a thread that waits for a message polls. Without a core of its own it takes
 * time from the computing threads. So the test runs a piece of work alone, then the same work while
 * a second thread waits for a message of the previous node, which is sent only when the work is
 * done.
 *
 * A second test counts the work that is done while messages flow in from the previous node and out
 * to the next one. They cost more than the thread's own time, because the kernel handles packets in
 * interrupts. */
#include "machine/survey.h"

#include "base/numbers.h"
#include "base/thread.h"
#include "base/timer.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { WAIT_TAG = 5, TURNS = 5, WORK_BYTES = 1 << 18, WORK_ROUNDS = 1000 };
/* Of the survey's data; with less these tests are skipped. */
enum { LEAST_BYTES = 2 * WORK_BYTES };
static const double work_s = 0.02, stream_s = 0.05;

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
    return (double)timer_thread_ns() * 1e-9;
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
            break; /* its sender was faster, so the rest of the work runs alone */
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
    thread_be_prompt();
    w->status = wait_and_send(w);
    if (w->status != STATUS_OK)
        status_take(w->status, &w->error);
    return NULL;
}

/* Reads and writes a block that fits into a core's cache, `rounds` times. Returns the seconds. */
static double work(char *data, int rounds)
{
    int64_t begin_ns = timer_now_ns();
    for (int i = 0; i < rounds; i++)
        memmove(data, data + 64, WORK_BYTES - 64);
    return (double)(timer_now_ns() - begin_ns) / 1e9;
}

/* ---- while messages flow ---- */

/* Bytes that one turn sends from node to node. */
static int64_t find_stream_bytes(const struct survey *s, int from, int to)
{
    double bytes = stream_s * s->links[from * s->n_nodes + to].bytes_per_s;
    return (int64_t)fmin(bytes, (double)(s->data_bytes - WORK_BYTES) / 2);
}

struct streamer {
    struct survey *s;
    int from, to; /* workers */
    int64_t in_bytes, out_bytes;
    atomic_bool done;
    enum status status;
    struct status_error error;
};

static enum status run_stream(struct streamer *w)
{
    comm *end = w->s->end;
    comm_op receive, send;
    char *in = w->s->data + WORK_BYTES, *out = in + w->in_bytes;
    bool received = false, sent = false;
    TRY(end->table->start_receive(end, w->from, WAIT_TAG, in, w->in_bytes, &receive));
    TRY(end->table->start_send(end, w->to, WAIT_TAG, out, w->out_bytes, &send));
    int64_t limit_ns = timer_now_ns() + (int64_t)(end->timeout_s * 1e9);
    while (!received || !sent) {
        if (!received)
            TRY(end->table->poll(end, &receive, &received));
        if (!sent)
            TRY(end->table->poll(end, &send, &sent));
        if (timer_now_ns() > limit_ns)
            return status_fail(STATUS_TIMEOUT, "measuring: worker %d waited for worker %d",
                               end->rank, w->from);
        if (!received || !sent)
            TRY(end->table->pause(end, work_s));
    }
    return STATUS_OK;
}

static void *run_streamer(void *user)
{
    struct streamer *w = user;
    thread_be_prompt();
    w->status = run_stream(w);
    if (w->status != STATUS_OK)
        status_take(w->status, &w->error);
    atomic_store(&w->done, true);
    return NULL;
}

/* One turn: core seconds per byte; 0 if no byte flows, because between many nodes not all links are
 * measured. */
static enum status take_stream_turn(struct survey *s, int before, int after, double round_s,
                                    double *per_byte)
{
    int node = s->node_of[s->end->rank];
    struct streamer w = {.s = s,
                         .from = survey_first_worker(s, before),
                         .to = survey_first_worker(s, after),
                         .in_bytes = find_stream_bytes(s, before, node),
                         .out_bytes = find_stream_bytes(s, node, after)};
    pthread_t thread;
    int rounds = 0;
    int64_t begin_ns = timer_now_ns();
    atomic_store(&s->end->computes, true);
    if (pthread_create(&thread, NULL, run_streamer, &w) != 0)
        return status_fail(STATUS_FAILED, "cannot start a thread");
    for (; !atomic_load(&w.done); rounds++)
        (void)work(s->data, 1);
    double took_s = (double)(timer_now_ns() - begin_ns) / 1e9;
    atomic_store(&s->end->computes, false);
    (void)pthread_join(thread, NULL);
    double taken_s = took_s * (1 - s->wait_share) - rounds * round_s;
    int64_t n_bytes = w.in_bytes + w.out_bytes;
    *per_byte = n_bytes > 0 ? fmax(0, taken_s) / (double)n_bytes : 0;
    return w.status == STATUS_OK ? STATUS_OK : status_give(&w.error);
}

/* ---- while waiting ---- */

/* One turn: the share of the time that waiting took. */
static enum status take_wait_turn(struct survey *s, int before, int after, double round_s,
                                  double *share)
{
    struct waiter w = {
        .s = s, .from = survey_first_worker(s, before), .to = survey_first_worker(s, after)};
    int rounds = (int)fmax(1, work_s / round_s);
    pthread_t thread;
    double alone_s = work(s->data, rounds);
    if (pthread_create(&thread, NULL, run_waiter, &w) != 0)
        return status_fail(STATUS_FAILED, "cannot start a thread");
    atomic_store(&s->end->computes, true);
    double beside_s = work(s->data, rounds);
    atomic_store(&s->end->computes, false);
    atomic_store(&w.worked, true);
    s->end->table->wake(s->end);
    (void)pthread_join(thread, NULL);
    *share = fmax(1 - alone_s / beside_s, w.cpu_s / beside_s);
    return w.status == STATUS_OK ? STATUS_OK : status_give(&w.error);
}

/* ---- both tests ---- */

typedef enum status take_turn(struct survey *s, int before, int after, double round_s,
                              double *found);

/* Takes TURNS turns between the first workers of all nodes, each with the previous and the next
 * node. Returns the largest of the nodes' medians. */
static enum status measure_in_turn(struct survey *s, take_turn *take, double *largest)
{
    double round_s = work(s->data, WORK_ROUNDS) / WORK_ROUNDS;
    int node = s->node_of[s->end->rank], n = s->n_nodes;
    double found[TURNS], mine = 0, *all;
    bool takes_part = s->end->rank == survey_first_worker(s, node);
    TRY(arena_alloc_array(s->memory, (size_t)s->end->size, sizeof *all, &all));
    for (int i = 0; i < TURNS; i++) {
        TRY(s->end->table->exchange(s->end, &mine, sizeof mine, all));
        if (takes_part)
            TRY(take(s, (node + n - 1) % n, (node + 1) % n, round_s, &found[i]));
    }
    mine = takes_part ? numbers_median(found, TURNS) : 0;
    TRY(s->end->table->exchange(s->end, &mine, sizeof mine, all));
    for (int i = 0; i < s->end->size; i++)
        *largest = fmax(*largest, all[i]);
    return STATUS_OK;
}

enum status survey_measure_wait(struct survey *s)
{
    if (s->data_bytes < LEAST_BYTES)
        return STATUS_OK;
    TRY(measure_in_turn(s, take_wait_turn, &s->wait_share));
    s->wait_share = fmin(0.9, s->wait_share);
    return STATUS_OK;
}

enum status survey_measure_streams(struct survey *s)
{
    if (s->data_bytes < LEAST_BYTES)
        return STATUS_OK;
    return measure_in_turn(s, take_stream_turn, &s->far_byte_s);
}
