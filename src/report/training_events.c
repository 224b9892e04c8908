/* The JSON lines of a training, thinned out for a chart: of a run of many steps,
 * neighbours are put together as their mean. */
#include "base/array.h"
#include "base/numbers.h"
#include "base/text.h"
#include "report/gather.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MOST_ROWS: kept while lines are read; more steps than that are put together at once. */
enum { MOST_POINTS = 2000, MOST_ROWS = 1 << 18 };

/* The columns of a step; "step" is that of the last one of a mean. */
static const char *const columns[] = {"step",      "loss",          "step_s",
                                      "compute_s", "communicate_s", "wait_s"};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

struct steps {
    double (*rows)[N_COLUMNS]; /* each the mean of so many steps: */
    int64_t per_row, in_last;  /* in_last: of the last row */
    int n, capacity;
};

/* Each two rows become one, so that the memory does not grow with the file. */
static void halve(struct steps *s)
{
    for (int i = 0; i < MOST_ROWS / 2; i++) {
        const double *one = s->rows[2 * i], *two = s->rows[2 * i + 1];
        s->rows[i][0] = two[0];
        for (int k = 1; k < N_COLUMNS; k++)
            s->rows[i][k] = (one[k] + two[k]) / 2;
    }
    s->n = MOST_ROWS / 2;
    s->per_row *= 2;
}

static enum status add_step(struct steps *s, const json_t *event)
{
    if (s->in_last == s->per_row) {
        if (s->n == MOST_ROWS)
            halve(s);
        TRY(array_reserve(NULL, &s->rows, s->n + 1, &s->capacity, sizeof *s->rows));
        memset(s->rows[s->n++], 0, sizeof *s->rows);
        s->in_last = 0;
    }
    double *row = s->rows[s->n - 1];
    s->in_last++;
    for (int k = 0; k < N_COLUMNS; k++) {
        const json_t *value = json_object_get(event, columns[k]);
        double number = json_is_number(value) ? json_number_value(value) : NAN;
        row[k] = k == 0 ? number : row[k] + (number - row[k]) / (double)s->in_last;
    }
    return STATUS_OK;
}

/* null where nothing finite is among the steps: a loss that ran away. */
static json_t *mean_json(const struct steps *s, int begin, int end, int column)
{
    double sum = 0;
    if (column == 0)
        return json_real(s->rows[end - 1][0]);
    for (int i = begin; i < end; i++)
        sum += s->rows[i][column];
    return isfinite(sum) ? json_real(sum / (double)(end - begin)) : json_null();
}

static json_t *steps_json(const struct steps *s)
{
    json_t *all = json_object();
    int n_points = int_min(s->n, MOST_POINTS);
    for (int k = 0; k < N_COLUMNS; k++) {
        json_t *column = json_array();
        for (int64_t i = 0; i < n_points; i++)
            (void)json_array_append_new(column, mean_json(s, (int)(i * s->n / n_points),
                                                          (int)((i + 1) * s->n / n_points), k));
        (void)json_object_set_new(all, columns[k], column);
    }
    return all;
}

static enum status take_event(struct steps *steps, json_t *epochs, json_t *subject, json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, "event"));
    if (!kind)
        return STATUS_OK;
    /* The run was resumed: its first end no longer holds. */
    if (strcmp(kind, "done") != 0)
        (void)json_object_del(subject, "done");
    if (strcmp(kind, "step") == 0) /* one without a number has no place in a chart */
        return json_is_number(json_object_get(event, "step")) ? add_step(steps, event) : STATUS_OK;
    if (strcmp(kind, "epoch") == 0)
        return json_array_append(epochs, event) == 0 ? STATUS_OK : status_no_memory(0);
    if (strcmp(kind, "done") == 0)
        return json_object_set(subject, "done", event) == 0 ? STATUS_OK : status_no_memory(0);
    return STATUS_OK;
}

static enum status read_lines(FILE *f, const char *path, struct steps *steps, json_t *epochs,
                              json_t *subject)
{
    struct text_line line = {.file = path};
    enum status st;
    while ((st = text_next_line(f, &line)) == STATUS_OK && line.length > 0) {
        json_error_t error;
        json_t *event = json_loads(line.text, 0, &error);
        /* A run that was killed may have left half a line at the end. */
        if (!event && line.text[line.length - 1] != '\n')
            break;
        st = event ? take_event(steps, epochs, subject, event)
                   : report_fail_json(path, (int)line.number, &error);
        json_decref(event);
        if (st != STATUS_OK)
            break;
    }
    free(line.text);
    return st;
}

enum status report_read_events(const char *path, json_t *subject)
{
    FILE *f = fopen(path, "r");
    struct steps steps = {.per_row = 1, .in_last = 1};
    json_t *epochs = json_array();
    if (!f)
        return status_fail(STATUS_FAILED, "%s: cannot read: %s", path, strerror(errno));
    enum status st = read_lines(f, path, &steps, epochs, subject);
    (void)fclose(f);
    if (st == STATUS_OK)
        (void)json_object_set_new(subject, "steps", steps_json(&steps));
    (void)json_object_set_new(subject, "epochs", epochs);
    free(steps.rows);
    return st;
}
