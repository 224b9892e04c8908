/* options.h: the options of a command as a table, from which parsing, errors and help all follow.
 *
 *     struct show_options o;
 *     const struct option options[] = {
 *         OPTION_INTEGER("--batch", "N", &o.batch, 1, 65536, "1", "images per batch"),
 *         OPTION_FLAG("--json", &o.json, "print JSON instead of a table"),
 *         OPTION_END,
 *     };
 *     const struct positional positionals[] = {{"MODEL", &o.model, "the network"}, {0}};
 *     struct option_set set = {.command = "show", .about = "...", .positionals = positionals,
 *                              .options = options, .examples = "  cleave show resnet18\n"};
 *     bool help;
 *     TRY(options_parse(&set, argc, argv, &help));
 *     if (help)
 *         return STATUS_OK; // it was printed
 *
 * Values come as `--name value` or `--name=value`; the last of a repeated option wins; `--` ends
 * the options. Every command also has --help (-h) and --debug.
 */
#ifndef CLEAVE_CLI_OPTIONS_H
#define CLEAVE_CLI_OPTIONS_H

#include "base/status.h"

#include <stdint.h>

enum option_kind {
    OPTION_KIND_NONE, /* the end of a table */
    OPTION_KIND_FLAG,
    OPTION_KIND_INTEGER,
    OPTION_KIND_REAL,
    OPTION_KIND_TEXT,
    OPTION_KIND_CHOICE,
};

struct option {
    const char *name; /* with its dashes */
    enum option_kind kind;
    /* The value's name in the help, which also says how it is completed (complete.c): "FILE",
     * "PLAN|auto", "MODEL,...". */
    const char *value;
    /* bool *, int64_t *, double *, const char **; for a choice int *, the name's index */
    void *target;
    int64_t least, most;
    double real_least, real_most;
    const char *const *choices; /* ends with NULL */
    /* Parsed like a given value before the arguments are. NULL: flags are false, other targets keep
     * their value, and the help text says what that means. */
    const char *preset;
    const char *help;
};

#define OPTION_FLAG(name_, target_, help_)                                              \
    {                                                                                   \
        .name = (name_), .kind = OPTION_KIND_FLAG, .target = (target_), .help = (help_) \
    }
#define OPTION_INTEGER(name_, value_, target_, least_, most_, preset_, help_)                 \
    {                                                                                         \
        .name = (name_), .kind = OPTION_KIND_INTEGER, .value = (value_), .target = (target_), \
        .least = (least_), .most = (most_), .preset = (preset_), .help = (help_)              \
    }
#define OPTION_REAL(name_, value_, target_, least_, most_, preset_, help_)                 \
    {                                                                                      \
        .name = (name_), .kind = OPTION_KIND_REAL, .value = (value_), .target = (target_), \
        .real_least = (least_), .real_most = (most_), .preset = (preset_), .help = (help_) \
    }
#define OPTION_TEXT(name_, value_, target_, preset_, help_)                                \
    {                                                                                      \
        .name = (name_), .kind = OPTION_KIND_TEXT, .value = (value_), .target = (target_), \
        .preset = (preset_), .help = (help_)                                               \
    }
#define OPTION_CHOICE(name_, target_, choices_, preset_, help_)                                  \
    {                                                                                            \
        .name = (name_), .kind = OPTION_KIND_CHOICE, .target = (target_), .choices = (choices_), \
        .preset = (preset_), .help = (help_)                                                     \
    }
#define OPTION_END               \
    {                            \
        .kind = OPTION_KIND_NONE \
    }

/* An argument without a name; all of them must be given but the optional ones. A table ends with a
 * NULL name. */
struct positional {
    const char *name; /* "MODEL" */
    const char **target;
    const char *help;
};

/* Arguments without a name behind those, at least one of them. */
struct positional_list {
    const char *name, *help;
    const char **targets; /* with room for `most` */
    int most, *n;         /* *n, 0 at first: how many were given */
};

struct option_set {
    const char *command; /* "show", "bench layers" */
    const char *about;   /* a sentence or two; lines of at most 79 characters */
    const struct positional *positionals;
    int n_optional; /* the last so many of them may be missing; then targets keep their values */
    const struct positional_list *list; /* NULL: none */
    const struct option *options;
    const char *notes;    /* more for the help, ending with a newline; may be NULL */
    const char *examples; /* lines, indented by two, ending with a newline */
};

/* Fills the targets from argv[1..argc-1]; texts point into argv. If --help is among the arguments
 * (or help.h is set to another form of it), it is printed on stdout, *help is set, and nothing else
 * counts. STATUS_USAGE names the option,
 * the allowed values and the nearest match. */
enum status options_parse(const struct option_set *set, int argc, char **argv, bool *help) MUST_USE;

/* Whether the arguments that were parsed last have the option: "--batch". */
bool options_given(const char *name);

/* Whether --debug was among the arguments parsed so far, or CLEAVE_DEBUG=1 is in the environment.
 */
bool options_debug(void);

#endif
