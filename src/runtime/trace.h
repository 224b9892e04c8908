/* trace.h: when each instruction of the last training steps ran, as a file for a timeline viewer
 * (the Chrome trace format; ui.perfetto.dev opens it).
 *
 * program/timeline.h describes its content; it writes predicted ones, too (`cleave predict
 * --trace`), and can put the two into one file.
 *
 *     struct crew_options o = {.trace_steps = TRACE_STEPS, ...};
 *     ...
 *     TRY(trace_write(c, "run.trace.json", false));
 */
#ifndef CLEAVE_RUNTIME_TRACE_H
#define CLEAVE_RUNTIME_TRACE_H

#include "runtime/crew.h"

/* The last steps that are kept, and the most instructions of a worker. */
enum { TRACE_STEPS = 20, TRACE_INSTRUCTIONS = 20000 };

/* All processes take part; the root writes. Clocks of several hosts agree only to the time of a
 * message. `aside`: a file that cannot be written is a warning, and no failure. */
enum status trace_write(crew *c, const char *path, bool aside) MUST_USE;

#endif
