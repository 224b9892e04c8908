/* bell.h: how one thread sleeps until another has something for it.
 *
 * A bell counts its rings. Its one listener remembers how many it has heard; it looks for work
 * after every wait, so a ring that comes while it looks makes the next wait return at once: none is
 * lost. Ringing a bell whose listener is awake is one atomic addition. There is no lock: a process
 * that is stopped while it rings, or listens, stops nobody else.
 *
 *     bell_ring(&bell);                        // any thread
 *     bell_wait(&bell, &ear, 0.001);           // the listener: spins, then sleeps
 */
#ifndef CLEAVE_COMM_BELL_H
#define CLEAVE_COMM_BELL_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>

struct bell {
    _Alignas(64) atomic_uint rings; /* a futex */
    atomic_bool asleep;
    bool shared;
};

/* The listener's side. */
struct bell_ear {
    unsigned heard;
    int64_t spin_ns;     /* how long it spins now: adapts to how soon rings come */
    int64_t max_spin_ns; /* 0: never spins, for more listeners than cores */
    bool yields;         /* gives the core away from the start, and not only after a moment */
};

/* shared: the bell lies in memory that several processes map. */
enum status bell_init(struct bell *bell, bool shared) MUST_USE;
void bell_deinit(struct bell *bell);

void bell_ring(struct bell *bell);

/* Whether the bell rang since the last wait, without waiting. */
bool bell_rang(struct bell *bell, const struct bell_ear *ear);

/* Returns after a ring, or after `seconds`. */
void bell_wait(struct bell *bell, struct bell_ear *ear, double seconds);

/* Cores that this process may run on. */
int bell_cores(void);

#endif
