/* gang.h: a few threads that do the same work at the same time, again and again: the workers of one
 * process, step by step.
 *
 * The calling thread is member 0, so that no thread sleeps through a step only to start the next
 * one. The others spin for the next call for a moment before they sleep, where each has a core.
 *
 *     gang *g;
 *     TRY(gang_create(4, &g));
 *     TRY(gang_do(g, work, user));        // work(0, user) here, work(1 .. 3, user) on threads
 *     gang_destroy(g);
 */
#ifndef CLEAVE_RUNTIME_GANG_H
#define CLEAVE_RUNTIME_GANG_H

#include "base/status.h"

typedef struct gang gang;
typedef enum status gang_work(int number, void *user);

enum status gang_create(int n, gang **out) MUST_USE; /* n > 0; one member needs no thread */
void gang_destroy(gang *g);                          /* NULL is fine */

/* Returns when all are done: the failure of the first member that failed for a reason of its own,
 * and not because it lost another. Always from the same thread. The cores
 * to which a member binds itself (pin.h) are its own in later calls, too; outside of calls the
 * calling thread is as it was. */
enum status gang_do(gang *g, gang_work *work, void *user) MUST_USE;

#endif
