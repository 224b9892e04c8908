/* gather.h: shared by the files of the report. */
#ifndef CLEAVE_REPORT_GATHER_H
#define CLEAVE_REPORT_GATHER_H

#include "report/report.h"

/* A file that the build compiled in: of web/, or a library. The table ends with a NULL name. */
struct report_file {
    const char *name;
    const char *text;
    size_t n_bytes;
};
extern const struct report_file report_files[];

/* Reads all paths: {"subjects": [..]} (gather.c). */
enum status report_gather(const struct report_request *request, json_t *page) MUST_USE;

/* Steps, epochs and the end of a training, from JSON lines (training_events.c). */
enum status report_read_events(const char *path, json_t *subject) MUST_USE;

/* STATUS_FAILED, naming the file and where it is broken. */
enum status report_load_json(const char *path, json_t **out) MUST_USE;
enum status report_fail_json(const char *path, int line, const json_error_t *error) MUST_USE;

/* Whether the file has the types that the page draws; `kind` is the key in the subject: "network".
 * STATUS_FAILED names the file and the first member of another type. */
enum status report_check_types(const char *path, const char *kind, const json_t *root) MUST_USE;

/* The page around the data (page.c). */
enum status report_write_page(const json_t *page, const char *path) MUST_USE;

#endif
