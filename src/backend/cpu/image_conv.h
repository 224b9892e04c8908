/* image_conv.h: convolutions that stride over an image in long steps, as AlexNet's first layer. */
#ifndef CLEAVE_BACKEND_CPU_IMAGE_CONV_H
#define CLEAVE_BACKEND_CPU_IMAGE_CONV_H

#include "backend/cpu/cpu_parts.h"

/* Whether the group is one: a plain image, a square stride of at least 3, no gradient of the image
 * wanted. */
bool image_conv_suits(const group *g);

extern const struct op_kernels cpu_image_conv;

#endif
