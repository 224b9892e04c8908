#include "fuzz.h"

#include "data/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    enum { SIDE = 10 };
    uint8_t pixels[3 * SIDE * SIDE];
    struct image image = {0};
    struct buffer scratch = {0};
    enum status st = image_decode_jpeg(bytes, n_bytes, "input", SIDE, SIDE, &image);
    if (st == STATUS_OK)
        st = image_fit(&image, SIDE, SIDE, &scratch, pixels);
    assert(st == STATUS_OK || status_message()[0] != '\0');
    status_clear();
    buffer_free(&image.rgb);
    buffer_free(&scratch);
    return 0;
}

int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX])
{
    int n = 0;
    for (int components = 1; components <= 4; components++)
        for (int progressive = 0; progressive < 2 && components != 2; progressive++, n++)
            seeds[n] = files_jpeg(n, 9 + 8 * components, 40, components, progressive);
    seeds[n] = files_jpeg(n, 1, 1, 3, false);
    return n + 1;
}
