/* loops.h: the backend's own inner loops, compiled once per instruction set.
 *
 * Each function works on one contiguous run by one thread and knows nothing of tensors; the callers
 * cut the work and give runs to threads. The lanes of a block are the innermost index everywhere,
 * so that the compiler turns a position into one vector. `lanes` is the block width of the table,
 * or fewer for the last channels of a plain tensor. */
#ifndef CLEAVE_BACKEND_CPU_LOOPS_H
#define CLEAVE_BACKEND_CPU_LOOPS_H

#include "backend/backend.h"

enum { LOOPS_MAX_LANES = 16 };

/* Sums of x - shift and of its square, per lane. */
struct lane_moments {
    float sum[LOOPS_MAX_LANES], square[LOOPS_MAX_LANES];
};

/* A plane of positions, `stride` floats apart, of which each has `lanes` contiguous floats. */
struct lane_plane {
    int64_t positions, stride;
    int lanes;
};

/* The sums of batch norm's gradient over a plane: dz = (sum of dy) activation'(y), where y is
 * scale x + offset if `y` is NULL. dz is stored unless that is NULL; sum += dz and
 * product += dz (x - mean), per lane. */
struct norm_sums {
    int n_dy;
    const float *const *dy;
    const float *x, *y, *scale, *offset, *mean;
    float *dz, *sum, *product;
};

/* One channel block of one image, cut into tiles of 2x2 outputs, `tiles_x` in a row. */
struct winograd_plane {
    int64_t height, width, pad_top, pad_left, tiles_x;
};

/* Pooling over one channel block of one image; pairs are (height, width). */
struct pool_plane {
    int64_t in[2], out[2], kernel[2], stride[2], dilation[2], pad[2];
};

/* A window over a padded image: `row` floats from one row to the next, `plane` from one channel to
 * the next; `stride` between neighbouring outputs of a row. */
struct image_window {
    int64_t channels, height, width, stride, row, plane;
};

struct cpu_loops {
    const char *name;
    int lanes; /* vector width in floats: the block of channels */

    /* y = activation(x), n floats; may be in place */
    void (*activate)(enum activation a, int64_t n, const float *x, float *y);
    /* to = sum of addends times activation'(y) */
    void (*fold)(enum activation a, int64_t n, int n_addends, const float *const *addends,
                 const float *y, float *to);
    /* to = activation(sum of addends) */
    void (*add)(enum activation a, int64_t n, int n_addends, const float *const *addends,
                float *to);
    /* per lane, over a plane */
    void (*moments)(struct lane_plane p, const float *x, const float *shift,
                    struct lane_moments *to);
    void (*sum_plane)(struct lane_plane p, const float *x, float *sum);
    void (*fill_plane)(struct lane_plane p, const float *value, float *x);
    /* y = activation(scale x + offset + residual); residual may be NULL */
    void (*normalize)(struct lane_plane p, enum activation a, const float *scale,
                      const float *offset, const float *x, const float *residual, float *y);
    void (*norm_gradient_sums)(struct lane_plane p, enum activation a, const struct norm_sums *n);
    /* dx = a dz + b x + c, per lane; may be in place of dz */
    void (*norm_gradient)(struct lane_plane p, const float *a, const float *b, const float *c,
                          const float *x, const float *dz, float *dx);
    /* one optimizer step over n floats */
    void (*update_sgd)(int64_t n, float lr, float decay, float momentum, bool nesterov, float *w,
                       const float *g, float *m);
    void (*update_adamw)(int64_t n, const struct update_rule *rule, float *w, const float *g,
                         float *m, float *v);
    /* kept elements times `scale`, others zero; element i of the run has index first + i */
    void (*dropout)(int64_t n, uint64_t seed, uint32_t node, uint32_t step, uint64_t first,
                    uint32_t threshold, float scale, const float *x, float *y);

    /* The maxima of a plane, and unless `from` is NULL the number (row-major) of the place in the
     * window that each came from: the first of equals. The gradient adds dy at those places. */
    void (*max_pool)(const struct pool_plane *p, const float *x, float *y, int32_t *from);
    void (*max_pool_gradient)(const struct pool_plane *p, const float *dy, const int32_t *from,
                              float *dx);
    /* One row of `count` outputs of a convolution over an image: weights [c][r][s][lanes]; x is the
     * window's place at the first output. */
    void (*image_row)(const struct image_window *w, enum activation a, int64_t count,
                      const float *x, const float *weights, const float *bias, float *y);
    /* Adds a row of output gradients to the weights' gradient dw [c][r][s][lanes]. */
    void (*image_gradient)(const struct image_window *w, int64_t count, const float *x,
                           const float *dy, float *dw);

    /* Winograd's convolution (winograd.inc has the mathematics, winograd.c the use). Tiles
     * [first, first + count) of a plane; transformed tiles lie [16 places][tile][lanes], `place`
     * floats from one place to the next. */
    int winograd_rows; /* products take tiles in multiples of this */
    void (*winograd_input)(const struct winograd_plane *p, int64_t first, int64_t count,
                           const float *x, float *v, int64_t place);
    void (*winograd_gradient)(const struct winograd_plane *p, int64_t first, int64_t count,
                              const float *dy, float *z, int64_t place);
    void (*winograd_output)(const struct winograd_plane *p, enum activation a, int64_t first,
                            int64_t count, const float *m, int64_t place, const float *bias,
                            float *y);
    void (*winograd_weights)(bool turned, const float *w, float *u, int64_t row, int64_t place);
    void (*winograd_weights_gradient)(const float *s, int64_t place, float *dw);
    void (*winograd_product)(int64_t count, int64_t c_blocks, int64_t v_block, const float *v,
                             const float *u, int64_t m_block, float *m);
    void (*winograd_outer)(int64_t count, const float *v, int64_t z_block, const float *z,
                           int64_t s_block, float *s);
};

/* NULL where the build or the machine lacks the instructions. */
const struct cpu_loops *cpu_loops_avx512(void);
const struct cpu_loops *cpu_loops_avx2(void);
const struct cpu_loops *cpu_loops_baseline(void);

#endif
