/* initialise.h: the weights before the first step.
 *
 * Every element is a function of (seed, parameter number, place in the plain tensor), so a run
 * starts from the same bits on every backend, with any number of threads, however it is split.
 *
 *     TRY(initialise_parameters(graph, &tensors, 42));
 */
#ifndef CLEAVE_RUNTIME_INITIALISE_H
#define CLEAVE_RUNTIME_INITIALISE_H

#include "model/graph.h"
#include "runtime/tensor_store.h"

/* The plain elements of parameter number `param`, by the rule in its spec, into to[]. */
void initialise_parameter(const struct graph_param *p, int param, uint64_t seed, float *to);

/* Fills all parameters of the store, running statistics included. Optimizer state stays as it is
 * (zero in a new one). */
enum status initialise_tensors(const struct graph *graph, const struct tensor_store *tensors,
                               uint64_t seed) MUST_USE;

/* The same for a worker alone. */
enum status initialise_parameters(const struct graph *graph, executor *e, uint64_t seed) MUST_USE;

#endif
