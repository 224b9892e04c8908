#include "comm/bell.h"

#include "base/timer.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum {
    MIN_SPIN_NS = 10000, /* about what sleeping and waking takes: less would save nothing */
    RELAX_ROUNDS = 16,   /* between two looks at the clock */
};

static int init_mutex(pthread_mutex_t *mutex, bool shared)
{
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);
    if (error)
        return error;
    if (shared) {
        error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        if (!error)
            error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    }
    if (!error)
        error = pthread_mutex_init(mutex, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
    return error;
}

static int init_cond(pthread_cond_t *cond, bool shared)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error)
        return error;
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!error && shared)
        error = pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (!error)
        error = pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return error;
}

enum status bell_init(struct bell *bell, bool shared)
{
    atomic_init(&bell->rings, 0);
    atomic_init(&bell->asleep, false);
    int error = init_mutex(&bell->mutex, shared);
    if (error)
        return status_fail(STATUS_FAILED, "cannot create a mutex: %s", strerror(error));
    error = init_cond(&bell->cond, shared);
    if (error) {
        (void)pthread_mutex_destroy(&bell->mutex);
        return status_fail(STATUS_FAILED, "cannot create a condition: %s", strerror(error));
    }
    return STATUS_OK;
}

void bell_deinit(struct bell *bell)
{
    (void)pthread_cond_destroy(&bell->cond);
    (void)pthread_mutex_destroy(&bell->mutex);
}

/* The owner of a robust mutex may have died; there is nothing under it to repair. */
static void lock(struct bell *bell)
{
    if (pthread_mutex_lock(&bell->mutex) == EOWNERDEAD)
        (void)pthread_mutex_consistent(&bell->mutex);
}

void bell_ring(struct bell *bell)
{
    /* Sequentially consistent on both sides: either the listener sees the new count before it
     * sleeps, or this sees that it sleeps. */
    atomic_fetch_add(&bell->rings, 1);
    if (!atomic_load(&bell->asleep))
        return;
    lock(bell);
    (void)pthread_cond_signal(&bell->cond);
    (void)pthread_mutex_unlock(&bell->mutex);
}

bool bell_rang(struct bell *bell, const struct bell_ear *ear)
{
    return atomic_load(&bell->rings) != ear->heard;
}

static bool spin(struct bell *bell, const struct bell_ear *ear, int64_t until_ns)
{
    while (!bell_rang(bell, ear)) {
        if (timer_now_ns() >= until_ns)
            return false;
        if (ear->yields) {
            (void)sched_yield();
            continue;
        }
        for (int i = 0; i < RELAX_ROUNDS; i++)
            bell_relax();
    }
    return true;
}

static void sleep_until(struct bell *bell, const struct bell_ear *ear, int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    lock(bell);
    atomic_store(&bell->asleep, true);
    while (!bell_rang(bell, ear)) {
        int error = pthread_cond_timedwait(&bell->cond, &bell->mutex, &until);
        if (error == EOWNERDEAD)
            (void)pthread_mutex_consistent(&bell->mutex);
        else if (error)
            break; /* the time is up */
    }
    atomic_store(&bell->asleep, false);
    (void)pthread_mutex_unlock(&bell->mutex);
}

/* Spinning pays if rings come sooner than sleeping and waking takes. */
static void adapt(struct bell_ear *ear, int64_t waited_ns)
{
    if (waited_ns <= ear->max_spin_ns)
        ear->spin_ns = ear->spin_ns * 2 < ear->max_spin_ns ? ear->spin_ns * 2 : ear->max_spin_ns;
    else
        ear->spin_ns = ear->spin_ns / 2 > MIN_SPIN_NS ? ear->spin_ns / 2 : MIN_SPIN_NS;
}

void bell_wait(struct bell *bell, struct bell_ear *ear, double seconds)
{
    if (!bell_rang(bell, ear) && seconds > 0) {
        int64_t start_ns = timer_now_ns();
        int64_t until_ns = start_ns + (int64_t)(seconds * 1e9);
        bool rang = false;
        if (ear->max_spin_ns > 0) {
            int64_t spin_end_ns = start_ns + ear->spin_ns;
            rang = spin(bell, ear, spin_end_ns < until_ns ? spin_end_ns : until_ns);
        }
        if (!rang)
            sleep_until(bell, ear, until_ns);
        if (ear->max_spin_ns > 0)
            adapt(ear, timer_now_ns() - start_ns);
    }
    ear->heard = atomic_load(&bell->rings);
}

int bell_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}
