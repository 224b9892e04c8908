/* parallel.h: runs a function on many items, on all cores.
 *
 *     static enum status lower(void *user, int item, int thread) ...
 *     int threads = parallel_threads(n);            // also the number of private buffers needed
 *     TRY(parallel_run(n, threads, lower, &set));
 *
 * A free thread takes the next item, in order. Work that needs private memory indexes it by
 * `thread`, from 0 to threads - 1; 0 is the caller.
 */
#ifndef CLEAVE_BASE_PARALLEL_H
#define CLEAVE_BASE_PARALLEL_H

#include "base/status.h"

typedef enum status parallel_task(void *user, int item, int thread);

/* The number of threads that parallel_run would use: one for each core, at most one for each item.
 * Inside a task of parallel_run, the task's even share of the cores. */
int parallel_threads(int n_items);

/* Runs the task for every item from 0 to n_items - 1. After a failure no further item begins; the
 * error of the lowest failed item is returned. If a thread cannot be started, the others do its
 * work. */
enum status parallel_run(int n_items, int n_threads, parallel_task *task, void *user) MUST_USE;

#endif
