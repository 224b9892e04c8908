/* lock_file.h: one process at a time, by a lock of the kernel on a file: it goes with the process,
 * however that ends, so that a file left by a killed process locks nothing.
 *
 *     lock_file *lock;
 *     char holder[LOCK_HOLDER_BYTES];
 *     TRY(lock_file_take("runs/a.lock", holder, &lock));
 *     if (!lock)
 *         ... // `holder` has it: "process 4711 on node3", or "another process"
 *     lock_file_release(lock);                              // removes the file
 */
#ifndef CLEAVE_BASE_LOCK_FILE_H
#define CLEAVE_BASE_LOCK_FILE_H

#include "base/status.h"

enum { LOCK_HOLDER_BYTES = 96 };

typedef struct lock_file lock_file;

/* *out is NULL where another has it. Where the file system has no locks, everybody gets it.
 * STATUS_FAILED if the file cannot be made. */
enum status lock_file_take(const char *path, char holder[LOCK_HOLDER_BYTES],
                           lock_file **out) MUST_USE;
void lock_file_release(lock_file *l); /* NULL is fine */

#endif
