/* thread.h: conditions, and hints to the kernel and to the core about a thread. */
#ifndef CLEAVE_BASE_THREAD_H
#define CLEAVE_BASE_THREAD_H

#include <pthread.h>

/* One that waits until a time of timer_after: a clock that somebody sets lengthens no wait. */
void thread_init_condition(pthread_cond_t *condition);

/* Lets the calling thread preempt others when it wakes up. For threads that communicate on cores
 * that compute: each run is short, and other workers wait for it. Linux 6.12 and later; elsewhere
 * nothing happens. */
void thread_be_prompt(void);

/* For one round of a loop that spins. */
static inline void thread_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
