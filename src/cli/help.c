#include "cli/help.h"

#include <stdio.h>
#include <string.h>

enum { HELP_WIDTH = 79, HELP_COLUMN = 26, COMMAND_COLUMN = 13 };

const struct help_entry help_exit_codes[] = {
    {"0", "done"},
    {"1", "failed: a file, the system or the data is at fault"},
    {"2", "usage: an unknown name or an impossible value was asked for"},
    {"3", "the plan does not fit into memory; 'cleave predict' says what would"},
    {"4", "a worker was lost"},
    {"5",
     "timed out: a wait for data or for another worker, or a computation, passed its deadline"},
    {"6", "stopped by SIGTERM, by Ctrl-C, or because nobody reads its output, and saved where "
          "--checkpoint is given"},
    {0}};

const struct help_entry help_environment[] = {
    {"NO_COLOR", "if it is set, nothing is coloured (on a terminal some words are)"},
    {"CLEAVE_PROFILE", "where measured costs are kept [cleave/profile.db in $XDG_CACHE_HOME, or in "
                       "~/.cache]"},
    {"CLEAVE_MEMORY_LIMIT",
     "bytes of this host that training may use [all of its memory, or its control group's limit]"},
    {"CLEAVE_SHARED_MEMORY",
     "no: processes of one host exchange messages, as between hosts [they share memory]"},
    {"CLEAVE_DEBUG", "1: as --debug"},
    {0}};

static enum help_form form;
static const char *summary = "";

void help_set_form(enum help_form new_form)
{
    form = new_form;
}

enum help_form help_get_form(void)
{
    return form;
}

void help_set_summary(const char *about)
{
    summary = about;
}

const char *help_summary(void)
{
    return summary;
}

/* ---- text ---- */

/* Text from a column on, broken between words. */
static void print_wrapped(const char *text, int indent)
{
    int column = indent;
    while (*text) {
        size_t length = strcspn(text, " ");
        if (column > indent && column + 1 + (int)length > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)length, text);
        column += (int)length;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_entry(const char *name, const char *value, const char *help, const char *preset,
                        int column)
{
    char head[96], body[640];
    (void)snprintf(head, sizeof head, "  %s%s%s", name, value ? " " : "", value ? value : "");
    if (preset)
        (void)snprintf(body, sizeof body, "%s [%s]", help, preset);
    else
        (void)snprintf(body, sizeof body, "%s", help);
    if ((int)strlen(head) < column - 1)
        printf("%-*s", column, head);
    else
        printf("%s\n%*s", head, column, "");
    print_wrapped(body, column);
}

static void print_entries(const char *title, const struct help_entry *entries, int column)
{
    printf("\n%s:\n", title);
    for (; entries->name; entries++)
        print_entry(entries->name, NULL, entries->about, NULL, column);
}

const char *help_value(const struct option *o, char *buffer, size_t size)
{
    size_t used = 0;
    if (o->kind != OPTION_KIND_CHOICE)
        return o->value;
    buffer[0] = '\0';
    for (int i = 0; o->choices[i] && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", i ? "|" : "", o->choices[i]);
    return buffer;
}

static void print_options(const struct option *options)
{
    for (const struct option *o = options; o->kind != OPTION_KIND_NONE; o++) {
        char choices[96];
        print_entry(o->name, help_value(o, choices, sizeof choices), o->help, o->preset,
                    HELP_COLUMN);
    }
}

static void print_set(const struct option_set *set, const struct option *shared)
{
    printf("Usage: cleave %s", set->command);
    int n = 0;
    while (set->positionals[n].name)
        n++;
    for (int i = 0; i < n; i++)
        printf(i < n - set->n_optional ? " %s" : " [%s]", set->positionals[i].name);
    if (set->list)
        printf(" %s...", set->list->name);
    printf(" [options]\n\n%s\n%s", set->about, set->positionals->name || set->list ? "\n" : "");
    for (const struct positional *p = set->positionals; p->name; p++)
        print_entry(p->name, NULL, p->help, NULL, HELP_COLUMN);
    if (set->list)
        print_entry(set->list->name, NULL, set->list->help, NULL, HELP_COLUMN);
    printf("\nOptions, with their defaults in brackets:\n");
    print_options(set->options);
    print_options(shared);
    if (set->notes)
        printf("\n%s", set->notes);
    printf("\nExamples:\n%s", set->examples);
}

static void print_commands(const struct command_set *set)
{
    printf("Usage: %s COMMAND [options]\n\n%s\nCommands:\n", set->path, set->about);
    for (const struct command *c = set->commands; c->name; c++)
        print_entry(c->name, NULL, c->about, NULL, COMMAND_COLUMN);
    printf("\n'%s COMMAND --help' says what a command accepts.\n\nExamples:\n%s", set->path,
           set->examples);
    if (!set->whole_program)
        return;
    print_entries("Exit codes", help_exit_codes, 6);
    print_entries("Environment", help_environment, HELP_COLUMN);
}

/* ---- the forms ---- */

void help_print_options(const struct option_set *set, const struct option *shared, int argc,
                        char **argv)
{
    if (form == HELP_MAN)
        manual_print_options(set, shared);
    else if (form == HELP_COMPLETE)
        complete_options(set, shared, argc, argv);
    else if (form == HELP_TEXT)
        print_set(set, shared);
}

/* The words of every command, and of those that it has in turn. */
static void list_commands(const struct command_set *set)
{
    const char *space = strchr(set->path, ' ');
    for (const struct command *c = set->commands; c->name; c++) {
        char name[32], *argv[] = {name, NULL};
        if (strcmp(c->name, "help") == 0)
            continue;
        (void)snprintf(name, sizeof name, "%s", c->name);
        printf("%s%s%s\n", space ? space + 1 : "", space ? " " : "", c->name);
        enum status st = c->run(1, argv);
        (void)st; /* nothing is done but to list */
    }
}

void help_print_commands(const struct command_set *set, int argc, char **argv)
{
    if (form == HELP_MAN)
        manual_print_commands(set);
    else if (form == HELP_LIST)
        list_commands(set);
    else if (form == HELP_COMPLETE)
        complete_commands(set, argc > 1 ? argv[1] : "");
    else
        print_commands(set);
}
