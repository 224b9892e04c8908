/* cpu_parts.h: shared by the files of the CPU backend.
 *
 * Tensors of rank 4 are blocked by channel: [n, C/B, h, w, B] with B the vector width of the
 * machine (8 floats with AVX2, 16 with AVX-512), channels rounded up to a multiple of B. The added
 * channels always hold zero: weights that touch them are zero, so their outputs and gradients are,
 * too. To oneDNN the rounded tensor is the tensor, so its fast kernels serve any channel count.
 * Images, and tensors of rank 2 and 1, are plain.
 */
#ifndef CLEAVE_BACKEND_CPU_CPU_PARTS_H
#define CLEAVE_BACKEND_CPU_CPU_PARTS_H

#include "backend/backend.h"
#include "backend/cpu/loops.h"
#include "backend/widen.h"

#include <oneapi/dnnl/dnnl.h>
#include <sys/types.h>

/* ---- device.c ---- */

enum { DEVICE_BUCKETS = 256, DEVICE_LINES = 64 };

struct device {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    const struct cpu_loops *loops;
    int threads;
    bool describe_only;
    char description[96];
    layout *layouts[DEVICE_BUCKETS];             /* all that were handed out, by hash */
    struct described *described[DEVICE_BUCKETS]; /* described.c */

    /* waiting.c: files that say how long the team's threads stood in line for a core */
    int lines[DEVICE_LINES], n_lines;
    pid_t caller; /* whose team it is */
    int64_t looked_ns, line_ns;
};

struct stream {
    device *device;
};

bool cpu_computes_in(enum precision precision);
int64_t cpu_layout_bytes(const layout *l);
enum element cpu_layout_type(const layout *l);

/* Zeroed, aligned, for free(). */
enum status cpu_memory_alloc(device *d, int64_t n_bytes, void **out) MUST_USE;

/* oneDNN asks OpenMP for the number of threads, which is a setting of the calling thread: every
 * call that reaches it on behalf of a device is preceded by this. */
void cpu_use_threads(const device *d);

/* ---- waiting.c ---- */

/* Before work of the device's threads, often: sees to it that they do not spin for each other where
 * other programs want their cores. */
void waiting_look(device *d);
void waiting_end(device *d);

/* The status of a oneDNN call, with the call in the message. */
enum status cpu_check(dnnl_status_t status, const char *call) MUST_USE;
#define TRY_DNNL(call) TRY(cpu_check((call), #call))

/* ---- layouts.c ---- */

enum layout_kind {
    LAYOUT_PLAIN,   /* row-major, as on the host */
    LAYOUT_BLOCKED, /* [n, C/B, h, w, B] */
    LAYOUT_WEIGHTS, /* what a oneDNN descriptor says, over rounded extents */
};

struct layout {
    layout *next;
    enum layout_kind kind;
    enum element type;       /* F32, or BF16 */
    struct shape shape;      /* logical */
    dnnl_memory_desc_t desc; /* over the rounded extents, except LAYOUT_PLAIN */
    int64_t n_bytes;
    /* LAYOUT_WEIGHTS: what index i of axis a adds to an element's place, in floats; one block of
     * memory. NULL for the others, whose places are simple. */
    int64_t *axis_place[SHAPE_MAX_RANK];
    char text[160]; /* layout_text's, written once: programs ask for it by the thousand */
};

/* These three are of floats. */
enum status layout_get_plain(device *d, const struct shape *shape, const layout **out) MUST_USE;
enum status layout_get_blocked(device *d, const struct shape *shape, const layout **out) MUST_USE;
/* A weights layout from a descriptor. A descriptor of rank 5 (groups first) serves a shape of rank
 * 4: the group axis and the next are one axis of the shape. */
enum status layout_get_weights(device *d, const struct shape *shape, const dnnl_memory_desc_t *desc,
                               const layout **out) MUST_USE;

enum status layout_get_transfer(device *d, const struct shape *region, const struct axes *axes,
                                const layout **out) MUST_USE;
/* The same places of elements of another type. */
enum status layout_get_in_type(device *d, enum element type, const layout *l,
                               const layout **out) MUST_USE;
/* Frees all that were handed out. */
void layout_destroy_all(device *d);
/* A number below DEVICE_BUCKETS that equal shapes have in common. */
size_t layout_hash_shape(const struct shape *s);
/* Both place every element, and every added one, alike. */
bool layout_same_bytes(const layout *a, const layout *b);

/* The layouts of a convolution's weights, over rounded extents [k, c, r, s], and of its bias. Any
 * that the group was given are replaced: groups.c converts between the two. */
enum status layout_get_params(group *g, const dnnl_dims_t dims, dnnl_format_tag_t tag) MUST_USE;

int64_t round_up(int64_t n, int64_t multiple);
/* Part i of n floats that are cut evenly at whole vectors. */
struct range floats_part(int64_t n, int parts, int i);

/* Whole tensors between a layout and row-major floats. Rounded-up elements become zero. */
enum status layout_pack(device *d, const layout *l, const float *plain, float *packed) MUST_USE;
enum status layout_unpack(device *d, const layout *l, const float *packed, float *plain) MUST_USE;

/* The place of one element, in floats; `at` has one index per axis of the shape. It is a sum of one
 * term per axis, of which layout_axis_place gives one. */
int64_t layout_place(const layout *l, const int64_t at[SHAPE_MAX_RANK]);
int64_t layout_axis_place(const layout *l, int axis, int64_t i);

/* How own loops see an activation: n images of c channels in blocks of `block` lanes. */
struct view {
    int64_t n, channels, blocks, block; /* the last block may have fewer real lanes */
    int64_t plane;                      /* h * w */
    int64_t n_stride, block_stride;     /* in floats; a position's lanes are contiguous */
    int64_t position_stride;            /* from one position of the plane to the next */
};
void layout_view(const device *d, const layout *l, struct view *view);

/* ---- primitives.c: a oneDNN primitive with its arguments ---- */

enum { PRIMITIVE_MAX_ARGS = 8 };

struct primitive {
    dnnl_primitive_t primitive;
    dnnl_primitive_desc_t desc;
    int n_args;
    dnnl_exec_arg_t args[PRIMITIVE_MAX_ARGS + 1]; /* the last of them is the scratchpad */
    int64_t scratch_bytes;
};

/* An activation folded into a primitive, and oneDNN's scratch memory handed over by us. */
enum status primitive_attributes(enum activation activation, dnnl_primitive_attr_t *out) MUST_USE;

/* Whether the own kernels and oneDNN's can apply it while they write their output. */
static inline bool can_fold(enum activation a)
{
    return a == ACTIVATION_RELU || a == ACTIVATION_RELU6;
}

/* An op's window in oneDNN's own, longer arrays; its dilation of 0 means none. */
struct cpu_window {
    dnnl_dims_t stride, kernel, dilates, before, after;
};
struct cpu_window cpu_window(const struct op_attrs *a);

/* From an operation descriptor. On STATUS_OK with *found false oneDNN has no implementation, or
 * only its reference one (and allow_reference is false). */
enum status primitive_describe(device *d, const void *op_desc, enum activation activation,
                               const struct primitive *hint, bool allow_reference,
                               struct primitive *p, bool *found) MUST_USE;
/* Creates it, with one memory per argument; `args` are DNNL_ARG_... numbers, ended by 0. On
 * a device that only describes, nothing is made, but scratch_bytes is set. */
enum status primitive_finish(device *d, struct primitive *p, const int *args) MUST_USE;
/* pointers[i] belongs to args[i] of primitive_finish. */
enum status primitive_run(const struct primitive *p, const device *d, void *const *pointers,
                          void *scratch) MUST_USE;
void primitive_deinit(struct primitive *p);
const dnnl_memory_desc_t *primitive_md(const struct primitive *p, dnnl_query_t what);

/* ---- groups and the kernels that run them ---- */

/* Every group; the structs of kernels that need more begin with it. */
struct group {
    device *device;
    const struct op_kernels *kernels;
    struct group_spec spec;
    struct group_layouts layouts;
    struct group_needs needs;
    const struct step_state *step; /* of the pass that runs; for random numbers */
    /* Inputs that came plain though the kernels want them blocked (groups.c); 0: not converted. */
    int64_t converted_bytes[OP_MAX_INPUTS], converted_residual_bytes, all_converted_bytes;
    int64_t own_saved_bytes; /* of the kernels alone, before the converted inputs */
    /* Params that came in another layout than the kernels want (groups.c); NULL: in the same. */
    const layout *given_param[OP_MAX_PARAMS];
    int64_t all_param_bytes; /* of those, as the kernels want them */
    struct widened *narrow;  /* NULL: its tensors are floats, as the kernels have them */
};

/* The kernels of one op, or of several that are alike; a file for each. `create` fills the group's
 * layouts and needs. */
struct op_kernels {
    size_t group_bytes;
    bool wants_blocked; /* inputs of rank 4 must be blocked */
    enum status (*create)(group *g);
    void (*destroy)(group *g); /* NULL: nothing but the struct */
    enum status (*run[PASS_COUNT])(group *g, const struct group_args *args);
};

extern const struct op_kernels cpu_conv, cpu_linear, cpu_max_pool, cpu_average_pool, cpu_mean_pool,
    cpu_batch_norm, cpu_local_response_norm, cpu_activation, cpu_dropout, cpu_add, cpu_concat,
    cpu_flatten, cpu_loss;

/* The layout that an op which keeps its input's form gives its output. */
enum status layout_like(device *d, const layout *like, const struct shape *shape,
                        const layout **out) MUST_USE;

/* ---- groups.c: the group functions of the backend's table ---- */
enum status cpu_group_create(device *d, const struct group_spec *spec,
                             struct group_layouts *layouts, group **out) MUST_USE;
void cpu_group_destroy(group *g);
void cpu_group_free(group *g); /* also one that a describing device keeps */
/* A pass on floats. */
enum status cpu_group_run_wide(group *g, enum pass pass, stream *s, const struct group_args *args,
                               const struct step_state *step) MUST_USE;
void cpu_group_get_needs(const group *g, struct group_needs *needs);
enum status cpu_group_run(group *g, enum pass pass, stream *s, const struct group_args *args,
                          const struct step_state *step) MUST_USE;

/* ---- described.c: the groups of a device that only describes ---- */

/* Such a device keeps its groups until it is closed, and one serves all that are alike. NULL: there
 * is none yet. */
group *described_find(device *d, const struct group_spec *spec, struct group_layouts *layouts);
/* Hands a group over to the device, with the layouts that were asked for and those that were given.
 */
enum status described_add(device *d, const struct group_layouts *asked,
                          const struct group_layouts *given, group *g) MUST_USE;
void described_destroy_all(device *d);
/* STATUS_FAILED, with the reason. */
enum status cpu_refuse_to_run(void) MUST_USE;

/* ---- floor.c ---- */
enum status cpu_measure_floor(device *d, const struct group_spec *spec, double *seconds) MUST_USE;

/* ---- regions.c ---- */
enum status cpu_copy_region(stream *s, const struct region_copy *c, const void *from,
                            void *to) MUST_USE;
enum status cpu_clear(stream *s, void *to, int64_t n_bytes) MUST_USE;
enum status cpu_accumulate(stream *s, enum element type, int64_t count, const void *from,
                           void *to) MUST_USE;
enum status cpu_copy(stream *s, const void *from, void *to, int64_t n_bytes) MUST_USE;

/* ---- narrow.c: tensors of bf16 ---- */
extern const struct widen_calls cpu_widen_calls;
enum status narrow_upload(device *d, const layout *l, const float *plain, uint16_t *to) MUST_USE;
enum status narrow_download(device *d, const layout *l, const uint16_t *from,
                            float *plain) MUST_USE;
/* The box is inside both, and not empty. */
void narrow_copy_region(device *d, const struct region_copy *c, const uint16_t *from, uint16_t *to);
void narrow_accumulate(const device *d, int64_t count, const uint16_t *from, uint16_t *to);
void narrow_fold(const device *d, int64_t count, int n_addends, const void *const *addends,
                 enum activation activation, const uint16_t *output, uint16_t *to);
void narrow_round(const device *d, int64_t count, const float *from, uint16_t *to);

/* ---- elementwise.c ---- */
enum status cpu_fold(stream *s, const layout *l, int n_addends, const void *const *addends,
                     enum activation activation, const void *output, void *to) MUST_USE;

/* ---- update.c ---- */
enum status cpu_update(stream *s, const struct update_rule *rule,
                       const struct update_args *args) MUST_USE;

#endif
