#include "runtime/tensor_store.h"

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
    return (struct tensor_store){read_tensor, write_tensor, e};
}
