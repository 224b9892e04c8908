#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLICE_NS = 100000 }; /* the shortest that Linux allows */

/* What sched_setattr takes, in its first form. */
struct sched_request {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

void thread_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

/* The thread with the shorter time slice runs first. */
void thread_be_prompt(void)
{
#ifdef SYS_sched_setattr
    struct sched_request r = {.size = sizeof r, .policy = SCHED_OTHER, .runtime_ns = SLICE_NS};
    errno = 0;
    r.nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    if (errno == 0)
        (void)syscall(SYS_sched_setattr, 0, &r, 0);
#endif
}
