/* record.h: the directory that a training leaves behind, and `cleave report` reads
 * (report/report.h has the files' names):
 *
 *     config.json            every option, as it was in effect
 *     network.json           the network, plan.json how it was split, machine.json this host
 *     versions.json          of the program, its backend and the system; when and where it ran
 *     search.json            of --plan auto: the plans it chose from
 *     events.jsonl           what --json prints: steps, epochs, the end
 *     trace.json             when each instruction of the last steps ran
 *     prediction.json        what was expected, and predicted-trace.json when each instruction was
 *     checkpoint.json, ...   the last checkpoint
 *
 *     record *r;
 *     TRY(record_create(&options, &r));          // before the trainer, which needs the paths
 *     trainer_options.trace = record_trace(r);
 *     ...
 *     record_begin(r, &about);                   // once the run is known to be possible
 *     record_event(r, json);                     // as they come
 *     record_destroy(r);
 *
 * The record is a side matter: what cannot be written into it is a warning, and the run goes on.
 */
#ifndef CLEAVE_CLI_RECORD_H
#define CLEAVE_CLI_RECORD_H

#include "cli/split.h"
#include "runtime/trainer.h"

#include <jansson.h>

typedef struct record record;

struct record_options {
    /* NULL: the next free number under runs/, "runs/lenet5-001"; made by record_begin, so that a
     * mistake in the options leaves nothing behind. */
    const char *directory;
    bool root;  /* of several processes it alone writes; the records of the others do nothing */
    bool again; /* the run goes on with --resume: the directory may hold its record */
};
/* STATUS_USAGE where the directory holds the record of another run, or one is writing there. */
enum status record_create(const struct record_options *options, record **out) MUST_USE;
void record_destroy(record *r); /* NULL is fine; removes a directory in which nothing is */

/* A directory and those above it, as mkdir -p does; `made`: it was not there. */
enum status record_make_directories(const char *path, bool *made) MUST_USE;

/* NULL: nothing is recorded. */
const char *record_directory(const record *r);
/* Of a file in a directory that was named; lives as long as the record. */
const char *record_path(record *r, const char *name);
/* Where the trace goes: a text that is complete after record_begin. */
const char *record_trace(const record *r);

struct record_about {
    const struct trainer_options *options;
    const struct trainer_info *info;
    const char *optimizer, *precision; /* their names */
    const json_t *search;              /* of --plan auto: its candidates; NULL: there are none */
    bool predict; /* also say what is expected, from costs that were measured before */
};
/* Writes all but events and trace. */
void record_begin(record *r, const struct record_about *about);

/* The step that was predicted, and its error bar; 0: none was. */
double record_predicted_step(const record *r, double *error_s);

/* The trace went elsewhere (--trace): it belongs to the record, too. */
void record_copy_trace(record *r, const char *path);

/* A line of events.jsonl. */
void record_event(record *r, const json_t *value);

#endif
