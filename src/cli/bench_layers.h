/* bench_layers.h: where the time of a training step goes, by layer and by layer type. */
#ifndef CLEAVE_CLI_BENCH_LAYERS_H
#define CLEAVE_CLI_BENCH_LAYERS_H

#include "base/arena.h"
#include "cli/bench.h"

enum { LAYER_PASSES = 3 }; /* forward, gradient of the data, gradient of the weights */

/* One group of the program. Ops that compute all gradients at once, and sums of gradients, count as
 * gradients of the data. */
struct layer_result {
    const char *name, *op; /* op: "conv2d+relu" */
    enum op_kind kind;     /* of the op that others are folded into */
    double pass_s[LAYER_PASSES];
    double flops[LAYER_PASSES];
    double update_s; /* of its parameters */
};

/* Layer types are the op kinds; behind them stand what belongs to no layer. */
enum { TYPE_UPDATE = OP_KIND_COUNT, TYPE_LOAD, TYPE_MOVE, TYPE_COUNT };

struct batch_result {
    int64_t batch;
    double step_s; /* sum of all instructions */
    int n_layers;
    struct layer_result *layers;
    double type_s[TYPE_COUNT];
};

struct layer_study {
    const char *model, *data;
    const char *backend, *device;
    int threads;
    struct bench_peak peak;
    int n_batches;
    struct batch_result batches[SUBJECT_MAX_BATCHES];
};

/* Runs each batch size once for warming up and then `repeat` times; a time is the median of its
 * instruction. Results live in `memory`. */
enum status layer_study_measure(const struct bench_device *d, const char *model, const char *data,
                                const int64_t *batches, int n_batches, int64_t repeat,
                                arena *memory, struct layer_study *out) MUST_USE;

/* All passes of a layer, its updates not counted. */
double layer_seconds(const struct layer_result *l);
double layer_flops(const struct layer_result *l);

const char *layer_type_name(int type);
/* The type that a computing instruction counts with. */
int layer_instr_type(const struct program *p, int i);
/* Time of the type, or of the whole step, with the largest batch over that with batch number i; 0
 * if it takes none. Ideal is the ratio of the batches. */
double layer_study_speedup(const struct layer_study *s, int type, int i);
double layer_study_step_speedup(const struct layer_study *s, int i);
double layer_study_ideal(const struct layer_study *s, int i);

#endif
