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

/* CPU time of this thread so far. */
static inline int64_t timer_thread_ns(void)
{
    return timer_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

#endif
