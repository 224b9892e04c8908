#include "base/json.h"

#include "base/printable.h"
#include "base/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = 700, PATH_TEXT_MAX = 256, LIST_MAX = 480 };

static enum status blame(const struct json_text *t)
{
    return t->typed ? STATUS_USAGE : STATUS_FAILED;
}

const char *json_error_reason(const json_error_t *error)
{
    switch (json_error_code(error)) {
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "the character \\u0000 is not allowed in a text";
    case json_error_stack_overflow:
        return "lists and objects are nested too deeply";
    default:
        return error->text;
    }
}

enum status json_open(struct json_text *t)
{
    json_error_t error;
    t->root = json_loadb(t->text, t->n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (t->root)
        return STATUS_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return status_no_memory(t->n_bytes);
    return status_fail(blame(t), "%.200s:%d: column %d: %s", t->name,
                       error.line > 0 ? error.line : 1, error.column > 0 ? error.column : 1,
                       json_error_reason(&error));
}

void json_close(struct json_text *t)
{
    json_decref(t->root);
    t->root = NULL;
}

/* ---- places ---- */

struct json_place json_top(const struct json_text *t)
{
    return (struct json_place){.in = t, .value = t->root};
}

struct json_place json_member(struct json_place at, const char *key)
{
    at.value = json_object_get(at.value, key);
    if (at.n_steps < JSON_PATH_MAX)
        at.step[at.n_steps++] = (struct json_step){.key = key};
    return at;
}

struct json_place json_element(struct json_place at, size_t index)
{
    at.value = json_array_get(at.value, index);
    if (at.n_steps < JSON_PATH_MAX)
        at.step[at.n_steps++] = (struct json_step){.index = index};
    return at;
}

/* "stages/0/workers" */
static const char *path_text(struct json_place at, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < at.n_steps && used < size; i++) {
        const char *slash = i ? "/" : "", *key = at.step[i].key;
        int n = key ? snprintf(text + used, size - used, "%s%.80s", slash, key)
                    : snprintf(text + used, size - used, "%s%zu", slash, at.step[i].index);
        used += n > 0 ? (size_t)n : 0;
    }
    return text;
}

/* ---- lines: jansson does not keep them, so the text is scanned again up to the place ---- */

struct scan {
    const char *at, *end;
    int line;
};

static void advance(struct scan *s)
{
    s->line += *s->at == '\n';
    s->at++;
}

static bool is_at(const struct scan *s, char c)
{
    return s->at < s->end && *s->at == c;
}

static void skip_space(struct scan *s)
{
    while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at)
        advance(s);
}

/* From the opening quote to behind the closing one. */
static void skip_string(struct scan *s)
{
    advance(s);
    while (s->at < s->end && *s->at != '"') {
        if (*s->at == '\\' && s->at + 1 < s->end)
            advance(s);
        advance(s);
    }
    if (s->at < s->end)
        advance(s);
}

/* To the comma or closing bracket behind the value that begins here. */
static void skip_value(struct scan *s)
{
    int depth = 0;
    while (s->at < s->end) {
        char c = *s->at;
        if (c == '"') {
            skip_string(s);
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            return;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        advance(s);
    }
}

static bool is_key(const struct scan *s, const char *key)
{
    size_t n = strlen(key);
    return (size_t)(s->end - s->at) >= n + 2 && !memcmp(s->at + 1, key, n) && s->at[n + 1] == '"';
}

/* From the beginning of an object to the value of `key`; *line is the key's. */
static bool enter_member(struct scan *s, const char *key, int *line)
{
    if (!is_at(s, '{'))
        return false;
    advance(s);
    for (skip_space(s); is_at(s, '"'); skip_space(s)) {
        bool found = is_key(s, key);
        int key_line = s->line;
        skip_string(s);
        skip_space(s);
        if (!is_at(s, ':'))
            return false;
        advance(s);
        if (found) {
            *line = key_line;
            return true;
        }
        skip_value(s);
        if (is_at(s, ','))
            advance(s);
    }
    return false;
}

static bool enter_element(struct scan *s, size_t index, int *line)
{
    if (!is_at(s, '['))
        return false;
    advance(s);
    for (size_t i = 0;; i++) {
        skip_space(s);
        if (s->at >= s->end || *s->at == ']')
            return false;
        if (i == index) {
            *line = s->line;
            return true;
        }
        skip_value(s);
        if (!is_at(s, ','))
            return false;
        advance(s);
    }
}

int json_find_line(struct json_place at)
{
    struct scan s = {at.in->text, at.in->text + at.in->n_bytes, 1};
    skip_space(&s);
    int line = s.line;
    for (int i = 0; i < at.n_steps; i++) {
        const struct json_step *step = &at.step[i];
        skip_space(&s);
        bool found =
            step->key ? enter_member(&s, step->key, &line) : enter_element(&s, step->index, &line);
        if (!found)
            break;
    }
    return line;
}

/* ---- failing ---- */

static enum status fail_at(enum status status, struct json_place at, const char *format,
                           va_list args)
{
    char message[MESSAGE_MAX], path[PATH_TEXT_MAX] = "";
    (void)vsnprintf(message, sizeof message, format, args);
    if (at.in->says_paths)
        (void)path_text(at, path, sizeof path);
    return status_fail(status, "%.200s:%d: %s%s%s", at.in->name, json_find_line(at), path,
                       *path ? ": " : "", message);
}

enum status json_fail(struct json_place at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    enum status st = fail_at(blame(at.in), at, format, args);
    va_end(args);
    return st;
}

enum status json_refuse(struct json_place at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    enum status st = fail_at(STATUS_USAGE, at, format, args);
    va_end(args);
    return st;
}

enum status json_fail_form(struct json_place at, const char *form)
{
    char path[PATH_TEXT_MAX];
    if (at.n_steps == 0)
        return json_fail(at, "a %s must be %s", at.in->what, form);
    return status_fail(blame(at.in), "%.200s:%d: %s must be %s", at.in->name, json_find_line(at),
                       path_text(at, path, sizeof path), form);
}

enum status json_fail_unknown(struct json_place at, const char *what, const char *word,
                              const char *const *names)
{
    char text[LIST_MAX];
    return json_fail(at, "%s", text_unknown(text, sizeof text, what, word, names));
}

/* ---- reading ---- */

enum status json_read_integer(struct json_place at, int64_t least, int64_t most, int64_t *out)
{
    int64_t number = json_integer_value(at.value);
    if (!at.value)
        return STATUS_OK;
    if (!json_is_integer(at.value) || number < least || number > most) {
        char form[80];
        (void)snprintf(form, sizeof form, "a whole number from %lld to %lld", (long long)least,
                       (long long)most);
        return json_fail_form(at, form);
    }
    *out = number;
    return STATUS_OK;
}

enum status json_read_int(struct json_place at, int least, int most, int *out)
{
    int64_t number = *out;
    TRY(json_read_integer(at, least, most, &number));
    *out = (int)number;
    return STATUS_OK;
}

enum status json_read_real(struct json_place at, double *out)
{
    if (!at.value)
        return STATUS_OK;
    if (!json_is_number(at.value) || !(json_number_value(at.value) >= 0))
        return json_fail_form(at, "a number, 0 or more");
    *out = json_number_value(at.value);
    return STATUS_OK;
}

enum status json_read_bool(struct json_place at, bool *out)
{
    if (!at.value)
        return STATUS_OK;
    if (!json_is_boolean(at.value))
        return json_fail_form(at, "true or false");
    *out = json_is_true(at.value);
    return STATUS_OK;
}

enum status json_read_text(struct json_place at, const char **out)
{
    if (!at.value)
        return STATUS_OK;
    if (!json_is_string(at.value))
        return json_fail_form(at, "text in quotes");
    if (!printable_is(json_string_value(at.value)))
        return json_fail_form(at, "text without control characters");
    *out = json_string_value(at.value);
    return STATUS_OK;
}

enum status json_read_choice(struct json_place at, const char *const *names, int *out)
{
    const char *word = NULL;
    TRY(json_read_text(at, &word));
    if (!word)
        return STATUS_OK;
    int number = text_find(word, names);
    if (number < 0)
        return json_fail_unknown(at, at.step[at.n_steps - 1].key, word, names);
    *out = number;
    return STATUS_OK;
}

enum status json_check_object(struct json_place at, const char *const *allowed)
{
    const char *key;
    json_t *member;
    if (!json_is_object(at.value))
        return json_fail_form(at, "an object: {...}");
    json_object_foreach((json_t *)at.value, key, member)
    {
        if (allowed && text_find(key, allowed) < 0)
            return json_fail_unknown(json_member(at, key), "key", key, allowed);
    }
    return STATUS_OK;
}

enum status json_check_list(struct json_place at, size_t least, size_t most)
{
    char form[80];
    size_t n = json_array_size(at.value);
    if (json_is_array(at.value) && n >= least && n <= most)
        return STATUS_OK;
    if (most == SIZE_MAX)
        return json_fail_form(at, least ? "a list that is not empty: [...]" : "a list: [...]");
    (void)snprintf(form, sizeof form, "a list of %zu to %zu: [...]", least, most);
    return json_fail_form(at, form);
}

enum status json_check_version(struct json_place top, const char *key, int first, int last)
{
    struct json_place at = json_member(top, key);
    int64_t version = json_integer_value(at.value); /* 0: it is no number */
    char older[32] = "";
    if (!at.value)
        return json_fail(top, "this is no %s: it does not begin with \"%s\": %d", at.in->what, key,
                         last);
    if (first < last)
        (void)snprintf(older, sizeof older, "s %d to", first);
    if (version < first || version > last)
        return json_fail(at, "the %s is of another version: this program reads version%s %d",
                         at.in->what, older, last);
    return STATUS_OK;
}

/* ---- writing ---- */

enum status json_write_text(FILE *to, const char *text)
{
    json_t *value = json_string_nocheck(text);
    char *quoted = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    if (!quoted)
        return status_fail(STATUS_FAILED, "cannot write '%.80s' as JSON", text);
    (void)fputs(quoted, to);
    free(quoted);
    return STATUS_OK;
}
