/* checkpoint_state.h: what a checkpoint says in NAME.json; used by checkpoint*.c alone.
 *
 * The text ends with a checksum of its own values, so that a damaged digit is noticed and white
 * space does not matter.
 */
#ifndef CLEAVE_RUNTIME_CHECKPOINT_STATE_H
#define CLEAVE_RUNTIME_CHECKPOINT_STATE_H

#include "runtime/checkpoint.h"
#include "runtime/safetensors.h"

#include <jansson.h>
#include <limits.h>

/* All of NAME.json. */
struct checkpoint_record {
    struct checkpoint_state state;
    char tensors_file[NAME_MAX + 1]; /* beside NAME.json */
    struct safetensors_sum tensors_sum;
};

/* The text, which the caller frees. */
enum status checkpoint_record_print(const struct checkpoint_record *r,
                                    const struct checkpoint_subject *subject, char **out) MUST_USE;

/* Reads it back, trusting nothing; `path` is for messages. */
enum status checkpoint_record_parse(const char *path, const char *text, size_t n_bytes,
                                    struct checkpoint_record *out) MUST_USE;

/* See checkpoint_match. */
enum status checkpoint_state_match(const char *path, const struct checkpoint_state *saved,
                                   const struct checkpoint_state *wanted) MUST_USE;

/* checkpoint_subject.c: the members of NAME.json that are the subject (NULL is fine), and the
 * metadata of the tensor file: pairs of a key and a text, then NULL. */
json_t *checkpoint_subject_json(const struct checkpoint_subject *subject);
enum status checkpoint_subject_metadata(const struct checkpoint_subject *subject,
                                        const struct graph *graph, arena *memory,
                                        const char *const **out) MUST_USE;

#endif
