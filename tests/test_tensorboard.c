/* Event files for TensorBoard: checksums against published values, the bytes of a file, and what a
 * run that was killed left behind. tests/tensorboard_read.py reads the files of trainings
 * (cli_report.sh). */
#include "report/tensorboard.h"

#include "base/status.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PATH_BYTES = 512, FILE_BYTES = 4096, VERSION_RECORD = 12 + 9 + 2 + 15 + 4 };

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/cleave-tensorboard-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* "": there is none */
static void find_file(char path[PATH_BYTES])
{
    const struct dirent *entry;
    DIR *d = opendir(folder);
    path[0] = '\0';
    while ((entry = readdir(d)))
        if (entry->d_name[0] != '.')
            (void)snprintf(path, PATH_BYTES, "%s/%s", folder, entry->d_name);
    (void)closedir(d);
}

static int remove_folder(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    find_file(path);
    if (path[0])
        (void)unlink(path);
    return rmdir(folder);
}

static size_t read_file(unsigned char bytes[FILE_BYTES])
{
    char path[PATH_BYTES];
    find_file(path);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, FILE_BYTES, f);
    (void)fclose(f);
    return n;
}

/* RFC 3720, B.4, and the check value of the catalogue of CRCs. */
static void test_checksums(void **state)
{
    unsigned char bytes[32];
    (void)state;
    (void)memset(bytes, 0, sizeof bytes);
    assert_int_equal(tensorboard_crc32c(bytes, 32), 0x8a9136aa);
    (void)memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(tensorboard_crc32c(bytes, 32), 0x62a8ab43);
    for (unsigned char i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(tensorboard_crc32c(bytes, 32), 0x46dd794e);
    for (unsigned char i = 0; i < 32; i++)
        bytes[i] = (unsigned char)(31 - i);
    assert_int_equal(tensorboard_crc32c(bytes, 32), 0x113fdb5c);
    assert_int_equal(tensorboard_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(tensorboard_crc32c("", 0), 0);
}

static void write_one(tensorboard *t, int64_t step, double value)
{
    const struct tensorboard_scalar scalar = {"a/b", value};
    assert_int_equal(tensorboard_write(t, step, &scalar, 1), STATUS_OK);
}

static void test_bytes(void **state)
{
    unsigned char file[FILE_BYTES];
    /* after the time: step 300, a summary with one value of tag a/b and 0.5 as a float */
    static const unsigned char event[] = {0x10, 0xac, 0x02, 0x2a, 0x0c, 0x0a, 0x0a, 0x0a, 0x03,
                                          'a',  '/',  'b',  0x15, 0,    0,    0,    0x3f};
    tensorboard *t;
    (void)state;
    assert_int_equal(tensorboard_open(folder, -1, &t), STATUS_OK);
    write_one(t, 300, 0.5);
    assert_int_equal(tensorboard_close(t), STATUS_OK);
    size_t n = read_file(file);
    assert_int_equal(n, VERSION_RECORD + 12 + 9 + sizeof event + 4);
    const unsigned char *second = file + VERSION_RECORD;
    assert_memory_equal(file + 12 + 9 + 2,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
    assert_int_equal(second[0], 9 + sizeof event);
    assert_int_equal(second[12], 0x09); /* field 1, eight bytes */
    assert_memory_equal(second + 12 + 9, event, sizeof event);
}

static void put_file(const unsigned char *bytes, size_t n)
{
    char path[PATH_BYTES];
    find_file(path);
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    (void)fclose(f);
}

/* Wherever the last record is broken off, those before it stay, and the file is written on. */
static void test_killed(void **state)
{
    enum { RESTART = 12 + 9 + 2 + 4 + 4 };
    unsigned char all[FILE_BYTES], now[FILE_BYTES];
    tensorboard *t;
    (void)state;
    assert_int_equal(tensorboard_open(folder, -1, &t), STATUS_OK);
    write_one(t, 1, 0.5);
    size_t whole = read_file(all);
    write_one(t, 2, 0.25);
    assert_int_equal(tensorboard_close(t), STATUS_OK);
    size_t n = read_file(all);
    for (size_t cut = whole; cut < n; cut++) {
        put_file(all, cut);
        assert_int_equal(tensorboard_open(folder, 1, &t), STATUS_OK);
        assert_int_equal(tensorboard_close(t), STATUS_OK);
        assert_int_equal(read_file(now), whole + RESTART);
        assert_memory_equal(now, all, whole);
        /* START of step 2 */
        assert_memory_equal(now + whole + 12 + 9, "\x10\x02\x3a\x02\x08\x01", 6);
    }
    /* a file in which nothing is begins anew */
    put_file(all, 0);
    assert_int_equal(tensorboard_open(folder, 1, &t), STATUS_OK);
    assert_int_equal(tensorboard_close(t), STATUS_OK);
    assert_int_equal(read_file(now), VERSION_RECORD + RESTART);
    /* a damaged byte ends the kept part, too */
    all[whole - 10] ^= 1;
    put_file(all, n);
    assert_int_equal(tensorboard_open(folder, 1, &t), STATUS_OK);
    assert_int_equal(tensorboard_close(t), STATUS_OK);
    assert_int_equal(read_file(now), VERSION_RECORD + RESTART);
}

static void test_refused(void **state)
{
    char path[PATH_BYTES];
    tensorboard *t;
    (void)state;
    assert_int_equal(tensorboard_open(folder, -1, &t), STATUS_OK);
    assert_int_equal(tensorboard_close(t), STATUS_OK);
    assert_int_equal(tensorboard_open(folder, -1, &t), STATUS_USAGE);
    status_clear();
    find_file(path);
    FILE *f = fopen(path, "w");
    (void)fputs("no events at all, but enough text to be read", f);
    (void)fclose(f);
    assert_int_equal(tensorboard_open(folder, 5, &t), STATUS_USAGE);
    status_clear();
    assert_int_equal(tensorboard_open("/nowhere/at/all", -1, &t), STATUS_FAILED);
    status_clear();
    assert_int_equal(tensorboard_close(NULL), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksums),
        cmocka_unit_test_setup_teardown(test_bytes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_killed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refused, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
