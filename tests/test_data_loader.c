/* The loader: the same batches whatever the threads, the depth and the starting point; errors and
 * deadlines; ending at any moment. */
#include "base/log.h"
#include "base/timer.h"
#include "data/augment.h"
#include "data/loader.h"
#include "data/source.h"
#include "testing.h"

#include <malloc.h>
#include <stdatomic.h>

/* ---- a dataset whose every pixel tells its sample, and which can fail, be slow or hang ---- */

enum { SIDE = 3, FLOATS = SIDE * SIDE };

struct fake {
    int64_t fail_at, hang_at; /* -1: never */
    int64_t sleep_us;
    atomic_bool *let_go, *closed;
};

static enum status fake_generate(void *self_, int64_t index, float *pixels, int32_t *label)
{
    const struct fake *self = self_;
    if (self->sleep_us)
        (void)usleep((useconds_t)(self->sleep_us * (1 + index % 3)));
    while (index == self->hang_at && !atomic_load(self->let_go))
        (void)usleep(1000);
    if (self->fail_at >= 0 && index % 10 == self->fail_at)
        return status_fail(STATUS_FAILED, "sample %lld is broken", (long long)index);
    for (int i = 0; i < FLOATS; i++)
        pixels[i] = (float)(index * 100 + i);
    *label = (int32_t)(index % 7);
    return STATUS_OK;
}

static void fake_close(void *self_)
{
    struct fake *self = self_;
    if (self->closed)
        atomic_store(self->closed, true);
    free(self);
}

static const struct source_calls fake_calls = {.generate = fake_generate, .close = fake_close};

static dataset *fake_open(int64_t n, struct fake settings)
{
    struct fake *self = malloc(sizeof *self);
    assert_non_null(self);
    *self = settings;
    struct source source = {.calls = &fake_calls, .self = self};
    source.info = (struct dataset_info){.name = "fake",
                                        .channels = 1,
                                        .height = SIDE,
                                        .width = SIDE,
                                        .classes = 7,
                                        .n_samples = n,
                                        .n_train = n,
                                        .form = DATASET_FORM_SMALL};
    dataset *d;
    assert_ok(dataset_create(&source, NULL, &d));
    return d;
}

static dataset *plain(int64_t n)
{
    return fake_open(n, (struct fake){.fail_at = -1, .hang_at = -1});
}

static int64_t sample_of(const struct batch *b, int64_t i)
{
    return (int64_t)b->images[i * FLOATS] / 100;
}

/* The samples of an epoch from batch `first` on, in order, checked as they come. */
static int64_t collect(loader *l, int64_t epoch, int64_t first, int64_t *samples)
{
    int64_t n = 0;
    assert_ok(loader_start(l, epoch, first));
    for (int64_t batch = first;; batch++) {
        struct batch b;
        assert_ok(loader_next(l, &b));
        assert_int_equal(b.index, batch);
        assert_true(b.wait_ns >= 0);
        if (b.n_global == 0) {
            assert_int_equal(b.n_samples, 0);
            assert_int_equal(batch, loader_batches(l));
            return n;
        }
        assert_int_equal((uintptr_t)b.images % 64, 0);
        for (int64_t i = 0; i < b.n_samples; i++) {
            int64_t s = sample_of(&b, i);
            assert_int_equal(b.labels[i], s % 7);
            for (int k = 0; k < FLOATS; k++)
                assert_true(b.images[i * FLOATS + k] == (float)(s * 100 + k));
            samples[n++] = s;
        }
        loader_release(l);
    }
}

static loader *make(dataset *d, struct loader_options options)
{
    loader *l;
    assert_ok(loader_create(d, &options, &l));
    return l;
}

/* ---- order ---- */

static void test_in_order_with_a_short_last_batch(void **state)
{
    (void)state;
    dataset *d = plain(23);
    loader *l = make(d, (struct loader_options){.batch = 5});
    int64_t samples[23];
    assert_int_equal(loader_batches(l), 5);
    assert_int_equal(collect(l, 0, 0, samples), 23);
    for (int i = 0; i < 23; i++)
        assert_int_equal(samples[i], i);
    loader_destroy(l);
    l = make(d, (struct loader_options){.batch = 5, .drop_last = true});
    assert_int_equal(loader_batches(l), 4);
    assert_int_equal(collect(l, 0, 0, samples), 20);
    loader_destroy(l);
    l = make(d, (struct loader_options){.batch = 50});
    assert_int_equal(collect(l, 0, 0, samples), 23);
    loader_destroy(l);
    l = make(d, (struct loader_options){.batch = 50, .drop_last = true});
    assert_int_equal(collect(l, 0, 0, samples), 0);
    loader_destroy(l);
    dataset_close(d);
}

static void test_every_sample_once_in_an_order_of_seed_and_epoch(void **state)
{
    (void)state;
    enum { N = 1001 };
    static int64_t orders[4][N];
    static const struct {
        uint64_t seed;
        int64_t epoch;
    } cases[] = {{1, 0}, {1, 1}, {2, 0}, {1, 0}};
    dataset *d = plain(N);
    for (int c = 0; c < 4; c++) {
        loader *l = make(d, (struct loader_options){
                                .batch = 32, .shuffle = true, .seed = cases[c].seed, .threads = 2});
        assert_int_equal(collect(l, cases[c].epoch, 0, orders[c]), N);
        loader_destroy(l);
        bool seen[N] = {false};
        for (int i = 0; i < N; i++) {
            assert_false(seen[orders[c][i]]);
            seen[orders[c][i]] = true;
        }
    }
    assert_memory_equal(orders[0], orders[3], sizeof orders[0]);
    for (int c = 1; c < 3; c++) {
        int n_same = 0;
        for (int i = 0; i < N; i++)
            n_same += orders[0][i] == orders[c][i];
        assert_in_range(n_same, 0, 12); /* one is expected */
    }
    dataset_close(d);
}

static void test_same_batches_for_any_threads_and_depth(void **state)
{
    (void)state;
    enum { N = 203 };
    int64_t expected[N], found[N];
    dataset *d = fake_open(N, (struct fake){.fail_at = -1, .hang_at = -1, .sleep_us = 20});
    loader *l =
        make(d, (struct loader_options){.batch = 16, .shuffle = true, .seed = 5, .threads = 1});
    assert_int_equal(collect(l, 3, 0, expected), N);
    loader_destroy(l);
    for (int depth = 1; depth <= 4; depth++) {
        l = make(d, (struct loader_options){
                        .batch = 16, .shuffle = true, .seed = 5, .threads = 4, .depth = depth});
        assert_int_equal(collect(l, 3, 0, found), N);
        assert_memory_equal(expected, found, sizeof found);
        loader_destroy(l);
    }
    dataset_close(d);
}

static void test_resumes_in_the_middle(void **state)
{
    (void)state;
    enum { N = 103 };
    int64_t whole[N], part[N];
    dataset *d = plain(N);
    struct loader_options options = {.batch = 10, .shuffle = true, .seed = 5, .threads = 2};
    loader *l = make(d, options);
    assert_int_equal(collect(l, 4, 0, whole), N);
    for (int64_t first = 0; first <= 11; first++) { /* also again on a loader in use */
        int64_t n = N - 10 * first < 0 ? 0 : N - 10 * first;
        assert_int_equal(collect(l, 4, first, part), n);
        assert_memory_equal(part, whole + N - n, (size_t)n * sizeof part[0]);
    }
    assert_fails(loader_start(l, 0, 12), STATUS_USAGE, "batch 12 of epoch 0");
    loader_destroy(l);
    dataset_close(d);
}

static void test_parts_make_up_the_batch(void **state)
{
    (void)state;
    enum { N = 47, BATCH = 10 };
    int64_t whole[N], part[N];
    dataset *d = plain(N);
    struct loader_options options = {.batch = BATCH, .shuffle = true, .seed = 9};
    loader *l = make(d, options);
    assert_int_equal(collect(l, 1, 0, whole), N);
    loader_destroy(l);
    static const int64_t firsts[] = {0, 3, 8}, counts[] = {3, 5, 2}, totals[] = {15, 24, 8};
    for (int w = 0; w < 3; w++) {
        options.first = firsts[w];
        options.count = counts[w];
        l = make(d, options);
        int64_t n = collect(l, 1, 0, part), at = 0;
        assert_int_equal(n, totals[w]); /* the last batch of 7 leaves the third worker none */
        for (int64_t i = 0; i < N; i++)
            if (i % BATCH >= firsts[w] && i % BATCH < firsts[w] + counts[w])
                assert_int_equal(part[at++], whole[i]);
        assert_int_equal(at, n);
        loader_destroy(l);
    }
    dataset_close(d);
}

/* The last batch, of 7, is cut anew, and the second worker gets more of it than of the others. */
static void test_exact_parts(void **state)
{
    (void)state;
    enum { N = 27, BATCH = 10 };
    static const int64_t firsts[] = {0, 9, 10}, counts[] = {9, 1, 0};
    static const int64_t short_firsts[] = {0, 0, 6}, short_counts[] = {0, 6, 1};
    int64_t whole[N], part[N];
    dataset *d = plain(N);
    struct loader_options options = {.batch = BATCH, .shuffle = true, .seed = 3};
    loader *l = make(d, options);
    assert_int_equal(collect(l, 2, 0, whole), N);
    loader_destroy(l);
    options.exact_parts = true;
    for (int w = 0; w < 3; w++) {
        options.first = firsts[w];
        options.count = counts[w];
        options.short_first = short_firsts[w];
        options.short_count = short_counts[w];
        l = make(d, options);
        int64_t n = collect(l, 2, 0, part), at = 0;
        for (int64_t i = 0; i < N; i++) {
            bool last = i >= 20;
            int64_t first = last ? short_firsts[w] : firsts[w];
            int64_t count = last ? short_counts[w] : counts[w];
            if (i % BATCH >= first && i % BATCH < first + count)
                assert_int_equal(part[at++], whole[i]);
        }
        assert_int_equal(at, n);
        struct batch b;
        assert_ok(loader_start(l, 2, 2));
        assert_ok(loader_next(l, &b));
        assert_true(b.first == short_firsts[w] && b.n_samples == short_counts[w]);
        loader_destroy(l);
    }
    options.short_count = 2;
    assert_fails(loader_create(d, &options, &l), STATUS_USAGE,
                 "part 6 + 2 lies outside the batch of 7");
    dataset_close(d);
}

/* ---- failures ---- */

static void test_refuses_bad_options(void **state)
{
    (void)state;
    loader *l;
    dataset *d = plain(10);
    assert_fails(loader_create(d, &(struct loader_options){.batch = 0}, &l), STATUS_USAGE,
                 "batch 0 must be");
    assert_fails(loader_create(d, &(struct loader_options){.batch = 4, .first = 4}, &l),
                 STATUS_USAGE, "outside the batch");
    assert_fails(loader_create(d, &(struct loader_options){.batch = 4, .first = 2, .count = 3}, &l),
                 STATUS_USAGE, "outside the batch");
    assert_fails(loader_create(d, &(struct loader_options){.batch = 4, .threads = -1}, &l),
                 STATUS_USAGE, "threads -1");
    l = make(d, (struct loader_options){.batch = 4, .depth = 2});
    struct batch b;
    assert_fails(loader_next(l, &b), STATUS_USAGE, "before loader_start");
    assert_ok(loader_start(l, 0, 0));
    assert_ok(loader_next(l, &b));
    assert_ok(loader_next(l, &b));
    assert_fails(loader_next(l, &b), STATUS_USAGE, "all 2 batches");
    loader_release(l);
    assert_ok(loader_next(l, &b));
    loader_release(l);
    loader_release(l);
    loader_release(l); /* one too many is harmless */
    loader_destroy(l);
    loader_destroy(NULL);
    dataset_close(d);
}

/* Samples 3, 13, 23 ... fail: with any number of threads the first of them in order is named. */
static void test_errors_arrive_with_their_batch(void **state)
{
    (void)state;
    dataset *d = fake_open(60, (struct fake){.fail_at = 3, .hang_at = -1, .sleep_us = 30});
    for (int threads = 1; threads <= 4; threads++) {
        loader *l = make(d, (struct loader_options){.batch = 20, .threads = threads});
        struct batch b;
        assert_ok(loader_start(l, 0, 0));
        assert_fails(loader_next(l, &b), STATUS_FAILED, "sample 3 is broken");
        assert_fails(loader_next(l, &b), STATUS_FAILED, "sample 3 is broken");
        assert_ok(loader_start(l, 0, 1));
        assert_fails(loader_next(l, &b), STATUS_FAILED, "sample 23 is broken");
        loader_destroy(l);
    }
    dataset_close(d);
}

static void test_a_read_that_hangs(void **state)
{
    (void)state;
    static atomic_bool let_go, closed;
    dataset *d = fake_open(
        60, (struct fake){.fail_at = -1, .hang_at = 17, .let_go = &let_go, .closed = &closed});
    loader *l = make(d, (struct loader_options){.batch = 10, .threads = 2, .timeout_s = 0.2});
    dataset_close(d); /* the loader keeps it */
    struct batch b;
    assert_ok(loader_start(l, 2, 0));
    assert_ok(loader_next(l, &b));
    loader_release(l);
    assert_fails(loader_next(l, &b), STATUS_TIMEOUT,
                 "waited 0.2 s for batch 1 of epoch 2, still reading sample 17 of fake");
    assert_fails(loader_start(l, 3, 0), STATUS_TIMEOUT, "still at sample 17 of fake");
    assert_fails(loader_next(l, &b), STATUS_USAGE, "loader_next before loader_start");
    int64_t start_ns = timer_now_ns();
    loader_destroy(l);
    assert_true(timer_now_ns() - start_ns < 3000000000);
    assert_false(atomic_load(&closed));
    atomic_store(&let_go, true); /* the thread left behind now cleans up */
    for (int i = 0; i < 5000 && !atomic_load(&closed); i++)
        (void)usleep(1000);
    assert_true(atomic_load(&closed));
    (void)usleep(20000);
}

static void test_ends_at_any_moment(void **state)
{
    (void)state;
    dataset *d = fake_open(500, (struct fake){.fail_at = -1, .hang_at = -1, .sleep_us = 5});
    for (int i = 0; i < 60; i++) {
        loader *l = make(d, (struct loader_options){
                                .batch = 7, .shuffle = true, .threads = 1 + i % 4, .depth = 2});
        if (i % 3)
            assert_ok(loader_start(l, i, 0));
        for (int k = 0; i % 3 && k < i % 11; k++) {
            struct batch b;
            assert_ok(loader_next(l, &b));
            loader_release(l);
        }
        if (i % 5 == 4)
            assert_ok(loader_start(l, i, 1));
        loader_destroy(l);
    }
    dataset_close(d);
}

/* ---- memory and augmentation ---- */

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
static void test_no_allocation_in_an_epoch(void **state)
{
    (void)state;
    dataset *d;
    assert_ok(dataset_open("synthetic:3x16x16/10/2000", DATASET_TRAIN, NULL, &d));
    loader *l = make(
        d, (struct loader_options){.batch = 32, .shuffle = true, .augment = true, .threads = 2});
    assert_ok(loader_start(l, 0, 0));
    struct mallinfo2 before = mallinfo2();
    for (;;) {
        struct batch b;
        assert_ok(loader_next(l, &b));
        if (b.n_global == 0)
            break;
        loader_release(l);
    }
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(before.uordblks, after.uordblks);
    assert_int_equal(before.hblkhd, after.hblkhd);
    loader_destroy(l);
    dataset_close(d);
}
#endif

static void fill(float *pixels, int height, int width)
{
    for (int i = 0; i < height * width; i++)
        pixels[i] = (float)(i + 1);
}

/* Each outcome must be the picture shifted by at most 4 each way, flipped or not, zeros moving in.
 */
static void check_augmented(const float *out, bool flips[2], bool shifts[9])
{
    enum { H = 12, W = 12 };
    for (int flip = 0; flip < 2; flip++)
        for (int dy = -4; dy <= 4; dy++)
            for (int dx = -4; dx <= 4; dx++) {
                bool same = true;
                for (int y = 0; same && y < H; y++)
                    for (int x = 0; same && x < W; x++) {
                        int fy = y + dy, fx = x + dx;
                        bool inside = fy >= 0 && fy < H && fx >= 0 && fx < W;
                        int from = fy * W + (flip ? W - 1 - fx : fx) + 1;
                        same = out[y * W + x] == (inside ? (float)from : 0);
                    }
                if (same) {
                    flips[flip] = true;
                    shifts[dy + 4] = true;
                    return;
                }
            }
    fail_msg("not a flipped or shifted picture");
}

static void test_augmentation(void **state)
{
    (void)state;
    bool flips[2] = {false}, shifts[9] = {false};
    float pixels[144], again[144];
    dataset *small;
    assert_ok(dataset_open("synthetic:1x12x12/2", DATASET_TRAIN, NULL, &small));
    for (int64_t i = 0; i < 200; i++) {
        fill(pixels, 12, 12);
        fill(again, 12, 12);
        augment_apply(small, 1, 2, i, pixels);
        augment_apply(small, 1, 2, i, again);
        assert_memory_equal(pixels, again, sizeof pixels);
        check_augmented(pixels, flips, shifts);
    }
    assert_true(flips[0] && flips[1]);
    for (int i = 0; i < 9; i++)
        assert_true(shifts[i]);
    int n_differ = 0;
    for (int64_t i = 0; i < 20; i++) {
        fill(pixels, 12, 12);
        fill(again, 12, 12);
        augment_apply(small, 1, 2, i, pixels);
        augment_apply(small, 1, 3, i, again);
        n_differ += memcmp(pixels, again, sizeof pixels) != 0;
    }
    assert_in_range(n_differ, 15, 20);
    dataset_close(small);
}

static void test_augmented_batches_do_not_depend_on_threads(void **state)
{
    (void)state;
    static float expected[64 * 144];
    dataset *d;
    assert_ok(dataset_open("synthetic:1x12x12/2/64", DATASET_TRAIN, NULL, &d));
    for (int threads = 1; threads <= 3; threads += 2) {
        loader *l = make(d, (struct loader_options){
                                .batch = 64, .shuffle = true, .augment = true, .threads = threads});
        struct batch b;
        assert_ok(loader_start(l, 1, 0));
        assert_ok(loader_next(l, &b));
        if (threads == 1)
            memcpy(expected, b.images, sizeof expected);
        else
            assert_memory_equal(expected, b.images, sizeof expected);
        loader_destroy(l);
    }
    dataset_close(d);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order_with_a_short_last_batch),
        cmocka_unit_test(test_every_sample_once_in_an_order_of_seed_and_epoch),
        cmocka_unit_test(test_same_batches_for_any_threads_and_depth),
        cmocka_unit_test(test_resumes_in_the_middle),
        cmocka_unit_test(test_parts_make_up_the_batch),
        cmocka_unit_test(test_exact_parts),
        cmocka_unit_test(test_refuses_bad_options),
        cmocka_unit_test(test_errors_arrive_with_their_batch),
        cmocka_unit_test(test_a_read_that_hangs),
        cmocka_unit_test(test_ends_at_any_moment),
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
        cmocka_unit_test(test_no_allocation_in_an_epoch),
#endif
        cmocka_unit_test(test_augmentation),
        cmocka_unit_test(test_augmented_batches_do_not_depend_on_threads),
    };
    return test_run(tests);
}
