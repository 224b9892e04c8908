/* array.h: arrays that grow.
 *
 *     struct pair *pairs = NULL;
 *     int n = 0, capacity = 0;
 *     TRY(array_reserve(NULL, &pairs, n + 1, &capacity, sizeof *pairs));
 *     pairs[n++] = pair;
 *     free(pairs);
 */
#ifndef CLEAVE_BASE_ARRAY_H
#define CLEAVE_BASE_ARRAY_H

#include "base/arena.h"

/* Makes room for n elements; the capacity at least doubles, so that appending one at a time costs
 * constant time each. `items` is a pointer to the array's pointer, and *capacity what it has room
 * for (NULL and 0 at first). Elements that are there move along; new ones hold anything.
 *
 * With an arena the array lives there, and the outgrown copies with it. Without one (NULL) it is
 * the caller's to free. */
enum status array_reserve(arena *memory, void *items, int n, int *capacity,
                          size_t element_bytes) MUST_USE;

#endif
