#include "machine/measure_host.h"

#include "base/numbers.h"
#include "base/timer.h"
#include "machine/survey.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 101, COPY_BYTES = 16 << 20, COPIES = 5 };
static const long nap_ns = 500000; /* until a waiting thread is surely asleep */

static void bind_to(const struct machine_measure_options *o, int worker)
{
    if (o->bind && worker < o->workers)
        o->bind(worker, o->workers, o->user);
}

/* ---- threads ---- */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { CLOSED, OPEN, CANCELLED } state;
};

struct thread_call {
    struct gate *gate;
    machine_work *work;
    void *user;
    int number;
    pthread_t thread;
};

static void *run_thread(void *user)
{
    const struct thread_call *call = user;
    struct gate *gate = call->gate;
    (void)pthread_mutex_lock(&gate->lock);
    while (gate->state == CLOSED)
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    bool go = gate->state == OPEN;
    (void)pthread_mutex_unlock(&gate->lock);
    if (go)
        call->work(call->number, call->user);
    return NULL;
}

static void open_gate(struct gate *gate, bool go)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->state = go ? OPEN : CANCELLED;
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}

enum status machine_run_threads(int n, machine_work *work, void *user)
{
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, CLOSED};
    struct thread_call *calls = calloc((size_t)n, sizeof *calls);
    if (!calls)
        return status_no_memory((size_t)n * sizeof *calls);
    int started = 0, error = 0;
    while (started < n && !error) {
        calls[started] = (struct thread_call){&gate, work, user, started, 0};
        error = pthread_create(&calls[started].thread, NULL, run_thread, &calls[started]);
        started += !error;
    }
    open_gate(&gate, !error);
    for (int i = 0; i < started; i++)
        (void)pthread_join(calls[i].thread, NULL);
    free(calls);
    if (error)
        return status_fail(STATUS_FAILED, "cannot start a thread: %s", strerror(error));
    return STATUS_OK;
}

/* ---- waking ---- */

/* Thread 0 signals `round`, thread 1 sleeps until then and answers in `heard`. */
struct waking {
    const struct machine_measure_options *options;
    pthread_mutex_t lock;
    pthread_cond_t signalled, answered;
    int round, heard;
    int64_t signalled_ns;
    int64_t nap_ns; /* how long thread 1 sleeps */
    char *memory;   /* COPY_BYTES for thread 0 to work on */
    double times[ROUNDS], signals[ROUNDS];
};

/* A worker has computed before it signals, so its caches hold other data. */
static void work_a_while(struct waking *w, int round)
{
    enum { PART = 1 << 16 };
    int64_t until_ns = timer_now_ns() + w->nap_ns;
    for (size_t at = 0; timer_now_ns() < until_ns; at = (at + PART) % COPY_BYTES)
        memset(w->memory + at, round, PART);
}

static void send_signals(struct waking *w)
{
    for (int i = 0; i < ROUNDS; i++) {
        work_a_while(w, i);
        (void)pthread_mutex_lock(&w->lock);
        w->signalled_ns = timer_now_ns();
        w->round++;
        (void)pthread_cond_signal(&w->signalled);
        w->signals[i] = (double)(timer_now_ns() - w->signalled_ns) / 1e9;
        while (w->heard < w->round)
            (void)pthread_cond_wait(&w->answered, &w->lock);
        (void)pthread_mutex_unlock(&w->lock);
    }
}

static void sleep_and_wake(struct waking *w)
{
    (void)pthread_mutex_lock(&w->lock);
    for (int i = 0; i < ROUNDS; i++) {
        while (w->round == i)
            (void)pthread_cond_wait(&w->signalled, &w->lock);
        w->times[i] = (double)(timer_now_ns() - w->signalled_ns) / 1e9;
        w->heard++;
        (void)pthread_cond_signal(&w->answered);
    }
    (void)pthread_mutex_unlock(&w->lock);
}

static void take_part_in_waking(int number, void *user)
{
    struct waking *w = user;
    bind_to(w->options, number);
    if (number == 0)
        send_signals(w);
    else
        sleep_and_wake(w);
}

enum status machine_measure_wake(const struct machine_measure_options *o, double slept_s,
                                 double *wake_s, double *ring_s)
{
    struct waking w = {.options = o,
                       .nap_ns = (int64_t)(slept_s * 1e9),
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .signalled = PTHREAD_COND_INITIALIZER,
                       .answered = PTHREAD_COND_INITIALIZER,
                       .memory = malloc(COPY_BYTES)};
    if (!w.memory)
        return status_no_memory(COPY_BYTES);
    enum status st = machine_run_threads(2, take_part_in_waking, &w);
    free(w.memory);
    TRY(st);
    *wake_s = numbers_median(w.times, ROUNDS);
    *ring_s = numbers_median(w.signals, ROUNDS);
    return STATUS_OK;
}

/* ---- steps ---- */

/* Threads 1 .. n are the workers; thread 0 starts and joins them. */
struct stepping {
    const struct machine_measure_options *options;
    int n_workers;
    pthread_mutex_t lock;
    pthread_cond_t started, finished;
    int round, n_done;
    double times[ROUNDS];
};

static void lead(struct stepping *s)
{
    for (int i = 0; i < ROUNDS; i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
        int64_t begin_ns = timer_now_ns();
        (void)pthread_mutex_lock(&s->lock);
        s->n_done = 0;
        s->round++;
        (void)pthread_cond_broadcast(&s->started);
        while (s->n_done < s->n_workers)
            (void)pthread_cond_wait(&s->finished, &s->lock);
        (void)pthread_mutex_unlock(&s->lock);
        s->times[i] = (double)(timer_now_ns() - begin_ns) / 1e9;
    }
}

static void follow(struct stepping *s)
{
    (void)pthread_mutex_lock(&s->lock);
    for (int i = 0; i < ROUNDS; i++) {
        while (s->round == i)
            (void)pthread_cond_wait(&s->started, &s->lock);
        if (++s->n_done == s->n_workers)
            (void)pthread_cond_signal(&s->finished);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

static void take_part_in_steps(int number, void *user)
{
    struct stepping *s = user;
    if (number == 0) {
        lead(s);
        return;
    }
    bind_to(s->options, number - 1);
    follow(s);
}

enum status machine_measure_step(const struct machine_measure_options *o, double *seconds)
{
    struct stepping s = {.options = o,
                         .n_workers = int_max(o->workers, 1),
                         .lock = PTHREAD_MUTEX_INITIALIZER,
                         .started = PTHREAD_COND_INITIALIZER,
                         .finished = PTHREAD_COND_INITIALIZER};
    TRY(machine_run_threads(s.n_workers + 1, take_part_in_steps, &s));
    *seconds = numbers_median(s.times, ROUNDS);
    return STATUS_OK;
}

/* ---- memory ---- */

struct copying {
    const struct machine_measure_options *options;
    int threads; /* of each worker */
    pthread_barrier_t together;
    double *rates; /* by thread */
};

/* Copies between two blocks larger than the caches, as often as all other threads. */
static void copy(int number, void *user)
{
    struct copying *c = user;
    bind_to(c->options, number / c->threads);
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    if (from && to) {
        memset(from, 1, COPY_BYTES);
        memset(to, 2, COPY_BYTES);
    }
    (void)pthread_barrier_wait(&c->together);
    int64_t begin_ns = timer_now_ns();
    for (int i = 0; from && to && i < COPIES; i++) {
        memcpy(to, from, COPY_BYTES);
        from[i] = to[COPY_BYTES - 1 - i]; /* or a compiler might omit copies */
    }
    double seconds = (double)(timer_now_ns() - begin_ns + 1) / 1e9;
    c->rates[number] = from && to ? 2.0 * COPIES * COPY_BYTES / seconds : 0;
    free(from);
    free(to);
}

enum status machine_measure_memory(const struct machine_measure_options *o, double *bytes_per_s)
{
    int workers = int_max(o->workers, 1);
    struct copying c = {.options = o, .threads = int_max(o->threads, 1)};
    int n = workers * c.threads;
    c.rates = calloc((size_t)n, sizeof *c.rates);
    if (!c.rates)
        return status_no_memory((size_t)n * sizeof *c.rates);
    (void)pthread_barrier_init(&c.together, NULL, (unsigned)n);
    enum status st = machine_run_threads(n, copy, &c);
    (void)pthread_barrier_destroy(&c.together);
    *bytes_per_s = 0;
    for (int i = 0; i < n; i++)
        *bytes_per_s += c.rates[i] / workers;
    free(c.rates);
    if (st == STATUS_OK && !(*bytes_per_s > 0))
        return status_no_memory(2 * (size_t)n * COPY_BYTES);
    return st;
}
