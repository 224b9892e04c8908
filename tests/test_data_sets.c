/* Datasets by spec: what they say of themselves, what they hold, how they fail. */
#include "base/log.h"
#include "data/check.h"
#include "data/dataset.h"
#include "testing.h"

#include "data_files.h"

static void write_bytes(const char *name, struct file_bytes f)
{
    char path[PATH_MAX];
    test_write_file(test_path(path, name), f.bytes, f.n);
    free(f.bytes);
}

/* KIND:FOLDER, with FOLDER in the temporary folder. */
static const char *spec_of(char buffer[PATH_MAX + 32], const char *kind, const char *folder)
{
    (void)snprintf(buffer, PATH_MAX + 32, "%s:%s/%s", kind, test_folder(), folder);
    return buffer;
}

static void test_describe_without_files(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *name;
        int c, h, w, classes;
        int64_t n_train, n_test;
        enum dataset_form form;
    } cases[] = {
        {"fashion-mnist", "fashion-mnist", 1, 28, 28, 10, 60000, 10000, DATASET_FORM_SMALL},
        {"mnist", "mnist", 1, 28, 28, 10, 60000, 10000, DATASET_FORM_SMALL},
        {"mnist:/nowhere", "mnist", 1, 28, 28, 10, 60000, 10000, DATASET_FORM_SMALL},
        {"cifar10", "cifar10", 3, 32, 32, 10, 50000, 10000, DATASET_FORM_SMALL},
        {"imagenet", "imagenet", 3, 224, 224, 1000, 1281167, 50000, DATASET_FORM_LARGE},
        {"highres", "highres", 3, 512, 512, 1000, 50000, 10000, DATASET_FORM_LARGE},
        {"imagenet22k", "imagenet22k", 3, 224, 224, 21841, 14197122, 50000, DATASET_FORM_LARGE},
        {"synthetic:cifar10", "cifar10", 3, 32, 32, 10, 50000, 10000, DATASET_FORM_SMALL},
        {"synthetic:2x33x5/7", "2x33x5/7", 2, 33, 5, 7, 50000, 5000, DATASET_FORM_LARGE},
        {"synthetic:1x32x5/2/5", "1x32x5/2", 1, 32, 5, 2, 5, 1, DATASET_FORM_SMALL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dataset_info info;
        assert_ok(dataset_describe(cases[i].spec, &info));
        assert_string_equal(info.name, cases[i].name);
        assert_int_equal(info.channels, cases[i].c);
        assert_int_equal(info.height, cases[i].h);
        assert_int_equal(info.width, cases[i].w);
        assert_int_equal(info.classes, cases[i].classes);
        assert_int_equal(info.n_train, cases[i].n_train);
        assert_int_equal(info.n_samples, cases[i].n_train);
        assert_int_equal(info.n_test, cases[i].n_test);
        assert_int_equal(info.form, cases[i].form);
    }
}

static void test_bad_specs(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *part;
    } cases[] = {
        {"fashion-mnits", "did you mean 'fashion-mnist'?"},
        {"synthetic:imagenet22", "did you mean 'imagenet22k'?"},
        {"synthetic", "unknown synthetic dataset ''"},
        {"synthetic:3x32/10", "CxHxW/CLASSES"},
        {"synthetic:3x32x32", "CxHxW/CLASSES"},
        {"synthetic:3x32x32/", "CxHxW/CLASSES"},
        {"synthetic:0x32x32/10", "CxHxW/CLASSES"},
        {"synthetic:3x32x32/10/0", "CxHxW/CLASSES"},
        {"synthetic:3x32x32/10/5x", "CxHxW/CLASSES"},
        {"synthetic:3x99999x32/10", "CxHxW/CLASSES"},
        {"synthetic:16384x16384x16384/10", "an image would have 4398046511104 values"},
        {"synthetic:99999999999999999999999x1x1/10", "CxHxW/CLASSES"},
        {"mnist", "mnist:DIR"},
        {"mnist:", "names no folder"},
        {"cifar10", "cifar10:DIR"},
        {"imagenet", "synthetic:imagenet"},
        {"imagenet:/data", "imagefolder:DIR"},
        {"imagefolder", "imagefolder:DIR"},
        {"imagefolder:@224", "imagefolder:DIR"},
        {"imagefolder:/data@9999", "image size '9999'"},
        {"packed", "packed:FILE"},
        {"", "unknown dataset ''"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dataset *d;
        assert_fails(dataset_open(cases[i].spec, DATASET_TRAIN, NULL, &d), STATUS_USAGE,
                     cases[i].part);
    }
}

static void test_fashion_mnist(void **state)
{
    (void)state;
    static const int32_t first_train[] = {9, 0, 0, 3, 0};
    float pixels[784];
    for (int split = 0; split < 2; split++) {
        dataset *d;
        assert_ok(dataset_open("fashion-mnist", (enum dataset_split)split, NULL, &d));
        const struct dataset_info *info = dataset_get_info(d);
        assert_int_equal(info->n_samples, split == DATASET_TRAIN ? 60000 : 10000);
        assert_int_equal(info->n_train, 60000);
        assert_int_equal(info->n_test, 10000);
        double sum = 0, squares = 0;
        int per_class[10] = {0};
        for (int64_t i = 0; i < info->n_samples; i++) {
            int32_t label;
            assert_ok(dataset_read(d, i, pixels, &label));
            if (split == DATASET_TRAIN && i < 5)
                assert_int_equal(label, first_train[i]);
            per_class[label]++;
            for (int k = 0; k < 784; k++) {
                sum += pixels[k];
                squares += pixels[k] * pixels[k];
            }
        }
        double n = (double)info->n_samples * 784;
        for (int c = 0; c < 10; c++)
            assert_int_equal(per_class[c], info->n_samples / 10);
        if (split == DATASET_TRAIN) { /* normalised by its own constants */
            assert_near(sum / n, 0, 2e-3);
            assert_near(squares / n, 1, 2e-3);
        }
        dataset_close(d);
    }
}

/* The first `limit` of a set of n 28 x 28 images under names of MNIST. */
static void write_mnist(const char *folder, int n_images, int n_labels, int side)
{
    char name[64];
    test_make_folder(folder);
    (void)snprintf(name, sizeof name, "%s/train-images-idx3-ubyte", folder);
    write_bytes(name, files_idx(n_images, side, side));
    (void)snprintf(name, sizeof name, "%s/train-labels-idx1-ubyte.gz", folder);
    struct file_bytes labels = files_idx(n_labels, 0, 0);
    write_bytes(name, files_gzip(labels));
    free(labels.bytes);
}

static void test_mnist(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32];
    dataset *d;
    float pixels[784];
    int32_t label;
    write_mnist("mnist", 13, 13, 28);
    assert_ok(dataset_open(spec_of(spec, "mnist", "mnist"), DATASET_TRAIN, NULL, &d));
    assert_int_equal(dataset_get_info(d)->n_samples, 13);
    assert_ok(dataset_read(d, 12, pixels, &label));
    assert_int_equal(label, 2);
    for (int k = 0; k < 784; k++)
        assert_near(pixels[k], ((7 * 12 + k) % 256 / 255.0 - .1307) / .3081, 1e-5);
    assert_fails(dataset_read(d, 13, pixels, &label), STATUS_USAGE, "sample 13");
    assert_fails(dataset_read(d, -1, pixels, &label), STATUS_USAGE, "sample -1");
    dataset_close(d);
    struct dataset_options options = {.limit = 4};
    assert_ok(dataset_open(spec, DATASET_TRAIN, &options, &d));
    assert_int_equal(dataset_get_info(d)->n_samples, 4);
    dataset_close(d);
    assert_fails(dataset_open(spec, DATASET_TEST, NULL, &d), STATUS_FAILED,
                 "holds no t10k-images-idx3-ubyte");
}

static void test_mnist_contradictions(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32];
    dataset *d;
    write_mnist("counts", 13, 12, 28);
    assert_fails(dataset_open(spec_of(spec, "mnist", "counts"), DATASET_TRAIN, NULL, &d),
                 STATUS_FAILED, "holds 13 images, but");
    write_mnist("shape", 13, 13, 27);
    assert_fails(dataset_open(spec_of(spec, "mnist", "shape"), DATASET_TRAIN, NULL, &d),
                 STATUS_FAILED, "27x27, expected 28x28");
    write_mnist("labels", 13, 13, 28);
    struct file_bytes labels = files_idx(13, 0, 0);
    labels.bytes[8 + 11] = 10;
    write_bytes("labels/train-labels-idx1-ubyte", labels); /* found before the .gz */
    assert_fails(dataset_open(spec_of(spec, "mnist", "labels"), DATASET_TRAIN, NULL, &d),
                 STATUS_FAILED, "label 11 is 10, expected 0 to 9");
}

static void test_cifar(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32], name[64];
    dataset *d;
    float pixels[3072];
    int32_t label;
    test_make_folder("cifar");
    write_bytes("cifar/test_batch.bin", files_cifar(2));
    for (int i = 1; i < 5; i++) {
        (void)snprintf(name, sizeof name, "cifar/data_batch_%d.bin", i);
        write_bytes(name, files_cifar(i));
    }
    assert_fails(dataset_open(spec_of(spec, "cifar10", "cifar"), DATASET_TRAIN, NULL, &d),
                 STATUS_FAILED, "data_batch_5.bin: cannot open: No such file");
    write_bytes("cifar/data_batch_5.bin", files_cifar(5));
    assert_ok(dataset_open(spec, DATASET_TRAIN, NULL, &d));
    assert_int_equal(dataset_get_info(d)->n_samples, 15);
    assert_ok(dataset_read(d, 14, pixels, &label)); /* the fifth file's fifth */
    assert_int_equal(label, 2);
    assert_near(pixels[0], (4 / 255.0 - .4914) / .2470, 1e-5);
    assert_near(pixels[2048 + 5], ((4 + 2053) % 256 / 255.0 - .4465) / .2616, 1e-5);
    assert_string_equal(dataset_class_name(d, 9, name, sizeof name), "truck");
    assert_string_equal(dataset_sample_name(d, 3, name, sizeof name), "sample 3 of cifar10");
    dataset_close(d);
    assert_ok(dataset_open(spec, DATASET_TEST, NULL, &d));
    assert_int_equal(dataset_get_info(d)->n_samples, 2);
    dataset_close(d);
}

/* The folder above the one that the archive unpacks to. */
static void test_cifar_as_unpacked(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32], name[64];
    dataset *d;
    test_make_folder("above");
    test_make_folder("above/cifar-10-batches-bin");
    write_bytes("above/cifar-10-batches-bin/test_batch.bin", files_cifar(2));
    for (int i = 1; i <= 5; i++) {
        (void)snprintf(name, sizeof name, "above/cifar-10-batches-bin/data_batch_%d.bin", i);
        write_bytes(name, files_cifar(1));
    }
    (void)spec_of(spec, "cifar10", "above");
    for (int split = 0; split < 2; split++) {
        assert_ok(dataset_open(spec, (enum dataset_split)split, NULL, &d));
        assert_int_equal(dataset_get_info(d)->n_samples, split == DATASET_TRAIN ? 5 : 2);
        dataset_close(d);
    }
}

/* ---- folders ---- */

static void write_class(const char *folder, const char *class_name, int n, int seed)
{
    char name[PATH_MAX / 4];
    (void)snprintf(name, sizeof name, "%s/%s", folder, class_name);
    test_make_folder(name);
    for (int i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "%s/%s/%02d.%s", folder, class_name, i,
                       i % 2 ? "png" : "JPG");
        write_bytes(name, i % 2 ? files_png(seed + i, 12, 16, PNG_COLOR_TYPE_RGB, 8, false)
                                : files_jpeg(seed + i, 12, 16, 3, false));
    }
}

static void test_folder_in_one(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32], name[PATH_MAX];
    dataset *d;
    float pixels[3 * 12 * 12];
    int32_t label;
    test_make_folder("pets");
    write_class("pets", "dog", 20, 1);
    write_class("pets", "cat", 11, 50);
    write_bytes("pets/cat/readme.txt", files_idx(1, 0, 0));
    struct dataset_info info;
    assert_ok(dataset_describe(spec_of(spec, "imagefolder", "pets@12"), &info));
    assert_string_equal(info.name, "pets");
    assert_int_equal(info.n_train, 28);
    assert_int_equal(info.n_test, 3);
    assert_int_equal(info.classes, 2);
    assert_int_equal(info.height, 12);
    assert_false(info.in_memory);
    assert_ok(dataset_open(spec, DATASET_TEST, NULL, &d));
    assert_int_equal(dataset_get_info(d)->n_samples, 3);
    assert_non_null(strstr(dataset_sample_name(d, 0, name, sizeof name), "pets/cat/09.png"));
    assert_ok(dataset_read(d, 0, pixels, &label));
    assert_int_equal(label, 0);
    /* A PNG is exact: columns 2 to 13 of the picture, normalised by ImageNet's constants. */
    for (int c = 0; c < 3; c++) {
        static const double mean[] = {.485, .456, .406}, std[] = {.229, .224, .225};
        for (int i = 0; i < 144; i++)
            assert_near(pixels[144 * c + i],
                        (files_pixel(59, i / 12, i % 12 + 2, c) / 255.0 - mean[c]) / std[c], 1e-5);
    }
    assert_string_equal(dataset_class_name(d, 1, name, sizeof name), "dog");
    dataset_close(d);
    assert_ok(dataset_open(spec, DATASET_TRAIN, NULL, &d));
    int n_dogs = 0;
    for (int64_t i = 0; i < dataset_get_info(d)->n_samples; i++) {
        assert_ok(dataset_read(d, i, pixels, &label));
        n_dogs += label;
    }
    assert_int_equal(n_dogs, 18);
    dataset_close(d);
}

/* Colour images in a folder that has the name of a set of grey ones. */
static void test_folder_called_mnist(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32];
    dataset *d;
    float pixels[3 * 12 * 12];
    int32_t label;
    test_make_folder("colour");
    test_make_folder("colour/mnist");
    write_class("colour/mnist", "a", 2, 1);
    (void)spec_of(spec, "imagefolder", "colour/mnist@12");
    assert_ok(dataset_open(spec, DATASET_TRAIN, NULL, &d));
    assert_ok(dataset_read(d, 1, pixels, &label)); /* the PNG */
    assert_near(pixels[0], (files_pixel(2, 0, 2, 0) / 255.0 - .485) / .229, 1e-5);
    assert_near(pixels[288], (files_pixel(2, 0, 2, 2) / 255.0 - .406) / .225, 1e-5);
    dataset_close(d);
}

static void test_folder_split(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32];
    dataset *d;
    test_make_folder("split");
    test_make_folder("split/train");
    write_class("split/train", "a", 3, 1);
    write_class("split/train", "b", 2, 1);
    assert_ok(dataset_open(spec_of(spec, "imagefolder", "split@8"), DATASET_TRAIN, NULL, &d));
    assert_int_equal(dataset_get_info(d)->n_samples, 5);
    assert_int_equal(dataset_get_info(d)->n_test, 0);
    dataset_close(d);
    assert_fails(dataset_open(spec, DATASET_TEST, NULL, &d), STATUS_FAILED, "holds no test images");
    test_make_folder("split/val");
    write_class("split/val", "b", 2, 9);
    assert_ok(dataset_open(spec, DATASET_TEST, NULL, &d));
    assert_int_equal(dataset_get_info(d)->n_samples, 2);
    assert_int_equal(dataset_get_info(d)->n_train, 5);
    int32_t label;
    float pixels[3 * 8 * 8];
    assert_ok(dataset_read(d, 0, pixels, &label));
    assert_int_equal(label, 1);
    dataset_close(d);
    write_class("split/val", "c", 1, 9);
    assert_fails(dataset_open(spec, DATASET_TEST, NULL, &d), STATUS_FAILED,
                 "split/val/c: class has no folder in the train split");
}

static void test_folder_failures(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32];
    dataset *d;
    float pixels[3 * 8 * 8];
    int32_t label;
    assert_fails(dataset_open(spec_of(spec, "imagefolder", "none"), DATASET_TRAIN, NULL, &d),
                 STATUS_FAILED, "none: cannot open folder: No such file");
    write_bytes("file", files_idx(1, 0, 0));
    assert_fails(dataset_open(spec_of(spec, "imagefolder", "file"), DATASET_TRAIN, NULL, &d),
                 STATUS_FAILED, "file: cannot open folder: Not a directory");
    test_make_folder("empty");
    assert_fails(dataset_open(spec_of(spec, "imagefolder", "empty"), DATASET_TRAIN, NULL, &d),
                 STATUS_FAILED, "empty: holds no class folders");
    test_make_folder("empty/a");
    assert_fails(dataset_open(spec, DATASET_TRAIN, NULL, &d), STATUS_FAILED,
                 "empty/a: class folder holds no .jpg");
    write_bytes("empty/a/1.jpg", files_idx(1, 2, 2));
    write_bytes("empty/a/2.jpg", (struct file_bytes){calloc(1, 1), 0});
    struct file_bytes cut = files_jpeg(1, 16, 16, 3, false);
    cut.n -= 20;
    write_bytes("empty/a/3.jpg", cut);
    test_make_folder("empty/a/4.jpg"); /* a folder is not an image */
    assert_ok(dataset_open(spec_of(spec, "imagefolder", "empty@8"), DATASET_TRAIN, NULL, &d));
    assert_int_equal(dataset_get_info(d)->n_samples, 3);
    assert_fails(dataset_read(d, 0, pixels, &label), STATUS_FAILED,
                 "1.jpg: neither JPEG nor PNG (20 bytes)");
    assert_fails(dataset_read(d, 1, pixels, &label), STATUS_FAILED, "2.jpg: neither JPEG nor PNG");
    assert_fails(dataset_read(d, 2, pixels, &label), STATUS_FAILED, "3.jpg: corrupt JPEG: ");
    dataset_close(d);
    char path[PATH_MAX];
    if (geteuid() != 0) { /* root may read everything */
        assert_int_equal(chmod(test_path(path, "empty/a"), 0), 0);
        assert_fails(dataset_open(spec, DATASET_TRAIN, NULL, &d), STATUS_FAILED,
                     "empty/a: cannot open folder: Permission denied");
    }
}

/* What a file holds can be done without; that the system does not hand it out says nothing of it.
 */
static void test_only_content_is_replaced(void **state)
{
    (void)state;
    char spec[PATH_MAX + 32], path[PATH_MAX];
    dataset *d;
    float pixels[3 * 8 * 8];
    int32_t label;
    bool replaced;
    struct dataset_replaced by;
    struct data_check found;
    test_make_folder("mixed");
    test_make_folder("mixed/a");
    write_bytes("mixed/a/1.jpg", files_idx(1, 2, 2));
    write_bytes("mixed/a/2.jpg", files_jpeg(1, 16, 16, 3, false));
    assert_ok(dataset_open(spec_of(spec, "imagefolder", "mixed@8"), DATASET_TRAIN, NULL, &d));
    assert_ok(dataset_read_or_next(d, 0, 1, pixels, &label, &by, &replaced));
    assert_true(replaced);
    assert_int_equal(by.by, 1);
    assert_ok(data_check_run(spec, NULL, &found));
    assert_int_equal(found.n_corrupt, 1);
    data_check_free(&found);
    assert_int_equal(unlink(test_path(path, "mixed/a/1.jpg")), 0);
    assert_int_equal(symlink("1.jpg", path), 0); /* nobody can open it, root neither */
    assert_fails(dataset_read_or_next(d, 0, 1, pixels, &label, &by, &replaced), STATUS_FAILED,
                 "1.jpg: cannot open: Too many levels of symbolic links");
    assert_false(replaced);
    assert_fails(data_check_run(spec, NULL, &found), STATUS_FAILED, "1.jpg: cannot open");
    dataset_close(d);
}

/* ---- synthetic ---- */

static void test_synthetic_is_a_function_of_seed_and_index(void **state)
{
    (void)state;
    enum { N = 3 * 8 * 9 };
    float a[N], b[N], c[N], t[N];
    int32_t label;
    dataset *d, *other, *test;
    struct dataset_options options = {.seed = 2};
    assert_ok(dataset_open("synthetic:3x8x9/5/100", DATASET_TRAIN, NULL, &d));
    assert_ok(dataset_open("synthetic:3x8x9/5/100", DATASET_TRAIN, &options, &other));
    assert_ok(dataset_open("synthetic:3x8x9/5/100", DATASET_TEST, NULL, &test));
    assert_int_equal(dataset_get_info(test)->n_samples, 10);
    assert_ok(dataset_read(d, 7, a, &label));
    assert_int_equal(label, 2);
    assert_ok(dataset_read(d, 8, b, &label));
    assert_ok(dataset_read(d, 7, b, &label));
    assert_memory_equal(a, b, sizeof a);
    assert_ok(dataset_read(other, 7, c, &label));
    assert_memory_not_equal(a, c, sizeof a);
    assert_ok(dataset_read(test, 7, t, &label));
    assert_memory_not_equal(a, t, sizeof a);
    dataset_close(d);
    dataset_close(other);
    dataset_close(test);
}

/* The nearest class mean of a hundred training samples tells most test samples. */
static void test_synthetic_can_be_learnt(void **state)
{
    (void)state;
    enum { N = 28 * 28, CLASSES = 10, EACH = 10 };
    static float means[CLASSES][N];
    float pixels[N];
    int32_t label;
    dataset *d;
    assert_ok(dataset_open("synthetic:mnist", DATASET_TRAIN, NULL, &d));
    for (int64_t i = 0; i < CLASSES * EACH; i++) {
        assert_ok(dataset_read(d, i, pixels, &label));
        for (int k = 0; k < N; k++)
            means[label][k] += pixels[k] / EACH;
    }
    dataset_close(d);
    assert_ok(dataset_open("synthetic:mnist", DATASET_TEST, NULL, &d));
    int n_right = 0;
    for (int64_t i = 0; i < 100; i++) {
        assert_ok(dataset_read(d, i, pixels, &label));
        double best = 1e30;
        int nearest = -1;
        for (int c = 0; c < CLASSES; c++) {
            double far = 0;
            for (int k = 0; k < N; k++)
                far += (pixels[k] - means[c][k]) * (pixels[k] - means[c][k]);
            if (far < best) {
                best = far;
                nearest = c;
            }
        }
        n_right += nearest == label;
    }
    assert_in_range(n_right, 90, 100);
    dataset_close(d);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe_without_files),
        cmocka_unit_test(test_bad_specs),
        cmocka_unit_test(test_fashion_mnist),
        cmocka_unit_test(test_mnist),
        cmocka_unit_test(test_mnist_contradictions),
        cmocka_unit_test(test_cifar),
        cmocka_unit_test(test_cifar_as_unpacked),
        cmocka_unit_test(test_folder_in_one),
        cmocka_unit_test(test_folder_split),
        cmocka_unit_test(test_folder_failures),
        cmocka_unit_test(test_only_content_is_replaced),
        cmocka_unit_test(test_folder_called_mnist),
        cmocka_unit_test(test_synthetic_is_a_function_of_seed_and_index),
        cmocka_unit_test(test_synthetic_can_be_learnt),
    };
    return test_run(tests);
}
