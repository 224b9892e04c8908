/* network_help.h: texts of --help about networks and data. */
#ifndef CLEAVE_CLI_NETWORK_HELP_H
#define CLEAVE_CLI_NETWORK_HELP_H

#include "cli/options.h"
#include "predict/subject.h"

/* The names of the networks (one text, made anew by each call), and the forms in which data is
 * named. */
const char *network_names_help(void);
/* The same where a plan's file beside it may name one. */
const char *network_or_file_help(void);
/* The same where a plan's file may stand in its place. */
const char *model_or_plan_help(void);
extern const char data_notes[];

#endif
