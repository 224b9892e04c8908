#include "comm/eventcount.h"

#include "base/numbers.h"
#include "base/thread.h"
#include "base/timer.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MIN_SPIN_NS = 10000, /* about the time of sleeping and waking: less would save nothing */
    RELAX_ROUNDS = 16,   /* between two looks at the clock */
    KEEP_NS = 50000,     /* after this, a spinning waiter yields its core to other threads */
};

_Static_assert(sizeof(atomic_uint) == 4 && ATOMIC_INT_LOCK_FREE == 2, "the kernel's futex");

static long futex(struct eventcount *e, int operation, unsigned value, const struct timespec *until)
{
    return syscall(SYS_futex, (void *)&e->signals,
                   e->shared ? operation : operation | FUTEX_PRIVATE_FLAG, value, until, NULL,
                   FUTEX_BITSET_MATCH_ANY);
}

void eventcount_init(struct eventcount *e, bool shared)
{
    atomic_init(&e->signals, 0);
    atomic_init(&e->asleep, false);
    e->shared = shared;
}

void eventcount_signal(struct eventcount *e)
{
    /* Sequentially consistent on both sides: either the waiter sees the new count before it sleeps,
     * or this sees that it sleeps. */
    atomic_fetch_add(&e->signals, 1);
    if (atomic_load(&e->asleep))
        (void)futex(e, FUTEX_WAKE, 1, NULL);
}

static bool is_signalled(struct eventcount *e, const struct eventcount_waiter *w)
{
    return atomic_load(&e->signals) != w->seen;
}

static bool spin(struct eventcount *e, const struct eventcount_waiter *w, int64_t start_ns,
                 int64_t until_ns)
{
    while (!is_signalled(e, w)) {
        int64_t now_ns = timer_now_ns();
        if (now_ns >= until_ns)
            return false;
        if (w->yields || now_ns - start_ns > KEEP_NS) {
            (void)sched_yield();
            continue;
        }
        for (int i = 0; i < RELAX_ROUNDS; i++)
            thread_relax();
    }
    return true;
}

/* The kernel sleeps only if the count is still the one seen. The bitset form of the call takes an
 * instant of the monotonic clock. */
static void sleep_until(struct eventcount *e, const struct eventcount_waiter *w, int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    atomic_store(&e->asleep, true);
    while (!is_signalled(e, w)) {
        if (futex(e, FUTEX_WAIT_BITSET, w->seen, &until) != 0 && errno != EINTR && errno != EAGAIN)
            break; /* the time is up */
    }
    atomic_store(&e->asleep, false);
}

void eventcount_wait(struct eventcount *e, struct eventcount_waiter *w, double seconds)
{
    if (!is_signalled(e, w) && seconds > 0) {
        int64_t start_ns = timer_now_ns(), until_ns = start_ns + (int64_t)(seconds * 1e9);
        int64_t spin_end_ns = start_ns + (w->max_spin_ns > 0 ? w->spin_ns : 0);
        if (spin_end_ns >= until_ns)
            (void)spin(e, w, start_ns, until_ns);
        else if (!spin(e, w, start_ns, spin_end_ns))
            sleep_until(e, w, until_ns);
        /* Spinning pays if signals come sooner than sleeping and waking takes. */
        if (w->max_spin_ns > 0 && timer_now_ns() - start_ns <= w->max_spin_ns)
            w->spin_ns = int64_min(w->spin_ns * 2, w->max_spin_ns);
        else if (w->max_spin_ns > 0)
            w->spin_ns = int64_max(w->spin_ns / 2, MIN_SPIN_NS);
    }
    w->seen = atomic_load(&e->signals);
}
