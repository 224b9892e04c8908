/* measure_host.h: measures waking, starting and copying on this host. For src/machine alone. */
#ifndef CLEAVE_MACHINE_MEASURE_HOST_H
#define CLEAVE_MACHINE_MEASURE_HOST_H

#include "machine/machine_measure.h"

/* wake_s: from one thread's signal until another, which slept for about slept_s, runs, each on its
 * worker's cores. ring_s: the signalling thread's own time. */
enum status machine_measure_wake(const struct machine_measure_options *o, double slept_s,
                                 double *wake_s, double *ring_s) MUST_USE;

/* Starting and joining the workers' threads, which do nothing in between.
 */
enum status machine_measure_step(const struct machine_measure_options *o, double *seconds) MUST_USE;

/* Bytes that one worker's threads read and write in a second, while all workers copy. */
enum status machine_measure_memory(const struct machine_measure_options *o,
                                   double *bytes_per_s) MUST_USE;

/* Runs work(0, user) .. work(n - 1, user) at the same time, each on a thread of its own, and waits
 * for all. If a thread cannot be created, none of them runs. */
typedef void machine_work(int number, void *user);
enum status machine_run_threads(int n, machine_work *work, void *user) MUST_USE;

#endif
