/* augment.h: the random changes that make training images go further. */
#ifndef CLEAVE_DATA_AUGMENT_H
#define CLEAVE_DATA_AUGMENT_H

#include "data/dataset.h"

/* Changes pixels [c, h, w] of a sample in place: a horizontal flip half the time and, for the small
 * form, a shift of up to 4 pixels each way with black moving in (the same as cropping at random
 * after padding by 4). A function of (seed, epoch, index) alone. */
void augment_apply(const dataset *d, uint64_t seed, int64_t epoch, int64_t index, float *pixels);

#endif
