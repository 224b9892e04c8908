#include "base/array.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 8 };

enum status array_reserve(arena *memory, void *items, int n, int *capacity, size_t element_bytes)
{
    if (n <= *capacity)
        return STATUS_OK;
    int larger = *capacity > INT_MAX / 2 ? INT_MAX : 2 * *capacity;
    larger = larger > n ? larger : n;
    larger = larger > FIRST_CAPACITY ? larger : FIRST_CAPACITY;
    size_t n_bytes;
    void *old, *grown;
    if (__builtin_mul_overflow((size_t)larger, element_bytes, &n_bytes))
        return status_no_memory(SIZE_MAX);
    memcpy(&old, items, sizeof old);
    if (memory) {
        TRY(arena_alloc(memory, n_bytes, &grown));
        if (*capacity > 0)
            memcpy(grown, old, (size_t)*capacity * element_bytes);
    } else {
        grown = realloc(old, n_bytes);
        if (!grown)
            return status_no_memory(n_bytes);
    }
    memcpy(items, &grown, sizeof grown);
    *capacity = larger;
    return STATUS_OK;
}
