/* text.h: reads words and numbers that people type, and prints numbers for them. */
#ifndef CLEAVE_BASE_TEXT_H
#define CLEAVE_BASE_TEXT_H

#include "base/status.h"

#include <stdint.h>
#include <stdio.h>

/* The name that `word` was probably meant to be: one that the word extends ('--batch-size') or that
 * extends the word ('a100' of 'a100-40'); else
 * the nearest by edit distance (insert, delete, replace, swap neighbours), ignoring case, if it is
 * near enough to be a slip (a third of the length, at least 1); else the first that shares a
 * beginning of three letters or more with it ('vgg'). NULL: none. `names` ends with NULL. */
const char *text_nearest(const char *word, const char *const *names);

/* The number of the word among the names, or -1. */
int text_find(const char *word, const char *const *names);

/* Into a buffer of `size` bytes, which is returned: "mlp, lenet5, vgg11", or "mlp, lenet5, ..."
 * where not all names fit. */
const char *text_list(char *buffer, size_t size, const char *const *names);

/* Into a buffer, too: the word, the allowed names and the nearest match, or all that extend the
 * word: unknown model 'resnt18': did you mean 'resnet18'? (allowed: mlp, lenet5, ...) */
const char *text_unknown(char *buffer, size_t size, const char *what, const char *word,
                         const char *const *names);

/* Fails with STATUS_USAGE and that message. */
enum status text_fail_unknown(const char *what, const char *word,
                              const char *const *names) MUST_USE;

/* Whole-text numbers within [least, most]; the error names `what` and the range. */
enum status text_parse_integer(const char *what, const char *text, int64_t least, int64_t most,
                               int64_t *out) MUST_USE;

/* Takes the next word out of a list with commas: copies it (as much as has room) to word[] and
 * moves *list behind it, to NULL behind the last one. False: there are no more. */
bool text_next_word(const char **list, char *word, size_t size);

/* "1,2,4" into numbers[] with room for `room`, each within [least, most]. */
enum status text_parse_integers(const char *what, const char *list, int64_t least, int64_t most,
                                int room, int64_t *numbers, int *n) MUST_USE;
enum status text_parse_real(const char *what, const char *text, double least, double most,
                            double *out) MUST_USE;

/* A file's bytes, followed by a zero; the caller frees them. STATUS_FAILED if it cannot be read or
 * is larger than 64 MiB; `what` ("plan") is for the message. */
enum status text_read_file(const char *path, const char *what, char **out,
                           size_t *n_bytes) MUST_USE;

/* A file line by line, with an end to how long one may be: a file of zeros has no end of a line.
 *
 *     struct text_line line = {.file = path};
 *     while ((st = text_next_line(f, &line)) == STATUS_OK && line.length > 0)
 *         use(line.text);           // with its newline, where there is one; may hold zero bytes
 *     free(line.text);
 */
struct text_line {
    const char *file; /* for messages */
    char *text;
    size_t capacity, length; /* length 0: there are no more */
    long long number;        /* from 1 */
};
enum status text_next_line(FILE *f, struct text_line *line) MUST_USE;

/* Into a buffer of `size` bytes, which is returned: "1.2 GB", "12.3 ms", "4 min 10 s". */
const char *text_bytes(char *buffer, size_t size, double n_bytes);
const char *text_seconds(char *buffer, size_t size, double seconds);
/* The same in one unit, for tables: "42.0 min". */
const char *text_duration(char *buffer, size_t size, double seconds);
const char *text_count(char *buffer, size_t size, double count); /* "11.7 M" */

#endif
