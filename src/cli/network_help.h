/* network_help.h: texts of --help about networks and data. */
#ifndef CLEAVE_CLI_NETWORK_HELP_H
#define CLEAVE_CLI_NETWORK_HELP_H

#include "cli/options.h"
#include "predict/subject.h"

/* The names of the networks (one text, made anew by each call), and the forms in which data is
 * named. */
const char *network_names_help(void);
extern const char data_notes[];

#endif
