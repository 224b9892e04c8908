/* Groups: the needs of each op beyond its tensors, and which kernel a pass runs. */
#include "backend/reference/reference_parts.h"

#include <assert.h>
#include <stdlib.h>

struct group {
    const struct kernel_table *kernels; /* NULL: it is described, not run */
    struct group_spec spec;
    struct group_needs needs;
    struct widened *narrow; /* NULL: the tensors are as the kernels have them */
};

/* ---- needs: one row per op. The kernels' own arrays are doubles in both precisions. ---- */

enum reads { READS_NOTHING = 0, READS_INPUT = 1, READS_OUTPUT = 2 };

/* An amount of workspace or saved data, in bytes. */
typedef int64_t amount(const struct op_case *op);

struct needs_row {
    unsigned reads;            /* enum reads: by backward, folded activation aside */
    amount *saved;             /* NULL: none, likewise below */
    amount *forward_workspace; /* in training and in evaluation */
    amount *backward_workspace;
};

static int64_t doubles(int64_t count)
{
    return count * (int64_t)sizeof(double);
}

static int64_t input_plane(const struct op_case *op)
{
    return doubles(op->input[0].dim[2] * op->input[0].dim[3]);
}

static int64_t output_plane(const struct op_case *op)
{
    return doubles(op->output.dim[2] * op->output.dim[3]);
}

static int64_t input_row(const struct op_case *op)
{
    return doubles(op->input[0].dim[1]);
}

static int64_t two_per_channel(const struct op_case *op)
{
    return doubles(2 * op->input[0].dim[1]);
}

static int64_t place_per_output(const struct op_case *op)
{
    return shape_elements(&op->output) * (int64_t)sizeof(int32_t);
}

static const struct needs_row needs_table[] = {
    [OP_INPUT] = {READS_NOTHING, NULL, NULL, NULL},
    [OP_CONV2D] = {READS_INPUT, NULL, output_plane, input_plane},
    [OP_LINEAR] = {READS_INPUT, NULL, NULL, input_row},
    [OP_MAX_POOL] = {READS_NOTHING, place_per_output, NULL, input_plane},
    [OP_AVERAGE_POOL] = {READS_NOTHING, NULL, NULL, input_plane},
    [OP_GLOBAL_POOL] = {READS_NOTHING, NULL, NULL, input_plane},
    [OP_ADAPTIVE_POOL] = {READS_NOTHING, NULL, NULL, input_plane},
    [OP_BATCH_NORM] = {READS_INPUT, two_per_channel, NULL, NULL},
    [OP_LOCAL_RESPONSE_NORM] = {READS_INPUT, NULL, NULL, two_per_channel},
    [OP_RELU] = {READS_OUTPUT, NULL, NULL, NULL},
    [OP_RELU6] = {READS_OUTPUT, NULL, NULL, NULL},
    [OP_LOGISTIC] = {READS_OUTPUT, NULL, NULL, NULL},
    [OP_TANH] = {READS_OUTPUT, NULL, NULL, NULL},
    [OP_DROPOUT] = {READS_NOTHING, NULL, NULL, NULL},
    [OP_ADD] = {READS_NOTHING, NULL, NULL, NULL},
    [OP_CONCAT] = {READS_NOTHING, NULL, NULL, NULL},
    [OP_FLATTEN] = {READS_NOTHING, NULL, NULL, NULL},
    [OP_SOFTMAX_CROSS_ENTROPY] = {READS_INPUT, NULL, NULL, NULL},
};
static_assert(sizeof needs_table / sizeof needs_table[0] == OP_KIND_COUNT, "one row per op");

static int64_t amount_of(amount *rule, const struct op_case *op)
{
    return rule ? rule(op) : 0;
}

static void set_needs(const struct group_spec *spec, struct group_needs *needs)
{
    const struct needs_row *row = &needs_table[spec->op.op];
    const bool folds = spec->residual || spec->activation != ACTIVATION_NONE;
    *needs = (struct group_needs){
        .forward_workspace_bytes = amount_of(row->forward_workspace, &spec->op),
        .output_is_input = spec->op.op == OP_FLATTEN && !folds,
    };
    if (!spec->training)
        return;
    needs->saved_bytes = amount_of(row->saved, &spec->op);
    if (spec->shared_statistics)
        needs->statistics_count = 2 * spec->op.input[0].dim[1];
    needs->backward_workspace_bytes = amount_of(row->backward_workspace, &spec->op);
    needs->reads_input = row->reads & READS_INPUT;
    /* A folded activation's derivative is taken from the output, here or in fold. */
    needs->reads_output = row->reads & READS_OUTPUT || spec->activation != ACTIVATION_NONE;
}

/* ---- creation ---- */

/* A layout that is given must have the type and the shape that the op says; one that is not is
 * made. */
static enum status settle_layout(device *d, const char *op, const char *tensor, enum element type,
                                 const struct shape *shape, bool is_given, const layout **l)
{
    char expected[64], actual[64];
    if (!*l && !is_given)
        return reference_layout_plain(d, type, shape, l);
    if (!*l)
        return status_fail(STATUS_FAILED, "%s: the layout of its %s is missing", op, tensor);
    if ((*l)->type != type)
        return status_fail(STATUS_FAILED, "%s: its %s should be %s, but the layout is %s", op,
                           tensor, element_name(type), element_name((*l)->type));
    if (shape_equal(&(*l)->shape, shape))
        return STATUS_OK;
    return status_fail(STATUS_FAILED, "%s: its %s should be %s, but the layout is %s", op, tensor,
                       shape_text(expected, sizeof expected, shape),
                       shape_text(actual, sizeof actual, &(*l)->shape));
}

static enum status settle_layouts(device *d, const struct group_spec *spec, struct group_layouts *l)
{
    const char *name = op_get_info(spec->op.op)->name;
    const struct op_case *op = &spec->op;
    const enum element type = precision_get_info(spec->precision)->activation;
    const enum element of_params = group_param_type(spec->precision, op->op);
    for (int i = 0; i < op->n_inputs; i++)
        TRY(settle_layout(d, name, "input", type, &op->input[i], true, &l->input[i]));
    if (spec->residual)
        TRY(settle_layout(d, name, "residual", type, &op->output, true, &l->residual));
    TRY(settle_layout(d, name, "output", group_output_type(spec), &op->output, false, &l->output));
    struct op_param params[OP_MAX_PARAMS];
    const int n_params = op_get_params(op, params);
    for (int i = 0; i < n_params; i++)
        TRY(settle_layout(d, name, params[i].name, of_params, &params[i].shape, false,
                          &l->param[i]));
    return STATUS_OK;
}

/* The spec and layouts are the kernels' own. */
static enum status fill(group *g, device *d, const struct group_spec *spec,
                        struct group_layouts *layouts)
{
    TRY(settle_layouts(d, spec, layouts));
    g->spec = *spec;
    set_needs(spec, &g->needs);
    if (d->has_all_types || !reference_computes_in(spec->precision))
        return STATUS_OK;
    return reference_find_kernels(precision_get_info(spec->precision)->activation, &g->kernels);
}

static enum status fill_narrow(group *g, device *d, const struct group_spec *spec,
                               struct group_layouts *layouts)
{
    const struct widen_calls *calls = &reference_widen_calls;
    struct group_layouts wide;
    struct group_spec wide_spec;
    TRY(settle_layouts(d, spec, layouts));
    TRY(widen_start(calls, d, spec, layouts, &wide_spec, &wide));
    TRY(fill(g, d, &wide_spec, &wide));
    g->narrow = calloc(1, sizeof *g->narrow);
    if (!g->narrow)
        return status_no_memory(sizeof *g->narrow);
    return widen_finish(calls, d, spec, &wide, layouts, &g->needs, g->narrow);
}

enum status reference_group_create(device *d, const struct group_spec *spec,
                                   struct group_layouts *layouts, group **out)
{
    if (!kernels_float.op[spec->op.op].forward)
        return status_fail(STATUS_FAILED, "%s computes nothing, so it cannot be a group",
                           op_get_info(spec->op.op)->name);
    group *g = calloc(1, sizeof *g);
    if (!g)
        return status_no_memory(sizeof *g);
    bool narrow = widen_is_narrow(spec->precision) && !d->has_all_types;
    enum status st = (narrow ? fill_narrow : fill)(g, d, spec, layouts);
    if (st != STATUS_OK) {
        reference_group_destroy(g);
        return st;
    }
    *out = g;
    return STATUS_OK;
}

void reference_group_destroy(group *g)
{
    if (g)
        free(g->narrow);
    free(g);
}

void reference_group_get_needs(const group *g, struct group_needs *needs)
{
    *needs = g->needs;
}

/* ---- running ---- */

static kernel *choose_kernel(const group *g, enum pass pass)
{
    const struct op_kernels *kernels = &g->kernels->op[g->spec.op.op];
    const bool splits = op_get_info(g->spec.op.op)->flags & OP_SPLIT_GRADIENT;
    if (pass == PASS_FORWARD)
        return kernels->forward;
    if (!g->spec.training)
        return NULL;
    if (pass == PASS_BACKWARD_WEIGHTS)
        return kernels->backward_weights;
    if (pass == PASS_FORWARD_STATISTICS)
        return g->spec.shared_statistics ? kernels->forward_statistics : NULL;
    if (pass == PASS_BACKWARD_STATISTICS)
        return g->spec.shared_statistics ? kernels->backward_statistics : NULL;
    return splits == (pass == PASS_BACKWARD_DATA) ? kernels->backward : NULL;
}

static enum status check_args(const group *g, enum pass pass, const struct group_args *args)
{
    const char *name = op_get_info(g->spec.op.op)->name;
    const struct group_needs *needs = &g->needs;
    const bool forward = pass == PASS_FORWARD || pass == PASS_FORWARD_STATISTICS;
    int64_t workspace_bytes =
        forward ? needs->forward_workspace_bytes : needs->backward_workspace_bytes;
    if (workspace_bytes && !args->workspace)
        return status_fail(STATUS_FAILED, "%s: its workspace is missing", name);
    if (needs->saved_bytes && !args->saved && pass != PASS_FORWARD_STATISTICS)
        return status_fail(STATUS_FAILED, "%s: its saved data is missing", name);
    if (needs->statistics_count && !args->statistics)
        return status_fail(STATUS_FAILED, "%s: its statistics are missing", name);
    if (pass == PASS_FORWARD && g->spec.residual && !args->residual)
        return status_fail(STATUS_FAILED, "%s: its residual is missing", name);
    return STATUS_OK;
}

/* Sets call->output_grad: the given one, or, where the op folds by itself, the folded gradient. */
static enum status fold_output_grad(const group *g, const struct group_args *args,
                                    struct kernel_call *call)
{
    const struct op_info *info = op_get_info(g->spec.op.op);
    if (info->flags & OP_IS_LOSS)
        return STATUS_OK;
    if (args->n_output_grads < 1)
        return status_fail(STATUS_FAILED, "%s: its output gradient is missing", info->name);
    const bool folds = g->spec.residual || g->spec.activation != ACTIVATION_NONE;
    call->output_grad = args->output_grad[0];
    if (!(info->flags & OP_FOLDS_GRADIENTS)) {
        if (args->n_output_grads == 1)
            return STATUS_OK;
        return status_fail(STATUS_FAILED, "%s: takes one output gradient, not %d", info->name,
                           args->n_output_grads);
    }
    if (!folds && args->n_output_grads == 1)
        return STATUS_OK;
    /* One gradient that only a residual shares is its own folded gradient. */
    if (args->n_output_grads == 1 && g->spec.activation == ACTIVATION_NONE && !args->folded_grad)
        return STATUS_OK;
    if (!args->folded_grad)
        return status_fail(STATUS_FAILED, "%s: has no place for its folded gradient", info->name);
    g->kernels->fold(shape_elements(&g->spec.op.output), args->n_output_grads, args->output_grad,
                     g->spec.activation, args->output, args->folded_grad);
    call->output_grad = args->folded_grad;
    return STATUS_OK;
}

enum status reference_group_run(group *g, enum pass pass, stream *s, const struct group_args *args,
                                const struct step_state *step)
{
    if (g->narrow) {
        TRY(check_args(g, pass, args));
        return widen_run(g->narrow, g, pass, s, args, step);
    }
    return reference_group_run_wide(g, pass, s, args, step);
}

enum status reference_group_run_wide(group *g, enum pass pass, stream *s,
                                     const struct group_args *args, const struct step_state *step)
{
    static const char *const pass_names[PASS_COUNT] = {
        "forward",          "backward",           "backward-data",
        "backward-weights", "forward-statistics", "backward-statistics"};
    (void)s;
    if (!g->kernels)
        return status_fail(STATUS_FAILED, "the reference backend does not compute in %s",
                           precision_names[g->spec.precision]);
    kernel *run = choose_kernel(g, pass);
    if (!run)
        return status_fail(STATUS_FAILED, "%s: a group for %s has no %s pass",
                           op_get_info(g->spec.op.op)->name,
                           g->spec.training ? "training" : "evaluation", pass_names[pass]);
    TRY(check_args(g, pass, args));
    struct kernel_call call = {.spec = &g->spec, .args = args, .step = step};
    if (pass == PASS_BACKWARD && g->spec.shared_statistics) /* its statistics pass has folded */
        call.output_grad = args->folded_grad ? args->folded_grad : args->output_grad[0];
    else if (pass != PASS_FORWARD && pass != PASS_FORWARD_STATISTICS)
        TRY(fold_output_grad(g, args, &call));
    return run(&call);
}
