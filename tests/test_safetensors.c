/* The safetensors reader and writer: round trip, every way a header can be wrong, every truncation,
 * every damaged byte, and a disk that refuses. */
#include "testing.h"

#include "runtime/safetensors.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

static const float weights[6] = {1.5f, -2, 3e-38f, 3e38f, 0, -0.0f};
static const float bias[2] = {7, 8};

static void write_small(const char *path, struct safetensors_sum *sum)
{
    static const struct safetensors_entry entries[] = {
        {"fc.weight", {2, {2, 3}}}, {"empty", {2, {0, 3}}}, {"fc.bias", {1, {2}}}};
    static const char *const metadata[] = {"format", "pt", "model", "tiny \"quoted\"", NULL};
    safetensors_writer *w;
    assert_ok(safetensors_writer_open(path, entries, 3, metadata, &w));
    assert_ok(safetensors_writer_put(w, weights));
    assert_ok(safetensors_writer_put(w, NULL));
    assert_ok(safetensors_writer_put(w, bias));
    assert_ok(safetensors_writer_finish(w, sum));
    safetensors_writer_close(w);
}

static void test_round_trip(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct safetensors_sum written, read;
    write_small(test_path(path, "small.safetensors"), &written);
    safetensors *f;
    assert_ok(safetensors_open(path, &f));
    assert_int_equal(safetensors_count(f), 3);
    assert_string_equal(safetensors_metadata(f, "model"), "tiny \"quoted\"");
    assert_null(safetensors_metadata(f, "nothing"));
    assert_null(safetensors_find(f, "fc"));
    const struct safetensors_tensor *t = safetensors_find(f, "fc.weight");
    assert_non_null(t);
    assert_true(t->type == SAFETENSORS_F32 && t->rank == 2 && t->dim[0] == 2 && t->dim[1] == 3);
    float got[6];
    assert_ok(safetensors_read_floats(f, t, got));
    assert_memory_equal(got, weights, sizeof weights);
    assert_ok(safetensors_read_floats(f, safetensors_find(f, "fc.bias"), got));
    assert_memory_equal(got, bias, sizeof bias);
    assert_ok(safetensors_get_sum(f, &read));
    assert_true(read.n_bytes == written.n_bytes && read.xxh64 == written.xxh64);
    safetensors_close(f);
}

/* What the format promises to other readers, byte by byte. */
static void test_bytes_are_the_format(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct safetensors_sum sum;
    size_t n_bytes;
    write_small(test_path(path, "bytes.safetensors"), &sum);
    char *bytes = test_read_file(path, &n_bytes);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | (unsigned char)bytes[i];
    assert_int_equal(length % 8, 0);
    assert_int_equal(8 + length + sizeof weights + sizeof bias, n_bytes);
    assert_true(bytes[8] == '{' && (bytes[7 + length] == ' ' || bytes[7 + length] == '}'));
    assert_memory_equal(bytes + 8 + length, weights, sizeof weights);
    assert_non_null(strstr(bytes + 8, "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],"
                                      "\"data_offsets\":[24,32]}"));
    free(bytes);
}

/* A file with this header and n_data zero bytes behind it. */
static enum status open_header(const char *header, size_t n_data)
{
    static char bytes[4096];
    size_t length = strlen(header);
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(length >> 8 * i);
    memcpy(bytes + 8, header, length + 1);
    safetensors *f = NULL;
    enum status st = safetensors_open_memory("memory", bytes, 8 + length + n_data, &f);
    if (st == STATUS_OK)
        safetensors_close(f);
    return st;
}

#define ONE(dtype, shape, offsets) \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" first "}," \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" second "}}"

static void test_good_headers(void **state)
{
    (void)state;
    assert_ok(open_header("{}", 0));
    assert_ok(open_header("{}   ", 0));
    assert_ok(open_header("{\"__metadata__\":{}}", 0));
    assert_ok(open_header(ONE("F32", "[2,2]", "[0,16]"), 16));
    assert_ok(open_header(ONE("I64", "[]", "[0,8]"), 8)); /* num_batches_tracked */
    assert_ok(open_header(ONE("BF16", "[3,0]", "[0,0]"), 0));
    assert_ok(open_header(TWO("[4,8]", "[0,4]"), 8)); /* any order in the header */
}

static void test_bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        const char *part;
    } cases[] = {
        {"", 0, "not valid JSON"},
        {"[]", 0, "not a JSON object"},
        {" {}", 0, "not a JSON object"},
        {"{} x", 0, "not valid JSON"},
        {"{\"a\":1}", 0, "entry of tensor 'a' is not an object"},
        {"{\"a\":{}}", 0, "'a' has no dtype"},
        {"{\"a\":{},\"a\":{}}", 0, "duplicate"},
        {"{\"a\\u0000b\":{}}", 0, "not valid JSON"},
        {"{\"__metadata__\":[]}", 0, "__metadata__"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "'k' is not a text"},
        {ONE("F31", "[1]", "[0,4]"), 4, "unknown dtype 'F31'"},
        {ONE("F32", "1", "[0,4]"), 4, "shape must be a list"},
        {ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "at most 8"},
        {ONE("F32", "[-1]", "[0,4]"), 4, "not a size"},
        {ONE("F32", "[1.5]", "[0,4]"), 4, "not a size"},
        {ONE("F32", "[9223372036854775807,4]", "[0,4]"), 4, "not a size"},
        {ONE("F32", "[4294967296,4294967296,4294967296]", "[0,4]"), 4, "not a size"},
        {ONE("F32", "[1]", "[0]"), 4, "two whole numbers"},
        {ONE("F32", "[1]", "[0,4,8]"), 4, "two whole numbers"},
        {ONE("F32", "[1]", "[0,\"4\"]"), 4, "two whole numbers"},
        {ONE("F32", "[1]", "[-4,0]"), 4, "corrupt"},
        {ONE("F32", "[1]", "[4,0]"), 4, "corrupt"},
        {ONE("F32", "[1]", "[0,4]"), 3, "truncated or corrupt: tensor 'a'"},
        {ONE("F32", "[2]", "[0,4]"), 4, "ask for 8"},
        {ONE("F32", "[1]", "[0,4]"), 5, "the tensors cover 4"},
        {ONE("F32", "[1]", "[4,8]"), 8, "begins at byte 4"},
        {TWO("[0,4]", "[2,6]"), 6, "begins at byte 2"},
        {TWO("[0,4]", "[0,4]"), 4, "begins at byte 0"},
        {TWO("[0,4]", "[5,9]"), 9, "begins at byte 5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum status st = open_header(cases[i].header, cases[i].n_data);
        assert_that(st == STATUS_FAILED && strstr(status_message(), cases[i].part), "case %zu: %s",
                    i, status_message());
        assert_that(strncmp(status_message(), "memory: ", 8) == 0, "case %zu names no file", i);
        status_clear();
    }
}

static void test_header_lengths(void **state)
{
    (void)state;
    safetensors *f;
    static const char huge[] = "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
    static const char large[] = "\x01\xe1\xf5\x05\0\0\0\0{}"; /* 100,000,001 */
    static const char longer[] = "\x03\0\0\0\0\0\0\0{}";
    assert_fails(safetensors_open_memory("m", huge, 10, &f), STATUS_FAILED, "at most 100000000");
    assert_fails(safetensors_open_memory("m", large, 10, &f), STATUS_FAILED, "at most 100000000");
    assert_fails(safetensors_open_memory("m", longer, 10, &f), STATUS_FAILED, "truncated");
    assert_fails(safetensors_open_memory("m", "", 0, &f), STATUS_FAILED, "0 bytes");
    assert_fails(safetensors_open_memory("m", longer, 7, &f), STATUS_FAILED, "7 bytes");
}

static void test_deep_nesting_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 1 << 20 };
    char *bytes = calloc(1, 8 + DEPTH);
    assert_non_null(bytes);
    bytes[2] = DEPTH >> 16;
    memset(bytes + 8, '[', DEPTH);
    safetensors *f;
    assert_fails(safetensors_open_memory("deep", bytes, 8 + DEPTH, &f), STATUS_FAILED,
                 "not valid JSON");
    free(bytes);
}

static void test_every_truncation_is_noticed(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct safetensors_sum sum;
    size_t n_bytes;
    write_small(test_path(path, "cut.safetensors"), &sum);
    char *bytes = test_read_file(path, &n_bytes);
    for (size_t n = 0; n < n_bytes; n++) {
        safetensors *f;
        enum status st = safetensors_open_memory("cut", bytes, n, &f);
        assert_that(st == STATUS_FAILED, "%zu of %zu bytes were taken", n, n_bytes);
        status_clear();
    }
    free(bytes);
}

/* Not every damaged byte can be seen in the format itself, but none may do harm, and each changes
 * the sum. */
static void test_every_damaged_byte_is_survived(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct safetensors_sum written, read;
    size_t n_bytes;
    write_small(test_path(path, "bad.safetensors"), &written);
    char *bytes = test_read_file(path, &n_bytes);
    for (size_t i = 0; i < n_bytes * 8; i++) {
        bytes[i / 8] ^= (char)(1 << i % 8);
        safetensors *f;
        if (safetensors_open_memory("bad", bytes, n_bytes, &f) == STATUS_OK) {
            float got[6];
            const struct safetensors_tensor *t = safetensors_find(f, "fc.weight");
            if (t && t->type == SAFETENSORS_F32 && t->n_bytes <= (int64_t)sizeof got)
                assert_ok(safetensors_read_floats(f, t, got));
            assert_ok(safetensors_get_sum(f, &read));
            assert_true(read.xxh64 != written.xxh64);
            safetensors_close(f);
        }
        status_clear();
        bytes[i / 8] ^= (char)(1 << i % 8);
    }
    free(bytes);
}

static void test_other_types_are_not_floats(void **state)
{
    (void)state;
    static const char header[] = ONE("F64", "[1]", "[0,8]");
    char bytes[8 + sizeof header - 1 + 8] = {(char)(sizeof header - 1)};
    memcpy(bytes + 8, header, sizeof header - 1);
    safetensors *f;
    float value;
    assert_ok(safetensors_open_memory("m", bytes, sizeof bytes, &f));
    assert_fails(safetensors_read_floats(f, safetensors_get(f, 0), &value), STATUS_FAILED,
                 "tensor 'a' has dtype F64");
    safetensors_close(f);
}

static void test_unreadable_files(void **state)
{
    (void)state;
    char path[PATH_MAX];
    safetensors *f;
    assert_fails(safetensors_open(test_path(path, "none"), &f), STATUS_FAILED, "No such file");
    assert_fails(safetensors_open(test_folder(), &f), STATUS_FAILED, "not a regular file");
}

static void test_unwritable_places(void **state)
{
    (void)state;
    char path[PATH_MAX];
    safetensors_writer *w;
    static const struct safetensors_entry entry = {"a", {1, {1 << 20}}};
    assert_fails(safetensors_writer_open(test_path(path, "no/folder"), &entry, 1, NULL, &w),
                 STATUS_FAILED, "No such file");
    /* /dev/full takes nothing: the header itself fails. A target that is no file is written as it
     * is. */
    assert_int_equal(symlink("/dev/full", test_path(path, "full")), 0);
    assert_fails(safetensors_writer_open(path, &entry, 1, NULL, &w), STATUS_FAILED,
                 "No space left");
    assert_int_equal(access(path, F_OK), 0);
}

static void test_failed_write_leaves_nothing(void **state)
{
    (void)state;
    char path[PATH_MAX];
    safetensors_writer *w;
    struct safetensors_sum sum;
    enum { COUNT = 1 << 18 };
    static const struct safetensors_entry entry = {"a", {1, {COUNT}}};
    float *values = calloc(COUNT, sizeof *values);
    assert_non_null(values);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1 << 16;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum status opened =
        safetensors_writer_open(test_path(path, "large.safetensors"), &entry, 1, NULL, &w);
    enum status put = opened == STATUS_OK ? safetensors_writer_put(w, values) : opened;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(opened, STATUS_OK);
    assert_fails(put, STATUS_FAILED, "large.safetensors: cannot write: File too large");
    safetensors_writer_close(w);
    assert_int_not_equal(access(path, F_OK), 0);

    /* Nor does one that was given up before it was finished. */
    assert_ok(safetensors_writer_open(path, &entry, 1, NULL, &w));
    assert_fails(safetensors_writer_finish(w, &sum), STATUS_FAILED, "0 of 1 tensors");
    safetensors_writer_close(w);
    assert_int_not_equal(access(path, F_OK), 0);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_bytes_are_the_format),
        cmocka_unit_test(test_good_headers),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_header_lengths),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_every_truncation_is_noticed),
        cmocka_unit_test(test_every_damaged_byte_is_survived),
        cmocka_unit_test(test_other_types_are_not_floats),
        cmocka_unit_test(test_unreadable_files),
        cmocka_unit_test(test_unwritable_places),
        cmocka_unit_test(test_failed_write_leaves_nothing),
    };
    return test_run(tests);
}
