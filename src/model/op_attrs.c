/* The attributes of ops, a row each. Comparing ops and naming costs go through these rows, so that
 * a new attribute cannot be forgotten there. */
#include "model/op.h"

#include <string.h>

#define WINDOWED (1U << OP_CONV2D | 1U << OP_MAX_POOL | 1U << OP_AVERAGE_POOL)
#define POOLED_PIECE (1U << OP_GLOBAL_POOL | 1U << OP_ADAPTIVE_POOL)
#define FIELD(field) #field, offsetof(struct op_attrs, field)

const struct op_attr op_attr_table[] = {
    {FIELD(out_channels), ATTR_INTEGER, 1U << OP_CONV2D | 1U << OP_LINEAR, "", USUAL_ZERO},
    {FIELD(kernel), ATTR_PAIR, WINDOWED, "k", USUAL_ZERO},
    {FIELD(stride), ATTR_PAIR, WINDOWED, "s", USUAL_ONE},
    {FIELD(dilation), ATTR_PAIR, WINDOWED, "d", USUAL_UP_TO_ONE},
    {FIELD(pad_before), ATTR_PAIR, WINDOWED, "p", USUAL_ZERO},
    {FIELD(pad_after), ATTR_PAIR, WINDOWED, "q", USUAL_PAD_BEFORE},
    {FIELD(groups), ATTR_INTEGER, 1U << OP_CONV2D, "g", USUAL_ONE},
    {FIELD(bias), ATTR_FLAG, 1U << OP_CONV2D | 1U << OP_LINEAR, "bias", USUAL_ZERO},
    {FIELD(count_padding), ATTR_FLAG, 1U << OP_AVERAGE_POOL, "counts", USUAL_ZERO},
    {FIELD(out_size), ATTR_PAIR, 1U << OP_ADAPTIVE_POOL, "", USUAL_ZERO},
    {FIELD(epsilon), ATTR_REAL, 1U << OP_BATCH_NORM, "", USUAL_ZERO},
    {FIELD(momentum), ATTR_REAL, 1U << OP_BATCH_NORM, "", USUAL_ZERO},
    {FIELD(lrn_size), ATTR_INTEGER, 1U << OP_LOCAL_RESPONSE_NORM, "n", USUAL_ZERO},
    {FIELD(lrn_alpha), ATTR_REAL, 1U << OP_LOCAL_RESPONSE_NORM, "", USUAL_ZERO},
    {FIELD(lrn_beta), ATTR_REAL, 1U << OP_LOCAL_RESPONSE_NORM, "", USUAL_ZERO},
    {FIELD(lrn_k), ATTR_REAL, 1U << OP_LOCAL_RESPONSE_NORM, "", USUAL_ZERO},
    {FIELD(drop_probability), ATTR_REAL, 1U << OP_DROPOUT, "", USUAL_ZERO},
    {FIELD(whole_in), ATTR_PAIR, POOLED_PIECE, "", USUAL_ZERO},
    {FIELD(whole_out), ATTR_PAIR, POOLED_PIECE, "", USUAL_ZERO},
    {FIELD(first_in), ATTR_PAIR, POOLED_PIECE, "", USUAL_ZERO},
    {FIELD(first_out), ATTR_PAIR, POOLED_PIECE, "", USUAL_ZERO},
    {.name = NULL},
};

static const size_t n_bytes[] = {[ATTR_INTEGER] = sizeof(int64_t),
                                 [ATTR_PAIR] = sizeof(int64_t[2]),
                                 [ATTR_FLAG] = sizeof(bool),
                                 [ATTR_REAL] = sizeof(double)};

static bool is_equal(const struct op_attr *attr, const struct op_attrs *a, const struct op_attrs *b)
{
    return memcmp((const char *)a + attr->offset, (const char *)b + attr->offset,
                  n_bytes[attr->type]) == 0;
}

bool op_equal(const struct op_case *a, const struct op_case *b)
{
    if (a->op != b->op || a->n_inputs != b->n_inputs || !shape_equal(&a->output, &b->output) ||
        !axes_equal(&a->axes, &b->axes))
        return false;
    for (int k = 0; k < a->n_inputs; k++)
        if (!shape_equal(&a->input[k], &b->input[k]))
            return false;
    for (const struct op_attr *attr = op_attr_table; attr->name; attr++)
        if (!is_equal(attr, &a->attrs, &b->attrs))
            return false;
    return true;
}

void op_attr_numbers(const struct op_attr *attr, const struct op_attrs *attrs, int64_t number[2])
{
    const char *at = (const char *)attrs + attr->offset;
    bool flag = false;
    memcpy(attr->type == ATTR_FLAG ? (void *)&flag : number, at, n_bytes[attr->type]);
    if (attr->type == ATTR_FLAG)
        number[0] = flag;
    if (attr->type != ATTR_PAIR)
        number[1] = number[0];
}

bool op_attr_is_usual(const struct op_attr *attr, const struct op_attrs *attrs)
{
    static const struct op_attrs zero = {0};
    int64_t usual = attr->usual == USUAL_ONE && attrs->kernel[0] ? 1 : 0, number[2];
    if (attr->type == ATTR_REAL)
        return is_equal(attr, attrs, &zero);
    op_attr_numbers(attr, attrs, number);
    if (attr->usual == USUAL_UP_TO_ONE)
        return number[0] <= 1 && number[1] <= 1;
    if (attr->usual == USUAL_PAD_BEFORE)
        return number[0] == attrs->pad_before[0] && number[1] == attrs->pad_before[1];
    return number[0] == usual && number[1] == usual;
}

const struct op_attr *op_attr_find_foreign(enum op_kind op, const struct op_attrs *attrs)
{
    static const struct op_attrs zero = {0};
    for (const struct op_attr *attr = op_attr_table; attr->name; attr++)
        if (!(attr->ops & 1U << op) && !is_equal(attr, attrs, &zero))
            return attr;
    return NULL;
}
