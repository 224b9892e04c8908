/* Tensors of bf16: a type of storage. Groups run on floats (widen.h); these functions convert, copy
 * and add whole tensors beside them. */
#include "backend/cpu/cpu_parts.h"
#include "base/bf16.h"

#include <stdlib.h>
#include <string.h>

/* Less than this is not worth waking other threads for. */
enum { SERIAL_ELEMENTS = 1 << 14 };

static int pieces_of(const device *d, int64_t n)
{
    return n < SERIAL_ELEMENTS ? 1 : d->threads;
}

/* ---- to and from floats ---- */

static void narrow_widen(const device *d, int64_t count, const uint16_t *from, float *to)
{
    int pieces = pieces_of(d, count);
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = floats_part(count, pieces, i);
        for (int64_t k = r.begin; k < r.end; k++)
            to[k] = bf16_widen(from[k]);
    }
}

static void narrow_widen_add(const device *d, int64_t count, const uint16_t *from, float *to)
{
    int pieces = pieces_of(d, count);
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = floats_part(count, pieces, i);
        for (int64_t k = r.begin; k < r.end; k++)
            to[k] += bf16_widen(from[k]);
    }
}

void narrow_round(const device *d, int64_t count, const float *from, uint16_t *to)
{
    int pieces = pieces_of(d, count);
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = floats_part(count, pieces, i);
        for (int64_t k = r.begin; k < r.end; k++)
            to[k] = bf16_round(from[k]);
    }
}

const struct widen_calls cpu_widen_calls = {
    .layout_in_type = layout_get_in_type,
    .layout_bytes = cpu_layout_bytes,
    .layout_type = cpu_layout_type,
    .widen = narrow_widen,
    .widen_add = narrow_widen_add,
    .round = narrow_round,
    .run = cpu_group_run_wide,
};

/* ---- from and to the host ---- */

static int64_t elements_of(const layout *l)
{
    return l->n_bytes / element_bytes(ELEMENT_BF16);
}

/* Batches are plain; other layouts, those of weights, come between steps and may take memory. */
enum status narrow_upload(device *d, const layout *l, const float *plain, uint16_t *to)
{
    const layout *wide;
    if (l->kind == LAYOUT_PLAIN) {
        narrow_round(d, elements_of(l), plain, to);
        return STATUS_OK;
    }
    TRY(layout_get_in_type(d, ELEMENT_F32, l, &wide));
    float *packed = malloc((size_t)wide->n_bytes);
    if (!packed)
        return status_no_memory((size_t)wide->n_bytes);
    enum status st = layout_pack(d, wide, plain, packed);
    if (st == STATUS_OK)
        narrow_round(d, elements_of(l), packed, to);
    free(packed);
    return st;
}

enum status narrow_download(device *d, const layout *l, const uint16_t *from, float *plain)
{
    const layout *wide;
    if (l->kind == LAYOUT_PLAIN) {
        narrow_widen(d, elements_of(l), from, plain);
        return STATUS_OK;
    }
    TRY(layout_get_in_type(d, ELEMENT_F32, l, &wide));
    float *packed = malloc((size_t)wide->n_bytes);
    if (!packed)
        return status_no_memory((size_t)wide->n_bytes);
    narrow_widen(d, elements_of(l), from, packed);
    enum status st = layout_unpack(d, wide, packed, plain);
    free(packed);
    return st;
}

/* ---- regions ---- */

static uint16_t sum(uint16_t a, uint16_t b)
{
    return bf16_round(bf16_widen(a) + bf16_widen(b));
}

/* One row of the box, along the last axis. Only weights' formats are uneven along it. */
static void copy_row(const struct region_copy *c, const uint16_t *from, uint16_t *to)
{
    const layout *f = c->from_layout, *t = c->to_layout;
    int last = f->shape.rank - 1;
    int64_t from_first = layout_axis_place(f, last, c->from_begin[last]);
    int64_t to_first = layout_axis_place(t, last, c->to_begin[last]), n = c->extent[last];
    bool even = f->kind != LAYOUT_WEIGHTS && t->kind != LAYOUT_WEIGHTS && n > 1;
    if (!even) {
        for (int64_t k = 0; k < n; k++) {
            uint16_t x = from[layout_axis_place(f, last, c->from_begin[last] + k)];
            uint16_t *at = to + layout_axis_place(t, last, c->to_begin[last] + k);
            *at = c->add ? sum(*at, x) : x;
        }
        return;
    }
    int64_t from_step = layout_axis_place(f, last, c->from_begin[last] + 1) - from_first;
    int64_t to_step = layout_axis_place(t, last, c->to_begin[last] + 1) - to_first;
    from += from_first;
    to += to_first;
    for (int64_t k = 0; k < n; k++) {
        uint16_t x = from[k * from_step], *at = to + k * to_step;
        *at = c->add ? sum(*at, x) : x;
    }
}

/* Zeros behind the last channel, if the box brings that. */
static void clear_added(const struct region_copy *c, int64_t lanes, uint16_t *to)
{
    const layout *t = c->to_layout;
    const struct shape *s = &t->shape;
    if (t->kind != LAYOUT_BLOCKED || c->add || s->dim[1] % lanes == 0 ||
        c->to_begin[1] + c->extent[1] != s->dim[1])
        return;
    for (int64_t n = 0; n < c->extent[0]; n++)
        for (int64_t h = 0; h < c->extent[2]; h++)
            for (int64_t w = 0; w < c->extent[3]; w++) {
                const int64_t at[SHAPE_MAX_RANK] = {c->to_begin[0] + n, s->dim[1] - 1,
                                                    c->to_begin[2] + h, c->to_begin[3] + w};
                int64_t added = lanes - s->dim[1] % lanes;
                memset(to + layout_place(t, at) + 1, 0, (size_t)added * sizeof *to);
            }
}

void narrow_copy_region(device *d, const struct region_copy *c, const uint16_t *from, uint16_t *to)
{
    const layout *f = c->from_layout, *t = c->to_layout;
    int last = f->shape.rank - 1;
    int64_t rows = 1;
    for (int a = 0; a < last; a++)
        rows *= c->extent[a];
#pragma omp parallel for num_threads(pieces_of(d, rows * c->extent[last])) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        int64_t there = 0, here = 0, i = row;
        for (int a = last - 1; a >= 0; i /= c->extent[a--]) {
            there += layout_axis_place(f, a, c->from_begin[a] + i % c->extent[a]);
            here += layout_axis_place(t, a, c->to_begin[a] + i % c->extent[a]);
        }
        copy_row(c, from + there, to + here);
    }
    clear_added(c, d->loops->lanes, to);
}

/* ---- sums ---- */

void narrow_accumulate(const device *d, int64_t count, const uint16_t *from, uint16_t *to)
{
    int pieces = pieces_of(d, count);
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = floats_part(count, pieces, i);
        for (int64_t k = r.begin; k < r.end; k++)
            to[k] = sum(to[k], from[k]);
    }
}

static void fold_floats(const void *user, int64_t count, int n_addends, const float *const *addends,
                        enum activation activation, const float *output, float *to)
{
    const device *d = user;
    d->loops->fold(activation, count, n_addends, addends, output, to);
}

void narrow_fold(const device *d, int64_t count, int n_addends, const void *const *addends,
                 enum activation activation, const uint16_t *output, uint16_t *to)
{
    int pieces = pieces_of(d, count);
#pragma omp parallel for num_threads(pieces) schedule(static)
    for (int i = 0; i < pieces; i++) {
        struct range r = floats_part(count, pieces, i);
        const uint16_t *from[GROUP_MAX_ADDENDS];
        for (int k = 0; k < n_addends; k++)
            from[k] = (const uint16_t *)addends[k] + r.begin;
        widen_fold(fold_floats, d, r.end - r.begin, n_addends, from, activation,
                   output ? output + r.begin : NULL, to + r.begin);
    }
}
