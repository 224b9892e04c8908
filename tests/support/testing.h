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

void test_check_ok(enum status status, const char *what, const char *file, int line);

void test_check_fails(enum status status, enum status expected, const char *part, const char *what,
                      const char *file, int line);

void test_check_near(double actual, double expected, double tolerance, const char *what,
                     const char *file, int line);

/* A number from the environment: how many cases, which seed. */
long long test_number(const char *name, long long otherwise);

/* A temporary folder of this test program. */
const char *test_folder(void);

/* The path of `name` inside the temporary folder, in `buffer`, which is returned. */
const char *test_path(char buffer[PATH_MAX], const char *name);

void test_write_file(const char *path, const void *bytes, size_t n_bytes);

/* The whole file, ended with a zero byte that is not counted; the caller frees it. */
char *test_read_file(const char *path, size_t *n_bytes);

int test_remove_folder(void **state);

/* In a child process, which cannot use cmocka's checks: says what is wrong, and returns 1. */
#define child_check(condition)                                                        \
    do {                                                                              \
        if (!(condition)) {                                                           \
            print_error("line %d: %s: %s\n", __LINE__, #condition, status_message()); \
            return 1;                                                                 \
        }                                                                             \
    } while (0)

/* How often this thread went to sleep. Unlike its share of a core, that does not depend on what
 * else runs: who gives a core away does not sleep. */
long test_count_sleeps(void);

/* Runs an array of struct CMUnitTest; the value for main to return. */
#define test_run(tests) cmocka_run_group_tests(tests, NULL, test_remove_folder)

#endif
