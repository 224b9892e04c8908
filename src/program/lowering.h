/* lowering.h: the steps of program_create, one file each. Not for use outside this room. */
#ifndef CLEAVE_PROGRAM_LOWERING_H
#define CLEAVE_PROGRAM_LOWERING_H

#include "program/analysis.h"
#include "program/program.h"

/* ---- arrays.c: a program's arrays while they grow ---- */

enum array_kind {
    ARRAY_INSTRS,
    ARRAY_BUFFERS,
    ARRAY_RUNS,
    ARRAY_FOLDS,
    ARRAY_COPIES,
    ARRAY_LOADS,
    ARRAY_MESSAGES,
    ARRAY_REDUCTIONS,
    ARRAY_RESULTS,
    ARRAY_COUNT
};

/* Of one program at a time; the next program uses the same memory. Zeroed is empty. */
struct arrays {
    char *items[ARRAY_COUNT];
    int capacity[ARRAY_COUNT];
};

void arrays_deinit(struct arrays *a);
/* *out, a pointer to one more item of the program's, which the caller fills. Pointers to the items
 * before it may become invalid. */
enum status arrays_extend(struct arrays *a, struct program *p, enum array_kind kind,
                          void *out) MUST_USE;
/* Copies the finished arrays into the program's own memory. */
enum status arrays_keep(const struct arrays *a, struct program *p) MUST_USE;

/* ---- program.c: all steps of one worker ---- */

/* The memory that one thread needs. The programs that it lowers follow each other in it, so it is
 * warm for all but the first. */
struct lowering_memory {
    struct arrays arrays;
    arena *scratch; /* for what no later step needs */
    arena *program; /* a program that is only measured */
};

/* One for each of n threads. */
enum status lowering_open_memory(int n, struct lowering_memory **out) MUST_USE;
void lowering_close_memory(struct lowering_memory *all, int n); /* NULL is fine */

/* The input of all steps besides the program. */
struct lowering {
    const struct analysis *analysis;
    const struct program_options *options;
    int worker;
    const struct program *shares; /* the program whose parameters this one uses, or NULL */
    struct lowering_memory *memory;
};

enum status lowering_create(const struct lowering *given, struct program **out) MUST_USE;
/* The slabs alone: emission and places. The program is gone afterwards. */
enum status lowering_measure(const struct lowering *given,
                             int64_t slab_bytes[BUFFER_CLASS_COUNT]) MUST_USE;

/* ---- emit.c: shared by all emission ---- */

/* A group on this worker, for one size of the micro-batches. */
struct kernel {
    bool known;             /* looked at already */
    bool here;              /* this worker has a piece that is not empty */
    int group;              /* number in p->groups, if here */
    struct op_piece *piece; /* NULL: this worker has none */
    int n_members;          /* sharers of its statistics; 0: not looked for yet */
    const int *members;
};

/* A tensor of one micro-batch on this worker. */
struct instance {
    int buffer;
    int n_grads, grad[GROUP_MAX_ADDENDS]; /* written so far by its consumers */
    bool complete;                        /* a view: its regions have been put together */
    int *received; /* a view: by share, where its message was received; NULL: none yet */
    int *returned; /* likewise for gradients on their way back */
    int direct;    /* a view: a message was received straight into this buffer */
    int sent_grad; /* a view: the one buffer with its gradient */
};

/* A group of one micro-batch on this worker. */
struct group_instance {
    struct program_run run; /* as forward ran */
    bool again;             /* forward has been run again */
};

/* One group's backward of one micro-batch. */
struct backward_work {
    int group_number, micro;
    const struct part_group *g;
    struct kernel *k;
    const struct program_group *made;
    unsigned flags;
    bool learns; /* one of its weights does */
    struct program_run run;
};

/* A buffer that was sent, in a task of this micro-batch. */
struct held {
    int buffer, micro;
    bool forward;
};

struct held_list {
    int n, capacity;
    struct held *held;
};

/* An instruction that comes before the one that was emitted as number `to`. */
struct moved {
    int from, to;
};

/* A part of the gradients that is reduced as one. */
struct bucket {
    int n_members;
    const int *members;
    int n_params, *params, param_capacity;
    int64_t n_bytes;
    enum element type;
    int buffer;
    bool closed;
};

/* Buffers of one instruction. */
struct list {
    int n, item[63];
};

struct emitter {
    struct program *p;
    struct arrays *arrays;
    arena *scratch;            /* for what nothing needs after the emission */
    struct list reads, writes; /* of the instruction that comes next */
    int n_ints, *ints;         /* room for lists of buffers */
    const struct analysis *analysis;
    const struct partition *part; /* the analysis' */
    const struct program *shares; /* the program whose parameters it uses, or NULL */
    int me, n_micros;             /* micro-batches over all steps */
    int64_t next_message;         /* the same on all workers */
    struct kernel (*kernels)[PARTITION_MAX_SIZES]; /* [group][size] */
    const layout *(*layouts)[PARTITION_MAX_SIZES]; /* [tensor][size] */
    struct instance **instances; /* [tensor][micro]; NULL: does not concern this worker */
    struct group_instance **group_instances;  /* [group][micro]; likewise */
    const int *last_holders, *copied_holders; /* the list of holders copied last, and its copy */
    int *stash; /* [param][micro]: the version of a weight, or NO_BUFFER */
    int in_lists_capacity;
    int *in_lists; /* by buffer: the number of gradient lists that it stands in */
    int n_buckets, bucket_capacity;
    struct bucket *buckets;
    struct task *last; /* by stage: its last task */
    int fresh;         /* the stage whose forward of the micro-batch was the last task, and of whose
                          backward nothing has been emitted; -1: none */
    bool has_delayed;  /* a weight gradient that is still to be emitted */
    struct backward_work delayed;
    int *bucket_of;  /* by parameter; -1: none */
    struct task now; /* overlap.c from here on */
    bool computes;   /* this worker has a part in its computation */
    int task_begin;  /* of the last task in which it has or had */
    struct held_list sent_near, sent_now, sent_before; /* within the stage; beyond it, in this task
                                                          and in the one before */
    int *received_from; /* by worker: behind the last receive from it that was not moved up */
    int n_moved, moved_capacity;
    struct moved *moved; /* in the order of emission, and of where they go */
};

/* One more buffer that the next instruction reads or writes; NO_BUFFER is left out. */
static inline void emit_reads(struct emitter *e, int buffer)
{
    if (buffer != NO_BUFFER)
        e->reads.item[e->reads.n++] = buffer;
}

static inline void emit_writes(struct emitter *e, int buffer)
{
    if (buffer != NO_BUFFER)
        e->writes.item[e->writes.n++] = buffer;
}

/* Appends a copy of *item to an array that nothing needs after the emission; the number of the new
 * entry is *n - 1. */
enum status emit_append(struct emitter *e, void *array, int *n, int *capacity, size_t item_bytes,
                        const void *item) MUST_USE;

/* Of so many elements without a shape; NO_BUFFER for none. */
enum status emit_buffer(struct emitter *e, const char *name, enum buffer_class class,
                        enum element type, int64_t count, int *out) MUST_USE;
enum status emit_tensor(struct emitter *e, const char *name, enum buffer_class class,
                        const layout *l, int *out) MUST_USE;
/* The instruction, with what emit_reads and emit_writes have gathered for it. */
enum status emit_instr(struct emitter *e, struct instr instr) MUST_USE;
/* The rest fill the array of their kind, and emit an instruction with the group, micro-batch and
 * parameter of `like`. */
enum status emit_run(struct emitter *e, const struct program_run *run, enum pass pass, int in_group,
                     int micro) MUST_USE;
/* Several gradients into one, times an activation's derivative; fold->to may be one of them. */
enum status emit_fold(struct emitter *e, const struct program_fold *fold,
                      struct instr like) MUST_USE;
enum status emit_copy(struct emitter *e, enum instr_kind kind, const struct program_copy *copy,
                      struct instr like) MUST_USE;
enum status emit_message(struct emitter *e, enum instr_kind kind, int peer, int64_t tag, int buffer,
                         struct instr like) MUST_USE;
enum status emit_reduction(struct emitter *e, const struct comm_reduction *spec, int buffer,
                           struct instr like) MUST_USE;

/* Tags of different kinds of operations never meet. */
enum tag_kind { TAG_MESSAGE, TAG_BUCKET, TAG_FORWARD_STATISTICS, TAG_BACKWARD_STATISTICS };
int64_t emit_tag(enum tag_kind kind, int64_t number);

struct instance *emit_instance(const struct emitter *e, int tensor, int micro);
struct group_instance *emit_group_instance(const struct emitter *e, int group_number, int micro);
int emit_size(const struct emitter *e, int micro);
/* The step whose last backward this micro-batch's is, or -1. */
int emit_completed_step(const struct emitter *e, int micro);
const struct region *emit_region(const struct emitter *e, int tensor, int size, int worker);

/* The layout that a tensor of this shape has unless something else is known. */
enum status emit_natural_layout(struct emitter *e, int tensor, const struct shape *shape,
                                const layout **out) MUST_USE;

/* ---- kernels.c: pieces, their kernels and parameters ---- */
enum status emit_kernel(struct emitter *e, int group_number, int size,
                        struct kernel **out) MUST_USE;
/* All parameters this worker holds, in the graph's order. */
enum status emit_params(struct emitter *e) MUST_USE;

/* The server that keeps a trained parameter (they take turns); -1: none. */
int emit_server_of(const struct emitter *e, int param);

/* ---- overlap.c: transfers beside computation ---- */
void overlap_begin_task(struct emitter *e, const struct task *t);
void overlap_end_task(struct emitter *e);
/* The buffer that has just been sent to `peer` lives on for a while. */
enum status overlap_send(struct emitter *e, int buffer, int peer) MUST_USE;
/* The receive that was emitted last may start earlier. */
enum status overlap_receive(struct emitter *e, int peer) MUST_USE;
/* A RUN is about to be emitted. */
void overlap_run(struct emitter *e);
/* Behind the last instruction: puts all instructions in their final order. */
enum status overlap_settle(struct emitter *e) MUST_USE;

/* ---- moves.c: views ---- */
/* Sends and receives of all views of a tensor that has just been written. */
enum status emit_post_views(struct emitter *e, int tensor, int micro) MUST_USE;
/* Makes the view's instance complete, if this worker reads it. */
enum status emit_complete_view(struct emitter *e, int tensor, int micro) MUST_USE;
/* Sends the gradients of all views whose first consumer is `group` back to their sources. */
enum status emit_return_views(struct emitter *e, int group_number, int micro) MUST_USE;
/* Adds the gradients that have come back from its views to those of a tensor. */
enum status emit_take_returns(struct emitter *e, int tensor, int micro) MUST_USE;

/* ---- forward.c, backward.c: one group, one micro-batch ---- */
enum status emit_load(struct emitter *e, int stage, int micro) MUST_USE;
enum status emit_forward(struct emitter *e, int group_number, int micro, bool again) MUST_USE;
/* The sum of a batch norm's statistics over the workers that share them. */
enum status emit_statistics(struct emitter *e, int group_number, int micro, struct kernel *k,
                            int buffer, bool backward, bool again) MUST_USE;
enum status emit_backward(struct emitter *e, int group_number, int micro) MUST_USE;
/* The weight gradient that was put off, if there is one, and all that follows it. */
enum status emit_delayed_weights(struct emitter *e) MUST_USE;
enum status emit_hand_gradient(struct emitter *e, int tensor, int micro, int buffer) MUST_USE;

/* ---- gradients.c: sums over workers, updates, servers ---- */
enum status emit_buckets(struct emitter *e) MUST_USE; /* before the first backward */
/* Behind a group's last backward of a step: updates and reductions that can be done already. */
enum status emit_synchronise(struct emitter *e, int group_number, int step) MUST_USE;
/* Behind a stage's last backward of a step. */
enum status emit_stage_updates(struct emitter *e, int stage, int step) MUST_USE;
/* Whether the parameter's gradients are summed with other workers', or kept by a server. */
bool emit_is_shared(const struct emitter *e, int param);

/* ---- lower.c: goes through the tasks ---- */
enum status lowering_emit(struct program *p, const struct lowering *given) MUST_USE;

/* ---- places.c: live ranges from the instructions, then an offset for every buffer ---- */
void lowering_find_live_ranges(struct program *p);
enum status lowering_place_buffers(struct program *p, const struct lowering *given) MUST_USE;

/* ---- waits.c ---- */
enum status lowering_find_waits(struct program *p, const struct lowering *given) MUST_USE;

#endif
