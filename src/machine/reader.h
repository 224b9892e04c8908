/* reader.h: typed values out of machine JSON, with errors that say where they stand.
 *
 * A place is the way from the top of a file to a value, as a chain on the stack; messages begin
 * with it ("my.json: nodes/0/devices/1: ..").
 *
 *     const struct machine_place top = {.file = where}, at = machine_place_of(&top, "nodes");
 *     double speed = 0;
 *     TRY(machine_read_bandwidth(&at, object, "intra", &speed));     // stays 0 if there is no such
 * member
 */
#ifndef CLEAVE_MACHINE_READER_H
#define CLEAVE_MACHINE_READER_H

#include "base/status.h"

#include <jansson.h>
#include <stdint.h>

struct machine_place {
    const char *file; /* of the top */
    const struct machine_place *parent;
    const char *key; /* NULL: element `index` */
    size_t index;
};

struct machine_place machine_place_of(const struct machine_place *parent, const char *key);
struct machine_place machine_place_at(const struct machine_place *parent, size_t index);

/* STATUS_USAGE at that place. */
enum status machine_place_fail(const struct machine_place *at, const char *format, ...)
    PRINTF_LIKE(2, 3) MUST_USE;

/* "unknown WHAT 'word'", with the nearest of the names, or a few of them. */
enum status machine_place_fail_unknown(const struct machine_place *at, const char *what,
                                       const char *word, const char *const *names) MUST_USE;

/* The text as JSON; the caller calls json_decref. */
enum status machine_read_json(const char *text, size_t n_bytes, const char *where,
                              json_t **out) MUST_USE;

/* The value must be an object with no members but the allowed ones (ending with NULL), or a list of
 * at least `least`. */
enum status machine_read_object(const struct machine_place *at, const json_t *value,
                                const char *const *allowed) MUST_USE;
enum status machine_read_list(const struct machine_place *at, const json_t *value,
                              size_t least) MUST_USE;

/* A member of an object, or if it is not there what *out holds. */
enum status machine_read_text(const struct machine_place *at, const json_t *object, const char *key,
                              const char **out) MUST_USE;
enum status machine_read_integer(const struct machine_place *at, const json_t *object,
                                 const char *key, int64_t least, int64_t most,
                                 int64_t *out) MUST_USE;
enum status machine_read_real(const struct machine_place *at, const json_t *object, const char *key,
                              double *out) MUST_USE; /* 0 or more */
/* Numbers (bytes per second, seconds, bytes), or text with a unit. */
enum status machine_read_bandwidth(const struct machine_place *at, const json_t *object,
                                   const char *key, double *out) MUST_USE;
enum status machine_read_seconds(const struct machine_place *at, const json_t *object,
                                 const char *key, double *out) MUST_USE;
enum status machine_read_bytes(const struct machine_place *at, const json_t *object,
                               const char *key, int64_t *out) MUST_USE;
/* The number of one of the names. */
enum status machine_read_choice(const struct machine_place *at, const json_t *object,
                                const char *key, const char *const *names, int *out) MUST_USE;

#endif
