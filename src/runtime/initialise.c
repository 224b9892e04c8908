#include "runtime/initialise.h"

#include "base/random.h"

#include <math.h>
#include <stdlib.h>

static void fill(float *to, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = value;
}

static void fill_normal(float *to, int64_t count, double std, struct random_key key)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(std * random_normal(key, 0, (uint64_t)i));
}

/* As random_uniform gives them, four to a block: the linear layers of a large network have 10^8. */
static void fill_uniform(float *to, int64_t count, double bound, struct random_key key)
{
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0)
            random_block(key, 0, (uint64_t)i / 4, words);
        to[i] = (float)(bound * (2 * (words[i % 4] * 0x1p-32) - 1));
    }
}

void initialise_parameter(const struct graph_param *p, int param, uint64_t seed, float *to)
{
    struct random_key key = {seed, RANDOM_WEIGHTS, (uint32_t)param};
    int64_t count = shape_elements(&p->spec.shape);
    double fan = (double)(p->spec.fan > 0 ? p->spec.fan : 1);
    switch (p->spec.init) {
    case INIT_KAIMING_NORMAL:
        fill_normal(to, count, sqrt(2 / fan), key);
        break;
    case INIT_KAIMING_UNIFORM:
        fill_uniform(to, count, 1 / sqrt(fan), key);
        break;
    case INIT_NORMAL:
        fill_normal(to, count, p->spec.deviation, key);
        break;
    case INIT_ONE:
        fill(to, count, 1);
        break;
    default:
        fill(to, count, 0);
        break;
    }
}

enum status initialise_tensors(const struct graph *graph, const struct tensor_store *tensors,
                               uint64_t seed)
{
    float *values;
    enum status st = STATUS_OK;
    TRY(tensor_store_alloc_scratch(graph, &values));
    for (int i = 0; i < graph->n_params; i++) {
        initialise_parameter(&graph->params[i], i, seed, values);
        TRY_GOTO(st, tensors->write(tensors->holder, i, TENSOR_WEIGHT, values), out);
    }
out:
    free(values);
    return st;
}

enum status initialise_parameters(const struct graph *graph, executor *e, uint64_t seed)
{
    struct tensor_store tensors = tensor_store_of_executor(e);
    return initialise_tensors(graph, &tensors, seed);
}
