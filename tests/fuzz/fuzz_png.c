#include "fuzz.h"

#include "data/image.h"

#include <zlib.h>

static void decode(const uint8_t *bytes, size_t n_bytes)
{
    enum { SIDE = 10 };
    uint8_t pixels[3 * SIDE * SIDE];
    struct image image = {0};
    struct buffer scratch = {0};
    enum status st = image_decode_png(bytes, n_bytes, "input", &image);
    if (st == STATUS_OK)
        st = image_fit(&image, SIDE, SIDE, &scratch, pixels);
    assert(st == STATUS_OK || status_message()[0] != '\0');
    status_clear();
    buffer_free(&image.rgb);
    buffer_free(&scratch);
}

static uint32_t read_be32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Makes the checksum of every chunk right, so that the code behind it is reached. */
static void mend(uint8_t *bytes, size_t n_bytes)
{
    for (size_t at = 8; at + 12 <= n_bytes;) {
        size_t length = read_be32(bytes + at);
        if (length > n_bytes - at - 12)
            return;
        files_put_be32(bytes + at + 8 + length,
                       (uint32_t)crc32(0, bytes + at + 4, (uInt)(length + 4)));
        at += length + 12;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    decode(bytes, n_bytes);
    uint8_t *mended = malloc(n_bytes ? n_bytes : 1);
    assert(mended);
    memcpy(mended, bytes, n_bytes);
    mend(mended, n_bytes);
    decode(mended, n_bytes);
    free(mended);
    return 0;
}

int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX])
{
    static const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_PALETTE, PNG_COLOR_TYPE_RGB,
                                PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB_ALPHA};
    int n = 0;
    for (int i = 0; i < 5; i++)
        for (int interlaced = 0; interlaced < 2; interlaced++, n++)
            seeds[n] = files_png(n, 9, 14, types[i], 8, interlaced);
    seeds[n] = files_png(n, 9, 14, PNG_COLOR_TYPE_GRAY, 1, false);
    seeds[n + 1] = files_png(n, 9, 14, PNG_COLOR_TYPE_RGB_ALPHA, 16, false);
    return n + 2;
}
