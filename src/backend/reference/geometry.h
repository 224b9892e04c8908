/* geometry.h: shapes as n c h w, and windows sliding over an axis. No element type in here. */
#ifndef CLEAVE_BACKEND_REFERENCE_GEOMETRY_H
#define CLEAVE_BACKEND_REFERENCE_GEOMETRY_H

#include "model/op.h"

struct dims {
    int64_t n, c, h, w;
};

/* Missing axes are 1: [n, features] is n features 1 1. */
static inline struct dims dims_of(const struct shape *s)
{
    return (struct dims){s->dim[0], s->rank > 1 ? s->dim[1] : 1, s->rank > 2 ? s->dim[2] : 1,
                         s->rank > 3 ? s->dim[3] : 1};
}

/* A window over one axis: place o of the window and tap t within it meet at the input's element
 * stride * o + dilation * t - pad, which is padding outside [0, in). */
struct window {
    int64_t in, out, kernel, stride, dilation, pad;
};

static inline struct window window_of(const struct op_case *op, int axis)
{
    const struct op_attrs *a = &op->attrs;
    return (struct window){
        .in = op->input[0].dim[2 + axis],
        .out = op->output.dim[2 + axis],
        .kernel = a->kernel[axis],
        .stride = a->stride[axis],
        .dilation = a->dilation[axis] ? a->dilation[axis] : 1,
        .pad = a->pad_before[axis],
    };
}

static inline int64_t window_index(const struct window *w, int64_t place, int64_t tap)
{
    return w->stride * place + w->dilation * tap - w->pad;
}

/* Those i in [0, count) for which 0 <= step * i + first < extent, with step > 0. */
static inline struct range steps_inside(int64_t first, int64_t step, int64_t count, int64_t extent)
{
    struct range r = {0, 0};
    if (first < 0)
        r.begin = (-first + step - 1) / step;
    if (first < extent)
        r.end = (extent - 1 - first) / step + 1;
    if (r.end > count)
        r.end = count;
    if (r.begin > r.end)
        r.begin = r.end;
    return r;
}

/* The places of the window at which `tap` is inside the input. */
static inline struct range window_places(const struct window *w, int64_t tap)
{
    return steps_inside(window_index(w, 0, tap), w->stride, w->out, w->in);
}

/* The taps that are inside the input at `place`. */
static inline struct range window_taps(const struct window *w, int64_t place)
{
    return steps_inside(window_index(w, place, 0), w->dilation, w->kernel, w->in);
}

#endif
