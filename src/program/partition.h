/* partition.h: a plan applied to a graph: groups of nodes, and the regions of tensors that each
 * worker holds. The same for every worker; knows no buffers, layouts or backends.
 *
 *     tensor 0       the images; every worker loads what it reads, so nothing moves
 *     other tensors  a group's output, or a view: the regions of another tensor that some consumers
 *                    read, where these differ from what its producers own (halos, other cuts,
 *                    another stage, partial sums that must be added up)
 *
 *     conv1 (cut by rows) ──► conv2 (cut by rows, reads a halo)
 *
 *     tensor 1: conv1's output   worker 0: rows 0..13   worker 1: rows 14..27
 *     tensor 2: view of it       worker 0: rows 0..14   worker 1: rows 13..27
 *
 * Micro-batches of one step come in at most two sizes; size 0 is the larger.
 */
#ifndef CLEAVE_PROGRAM_PARTITION_H
#define CLEAVE_PROGRAM_PARTITION_H

#include "model/graph.h"
#include "plan/plan.h"

enum { PARTITION_MAX_SIZES = 2, TENSOR_IMAGES = 0, NO_TENSOR = -1, NO_PIECE = -1 };

struct region {
    struct range axis[SHAPE_MAX_RANK];
};

struct part_tensor {
    const char *name;
    struct axes axes;
    int source;                             /* a view: the tensor that it shows; else NO_TENSOR */
    int producer;                           /* the group whose output it is; -1: images, views */
    int first_consumer;                     /* the first group that reads it; -1: none */
    int first_view, next_view;              /* its views; the next of its source; NO_TENSOR */
    bool needs_gradient;                    /* a weight that learns lies before it */
    bool partial;                           /* several workers hold parts of one sum */
    struct region *at[PARTITION_MAX_SIZES]; /* by worker; empty where it holds nothing */
};

struct part_group {
    int first_node, last_node;
    int stage;
    bool recompute;
    bool residual_sum; /* a sum with a second tensor is folded in */
    enum activation activation;
    int output;               /* tensor numbers from here on */
    int first_view;           /* up to output - 1: the views whose first consumer it is */
    int input[OP_MAX_INPUTS]; /* by input of the first node */
    int residual;             /* NO_TENSOR: none */
    bool input_gradient;      /* some input (or the residual) needs a gradient */
};

struct partition {
    int n_sizes;
    int64_t samples_of_size[PARTITION_MAX_SIZES]; /* in a micro-batch */
    int n_micros;
    int *size_of_micro;   /* by micro-batch of a step */
    int64_t *micro_first; /* its first sample within the step's batch */
    int n_groups;
    struct part_group *groups;
    int n_tensors;
    struct part_tensor *tensors;
    const int **piece_of; /* [node][worker]: number of the piece of the layer, or NO_PIECE */
};

/* Everything is allocated in `memory`. */
enum status partition_create(const struct graph *graph, const struct plan *plan, int n_micros,
                             arena *memory, struct partition **out) MUST_USE;

bool region_is_empty(const struct region *r, int rank);
bool region_equal(const struct region *a, const struct region *b, int rank);
/* False (and *out empty) if they do not meet. */
bool region_intersect(const struct region *a, const struct region *b, int rank, struct region *out);
struct shape region_shape(const struct region *r, int rank);
/* Its samples: the range along the tensor's batch axis. Every tensor has one. */
struct range region_samples(const struct region *r, const struct axes *axes);

/* ---- task_order.c ---- */

/* All of a stage's groups forward, or backward, for one micro-batch. */
struct task {
    int stage;
    bool forward;
    int micro; /* over all steps of the program */
};

/* The tasks of all stages in one sequence: each stage's tasks in the order of the plan's schedule,
 * and each task behind all that it depends on. *n_tasks of them, in `memory`. n_micros is the
 * number over all steps. */
enum status order_tasks(const struct plan *plan, int n_micros, bool training, arena *memory,
                        struct task **tasks, int *n_tasks) MUST_USE;

#endif
