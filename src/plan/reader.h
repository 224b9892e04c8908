/* reader.h: typed values out of a JSON text, with errors that begin "FILE:LINE: ".
 *
 * A path says where a value lies; messages name it ("stages/0/workers must be ...").
 */
#ifndef CLEAVE_PLAN_READER_H
#define CLEAVE_PLAN_READER_H

#include "base/status.h"
#include "plan/positions.h"

#include <jansson.h>
#include <stdint.h>

struct plan_reader {
    const char *text;
    size_t n_bytes;
    const char *where; /* the file's name */
};

/* STATUS_USAGE with the line of `path`. */
enum status plan_fail_at(const struct plan_reader *r, struct plan_path path, const char *format,
                         ...) PRINTF_LIKE(3, 4) MUST_USE;

/* "unknown WHAT 'word'", with the nearest of the names (ending with NULL), or a few of them. */
enum status plan_fail_unknown(const struct plan_reader *r, struct plan_path path, const char *what,
                              const char *word, const char *const *names) MUST_USE;

/* The text as JSON; the caller calls json_decref. */
enum status plan_load_json(const struct plan_reader *r, json_t **out) MUST_USE;

/* Each fails unless the value is what it should be. */
enum status plan_get_integer(const struct plan_reader *r, struct plan_path path,
                             const json_t *value, int64_t least, int64_t most,
                             int64_t *out) MUST_USE;
enum status plan_get_text(const struct plan_reader *r, struct plan_path path, const json_t *value,
                          const char **out) MUST_USE;
enum status plan_get_bool(const struct plan_reader *r, struct plan_path path, const json_t *value,
                          bool *out) MUST_USE;
/* The number of one of the names. */
enum status plan_get_choice(const struct plan_reader *r, struct plan_path path, const json_t *value,
                            const char *const *names, int *out) MUST_USE;
/* An object with no members but the allowed ones (NULL: any). */
enum status plan_get_object(const struct plan_reader *r, struct plan_path path, const json_t *value,
                            const char *const *allowed) MUST_USE;
enum status plan_get_array(const struct plan_reader *r, struct plan_path path, const json_t *value,
                           size_t least, size_t most) MUST_USE;

#endif
