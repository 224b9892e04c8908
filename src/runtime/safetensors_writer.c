#include "runtime/safetensors.h"

#include "base/whole_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LENGTH_BYTES = 8 };

struct safetensors_writer {
    char *path;
    whole_file *file; /* NULL: finished */
    int n_entries, n_put;
    int64_t *entry_bytes;
    int64_t n_bytes;
    XXH64_state_t hash;
};

static enum status write_bytes(safetensors_writer *w, const void *from, int64_t n_bytes)
{
    int fd = whole_file_descriptor(w->file);
    (void)XXH64_update(&w->hash, from, (size_t)n_bytes);
    for (int64_t done = 0; done < n_bytes;) {
        ssize_t n = write(fd, (const char *)from + done, (size_t)(n_bytes - done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_fail(STATUS_FAILED, "%s: cannot write: %s", w->path, strerror(errno));
        done += n;
    }
    w->n_bytes += n_bytes;
    return STATUS_OK;
}

/* ---- the header ------------------------------------------------------------------------------ */

static json_t *make_metadata(const char *const *pairs)
{
    json_t *metadata = json_object();
    for (; *pairs; pairs += 2)
        if (json_object_set_new(metadata, pairs[0], json_string(pairs[1])) != 0) {
            json_decref(metadata);
            return NULL;
        }
    return metadata;
}

static json_t *make_entry(const struct shape *shape, int64_t begin, int64_t end)
{
    json_t *dims = json_array();
    for (int i = 0; i < shape->rank; i++)
        (void)json_array_append_new(dims, json_integer(shape->dim[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", dims, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

/* The header's text, or NULL when memory ran out; entry_bytes[] is filled on the way. */
static char *make_header(const struct safetensors_entry *entries, int n_entries,
                         const char *const *metadata, int64_t *entry_bytes)
{
    json_t *header = json_object();
    bool good = header && (!metadata || json_object_set_new(header, "__metadata__",
                                                            make_metadata(metadata)) == 0);
    int64_t offset = 0;
    for (int i = 0; good && i < n_entries; i++) {
        entry_bytes[i] = shape_elements(&entries[i].shape) * (int64_t)sizeof(float);
        json_t *entry = make_entry(&entries[i].shape, offset, offset + entry_bytes[i]);
        good = json_object_set_new(header, entries[i].name, entry) == 0;
        offset += entry_bytes[i];
    }
    char *text = good ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    return text;
}

static enum status write_header(safetensors_writer *w, const struct safetensors_entry *entries,
                                const char *const *metadata)
{
    static const char spaces[LENGTH_BYTES] = "       ";
    char *text = make_header(entries, w->n_entries, metadata, w->entry_bytes);
    if (!text)
        return status_fail(STATUS_FAILED, "%s: out of memory for the header of %d tensors", w->path,
                           w->n_entries);
    size_t length = strlen(text), padding = (LENGTH_BYTES - length % LENGTH_BYTES) % LENGTH_BYTES;
    uint8_t raw[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        raw[i] = (uint8_t)((uint64_t)(length + padding) >> 8 * i);
    enum status st = write_bytes(w, raw, LENGTH_BYTES);
    if (st == STATUS_OK)
        st = write_bytes(w, text, (int64_t)length);
    if (st == STATUS_OK)
        st = write_bytes(w, spaces, (int64_t)padding);
    free(text);
    return st;
}

/* ---- the writer ------------------------------------------------------------------------------ */

/* NULL: out of memory. */
static safetensors_writer *create(const char *path, int n_entries)
{
    safetensors_writer *w = calloc(1, sizeof *w);
    char *copy = strdup(path);
    int64_t *entry_bytes = calloc((size_t)n_entries + 1, sizeof *entry_bytes);
    if (!w || !copy || !entry_bytes) {
        free(w);
        free(copy);
        free(entry_bytes);
        return NULL;
    }
    *w = (safetensors_writer){.path = copy, .n_entries = n_entries, .entry_bytes = entry_bytes};
    (void)XXH64_reset(&w->hash, 0);
    return w;
}

enum status safetensors_writer_open(const char *path, const struct safetensors_entry *entries,
                                    int n_entries, const char *const *metadata,
                                    safetensors_writer **out)
{
    safetensors_writer *w = create(path, n_entries);
    if (!w)
        return status_no_memory(sizeof *w);
    enum status st = whole_file_open(path, &w->file);
    if (st == STATUS_OK)
        st = write_header(w, entries, metadata);
    if (st != STATUS_OK) {
        safetensors_writer_close(w);
        return st;
    }
    *out = w;
    return STATUS_OK;
}

enum status safetensors_writer_put(safetensors_writer *w, const float *from)
{
    if (w->n_put == w->n_entries)
        return status_fail(STATUS_FAILED, "%s: more tensors than the %d announced", w->path,
                           w->n_entries);
    TRY(write_bytes(w, from, w->entry_bytes[w->n_put++]));
    return STATUS_OK;
}

enum status safetensors_writer_finish(safetensors_writer *w, struct safetensors_sum *out)
{
    if (w->n_put != w->n_entries)
        return status_fail(STATUS_FAILED, "%s: %d of %d tensors were written", w->path, w->n_put,
                           w->n_entries);
    whole_file *file = w->file;
    w->file = NULL;
    TRY(whole_file_end(file, STATUS_OK));
    *out = (struct safetensors_sum){w->n_bytes, XXH64_digest(&w->hash)};
    return STATUS_OK;
}

void safetensors_writer_close(safetensors_writer *w)
{
    if (!w)
        return;
    whole_file_drop(w->file);
    free(w->entry_bytes);
    free(w->path);
    free(w);
}
