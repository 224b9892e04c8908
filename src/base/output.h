/* output.h: tables, sentences and JSON on stdout. Results for people and programs alike are
 * described once with base/results.h. */
#ifndef CLEAVE_BASE_OUTPUT_H
#define CLEAVE_BASE_OUTPUT_H

#include "base/status.h"
#include "base/style.h"

#include <jansson.h>
#include <stdio.h>

/* ---- tables ----
 *
 * Cells are added row by row; the first failure is remembered and comes out of table_finish.
 *
 *     static const struct table_column columns[] = {{"layer", TABLE_LEFT, 10},
 *                                                   {"ms", TABLE_RIGHT, 0}};
 *     table *t;
 *     TRY(table_create(columns, 2, &t));
 *     table_cell(t, "%s", "conv1");
 *     table_cell(t, "%.2f", 1.25);
 *     TRY(table_finish(t, stdout));
 */

/* A name and as many batches as 'bench layers' takes. */
enum { TABLE_MAX_COLUMNS = 17, TABLE_WIDTH = 80 };

enum table_align { TABLE_LEFT, TABLE_RIGHT };

struct table_column {
    const char *title;
    enum table_align align;
    int least; /* where the table is wider than TABLE_WIDTH, cells of this column lose their middle,
                  down to this width; 0: never; negative: they lose nothing, but go on in the next
                  line, down to -least. At most one column of a table may be of that kind. */
};

typedef struct table table;

/* `columns` must outlive the table. */
enum status table_create(const struct table_column *columns, int n_columns, table **out) MUST_USE;

/* The next cell, printf-style. */
void table_cell(table *t, const char *format, ...) PRINTF_LIKE(2, 3);

/* The row that the next cell begins in colour, where there is one (base/style.h). */
void table_style(table *t, enum style style);

/* A line between the row that was just completed and the next. */
void table_rule(table *t);

/* Prints the table, or returns the first failure; destroys it either way. */
enum status table_finish(table *t, FILE *out) MUST_USE;

/* ---- sentences ---- */

/* A line on stdout, printf-style, without a newline at its end; text over TABLE_WIDTH goes on in
 * the next line, indented. */
void output_line(int indent, const char *format, ...) PRINTF_LIKE(2, 3);

/* ---- JSON ---- */

/* One JSON text and a newline, flushed; `value` is given up. NULL, the result of a json function
 * that ran out of memory or was given a number that JSON cannot hold, is a failure. */
enum status output_json(json_t *value) MUST_USE;

/* A JSON number, or null for one that is not finite. */
json_t *output_number(double value);

#endif
