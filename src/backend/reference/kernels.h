/* kernels.h: the kernels of each type: those for float and for double are compiled from one text.
 */
#ifndef CLEAVE_BACKEND_REFERENCE_KERNELS_H
#define CLEAVE_BACKEND_REFERENCE_KERNELS_H

#include "backend/backend.h"

/* One run of one group, as the kernels see it. */
struct kernel_call {
    const struct group_spec *spec;
    const struct group_args *args;
    const struct step_state *step;
    const void *output_grad; /* the gradient of the op's output, everything folded in */
};

typedef enum status kernel(const struct kernel_call *call);

/* One op's row. Unused passes are NULL. */
struct op_kernels {
    kernel *forward;
    kernel *backward;         /* PASS_BACKWARD, or PASS_BACKWARD_DATA of ops that split */
    kernel *backward_weights; /* PASS_BACKWARD_WEIGHTS of ops that split */
    kernel *forward_statistics, *backward_statistics; /* of ops that may share them */
};

struct kernel_table {
    int64_t element_bytes;
    struct op_kernels op[OP_KIND_COUNT];
    void (*fold)(int64_t count, int n_addends, const void *const *addends,
                 enum activation activation, const void *output, void *to);
    void (*add)(int64_t count, const void *from, void *to);
    void (*update)(const struct update_rule *rule, int64_t count, void *weight,
                   const void *gradient, void *const state[2]);
    void (*from_float)(int64_t count, const float *from, void *to);
    void (*to_float)(int64_t count, const void *from, float *to);
};

/* That of bf16 has no ops: they run on kernels_float (widen.h). */
extern const struct kernel_table kernels_float, kernels_double, kernels_bf16;

#endif
