/* pack.h: many small image files made one file with cheap random access.
 *
 * Opening, reading and closing a small file costs more than decoding it, and on shared file systems
 * far more. A packed file holds all samples of one split and a table of where each begins; reading
 * a sample is one read of its own bytes.
 *
 *     TRY(pack_create("imagefolder:/data/cats", DATASET_TRAIN, "cats.pack", NULL));
 *     TRY(dataset_open("packed:cats.pack", DATASET_TRAIN, NULL, &d));
 *
 * The file, little endian:
 *
 *     0             struct pack_header, 256 bytes, ending with its checksum
 *     256           the samples, each at a multiple of 64
 *     index_offset  n_samples x struct pack_entry; a multiple of 64
 *     names_offset  the classes' names, each ended by a zero byte
 *
 * Checksums (XXH64) cover the header, the index with the names, and each sample.
 */
#ifndef CLEAVE_DATA_PACK_H
#define CLEAVE_DATA_PACK_H

#include "data/dataset.h"

enum pack_encoding {
    PACK_RAW,  /* pixels at the target size: nothing left to decode */
    PACK_JPEG, /* the image files' own bytes (JPEG or PNG), decoded when read: smaller */
};

struct pack_options {
    enum pack_encoding encoding;
    int threads; /* decoding threads; 0: the online cores */
    /* Called now and then from one thread, if not NULL. */
    void (*progress)(void *context, int64_t done, int64_t total);
    void *context;
};

/* Packs one split of the dataset `spec` into the file `path`, which is replaced in one step when
 * all is written and synced: after a failure or a kill the old file stays. `options` may be NULL.
 * STATUS_USAGE for synthetic data, and for PACK_JPEG unless the source holds image files. */
enum status pack_create(const char *spec, enum dataset_split split, const char *path,
                        const struct pack_options *options) MUST_USE;

struct pack_header {
    char magic[8]; /* PACK_MAGIC */
    uint32_t version, encoding;
    uint32_t channels, height, width, classes;
    uint32_t split, reserved;
    uint64_t n_samples, index_offset, names_offset, names_bytes, file_bytes;
    float mean[4], std[4]; /* by channel, of pixels in [0, 1] */
    char name[64];
    uint64_t padding[8];
    uint64_t index_checksum;  /* of the index and the names */
    uint64_t header_checksum; /* of the bytes before it */
};

struct pack_entry {
    uint64_t offset, checksum;
    uint32_t n_bytes, label;
};

#define PACK_MAGIC "CLVPACK1"
enum { PACK_VERSION = 1, PACK_ALIGNMENT = 64 };

/* The index of a packed file in memory, checked: every entry lies inside the file, every label
 * names a class. */
struct pack_index {
    const struct pack_entry *entries; /* [n_samples] */
    const char *names;                /* `classes` texts in a row */
};

/* The header of a packed file called `path`, which has n_bytes. */
enum status pack_check_header(const struct pack_header *h, uint64_t n_bytes,
                              const char *path) MUST_USE;

/* The bytes from index_offset to the end of the file, of a checked header. */
size_t pack_index_bytes(const struct pack_header *h);

/* Checks them (at an address that is a multiple of 8) and makes *out point into them. */
enum status pack_check_index(const struct pack_header *h, const uint8_t *bytes, const char *path,
                             struct pack_index *out) MUST_USE;

/* The bytes of sample `index` against the checksum of its entry. */
enum status pack_check_sample(const struct pack_entry *e, const uint8_t *bytes, const char *path,
                              int64_t index) MUST_USE;

#endif
