#include "comm/bell.h"

#include "base/thread.h"
#include "base/timer.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MIN_SPIN_NS = 10000, /* about what sleeping and waking takes: less would save nothing */
    RELAX_ROUNDS = 16,   /* between two looks at the clock */
    KEEP_NS = 50000,     /* then who else wants the core may have it while this spins on */
};

_Static_assert(sizeof(atomic_uint) == 4 && ATOMIC_INT_LOCK_FREE == 2, "the kernel's futex");

static long futex(struct bell *bell, int operation, unsigned value, const struct timespec *until)
{
    return syscall(SYS_futex, (void *)&bell->rings,
                   bell->shared ? operation : operation | FUTEX_PRIVATE_FLAG, value, until, NULL,
                   FUTEX_BITSET_MATCH_ANY);
}

enum status bell_init(struct bell *bell, bool shared)
{
    atomic_init(&bell->rings, 0);
    atomic_init(&bell->asleep, false);
    bell->shared = shared;
    return STATUS_OK;
}

void bell_deinit(struct bell *bell)
{
    (void)bell;
}

void bell_ring(struct bell *bell)
{
    /* Sequentially consistent on both sides: either the listener sees the new count before it
     * sleeps, or this sees that it sleeps. */
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->asleep))
        (void)futex(bell, FUTEX_WAKE, 1, NULL);
}

bool bell_rang(struct bell *bell, const struct bell_ear *ear)
{
    return atomic_load(&bell->rings) != ear->heard;
}

static bool spin(struct bell *bell, const struct bell_ear *ear, int64_t start_ns, int64_t until_ns)
{
    while (!bell_rang(bell, ear)) {
        int64_t now_ns = timer_now_ns();
        if (now_ns >= until_ns)
            return false;
        if (ear->yields || now_ns - start_ns > KEEP_NS) {
            (void)sched_yield();
            continue;
        }
        for (int i = 0; i < RELAX_ROUNDS; i++)
            thread_relax();
    }
    return true;
}

/* The kernel sleeps only if the count is still what was heard. The time is that of the monotonic
 * clock, an instant of which the bitset's form of the call takes. */
static void sleep_until(struct bell *bell, const struct bell_ear *ear, int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    atomic_store(&bell->asleep, true);
    while (!bell_rang(bell, ear)) {
        if (futex(bell, FUTEX_WAIT_BITSET, ear->heard, &until) != 0 && errno != EINTR &&
            errno != EAGAIN)
            break; /* the time is up */
    }
    atomic_store(&bell->asleep, false);
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
        int64_t spin_end_ns = start_ns + (ear->max_spin_ns > 0 ? ear->spin_ns : 0);
        if (spin_end_ns >= until_ns)
            (void)spin(bell, ear, start_ns, until_ns);
        else if (!spin(bell, ear, start_ns, spin_end_ns))
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
