/* safetensors.h: named tensors in one file, in the format that PyTorch users know.
 *
 *     8 bytes     length of the header, little-endian
 *     header      JSON: {"__metadata__": {"key": "text"},
 *                        "fc.weight": {"dtype": "F32", "shape": [10, 84], "data_offsets": [0,
 * 3360]}} padded with spaces to a multiple of 8 data        the tensors, little-endian, without
 * gaps; offsets count from here
 *
 * Reading trusts nothing: lengths, offsets, overlaps, gaps, types, shapes, duplicate names and
 * nesting are checked before any tensor is touched, and an error names the file and the tensor.
 *
 *     safetensors *f;
 *     TRY(safetensors_open("resnet18.safetensors", &f));
 *     const struct safetensors_tensor *t = safetensors_find(f, "fc.weight");
 *     if (t)
 *         st = safetensors_read_floats(f, t, weights);
 *     safetensors_close(f);
 *
 *     struct safetensors_entry entries[] = {{"fc.weight", SHAPE2(10, 84)}};
 *     TRY(safetensors_writer_open("out.safetensors", entries, 1, NULL, &w));
 *     st = safetensors_writer_put(w, weights);        // the entries in order
 *     if (st == STATUS_OK)
 *         st = safetensors_writer_finish(w, &sum);    // synchronised to disk
 *     safetensors_writer_close(w);                    // removes the file unless it was finished
 */
#ifndef CLEAVE_RUNTIME_SAFETENSORS_H
#define CLEAVE_RUNTIME_SAFETENSORS_H

#include "base/status.h"
#include "model/shape.h"

#include <stdint.h>

enum { SAFETENSORS_MAX_RANK = 8, SAFETENSORS_MAX_HEADER_BYTES = 100000000 };

enum safetensors_type {
    SAFETENSORS_BOOL,
    SAFETENSORS_U8,
    SAFETENSORS_I8,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_I16,
    SAFETENSORS_U16,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I32,
    SAFETENSORS_U32,
    SAFETENSORS_F32,
    SAFETENSORS_F64,
    SAFETENSORS_I64,
    SAFETENSORS_U64,
    SAFETENSORS_TYPE_COUNT
};

const char *safetensors_type_name(enum safetensors_type type); /* "F32" */

struct safetensors_tensor {
    const char *name;
    enum safetensors_type type;
    int rank;
    int64_t dim[SAFETENSORS_MAX_RANK];
    int64_t offset, n_bytes; /* in the data part */
};

/* Identifies a file's content. */
struct safetensors_sum {
    int64_t n_bytes; /* of the whole file */
    uint64_t xxh64;  /* of all its bytes */
};

/* ---- reading ---- */

typedef struct safetensors safetensors;

/* Opens a file and checks its header whole. The data is read when it is asked for. */
enum status safetensors_open(const char *path, safetensors **out) MUST_USE;
/* The same over bytes in memory, which must outlive it; `name` is for messages. */
enum status safetensors_open_memory(const char *name, const void *bytes, size_t n_bytes,
                                    safetensors **out) MUST_USE;
void safetensors_close(safetensors *f); /* NULL is fine */

/* The tensors, in the order of their offsets. Owned by f. */
int safetensors_count(const safetensors *f);
const struct safetensors_tensor *safetensors_get(const safetensors *f, int index);
const struct safetensors_tensor *safetensors_find(const safetensors *f,
                                                  const char *name); /* NULL:
                                                                        none */
/* The metadata text under `key`, or NULL. Owned by f. */
const char *safetensors_metadata(const safetensors *f, const char *key);

/* All elements of an F32 tensor; STATUS_FAILED for another type. */
enum status safetensors_read_floats(safetensors *f, const struct safetensors_tensor *t,
                                    float *to) MUST_USE;

/* Reads the whole file once. */
enum status safetensors_get_sum(safetensors *f, struct safetensors_sum *out) MUST_USE;

/* ---- writing: F32 only ---- */

struct safetensors_entry {
    const char *name;
    struct shape shape;
};

typedef struct safetensors_writer safetensors_writer;

/* Creates (or replaces) the file and writes the header. `metadata` is NULL or key, text, key, text,
 * ..., NULL. Errors name the path and the cause: no space left, read-only, no such folder. */
enum status safetensors_writer_open(const char *path, const struct safetensors_entry *entries,
                                    int n_entries, const char *const *metadata,
                                    safetensors_writer **out) MUST_USE;
/* The next entry's elements. */
enum status safetensors_writer_put(safetensors_writer *w, const float *from) MUST_USE;
/* Once all entries are put: synchronises the file to disk and closes it. */
enum status safetensors_writer_finish(safetensors_writer *w, struct safetensors_sum *out) MUST_USE;
/* Frees the writer; NULL is fine. A file that was not finished is removed. */
void safetensors_writer_close(safetensors_writer *w);

#endif
