/* tensor_store.h: a network's parameters and optimizer state, seen from the host: whole tensors in
 * plain floats, wherever their parts are. Checkpoints and initialisation go through it, so that a
 * file does not depend on how the run is split.
 *
 *     struct tensor_store tensors = tensor_store_of_executor(e);   // a worker alone
 *     TRY(checkpoint_save("runs/a", &state, graph, &tensors));
 *
 * crew.h has the one of many workers.
 */
#ifndef CLEAVE_RUNTIME_TENSOR_STORE_H
#define CLEAVE_RUNTIME_TENSOR_STORE_H

#include "runtime/executor.h"

struct tensor_store {
    /* Parameter number as in the graph; all of it, in row order. STATUS_FAILED if it has no such
     * state. */
    enum status (*read)(void *holder, int param, enum executor_tensor which, float *to);
    enum status (*write)(void *holder, int param, enum executor_tensor which, const float *from);
    void *holder;
    /* Asynchronous servers let each worker go on with the weights as they were at its last turn:
     * whole copies by worker, 0 <= worker < n_workers, of those weights that has_copy. 0: there
     * are none. Writing a weight replaces all copies. */
    int n_workers;
    bool (*has_copy)(void *holder, int param, int worker);
    enum status (*read_copy)(void *holder, int param, int worker, float *to);
    enum status (*write_copy)(void *holder, int param, int worker, const float *from);
};

/* Of an executor that holds every parameter whole. */
struct tensor_store tensor_store_of_executor(executor *e);

/* Room for the largest parameter of the graph; the caller frees it. */
enum status tensor_store_alloc_scratch(const struct graph *graph, float **out) MUST_USE;

#endif
