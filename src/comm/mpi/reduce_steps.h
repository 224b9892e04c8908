/* reduce_steps.h: what each member sends and receives in a reduction over messages.
 *
 * A reduction is a list of steps per member; in a step a member sends a part of its array, or
 * receives one and adds it to its own or replaces its own by it, or both at once. Example: ring of
 * 3 members, as member 0 sees it (slices A B C; A is its own):
 *
 *     step 0    sends C          receives B, adds
 *     step 1    sends B          receives A, adds          -> A is complete here
 *     step 2    sends A          receives C, replaces
 *     step 3    sends C          receives B, replaces
 *
 * Every part is cut into segments. The steps of a segment follow each other; different segments are
 * independent.
 */
#ifndef CLEAVE_COMM_MPI_REDUCE_STEPS_H
#define CLEAVE_COMM_MPI_REDUCE_STEPS_H

#include "comm/order.h"

struct reduce_step {
    int to, from; /* positions; -1: does not send, does not receive */
    struct order_range sent, received;
    bool adds;
};

/* Elements of a segment, and how many segments there are. */
int64_t reduce_segment(const struct comm_reduction *r);
int64_t reduce_segment_count(const struct comm_reduction *r);

/* Step number `number` of a segment for the member at `position`; false after the last. */
bool reduce_step_get(const struct comm_reduction *r, int position, int64_t segment, int number,
                     struct reduce_step *out);

#endif
