#include "runtime/tensor_store.h"

#include "base/numbers.h"

#include <stdlib.h>

static enum status read_tensor(void *holder, int param, enum executor_tensor which, float *to)
{
    return executor_read(holder, param, which, to);
}

static enum status write_tensor(void *holder, int param, enum executor_tensor which,
                                const float *from)
{
    return executor_write(holder, param, which, from);
}

struct tensor_store tensor_store_of_executor(executor *e)
{
    return (struct tensor_store){.read = read_tensor, .write = write_tensor, .holder = e};
}

enum status tensor_store_alloc_scratch(const struct graph *graph, float **out)
{
    int64_t most = 1;
    for (int i = 0; i < graph->n_params; i++)
        most = int64_max(most, shape_elements(&graph->params[i].spec.shape));
    *out = malloc((size_t)most * sizeof **out);
    return *out ? STATUS_OK : status_no_memory((size_t)most * sizeof **out);
}
