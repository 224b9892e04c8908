/* tensorboard.h: event files that TensorBoard shows: scalars over the steps of a training.
 *
 *     tensorboard *t;
 *     TRY(tensorboard_open("logs/a", -1, &t));
 *     const struct tensorboard_scalar loss = {"train/loss", 0.5};
 *     TRY(tensorboard_write(t, 1, &loss, 1));       // of step 1
 *     TRY(tensorboard_close(t));
 *
 * A file is a row of records, each with checksums (TFRecord); a record is an Event, a message of
 * Protocol Buffers. Both are written here by hand: of the format no more than four small messages
 * are needed. Each record is handed to the system at once, so that a run that is killed leaves all
 * steps up to then, and at worst half a record at the end.
 */
#ifndef CLEAVE_REPORT_TENSORBOARD_H
#define CLEAVE_REPORT_TENSORBOARD_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tensorboard tensorboard;

struct tensorboard_scalar {
    const char *tag; /* "train/loss": the part before the slash groups them */
    double value;
};

/* A new file in a directory that has none yet. With `resumed_after` >= 0 the run goes on after that
 * step: the newest file that is there is cut behind its last whole record and written on, and
 * TensorBoard is told to forget later steps; none there is fine.
 * STATUS_FAILED for a file that cannot be written; STATUS_USAGE for a directory with events of
 * another run, or one whose file is no event file. */
enum status tensorboard_open(const char *directory, int64_t resumed_after,
                             tensorboard **out) MUST_USE;
/* NULL is fine. STATUS_FAILED if the last bytes could not be written. */
enum status tensorboard_close(tensorboard *t) MUST_USE;

/* Values of one step, as one record. */
enum status tensorboard_write(tensorboard *t, int64_t step, const struct tensorboard_scalar *values,
                              int n) MUST_USE;

/* CRC-32C (Castagnoli), as RFC 3720 has it. */
uint32_t tensorboard_crc32c(const void *bytes, size_t n);

#endif
