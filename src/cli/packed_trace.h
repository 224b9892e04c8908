/* packed_trace.h: a predicted timeline as a report draws it. */
#ifndef CLEAVE_CLI_PACKED_TRACE_H
#define CLEAVE_CLI_PACKED_TRACE_H

#include "predict/predict.h"
#include "report/report.h"

/* The trace of a prediction, whose times must have been kept, packed as a report packs traces. It
 * goes through memory: a file would stay behind where the program is ended meanwhile. */
enum status packed_trace_json(const struct predict_request *request, const struct prediction *p,
                              json_t **out) MUST_USE;

#endif
