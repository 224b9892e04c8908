/* thread_team.h: a few threads that do the same work at the same time, again and again: the workers
 * of one process, step by step.
 *
 * The calling thread is member 0, so that no thread sleeps through a step only to start the next
 * one. The others spin for the next call for a moment before they sleep, where each has a core.
 *
 *     thread_team *g;
 *     TRY(thread_team_create(4, &g));
 *     TRY(thread_team_run(g, work, user));        // work(0, user) here, work(1 .. 3, user) on
 * threads thread_team_destroy(g);
 */
#ifndef CLEAVE_RUNTIME_THREAD_TEAM_H
#define CLEAVE_RUNTIME_THREAD_TEAM_H

#include "base/status.h"

typedef struct thread_team thread_team;
typedef enum status thread_team_work(int number, void *user);

enum status thread_team_create(int n,
                               thread_team **out) MUST_USE; /* n > 0; one member needs no thread */
void thread_team_destroy(thread_team *g);                   /* NULL is fine */

/* Returns when all are done: the failure of the first member that failed for a reason of its own,
 * and not because it lost another. Always from the same thread. The cores
 * to which a member binds itself (pin.h) are its own in later calls, too; outside of calls the
 * calling thread is as it was. */
enum status thread_team_run(thread_team *g, thread_team_work *work, void *user) MUST_USE;

#endif
