#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* TAIL_BYTES: of ".5c01e9d7.tmp". LAST_GIVEN: the descriptors that a shell may have opened. */
enum { RANDOM_DIGITS = 8, TAIL_BYTES = RANDOM_DIGITS + 5, ATTEMPTS = 100, LAST_GIVEN = 63 };

struct whole_file {
    char path[PATH_MAX];      /* as it was given, for messages */
    char place[PATH_MAX];     /* without symbolic links */
    char temporary[PATH_MAX]; /* "": written directly */
    FILE *stream;
};

static enum status fail_at(const char *path, const char *what)
{
    return status_fail(STATUS_FAILED, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* ---- folders --------------------------------------------------------------------------------- */

void folder_of(const char *path, char *folder)
{
    const char *slash = strrchr(path, '/');
    int length = slash == path ? 1 : slash ? (int)(slash - path) : 1;
    (void)snprintf(folder, PATH_MAX, "%.*s", length, slash ? path : ".");
}

static enum status fail_folder(const char *path)
{
    return status_fail(STATUS_FAILED, "%s: cannot make the directory: %s", path, strerror(errno));
}

enum status folder_make(const char *path, bool *made)
{
    char part[PATH_MAX];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return fail_folder(part);
    }
    *made = mkdir(path, 0777) == 0;
    return *made || errno == EEXIST ? STATUS_OK : fail_folder(path);
}

/* Makes a rename in the folder last. */
static enum status sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    folder_of(path, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? STATUS_OK : fail_at(folder, "open"); /* may be written, not read */
    enum status st = STATUS_OK;
    if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: this file system cannot, and need not */
        st = fail_at(folder, "synchronise");
    (void)close(fd);
    return st;
}

/* ---- where to write -------------------------------------------------------------------------- */

/* A descriptor that writes to this file already, such as that of /dev/stdout; -1: there is none. */
static int find_open(const struct stat *file)
{
    for (int fd = 0; fd <= LAST_GIVEN; fd++) {
        struct stat about;
        if (fstat(fd, &about) == 0 && about.st_dev == file->st_dev &&
            about.st_ino == file->st_ino && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY)
            return fd;
    }
    return -1;
}

/* Without O_CREAT: the target is there. */
static int open_directly(const char *path, const struct stat *file)
{
    int fd = find_open(file);
    if (fd < 0)
        return open(path, O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC);
    (void)fflush(stdout); /* comes before */
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static uint32_t random_number(void)
{
    static uint32_t count;
    uint32_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number)
        number = (uint32_t)getpid() * 2654435761U + count++; /* O_EXCL makes it one's own */
    return number;
}

/* How much of a name a temporary name begins with. */
static int kept_bytes(const char *base)
{
    size_t length = strlen(base);
    return length > NAME_MAX - TAIL_BYTES ? NAME_MAX - TAIL_BYTES : (int)length;
}

/* A new file beside f->place, under a name of its own. */
static int create_beside(whole_file *f)
{
    const char *slash = strrchr(f->place, '/'), *base = slash ? slash + 1 : f->place;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int n = snprintf(f->temporary, sizeof f->temporary, "%.*s.%08x.tmp",
                         (int)(base - f->place) + kept_bytes(base), f->place, random_number());
        if (n < 0 || n >= (int)sizeof f->temporary)
            break;
        int fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    errno = ENAMETOOLONG;
    return -1;
}

bool whole_file_is_tail(const char *text)
{
    return text[0] == '.' && strspn(text + 1, "0123456789abcdef") == RANDOM_DIGITS &&
           strcmp(text + 1 + RANDOM_DIGITS, ".tmp") == 0;
}

/* The file that is there must be writable, though it is another one that is written. */
static enum status find_place(whole_file *f)
{
    int fd = open(f->path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_at(f->path, "write");
    (void)close(fd);
    return realpath(f->path, f->place) ? STATUS_OK : fail_at(f->path, "write");
}

static enum status open_descriptor(whole_file *f, int *fd)
{
    struct stat former;
    bool there = stat(f->path, &former) == 0;
    if (!there && errno != ENOENT)
        return fail_at(f->path, "write");
    if (there && (!S_ISREG(former.st_mode) || find_open(&former) >= 0)) {
        *fd = open_directly(f->path, &former);
        return *fd < 0 ? fail_at(f->path, "write") : STATUS_OK;
    }
    if (there)
        TRY(find_place(f));
    else
        memcpy(f->place, f->path, sizeof f->place);
    *fd = create_beside(f);
    if (*fd < 0) {
        f->temporary[0] = '\0';
        return fail_at(f->path, there ? "write a file beside it" : "write");
    }
    if (there) { /* the owner as far as it is allowed */
        (void)!fchown(*fd, former.st_uid, former.st_gid);
        (void)fchmod(*fd, former.st_mode & 0777);
    }
    return STATUS_OK;
}

enum status whole_file_open(const char *path, whole_file **out)
{
    int fd = -1;
    if (strlen(path) >= PATH_MAX)
        return status_fail(STATUS_USAGE, "'%.200s' is too long a path", path);
    whole_file *f = calloc(1, sizeof *f);
    if (!f)
        return status_no_memory(sizeof *f);
    (void)snprintf(f->path, sizeof f->path, "%s", path);
    enum status st = open_descriptor(f, &fd);
    if (st == STATUS_OK) {
        f->stream = fdopen(fd, "w");
        if (!f->stream) {
            st = status_no_memory(BUFSIZ);
            (void)close(fd);
        }
    }
    if (st != STATUS_OK) {
        whole_file_drop(f);
        return st;
    }
    *out = f;
    return STATUS_OK;
}

FILE *whole_file_stream(const whole_file *f)
{
    return f->stream;
}

int whole_file_descriptor(const whole_file *f)
{
    return fileno(f->stream);
}

/* ---- the end --------------------------------------------------------------------------------- */

void whole_file_drop(whole_file *f)
{
    if (!f)
        return;
    if (f->stream)
        (void)fclose(f->stream);
    if (f->temporary[0])
        (void)unlink(f->temporary);
    free(f);
}

/* All that was written is on the disk, and the stream is closed. */
static enum status finish_writing(whole_file *f)
{
    errno = 0;
    if (fflush(f->stream) != 0 || ferror(f->stream)) {
        /* The stream does not say why an earlier write failed; another into the file that is going
         * to be removed does. */
        if (!errno && f->temporary[0])
            (void)!write(fileno(f->stream), "", 1);
        return status_fail(STATUS_FAILED, "%s: cannot write: %s", f->path,
                           errno ? strerror(errno) : "an earlier write failed");
    }
    if (f->temporary[0] && fsync(fileno(f->stream)) != 0 && errno != EINVAL)
        return fail_at(f->path, "synchronise");
    FILE *stream = f->stream;
    f->stream = NULL;
    return fclose(stream) == 0 ? STATUS_OK : fail_at(f->path, "write");
}

static enum status put_in_place(whole_file *f)
{
    TRY(finish_writing(f));
    if (!f->temporary[0])
        return STATUS_OK;
    if (rename(f->temporary, f->place) != 0)
        return fail_at(f->path, "put the finished file there");
    f->temporary[0] = '\0';
    return sync_folder_of(f->place);
}

enum status whole_file_end(whole_file *f, enum status st)
{
    if (st == STATUS_OK)
        st = put_in_place(f);
    whole_file_drop(f);
    return st;
}

enum status whole_file_write(const char *path, whole_file_writer *write, void *user)
{
    whole_file *f = NULL;
    enum status st = whole_file_open(path, &f);
    return f ? whole_file_end(f, write(f->stream, user)) : st;
}

static enum status put_text(FILE *f, void *text)
{
    (void)fputs(text, f); /* the stream keeps the error */
    return STATUS_OK;
}

enum status whole_file_put_text(const char *path, const char *text)
{
    return whole_file_write(path, put_text, (void *)(uintptr_t)text);
}

/* ---- before the work ------------------------------------------------------------------------- */

enum status whole_file_check_place(const char *path)
{
    struct stat about;
    char folder[PATH_MAX];
    int why = 0;
    bool there = stat(path, &about) == 0, is_new = !there && errno == ENOENT;
    if (strlen(path) >= sizeof folder)
        why = ENAMETOOLONG;
    else if (!there && !is_new)
        why = errno;
    else if (there && S_ISDIR(about.st_mode))
        why = EISDIR;
    else if (there && access(path, W_OK) != 0)
        why = errno;
    if (!why && (is_new || (S_ISREG(about.st_mode) && find_open(&about) < 0))) {
        char place[PATH_MAX];
        folder_of(there && realpath(path, place) ? place : path, folder);
        why = access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    }
    if (why)
        return status_fail(STATUS_FAILED, "%s: cannot write: %s", path, strerror(why));
    return STATUS_OK;
}

enum status whole_file_check_input(const char *option, const char *path, const char *input)
{
    struct stat written, read;
    if (!path || !input || stat(path, &written) != 0 || stat(input, &read) != 0 ||
        !S_ISREG(written.st_mode) || written.st_dev != read.st_dev || written.st_ino != read.st_ino)
        return STATUS_OK;
    return status_fail(STATUS_USAGE,
                       "%s %s: this command reads that file, and would replace it: name another",
                       option, path);
}
