/* help.h: the help of a command, in four forms that are made from the tables that parsing uses
 * (options.h, command.h), so that they always agree with it:
 *
 *     text        cleave COMMAND --help
 *     man         cleave help --man COMMAND: the page cleave-COMMAND(1), as roff
 *     complete    cleave help --complete WORD...: how the last of the words may go on, for a shell
 *     list        cleave help --list: every command's words, a line each
 *
 * The form is chosen once, by the help command, before the command that is asked about is called
 * as if with --help.
 */
#ifndef CLEAVE_CLI_HELP_H
#define CLEAVE_CLI_HELP_H

#include "cli/command.h"
#include "cli/options.h"

enum help_form { HELP_TEXT, HELP_MAN, HELP_COMPLETE, HELP_LIST };

void help_set_form(enum help_form form);
enum help_form help_get_form(void);

/* The line about the command that is asked about, from the list that it stands in. */
void help_set_summary(const char *about);
const char *help_summary(void);

/* In the form that is chosen, on stdout. `shared` are the options that every command has. */
void help_print_options(const struct option_set *set, const struct option *shared, int argc,
                        char **argv);
void help_print_commands(const struct command_set *set, int argc, char **argv);

/* ---- shared by the forms ---- */

/* Text for the places of a value: "FILE", "raw|jpeg". Into the buffer where it must be made. */
const char *help_value(const struct option *o, char *buffer, size_t size);

/* A text for people in two columns: exit codes, the environment. Ends with a NULL name. */
struct help_entry {
    const char *name, *about;
};
extern const struct help_entry help_exit_codes[], help_environment[];

/* ---- manual.c ---- */

void manual_print_options(const struct option_set *set, const struct option *shared);
void manual_print_commands(const struct command_set *set);

/* ---- complete.c ----
 *
 * A line for each way to go on: the whole word, a tab, and a few words about it. A line that begins
 * with a tab tells the shell to add the names of "files" or "folders" itself; behind another tab
 * stands the part of the word before the path ("imagefolder:").
 */

/* argv[1..]: the words of the line, the last of which is to be completed. */
void complete_options(const struct option_set *set, const struct option *shared, int argc,
                      char **argv);
void complete_commands(const struct command_set *set, const char *text);

#endif
