/* subject.h: the network and the shape of data that a command is about. */
#ifndef CLEAVE_CLI_SUBJECT_H
#define CLEAVE_CLI_SUBJECT_H

#include "cli/options.h"
#include "predict/subject.h"

/* What --help says of MODEL (the names of the networks; one text, made anew by each call) and about
 * data (the forms of a spec). */
const char *subject_model_help(void);
extern const char subject_data_notes[];

#endif
