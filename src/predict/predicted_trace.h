/* predicted_trace.h: the timeline that a prediction stands for, as a file for a viewer, and a
 * measured one beside it. */
#ifndef CLEAVE_PREDICT_PREDICTED_TRACE_H
#define CLEAVE_PREDICT_PREDICTED_TRACE_H

#include "predict/predict.h"

#include <stdio.h>

/* Writes one run of the prediction, whose times must have been kept, in the form of
 * program/timeline.h; processes are "worker 0 (predicted)". With `measured`, a file that `cleave
 * train --trace` wrote, the last complete run in it stands beside the prediction, as "worker 0
 * (measured)"; both begin at 0. STATUS_USAGE if that file is of other workers, or has no run of
 * this batch. */
enum status predicted_trace_write(const struct predict_request *request, const struct prediction *p,
                                  const char *path, const char *measured) MUST_USE;

/* The same without a measured run, into a stream. */
enum status predicted_trace_put(const struct predict_request *request, const struct prediction *p,
                                FILE *f) MUST_USE;

#endif
