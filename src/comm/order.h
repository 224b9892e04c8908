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

/* Adds elements [first, first + n) of all members in the method's order. parts[position] points at
 * element `first` of that member's array and is used as room for partial sums. In the end all parts
 * hold the sum. Works in blocks that stay in the first cache. */
void order_sum_to_all(const struct comm_reduction *r, void *const *parts, int64_t first, int64_t n);

/* The same, but only one part holds the sum in the end; returns its position. The elements must be
 * of one slice: see order_slice_end. */
int order_sum(const struct comm_reduction *r, void *const *parts, int64_t first, int64_t n);

/* Where the slice that holds element `first` ends. */
int64_t order_slice_end(const struct comm_reduction *r, int64_t first);

/* Messages that member number `position` sends; bytes: comm_reduce_sent_bytes. */
int64_t order_sent_messages(const struct comm_reduction *r, int position);

/* Whether the reduction makes sense for this worker: members ascend, are workers and include it.
 * Gives its position among them. */
enum status order_check(const struct comm *c, const struct comm_reduction *r,
                        int *position) MUST_USE;

#endif
