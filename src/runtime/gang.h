/* gang.h: a few threads that do the same at the same time, again and again: the workers of one
 * process, step by step.
 *
 * The calling thread is member 0, so that nobody sleeps through a step only to start the next one;
 * the others look out for the next call for a moment before they sleep, where each has a core.
 *
 *     gang *g;
 *     TRY(gang_create(4, &g));
 *     gang_do(g, work, user);             // work(0, user) here, work(1 .. 3, user) on threads
 *     gang_destroy(g);
 */
#ifndef CLEAVE_RUNTIME_GANG_H
#define CLEAVE_RUNTIME_GANG_H

#include "base/status.h"

typedef struct gang gang;
typedef void gang_work(int number, void *user);

enum status gang_create(int n, gang **out) MUST_USE;
void gang_destroy(gang *g); /* NULL is fine */

/* Returns when all are done. Always from the same thread. */
void gang_do(gang *g, gang_work *work, void *user);

#endif
