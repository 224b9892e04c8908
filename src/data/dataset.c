#include "data/dataset.h"

#include "base/printable.h"

#include "data/source.h"
#include "data/spec.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dataset {
    struct source source;
    float scale[SOURCE_CHANNELS_MAX], bias[SOURCE_CHANNELS_MAX]; /* byte to normalised float */
    atomic_int references;
};

void source_set_usual_means(struct source *source)
{
    static const struct {
        const char *name;
        int channels; /* a folder of colour images may be called mnist, too */
        float mean[3], std[3];
    } usual[] = {
        {"fashion-mnist", 1, {.2860f}, {.3530f}},
        {"mnist", 1, {.1307f}, {.3081f}},
        {"cifar10", 3, {.4914f, .4822f, .4465f}, {.2470f, .2435f, .2616f}},
        {NULL, 3, {.485f, .456f, .406f}, {.229f, .224f, .225f}}, /* ImageNet's, for all others */
    };
    size_t i = 0;
    while (usual[i].name && (strcmp(usual[i].name, source->info.name) != 0 ||
                             usual[i].channels != source->info.channels))
        i++;
    for (int c = 0; c < SOURCE_CHANNELS_MAX; c++) {
        bool known = c < 3 && usual[i].std[c] > 0;
        source->mean[c] = known ? usual[i].mean[c] : 0;
        source->std[c] = known ? usual[i].std[c] : 1;
    }
}

enum status dataset_create(const struct source *source, const struct dataset_options *options,
                           dataset **out)
{
    dataset *d = calloc(1, sizeof *d);
    if (!d) {
        source->calls->close(source->self);
        return status_no_memory(sizeof *d);
    }
    d->source = *source;
    atomic_init(&d->references, 1);
    if (options && options->limit > 0 && options->limit < d->source.info.n_samples)
        d->source.info.n_samples = options->limit;
    for (int c = 0; c < SOURCE_CHANNELS_MAX && !source->calls->generate; c++) {
        d->scale[c] = 1 / (255 * source->std[c]);
        d->bias[c] = -source->mean[c] / source->std[c];
    }
    *out = d;
    return STATUS_OK;
}

static enum status open_source(const struct spec *spec, enum dataset_split split, uint64_t seed,
                               struct source *source)
{
    switch (spec->kind) {
    case SPEC_IDX:
        return source_open_idx(spec, split, source);
    case SPEC_CIFAR:
        return source_open_cifar(spec, split, source);
    case SPEC_FOLDER:
        return source_open_folder(spec, split, source);
    case SPEC_PACKED:
        return source_open_packed(spec, split, source);
    case SPEC_SYNTHETIC:
        return source_open_synthetic(spec, split, seed, source);
    case SPEC_SHAPE:
        break;
    }
    return status_fail(STATUS_USAGE,
                       "dataset '%s' names a shape and has no files: use imagefolder:DIR for your "
                       "own images or synthetic:%s for made-up ones",
                       spec->info.name, spec->info.name);
}

enum status dataset_open(const char *spec, enum dataset_split split,
                         const struct dataset_options *options, dataset **out)
{
    struct spec parsed;
    TRY(spec_parse(spec, &parsed));
    if (options && options->limit < 0)
        return status_fail(STATUS_USAGE, "limit of samples %lld must not be negative",
                           (long long)options->limit);
    struct source source;
    TRY(open_source(&parsed, split, options ? options->seed : 0, &source));
    return dataset_create(&source, options, out);
}

enum status dataset_describe(const char *spec, struct dataset_info *out)
{
    struct spec parsed;
    TRY(spec_parse(spec, &parsed));
    *out = parsed.info;
    if (parsed.kind != SPEC_FOLDER && parsed.kind != SPEC_PACKED)
        return STATUS_OK;
    struct source source;
    TRY(open_source(&parsed, DATASET_TRAIN, 0, &source));
    *out = source.info;
    source.calls->close(source.self);
    return STATUS_OK;
}

void dataset_retain(dataset *d)
{
    (void)atomic_fetch_add(&d->references, 1);
}

void dataset_close(dataset *d)
{
    if (!d || atomic_fetch_sub(&d->references, 1) > 1)
        return;
    d->source.calls->close(d->source.self);
    free(d);
}

const struct dataset_info *dataset_get_info(const dataset *d)
{
    return &d->source.info;
}

const struct source *dataset_source(const dataset *d)
{
    return &d->source;
}

float dataset_black(const dataset *d, int channel)
{
    return d->source.calls->generate ? 0 : d->bias[channel];
}

int64_t dataset_sample_floats(const struct dataset_info *info)
{
    return (int64_t)info->channels * info->height * info->width;
}

static void normalise_plane(const uint8_t *restrict bytes, float scale, float bias, size_t n,
                            float *restrict pixels)
{
    for (size_t i = 0; i < n; i++)
        pixels[i] = (float)bytes[i] * scale + bias;
}

static void normalise(const dataset *d, const uint8_t *bytes, float *pixels)
{
    size_t n = (size_t)d->source.info.height * (size_t)d->source.info.width;
    for (int c = 0; c < d->source.info.channels; c++, bytes += n, pixels += n)
        normalise_plane(bytes, d->scale[c], d->bias[c], n, pixels);
}

/* The same for n bytes that lie in the last quarter of `pixels` itself, piece by piece through a
 * copy: the floats up to `end` fill 4 end bytes, the bytes behind them begin at 3n + end, and 4 end
 * <= 3n + end for all end <= n, so none is overwritten before it is read. */
static void normalise_in_place(const dataset *d, float *pixels)
{
    enum { PIECE = 2048 };
    uint8_t piece[PIECE];
    size_t n = (size_t)dataset_sample_floats(&d->source.info), at = 0;
    const uint8_t *bytes = (const uint8_t *)pixels + 3 * n;
    for (int c = 0; c < d->source.info.channels; c++)
        for (size_t end = at + n / (size_t)d->source.info.channels; at < end;) {
            size_t count = end - at < PIECE ? end - at : PIECE;
            memcpy(piece, bytes + at, count);
            normalise_plane(piece, d->scale[c], d->bias[c], count, pixels + at);
            at += count;
        }
}

enum status dataset_read(dataset *d, int64_t index, float *pixels, int32_t *label)
{
    const struct source_calls *calls = d->source.calls;
    const struct dataset_info *info = &d->source.info;
    if (index < 0 || index >= info->n_samples)
        return status_fail(STATUS_USAGE, "%s: sample %lld does not exist (0 to %lld do)",
                           info->name, (long long)index, (long long)info->n_samples - 1);
    if (calls->generate)
        return calls->generate(d->source.self, index, pixels, label);
    if (calls->view) {
        const uint8_t *bytes;
        TRY(calls->view(d->source.self, index, &bytes, label));
        normalise(d, bytes, pixels);
        return STATUS_OK;
    }
    uint8_t *bytes = (uint8_t *)pixels + 3 * dataset_sample_floats(info);
    TRY(calls->decode(d->source.self, index, bytes, label));
    normalise_in_place(d, pixels);
    return STATUS_OK;
}

enum status dataset_read_or_next(dataset *d, int64_t index, int64_t most_tries, float *pixels,
                                 int32_t *label, struct dataset_replaced *out, bool *replaced)
{
    struct status_error error;
    int64_t n = d->source.info.n_samples;
    enum status st = dataset_read(d, index, pixels, label);
    *replaced = false;
    if (st == STATUS_OK || !status_is_of_content() || most_tries < 1)
        return st;
    status_take(st, &error);
    for (int64_t i = 1; i <= most_tries && i < n; i++) {
        int64_t by = (index + i) % n;
        st = dataset_read(d, by, pixels, label);
        if (st == STATUS_OK) {
            *replaced = true;
            *out = (struct dataset_replaced){.sample = index, .by = by};
            printable_copy(out->why, sizeof out->why, error.message);
            return STATUS_OK;
        }
        if (!status_is_of_content())
            return st;
        status_clear();
    }
    return status_give(&error);
}

const char *dataset_sample_name(const dataset *d, int64_t index, char *buffer, size_t size)
{
    if (d->source.calls->sample_name)
        d->source.calls->sample_name(d->source.self, index, buffer, size);
    else
        (void)snprintf(buffer, size, "sample %lld of %s", (long long)index, d->source.info.name);
    return buffer;
}

const char *dataset_class_name(const dataset *d, int label, char *buffer, size_t size)
{
    if (d->source.calls->class_name && label >= 0 && label < d->source.info.classes)
        d->source.calls->class_name(d->source.self, label, buffer, size);
    else
        (void)snprintf(buffer, size, "%d", label);
    return buffer;
}

bool dataset_has_class_names(const dataset *d)
{
    return d->source.calls->class_name != NULL;
}

int dataset_get_normalisation(const dataset *d, const float **mean, const float **std)
{
    *mean = d->source.mean;
    *std = d->source.std;
    return d->source.calls->generate ? 0 : d->source.info.channels;
}
