/* src/base: status, arena, array, numbers, text, random, progress. */
#include "base/arena.h"
#include "base/array.h"
#include "base/json.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/random.h"
#include "base/status.h"
#include "base/text.h"
#include "base/timer.h"
#include "testing.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>

/* ---- status ---------------------------------------------------------------------------------- */

static enum status fail_deep(void)
{
    return status_fail(STATUS_USAGE, "batch %d", 0);
}

static enum status fail_through_try(void)
{
    TRY(fail_deep());
    return STATUS_OK;
}

static enum status fail_through_goto(bool *cleaned)
{
    enum status st;
    TRY_GOTO(st, fail_through_try(), out);
out:
    *cleaned = true;
    return st;
}

static void test_first_error_wins(void **state)
{
    (void)state;
    status_clear();
    assert_string_equal(status_message(), "");
    assert_string_equal(status_trace_text(), "");
    assert_int_equal(status_fail(STATUS_FAILED, "first"), STATUS_FAILED);
    assert_int_equal(status_fail(STATUS_USAGE, "second"), STATUS_USAGE);
    assert_string_equal(status_message(), "first");
    status_clear();
    assert_string_equal(status_message(), "");
    assert_int_equal(status_no_memory(12345), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "12345"));
    status_clear();
}

static void test_content_is_told_from_the_system(void **state)
{
    (void)state;
    struct status_error error;
    status_clear();
    assert_false(status_is_of_content());
    assert_int_equal(status_fail_content("row %d", 3), STATUS_FAILED);
    assert_true(status_is_of_content());
    assert_int_equal(status_no_memory(7), STATUS_FAILED); /* the first one counts */
    assert_true(status_is_of_content());
    status_take(STATUS_FAILED, &error);
    assert_false(status_is_of_content());
    assert_int_equal(status_no_memory(7), STATUS_FAILED);
    assert_int_equal(status_fail_content("row 4"), STATUS_FAILED);
    assert_int_equal(status_give(&error), STATUS_FAILED);
    assert_false(status_is_of_content());
    status_clear();
    assert_int_equal(status_give(&error), STATUS_FAILED);
    assert_true(status_is_of_content());
    assert_string_equal(status_message(), "row 3");
    status_clear();
}

static void test_trace_names_each_level(void **state)
{
    (void)state;
    bool cleaned = false;
    assert_int_equal(fail_through_goto(&cleaned), STATUS_USAGE);
    assert_true(cleaned);
    assert_string_equal(status_message(), "batch 0");
    int n_lines = 0;
    for (const char *p = status_trace_text(); (p = strstr(p, "test_base.c:")); p++)
        n_lines++;
    assert_int_equal(n_lines, 2);
    /* A failure anew starts a trace anew. */
    status_clear();
    assert_int_equal(fail_deep(), STATUS_USAGE);
    assert_string_equal(status_trace_text(), "");
    status_clear();
}

static void test_long_trace_and_message_are_cut(void **state)
{
    (void)state;
    char text[4096];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    enum status st = status_fail(STATUS_FAILED, "%s", text);
    assert_in_range(strlen(status_message()), 500, sizeof(struct status_error));
    (void)status_trace(st, "innermost.c", 1);
    for (int i = 0; i < 1000; i++)
        (void)status_trace(st, "caller.c", i);
    assert_int_equal(strncmp(status_trace_text(), "innermost.c:1\n", 14), 0);
    assert_int_equal(status_trace_text()[strlen(status_trace_text()) - 1], '\n');
    status_clear();
}

static void *fail_in_thread(void *argument)
{
    struct status_error *error = argument;
    status_take(status_fail(STATUS_LOST, "worker 3 is gone"), error);
    return *status_message() ? argument : NULL; /* taken: nothing may be left */
}

static void test_error_moves_between_threads(void **state)
{
    (void)state;
    struct status_error error;
    pthread_t thread;
    void *left = &error;
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, &error), 0);
    assert_int_equal(pthread_join(thread, &left), 0);
    assert_null(left);
    assert_string_equal(status_message(), ""); /* errors are per thread */
    assert_fails(status_give(&error), STATUS_LOST, "worker 3 is gone");
    error.status = STATUS_OK;
    assert_ok(status_give(&error));
    /* A status whose message was never recorded still arrives. */
    status_take(STATUS_TIMEOUT, &error);
    assert_int_equal(error.status, STATUS_TIMEOUT);
    assert_fails(status_give(&error), STATUS_TIMEOUT, "");
}

/* ---- arena ----------------------------------------------------------------------------------- */

static void test_arena_blocks_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    arena *a;
    unsigned char *blocks[COUNT];
    size_t sum = 0;
    assert_ok(arena_create(&a));
    for (size_t i = 0; i < COUNT; i++) {
        size_t n_bytes = i * 37 % 301;
        assert_ok(arena_alloc(a, n_bytes, &blocks[i]));
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t k = 0; k < n_bytes; k++)
            assert_int_equal(blocks[i][k], 0);
        memset(blocks[i], (int)(i % 251) + 1, n_bytes);
        sum += n_bytes;
    }
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = 0; k < i * 37 % 301; k++)
            assert_int_equal(blocks[i][k], i % 251 + 1);
    assert_in_range(arena_used_bytes(a), sum, sum + 16 * COUNT);
    arena_destroy(a);
    arena_destroy(NULL);
}

static void test_arena_takes_large_and_refuses_absurd(void **state)
{
    (void)state;
    arena *a;
    char *large, *small;
    void *p;
    assert_ok(arena_create(&a));
    assert_ok(arena_alloc(a, 1 << 20, &large));
    large[(1 << 20) - 1] = 1;
    assert_ok(arena_alloc(a, 1, &small));
    assert_fails(arena_alloc(a, SIZE_MAX, &p), STATUS_FAILED, "out of memory");
    assert_fails(arena_alloc(a, SIZE_MAX - 8, &p), STATUS_FAILED, "out of memory");
    assert_fails(arena_alloc_array(a, SIZE_MAX / 4, 8, &p), STATUS_FAILED, "out of memory");
    assert_ok(arena_alloc_array(a, 3, 8, &p)); /* still usable */
    arena_destroy(a);
}

/* After a reset blocks are zeroed, too, and lie in the old memory. */
static void test_arena_reset(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    arena *a;
    unsigned char *blocks[COUNT];
    int again = 0;
    assert_ok(arena_create(&a));
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            unsigned char *before = round ? blocks[i] : NULL;
            size_t n_bytes = 1 + i * 977 % 100000;
            assert_ok(arena_alloc(a, n_bytes, &blocks[i]));
            for (size_t k = 0; k < n_bytes; k++)
                assert_int_equal(blocks[i][k], 0);
            memset(blocks[i], 1, n_bytes);
            again += before == blocks[i];
        }
        arena_reset(a);
        assert_int_equal(arena_used_bytes(a), 0);
    }
    assert_true(again > 0);
    arena_destroy(a);
}

static void test_arena_text(void **state)
{
    (void)state;
    arena *a;
    const char *copy, *printed;
    char source[] = "conv1";
    assert_ok(arena_create(&a));
    assert_ok(arena_copy_text(a, source, &copy));
    source[0] = 'X';
    assert_string_equal(copy, "conv1");
    assert_ok(arena_print(a, &printed, "%s.%d", copy, 42));
    assert_string_equal(printed, "conv1.42");
    assert_ok(arena_copy_text(a, "", &copy));
    assert_string_equal(copy, "");
    arena_destroy(a);
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *const models[] = {"mlp", "lenet5", "vgg11", "resnet18", "resnet152", NULL};

static void test_nearest_name(void **state)
{
    (void)state;
    assert_string_equal(text_nearest("resnt18", models), "resnet18");   /* one missing */
    assert_string_equal(text_nearest("reesnet18", models), "resnet18"); /* one too many */
    assert_string_equal(text_nearest("resent18", models), "resnet18");  /* neighbours swapped */
    assert_string_equal(text_nearest("RESNET152", models), "resnet152");
    assert_string_equal(text_nearest("lenet", models), "lenet5");
    assert_string_equal(text_nearest("mpl", models), "mlp");
    assert_string_equal(text_nearest("vgg", models), "vgg11"); /* its beginning */
    assert_string_equal(text_nearest("VGG11-with-batch-norm", models), "vgg11");
    assert_null(text_nearest("vg", models)); /* too short to say */
    const char *const devices[] = {"p100", "a100-40", "A100-80", "h100", NULL};
    char text[200];
    assert_string_equal(text_nearest("a100", devices), "a100-40"); /* more of it, not p100 */
    assert_string_equal(text_unknown(text, sizeof text, "device", "a100", devices),
                        "unknown device 'a100': did you mean 'a100-40' or 'A100-80'? (allowed: "
                        "p100, a100-40, A100-80, h100)");
    assert_null(text_nearest("transformer", models));
    assert_null(text_nearest("", models));
    static const char *const options[] = {"--batches", "--batch", NULL};
    assert_string_equal(text_nearest("--batch-size", options), "--batch");
    assert_null(text_nearest("--", options)); /* dashes are no beginning */
    char huge[1000];
    memset(huge, 'r', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    assert_null(text_nearest(huge, models));
}

static void test_unknown_name_says_what_is_allowed(void **state)
{
    (void)state;
    assert_fails(text_fail_unknown("model", "resnt18", models), STATUS_USAGE,
                 "unknown model 'resnt18': did you mean 'resnet18'?");
    assert_fails(text_fail_unknown("model", "resnt18", models), STATUS_USAGE,
                 "mlp, lenet5, vgg11, resnet18, resnet152");
    assert_int_equal(text_fail_unknown("model", "transformer", models), STATUS_USAGE);
    assert_null(strstr(status_message(), "did you mean"));
    status_clear();
}

/* ---- control characters ---- */

static void test_printable(void **state)
{
    static const struct {
        const char *text, *printed;
    } cases[] = {
        {"plain", "plain"},
        {"", ""},
        {"a\x1b[31mb\x07", "a\\x1b[31mb\\x07"},
        {"line\nnext\tcell\r", "line\\nnext\\tcell\\r"},
        {"a\x7f", "a\\x7f"},
        {"Grüße 漢 😀", "Grüße 漢 😀"},
        {"\xc2\x9b[31m", "\\xc2\\x9b[31m"}, /* CSI as a character */
        {"\x9b[31m", "\\x9b[31m"},          /* and as a byte */
        {"latin \xe9t\xe9", "latin \\xe9t\\xe9"},
        {"cut \xe6\xbc", "cut \\xe6\\xbc"},
        {"\xc0\x80 \xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xff",
         "\\xc0\\x80 \\xe0\\x80\\x80 \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xff"}, /* overlong,
                                                                                      surrogate */
        {"a\\b", "a\\b"},
    };
    (void)state;
    char out[80], again[80], small[6];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        printable_copy(out, sizeof out, cases[i].text);
        assert_string_equal(out, cases[i].printed);
        printable_copy(again, sizeof again, out);
        assert_string_equal(again, out);
        assert_int_equal(printable_is(cases[i].text), strcmp(cases[i].text, out) == 0);
    }
    printable_copy(small, sizeof small, "abcé漢"); /* no character is cut */
    assert_string_equal(small, "abcé");
    printable_copy(small, sizeof small, "abc\x1b");
    assert_string_equal(small, "abc");
}

static char logged[100];

static void keep_line(void *user, const char *line)
{
    (void)user;
    (void)snprintf(logged, sizeof logged, "%s", line);
}

static void test_messages_are_printable(void **state)
{
    (void)state;
    assert_fails(status_fail(STATUS_FAILED, "%s: cannot open", "a\x1b[2J\nb"), STATUS_FAILED,
                 "a\\x1b[2J\\nb: cannot open");
    log_set_sink(keep_line, NULL);
    log_warn("%s", "a\x1b[2J");
    log_set_sink(NULL, NULL);
    assert_string_equal(logged, "a\\x1b[2J");
}

/* ---- JSON ---- */

static void open_json(struct json_text *t, const char *text, bool says_paths)
{
    *t = (struct json_text){.name = "f",
                            .what = "thing",
                            .text = text,
                            .n_bytes = strlen(text),
                            .says_paths = says_paths};
    assert_ok(json_open(t));
}

static void test_json_values(void **state)
{
    static const char *const words[] = {"red", "green", NULL};
    struct json_text t;
    const char *text = "default";
    int number = 7, choice = 0;
    double real = 0;
    bool flag = false;
    (void)state;
    open_json(&t, "{\"a\": [1, {\"b\": 2.5}], \"c\": \"green\", \"d\": true}", false);
    struct json_place top = json_top(&t), a = json_member(top, "a");
    assert_ok(json_check_object(top, NULL));
    assert_ok(json_check_list(a, 2, 2));
    assert_ok(json_read_int(json_element(a, 0), 0, 1, &number));
    assert_ok(json_read_real(json_member(json_element(a, 1), "b"), &real));
    assert_ok(json_read_choice(json_member(top, "c"), words, &choice));
    assert_ok(json_read_bool(json_member(top, "d"), &flag));
    assert_true(number == 1 && real == 2.5 && choice == 1 && flag);
    /* without a value the default stays */
    assert_ok(json_read_text(json_member(top, "none"), &text));
    assert_ok(json_read_int(json_element(a, 9), 0, 1, &number));
    assert_ok(json_read_bool(json_member(json_element(a, 0), "none"), &flag));
    assert_string_equal(text, "default");
    assert_true(number == 1 && flag);
    json_close(&t);
}

static void test_json_blames_the_file_or_the_request(void **state)
{
    (void)state;
    struct json_text t = {.name = "f", .text = "{\"a\": 1", .n_bytes = 7, .typed = true};
    assert_fails(json_open(&t), STATUS_USAGE, "f:1: column");
    t.typed = false;
    assert_fails(json_open(&t), STATUS_FAILED, "f:1: column");
    t.text = "[\"a\\u0000b\"]";
    t.n_bytes = strlen(t.text);
    assert_int_equal(json_open(&t), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "the character \\u0000 is not allowed in a text"));
    assert_null(strstr(status_message(), "JSON_ALLOW_NUL"));
    status_clear();
    open_json(&t, "{\"name\": \"a\\u001b[31m\"}", false);
    const char *text = "default";
    assert_fails(json_read_text(json_member(json_top(&t), "name"), &text), STATUS_FAILED,
                 "name must be text without control characters");
    assert_fails(json_refuse(json_top(&t), "of another network"), STATUS_USAGE,
                 "f:1: of another network");
    json_close(&t);
}

static void test_json_errors(void **state)
{
    static const char *const keys[] = {"alpha", NULL};
    struct json_text t = {.name = "f", .text = "{\n\"a\" 1}", .n_bytes = 8};
    int number;
    (void)state;
    assert_fails(json_open(&t), STATUS_FAILED, "f:2: column");
    open_json(&t, "{\"a,]\\\"\": \"}\",\n\"list\": [[1, 2],\n\"x\"],\n\"alpa\": 0}", true);
    struct json_place top = json_top(&t), list = json_member(top, "list");
    assert_fails(json_read_int(json_element(list, 1), 0, 9, &number), STATUS_FAILED,
                 "f:3: list/1 must be a whole number from 0 to 9");
    assert_fails(json_fail(json_element(json_element(list, 0), 1), "no"), STATUS_FAILED,
                 "f:2: list/0/1: no");
    assert_fails(json_check_object(list, NULL), STATUS_FAILED, "f:2: list must be an object");
    assert_fails(json_check_list(top, 0, SIZE_MAX), STATUS_FAILED, "f:1: a thing must be a list");
    assert_fails(json_check_version(top, "alpa", 1, 1), STATUS_FAILED,
                 "f:4: alpa: the thing is of");
    assert_fails(json_check_version(top, "none", 1, 2), STATUS_FAILED, "f:1: this is no thing");
    assert_fails(json_fail_unknown(json_member(top, "alpa"), "key", "alpa", keys), STATUS_FAILED,
                 "f:4: alpa: unknown key 'alpa': did you mean 'alpha'? (allowed: alpha)");
    json_close(&t);
}

static void test_parse_integer(void **state)
{
    (void)state;
    int64_t value = 7;
    assert_ok(text_parse_integer("--batch", "64", 1, 100, &value));
    assert_int_equal(value, 64);
    assert_ok(text_parse_integer("--offset", "-9223372036854775808", INT64_MIN, 0, &value));
    assert_true(value == INT64_MIN);
    value = 7;
    static const char *const bad[] = {"", "0", "101", "64x", "6 4", "1e1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(text_parse_integer("--batch", bad[i], 1, 100, &value), STATUS_USAGE,
                     "must be a whole number from 1 to 100");
    assert_fails(text_parse_integer("--batch", "0", 1, 100, &value), STATUS_USAGE, "--batch '0'");
    assert_int_equal(value, 7); /* untouched by failures */
}

static void test_parse_real(void **state)
{
    (void)state;
    double value = 7;
    assert_ok(text_parse_real("--lr", "0.05", 0, 10, &value));
    assert_near(value, 0.05, 1e-15);
    assert_ok(text_parse_real("--lr", "1e-4", 0, 10, &value));
    assert_near(value, 1e-4, 1e-15);
    static const char *const bad[] = {"", "-1", "11", "0.1x", "nan", "inf", "1e999", "zero"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(text_parse_real("--lr", bad[i], 0, 10, &value), STATUS_USAGE,
                     "must be a number from 0 to 10");
    assert_fails(text_parse_real("--lr", "0,1", 0, 10, &value), STATUS_USAGE, "with a point");
}

static void test_array(void **state)
{
    (void)state;
    arena *memory;
    assert_ok(arena_create(&memory));
    for (int k = 0; k < 2; k++) { /* on the heap, in the arena */
        int *items = NULL, capacity = 0;
        for (int n = 0; n < 1000; n++) {
            int before = capacity;
            assert_ok(array_reserve(k ? memory : NULL, &items, n + 1, &capacity, sizeof *items));
            assert_true(capacity > n && (capacity == before || capacity >= 2 * before));
            items[n] = n;
        }
        assert_ok(array_reserve(k ? memory : NULL, &items, 5000, &capacity, sizeof *items));
        assert_int_equal(capacity, 5000);
        for (int n = 0; n < 1000; n++)
            assert_int_equal(items[n], n);
        assert_int_equal(array_reserve(k ? memory : NULL, &items, INT_MAX, &capacity, SIZE_MAX / 4),
                         STATUS_FAILED);
        status_clear();
        assert_int_equal(capacity, 5000);
        if (!k)
            free(items);
    }
    arena_destroy(memory);
}

static void test_median(void **state)
{
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    int64_t times[] = {5, 1, 2, 4};
    assert_near(numbers_median(odd, 3), 2, 0);
    assert_near(numbers_median(even, 4), 2.5, 0);
    assert_near(numbers_median(even, 0), 0, 0);
    assert_near(numbers_median_ns(times, 4), 3, 0);
    assert_near(numbers_median_ns(times, 0), 0, 0);
}

static void test_numbers_for_people(void **state)
{
    (void)state;
    static const struct {
        const char *(*print)(char *, size_t, double);
        double value;
        const char *expected;
    } cases[] = {
        {text_bytes, 0, "0 B"},
        {text_bytes, 999, "999 B"},
        {text_bytes, 1500, "1.50 KB"},
        {text_bytes, 1.2345e9, "1.23 GB"},
        {text_bytes, 999.6e3, "1.00 MB"},
        {text_bytes, 12.34e6, "12.3 MB"},
        {text_bytes, 234.5e9, "234 GB"},
        {text_count, 11689512, "11.7 M"},
        {text_count, 12, "12"},
        {text_seconds, 1.5e-6, "1.50 us"},
        {text_seconds, 0.0123, "12.30 ms"},
        {text_seconds, 12.3, "12.30 s"},
        {text_seconds, 250, "4 min 10 s"},
        {text_seconds, 7260, "2 h 01 min"},
        {text_duration, 12.3, "12.30 s"},
        {text_duration, 250, "4.2 min"},
        {text_duration, 5399, "90.0 min"},
        {text_duration, 7260, "2.0 h"},
        {text_duration, 7 * 86400, "7.0 days"},
        {progress_time, 0.2, "1 s"},
        {progress_time, 12, "12 s"},
        {progress_time, 250, "4 min 10 s"},
    };
    char buffer[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].print(buffer, sizeof buffer, cases[i].value);
        assert_that(strcmp(text, cases[i].expected) == 0, "case %zu: '%s' for '%s'", i, text,
                    cases[i].expected);
    }
}

/* ---- random ---------------------------------------------------------------------------------- */

/* The known answers published with Random123 (kat_vectors, philox 4x32, 10 rounds). */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t *c = cases[i].counter, *k = cases[i].key;
        struct random_key key = {
            .seed = (uint64_t)k[1] << 32 | k[0], .use = c[3] >> 28, .stream = c[3] & 0x0fffffff};
        uint64_t block = (uint64_t)c[1] << 32 | c[0];
        uint32_t words[4];
        random_block(key, c[2], block, words);
        assert_memory_equal(words, cases[i].expected, sizeof words);
        if (block < UINT64_MAX / 4)
            for (uint64_t w = 0; w < 4; w++)
                assert_int_equal(random_word(key, c[2], 4 * block + w), words[w]);
    }
}

static void test_random_depends_on_every_part_of_the_key(void **state)
{
    (void)state;
    static const struct random_key keys[] = {
        {1, RANDOM_WEIGHTS, 0},        {2, RANDOM_WEIGHTS, 0},   {1ull << 32, RANDOM_WEIGHTS, 0},
        {1, RANDOM_DROPOUT, 0},        {1, RANDOM_WEIGHTS, 1},   {1, RANDOM_SHUFFLE, 0},
        {1, RANDOM_WEIGHTS, 1u << 27}, {1, RANDOM_SYNTHETIC, 7},
    };
    enum { N_KEYS = sizeof keys / sizeof *keys };
    uint64_t seen[2 * N_KEYS];
    for (size_t i = 0; i < N_KEYS; i++)
        for (uint32_t step = 0; step < 2; step++)
            seen[2 * i + step] =
                (uint64_t)random_word(keys[i], step, 0) << 32 | random_word(keys[i], step, 1);
    for (size_t i = 0; i < 2 * N_KEYS; i++)
        for (size_t j = 0; j < i; j++)
            assert_that(seen[i] != seen[j], "draws %zu and %zu are the same", i, j);
}

enum { N_DRAWS = 200000 };

static void test_uniform_moments(void **state)
{
    (void)state;
    struct random_key key = {42, RANDOM_TEST, 1};
    double sum = 0, squares = 0, neighbours = 0, before = 0;
    for (uint64_t i = 0; i < N_DRAWS; i++) {
        double u = random_uniform(key, 0, i);
        assert_true(u >= 0 && u < 1);
        double d = u - 0.5;
        sum += d;
        squares += d * d;
        neighbours += d * before;
        before = d;
    }
    /* Five standard deviations of each estimate. */
    assert_near(sum / N_DRAWS, 0, 5 * sqrt(1.0 / 12 / N_DRAWS));
    assert_near(squares / N_DRAWS, 1.0 / 12, 5 * sqrt(1.0 / 180 / N_DRAWS));
    assert_near(neighbours / N_DRAWS, 0, 5 * (1.0 / 12) / sqrt(N_DRAWS));
}

static void test_normal_moments(void **state)
{
    (void)state;
    struct random_key key = {42, RANDOM_TEST, 2};
    double power[5] = {0}, neighbours = 0, before = 0, within_one = 0;
    for (uint64_t i = 0; i < N_DRAWS; i++) {
        double x = random_normal(key, 3, i), p = 1;
        assert_true(isfinite(x));
        for (int k = 1; k <= 4; k++)
            power[k] += p *= x;
        neighbours += x * before;
        before = x;
        within_one += fabs(x) < 1;
    }
    /* Moments 0, 1, 0, 3; the variances of the estimates are 1, 2, 15, 96 over N. */
    double unit = 5 / sqrt(N_DRAWS);
    assert_true(fabs(power[1] / N_DRAWS) < unit);
    assert_true(fabs(power[2] / N_DRAWS - 1) < unit * sqrt(2));
    assert_true(fabs(power[3] / N_DRAWS) < unit * sqrt(15));
    assert_true(fabs(power[4] / N_DRAWS - 3) < unit * sqrt(96));
    assert_true(fabs(neighbours / N_DRAWS) < unit);
    assert_true(fabs(within_one / N_DRAWS - 0.6826894921) < unit * 0.466);
}

static void check_permutation(struct random_key key, uint64_t count)
{
    unsigned char *seen = calloc(count, 1);
    assert_non_null(seen);
    uint64_t n_fixed = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t place = random_permute(key, count, i);
        assert_that(place < count && !seen[place], "count %llu: place %llu of %llu",
                    (unsigned long long)count, (unsigned long long)place, (unsigned long long)i);
        seen[place] = 1;
        n_fixed += place == i;
    }
    free(seen);
    /* One fixed point is expected; more than 12 has a chance below 1e-9. */
    assert_that(count < 100 || n_fixed <= 12, "count %llu: %llu stay in place",
                (unsigned long long)count, (unsigned long long)n_fixed);
}

static void test_permutation_is_a_bijection(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1,  2,  3,   4,    5,    7,    10,   15,    16,    17,   63,
                                      64, 65, 100, 1000, 4095, 4096, 4097, 10000, 60000, 65537};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (uint32_t epoch = 0; epoch < 2; epoch++)
            check_permutation((struct random_key){7, RANDOM_SHUFFLE, epoch}, counts[i]);
    uint64_t count = (uint64_t)1 << 40; /* too many to list: it still ends and stays inside */
    for (uint64_t i = 0; i < 100; i++)
        assert_true(random_permute((struct random_key){7, RANDOM_SHUFFLE, 0}, count - 3, i) <
                    count - 3);
}

static void test_permutations_of_epochs_differ(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    uint64_t n_same = 0;
    for (uint64_t i = 0; i < COUNT; i++)
        n_same += random_permute((struct random_key){7, RANDOM_SHUFFLE, 0}, COUNT, i) ==
                  random_permute((struct random_key){7, RANDOM_SHUFFLE, 1}, COUNT, i);
    assert_in_range(n_same, 0, 12);
}

/* Each of the 24 orders of 4 elements should come up about equally often over the seeds. */
static void test_small_permutations_are_uniform(void **state)
{
    (void)state;
    enum { N_SEEDS = 24000 };
    int counts[256] = {0};
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        unsigned order = 0;
        for (uint64_t i = 0; i < 4; i++)
            order = order << 2 |
                    (unsigned)random_permute((struct random_key){seed, RANDOM_SHUFFLE, 0}, 4, i);
        counts[order]++;
    }
    int n_orders = 0;
    for (int i = 0; i < 256; i++) {
        n_orders += counts[i] > 0;
        assert_that(counts[i] == 0 || (counts[i] > 500 && counts[i] < 1500), "order %02x: %d", i,
                    counts[i]);
    }
    assert_int_equal(n_orders, 24);
}

static void test_timer_never_goes_back(void **state)
{
    (void)state;
    int64_t before_ns = timer_now_ns();
    for (int i = 0; i < 1000; i++) {
        int64_t now_ns = timer_now_ns();
        assert_true(now_ns >= before_ns);
        before_ns = now_ns;
    }
}

/* ---- progress -------------------------------------------------------------------------------- */

/* The bytes of a progress line on a terminal. */
static void show_on_terminal(int master, char *text, size_t size)
{
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY), before = dup(STDERR_FILENO);
    assert_true(terminal >= 0 && before >= 0);
    assert_true(dup2(terminal, STDERR_FILENO) >= 0);
    log_progress("half of it");
    log_progress_end();
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    struct pollfd ready = {.fd = master, .events = POLLIN};
    ssize_t n = poll(&ready, 1, 0) > 0 ? read(master, text, size - 1) : 0;
    text[n > 0 ? n : 0] = '\0';
    (void)close(before);
    (void)close(terminal);
}

/* A program that uses the library has its stderr to itself. */
static void test_progress_is_for_the_program(void **state)
{
    (void)state;
    char text[256];
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        skip_because("this host has no pseudo terminal");
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    show_on_terminal(master, text, sizeof text);
    assert_string_equal(text, "");
    log_allow_progress();
    show_on_terminal(master, text, sizeof text);
    assert_non_null(strstr(text, "half of it"));
    (void)close(master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_error_wins),
        cmocka_unit_test(test_content_is_told_from_the_system),
        cmocka_unit_test(test_trace_names_each_level),
        cmocka_unit_test(test_long_trace_and_message_are_cut),
        cmocka_unit_test(test_error_moves_between_threads),
        cmocka_unit_test(test_arena_blocks_are_zeroed_aligned_and_apart),
        cmocka_unit_test(test_arena_takes_large_and_refuses_absurd),
        cmocka_unit_test(test_arena_reset),
        cmocka_unit_test(test_arena_text),
        cmocka_unit_test(test_nearest_name),
        cmocka_unit_test(test_unknown_name_says_what_is_allowed),
        cmocka_unit_test(test_json_values),
        cmocka_unit_test(test_json_blames_the_file_or_the_request),
        cmocka_unit_test(test_json_errors),
        cmocka_unit_test(test_printable),
        cmocka_unit_test(test_messages_are_printable),
        cmocka_unit_test(test_parse_integer),
        cmocka_unit_test(test_parse_real),
        cmocka_unit_test(test_array),
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_numbers_for_people),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_random_depends_on_every_part_of_the_key),
        cmocka_unit_test(test_uniform_moments),
        cmocka_unit_test(test_normal_moments),
        cmocka_unit_test(test_permutation_is_a_bijection),
        cmocka_unit_test(test_permutations_of_epochs_differ),
        cmocka_unit_test(test_small_permutations_are_uniform),
        cmocka_unit_test(test_timer_never_goes_back),
        cmocka_unit_test(test_progress_is_for_the_program),
    };
    return test_run(tests);
}
