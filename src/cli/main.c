/* main.c: the program: finds the command, and turns its status into the exit code. */
#include "base/log.h"
#include "base/output.h"
#include "base/style.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/options.h"
#include "comm/comm.h"
#include "runtime/crew.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status command_help(int argc, char **argv);
static enum status command_version(int argc, char **argv);

static const struct command commands[] = {
    {"show", "the layers of a network: shapes, parameters, operations, loops", command_show},
    {"machine", "devices and links: of this host, of a file or a string", command_machine},
    {"plan", "the fastest way to split the work, and why; plans as files", command_plan},
    {"train", "train a network, on one worker or on many", command_train},
    {"bench", "measure layers, matrix products and whole steps", command_bench},
    {"predict", "what a plan will cost: time, memory, traffic", command_predict},
    {"report", "a plan, a prediction or runs as pictures: one HTML file", command_report_page},
    {"profile", "measured costs: list, export, import, forget", command_profile},
    {"data", "read every image before training: the corrupt ones, sizes", command_data},
    {"pack", "make one fast file out of many small images", command_pack},
    {"version", "which version of Cleave this is", command_version},
    {"help", "what a command accepts: 'cleave help train'", command_help},
    {0},
};

static const char *const program_options[] = {"--help", "--version", NULL};

static const struct command_set program = {
    .path = "cleave",
    .about = "Splits the training of neural networks over workers, and runs it.\n",
    .examples = "  cleave show resnet18 --data imagenet\n"
                "  cleave train lenet5 --data fashion-mnist\n"
                "  cleave train resnet18 --data cifar10:/data/cifar10 --workers 4 --plan data\n"
                "  cleave bench layers alexnet --batch 1,8,64\n",
    .commands = commands,
    .options = program_options,
    .for_networks = "train",
    .whole_program = true,
};

enum { MAX_HELP_WORDS = 4 };

/* The form that a first argument asks for: for the build and for shells, not for people. */
static enum help_form find_form(int argc, char **argv)
{
    static const char *const names[] = {
        [HELP_MAN] = "--man", [HELP_COMPLETE] = "--complete", [HELP_LIST] = "--list"};
    for (int i = HELP_MAN; i <= HELP_LIST; i++)
        if (argc > 1 && strcmp(argv[1], names[i]) == 0)
            return (enum help_form)i;
    return HELP_TEXT;
}

/* `cleave help bench layers` is `cleave bench layers --help`. */
static enum status command_help(int argc, char **argv)
{
    char *words[MAX_HELP_WORDS + 2] = {argv[0]};
    static char help[] = "--help", self[] = "help";
    int n = 1;
    enum help_form form = find_form(argc, argv);
    if (help_get_form() == HELP_COMPLETE) /* of the line `cleave help ...` itself */
        return command_dispatch(&program, argc, argv);
    help_set_form(form);
    if (form == HELP_COMPLETE || form == HELP_LIST)
        return command_dispatch(&program, argc - 1, argv + 1);
    for (int i = form == HELP_TEXT ? 1 : 2; i < argc && n <= MAX_HELP_WORDS; i++)
        if (strcmp(argv[i], self) != 0)
            words[n++] = argv[i];
    words[n++] = help;
    return command_dispatch(&program, n, words);
}

static enum status print_version(bool json)
{
    if (json)
        return output_json(json_pack("{s:s}", "version", CLEAVE_VERSION));
    printf("cleave %s\n", CLEAVE_VERSION);
    return STATUS_OK;
}

static enum status command_version(int argc, char **argv)
{
    bool json, help;
    const struct option options[] = {OPTION_FLAG("--json", &json, "print JSON"), OPTION_END};
    const struct positional positionals[] = {{0}};
    const struct option_set set = {.command = "version",
                                   .about = "Prints which version of Cleave this is.",
                                   .positionals = positionals,
                                   .options = options,
                                   .examples = "  cleave version\n"};
    TRY(options_parse(&set, argc, argv, &help));
    return help ? STATUS_OK : print_version(json);
}

/* Results that could not be written must not look like success. */
static enum status finish_output(void)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout))
        return status_fail(STATUS_FAILED, "cannot write the results to standard output: %s",
                           errno ? strerror(errno) : "an earlier write failed");
    return STATUS_OK;
}

/* Of the processes of an MPI job one speaks for all, where all know the same. */
static bool others_report(enum status st)
{
    int rank, size;
    bool same = crew_failed_together() || st == STATUS_USAGE || st == STATUS_STOPPED;
    return same && comm_mpi_launched(&rank, &size) && rank > 0;
}

static bool reported;

void command_leave_report(void)
{
    reported = true;
}

void command_report(enum status st)
{
    if (st == STATUS_OK || reported || others_report(st))
        return;
    reported = true;
    log_progress_end();
    const char *message = status_message();
    bool stopped = st == STATUS_STOPPED;
    (void)fprintf(stderr, "cleave: %s%s%s%s\n", stopped ? "" : style_begin(stderr, STYLE_BAD),
                  stopped ? "" : "error: ", stopped ? "" : style_end(stderr),
                  *message ? message : "failed without a reason");
    if (options_debug())
        (void)fprintf(stderr, "%s", status_trace_text());
}

int main(int argc, char **argv)
{
    log_allow_progress();
    if (options_debug())
        log_set_level(LOG_DEBUG);
    enum status st = STATUS_OK;
    if (argc >= 2 && strcmp(argv[1], "--version") == 0)
        st = print_version(false);
    else
        st = command_dispatch(&program, argc, argv);
    log_progress_end();
    enum status output = finish_output();
    if (st == STATUS_OK)
        st = output;
    command_report(st);
    return (int)st;
}
