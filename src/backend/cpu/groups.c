/* Groups: which kernels serve an op, and the conversions before and after them. */
#include "backend/cpu/convert.h"
#include "backend/cpu/image_conv.h"
#include "backend/cpu/small_conv.h"
#include "backend/cpu/tap_conv.h"
#include "backend/cpu/winograd.h"

#include <stdlib.h>
#include <string.h>

static const struct op_kernels *const kernels_of_op[] = {
    [OP_CONV2D] = &cpu_conv,
    [OP_LINEAR] = &cpu_linear,
    [OP_MAX_POOL] = &cpu_max_pool,
    [OP_AVERAGE_POOL] = &cpu_average_pool,
    [OP_GLOBAL_POOL] = &cpu_mean_pool,
    [OP_ADAPTIVE_POOL] = &cpu_mean_pool,
    [OP_BATCH_NORM] = &cpu_batch_norm,
    [OP_LOCAL_RESPONSE_NORM] = &cpu_local_response_norm,
    [OP_RELU] = &cpu_activation,
    [OP_RELU6] = &cpu_activation,
    [OP_LOGISTIC] = &cpu_activation,
    [OP_TANH] = &cpu_activation,
    [OP_DROPOUT] = &cpu_dropout,
    [OP_ADD] = &cpu_add,
    [OP_CONCAT] = &cpu_concat,
    [OP_FLATTEN] = &cpu_flatten,
    [OP_SOFTMAX_CROSS_ENTROPY] = &cpu_loss,
};
_Static_assert(sizeof kernels_of_op / sizeof kernels_of_op[0] == OP_KIND_COUNT, "one per op");

/* ---- inputs that came plain though the kernels want them blocked ----
 * They are converted by the forward pass into memory behind the kernels' own saved data, where the
 * backward pass finds them; their gradients are made in the workspace and converted back. */

static enum status convert_layout(group *g, const layout **l, int64_t *n_bytes)
{
    *n_bytes = 0;
    const struct axes images = axes_of_images(4);
    if (!g->kernels->wants_blocked || !*l || (*l)->kind != LAYOUT_PLAIN ||
        !axes_equal(&g->spec.op.axes, &images))
        return STATUS_OK;
    TRY(layout_get_blocked(g->device, &(*l)->shape, l));
    *n_bytes = round_up((*l)->n_bytes, 64);
    return STATUS_OK;
}

static const void *convert_input(group *g, const layout *l, int64_t n_bytes, const void *plain,
                                 char **place, bool now)
{
    if (!n_bytes)
        return plain;
    float *blocked = (float *)*place;
    *place += n_bytes;
    if (now)
        convert_to_blocked(g->device, &l->shape, plain, blocked);
    return blocked;
}

static bool is_forward(enum pass pass)
{
    return pass == PASS_FORWARD || pass == PASS_FORWARD_STATISTICS;
}

/* Whether the pass makes a gradient of input k that must be converted back. */
static bool makes_converted(const group *g, enum pass pass, const struct group_args *args, int k)
{
    return !is_forward(pass) && pass != PASS_BACKWARD_STATISTICS && pass != PASS_BACKWARD_WEIGHTS &&
           args->input_grad[k] && g->converted_bytes[k];
}

/* Nothing is saved before the main forward pass: the statistics pass converts into its workspace.
 */
static enum status run_converted(group *g, enum pass pass, const struct group_args *args)
{
    struct group_args own = *args;
    bool early = pass == PASS_FORWARD_STATISTICS, forward = is_forward(pass);
    char *workspace = args->workspace;
    char *place = early ? workspace : (char *)args->saved + round_up(g->own_saved_bytes, 64);
    for (int k = 0; k < g->spec.op.n_inputs; k++) {
        own.input[k] = convert_input(g, g->layouts.input[k], g->converted_bytes[k], args->input[k],
                                     &place, forward);
        if (makes_converted(g, pass, args, k)) {
            own.input_grad[k] = workspace;
            workspace += g->converted_bytes[k];
        }
    }
    own.residual = convert_input(g, g->layouts.residual, g->converted_residual_bytes,
                                 args->residual, &place, pass == PASS_FORWARD);
    own.workspace = early ? place : workspace;
    TRY(g->kernels->run[pass](g, &own));
    for (int k = 0; k < g->spec.op.n_inputs; k++)
        if (makes_converted(g, pass, args, k))
            convert_to_plain(g->device, &g->spec.op.input[k], own.input_grad[k],
                             args->input_grad[k]);
    return STATUS_OK;
}

/* ---- params that another group of the same layer laid out, for other kernels ----
 * Each pass converts them into its workspace, and their gradients back. */

static enum status adopt_params(group *g, struct group_layouts *layouts)
{
    for (int k = 0; k < OP_MAX_PARAMS; k++) {
        const layout *given = layouts->param[k], *own = g->layouts.param[k];
        if (!given) {
            layouts->param[k] = own;
        } else if (own && !layout_same_bytes(given, own)) {
            if (!(op_get_info(g->spec.op.op)->flags & OP_SPLIT_GRADIENT))
                return status_fail(STATUS_FAILED, "the params given to this %s have another layout",
                                   op_get_info(g->spec.op.op)->name);
            g->given_param[k] = given;
            g->all_param_bytes += round_up(own->n_bytes, 64);
        }
    }
    g->needs.forward_workspace_bytes += g->all_param_bytes;
    g->needs.backward_workspace_bytes += g->all_param_bytes;
    return STATUS_OK;
}

/* A whole param from one layout to another, of which the added elements become zero. */
static enum status convert_param(device *d, const layout *from_layout, const void *from,
                                 const layout *to_layout, void *to)
{
    stream s = {d};
    struct region_copy c = {.from_layout = from_layout, .to_layout = to_layout};
    for (int a = 0; a < from_layout->shape.rank; a++)
        c.extent[a] = from_layout->shape.dim[a];
    memset(to, 0, (size_t)to_layout->n_bytes);
    return cpu_copy_region(&s, &c, from, to);
}

static enum status run_given_params(group *g, enum pass pass, const struct group_args *args)
{
    struct group_args own = *args;
    char *place = args->workspace;
    bool weights = pass == PASS_BACKWARD_WEIGHTS;
    for (int k = 0; k < OP_MAX_PARAMS; k++) {
        const layout *given = g->given_param[k], *wanted = g->layouts.param[k];
        if (!given)
            continue;
        if (!weights)
            TRY(convert_param(g->device, given, args->param[k], wanted, place));
        own.param[k] = place;
        own.param_grad[k] = args->param_grad[k] ? place : NULL;
        place += round_up(wanted->n_bytes, 64);
    }
    own.workspace = place;
    TRY(g->all_converted_bytes ? run_converted(g, pass, &own) : g->kernels->run[pass](g, &own));
    for (int k = 0; weights && k < OP_MAX_PARAMS; k++)
        if (g->given_param[k] && args->param_grad[k])
            TRY(convert_param(g->device, g->layouts.param[k], own.param_grad[k], g->given_param[k],
                              args->param_grad[k]));
    return STATUS_OK;
}

/* ---- the backend's functions ---- */

/* The kernels of the op, or others that do the same work faster for these tensors. */
static const struct op_kernels *choose_kernels(device *d, const struct group_spec *spec,
                                               const struct group_layouts *layouts)
{
    const group asked = {.device = d, .spec = *spec, .layouts = *layouts};
    if (spec->op.op != OP_CONV2D)
        return kernels_of_op[spec->op.op];
    if (small_conv_suits(&asked))
        return &cpu_small_conv;
    if (image_conv_suits(&asked))
        return &cpu_image_conv;
    if (tap_conv_suits(&asked))
        return &cpu_tap_conv;
    return winograd_suits(&asked) ? &cpu_winograd : &cpu_conv;
}

static enum status lay_out(group *g, struct group_layouts *layouts)
{
    bool all_converted = true; /* then the backward pass reads no input of the caller's */
    g->layouts = *layouts;
    for (int k = 0; k < g->spec.op.n_inputs; k++) {
        TRY(convert_layout(g, &g->layouts.input[k], &g->converted_bytes[k]));
        g->all_converted_bytes += g->converted_bytes[k];
        all_converted = all_converted && g->converted_bytes[k];
    }
    TRY(convert_layout(g, &g->layouts.residual, &g->converted_residual_bytes));
    g->all_converted_bytes += g->converted_residual_bytes;
    TRY(g->kernels->create(g));
    layouts->output = g->layouts.output;
    g->own_saved_bytes = g->needs.saved_bytes;
    if (g->all_converted_bytes) {
        g->needs.saved_bytes = round_up(g->own_saved_bytes, 64) + g->all_converted_bytes;
        g->needs.backward_workspace_bytes += g->all_converted_bytes;
        if (g->needs.statistics_count)
            g->needs.forward_workspace_bytes += g->all_converted_bytes;
        if (all_converted)
            g->needs.reads_input = false;
        g->needs.in_place_gradient = g->needs.output_is_input = false;
    }
    return adopt_params(g, layouts);
}

static enum status create_group(device *d, const struct group_spec *spec,
                                struct group_layouts *layouts, group **out)
{
    cpu_use_threads(d);
    const struct op_kernels *kernels = choose_kernels(d, spec, layouts);
    if (!kernels)
        return status_fail(STATUS_FAILED, "the cpu backend does not run %s",
                           op_get_info(spec->op.op)->name);
    group *g = calloc(1, kernels->group_bytes);
    if (!g)
        return status_no_memory(kernels->group_bytes);
    g->device = d;
    g->kernels = kernels;
    g->spec = *spec;
    enum status st = lay_out(g, layouts);
    if (st != STATUS_OK) {
        cpu_group_free(g);
        return st;
    }
    *out = g;
    return STATUS_OK;
}

/* A group for floats, with what it takes to hand it tensors of bf16. */
static enum status create_narrow(device *d, const struct group_spec *spec,
                                 struct group_layouts *layouts, group **out)
{
    struct group_layouts wide;
    struct group_spec wide_spec;
    group *g;
    TRY(widen_start(&cpu_widen_calls, d, spec, layouts, &wide_spec, &wide));
    TRY(create_group(d, &wide_spec, &wide, &g));
    g->narrow = calloc(1, sizeof *g->narrow);
    enum status st = g->narrow ? STATUS_OK : status_no_memory(sizeof *g->narrow);
    if (st == STATUS_OK)
        st = widen_finish(&cpu_widen_calls, d, spec, &wide, layouts, &g->needs, g->narrow);
    if (st != STATUS_OK) {
        cpu_group_free(g);
        return st;
    }
    *out = g;
    return STATUS_OK;
}

static enum status create(device *d, const struct group_spec *spec, struct group_layouts *layouts,
                          group **out)
{
    if (!cpu_computes_in(spec->precision))
        return status_fail(STATUS_FAILED, "the cpu backend does not compute in %s",
                           precision_names[spec->precision]);
    return (widen_is_narrow(spec->precision) ? create_narrow : create_group)(d, spec, layouts, out);
}

enum status cpu_group_create(device *d, const struct group_spec *spec,
                             struct group_layouts *layouts, group **out)
{
    if (!d->describe_only)
        return create(d, spec, layouts, out);
    *out = described_find(d, spec, layouts);
    if (*out)
        return STATUS_OK;
    struct group_layouts asked = *layouts;
    TRY(create(d, spec, layouts, out));
    enum status st = described_add(d, &asked, layouts, *out);
    if (st != STATUS_OK)
        cpu_group_free(*out);
    return st;
}

void cpu_group_free(group *g)
{
    if (g->kernels->destroy)
        g->kernels->destroy(g);
    free(g->narrow);
    free(g);
}

void cpu_group_destroy(group *g)
{
    if (g && !g->device->describe_only)
        cpu_group_free(g);
}

void cpu_group_get_needs(const group *g, struct group_needs *needs)
{
    *needs = g->needs;
}

enum status cpu_group_run(group *g, enum pass pass, stream *s, const struct group_args *args,
                          const struct step_state *step)
{
    if (g->device->describe_only)
        return cpu_refuse_to_run();
    cpu_use_threads(g->device);
    waiting_look(g->device);
    if (g->narrow)
        return widen_run(g->narrow, g, pass, s, args, step);
    return cpu_group_run_wide(g, pass, s, args, step);
}

enum status cpu_group_run_wide(group *g, enum pass pass, stream *s, const struct group_args *args,
                               const struct step_state *step)
{
    (void)s;
    g->step = step;
    if (g->all_param_bytes)
        return run_given_params(g, pass, args);
    if (g->all_converted_bytes)
        return run_converted(g, pass, args);
    return g->kernels->run[pass](g, args);
}
