#include "testing.h"

#include "base/random.h"

#include <ftw.h>

void test_check_ok(enum status status, const char *what, const char *file, int line)
{
    if (status == STATUS_OK)
        return;
    print_error("%s: status %d: %s\n%s", what, (int)status, status_message(), status_trace_text());
    status_clear();
    _fail(file, line);
}

void test_check_fails(enum status status, enum status expected, const char *part, const char *what,
                      const char *file, int line)
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

void test_check_near(double actual, double expected, double tolerance, const char *what,
                     const char *file, int line)
{
    if (fabs(actual - expected) <= tolerance * fmax(1.0, fabs(expected)))
        return;
    print_error("%s: %.17g is not within %g of %.17g\n", what, actual, tolerance, expected);
    _fail(file, line);
}

bool test_runs_all(void)
{
    const char *all = getenv("CLEAVE_TEST_ALL");
    return all && *all == '1';
}

/* A number from the environment. */
static long long test_number(const char *name, long long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

uint64_t test_seed(void)
{
    return (uint64_t)test_number("CLEAVE_TEST_SEED", 1);
}

long long test_count(long long n)
{
    return test_number("CLEAVE_TEST_CASES", test_runs_all() ? 10 * n : n);
}

struct test_sample test_sample(const char *what, int n_all, int n_wanted)
{
    struct test_sample s = {.seed = test_seed(), .n_all = n_all, .n_wanted = n_wanted};
    if (test_runs_all() || n_wanted > n_all)
        s.n_wanted = n_all;
    print_message("%s: %d of %d cases, CLEAVE_TEST_SEED=%llu\n", what, s.n_wanted, n_all,
                  (unsigned long long)s.seed);
    return s;
}

/* The matrix is cut into as many stretches as cases are wanted, of which each gives one. */
bool test_sample_takes(struct test_sample *s)
{
    int64_t n = s->n_all, k = s->n_wanted, i = s->n_seen++, stretch = i * k / n;
    struct random_key key = {.seed = s->seed, .use = RANDOM_TEST, .stream = 55};
    int64_t first = (stretch * n + k - 1) / k, end = ((stretch + 1) * n + k - 1) / k;
    assert_true(i < n);
    return i == first + random_word(key, 0, (uint64_t)stretch) % (end - first);
}

static char test_folder_path[PATH_MAX / 2];

const char *test_folder(void)
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

const char *test_path(char buffer[PATH_MAX], const char *name)
{
    (void)snprintf(buffer, PATH_MAX, "%s/%s", test_folder(), name);
    return buffer;
}

void test_make_folder(const char *name)
{
    char path[PATH_MAX];
    assert_int_equal(mkdir(test_path(path, name), 0777), 0);
}

void test_write_file(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        fail_msg("%s: cannot write", path);
    size_t written = fwrite(bytes, 1, n_bytes, f);
    if (fclose(f) != 0 || written != n_bytes)
        fail_msg("%s: cannot write %zu bytes", path, n_bytes);
}

char *test_read_file(const char *path, size_t *n_bytes)
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

static int test_remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static int test_allow_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)walk;
    /* A test of a read-only folder must not leave it behind. */
    return type == FTW_D ? chmod(path, info->st_mode | S_IRWXU) : 0;
}

int test_remove_folder(void **state)
{
    (void)state;
    if (test_folder_path[0]) {
        (void)nftw(test_folder_path, test_allow_entry, 16, FTW_PHYS);
        (void)nftw(test_folder_path, test_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        test_folder_path[0] = '\0';
    }
    return 0;
}

/* CLEAVE_TEST_CASE=PATTERN in the environment runs only the tests whose names match (* and ?),
 * before main so that programs that call cmocka themselves follow it, too. */
__attribute__((constructor)) static void test_choose_case(void)
{
    const char *pattern = getenv("CLEAVE_TEST_CASE");
    if (pattern)
        cmocka_set_test_filter(pattern);
}

long test_count_sleeps(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}
