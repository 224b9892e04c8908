/* thread.h: what the kernel, or the core, is told about a thread. */
#ifndef CLEAVE_BASE_THREAD_H
#define CLEAVE_BASE_THREAD_H

/* Of the calling thread: when it wakes up, it is not to wait for the end of others' time slices.
 * For threads that communicate on cores that compute: they do little at a time, and others wait for
 * it. Linux 6.12 and later; elsewhere nothing happens. */
void thread_be_prompt(void);

/* For one round of a loop that spins. */
static inline void thread_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
