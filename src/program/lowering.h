/* lowering.h: the steps of program_create, one file each. Not for use outside this room. */
#ifndef CLEAVE_PROGRAM_LOWERING_H
#define CLEAVE_PROGRAM_LOWERING_H

#include "program/program.h"

/* groups.c: gathers the nodes into p->groups (names, nodes, spec), in the order they run. Sets
 * every buffer number to NO_BUFFER. */
enum status lowering_group_nodes(struct program *p) MUST_USE;

/* instructions.c: creates the kernels, the buffers and the instructions. */
enum status lowering_emit(struct program *p, const struct program *shares_params_of) MUST_USE;

/* places.c: live ranges from the instructions, then an offset for every buffer. */
void lowering_find_live_ranges(struct program *p);
enum status lowering_place_buffers(struct program *p,
                                   const struct program *shares_params_of) MUST_USE;

#endif
