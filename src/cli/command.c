#include "cli/command.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { MAX_COMMANDS = 32 };

static void print_list(const struct command_set *set)
{
    printf("Usage: %s COMMAND [options]\n\n%s\nCommands:\n", set->path, set->about);
    for (const struct command *c = set->commands; c->name; c++)
        printf("  %-9s %s\n", c->name, c->about);
    printf("\n'%s COMMAND --help' says what a command accepts.\n\nExamples:\n%s", set->path,
           set->examples);
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
    return text_fail_unknown("command", word, names);
}

enum status command_dispatch(const struct command_set *set, int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_list(set);
        return STATUS_OK;
    }
    for (const struct command *c = set->commands; c->name; c++)
        if (strcmp(c->name, argv[1]) == 0)
            return c->run(argc - 1, argv + 1);
    return fail_unknown(set, argv[1]);
}
