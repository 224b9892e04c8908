/* spec.h: parses the text that names a dataset. dataset.h lists the forms. */
#ifndef CLEAVE_DATA_SPEC_H
#define CLEAVE_DATA_SPEC_H

#include "data/dataset.h"

enum spec_kind { SPEC_IDX, SPEC_CIFAR, SPEC_FOLDER, SPEC_PACKED, SPEC_SYNTHETIC, SPEC_SHAPE };

enum { SPEC_PATH_BYTES = 1024 };

struct spec {
    enum spec_kind kind;
    struct dataset_info info;        /* zero in all but the name for folders and packed files */
    char path[SPEC_PATH_BYTES];      /* folder or file; "" where none was given */
    char test_path[SPEC_PATH_BYTES]; /* packed only */
    int size;                        /* folders only: height and width */
};

/* The words that such a text is or begins with, ending with NULL; behind a colon a path goes on:
 * "fashion-mnist", "fashion-mnist:", "synthetic:imagenet", "packed:". Made by the first call. */
const char *const *spec_beginnings(void);

enum status spec_parse(const char *text, struct spec *out) MUST_USE;

/* The form that suits images of this height. */
enum dataset_form spec_form(int height);

#endif
