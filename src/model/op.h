/* op.h: what Cleave knows about every kind of layer, one table row each.
 *
 * A layer is a loop nest; a strategy is where it is cut. A row says which loops an op has, how each
 * of its tensors is indexed by them, its shape rule, its parameters, what its gradient reads, and
 * what it costs. Plans, transfers, predictions and kernels are all derived from the rows: there is
 * no switch over op kinds anywhere else.
 *
 * Example: the loops of a 3x3 convolution, stride 2, padding 1, 64 -> 128 channels, 56x56 -> 28x28
 *
 *     loops    n=16  g=1  k=128  p=28  q=28 | c=64  r=3  s=3        (| summed from here on)
 *     output   [n, 128 g + k, p, q]
 *     input    [n, 64 g + c, 2 p + r - 1, 2 q + s - 1]
 *     weight   [128 g + k, c, r, s]
 *
 * Cut n: data parallelism. Cut k: channel parallelism (the weight is cut with it). Cut p or q:
 * spatial parallelism; the input region of a piece reaches r - 1 rows into its neighbour (the
 * halo). Cut c: the output is a partial sum.
 *
 * Pure functions over values: nothing here allocates, and rows are constant.
 */
#ifndef CLEAVE_MODEL_OP_H
#define CLEAVE_MODEL_OP_H

#include "base/status.h"
#include "model/shape.h"

enum op_kind {
    OP_INPUT, /* the images of a batch; no computation */
    OP_CONV2D,
    OP_LINEAR,
    OP_MAX_POOL,
    OP_AVERAGE_POOL,
    OP_GLOBAL_POOL,   /* average over h and w, to 1x1 */
    OP_ADAPTIVE_POOL, /* average to out_size, windows floor(p H/P) .. ceil((p+1) H/P) */
    OP_BATCH_NORM,
    OP_LOCAL_RESPONSE_NORM,
    OP_RELU,
    OP_RELU6,
    OP_LOGISTIC,
    OP_TANH,
    OP_DROPOUT,
    OP_ADD,
    OP_CONCAT,                /* along channels */
    OP_FLATTEN,               /* [n, c, h, w] -> [n, c h w] */
    OP_SOFTMAX_CROSS_ENTROPY, /* logits [n, k] and labels -> the loss of each sample [n] */
    OP_KIND_COUNT
};

enum { OP_MAX_INPUTS = 8, OP_MAX_PARAMS = 4, OP_MAX_LOOPS = 8, OP_MAX_TERMS = 3 };

/* The attributes of a layer. Pairs are (height, width). Fields that an op does not use stay
 * zero; op_infer_shape refuses values that make no sense. Each field has a row in op_attr_table. */
struct op_attrs {
    int64_t out_channels;                                                   /* conv2d, linear */
    int64_t kernel[2], stride[2], dilation[2], pad_before[2], pad_after[2]; /* conv2d, pools; a
                                                                               dilation of 0 is 1 */
    int64_t groups;                                                         /* conv2d */
    bool bias;                                                              /* conv2d, linear */
    bool count_padding;  /* average pool: padding counts in the divisor */
    int64_t out_size[2]; /* adaptive pool */
    double epsilon;      /* batch norm */
    double momentum;     /* batch norm: running = (1 - momentum) running + momentum batch */
    int64_t lrn_size;    /* local response norm: x / (k + alpha/size sum x^2)^beta */
    double lrn_alpha, lrn_beta, lrn_k;
    double drop_probability; /* dropout */
    /* A piece of a pool whose windows depend on the whole: adaptive pool: the extents of the whole
     * input and output, and where the piece begins in them; global pool: the whole input's extents,
     * whose product divides the sum. Zero: the op is no piece. */
    int64_t whole_in[2], whole_out[2], first_in[2], first_out[2];
};

/* ---- uses ---- */

/* What a loop goes over, and so what an axis is that the loop indexes. All other rooms find the
 * batch, the channels or the rows by their use: the number of a loop or of an axis says nothing. */
enum loop_use {
    USE_BATCH,
    USE_TOKEN,   /* places in a sequence */
    USE_CHANNEL, /* features, classes */
    USE_HEAD,    /* of attention */
    USE_ROW,     /* of an image */
    USE_COLUMN,
    USE_VOCABULARY,
    USE_EXPERT,
    USE_WINDOW, /* places in a window: no tensor but a weight has such an axis */
    LOOP_USE_COUNT
};

extern const char *const loop_use_names[LOOP_USE_COUNT + 1]; /* "batch"; ends with NULL */

/* What the axes of a tensor are, outermost first. */
struct axes {
    int rank;
    enum loop_use use[SHAPE_MAX_RANK];
};

/* [batch, channel, row, column], or the first `rank` of these. */
struct axes axes_of_images(int rank);
bool axes_equal(const struct axes *a, const struct axes *b);
/* The first axis of that use; -1: none. */
int axes_find(const struct axes *axes, enum loop_use use);
/* "[batch, channel]" into a buffer of `size` bytes, which is returned. AXES_TEXT_BYTES always
 * suffice. */
enum { AXES_TEXT_BYTES = 96 };
const char *axes_text(char *buffer, size_t size, const struct axes *axes);

/* One use of an op: its attributes and the shapes of its tensors. */
struct op_case {
    enum op_kind op;
    struct op_attrs attrs;
    int n_inputs;
    struct shape input[OP_MAX_INPUTS];
    /* What the axes of the first input are. Ops that work on one form alone (a convolution: images)
     * fill it where the rank is 0, and refuse another form; ops that take any form (a sum) must be
     * told. OP_INPUT, which reads nothing: those of its output. */
    struct axes axes;
    struct shape output;     /* op_infer_shape fills these two */
    struct axes output_axes; /* as the loops that index the output say */
};

/* Same op, attributes, shapes and axes. */
bool op_equal(const struct op_case *a, const struct op_case *b);

/* The extent of the output along its axis of that use; 1 where it has none. */
int64_t op_extent(const struct op_case *op, enum loop_use use);

/* The same op with all axes of that use, of its inputs and of its output, `n` long: for what ops
 * hand on as it is, like the batch. (More rows would need other windows.) */
struct op_case op_resize(const struct op_case *op, enum loop_use use, int64_t n);

/* ---- attributes ---- */

enum op_attr_type {
    ATTR_INTEGER, /* int64_t */
    ATTR_PAIR,    /* int64_t [2] */
    ATTR_FLAG,    /* bool */
    ATTR_REAL     /* double */
};

/* The default, which keys leave out. */
enum op_attr_usual {
    USUAL_ZERO,
    USUAL_ONE,       /* with a kernel; without one 0 */
    USUAL_UP_TO_ONE, /* 0 stands for 1 */
    USUAL_PAD_BEFORE /* what pad_before is */
};

struct op_attr {
    const char *name;
    size_t offset; /* in struct op_attrs */
    enum op_attr_type type;
    unsigned ops; /* the ops that have it, a bit 1 << kind each */
    /* Its name in the keys of costs ("k" in "k3"), if ops of equal shapes differ in cost by it. "":
     * it only changes values, or follows from the shapes. */
    const char *key;
    enum op_attr_usual usual;
};

/* A row for every field of op_attrs; the last has no name. */
extern const struct op_attr op_attr_table[];

/* The attribute's value in `attrs`, of an integer both numbers; not for reals. */
void op_attr_numbers(const struct op_attr *attr, const struct op_attrs *attrs, int64_t number[2]);
bool op_attr_is_usual(const struct op_attr *attr, const struct op_attrs *attrs);

/* The first attribute that is not zero although ops of this kind do not have it, or NULL. */
const struct op_attr *op_attr_find_foreign(enum op_kind op, const struct op_attrs *attrs);

/* How a fresh parameter is filled. */
enum op_init {
    INIT_KAIMING_NORMAL,  /* normal, variance 2 / fan */
    INIT_KAIMING_UNIFORM, /* uniform in +-1/sqrt(fan): a linear layer's weight, and its bias */
    INIT_NORMAL,          /* normal, standard deviation `deviation` */
    INIT_ZERO,
    INIT_ONE
};

struct op_param {
    const char *name; /* "weight", "bias", "running_mean", "running_var": PyTorch's names */
    struct shape shape;
    bool trained; /* false for running statistics: saved, but no gradient */
    /* Usual ones; a network may have its own (network.h). */
    enum op_init init;
    int64_t fan;      /* what the initialisation scales by: inputs of an output, or the reverse */
    double deviation; /* INIT_NORMAL */
};

/* ---- loops ---- */

enum loop_role {
    LOOP_OUTPUT,    /* indexes the output */
    LOOP_SUMMED,    /* summed over to make one output element */
    LOOP_STATISTIC, /* indexes the output, and statistics are taken over it (batch norm's n h w) */
};

/* What cutting a loop means for the pieces. */
enum loop_cut {
    CUT_NEVER,      /* not a legal cut */
    CUT_FREE,       /* pieces are independent */
    CUT_HALO,       /* pieces read overlapping regions of an input */
    CUT_PARTIAL,    /* each piece's output is a partial sum over the pieces */
    CUT_STATISTICS, /* pieces exchange statistics between two halves of the op */
};

struct loop {
    const char *name; /* of one letter mostly; plans cut loops by it */
    enum loop_use use;
    enum loop_role role;
    enum loop_cut cut;
    int64_t extent;
};

/* How one axis of a tensor is indexed: offset + sum of scale * loop, or an adaptive window. An
 * index outside [0, extent) is padding: nothing is read there. The first term's loop says what the
 * axis is; the others go on inside of it (a group's channels, a window's places). */
enum axis_kind { AXIS_AFFINE, AXIS_ADAPTIVE };
struct axis_map {
    enum axis_kind kind;
    enum loop_use use;
    int n_terms;
    struct axis_term {
        int loop;
        int64_t scale;
    } term[OP_MAX_TERMS];
    int64_t offset;
    int64_t extent;     /* of the tensor's axis */
    int64_t out_extent; /* AXIS_ADAPTIVE: P, with H = extent and term[0].loop = p */
};

struct tensor_map {
    int rank;
    struct axis_map axis[SHAPE_MAX_RANK];
};

struct loop_nest {
    int n_loops;
    struct loop loop[OP_MAX_LOOPS];
    struct tensor_map output;
    int n_inputs;
    struct tensor_map input[OP_MAX_INPUTS];
    int n_params;
    struct tensor_map param[OP_MAX_PARAMS];
};

/* A half-open range of one loop or axis, and one range per loop: a piece. */
struct range {
    int64_t begin, end;
};
struct box {
    struct range range[OP_MAX_LOOPS];
};

/* The loop of that use that indexes the output: the first with more than one iteration, else the
 * first (the channels of a convolution: g where it has groups, else k); -1: none. No output has two
 * loops over the batch. */
int loop_nest_find(const struct loop_nest *nest, enum loop_use use);

/* The first axis of that use; -1: none. */
int tensor_map_find(const struct tensor_map *map, enum loop_use use);
struct axes tensor_map_axes(const struct tensor_map *map);

/* The whole nest as one piece. */
void loop_nest_whole(const struct loop_nest *nest, struct box *piece);

/* The region of a tensor that `piece` touches, clipped to the tensor, one range per axis. */
void tensor_map_region(const struct tensor_map *map, const struct box *piece,
                       struct range region[SHAPE_MAX_RANK]);

/* ---- pieces ---- */

/* One worker's share of a layer: an op of its own, over regions of the layer's tensors. */
struct op_piece {
    bool empty;                 /* no output: a loop's range is empty */
    bool partial;               /* the output is a partial sum: a summed loop is cut */
    unsigned shared_statistics; /* loops statistics are taken over and that are cut, a bit each */
    struct op_case op;       /* local shapes and attributes; inputs with an empty region left out */
    int slot[OP_MAX_INPUTS]; /* which input of the layer op.input[i] is a region of */
    struct range input[OP_MAX_INPUTS][SHAPE_MAX_RANK]; /* by op's input number */
    struct range output[SHAPE_MAX_RANK];
    struct range param[OP_MAX_PARAMS][SHAPE_MAX_RANK]; /* n_params of them */
    int n_params; /* a partial sum adds its bias once: only the piece at the begin of all summed
                     loops has it */
};

/* The piece of `c` that runs the iterations `box`. STATUS_USAGE if it reads nothing but padding. */
enum status op_get_piece(const struct op_case *c, const struct box *box,
                         struct op_piece *piece) MUST_USE;
/* The same for callers that have the loops of `c` already. */
enum status op_get_piece_of(const struct op_case *c, const struct loop_nest *nest,
                            const struct box *box, struct op_piece *piece) MUST_USE;

/* The regions of the parameters that piece would hold if the batch had room for it: they do not
 * depend on loops over the batch, so an empty piece still keeps its weights. Returns how many. */
int op_get_piece_params(const struct loop_nest *nest, const struct box *box,
                        struct range param[OP_MAX_PARAMS][SHAPE_MAX_RANK]);

/* The region of one of the nest's tensors that op_get_piece gives a piece, for callers that need no
 * more than this: tensor_map_region, but an axis none of whose loops is cut is taken whole. */
void op_get_piece_region(const struct loop_nest *nest, const struct tensor_map *map,
                         const struct box *box, struct range region[SHAPE_MAX_RANK]);

/* ---- costs ---- */

/* Floating-point operations (a multiply-add is two) and the fewest bytes moved, in elements, of the
 * three passes. */
struct op_cost {
    double forward_flops, data_gradient_flops, weight_gradient_flops;
    int64_t forward_elements, data_gradient_elements, weight_gradient_elements;
};

/* ---- the table ---- */

enum activation {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_RELU6,
    ACTIVATION_LOGISTIC,
    ACTIVATION_TANH,
    ACTIVATION_COUNT
};

enum op_flags {
    OP_GRADIENT_READS_INPUT = 1 << 0,  /* backward needs the forward input */
    OP_GRADIENT_READS_OUTPUT = 1 << 1, /* backward needs the forward output */
    OP_SPLIT_GRADIENT = 1 << 2,        /* data and weight gradients are separate computations */
    OP_TAKES_ACTIVATION = 1 << 3,      /* a following activation can be folded in */
    OP_TAKES_RESIDUAL = 1 << 4,  /* a following add (and then an activation) can be folded in */
    OP_FOLDS_GRADIENTS = 1 << 5, /* its backward sums several output gradients and applies a folded
                                    activation by itself */
    OP_PASSES_GRADIENT = 1 << 6, /* every input's gradient is the output's, unchanged */
    OP_IS_LOSS = 1 << 7,
    OP_IDENTITY_IN_EVALUATION = 1 << 8, /* dropout */
};

struct op_info {
    const char *name;
    int min_inputs, max_inputs;
    unsigned flags;             /* enum op_flags */
    enum activation activation; /* which one this op is, or ACTIVATION_NONE */
    /* c->output from the rest, and c->axes where the op knows them; the message says what does not
     * fit */
    enum status (*infer)(struct op_case *c);
    /* fills params[], returns how many; NULL: none */
    int (*params)(const struct op_case *c, struct op_param params[OP_MAX_PARAMS]);
    void (*loops)(const struct op_case *c, struct loop_nest *nest);
    /* adapts the attributes of a piece to its regions; NULL: they are the layer's */
    void (*piece)(const struct op_case *c, const struct loop_nest *nest, const struct box *box,
                  struct op_piece *piece);
    /* operations per output element of the three passes; NULL: one forward, one backward */
    void (*flops)(const struct op_case *c, struct op_cost *cost);
};

const struct op_info *op_get_info(enum op_kind op);

/* Fills c->output and c->output_axes from the rest of *c, and c->axes where its rank is 0 and the
 * op knows them. STATUS_USAGE with a reason if it does not fit. */
enum status op_infer_shape(struct op_case *c) MUST_USE;

int op_get_params(const struct op_case *c, struct op_param params[OP_MAX_PARAMS]);
void op_get_loops(const struct op_case *c, struct loop_nest *nest);
void op_get_cost(const struct op_case *c, struct op_cost *cost);

#endif
