/* profile_grow.h: arrays that grow, and copies of many texts. */
#ifndef CLEAVE_PROFILE_PROFILE_GROW_H
#define CLEAVE_PROFILE_PROFILE_GROW_H

#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more behind n elements; `array` is a pointer to the malloc'ed array's pointer. */
static inline enum status grow_array(void *array, int64_t n, int64_t *capacity,
                                     size_t element_bytes)
{
    if (n < *capacity)
        return STATUS_OK;
    int64_t more = *capacity ? 2 * *capacity : 64;
    void *grown;
    memcpy(&grown, array, sizeof grown);
    grown = realloc(grown, (size_t)more * element_bytes);
    if (!grown)
        return status_no_memory((size_t)more * element_bytes);
    memcpy(array, &grown, sizeof grown);
    *capacity = more;
    return STATUS_OK;
}

/* As arena_copy_text, without formatting: there are many. */
static inline enum status grow_text(arena *memory, const char *text, const char **out)
{
    size_t size = strlen(text) + 1;
    char *copy;
    TRY(arena_alloc(memory, size, &copy));
    *out = memcpy(copy, text, size);
    return STATUS_OK;
}

#endif
