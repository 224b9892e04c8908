/* The reference kernels over the type REAL, and the table KERNELS of them. Compiled twice. */
#include "backend/reference/geometry.h"
#include "backend/reference/kernels.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

#include "backend/reference/common.inc.h"

#include "backend/reference/norm.inc.h"
#include "backend/reference/pool.inc.h"
#include "backend/reference/product.inc.h"
#include "backend/reference/simple.inc.h"
#include "backend/reference/update.inc.h"

const struct kernel_table KERNELS = {
    .element_bytes = sizeof(REAL),
    .fold = fold,
    .add = add_elements,
    .update = update,
    .from_float = from_float,
    .to_float = to_float,
    .op =
        {
            [OP_CONV2D] = {conv_forward, conv_backward_data, conv_backward_weights, NULL, NULL},
            [OP_LINEAR] = {linear_forward, linear_backward_data, linear_backward_weights, NULL,
                           NULL},
            [OP_MAX_POOL] = {max_pool_forward, max_pool_backward, NULL, NULL, NULL},
            [OP_AVERAGE_POOL] = {average_forward, average_backward, NULL, NULL, NULL},
            [OP_GLOBAL_POOL] = {average_forward, average_backward, NULL, NULL, NULL},
            [OP_ADAPTIVE_POOL] = {average_forward, average_backward, NULL, NULL, NULL},
            [OP_BATCH_NORM] = {batch_norm_forward, batch_norm_backward, NULL, batch_norm_statistics,
                               batch_norm_backward_statistics},
            [OP_LOCAL_RESPONSE_NORM] = {lrn_forward, lrn_backward, NULL, NULL, NULL},
            [OP_RELU] = {activation_forward, activation_backward, NULL, NULL, NULL},
            [OP_RELU6] = {activation_forward, activation_backward, NULL, NULL, NULL},
            [OP_LOGISTIC] = {activation_forward, activation_backward, NULL, NULL, NULL},
            [OP_TANH] = {activation_forward, activation_backward, NULL, NULL, NULL},
            [OP_DROPOUT] = {dropout_forward, dropout_backward, NULL, NULL, NULL},
            [OP_ADD] = {add_forward, pass_backward, NULL, NULL, NULL},
            [OP_CONCAT] = {concat_forward, concat_backward, NULL, NULL, NULL},
            [OP_FLATTEN] = {flatten_forward, pass_backward, NULL, NULL, NULL},
            [OP_SOFTMAX_CROSS_ENTROPY] = {loss_forward, loss_backward, NULL, NULL, NULL},
        },
};
