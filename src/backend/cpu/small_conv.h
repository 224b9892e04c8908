/* small_conv.h: convolutions of an image to few channels, as LeNet's first layer. */
#ifndef CLEAVE_BACKEND_CPU_SMALL_CONV_H
#define CLEAVE_BACKEND_CPU_SMALL_CONV_H

#include "backend/cpu/cpu_parts.h"

/* Whether the group is one: a plain image of up to 4 channels, up to two blocks of output channels,
 * no gradient of the image wanted. oneDNN has no blocked weight gradient for these. */
bool small_conv_suits(const group *g);

extern const struct op_kernels cpu_small_conv;

#endif
