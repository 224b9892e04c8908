#include "fuzz.h"

#include "data/pack.h"

#include <xxhash.h>

enum { SAMPLES = 3, SIDE = 4, SAMPLE_BYTES = 3 * SIDE * SIDE };

static void read_all(const uint8_t *bytes, size_t n_bytes)
{
    struct files_pack view;
    if (files_read_pack(bytes, n_bytes, "input", &view) == STATUS_OK)
        for (int64_t i = 0; i < (int64_t)view.header.n_samples; i++) {
            if (files_check_pack_sample(&view, "input", i) != STATUS_OK)
                status_clear();
        }
    else
        assert(status_message()[0] != '\0');
    status_clear();
}

/* Makes the checksums right, so that the checks behind them are reached. */
static void mend(uint8_t *bytes, size_t n_bytes)
{
    struct pack_header header;
    if (n_bytes < sizeof header)
        return;
    memcpy(&header, bytes, sizeof header);
    if (bytes[n_bytes - 1] & 1) /* else the reader must find the wrong length */
        header.file_bytes = n_bytes;
    if (header.index_offset <= n_bytes)
        header.index_checksum =
            XXH64(bytes + header.index_offset, n_bytes - header.index_offset, 0);
    header.header_checksum = XXH64(&header, offsetof(struct pack_header, header_checksum), 0);
    memcpy(bytes, &header, sizeof header);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1); /* aligned */
    assert(copy);
    memcpy(copy, bytes, n_bytes);
    read_all(copy, n_bytes);
    mend(copy, n_bytes);
    read_all(copy, n_bytes);
    free(copy);
    return 0;
}

static struct file_bytes make_pack(enum pack_encoding encoding, uint32_t n_bytes)
{
    static const char names[] = "cat\0dog";
    struct pack_header h = {.magic = PACK_MAGIC,
                            .version = PACK_VERSION,
                            .encoding = encoding,
                            .channels = 3,
                            .height = SIDE,
                            .width = SIDE,
                            .classes = 2,
                            .n_samples = SAMPLES,
                            .std = {1, 1, 1, 1},
                            .name = "pets"};
    h.index_offset = sizeof h + SAMPLES * PACK_ALIGNMENT;
    h.names_offset = h.index_offset + SAMPLES * sizeof(struct pack_entry);
    h.names_bytes = sizeof names;
    h.file_bytes = h.names_offset + h.names_bytes;
    struct file_bytes f = {calloc(1, h.file_bytes), h.file_bytes};
    assert(f.bytes);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        struct pack_entry e = {.offset = sizeof h + i * PACK_ALIGNMENT,
                               .n_bytes = n_bytes - (encoding == PACK_JPEG ? i : 0),
                               .label = i % 2};
        memset(f.bytes + e.offset, (int)i, e.n_bytes);
        e.checksum = XXH64(f.bytes + e.offset, e.n_bytes, 0);
        memcpy(f.bytes + h.index_offset + i * sizeof e, &e, sizeof e);
    }
    memcpy(f.bytes + h.names_offset, names, sizeof names);
    memcpy(f.bytes, &h, sizeof h);
    mend(f.bytes, f.n);
    struct files_pack view;
    enum status st = files_read_pack(f.bytes, f.n, "seed", &view);
    assert(st == STATUS_OK);
    (void)st;
    return f;
}

int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX])
{
    seeds[0] = make_pack(PACK_RAW, SAMPLE_BYTES);
    seeds[1] = make_pack(PACK_JPEG, 30);
    return 2;
}
