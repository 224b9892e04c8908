/* tap_conv.h: convolutions of tiny images with many channels, as the last ones of networks for
 * small images. */
#ifndef CLEAVE_BACKEND_CPU_TAP_CONV_H
#define CLEAVE_BACKEND_CPU_TAP_CONV_H

#include "backend/cpu/cpu_parts.h"

/* Whether the group is one: one group, at least 16 channels on both sides, and so few places that
 * one matrix product per window element beats oneDNN's and Winograd's convolutions. */
bool tap_conv_suits(const group *g);

extern const struct op_kernels cpu_tap_conv;

#endif
