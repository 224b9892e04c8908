/* timeline.h: when the instructions of programs ran, or are going to run, as a file for a timeline
 * viewer (the Chrome trace format; ui.perfetto.dev opens it). Measured and predicted traces are
 * written by the same code, so that they can be laid side by side.
 *
 * Every worker is a process of the trace. Its track "compute" has the computing instructions, with
 * their waits (category "wait") before them; its tracks "communicate" have transfers and
 * reductions from their start to their end, on as many tracks as were under way at once.
 * Categories are compute, communicate, wait, load and step; args name the step and the instruction,
 * and say bytes and peers.
 *
 *     static enum status write(FILE *f, void *user)
 *     {
 *         timeline_begin(f, &head);
 *         for each worker {
 *             struct timeline_worker w;
 *             timeline_open_worker(&w, f, number, number, "worker 0");
 *             for each instruction
 *                 timeline_put_instr(&w, program, i, step, &at);
 *         }
 *         timeline_end(f);
 *         return STATUS_OK;
 *     }
 *     TRY(whole_file_write("run.trace.json", write, NULL));
 *
 * Times are whole nanoseconds: slices that touch must not overlap by a rounding, because viewers
 * drop those that do. A failed write shows in the stream's error indicator, which
 * whole_file_write looks at.
 */
#ifndef CLEAVE_PROGRAM_TIMELINE_H
#define CLEAVE_PROGRAM_TIMELINE_H

#include "program/program.h"

#include <stdio.h>

enum { TIMELINE_MAX_LANES = 64 };

/* One run of the programs that the trace holds. */
struct timeline_run {
    uint32_t step; /* its first */
    int n_steps;
    int64_t batch;
};

struct timeline_head {
    const char *kind; /* "measured" or "predicted" */
    const char *plan;
    int n_workers;
    int n_runs;
    const struct timeline_run *runs; /* in the order in which they ran */
};

/* From the begin of the trace. Of a computing instruction, `reached` is when the one before it had
 * ended: from there to `begin` it waited. */
struct timeline_time {
    int64_t reached_ns, begin_ns, end_ns;
};

/* A process of the trace while it is written. */
struct timeline_worker {
    FILE *f;
    int process;
    int64_t lane_end_ns[TIMELINE_MAX_LANES]; /* when the last operation of each track ended */
    int n_lanes;
};

void timeline_begin(FILE *f, const struct timeline_head *head);
void timeline_end(FILE *f);

/* Names the process. The text of several workers may be made apart and put together in any order,
 * between begin and end. `place`: where it stands among the processes. */
void timeline_open_worker(struct timeline_worker *w, FILE *f, int process, int place,
                          const char *name);
/* Instruction `number` of the program, in the run that began with `step`. Those of a worker must
 * come in the order in which they began, stream by stream. */
void timeline_put_instr(struct timeline_worker *w, const struct program *p, int number,
                        uint32_t step, const struct timeline_time *at);
/* Something else on the track "compute". */
void timeline_put(const struct timeline_worker *w, const char *name, const char *category,
                  uint32_t step, int64_t begin_ns, int64_t end_ns);

#endif
