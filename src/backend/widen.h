/* widen.h: groups whose tensors are narrow (bf16), on kernels for floats.
 *
 * bf16 is a type of storage here: before a pass its tensors are widened into the workspace, the
 * kernels run on those, and what they wrote is rounded on the way back:
 *
 *     input  bf16 -> workspace f32 \
 *     weight bf16 -> workspace f32  - the kernels' pass - workspace f32 -> output bf16
 *
 * Gradients of params, saved data and statistics are the kernels' own and wide already. A backend
 * makes a group for floats first (spec.precision PRECISION_FLOAT, widen_layouts) and then a
 * struct widened, which says how much workspace both need and runs a pass around the kernels'. */
#ifndef CLEAVE_BACKEND_WIDEN_H
#define CLEAVE_BACKEND_WIDEN_H

#include "backend/backend.h"

/* What a backend does its own way; counts include added elements. */
struct widen_calls {
    enum status (*layout_in_type)(device *d, enum element type, const layout *l,
                                  const layout **out);
    int64_t (*layout_bytes)(const layout *l);
    enum element (*layout_type)(const layout *l);
    void (*widen)(const device *d, int64_t count, const uint16_t *from, float *to);
    void (*widen_add)(const device *d, int64_t count, const uint16_t *from, float *to);
    void (*round)(const device *d, int64_t count, const float *from, uint16_t *to);
    /* A pass of the group for floats. */
    enum status (*run)(group *g, enum pass pass, stream *s, const struct group_args *args,
                       const struct step_state *step);
};

struct widened {
    const struct widen_calls *calls;
    device *device;
    struct group_spec spec; /* the narrow group's */
    struct group_needs inner;
    /* Of the tensors as floats; 0: it is no narrow one, or there is none. */
    int64_t input_bytes[OP_MAX_INPUTS], residual_bytes, output_bytes, param_bytes[OP_MAX_PARAMS];
};

/* Whether groups in this precision are narrow. */
bool widen_is_narrow(enum precision precision);

/* The spec and the layouts of the group for floats: those that were given, widened. */
enum status widen_start(const struct widen_calls *calls, device *d, const struct group_spec *spec,
                        const struct group_layouts *narrow, struct group_spec *wide_spec,
                        struct group_layouts *wide) MUST_USE;

/* Behind the creation of that group: chooses the layouts that were not given like its own, and adds
 * to its needs. */
enum status widen_finish(const struct widen_calls *calls, device *d, const struct group_spec *spec,
                         const struct group_layouts *wide, struct group_layouts *narrow,
                         struct group_needs *needs, struct widened *out) MUST_USE;

enum status widen_run(const struct widened *w, group *g, enum pass pass, stream *on,
                      const struct group_args *args, const struct step_state *step) MUST_USE;

/* fold (backend.h) of narrow tensors, a piece at a time. */
typedef void widen_fold_function(const void *user, int64_t count, int n_addends,
                                 const float *const *addends, enum activation activation,
                                 const float *output, float *to);
void widen_fold(widen_fold_function *fold, const void *user, int64_t count, int n_addends,
                const uint16_t *const *addends, enum activation activation, const uint16_t *output,
                uint16_t *to);

#endif
