#include "base/lock_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { MOST_LOOKS = 100 };

struct lock_file {
    int fd;
    char path[PATH_MAX];
};

/* Anybody may have written the file: no control characters go to the terminal. */
static void read_holder(int fd, char holder[LOCK_HOLDER_BYTES])
{
    ssize_t n = pread(fd, holder, LOCK_HOLDER_BYTES - 1, 0);
    int length = 0;
    while (length < n && isprint((unsigned char)holder[length]))
        length++;
    (void)snprintf(holder + length, (size_t)(LOCK_HOLDER_BYTES - length), "%s",
                   length ? "" : "another process");
}

/* Best effort: it is only for a message. */
static void write_holder(int fd)
{
    struct utsname host = {0};
    char text[LOCK_HOLDER_BYTES];
    (void)uname(&host);
    int n = snprintf(text, sizeof text, "process %ld on %.60s\n", (long)getpid(), host.nodename);
    if (ftruncate(fd, 0) == 0 && n > 0)
        (void)!pwrite(fd, text, (size_t)n, 0);
}

/* Whether the file is still the one of that name: its last holder removed it on release. */
static bool is_at(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

/* -1: another has it. A file system that shows another file at each look has no locks to speak of.
 */
static enum status take(const char *path, char holder[LOCK_HOLDER_BYTES], int *fd)
{
    for (int looks = 1;; looks++) {
        *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (*fd < 0)
            return status_fail(STATUS_FAILED, "%s: cannot open the lock: %s", path,
                               strerror(errno));
        bool held = flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (held)
            read_holder(*fd, holder);
        else if (is_at(*fd, path) || looks == MOST_LOOKS)
            return STATUS_OK;
        (void)close(*fd);
        *fd = -1;
        if (held)
            return STATUS_OK;
    }
}

enum status lock_file_take(const char *path, char holder[LOCK_HOLDER_BYTES], lock_file **out)
{
    *out = NULL;
    lock_file *l = calloc(1, sizeof *l);
    if (!l)
        return status_no_memory(sizeof *l);
    int n = snprintf(l->path, sizeof l->path, "%s", path);
    enum status st = n < (int)sizeof l->path
                         ? take(path, holder, &l->fd)
                         : status_fail(STATUS_USAGE, "'%.200s' is too long a path", path);
    if (st != STATUS_OK || l->fd < 0) {
        free(l);
        return st;
    }
    write_holder(l->fd);
    *out = l;
    return STATUS_OK;
}

void lock_file_release(lock_file *l)
{
    if (!l)
        return;
    if (is_at(l->fd, l->path)) /* while it is held: else that of the next holder would go */
        (void)unlink(l->path);
    (void)close(l->fd);
    free(l);
}
