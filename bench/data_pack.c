/* What packing a folder of small images gains: reads of all samples in random order, from the
 * folder and from its packed forms, in one run.
 *
 *     data_pack [IMAGES [SIDE [FOLDER]]]     defaults: 3000 JPEGs of 96 x 96 in a folder of $TMPDIR
 *
 * "access" fetches the bytes of each image file; "sample" also decodes and normalises them. "cold"
 * asks the kernel to forget the file contents first and counts the opening (names and inodes stay
 * cached, so a folder on a shared file system loses by more than is shown here).
 */
#include "base/random.h"
#include "base/timer.h"
#include "data/pack.h"
#include "data/source.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

enum { CLASSES = 10, REPEATS = 3 };

static void die(const char *what)
{
    (void)fprintf(stderr, "data_pack: %s: %s\n", what, status_message());
    exit(1);
}

static void write_jpeg(const char *path, int seed, int side)
{
    FILE *f = fopen(path, "wb");
    uint8_t *row = malloc((size_t)side * 3);
    if (!f || !row)
        die(path);
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_height = c.image_width = (JDIMENSION)side;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 85, TRUE);
    jpeg_start_compress(&c, TRUE);
    uint32_t noise = (uint32_t)seed;
    for (int y = 0; y < side; y++) {
        for (int i = 0; i < 3 * side; i++) { /* a ramp under noise: dense as a photograph */
            noise = noise * 1664525u + 1013904223u;
            row[i] = (uint8_t)(60 + seed % 50 + (y + i / 3) % 100 + (int)(noise >> 27));
        }
        (void)jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    (void)fclose(f);
}

static void make_folder(const char *folder, int n_images, int side)
{
    char path[PATH_MAX];
    for (int c = 0; c < CLASSES; c++) {
        (void)snprintf(path, sizeof path, "%s/images/%d", folder, c);
        (void)mkdir(path, 0777);
    }
    for (int i = 0; i < n_images; i++) {
        (void)snprintf(path, sizeof path, "%s/images/%d/%06d.jpg", folder, i % CLASSES, i);
        write_jpeg(path, i, side);
    }
}

static int forget_file(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)walk;
    int fd = type == FTW_F ? open(path, O_RDONLY) : -1;
    if (fd >= 0) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
    return 0;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

/* Seconds for one pass over all samples in random order. */
static double time_pass(dataset *d, bool decode, uint64_t seed, float *pixels)
{
    const struct source *source = dataset_source(d);
    struct random_key key = {seed, RANDOM_SHUFFLE, 0};
    struct buffer file = {0};
    uint64_t n = (uint64_t)source->info.n_samples;
    int64_t start_ns = timer_now_ns();
    for (uint64_t i = 0; i < n; i++) {
        int64_t index = (int64_t)random_permute(key, n, i);
        size_t n_bytes;
        int32_t label;
        enum status st = decode
                             ? dataset_read(d, index, pixels, &label)
                             : source->calls->encoded(source->self, index, &file, &n_bytes, &label);
        if (st != STATUS_OK)
            die("read");
    }
    double seconds = (double)(timer_now_ns() - start_ns) * 1e-9;
    buffer_free(&file);
    return seconds;
}

/* The best of REPEATS passes. The dataset is opened for each, since a mapping keeps its pages from
 * being forgotten; opening counts when cold, since it may bring in more than the index. */
static double time_reads(const char *spec, const char *folder, bool decode, bool cold)
{
    double best = 1e30;
    for (uint64_t r = 0; r < REPEATS; r++) {
        if (cold)
            (void)nftw(folder, forget_file, 16, FTW_PHYS);
        int64_t start_ns = timer_now_ns();
        dataset *d;
        if (dataset_open(spec, DATASET_TRAIN, NULL, &d) != STATUS_OK)
            die(spec);
        double open_s = (double)(timer_now_ns() - start_ns) * 1e-9;
        float *pixels = malloc((size_t)dataset_sample_floats(dataset_get_info(d)) * sizeof(float));
        if (!pixels)
            die("memory");
        if (!cold && r == 0)
            (void)time_pass(d, decode, 99, pixels);
        double seconds = time_pass(d, decode, r, pixels) + (cold ? open_s : 0);
        best = seconds < best ? seconds : best;
        free(pixels);
        dataset_close(d);
    }
    return best;
}

static void pack(const char *spec, const char *path, enum pack_encoding encoding)
{
    struct pack_options options = {.encoding = encoding};
    int64_t start_ns = timer_now_ns();
    if (pack_create(spec, DATASET_TRAIN, path, &options) != STATUS_OK)
        die(path);
    struct stat info;
    (void)stat(path, &info);
    printf("packed %-4s  %8.2f MB in %.2f s\n", encoding == PACK_RAW ? "raw" : "jpeg",
           (double)info.st_size * 1e-6, (double)(timer_now_ns() - start_ns) * 1e-9);
}

int main(int argc, char **argv)
{
    int n_images = argc > 1 ? atoi(argv[1]) : 3000, side = argc > 2 ? atoi(argv[2]) : 96;
    const char *top = argc > 3 ? argv[3] : getenv("TMPDIR");
    char folder[PATH_MAX / 2], path[PATH_MAX], specs[3][PATH_MAX + 64];
    if (n_images < CLASSES * 10 || side < 8 || side > 4096) {
        (void)fprintf(stderr, "usage: %s [IMAGES (100 or more) [SIDE (8 to 4096) [FOLDER]]]\n",
                      argv[0]);
        return 2;
    }
    (void)snprintf(folder, sizeof folder, "%s/cleave-pack.XXXXXX", top && *top ? top : "/tmp");
    if (!mkdtemp(folder))
        die(folder);
    (void)snprintf(path, sizeof path, "%s/images", folder);
    (void)mkdir(path, 0777);
    make_folder(folder, n_images, side);
    (void)snprintf(specs[0], sizeof specs[0], "imagefolder:%s/images@%d", folder, side);
    for (int e = PACK_RAW; e <= PACK_JPEG; e++) {
        (void)snprintf(path, sizeof path, "%s/%s.pack", folder, e == PACK_RAW ? "raw" : "jpeg");
        pack(specs[0], path, (enum pack_encoding)e);
        (void)snprintf(specs[1 + e], sizeof specs[0], "packed:%s", path);
    }
    sync(); /* only pages written to the disk can be dropped */
    printf("%d JPEGs of %dx%d, 9 of 10 read in random order by one thread, best of %d, us/image\n",
           n_images, side, side, REPEATS);
    printf("%-5s %-6s %10s %10s %7s\n", "", "", "folder", "packed", "ratio");
    double per_image = 1e6 / (n_images * 0.9);
    for (int cold = 1; cold >= 0; cold--)
        for (int row = 0; row < 3; row++) {
            static const char *const names[] = {"access", "sample, raw", "sample, jpeg"};
            const char *spec = specs[row == 1 ? 1 : 2];
            double a = time_reads(specs[0], folder, row > 0, cold) * per_image;
            double b = time_reads(spec, folder, row > 0, cold) * per_image;
            printf("%-5s %-12s %8.1f %10.1f %6.1fx\n", cold ? "cold" : "warm", names[row], a, b,
                   a / b);
        }
    (void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
