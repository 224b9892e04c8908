/* The floor under a layer: how fast oneDNN's own primitives compute it, each alone, in whatever
 * layout it likes best, conversions not counted. */
#include "backend/cpu/product.h"
#include "base/timer.h"

#include <stdlib.h>

/* All extents, in any format; channels rounded up to `multiple`, except those of an image. */
static enum status describe_any(const struct op_case *op, int64_t multiple,
                                struct product_tensors *t)
{
    const struct op_attrs *a = &op->attrs;
    const struct shape *in = &op->input[0], *out = &op->output;
    bool depthwise = a->groups > 1 && a->groups == in->dim[1] && a->groups == a->out_channels;
    if (a->groups > 1 && !depthwise)
        multiple = 1;
    int64_t ins = in->dim[1] <= 3 ? in->dim[1] : round_up(in->dim[1], multiple);
    int64_t outs = round_up(a->out_channels, multiple), groups = depthwise ? ins : a->groups;
    const dnnl_dims_t source = {in->dim[0], ins, in->dim[2], in->dim[3]};
    const dnnl_dims_t target = {out->dim[0], outs, out->dim[2], out->dim[3]};
    const dnnl_dims_t whole = {outs, ins, a->kernel[0], a->kernel[1]}, bias = {outs};
    const dnnl_dims_t grouped = {groups, outs / (groups ? groups : 1), ins / (groups ? groups : 1),
                                 a->kernel[0], a->kernel[1]};
    bool has_groups = a->groups > 1;
    dnnl_format_tag_t any = dnnl_format_tag_any;
    t->has_bias = a->bias;
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&t->source, in->rank, source, dnnl_f32, any));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&t->target, out->rank, target, dnnl_f32, any));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&t->bias, 1, bias, dnnl_f32, any));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&t->weights, has_groups ? 5 : in->rank,
                                          has_groups ? grouped : whole, dnnl_f32, any));
    return STATUS_OK;
}

/* The least time of several runs. */
static enum status time_primitive(device *d, struct primitive *p, double *seconds)
{
    enum { LEAST_RUNS = 3, MOST_RUNS = 50, ENOUGH_NS = 30 * 1000 * 1000 };
    void *memory[PRIMITIVE_MAX_ARGS + 1] = {NULL};
    enum status st = STATUS_OK;
    for (int i = 0; i <= p->n_args && st == STATUS_OK; i++) {
        const dnnl_memory_desc_t *md;
        TRY_GOTO(st, cpu_check(dnnl_memory_get_memory_desc(p->args[i].memory, &md), "memory"), out);
        int64_t n_bytes = (int64_t)dnnl_memory_desc_get_size(md);
        TRY_GOTO(st, cpu_memory_alloc(d, n_bytes ? n_bytes : 64, &memory[i]), out);
        for (int64_t k = 0; k < n_bytes / (int64_t)sizeof(float); k++)
            ((float *)memory[i])[k] = (float)(k % 7 - 3) * 0.125f; /* not zeros: they run faster */
    }
    int64_t total_ns = 0, least_ns = INT64_MAX;
    for (int i = 0; i < LEAST_RUNS || (i < MOST_RUNS && total_ns < ENOUGH_NS); i++) {
        int64_t begin = timer_now_ns();
        TRY_GOTO(st, primitive_run(p, d, memory, memory[p->n_args]), out);
        int64_t t_ns = timer_now_ns() - begin;
        total_ns += t_ns;
        least_ns = t_ns < least_ns ? t_ns : least_ns;
    }
    *seconds = (double)least_ns * 1e-9;
out:
    for (int i = 0; i <= p->n_args; i++)
        free(memory[i]);
    return st;
}

/* One pass in one form; *seconds is left alone where oneDNN has no fast kernel for it. */
static enum status time_pass(device *d, const struct op_case *op, enum pass pass,
                             const struct product_tensors *t, double *seconds)
{
    product_describe *const *describe = op->op == OP_CONV2D ? conv_describe : linear_describe;
    struct primitive hint = {0}, p = {0};
    union product_desc desc;
    bool found = false;
    double s = 0;
    enum status st;
    TRY_GOTO(st, cpu_check(describe[PASS_FORWARD](op, t, &desc), "descriptor"), out);
    TRY_GOTO(st, primitive_describe(d, &desc, ACTIVATION_NONE, NULL, false, &hint, &found), out);
    if (!found)
        goto out;
    TRY_GOTO(st, cpu_check(describe[pass](op, t, &desc), "descriptor"), out);
    TRY_GOTO(st, primitive_describe(d, &desc, ACTIVATION_NONE, &hint, false, &p, &found), out);
    if (!found)
        goto out;
    TRY_GOTO(st, primitive_finish(d, &p, product_args(pass, t->has_bias)), out);
    TRY_GOTO(st, time_primitive(d, &p, &s), out);
    if (*seconds == 0 || s < *seconds)
        *seconds = s;
out:
    primitive_deinit(&p);
    primitive_deinit(&hint);
    return st;
}

enum status cpu_measure_floor(device *d, const struct group_spec *spec, double *seconds)
{
    static const enum pass passes[] = {PASS_FORWARD, PASS_BACKWARD_WEIGHTS, PASS_BACKWARD_DATA};
    *seconds = 0;
    if (d->describe_only)
        return cpu_refuse_to_run();
    cpu_use_threads(d);
    if (spec->op.op != OP_CONV2D && spec->op.op != OP_LINEAR)
        return STATUS_OK;
    for (int i = 0; i < (spec->input_gradient ? 3 : 2); i++) {
        double best = 0;
        for (int rounded = 0; rounded < 2; rounded++) {
            struct product_tensors t;
            TRY(describe_any(&spec->op, rounded ? d->loops->lanes : 1, &t));
            TRY(time_pass(d, &spec->op, passes[i], &t, &best));
        }
        *seconds += best;
    }
    return STATUS_OK;
}
