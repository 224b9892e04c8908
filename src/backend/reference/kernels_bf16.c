/* Whole tensors of bf16: sums are taken in double, like those of float, and rounded once. */
#include "backend/reference/kernels.h"
#include "backend/widen.h"
#include "base/bf16.h"

static void fold_floats(const void *user, int64_t count, int n_addends, const float *const *addends,
                        enum activation activation, const float *output, float *to)
{
    const void *from[GROUP_MAX_ADDENDS];
    (void)user;
    for (int k = 0; k < n_addends; k++)
        from[k] = addends[k];
    kernels_float.fold(count, n_addends, from, activation, output, to);
}

static void fold(int64_t count, int n_addends, const void *const *addends,
                 enum activation activation, const void *output, void *to)
{
    const uint16_t *from[GROUP_MAX_ADDENDS];
    for (int k = 0; k < n_addends; k++)
        from[k] = addends[k];
    widen_fold(fold_floats, NULL, count, n_addends, from, activation, output, to);
}

static void add(int64_t count, const void *from, void *to)
{
    const uint16_t *x = from;
    uint16_t *y = to;
    for (int64_t i = 0; i < count; i++)
        y[i] = bf16_round(bf16_widen(y[i]) + bf16_widen(x[i]));
}

static void from_float(int64_t count, const float *from, void *to)
{
    uint16_t *x = to;
    for (int64_t i = 0; i < count; i++)
        x[i] = bf16_round(from[i]);
}

static void to_float(int64_t count, const void *from, float *to)
{
    const uint16_t *x = from;
    for (int64_t i = 0; i < count; i++)
        to[i] = bf16_widen(x[i]);
}

const struct kernel_table kernels_bf16 = {
    .element_bytes = sizeof(uint16_t),
    .fold = fold,
    .add = add,
    .from_float = from_float,
    .to_float = to_float,
};
