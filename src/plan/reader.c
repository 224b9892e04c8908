#include "plan/reader.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_MAX = 700, PATH_TEXT_MAX = 256 };

enum status plan_fail_at(const struct plan_reader *r, struct plan_path path, const char *format,
                         ...)
{
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return status_fail(STATUS_USAGE, "%.200s:%d: %s", r->where,
                       plan_find_line(r->text, r->n_bytes, &path), message);
}

/* "a, b, c", or "a, b, ..." where not all fit. */
static void list_names(char *list, size_t size, const char *const *names)
{
    size_t used = 0;
    list[0] = '\0';
    for (const char *const *name = names; *name; name++) {
        const char *comma = name == names ? "" : ", ";
        if (used + strlen(comma) + strlen(*name) + sizeof ", ..." > size) {
            (void)snprintf(list + used, size - used, "%s...", comma);
            return;
        }
        used += (size_t)snprintf(list + used, size - used, "%s%s", comma, *name);
    }
}

enum status plan_fail_unknown(const struct plan_reader *r, struct plan_path path, const char *what,
                              const char *word, const char *const *names)
{
    char list[200];
    list_names(list, sizeof list, names);
    const char *near = text_nearest(word, names);
    if (near)
        return plan_fail_at(r, path, "unknown %s '%.80s': did you mean '%s'? (allowed: %s)", what,
                            word, near, list);
    return plan_fail_at(r, path, "unknown %s '%.80s' (allowed: %s)", what, word, list);
}

enum status plan_load_json(const struct plan_reader *r, json_t **out)
{
    json_error_t error;
    *out = json_loadb(r->text, r->n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out)
        return STATUS_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return status_no_memory(r->n_bytes);
    return status_fail(STATUS_USAGE, "%.200s:%d: column %d: %s", r->where,
                       error.line > 0 ? error.line : 1, error.column > 0 ? error.column : 1,
                       error.text);
}

static enum status fail_type(const struct plan_reader *r, struct plan_path path, const char *type)
{
    char text[PATH_TEXT_MAX];
    if (path.n == 0)
        return plan_fail_at(r, path, "a plan must be %s", type);
    return plan_fail_at(r, path, "%s must be %s", plan_path_text(text, sizeof text, &path), type);
}

enum status plan_get_integer(const struct plan_reader *r, struct plan_path path,
                             const json_t *value, int64_t least, int64_t most, int64_t *out)
{
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < least || number > most) {
        char type[80];
        (void)snprintf(type, sizeof type, "a whole number from %lld to %lld", (long long)least,
                       (long long)most);
        return fail_type(r, path, type);
    }
    *out = number;
    return STATUS_OK;
}

enum status plan_get_text(const struct plan_reader *r, struct plan_path path, const json_t *value,
                          const char **out)
{
    if (!json_is_string(value))
        return fail_type(r, path, "text in quotes");
    *out = json_string_value(value);
    return STATUS_OK;
}

enum status plan_get_bool(const struct plan_reader *r, struct plan_path path, const json_t *value,
                          bool *out)
{
    if (!json_is_boolean(value))
        return fail_type(r, path, "true or false");
    *out = json_is_true(value);
    return STATUS_OK;
}

enum status plan_get_choice(const struct plan_reader *r, struct plan_path path, const json_t *value,
                            const char *const *names, int *out)
{
    const char *word = "";
    TRY(plan_get_text(r, path, value, &word));
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], word)) {
            *out = i;
            return STATUS_OK;
        }
    return plan_fail_unknown(r, path, path.step[path.n - 1].key, word, names);
}

static bool is_among(const char *word, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(*names, word))
            return true;
    return false;
}

enum status plan_get_object(const struct plan_reader *r, struct plan_path path, const json_t *value,
                            const char *const *allowed)
{
    if (!json_is_object(value))
        return fail_type(r, path, "an object: {...}");
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)value, key, member)
    {
        if (allowed && !is_among(key, allowed))
            return plan_fail_unknown(r, plan_path_add(path, key), "key", key, allowed);
    }
    return STATUS_OK;
}

enum status plan_get_array(const struct plan_reader *r, struct plan_path path, const json_t *value,
                           size_t least, size_t most)
{
    if (json_is_array(value) && json_array_size(value) >= least && json_array_size(value) <= most)
        return STATUS_OK;
    char type[80];
    (void)snprintf(type, sizeof type, "a list of %zu to %zu: [...]", least, most);
    return fail_type(r, path, type);
}
