#include "cli/output.h"

#include "base/arena.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 16, COLUMN_GAP = 2 };

struct cell {
    const char *text;
    bool rule_behind; /* on the last cell of a row */
    struct cell *next;
};

struct table {
    arena *memory; /* owns the table, too */
    const struct table_column *columns;
    int n_columns, n_in_row;
    struct cell *first, *last;
    enum status status;
};

enum status table_create(const struct table_column *columns, int n_columns, table **out)
{
    if (n_columns > MAX_COLUMNS)
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
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct cell *c;
    t->status = arena_alloc(t->memory, sizeof *c, &c);
    if (t->status != STATUS_OK)
        return;
    t->status = arena_copy_text(t->memory, text, &c->text);
    if (t->last)
        t->last->next = c;
    else
        t->first = c;
    t->last = c;
    t->n_in_row = (t->n_in_row + 1) % t->n_columns;
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
            if (t->columns[i].least > 0 && widths[i] > t->columns[i].least &&
                (widest < 0 || widths[i] > widths[widest]))
                widest = i;
        if (widest < 0)
            return;
        widths[widest]--;
        total--;
    }
}

/* Names differ at their ends as much as at their beginnings: what is left out is in the middle. */
static void print_cell(FILE *out, const char *text, int width, enum table_align align, bool last)
{
    int length = (int)strlen(text);
    if (length > width) {
        int head = (width - 1) / 2, tail = width - 1 - head;
        (void)fprintf(out, "%.*s\u2026%s", head, text, text + length - tail);
    } else if (align == TABLE_RIGHT) {
        (void)fprintf(out, "%*s", width, text);
    } else {
        (void)fprintf(out, "%-*s", last ? 0 : width, text);
    }
    if (last)
        (void)fputc('\n', out);
    else
        (void)fprintf(out, "%*s", COLUMN_GAP, "");
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

enum status table_finish(table *t, FILE *out)
{
    enum status st = t->status;
    if (st == STATUS_OK) {
        int widths[MAX_COLUMNS] = {0};
        find_widths(t, widths);
        for (int i = 0; i < t->n_columns; i++)
            print_cell(out, t->columns[i].title, widths[i], t->columns[i].align,
                       i + 1 == t->n_columns);
        print_rule(out, t, widths);
        int column = 0;
        for (const struct cell *c = t->first; c;
             c = c->next, column = (column + 1) % t->n_columns) {
            print_cell(out, c->text, widths[column], t->columns[column].align,
                       column + 1 == t->n_columns);
            if (c->rule_behind)
                print_rule(out, t, widths);
        }
    }
    arena_destroy(t->memory);
    return st;
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
