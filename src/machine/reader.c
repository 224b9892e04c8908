#include "machine/reader.h"

#include "machine/parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PLACE_TEXT_MAX = 240, MESSAGE_MAX = 600 };

struct machine_place machine_place_of(const struct machine_place *parent, const char *key)
{
    return (struct machine_place){.parent = parent, .key = key};
}

struct machine_place machine_place_at(const struct machine_place *parent, size_t index)
{
    return (struct machine_place){.parent = parent, .index = index};
}

/* "my.json: nodes/0" into text[used..]; returns how much is used. */
static size_t print_place(const struct machine_place *at, char *text, size_t size)
{
    if (!at->parent) {
        int n = snprintf(text, size, "%.120s", at->file);
        return n > 0 ? (size_t)n : 0;
    }
    size_t used = print_place(at->parent, text, size);
    if (used >= size)
        return used;
    const char *gap = at->parent->parent ? "/" : ": ";
    int n = at->key ? snprintf(text + used, size - used, "%s%.60s", gap, at->key)
                    : snprintf(text + used, size - used, "%s%zu", gap, at->index);
    return used + (n > 0 ? (size_t)n : 0);
}

enum status machine_place_fail(const struct machine_place *at, const char *format, ...)
{
    char where[PLACE_TEXT_MAX], message[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    (void)print_place(at, where, sizeof where);
    return status_fail(STATUS_USAGE, "%s: %s", where, message);
}

enum status machine_place_fail_unknown(const struct machine_place *at, const char *what,
                                       const char *word, const char *const *names)
{
    char where[PLACE_TEXT_MAX];
    (void)print_place(at, where, sizeof where);
    return machine_fail_unknown(where, what, word, names);
}

enum status machine_read_json(const char *text, size_t n_bytes, const char *where, json_t **out)
{
    json_error_t error;
    *out = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out)
        return STATUS_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return status_no_memory(n_bytes);
    return status_fail(STATUS_USAGE, "%.200s:%d:%d: %s", where, error.line > 0 ? error.line : 1,
                       error.column > 0 ? error.column : 1, error.text);
}

static bool is_among(const char *word, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(*names, word))
            return true;
    return false;
}

enum status machine_read_object(const struct machine_place *at, const json_t *value,
                                const char *const *allowed)
{
    const char *key;
    json_t *member;
    if (!json_is_object(value))
        return machine_place_fail(at, "must be an object: {...}");
    json_object_foreach((json_t *)value, key, member)
    {
        if (!is_among(key, allowed))
            return machine_place_fail_unknown(at, "key", key, allowed);
    }
    return STATUS_OK;
}

enum status machine_read_list(const struct machine_place *at, const json_t *value, size_t least)
{
    if (json_is_array(value) && json_array_size(value) >= least)
        return STATUS_OK;
    return machine_place_fail(at, least ? "must be a list that is not empty: [...]"
                                        : "must be a list: [...]");
}

static enum status fail_form(const struct machine_place *at, const char *key, const char *form)
{
    struct machine_place here = machine_place_of(at, key);
    return machine_place_fail(&here, "must be %s", form);
}

enum status machine_read_text(const struct machine_place *at, const json_t *object, const char *key,
                              const char **out)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return STATUS_OK;
    if (!json_is_string(value))
        return fail_form(at, key, "text in quotes");
    *out = json_string_value(value);
    return STATUS_OK;
}

enum status machine_read_integer(const struct machine_place *at, const json_t *object,
                                 const char *key, int64_t least, int64_t most, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return STATUS_OK;
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < least || number > most) {
        char form[80];
        (void)snprintf(form, sizeof form, "a whole number from %lld to %lld", (long long)least,
                       (long long)most);
        return fail_form(at, key, form);
    }
    *out = number;
    return STATUS_OK;
}

enum status machine_read_real(const struct machine_place *at, const json_t *object, const char *key,
                              double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return STATUS_OK;
    if (!json_is_number(value) || !(json_number_value(value) >= 0))
        return fail_form(at, key, "a number, 0 or more");
    *out = json_number_value(value);
    return STATUS_OK;
}

enum status machine_read_bandwidth(const struct machine_place *at, const json_t *object,
                                   const char *key, double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        TRY(machine_read_real(at, object, key, out));
    else if (!machine_parse_bandwidth(json_string_value(value), out))
        return fail_form(at, key, "a bandwidth like \"15GB/s\" or \"100Gbit/s\"");
    if (value && !(*out > 0))
        return fail_form(at, key, "a bandwidth above 0");
    return STATUS_OK;
}

enum status machine_read_seconds(const struct machine_place *at, const json_t *object,
                                 const char *key, double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return machine_read_real(at, object, key, out);
    if (!machine_parse_seconds(json_string_value(value), out))
        return fail_form(at, key, "a time like \"5us\"");
    return STATUS_OK;
}

enum status machine_read_bytes(const struct machine_place *at, const json_t *object,
                               const char *key, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return machine_read_integer(at, object, key, 0, INT64_MAX, out);
    if (!machine_parse_bytes(json_string_value(value), out))
        return fail_form(at, key, "a size like \"16GiB\"");
    return STATUS_OK;
}

enum status machine_read_choice(const struct machine_place *at, const json_t *object,
                                const char *key, const char *const *names, int *out)
{
    const char *word = NULL;
    TRY(machine_read_text(at, object, key, &word));
    if (!word)
        return STATUS_OK;
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], word)) {
            *out = i;
            return STATUS_OK;
        }
    struct machine_place here = machine_place_of(at, key);
    return machine_place_fail_unknown(&here, key, word, names);
}
