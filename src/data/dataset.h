/* dataset.h: labelled images by index, from any kind of storage.
 *
 * A dataset is named by a spec:
 *
 *     fashion-mnist[:DIR]      IDX files, plain or .gz; DIR defaults to DATASET_FASHION_MNIST_DIR
 *     mnist:DIR                the same four files, digits
 *     cifar10:DIR              data_batch_1.bin .. data_batch_5.bin, test_batch.bin
 *     imagefolder:DIR[@SIZE]   DIR/train/CLASS/x.jpg|png with DIR/test or DIR/val, or
 * DIR/CLASS/x.jpg (then every tenth image of a class is a test image); SIZE 224
 *     packed:FILE[,TESTFILE]   a file of pack_create (pack.h)
 *     synthetic:NAME           NAME: mnist cifar10 imagenet highres imagenet22k
 *     synthetic:CxHxW/CLASSES[/COUNT]
 *
 * IDX, CIFAR and synthetic data are held (or made) in memory; images in folders are decoded when
 * they are read; samples of packed files are read from their place in the file. Pixels come as
 * floats [c, h, w], normalised per channel: (x / 255 - mean) / std.
 *
 *     dataset *d;
 *     TRY(dataset_open("fashion-mnist", DATASET_TRAIN, NULL, &d));
 *     const struct dataset_info *info = dataset_get_info(d);
 *     float *pixels = ...;                       // channels * height * width floats
 *     int32_t label;
 *     TRY(dataset_read(d, 0, pixels, &label));
 *     dataset_close(d);
 */
#ifndef CLEAVE_DATA_DATASET_H
#define CLEAVE_DATA_DATASET_H

#include "base/status.h"

#include <stdint.h>

#define DATASET_FASHION_MNIST_DIR "/usr/share/datasets/fashion-mnist"

enum dataset_split { DATASET_TRAIN, DATASET_TEST };

/* Which variant of a network suits the images: the small forms (3x3 stem, no early pooling) are for
 * images of at most 32 rows: mnist, fashion-mnist, cifar10. */
enum dataset_form { DATASET_FORM_SMALL, DATASET_FORM_LARGE };

struct dataset_info {
    char name[64]; /* "fashion-mnist", "imagenet", "3x64x64/10", the folder's own name ... */
    int channels, height, width, classes;
    int64_t n_samples;       /* of the opened split; of the train split from dataset_describe */
    int64_t n_train, n_test; /* n_test is 0 where there is no test split */
    enum dataset_form form;
    bool synthetic;
    bool in_memory; /* reading is a copy, not a decode: one loader thread suffices */
};

struct dataset_options {
    uint64_t seed; /* of synthetic pixels; nothing else depends on it */
    int64_t limit; /* keep only the first `limit` samples of the split; 0: all */
};

typedef struct dataset dataset;

/* Shape, classes and counts of what `spec` names, touching no file for fashion-mnist, mnist,
 * cifar10 and synthetic specs. For these, and for the bare names mnist, cifar10, imagenet, highres
 * and imagenet22k, which name a shape without any data, the counts are the published ones.
 * Folders and packed files are looked at. STATUS_USAGE for a bad spec. */
enum status dataset_describe(const char *spec, struct dataset_info *out) MUST_USE;

/* Opens one split; `options` may be NULL. STATUS_USAGE for a bad spec; STATUS_FAILED, naming the
 * file, for data that is missing, truncated or corrupt. IDX, CIFAR and packed indices are checked
 * whole here; images of a folder only when they are read. */
enum status dataset_open(const char *spec, enum dataset_split split,
                         const struct dataset_options *options, dataset **out) MUST_USE;
/* NULL is fine. A loader made from the dataset keeps it alive until the loader is destroyed. */
void dataset_close(dataset *d);

/* Valid until dataset_close. */
const struct dataset_info *dataset_get_info(const dataset *d);

/* Sample `index` (0 <= index < n_samples) into pixels, [c, h, w] normalised floats, and *label,
 * 0 <= *label < classes. Any number of threads may read at once. Nothing is allocated when
 * in_memory is set. On failure the content of pixels is unspecified. */
enum status dataset_read(dataset *d, int64_t index, float *pixels, int32_t *label) MUST_USE;

/* A sample that cannot be read, and the one that stands in its place. */
struct dataset_replaced {
    int64_t sample, by;
    char why[400]; /* naming the file */
};

/* So many are replaced where only times count, and so many tried for one: measuring and trials
 * leave it to the training to say what is corrupt, but do not look for a good sample without end.
 */
enum { DATASET_TIMED_SKIPS = 1000 };

/* The same as dataset_read; but where the sample cannot be read, the next one that can (index + 1
 * and on, behind the last one the first) stands in its place, with its own label: a function of the
 * files alone. *replaced is set, and *out says by what. Fails with the error of the sample asked
 * for if none of the next `most_tries` can be read. Only content can be replaced
 * (status_fail_content): where the system does not hand a file out, or memory ran out, the call
 * fails at once. */
enum status dataset_read_or_next(dataset *d, int64_t index, int64_t most_tries, float *pixels,
                                 int32_t *label, struct dataset_replaced *out,
                                 bool *replaced) MUST_USE;

/* The floats of one sample: channels * height * width. */
int64_t dataset_sample_floats(const struct dataset_info *info);

/* Where sample `index` comes from, for messages: a path, or "sample 12 of mnist". Returns buffer.
 */
const char *dataset_sample_name(const dataset *d, int64_t index, char *buffer, size_t size);

/* The name of a class: the folder's name, or "7". Returns buffer. */
const char *dataset_class_name(const dataset *d, int label, char *buffer, size_t size);
/* Whether these are names: made-up data have none. */
bool dataset_has_class_names(const dataset *d);

/* Mean and deviation of each channel by which pixels are normalised, valid until dataset_close;
 * returns how many, 0 for made-up data. */
int dataset_get_normalisation(const dataset *d, const float **mean, const float **std);

#endif
