/* winograd.h: 3x3 convolutions with stride 1, by Winograd's algorithm. */
#ifndef CLEAVE_BACKEND_CPU_WINOGRAD_H
#define CLEAVE_BACKEND_CPU_WINOGRAD_H

#include "backend/cpu/cpu_parts.h"

/* Whether the group is one that this way serves, and faster than oneDNN's direct kernels. */
bool winograd_suits(const group *g);

extern const struct op_kernels cpu_winograd;

#endif
