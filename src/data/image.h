/* image.h: JPEG and PNG bytes to pixels of a wanted size. */
#ifndef CLEAVE_DATA_IMAGE_H
#define CLEAVE_DATA_IMAGE_H

#include "data/file.h"

#include <pthread.h>

/* More pixels than this are refused: a header is not to be trusted with memory. */
enum { IMAGE_PIXELS_MAX = 1 << 27 };

struct image {
    int height, width;
    struct buffer rgb; /* [height, width, 3] */
};

/* Both decode n_bytes at `bytes` into *out, whose buffer is reused. All colour types become RGB;
 * alpha is dropped. Truncated or corrupt bytes are STATUS_FAILED, naming `name`; no library error
 * exits the process. The JPEG decoder may shrink by 2, 4 or 8 while decoding as long as neither
 * side goes below what fitting into least_height x least_width needs. */
enum status image_decode_jpeg(const uint8_t *bytes, size_t n_bytes, const char *name,
                              int least_height, int least_width, struct image *out) MUST_USE;
enum status image_decode_png(const uint8_t *bytes, size_t n_bytes, const char *name,
                             struct image *out) MUST_USE;

/* Scales so that the image just covers height x width, and cuts out the centre: bilinear, or the
 * mean over each pixel's area when shrinking by more than 2. pixels: [3, height, width]. */
enum status image_fit(const struct image *image, int height, int width, struct buffer *scratch,
                      uint8_t *pixels) MUST_USE;

/* Memory for one decode at a time. */
struct image_scratch {
    struct image_scratch *next;
    struct buffer file, fit;
    struct image image;
};

/* JPEG or PNG, told by the first bytes, decoded and fitted into pixels [3, height, width]. */
enum status image_decode(const uint8_t *bytes, size_t n_bytes, const char *name, int height,
                         int width, struct image_scratch *scratch, uint8_t *pixels) MUST_USE;

/* As many scratches as threads decode at once, made when first needed and then reused. */
struct image_pool {
    pthread_mutex_t lock;
    struct image_scratch *idle;
};
void image_pool_init(struct image_pool *pool);
void image_pool_deinit(struct image_pool *pool);
enum status image_pool_take(struct image_pool *pool, struct image_scratch **out) MUST_USE;
void image_pool_return(struct image_pool *pool, struct image_scratch *scratch);

#endif
