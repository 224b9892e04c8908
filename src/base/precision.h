/* precision.h: in which types a network is trained: one policy for all of a run, chosen by
 * --precision and handed to lowering. Layouts, buffers and reductions then have the types that the
 * policy says.
 *
 *     policy   products   activations, weights   masters, gradients, statistics
 *     float    f32        f32                    f32
 *     double   f64        f64                    f64
 *     tf32     tf32       f32                    f32
 *     bf16     bf16       bf16                   f32
 *     fp16     fp16       f16                    f32
 */
#ifndef CLEAVE_BASE_PRECISION_H
#define CLEAVE_BASE_PRECISION_H

#include "base/element.h"

/* How a device multiplies matrices: what a machine has rates for (machine.h). */
enum arithmetic {
    ARITHMETIC_F32,
    ARITHMETIC_F64,
    ARITHMETIC_TF32, /* f32 in memory, factors rounded to 10 bits of fraction */
    ARITHMETIC_BF16,
    ARITHMETIC_F16,
    ARITHMETIC_COUNT
};

extern const char *const arithmetic_names[ARITHMETIC_COUNT + 1]; /* "fp32"; NULL at the end */

enum precision {
    PRECISION_FLOAT,
    PRECISION_DOUBLE,
    PRECISION_TF32,
    PRECISION_BF16,
    PRECISION_FP16,
    PRECISION_COUNT
};

struct precision_info {
    enum arithmetic products;
    enum element activation; /* and its gradient */
    enum element weight;     /* of products: convolutions and linear layers */
    enum element master;     /* UPDATE writes it, checkpoints save it, and the optimizer's state has
                                its type; of the weight's type, it is the weight itself */
    enum element gradient;   /* of parameters, in memory and on their way between workers */
    enum element statistic;  /* losses; the parameters and running statistics of norms */
};

const struct precision_info *precision_get_info(enum precision precision);

extern const char *const precision_names[PRECISION_COUNT + 1]; /* NULL at the end */

#endif
