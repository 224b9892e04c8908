/* pin.h: which cores a worker's threads run on.
 *
 * Workers that share the same cores (those of one process, or processes that mpirun bound alike or
 * not at all) divide them: place p of n with T threads gets the p-th T of them. A thread binds
 * itself before it opens its device, so that the device's threads inherit.
 *
 *     int cores = pin_count_cores();
 *     if (n_workers > 1 && !pin_thread(worker, n_workers, threads))
 *         ...                                     // more threads than cores, or not supported
 */
#ifndef CLEAVE_RUNTIME_PIN_H
#define CLEAVE_RUNTIME_PIN_H

#include "base/status.h"

#include <stdint.h>

/* Processing units that this process may use; at least 1. */
int pin_count_cores(void);

/* The same number for two processes that run on the same host and may use the same cores. */
uint64_t pin_identify_cores(void);

/* Binds the calling thread; false if there are fewer than n_places * threads cores, or the system
 * does not do it: then the thread stays where it is. Whole cores are given out where there are
 * enough of them, else hardware threads. */
bool pin_thread(int place, int n_places, int threads);

/* Where the calling thread may run, and back there. */
struct pin_mask {
    _Alignas(8) unsigned char cpus[1024]; /* a cpu_set_t, for up to 8192 of them */
    bool is_known;
};
void pin_remember(struct pin_mask *mask);
void pin_restore(const struct pin_mask *mask);

#endif
