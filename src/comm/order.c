/* The orders of comm.h, for 4 members, with x(i) the elements of member i:
 *
 *     gather                    ((x0 + x1) + x2) + x3
 *     ring          slice 1     ((x2 + x3) + x0) + x1
 *     tree                      (x0 + x1) + (x2 + x3)
 *     hierarchical  slice 0     (x2 + x3) + (x0 + x1)      nodes of 2 members
 */
#include "comm/order.h"

#include <assert.h>
#include <string.h>

/* Bytes of each member's array that are added before going on: the partial sum stays in the first
 * cache, and what 16 members have there in the second. */
enum { BLOCK_BYTES = 8192 };

void order_add(enum element type, int64_t n, void *sum, const void *term)
{
    if (type == ELEMENT_F64) {
        double *restrict a = sum;
        const double *restrict b = term;
        for (int64_t i = 0; i < n; i++)
            a[i] += b[i];
    } else {
        float *restrict a = sum;
        const float *restrict b = term;
        for (int64_t i = 0; i < n; i++)
            a[i] += b[i];
    }
}

static int slice_count(const struct comm_reduction *r)
{
    switch (r->method) {
    case COMM_RING:
        return r->n_members;
    case COMM_HIERARCHICAL:
        return order_nodes(r);
    default:
        return 1;
    }
}

int order_slice_of(const struct comm_reduction *r, int64_t first)
{
    int n = slice_count(r);
    int i = (int)(first * n / r->count);
    while (i + 1 < n && order_cut(r->count, n, i).end <= first)
        i++;
    return i;
}

int64_t order_slice_end(const struct comm_reduction *r, int64_t first)
{
    return order_cut(r->count, slice_count(r), order_slice_of(r, first)).end;
}

/* ((x(s+1) + x(s+2)) + ..) + x(s), where x(i) is the part at position i * stride of n. */
static int add_ring(const struct comm_reduction *r, void *const *parts, int s, int n, int stride,
                    int64_t count)
{
    int sum = (s + 1) % n * stride;
    for (int k = 2; k <= n; k++)
        order_add(r->type, count, parts[sum], parts[(s + k) % n * stride]);
    return sum;
}

/* x(first) + x(first+1) + .. up to `end`, left in x(first). */
static int add_in_turn(const struct comm_reduction *r, void *const *parts, int first, int end,
                       int64_t count)
{
    for (int i = first + 1; i < end; i++)
        order_add(r->type, count, parts[first], parts[i]);
    return first;
}

static int add_tree(const struct comm_reduction *r, void *const *parts, int64_t count)
{
    for (int d = 1; d < r->n_members; d *= 2) {
        for (int i = 0; i + d < r->n_members; i += 2 * d)
            order_add(r->type, count, parts[i], parts[i + d]);
    }
    return 0;
}

static int add_hierarchical(const struct comm_reduction *r, void *const *parts, int s,
                            int64_t count)
{
    int n = order_nodes(r);
    for (int node = 0; node < n; node++) {
        int first = node * r->node_size;
        int end = first + r->node_size;
        add_in_turn(r, parts, first, end < r->n_members ? end : r->n_members, count);
    }
    return add_ring(r, parts, s, n, r->node_size, count);
}

int order_sum(const struct comm_reduction *r, void *const *parts, int64_t first, int64_t n)
{
    switch (r->method) {
    case COMM_RING:
        return add_ring(r, parts, order_slice_of(r, first), r->n_members, 1, n);
    case COMM_TREE:
        return add_tree(r, parts, n);
    case COMM_HIERARCHICAL:
        return add_hierarchical(r, parts, order_slice_of(r, first), n);
    default:
        return add_in_turn(r, parts, 0, r->n_members, n);
    }
}

void order_run(const struct comm_reduction *r, void *const *parts, int64_t first, int64_t n)
{
    int64_t type_bytes = element_bytes(r->type);
    int64_t block = BLOCK_BYTES / type_bytes;
    void *at[r->n_members];
    for (int64_t done = 0, length; done < n; done += length) {
        int64_t in_slice = order_slice_end(r, first + done) - (first + done);
        length = n - done < block ? n - done : block;
        length = in_slice < length ? in_slice : length;
        for (int i = 0; i < r->n_members; i++)
            at[i] = (char *)parts[i] + done * type_bytes;
        /* Slices of halves of a ring are those of the members that own them. */
        int owner = r->kind == COMM_ALL_REDUCE ? 0 : order_slice_of(r, first + done);
        int from = r->kind == COMM_ALL_GATHER ? owner : order_sum(r, at, first + done, length);
        size_t n_bytes = (size_t)(length * type_bytes);
        if (r->kind == COMM_REDUCE_SCATTER) {
            if (from != owner)
                memcpy(at[owner], at[from], n_bytes);
            continue;
        }
        for (int i = 0; i < r->n_members; i++)
            if (i != from)
                memcpy(at[i], at[from], n_bytes);
    }
}

/* ---- traffic on a network ---- */

/* Members that receive from `position` when a tree hands the sum out: position + d for every
 * d = 1, 2, 4 .. below the lowest set bit of position. */
static int tree_children(int position, int n)
{
    int children = 0;
    for (int d = 1; position + d < n && position % (2 * d) == 0; d *= 2)
        children++;
    return children;
}

/* A ring sends every slice but its own while adding, and every one but its successor's while
 * handing out. */
static int64_t ring_elements(enum comm_kind kind, int64_t count, int n, int position)
{
    struct order_range own = order_cut(count, n, position);
    struct order_range next = order_cut(count, n, (position + 1) % n);
    int64_t adding = count - (own.end - own.begin), handing_out = count - (next.end - next.begin);
    return (kind == COMM_ALL_GATHER ? 0 : adding) + (kind == COMM_REDUCE_SCATTER ? 0 : handing_out);
}

static int node_members(const struct comm_reduction *r, int position)
{
    int left = r->n_members - position / r->node_size * r->node_size;
    return left < r->node_size ? left : r->node_size;
}

int64_t comm_reduce_sent_bytes(const struct comm_reduction *r, int position)
{
    int n = r->n_members;
    int64_t elements = 0;
    switch (r->method) {
    case COMM_RING:
        elements = n > 1 ? ring_elements(r->kind, r->count, n, position) : 0;
        break;
    case COMM_TREE:
        elements = r->count * (tree_children(position, n) + (position > 0));
        break;
    case COMM_HIERARCHICAL:
        if (position % r->node_size != 0) {
            elements = r->count;
        } else {
            elements = r->count * (node_members(r, position) - 1);
            if (order_nodes(r) > 1)
                elements += ring_elements(COMM_ALL_REDUCE, r->count, order_nodes(r),
                                          position / r->node_size);
        }
        break;
    default:
        elements = r->count * (n - 1);
    }
    return elements * element_bytes(r->type);
}

int64_t order_sent_messages(const struct comm_reduction *r, int position)
{
    int n = r->n_members;
    switch (r->method) {
    case COMM_RING:
        return (r->kind == COMM_ALL_REDUCE ? 2 : 1) * (n - 1);
    case COMM_TREE:
        return tree_children(position, n) + (position > 0);
    case COMM_HIERARCHICAL:
        if (position % r->node_size != 0)
            return 1;
        return node_members(r, position) - 1 + 2 * (order_nodes(r) - 1);
    default:
        return n - 1;
    }
}

enum status order_check(const struct comm *c, const struct comm_reduction *r, int *position)
{
    if (r->n_members < 1 || r->n_members > c->size || r->count < 0 ||
        (unsigned)r->method >= COMM_METHOD_COUNT)
        return status_fail(STATUS_USAGE, "reduction %lld: %d members, %lld elements, method %d",
                           (long long)r->tag, r->n_members, (long long)r->count, (int)r->method);
    if ((unsigned)r->kind >= COMM_KIND_COUNT || (r->kind && r->method != COMM_RING))
        return status_fail(STATUS_USAGE, "collective %lld: kind %d, method %d: halves are rings",
                           (long long)r->tag, (int)r->kind, (int)r->method);
    if (r->type != ELEMENT_F32 && r->type != ELEMENT_F64)
        return status_fail(STATUS_USAGE,
                           "collective %lld: of %s, which is not added: f32 and f64 are",
                           (long long)r->tag, element_name(r->type));
    if (r->method == COMM_HIERARCHICAL && r->node_size < 1)
        return status_fail(STATUS_USAGE, "reduction %lld: a node of %d members", (long long)r->tag,
                           r->node_size);
    *position = -1;
    for (int i = 0; i < r->n_members; i++) {
        if (r->members[i] < 0 || r->members[i] >= c->size ||
            (i > 0 && r->members[i] <= r->members[i - 1]))
            return status_fail(STATUS_USAGE,
                               "reduction %lld: members must be workers 0..%d, ascending",
                               (long long)r->tag, c->size - 1);
        if (r->members[i] == c->rank)
            *position = i;
    }
    if (*position < 0)
        return status_fail(STATUS_USAGE, "reduction %lld: worker %d is not among its members",
                           (long long)r->tag, c->rank);
    return STATUS_OK;
}
