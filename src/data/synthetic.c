/* Synthetic images: a pattern that depends on the class, under noise that depends on the sample.
 *
 *     pixel[c][y][x] = row_wave[c, class][y] + column_wave[c, class][x] + noise[start(sample, c, y)
 * + x]
 *
 * The waves come from a small bank and the noise from a table, both made when opened, so a sample
 * costs one pass of additions; a network learns the classes quickly but not at once.
 */
#include "base/numbers.h"
#include "base/random.h"
#include "data/source.h"

#include <math.h>
#include <stdlib.h>

enum { N_WAVES = 64, N_FREQUENCIES = 8, NOISE_FLOATS = 1 << 16 };

struct synthetic_source {
    struct random_key key; /* stream: the split */
    int channels, height, width, classes;
    float *waves; /* [N_WAVES, longest side] */
    size_t side;
    float *noise; /* [NOISE_FLOATS + width] */
};

static void add_row(const float *restrict wave, const float *restrict noise, float level, int width,
                    float *restrict out)
{
    for (int x = 0; x < width; x++)
        out[x] = level + wave[x] + noise[x];
}

/* Two waves for each channel of a class. The first channel's pair alone tells 64 * 64 classes
 * apart, the next ones carry the higher digits. */
static void choose_waves(int label, int channel, unsigned *row, unsigned *column)
{
    unsigned digits = (unsigned)label >> (channel % 2 ? 12 : 0);
    *row = (digits + 11 * (unsigned)channel) % N_WAVES;
    *column = (digits / N_WAVES + 7 * digits + 5 * (unsigned)channel) % N_WAVES;
}

static enum status synthetic_generate(void *self_, int64_t index, float *pixels, int32_t *label)
{
    const struct synthetic_source *self = self_;
    *label = (int32_t)(index % self->classes);
    uint32_t words[4];
    random_block(self->key, 0, (uint64_t)index, words);
    uint32_t start = words[0], stride = words[1] | 1;
    for (int c = 0; c < self->channels; c++) {
        unsigned row, column;
        choose_waves(*label, c, &row, &column);
        const float *row_wave = self->waves + row * self->side;
        const float *column_wave = self->waves + column * self->side;
        for (int y = 0; y < self->height; y++, start += stride, pixels += self->width)
            add_row(column_wave, self->noise + start % NOISE_FLOATS, row_wave[y], self->width,
                    pixels);
    }
    return STATUS_OK;
}

static void synthetic_close(void *self_)
{
    struct synthetic_source *self = self_;
    free(self->waves);
    free(self->noise);
    free(self);
}

static const struct source_calls synthetic_calls = {.generate = synthetic_generate,
                                                    .close = synthetic_close};

static void fill_tables(struct synthetic_source *self)
{
    for (size_t k = 0; k < N_WAVES; k++) {
        double cycles = (double)(1 + k % N_FREQUENCIES) / (double)self->side;
        size_t eighth = k / N_FREQUENCIES;
        double phase = (double)eighth / N_FREQUENCIES;
        for (size_t i = 0; i < self->side; i++)
            self->waves[k * self->side + i] =
                0.6f * (float)cos(6.283185307179586 * (cycles * (double)i + phase));
    }
    /* The same table for both splits and every seed would do; the seed makes runs differ. */
    struct random_key key = {.seed = self->key.seed, .use = RANDOM_SYNTHETIC, .stream = 2};
    size_t n = NOISE_FLOATS + (size_t)self->width;
    for (size_t i = 0; i < n; i++)
        self->noise[i] = (float)random_normal(key, 0, i % NOISE_FLOATS);
}

enum status source_open_synthetic(const struct spec *spec, enum dataset_split split, uint64_t seed,
                                  struct source *out)
{
    const struct dataset_info *info = &spec->info;
    struct synthetic_source *self = calloc(1, sizeof *self);
    if (!self)
        return status_no_memory(sizeof *self);
    self->key = (struct random_key){seed, RANDOM_SYNTHETIC, split == DATASET_TRAIN ? 0 : 1};
    self->channels = info->channels;
    self->height = info->height;
    self->width = info->width;
    self->classes = info->classes;
    self->side = (size_t)int_max(info->height, info->width);
    size_t n_noise = NOISE_FLOATS + (size_t)info->width;
    self->waves = malloc(N_WAVES * self->side * sizeof *self->waves);
    self->noise = malloc(n_noise * sizeof *self->noise);
    if (!self->waves || !self->noise) {
        synthetic_close(self);
        return status_no_memory((N_WAVES * (size_t)info->width + n_noise) * sizeof(float));
    }
    fill_tables(self);
    *out = (struct source){.calls = &synthetic_calls, .self = self, .info = *info};
    out->info.n_samples = split == DATASET_TRAIN ? info->n_train : info->n_test;
    return STATUS_OK;
}
