/* contents.h: the content of a buffer, as symbols instead of numbers. Not for use outside this
 * room.
 *
 * A symbol (64 mixed bits) stands for a whole tensor of one micro-batch, or for what one piece adds
 * to a gradient. A content says for every element of a buffer which symbols are summed there: a
 * list of boxes with a symbol each.
 *
 *     a gradient of 6 rows, assembled from two      rows 0..4: worker 0's part
 *     workers whose convolutions read a halo        rows 3..6: worker 1's part, added
 *
 * `shift` is where the buffer's first element lies in the whole tensor: a copy to the wrong rows
 * changes it. Contents are compared by a fingerprint: with every element's sum of symbols as a
 * coefficient, the polynomial over the element's number, at a random point modulo 2^61 - 1. Equal
 * contents have equal fingerprints, whatever boxes they are put together from; different ones with
 * a chance far below one in a million.
 */
#ifndef CLEAVE_VERIFY_CONTENTS_H
#define CLEAVE_VERIFY_CONTENTS_H

#include "base/arena.h"
#include "model/op.h"

enum content_state {
    CONTENT_NONE,    /* nothing was written, or nothing that makes sense */
    CONTENT_FOREIGN, /* something that another worker has sent; nothing is known of it */
    CONTENT_KNOWN
};

struct term {
    uint64_t symbol;
    bool negative; /* taken away: a box that was overwritten */
    struct range box[SHAPE_MAX_RANK];
    int64_t shift[SHAPE_MAX_RANK];
};

struct content {
    enum content_state state;
    struct shape shape;
    int n_terms;
    const struct term *terms;
};

/* A content that must be there, gathered term by term. Regions are in the whole tensor's numbers.
 */
struct wanted {
    int rank;
    struct range region[SHAPE_MAX_RANK];
    struct range clip[SHAPE_MAX_RANK]; /* terms are cut to this part of it */
    uint64_t sum;
    struct wanted *deep; /* this one is flat: additions go there, in the other shape */
    struct shape whole;  /* of the tensor in that shape */
};

uint64_t symbol_mix(uint64_t a, uint64_t b);

/* One symbol over a whole region: its shape, and its begin as the shift. */
enum status content_of_region(arena *a, uint64_t symbol, int rank, const struct range *region,
                              struct content *out) MUST_USE;
/* A symbol of something without a shape: one element. */
enum status content_of_symbol(arena *a, uint64_t symbol, struct content *out) MUST_USE;
struct content content_zero(const struct shape *shape);

/* *to += from; foreign if one of them is, nothing if one is nothing or the shapes differ. */
enum status content_add(arena *a, const struct content *from, struct content *to) MUST_USE;

/* A box of `from` into a box of *to, added to it or in its place. Both have the same rank. */
enum status content_copy(arena *a, const struct content *from, const int64_t *from_begin,
                         const int64_t *to_begin, const int64_t *extent, bool add,
                         struct content *to) MUST_USE;

/* The output of a flatten without an instruction, seen in its input's shape: the same
 * elements. `flat` and `deep` are the regions of the flatten's output and input, [n, c h w] and
 * [n, c, h, w], with all of h and w. Nothing if that is not where the content lies. */
enum status content_unflatten(arena *a, const struct range *flat, const struct range *deep,
                              struct content *c) MUST_USE;

uint64_t content_fingerprint(const struct content *c);

struct wanted wanted_region(int rank, const struct range *region);
struct wanted wanted_symbol(void); /* one element */
/* A region of a flattened tensor: terms are added to *deep, which wants a part of the tensor before
 * it was flattened; that has the shape `whole`. */
struct wanted wanted_flat(struct wanted *deep, const struct shape *whole,
                          const struct range *region);
struct shape wanted_shape(const struct wanted *w);
/* The part of `box` that lies in the region's clip. */
void wanted_add(struct wanted *w, uint64_t symbol, const struct range *box);
bool wanted_is(const struct wanted *w, const struct content *c);

bool ranges_meet(int rank, const struct range *a, const struct range *b, struct range *both);

#endif
