#include "plan/positions.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct scan {
    const char *at, *end;
    int line;
};

struct plan_path plan_path_add(struct plan_path path, const char *key)
{
    if (path.n < PLAN_PATH_MAX)
        path.step[path.n++] = (struct plan_step){.key = key};
    return path;
}

struct plan_path plan_path_at(struct plan_path path, size_t index)
{
    if (path.n < PLAN_PATH_MAX)
        path.step[path.n++] = (struct plan_step){.index = index};
    return path;
}

const char *plan_path_text(char *buffer, size_t size, const struct plan_path *path)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < path->n && used < size; i++) {
        const char *slash = i ? "/" : "";
        int n = path->step[i].key
                    ? snprintf(buffer + used, size - used, "%s%.80s", slash, path->step[i].key)
                    : snprintf(buffer + used, size - used, "%s%zu", slash, path->step[i].index);
        used += n > 0 ? (size_t)n : 0;
    }
    return buffer;
}

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

/* Behind the value that begins here: up to a comma or closing bracket that is not inside it. */
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

/* Goes on from the begin of an object to the value of `key`; *line is the key's. */
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

int plan_find_line(const char *text, size_t n_bytes, const struct plan_path *path)
{
    struct scan s = {text, text + n_bytes, 1};
    skip_space(&s);
    int line = s.line;
    for (int i = 0; i < path->n; i++) {
        const struct plan_step *step = &path->step[i];
        skip_space(&s);
        bool found =
            step->key ? enter_member(&s, step->key, &line) : enter_element(&s, step->index, &line);
        if (!found)
            break;
    }
    return line;
}
