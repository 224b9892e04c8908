/* op_rules.h: the functions that the rows of the op table point to. Only op.c and the op_*.c files
 * include this. */
#ifndef CLEAVE_MODEL_OP_RULES_H
#define CLEAVE_MODEL_OP_RULES_H

#include "model/op.h"

/* op_shapes.c */
enum status op_infer_same(struct op_case *c); /* the output is like the one input */
enum status op_infer_conv2d(struct op_case *c);
enum status op_infer_linear(struct op_case *c);
enum status op_infer_pool(struct op_case *c);
enum status op_infer_global_pool(struct op_case *c);
enum status op_infer_adaptive_pool(struct op_case *c);
enum status op_infer_batch_norm(struct op_case *c);
enum status op_infer_local_response_norm(struct op_case *c);
enum status op_infer_dropout(struct op_case *c);
enum status op_infer_add(struct op_case *c);
enum status op_infer_concat(struct op_case *c);
enum status op_infer_flatten(struct op_case *c);
enum status op_infer_softmax_cross_entropy(struct op_case *c);
int op_params_conv2d(const struct op_case *c, struct op_param params[OP_MAX_PARAMS]);
int op_params_linear(const struct op_case *c, struct op_param params[OP_MAX_PARAMS]);
int op_params_batch_norm(const struct op_case *c, struct op_param params[OP_MAX_PARAMS]);

/* op_loops.c */
void op_loops_conv2d(const struct op_case *c, struct loop_nest *nest);
void op_loops_linear(const struct op_case *c, struct loop_nest *nest);
void op_loops_pool(const struct op_case *c, struct loop_nest *nest);
void op_loops_global_pool(const struct op_case *c, struct loop_nest *nest);
void op_loops_adaptive_pool(const struct op_case *c, struct loop_nest *nest);
void op_loops_batch_norm(const struct op_case *c, struct loop_nest *nest);
void op_loops_local_response_norm(const struct op_case *c, struct loop_nest *nest);
void op_loops_elementwise(const struct op_case *c, struct loop_nest *nest);
void op_loops_concat(const struct op_case *c, struct loop_nest *nest);
void op_loops_flatten(const struct op_case *c, struct loop_nest *nest);
void op_loops_softmax_cross_entropy(const struct op_case *c, struct loop_nest *nest);

/* op_pieces.c */
#define PIECE(name)                                                                         \
    void name(const struct op_case *c, const struct loop_nest *nest, const struct box *box, \
              struct op_piece *piece)
PIECE(op_piece_conv2d);
PIECE(op_piece_linear);
PIECE(op_piece_pool);
PIECE(op_piece_global_pool);
PIECE(op_piece_adaptive_pool);

/* op_costs.c: the floating-point operations; op_get_cost adds the elements moved. */
void op_flops_none(const struct op_case *c, struct op_cost *cost);
void op_flops_product(const struct op_case *c, struct op_cost *cost); /* conv2d, linear */
void op_flops_window(const struct op_case *c, struct op_cost *cost);  /* pools */
void op_flops_batch_norm(const struct op_case *c, struct op_cost *cost);
void op_flops_local_response_norm(const struct op_case *c, struct op_cost *cost);
void op_flops_elementwise(const struct op_case *c, struct op_cost *cost);
void op_flops_softmax_cross_entropy(const struct op_case *c, struct op_cost *cost);

#endif
