#include "model/shape.h"

#include <inttypes.h>
#include <stdio.h>

const char *shape_text(char *buffer, size_t size, const struct shape *s)
{
    if (s->rank == 0)
        (void)snprintf(buffer, size, "scalar");
    size_t used = 0;
    for (int i = 0; i < s->rank && used < size; i++) {
        int n = snprintf(buffer + used, size - used, "%s%" PRId64, i ? "x" : "", s->dim[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return buffer;
}
