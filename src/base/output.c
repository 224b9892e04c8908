#include "base/output.h"

#include "base/arena.h"
#include "base/printable.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMN_GAP = 2, CONTINUED_INDENT = 4, MIN_BREAK = 4 };

struct cell {
    const char *text;
    bool rule_behind; /* on the last cell of a row */
    enum style style; /* on the first cell of a row */
    struct cell *next;
};

struct table {
    arena *memory; /* owns the table, too */
    const struct table_column *columns;
    int n_columns, n_in_row;
    enum style next_style;
    struct cell *first, *last;
    enum status status;
};

enum status table_create(const struct table_column *columns, int n_columns, table **out)
{
    if (n_columns > TABLE_MAX_COLUMNS)
        return status_fail(STATUS_FAILED, "a table of %d columns", n_columns);
    arena *memory;
    TRY(arena_create(&memory));
    table *t;
    enum status st;
    TRY_GOTO(st, arena_alloc(memory, sizeof *t, &t), fail);
    *t = (table){.memory = memory, .columns = columns, .n_columns = n_columns};
    *out = t;
    return STATUS_OK;
fail:
    arena_destroy(memory);
    return st;
}

void table_cell(table *t, const char *format, ...)
{
    if (t->status != STATUS_OK)
        return;
    char raw[256], text[sizeof raw];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    printable_copy(text, sizeof text, raw);
    struct cell *c;
    t->status = arena_alloc(t->memory, sizeof *c, &c);
    if (t->status != STATUS_OK)
        return;
    c->style = t->next_style;
    t->next_style = STYLE_PLAIN;
    t->status = arena_copy_text(t->memory, text, &c->text);
    if (t->last)
        t->last->next = c;
    else
        t->first = c;
    t->last = c;
    t->n_in_row = (t->n_in_row + 1) % t->n_columns;
}

void table_style(table *t, enum style style)
{
    t->next_style = style;
}

void table_rule(table *t)
{
    if (t->status == STATUS_OK && t->last && t->n_in_row == 0)
        t->last->rule_behind = true;
}

/* Columns as wide as their widest cell, then narrowed, widest first, until the table fits. */
static void find_widths(const table *t, int *widths)
{
    int total = (t->n_columns - 1) * COLUMN_GAP;
    for (int i = 0; i < t->n_columns; i++)
        widths[i] = (int)strlen(t->columns[i].title);
    int column = 0;
    for (const struct cell *c = t->first; c; c = c->next, column = (column + 1) % t->n_columns)
        if ((int)strlen(c->text) > widths[column])
            widths[column] = (int)strlen(c->text);
    for (int i = 0; i < t->n_columns; i++)
        total += widths[i];
    while (total > TABLE_WIDTH) {
        int widest = -1;
        for (int i = 0; i < t->n_columns; i++)
            if (t->columns[i].least && widths[i] > abs(t->columns[i].least) &&
                (widest < 0 || widths[i] > widths[widest]))
                widest = i;
        if (widest < 0)
            return;
        widths[widest]--;
        total--;
    }
}

static void print_rule(FILE *out, const table *t, const int *widths)
{
    int total = (t->n_columns - 1) * COLUMN_GAP;
    for (int i = 0; i < t->n_columns; i++)
        total += widths[i];
    for (int i = 0; i < total; i++)
        (void)fputc('-', out);
    (void)fputc('\n', out);
}

/* Of a cell that is broken: where its first line ends, between words if it can be. */
static int find_break(const char *text, int width)
{
    int n = width;
    while (n > 0 && text[n] != ' ')
        n--;
    return n > MIN_BREAK ? n : width;
}

/* Blanks are printed once something follows them. */
static void print_behind(FILE *out, const char *text, int length, int *blanks)
{
    if (length == 0)
        return;
    (void)fprintf(out, "%*s%.*s", *blanks, "", length, text);
    *blanks = 0;
}

/* Names differ at their ends as much as at their beginnings: the middle is left out. */
static void print_shortened(FILE *out, const char *text, int length, int width, int *blanks)
{
    int head = (width - 1) / 2, tail = width - 1 - head;
    print_behind(out, text, head, blanks);
    (void)fprintf(out, "\u2026%s", text + length - tail);
}

/* *rest: the part of the cell for the next line; NULL: none. */
static void print_cell(FILE *out, const char *text, int width, const struct table_column *column,
                       int *blanks, const char **rest)
{
    int length = (int)strlen(text);
    *rest = NULL;
    if (length > width && column->least < 0) {
        int n = find_break(text, width);
        print_behind(out, text, n, blanks);
        *blanks += width - n;
        *rest = text + n + (text[n] == ' ');
    } else if (length > width) {
        print_shortened(out, text, length, width, blanks);
    } else {
        *blanks += column->align == TABLE_RIGHT ? width - length : 0;
        print_behind(out, text, length, blanks);
        *blanks += column->align == TABLE_RIGHT ? 0 : width - length;
    }
    *blanks += COLUMN_GAP;
}

/* The rest of one broken cell, below it. */
static void print_rest(FILE *out, const char *text, int column, const int *widths)
{
    int indent = CONTINUED_INDENT, width = widths[column] - CONTINUED_INDENT;
    for (int i = 0; i < column; i++)
        indent += widths[i] + COLUMN_GAP;
    while ((int)strlen(text) > width) {
        int n = find_break(text, width);
        (void)fprintf(out, "%*s%.*s\n", indent, "", n, text);
        text += n + (text[n] == ' ');
    }
    (void)fprintf(out, "%*s%s\n", indent, "", text);
}

/* Returns the first cell of the next row. At most one cell of a row goes on below. */
static const struct cell *print_row(FILE *out, const table *t, const struct cell *c,
                                    const int *widths)
{
    const char *rest = NULL;
    const struct cell *first = c;
    int broken = 0, blanks = 0;
    bool rule = false;
    (void)fputs(style_begin(out, first->style), out);
    for (int i = 0; i < t->n_columns && c; i++, c = c->next) {
        const char *more;
        print_cell(out, c->text, widths[i], &t->columns[i], &blanks, &more);
        if (more) {
            rest = more;
            broken = i;
        }
        rule = c->rule_behind;
    }
    (void)fprintf(out, "%s\n", first->style == STYLE_PLAIN ? "" : style_end(out));
    if (rest)
        print_rest(out, rest, broken, widths);
    if (rule)
        print_rule(out, t, widths);
    return c;
}

static void print_titles(FILE *out, const table *t, const int *widths)
{
    const char *rest;
    int blanks = 0;
    (void)fputs(style_begin(out, STYLE_STRONG), out);
    for (int i = 0; i < t->n_columns; i++)
        print_cell(out, t->columns[i].title, widths[i], &t->columns[i], &blanks, &rest);
    (void)fprintf(out, "%s\n", style_end(out));
    print_rule(out, t, widths);
}

enum status table_finish(table *t, FILE *out)
{
    enum status st = t->status;
    if (st == STATUS_OK) {
        int widths[TABLE_MAX_COLUMNS] = {0};
        find_widths(t, widths);
        print_titles(out, t, widths);
        for (const struct cell *c = t->first; c;)
            c = print_row(out, t, c, widths);
    }
    arena_destroy(t->memory);
    return st;
}

/* ---- sentences ---- */

void output_line(int indent, const char *format, ...)
{
    char raw[1024], text[sizeof raw];
    const char *rest = text;
    int before = 0;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    printable_copy(text, sizeof text, raw);
    while ((int)strlen(rest) > TABLE_WIDTH - before) {
        int n = find_break(rest, TABLE_WIDTH - before);
        printf("%*s%.*s\n", before, "", n, rest);
        rest += n + (rest[n] == ' ');
        before = indent;
    }
    printf("%*s%s\n", before, "", rest);
}

/* ---- JSON ---- */

json_t *output_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

enum status output_json(json_t *value)
{
    if (!value)
        return status_fail(STATUS_FAILED, "cannot write the result as JSON");
    int failed = json_dumpf(value, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(value);
    if (failed || putchar('\n') == EOF || fflush(stdout) != 0)
        return status_fail(STATUS_FAILED, "cannot write the results to standard output: %s",
                           strerror(errno));
    return STATUS_OK;
}
