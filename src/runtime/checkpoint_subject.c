/* The part of a checkpoint that the use of its weights elsewhere needs. */
#include "runtime/checkpoint_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_METADATA = 8 };

/* As many digits as a float has: 0.286, not 0.28600001335144043. */
static json_t *float_json(float value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.7g", (double)value);
    return json_real(strtod(text, NULL));
}

static json_t *floats_json(const float *values, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list, float_json(values[i]));
    return list;
}

/* A folder's name is bytes, JSON is text: those that are no UTF-8 become question marks. */
static json_t *name_json(const char *name)
{
    json_t *text = json_string(name);
    if (text)
        return text;
    char plain[CHECKPOINT_NAME_BYTES];
    (void)snprintf(plain, sizeof plain, "%s", name);
    for (char *c = plain; *c; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    return json_string(plain);
}

static json_t *names_json(const struct checkpoint_subject *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->n_names; i++)
        (void)json_array_append_new(list, name_json(s->names[i]));
    return list;
}

json_t *checkpoint_subject_json(const struct checkpoint_subject *s)
{
    json_t *all = json_object();
    if (s && s->form)
        (void)json_object_set_new(all, "form", json_string(s->form));
    if (s && s->n_channels > 0) {
        (void)json_object_set_new(all, "mean", floats_json(s->mean, s->n_channels));
        (void)json_object_set_new(all, "std", floats_json(s->std, s->n_channels));
    }
    if (s && s->n_names > 0)
        (void)json_object_set_new(all, "class_names", names_json(s));
    return all;
}

/* Texts as they are, all else as the JSON that it is. */
static enum status put(arena *memory, const char **to, const char *key, const json_t *value)
{
    char *text = json_is_string(value)
                     ? NULL
                     : json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(7) | JSON_ENCODE_ANY);
    to[0] = key;
    enum status st = arena_copy_text(memory,
                                     text                    ? text
                                     : json_is_string(value) ? json_string_value(value)
                                                             : "",
                                     &to[1]);
    free(text);
    return st;
}

enum status checkpoint_subject_metadata(const struct checkpoint_subject *s,
                                        const struct graph *graph, arena *memory,
                                        const char *const **out)
{
    const struct op_case *images = &graph->nodes[0].op;
    const char **pairs, *key;
    char input[80], classes[24];
    json_t *all = checkpoint_subject_json(s), *value;
    enum status st;
    int n = 0;
    (void)snprintf(input, sizeof input, "[%lld,%lld,%lld]",
                   (long long)op_extent(images, USE_CHANNEL), (long long)op_extent(images, USE_ROW),
                   (long long)op_extent(images, USE_COLUMN));
    (void)snprintf(classes, sizeof classes, "%lld", (long long)graph->classes);
    const char *const known[] = {"format", "pt",  "model",   graph->name,
                                 "input",  input, "classes", classes};
    /* The rest is zero: the end. */
    TRY_GOTO(st, arena_alloc_array(memory, (size_t)2 * N_METADATA + 1, sizeof *pairs, &pairs), out);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        TRY_GOTO(st, arena_copy_text(memory, known[i], &pairs[n++]), out);
    json_object_foreach(all, key, value)
    {
        const char *copy;
        TRY_GOTO(st, arena_copy_text(memory, key, &copy), out);
        TRY_GOTO(st, put(memory, &pairs[n], copy, value), out);
        n += 2;
    }
    *out = pairs;
out:
    json_decref(all);
    return st;
}
