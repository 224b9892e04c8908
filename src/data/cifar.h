/* cifar.h: CIFAR-10's binary files: records of one label byte and 3 x 32 x 32 pixel bytes. */
#ifndef CLEAVE_DATA_CIFAR_H
#define CLEAVE_DATA_CIFAR_H

#include "base/status.h"

#include <stdint.h>

enum { CIFAR_RECORD_BYTES = 1 + 3 * 32 * 32, CIFAR_CLASSES = 10, CIFAR_FILE_RECORDS = 10000 };

/* Checks the bytes of one file, whole: records only, at least one, labels below CIFAR_CLASSES. */
enum status cifar_check(const uint8_t *bytes, size_t n_bytes, const char *path,
                        int64_t *n_records) MUST_USE;

#endif
