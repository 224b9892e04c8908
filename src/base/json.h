/* json.h: reads typed values from a JSON text, with errors that say where they stand; quotes text.
 *
 * A place is a path from the top of a text to a value, by members of objects and elements of lists.
 * Reading a place without a value leaves *out alone, so the caller sets the default first. Failures
 * are STATUS_FAILED (of a text that was typed, STATUS_USAGE) and begin with the file and the line:
 * plan.json:7: stages/0/workers must be a list of 1 to 4: [...]
 *
 *     struct json_text text = {.name = "plan.json", .what = "plan", .text = bytes, .n_bytes = n};
 *     TRY(json_open(&text));
 *     struct json_place stages = json_member(json_top(&text), "stages");
 *     st = json_check_list(stages, 1, 4);
 *     for (size_t i = 0; st == STATUS_OK && i < json_array_size(stages.value); i++)
 *         st = json_read_text(json_member(json_element(stages, i), "name"), &names[i]);
 *     json_close(&text);
 */
#ifndef CLEAVE_BASE_JSON_H
#define CLEAVE_BASE_JSON_H

#include "base/status.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

struct json_text {
    const char *name; /* the file's */
    const char *what; /* what it holds, for messages: "plan" */
    const char *text;
    size_t n_bytes;
    bool says_paths; /* every message names the path, because such texts may be one line */
    bool typed;      /* it stood on the command line: the request is at fault, and not a file */
    json_t *root;    /* set by json_open; json_close drops it */
};

/* Malformed JSON and duplicate keys fail with line and column. */
enum status json_open(struct json_text *t) MUST_USE;
void json_close(struct json_text *t);

/* Why jansson refused a text, without the names of its own flags. */
const char *json_error_reason(const json_error_t *error);

enum { JSON_PATH_MAX = 8 };

struct json_place {
    const struct json_text *in;
    const json_t *value; /* NULL: no value there */
    int n_steps;
    struct json_step {
        const char *key; /* NULL: element `index` of a list; keys are not copied */
        size_t index;
    } step[JSON_PATH_MAX];
};

struct json_place json_top(const struct json_text *t);
struct json_place json_member(struct json_place at, const char *key);
struct json_place json_element(struct json_place at, size_t index);

/* The line, from 1, of the deepest step that exists; of a member it is the key's line. (A key with
 * an escape is not found; then it is the line of the object.) */
int json_find_line(struct json_place at);

/* ---- failing ---- */

enum status json_fail(struct json_place at, const char *format, ...) PRINTF_LIKE(2, 3) MUST_USE;
/* The file is as it should be, but does not go with the request: STATUS_USAGE. */
enum status json_refuse(struct json_place at, const char *format, ...) PRINTF_LIKE(2, 3) MUST_USE;
/* "PATH must be FORM" */
enum status json_fail_form(struct json_place at, const char *form) MUST_USE;
/* "unknown WHAT 'word'", with the nearest of the names (ending with NULL), or a few of them. */
enum status json_fail_unknown(struct json_place at, const char *what, const char *word,
                              const char *const *names) MUST_USE;

/* ---- reading ---- */

enum status json_read_integer(struct json_place at, int64_t least, int64_t most,
                              int64_t *out) MUST_USE;
enum status json_read_int(struct json_place at, int least, int most, int *out) MUST_USE;
enum status json_read_real(struct json_place at, double *out) MUST_USE; /* 0 or more */
enum status json_read_bool(struct json_place at, bool *out) MUST_USE;
/* Without control characters. The text lives as long as the json_text is open. */
enum status json_read_text(struct json_place at, const char **out) MUST_USE;
/* The number of one of the names (ending with NULL). */
enum status json_read_choice(struct json_place at, const char *const *names, int *out) MUST_USE;

/* An object with no members but the allowed ones (ending with NULL; NULL: any). */
enum status json_check_object(struct json_place at, const char *const *allowed) MUST_USE;
/* SIZE_MAX: any number of elements. */
enum status json_check_list(struct json_place at, size_t least, size_t most) MUST_USE;
/* The top object has a version number of this range under `key`. */
enum status json_check_version(struct json_place top, const char *key, int first,
                               int last) MUST_USE;

/* ---- writing ---- */

/* The text quoted and escaped. The stream keeps a failure to write, which its owner checks. */
enum status json_write_text(FILE *to, const char *text) MUST_USE;

#endif
