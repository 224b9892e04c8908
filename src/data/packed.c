/* Reading packed files; pack.c writes them. */
#include "base/printable.h"
#include "data/image.h"
#include "data/pack.h"
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

_Static_assert(sizeof(struct pack_header) == 256, "the header's size is part of the format");
_Static_assert(sizeof(struct pack_entry) == 24, "the entry's size is part of the format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are written as they lie");

enum { SIDE_MAX = 16384, CLASSES_MAX = 1 << 24 };

static enum status check_identity(const struct pack_header *h, uint64_t n_bytes, const char *path)
{
    if (memcmp(h->magic, PACK_MAGIC, sizeof h->magic) != 0)
        return status_fail_content("%s: not a packed dataset ('cleave pack' makes them)", path);
    if (h->version != PACK_VERSION)
        return status_fail_content("%s: packed in version %u, this program reads version %d", path,
                                   h->version, PACK_VERSION);
    if (XXH64(h, offsetof(struct pack_header, header_checksum), 0) != h->header_checksum)
        return status_fail_content("%s: corrupt: its header does not match its checksum", path);
    if (h->file_bytes != n_bytes)
        return status_fail_content("%s: truncated: has %llu bytes, its header promises %llu", path,
                                   (unsigned long long)n_bytes, (unsigned long long)h->file_bytes);
    return STATUS_OK;
}

static bool within(uint32_t value, uint32_t most)
{
    return value >= 1 && value <= most;
}

static bool means_are_sane(const struct pack_header *h)
{
    for (int c = 0; c < SOURCE_CHANNELS_MAX; c++)
        if (!isfinite(h->mean[c]) || !isfinite(h->std[c]) || h->std[c] <= 0)
            return false;
    return true;
}

static enum status check_header(const struct pack_header *h, const char *path)
{
    uint64_t index_bytes, index_end, names_end;
    bool fits = h->index_offset >= sizeof *h && h->index_offset % PACK_ALIGNMENT == 0 &&
                !__builtin_mul_overflow(h->n_samples, sizeof(struct pack_entry), &index_bytes) &&
                !__builtin_add_overflow(h->index_offset, index_bytes, &index_end) &&
                !__builtin_add_overflow(h->names_offset, h->names_bytes, &names_end) &&
                index_end == h->names_offset && names_end == h->file_bytes;
    bool sane = h->encoding <= PACK_JPEG && h->split <= DATASET_TEST &&
                within(h->channels, SOURCE_CHANNELS_MAX) && within(h->height, SIDE_MAX) &&
                within(h->width, SIDE_MAX) && within(h->classes, CLASSES_MAX) &&
                h->classes <= h->names_bytes && h->n_samples >= 1 &&
                memchr(h->name, 0, sizeof h->name) && means_are_sane(h) &&
                (h->encoding == PACK_RAW || h->channels == 3);
    if (!fits || !sane)
        return status_fail_content("%s: corrupt: its header contradicts itself", path);
    return STATUS_OK;
}

static enum status check_entry(const struct pack_header *h, const struct pack_entry *e,
                               uint64_t index, const char *path)
{
    uint64_t end, raw_bytes = (uint64_t)h->channels * h->height * h->width;
    if (e->offset < sizeof *h || __builtin_add_overflow(e->offset, e->n_bytes, &end) ||
        end > h->index_offset || (h->encoding == PACK_RAW && e->n_bytes != raw_bytes))
        return status_fail_content(
            "%s: corrupt: sample %llu at %llu with %u bytes lies outside the data", path,
            (unsigned long long)index, (unsigned long long)e->offset, e->n_bytes);
    if (e->label >= h->classes)
        return status_fail_content("%s: corrupt: label %llu is %u, expected 0 to %u", path,
                                   (unsigned long long)index, e->label, h->classes - 1);
    return STATUS_OK;
}

static enum status check_names(const struct pack_header *h, const char *names, const char *path)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < h->names_bytes; i++)
        n += names[i] == '\0';
    if (n != h->classes || names[h->names_bytes - 1] != '\0')
        return status_fail_content("%s: corrupt: names %llu classes, expected %u", path,
                                   (unsigned long long)n, h->classes);
    return STATUS_OK;
}

/* ---- the parts of a file ---- */

enum status pack_check_header(const struct pack_header *h, uint64_t n_bytes, const char *path)
{
    TRY(check_identity(h, n_bytes, path));
    return check_header(h, path);
}

size_t pack_index_bytes(const struct pack_header *h)
{
    return (size_t)(h->file_bytes - h->index_offset);
}

enum status pack_check_index(const struct pack_header *h, const uint8_t *bytes, const char *path,
                             struct pack_index *out)
{
    if (XXH64(bytes, pack_index_bytes(h), 0) != h->index_checksum)
        return status_fail_content("%s: corrupt: its index does not match its checksum", path);
    out->entries = (const struct pack_entry *)(const void *)bytes;
    out->names = (const char *)bytes + (h->names_offset - h->index_offset);
    for (uint64_t i = 0; i < h->n_samples; i++)
        TRY(check_entry(h, &out->entries[i], i, path));
    return check_names(h, out->names, path);
}

enum status pack_check_sample(const struct pack_entry *e, const uint8_t *bytes, const char *path,
                              int64_t index)
{
    if (XXH64(bytes, e->n_bytes, 0) != e->checksum)
        return status_fail_content("%s: corrupt: sample %lld does not match its checksum", path,
                                   (long long)index);
    return STATUS_OK;
}

/* ---- the source ---- */

struct packed_source {
    char path[SPEC_PATH_BYTES];
    int fd;
    uint64_t n_bytes;
    struct pack_header header;
    uint8_t *index_bytes; /* what `index` points into */
    struct pack_index index;
    const char **class_names; /* [classes] */
    struct image_pool pool;
};

/* Read, and not mapped: a file that becomes shorter meanwhile is an error here, and not a signal.
 */
static enum status read_at(const struct packed_source *self, uint64_t offset, void *out,
                           size_t n_bytes)
{
    uint8_t *to = out;
    while (n_bytes > 0) {
        ssize_t n = pread(self->fd, to, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_fail(STATUS_FAILED, "%s: cannot read: %s", self->path, strerror(errno));
        if (n == 0)
            return status_fail_content(
                "%s: became shorter while it was read: it ends before byte %llu", self->path,
                (unsigned long long)offset);
        to += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return STATUS_OK;
}

/* The bytes of the sample, which its entry says the number of, and its label. */
static enum status read_sample(const struct packed_source *self, int64_t index, uint8_t *bytes,
                               int32_t *label)
{
    const struct pack_entry *e = &self->index.entries[index];
    TRY(read_at(self, e->offset, bytes, e->n_bytes));
    *label = (int32_t)e->label;
    return pack_check_sample(e, bytes, self->path, index);
}

static enum status packed_pixels(void *self, int64_t index, uint8_t *pixels, int32_t *label)
{
    return read_sample(self, index, pixels, label);
}

static void packed_sample_name(const void *self_, int64_t index, char *buffer, size_t size)
{
    const struct packed_source *self = self_;
    (void)snprintf(buffer, size, "sample %lld of %s", (long long)index, self->path);
}

static enum status packed_encoded(void *self_, int64_t index, struct buffer *file, size_t *n_bytes,
                                  int32_t *label)
{
    const struct packed_source *self = self_;
    *n_bytes = self->index.entries[index].n_bytes;
    TRY(buffer_reserve(file, *n_bytes + 1));
    return read_sample(self, index, file->bytes, label);
}

static enum status packed_decode(void *self_, int64_t index, uint8_t *pixels, int32_t *label)
{
    struct packed_source *self = self_;
    struct image_scratch *scratch;
    size_t n_bytes;
    char name[SPEC_PATH_BYTES + 64];
    packed_sample_name(self, index, name, sizeof name);
    TRY(image_pool_take(&self->pool, &scratch));
    enum status st = packed_encoded(self, index, &scratch->file, &n_bytes, label);
    if (st == STATUS_OK)
        st = image_decode(scratch->file.bytes, n_bytes, name, (int)self->header.height,
                          (int)self->header.width, scratch, pixels);
    image_pool_return(&self->pool, scratch);
    return st;
}

static void packed_class_name(const void *self_, int label, char *buffer, size_t size)
{
    const struct packed_source *self = self_;
    (void)snprintf(buffer, size, "%s", self->class_names[label]);
}

static void packed_close(void *self_)
{
    struct packed_source *self = self_;
    if (self->fd >= 0)
        (void)close(self->fd);
    free(self->index_bytes);
    free(self->class_names);
    image_pool_deinit(&self->pool);
    free(self);
}

static const struct source_calls raw_calls = {.decode = packed_pixels,
                                              .sample_name = packed_sample_name,
                                              .class_name = packed_class_name,
                                              .close = packed_close};
static const struct source_calls jpeg_calls = {.decode = packed_decode,
                                               .encoded = packed_encoded,
                                               .sample_name = packed_sample_name,
                                               .class_name = packed_class_name,
                                               .close = packed_close};

static enum status open_regular(struct packed_source *self)
{
    struct stat info;
    self->fd = open(self->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* as in file.c */
    if (self->fd < 0)
        return status_fail(STATUS_FAILED, "%s: cannot open: %s", self->path, strerror(errno));
    if (fstat(self->fd, &info) != 0 || !S_ISREG(info.st_mode))
        return status_fail(STATUS_FAILED, "%s: is not a regular file", self->path);
    self->n_bytes = (uint64_t)info.st_size;
    if (self->n_bytes < sizeof self->header)
        return status_fail_content("%s: truncated: has %llu bytes, its header alone has %zu",
                                   self->path, (unsigned long long)self->n_bytes,
                                   sizeof self->header);
    return STATUS_OK;
}

/* A file that fits into memory is best read ahead in large pieces: it is soon there as a whole. Of
 * a larger one only the samples asked for should come in. */
static void advise(const struct packed_source *self)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (self->n_bytes > (uint64_t)sysconf(_SC_PHYS_PAGES) * page / 2)
        (void)posix_fadvise(self->fd, 0, 0, POSIX_FADV_RANDOM);
}

static enum status open_parts(struct packed_source *self)
{
    struct pack_header *h = &self->header;
    TRY(open_regular(self));
    advise(self);
    TRY(read_at(self, 0, h, sizeof *h));
    TRY(pack_check_header(h, self->n_bytes, self->path));
    size_t n_bytes = pack_index_bytes(h); /* no more than the file has */
    self->index_bytes = malloc(n_bytes);
    self->class_names = malloc(h->classes * sizeof *self->class_names);
    if (!self->index_bytes || !self->class_names)
        return status_no_memory(n_bytes);
    TRY(read_at(self, h->index_offset, self->index_bytes, n_bytes));
    TRY(pack_check_index(h, self->index_bytes, self->path, &self->index));
    const char *name = self->index.names;
    for (uint32_t i = 0; i < h->classes; i++, name += strlen(name) + 1)
        self->class_names[i] = name;
    return STATUS_OK;
}

static enum status open_file(const char *path, struct packed_source **out)
{
    struct packed_source *self = calloc(1, sizeof *self);
    if (!self)
        return status_no_memory(sizeof *self);
    self->fd = -1;
    image_pool_init(&self->pool);
    (void)snprintf(self->path, sizeof self->path, "%s", path);
    enum status st = open_parts(self);
    if (st != STATUS_OK)
        packed_close(self);
    else
        *out = self;
    return st;
}

static enum status check_pair(const struct packed_source *train, const struct packed_source *test)
{
    const struct pack_header *a = &train->header, *b = &test->header;
    if (a->channels != b->channels || a->height != b->height || a->width != b->width ||
        a->classes != b->classes)
        return status_fail(STATUS_FAILED,
                           "%s: holds %ux%ux%u in %u classes, but %s holds %ux%ux%u in %u classes",
                           test->path, b->channels, b->height, b->width, b->classes, train->path,
                           a->channels, a->height, a->width, a->classes);
    if (a->names_bytes != b->names_bytes ||
        memcmp(train->index.names, test->index.names, a->names_bytes) != 0)
        return status_fail(STATUS_FAILED, "%s: its classes have other names than those of %s",
                           test->path, train->path);
    return STATUS_OK;
}

static void fill_source(struct packed_source *self, int64_t n_train, int64_t n_test,
                        struct source *out)
{
    const struct pack_header *h = &self->header;
    *out =
        (struct source){.calls = h->encoding == PACK_RAW ? &raw_calls : &jpeg_calls, .self = self};
    printable_copy(out->info.name, sizeof out->info.name, h->name);
    out->info.channels = (int)h->channels;
    out->info.height = (int)h->height;
    out->info.width = (int)h->width;
    out->info.classes = (int)h->classes;
    out->info.n_samples = (int64_t)h->n_samples;
    out->info.n_train = n_train;
    out->info.n_test = n_test;
    out->info.form = spec_form(out->info.height);
    out->info.in_memory = h->encoding == PACK_RAW;
    memcpy(out->mean, h->mean, sizeof out->mean);
    memcpy(out->std, h->std, sizeof out->std);
}

enum status source_open_packed(const struct spec *spec, enum dataset_split split,
                               struct source *out)
{
    if (split == DATASET_TEST && spec->test_path[0] == '\0')
        return status_fail(STATUS_USAGE,
                           "dataset 'packed:%s' has no test split: name its file after a comma, "
                           "packed:FILE,TESTFILE",
                           spec->path);
    struct packed_source *train = NULL, *test = NULL;
    TRY(open_file(spec->path, &train));
    enum status st = STATUS_OK;
    if (spec->test_path[0])
        st = open_file(spec->test_path, &test);
    if (st == STATUS_OK && test)
        st = check_pair(train, test);
    if (st == STATUS_OK)
        fill_source(split == DATASET_TEST && test ? test : train, (int64_t)train->header.n_samples,
                    test ? (int64_t)test->header.n_samples : 0, out);
    if (st != STATUS_OK || split == DATASET_TEST)
        packed_close(train);
    if (test && (st != STATUS_OK || split == DATASET_TRAIN))
        packed_close(test);
    return st;
}
