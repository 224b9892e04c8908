/* backend.h: a backend runs kernels; it is a commented table of functions.
 *
 * A backend opens devices. A device has memory, streams, and layouts (how a tensor's elements are
 * placed; opaque outside the backend). The unit of computation is the group: one op with the ops
 * folded into it (a residual sum, an activation), created once when a program is loaded, with its
 * workspace asked for beforehand, and then run many times without any allocation.
 *
 * The interface suits a CPU and a GPU: everything in the step is enqueued on a stream, in order;
 * pointers are device memory; only upload, download, upload_labels and stream_synchronize meet the
 * host. A call may return before its work is done, and its failure may be returned by the next
 * stream_synchronize. Until then the memory that an upload reads and the group_args stay as they
 * are; all other arguments are copied. A download has been done when it returns.
 *
 *     struct group_layouts io = {.input = {input_layout}};
 *     TRY(backend->group_create(device, &spec, &io, &group));   // chooses output and param layouts
 *     backend->group_get_needs(group, &needs);                  // workspace and saved bytes
 *     ...
 *     TRY(backend->group_run(group, PASS_FORWARD, stream, &args, &step));
 */
#ifndef CLEAVE_BACKEND_BACKEND_H
#define CLEAVE_BACKEND_BACKEND_H

#include "base/precision.h"
#include "base/status.h"
#include "model/op.h"

enum { GROUP_MAX_ADDENDS = 8 };

typedef struct device device;
typedef struct stream stream;
typedef struct event event;
typedef struct layout layout;
typedef struct group group;

struct device_options {
    int threads; /* CPU threads of this device; 0: all cores of the process */
    /* Groups give the layouts and needs that those of a real device would, but no code is made for
     * them: running one is STATUS_FAILED. For programs that are looked at, not run. */
    bool describe_only;
    /* describe_only, for devices that are not here: they have kernels for every type, and nothing
     * is widened in the workspace. */
    bool has_all_types;
};

/* Threads of a device. What OpenMP cannot start it does not refuse: it ends the process. */
enum { BACKEND_MAX_THREADS = 4096 };

/* A group computes:  output = activation(op(inputs) + residual). */
struct group_spec {
    struct op_case op;
    enum precision precision; /* says the types of its tensors */
    enum activation activation;
    bool residual;          /* shape of the output */
    bool training;          /* false: evaluation (running statistics, no dropout, nothing saved) */
    bool input_gradient;    /* the gradient of inputs (and residual) will be asked for */
    uint32_t random_stream; /* dropout: which sequence of random.h this node draws from */
    int64_t global_batch;   /* loss: gradients are scaled by 1 / global_batch */
    /* A piece of a cut layer: the whole output's shape, and where the piece's output begins in it
     * (along the batch: within the micro-batch; group_args.first_sample is added). Dropout draws by
     * the index of the whole. A rank of 0: the output is the whole, or a run of its elements. */
    struct shape whole;
    int64_t origin[SHAPE_MAX_RANK];
    /* Batch norm whose statistics are those of several pieces: forward and backward are two passes
     * each, and between them the caller sums `statistics` over the pieces. */
    bool shared_statistics;
    int64_t statistics_count; /* elements per channel in all pieces together */
};

/* Layouts in and out of a group. The caller fixes inputs and residual and leaves the output NULL.
 * That one, and params that are NULL, are chosen by the backend and set; params that are given are
 * kept (converted inside if need be). Types are the precision's: of inputs, the residual and the
 * output its activation's, and of the rest what group_param_type and group_output_type say. The
 * gradient of a tensor has the layout of the tensor; that of a param in the precision's type of
 * gradients (layout_in_type). */
struct group_layouts {
    const layout *input[OP_MAX_INPUTS];
    const layout *residual;
    const layout *output;
    const layout *param[OP_MAX_PARAMS];
};

struct group_needs {
    int64_t saved_bytes;      /* handed from forward to backward (indices, statistics) */
    int64_t statistics_count; /* shared_statistics: doubles that are summed over the pieces */
    int64_t forward_workspace_bytes, backward_workspace_bytes;
    bool reads_input, reads_output; /* whether backward really reads these tensors */
    bool in_place_gradient; /* input_grad[0] may be the memory of the (folded) output gradient */
    bool output_is_input;   /* the output has the same bytes as input 0: nothing to run, neither
                               forward nor backward; the caller lets both share one buffer */
};

enum pass {
    PASS_FORWARD,
    PASS_BACKWARD,         /* all gradients at once: ops without OP_SPLIT_GRADIENT; never asked of
                              ops with OP_PASSES_GRADIENT */
    PASS_BACKWARD_DATA,    /* ops with OP_SPLIT_GRADIENT */
    PASS_BACKWARD_WEIGHTS, /* likewise */
    /* With shared_statistics, before PASS_FORWARD and PASS_BACKWARD: write args.statistics, to be
     * summed over the pieces; the main pass then reads the sum. The backward one also folds the
     * output's gradients into folded_grad and writes this piece's own param_grad. */
    PASS_FORWARD_STATISTICS,
    PASS_BACKWARD_STATISTICS,
    PASS_COUNT
};

/* Where a group's tensors are; bound once per program. Not every pass reads every field. */
struct group_args {
    const void *input[OP_MAX_INPUTS];
    const void *residual;
    void *output;
    void *param[OP_MAX_PARAMS]; /* running statistics are updated by a training forward pass */
    void *saved, *workspace;
    double *statistics;    /* shared_statistics; device memory */
    int64_t first_sample;  /* where the micro-batch begins in the batch */
    bool again;            /* forward is run again to save memory: running statistics stay */
    const int32_t *labels; /* loss only; device memory */
    /* Gradients of the output, to be summed. Ops without OP_FOLDS_GRADIENTS get exactly one, with
     * the activation already folded in (see fold). */
    int n_output_grads;
    const void *output_grad[GROUP_MAX_ADDENDS];
    /* Ops with OP_FOLDS_GRADIENTS that have an activation or several output gradients: where the
     * folded gradient (sum, times the activation's derivative) goes; it is the residual's gradient,
     * too. May be the same memory as one of output_grad, or (in_place_gradient) as input_grad[0].
     * NULL where there is nothing to fold: then output_grad[0] is the residual's gradient. */
    void *folded_grad;
    void *input_grad[OP_MAX_INPUTS]; /* NULL: not wanted */
    void *param_grad[OP_MAX_PARAMS];
};

/* A box of a tensor, copied into a box of another of the same extents and type, or added to
 * it. Layouts may differ; rank is that of both. */
struct region_copy {
    const layout *from_layout, *to_layout;
    int64_t from_begin[SHAPE_MAX_RANK], to_begin[SHAPE_MAX_RANK], extent[SHAPE_MAX_RANK];
    bool add;
};

/* The part that changes from step to step. */
struct step_state {
    uint64_t seed;
    uint32_t step;
};

enum update_kind { UPDATE_SGD, UPDATE_ADAMW, UPDATE_KIND_COUNT };
struct update_rule {
    enum update_kind kind;
    double learning_rate, weight_decay;
    double momentum; /* SGD; 0: no state is read or written */
    bool nesterov;
    double beta1, beta2, epsilon; /* AdamW */
    int64_t step;                 /* AdamW: 1 for the first update */
};

/* An update of `count` elements. state[i] has as many (SGD: the momentum buffer; AdamW: first and
 * second moments). Added elements are zero and stay zero. */
struct update_args {
    int64_t count;
    enum element type; /* of all of them */
    void *weight;
    const void *gradient;
    void *state[2];
    /* NULL, or where the new weight goes once more, rounded to this type: `weight` is the master,
     * and this is the weight that groups read. */
    void *rounded;
    enum element rounded_type;
};

struct backend {
    const char *name;
    const char *about; /* one line for people */
    /* Several threads may ask one device for layouts and groups at the same time. */
    bool describes_together;
    /* Whether its kernels compute in this precision. */
    bool (*computes_in)(enum precision precision);
    /* A device that only describes knows every precision, not only those. */
    bool describes_all_precisions;

    /* -- devices -- */
    enum status (*device_open)(const struct device_options *options, device **out);
    void (*device_close)(device *d);
    int (*device_threads)(const device *d);
    /* library versions and instruction set, for run records: "oneDNN 2.6.3 avx2" */
    const char *(*device_describe)(const device *d);

    /* -- memory: 64-byte aligned, zeroed -- */
    enum status (*memory_alloc)(device *d, int64_t n_bytes, void **out);
    void (*memory_free)(device *d, void *p);

    /* -- order: one stream runs in order; an event marks a point in it -- */
    enum status (*stream_create)(device *d, stream **out);
    void (*stream_destroy)(stream *s);
    enum status (*stream_synchronize)(stream *s);
    enum status (*event_create)(device *d, event **out);
    void (*event_destroy)(event *e);
    enum status (*event_record)(event *e, stream *s);
    enum status (*event_wait)(event *e, stream *s); /* s goes on when e was reached */

    /* -- layouts: owned by the device, equal layouts are the same pointer -- */
    enum status (*layout_plain)(device *d, enum element type, const struct shape *shape,
                                const layout **out);
    /* The one that has the same elements, added ones included, in the same places but in another
     * type: a weight's gradient, master and state have it. */
    enum status (*layout_in_type)(device *d, enum element type, const layout *l,
                                  const layout **out);
    int64_t (*layout_bytes)(const layout *l);
    enum element (*layout_type)(const layout *l);
    const struct shape *(*layout_shape)(const layout *l);
    /* Canonical and short, into a buffer of `size` bytes, which is returned; 160 always suffice.
     * Other places or types of elements, other text: "plain 64x10", "blocked16 64x128x28x28",
     * "plain:f64 64x10". The first word says the kind, and the type unless it is f32; the second
     * the shape. */
    const char *(*layout_text)(const layout *l, char *text, size_t size);

    /* The layout in which a region of a tensor travels between workers, as a tensor of its own.
     * Depends on nothing but the region's shape and what its axes are, so that both sides come to
     * the same one; as near to the layouts of activations as possible: where kernels have their
     * images in blocks of channels, a region of images travels so, and any other one plainly. */
    enum status (*layout_transfer)(device *d, enum element type, const struct shape *region,
                                   const struct axes *axes, const layout **out);

    /* Elements outside the box keep their values. Rounded-up channels stay zero, and a copy whose
     * box reaches the last channel of `to` makes them zero at its places, whatever was there. */
    enum status (*copy_region)(stream *s, const struct region_copy *c, const void *from, void *to);
    enum status (*clear)(stream *s, void *to, int64_t n_bytes);
    /* to += from */
    enum status (*accumulate)(stream *s, enum element type, int64_t count, const void *from,
                              void *to);
    enum status (*copy)(stream *s, const void *from, void *to, int64_t n_bytes);

    /* Whole tensors between host (plain layout, float) and device. Also convert the type. */
    enum status (*upload)(stream *s, const float *host, void *to, const layout *to_layout);
    enum status (*download)(stream *s, const void *from, const layout *from_layout, float *host);
    enum status (*upload_labels)(stream *s, const int32_t *host, int64_t count, int32_t *to);

    /* -- groups -- */
    enum status (*group_create)(device *d, const struct group_spec *spec,
                                struct group_layouts *layouts, group **out);
    void (*group_destroy)(group *g);
    void (*group_get_needs)(const group *g, struct group_needs *needs);
    enum status (*group_run)(group *g, enum pass pass, stream *s, const struct group_args *args,
                             const struct step_state *step);

    /* to = (sum of addends) * activation'(output); `output` may be NULL without an activation;
     * `to` may be one of the addends. All have layout l. */
    enum status (*fold)(stream *s, const layout *l, int n_addends, const void *const *addends,
                        enum activation activation, const void *output, void *to);

    enum status (*update)(stream *s, const struct update_rule *rule,
                          const struct update_args *args);

    /* Optional (NULL: unknown). The floor under a training group: the sum of the least times that
     * the vendor's own primitives need for its passes, each alone in its favourite layout; 0 for
     * groups that are no matrix product or convolution. */
    enum status (*measure_floor)(device *d, const struct group_spec *spec, double *seconds);
};

/* The registered backends, ending with NULL, and the one of that name (STATUS_USAGE with the
 * nearest match). The first one is the default. */
const struct backend *const *backend_list(void);
enum status backend_find(const char *name, const struct backend **out) MUST_USE;

/* STATUS_USAGE if it does not compute in this precision, naming those that it does compute in and
 * another backend for this one. */
enum status backend_check_precision(const struct backend *b, enum precision precision) MUST_USE;

/* How many state tensors an update rule keeps per weight: 0, 1 or 2. */
int update_rule_states(const struct update_rule *rule);

/* The type of a group's output, and of its params. */
enum element group_output_type(const struct group_spec *spec);
enum element group_param_type(enum precision precision, enum op_kind op);

#endif
