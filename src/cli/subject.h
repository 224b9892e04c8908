/* subject.h: the network and the shape of data that a command is about. */
#ifndef CLEAVE_CLI_SUBJECT_H
#define CLEAVE_CLI_SUBJECT_H

#include "cli/options.h"
#include "data/dataset.h"
#include "model/graph.h"

/* Builds the network `model` in the variant that the data named by `spec` asks for, and tells about
 * the data in *info. No file is opened where the spec alone says enough. A negative
 * drop_probability is the network's own. The graph is the caller's. */
enum status subject_build(const char *model, const char *spec, int64_t batch,
                          double drop_probability, struct dataset_info *info,
                          struct graph **out) MUST_USE;

/* What --help says of MODEL (the names of the networks; one text, made anew by each call) and about
 * data (the forms of a spec). */
const char *subject_model_help(void);
extern const char subject_data_notes[];

/* Reads a list of batch sizes, "1,2,4", into sizes[], in the order given. STATUS_USAGE for more
 * than SUBJECT_MAX_BATCHES of them. */
enum { SUBJECT_MAX_BATCHES = 16, SUBJECT_LARGEST_BATCH = 1 << 20 };
enum status subject_parse_batches(const char *text, int64_t sizes[SUBJECT_MAX_BATCHES],
                                  int *n_sizes) MUST_USE;

#endif
