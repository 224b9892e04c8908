/* Files that are written whole, locks on files, and lines of files. */
#include "base/lock_file.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int count_entries(const char *path)
{
    int n = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *e; (e = readdir(folder));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(folder);
    return n;
}

static void assert_holds(const char *path, const char *expected)
{
    size_t n;
    char *text = test_read_file(path, &n);
    assert_int_equal(n, strlen(expected));
    assert_memory_equal(text, expected, n);
    free(text);
}

static void test_replaces_whole(void **state)
{
    (void)state;
    char folder[PATH_MAX], path[PATH_MAX];
    struct stat about;
    assert_int_equal(mkdir(test_path(folder, "whole"), 0777), 0);
    (void)test_path(path, "whole/a");
    assert_ok(whole_file_put_text(path, "first"));
    assert_holds(path, "first");
    assert_int_equal(chmod(path, 0640), 0);
    assert_ok(whole_file_put_text(path, "second, longer"));
    assert_holds(path, "second, longer");
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    assert_int_equal(count_entries(folder), 1);
}

static enum status fail_half_way(FILE *f, void *user)
{
    (void)user;
    (void)fputs("half", f);
    return status_fail(STATUS_STOPPED, "enough");
}

static void test_failure_keeps_the_former(void **state)
{
    (void)state;
    char folder[PATH_MAX], path[PATH_MAX], *large = calloc(1, 1 << 20);
    struct rlimit before, small;
    assert_non_null(large);
    memset(large, 'x', (1 << 20) - 1);
    assert_int_equal(mkdir(test_path(folder, "kept"), 0777), 0);
    (void)test_path(path, "kept/a");
    assert_ok(whole_file_put_text(path, "first"));
    assert_fails(whole_file_write(path, fail_half_way, NULL), STATUS_STOPPED, "enough");
    assert_holds(path, "first");

    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1 << 14;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum status st = whole_file_put_text(path, large);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_fails(st, STATUS_FAILED, "kept/a: cannot write: File too large");
    assert_holds(path, "first");
    assert_int_equal(count_entries(folder), 1);
    free(large);
}

/* A link that others put beside the file is neither followed nor used. */
static void test_links(void **state)
{
    (void)state;
    char path[PATH_MAX], link[PATH_MAX], other[PATH_MAX];
    struct stat about;
    test_write_file(test_path(other, "other"), "theirs", 6);
    assert_int_equal(symlink(other, test_path(link, "a.json.tmp")), 0);
    assert_ok(whole_file_put_text(test_path(path, "a.json"), "ours"));
    assert_holds(other, "theirs");
    assert_holds(path, "ours");

    assert_int_equal(symlink("other", test_path(link, "link")), 0); /* the file's own: stays one */
    assert_ok(whole_file_put_text(link, "replaced"));
    assert_holds(other, "replaced");
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
}

static void test_streams(void **state)
{
    (void)state;
    int ends[2];
    char path[64], text[64] = {0}, file[PATH_MAX];
    assert_int_equal(pipe(ends), 0);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    assert_ok(whole_file_check_place(path));
    assert_ok(whole_file_put_text(path, "through"));
    assert_int_equal(read(ends[0], text, sizeof text), 7);
    assert_string_equal(text, "through");
    (void)close(ends[0]);
    (void)close(ends[1]);
    assert_fails(whole_file_put_text("/dev/full", "x"), STATUS_FAILED, "No space left");
    assert_ok(whole_file_put_text("/dev/null", "x"));

    /* As `>file` makes it, /dev/stdout is a file that is open: the bytes that are there stay. */
    int fd = open(test_path(file, "out"), O_WRONLY | O_CREAT, 0666);
    assert_int_equal(write(fd, "before ", 7), 7);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", fd);
    assert_ok(whole_file_put_text(path, "through"));
    assert_int_equal(write(fd, " behind", 7), 7);
    (void)close(fd);
    assert_holds(file, "before through behind");
}

static void test_places(void **state)
{
    (void)state;
    char path[PATH_MAX], other[PATH_MAX];
    assert_fails(whole_file_put_text(test_path(path, "no/file"), ""), STATUS_FAILED,
                 "No such file");
    assert_fails(whole_file_check_place(path), STATUS_FAILED, "No such file");
    assert_fails(whole_file_check_place(test_folder()), STATUS_FAILED, "Is a directory");
    assert_fails(whole_file_put_text(test_folder(), ""), STATUS_FAILED, "Is a directory");
    test_write_file(test_path(path, "input"), "x", 1);
    assert_ok(whole_file_check_place(path));
    assert_int_equal(link(path, test_path(other, "same")), 0);
    assert_fails(whole_file_check_input("-o", other, path), STATUS_USAGE, "-o ");
    assert_ok(whole_file_check_input("-o", test_path(other, "else"), path));
    assert_ok(whole_file_check_input("-o", NULL, path));
    assert_true(whole_file_is_tail(".0123abcd.tmp"));
    assert_false(whole_file_is_tail(".0123abcd.tmp2") || whole_file_is_tail(".tmp"));
}

static void test_folders(void **state)
{
    (void)state;
    char path[PATH_MAX];
    bool made = false;
    assert_ok(folder_make(test_path(path, "a/b/c"), &made));
    assert_true(made);
    assert_ok(folder_make(path, &made));
    assert_false(made);
    folder_of("/a", path);
    assert_string_equal(path, "/");
    folder_of("a", path);
    assert_string_equal(path, ".");
}

/* ---- locks ---- */

static void test_one_at_a_time(void **state)
{
    (void)state;
    char path[PATH_MAX], holder[LOCK_HOLDER_BYTES], expected[32];
    lock_file *lock, *second;
    assert_ok(lock_file_take(test_path(path, "one.lock"), holder, &lock));
    assert_non_null(lock);
    assert_ok(lock_file_take(path, holder, &second));
    assert_null(second);
    (void)snprintf(expected, sizeof expected, "process %ld on ", (long)getpid());
    assert_that(strstr(holder, expected), "'%s'", holder);
    lock_file_release(lock);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_ok(lock_file_take(path, holder, &lock));
    assert_non_null(lock);
    lock_file_release(lock);
}

static void test_lock_goes_with_its_process(void **state)
{
    (void)state;
    char path[PATH_MAX], holder[LOCK_HOLDER_BYTES], byte;
    lock_file *lock;
    int ends[2], how;
    (void)test_path(path, "killed.lock");
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        if (lock_file_take(path, holder, &lock) == STATUS_OK && lock)
            (void)!write(ends[1], "x", 1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_ok(lock_file_take(path, holder, &lock));
    assert_null(lock);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(access(path, F_OK), 0); /* the file stays, and locks nothing */
    assert_ok(lock_file_take(path, holder, &lock));
    assert_non_null(lock);
    lock_file_release(lock);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* In place of the library's: the file of a name is another one at each look, if that is asked for.
 */
static int n_others;
static bool is_another;

int lstat(const char *path, struct stat *out)
{
    int error = fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
    if (error == 0)
        out->st_ino += is_another;
    n_others += is_another;
    return error;
}

static void test_a_lock_that_is_never_the_same(void **state)
{
    (void)state;
    char path[PATH_MAX], holder[LOCK_HOLDER_BYTES];
    lock_file *lock;
    is_another = true;
    (void)alarm(20);
    assert_ok(lock_file_take(test_path(path, "changing.lock"), holder, &lock));
    assert_non_null(lock);
    assert_true(n_others > 1);
    lock_file_release(lock);
    (void)alarm(0);
    is_another = false;
}

/* ---- lines ---- */

static void test_lines(void **state)
{
    (void)state;
    char path[PATH_MAX];
    test_write_file(test_path(path, "lines"), "one\n\ntwo\0two\nthree", 18);
    FILE *f = fopen(path, "r");
    struct text_line line = {.file = path};
    static const size_t lengths[] = {4, 1, 8, 5, 0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_ok(text_next_line(f, &line));
        assert_int_equal(line.length, lengths[i]);
    }
    assert_int_equal(line.number, 5);
    free(line.text);
    (void)fclose(f);
}

/* A file of zeros is one line without an end. */
static void test_endless_line(void **state)
{
    (void)state;
    FILE *f = fopen("/dev/zero", "r");
    struct text_line line = {.file = "zeros"};
    assert_fails(text_next_line(f, &line), STATUS_FAILED, "zeros:1: a line of more than 16 MiB");
    free(line.text);
    (void)fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replaces_whole),
        cmocka_unit_test(test_failure_keeps_the_former),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_lock_goes_with_its_process),
        cmocka_unit_test(test_a_lock_that_is_never_the_same),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_endless_line),
    };
    return test_run(tests);
}
