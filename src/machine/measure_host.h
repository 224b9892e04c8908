/* measure_host.h: what waking, starting and copying take on this host. For src/machine alone. */
#ifndef CLEAVE_MACHINE_MEASURE_HOST_H
#define CLEAVE_MACHINE_MEASURE_HOST_H

#include "machine/measure.h"

/* From one thread's signal to the going on of another, which slept for about so long, each on its
 * own worker's cores; and what signalling takes the first. */
enum status machine_measure_wake(const struct machine_measure_options *o, double slept_s,
                                 double *wake_s, double *ring_s) MUST_USE;

/* From telling the workers' threads to start to hearing that all are done, with nothing in between.
 */
enum status machine_measure_step(const struct machine_measure_options *o, double *seconds) MUST_USE;

/* Bytes that one worker's threads read and write in a second, while all workers copy. */
enum status machine_measure_memory(const struct machine_measure_options *o,
                                   double *bytes_per_s) MUST_USE;

/* Runs work(0, user) .. work(n - 1, user) at the same time, each on a thread of its own, and waits
 * for all. If the system does not give so many threads, none of them runs. */
typedef void machine_work(int number, void *user);
enum status machine_run_threads(int n, machine_work *work, void *user) MUST_USE;

#endif
