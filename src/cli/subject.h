/* subject.h: the network and the shape of data that a command is about. */
#ifndef CLEAVE_CLI_SUBJECT_H
#define CLEAVE_CLI_SUBJECT_H

#include "cli/options.h"
#include "predict/subject.h"

/* What --help says of MODEL (the names of the networks; one text, made anew by each call) and about
 * data (the forms of a spec). */
const char *subject_model_help(void);
extern const char subject_data_notes[];

/* Reads a list of batch sizes, "1,2,4", into sizes[], in the order given. STATUS_USAGE, which names
 * the option, for what is no size and for more than SUBJECT_MAX_BATCHES of them. */
enum { SUBJECT_MAX_BATCHES = 16, SUBJECT_LARGEST_BATCH = 1 << 20 };
enum status subject_parse_batches(const char *option, const char *text,
                                  int64_t sizes[SUBJECT_MAX_BATCHES], int *n_sizes) MUST_USE;

#endif
