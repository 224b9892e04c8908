#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MOST_THREADS = 64 };

/* Cores of this thread's task; 0: it is in no task, and has all. */
static _Thread_local int own_cores;

static int count_cores(void)
{
    cpu_set_t allowed;
    if (own_cores > 0)
        return own_cores;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

static int at_least_one(int n)
{
    return n > 1 ? n : 1;
}

int parallel_threads(int n_items)
{
    int n = count_cores();
    n = n < MOST_THREADS ? n : MOST_THREADS;
    return at_least_one(n < n_items ? n : n_items);
}

struct run {
    int n_items;
    parallel_task *task;
    void *user;
    int cores; /* of each thread */
    atomic_int next;
    atomic_bool failed;
    pthread_mutex_t lock; /* of the two members below */
    int failed_item;
    struct status_error error;
};

struct member {
    struct run *run;
    int number;
    pthread_t thread;
};

static void keep_error(struct run *r, int item, enum status st)
{
    struct status_error error;
    status_take(st, &error);
    pthread_mutex_lock(&r->lock);
    if (!atomic_load(&r->failed) || item < r->failed_item) {
        r->failed_item = item;
        r->error = error;
    }
    atomic_store(&r->failed, true);
    pthread_mutex_unlock(&r->lock);
}

static void *work(void *user)
{
    const struct member *m = user;
    struct run *r = m->run;
    int outer = own_cores;
    own_cores = r->cores;
    for (int i; !atomic_load(&r->failed) && (i = atomic_fetch_add(&r->next, 1)) < r->n_items;) {
        enum status st = r->task(r->user, i, m->number);
        if (st != STATUS_OK)
            keep_error(r, i, st);
    }
    own_cores = outer;
    return NULL;
}

/* Serially; an error is then already the caller's. */
static enum status run_alone(int n_items, parallel_task *task, void *user)
{
    for (int i = 0; i < n_items; i++)
        TRY(task(user, i, 0));
    return STATUS_OK;
}

enum status parallel_run(int n_items, int n_threads, parallel_task *task, void *user)
{
    struct run r = {.n_items = n_items,
                    .task = task,
                    .user = user,
                    .cores = at_least_one(count_cores() / at_least_one(n_threads))};
    struct member members[MOST_THREADS];
    int n = 1;
    if (n_threads <= 1)
        return run_alone(n_items, task, user);
    pthread_mutex_init(&r.lock, NULL);
    for (int i = 0; i < n_threads && i < MOST_THREADS; i++)
        members[i] = (struct member){.run = &r, .number = i};
    while (n < n_threads && n < MOST_THREADS &&
           pthread_create(&members[n].thread, NULL, work, &members[n]) == 0)
        n++;
    (void)work(&members[0]);
    while (--n > 0)
        pthread_join(members[n].thread, NULL);
    pthread_mutex_destroy(&r.lock);
    return atomic_load(&r.failed) ? status_give(&r.error) : STATUS_OK;
}
