/* control.h: the functions of comm.h that block, made of a transport's nonblocking ones; a
 * transport's table names them directly.
 *
 * Control messages never meet those of the step: a transport keeps them apart by its
 * struct control_calls. Between two workers they arrive in the order in which they were sent. Polls
 * and pauses are those of c->table; c->timeout_s is the deadline.
 */
#ifndef CLEAVE_COMM_CONTROL_H
#define CLEAVE_COMM_CONTROL_H

#include "comm/comm.h"

struct control_calls {
    enum status (*start_send)(comm *c, int peer, const void *data, int64_t n_bytes, comm_op *op);
    enum status (*start_receive)(comm *c, int peer, void *data, int64_t n_bytes, comm_op *op);
    /* Ends an operation that is not done: afterwards its memory is not used any more. */
    void (*withdraw)(comm *c, comm_op *op);
};

enum status control_exchange(comm *c, const void *mine, int64_t n_bytes, void *all) MUST_USE;
enum status control_broadcast(comm *c, int root, void *data, int64_t n_bytes) MUST_USE;
enum status control_send(comm *c, int peer, const void *data, int64_t n_bytes) MUST_USE;
enum status control_receive(comm *c, int peer, void *data, int64_t n_bytes) MUST_USE;

#endif
