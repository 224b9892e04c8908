/* A trace (program/timeline.h) packed for the page: of each worker the slices of one step, as
 * bytes.
 *
 * A trace of 1024 workers has a million slices, 150 MB of JSON. Here a slice takes five to seven
 * bytes: times are whole quanta, a few millions of which make the step, and a slice is three
 * numbers of variable length (seven bits a byte, the lowest first, the eighth says that more
 * follow):
 *
 *     begin - end of the slice before it     doubled, and inverted where it is negative
 *     duration
 *     8 * name + category
 *
 * Of each worker first come the slices of its computing, then those of its communication; "counts"
 * says how many. The page reads it with cleave.unpackTimeline (web/data.js).
 *
 * A measured trace has many steps: that of median duration is taken, among those of the full batch.
 */
#include "base/array.h"
#include "base/text.h"
#include "report/gather.h"

#include "base/log.h"
#include "base/progress.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MOST_QUANTA = 1 << 22,
    MOST_WORKERS = 1 << 16,
    MANY_WORKERS = 32, /* from here on names do not say which worker a message is for */
    LANES = 2,         /* computing, communicating */
    VARINT_BYTES = 10,
    LINES_BETWEEN = 50000,
};

/* In the order of web/data.js. */
static const char *const categories[] = {"compute", "communicate", "wait", "load", "step", NULL};

struct slice {
    double begin_us, duration_us;
    json_int_t step;
    int worker, name;
    unsigned char category;
    bool lane; /* communicating */
    bool measured;
};

struct trace {
    const char *path;
    json_t *head; /* otherData */
    bool merged;  /* predicted and measured times in one file */
    int n_workers;
    json_t *names;   /* by number */
    json_t *numbers; /* by name */
    struct slice *slices;
    int n, capacity;
};

/* ---- reading ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static json_int_t integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static enum status number_name(struct trace *t, const char *text, int *out)
{
    char name[256];
    (void)snprintf(name, sizeof name, "%s", text);
    char *peer = strstr(name, " to worker ");
    if (!peer)
        peer = strstr(name, " from worker ");
    if (peer && t->n_workers > MANY_WORKERS)
        *peer = '\0';
    const json_t *known = json_object_get(t->numbers, name);
    *out = known ? (int)json_integer_value(known) : (int)json_array_size(t->names);
    if (!known && (json_array_append_new(t->names, json_string(name)) != 0 ||
                   json_object_set_new(t->numbers, name, json_integer(*out)) != 0))
        return status_fail_content("%s: an instruction's name is no text", t->path);
    return STATUS_OK;
}

static unsigned char category_of(const json_t *event)
{
    const char *text = text_of(event, "cat");
    for (unsigned char k = 0; categories[k]; k++)
        if (strcmp(categories[k], text) == 0)
            return k;
    return 0;
}

static enum status take_event(struct trace *t, const json_t *event)
{
    const json_t *begin = json_object_get(event, "ts"), *duration = json_object_get(event, "dur");
    json_int_t process = integer_of(event, "pid");
    json_int_t worker = t->merged ? process / 2 : process;
    if (strcmp(text_of(event, "ph"), "X") != 0)
        return STATUS_OK;
    if (process < 0 || worker >= t->n_workers || !json_is_number(begin) ||
        !json_is_number(duration))
        return status_fail_content("%s: a slice of worker %lld, of %d, or without times", t->path,
                                   (long long)worker, t->n_workers);
    TRY(array_reserve(NULL, &t->slices, t->n + 1, &t->capacity, sizeof *t->slices));
    struct slice *s = &t->slices[t->n++];
    *s = (struct slice){.begin_us = json_number_value(begin),
                        .duration_us = fmax(json_number_value(duration), 0),
                        .step = integer_of(json_object_get(event, "args"), "step"),
                        .worker = (int)worker,
                        .lane = integer_of(event, "tid") > 0,
                        .category = category_of(event),
                        .measured = t->merged ? process % 2 == 1
                                              : strcmp(text_of(t->head, "kind"), "measured") == 0};
    return number_name(t, text_of(event, "name"), &s->name);
}

/* The first line is an object up to its second member, which the lines after it fill. */
static enum status read_head(struct trace *t, char *line)
{
    json_error_t error;
    size_t n = strcspn(line, "\n");
    if (n > 0 && line[n - 1] == ',')
        line[n - 1] = '}';
    json_t *root = json_loadb(line, n, 0, &error);
    t->head = json_incref(json_object_get(root, "otherData"));
    json_decref(root);
    json_int_t workers = integer_of(t->head, "workers");
    if (workers < 1 || workers > MOST_WORKERS)
        return status_fail_content(
            "%s: is no trace that 'cleave train --trace' or 'predict --trace' wrote", t->path);
    t->n_workers = (int)workers;
    t->merged = strcmp(text_of(t->head, "kind"), "predicted and measured") == 0;
    return STATUS_OK;
}

/* One event a line, with a comma behind it; the brackets have lines of their own. */
static enum status read_line(struct trace *t, const char *line, int number)
{
    json_error_t error;
    size_t n = strcspn(line, "\n");
    n -= n > 0 && line[n - 1] == ',';
    if (n < 3 || line[0] != '{')
        return STATUS_OK;
    json_t *event = json_loadb(line, n, 0, &error);
    if (!event)
        return report_fail_json(t->path, number, &error);
    enum status st = take_event(t, event);
    json_decref(event);
    return st;
}

/* Large traces take seconds. */
static void show_progress(const struct trace *t, FILE *f, off_t n_bytes, int number)
{
    static struct progress progress;
    if (number % LINES_BETWEEN == 0 && n_bytes > 0)
        progress_show(&progress, (double)ftello(f) / (double)n_bytes, "reading %s", t->path);
}

static enum status read_trace(struct trace *t, FILE *f)
{
    struct stat about = {0};
    struct text_line line = {.file = t->path};
    enum status st;
    (void)fstat(fileno(f), &about); /* memory has no number: then nothing is known */
    while ((st = text_next_line(f, &line)) == STATUS_OK && line.length > 0) {
        int number = (int)line.number;
        st = number == 1 ? read_head(t, line.text) : read_line(t, line.text, number);
        if (st != STATUS_OK)
            break;
        show_progress(t, f, about.st_size, number);
    }
    log_progress_end();
    if (st == STATUS_OK && !t->head)
        st = status_fail_content("%s: is empty", t->path);
    free(line.text);
    return st;
}

/* ---- choosing a step ---- */

struct span {
    json_int_t step;
    double begin_us, end_us;
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    double d = (x->end_us - x->begin_us) - (y->end_us - y->begin_us);
    return (d > 0) - (d < 0);
}

/* Those of the batch that most steps have: the largest. */
static size_t list_spans(const struct trace *t, struct span *spans)
{
    const json_t *runs = json_object_get(t->head, "runs");
    json_int_t batch = 0;
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_int_t of = integer_of(json_array_get(runs, i), "batch");
        batch = of > batch ? of : batch;
    }
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        if (integer_of(run, "batch") == batch)
            spans[n++] = (struct span){integer_of(run, "step"), INFINITY, -INFINITY};
    }
    return n;
}

static void measure_spans(const struct trace *t, bool measured, struct span *spans, size_t n)
{
    for (int i = 0; i < t->n; i++) {
        const struct slice *s = &t->slices[i];
        for (size_t k = 0; k < n && s->measured == measured; k++)
            if (spans[k].step == s->step) {
                spans[k].begin_us = fmin(spans[k].begin_us, s->begin_us);
                spans[k].end_us = fmax(spans[k].end_us, s->begin_us + s->duration_us);
            }
    }
}

/* In a merged file both parts have one step, under numbers of their own. */
static struct span choose_whole(const struct trace *t, bool measured)
{
    struct span all = {-1, INFINITY, -INFINITY};
    for (int i = 0; i < t->n; i++) {
        const struct slice *s = &t->slices[i];
        if (s->measured != measured)
            continue;
        all.step = s->step;
        all.begin_us = fmin(all.begin_us, s->begin_us);
        all.end_us = fmax(all.end_us, s->begin_us + s->duration_us);
    }
    return all;
}

static enum status choose_span(const struct trace *t, bool measured, struct span *out)
{
    size_t n_runs = json_array_size(json_object_get(t->head, "runs"));
    if (t->merged || n_runs < 2) {
        *out = choose_whole(t, measured);
        return STATUS_OK;
    }
    struct span *spans = calloc(n_runs, sizeof *spans);
    if (!spans)
        return status_no_memory(n_runs * sizeof *spans);
    size_t n = list_spans(t, spans);
    measure_spans(t, measured, spans, n);
    /* A step of which nothing was kept is the shortest: -inf. */
    qsort(spans, n, sizeof *spans, compare_spans);
    *out = spans[n / 2];
    free(spans);
    return STATUS_OK;
}

/* ---- packing ---- */

struct packed {
    unsigned char *bytes;
    size_t n;
};

static void put_number(struct packed *p, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        p->bytes[p->n++] = (unsigned char)(value | 0x80);
    p->bytes[p->n++] = (unsigned char)value;
}

static void put_signed(struct packed *p, int64_t value)
{
    put_number(p, value < 0 ? ((uint64_t)(-(value + 1)) << 1) | 1 : (uint64_t)value << 1);
}

static int compare_slices(const void *a, const void *b)
{
    const struct slice *x = *(const struct slice *const *)a, *y = *(const struct slice *const *)b;
    if (x->worker != y->worker)
        return x->worker < y->worker ? -1 : 1;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return (x->begin_us > y->begin_us) - (x->begin_us < y->begin_us);
}

/* base64, for a JSON text. */
static json_t *bytes_json(const struct packed *p)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((p->n + 2) / 3 * 4 + 1), *at = text;
    if (!text)
        return NULL;
    for (size_t i = 0; i < p->n; i += 3) {
        unsigned value = (unsigned)p->bytes[i] << 16;
        value |= i + 1 < p->n ? (unsigned)p->bytes[i + 1] << 8 : 0;
        value |= i + 2 < p->n ? p->bytes[i + 2] : 0;
        for (int k = 0; k < 4; k++)
            *at++ = i + (size_t)k > p->n ? '=' : digits[(value >> (18 - 6 * k)) & 63];
    }
    json_t *json = json_stringn(text, (size_t)(at - text));
    free(text);
    return json;
}

struct packing {
    const struct trace *trace;
    struct span span;
    double quantum_us;
    struct slice **order; /* by worker, lane, begin */
    size_t n;
    struct packed packed;
    json_t *counts; /* of each worker's lanes, one after the other */
};

static int64_t quanta(const struct packing *p, double t_us)
{
    return (int64_t)llround((t_us - p->span.begin_us) / p->quantum_us);
}

static void pack_lane(struct packing *p, size_t first, size_t end)
{
    int64_t reached = 0;
    for (size_t i = first; i < end; i++) {
        const struct slice *s = p->order[i];
        int64_t begin = quanta(p, s->begin_us), last = quanta(p, s->begin_us + s->duration_us);
        put_signed(&p->packed, begin - reached);
        put_number(&p->packed, (uint64_t)(last - begin));
        put_number(&p->packed, (uint64_t)s->name * 8 + s->category);
        reached = last;
    }
}

static void pack_lanes(struct packing *p)
{
    size_t i = 0;
    for (int lane = 0; lane < LANES * p->trace->n_workers; lane++) {
        size_t first = i;
        while (i < p->n && p->order[i]->worker * LANES + p->order[i]->lane == lane)
            i++;
        (void)json_array_append_new(p->counts, json_integer((json_int_t)(i - first)));
        pack_lane(p, first, i);
    }
}

static enum status order_slices(struct packing *p, bool measured)
{
    const struct trace *t = p->trace;
    size_t most = (size_t)t->n + 1;
    p->order = calloc(most, sizeof(struct slice *));
    p->packed.bytes = calloc(most, (size_t)3 * VARINT_BYTES);
    p->counts = json_array();
    if (!p->order || !p->packed.bytes || !p->counts)
        return status_no_memory(most * sizeof *p->order);
    for (int i = 0; i < t->n; i++) {
        struct slice *s = &t->slices[i];
        if (s->measured == measured && s->step == p->span.step)
            p->order[p->n++] = s;
    }
    qsort(p->order, p->n, sizeof(struct slice *), compare_slices);
    return STATUS_OK;
}

static enum status add_timeline(struct packing *p, bool measured, json_t *timelines)
{
    const struct trace *t = p->trace;
    TRY(order_slices(p, measured));
    double span_us = p->span.end_us - p->span.begin_us;
    p->quantum_us = fmax(span_us / MOST_QUANTA, 1e-3);
    pack_lanes(p);
    json_t *line = json_pack("{s:s, s:s, s:i, s:I, s:f, s:f, s:O, s:O, s:o}", "kind",
                             measured ? "measured" : "predicted", "plan", text_of(t->head, "plan"),
                             "workers", t->n_workers, "step", p->span.step, "span_s",
                             span_us * 1e-6, "quantum_s", p->quantum_us * 1e-6, "names", t->names,
                             "counts", p->counts, "data", bytes_json(&p->packed));
    return line && json_array_append_new(timelines, line) == 0 ? STATUS_OK
                                                               : status_no_memory(p->packed.n);
}

static enum status pack_part(const struct trace *t, bool measured, json_t *timelines)
{
    struct packing p = {.trace = t};
    TRY(choose_span(t, measured, &p.span));
    if (!(p.span.end_us > p.span.begin_us))
        return STATUS_OK; /* nothing of this kind */
    enum status st = add_timeline(&p, measured, timelines);
    json_decref(p.counts);
    free(p.packed.bytes);
    free(p.order);
    return st;
}

enum status report_pack_trace(FILE *f, const char *name, json_t *timelines)
{
    struct trace t = {.path = name, .names = json_array(), .numbers = json_object()};
    enum status st;
    TRY_GOTO(st, read_trace(&t, f), out);
    TRY_GOTO(st, pack_part(&t, false, timelines), out);
    TRY_GOTO(st, pack_part(&t, true, timelines), out);
out:
    free(t.slices);
    json_decref(t.numbers);
    json_decref(t.names);
    json_decref(t.head);
    return st;
}

enum status report_read_trace(const char *path, json_t *timelines)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return status_fail(STATUS_FAILED, "%s: cannot read: %s", path, strerror(errno));
    enum status st = report_pack_trace(f, path, timelines);
    (void)fclose(f);
    return st;
}
