#include "backend/cpu/product.h"

#include "backend/cpu/convert.h"
#include "base/numbers.h"

#include <string.h>

static struct product_group *product_of(group *g)
{
    return (struct product_group *)g;
}

/* A reorder between two descriptors of the same tensor; left empty if they are equal. */
static enum status create_reorder(device *d, const dnnl_memory_desc_t *from,
                                  const dnnl_memory_desc_t *to, struct primitive *p)
{
    static const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO, 0};
    if (dnnl_memory_desc_equal(from, to))
        return STATUS_OK;
    dnnl_primitive_attr_t attr = NULL;
    TRY(primitive_attributes(ACTIVATION_NONE, &attr));
    dnnl_status_t st =
        dnnl_reorder_primitive_desc_create(&p->desc, from, d->engine, to, d->engine, attr);
    (void)dnnl_primitive_attr_destroy(attr);
    TRY(cpu_check(st, "reorder_primitive_desc_create"));
    return primitive_finish(d, p, args);
}

/* All passes are described even where only some will run, so that a training and an evaluation
 * group of the same layer agree on whether these tensors suit, and so on the form of the weights.
 */
static enum status describe_all(struct product_group *g, const struct product_tensors *t,
                                product_describe *const describe[PASS_COUNT], bool allow_reference,
                                bool *found)
{
    struct group *b = &g->base;
    const struct op_case *op = &b->spec.op;
    union product_desc desc;
    enum activation folded = g->after == ACTIVATION_NONE ? b->spec.activation : ACTIVATION_NONE;
    TRY(cpu_check(describe[PASS_FORWARD](op, t, &desc), "forward descriptor"));
    TRY(primitive_describe(b->device, &desc, folded, NULL, allow_reference, &g->forward, found));
    if (!*found)
        return STATUS_OK;
    TRY(cpu_check(describe[PASS_BACKWARD_WEIGHTS](op, t, &desc), "weight gradient descriptor"));
    TRY(primitive_describe(b->device, &desc, ACTIVATION_NONE, &g->forward, allow_reference,
                           &g->weights, found));
    if (!*found || !b->spec.input_gradient)
        return STATUS_OK;
    TRY(cpu_check(describe[PASS_BACKWARD_DATA](op, t, &desc), "data gradient descriptor"));
    return primitive_describe(b->device, &desc, ACTIVATION_NONE, &g->forward, allow_reference,
                              &g->data, found);
}

const int *product_args(enum pass pass, bool bias)
{
    static const int forward[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS, 0};
    static const int data[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC, 0};
    static const int weights[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                  DNNL_ARG_DIFF_BIAS, 0};
    static const int forward_no_bias[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, 0};
    static const int weights_no_bias[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                          0};
    if (pass == PASS_BACKWARD_DATA)
        return data;
    if (pass == PASS_FORWARD)
        return bias ? forward : forward_no_bias;
    return bias ? weights : weights_no_bias;
}

static enum status finish_all(struct product_group *g)
{
    bool bias = g->base.spec.op.attrs.bias;
    device *d = g->base.device;
    TRY(primitive_finish(d, &g->forward, product_args(PASS_FORWARD, bias)));
    if (!g->base.spec.training) {
        primitive_deinit(&g->weights);
        primitive_deinit(&g->data);
    }
    if (g->weights.desc)
        TRY(primitive_finish(d, &g->weights, product_args(PASS_BACKWARD_WEIGHTS, bias)));
    if (g->data.desc)
        TRY(primitive_finish(d, &g->data, product_args(PASS_BACKWARD_DATA, bias)));
    return STATUS_OK;
}

/* oneDNN reorders between any two formats of the same extents. */
static bool same_extents(const layout *given, const dnnl_memory_desc_t *wanted)
{
    return given && given->desc.ndims == wanted->ndims &&
           memcmp(given->desc.dims, wanted->dims, (size_t)wanted->ndims * sizeof wanted->dims[0]) ==
               0;
}

/* Weights stay as given, or take the layout that the forward primitive wants: those given over
 * other extents (rounded up or not) are converted by groups.c. */
static enum status lay_out_weights(struct product_group *g)
{
    struct group *b = &g->base;
    struct op_param params[OP_MAX_PARAMS];
    int n_params = op_get_params(&b->spec.op, params);
    const dnnl_memory_desc_t *wanted = primitive_md(&g->forward, dnnl_query_weights_md);
    if (!same_extents(b->layouts.param[0], wanted))
        TRY(layout_get_weights(b->device, &params[0].shape, wanted, &b->layouts.param[0]));
    if (n_params > 1) {
        const dnnl_memory_desc_t *bias =
            dnnl_primitive_desc_query_md(g->forward.desc, dnnl_query_weights_md, 1);
        if (!same_extents(b->layouts.param[1], bias))
            TRY(layout_get_weights(b->device, &params[1].shape, bias, &b->layouts.param[1]));
    }
    const dnnl_memory_desc_t *have = &b->layouts.param[0]->desc;
    TRY(create_reorder(b->device, have, wanted, &g->to_forward));
    if (g->data.desc)
        TRY(create_reorder(b->device, have, primitive_md(&g->data, dnnl_query_weights_md),
                           &g->to_data));
    if (g->weights.desc)
        TRY(create_reorder(b->device, primitive_md(&g->weights, dnnl_query_diff_weights_md), have,
                           &g->from_gradient));
    return STATUS_OK;
}

static int64_t padded(int64_t n_bytes)
{
    return round_up(n_bytes, 64);
}

/* The bytes of reordered weights in front of a primitive's scratch memory. */
static int64_t reordered_bytes(const struct primitive *reorder, dnnl_query_t side)
{
    if (!reorder->desc)
        return 0;
    return padded((int64_t)dnnl_memory_desc_get_size(primitive_md(reorder, side))) +
           padded(reorder->scratch_bytes);
}

static int64_t converted_bytes(const struct product_group *g)
{
    int64_t source = g->plain_source ? padded(g->plain_source->n_bytes) : 0;
    return source + (g->plain_target ? padded(g->plain_target->n_bytes) : 0);
}

/* Workspace of a pass: converted tensors, reordered weights, then scratch memory. */
static void find_needs(struct product_group *g)
{
    struct group_needs *n = &g->base.needs;
    n->reads_input = true;
    n->forward_workspace_bytes = converted_bytes(g) +
                                 reordered_bytes(&g->to_forward, dnnl_query_dst_md) +
                                 padded(g->forward.scratch_bytes);
    int64_t weights = converted_bytes(g) + reordered_bytes(&g->from_gradient, dnnl_query_src_md) +
                      padded(g->weights.scratch_bytes);
    int64_t data = converted_bytes(g) + reordered_bytes(&g->to_data, dnnl_query_dst_md) +
                   padded(g->data.scratch_bytes);
    n->backward_workspace_bytes = int64_max(weights, data);
}

void product_destroy(group *base)
{
    struct product_group *g = product_of(base);
    primitive_deinit(&g->forward);
    primitive_deinit(&g->data);
    primitive_deinit(&g->weights);
    primitive_deinit(&g->to_forward);
    primitive_deinit(&g->to_data);
    primitive_deinit(&g->from_gradient);
}

enum status product_create(struct product_group *g, const struct product_tensors *tensors,
                           product_describe *const describe[PASS_COUNT], bool allow_reference,
                           bool *found)
{
    if (!can_fold(g->base.spec.activation))
        g->after = g->base.spec.activation;
    TRY(describe_all(g, tensors, describe, allow_reference, found));
    if (!*found) {
        product_destroy(&g->base);
        return STATUS_OK;
    }
    TRY(finish_all(g));
    TRY(lay_out_weights(g));
    find_needs(g);
    return STATUS_OK;
}

/* ---- running ---- */

/* Takes n_bytes off the front of the workspace. */
static void *take(char **workspace, int64_t n_bytes)
{
    void *p = *workspace;
    *workspace += padded(n_bytes);
    return p;
}

/* The weights as the primitive wants them. */
static enum status prepare_weights(struct product_group *g, struct primitive *reorder,
                                   void *weights, char **workspace, void **out)
{
    *out = weights;
    if (!reorder->desc)
        return STATUS_OK;
    const dnnl_memory_desc_t *to = primitive_md(reorder, dnnl_query_dst_md);
    *out = take(workspace, (int64_t)dnnl_memory_desc_get_size(to));
    void *scratch = take(workspace, reorder->scratch_bytes);
    return primitive_run(reorder, g->base.device, (void *const[]){weights, *out}, scratch);
}

/* A blocked tensor as plain, in the workspace; the tensor itself where none is asked for. oneDNN
 * takes all arguments as pointers that could be written to. */
static void *as_plain(const group *g, const layout *plain, const void *tensor, char **workspace)
{
    if (!plain)
        return (void *)(uintptr_t)tensor;
    float *to = take(workspace, plain->n_bytes);
    convert_to_plain(g->device, &plain->shape, tensor, to);
    return to;
}

/* Where a primitive may write a tensor that is blocked but wanted plain, and the way back. */
static void *plain_place(const layout *plain, void *tensor, char **workspace)
{
    return plain ? take(workspace, plain->n_bytes) : tensor;
}

static void from_plain(const group *g, const layout *plain, const void *from, void *tensor)
{
    if (plain)
        convert_to_blocked(g->device, &plain->shape, from, tensor);
}

enum status product_forward(group *base, const struct group_args *args)
{
    struct product_group *g = product_of(base);
    char *workspace = args->workspace;
    void *weights;
    void *source = as_plain(base, g->plain_source, args->input[0], &workspace);
    void *target = plain_place(g->plain_target, args->output, &workspace);
    TRY(prepare_weights(g, &g->to_forward, args->param[0], &workspace, &weights));
    void *const pointers[] = {source, weights, target, args->param[1]};
    TRY(primitive_run(&g->forward, base->device, pointers, workspace));
    from_plain(base, g->plain_target, target, args->output);
    if (g->after != ACTIVATION_NONE)
        cpu_activate(base->device, base->layouts.output, g->after, args->output, args->output);
    return STATUS_OK;
}

enum status product_backward_data(group *base, const struct group_args *args)
{
    struct product_group *g = product_of(base);
    char *workspace = args->workspace;
    void *weights, *to = plain_place(g->plain_source, args->input_grad[0], &workspace);
    void *from = as_plain(base, g->plain_target, args->output_grad[0], &workspace);
    TRY(prepare_weights(g, &g->to_data, args->param[0], &workspace, &weights));
    void *const pointers[] = {from, weights, to};
    TRY(primitive_run(&g->data, base->device, pointers, workspace));
    from_plain(base, g->plain_source, to, args->input_grad[0]);
    return STATUS_OK;
}

enum status product_backward_weights(group *base, const struct group_args *args)
{
    struct product_group *g = product_of(base);
    char *workspace = args->workspace;
    void *source = as_plain(base, g->plain_source, args->input[0], &workspace);
    void *from = as_plain(base, g->plain_target, args->output_grad[0], &workspace);
    void *gradient = args->param_grad[0], *reorder_scratch = NULL;
    if (g->from_gradient.desc) {
        const dnnl_memory_desc_t *md = primitive_md(&g->from_gradient, dnnl_query_src_md);
        gradient = take(&workspace, (int64_t)dnnl_memory_desc_get_size(md));
        reorder_scratch = take(&workspace, g->from_gradient.scratch_bytes);
    }
    void *const pointers[] = {source, from, gradient, args->param_grad[1]};
    TRY(primitive_run(&g->weights, base->device, pointers, workspace));
    if (g->from_gradient.desc)
        TRY(primitive_run(&g->from_gradient, base->device,
                          (void *const[]){gradient, args->param_grad[0]}, reorder_scratch));
    return STATUS_OK;
}
