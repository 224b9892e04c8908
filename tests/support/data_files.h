/* data_files.h: small files of every kind the data room reads, made in memory; for its tests and
 * fuzz targets. The caller frees the bytes. */
#ifndef CLEAVE_TESTS_DATA_FILES_H
#define CLEAVE_TESTS_DATA_FILES_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/pack.h"

#include <png.h>

struct file_bytes {
    uint8_t *bytes;
    size_t n;
};

/* A smooth picture that depends on `seed`, so that images can be told apart after JPEG. */
uint8_t files_pixel(int seed, int y, int x, int c);

void files_put_be32(uint8_t *at, uint32_t value);

/* n images of 28 x 28 (or labels, with height 0): pixel j of image i is (7i + j) % 256, label i is
 * i % 10. */
struct file_bytes files_idx(int n, int height, int width);

/* n records; the first pixel of record i is i, label i is (3i) % 10. */
struct file_bytes files_cifar(int n);

struct file_bytes files_gzip(struct file_bytes plain);

/* components: 1 grey, 3 RGB, 4 CMYK. */
struct file_bytes files_jpeg(int seed, int height, int width, int components, bool progressive);

/* Any colour type and depth; the samples are the bytes of files_pixel, packed as they come. */
struct file_bytes files_png(int seed, int height, int width, int color_type, int depth,
                            bool interlaced);

/* A packed file from memory (aligned to 8), checked as one that is opened; the bytes stay the
 * caller's. */
struct files_pack {
    struct pack_header header;
    struct pack_index index;
    const uint8_t *bytes;
};
enum status files_read_pack(const uint8_t *bytes, size_t n_bytes, const char *path,
                            struct files_pack *out);
enum status files_check_pack_sample(const struct files_pack *view, const char *path, int64_t index);

#endif
