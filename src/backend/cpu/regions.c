/* Regions of tensors copied or added to others, and whole runs of memory.
 *
 * Most copies are between tensors of one kind, where whole rows lie together: a plain tensor, or
 * the whole blocks of a blocked one, which is a plain tensor [n, C/B, h, w B] of blocks. The
 * rest of those, and copies between kinds, go row by row of one channel; weights, which have
 * formats of oneDNN's own, element by element. */
#include "backend/cpu/cpu_parts.h"

#include <string.h>

/* Less than this is not worth waking other threads for. */
enum { SERIAL_FLOATS = 1 << 15 };

static int threads_for(const device *d, int64_t n)
{
    return n < SERIAL_FLOATS ? 1 : d->threads;
}

/* A copy or an addition on a device. */
struct move {
    const device *device;
    bool add;
};

static void move_run(const struct move *m, int64_t n, const float *from, float *to)
{
    if (m->add)
        m->device->loops->add(ACTIVATION_NONE, n, 2, (const float *const[]){to, from}, to);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

static void move_flat(const struct move *m, int64_t n, const float *from, float *to)
{
    int parts = threads_for(m->device, n);
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int i = 0; i < parts; i++) {
        struct range r = floats_part(n, parts, i);
        move_run(m, r.end - r.begin, from + r.begin, to + r.begin);
    }
}

/* A box of one row-major tensor, and where it lies in another. */
struct box_move {
    int rank;
    int64_t from_dim[SHAPE_MAX_RANK], to_dim[SHAPE_MAX_RANK];
    int64_t from_begin[SHAPE_MAX_RANK], to_begin[SHAPE_MAX_RANK], extent[SHAPE_MAX_RANK];
};

static struct box_move box_of(const struct region_copy *c)
{
    const struct shape *from = &c->from_layout->shape, *to = &c->to_layout->shape;
    struct box_move b = {.rank = from->rank};
    for (int a = 0; a < b.rank; a++) {
        b.from_dim[a] = from->dim[a];
        b.to_dim[a] = to->dim[a];
        b.from_begin[a] = c->from_begin[a];
        b.to_begin[a] = c->to_begin[a];
        b.extent[a] = c->extent[a];
    }
    return b;
}

static int64_t place_in(int rank, const int64_t *dim, const int64_t *at)
{
    int64_t place = at[0];
    for (int a = 1; a < rank; a++)
        place = place * dim[a] + at[a];
    return place;
}

/* The row of elements at place i of the box's axes before `axis`. */
static void move_row(const struct move *m, const struct box_move *b, int axis, int64_t i,
                     int64_t run, const float *from, float *to)
{
    int64_t there = 0, here = 0, from_step = 1, to_step = 1;
    for (int a = b->rank - 1; a >= 0; a--) {
        int64_t at = a < axis ? i % b->extent[a] : 0;
        if (a < axis)
            i /= b->extent[a];
        there += (b->from_begin[a] + at) * from_step;
        here += (b->to_begin[a] + at) * to_step;
        from_step *= b->from_dim[a];
        to_step *= b->to_dim[a];
    }
    move_run(m, run, from + there, to + here);
}

static void move_rows(const struct move *m, const struct box_move *b, const float *from, float *to)
{
    int axis = b->rank - 1; /* this one and those behind it lie together in both */
    int64_t run = b->extent[axis], rows = 1;
    while (axis > 0 && b->extent[axis] == b->from_dim[axis] && b->extent[axis] == b->to_dim[axis])
        run *= b->extent[--axis];
    for (int a = 0; a < axis; a++)
        rows *= b->extent[a];
    if (rows == 1) {
        move_flat(m, run, from + place_in(b->rank, b->from_dim, b->from_begin),
                  to + place_in(b->rank, b->to_dim, b->to_begin));
        return;
    }
#pragma omp parallel for num_threads(threads_for(m->device, rows *run)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        move_row(m, b, axis, i, run, from, to);
}

/* ---- rank 4, channel by channel ---- */

/* Where elements lie in a plain or blocked image tensor. */
struct image {
    int64_t n, row, position; /* strides */
    int64_t block, block_stride;
};

static struct image image_of(const device *d, const layout *l)
{
    const int64_t *dim = l->shape.dim;
    int64_t plane = dim[2] * dim[3], lanes = d->loops->lanes;
    if (l->kind == LAYOUT_BLOCKED)
        return (struct image){round_up(dim[1], lanes) * plane, dim[3] * lanes, lanes, lanes,
                              plane * lanes};
    return (struct image){dim[1] * plane, dim[3], 1, 1, plane};
}

static int64_t channel_place(const struct image *i, int64_t c)
{
    return c / i->block * i->block_stride + c % i->block;
}

static void move_strided(const struct move *m, int64_t n, const float *from, int64_t from_step,
                         float *to, int64_t to_step)
{
    if (m->add)
        for (int64_t i = 0; i < n; i++)
            to[i * to_step] += from[i * from_step];
    else
        for (int64_t i = 0; i < n; i++)
            to[i * to_step] = from[i * from_step];
}

/* Channels [first, first + count) of the box of one image: the rows of a few neighbouring channels
 * take turns, so that the lines of a blocked row are still in the cache for the next one. */
static void move_channels(const struct move *m, const struct region_copy *c, int64_t n,
                          int64_t first, int64_t count, const float *from, float *to)
{
    struct image f = image_of(m->device, c->from_layout), t = image_of(m->device, c->to_layout);
    from += (c->from_begin[0] + n) * f.n + c->from_begin[2] * f.row + c->from_begin[3] * f.position;
    to += (c->to_begin[0] + n) * t.n + c->to_begin[2] * t.row + c->to_begin[3] * t.position;
    for (int64_t h = 0; h < c->extent[2]; h++, from += f.row, to += t.row)
        for (int64_t k = first; k < first + count; k++)
            move_strided(m, c->extent[3], from + channel_place(&f, c->from_begin[1] + k),
                         f.position, to + channel_place(&t, c->to_begin[1] + k), t.position);
}

static int64_t box_floats(const struct region_copy *c)
{
    return c->extent[0] * c->extent[1] * c->extent[2] * c->extent[3];
}

static void move_images(const struct move *m, const struct region_copy *c, const float *from,
                        float *to)
{
    int64_t lanes = m->device->loops->lanes, chunks = round_up(c->extent[1], lanes) / lanes;
#pragma omp parallel for collapse(2) num_threads(threads_for(m->device, box_floats(c))) \
    schedule(static)
    for (int64_t n = 0; n < c->extent[0]; n++)
        for (int64_t i = 0; i < chunks; i++) {
            int64_t left = c->extent[1] - i * lanes;
            move_channels(m, c, n, i * lanes, left < lanes ? left : lanes, from, to);
        }
}

/* ---- blocked to blocked, whole blocks at a time ---- */

/* The box of whole blocks, as one of plain tensors [n, C/B, h, w B]. */
static struct box_move blocks_of(const struct region_copy *c, int64_t lanes)
{
    struct box_move b = box_of(c);
    b.from_dim[1] = round_up(b.from_dim[1], lanes) / lanes;
    b.to_dim[1] = round_up(b.to_dim[1], lanes) / lanes;
    b.from_begin[1] /= lanes;
    b.to_begin[1] /= lanes;
    b.extent[1] = round_up(b.extent[1], lanes) / lanes;
    b.from_dim[3] *= lanes;
    b.to_dim[3] *= lanes;
    b.from_begin[3] *= lanes;
    b.to_begin[3] *= lanes;
    b.extent[3] *= lanes;
    return b;
}

/* Channels [first, end) of the box. */
static struct region_copy cut_channels(const struct region_copy *c, int64_t first, int64_t end)
{
    struct region_copy cut = *c;
    cut.from_begin[1] += first;
    cut.to_begin[1] += first;
    cut.extent[1] = end - first;
    return cut;
}

/* A last block that is not full may be taken whole if it ends both tensors: its added channels are
 * zero on both sides. */
static void move_blocks(const struct move *m, const struct region_copy *c, const float *from,
                        float *to)
{
    int64_t lanes = m->device->loops->lanes, channels = c->extent[1];
    int64_t head = (lanes - c->from_begin[1] % lanes) % lanes;
    bool ends = c->from_begin[1] + channels == c->from_layout->shape.dim[1] &&
                c->to_begin[1] + channels == c->to_layout->shape.dim[1];
    head = head < channels ? head : channels;
    int64_t end = ends ? channels : head + (channels - head) / lanes * lanes;
    if (head > 0) {
        struct region_copy edge = cut_channels(c, 0, head);
        move_images(m, &edge, from, to);
    }
    if (end > head) {
        struct region_copy whole = cut_channels(c, head, end);
        struct box_move blocks = blocks_of(&whole, lanes);
        move_rows(m, &blocks, from, to);
    }
    if (channels > end) {
        struct region_copy edge = cut_channels(c, end, channels);
        move_images(m, &edge, from, to);
    }
}

/* A copy that brings the last channel brings the zeros behind it, too: no other function would, and
 * the memory may have held something else before. */
static void clear_added_channels(const struct move *m, const struct region_copy *c, float *to)
{
    const struct shape *shape = &c->to_layout->shape;
    struct image t = image_of(m->device, c->to_layout);
    int64_t used = shape->dim[1] % t.block, last = shape->dim[1] - used;
    if (m->add || used == 0 || c->to_begin[1] + c->extent[1] != shape->dim[1])
        return;
    to += c->to_begin[0] * t.n + channel_place(&t, last) + used;
    for (int64_t n = 0; n < c->extent[0]; n++)
        for (int64_t h = c->to_begin[2]; h < c->to_begin[2] + c->extent[2]; h++)
            for (int64_t w = c->to_begin[3]; w < c->to_begin[3] + c->extent[3]; w++)
                memset(to + n * t.n + h * t.row + w * t.position, 0,
                       (size_t)(t.block - used) * sizeof *to);
}

/* ---- any layouts, element by element ---- */

static void move_elements(const struct move *m, const struct region_copy *c, const float *from,
                          float *to)
{
    const layout *f = c->from_layout, *t = c->to_layout;
    int rank = f->shape.rank, last = rank - 1;
    int64_t rows = 1;
    for (int a = 0; a < last; a++)
        rows *= c->extent[a];
#pragma omp parallel for num_threads(threads_for(m->device, rows * c->extent[last])) \
    schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        int64_t there = 0, here = 0, i = row;
        for (int a = last - 1; a >= 0; i /= c->extent[a--]) {
            there += layout_axis_place(f, a, c->from_begin[a] + i % c->extent[a]);
            here += layout_axis_place(t, a, c->to_begin[a] + i % c->extent[a]);
        }
        for (int64_t k = 0; k < c->extent[last]; k++) {
            float x = from[there + layout_axis_place(f, last, c->from_begin[last] + k)];
            float *at = to + here + layout_axis_place(t, last, c->to_begin[last] + k);
            *at = m->add ? *at + x : x;
        }
    }
}

/* ---- the backend's functions ---- */

static bool is_empty(const struct region_copy *c)
{
    for (int a = 0; a < c->from_layout->shape.rank; a++)
        if (c->extent[a] <= 0)
            return true;
    return false;
}

static enum status check_box(const layout *l, const int64_t *begin, const int64_t *extent)
{
    char text[SHAPE_TEXT_BYTES];
    for (int a = 0; a < l->shape.rank; a++)
        if (begin[a] < 0 || begin[a] + extent[a] > l->shape.dim[a])
            return status_fail(STATUS_FAILED,
                               "a region [%lld, %lld) of axis %d is outside a tensor of %s",
                               (long long)begin[a], (long long)(begin[a] + extent[a]), a,
                               shape_text(text, sizeof text, &l->shape));
    return STATUS_OK;
}

enum status cpu_copy_region(stream *s, const struct region_copy *c, const void *from, void *to)
{
    const struct move m = {s->device, c->add};
    const layout *f = c->from_layout, *t = c->to_layout;
    if (f->shape.rank != t->shape.rank)
        return status_fail(STATUS_FAILED, "a region of %d axes cannot go into one of %d",
                           f->shape.rank, t->shape.rank);
    if (is_empty(c))
        return STATUS_OK;
    TRY(check_box(f, c->from_begin, c->extent));
    TRY(check_box(t, c->to_begin, c->extent));
    if (f->type != t->type)
        return status_fail(STATUS_FAILED, "a region of %s cannot go into one of %s",
                           element_name(f->type), element_name(t->type));
    if (f->type == ELEMENT_BF16) {
        narrow_copy_region(s->device, c, from, to);
        return STATUS_OK;
    }
    if (f->kind == LAYOUT_WEIGHTS || t->kind == LAYOUT_WEIGHTS) {
        move_elements(&m, c, from, to);
    } else if (f->kind == LAYOUT_PLAIN && t->kind == LAYOUT_PLAIN) {
        struct box_move b = box_of(c);
        move_rows(&m, &b, from, to);
    } else {
        int64_t lanes = s->device->loops->lanes;
        bool whole = f->kind == t->kind && (c->from_begin[1] - c->to_begin[1]) % lanes == 0;
        (whole ? move_blocks : move_images)(&m, c, from, to);
        clear_added_channels(&m, c, to);
    }
    return STATUS_OK;
}

enum status cpu_clear(stream *s, void *to, int64_t n_bytes)
{
    int64_t n = n_bytes / (int64_t)sizeof(float);
    int parts = threads_for(s->device, n);
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int i = 0; i < parts; i++) {
        struct range r = floats_part(n, parts, i);
        memset((float *)to + r.begin, 0, (size_t)(r.end - r.begin) * sizeof(float));
    }
    int64_t whole = n * (int64_t)sizeof(float); /* the rest, less than a float */
    memset((char *)to + whole, 0, (size_t)(n_bytes - whole));
    return STATUS_OK;
}

enum status cpu_accumulate(stream *s, enum element type, int64_t count, const void *from, void *to)
{
    const struct move m = {s->device, true};
    if (type == ELEMENT_BF16)
        narrow_accumulate(s->device, count, from, to);
    else
        move_flat(&m, count, from, to);
    return STATUS_OK;
}

enum status cpu_copy(stream *s, const void *from, void *to, int64_t n_bytes)
{
    const struct move m = {s->device, false};
    int64_t n = n_bytes / (int64_t)sizeof(float), whole = n * (int64_t)sizeof(float);
    move_flat(&m, n, from, to);
    memcpy((char *)to + whole, (const char *)from + whole, (size_t)(n_bytes - whole));
    return STATUS_OK;
}
