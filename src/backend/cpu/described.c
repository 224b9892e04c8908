/* The groups of a device that only describes. Programs of many workers ask for the same ones again
 * and again, and describing a convolution to oneDNN takes tens of microseconds. */
#include "backend/cpu/cpu_parts.h"

#include <stdlib.h>

struct described {
    struct described *next;
    group *group;
    struct group_layouts asked, given; /* with which it was created, and the outcome */
};

/* In all that needs and layouts can depend on. Which samples a piece has, what it draws at random
 * and by how many a mean is divided are numbers that kernels use when they run. */
static bool same_spec(const struct group_spec *a, const struct group_spec *b)
{
    return a->activation == b->activation && a->residual == b->residual &&
           a->training == b->training && a->input_gradient == b->input_gradient &&
           a->shared_statistics == b->shared_statistics && op_equal(&a->op, &b->op);
}

/* Those that the caller may fix. */
static bool same_layouts(const struct group_layouts *a, const struct group_layouts *b, int n_inputs)
{
    bool same = a->residual == b->residual && a->output == b->output;
    for (int k = 0; same && k < n_inputs; k++)
        same = a->input[k] == b->input[k];
    for (int k = 0; same && k < OP_MAX_PARAMS; k++)
        same = a->param[k] == b->param[k];
    return same;
}

group *described_find(device *d, const struct group_spec *spec, struct group_layouts *layouts)
{
    const struct described *g = d->described[layout_hash_shape(&spec->op.output)];
    for (; g; g = g->next)
        /* narrow groups are made of wide ones, and their layouts tell them apart */
        if (same_spec(&g->group->spec, spec) &&
            same_layouts(&g->asked, layouts, spec->op.n_inputs)) {
            *layouts = g->given;
            return g->group;
        }
    return NULL;
}

enum status described_add(device *d, const struct group_layouts *asked,
                          const struct group_layouts *given, group *g)
{
    struct described **bucket = &d->described[layout_hash_shape(&g->spec.op.output)];
    struct described *added = malloc(sizeof *added);
    if (!added)
        return status_no_memory(sizeof *added);
    *added = (struct described){*bucket, g, *asked, *given};
    *bucket = added;
    return STATUS_OK;
}

void described_destroy_all(device *d)
{
    for (int i = 0; i < DEVICE_BUCKETS; i++)
        for (struct described *g = d->described[i], *next; g; g = next) {
            next = g->next;
            cpu_group_free(g->group);
            free(g);
        }
}

enum status cpu_refuse_to_run(void)
{
    return status_fail(STATUS_FAILED, "this device was opened to describe groups, not to run them");
}
