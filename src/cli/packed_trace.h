/* packed_trace.h: a predicted timeline as a report draws it, without a file that anyone sees. */
#ifndef CLEAVE_CLI_PACKED_TRACE_H
#define CLEAVE_CLI_PACKED_TRACE_H

#include "predict/predict.h"
#include "report/report.h"

/* Writes the trace of a prediction, whose times must have been kept, into a file of its own in
 * $TMPDIR or /tmp; the caller removes it. "" where none was made. */
enum status packed_trace_write(const struct predict_request *request, const struct prediction *p,
                               char path[REPORT_PATH_BYTES]) MUST_USE;

/* The same as JSON, packed as a report packs traces. */
enum status packed_trace_json(const struct predict_request *request, const struct prediction *p,
                              json_t **out) MUST_USE;

#endif
