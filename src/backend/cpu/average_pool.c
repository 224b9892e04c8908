/* Average pooling by oneDNN, on blocked tensors. */
#include "backend/cpu/cpu_parts.h"

struct pool_group {
    struct group base;
    struct primitive forward, backward;
};

static struct pool_group *pool_of(group *g)
{
    return (struct pool_group *)g;
}

static dnnl_alg_kind_t algorithm(const struct op_case *op)
{
    return op->attrs.count_padding ? dnnl_pooling_avg_include_padding
                                   : dnnl_pooling_avg_exclude_padding;
}

static enum status create_forward(struct pool_group *g, const dnnl_memory_desc_t *source,
                                  const dnnl_memory_desc_t *target)
{
    const struct op_case *op = &g->base.spec.op;
    struct cpu_window w = cpu_window(&op->attrs);
    dnnl_pooling_v2_desc_t desc;
    bool found;
    TRY_DNNL(dnnl_pooling_v2_forward_desc_init(
        &desc, g->base.spec.training ? dnnl_forward_training : dnnl_forward_inference,
        algorithm(op), source, target, w.stride, w.kernel, w.dilates, w.before, w.after));
    TRY(primitive_describe(g->base.device, &desc, ACTIVATION_NONE, NULL, true, &g->forward,
                           &found));
    if (!found)
        return status_fail(STATUS_FAILED, "oneDNN has no pooling for this shape");
    static const int args[] = {DNNL_ARG_SRC, DNNL_ARG_DST, 0};
    return primitive_finish(g->base.device, &g->forward, args);
}

static enum status create_backward(struct pool_group *g, const dnnl_memory_desc_t *source,
                                   const dnnl_memory_desc_t *target)
{
    const struct op_case *op = &g->base.spec.op;
    struct cpu_window w = cpu_window(&op->attrs);
    dnnl_pooling_v2_desc_t desc;
    bool found;
    TRY_DNNL(dnnl_pooling_v2_backward_desc_init(&desc, algorithm(op), source, target, w.stride,
                                                w.kernel, w.dilates, w.before, w.after));
    TRY(primitive_describe(g->base.device, &desc, ACTIVATION_NONE, &g->forward, true, &g->backward,
                           &found));
    if (!found)
        return status_fail(STATUS_FAILED, "oneDNN has no pooling gradient for this shape");
    static const int args[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, 0};
    return primitive_finish(g->base.device, &g->backward, args);
}

static enum status create(group *base)
{
    struct pool_group *g = pool_of(base);
    TRY(layout_get_blocked(base->device, &base->spec.op.output, &base->layouts.output));
    const dnnl_memory_desc_t *source = &base->layouts.input[0]->desc;
    const dnnl_memory_desc_t *target = &base->layouts.output->desc;
    TRY(create_forward(g, source, target));
    if (base->spec.training)
        TRY(create_backward(g, source, target));
    base->needs.forward_workspace_bytes = g->forward.scratch_bytes;
    base->needs.backward_workspace_bytes = g->backward.scratch_bytes;
    return STATUS_OK;
}

static void destroy(group *base)
{
    primitive_deinit(&pool_of(base)->forward);
    primitive_deinit(&pool_of(base)->backward);
}

static enum status forward(group *base, const struct group_args *args)
{
    void *const pointers[] = {(void *)(uintptr_t)args->input[0], args->output};
    return primitive_run(&pool_of(base)->forward, base->device, pointers, args->workspace);
}

static enum status backward(group *base, const struct group_args *args)
{
    if (!args->input_grad[0])
        return STATUS_OK;
    void *const pointers[] = {(void *)(uintptr_t)args->output_grad[0], args->input_grad[0]};
    return primitive_run(&pool_of(base)->backward, base->device, pointers, args->workspace);
}

const struct op_kernels cpu_average_pool = {
    .group_bytes = sizeof(struct pool_group),
    .wants_blocked = true,
    .create = create,
    .destroy = destroy,
    .run = {[PASS_FORWARD] = forward, [PASS_BACKWARD] = backward},
};
