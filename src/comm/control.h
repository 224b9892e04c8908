/* control.h: the functions of comm.h that block, made of a transport's nonblocking ones.
 *
 * Control messages never meet those of the step: a transport keeps them apart by its
 * struct control_ways. Between two workers they arrive in the order in which they were sent.
 */
#ifndef CLEAVE_COMM_CONTROL_H
#define CLEAVE_COMM_CONTROL_H

#include "comm/comm.h"

struct control_ways {
    enum status (*start_send)(comm *c, int peer, const void *data, int64_t n_bytes, comm_op *op);
    enum status (*start_receive)(comm *c, int peer, void *data, int64_t n_bytes, comm_op *op);
    /* Ends an operation that is not done: afterwards its memory is not used any more. */
    void (*withdraw)(comm *c, comm_op *op);
};

/* Polls and pauses are those of c->table; c->timeout_s is the deadline. `ops` is room for 2 * size
 * operations. */
enum status control_exchange(comm *c, const struct control_ways *ways, comm_op *ops,
                             const void *mine, int64_t n_bytes, void *all) MUST_USE;
enum status control_broadcast(comm *c, const struct control_ways *ways, comm_op *ops, int root,
                              void *data, int64_t n_bytes) MUST_USE;
enum status control_send(comm *c, const struct control_ways *ways, comm_op *ops, int peer,
                         const void *data, int64_t n_bytes) MUST_USE;
enum status control_receive(comm *c, const struct control_ways *ways, comm_op *ops, int peer,
                            void *data, int64_t n_bytes) MUST_USE;

#endif
