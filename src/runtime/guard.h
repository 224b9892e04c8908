/* guard.h: a process that reports the loss of its worker.
 *
 * A worker that the kernel kills (out of memory, most often) cannot report it, and mpirun then
 * returns 137 without naming the worker. So the process that the launcher started forks: the child
 * is the worker, and the parent, which needs next to no memory and is therefore spared by the
 * out-of-memory killer, waits for it, reports its end, and returns STATUS_LOST.
 *
 *     launcher (mpirun, srun)
 *        guard of worker 2        passes signals on; its exit status is the worker's
 *           worker 2              ends with its guard
 */
#ifndef CLEAVE_RUNTIME_GUARD_H
#define CLEAVE_RUNTIME_GUARD_H

#include "base/status.h"

/* Under mpirun or srun returns true in a new process, which is the worker, while the old one
 * becomes its guard and never returns. Else returns false; also where no process can be made, with
 * a warning. To be called while there is one thread, before MPI is touched and anything was
 * printed. */
bool guard_start(void) MUST_USE;

#endif
