/* parallel.h: the same work on several items, on all cores that there are.
 *
 *     static enum status lower(void *user, int item, int thread) ...
 *     int threads = parallel_threads(n);            // also how many rooms of their own are needed
 *     TRY(parallel_run(n, threads, lower, &set));
 *
 * Items are taken in order by whoever is free. Who needs memory of its own while it works has it by
 * `thread`, from 0 to threads - 1; 0 is the caller.
 */
#ifndef CLEAVE_BASE_PARALLEL_H
#define CLEAVE_BASE_PARALLEL_H

#include "base/status.h"

typedef enum status parallel_task(void *user, int item, int thread);

/* As many as have a core, and not more than there are items. Within a task of parallel_run: as many
 * as are the task's, when its siblings have as many each. */
int parallel_threads(int n_items);

/* The task of every item from 0 to n_items - 1. After a failure no more are begun; the error of the
 * lowest item that failed is the one that is returned. Where no thread can be started the others do
 * its work. */
enum status parallel_run(int n_items, int n_threads, parallel_task *task, void *user) MUST_USE;

#endif
