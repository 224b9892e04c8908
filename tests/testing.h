/* testing.h: what every test program includes; cmocka and the few things it lacks.
 *
 *     #include "testing.h"
 *
 *     static void test_reads_labels(void **state)
 *     {
 *         (void)state;
 *         char path[PATH_MAX];
 *         test_write_file(test_path(path, "labels"), "\0\0\x08\x01", 4);
 *         assert_ok(idx_open(path, &idx));
 *         assert_fails(idx_open("nowhere", &idx), STATUS_FAILED, "nowhere");
 *         assert_near(loss, 2.3026, 1e-4);
 *     }
 *
 *     int main(void)
 *     {
 *         const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads_labels)};
 *         return test_run(tests);
 *     }
 *
 * The folder of test_folder() is made at the first call and removed, with what is in it, at the end
 * of test_run. Files under version control are found under TESTS_DIR "/fixtures/...".
 */
#ifndef CLEAVE_TESTS_TESTING_H
#define CLEAVE_TESTS_TESTING_H

#include "base/status.h"

#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h> /* needs the standard headers before it */

/* The expression gives STATUS_OK; otherwise the recorded message and trace are shown. */
#define assert_ok(expression) test_check_ok((expression), #expression, __FILE__, __LINE__)

/* The expression fails with `status` and its message contains `part`; clears the error. */
#define assert_fails(expression, status, part) \
    test_check_fails((expression), (status), (part), #expression, __FILE__, __LINE__)

/* |actual - expected| <= tolerance * max(1, |expected|). NaN is near nothing. */
#define assert_near(actual, expected, tolerance)                                                  \
    test_check_near((double)(actual), (double)(expected), (double)(tolerance), #actual, __FILE__, \
                    __LINE__)

/* Like assert_true, with a printf-style message: for loops, where the case must be named. */
#define assert_that(condition, ...)          \
    do {                                     \
        if (!(condition)) {                  \
            print_error("%s: ", #condition); \
            print_error(__VA_ARGS__);        \
            print_error("\n");               \
            _fail(__FILE__, __LINE__);       \
        }                                    \
    } while (0)

static inline void test_check_ok(enum status status, const char *what, const char *file, int line)
{
    if (status == STATUS_OK)
        return;
    print_error("%s: status %d: %s\n%s", what, (int)status, status_message(), status_trace_text());
    status_clear();
    _fail(file, line);
}

static inline void test_check_fails(enum status status, enum status expected, const char *part,
                                    const char *what, const char *file, int line)
{
    if (status == expected && strstr(status_message(), part)) {
        status_clear();
        return;
    }
    print_error("%s: expected status %d and '%s', got status %d and '%s'\n", what, (int)expected,
                part, (int)status, status_message());
    status_clear();
    _fail(file, line);
}

static inline void test_check_near(double actual, double expected, double tolerance,
                                   const char *what, const char *file, int line)
{
    if (fabs(actual - expected) <= tolerance * fmax(1.0, fabs(expected)))
        return;
    print_error("%s: %.17g is not within %g of %.17g\n", what, actual, tolerance, expected);
    _fail(file, line);
}

/* A number from the environment: how many cases, which seed. */
static inline long long test_number(const char *name, long long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static char test_folder_path[PATH_MAX / 2];

/* A temporary folder of this test program. */
static inline const char *test_folder(void)
{
    if (!test_folder_path[0]) {
        const char *top = getenv("TMPDIR");
        (void)snprintf(test_folder_path, sizeof test_folder_path, "%s/cleave-test.XXXXXX",
                       top && *top ? top : "/tmp");
        if (!mkdtemp(test_folder_path)) {
            test_folder_path[0] = '\0';
            fail_msg("cannot make a temporary folder");
        }
    }
    return test_folder_path;
}

/* The path of `name` inside the temporary folder, in `buffer`, which is returned. */
static inline const char *test_path(char buffer[PATH_MAX], const char *name)
{
    (void)snprintf(buffer, PATH_MAX, "%s/%s", test_folder(), name);
    return buffer;
}

static inline void test_write_file(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        fail_msg("%s: cannot write", path);
    size_t written = fwrite(bytes, 1, n_bytes, f);
    if (fclose(f) != 0 || written != n_bytes)
        fail_msg("%s: cannot write %zu bytes", path, n_bytes);
}

/* The whole file, ended with a zero byte that is not counted; the caller frees it. */
static inline char *test_read_file(const char *path, size_t *n_bytes)
{
    FILE *f = fopen(path, "rb");
    struct stat info = {0};
    if (!f || fstat(fileno(f), &info) != 0)
        fail_msg("%s: cannot read", path);
    char *bytes = calloc(1, (size_t)info.st_size + 1);
    if (!bytes || fread(bytes, 1, (size_t)info.st_size, f) != (size_t)info.st_size)
        fail_msg("%s: cannot read %lld bytes", path, (long long)info.st_size);
    (void)fclose(f);
    if (n_bytes)
        *n_bytes = (size_t)info.st_size;
    return bytes;
}

static inline int test_remove_entry(const char *path, const struct stat *info, int type,
                                    struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline int test_allow_entry(const char *path, const struct stat *info, int type,
                                   struct FTW *walk)
{
    (void)walk;
    /* A test of a read-only folder must not leave it behind. */
    return type == FTW_D ? chmod(path, info->st_mode | S_IRWXU) : 0;
}

static inline int test_remove_folder(void **state)
{
    (void)state;
    if (test_folder_path[0]) {
        (void)nftw(test_folder_path, test_allow_entry, 16, FTW_PHYS);
        (void)nftw(test_folder_path, test_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        test_folder_path[0] = '\0';
    }
    return 0;
}

/* In a child process, which cannot use cmocka's checks: says what is wrong, and returns 1. */
#define child_check(condition)                                                        \
    do {                                                                              \
        if (!(condition)) {                                                           \
            print_error("line %d: %s: %s\n", __LINE__, #condition, status_message()); \
            return 1;                                                                 \
        }                                                                             \
    } while (0)

/* CLEAVE_TEST_CASE=PATTERN in the environment runs only the tests whose names match (* and ?),
 * before main so that programs that call cmocka themselves follow it, too. */
__attribute__((constructor)) static inline void test_choose_case(void)
{
    const char *pattern = getenv("CLEAVE_TEST_CASE");
    if (pattern)
        cmocka_set_test_filter(pattern);
}

/* How often this thread went to sleep. Unlike its share of a core, that does not depend on what
 * else runs: who gives a core away does not sleep. */
static inline long test_count_sleeps(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

/* Runs an array of struct CMUnitTest; the value for main to return. */
#define test_run(tests) cmocka_run_group_tests(tests, NULL, test_remove_folder)

#endif
