/* Image folders: one folder per class, listed when opened, decoded when read. */
#include "base/arena.h"
#include "base/array.h"
#include "data/image.h"
#include "data/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 1 << 28, TEST_EVERY = 10, PATH_BYTES = SPEC_PATH_BYTES + 600 };

/* Names in an arena, sorted by bytes so that every machine sees the same order. */
struct names {
    const char **items;
    int n, capacity;
};

struct image_file {
    const char *name;
    int32_t label;
};

struct folder_source {
    arena *arena;
    char root[SPEC_PATH_BYTES + 16]; /* holds the class folders */
    struct names classes;
    struct image_file *files;
    int n_files, capacity;
    int size;
    struct image_pool pool;
};

static enum status names_add(struct names *names, arena *a, const char *name)
{
    TRY(array_reserve(NULL, &names->items, names->n + 1, &names->capacity, sizeof name));
    TRY(arena_copy_text(a, name, &names->items[names->n]));
    names->n++;
    return STATUS_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_folder(int folder_fd, const struct dirent *entry)
{
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    struct stat info;
    return fstatat(folder_fd, entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode);
}

static bool is_image(int folder_fd, const struct dirent *entry)
{
    (void)folder_fd;
    const char *dot = strrchr(entry->d_name, '.');
    return dot && entry->d_type != DT_DIR &&
           (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 ||
            strcasecmp(dot, ".png") == 0);
}

/* The entries of folder `path` that `wanted` picks, hidden ones left out, sorted. */
static enum status list(const char *path, bool (*wanted)(int, const struct dirent *), arena *a,
                        struct names *out)
{
    out->n = 0;
    DIR *folder = opendir(path);
    if (!folder)
        return status_fail(STATUS_FAILED,
                           "%s: cannot open folder: %s (imagefolder:DIR takes one with a folder of "
                           "JPEG or PNG images for each class)",
                           path, strerror(errno));
    enum status st = STATUS_OK;
    errno = 0;
    for (struct dirent *e; st == STATUS_OK && (e = readdir(folder)); errno = 0)
        if (e->d_name[0] != '.' && wanted(dirfd(folder), e))
            st = names_add(out, a, e->d_name);
    if (st == STATUS_OK && errno)
        st = status_fail(STATUS_FAILED, "%s: cannot read folder: %s", path, strerror(errno));
    (void)closedir(folder);
    if (st == STATUS_OK && out->n)
        qsort(out->items, (size_t)out->n, sizeof *out->items, compare_names);
    return st;
}

static enum status add_file(struct folder_source *self, const char *name, int32_t label)
{
    TRY(array_reserve(NULL, &self->files, self->n_files + 1, &self->capacity, sizeof *self->files));
    self->files[self->n_files++] = (struct image_file){name, label};
    return STATUS_OK;
}

/* Whether the image at `place` of a class belongs to the split; without train and test folders
 * every tenth is a test image. */
static bool picked(int place, bool whole, enum dataset_split split)
{
    return whole || (place % TEST_EVERY == TEST_EVERY - 1) == (split == DATASET_TEST);
}

static enum status add_class(struct folder_source *self, int32_t label, bool whole,
                             enum dataset_split split, struct names *found)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", self->root, self->classes.items[label]);
    if (whole && split == DATASET_TEST && access(path, F_OK) != 0)
        return STATUS_OK; /* a test split need not have every class */
    TRY(list(path, is_image, self->arena, found));
    if (found->n == 0 && split == DATASET_TRAIN)
        return status_fail(STATUS_FAILED, "%s: class folder holds no .jpg, .jpeg or .png file",
                           path);
    for (int i = 0; i < found->n; i++)
        if (picked(i, whole, split))
            TRY(add_file(self, found->items[i], label));
    return STATUS_OK;
}

static bool folder_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* A class seen only in the test split would have no label. */
static enum status check_test_classes(struct folder_source *self, struct names *found)
{
    TRY(list(self->root, is_folder, self->arena, found));
    for (int i = 0; i < found->n; i++)
        if (!bsearch(&found->items[i], self->classes.items, (size_t)self->classes.n,
                     sizeof *self->classes.items, compare_names))
            return status_fail(STATUS_FAILED, "%s/%s: class has no folder in the train split",
                               self->root, found->items[i]);
    return STATUS_OK;
}

/* Sets root and classes; *whole says that root holds the split alone, *present that it exists. */
static enum status find_root(const char *path, enum dataset_split split, struct folder_source *self,
                             bool *whole, bool *present)
{
    char train[SPEC_PATH_BYTES + 16];
    (void)snprintf(train, sizeof train, "%s/train", path);
    *whole = folder_exists(train);
    *present = true;
    (void)snprintf(self->root, sizeof self->root, "%s", *whole ? train : path);
    TRY(list(self->root, is_folder, self->arena, &self->classes));
    if (self->classes.n == 0)
        return status_fail(STATUS_FAILED,
                           "%s: holds no class folders (expected CLASS/x.jpg or train/CLASS/x.jpg)",
                           self->root);
    if (!*whole || split == DATASET_TRAIN)
        return STATUS_OK;
    (void)snprintf(self->root, sizeof self->root, "%s/test", path);
    if (!folder_exists(self->root))
        (void)snprintf(self->root, sizeof self->root, "%s/val", path);
    *present = folder_exists(self->root);
    return STATUS_OK;
}

static enum status list_split(const char *path, enum dataset_split split,
                              struct folder_source *self)
{
    TRY(arena_create(&self->arena));
    bool whole, present;
    TRY(find_root(path, split, self, &whole, &present));
    struct names found = {0};
    enum status st = STATUS_OK;
    if (whole && present && split == DATASET_TEST)
        st = check_test_classes(self, &found);
    for (int c = 0; present && st == STATUS_OK && c < self->classes.n; c++)
        st = add_class(self, (int32_t)c, whole, split, &found);
    free(found.items);
    return st;
}

static void sample_path(const struct folder_source *self, int64_t index, char *path, size_t size)
{
    const struct image_file *f = &self->files[index];
    (void)snprintf(path, size, "%s/%s/%s", self->root, self->classes.items[f->label], f->name);
}

static enum status folder_decode(void *self_, int64_t index, uint8_t *pixels, int32_t *label)
{
    struct folder_source *self = self_;
    char path[PATH_BYTES];
    sample_path(self, index, path, sizeof path);
    *label = self->files[index].label;
    struct image_scratch *scratch;
    TRY(image_pool_take(&self->pool, &scratch));
    size_t n_bytes;
    enum status st = file_read(path, FILE_BYTES_MAX, &scratch->file, &n_bytes);
    if (st == STATUS_OK)
        st = image_decode(scratch->file.bytes, n_bytes, path, self->size, self->size, scratch,
                          pixels);
    image_pool_return(&self->pool, scratch);
    return st;
}

static enum status folder_encoded(void *self_, int64_t index, struct buffer *file, size_t *n_bytes,
                                  int32_t *label)
{
    struct folder_source *self = self_;
    char path[PATH_BYTES];
    sample_path(self, index, path, sizeof path);
    *label = self->files[index].label;
    return file_read(path, FILE_BYTES_MAX, file, n_bytes);
}

static void folder_sample_name(const void *self, int64_t index, char *buffer, size_t size)
{
    sample_path(self, index, buffer, size);
}

static void folder_class_name(const void *self_, int label, char *buffer, size_t size)
{
    const struct folder_source *self = self_;
    (void)snprintf(buffer, size, "%s", self->classes.items[label]);
}

static void folder_close(void *self_)
{
    struct folder_source *self = self_;
    arena_destroy(self->arena);
    free(self->classes.items);
    free(self->files);
    image_pool_deinit(&self->pool);
    free(self);
}

static const struct source_calls folder_calls = {.decode = folder_decode,
                                                 .encoded = folder_encoded,
                                                 .sample_name = folder_sample_name,
                                                 .class_name = folder_class_name,
                                                 .close = folder_close};

static enum status open_split(const struct spec *spec, enum dataset_split split,
                              struct folder_source **out)
{
    struct folder_source *self = calloc(1, sizeof *self);
    if (!self)
        return status_no_memory(sizeof *self);
    image_pool_init(&self->pool);
    self->size = spec->size;
    enum status st = list_split(spec->path, split, self);
    if (st != STATUS_OK)
        folder_close(self);
    else
        *out = self;
    return st;
}

/* The other split is listed for its count only. */
static enum status count_split(const struct spec *spec, enum dataset_split split, int64_t *n)
{
    struct folder_source *other;
    TRY(open_split(spec, split, &other));
    *n = (int64_t)other->n_files;
    folder_close(other);
    return STATUS_OK;
}

enum status source_open_folder(const struct spec *spec, enum dataset_split split,
                               struct source *out)
{
    int64_t n_other = 0;
    TRY(count_split(spec, split == DATASET_TRAIN ? DATASET_TEST : DATASET_TRAIN, &n_other));
    struct folder_source *self;
    TRY(open_split(spec, split, &self));
    if (self->n_files == 0) {
        enum status st = status_fail(
            STATUS_FAILED, "%s: holds no %s images%s", spec->path,
            split == DATASET_TRAIN ? "train" : "test",
            split == DATASET_TRAIN ? "" : " (expected test/CLASS/x.jpg or val/CLASS/x.jpg)");
        folder_close(self);
        return st;
    }
    *out = (struct source){.calls = &folder_calls, .self = self, .info = spec->info};
    struct dataset_info *info = &out->info;
    info->channels = 3;
    info->height = info->width = spec->size;
    info->classes = (int)self->classes.n;
    info->n_samples = (int64_t)self->n_files;
    info->n_train = split == DATASET_TRAIN ? info->n_samples : n_other;
    info->n_test = split == DATASET_TEST ? info->n_samples : n_other;
    info->form = spec_form(spec->size);
    source_set_usual_means(out);
    return STATUS_OK;
}
