/* order.h: the order in which a reduction adds (comm.h defines it), and how much it would send.
 *
 * Every transport adds by these functions, which is why all give the same bits. The elements are
 * cut into slices (as many as members for ring, as nodes for hierarchical, one for the others);
 * within a slice all elements are added in the same order.
 */
#ifndef CLEAVE_COMM_ORDER_H
#define CLEAVE_COMM_ORDER_H

#include "comm/comm.h"

struct order_range {
    int64_t begin, end;
};

/* Range number i of `count` elements cut into n even ones. */
static inline struct order_range order_cut(int64_t count, int n, int i)
{
    return (struct order_range){i * count / n, (i + 1) * count / n};
}

/* Nodes of a hierarchical reduction; the last may have fewer members. */
static inline int order_nodes(const struct comm_reduction *r)
{
    return (r->n_members + r->node_size - 1) / r->node_size;
}

/* sum[i] += term[i], vectorised; the arrays are apart. */
void order_add(enum element type, int64_t n, void *sum, const void *term);

/* Does elements [first, first + n) of a collective. parts[position] points at element `first` of
 * that member's array and is used as room for partial sums, which are added in the method's order.
 * Works in blocks that stay in the first cache. */
void order_run(const struct comm_reduction *r, void *const *parts, int64_t first, int64_t n);

/* The sum alone, which one part holds in the end; returns its position. The elements must be of one
 * slice: see order_slice_end. */
int order_sum(const struct comm_reduction *r, void *const *parts, int64_t first, int64_t n);

/* The slice that holds element `first`: the i with i*count/n <= first < (i+1)*count/n; and where it
 * ends. */
int order_slice_of(const struct comm_reduction *r, int64_t first);
int64_t order_slice_end(const struct comm_reduction *r, int64_t first);

/* Messages that member number `position` sends; bytes: comm_reduce_sent_bytes. */
int64_t order_sent_messages(const struct comm_reduction *r, int position);

/* Whether the reduction makes sense for this worker: members ascend, are workers and include it.
 * Gives its position among them. */
enum status order_check(const struct comm *c, const struct comm_reduction *r,
                        int *position) MUST_USE;

#endif
