/* verify.h: proves programs sound before they run, from their instructions alone. Nothing here
 * calls the lowering; the meaning of a step is derived once more, from the graph, the plan and the
 * op table.
 *
 *     TRY(program_create_all(graph, &options, NULL, false, &set));
 *     TRY(verify_programs((const struct program *const *)set.programs, set.n_workers));
 *
 * A program that fails gives STATUS_FAILED with the worker, the instruction and the buffer.
 */
#ifndef CLEAVE_VERIFY_VERIFY_H
#define CLEAVE_VERIFY_VERIFY_H

#include "program/program.h"

/* One worker's program: buffers lie in their slabs, waits order all accesses to the same memory,
 * every read finds the value written for it, and every instruction is given what graph and plan
 * say. Messages of other workers are taken for right. */
enum status verify_program(const struct program *p) MUST_USE;

/* The programs of all workers together: each of them alone; every message has its other side,
 * reductions agree, nothing waits for ever, and the step is the one that graph and plan ask for.
 * programs[i] is worker i's. */
enum status verify_programs(const struct program *const *programs, int n_programs) MUST_USE;

#endif
