/* Devices, memory, streams, layouts, transfers, and the table of the reference backend. Work is
 * done when it is asked for, so streams and events have nothing to order. */
#include "backend/reference/reference.h"
#include "backend/reference/reference_parts.h"
#include "base/bf16.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status device_open(const struct device_options *options, device **out)
{
    device *d = calloc(1, sizeof *d);
    if (!d)
        return status_no_memory(sizeof *d);
    d->has_all_types = options->has_all_types;
    pthread_mutex_init(&d->lock, NULL);
    *out = d;
    return STATUS_OK;
}

static void device_close(device *d)
{
    if (!d)
        return;
    for (int i = 0; i < LAYOUT_BUCKETS; i++)
        for (struct layout *l = d->layouts[i], *next; l; l = next) {
            next = l->next;
            free(l);
        }
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static int device_threads(const device *d)
{
    (void)d;
    return 1;
}

bool reference_computes_in(enum precision precision)
{
    return precision == PRECISION_FLOAT || precision == PRECISION_DOUBLE ||
           precision == PRECISION_BF16;
}

enum status reference_find_kernels(enum element type, const struct kernel_table **out)
{
    static const struct kernel_table *const tables[ELEMENT_COUNT] = {
        [ELEMENT_F32] = &kernels_float,
        [ELEMENT_F64] = &kernels_double,
        [ELEMENT_BF16] = &kernels_bf16,
    };
    *out = tables[type];
    if (*out)
        return STATUS_OK;
    return status_fail(STATUS_FAILED, "the reference backend does not compute in %s",
                       element_name(type));
}

static const char *device_describe(const device *d)
{
    (void)d;
    return "plain C";
}

/* ---- memory ---- */

static enum status memory_alloc(device *d, int64_t n_bytes, void **out)
{
    enum { ALIGNMENT = 64 };
    (void)d;
    if (n_bytes < 0 || n_bytes > INT64_MAX - ALIGNMENT)
        return status_no_memory((size_t)n_bytes);
    /* aligned_alloc wants a multiple of the alignment, and nothing is still something */
    size_t rounded = ((size_t)n_bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    void *p = aligned_alloc(ALIGNMENT, rounded);
    if (!p)
        return status_no_memory(rounded);
    memset(p, 0, rounded);
    *out = p;
    return STATUS_OK;
}

static void memory_free(device *d, void *p)
{
    (void)d;
    free(p);
}

/* ---- order ---- */

static enum status stream_create(device *d, stream **out)
{
    stream *s = calloc(1, sizeof *s);
    if (!s)
        return status_no_memory(sizeof *s);
    s->device = d;
    *out = s;
    return STATUS_OK;
}

static void stream_destroy(stream *s)
{
    free(s);
}

static enum status stream_synchronize(stream *s)
{
    (void)s;
    return STATUS_OK;
}

static enum status event_create(device *d, event **out)
{
    event *e = calloc(1, sizeof *e);
    if (!e)
        return status_no_memory(sizeof *e);
    e->device = d;
    *out = e;
    return STATUS_OK;
}

static void event_destroy(event *e)
{
    free(e);
}

static enum status event_record(event *e, stream *s)
{
    (void)e;
    (void)s;
    return STATUS_OK;
}

static enum status event_wait(event *e, stream *s)
{
    (void)e;
    (void)s;
    return STATUS_OK;
}

/* ---- layouts ---- */

static struct layout *_Atomic *bucket_of(device *d, const struct shape *shape)
{
    uint64_t h = (uint64_t)shape->rank;
    for (int i = 0; i < shape->rank; i++)
        h = (h ^ (uint64_t)shape->dim[i]) * 0x9E3779B97F4A7C15u;
    return &d->layouts[(h >> 32) % LAYOUT_BUCKETS];
}

static const layout *find_layout(struct layout *_Atomic *bucket, enum element type,
                                 const struct shape *shape)
{
    const struct layout *l = atomic_load_explicit(bucket, memory_order_acquire);
    while (l && (l->type != type || !shape_equal(&l->shape, shape)))
        l = l->next;
    return l;
}

static enum status add_layout(struct layout *_Atomic *bucket, enum element type,
                              const struct shape *shape, const layout **out)
{
    char extents[SHAPE_TEXT_BYTES];
    bool usual = type == ELEMENT_F32;
    struct layout *l = calloc(1, sizeof *l);
    if (!l)
        return status_no_memory(sizeof *l);
    l->type = type;
    l->shape = *shape;
    l->n_bytes = shape_elements(shape) * element_bytes(type);
    (void)snprintf(l->text, sizeof l->text, "plain%s%s %s", usual ? "" : ":",
                   usual ? "" : element_name(type), shape_text(extents, sizeof extents, shape));
    l->next = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(bucket, l, memory_order_release);
    *out = l;
    return STATUS_OK;
}

enum status reference_layout_plain(device *d, enum element type, const struct shape *shape,
                                   const layout **out)
{
    struct layout *_Atomic *bucket = bucket_of(d, shape);
    *out = find_layout(bucket, type, shape);
    if (*out)
        return STATUS_OK;
    enum status st = STATUS_OK;
    pthread_mutex_lock(&d->lock);
    *out = find_layout(bucket, type, shape); /* another thread may have been quicker */
    if (!*out)
        st = add_layout(bucket, type, shape, out);
    pthread_mutex_unlock(&d->lock);
    return st;
}

static enum status layout_in_type(device *d, enum element type, const layout *l, const layout **out)
{
    return reference_layout_plain(d, type, &l->shape, out);
}

static int64_t layout_bytes(const layout *l)
{
    return l->n_bytes;
}

static enum element layout_type(const layout *l)
{
    return l->type;
}

/* ---- bf16 ---- */

static void widen(const device *d, int64_t count, const uint16_t *from, float *to)
{
    (void)d;
    kernels_bf16.to_float(count, from, to);
}

static void widen_add(const device *d, int64_t count, const uint16_t *from, float *to)
{
    (void)d;
    for (int64_t i = 0; i < count; i++)
        to[i] += bf16_widen(from[i]);
}

static void round_to_narrow(const device *d, int64_t count, const float *from, uint16_t *to)
{
    (void)d;
    kernels_bf16.from_float(count, from, to);
}

const struct widen_calls reference_widen_calls = {
    .layout_in_type = layout_in_type,
    .layout_bytes = layout_bytes,
    .layout_type = layout_type,
    .widen = widen,
    .widen_add = widen_add,
    .round = round_to_narrow,
    .run = reference_group_run_wide,
};

static const struct shape *layout_shape(const layout *l)
{
    return &l->shape;
}

static const char *layout_text(const layout *l, char *text, size_t size)
{
    size_t n = strlen(l->text);
    n = n < size ? n : size - 1;
    memcpy(text, l->text, n);
    text[n] = '\0';
    return text;
}

static enum status layout_transfer(device *d, enum element type, const struct shape *region,
                                   const struct axes *axes, const layout **out)
{
    (void)axes;
    return reference_layout_plain(d, type, region, out);
}

/* ---- transfers and whole-tensor arithmetic ---- */

static enum status check_box(const layout *l, const int64_t *begin, const int64_t *extent)
{
    char text[SHAPE_TEXT_BYTES];
    for (int a = 0; a < l->shape.rank; a++)
        if (begin[a] < 0 || extent[a] < 0 || begin[a] + extent[a] > l->shape.dim[a])
            return status_fail(STATUS_FAILED,
                               "a region [%lld, %lld) of axis %d is outside a tensor of %s",
                               (long long)begin[a], (long long)(begin[a] + extent[a]), a,
                               shape_text(text, sizeof text, &l->shape));
    return STATUS_OK;
}

/* The element at which row `row` of the box begins; rows run along the last axis. */
static int64_t row_place(const struct shape *s, const int64_t *begin, const int64_t *extent,
                         int64_t row)
{
    int64_t place = begin[s->rank - 1], scale = s->dim[s->rank - 1];
    for (int a = s->rank - 2; a >= 0; a--) {
        place += (begin[a] + row % extent[a]) * scale;
        scale *= s->dim[a];
        row /= extent[a];
    }
    return place;
}

static enum status copy_region(stream *s, const struct region_copy *c, const void *from, void *to)
{
    const struct kernel_table *kernels;
    const struct shape *f = &c->from_layout->shape, *t = &c->to_layout->shape;
    const int64_t bytes = element_bytes(c->to_layout->type);
    (void)s;
    TRY(reference_find_kernels(c->to_layout->type, &kernels));
    if (c->from_layout->type != c->to_layout->type)
        return status_fail(STATUS_FAILED, "a region of %s cannot go into one of %s",
                           element_name(c->from_layout->type), element_name(c->to_layout->type));
    if (f->rank != t->rank)
        return status_fail(STATUS_FAILED, "a region of %d axes cannot go into one of %d", f->rank,
                           t->rank);
    TRY(check_box(c->from_layout, c->from_begin, c->extent));
    TRY(check_box(c->to_layout, c->to_begin, c->extent));
    int64_t rows = 1, width = c->extent[f->rank - 1];
    for (int a = 0; a < f->rank - 1; a++)
        rows *= c->extent[a];
    for (int64_t row = 0; row < rows; row++) {
        const char *x = (const char *)from + row_place(f, c->from_begin, c->extent, row) * bytes;
        char *y = (char *)to + row_place(t, c->to_begin, c->extent, row) * bytes;
        if (c->add)
            kernels->add(width, x, y);
        else
            memcpy(y, x, (size_t)(width * bytes));
    }
    return STATUS_OK;
}

static enum status clear(stream *s, void *to, int64_t n_bytes)
{
    (void)s;
    memset(to, 0, (size_t)n_bytes);
    return STATUS_OK;
}

static enum status accumulate(stream *s, enum element type, int64_t count, const void *from,
                              void *to)
{
    const struct kernel_table *kernels;
    (void)s;
    TRY(reference_find_kernels(type, &kernels));
    kernels->add(count, from, to);
    return STATUS_OK;
}

static enum status copy(stream *s, const void *from, void *to, int64_t n_bytes)
{
    (void)s;
    memcpy(to, from, (size_t)n_bytes);
    return STATUS_OK;
}

static enum status upload(stream *s, const float *host, void *to, const layout *to_layout)
{
    const struct kernel_table *kernels;
    (void)s;
    TRY(reference_find_kernels(to_layout->type, &kernels));
    kernels->from_float(shape_elements(&to_layout->shape), host, to);
    return STATUS_OK;
}

static enum status download(stream *s, const void *from, const layout *from_layout, float *host)
{
    const struct kernel_table *kernels;
    (void)s;
    TRY(reference_find_kernels(from_layout->type, &kernels));
    kernels->to_float(shape_elements(&from_layout->shape), from, host);
    return STATUS_OK;
}

static enum status upload_labels(stream *s, const int32_t *host, int64_t count, int32_t *to)
{
    (void)s;
    memcpy(to, host, (size_t)count * sizeof *to);
    return STATUS_OK;
}

static enum status fold(stream *s, const layout *l, int n_addends, const void *const *addends,
                        enum activation activation, const void *output, void *to)
{
    const struct kernel_table *kernels;
    (void)s;
    TRY(reference_find_kernels(l->type, &kernels));
    kernels->fold(shape_elements(&l->shape), n_addends, addends, activation, output, to);
    return STATUS_OK;
}

static enum status update(stream *s, const struct update_rule *rule, const struct update_args *args)
{
    const struct kernel_table *kernels;
    (void)s;
    TRY(reference_find_kernels(args->type, &kernels));
    if (args->rounded && (args->type != ELEMENT_F32 || args->rounded_type != ELEMENT_BF16))
        return status_fail(STATUS_FAILED,
                           "the reference backend does not round weights from %s to %s",
                           element_name(args->type), element_name(args->rounded_type));
    kernels->update(rule, args->count, args->weight, args->gradient, args->state);
    if (args->rounded)
        kernels_bf16.from_float(args->count, args->weight, args->rounded);
    return STATUS_OK;
}

const struct backend backend_reference = {
    .name = "reference",
    .about = "plain C, one thread, float, double or bf16: slow, and easy to believe",
    .describes_together = true,
    .computes_in = reference_computes_in,
    .describes_all_precisions = true,
    .device_open = device_open,
    .device_close = device_close,
    .device_threads = device_threads,
    .device_describe = device_describe,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .layout_plain = reference_layout_plain,
    .layout_in_type = layout_in_type,
    .layout_bytes = layout_bytes,
    .layout_type = layout_type,
    .layout_shape = layout_shape,
    .layout_text = layout_text,
    .layout_transfer = layout_transfer,
    .copy_region = copy_region,
    .clear = clear,
    .accumulate = accumulate,
    .copy = copy,
    .upload = upload,
    .download = download,
    .upload_labels = upload_labels,
    .group_create = reference_group_create,
    .group_destroy = reference_group_destroy,
    .group_get_needs = reference_group_get_needs,
    .group_run = reference_group_run,
    .fold = fold,
    .update = update,
};
