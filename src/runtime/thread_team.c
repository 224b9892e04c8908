#include "runtime/thread_team.h"

#include "comm/comm.h"
#include "comm/eventcount.h"
#include "runtime/pin.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const int64_t longest_spin_ns = 200000; /* about the time between two steps */
static const double longest_sleep_s = 10;      /* any: a thread woken for nothing sleeps on */

struct member {
    struct eventcount event; /* a call; of member 0, the caller: that all others are done */
    struct eventcount_waiter waiter;
    thread_team *thread_team;
    int number;
    pthread_t thread;
    bool has_thread;
    struct status_error error; /* of its last work */
};

struct thread_team {
    int n;
    struct member *members;
    thread_team_work *work;
    void *user;
    atomic_uint call; /* counts calls; a member that has not seen the last one yet does its work */
    atomic_int n_done;
    atomic_bool quit;
    struct pin_mask own; /* where member 0 runs, since its first work has bound it */
};

static void keep_error(struct member *m, enum status st)
{
    m->error.status = STATUS_OK;
    if (st != STATUS_OK)
        status_take(st, &m->error);
}

static void *serve(void *user)
{
    struct member *m = user;
    thread_team *g = m->thread_team;
    unsigned seen = 0;
    while (!atomic_load(&g->quit)) {
        if (atomic_load(&g->call) == seen) {
            eventcount_wait(&m->event, &m->waiter, longest_sleep_s);
            continue;
        }
        seen++;
        keep_error(m, g->work(m->number, g->user));
        if (atomic_fetch_add(&g->n_done, 1) + 2 == g->n)
            eventcount_signal(&g->members[0].event);
    }
    return NULL;
}

/* The first that failed for a reason of its own; else the first. */
static enum status find_cause(const thread_team *g)
{
    const struct status_error *cause = NULL;
    for (int i = 0; i < g->n; i++) {
        const struct status_error *e = &g->members[i].error;
        if (e->status != STATUS_OK &&
            (!cause || (cause->status == STATUS_LOST && e->status != STATUS_LOST)))
            cause = e;
    }
    return cause ? status_give(cause) : STATUS_OK;
}

enum status thread_team_run(thread_team *g, thread_team_work *work, void *user)
{
    if (g->n == 1)
        return work(0, user);
    struct member *own = &g->members[0];
    struct pin_mask before;
    pin_remember(&before);
    pin_restore(&g->own);
    g->work = work;
    g->user = user;
    atomic_store(&g->n_done, 0);
    atomic_fetch_add(&g->call, 1);
    for (int i = 1; i < g->n; i++)
        eventcount_signal(&g->members[i].event);
    keep_error(own, work(0, user));
    while (atomic_load(&g->n_done) < g->n - 1)
        eventcount_wait(&own->event, &own->waiter, longest_sleep_s);
    if (!g->own.is_known)
        pin_remember(&g->own);
    pin_restore(&before);
    return find_cause(g);
}

/* Signals of the system are for the thread that called, so the new threads block them all. */
static enum status start_threads(thread_team *g)
{
    sigset_t all, before;
    int error = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < g->n && !error; i++) {
        error = pthread_create(&g->members[i].thread, NULL, serve, &g->members[i]);
        g->members[i].has_thread = !error;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? status_fail(STATUS_FAILED, "cannot start a thread: %s", strerror(error))
                 : STATUS_OK;
}

enum status thread_team_create(int n, thread_team **out)
{
    thread_team *g = calloc(1, sizeof *g);
    size_t n_bytes = (size_t)n * sizeof *g->members;
    struct member *members = aligned_alloc(_Alignof(struct member), n_bytes);
    if (!g || !members) {
        free(g);
        free(members);
        return status_no_memory(n_bytes);
    }
    memset(members, 0, n_bytes);
    g->n = n;
    g->members = members;
    int64_t spin_ns = n <= comm_count_cores() ? longest_spin_ns : 0;
    for (int i = 0; i < n; i++) {
        members[i].thread_team = g;
        members[i].number = i;
        members[i].waiter = (struct eventcount_waiter){.spin_ns = spin_ns, .max_spin_ns = spin_ns};
        eventcount_init(&members[i].event, false);
    }
    enum status st = start_threads(g);
    if (st != STATUS_OK) {
        thread_team_destroy(g);
        return st;
    }
    *out = g;
    return STATUS_OK;
}

void thread_team_destroy(thread_team *g)
{
    if (!g)
        return;
    atomic_store(&g->quit, true);
    for (int i = 1; i < g->n && g->members[i].has_thread; i++) {
        eventcount_signal(&g->members[i].event);
        (void)pthread_join(g->members[i].thread, NULL);
    }
    free(g->members);
    free(g);
}
