#include "data/cifar.h"

#include "base/log.h"
#include "data/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 1 << 30, FILES_MAX = 5 };

enum status cifar_check(const uint8_t *bytes, size_t n_bytes, const char *path, int64_t *n_records)
{
    size_t n = n_bytes / CIFAR_RECORD_BYTES;
    if (n == 0 || n_bytes % CIFAR_RECORD_BYTES != 0)
        return status_fail_content(
            "%s: truncated or not CIFAR-10: has %zu bytes, expected a multiple of %d", path,
            n_bytes, CIFAR_RECORD_BYTES);
    for (size_t i = 0; i < n; i++)
        if (bytes[i * CIFAR_RECORD_BYTES] >= CIFAR_CLASSES)
            return status_fail_content("%s: label %zu is %d, expected 0 to %d", path, i,
                                       bytes[i * CIFAR_RECORD_BYTES], CIFAR_CLASSES - 1);
    *n_records = (int64_t)n;
    return STATUS_OK;
}

struct cifar_source {
    int n_files;
    struct buffer files[FILES_MAX];
    int64_t n_records[FILES_MAX];
};

static enum status cifar_view(void *self_, int64_t index, const uint8_t **pixels, int32_t *label)
{
    const struct cifar_source *self = self_;
    int file = 0;
    for (; file + 1 < self->n_files && index >= self->n_records[file]; file++)
        index -= self->n_records[file];
    const uint8_t *record = self->files[file].bytes + index * CIFAR_RECORD_BYTES;
    *label = record[0];
    *pixels = record + 1;
    return STATUS_OK;
}

static void cifar_close(void *self_)
{
    struct cifar_source *self = self_;
    for (int i = 0; i < FILES_MAX; i++)
        buffer_free(&self->files[i]);
    free(self);
}

static void cifar_class_name(const void *self, int label, char *buffer, size_t size)
{
    static const char *const names[CIFAR_CLASSES] = {
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
    (void)self;
    (void)snprintf(buffer, size, "%s", names[label]);
}

static const struct source_calls cifar_calls = {
    .view = cifar_view, .class_name = cifar_class_name, .close = cifar_close};

/* In the folder itself, or in the one that the archive unpacks to. */
static void find_file(const char *folder, const char *name, char *path, size_t size)
{
    (void)snprintf(path, size, "%s/%s", folder, name);
    if (access(path, F_OK) != 0)
        (void)snprintf(path, size, "%s/cifar-10-batches-bin/%s", folder, name);
    if (access(path, F_OK) != 0)
        (void)snprintf(path, size, "%s/%s", folder, name);
}

static enum status load_file(struct cifar_source *self, const char *folder, const char *name)
{
    char path[SPEC_PATH_BYTES + 64];
    find_file(folder, name, path, sizeof path);
    int i = self->n_files;
    size_t n_bytes;
    TRY(file_read(path, FILE_BYTES_MAX, &self->files[i], &n_bytes));
    TRY(cifar_check(self->files[i].bytes, n_bytes, path, &self->n_records[i]));
    if (self->n_records[i] != CIFAR_FILE_RECORDS)
        log_warn("%s: holds %lld images, CIFAR-10's own files hold %d", path,
                 (long long)self->n_records[i], CIFAR_FILE_RECORDS);
    self->n_files++;
    return STATUS_OK;
}

/* Tells a wrong folder from a missing file. */
static enum status check_first(const char *folder, const char *name)
{
    char path[SPEC_PATH_BYTES + 64];
    find_file(folder, name, path, sizeof path);
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return status_fail(STATUS_FAILED,
                           "%s: holds no %s: cifar10:DIR is the folder with the six files of "
                           "CIFAR-10's binary version",
                           folder, name);
    return STATUS_OK;
}

static enum status load_split(struct cifar_source *self, const char *folder,
                              enum dataset_split split)
{
    if (split == DATASET_TEST)
        return load_file(self, folder, "test_batch.bin");
    for (int i = 1; i <= FILES_MAX; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "data_batch_%d.bin", i);
        if (i == 1)
            TRY(check_first(folder, name));
        TRY(load_file(self, folder, name));
    }
    return STATUS_OK;
}

enum status source_open_cifar(const struct spec *spec, enum dataset_split split, struct source *out)
{
    if (spec->path[0] == '\0')
        return status_fail(
            STATUS_USAGE,
            "dataset 'cifar10' needs a folder: cifar10:DIR with its six .bin files (made-up "
            "images: synthetic:cifar10)");
    struct cifar_source *self = calloc(1, sizeof *self);
    if (!self)
        return status_no_memory(sizeof *self);
    enum status st = load_split(self, spec->path, split);
    if (st != STATUS_OK) {
        cifar_close(self);
        return st;
    }
    *out = (struct source){.calls = &cifar_calls, .self = self, .info = spec->info};
    out->info.n_samples = 0;
    for (int i = 0; i < self->n_files; i++)
        out->info.n_samples += self->n_records[i];
    if (split == DATASET_TRAIN)
        out->info.n_train = out->info.n_samples;
    else
        out->info.n_test = out->info.n_samples;
    source_set_usual_means(out);
    return STATUS_OK;
}
