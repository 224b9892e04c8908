/* subject.h: the network and the shape of data that something is asked about. */
#ifndef CLEAVE_PREDICT_SUBJECT_H
#define CLEAVE_PREDICT_SUBJECT_H

#include "data/dataset.h"
#include "model/graph.h"

/* Builds the network `model` in the variant that the data named by `spec` asks for, and tells about
 * the data in *info. No file is opened where the spec alone says enough. A negative
 * drop_probability is the network's own. The graph is the caller's. */
enum status subject_build(const char *model, const char *spec, int64_t batch,
                          double drop_probability, struct dataset_info *info,
                          struct graph **out) MUST_USE;

#endif
