/* TensorBoard's event files.
 *
 * A record (TFRecord), numbers with the lowest byte first:
 *
 *     8 bytes  n                     4 bytes  checksum of these 8
 *     n bytes  an Event              4 bytes  checksum of these n
 *
 * A checksum is a CRC-32C c, turned and shifted so that checksums of data that hold checksums are
 * no worse than others: (c >> 15 | c << 17) + 0xa282ead8.
 *
 * The messages, as far as they are written:
 *
 *     Event      1: double wall_time   2: int64 step   and one of
 *                3: string file_version   5: Summary summary   7: SessionLog session_log
 *     Summary    1: Value value, any number of them
 *     Value      1: string tag   2: float simple_value
 *     SessionLog 1: status, 1 is START: events of this step and later ones no longer hold
 */
#include "report/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    HOST_BYTES = 65,
    EVENT_BYTES = 1024, /* of the largest event: some ten scalars */
    TAG_BYTES = 64,
    RECORD_HEAD = 12,
    RECORD_TAIL = 4,
    LARGEST_RECORD = 1 << 20, /* of those that are read; ours are far smaller */
};

static const char FILE_START[] = "events.out.tfevents.";

struct tensorboard {
    FILE *file;
    char path[PATH_BYTES];
};

/* ---- checksums ---- */

uint32_t tensorboard_crc32c(const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~crc;
}

static uint32_t mask(const void *bytes, size_t n)
{
    uint32_t crc = tensorboard_crc32c(bytes, n);
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

/* ---- messages ---- */

/* Bytes that do not fit are left out, and `full` is set: the caller wrote too much. */
struct message {
    size_t n;
    bool full;
    unsigned char bytes[EVENT_BYTES];
};

enum wire { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_LENGTH = 2, WIRE_4_BYTES = 5 };

static void put_bytes(struct message *m, const void *bytes, size_t n)
{
    if (n > sizeof m->bytes - m->n) {
        m->full = true;
        return;
    }
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void put_number(unsigned char *at, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_number(const unsigned char *at, int n)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void put_varint(struct message *m, uint64_t value)
{
    unsigned char byte;
    for (; value >= 0x80; value >>= 7) {
        byte = (unsigned char)(value | 0x80);
        put_bytes(m, &byte, 1);
    }
    byte = (unsigned char)value;
    put_bytes(m, &byte, 1);
}

static void put_key(struct message *m, unsigned field, enum wire wire)
{
    put_varint(m, (uint64_t)field << 3 | (unsigned)wire);
}

static void put_integer(struct message *m, unsigned field, int64_t value)
{
    put_key(m, field, WIRE_VARINT);
    put_varint(m, (uint64_t)value);
}

static void put_double(struct message *m, unsigned field, double value)
{
    unsigned char bytes[sizeof value];
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_number(bytes, bits, sizeof bytes);
    put_key(m, field, WIRE_8_BYTES);
    put_bytes(m, bytes, sizeof bytes);
}

static void put_float(struct message *m, unsigned field, float value)
{
    unsigned char bytes[sizeof value];
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_number(bytes, bits, sizeof bytes);
    put_key(m, field, WIRE_4_BYTES);
    put_bytes(m, bytes, sizeof bytes);
}

static void put_part(struct message *m, unsigned field, const void *bytes, size_t n)
{
    put_key(m, field, WIRE_LENGTH);
    put_varint(m, n);
    put_bytes(m, bytes, n);
}

static void put_message(struct message *m, unsigned field, const struct message *part)
{
    m->full = m->full || part->full;
    put_part(m, field, part->bytes, part->n);
}

static void begin_event(struct message *m, int64_t step)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *m = (struct message){0};
    put_double(m, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_integer(m, 2, step);
}

/* ---- records ---- */

static enum status fail_write(const tensorboard *t)
{
    return status_fail(STATUS_FAILED, "%s: cannot write: %s", t->path, strerror(errno));
}

static enum status write_event(tensorboard *t, const struct message *m)
{
    unsigned char record[RECORD_HEAD + EVENT_BYTES + RECORD_TAIL];
    if (m->full)
        return status_fail(STATUS_FAILED, "%s: an event has more than %d bytes", t->path,
                           EVENT_BYTES);
    put_number(record, m->n, 8);
    put_number(record + 8, mask(record, 8), 4);
    memcpy(record + RECORD_HEAD, m->bytes, m->n);
    put_number(record + RECORD_HEAD + m->n, mask(m->bytes, m->n), 4);
    size_t n = RECORD_HEAD + m->n + RECORD_TAIL;
    if (fwrite(record, 1, n, t->file) != n || fflush(t->file) != 0)
        return fail_write(t);
    return STATUS_OK;
}

static enum status write_version(tensorboard *t)
{
    struct message m;
    begin_event(&m, 0);
    put_part(&m, 3, "brain.Event:2", strlen("brain.Event:2"));
    return write_event(t, &m);
}

static enum status write_restart(tensorboard *t, int64_t step)
{
    struct message m, session = {0};
    begin_event(&m, step);
    put_integer(&session, 1, 1);
    put_message(&m, 7, &session);
    return write_event(t, &m);
}

enum status tensorboard_write(tensorboard *t, int64_t step, const struct tensorboard_scalar *values,
                              int n)
{
    struct message m, summary = {0};
    for (int i = 0; i < n; i++) {
        struct message value = {0};
        put_part(&value, 1, values[i].tag, strnlen(values[i].tag, TAG_BYTES));
        put_float(&value, 2, (float)values[i].value);
        put_message(&summary, 1, &value);
    }
    begin_event(&m, step);
    put_message(&m, 5, &summary);
    return write_event(t, &m);
}

/* ---- the last whole record ---- */

/* Reads the next one over; false where it is broken off or damaged, or there is none. */
static bool pass_record(FILE *f)
{
    unsigned char head[RECORD_HEAD], tail[RECORD_TAIL];
    if (fread(head, 1, sizeof head, f) != sizeof head || get_number(head + 8, 4) != mask(head, 8))
        return false;
    uint64_t n = get_number(head, 8);
    unsigned char *event = n <= LARGEST_RECORD ? malloc(n + 1) : NULL;
    bool whole = event && fread(event, 1, n, f) == n &&
                 fread(tail, 1, sizeof tail, f) == sizeof tail &&
                 get_number(tail, 4) == mask(event, n);
    free(event);
    return whole;
}

/* Cuts off a record that a killed run left half written; the file goes on there. */
static enum status cut_tail(tensorboard *t)
{
    long whole = 0;
    while (pass_record(t->file))
        whole = ftell(t->file);
    if (whole == 0 && fseek(t->file, 0, SEEK_END) == 0 && ftell(t->file) == 0)
        return write_version(t); /* killed before its first record */
    if (whole == 0)
        return status_fail(STATUS_USAGE, "%s: is no event file of TensorBoard", t->path);
    if (fseek(t->file, whole, SEEK_SET) != 0 || ftruncate(fileno(t->file), whole) != 0)
        return fail_write(t);
    return STATUS_OK;
}

/* ---- files ---- */

/* The newest: names end in the time of their making. "": there is none. */
static enum status find_newest(const char *directory, char name[NAME_MAX + 1])
{
    const struct dirent *entry;
    DIR *d = opendir(directory);
    name[0] = '\0';
    if (!d)
        return status_fail(STATUS_FAILED, "%s: cannot read: %s", directory, strerror(errno));
    while ((entry = readdir(d)))
        if (strncmp(entry->d_name, FILE_START, sizeof FILE_START - 1) == 0 &&
            strcmp(entry->d_name, name) > 0)
            (void)snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
    (void)closedir(d);
    return STATUS_OK;
}

static enum status open_file(tensorboard *t, const char *directory, const char *name,
                             const char *mode)
{
    int n = snprintf(t->path, sizeof t->path, "%s/%s", directory, name);
    if (n < 0 || n >= PATH_BYTES)
        return status_fail(STATUS_USAGE, "%s: the name of this directory is too long", directory);
    t->file = fopen(t->path, mode);
    return t->file ? STATUS_OK : fail_write(t);
}

static enum status begin_file(tensorboard *t, const char *directory)
{
    char host[HOST_BYTES] = "", name[NAME_MAX + 1];
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(name, sizeof name, "%s%010lld.%s", FILE_START, (long long)time(NULL), host);
    TRY(open_file(t, directory, name, "wx"));
    enum status st = write_version(t);
    if (st != STATUS_OK)
        (void)unlink(t->path); /* else the next run would take it for another's */
    return st;
}

static enum status continue_file(tensorboard *t, const char *directory, const char *name,
                                 int64_t resumed_after)
{
    TRY(open_file(t, directory, name, "r+"));
    TRY(cut_tail(t));
    return write_restart(t, resumed_after + 1);
}

static enum status open_in(tensorboard *t, const char *directory, int64_t resumed_after)
{
    char newest[NAME_MAX + 1];
    TRY(find_newest(directory, newest));
    if (!newest[0])
        return begin_file(t, directory);
    if (resumed_after < 0)
        return status_fail(STATUS_USAGE,
                           "--tensorboard %s: holds the events of another run: name another "
                           "directory, or go on with --resume",
                           directory);
    return continue_file(t, directory, newest, resumed_after);
}

enum status tensorboard_open(const char *directory, int64_t resumed_after, tensorboard **out)
{
    tensorboard *t = calloc(1, sizeof *t);
    if (!t)
        return status_no_memory(sizeof *t);
    enum status st = open_in(t, directory, resumed_after);
    if (st != STATUS_OK) {
        if (t->file)
            (void)fclose(t->file);
        free(t);
        return st;
    }
    *out = t;
    return STATUS_OK;
}

enum status tensorboard_close(tensorboard *t)
{
    if (!t)
        return STATUS_OK;
    enum status st = fclose(t->file) == 0 ? STATUS_OK : fail_write(t);
    free(t);
    return st;
}
