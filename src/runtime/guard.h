/* guard.h: a process that reports the loss of its worker.
 *
 * A worker that the kernel kills (out of memory, most often) cannot report it, and mpirun then
 * returns 137 without naming the worker. So the process that the launcher started forks: the child
 * is the worker, and the parent, which needs next to no memory and is therefore spared by the
 * out-of-memory killer, waits for it, reports its end, and returns STATUS_LOST.
 *
 *     launcher (mpirun, srun)
 *        guard of worker 2        passes signals on; its exit status is the worker's
 *           worker 2              ends with its guard, and wakes it at its end if it was stopped
 *
 * A guard that is killed by SIGKILL takes its worker with it, and the launcher's exit code is then
 * 137: nothing is left that could make another one of it. Other signals that would kill the guard
 * make it end its worker and return STATUS_LOST. A worker that is stopped (SIGSTOP) for longer than
 * the deadline is ended by its guard, with STATUS_TIMEOUT.
 */
#ifndef CLEAVE_RUNTIME_GUARD_H
#define CLEAVE_RUNTIME_GUARD_H

#include "base/status.h"

/* Under mpirun or srun returns true in a new process, which is the worker, while the old one
 * becomes its guard and never returns. Else returns false; also where no process can be made, with
 * a warning. To be called while there is one thread, before MPI is touched and anything was
 * printed. timeout_s: how long a worker may be stopped. */
bool guard_start(double timeout_s) MUST_USE;

/* Ends this process from any of its threads, guarded or not: for a worker that hangs, where nothing
 * can be put in order any more. */
_Noreturn void guard_end_worker(int code);

#endif
