/* Costs of the rows: floating-point operations per pass (a multiply-add is two), and the fewest
 * elements that must move: each tensor of the pass read or written once. */
#include "model/op_rules.h"

static double elements(const struct shape *s)
{
    return (double)shape_elements(s);
}

void op_flops_none(const struct op_case *c, struct op_cost *cost)
{
    (void)c;
    (void)cost;
}

/* Convolution and linear: every output element is a dot product over the summed loops. The two
 * gradients are products of the same size; a bias adds one operation per output element. */
void op_flops_product(const struct op_case *c, struct op_cost *cost)
{
    struct loop_nest nest;
    op_get_loops(c, &nest);
    double per_output = 2;
    for (int i = 0; i < nest.n_loops; i++)
        if (nest.loop[i].role == LOOP_SUMMED)
            per_output *= (double)nest.loop[i].extent;
    double product = elements(&c->output) * per_output;
    double bias = c->attrs.bias ? elements(&c->output) : 0;
    cost->forward_flops = product + bias;
    cost->data_gradient_flops = product;
    cost->weight_gradient_flops = product + bias;
}

/* Pools: one operation per window element, forward and backward. */
void op_flops_window(const struct op_case *c, struct op_cost *cost)
{
    struct loop_nest nest;
    op_get_loops(c, &nest);
    double total = elements(&c->output);
    for (int i = 0; i < nest.n_loops; i++)
        if (nest.loop[i].role == LOOP_SUMMED)
            total *= (double)nest.loop[i].extent;
    if (nest.input[0].axis[2].kind == AXIS_ADAPTIVE && elements(&c->input[0]) > total)
        total = elements(&c->input[0]);
    cost->forward_flops = cost->data_gradient_flops = total;
}

/* Mean (1), variance (3), normalise and scale (4); backward two sums (4) and the gradient (6). */
void op_flops_batch_norm(const struct op_case *c, struct op_cost *cost)
{
    cost->forward_flops = 8 * elements(&c->output);
    cost->data_gradient_flops = 6 * elements(&c->output);
    cost->weight_gradient_flops = 4 * elements(&c->output);
}

/* Squares, a window sum, a power and a product; backward the same with one more window sum. */
void op_flops_local_response_norm(const struct op_case *c, struct op_cost *cost)
{
    double window = 2.0 * (double)c->attrs.lrn_size;
    cost->forward_flops = (window + 4) * elements(&c->output);
    cost->data_gradient_flops = (2 * window + 6) * elements(&c->output);
}

void op_flops_elementwise(const struct op_case *c, struct op_cost *cost)
{
    double terms = c->n_inputs > 1 ? (double)(c->n_inputs - 1) : 1.0;
    cost->forward_flops = terms * elements(&c->output);
    if (!(op_get_info(c->op)->flags & OP_PASSES_GRADIENT))
        cost->data_gradient_flops = elements(&c->output);
}

/* Maximum, exponential, sum, division; backward one subtraction and a scale. */
void op_flops_softmax_cross_entropy(const struct op_case *c, struct op_cost *cost)
{
    cost->forward_flops = 4 * elements(&c->input[0]);
    cost->data_gradient_flops = 2 * elements(&c->input[0]);
}

void op_get_cost(const struct op_case *c, struct op_cost *cost)
{
    *cost = (struct op_cost){0};
    const struct op_info *info = op_get_info(c->op);
    info->flops(c, cost);

    int64_t inputs = 0, params = 0, trained = 0, output = shape_elements(&c->output);
    for (int i = 0; i < c->n_inputs; i++)
        inputs += shape_elements(&c->input[i]);
    struct op_param spec[OP_MAX_PARAMS];
    int n_params = op_get_params(c, spec);
    for (int i = 0; i < n_params; i++) {
        params += shape_elements(&spec[i].shape);
        if (spec[i].trained)
            trained += shape_elements(&spec[i].shape);
    }
    if (c->op == OP_INPUT)
        return;
    cost->forward_elements = inputs + params + output;
    if (!(info->flags & OP_PASSES_GRADIENT)) {
        bool reads_input =
            info->flags & OP_GRADIENT_READS_INPUT && !(info->flags & OP_SPLIT_GRADIENT);
        bool reads_output = info->flags & OP_GRADIENT_READS_OUTPUT;
        cost->data_gradient_elements =
            output + params + inputs + (reads_input ? inputs : 0) + (reads_output ? output : 0);
    }
    if (trained)
        cost->weight_gradient_elements = inputs + output + trained;
}
