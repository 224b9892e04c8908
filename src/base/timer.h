/* timer.h: monotonic time in nanoseconds. */
#ifndef CLEAVE_BASE_TIMER_H
#define CLEAVE_BASE_TIMER_H

#include <stdint.h>
#include <time.h>

static inline int64_t timer_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
