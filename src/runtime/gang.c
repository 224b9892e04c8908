#include "runtime/gang.h"

#include "comm/bell.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const int64_t longest_spin_ns = 200000; /* about what lies between two steps */
static const double longest_sleep_s = 10;      /* any: who wakes up for nothing sleeps on */

struct member {
    struct bell bell;
    struct bell_ear ear;
    gang *gang;
    int number;
    pthread_t thread;
    bool has_bell, has_thread;
};

struct gang {
    int n;
    struct member *members; /* member 0 is the caller: its bell says that all have answered */
    gang_work *work;
    void *user;
    atomic_uint call; /* counts works; a member that has not seen it yet does it */
    atomic_int n_answers;
    atomic_bool quit;
};

static void *serve(void *user)
{
    struct member *m = user;
    gang *g = m->gang;
    unsigned seen = 0;
    while (!atomic_load(&g->quit)) {
        if (atomic_load(&g->call) == seen) {
            bell_wait(&m->bell, &m->ear, longest_sleep_s);
            continue;
        }
        seen++;
        g->work(m->number, g->user);
        if (atomic_fetch_add(&g->n_answers, 1) + 2 == g->n)
            bell_ring(&g->members[0].bell);
    }
    return NULL;
}

void gang_do(gang *g, gang_work *work, void *user)
{
    struct member *own = &g->members[0];
    g->work = work;
    g->user = user;
    atomic_store(&g->n_answers, 0);
    atomic_fetch_add(&g->call, 1);
    for (int i = 1; i < g->n; i++)
        bell_ring(&g->members[i].bell);
    work(0, user);
    while (atomic_load(&g->n_answers) < g->n - 1)
        bell_wait(&own->bell, &own->ear, longest_sleep_s);
}

static enum status start_member(gang *g, int number, bool spins)
{
    struct member *m = &g->members[number];
    m->gang = g;
    m->number = number;
    if (spins)
        m->ear = (struct bell_ear){.spin_ns = longest_spin_ns, .max_spin_ns = longest_spin_ns};
    TRY(bell_init(&m->bell, false));
    m->has_bell = true;
    int error = number > 0 ? pthread_create(&m->thread, NULL, serve, m) : 0;
    if (error)
        return status_fail(STATUS_FAILED, "cannot start a thread: %s", strerror(error));
    m->has_thread = number > 0;
    return STATUS_OK;
}

/* Signals are for the thread that called. */
static enum status start_all(gang *g)
{
    sigset_t all, before;
    enum status st = STATUS_OK;
    bool spins = g->n <= bell_cores();
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < g->n && st == STATUS_OK; i++)
        st = start_member(g, i, spins);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

enum status gang_create(int n, gang **out)
{
    gang *g = calloc(1, sizeof *g);
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
    enum status st = start_all(g);
    if (st != STATUS_OK) {
        gang_destroy(g);
        return st;
    }
    *out = g;
    return STATUS_OK;
}

void gang_destroy(gang *g)
{
    if (!g)
        return;
    atomic_store(&g->quit, true);
    for (int i = 1; i < g->n; i++) {
        if (!g->members[i].has_thread)
            continue;
        bell_ring(&g->members[i].bell);
        (void)pthread_join(g->members[i].thread, NULL);
    }
    for (int i = 0; i < g->n; i++)
        if (g->members[i].has_bell)
            bell_deinit(&g->members[i].bell);
    free(g->members);
    free(g);
}
