#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum status buffer_reserve(struct buffer *b, size_t n_bytes)
{
    if (n_bytes <= b->capacity)
        return STATUS_OK;
    size_t capacity = n_bytes + n_bytes / 4; /* images differ a little: grow rarely */
    uint8_t *bytes = malloc(capacity);
    if (!bytes)
        return status_no_memory(capacity);
    free(b->bytes);
    b->bytes = bytes;
    b->capacity = capacity;
    return STATUS_OK;
}

void buffer_free(struct buffer *b)
{
    free(b->bytes);
    *b = (struct buffer){0};
}

static enum status read_all(int fd, const char *path, uint8_t *bytes, size_t n_bytes)
{
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t n = read(fd, bytes + done, n_bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_fail(STATUS_FAILED, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0)
            return status_fail_content("%s: became shorter while it was read", path);
        done += (size_t)n;
    }
    return STATUS_OK;
}

static enum status read_open_file(int fd, const char *path, size_t max_bytes, struct buffer *b,
                                  size_t *n_bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return status_fail(STATUS_FAILED, "%s: cannot read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return status_fail_content("%s: is not a regular file", path);
    if ((uint64_t)info.st_size > max_bytes)
        return status_fail_content("%s: has %lld bytes, expected at most %zu", path,
                                   (long long)info.st_size, max_bytes);
    *n_bytes = (size_t)info.st_size;
    TRY(buffer_reserve(b, *n_bytes + 1));
    return read_all(fd, path, b->bytes, *n_bytes);
}

enum status file_read(const char *path, size_t max_bytes, struct buffer *b, size_t *n_bytes)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO would wait for a writer */
    if (fd < 0)
        return status_fail(STATUS_FAILED, "%s: cannot open: %s", path, strerror(errno));
    enum status st = read_open_file(fd, path, max_bytes, b, n_bytes);
    (void)close(fd);
    return st;
}

struct stream {
    const char *name;
    bool gzipped, ended;
    z_stream z;    /* next_in and avail_in serve plain bytes too */
    size_t n_left; /* not yet given to z: avail_in has 32 bits only */
};

static bool is_gzip(const uint8_t *bytes, size_t n_bytes)
{
    return n_bytes >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

enum status stream_open(const uint8_t *bytes, size_t n_bytes, const char *name, stream **out)
{
    stream *s = calloc(1, sizeof *s);
    if (!s)
        return status_no_memory(sizeof *s);
    s->name = name;
    s->gzipped = is_gzip(bytes, n_bytes);
    s->z.next_in = (z_const Bytef *)(uintptr_t)bytes;
    s->n_left = n_bytes;
    if (s->gzipped && inflateInit2(&s->z, 15 + 16) != Z_OK) {
        free(s);
        return status_fail(STATUS_FAILED, "%s: cannot start zlib", name);
    }
    *out = s;
    return STATUS_OK;
}

void stream_close(stream *s)
{
    if (!s)
        return;
    if (s->gzipped)
        (void)inflateEnd(&s->z);
    free(s);
}

uint64_t stream_most_left(const stream *s)
{
    uint64_t left = (uint64_t)s->n_left + s->z.avail_in;
    return s->gzipped ? left * 1032 + 65536 : left; /* 65536: what zlib may hold in its window */
}

static void feed(stream *s)
{
    if (s->z.avail_in == 0 && s->n_left > 0) {
        s->z.avail_in = s->n_left > 1u << 30 ? 1u << 30 : (uInt)s->n_left;
        s->n_left -= s->z.avail_in;
    }
}

static enum status inflate_some(stream *s, size_t *n_written)
{
    feed(s);
    uInt before = s->z.avail_out;
    int result = inflate(&s->z, Z_NO_FLUSH);
    *n_written = before - s->z.avail_out;
    if (result == Z_STREAM_END) {
        s->ended = true;
        if (s->z.avail_in > 0 || s->n_left > 0)
            return status_fail_content("%s: %zu bytes follow the end of the gzip data", s->name,
                                       s->z.avail_in + s->n_left);
        return STATUS_OK;
    }
    if (result == Z_BUF_ERROR ||
        (result == Z_OK && *n_written == 0 && s->z.avail_in == 0 && s->n_left == 0))
        return status_fail_content("%s: truncated: the gzip data stops before its end", s->name);
    if (result == Z_MEM_ERROR)
        return status_no_memory(0);
    if (result != Z_OK)
        return status_fail_content("%s: corrupt gzip data: %s", s->name,
                                   s->z.msg ? s->z.msg : "unknown error");
    return STATUS_OK;
}

static size_t copy_plain(stream *s, uint8_t *out, size_t n_bytes)
{
    size_t n = n_bytes < s->n_left ? n_bytes : s->n_left;
    if (n > 0)
        memcpy(out, s->z.next_in, n);
    s->z.next_in += n;
    s->n_left -= n;
    return n;
}

enum status stream_read(stream *s, void *out, size_t n_bytes, size_t *n_read)
{
    uint8_t *to = out;
    *n_read = 0;
    if (!s->gzipped) {
        *n_read = copy_plain(s, to, n_bytes);
        return STATUS_OK;
    }
    while (*n_read < n_bytes && !s->ended) {
        size_t left = n_bytes - *n_read, n;
        s->z.next_out = to + *n_read;
        s->z.avail_out = left > 1u << 30 ? 1u << 30 : (uInt)left;
        TRY(inflate_some(s, &n));
        *n_read += n;
    }
    return STATUS_OK;
}
