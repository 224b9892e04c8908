/* file.h: whole files in memory, and streams over bytes that may be gzipped. */
#ifndef CLEAVE_DATA_FILE_H
#define CLEAVE_DATA_FILE_H

#include "base/status.h"

#include <stdint.h>

/* Memory that is used again and again; {0} is an empty one. */
struct buffer {
    uint8_t *bytes;
    size_t capacity;
};
/* Makes room for n_bytes; growing loses the content. */
enum status buffer_reserve(struct buffer *b, size_t n_bytes) MUST_USE;
void buffer_free(struct buffer *b);

/* The whole regular file `path` into *b; STATUS_FAILED if it is over max_bytes. */
enum status file_read(const char *path, size_t max_bytes, struct buffer *b,
                      size_t *n_bytes) MUST_USE;

/* Bytes in memory read in order; gzip (told by its magic) is inflated on the way.
 *
 *     stream *s;
 *     TRY(stream_open(bytes, n_bytes, "train-labels.gz", &s));
 *     TRY_GOTO(st, stream_read(s, header, 8, &n), out);   // n < 8 at the end
 *     ...
 *     stream_close(s);
 */
typedef struct stream stream;
enum status stream_open(const uint8_t *bytes, size_t n_bytes, const char *name,
                        stream **out) MUST_USE;
void stream_close(stream *s); /* NULL is fine */
/* Up to n_bytes; *n_read is less only at the end. Corrupt and cut off gzip fails. */
enum status stream_read(stream *s, void *out, size_t n_bytes, size_t *n_read) MUST_USE;
/* No more than this can follow, by the size of the rest and deflate's best ratio. */
uint64_t stream_most_left(const stream *s);

#endif
