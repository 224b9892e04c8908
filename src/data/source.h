/* source.h: the interface that a kind of storage implements to become a dataset. For src/data and
 * tests.
 *
 * A source hands out samples in the cheapest form it has; dataset.c normalises them.
 */
#ifndef CLEAVE_DATA_SOURCE_H
#define CLEAVE_DATA_SOURCE_H

#include "data/dataset.h"
#include "data/file.h"
#include "data/spec.h"

enum { SOURCE_CHANNELS_MAX = 4 }; /* of sources that give bytes */

/* Several threads may call all of these at once, except close. */
struct source_calls {
    /* Exactly one of these three. */
    /* Bytes [c, h, w] that lie in memory already. */
    enum status (*view)(void *self, int64_t index, const uint8_t **pixels, int32_t *label);
    /* Bytes [c, h, w] decoded into `pixels`. */
    enum status (*decode)(void *self, int64_t index, uint8_t *pixels, int32_t *label);
    /* Floats [c, h, w], normalised. */
    enum status (*generate)(void *self, int64_t index, float *pixels, int32_t *label);

    /* The bytes of the image file, into a buffer the caller frees. Optional: not an image file. */
    enum status (*encoded)(void *self, int64_t index, struct buffer *file, size_t *n_bytes,
                           int32_t *label);
    /* Into `buffer`. Optional: "sample 12 of NAME". */
    void (*sample_name)(const void *self, int64_t index, char *buffer, size_t size);
    /* Into `buffer`. Optional: the number. */
    void (*class_name)(const void *self, int label, char *buffer, size_t size);
    void (*close)(void *self);
};

struct source {
    const struct source_calls *calls;
    void *self;
    struct dataset_info info;
    float mean[SOURCE_CHANNELS_MAX], std[SOURCE_CHANNELS_MAX]; /* of pixels in [0, 1] */
};

/* Each fills in *out and calls source_set_usual_means where the means are the usual ones. */
enum status source_open_idx(const struct spec *spec, enum dataset_split split,
                            struct source *out) MUST_USE;
enum status source_open_cifar(const struct spec *spec, enum dataset_split split,
                              struct source *out) MUST_USE;
enum status source_open_folder(const struct spec *spec, enum dataset_split split,
                               struct source *out) MUST_USE;
enum status source_open_packed(const struct spec *spec, enum dataset_split split,
                               struct source *out) MUST_USE;
enum status source_open_synthetic(const struct spec *spec, enum dataset_split split, uint64_t seed,
                                  struct source *out) MUST_USE;

/* The usual mean and deviation of the dataset called info.name, else those of ImageNet. */
void source_set_usual_means(struct source *source);

/* A dataset that owns *source, also on failure. */
enum status dataset_create(const struct source *source, const struct dataset_options *options,
                           dataset **out) MUST_USE;
/* Keeps the dataset alive until one more dataset_close. */
void dataset_retain(dataset *d);
const struct source *dataset_source(const dataset *d);
/* What a black pixel of a channel is after normalisation; 0 for synthetic data. */
float dataset_black(const dataset *d, int channel);

#endif
