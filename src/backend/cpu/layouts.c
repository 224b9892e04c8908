#include "backend/cpu/cpu_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

struct range floats_part(int64_t n, int parts, int i)
{
    int64_t vectors = n / LOOPS_MAX_LANES;
    return (struct range){vectors * i / parts * LOOPS_MAX_LANES,
                          i + 1 == parts ? n : vectors * (i + 1) / parts * LOOPS_MAX_LANES};
}

static enum status find_places(const layout *l, int64_t *place[SHAPE_MAX_RANK]);

/* ---- as text ---- */

/* Axes of the descriptor by stride, the outermost first. */
static void sort_axes(const dnnl_memory_desc_t *desc, int axes[DNNL_MAX_NDIMS])
{
    const dnnl_dim_t *strides = desc->format_desc.blocking.strides;
    for (int i = 0; i < desc->ndims; i++) {
        int at = i;
        for (; at > 0 && strides[axes[at - 1]] < strides[i]; at--)
            axes[at] = axes[at - 1];
        axes[at] = i;
    }
}

/* As oneDNN names its formats: ABcd16b16a is outer a, b, c, d, then blocks of 16 b and 16 a. */
static void write_format(const dnnl_memory_desc_t *desc, char *text, size_t size)
{
    const dnnl_blocking_desc_t *b = &desc->format_desc.blocking;
    int axes[DNNL_MAX_NDIMS] = {0};
    size_t used = 0;
    unsigned blocked = 0;
    if (desc->format_kind != dnnl_blocked) {
        (void)snprintf(text, size, "opaque%d", (int)desc->format_kind);
        return;
    }
    for (int i = 0; i < b->inner_nblks; i++)
        blocked |= 1u << b->inner_idxs[i];
    sort_axes(desc, axes);
    for (int i = 0; i < desc->ndims; i++)
        text[used++] = (char)((blocked >> axes[i] & 1 ? 'A' : 'a') + axes[i]);
    text[used] = '\0';
    for (int i = 0; i < b->inner_nblks && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%d%c", (int)b->inner_blks[i],
                                 'a' + (int)b->inner_idxs[i]);
}

/* Behind the word that says the kind. */
static const char *type_text(const layout *l)
{
    return l->type == ELEMENT_BF16 ? ":bf16" : "";
}

/* Format and shape; the descriptor's extents where they are others, and its bytes where they do not
 * follow from the extents (gaps). */
static void write_weights_text(layout *l)
{
    char format[64], extents[SHAPE_TEXT_BYTES], described[96];
    size_t used = 0;
    int64_t elements = 1;
    write_format(&l->desc, format, sizeof format);
    shape_text(extents, sizeof extents, &l->shape);
    for (int i = 0; i < l->desc.ndims && used < sizeof described; i++) {
        used += (size_t)snprintf(described + used, sizeof described - used, "%s%lld", i ? "x" : "",
                                 (long long)l->desc.dims[i]);
        elements *= l->desc.padded_dims[i];
    }
    bool same = strcmp(described, extents) == 0;
    int n = snprintf(l->text, sizeof l->text, "%s%s %s%s%s", format, type_text(l), extents,
                     same ? "" : ":", same ? "" : described);
    if (l->n_bytes != elements * element_bytes(l->type) && n > 0 && (size_t)n < sizeof l->text)
        (void)snprintf(l->text + n, sizeof l->text - (size_t)n, "/%lld", (long long)l->n_bytes);
}

static void write_text(const device *d, layout *l)
{
    char extents[SHAPE_TEXT_BYTES];
    if (l->kind == LAYOUT_WEIGHTS) {
        write_weights_text(l);
        return;
    }
    shape_text(extents, sizeof extents, &l->shape);
    if (l->kind == LAYOUT_PLAIN)
        (void)snprintf(l->text, sizeof l->text, "plain%s %s", type_text(l), extents);
    else
        (void)snprintf(l->text, sizeof l->text, "blocked%d%s %s", d->loops->lanes, type_text(l),
                       extents);
}

/* ---- one of each ---- */

size_t layout_hash_shape(const struct shape *s)
{
    uint64_t hash = (uint64_t)s->rank;
    for (int i = 0; i < s->rank; i++)
        hash = (hash ^ (uint64_t)s->dim[i]) * 0x9E3779B97F4A7C15u;
    return (size_t)(hash >> 32) % DEVICE_BUCKETS;
}

/* The device's one layout of that kind, type and shape; `desc` may be NULL where these say all. */
static const layout *find(const device *d, enum layout_kind kind, enum element type,
                          const struct shape *shape, const dnnl_memory_desc_t *desc)
{
    for (const layout *l = d->layouts[layout_hash_shape(shape)]; l; l = l->next)
        if (l->kind == kind && l->type == type && shape_equal(&l->shape, shape) &&
            (!desc || dnnl_memory_desc_equal(&l->desc, desc)))
            return l;
    return NULL;
}

static enum status add(device *d, const layout *wanted, const layout **out)
{
    layout *l = malloc(sizeof *l), **bucket = &d->layouts[layout_hash_shape(&wanted->shape)];
    if (!l)
        return status_no_memory(sizeof *l);
    *l = *wanted;
    l->n_bytes = (int64_t)dnnl_memory_desc_get_size(&wanted->desc);
    if (l->kind == LAYOUT_WEIGHTS && !d->describe_only) {
        enum status st = find_places(l, l->axis_place);
        if (st != STATUS_OK) {
            free(l);
            return st;
        }
    }
    write_text(d, l);
    l->next = *bucket;
    *out = *bucket = l;
    return STATUS_OK;
}

void layout_destroy_all(device *d)
{
    for (int i = 0; i < DEVICE_BUCKETS; i++)
        for (layout *l = d->layouts[i], *next; l; l = next) {
            next = l->next;
            free(l->axis_place[0]);
            free(l);
        }
}

static enum status describe(const struct shape *shape, dnnl_format_tag_t tag,
                            dnnl_memory_desc_t *desc)
{
    dnnl_dims_t dims = {0}; /* oneDNN's own, longer array */
    for (int i = 0; i < shape->rank; i++)
        dims[i] = shape->dim[i];
    TRY_DNNL(dnnl_memory_desc_init_by_tag(desc, shape->rank, dims, dnnl_f32, tag));
    return STATUS_OK;
}

enum status layout_get_plain(device *d, const struct shape *shape, const layout **out)
{
    static const dnnl_format_tag_t tags[SHAPE_MAX_RANK + 1] = {
        dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    layout l = {.kind = LAYOUT_PLAIN, .shape = *shape};
    *out = find(d, LAYOUT_PLAIN, ELEMENT_F32, shape, NULL);
    if (*out)
        return STATUS_OK;
    TRY(describe(shape, tags[shape->rank], &l.desc));
    return add(d, &l, out);
}

enum status layout_get_blocked(device *d, const struct shape *shape, const layout **out)
{
    layout l = {.kind = LAYOUT_BLOCKED, .shape = *shape};
    struct shape rounded = *shape;
    *out = find(d, LAYOUT_BLOCKED, ELEMENT_F32, shape, NULL);
    if (*out)
        return STATUS_OK;
    rounded.dim[1] = round_up(shape->dim[1], d->loops->lanes);
    TRY(describe(&rounded, d->loops->lanes == 16 ? dnnl_nChw16c : dnnl_nChw8c, &l.desc));
    return add(d, &l, out);
}

enum status layout_get_weights(device *d, const struct shape *shape, const dnnl_memory_desc_t *desc,
                               const layout **out)
{
    layout l = {.kind = LAYOUT_WEIGHTS, .shape = *shape, .desc = *desc};
    *out = find(d, LAYOUT_WEIGHTS, ELEMENT_F32, shape, desc);
    return *out ? STATUS_OK : add(d, &l, out);
}

enum status layout_get_in_type(device *d, enum element type, const layout *l, const layout **out)
{
    layout wanted = *l;
    if (type != ELEMENT_F32 && type != ELEMENT_BF16)
        return status_fail(STATUS_FAILED, "the cpu backend has no tensors of %s",
                           element_name(type));
    wanted.type = type;
    wanted.desc.data_type = type == ELEMENT_F32 ? dnnl_f32 : dnnl_bf16;
    *out = find(d, l->kind, type, &l->shape, l->kind == LAYOUT_WEIGHTS ? &wanted.desc : NULL);
    return *out ? STATUS_OK : add(d, &wanted, out);
}

enum status layout_get_transfer(device *d, const struct shape *region, const struct axes *axes,
                                const layout **out)
{
    const struct axes images = axes_of_images(4);
    return (axes_equal(axes, &images) ? layout_get_blocked : layout_get_plain)(d, region, out);
}

bool layout_same_bytes(const layout *a, const layout *b)
{
    return a == b ||
           (shape_equal(&a->shape, &b->shape) && dnnl_memory_desc_equal(&a->desc, &b->desc));
}

enum status layout_get_params(group *g, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    struct op_param params[OP_MAX_PARAMS];
    int n_params = op_get_params(&g->spec.op, params);
    dnnl_memory_desc_t weights, bias;
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&weights, 4, dims, dnnl_f32, tag));
    TRY(layout_get_weights(g->device, &params[0].shape, &weights, &g->layouts.param[0]));
    if (n_params == 1)
        return STATUS_OK;
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&bias, 1, dims, dnnl_f32, dnnl_a));
    return layout_get_weights(g->device, &params[1].shape, &bias, &g->layouts.param[1]);
}

enum status layout_like(device *d, const layout *like, const struct shape *shape,
                        const layout **out)
{
    if (like->kind == LAYOUT_BLOCKED && shape->rank == 4)
        return layout_get_blocked(d, shape, out);
    return layout_get_plain(d, shape, out);
}

void layout_view(const device *d, const layout *l, struct view *v)
{
    const struct shape *s = &l->shape;
    int64_t lanes = d->loops->lanes;
    v->n = s->dim[0];
    v->channels = s->dim[1];
    v->blocks = round_up(v->channels, lanes) / lanes;
    v->block = lanes;
    v->plane = s->rank == 4 ? s->dim[2] * s->dim[3] : 1;
    if (l->kind == LAYOUT_BLOCKED) {
        v->position_stride = lanes;
        v->block_stride = v->plane * lanes;
        v->n_stride = v->blocks * v->block_stride;
    } else { /* [n, c]: the lanes of a block are neighbours; there is one position */
        v->position_stride = v->channels;
        v->block_stride = lanes;
        v->n_stride = v->channels;
    }
}

/* ---- packing: an element's place is a sum of one term per axis ---- */

/* The place of index i along descriptor axis a: the outer stride times the block number, plus the
 * place inside the (possibly nested) inner blocks. */
static int64_t descriptor_place(const dnnl_memory_desc_t *desc, int axis, int64_t i)
{
    const dnnl_blocking_desc_t *b = &desc->format_desc.blocking;
    int64_t place = 0, inner_stride = 1, block = 1;
    for (int k = b->inner_nblks - 1; k >= 0; k--) {
        if (b->inner_idxs[k] == axis) {
            place += i / block % b->inner_blks[k] * inner_stride;
            block *= b->inner_blks[k];
        }
        inner_stride *= b->inner_blks[k];
    }
    return place + i / block * b->strides[axis];
}

static int64_t shape_place(const layout *l, int axis, int64_t i)
{
    if (l->desc.ndims == l->shape.rank)
        return descriptor_place(&l->desc, axis, i);
    /* Groups first: axis 0 of the shape is the group and the channel inside it. */
    if (axis > 0)
        return descriptor_place(&l->desc, axis + 1, i);
    int64_t per_group = l->desc.dims[1];
    return descriptor_place(&l->desc, 0, i / per_group) +
           descriptor_place(&l->desc, 1, i % per_group);
}

int64_t layout_axis_place(const layout *l, int axis, int64_t i)
{
    return l->axis_place[axis] ? l->axis_place[axis][i] : shape_place(l, axis, i);
}

int64_t layout_place(const layout *l, const int64_t at[SHAPE_MAX_RANK])
{
    int64_t place = 0;
    for (int a = 0; a < l->shape.rank; a++)
        place += layout_axis_place(l, a, at[a]);
    return place;
}

/* place[a][i]: what index i of axis a adds to an element's place, in floats. One block of memory,
 * which begins at place[0]. */
static enum status find_places(const layout *l, int64_t *place[SHAPE_MAX_RANK])
{
    int64_t total = 1; /* never an allocation of nothing */
    for (int a = 0; a < l->shape.rank; a++)
        total += l->shape.dim[a];
    place[0] = malloc((size_t)total * sizeof *place[0]);
    if (!place[0])
        return status_no_memory((size_t)total * sizeof *place[0]);
    for (int a = 0; a < l->shape.rank; a++) {
        if (a > 0)
            place[a] = place[a - 1] + l->shape.dim[a - 1];
        for (int64_t i = 0; i < l->shape.dim[a]; i++)
            place[a][i] = shape_place(l, a, i);
    }
    return STATUS_OK;
}

/* Goes through all elements in row-major order; to_plain says which way they are copied. Only
 * weights and images in blocks are packed: four axes at most. */
static void copy_elements(const layout *l, int64_t *const axis_place[SHAPE_MAX_RANK], float *packed,
                          float *plain, bool to_plain)
{
    enum { PACKED_RANK = 4 };
    int64_t dim[PACKED_RANK] = {1, 1, 1, 1}, zero = 0;
    const int64_t *place[PACKED_RANK] = {&zero, &zero, &zero, &zero};
    for (int a = 0, at = PACKED_RANK - l->shape.rank; a < l->shape.rank; a++, at++) {
        dim[at] = l->shape.dim[a];
        place[at] = axis_place[a];
    }
    for (int64_t a = 0; a < dim[0]; a++)
        for (int64_t b = 0; b < dim[1]; b++)
            for (int64_t c = 0; c < dim[2]; c++) {
                int64_t base = place[0][a] + place[1][b] + place[2][c];
                for (int64_t i = 0; i < dim[3]; i++, plain++) {
                    if (to_plain)
                        *plain = packed[base + place[3][i]];
                    else
                        packed[base + place[3][i]] = *plain;
                }
            }
}

enum status layout_pack(device *d, const layout *l, const float *plain, float *packed)
{
    (void)d;
    if (l->kind == LAYOUT_PLAIN) {
        memcpy(packed, plain, (size_t)l->n_bytes);
        return STATUS_OK;
    }
    int64_t *place[SHAPE_MAX_RANK];
    TRY(find_places(l, place));
    memset(packed, 0, (size_t)l->n_bytes);
    copy_elements(l, place, packed, (float *)(uintptr_t)plain, false);
    free(place[0]);
    return STATUS_OK;
}

enum status layout_unpack(device *d, const layout *l, const float *packed, float *plain)
{
    (void)d;
    if (l->kind == LAYOUT_PLAIN) {
        memcpy(plain, packed, (size_t)l->n_bytes);
        return STATUS_OK;
    }
    int64_t *place[SHAPE_MAX_RANK];
    TRY(find_places(l, place));
    copy_elements(l, place, (float *)(uintptr_t)packed, plain, true);
    free(place[0]);
    return STATUS_OK;
}
