/* executor.h: the interpreter that runs programs on tensors.
 *
 * One executor per worker. It allocates exactly the slabs that its programs ask for (classes that
 * do not live between steps are shared, the largest program decides) and nothing in the step.
 *
 *     TRY(executor_create(programs, 3, &e));
 *     TRY(executor_step(e, 0, &batch, &state, &rule, &result));
 */
#ifndef CLEAVE_RUNTIME_EXECUTOR_H
#define CLEAVE_RUNTIME_EXECUTOR_H

#include "program/program.h"

typedef struct executor executor;

struct executor_batch {
    const float *images;   /* host, [n, c, h, w] plain; n is the program's batch */
    const int32_t *labels; /* host, [n] */
};

struct executor_result {
    double loss;        /* mean over the batch */
    int64_t correct;    /* evaluation programs: samples whose largest logit is their label */
    int64_t compute_ns; /* time inside instructions, loading not counted */
};

/* programs[0] is the training program (or the only one) and lays out the weights; the others share
 * its parameters. All must outlive the executor. */
enum status executor_create(const struct program *const *programs, int n_programs,
                            executor **out) MUST_USE;
void executor_destroy(executor *e); /* NULL is fine */

/* Runs program number `program` once. `rule` is NULL for an evaluation program. A loss that is not
 * finite is an error that names the step; a failing instruction is named, too. */
enum status executor_step(executor *e, int program, const struct executor_batch *batch,
                          const struct step_state *state, const struct update_rule *rule,
                          struct executor_result *result) MUST_USE;

/* All slab bytes that were allocated. */
int64_t executor_memory_bytes(const executor *e);

/* Measures each instruction of every following step: times[i] collects nanoseconds of instruction
 * i of program 0. NULL turns it off. The array belongs to the caller. */
void executor_time_instructions(executor *e, int64_t *times_ns);

/* ---- parameters and optimizer state, on the host as plain floats ---- */

enum executor_tensor { TENSOR_WEIGHT, TENSOR_STATE_0, TENSOR_STATE_1 };

/* Parameter number as in the graph. The array has shape_elements(&spec.shape) floats. */
enum status executor_read(executor *e, int param, enum executor_tensor which, float *to) MUST_USE;
enum status executor_write(executor *e, int param, enum executor_tensor which,
                           const float *from) MUST_USE;

#endif
