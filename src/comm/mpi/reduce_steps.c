#include "comm/mpi/reduce_steps.h"

enum { LEAST_SEGMENT_BYTES = 16384, LARGEST_SEGMENT_BYTES = 262144, SEGMENTS = 4 };

/* How many slices the elements are cut into: those of the order. */
static int slices(const struct comm_reduction *r)
{
    if (r->method == COMM_RING)
        return r->n_members;
    return r->method == COMM_HIERARCHICAL ? order_nodes(r) : 1;
}

/* The largest slice: the others are at most one element shorter. */
static int64_t slice_elements(const struct comm_reduction *r)
{
    return (r->count + slices(r) - 1) / slices(r);
}

int64_t reduce_segment(const struct comm_reduction *r)
{
    int64_t type_bytes = element_bytes(r->type);
    int64_t n_bytes = slice_elements(r) * type_bytes / SEGMENTS;
    n_bytes = n_bytes < LEAST_SEGMENT_BYTES ? LEAST_SEGMENT_BYTES : n_bytes;
    n_bytes = n_bytes > LARGEST_SEGMENT_BYTES ? LARGEST_SEGMENT_BYTES : n_bytes;
    return n_bytes / type_bytes;
}

int64_t reduce_segment_count(const struct comm_reduction *r)
{
    int64_t segment = reduce_segment(r);
    return (slice_elements(r) + segment - 1) / segment;
}

static struct order_range part(const struct comm_reduction *r, int slice, int64_t segment)
{
    struct order_range range = order_cut(r->count, slices(r), slice);
    int64_t length = reduce_segment(r);
    range.begin += segment * length;
    if (range.begin > range.end)
        range.begin = range.end;
    if (range.end - range.begin > length)
        range.end = range.begin + length;
    return range;
}

static int modulo(int i, int n)
{
    return (i % n + n) % n;
}

/* The first n - 1 steps add: slice s goes from member s + 1 all the way round to member s. The last
 * n - 1 hand it out from there. A reduce-scatter has the first ones alone, an all-gather the last.
 */
static bool ring_step(const struct comm_reduction *r, int n, int p, int64_t segment, int number,
                      struct reduce_step *out)
{
    number += r->kind == COMM_ALL_GATHER ? n - 1 : 0;
    if (number >= (r->kind == COMM_REDUCE_SCATTER ? 1 : 2) * (n - 1))
        return false;
    out->to = modulo(p + 1, n);
    out->from = modulo(p - 1, n);
    out->adds = number < n - 1;
    int k = out->adds ? number + 1 : number - (n - 1);
    out->sent = part(r, modulo(p - k, n), segment);
    out->received = part(r, modulo(p - k - 1, n), segment);
    return true;
}

/* Up: for d = 1, 2, 4 .. adds the part of p + d, until it is this member's turn to send to
 * p - d. Down: receives the sum from there, and sends it on to the same p + d, farthest first. */
static bool tree_step(const struct comm_reduction *r, int p, int64_t segment, int number,
                      struct reduce_step *out)
{
    int n = r->n_members, children = 0, d = 1;
    for (; d < n && p % (2 * d) == 0; d *= 2)
        children += p + d < n;
    bool root = p == 0;
    struct order_range range = part(r, 0, segment);
    *out = (struct reduce_step){.to = -1, .from = -1, .sent = range, .received = range};
    if (number < children) {
        out->from = p + (1 << number);
        out->adds = true;
        return true;
    }
    number -= children;
    if (!root && number == 0) {
        out->to = p - d;
        return true;
    }
    if (!root && number == 1) {
        out->from = p - d;
        return true;
    }
    number -= root ? 0 : 2;
    if (number >= children)
        return false;
    out->to = p + (1 << (children - 1 - number));
    return true;
}

/* Members of a node send all slices to its first; the first ones make a ring; then back. */
static bool node_step(const struct comm_reduction *r, int p, int64_t segment, int number,
                      struct reduce_step *out)
{
    int first = p / r->node_size * r->node_size, n = order_nodes(r);
    int end = first + r->node_size < r->n_members ? first + r->node_size : r->n_members;
    *out = (struct reduce_step){.to = -1, .from = -1};
    if (p != first) {
        if (number >= 2 * n)
            return false;
        out->sent = out->received = part(r, number % n, segment);
        if (number < n)
            out->to = first;
        else
            out->from = first;
        return true;
    }
    int others = end - first - 1, ring_steps = 2 * (n - 1);
    if (number < others * n) {
        out->from = first + 1 + number / n;
        out->received = part(r, number % n, segment);
        out->adds = true;
        return true;
    }
    number -= others * n;
    if (ring_step(r, n, p / r->node_size, segment, number, out)) {
        out->to *= r->node_size;
        out->from *= r->node_size;
        return true;
    }
    number -= ring_steps;
    if (number >= others * n)
        return false;
    *out = (struct reduce_step){.to = first + 1 + number / n, .from = -1};
    out->sent = part(r, number % n, segment);
    return true;
}

bool reduce_step_get(const struct comm_reduction *r, int position, int64_t segment, int number,
                     struct reduce_step *out)
{
    switch (r->method) {
    case COMM_TREE:
        return tree_step(r, position, segment, number, out);
    case COMM_HIERARCHICAL:
        return node_step(r, position, segment, number, out);
    default:
        return ring_step(r, r->n_members, position, segment, number, out);
    }
}
