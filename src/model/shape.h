/* shape.h: the extents of a tensor, outermost first: [n, c, h, w], [n, features], [n]. What its
 * axes are (batch, channels, rows) is not said here, but by op.h's struct axes. */
#ifndef CLEAVE_MODEL_SHAPE_H
#define CLEAVE_MODEL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHAPE_MAX_RANK = 6 };

struct shape {
    int rank;
    int64_t dim[SHAPE_MAX_RANK]; /* unused extents are 0 */
};

#define SHAPE1(a) ((struct shape){1, {(a)}})
#define SHAPE2(a, b) ((struct shape){2, {(a), (b)}})
#define SHAPE4(a, b, c, d) ((struct shape){4, {(a), (b), (c), (d)}})

static inline int64_t shape_elements(const struct shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= s->dim[i];
    return n;
}

static inline bool shape_equal(const struct shape *a, const struct shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

/* "16x64x56x56" into a buffer of `size` bytes, which is returned. SHAPE_TEXT_BYTES always suffice.
 */
enum { SHAPE_TEXT_BYTES = 128 };
const char *shape_text(char *buffer, size_t size, const struct shape *s);

#endif
