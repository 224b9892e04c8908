/* command.h: the program's commands.
 *
 * A command gets its own name as argv[0], prints results on stdout and everything else on stderr
 * (base/log.h), and returns a status, which becomes the exit code of the program.
 */
#ifndef CLEAVE_CLI_COMMAND_H
#define CLEAVE_CLI_COMMAND_H

#include "base/status.h"

struct command {
    const char *name;
    const char *about; /* one line */
    enum status (*run)(int argc, char **argv);
};

/* A level of commands: those of the program, or those of one command (bench). */
struct command_set {
    const char *path;               /* "cleave", "cleave bench" */
    const char *about;              /* printed above the list; ends with a newline */
    const char *examples;           /* printed below it; ends with a newline */
    const struct command *commands; /* ends with a NULL name */
    const char *const *options;     /* allowed in a command's place, ending with NULL */
    const char *for_networks;       /* the command that is meant where a network stands alone; NULL:
                                       none */
    bool whole_program;             /* its help lists exit codes and the environment */
};

/* Runs the command that argv[1] names; --help or no argument at all prints the list (help.h).
 * STATUS_USAGE with the nearest match if there is none of that name. */
enum status command_dispatch(const struct command_set *set, int argc, char **argv) MUST_USE;

/* Says on stderr how a command ended, unless that was said already or there is nothing to say. The
 * program does so at the end; a command that might not get there (the last thing that an MPI job
 * does can be to end its processes) does it before. */
void command_report(enum status st);
/* Another process of the job says it: nothing more is to be said here. */
void command_leave_report(void);

/* One per file of the same name. */
enum status command_bench(int argc, char **argv) MUST_USE;
enum status command_data(int argc, char **argv) MUST_USE;
enum status command_machine(int argc, char **argv) MUST_USE;
enum status command_pack(int argc, char **argv) MUST_USE;
enum status command_plan(int argc, char **argv) MUST_USE;
enum status command_plan_choose(int argc, char **argv) MUST_USE;
enum status command_predict(int argc, char **argv) MUST_USE;
enum status command_profile(int argc, char **argv) MUST_USE;
enum status command_report_page(int argc, char **argv) MUST_USE;
enum status command_show(int argc, char **argv) MUST_USE;
enum status command_train(int argc, char **argv) MUST_USE;

#endif
