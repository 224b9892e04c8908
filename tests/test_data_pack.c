/* Packed files: a round trip keeps everything, and no damage passes. */
#include "base/log.h"
#include "data/pack.h"
#include "testing.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data_files.h"

enum { SIDE = 12, FLOATS = 3 * SIDE * SIDE };

/* imagefolder of 3 classes, `n` images each, the last one a PNG; its spec. */
static const char *make_images(char spec[PATH_MAX + 32], const char *folder, int n)
{
    char name[PATH_MAX / 4], path[PATH_MAX];
    test_make_folder(folder);
    for (int c = 0; c < 3; c++) {
        (void)snprintf(name, sizeof name, "%s/class %c", folder, 'a' + c);
        test_make_folder(name);
        for (int i = 0; i < n; i++) {
            bool last = i == n - 1;
            struct file_bytes f = last ? files_png(c, 15, 13, PNG_COLOR_TYPE_RGB, 8, false)
                                       : files_jpeg(10 * c + i, 16 + i, 30 - i, 3, i % 2);
            (void)snprintf(name, sizeof name, "%s/class %c/%d.%s", folder, 'a' + c, i,
                           last ? "png" : "jpg");
            test_write_file(test_path(path, name), f.bytes, f.n);
            free(f.bytes);
        }
    }
    (void)snprintf(spec, PATH_MAX + 32, "imagefolder:%s/%s@%d", test_folder(), folder, SIDE);
    return spec;
}

static const char *packed_spec(char spec[PATH_MAX + 32], const char *path)
{
    (void)snprintf(spec, PATH_MAX + 32, "packed:%s", path);
    return spec;
}

static void assert_same_samples(const char *spec_a, const char *spec_b)
{
    static float a[4096], b[4096];
    int32_t label_a, label_b;
    char name_a[64], name_b[64];
    dataset *da, *db;
    assert_ok(dataset_open(spec_a, DATASET_TRAIN, NULL, &da));
    assert_ok(dataset_open(spec_b, DATASET_TRAIN, NULL, &db));
    const struct dataset_info *ia = dataset_get_info(da), *ib = dataset_get_info(db);
    assert_string_equal(ia->name, ib->name);
    assert_int_equal(ia->n_samples, ib->n_samples);
    assert_int_equal(ia->classes, ib->classes);
    assert_int_equal(ia->form, ib->form);
    size_t floats = (size_t)dataset_sample_floats(ia);
    for (int64_t i = 0; i < ia->n_samples; i++) {
        assert_ok(dataset_read(da, i, a, &label_a));
        assert_ok(dataset_read(db, i, b, &label_b));
        assert_int_equal(label_a, label_b);
        assert_memory_equal(a, b, floats * sizeof a[0]);
        assert_string_equal(dataset_class_name(da, label_a, name_a, sizeof name_a),
                            dataset_class_name(db, label_b, name_b, sizeof name_b));
    }
    dataset_close(da);
    dataset_close(db);
}

static void count_calls(void *context, int64_t done, int64_t total)
{
    int64_t *last = context;
    assert_true(done <= total);
    *last = done;
}

static void test_round_trip(void **state)
{
    (void)state;
    char images[PATH_MAX + 32], spec[PATH_MAX + 32], path[PATH_MAX];
    (void)make_images(images, "images", 9);
    (void)test_path(path, "images.pack");
    for (int encoding = PACK_RAW; encoding <= PACK_JPEG; encoding++)
        for (int threads = 1; threads <= 3; threads += 2) {
            int64_t last = 0;
            struct pack_options options = {.encoding = (enum pack_encoding)encoding,
                                           .threads = threads,
                                           .progress = count_calls,
                                           .context = &last};
            assert_ok(pack_create(images, DATASET_TRAIN, path, &options));
            assert_same_samples(images, packed_spec(spec, path));
            if (threads == 1)
                assert_int_equal(last, 27);
        }
    char again[PATH_MAX], again_spec[PATH_MAX + 32]; /* a packed file can be packed again */
    assert_ok(pack_create(spec, DATASET_TRAIN, test_path(again, "again.pack"), NULL));
    assert_same_samples(images, packed_spec(again_spec, again));
}

static void test_other_sources(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32], mnist[PATH_MAX + 32], path[PATH_MAX], file[PATH_MAX];
    test_make_folder("mnist");
    struct file_bytes f = files_idx(5, 28, 28);
    test_write_file(test_path(file, "mnist/train-images-idx3-ubyte"), f.bytes, f.n);
    free(f.bytes);
    f = files_idx(5, 0, 0);
    test_write_file(test_path(file, "mnist/train-labels-idx1-ubyte"), f.bytes, f.n);
    free(f.bytes);
    (void)snprintf(mnist, sizeof mnist, "mnist:%s/mnist", test_folder());
    (void)test_path(path, "mnist.pack");
    assert_ok(pack_create(mnist, DATASET_TRAIN, path, NULL)); /* one channel, its own constants */
    assert_same_samples(mnist, packed_spec(spec, path));
    struct pack_options jpeg = {.encoding = PACK_JPEG};
    assert_fails(pack_create(mnist, DATASET_TRAIN, path, &jpeg), STATUS_USAGE, "pack it raw");
    assert_fails(pack_create("synthetic:mnist", DATASET_TRAIN, path, NULL), STATUS_USAGE,
                 "nothing to pack");
    assert_same_samples(mnist, spec); /* the old file stays */
}

static void test_test_split(void **state)
{
    (void)state;
    char images[PATH_MAX + 32], path[PATH_MAX], test[PATH_MAX], spec[2 * PATH_MAX + 32];
    dataset *d;
    (void)make_images(images, "both", 10);
    assert_ok(pack_create(images, DATASET_TRAIN, test_path(path, "train.pack"), NULL));
    assert_ok(pack_create(images, DATASET_TEST, test_path(test, "test.pack"), NULL));
    (void)snprintf(spec, sizeof spec, "packed:%s", path);
    assert_fails(dataset_open(spec, DATASET_TEST, NULL, &d), STATUS_USAGE, "FILE,TESTFILE");
    (void)snprintf(spec, sizeof spec, "packed:%s,%s", path, test);
    for (int split = 0; split < 2; split++) {
        assert_ok(dataset_open(spec, (enum dataset_split)split, NULL, &d));
        assert_int_equal(dataset_get_info(d)->n_samples, split == DATASET_TRAIN ? 27 : 3);
        assert_int_equal(dataset_get_info(d)->n_train, 27);
        assert_int_equal(dataset_get_info(d)->n_test, 3);
        dataset_close(d);
    }
    images[strlen(images) - 2] = '\0'; /* ...@12 to ...@, then another size */
    (void)strcat(images, "8");
    assert_ok(pack_create(images, DATASET_TEST, test, NULL));
    assert_fails(dataset_open(spec, DATASET_TRAIN, NULL, &d), STATUS_FAILED,
                 "3x8x8 in 3 classes, but");
    char from[PATH_MAX], to[PATH_MAX];
    (void)make_images(images, "others", 10);
    assert_int_equal(rename(test_path(from, "others/class a"), test_path(to, "others/class d")), 0);
    assert_ok(pack_create(images, DATASET_TEST, test, NULL));
    assert_fails(dataset_open(spec, DATASET_TRAIN, NULL, &d), STATUS_FAILED,
                 "its classes have other names than those of");
}

/* Aligned, and exactly as long. */
static void *aligned_copy(const void *bytes, size_t n)
{
    void *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    return copy;
}

static void test_every_cut_and_every_changed_byte(void **state)
{
    (void)state;
    char images[PATH_MAX + 32], path[PATH_MAX];
    size_t n;
    (void)make_images(images, "damage", 2);
    for (int encoding = PACK_RAW; encoding <= PACK_JPEG; encoding++) {
        struct pack_options options = {.encoding = (enum pack_encoding)encoding};
        assert_ok(pack_create(images, DATASET_TRAIN, test_path(path, "damage.pack"), &options));
        uint8_t *bytes = (uint8_t *)test_read_file(path, &n);
        struct files_pack view;
        for (size_t cut = 0; cut < n; cut++) {
            uint8_t *copy = aligned_copy(bytes, cut);
            assert_fails(files_read_pack(copy, cut, "x.pack", &view), STATUS_FAILED,
                         "x.pack: truncated");
            free(copy);
        }
        assert_ok(files_read_pack(bytes, n, "x.pack", &view));
        uint64_t index_offset = view.header.index_offset;
        for (size_t i = 0; i < n; i = i + 1 == sizeof view.header ? index_offset : i + 1) {
            bytes[i] ^= 0x20;
            enum status st = files_read_pack(bytes, n, "x.pack", &view);
            assert_that(st == STATUS_FAILED, "byte %zu", i);
            status_clear();
            bytes[i] ^= 0x20;
        }
        assert_ok(files_read_pack(bytes, n, "x.pack", &view));
        for (int64_t s = 0; s < (int64_t)view.header.n_samples; s++) {
            const struct pack_entry *e = &view.index.entries[s];
            assert_ok(files_check_pack_sample(&view, "x.pack", s));
            bytes[e->offset + e->n_bytes / 2] ^= 1;
            assert_fails(files_check_pack_sample(&view, "x.pack", s), STATUS_FAILED,
                         "does not match its checksum");
        }
        free(bytes);
    }
}

/* As when somebody packs anew over it with a tool that does not rename. */
static void test_cut_while_open(void **state)
{
    (void)state;
    char images[PATH_MAX + 32], path[PATH_MAX], spec[PATH_MAX + 32];
    static float pixels[FLOATS];
    int32_t label;
    dataset *d;
    (void)make_images(images, "cut", 4);
    for (int encoding = PACK_RAW; encoding <= PACK_JPEG; encoding++) {
        struct pack_options options = {.encoding = (enum pack_encoding)encoding};
        assert_ok(pack_create(images, DATASET_TRAIN, test_path(path, "cut.pack"), &options));
        assert_ok(dataset_open(packed_spec(spec, path), DATASET_TRAIN, NULL, &d));
        assert_ok(dataset_read(d, 11, pixels, &label));
        assert_int_equal(truncate(path, 2000), 0);
        assert_ok(dataset_read(d, 0, pixels, &label));
        assert_fails(dataset_read(d, 11, pixels, &label), STATUS_FAILED,
                     "cut.pack: became shorter while it was read");
        dataset_close(d);
    }
}

static int count_entries(const char *path)
{
    int n = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder))
        n++;
    (void)closedir(folder);
    return n - 2;
}

static void test_failures_leave_what_was_there(void **state)
{
    (void)state;
    char images[PATH_MAX + 32], folder[PATH_MAX], path[PATH_MAX], file[PATH_MAX], out[PATH_MAX];
    (void)make_images(images, "source", 3);
    test_make_folder("target");
    (void)test_path(folder, "target");
    assert_ok(pack_create(images, DATASET_TRAIN, test_path(path, "target/a.pack"), NULL));
    size_t n_before, n_after;
    char *before = test_read_file(path, &n_before);

    test_write_file(test_path(file, "source/class b/1.jpg"), "broken", 6);
    assert_fails(pack_create(images, DATASET_TRAIN, path, NULL), STATUS_FAILED,
                 "class b/1.jpg: neither JPEG nor PNG");
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){1000, limit.rlim_max}; /* as a full disk */
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum status st =
        pack_create(images, DATASET_TRAIN, path, &(struct pack_options){.encoding = PACK_JPEG});
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_fails(st, STATUS_FAILED, "a.pack: cannot write: File too large");

    char *after = test_read_file(path, &n_after);
    assert_int_equal(n_before, n_after);
    assert_memory_equal(before, after, n_after);
    assert_int_equal(count_entries(folder), 1);
    free(before);
    free(after);
    assert_fails(pack_create(images, DATASET_TRAIN, test_path(out, "no/a.pack"), NULL),
                 STATUS_FAILED, "no/a.pack: cannot write: No such file");
}

static void test_not_a_packed_file(void **state)
{
    (void)state;
    char path[PATH_MAX], spec[PATH_MAX + 32];
    dataset *d;
    char text[300] = "hello";
    test_write_file(test_path(path, "text"), text, sizeof text);
    assert_fails(dataset_open(packed_spec(spec, path), DATASET_TRAIN, NULL, &d), STATUS_FAILED,
                 "text: not a packed dataset");
    test_write_file(path, text, 0);
    assert_fails(dataset_open(spec, DATASET_TRAIN, NULL, &d), STATUS_FAILED, "truncated: has 0");
    assert_fails(dataset_open(packed_spec(spec, test_folder()), DATASET_TRAIN, NULL, &d),
                 STATUS_FAILED, "is not a regular file");
    assert_int_equal(mkfifo(test_path(path, "fifo"), 0600), 0); /* without a writer */
    assert_fails(dataset_open(packed_spec(spec, path), DATASET_TRAIN, NULL, &d), STATUS_FAILED,
                 "fifo: is not a regular file");
    assert_fails(dataset_open("packed:/nowhere", DATASET_TRAIN, NULL, &d), STATUS_FAILED,
                 "/nowhere: cannot open");
}

int main(void)
{
    log_set_level(LOG_QUIET);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_other_sources),
        cmocka_unit_test(test_test_split),
        cmocka_unit_test(test_every_cut_and_every_changed_byte),
        cmocka_unit_test(test_cut_while_open),
        cmocka_unit_test(test_failures_leave_what_was_there),
        cmocka_unit_test(test_not_a_packed_file),
    };
    return test_run(tests);
}
