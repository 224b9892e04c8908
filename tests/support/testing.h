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
 * The folder of test_folder() is made at the first call and removed with its content at the end of
 * test_run. Files under version control are found under TESTS_DIR "/fixtures/...".
 */
#ifndef CLEAVE_TESTS_TESTING_H
#define CLEAVE_TESTS_TESTING_H

#include "base/status.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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

/* ---- how much of a test is run ---- */

/* Memory and time are those of a sanitizer (address or thread). */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define TEST_UNDER_SANITIZER 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_UNDER_SANITIZER 1
#endif
#endif
#ifndef TEST_UNDER_SANITIZER
#define TEST_UNDER_SANITIZER 0
#endif

/* Ends the test as skipped and prints "SKIP: reason", which tools/test.sh lists at the end. */
#define skip_because(...)           \
    do {                            \
        print_message("SKIP: ");    \
        print_message(__VA_ARGS__); \
        print_message("\n");        \
        skip();                     \
    } while (0)

/* CLEAVE_TEST_ALL=1 in the environment, as 'make test-all' sets it: large matrices run whole. */
bool test_runs_all(void);

/* CLEAVE_TEST_SEED from the environment, else 1: the seed of all random choices of a test. */
uint64_t test_seed(void);

/* CLEAVE_TEST_CASES from the environment, else `n`, and ten times as many with CLEAVE_TEST_ALL=1.
 */
long long test_count(long long n);

/* A seeded sample spread evenly over a large matrix, or all of it with CLEAVE_TEST_ALL=1:
 *
 *     struct test_sample sample = test_sample("plans on cpu", n_all, 40);
 *     for (...) // n_all cases
 *         if (test_sample_takes(&sample)) // asked once a case, in the same order every time
 *             ...
 *
 * Prints how many cases it takes and the seed that takes the same ones again. */
struct test_sample {
    uint64_t seed;
    int n_all, n_wanted, n_seen;
};

struct test_sample test_sample(const char *what, int n_all, int n_wanted);

bool test_sample_takes(struct test_sample *s);

/* ---- files ---- */

/* A temporary folder of this test program. */
const char *test_folder(void);

/* The path of `name` inside the temporary folder, in `buffer`, which is returned. */
const char *test_path(char buffer[PATH_MAX], const char *name);

/* Makes the folder `name` inside the temporary folder. */
void test_make_folder(const char *name);

void test_write_file(const char *path, const void *bytes, size_t n_bytes);

/* The whole file, ended with a zero byte that is not counted; the caller frees it. */
char *test_read_file(const char *path, size_t *n_bytes);

int test_remove_folder(void **state);

/* In a child process, which cannot use cmocka's checks: prints the failed condition, and returns 1.
 */
#define child_check(condition)                                                        \
    do {                                                                              \
        if (!(condition)) {                                                           \
            print_error("line %d: %s: %s\n", __LINE__, #condition, status_message()); \
            return 1;                                                                 \
        }                                                                             \
    } while (0)

/* How often this thread went to sleep. Unlike its share of a core, that does not depend on
 * other programs: a thread that gives its core away does not sleep. */
long test_count_sleeps(void);

/* Runs an array of struct CMUnitTest; the value for main to return. */
#define test_run(tests) cmocka_run_group_tests(tests, NULL, test_remove_folder)

#endif
