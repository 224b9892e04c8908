/* Reading packed files; pack.c writes them. */
#include "data/image.h"
#include "data/pack.h"
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

_Static_assert(sizeof(struct pack_header) == 256, "the header's size is part of the format");
_Static_assert(sizeof(struct pack_entry) == 24, "the entry's size is part of the format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are written as they lie");

enum { SIDE_MAX = 16384, CLASSES_MAX = 1 << 24 };

static enum status check_identity(const struct pack_header *h, size_t n_bytes, const char *path)
{
    if (memcmp(h->magic, PACK_MAGIC, sizeof h->magic) != 0)
        return status_fail(STATUS_FAILED, "%s: not a packed dataset ('cleave pack' makes them)",
                           path);
    if (h->version != PACK_VERSION)
        return status_fail(STATUS_FAILED, "%s: packed in version %u, this program reads version %d",
                           path, h->version, PACK_VERSION);
    if (XXH64(h, offsetof(struct pack_header, header_checksum), 0) != h->header_checksum)
        return status_fail(STATUS_FAILED, "%s: corrupt: its header does not match its checksum",
                           path);
    if (h->file_bytes != n_bytes)
        return status_fail(STATUS_FAILED, "%s: truncated: has %zu bytes, its header promises %llu",
                           path, n_bytes, (unsigned long long)h->file_bytes);
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
                h->n_samples >= 1 && memchr(h->name, 0, sizeof h->name) && means_are_sane(h) &&
                (h->encoding == PACK_RAW || h->channels == 3);
    if (!fits || !sane)
        return status_fail(STATUS_FAILED, "%s: corrupt: its header contradicts itself", path);
    return STATUS_OK;
}

static enum status check_entry(const struct pack_header *h, const struct pack_entry *e,
                               uint64_t index, const char *path)
{
    uint64_t end, raw_bytes = (uint64_t)h->channels * h->height * h->width;
    if (e->offset < sizeof *h || __builtin_add_overflow(e->offset, e->n_bytes, &end) ||
        end > h->index_offset || (h->encoding == PACK_RAW && e->n_bytes != raw_bytes))
        return status_fail(
            STATUS_FAILED, "%s: corrupt: sample %llu at %llu with %u bytes lies outside the data",
            path, (unsigned long long)index, (unsigned long long)e->offset, e->n_bytes);
    if (e->label >= h->classes)
        return status_fail(STATUS_FAILED, "%s: corrupt: label %llu is %u, expected 0 to %u", path,
                           (unsigned long long)index, e->label, h->classes - 1);
    return STATUS_OK;
}

static enum status check_names(const struct pack_header *h, const char *names, const char *path)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < h->names_bytes; i++)
        n += names[i] == '\0';
    if (n != h->classes || names[h->names_bytes - 1] != '\0')
        return status_fail(STATUS_FAILED, "%s: corrupt: names %llu classes, expected %u", path,
                           (unsigned long long)n, h->classes);
    return STATUS_OK;
}

enum status pack_parse(const uint8_t *bytes, size_t n_bytes, const char *path,
                       struct pack_view *out)
{
    struct pack_header *h = &out->header;
    if (n_bytes < sizeof *h)
        return status_fail(STATUS_FAILED, "%s: truncated: has %zu bytes, its header alone has %zu",
                           path, n_bytes, sizeof *h);
    memcpy(h, bytes, sizeof *h);
    TRY(check_identity(h, n_bytes, path));
    TRY(check_header(h, path));
    const uint8_t *index = bytes + h->index_offset;
    if (XXH64(index, n_bytes - h->index_offset, 0) != h->index_checksum)
        return status_fail(STATUS_FAILED, "%s: corrupt: its index does not match its checksum",
                           path);
    out->bytes = bytes;
    out->entries = (const struct pack_entry *)(const void *)index;
    out->names = (const char *)bytes + h->names_offset;
    for (uint64_t i = 0; i < h->n_samples; i++)
        TRY(check_entry(h, &out->entries[i], i, path));
    return check_names(h, out->names, path);
}

enum status pack_sample(const struct pack_view *view, const char *path, int64_t index,
                        const uint8_t **bytes, size_t *n_bytes)
{
    const struct pack_entry *e = &view->entries[index];
    *bytes = view->bytes + e->offset;
    *n_bytes = e->n_bytes;
    if (XXH64(*bytes, e->n_bytes, 0) != e->checksum)
        return status_fail(STATUS_FAILED, "%s: corrupt: sample %lld does not match its checksum",
                           path, (long long)index);
    return STATUS_OK;
}

struct packed_source {
    char path[SPEC_PATH_BYTES];
    void *map;
    size_t map_bytes;
    bool sparse; /* too large to keep in memory */
    struct pack_view view;
    const char **class_names; /* [classes] */
    struct image_pool pool;
};

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void fetch_range(const struct packed_source *self, uint64_t offset, uint64_t n_bytes)
{
    uint64_t first = offset / page_bytes() * page_bytes();
    (void)madvise((uint8_t *)self->map + first, offset + n_bytes - first, MADV_WILLNEED);
}

/* A file that fits into memory is best read in large pieces: it is soon there as a whole. Of a
 * larger one only the samples asked for should come in, each in one piece and not page by page. */
static void advise(struct packed_source *self)
{
    size_t memory_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * page_bytes();
    self->sparse = self->map_bytes > memory_bytes / 2;
    if (self->sparse)
        (void)madvise(self->map, self->map_bytes, MADV_RANDOM);
}

static void fetch_sample(const struct packed_source *self, int64_t index)
{
    const struct pack_entry *e = &self->view.entries[index];
    if (self->sparse && e->n_bytes > page_bytes())
        fetch_range(self, e->offset, e->n_bytes);
}

static void fetch_index(const struct packed_source *self)
{
    struct pack_header h; /* not checked yet */
    if (!self->sparse || self->map_bytes < sizeof h)
        return;
    memcpy(&h, self->map, sizeof h);
    if (h.index_offset < self->map_bytes)
        fetch_range(self, h.index_offset, self->map_bytes - h.index_offset);
}

static enum status packed_view(void *self_, int64_t index, const uint8_t **pixels, int32_t *label)
{
    const struct packed_source *self = self_;
    size_t n_bytes;
    fetch_sample(self, index);
    *label = (int32_t)self->view.entries[index].label;
    return pack_sample(&self->view, self->path, index, pixels, &n_bytes);
}

static void packed_sample_name(const void *self_, int64_t index, char *buffer, size_t size)
{
    const struct packed_source *self = self_;
    (void)snprintf(buffer, size, "sample %lld of %s", (long long)index, self->path);
}

static enum status packed_decode(void *self_, int64_t index, uint8_t *pixels, int32_t *label)
{
    struct packed_source *self = self_;
    const uint8_t *bytes;
    size_t n_bytes;
    fetch_sample(self, index);
    TRY(pack_sample(&self->view, self->path, index, &bytes, &n_bytes));
    *label = (int32_t)self->view.entries[index].label;
    char name[SPEC_PATH_BYTES + 64];
    packed_sample_name(self, index, name, sizeof name);
    struct image_scratch *scratch;
    TRY(image_pool_take(&self->pool, &scratch));
    enum status st = image_decode(bytes, n_bytes, name, (int)self->view.header.height,
                                  (int)self->view.header.width, scratch, pixels);
    image_pool_return(&self->pool, scratch);
    return st;
}

static enum status packed_encoded(void *self_, int64_t index, struct buffer *file, size_t *n_bytes,
                                  int32_t *label)
{
    const struct packed_source *self = self_;
    const uint8_t *bytes;
    fetch_sample(self, index);
    TRY(pack_sample(&self->view, self->path, index, &bytes, n_bytes));
    TRY(buffer_reserve(file, *n_bytes + 1));
    memcpy(file->bytes, bytes, *n_bytes);
    *label = (int32_t)self->view.entries[index].label;
    return STATUS_OK;
}

static void packed_class_name(const void *self_, int label, char *buffer, size_t size)
{
    const struct packed_source *self = self_;
    (void)snprintf(buffer, size, "%s", self->class_names[label]);
}

static void packed_close(void *self_)
{
    struct packed_source *self = self_;
    if (self->map)
        (void)munmap(self->map, self->map_bytes);
    free(self->class_names);
    image_pool_deinit(&self->pool);
    free(self);
}

static const struct source_calls raw_calls = {.view = packed_view,
                                              .sample_name = packed_sample_name,
                                              .class_name = packed_class_name,
                                              .close = packed_close};
static const struct source_calls jpeg_calls = {.decode = packed_decode,
                                               .encoded = packed_encoded,
                                               .sample_name = packed_sample_name,
                                               .class_name = packed_class_name,
                                               .close = packed_close};

static enum status map_file(struct packed_source *self)
{
    int fd = open(self->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* as in file.c */
    if (fd < 0)
        return status_fail(STATUS_FAILED, "%s: cannot open: %s", self->path, strerror(errno));
    struct stat info;
    enum status st = STATUS_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        st = status_fail(STATUS_FAILED, "%s: is not a regular file", self->path);
    } else if (info.st_size == 0) {
        st = status_fail(STATUS_FAILED, "%s: truncated: has 0 bytes", self->path);
    } else {
        self->map_bytes = (size_t)info.st_size;
        self->map = mmap(NULL, self->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (self->map == MAP_FAILED) {
            self->map = NULL;
            st = status_fail(STATUS_FAILED, "%s: cannot map: %s", self->path, strerror(errno));
        }
    }
    (void)close(fd);
    return st;
}

static enum status open_mapped(struct packed_source *self)
{
    TRY(map_file(self));
    advise(self);
    fetch_index(self);
    TRY(pack_parse(self->map, self->map_bytes, self->path, &self->view));
    self->class_names = malloc(self->view.header.classes * sizeof *self->class_names);
    if (!self->class_names)
        return status_no_memory(self->view.header.classes * sizeof *self->class_names);
    const char *name = self->view.names;
    for (uint32_t i = 0; i < self->view.header.classes; i++, name += strlen(name) + 1)
        self->class_names[i] = name;
    return STATUS_OK;
}

static enum status open_file(const char *path, struct packed_source **out)
{
    struct packed_source *self = calloc(1, sizeof *self);
    if (!self)
        return status_no_memory(sizeof *self);
    image_pool_init(&self->pool);
    (void)snprintf(self->path, sizeof self->path, "%s", path);
    enum status st = open_mapped(self);
    if (st != STATUS_OK)
        packed_close(self);
    else
        *out = self;
    return st;
}

static enum status check_pair(const struct packed_source *train, const struct packed_source *test)
{
    const struct pack_header *a = &train->view.header, *b = &test->view.header;
    if (a->channels != b->channels || a->height != b->height || a->width != b->width ||
        a->classes != b->classes)
        return status_fail(STATUS_FAILED,
                           "%s: holds %ux%ux%u in %u classes, but %s holds %ux%ux%u in %u classes",
                           test->path, b->channels, b->height, b->width, b->classes, train->path,
                           a->channels, a->height, a->width, a->classes);
    if (a->names_bytes != b->names_bytes ||
        memcmp(train->view.names, test->view.names, a->names_bytes) != 0)
        return status_fail(STATUS_FAILED, "%s: its classes have other names than those of %s",
                           test->path, train->path);
    return STATUS_OK;
}

static void fill_source(struct packed_source *self, int64_t n_train, int64_t n_test,
                        struct source *out)
{
    const struct pack_header *h = &self->view.header;
    *out =
        (struct source){.calls = h->encoding == PACK_RAW ? &raw_calls : &jpeg_calls, .self = self};
    (void)snprintf(out->info.name, sizeof out->info.name, "%s", h->name);
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
        fill_source(split == DATASET_TEST && test ? test : train,
                    (int64_t)train->view.header.n_samples,
                    test ? (int64_t)test->view.header.n_samples : 0, out);
    if (st != STATUS_OK || split == DATASET_TEST)
        packed_close(train);
    if (test && (st != STATUS_OK || split == DATASET_TRAIN))
        packed_close(test);
    return st;
}
