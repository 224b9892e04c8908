#include "backend/widen.h"

#include "base/bf16.h"
#include "base/numbers.h"

bool widen_is_narrow(enum precision precision)
{
    return precision_get_info(precision)->activation == ELEMENT_BF16;
}

/* ---- layouts ---- */

static enum status as_wide(const struct widen_calls *calls, device *d, const layout **l)
{
    return *l ? calls->layout_in_type(d, ELEMENT_F32, *l, l) : STATUS_OK;
}

enum status widen_start(const struct widen_calls *calls, device *d, const struct group_spec *spec,
                        const struct group_layouts *narrow, struct group_spec *wide_spec,
                        struct group_layouts *wide)
{
    *wide_spec = *spec;
    *wide = *narrow;
    wide_spec->precision = PRECISION_FLOAT;
    for (int k = 0; k < OP_MAX_INPUTS; k++)
        TRY(as_wide(calls, d, &wide->input[k]));
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        TRY(as_wide(calls, d, &wide->param[k]));
    TRY(as_wide(calls, d, &wide->residual));
    return as_wide(calls, d, &wide->output);
}

/* The narrow layout, if it is none yet, and its bytes as floats. */
static enum status settle(const struct widened *w, enum element type, const layout *wide,
                          const layout **narrow, int64_t *n_bytes)
{
    if (!wide)
        return STATUS_OK;
    if (!*narrow)
        TRY(w->calls->layout_in_type(w->device, type, wide, narrow));
    bool is_wide = w->calls->layout_type(*narrow) == ELEMENT_F32;
    *n_bytes = is_wide ? 0 : w->calls->layout_bytes(wide);
    return STATUS_OK;
}

/* ---- workspace ---- */

static int64_t padded(int64_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

static int64_t all_inputs(const struct widened *w)
{
    int64_t sum = 0;
    for (int k = 0; k < w->spec.op.n_inputs; k++)
        sum += padded(w->input_bytes[k]);
    return sum;
}

static int64_t all_params(const struct widened *w)
{
    int64_t sum = 0;
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        sum += padded(w->param_bytes[k]);
    return sum;
}

static bool splits(const struct widened *w)
{
    return op_get_info(w->spec.op.op)->flags & OP_SPLIT_GRADIENT;
}

static int64_t backward_bytes(const struct widened *w)
{
    int64_t inputs = all_inputs(w), output = padded(w->output_bytes), params = all_params(w);
    if (splits(w)) /* two passes: the gradients of inputs, or the inputs */
        return output + inputs + params;
    /* the sum of output gradients, and it with the activation's derivative */
    bool twice = w->spec.activation != ACTIVATION_NONE &&
                 op_get_info(w->spec.op.op)->flags & OP_FOLDS_GRADIENTS;
    int64_t sums = twice ? 2 * output : output;
    return sums + inputs + params + (w->inner.reads_input ? inputs : 0) +
           (w->inner.reads_output ? output : 0);
}

enum status widen_finish(const struct widen_calls *calls, device *d, const struct group_spec *spec,
                         const struct group_layouts *wide, struct group_layouts *narrow,
                         struct group_needs *needs, struct widened *out)
{
    const enum element type = precision_get_info(spec->precision)->activation;
    *out = (struct widened){.calls = calls, .device = d, .spec = *spec, .inner = *needs};
    for (int k = 0; k < spec->op.n_inputs; k++)
        TRY(settle(out, type, wide->input[k], &narrow->input[k], &out->input_bytes[k]));
    TRY(settle(out, type, wide->residual, &narrow->residual, &out->residual_bytes));
    TRY(settle(out, group_output_type(spec), wide->output, &narrow->output, &out->output_bytes));
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        TRY(settle(out, group_param_type(spec->precision, spec->op.op), wide->param[k],
                   &narrow->param[k], &out->param_bytes[k]));
    needs->forward_workspace_bytes = padded(needs->forward_workspace_bytes) + all_inputs(out) +
                                     padded(out->residual_bytes) + padded(out->output_bytes) +
                                     all_params(out);
    if (spec->training)
        needs->backward_workspace_bytes =
            padded(needs->backward_workspace_bytes) + backward_bytes(out);
    return STATUS_OK;
}

/* ---- running ---- */

enum { MOST_WRITTEN = OP_MAX_INPUTS + 2 };

/* A pass under way: the workspace that is left, and the tensors that are rounded behind it, in
 * order. */
struct widening {
    const struct widened *w;
    char *place;
    int n_written;
    struct {
        const float *from;
        uint16_t *to;
        int64_t n_bytes;
    } written[MOST_WRITTEN];
};

static int64_t count_of(int64_t n_bytes)
{
    return n_bytes / (int64_t)sizeof(float);
}

static float *take(struct widening *s, int64_t n_bytes)
{
    float *place = (float *)s->place;
    s->place += padded(n_bytes);
    return place;
}

static const void *read_wide(struct widening *s, const void *narrow, int64_t n_bytes)
{
    if (!narrow || n_bytes == 0)
        return narrow;
    float *wide = take(s, n_bytes);
    s->w->calls->widen(s->w->device, count_of(n_bytes), narrow, wide);
    return wide;
}

static void round_behind(struct widening *s, const float *wide, void *narrow, int64_t n_bytes)
{
    s->written[s->n_written].from = wide;
    s->written[s->n_written].to = narrow;
    s->written[s->n_written++].n_bytes = n_bytes;
}

static void *write_wide(struct widening *s, void *narrow, int64_t n_bytes)
{
    if (!narrow || n_bytes == 0)
        return narrow;
    float *wide = take(s, n_bytes);
    round_behind(s, wide, narrow, n_bytes);
    return wide;
}

static void widen_params(struct widening *s, const struct group_args *args, struct group_args *own)
{
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        own->param[k] = (void *)(uintptr_t)read_wide(s, args->param[k], s->w->param_bytes[k]);
}

static void widen_inputs(struct widening *s, const struct group_args *args, struct group_args *own)
{
    for (int k = 0; k < s->w->spec.op.n_inputs; k++)
        own->input[k] = read_wide(s, args->input[k], s->w->input_bytes[k]);
}

/* The sum of all output gradients, which the kernels see as the only one. Without an activation it
 * is also the folded gradient, and then it is rounded to where that goes. The second pass with
 * shared statistics finds it there. */
static void widen_output_grads(struct widening *s, enum pass pass, const struct group_args *args,
                               struct group_args *own)
{
    const struct widened *w = s->w;
    bool second = pass == PASS_BACKWARD && w->spec.shared_statistics;
    bool activates = w->spec.activation != ACTIVATION_NONE;
    bool folds = op_get_info(w->spec.op.op)->flags & OP_FOLDS_GRADIENTS;
    if (args->n_output_grads == 0 || w->output_bytes == 0)
        return;
    if (second && folds && args->folded_grad) {
        own->n_output_grads = 1;
        own->output_grad[0] = read_wide(s, args->folded_grad, w->output_bytes);
        own->folded_grad = activates ? (void *)(uintptr_t)own->output_grad[0] : NULL;
        return;
    }
    const float *sum = read_wide(s, args->output_grad[0], w->output_bytes);
    for (int k = 1; k < args->n_output_grads; k++)
        w->calls->widen_add(w->device, count_of(w->output_bytes), args->output_grad[k],
                            (float *)(uintptr_t)sum);
    own->n_output_grads = 1;
    own->output_grad[0] = sum;
    own->folded_grad = NULL;
    if (!folds) /* the caller has folded */
        return;
    if (activates)
        own->folded_grad = write_wide(s, args->folded_grad, w->output_bytes);
    else if (args->folded_grad)
        round_behind(s, sum, args->folded_grad, w->output_bytes);
}

static void widen_backward(struct widening *s, enum pass pass, const struct group_args *args,
                           struct group_args *own)
{
    const struct widened *w = s->w;
    bool weights = pass == PASS_BACKWARD_WEIGHTS, first = pass == PASS_BACKWARD_STATISTICS;
    bool data = pass == PASS_BACKWARD_DATA;
    if (w->inner.reads_input && !data)
        widen_inputs(s, args, own);
    if (w->inner.reads_output && !splits(w))
        own->output = (void *)(uintptr_t)read_wide(s, args->output, w->output_bytes);
    if (!weights)
        widen_params(s, args, own);
    widen_output_grads(s, pass, args, own);
    /* Behind the folded gradient: a gradient that is made in its place comes last. */
    for (int k = 0; k < w->spec.op.n_inputs; k++)
        own->input_grad[k] =
            weights || first ? NULL : write_wide(s, args->input_grad[k], w->input_bytes[k]);
}

enum status widen_run(const struct widened *w, group *g, enum pass pass, stream *on,
                      const struct group_args *args, const struct step_state *step)
{
    struct widening s = {.w = w, .place = args->workspace};
    struct group_args own = *args;
    if (pass == PASS_FORWARD || pass == PASS_FORWARD_STATISTICS) {
        widen_inputs(&s, args, &own);
        widen_params(&s, args, &own);
        if (pass == PASS_FORWARD) {
            own.residual = read_wide(&s, args->residual, w->residual_bytes);
            own.output = write_wide(&s, args->output, w->output_bytes);
        }
    } else {
        widen_backward(&s, pass, args, &own);
    }
    own.workspace = s.place;
    TRY(w->calls->run(g, pass, on, &own, step));
    for (int i = 0; i < s.n_written; i++)
        w->calls->round(w->device, count_of(s.written[i].n_bytes), s.written[i].from,
                        s.written[i].to);
    return STATUS_OK;
}

/* ---- sums of gradients ---- */

void widen_fold(widen_fold_function *fold, const void *user, int64_t count, int n_addends,
                const uint16_t *const *addends, enum activation activation, const uint16_t *output,
                uint16_t *to)
{
    enum { PIECE = 512 };
    float wide[GROUP_MAX_ADDENDS][PIECE], y[PIECE], sum[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        const float *from[GROUP_MAX_ADDENDS];
        int64_t n = int64_min(count - at, PIECE);
        for (int k = 0; k < n_addends; k++) {
            for (int64_t i = 0; i < n; i++)
                wide[k][i] = bf16_widen(addends[k][at + i]);
            from[k] = wide[k];
        }
        for (int64_t i = 0; output && i < n; i++)
            y[i] = bf16_widen(output[at + i]);
        fold(user, n, n_addends, from, activation, output ? y : NULL, sum);
        for (int64_t i = 0; i < n; i++)
            to[at + i] = bf16_round(sum[i]);
    }
}
