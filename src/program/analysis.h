/* analysis.h: all that lowering knows of a plan before it emits: the same for all workers,
 * made once, and read by the emission of each worker. Not for use outside this room.
 *
 *     partition   the regions of tensors that workers hold          (partition.h)
 *     tasks       all stages' forwards and backwards in one order   (partition.h)
 *     traffic     the pairs of workers whose regions of a view meet (traffic.c)
 *     stages      their groups, workers and messages                (analysis.c)
 *     cases       the loops of every group, uncut                   (analysis.c)
 *     params      regions of parameters, and the holders of each    (holders.c)
 *
 * Lowering a worker then costs what its own instructions cost, however many workers there are.
 */
#ifndef CLEAVE_PROGRAM_ANALYSIS_H
#define CLEAVE_PROGRAM_ANALYSIS_H

#include "program/partition.h"

/* ---- traffic.c ---- */

enum direction {
    TO_VIEW,
    TO_SOURCE,
    DIRECTION_COUNT
}; /* forward, and gradients on their way back */

/* One side of a pair of workers, of which one holds a part of a view and the other (or the same)
 * the same elements of its source. */
struct share {
    int peer;
    /* Its number among the move's messages; -1: no message, the peer is the worker itself. The
     * order is by receiving worker, then by sending worker. */
    int message[DIRECTION_COUNT];
};

/* The pairs of one view, for one size of the micro-batches, from both sides. */
struct traffic {
    int n_messages;          /* pairs of different workers; the same in both directions */
    int *of_view;            /* worker w of the view: shares of_view[w] to of_view[w + 1] - 1 of */
    struct share *in_source; /* these, by peer */
    int *of_source;          /* likewise worker w of the source */
    struct share *in_view;
};

/* Of the view `tensor`, in `memory`; nothing keeps contents of `scratch`. Images are never sent:
 * every worker meets only itself. */
enum status traffic_find(const struct partition *part, int n_workers, int tensor, int size,
                         arena *memory, arena *scratch, struct traffic *out) MUST_USE;

/* ---- holders.c ---- */

/* A region of a parameter, and the workers that compute with it, in ascending order. */
struct param_part {
    struct range region[SHAPE_MAX_RANK];
    int n_holders, *holders;
};

struct param_parts {
    int n_parts;
    struct param_part *parts;
    int *part_of; /* by piece of the layer; -1: the piece has none. NULL: all have part 0 */
    int server;   /* keeps the parameter whole, and then there is one part; -1: none */
};

enum status holders_find(const struct graph *graph, const struct plan *plan,
                         const struct partition *part, arena *memory,
                         struct param_parts **out) MUST_USE;

/* The part that a piece (or NO_PIECE) holds; NULL: none. */
const struct param_part *holders_part_of(const struct param_parts *parts, int piece);

/* ---- analysis.c ---- */

struct stage_work {
    int n_groups;
    const int *groups; /* in ascending order */
    bool reads_images;
    const bool *concerns; /* by worker: it has a part in the stage's tasks */
    int64_t n_messages[DIRECTION_COUNT][PARTITION_MAX_SIZES]; /* of one task; servers' left out */
};

/* The op of a group's first node, for micro-batches of one size. */
struct group_case {
    struct op_case op;
    struct loop_nest nest;
};

struct analysis {
    arena *memory; /* owns everything below that is not the caller's */
    const struct graph *graph;
    const struct plan *plan;
    bool training;
    int n_steps, n_micros; /* micro-batches of a step */
    struct partition *part;
    int n_tasks;
    struct task *tasks;
    struct traffic (*traffic)[PARTITION_MAX_SIZES]; /* [tensor][size]; of views */
    struct stage_work *stages;
    struct param_parts *params;
    struct group_case *(
        *cases)[PARTITION_MAX_SIZES]; /* [group][size]; NULL: one piece, which is asked for once */
    bool (*has_empty)[PARTITION_MAX_SIZES]; /* [group][size]: a piece of it is empty */
    bool shares_statistics;                 /* some layer's are those of several workers */
};

/* Graph and plan must outlive it. n_steps: an asynchronous pipeline's window, 0: the plan's. */
enum status analysis_create(const struct graph *graph, const struct plan *plan, bool training,
                            int n_steps, struct analysis **out) MUST_USE;
void analysis_destroy(struct analysis *a); /* NULL is fine */

/* The op of one group's first node, whether or not it is in `cases`. */
void analysis_find_case(const struct analysis *a, int group, int size, struct group_case *out);

/* ---- twins.c ---- */

/* twin_of, by worker: the lowest-numbered worker (itself, if there is no other) whose program is
 * the same but for the samples; see program_create_all. */
enum status analysis_find_twins(const struct analysis *a, int *twin_of) MUST_USE;

#endif
