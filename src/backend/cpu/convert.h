/* convert.h: images between the plain and the blocked form, by all threads of the device. */
#ifndef CLEAVE_BACKEND_CPU_CONVERT_H
#define CLEAVE_BACKEND_CPU_CONVERT_H

#include "backend/cpu/cpu_parts.h"

/* `shape` is [n, c, h, w]; plain is row-major; blocked has its added channels set to zero. */
void convert_to_blocked(const device *d, const struct shape *shape, const float *plain,
                        float *blocked);
void convert_to_plain(const device *d, const struct shape *shape, const float *blocked,
                      float *plain);

/* y = activation(x) over a whole tensor; added channels stay zero. May be in place. */
void cpu_activate(const device *d, const layout *l, enum activation a, const float *x, float *y);

/* Sets the added channels of a blocked tensor to zero; nothing to do for other layouts. */
void clear_added_channels(const device *d, const layout *l, float *x);

#endif
