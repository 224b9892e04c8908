/* manual.c: the help of commands as manual pages, in the man(7) macros of roff. */
#include "cli/help.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILLED_WIDTH = 60 };

/* ---- roff ---- */

/* Text as it stands: no character of it is a request, an escape or a soft hyphen. */
static void put_text(const char *text, size_t length)
{
    bool starts = true;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (starts && (c == '.' || c == '\''))
            printf("\\&");
        if (c == '\\')
            printf("\\e");
        else if (c == '-')
            printf("\\-");
        else if (c == '\'')
            printf("\\(aq");
        else if (c == '~')
            printf("\\(ti");
        else if (c == '^')
            printf("\\(ha");
        else if (c == '`')
            printf("\\(ga");
        else
            putchar(c);
        starts = c == '\n';
    }
}

static void put(const char *text)
{
    put_text(text, strlen(text));
}

/* Text that is filled: its own line breaks do not count, and a line of the source is short. */
static void put_filled(const char *text)
{
    size_t column = 0;
    while (*text) {
        size_t length = strcspn(text, " \n");
        if (column > 0 && column + length > FILLED_WIDTH) {
            putchar('\n');
            column = 0;
        } else if (column > 0) {
            putchar(' ');
        }
        put_text(text, length);
        column += length + 1;
        text += length;
        text += strspn(text, " \n");
    }
    putchar('\n');
}

/* As it stands, line by line. A blank line would be no request: .sp is. */
static void put_literal(const char *text)
{
    printf(".nf\n");
    while (*text) {
        size_t length = strcspn(text, "\n");
        if (length == 0)
            printf(".sp");
        put_text(text, length);
        putchar('\n');
        text += length + (text[length] == '\n');
    }
    printf(".fi\n");
}

/* .TP NAME VALUE / text [preset] */
static void put_entry(const char *name, const char *value, const char *about, const char *preset)
{
    printf(".TP\n\\fB");
    put(name);
    printf("\\fR");
    if (value) {
        printf(" \\fI");
        put(value);
        printf("\\fR");
    }
    putchar('\n');
    put_filled(about);
    if (preset) {
        printf("[");
        put(preset);
        printf("]\n");
    }
}

static void put_entries(const char *title, const struct help_entry *entries)
{
    printf(".SH %s\n", title);
    for (; entries->name; entries++)
        put_entry(entries->name, NULL, entries->about, NULL);
}

/* ---- the parts of a page ---- */

/* The day of the build; where builds are to give the same bits, SOURCE_DATE_EPOCH says it. */
static void put_date(void)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t now = epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    char text[32] = "1970-01-01";
    struct tm parts;
    if (gmtime_r(&now, &parts))
        (void)strftime(text, sizeof text, "%Y-%m-%d", &parts);
    printf("%s", text);
}

/* "cleave plan make": CLEAVE-PLAN-MAKE; `words` without the program's own. */
static void put_page_name(const char *words, bool upper)
{
    printf(upper ? "CLEAVE" : "cleave");
    if (*words)
        printf("\\-");
    for (; *words; words++)
        if (*words == ' ')
            printf("\\-");
        else
            putchar(upper ? toupper((unsigned char)*words) : *words);
}

static void put_head(const char *words)
{
    printf(".\\\" Made by 'cleave help --man', from what --help says.\n.TH ");
    put_page_name(words, true);
    printf(" 1 ");
    put_date();
    printf(" \"cleave %s\" \"Cleave\"\n.SH NAME\n", CLEAVE_VERSION);
    put_page_name(words, false);
    printf(" \\- ");
    put(help_summary());
    printf("\n.SH SYNOPSIS\n\\fBcleave%s%s\\fR", *words ? " " : "", words);
}

static void put_tail(const char *examples)
{
    printf(".SH EXAMPLES\n");
    put_literal(examples);
    put_entries("EXIT STATUS", help_exit_codes);
    put_entries("ENVIRONMENT", help_environment);
}

static void put_options(const struct option *options)
{
    for (const struct option *o = options; o->kind != OPTION_KIND_NONE; o++) {
        char choices[96];
        put_entry(o->name, help_value(o, choices, sizeof choices), o->help, o->preset);
    }
}

void manual_print_options(const struct option_set *set, const struct option *shared)
{
    put_head(set->command);
    int n = 0;
    while (set->positionals[n].name)
        n++;
    for (int i = 0; i < n; i++)
        printf(i < n - set->n_optional ? " \\fI%s\\fR" : " [\\fI%s\\fR]", set->positionals[i].name);
    if (set->list)
        printf(" \\fI%s\\fR...", set->list->name);
    printf(" [\\fIoptions\\fR]\n.SH DESCRIPTION\n");
    put_filled(set->about);
    for (const struct positional *p = set->positionals; p->name; p++)
        put_entry(p->name, NULL, p->help, NULL);
    if (set->list)
        put_entry(set->list->name, NULL, set->list->help, NULL);
    printf(".SH OPTIONS\nOptions, with their defaults in brackets:\n");
    put_options(set->options);
    put_options(shared);
    if (set->notes) {
        printf(".SH NOTES\n");
        put_literal(set->notes);
    }
    put_tail(set->examples);
    printf(".SH SEE ALSO\n.BR cleave (1)\n");
}

void manual_print_commands(const struct command_set *set)
{
    const char *space = strchr(set->path, ' '), *words = space ? space + 1 : "";
    if (!space)
        help_set_summary("splits the training of neural networks over workers, and runs it");
    put_head(words);
    printf(" \\fICOMMAND\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\n");
    put_filled(set->about);
    printf(".SH COMMANDS\n");
    for (const struct command *c = set->commands; c->name; c++)
        put_entry(c->name, NULL, c->about, NULL);
    printf(".PP\n\\fB%s\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\fR\n"
           "says what a command accepts, and so does its page.\n",
           set->path);
    put_tail(set->examples);
    printf(".SH SEE ALSO\n");
    if (space)
        printf(".BR cleave (1),\n");
    for (const struct command *c = set->commands; c->name; c++) {
        bool last = !c[1].name || strcmp(c[1].name, "help") == 0;
        printf(".BR ");
        put_page_name(words, false);
        printf("\\-%s (1)%s\n", c->name, last ? "" : ",");
        if (last)
            break;
    }
}
