#include "verify/contents.h"
#include "base/numbers.h"

#include <string.h>

uint64_t symbol_mix(uint64_t a, uint64_t b)
{
    uint64_t z = (a + 0x9E3779B97F4A7C15u) * 0xD1342543DE82EF95u + b;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

bool ranges_meet(int rank, const struct range *a, const struct range *b, struct range *both)
{
    for (int i = 0; i < rank; i++) {
        both[i].begin = int64_max(a[i].begin, b[i].begin);
        both[i].end = int64_min(a[i].end, b[i].end);
        if (both[i].end <= both[i].begin)
            return false;
    }
    return true;
}

/* ---- numbers modulo 2^61 - 1 ---- */

static const uint64_t modulus = ((uint64_t)1 << 61) - 1;
static const uint64_t point = 0x0B7E151628AED2A7u; /* below the modulus; any will do */

__extension__ typedef unsigned __int128 wide;

static uint64_t multiply(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b;
    uint64_t sum = (uint64_t)(product & modulus) + (uint64_t)(product >> 61);
    return sum >= modulus ? sum - modulus : sum;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;
    return sum >= modulus ? sum - modulus : sum;
}

static uint64_t power(uint64_t base, uint64_t exponent)
{
    uint64_t result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            result = multiply(result, base);
        base = multiply(base, base);
    }
    return result;
}

/* 1 + q + .. + q^(n-1), by doubling; n is at least 1. */
static uint64_t geometric_sum(uint64_t q, uint64_t n)
{
    uint64_t sum = 0, next = 1; /* of the first k powers, and q^k; k = 0 */
    int bit = 0;
    while (n >> bit > 1)
        bit++;
    for (; bit >= 0; bit--) {
        sum = add(sum, multiply(sum, next));
        next = multiply(next, next);
        if (n >> bit & 1) {
            sum = add(sum, next);
            next = multiply(next, q);
        }
    }
    return sum;
}

/* A box of a tensor of this shape: the sum of the powers of its elements' numbers, times the
 * symbol. */
static uint64_t box_fingerprint(const struct shape *shape, uint64_t symbol, const struct range *box,
                                const int64_t *shift)
{
    for (int i = 0; i < shape->rank; i++)
        symbol = symbol_mix(symbol, (uint64_t)(shift ? shift[i] : 0));
    uint64_t result = symbol % modulus, step = point;
    for (int i = shape->rank - 1; i >= 0; i--) {
        uint64_t n = (uint64_t)(box[i].end - box[i].begin);
        if (box[i].begin)
            result = multiply(result, power(step, (uint64_t)box[i].begin));
        if (n > 1)
            result = multiply(result, geometric_sum(step, n));
        if (shape->dim[i] > 1)
            step = power(step, (uint64_t)shape->dim[i]);
    }
    return result;
}

uint64_t content_fingerprint(const struct content *c)
{
    uint64_t sum = 0;
    for (int k = 0; k < c->n_terms; k++) {
        const struct term *t = &c->terms[k];
        uint64_t one = box_fingerprint(&c->shape, t->symbol, t->box, t->shift);
        sum = add(sum, t->negative && one ? modulus - one : one);
    }
    return sum;
}

/* ---- contents ---- */

enum status content_of_region(arena *a, uint64_t symbol, int rank, const struct range *region,
                              struct content *out)
{
    struct term *t;
    *out = (struct content){.state = CONTENT_KNOWN, .shape = {.rank = rank}, .n_terms = 1};
    TRY(arena_alloc(a, sizeof *t, &t));
    *t = (struct term){.symbol = symbol};
    for (int i = 0; i < rank; i++) {
        out->shape.dim[i] = region[i].end - region[i].begin;
        t->box[i] = (struct range){0, out->shape.dim[i]};
        t->shift[i] = region[i].begin;
    }
    out->terms = t;
    return STATUS_OK;
}

enum status content_of_symbol(arena *a, uint64_t symbol, struct content *out)
{
    return content_of_region(a, symbol, 1, &(struct range){0, 1}, out);
}

struct content content_zero(const struct shape *shape)
{
    return (struct content){.state = CONTENT_KNOWN, .shape = *shape};
}

enum status content_add(arena *a, const struct content *from, struct content *to)
{
    if (from->state == CONTENT_FOREIGN || to->state == CONTENT_FOREIGN) {
        *to = (struct content){.state = CONTENT_FOREIGN};
        return STATUS_OK;
    }
    if (from->state == CONTENT_NONE || to->state == CONTENT_NONE ||
        !shape_equal(&from->shape, &to->shape)) {
        *to = (struct content){.state = CONTENT_NONE};
        return STATUS_OK;
    }
    struct term *all;
    int n = from->n_terms + to->n_terms;
    TRY(arena_alloc_array(a, (size_t)n, sizeof *all, &all));
    if (to->n_terms)
        memcpy(all, to->terms, (size_t)to->n_terms * sizeof *all);
    if (from->n_terms)
        memcpy(all + to->n_terms, from->terms, (size_t)from->n_terms * sizeof *all);
    to->terms = all;
    to->n_terms = n;
    return STATUS_OK;
}

static bool ranges_equal(int rank, const struct range *a, const struct range *b)
{
    for (int i = 0; i < rank; i++)
        if (a[i].begin != b[i].begin || a[i].end != b[i].end)
            return false;
    return true;
}

/* Takes away what *to holds in the box; `all` has room for it. */
static int clear_box(const struct content *to, const struct range *box, struct term *all)
{
    int n = 0, rank = to->shape.rank;
    for (int k = 0; k < to->n_terms; k++) {
        struct term both = to->terms[k];
        bool meets = ranges_meet(rank, to->terms[k].box, box, both.box);
        if (meets && ranges_equal(rank, both.box, to->terms[k].box))
            continue;
        all[n++] = to->terms[k];
        both.negative = !both.negative;
        if (meets)
            all[n++] = both;
    }
    return n;
}

static int put_box(const struct content *from, const int64_t *from_begin, const int64_t *to_begin,
                   const struct range *box, struct term *all)
{
    int n = 0, rank = from->shape.rank;
    for (int k = 0; k < from->n_terms; k++) {
        struct term t = from->terms[k];
        if (!ranges_meet(rank, from->terms[k].box, box, t.box))
            continue;
        for (int i = 0; i < rank; i++) {
            int64_t by = to_begin[i] - from_begin[i];
            t.box[i].begin += by;
            t.box[i].end += by;
            t.shift[i] -= by;
        }
        all[n++] = t;
    }
    return n;
}

enum status content_copy(arena *a, const struct content *from, const int64_t *from_begin,
                         const int64_t *to_begin, const int64_t *extent, bool add_to,
                         struct content *to)
{
    struct range source[SHAPE_MAX_RANK] = {0}, target[SHAPE_MAX_RANK] = {0};
    for (int i = 0; i < from->shape.rank; i++) {
        source[i] = (struct range){from_begin[i], from_begin[i] + extent[i]};
        target[i] = (struct range){to_begin[i], to_begin[i] + extent[i]};
    }
    struct term *all;
    TRY(arena_alloc_array(a, (size_t)(2 * to->n_terms + from->n_terms), sizeof *all, &all));
    int n = to->n_terms;
    if (!add_to)
        n = clear_box(to, target, all);
    else if (n)
        memcpy(all, to->terms, (size_t)n * sizeof *all);
    n += put_box(from, from_begin, to_begin, source, all + n);
    to->terms = all;
    to->n_terms = n;
    return STATUS_OK;
}

/* ---- flattened tensors ---- */

enum { MAX_BOXES = 5 }; /* a part of a row, rows, channels, rows, a part of a row */

/* A box of [n, c h w] as boxes of [n, c, h, w]; returns how many. */
static int unflatten_box(const struct shape *deep, const struct range *flat,
                         struct range (*out)[SHAPE_MAX_RANK])
{
    int64_t h = deep->dim[2], w = deep->dim[3], at = flat[1].begin, end = flat[1].end;
    int n = 0;
    while (at < end) {
        int64_t channel = at / (h * w), row = at / w % h, column = at % w, left = end - at;
        struct range box[SHAPE_MAX_RANK] = {
            flat[0], {channel, channel + 1}, {row, row + 1}, {column, w}};
        if (row == 0 && column == 0 && left >= h * w) {
            box[1].end = end / (h * w);
            box[2] = (struct range){0, h};
        } else if (column == 0 && left >= w) {
            box[2].end = left / w < h - row ? row + left / w : h;
        } else if (left < w - column) {
            box[3].end = column + left;
        }
        memcpy(out[n++], box, sizeof box);
        at = ((box[1].end - 1) * h + box[2].end - 1) * w + box[3].end;
    }
    return n;
}

/* Whether the last content came from this region. (Contents that were overwritten are still in the
 * list, twice, and came from anywhere.) */
static bool lies_at(const struct content *c, const struct range *region)
{
    for (int i = 0; i < c->shape.rank; i++)
        if (c->shape.dim[i] != region[i].end - region[i].begin ||
            (c->n_terms && c->terms[c->n_terms - 1].shift[i] != region[i].begin))
            return false;
    return true;
}

/* A term that does not lie where it should does not afterwards, either: only n and w can tell. */
static int unflatten_term(const struct term *term, const struct shape *shape,
                          const struct range *flat, const struct range *deep, struct term *out)
{
    struct range boxes[MAX_BOXES][SHAPE_MAX_RANK];
    int n = unflatten_box(shape, term->box, boxes);
    for (int k = 0; k < n; k++) {
        out[k] = *term;
        memcpy(out[k].box, boxes[k], sizeof out[k].box);
        for (int i = 0; i < shape->rank; i++)
            out[k].shift[i] = deep[i].begin;
        out[k].shift[0] += term->shift[0] - flat[0].begin;
        out[k].shift[3] += term->shift[1] - flat[1].begin;
    }
    return n;
}

enum status content_unflatten(arena *a, const struct range *flat, const struct range *deep,
                              struct content *c)
{
    struct content out = {.state = CONTENT_KNOWN, .shape = {.rank = 4}};
    struct term *all;
    if (c->state != CONTENT_KNOWN || c->shape.rank != 2 || !lies_at(c, flat)) {
        *c = (struct content){.state = CONTENT_NONE};
        return STATUS_OK;
    }
    TRY(arena_alloc_array(a, (size_t)c->n_terms * MAX_BOXES, sizeof *all, &all));
    for (int i = 0; i < out.shape.rank; i++)
        out.shape.dim[i] = deep[i].end - deep[i].begin;
    for (int k = 0; k < c->n_terms; k++)
        out.n_terms += unflatten_term(&c->terms[k], &out.shape, flat, deep, all + out.n_terms);
    out.terms = all;
    *c = out;
    return STATUS_OK;
}

/* ---- contents that must be there ---- */

struct wanted wanted_region(int rank, const struct range *region)
{
    struct wanted w = {.rank = rank};
    memcpy(w.region, region, (size_t)rank * sizeof *region);
    memcpy(w.clip, region, (size_t)rank * sizeof *region);
    return w;
}

struct wanted wanted_symbol(void)
{
    return wanted_region(1, &(struct range){0, 1});
}

struct shape wanted_shape(const struct wanted *w)
{
    struct shape shape = {.rank = w->rank};
    for (int i = 0; i < w->rank; i++)
        shape.dim[i] = w->region[i].end - w->region[i].begin;
    return shape;
}

struct wanted wanted_flat(struct wanted *deep, const struct shape *whole,
                          const struct range *region)
{
    struct wanted w = wanted_region(2, region);
    w.deep = deep;
    w.whole = *whole;
    return w;
}

void wanted_add(struct wanted *w, uint64_t symbol, const struct range *box)
{
    struct range both[SHAPE_MAX_RANK] = {{0, 0}};
    int64_t shift[SHAPE_MAX_RANK] = {0};
    struct shape shape = wanted_shape(w);
    if (!ranges_meet(w->rank, box, w->clip, both))
        return;
    if (w->deep) {
        struct range boxes[MAX_BOXES][SHAPE_MAX_RANK];
        int n = unflatten_box(&w->whole, both, boxes);
        for (int i = 0; i < n; i++)
            wanted_add(w->deep, symbol, boxes[i]);
        return;
    }
    for (int i = 0; i < w->rank; i++) {
        shift[i] = w->region[i].begin;
        both[i].begin -= shift[i];
        both[i].end -= shift[i];
    }
    w->sum = add(w->sum, box_fingerprint(&shape, symbol, both, shift));
}

bool wanted_is(const struct wanted *w, const struct content *c)
{
    struct shape shape = wanted_shape(w);
    return c->state == CONTENT_KNOWN && shape_equal(&shape, &c->shape) &&
           content_fingerprint(c) == w->sum;
}
