/* results.h: results for people and for programs.
 *
 * They are described once and printed for people (sentences and tables on stdout), as JSON (one
 * object, or lines of events, on stdout) or as CSV (a file).
 *
 *     static const struct field fields[] = {{"batch", "batch", ">", 0, 0},
 *                                           {"time", "median_s", "seconds", 0, 0},
 *                                           {"GFLOP/s", "flops_per_s", "%.1f", 1e-9, 0},
 *                                           {0}};
 *     struct results r;
 *     TRY(results_open(&r, json, csv_path));
 *     results_say(&r, 0, "matrix products on %s", device);       // people alone read it
 *     results_put(&r, "device", v_text(device));             // programs alone
 *     results_table(&r, "rows", fields, FOR_ALL);
 *     results_row(&r, (struct value[]){v_int(b), v_real(s), v_real(rate)});
 *     results_table_end(&r);
 *     return results_close(&r, STATUS_OK);                       // or the first failure
 */
#ifndef CLEAVE_BASE_RESULTS_H
#define CLEAVE_BASE_RESULTS_H

#include "base/output.h"
#include "base/whole_file.h"

#include <stdint.h>

struct field {
    const char *title;  /* of its column; NULL: people do not see it */
    const char *name;   /* in JSON and CSV; NULL: programs do not see it */
    const char *format; /* for people. NULL: as it is, to the left; ">": to the right; "seconds",
                           "bytes", "count": with a unit; else printf's for one double. A '-' before
                           it: nothing above 0 is shown as "-" */
    double scale;       /* a number's factor for people; 0: none */
    int least;          /* of struct table_column */
};

/* Programs alone see it. */
#define HIDDEN(name_)             \
    {                             \
        NULL, (name_), NULL, 0, 0 \
    }

struct value {
    enum { VALUE_TEXT, VALUE_INTEGER, VALUE_REAL, VALUE_FLAG, VALUE_JSON } kind;
    const char *text; /* NULL: there is none */
    int64_t integer;
    double real; /* not finite: there is none */
    json_t *json;
};

static inline struct value v_text(const char *text)
{
    return (struct value){.kind = VALUE_TEXT, .text = text};
}

static inline struct value v_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INTEGER, .integer = integer, .real = (double)integer};
}

static inline struct value v_real(double real)
{
    return (struct value){.kind = VALUE_REAL, .real = real};
}

static inline struct value v_flag(bool flag)
{
    return (struct value){.kind = VALUE_FLAG, .integer = flag};
}

/* Gives `json` up. */
static inline struct value v_json(json_t *json)
{
    return (struct value){.kind = VALUE_JSON, .json = json};
}

enum results_forms { FOR_PEOPLE = 1, FOR_JSON = 2, FOR_CSV = 4, FOR_ALL = 7 };
enum { RESULTS_MAX_DEPTH = 4 };

struct results {
    bool text; /* people read them: neither JSON nor CSV was asked for */
    const char *csv_path;
    FILE *csv;
    whole_file *csv_file;               /* NULL: stdout */
    json_t *objects[RESULTS_MAX_DEPTH]; /* the one that is filled is the last */
    int n_objects;                      /* 0: no JSON */
    struct {
        const char *name;
        const struct field *fields;
        table *text;
        json_t *rows;
        FILE *csv;
        bool events;
        struct table_column columns[TABLE_MAX_COLUMNS];
    } table; /* that is filled */
    enum status status;
};

/* csv_path: NULL, a file, or "-" for stdout. STATUS_USAGE where JSON is to go to stdout, too, and
 * STATUS_FAILED where the file cannot be written. Nothing is written before the first table. */
enum status results_open(struct results *r, bool json, const char *csv_path) MUST_USE;
/* Prints the JSON, closes the CSV, and returns the first failure or `st`. Nothing is printed behind
 * a failure, and the file of the CSV stays as it was. */
enum status results_close(struct results *r, enum status st) MUST_USE;

/* A line as output_line prints it. */
void results_say(struct results *r, int indent, const char *format, ...) PRINTF_LIKE(3, 4);
/* A member of the object that is filled. */
void results_put(struct results *r, const char *name, struct value value);

/* A new object takes the members, until it becomes the member `name` of the one around it, or
 * the next element of its array `name`. */
void results_enter(struct results *r);
void results_leave(struct results *r, const char *name, bool append);

/* Prints the members so far as one line of JSON, "event" at first unless it is NULL, and
 * begins anew. */
void results_event(struct results *r, const char *event);

/* In JSON an array of objects, member `name`. Fields end with {0}; at most TABLE_MAX_COLUMNS of
 * them have titles. They must outlive the table. */
void results_table(struct results *r, const char *name, const struct field *fields,
                   enum results_forms forms);
/* The same, but in JSON every row is an event. */
void results_table_events(struct results *r, const char *event, const struct field *fields,
                          enum results_forms forms);
/* As many values as there are fields. */
void results_row(struct results *r, const struct value *values);
#define RESULTS_ROW(r, ...) results_row(r, (struct value[]){__VA_ARGS__})
/* A line below the row, for people. */
void results_rule(struct results *r);
void results_table_end(struct results *r);

#endif
