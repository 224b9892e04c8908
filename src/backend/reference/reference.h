/* reference.h: the backend that is easy to believe: plain C loops, in float or double.
 *
 * It is the oracle that other backends are tested against, and what Cleave trains with where no
 * other backend was built. One thread; every call on a stream has finished when it returns;
 * layouts are always plain (row-major, [n, c, h, w]); sums are taken in double in both precisions.
 *
 *     const struct group_spec spec = {.op = c, .precision = PRECISION_DOUBLE};
 *     TRY(backend_reference.layout_plain(device, ELEMENT_F64, &c.input[0], &layouts.input[0]));
 *
 * A device and all that is made from it belong to one thread at a time. Upload and download convert
 * from and to float. A device lays out tensors of all types, for programs that are looked at.
 *
 * How it is built: device.c (memory, streams, layouts, transfers), group.c (what a group needs and
 * which kernel runs), and the kernels, written once over the type REAL in *.inc.h and compiled for
 * float and for double.
 */
#ifndef CLEAVE_BACKEND_REFERENCE_REFERENCE_H
#define CLEAVE_BACKEND_REFERENCE_REFERENCE_H

#include "backend/backend.h"

extern const struct backend backend_reference;

#endif
