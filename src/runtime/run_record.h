/* run_record.h: the directory that a training leaves behind, and `cleave report` reads
 * (report/report.h has the files' names):
 *
 *     config.json            every option, as it was in effect
 *     network.json           the network, plan.json how it was split, machine.json this host
 *     versions.json          of the program, its backend and the system; when and where it ran
 *     search.json            of --plan auto: the plans it chose from
 *     events.jsonl           the lines of --json: steps, epochs, the end
 *     trace.json             when each instruction of the last steps ran
 *     prediction.json        the prediction; predicted-trace.json: its instructions
 *     checkpoint.json, ...   the last checkpoint
 *     record.lock            while its run writes there
 *
 *     run_record *r;
 *     TRY(run_record_create(&options, &r));          // before the trainer, which needs the paths
 *     trainer_options.trace = run_record_trace(r);
 *     ...
 *     run_record_begin(r, &about);                   // once the run is known to be possible
 *     run_record_event(r, json);                     // as they come
 *     run_record_destroy(r);
 *
 * The run matters more than its record: a write error is a warning, and the run goes on.
 */
#ifndef CLEAVE_RUNTIME_RUN_RECORD_H
#define CLEAVE_RUNTIME_RUN_RECORD_H

#include "runtime/trainer.h"

#include <jansson.h>

typedef struct run_record run_record;

struct run_record_options {
    /* NULL: the next free number under runs/, "runs/lenet5-001"; made by run_record_begin, so that
     * a mistake in the options leaves nothing behind. */
    const char *directory;
    bool root;  /* of several processes it alone writes; the records of the others do nothing */
    bool again; /* the run goes on with --resume: the directory may hold its run_record */
};
/* STATUS_USAGE where the directory holds the record of another run, or one is writing there, which
 * is named. */
enum status run_record_create(const struct run_record_options *options, run_record **out) MUST_USE;
void run_record_destroy(run_record *r); /* NULL is fine; removes a directory in which nothing is */

/* Whether the directory was removed or renamed while the run wrote there. */
bool run_record_is_lost(const run_record *r);

/* NULL: nothing is recorded. */
const char *run_record_directory(const run_record *r);
/* Of a file in a directory that was named; lives as long as the record. */
const char *run_record_path(run_record *r, const char *name);
/* Where the trace goes: a text that is complete after run_record_begin. */
const char *run_record_trace(const run_record *r);

struct run_record_about {
    const struct trainer_options *options;
    const struct trainer_info *info;
    const char *optimizer, *precision; /* their names */
};
/* Makes the directory, with config.json and versions.json. */
void run_record_begin(run_record *r, const struct run_record_about *about);

/* Writes one more of its files; gives the value up. */
void run_record_put(run_record *r, const char *name, json_t *value);

/* The trace went elsewhere (--trace): it belongs to the record, too. */
void run_record_copy_trace(run_record *r, const char *path);

/* A line of events.jsonl. */
void run_record_event(run_record *r, const json_t *value);

#endif
