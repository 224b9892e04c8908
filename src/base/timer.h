/* timer.h: time in nanoseconds: monotonic, and of this thread on its core. */
#ifndef CLEAVE_BASE_TIMER_H
#define CLEAVE_BASE_TIMER_H

#include <stdint.h>
#include <time.h>

static inline int64_t timer_read_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t timer_now_ns(void)
{
    return timer_read_ns(CLOCK_MONOTONIC);
}

/* A deadline for pthread_cond_timedwait on a condition of thread_init_condition. */
static inline struct timespec timer_after(double seconds)
{
    int64_t t_ns = timer_now_ns() + (int64_t)(seconds * 1e9);
    return (struct timespec){t_ns / 1000000000, t_ns % 1000000000};
}

/* CPU time of this thread so far. */
static inline int64_t timer_thread_ns(void)
{
    return timer_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

#endif
