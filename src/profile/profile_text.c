/* profile_text.c: a profile as text, there and back.
 *
 *     cleave profile 2
 *     # cost  device  threads  load  key  family  flops  ..  count  measured     disturbed
 *     cost    cpu ... 2        1     ...  ...     1e9    ..  25     2025-01-...  0
 *     text    NAME    VALUE
 *
 * Fields are set apart by tabs; \t, \n, \r and \\ stand for these characters within one. Lines that
 * begin with # and empty lines say nothing. Numbers have as many digits as it takes to read back
 * the same bits. Version 1 has no `disturbed`.
 */
#include "profile/profile_parts.h"

#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_VERSION = 2, COST_FIELDS = 13, TEXT_FIELDS = 3, FIELDS_MAX = COST_FIELDS };

static const char version_line[] = "cleave profile ";
static const char sqlite_magic[] = "SQLite format 3";

static const char *const cost_fields[COST_FIELDS] = {
    "cost",  "device",  "threads", "load",  "key",      "family",   "flops",
    "bytes", "seconds", "spread",  "count", "measured", "disturbed"};

/* ---- writing ---- */

static void put_field(FILE *out, const char *text, char end)
{
    static const char plain[] = "\t\n\r\\", letters[] = "tnr\\";
    for (; *text; text++) {
        const char *special = strchr(plain, *text);
        if (special)
            (void)fputc('\\', out);
        (void)fputc(special ? letters[special - plain] : *text, out);
    }
    (void)fputc(end, out);
}

/* The fewest digits that give the same number. */
static void put_real(FILE *out, double value, char end)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    put_field(out, text, end);
}

static void put_row(FILE *out, const struct store_row *r)
{
    put_field(out, "cost", '\t');
    put_field(out, r->setting.device, '\t');
    (void)fprintf(out, "%d\t%d\t", r->setting.threads, r->setting.load);
    put_field(out, r->entry.key, '\t');
    put_field(out, r->entry.work.family, '\t');
    put_real(out, r->entry.work.flops, '\t');
    put_real(out, r->entry.work.bytes, '\t');
    put_real(out, r->entry.cost.seconds, '\t');
    put_real(out, r->entry.cost.spread, '\t');
    (void)fprintf(out, "%d\t", r->entry.cost.count);
    put_field(out, r->measured, '\t');
    put_real(out, r->entry.cost.disturbed, '\n');
}

enum status profile_print_text(const struct store_content *c, FILE *out)
{
    (void)fprintf(out, "%s%d\n# ", version_line, TEXT_VERSION);
    for (int i = 0; i < COST_FIELDS; i++)
        put_field(out, cost_fields[i], i + 1 < COST_FIELDS ? '\t' : '\n');
    for (int i = 0; i < c->n_rows; i++)
        put_row(out, &c->rows[i]);
    for (int i = 0; i < c->n_texts; i++) {
        put_field(out, "text", '\t');
        put_field(out, c->texts[i].name, '\t');
        put_field(out, c->texts[i].value, '\n');
    }
    errno = 0;
    if (fflush(out) != 0 || ferror(out))
        return status_fail(STATUS_FAILED, "cannot write the exported profile: %s",
                           errno ? strerror(errno) : "an earlier write failed");
    return STATUS_OK;
}

enum status profile_export(profile *p, FILE *out)
{
    struct store_content content;
    TRY(store_content_create(&content));
    enum status st;
    /* All rows are read first: the reader of `out` may be slow, and would keep the file locked. */
    TRY_GOTO(st, store_read_all(p->store, &content), out);
    TRY_GOTO(st, profile_print_text(&content, out), out);
out:
    store_content_destroy(&content);
    return st;
}

/* ---- reading ---- */

/* A line and where it is. */
struct line {
    const char *file;
    long long number;
    int n_cost_fields; /* by the version of the text */
    char *text;
    size_t capacity;
    char *fields[FIELDS_MAX];
    int columns[FIELDS_MAX]; /* from 1 */
    int n_fields;
};

static enum status fail_at(const struct line *l, int field, const char *what)
{
    const char *name = l->n_fields == l->n_cost_fields ? cost_fields[field] : "";
    return status_fail(STATUS_FAILED, "%s:%lld:%d: %s%s'%.40s' %s", l->file, l->number,
                       l->columns[field], name, *name ? " " : "", l->fields[field], what);
}

/* *end: there are no more. */
static enum status read_line(FILE *in, struct line *l, bool *end)
{
    struct text_line line = {l->file, l->text, l->capacity, 0, l->number};
    *end = true;
    enum status st = text_next_line(in, &line);
    l->text = line.text;
    l->capacity = line.capacity;
    l->number = line.number;
    TRY(st);
    *end = line.length == 0;
    if (*end)
        return STATUS_OK;
    if (strlen(l->text) != line.length)
        return status_fail(STATUS_FAILED, "%s:%lld: a zero byte: this is no exported profile",
                           l->file, l->number);
    l->text[strcspn(l->text, "\n")] = '\0';
    size_t left = strlen(l->text);
    if (left > 0 && l->text[left - 1] == '\r')
        l->text[left - 1] = '\0';
    return STATUS_OK;
}

static enum status unescape(const struct line *l, int field)
{
    static const char letters[] = "tnr\\", plain[] = "\t\n\r\\";
    char *to = l->fields[field];
    for (const char *from = to; *from; from++) {
        if (*from == '\\') {
            const char *letter = from[1] ? strchr(letters, from[1]) : NULL;
            if (!letter)
                return fail_at(l, field, "has a \\ that is not followed by t, n, r or \\");
            *to++ = plain[letter - letters];
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return STATUS_OK;
}

static enum status split(struct line *l)
{
    char *at = l->text;
    for (l->n_fields = 0; at; l->n_fields++) {
        if (l->n_fields == FIELDS_MAX)
            return status_fail(STATUS_FAILED, "%s:%lld: more than %d fields", l->file, l->number,
                               FIELDS_MAX);
        l->fields[l->n_fields] = at;
        l->columns[l->n_fields] = (int)(at - l->text) + 1;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    const char *kind = l->fields[0];
    int expected = !strcmp(kind, "cost")   ? l->n_cost_fields
                   : !strcmp(kind, "text") ? TEXT_FIELDS
                                           : 0;
    if (expected == 0)
        return status_fail(STATUS_FAILED, "%s:%lld:1: '%.40s' must be 'cost' or 'text'", l->file,
                           l->number, kind);
    if (l->n_fields != expected)
        return status_fail(STATUS_FAILED, "%s:%lld: %d fields where a '%s' has %d", l->file,
                           l->number, l->n_fields, kind, expected);
    for (int i = 1; i < l->n_fields; i++)
        TRY(unescape(l, i));
    return STATUS_OK;
}

static enum status get_integer(const struct line *l, int field, int least, int *out)
{
    char *end, what[64];
    errno = 0;
    long value = strtol(l->fields[field], &end, 10);
    if (end == l->fields[field] || *end || errno || value < least || value > INT_MAX) {
        (void)snprintf(what, sizeof what, "must be a whole number from %d to %d", least, INT_MAX);
        return fail_at(l, field, what);
    }
    *out = (int)value;
    return STATUS_OK;
}

static enum status get_real(const struct line *l, int field, double *out)
{
    char *end;
    double value = strtod(l->fields[field], &end);
    if (end == l->fields[field] || *end || !isfinite(value) || value < 0)
        return fail_at(l, field, "must be a number, at least 0");
    *out = value;
    return STATUS_OK;
}

static enum status take_cost(const struct line *l, struct store_content *c)
{
    struct store_row row = {
        .setting = {.device = l->fields[1]},
        .entry = {.key = l->fields[4], .work = {.family = l->fields[5]}, .cost = {.disturbed = 1}},
        .measured = l->fields[11],
    };
    TRY(get_integer(l, 2, 0, &row.setting.threads));
    TRY(get_integer(l, 3, 1, &row.setting.load));
    TRY(get_real(l, 6, &row.entry.work.flops));
    TRY(get_real(l, 7, &row.entry.work.bytes));
    TRY(get_real(l, 8, &row.entry.cost.seconds));
    TRY(get_real(l, 9, &row.entry.cost.spread));
    TRY(get_integer(l, 10, 1, &row.entry.cost.count));
    if (l->n_fields == COST_FIELDS)
        TRY(get_real(l, 12, &row.entry.cost.disturbed));
    const char *wrong = store_check_row(&row);
    if (wrong)
        return status_fail(STATUS_FAILED, "%s:%lld: %s", l->file, l->number, wrong);
    return store_content_add_row(c, &row);
}

static enum status take_line(struct line *l, struct store_content *c)
{
    if (!*l->text || *l->text == '#')
        return STATUS_OK;
    TRY(split(l));
    if (l->n_fields == l->n_cost_fields)
        return take_cost(l, c);
    return store_content_add_text(c, &(struct store_text){l->fields[1], l->fields[2]});
}

static enum status check_version(struct line *l)
{
    size_t head = sizeof version_line - 1;
    char *end;
    if (strncmp(l->text, version_line, head) != 0)
        return status_fail(STATUS_FAILED,
                           "%s:1: is no profile: neither a profile file nor what 'cleave profile "
                           "export' writes, which begins with '%s%d'",
                           l->file, version_line, TEXT_VERSION);
    long version = strtol(l->text + head, &end, 10);
    if (*end || version < 1 || version > TEXT_VERSION)
        return status_fail(STATUS_FAILED,
                           "%s:1: version '%.20s' of the text is not known, only 1 to %d: written "
                           "by a later version of Cleave?",
                           l->file, l->text + head, TEXT_VERSION);
    l->n_cost_fields = version == 1 ? COST_FIELDS - 1 : COST_FIELDS;
    return STATUS_OK;
}

/* The lines behind the first, which `l` holds. */
static enum status parse_lines(FILE *in, struct line *l, struct store_content *content)
{
    bool end = false;
    TRY(check_version(l));
    while (!end) {
        TRY(read_line(in, l, &end));
        if (!end)
            TRY(take_line(l, content));
    }
    return STATUS_OK;
}

static enum status read_first_line(FILE *in, struct line *l)
{
    bool end;
    TRY(read_line(in, l, &end));
    if (end)
        return status_fail(STATUS_FAILED, "%s: is empty, and no profile", l->file);
    return STATUS_OK;
}

enum status profile_parse_text(FILE *in, const char *name, struct store_content *content)
{
    struct line l = {.file = name};
    enum status st;
    TRY_GOTO(st, read_first_line(in, &l), out);
    TRY_GOTO(st, parse_lines(in, &l, content), out);
out:
    free(l.text);
    return st;
}

/* ---- importing ---- */

static enum status write_content(store *s, const struct store_content *c, int64_t *n_added)
{
    enum status st;
    bool added;
    *n_added = 0;
    TRY(store_begin(s));
    for (int i = 0; i < c->n_rows; i++) {
        TRY_GOTO(st, store_add_row(s, &c->rows[i], false, &added), out);
        *n_added += added;
    }
    for (int i = 0; i < c->n_texts; i++) {
        TRY_GOTO(st, store_add_text(s, &c->texts[i], false, &added), out);
        *n_added += added;
    }
    st = STATUS_OK;
out:
    return store_end(s, st);
}

static enum status read_store(const char *path, struct store_content *content)
{
    store *other;
    TRY(store_open(path, &other));
    enum status st = store_read_all(other, content);
    store_close(other);
    return st;
}

/* Told apart by the first character: "SQLite format 3" and "cleave profile". */
static enum status read_any(const char *path, struct store_content *content)
{
    FILE *in = fopen(path, "rb");
    if (!in)
        return status_fail(STATUS_FAILED, "%s: cannot read: %s", path, strerror(errno));
    int first = getc(in);
    bool is_store = first == sqlite_magic[0];
    enum status st = STATUS_OK;
    if (!is_store) {
        (void)ungetc(first, in);
        st = profile_parse_text(in, path, content);
    }
    (void)fclose(in);
    return is_store ? read_store(path, content) : st;
}

enum status profile_import(profile *p, const char *path, int64_t *added)
{
    struct store_content content;
    TRY(store_content_create(&content));
    enum status st;
    TRY_GOTO(st, read_any(path, &content), out);
    TRY_GOTO(st, write_content(p->store, &content, added), out);
    cache_forget(p->cache);
out:
    store_content_destroy(&content);
    return st;
}
