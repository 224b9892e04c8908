/* moves.h: who sends what to whom in a reduction over messages.
 *
 * A reduction is a list of moves per member; in a move a member sends a part of its array, or
 * receives one and adds it to its own or replaces its own by it, or both at once. Example: ring of
 * 3 members, as member 0 sees it (slices A B C; A is its own):
 *
 *     move 0    sends C          receives B, adds
 *     move 1    sends B          receives A, adds          -> A is complete here
 *     move 2    sends A          receives C, replaces
 *     move 3    sends C          receives B, replaces
 *
 * Every part is cut into segments. The moves of a segment follow each other; different segments are
 * independent.
 */
#ifndef CLEAVE_COMM_MPI_MOVES_H
#define CLEAVE_COMM_MPI_MOVES_H

#include "comm/order.h"

struct move {
    int to, from; /* positions; -1: does not send, does not receive */
    struct order_range sent, received;
    bool adds;
};

/* Elements of a segment, and how many segments there are. */
int64_t moves_segment(const struct comm_reduction *r);
int64_t moves_segment_count(const struct comm_reduction *r);

/* Move number `number` of a segment for the member at `position`; false after the last. */
bool moves_get(const struct comm_reduction *r, int position, int64_t segment, int number,
               struct move *out);

#endif
