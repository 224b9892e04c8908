#include "runtime/safetensors.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format's floats are little-endian");

enum { LENGTH_BYTES = 8, CHUNK_BYTES = 1 << 20 };

static const struct {
    const char *name;
    int n_bytes; /* of one element */
} types[SAFETENSORS_TYPE_COUNT] = {
    [SAFETENSORS_BOOL] = {"BOOL", 1},       [SAFETENSORS_U8] = {"U8", 1},
    [SAFETENSORS_I8] = {"I8", 1},           [SAFETENSORS_F8_E4M3] = {"F8_E4M3", 1},
    [SAFETENSORS_F8_E5M2] = {"F8_E5M2", 1}, [SAFETENSORS_I16] = {"I16", 2},
    [SAFETENSORS_U16] = {"U16", 2},         [SAFETENSORS_F16] = {"F16", 2},
    [SAFETENSORS_BF16] = {"BF16", 2},       [SAFETENSORS_I32] = {"I32", 4},
    [SAFETENSORS_U32] = {"U32", 4},         [SAFETENSORS_F32] = {"F32", 4},
    [SAFETENSORS_F64] = {"F64", 8},         [SAFETENSORS_I64] = {"I64", 8},
    [SAFETENSORS_U64] = {"U64", 8},
};

const char *safetensors_type_name(enum safetensors_type type)
{
    return types[type].name;
}

struct safetensors {
    char *path;           /* or the name of the memory */
    int fd;               /* -1: in memory */
    const uint8_t *bytes; /* in memory */
    int64_t n_bytes, data_offset;
    json_t *header; /* owns the names and the metadata */
    int n_tensors;
    struct safetensors_tensor *tensors; /* by offset */
    const struct safetensors_tensor **by_name;
};

/* ---- bytes ----------------------------------------------------------------------------------- */

static enum status read_bytes(const safetensors *f, int64_t offset, void *to, int64_t n_bytes)
{
    if (f->fd < 0) {
        memcpy(to, f->bytes + offset, (size_t)n_bytes);
        return STATUS_OK;
    }
    for (int64_t done = 0; done < n_bytes;) {
        ssize_t n = pread(f->fd, (char *)to + done, (size_t)(n_bytes - done), offset + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_fail(STATUS_FAILED, "%s: cannot read: %s", f->path, strerror(errno));
        if (n == 0)
            return status_fail(STATUS_FAILED, "%s: became shorter while it was read", f->path);
        done += n;
    }
    return STATUS_OK;
}

static enum status read_header_length(safetensors *f, int64_t *length)
{
    uint8_t raw[LENGTH_BYTES];
    if (f->n_bytes < LENGTH_BYTES)
        return status_fail(STATUS_FAILED,
                           "%s: not a safetensors file: %lld bytes, at least %d are needed",
                           f->path, (long long)f->n_bytes, LENGTH_BYTES);
    TRY(read_bytes(f, 0, raw, LENGTH_BYTES));
    uint64_t value = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        value = value << 8 | raw[i];
    if (value > SAFETENSORS_MAX_HEADER_BYTES)
        return status_fail(STATUS_FAILED,
                           "%s: not a safetensors file: a header of %llu bytes, at most %d are "
                           "allowed",
                           f->path, (unsigned long long)value, SAFETENSORS_MAX_HEADER_BYTES);
    if ((int64_t)value > f->n_bytes - LENGTH_BYTES)
        return status_fail(STATUS_FAILED,
                           "%s: truncated: the header has %llu bytes, the file only %lld", f->path,
                           (unsigned long long)value, (long long)f->n_bytes);
    *length = (int64_t)value;
    f->data_offset = LENGTH_BYTES + *length;
    return STATUS_OK;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static enum status read_type(const safetensors *f, struct safetensors_tensor *t, const json_t *type)
{
    const char *text = json_string_value(type);
    if (!text)
        return status_fail(STATUS_FAILED, "%s: tensor '%.200s' has no dtype", f->path, t->name);
    for (int i = 0; i < SAFETENSORS_TYPE_COUNT; i++)
        if (strcmp(types[i].name, text) == 0) {
            t->type = (enum safetensors_type)i;
            return STATUS_OK;
        }
    return status_fail(STATUS_FAILED, "%s: tensor '%.200s' has the unknown dtype '%.40s'", f->path,
                       t->name, text);
}

/* Also computes the bytes that the shape asks for, refusing products that overflow. */
static enum status read_shape(const safetensors *f, struct safetensors_tensor *t,
                              const json_t *shape)
{
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape) || rank > SAFETENSORS_MAX_RANK)
        return status_fail(STATUS_FAILED,
                           "%s: tensor '%.200s': shape must be a list of at most %d numbers",
                           f->path, t->name, SAFETENSORS_MAX_RANK);
    t->rank = (int)rank;
    t->n_bytes = types[t->type].n_bytes;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(shape, i);
        json_int_t value = json_integer_value(dim);
        if (!json_is_integer(dim) || value < 0 ||
            __builtin_mul_overflow(t->n_bytes, (int64_t)value, &t->n_bytes))
            return status_fail(STATUS_FAILED,
                               "%s: tensor '%.200s': extent %zu of its shape is not a size",
                               f->path, t->name, i);
        t->dim[i] = value;
    }
    return STATUS_OK;
}

static enum status read_offsets(const safetensors *f, struct safetensors_tensor *t,
                                const json_t *offsets)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return status_fail(STATUS_FAILED,
                           "%s: tensor '%.200s': data_offsets must be two whole numbers", f->path,
                           t->name);
    long long first = json_integer_value(begin), last = json_integer_value(end);
    long long n_data = f->n_bytes - f->data_offset;
    if (first < 0 || last < first || last > n_data)
        return status_fail(
            STATUS_FAILED,
            "%s: truncated or corrupt: tensor '%.200s' lies at bytes %lld to %lld of "
            "%lld bytes of data",
            f->path, t->name, first, last, n_data);
    if (last - first != t->n_bytes)
        return status_fail(STATUS_FAILED,
                           "%s: tensor '%.200s' has %lld bytes, its shape and dtype ask for %lld",
                           f->path, t->name, last - first, (long long)t->n_bytes);
    t->offset = first;
    return STATUS_OK;
}

static enum status read_tensor(const safetensors *f, const char *name, const json_t *entry,
                               struct safetensors_tensor *t)
{
    *t = (struct safetensors_tensor){.name = name};
    if (!json_is_object(entry))
        return status_fail(STATUS_FAILED, "%s: the entry of tensor '%.200s' is not an object",
                           f->path, name);
    TRY(read_type(f, t, json_object_get(entry, "dtype")));
    TRY(read_shape(f, t, json_object_get(entry, "shape")));
    TRY(read_offsets(f, t, json_object_get(entry, "data_offsets")));
    return STATUS_OK;
}

/* ---- the header ------------------------------------------------------------------------------ */

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->n_bytes != y->n_bytes) /* empty tensors come before the one that begins there */
        return x->n_bytes < y->n_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The data part must be covered without gaps or overlaps: whatever hides there is not ours. */
static enum status check_cover(const safetensors *f)
{
    int64_t end = 0;
    for (int i = 0; i < f->n_tensors; i++) {
        const struct safetensors_tensor *t = &f->tensors[i];
        if (t->offset != end)
            return status_fail(STATUS_FAILED,
                               "%s: corrupt: tensor '%.200s' begins at byte %lld of the data, the "
                               "one before it ends at %lld",
                               f->path, t->name, (long long)t->offset, (long long)end);
        end = t->offset + t->n_bytes;
    }
    if (end != f->n_bytes - f->data_offset)
        return status_fail(STATUS_FAILED, "%s: corrupt: %lld bytes of data, the tensors cover %lld",
                           f->path, (long long)(f->n_bytes - f->data_offset), (long long)end);
    return STATUS_OK;
}

static enum status check_metadata(const safetensors *f, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return status_fail(STATUS_FAILED, "%s: __metadata__ is not an object", f->path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return status_fail(STATUS_FAILED, "%s: metadata '%.200s' is not a text", f->path, key);
    }
    return STATUS_OK;
}

static enum status read_tensors(safetensors *f)
{
    size_t n_entries = json_object_size(f->header);
    f->tensors = calloc(n_entries + 1, sizeof *f->tensors);
    f->by_name = calloc(n_entries + 1, sizeof *f->by_name);
    if (!f->tensors || !f->by_name)
        return status_no_memory((n_entries + 1) * sizeof *f->tensors);
    const char *name;
    json_t *entry;
    json_object_foreach(f->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            TRY(check_metadata(f, entry));
        else
            TRY(read_tensor(f, name, entry, &f->tensors[f->n_tensors++]));
    }
    qsort(f->tensors, (size_t)f->n_tensors, sizeof *f->tensors, by_offset);
    TRY(check_cover(f));
    for (int i = 0; i < f->n_tensors; i++)
        f->by_name[i] = &f->tensors[i];
    qsort(f->by_name, (size_t)f->n_tensors, sizeof *f->by_name, by_name);
    return STATUS_OK;
}

static enum status read_header(safetensors *f)
{
    int64_t length = 0;
    TRY(read_header_length(f, &length));
    char *text = malloc((size_t)length + 1);
    if (!text)
        return status_no_memory((size_t)length + 1);
    enum status st = read_bytes(f, LENGTH_BYTES, text, length);
    if (st == STATUS_OK) {
        json_error_t error;
        f->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
        if (!f->header)
            st = status_fail(STATUS_FAILED, "%s: the header is not valid JSON (byte %d): %s",
                             f->path, error.position, json_error_reason(&error));
        else if (text[0] != '{' || !json_is_object(f->header))
            st = status_fail(STATUS_FAILED, "%s: the header is not a JSON object", f->path);
    }
    free(text);
    TRY(st);
    TRY(read_tensors(f));
    return STATUS_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* NULL: out of memory. */
static safetensors *create(const char *path)
{
    safetensors *f = calloc(1, sizeof *f);
    char *copy = strdup(path);
    if (!f || !copy) {
        free(f);
        free(copy);
        return NULL;
    }
    f->path = copy;
    f->fd = -1;
    return f;
}

static enum status open_file(safetensors *f)
{
    struct stat info;
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0 || fstat(f->fd, &info) != 0)
        return status_fail(STATUS_FAILED, "%s: cannot open: %s", f->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return status_fail(STATUS_FAILED, "%s: not a regular file", f->path);
    f->n_bytes = info.st_size;
    TRY(read_header(f));
    return STATUS_OK;
}

enum status safetensors_open(const char *path, safetensors **out)
{
    safetensors *f = create(path);
    if (!f)
        return status_no_memory(sizeof *f);
    enum status st = open_file(f);
    if (st != STATUS_OK) {
        safetensors_close(f);
        return st;
    }
    *out = f;
    return STATUS_OK;
}

enum status safetensors_open_memory(const char *name, const void *bytes, size_t n_bytes,
                                    safetensors **out)
{
    safetensors *f = create(name);
    if (!f)
        return status_no_memory(sizeof *f);
    f->bytes = bytes;
    f->n_bytes = (int64_t)n_bytes;
    enum status st = read_header(f);
    if (st != STATUS_OK) {
        safetensors_close(f);
        return st;
    }
    *out = f;
    return STATUS_OK;
}

void safetensors_close(safetensors *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        (void)close(f->fd);
    json_decref(f->header);
    free(f->tensors);
    free(f->by_name);
    free(f->path);
    free(f);
}

/* ---- asking ---------------------------------------------------------------------------------- */

int safetensors_count(const safetensors *f)
{
    return f->n_tensors;
}

const struct safetensors_tensor *safetensors_get(const safetensors *f, int index)
{
    return &f->tensors[index];
}

const struct safetensors_tensor *safetensors_find(const safetensors *f, const char *name)
{
    struct safetensors_tensor wanted = {.name = name};
    const struct safetensors_tensor *key = &wanted;
    const struct safetensors_tensor **found =
        bsearch(&key, f->by_name, (size_t)f->n_tensors, sizeof *f->by_name, by_name);
    return found ? *found : NULL;
}

const char *safetensors_metadata(const safetensors *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}

enum status safetensors_read_floats(safetensors *f, const struct safetensors_tensor *t, float *to)
{
    if (t->type != SAFETENSORS_F32)
        return status_fail(STATUS_FAILED, "%s: tensor '%.200s' has dtype %s, F32 is needed",
                           f->path, t->name, types[t->type].name);
    TRY(read_bytes(f, f->data_offset + t->offset, to, t->n_bytes));
    return STATUS_OK;
}

enum status safetensors_get_sum(safetensors *f, struct safetensors_sum *out)
{
    uint8_t *chunk = malloc(CHUNK_BYTES);
    if (!chunk)
        return status_no_memory(CHUNK_BYTES);
    XXH64_state_t hash;
    (void)XXH64_reset(&hash, 0);
    enum status st = STATUS_OK;
    for (int64_t at = 0; at < f->n_bytes;) {
        int64_t n = f->n_bytes - at < CHUNK_BYTES ? f->n_bytes - at : CHUNK_BYTES;
        TRY_GOTO(st, read_bytes(f, at, chunk, n), out);
        (void)XXH64_update(&hash, chunk, (size_t)n);
        at += n;
    }
    *out = (struct safetensors_sum){f->n_bytes, XXH64_digest(&hash)};
out:
    free(chunk);
    return st;
}
