#include "backend/cpu/convert.h"

#include <string.h>

/* One block of channels of one image. */
static void block_to_blocked(int64_t plane, int64_t lanes, int64_t block, const float *plain,
                             float *blocked)
{
    for (int64_t l = 0; l < block; l++) {
        const float *from = plain + l * plane;
        bool real = l < lanes;
        for (int64_t i = 0; i < plane; i++)
            blocked[i * block + l] = real ? from[i] : 0;
    }
}

static void block_to_plain(int64_t plane, int64_t lanes, int64_t block, const float *blocked,
                           float *plain)
{
    for (int64_t l = 0; l < lanes; l++) {
        float *to = plain + l * plane;
        for (int64_t i = 0; i < plane; i++)
            to[i] = blocked[i * block + l];
    }
}

/* How many channels of block b are real. */
static int64_t real_lanes(int64_t channels, int64_t block, int64_t b)
{
    int64_t left = channels - b * block;
    return left < block ? left : block;
}

void convert_to_blocked(const device *d, const struct shape *shape, const float *plain,
                        float *blocked)
{
    int64_t n = shape->dim[0], channels = shape->dim[1], plane = shape->dim[2] * shape->dim[3];
    int64_t block = d->loops->lanes, blocks = round_up(channels, block) / block;
#pragma omp parallel for collapse(2) num_threads(d->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b < blocks; b++)
            block_to_blocked(plane, real_lanes(channels, block, b), block,
                             plain + (i * channels + b * block) * plane,
                             blocked + (i * blocks + b) * plane * block);
}

void convert_to_plain(const device *d, const struct shape *shape, const float *blocked,
                      float *plain)
{
    int64_t n = shape->dim[0], channels = shape->dim[1], plane = shape->dim[2] * shape->dim[3];
    int64_t block = d->loops->lanes, blocks = round_up(channels, block) / block;
#pragma omp parallel for collapse(2) num_threads(d->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b < blocks; b++)
            block_to_plain(plane, real_lanes(channels, block, b), block,
                           blocked + (i * blocks + b) * plane * block,
                           plain + (i * channels + b * block) * plane);
}

void clear_added_channels(const device *d, const layout *l, float *x)
{
    struct view v;
    if (l->kind != LAYOUT_BLOCKED || l->shape.dim[1] % d->loops->lanes == 0)
        return;
    layout_view(d, l, &v);
    int64_t lanes = real_lanes(v.channels, v.block, v.blocks - 1);
    for (int64_t n = 0; n < v.n; n++) {
        float *block = x + n * v.n_stride + (v.blocks - 1) * v.block_stride;
        for (int64_t i = 0; i < v.plane; i++)
            memset(block + i * v.block + lanes, 0, (size_t)(v.block - lanes) * sizeof *block);
    }
}
