#include "base/results.h"

#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

static void results_fail(struct results *r, enum status st)
{
    if (r->status == STATUS_OK)
        r->status = st;
}

/* Keeps `json` in the object, or says that memory ran out. */
static void set_member(struct results *r, json_t *object, const char *name, json_t *json)
{
    if (json_object_set_new(object, name, json) != 0)
        results_fail(r, status_fail(STATUS_FAILED, "cannot write the result as JSON"));
}

enum status results_open(struct results *r, bool json, const char *csv_path)
{
    *r = (struct results){.text = !json && !csv_path, .csv_path = csv_path, .n_objects = json};
    if (csv_path && json && strcmp(csv_path, "-") == 0)
        return status_fail(STATUS_USAGE, "--csv - and --json both go to standard output: name a "
                                         "file, or leave one out");
    if (csv_path && strcmp(csv_path, "-") != 0)
        TRY(whole_file_check_place(csv_path));
    if (json)
        r->objects[0] = json_object();
    return STATUS_OK;
}

enum status results_close(struct results *r, enum status st)
{
    results_fail(r, st);
    errno = 0;
    if (r->csv_file)
        results_fail(r, whole_file_end(r->csv_file, r->status));
    else if (r->csv && (fflush(r->csv) != 0 || ferror(r->csv)))
        results_fail(
            r, status_fail(STATUS_FAILED, "%s: cannot write: %s", r->csv_path, strerror(errno)));
    if (r->status == STATUS_OK && r->n_objects > 0 && json_object_size(r->objects[0]) > 0)
        return output_json(r->objects[0]);
    for (int i = 0; i < r->n_objects; i++)
        json_decref(r->objects[i]);
    return r->status;
}

void results_say(struct results *r, int indent, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->text && r->status == STATUS_OK)
        output_line(indent, "%s", text);
}

static json_t *value_to_json(const struct value *v)
{
    switch (v->kind) {
    case VALUE_TEXT:
        return v->text ? json_string(v->text) : json_null();
    case VALUE_INTEGER:
        return json_integer((json_int_t)v->integer);
    case VALUE_REAL:
        return output_number(v->real);
    case VALUE_FLAG:
        return json_boolean(v->integer);
    case VALUE_JSON:
        break;
    }
    return v->json;
}

void results_put(struct results *r, const char *name, struct value value)
{
    if (r->n_objects > 0)
        set_member(r, r->objects[r->n_objects - 1], name, value_to_json(&value));
    else if (value.kind == VALUE_JSON)
        json_decref(value.json);
}

void results_enter(struct results *r)
{
    if (r->n_objects > 0)
        r->objects[r->n_objects++] = json_object();
}

void results_leave(struct results *r, const char *name, bool append)
{
    if (r->n_objects == 0)
        return;
    json_t *inner = r->objects[--r->n_objects], *outer = r->objects[r->n_objects - 1];
    if (append && !json_object_get(outer, name))
        set_member(r, outer, name, json_array());
    if (append)
        (void)json_array_append_new(json_object_get(outer, name), inner);
    else
        set_member(r, outer, name, inner);
}

void results_event(struct results *r, const char *event)
{
    if (r->n_objects == 0)
        return;
    json_t *line = event ? json_pack("{s:s}", "event", event) : json_object();
    (void)json_object_update(line, r->objects[0]);
    (void)json_object_clear(r->objects[0]);
    results_fail(r, output_json(line));
}

/* A field may be for neither people nor programs, in a table that leaves it out. */
static bool is_end(const struct field *f)
{
    return !f->title && !f->name && !f->format;
}

static void open_csv(struct results *r)
{
    if (strcmp(r->csv_path, "-") == 0) {
        r->csv = stdout;
        return;
    }
    results_fail(r, whole_file_open(r->csv_path, &r->csv_file));
    r->csv = r->csv_file ? whole_file_stream(r->csv_file) : NULL;
}

void results_table(struct results *r, const char *name, const struct field *fields,
                   enum results_forms forms)
{
    int n = 0;
    r->table.name = name;
    r->table.fields = fields;
    for (const struct field *f = fields; !is_end(f) && n < TABLE_MAX_COLUMNS; f++)
        if (f->title)
            r->table.columns[n++] =
                (struct table_column){f->title, f->format ? TABLE_RIGHT : TABLE_LEFT, f->least};
    if (r->text && forms & FOR_PEOPLE)
        results_fail(r, table_create(r->table.columns, n, &r->table.text));
    if (r->n_objects > 0 && forms & FOR_JSON)
        r->table.rows = json_array();
    if (!r->csv_path || !(forms & FOR_CSV))
        return;
    if (!r->csv)
        open_csv(r);
    if (!r->csv)
        return;
    r->table.csv = r->csv;
    const char *between = "";
    for (const struct field *f = fields; !is_end(f); f++)
        if (f->name) {
            (void)fprintf(r->csv, "%s%s", between, f->name);
            between = ",";
        }
    (void)fputc('\n', r->csv);
}

void results_table_events(struct results *r, const char *event, const struct field *fields,
                          enum results_forms forms)
{
    results_table(r, event, fields, forms);
    r->table.events = true;
}

static void add_text(table *t, const struct field *f, const struct value *v)
{
    const char *format = f->format ? f->format : ">";
    double number = v->real * (f->scale != 0 ? f->scale : 1);
    bool is_number = v->kind == VALUE_INTEGER || v->kind == VALUE_REAL;
    char text[32];
    if (*format == '-' && format++ && !(number > 0))
        table_cell(t, "-");
    else if (v->kind == VALUE_FLAG)
        table_cell(t, v->integer ? "yes" : "no");
    else if (!is_number)
        table_cell(t, "%s", v->text ? v->text : "-");
    else if (!isfinite(number))
        table_cell(t, "-");
    else if (strcmp(format, "seconds") == 0)
        table_cell(t, "%s", text_seconds(text, sizeof text, number));
    else if (strcmp(format, "bytes") == 0)
        table_cell(t, "%s", text_bytes(text, sizeof text, number));
    else if (strcmp(format, "count") == 0)
        table_cell(t, "%s", text_count(text, sizeof text, number));
    else if (*format == '>' && v->kind == VALUE_INTEGER)
        table_cell(t, "%lld", (long long)v->integer);
    else
        table_cell(t, *format == '>' ? "%g" : format, number);
}

static void add_csv(FILE *f, const struct value *v)
{
    if (v->kind == VALUE_INTEGER)
        (void)fprintf(f, "%lld", (long long)v->integer);
    else if (v->kind == VALUE_REAL && isfinite(v->real))
        (void)fprintf(f, "%.9g", v->real);
    else if (v->kind == VALUE_TEXT && v->text)
        (void)fputs(v->text, f);
    else if (v->kind == VALUE_FLAG)
        (void)fputs(v->integer ? "true" : "false", f);
}

void results_row(struct results *r, const struct value *values)
{
    json_t *row = r->table.rows ? json_object() : NULL;
    const char *between = "";
    for (const struct field *f = r->table.fields; !is_end(f); f++, values++) {
        if (r->table.text && f->title)
            add_text(r->table.text, f, values);
        if (r->table.csv && f->name) {
            (void)fputs(between, r->table.csv);
            add_csv(r->table.csv, values);
            between = ",";
        }
        if (row && f->name)
            set_member(r, row, f->name, value_to_json(values));
        else if (values->kind == VALUE_JSON)
            json_decref(values->json);
    }
    if (r->table.csv)
        (void)fputc('\n', r->table.csv);
    if (row && r->table.events) {
        (void)json_object_update(r->objects[0], row);
        json_decref(row);
        results_event(r, r->table.name);
    } else if (row && json_array_append_new(r->table.rows, row) != 0) {
        results_fail(r, status_no_memory(0));
    }
}

void results_rule(struct results *r)
{
    if (r->table.text)
        table_rule(r->table.text);
}

void results_table_end(struct results *r)
{
    if (r->table.text)
        results_fail(r, table_finish(r->table.text, stdout));
    if (r->table.rows && !r->table.events)
        set_member(r, r->objects[r->n_objects - 1], r->table.name, r->table.rows);
    else
        json_decref(r->table.rows);
    memset(&r->table, 0, sizeof r->table);
}
