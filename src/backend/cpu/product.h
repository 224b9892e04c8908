/* product.h: convolution and linear layers: three oneDNN primitives each, over one set of weights.
 *
 * The weights are kept as the forward primitive wants them; where a gradient primitive wants them
 * otherwise, they are reordered into the workspace first. The two ops differ only in
 * how the primitives are described. */
#ifndef CLEAVE_BACKEND_CPU_PRODUCT_H
#define CLEAVE_BACKEND_CPU_PRODUCT_H

#include "backend/cpu/cpu_parts.h"

/* Descriptors of the four tensors; bias is NULL where the op has none. */
struct product_tensors {
    dnnl_memory_desc_t source, weights, bias, target;
    bool has_bias;
};

union product_desc {
    dnnl_convolution_desc_t convolution;
    dnnl_inner_product_desc_t inner_product;
};

typedef dnnl_status_t product_describe(const struct op_case *op, const struct product_tensors *t,
                                       union product_desc *desc);

struct product_group {
    struct group base;
    struct primitive forward, data, weights;
    /* Reorders of the weights between their layout and what a primitive wants; empty if equal. */
    struct primitive to_forward, to_data, from_gradient;
    /* Set if the primitives want these as plain though the tensors are blocked (input) or shall be
     * (output): converted through the workspace. */
    const layout *plain_source, *plain_target;
    enum activation after; /* an activation that oneDNN cannot fold in */
};

/* By pass; conv.c and linear.c. */
extern product_describe *const conv_describe[PASS_COUNT], *const linear_describe[PASS_COUNT];

/* The arguments of a pass's primitive, in the order in which the passes below hand them over. */
const int *product_args(enum pass pass, bool bias);

/* Describes, creates and lays out the group. On STATUS_OK with *found false oneDNN has no fast
 * implementation for these tensors, and the group is as before. */
enum status product_create(struct product_group *g, const struct product_tensors *tensors,
                           product_describe *const describe[PASS_COUNT], bool allow_reference,
                           bool *found) MUST_USE;

/* The functions of both. */
void product_destroy(group *base);
enum status product_forward(group *base, const struct group_args *args);
enum status product_backward_data(group *base, const struct group_args *args);
enum status product_backward_weights(group *base, const struct group_args *args);

#endif
