#include "data/augment.h"

#include "base/random.h"
#include "data/source.h"

#include <stdlib.h>
#include <string.h>

enum { PADDING = 4 };

static void flip_row(float *row, int width)
{
    for (int a = 0, b = width - 1; a < b; a++, b--) {
        float t = row[a];
        row[a] = row[b];
        row[b] = t;
    }
}

/* out[x] = in[x + shift] where that exists, else black. in and out may be the same row. */
static void shift_row(const float *in, float *out, int width, int shift, float black)
{
    int n_black = abs(shift) < width ? abs(shift) : width;
    int n_kept = width - n_black;
    memmove(out + (shift < 0 ? n_black : 0), in + (shift > 0 ? n_black : 0),
            (size_t)n_kept * sizeof *out);
    float *edge = shift < 0 ? out : out + n_kept;
    for (int x = 0; x < n_black; x++)
        edge[x] = black;
}

/* Rows are taken in the order in which none is overwritten before it has moved. */
static void shift_plane(float *plane, int height, int width, int down, int right, float black)
{
    for (int i = 0; i < height; i++) {
        int y = down >= 0 ? i : height - 1 - i, from = y + down;
        float *out = plane + (size_t)y * (size_t)width;
        if (from >= 0 && from < height)
            shift_row(plane + (size_t)from * (size_t)width, out, width, right, black);
        else
            shift_row(out, out, width, width, black);
    }
}

void augment_apply(const dataset *d, uint64_t seed, int64_t epoch, int64_t index, float *pixels)
{
    const struct dataset_info *info = dataset_get_info(d);
    struct random_key key = {seed, RANDOM_AUGMENT, (uint32_t)epoch};
    uint32_t words[4];
    random_block(key, 0, (uint64_t)index, words);
    size_t plane = (size_t)info->height * (size_t)info->width;
    int down = (int)(words[1] % (2 * PADDING + 1)) - PADDING;
    int right = (int)(words[2] % (2 * PADDING + 1)) - PADDING;
    for (int c = 0; c < info->channels; c++, pixels += plane) {
        if (words[0] & 1)
            for (int y = 0; y < info->height; y++)
                flip_row(pixels + (size_t)y * (size_t)info->width, info->width);
        if (info->form == DATASET_FORM_SMALL)
            shift_plane(pixels, info->height, info->width, down, right, dataset_black(d, c));
    }
}
