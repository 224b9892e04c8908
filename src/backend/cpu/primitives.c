#include "backend/cpu/cpu_parts.h"

#include <string.h>

enum status primitive_attributes(enum activation activation, dnnl_primitive_attr_t *out)
{
    TRY_DNNL(dnnl_primitive_attr_create(out));
    TRY_DNNL(dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user));
    if (activation == ACTIVATION_NONE)
        return STATUS_OK;
    dnnl_post_ops_t ops;
    TRY_DNNL(dnnl_post_ops_create(&ops));
    dnnl_status_t st =
        activation == ACTIVATION_RELU
            ? dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0)
            : dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_clip, 0, 6); /* relu6 */
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_post_ops(*out, ops);
    (void)dnnl_post_ops_destroy(ops);
    return cpu_check(st, "post ops");
}

struct cpu_window cpu_window(const struct op_attrs *a)
{
    struct cpu_window w = {0};
    for (int i = 0; i < 2; i++) {
        w.stride[i] = a->stride[i];
        w.kernel[i] = a->kernel[i];
        w.dilates[i] = a->dilation[i] > 1 ? a->dilation[i] - 1 : 0;
        w.before[i] = a->pad_before[i];
        w.after[i] = a->pad_after[i];
    }
    return w;
}

enum status primitive_describe(device *d, const void *op_desc, enum activation activation,
                               const struct primitive *hint, bool allow_reference,
                               struct primitive *p, bool *found)
{
    dnnl_primitive_attr_t attr = NULL;
    *found = false;
    TRY(primitive_attributes(activation, &attr));
    dnnl_status_t st =
        dnnl_primitive_desc_create(&p->desc, op_desc, attr, d->engine, hint ? hint->desc : NULL);
    (void)dnnl_primitive_attr_destroy(attr);
    if (st == dnnl_unimplemented) {
        p->desc = NULL;
        return STATUS_OK;
    }
    TRY(cpu_check(st, "primitive_desc_create"));
    const char *name = "";
    TRY_DNNL(dnnl_primitive_desc_query(p->desc, dnnl_query_impl_info_str, 0, &name));
    *found = allow_reference || strncmp(name, "ref", 3) != 0;
    return STATUS_OK;
}

const dnnl_memory_desc_t *primitive_md(const struct primitive *p, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(p->desc, what, 0);
}

static enum status add_memory(device *d, struct primitive *p, int slot, int arg,
                              const dnnl_memory_desc_t *md)
{
    p->args[slot].arg = arg;
    TRY_DNNL(dnnl_memory_create(&p->args[slot].memory, md, d->engine, DNNL_MEMORY_NONE));
    return STATUS_OK;
}

enum status primitive_finish(device *d, struct primitive *p, const int *args)
{
    const dnnl_memory_desc_t *scratch = primitive_md(p, dnnl_query_scratchpad_md);
    p->scratch_bytes = (int64_t)dnnl_memory_desc_get_size(scratch);
    if (d->describe_only)
        return STATUS_OK;
    TRY_DNNL(dnnl_primitive_create(&p->primitive, p->desc)); /* generates its code */
    for (; *args; args++, p->n_args++) {
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(p->desc, dnnl_query_exec_arg_md, *args);
        TRY(add_memory(d, p, p->n_args, *args, md));
    }
    return add_memory(d, p, p->n_args, DNNL_ARG_SCRATCHPAD, scratch);
}

enum status primitive_run(const struct primitive *p, const device *d, void *const *pointers,
                          void *scratch)
{
    const dnnl_exec_arg_t *args = p->args;
    for (int i = 0; i < p->n_args; i++)
        TRY_DNNL(dnnl_memory_set_data_handle(args[i].memory, pointers[i]));
    TRY_DNNL(dnnl_memory_set_data_handle(args[p->n_args].memory, scratch));
    TRY_DNNL(dnnl_primitive_execute(p->primitive, d->stream, p->n_args + 1, args));
    return STATUS_OK;
}

void primitive_deinit(struct primitive *p)
{
    for (int i = 0; i <= PRIMITIVE_MAX_ARGS; i++)
        if (p->args[i].memory)
            (void)dnnl_memory_destroy(p->args[i].memory);
    if (p->primitive)
        (void)dnnl_primitive_destroy(p->primitive);
    if (p->desc)
        (void)dnnl_primitive_desc_destroy(p->desc);
    *p = (struct primitive){0};
}
