#include "data/pack.h"

#include "base/numbers.h"
#include "base/whole_file.h"
#include "data/source.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { THREADS_MAX = 64, PROGRESS_EVERY = 64 };

struct packer {
    dataset *set;
    const struct pack_options *options;
    char path[SPEC_PATH_BYTES];
    int fd;
    struct pack_header header;
    struct pack_entry *entries; /* [n_samples] */
    uint64_t end;               /* bytes written so far, header included */
    atomic_llong next;          /* sample to pack */
    atomic_bool failed;
    pthread_mutex_t lock; /* of error */
    struct status_error error;
};

static uint64_t align_up(uint64_t offset)
{
    return (offset + PACK_ALIGNMENT - 1) / PACK_ALIGNMENT * PACK_ALIGNMENT;
}

static enum status write_at(const struct packer *p, const void *bytes, size_t n_bytes,
                            uint64_t offset)
{
    const uint8_t *from = bytes;
    while (n_bytes > 0) {
        ssize_t n = pwrite(p->fd, from, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return status_fail(STATUS_FAILED, "%s: cannot write: %s", p->path,
                               n < 0 ? strerror(errno) : "nothing was written");
        from += n;
        n_bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return STATUS_OK;
}

static enum status write_sample(struct packer *p, int64_t index, const uint8_t *bytes,
                                size_t n_bytes, uint64_t offset, int32_t label)
{
    if (n_bytes > UINT32_MAX)
        return status_fail(STATUS_FAILED, "%s: sample %lld has %zu bytes, at most %u fit", p->path,
                           (long long)index, n_bytes, UINT32_MAX);
    p->entries[index] = (struct pack_entry){.offset = offset,
                                            .checksum = XXH64(bytes, n_bytes, 0),
                                            .n_bytes = (uint32_t)n_bytes,
                                            .label = (uint32_t)label};
    return write_at(p, bytes, n_bytes, offset);
}

static void report(const struct packer *p, int64_t done)
{
    int64_t total = (int64_t)p->header.n_samples;
    if (p->options->progress && (done % PROGRESS_EVERY == 0 || done == total))
        p->options->progress(p->options->context, done, total);
}

/* All samples have the same size, so each has its place beforehand and threads need not wait for
 * one another. */
static enum status pack_one_raw(struct packer *p, int64_t index, uint8_t *room)
{
    const struct source *source = dataset_source(p->set);
    size_t n_bytes = (size_t)dataset_sample_floats(&source->info);
    uint64_t offset = sizeof p->header + (uint64_t)index * align_up(n_bytes);
    const uint8_t *bytes = room;
    int32_t label;
    if (source->calls->view)
        TRY(source->calls->view(source->self, index, &bytes, &label));
    else
        TRY(source->calls->decode(source->self, index, room, &label));
    return write_sample(p, index, bytes, n_bytes, offset, label);
}

static enum status pack_raw_share(struct packer *p, bool reports)
{
    uint8_t *room = malloc((size_t)dataset_sample_floats(dataset_get_info(p->set)));
    if (!room)
        return status_no_memory((size_t)dataset_sample_floats(dataset_get_info(p->set)));
    enum status st = STATUS_OK;
    for (;;) {
        int64_t index = atomic_fetch_add(&p->next, 1);
        if (index >= (int64_t)p->header.n_samples || atomic_load(&p->failed))
            break;
        st = pack_one_raw(p, index, room);
        if (st != STATUS_OK)
            break;
        if (reports)
            report(p, index + 1);
    }
    free(room);
    return st;
}

static void keep_error(struct packer *p, enum status st)
{
    struct status_error error;
    status_take(st, &error);
    (void)pthread_mutex_lock(&p->lock);
    if (!atomic_exchange(&p->failed, true))
        p->error = error;
    (void)pthread_mutex_unlock(&p->lock);
}

static void *raw_thread(void *packer_)
{
    struct packer *p = packer_;
    enum status st = pack_raw_share(p, false);
    if (st != STATUS_OK)
        keep_error(p, st);
    return NULL;
}

static int count_threads(const struct packer *p)
{
    int n = p->options->threads ? p->options->threads : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return int_max(1, int_min(n, THREADS_MAX));
}

static enum status pack_raw(struct packer *p)
{
    pthread_t threads[THREADS_MAX];
    int n_started = 0, n_wanted = count_threads(p) - 1; /* the caller is one */
    while (n_started < n_wanted && pthread_create(&threads[n_started], NULL, raw_thread, p) == 0)
        n_started++;
    enum status st = pack_raw_share(p, true);
    if (st != STATUS_OK)
        keep_error(p, st);
    for (int i = 0; i < n_started; i++)
        (void)pthread_join(threads[i], NULL);
    if (atomic_load(&p->failed))
        return status_give(&p->error);
    uint64_t stride = align_up((uint64_t)dataset_sample_floats(dataset_get_info(p->set)));
    p->end = sizeof p->header + p->header.n_samples * stride;
    return STATUS_OK;
}

static enum status pack_files(struct packer *p)
{
    const struct source *source = dataset_source(p->set);
    struct buffer file = {0};
    enum status st = STATUS_OK;
    for (int64_t i = 0; st == STATUS_OK && i < (int64_t)p->header.n_samples; i++) {
        size_t n_bytes;
        int32_t label;
        st = source->calls->encoded(source->self, i, &file, &n_bytes, &label);
        if (st == STATUS_OK)
            st = write_sample(p, i, file.bytes, n_bytes, p->end, label);
        if (st == STATUS_OK) {
            p->end = align_up(p->end + n_bytes);
            report(p, i + 1);
        }
    }
    buffer_free(&file);
    return st;
}

/* The names in one block of *n_bytes, to be freed. */
static enum status join_names(const struct packer *p, char **out, size_t *n_bytes)
{
    size_t most = (size_t)p->header.classes * (NAME_MAX + 1);
    char *names = malloc(most);
    if (!names)
        return status_no_memory(most);
    *n_bytes = 0;
    for (uint32_t i = 0; i < p->header.classes; i++) {
        (void)dataset_class_name(p->set, (int)i, names + *n_bytes, NAME_MAX + 1);
        *n_bytes += strlen(names + *n_bytes) + 1;
    }
    *out = names;
    return STATUS_OK;
}

static enum status write_index(struct packer *p)
{
    struct pack_header *h = &p->header;
    char *names = NULL;
    size_t names_bytes = 0, index_bytes = h->n_samples * sizeof *p->entries;
    TRY(join_names(p, &names, &names_bytes));
    h->index_offset = align_up(p->end);
    h->names_offset = h->index_offset + index_bytes;
    h->names_bytes = names_bytes;
    h->file_bytes = h->names_offset + names_bytes;
    XXH64_state_t *hash = XXH64_createState();
    enum status st = STATUS_OK;
    if (hash) {
        (void)XXH64_reset(hash, 0);
        (void)XXH64_update(hash, p->entries, index_bytes);
        (void)XXH64_update(hash, names, names_bytes);
        h->index_checksum = XXH64_digest(hash);
        (void)XXH64_freeState(hash);
        st = write_at(p, p->entries, index_bytes, h->index_offset);
    } else {
        st = status_no_memory(0);
    }
    if (st == STATUS_OK)
        st = write_at(p, names, names_bytes, h->names_offset);
    free(names);
    return st;
}

static void fill_header(struct packer *p, enum dataset_split split)
{
    const struct source *source = dataset_source(p->set);
    struct pack_header *h = &p->header;
    memcpy(h->magic, PACK_MAGIC, sizeof h->magic);
    h->version = PACK_VERSION;
    h->encoding = p->options->encoding;
    h->channels = (uint32_t)source->info.channels;
    h->height = (uint32_t)source->info.height;
    h->width = (uint32_t)source->info.width;
    h->classes = (uint32_t)source->info.classes;
    h->split = split;
    h->n_samples = (uint64_t)source->info.n_samples;
    memcpy(h->mean, source->mean, sizeof h->mean);
    memcpy(h->std, source->std, sizeof h->std);
    (void)snprintf(h->name, sizeof h->name, "%s", source->info.name);
}

static enum status write_all(struct packer *p)
{
    p->entries = calloc(p->header.n_samples, sizeof *p->entries);
    if (!p->entries)
        return status_no_memory(p->header.n_samples * sizeof *p->entries);
    p->end = sizeof p->header;
    if (p->options->encoding == PACK_RAW)
        TRY(pack_raw(p));
    else
        TRY(pack_files(p));
    TRY(write_index(p));
    p->header.header_checksum = XXH64(&p->header, offsetof(struct pack_header, header_checksum), 0);
    return write_at(p, &p->header, sizeof p->header, 0);
}

static enum status write_file(struct packer *p)
{
    whole_file *file;
    TRY(whole_file_open(p->path, &file));
    p->fd = whole_file_descriptor(file);
    return whole_file_end(file, write_all(p));
}

static enum status check_request(const struct packer *p, const char *spec)
{
    const struct source_calls *calls = dataset_source(p->set)->calls;
    if (calls->generate)
        return status_fail(STATUS_USAGE, "dataset '%s' is made up as it is read: nothing to pack",
                           spec);
    if (p->options->encoding == PACK_JPEG && !calls->encoded)
        return status_fail(STATUS_USAGE,
                           "dataset '%s' holds no image files: pack it raw, not as jpeg", spec);
    return STATUS_OK;
}

enum status pack_create(const char *spec, enum dataset_split split, const char *path,
                        const struct pack_options *options)
{
    static const struct pack_options defaults;
    struct packer p = {.options = options ? options : &defaults, .fd = -1};
    if (strlen(path) >= sizeof p.path)
        return status_fail(STATUS_USAGE, "path of %zu bytes is too long (at most %zu): %.60s...",
                           strlen(path), sizeof p.path - 1, path);
    (void)snprintf(p.path, sizeof p.path, "%s", path);
    TRY(dataset_open(spec, split, NULL, &p.set));
    (void)pthread_mutex_init(&p.lock, NULL);
    enum status st = check_request(&p, spec);
    if (st == STATUS_OK) {
        fill_header(&p, split);
        st = write_file(&p);
    }
    free(p.entries);
    (void)pthread_mutex_destroy(&p.lock);
    dataset_close(p.set);
    return st;
}
