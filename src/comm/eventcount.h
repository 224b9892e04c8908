/* eventcount.h: how one thread sleeps until another has something for it.
 *
 * An eventcount counts its signals. Its one waiter remembers how many it has seen; it looks for
 * work after every wait, so a signal that comes while it looks makes the next wait return at once:
 * none is lost. Signalling while the waiter is awake is one atomic addition. There is no lock: a
 * process that is stopped while it signals, or waits, stops nobody else.
 *
 *     eventcount_signal(&event);                   // any thread
 *     eventcount_wait(&event, &waiter, 0.001);     // the waiter: spins, then sleeps
 */
#ifndef CLEAVE_COMM_EVENTCOUNT_H
#define CLEAVE_COMM_EVENTCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct eventcount {
    _Alignas(64) atomic_uint signals; /* a futex */
    atomic_bool asleep;
    bool shared;
};

/* The waiter's side. */
struct eventcount_waiter {
    unsigned seen;
    int64_t spin_ns;     /* how long it spins now: adapts to how soon signals come */
    int64_t max_spin_ns; /* 0: never spins, for more waiters than cores */
    bool yields;         /* gives the core away from the start, and not only after a moment */
};

/* shared: it lies in memory that several processes map. */
void eventcount_init(struct eventcount *e, bool shared);

void eventcount_signal(struct eventcount *e);

/* Returns after a signal, or after `seconds`. */
void eventcount_wait(struct eventcount *e, struct eventcount_waiter *waiter, double seconds);

#endif
