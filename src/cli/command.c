#include "cli/command.h"

#include "base/text.h"
#include "cli/help.h"
#include "model/network.h"

#include <string.h>
#include <strings.h>

enum { MAX_COMMANDS = 32 };

/* `cleave resnet18`: the command is missing. */
static enum status check_network(const struct command_set *set, const char *word)
{
    for (const char *const *name = network_names(); set->for_networks && *name; name++)
        if (strcasecmp(*name, word) == 0)
            return status_fail(STATUS_USAGE,
                               "'%s' is a network, and a command must come first: '%s %s %s' (or "
                               "another: '%s --help' lists them)",
                               word, set->path, set->for_networks, *name, set->path);
    return STATUS_OK;
}

static enum status fail_unknown(const struct command_set *set, const char *word)
{
    if (word[0] == '-')
        return text_fail_unknown("option", word, set->options);
    const char *names[MAX_COMMANDS + 1];
    int n = 0;
    for (const struct command *c = set->commands; c->name && n < MAX_COMMANDS; c++)
        names[n++] = c->name;
    names[n] = NULL;
    TRY(check_network(set, word));
    return text_fail_unknown("command", word, names);
}

/* A word that is being completed is no command yet. */
static bool wants_help(int argc, char **argv)
{
    return argc < 2 || (argc == 2 && help_get_form() == HELP_COMPLETE) ||
           strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
}

enum status command_dispatch(const struct command_set *set, int argc, char **argv)
{
    if (wants_help(argc, argv)) {
        help_print_commands(set, argc, argv);
        return STATUS_OK;
    }
    for (const struct command *c = set->commands; c->name; c++)
        if (strcmp(c->name, argv[1]) == 0) {
            help_set_summary(c->about);
            return c->run(argc - 1, argv + 1);
        }
    return help_get_form() == HELP_COMPLETE ? STATUS_OK : fail_unknown(set, argv[1]);
}
