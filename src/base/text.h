/* text.h: reading what people type, and saying numbers back to them. */
#ifndef CLEAVE_BASE_TEXT_H
#define CLEAVE_BASE_TEXT_H

#include "base/status.h"

#include <stdint.h>

/* The candidate that people who typed `word` may have meant: one to which the word adds another
 * ('--batch-size'); else the nearest by edit distance (insert, delete, replace, swap neighbours),
 * ignoring case, if it is near enough to be a slip (a third of the length, at least 1); else the
 * first of those that begin like the word or the word like them ('vgg', three letters at least).
 * NULL: none. `names` ends with NULL. */
const char *text_nearest(const char *word, const char *const *names);

/* Fails with STATUS_USAGE, naming `what`, the word, the allowed names and the nearest match:
 *   unknown model 'resnt18': did you mean 'resnet18'? (models: mlp, lenet5, ...) */
enum status text_fail_unknown(const char *what, const char *word,
                              const char *const *names) MUST_USE;

/* Whole-text numbers within [least, most]; the error names `what` and the range. */
enum status text_parse_integer(const char *what, const char *text, int64_t least, int64_t most,
                               int64_t *out) MUST_USE;

/* Takes the next word out of a list with commas: copies it (what has room) to word[] and moves
 * *list behind it, to NULL behind the last one. False: there are no more. */
bool text_next_word(const char **list, char *word, size_t size);

/* "1,2,4" into numbers[] with room for `room`, each within [least, most]. */
enum status text_parse_integers(const char *what, const char *list, int64_t least, int64_t most,
                                int room, int64_t *numbers, int *n) MUST_USE;
enum status text_parse_real(const char *what, const char *text, double least, double most,
                            double *out) MUST_USE;

/* Into a buffer of `size` bytes, which is returned: "1.2 GB", "12.3 ms", "4 min 10 s". */
const char *text_bytes(char *buffer, size_t size, double n_bytes);
const char *text_seconds(char *buffer, size_t size, double seconds);
/* The same in one unit, for tables: "42.0 min". */
const char *text_duration(char *buffer, size_t size, double seconds);
const char *text_count(char *buffer, size_t size, double count); /* "11.7 M" */

#endif
