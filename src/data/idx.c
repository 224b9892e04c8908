#include "data/idx.h"

#include "data/file.h"
#include "data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 1 << 30 };

static uint32_t big_endian(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static enum status parse_header(stream *s, const char *path, int n_dimensions, struct idx *out,
                                uint64_t *n_bytes)
{
    uint8_t header[4 + 4 * IDX_DIMENSIONS_MAX];
    size_t expected = 4 + 4 * (size_t)n_dimensions, n;
    TRY(stream_read(s, header, expected, &n));
    if (n < expected)
        return status_fail_content("%s: truncated: %zu bytes, its IDX header alone has %zu", path,
                                   n, expected);
    uint32_t magic = big_endian(header);
    if (magic != 0x800u + (uint32_t)n_dimensions)
        return status_fail_content("%s: not an IDX file of %s: begins with %08x, expected %08x",
                                   path, n_dimensions == 1 ? "labels" : "images", magic,
                                   0x800u + (uint32_t)n_dimensions);
    out->n_dimensions = n_dimensions;
    *n_bytes = 1;
    for (int i = 0; i < n_dimensions; i++) {
        uint32_t d = big_endian(header + 4 + 4 * i);
        out->dimensions[i] = d;
        if (d == 0 || __builtin_mul_overflow(*n_bytes, (uint64_t)d, n_bytes))
            return status_fail_content("%s: dimension %d of its IDX header is %u", path, i, d);
    }
    return STATUS_OK;
}

static enum status parse_body(stream *s, const char *path, uint64_t n_bytes, struct idx *out)
{
    if (n_bytes > stream_most_left(s))
        return status_fail_content(
            "%s: truncated: its header promises %llu bytes, at most %llu follow", path,
            (unsigned long long)n_bytes, (unsigned long long)stream_most_left(s));
    out->data = malloc(n_bytes);
    if (!out->data)
        return status_no_memory(n_bytes);
    size_t n;
    TRY(stream_read(s, out->data, n_bytes, &n));
    if (n < n_bytes)
        return status_fail_content("%s: truncated: its header promises %llu bytes, only %zu follow",
                                   path, (unsigned long long)n_bytes, n);
    uint8_t more;
    TRY(stream_read(s, &more, 1, &n)); /* also makes zlib compare its checksum */
    if (n > 0)
        return status_fail_content("%s: more bytes follow than the %llu its header promises", path,
                                   (unsigned long long)n_bytes);
    return STATUS_OK;
}

enum status idx_parse(const uint8_t *bytes, size_t n_bytes, const char *path, int n_dimensions,
                      struct idx *out)
{
    memset(out, 0, sizeof *out);
    stream *s;
    TRY(stream_open(bytes, n_bytes, path, &s));
    uint64_t body_bytes = 0;
    enum status st = parse_header(s, path, n_dimensions, out, &body_bytes);
    if (st == STATUS_OK)
        st = parse_body(s, path, body_bytes, out);
    stream_close(s);
    if (st != STATUS_OK)
        idx_free(out);
    return st;
}

void idx_free(struct idx *idx)
{
    free(idx->data);
    idx->data = NULL;
}

struct idx_source {
    struct idx images, labels;
    int64_t image_bytes;
};

/* Loads the file under any of its published names. */
static enum status find_file(const char *folder, const char *stem, const char *kind, char *path,
                             size_t size)
{
    for (int i = 0; i < 4; i++) { /* train-images-idx3-ubyte, also with a dot, each also with .gz */
        const char *dot = i < 2 ? "-" : ".", *end = i % 2 ? ".gz" : "";
        (void)snprintf(path, size, "%s/%s%s%s%s", folder, stem, dot, kind, end);
        if (access(path, F_OK) == 0)
            return STATUS_OK;
    }
    return status_fail(
        STATUS_FAILED,
        "%s: holds no %s-%s and no %s-%s.gz (mnist:DIR and fashion-mnist:DIR take the "
        "folder with the four IDX files)",
        folder, stem, kind, stem, kind);
}

static enum status load(const char *folder, const char *stem, int n_dimensions, char *path,
                        size_t size, struct idx *out)
{
    TRY(find_file(folder, stem, n_dimensions == 1 ? "idx1-ubyte" : "idx3-ubyte", path, size));
    struct buffer file = {0};
    size_t n_bytes;
    enum status st = file_read(path, FILE_BYTES_MAX, &file, &n_bytes);
    if (st == STATUS_OK)
        st = idx_parse(file.bytes, n_bytes, path, n_dimensions, out);
    buffer_free(&file);
    return st;
}

static enum status check(const struct idx_source *self, const struct dataset_info *info,
                         const char *images_path, const char *labels_path)
{
    const int64_t *d = self->images.dimensions;
    if (d[1] != info->height || d[2] != info->width)
        return status_fail_content("%s: holds images of %lldx%lld, expected %dx%d", images_path,
                                   (long long)d[1], (long long)d[2], info->height, info->width);
    if (d[0] != self->labels.dimensions[0])
        return status_fail_content("%s: holds %lld images, but %s holds %lld labels", images_path,
                                   (long long)d[0], labels_path,
                                   (long long)self->labels.dimensions[0]);
    for (int64_t i = 0; i < d[0]; i++)
        if (self->labels.data[i] >= info->classes)
            return status_fail_content("%s: label %lld is %d, expected 0 to %d", labels_path,
                                       (long long)i, self->labels.data[i], info->classes - 1);
    return STATUS_OK;
}

static enum status idx_view(void *self_, int64_t index, const uint8_t **pixels, int32_t *label)
{
    const struct idx_source *self = self_;
    *pixels = self->images.data + index * self->image_bytes;
    *label = self->labels.data[index];
    return STATUS_OK;
}

static void idx_close(void *self_)
{
    struct idx_source *self = self_;
    idx_free(&self->images);
    idx_free(&self->labels);
    free(self);
}

static void fashion_class_name(const void *self, int label, char *buffer, size_t size)
{
    static const char *const names[] = {"T-shirt/top", "Trouser",   "Pullover", "Dress",
                                        "Coat",        "Sandal",    "Shirt",    "Sneaker",
                                        "Bag",         "Ankle boot"};
    (void)self;
    (void)snprintf(buffer, size, "%s", names[label]);
}

static void digit_class_name(const void *self, int label, char *buffer, size_t size)
{
    (void)self;
    (void)snprintf(buffer, size, "%d", label);
}

static const struct source_calls digit_calls = {
    .view = idx_view, .class_name = digit_class_name, .close = idx_close};
static const struct source_calls fashion_calls = {
    .view = idx_view, .class_name = fashion_class_name, .close = idx_close};

static enum status open_parts(const struct spec *spec, enum dataset_split split,
                              struct idx_source *self)
{
    char images_path[SPEC_PATH_BYTES + 64], labels_path[SPEC_PATH_BYTES + 64];
    bool train = split == DATASET_TRAIN;
    TRY(load(spec->path, train ? "train-images" : "t10k-images", 3, images_path, sizeof images_path,
             &self->images));
    TRY(load(spec->path, train ? "train-labels" : "t10k-labels", 1, labels_path, sizeof labels_path,
             &self->labels));
    return check(self, &spec->info, images_path, labels_path);
}

enum status source_open_idx(const struct spec *spec, enum dataset_split split, struct source *out)
{
    if (spec->path[0] == '\0')
        return status_fail(
            STATUS_USAGE,
            "dataset '%s' needs a folder: %s:DIR with its four files (made-up images: "
            "synthetic:mnist)",
            spec->info.name, spec->info.name);
    struct idx_source *self = calloc(1, sizeof *self);
    if (!self)
        return status_no_memory(sizeof *self);
    enum status st = open_parts(spec, split, self);
    if (st != STATUS_OK) {
        idx_close(self);
        return st;
    }
    self->image_bytes = self->images.dimensions[1] * self->images.dimensions[2];
    bool fashion = strcmp(spec->info.name, "fashion-mnist") == 0;
    *out = (struct source){
        .calls = fashion ? &fashion_calls : &digit_calls, .self = self, .info = spec->info};
    out->info.n_samples = self->images.dimensions[0];
    if (split == DATASET_TRAIN)
        out->info.n_train = out->info.n_samples;
    else
        out->info.n_test = out->info.n_samples;
    source_set_usual_means(out);
    return STATUS_OK;
}
