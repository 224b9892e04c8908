/* idx.h: the IDX files of MNIST and its likes: a big-endian header, then unsigned bytes. */
#ifndef CLEAVE_DATA_IDX_H
#define CLEAVE_DATA_IDX_H

#include "base/status.h"

#include <stdint.h>

enum { IDX_DIMENSIONS_MAX = 3 };

struct idx {
    int n_dimensions;
    int64_t dimensions[IDX_DIMENSIONS_MAX]; /* [count] or [count, height, width] */
    uint8_t *data;                          /* idx_free */
};

/* Reads an IDX file, plain or gzipped, of n_dimensions (1: labels, 3: images) from memory. `path`
 * is for messages. Fails on anything but exactly what the header promises; never allocates more
 * than the bytes given can hold. */
enum status idx_parse(const uint8_t *bytes, size_t n_bytes, const char *path, int n_dimensions,
                      struct idx *out) MUST_USE;
void idx_free(struct idx *idx);

#endif
