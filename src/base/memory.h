/* memory.h: how much memory this process may use. */
#ifndef CLEAVE_BASE_MEMORY_H
#define CLEAVE_BASE_MEMORY_H

#include "base/status.h"

#include <stdint.h>

/* This host's, or the limit of its control group or of one around that, if it is less; or
 * CLEAVE_MEMORY_LIMIT, where it is set (STATUS_USAGE if that is no number). INT64_MAX: unknown. */
enum status memory_find_limit(int64_t *n_bytes) MUST_USE;

#endif
