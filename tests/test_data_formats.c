/* The parsers of the data room: right on good bytes, clear on bad ones, for every cut. */
#include "data/cifar.h"
#include "data/idx.h"
#include "data/image.h"
#include "testing.h"

#include "data_files.h"

/* A copy of exactly n bytes, so that the address sanitizer sees a read past the end. */
static uint8_t *prefix(struct file_bytes f, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, f.bytes, n);
    return copy;
}

static void test_idx_reads(void **state)
{
    (void)state;
    struct file_bytes plain = files_idx(3, 4, 5), zipped = files_gzip(plain);
    struct file_bytes both[] = {plain, zipped};
    for (int i = 0; i < 2; i++) {
        struct idx idx;
        assert_ok(idx_parse(both[i].bytes, both[i].n, "x", 3, &idx));
        assert_int_equal(idx.dimensions[0], 3);
        assert_int_equal(idx.dimensions[1], 4);
        assert_int_equal(idx.dimensions[2], 5);
        for (int k = 0; k < 60; k++)
            assert_int_equal(idx.data[k], (uint8_t)(7 * (k / 20) + k % 20));
        idx_free(&idx);
        free(both[i].bytes);
    }
}

static void test_idx_cut_anywhere(void **state)
{
    (void)state;
    struct file_bytes plain = files_idx(3, 4, 5), zipped = files_gzip(plain);
    struct file_bytes both[] = {plain, zipped};
    for (int i = 0; i < 2; i++) {
        for (size_t n = 0; n < both[i].n; n++) {
            uint8_t *cut = prefix(both[i], n);
            struct idx idx;
            assert_fails(idx_parse(cut, n, "some/file", 3, &idx), STATUS_FAILED,
                         "some/file: truncated");
            assert_null(idx.data);
            free(cut);
        }
        free(both[i].bytes);
    }
}

static void test_idx_contradictions(void **state)
{
    (void)state;
    struct idx idx;
    struct file_bytes f = files_idx(3, 4, 5);
    assert_fails(idx_parse(f.bytes, f.n, "x", 1, &idx), STATUS_FAILED,
                 "begins with 00000803, expected 00000801");
    files_put_be32(f.bytes + 4, 2);
    assert_fails(idx_parse(f.bytes, f.n, "x", 3, &idx), STATUS_FAILED, "more bytes follow");
    files_put_be32(f.bytes + 4, 0);
    assert_fails(idx_parse(f.bytes, f.n, "x", 3, &idx), STATUS_FAILED, "dimension 0");
    for (int i = 4; i < 16; i++)
        f.bytes[i] = 0xff; /* 2^96 bytes, then 2^32 * 2^16: refused before any allocation */
    assert_fails(idx_parse(f.bytes, f.n, "x", 3, &idx), STATUS_FAILED, "dimension 2");
    files_put_be32(f.bytes + 8, 0x10000);
    files_put_be32(f.bytes + 12, 1);
    assert_fails(idx_parse(f.bytes, f.n, "x", 3, &idx), STATUS_FAILED, "at most 60 follow");
    free(f.bytes);
}

static void test_gzip_damage(void **state)
{
    (void)state;
    struct idx idx;
    struct file_bytes plain = files_idx(40, 0, 0), f = files_gzip(plain);
    /* Every change is seen, by zlib or by its checksum, or is of a bit that carries nothing. */
    int n_harmless = 0;
    for (size_t i = 10; i < f.n; i++) { /* after gzip's header */
        f.bytes[i] ^= 0x10;
        if (idx_parse(f.bytes, f.n, "labels.gz", 1, &idx) == STATUS_OK) {
            assert_memory_equal(idx.data, plain.bytes + 8, 40);
            idx_free(&idx);
            n_harmless++;
        } else {
            assert_non_null(strstr(status_message(), "labels.gz: "));
            status_clear();
        }
        f.bytes[i] ^= 0x10;
    }
    assert_in_range(n_harmless, 0, 1); /* the filling of the last byte */
    struct file_bytes longer = {malloc(f.n + 3), f.n + 3};
    memcpy(longer.bytes, f.bytes, f.n);
    memset(longer.bytes + f.n, 'x', 3);
    assert_fails(idx_parse(longer.bytes, longer.n, "x", 1, &idx), STATUS_FAILED, "3 bytes follow");
    free(longer.bytes);
    free(plain.bytes);
    free(f.bytes);
}

static void test_cifar(void **state)
{
    (void)state;
    struct file_bytes f = files_cifar(3);
    int64_t n = 0;
    assert_ok(cifar_check(f.bytes, f.n, "x", &n));
    assert_int_equal(n, 3);
    for (size_t cut = 0; cut < f.n; cut++)
        if (cut % CIFAR_RECORD_BYTES != 0 || cut == 0)
            assert_fails(cifar_check(f.bytes, cut, "a.bin", &n), STATUS_FAILED,
                         "a.bin: truncated or not CIFAR-10");
    f.bytes[CIFAR_RECORD_BYTES] = 10;
    assert_fails(cifar_check(f.bytes, f.n, "a.bin", &n), STATUS_FAILED,
                 "a.bin: label 1 is 10, expected 0 to 9");
    free(f.bytes);
}

/* ---- images ---- */

static void test_jpeg_reads(void **state)
{
    (void)state;
    struct image image = {0};
    for (int kind = 0; kind < 6; kind++) {
        int components = kind % 3 == 0 ? 1 : kind % 3 == 1 ? 3 : 4;
        struct file_bytes f = files_jpeg(kind, 20, 33, components, kind >= 3);
        assert_ok(image_decode_jpeg(f.bytes, f.n, "x", 20, 33, &image));
        assert_int_equal(image.height, 20);
        assert_int_equal(image.width, 33);
        int far = 0;
        for (int i = 0; i < 20 * 33; i++)
            for (int c = 0; c < 3 && components != 4; c++) {
                int expected = files_pixel(kind, i / 33, i % 33, components == 1 ? 0 : c);
                far += abs(image.rgb.bytes[3 * i + c] - expected) > 40;
            }
        assert_that(far < 20 * 33 * 3 / 5, "kind %d: %d pixels are far off", kind, far);
        free(f.bytes);
    }
    buffer_free(&image.rgb);
}

static void test_jpeg_shrinks_while_decoding(void **state)
{
    (void)state;
    struct image image = {0};
    struct file_bytes f = files_jpeg(1, 160, 240, 3, false);
    assert_ok(image_decode_jpeg(f.bytes, f.n, "x", 40, 40, &image));
    assert_int_equal(image.height, 40);
    assert_int_equal(image.width, 60);
    assert_ok(image_decode_jpeg(f.bytes, f.n, "x", 41, 41, &image));
    assert_int_equal(image.height, 80);
    buffer_free(&image.rgb);
    free(f.bytes);
}

static void test_jpeg_cut_anywhere(void **state)
{
    (void)state;
    struct image image = {0};
    for (int progressive = 0; progressive < 2; progressive++) {
        struct file_bytes f = files_jpeg(2, 16, 24, 3, progressive);
        for (size_t n = 0; n < f.n; n++) {
            uint8_t *cut = prefix(f, n);
            enum status st = image_decode_jpeg(cut, n, "a.jpg", 16, 24, &image);
            assert_that(st == STATUS_FAILED, "cut at %zu of %zu", n, f.n);
            assert_non_null(strstr(status_message(), "a.jpg: corrupt JPEG: "));
            status_clear();
            free(cut);
        }
        free(f.bytes);
    }
    buffer_free(&image.rgb);
}

static void test_jpeg_absurd_size(void **state)
{
    (void)state;
    struct image image = {0};
    struct file_bytes f = files_jpeg(2, 16, 24, 3, true);
    size_t at = 0; /* the frame header: ff c2, length, precision, height, width */
    while (!(f.bytes[at] == 0xff && f.bytes[at + 1] == 0xc2))
        at++;
    memset(f.bytes + at + 5, 0xff, 4);
    f.bytes[at + 5] = f.bytes[at + 7] = 0xf0;
    assert_fails(image_decode_jpeg(f.bytes, f.n, "a.jpg", 16, 24, &image), STATUS_FAILED,
                 "more than are allowed");
    f.bytes[at + 5] = f.bytes[at + 7] = 0x20;
    assert_fails(image_decode_jpeg(f.bytes, f.n, "a.jpg", 16, 24, &image), STATUS_FAILED,
                 "cannot be in a file of its size");
    assert_int_equal(image.rgb.capacity, 0);
    free(f.bytes);
}

static const struct {
    int type, depth;
} png_kinds[] = {
    {PNG_COLOR_TYPE_GRAY, 1},       {PNG_COLOR_TYPE_GRAY, 4},       {PNG_COLOR_TYPE_GRAY, 8},
    {PNG_COLOR_TYPE_GRAY, 16},      {PNG_COLOR_TYPE_PALETTE, 2},    {PNG_COLOR_TYPE_PALETTE, 8},
    {PNG_COLOR_TYPE_GRAY_ALPHA, 8}, {PNG_COLOR_TYPE_RGB, 8},        {PNG_COLOR_TYPE_RGB, 16},
    {PNG_COLOR_TYPE_RGB_ALPHA, 8},  {PNG_COLOR_TYPE_RGB_ALPHA, 16},
};
enum { N_PNG_KINDS = sizeof png_kinds / sizeof png_kinds[0] };

static void test_png_reads(void **state)
{
    (void)state;
    struct image image = {0};
    for (int k = 0; k < 2 * N_PNG_KINDS; k++) {
        int type = png_kinds[k / 2].type, depth = png_kinds[k / 2].depth;
        struct file_bytes f = files_png(k, 9, 13, type, depth, k % 2);
        assert_ok(image_decode_png(f.bytes, f.n, "x", &image));
        assert_int_equal(image.height, 9);
        assert_int_equal(image.width, 13);
        for (int i = 0; i < 9 * 13 && depth == 8; i++) {
            const uint8_t *p = image.rgb.bytes + 3 * i;
            int first = files_pixel(k, i / 13, i % 13, 0);
            bool grey = type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA;
            assert_int_equal(p[0], first);
            if (type == PNG_COLOR_TYPE_PALETTE)
                assert_int_equal(p[1], 255 - first);
            else
                assert_int_equal(p[1], grey ? first : files_pixel(k, i / 13, i % 13, 1));
        }
        free(f.bytes);
    }
    buffer_free(&image.rgb);
}

static void test_png_cut_anywhere(void **state)
{
    (void)state;
    struct image image = {0};
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        struct file_bytes f = files_png(3, 9, 13, PNG_COLOR_TYPE_RGB, 8, interlaced);
        for (size_t n = 0; n < f.n; n++) {
            uint8_t *cut = prefix(f, n);
            enum status st = image_decode_png(cut, n, "a.png", &image);
            assert_that(st == STATUS_FAILED, "cut at %zu of %zu", n, f.n);
            assert_non_null(strstr(status_message(), "a.png: corrupt PNG: "));
            status_clear();
            free(cut);
        }
        free(f.bytes);
    }
    buffer_free(&image.rgb);
}

/* Every chunk has a checksum: no changed byte may pass. */
static void test_png_damage(void **state)
{
    (void)state;
    struct image image = {0};
    struct file_bytes f = files_png(3, 9, 13, PNG_COLOR_TYPE_RGB, 8, false);
    for (size_t i = 0; i < f.n; i++) {
        f.bytes[i] ^= 0x41;
        enum status st = image_decode_png(f.bytes, f.n, "a.png", &image);
        assert_that(st == STATUS_FAILED, "byte %zu of %zu", i, f.n);
        status_clear();
        f.bytes[i] ^= 0x41;
    }
    free(f.bytes);
    buffer_free(&image.rgb);
}

static struct image plain_image(int height, int width, int (*pixel)(int, int, int))
{
    struct image image = {.height = height, .width = width};
    assert_ok(buffer_reserve(&image.rgb, (size_t)(height * width * 3)));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                image.rgb.bytes[(y * width + x) * 3 + c] = (uint8_t)pixel(y, x, c);
    return image;
}

static int place(int y, int x, int c)
{
    return 10 * y + x + 80 * c;
}

static int checkers(int y, int x, int c)
{
    (void)c;
    return (x + y) % 2 ? 200 : 100;
}

/* One bright column in four. */
static int stripes(int y, int x, int c)
{
    (void)y;
    (void)c;
    return x % 4 ? 0 : 240;
}

static int ramp(int y, int x, int c)
{
    (void)y;
    (void)c;
    return x;
}

static void test_fit_same_size_and_crop(void **state)
{
    (void)state;
    struct image image = plain_image(6, 10, place);
    struct buffer scratch = {0};
    uint8_t pixels[3 * 6 * 6];
    assert_ok(image_fit(&image, 6, 6, &scratch, pixels)); /* columns 2 to 7 */
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < 6; y++)
            for (int x = 0; x < 6; x++)
                assert_int_equal(pixels[(c * 6 + y) * 6 + x], place(y, x + 2, c));
    buffer_free(&scratch);
    buffer_free(&image.rgb);
}

static void test_fit_averages_when_shrinking(void **state)
{
    (void)state;
    struct image image = plain_image(64, 64, stripes);
    struct buffer scratch = {0};
    uint8_t pixels[3 * 16 * 16];
    assert_ok(image_fit(&image, 16, 16, &scratch, pixels));
    for (int i = 0; i < 3 * 16 * 16; i++)
        assert_int_equal(pixels[i], 60);
    buffer_free(&image.rgb);
    image = plain_image(100, 200, ramp); /* 4.5454 inputs each: the mean of x over the pixel */
    uint8_t uneven[3 * 22 * 22];
    assert_ok(image_fit(&image, 22, 22, &scratch, uneven));
    for (int x = 0; x < 22; x++)
        assert_near(uneven[x], 50 + (x + 0.5) * 100 / 22 - 0.5, 0.01);
    buffer_free(&image.rgb);
    buffer_free(&scratch);
}

static void test_fit_enlarges(void **state)
{
    (void)state;
    struct image image = plain_image(10, 10, ramp);
    struct buffer scratch = {0};
    uint8_t pixels[3 * 40 * 40];
    assert_ok(image_fit(&image, 40, 40, &scratch, pixels));
    for (int x = 4; x < 36; x++)
        assert_near(pixels[40 * 7 + x], (x + 0.5) / 4 - 0.5, 0.6);
    buffer_free(&image.rgb);
    for (int side = 1; side <= 7; side++) /* odd shapes must not read outside */
        for (int other = 1; other <= 300; other += 37) {
            image = plain_image(side, other, checkers);
            assert_ok(image_fit(&image, 40, 40, &scratch, pixels));
            assert_in_range(pixels[0], 100, 200);
            assert_ok(image_fit(&image, 1, 3, &scratch, pixels));
            buffer_free(&image.rgb);
        }
    buffer_free(&scratch);
}

static void test_fifo_is_no_file(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct buffer b = {0};
    size_t n;
    assert_int_equal(mkfifo(test_path(path, "fifo"), 0600), 0); /* without a writer */
    assert_fails(file_read(path, 100, &b, &n), STATUS_FAILED, "fifo: is not a regular file");
    buffer_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx_reads),
        cmocka_unit_test(test_idx_cut_anywhere),
        cmocka_unit_test(test_idx_contradictions),
        cmocka_unit_test(test_gzip_damage),
        cmocka_unit_test(test_cifar),
        cmocka_unit_test(test_jpeg_reads),
        cmocka_unit_test(test_jpeg_shrinks_while_decoding),
        cmocka_unit_test(test_jpeg_cut_anywhere),
        cmocka_unit_test(test_jpeg_absurd_size),
        cmocka_unit_test(test_png_reads),
        cmocka_unit_test(test_png_cut_anywhere),
        cmocka_unit_test(test_png_damage),
        cmocka_unit_test(test_fit_same_size_and_crop),
        cmocka_unit_test(test_fit_averages_when_shrinking),
        cmocka_unit_test(test_fit_enlarges),
        cmocka_unit_test(test_fifo_is_no_file),
    };
    return test_run(tests);
}
