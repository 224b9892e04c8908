/* A thread that looks whether the workers of this process come to the end of what they compute. One
 * that waits for others finds out by itself that its time is up; one that hangs inside a library
 * cannot. */
#include "base/numbers.h"
#include "base/thread.h"
#include "base/timer.h"
#include "runtime/crew_parts.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const double longest_look_s = 1;

struct watched {
    unsigned n_moves; /* as of the last look */
    double since_s;   /* how long it has been so */
};

struct crew_watch {
    crew *crew;
    double look_s; /* between two looks */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ends; /* under lock */
    struct watched workers[];
};

/* Until the next look; false: the crew ends. */
static bool sleep_until_look(struct crew_watch *w)
{
    struct timespec until = timer_after(w->look_s);
    int error = 0;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->ends && error == 0)
        error = pthread_cond_timedwait(&w->changed, &w->lock, &until);
    bool goes_on = !w->ends;
    (void)pthread_mutex_unlock(&w->lock);
    return goes_on;
}

static void end_sync(struct crew_watch *w)
{
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
}

static void report(const crew *c, struct crew_worker *worker)
{
    enum status st = executor_refuse_time(worker->executor, c->options.timeout_s);
    if (worker->end)
        worker->end->table->abort(worker->end, st, status_message());
    c->options.on_stuck(st);
}

/* The time between two looks counts no more than it should have been: this process may have been
 * stopped meanwhile. */
static void look(struct crew_watch *w, double passed_s)
{
    crew *c = w->crew;
    for (int i = 0; i < c->info.n_local; i++) {
        struct watched *seen = &w->workers[i];
        unsigned n_moves = executor_count_moves(c->workers[i].executor);
        bool moved = n_moves != seen->n_moves || n_moves % 2 == 0;
        seen->since_s = moved ? 0 : seen->since_s + fmin(passed_s, 2 * w->look_s);
        seen->n_moves = n_moves;
        if (seen->since_s > c->options.timeout_s) {
            seen->since_s = 0;
            report(c, &c->workers[i]);
        }
    }
}

static void *watch(void *user)
{
    struct crew_watch *w = user;
    int64_t before_ns = timer_now_ns();
    while (sleep_until_look(w)) {
        int64_t now_ns = timer_now_ns();
        look(w, (double)(now_ns - before_ns) * 1e-9);
        before_ns = now_ns;
    }
    return NULL;
}

enum status crew_start_watch(crew *c)
{
    sigset_t all, before;
    if (!c->options.on_stuck)
        return STATUS_OK;
    size_t n_bytes = sizeof *c->watch + (size_t)c->info.n_local * sizeof c->watch->workers[0];
    struct crew_watch *w = calloc(1, n_bytes);
    if (!w)
        return status_no_memory(n_bytes);
    w->crew = c;
    w->look_s = fmin(longest_look_s, c->options.timeout_s / 4);
    (void)pthread_mutex_init(&w->lock, NULL);
    thread_init_condition(&w->changed);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&w->thread, NULL, watch, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        end_sync(w);
        free(w);
        return status_fail(STATUS_FAILED, "cannot start a thread: %s", strerror(error));
    }
    c->watch = w;
    return STATUS_OK;
}

void crew_end_watch(crew *c)
{
    struct crew_watch *w = c->watch;
    if (!w)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->ends = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    end_sync(w);
    free(w);
    c->watch = NULL;
}
