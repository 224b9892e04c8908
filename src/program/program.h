/* program.h: one worker's part of a training or evaluation step: a list of instructions over
 * buffers whose places are fixed before anything runs.
 *
 * Lowering turns a plan into the programs of its workers: of one (program_create), where each
 * worker lowers for itself, or of all (program_create_all), where a plan is studied. Workers that
 * lower for themselves come to the same messages because all go through the same global order.
 * First comes the analysis, once for all workers:
 *   1. partition: nodes are gathered into groups (an op with the residual sum and activation folded
 *      into it); each group's pieces say which worker holds which region of each tensor; where a
 *      consumer reads other regions than the producer owns, a view stands between them;
 *   2. order: the tasks (forward or backward of a stage for one micro-batch) of all workers in one
 *      sequence that respects every stage's schedule and every dependency;
 *   3. traffic and holders: the workers whose regions of a view meet; the workers that hold the
 *      same parameters.
 * Then for each worker, at a cost that depends on its own instructions alone:
 *   4. emission: going through the tasks, the instructions that concern this worker; the backend
 *      chooses layouts on the way;
 *   5. places: every buffer gets its live range and its offset in one slab per class;
 *   6. waits: the instructions that must have ended before another may start, from the memory that
 *      each touches.
 * The runtime allocates the slabs, and nothing more. verify/verify.h proves programs sound;
 * program_dump prints all of one.
 *
 * Two streams run at the same time. Computation runs in order, one instruction after the other.
 * Communication (send, receive, reduce) starts in order and ends when it ends. Waits name the
 * instructions of the other stream, and for communication also of its own, that must have ended.
 * Because each list is a part of one global sequence in which the sides of a message stand
 * together, the earliest unfinished instruction can always go on: there is no deadlock.
 */
#ifndef CLEAVE_PROGRAM_PROGRAM_H
#define CLEAVE_PROGRAM_PROGRAM_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "model/graph.h"
#include "plan/plan.h"

#include <stdio.h>

enum buffer_class {
    BUFFER_WEIGHTS,         /* parameters and running statistics; live between steps */
    BUFFER_WEIGHT_VERSIONS, /* older weights of an asynchronous pipeline, within a step */
    BUFFER_OPTIMIZER,       /* masters, momentum and moments; live between steps */
    BUFFER_GRADIENTS,       /* of parameters */
    BUFFER_ACTIVATIONS, /* inputs, outputs, what forward saves for backward, and their gradients */
    BUFFER_TRANSFER,    /* packed regions on their way, and what reductions need */
    BUFFER_WORKSPACE,   /* scratch memory of one instruction */
    BUFFER_CLASS_COUNT
};

const char *buffer_class_name(enum buffer_class class);

enum { BUFFER_ALIGNMENT = 64, NO_BUFFER = -1 };

struct buffer {
    const char *name;
    const layout *layout; /* NULL for data without a shape (saved, workspace, labels) */
    enum element type;    /* the layout's; U8: bytes that only kernels know */
    enum buffer_class class;
    int parent;            /* the buffer it is a part of, or NO_BUFFER */
    int64_t parent_offset; /* where in its parent */
    int64_t n_bytes;
    int64_t offset;            /* in the slab of its class */
    int first_write, last_use; /* instruction numbers; weights and optimizer state live always */
    int held_until; /* it lives on up to the instruction before this one, because a send may still
                       be reading it and a buffer in its place would wait; 0: no longer */
};

enum instr_kind {
    INSTR_LOAD,       /* images and labels of a micro-batch into their buffers */
    INSTR_RUN,        /* one pass of a group */
    INSTR_FOLD,       /* sum gradients and apply a folded activation's derivative */
    INSTR_COPY,       /* a region from buffer to buffer, or added to it */
    INSTR_CLEAR,      /* zeros */
    INSTR_ACCUMULATE, /* one more micro-batch's (or worker's) gradient */
    INSTR_STASH,      /* keep a version of a weight */
    INSTR_UPDATE,     /* one parameter, and its master, by its gradient */
    INSTR_SEND,
    INSTR_RECEIVE,
    INSTR_REDUCE, /* sum an array over workers */
    INSTR_KIND_COUNT
};

enum instr_stream { STREAM_COMPUTE, STREAM_COMMUNICATE };

struct instr {
    enum instr_kind kind;
    enum instr_stream stream;
    int micro;      /* which micro-batch, over all steps of the program; -1: none */
    int group;      /* the group it belongs to, or -1 */
    enum pass pass; /* RUN */
    int param;      /* UPDATE, STASH, and messages of parameters: number in the graph; else -1 */
    int index;      /* into the array of its kind: runs, folds, copies, loads, messages, ... */
    int n_reads, n_writes, n_waits;
    const int *reads, *writes; /* buffer numbers */
    const int *waits;          /* instruction numbers */
};

/* One op of the graph with the ops folded into it, for one size of the micro-batch. */
struct program_group {
    const char *name; /* of its first node */
    int first_node, last_node;
    struct group_spec spec;
    struct group_needs needs;
    group *kernels; /* owned by the program */
};

/* Which buffers a RUN uses (NO_BUFFER where there is none). */
struct program_run {
    int input[OP_MAX_INPUTS], residual, output;
    int param[OP_MAX_PARAMS];
    int saved, workspace, statistics, labels;
    int n_output_grads, output_grad[GROUP_MAX_ADDENDS];
    int folded_grad;
    int input_grad[OP_MAX_INPUTS];
    int param_grad[OP_MAX_PARAMS];
    int64_t first_sample; /* of its micro-batch */
    bool again;           /* recomputed */
};

struct program_fold {
    int n_addends, addend[GROUP_MAX_ADDENDS];
    enum activation activation;
    int output; /* of the activation, or NO_BUFFER */
    int to;
};

/* COPY: a region. ACCUMULATE, STASH: all of `from`. CLEAR: all of `to`. */
struct program_copy {
    int from, to;
    struct region_copy region;
};

/* Samples are numbered within the step's batch. */
struct program_load {
    int images, labels; /* buffers, or NO_BUFFER */
    struct range image_samples, label_samples;
};

struct program_message {
    int peer;
    int64_t tag, n_bytes;
    int buffer;
};

struct program_reduction {
    struct comm_reduction spec;
    int buffer, workspace;
};

/* Results that the host reads after the step: the losses (and, in evaluation, logits) of one
 * micro-batch's samples that this worker has. */
struct program_result {
    int micro;
    int losses, logits;   /* logits NO_BUFFER in training */
    struct range samples; /* within the step's batch */
};

/* Buffers of one parameter of the graph, by parameter number; weight NO_BUFFER: not held here. */
struct program_param {
    int weight, gradient, state[2];
    int master; /* what UPDATE makes the weight of, and the host reads; NO_BUFFER: the weight */
    struct range region[SHAPE_MAX_RANK]; /* of the whole parameter; shape rank ranges */
    int n_holders; /* workers that hold this same region to compute with, in ascending order */
    const int *holders;
    bool saves;     /* this worker's copy is the one that is saved: the server's, or the first
                       holder's */
    bool has_state; /* this worker keeps the optimizer's state */
};

struct program {
    arena *memory;
    const struct graph *graph;
    const struct plan *plan; /* the caller's, or own_plan */
    struct plan *own_plan;
    int worker;
    const struct backend *backend;
    device *device;
    const struct comm_table *transport; /* NULL: none */
    enum precision precision;
    bool training;
    int n_states; /* optimizer tensors per trained parameter */
    int n_steps;  /* batches one run of the program trains on; 1 except between two flushes of an
                     asynchronous pipeline */
    int n_micros; /* per step */
    int n_groups, n_runs, n_folds, n_copies, n_loads, n_messages, n_reductions, n_results;
    struct program_group *groups;
    struct program_run *runs;
    struct program_fold *folds;
    struct program_copy *copies;
    struct program_load *loads;
    struct program_message *messages;
    struct program_reduction *reductions;
    struct program_result *results;
    int n_instrs;
    struct instr *instrs;
    int n_buffers;
    struct buffer *buffers;
    struct program_param *params; /* graph->n_params of them */
    struct range samples;         /* of each batch, that this worker's loads touch */
    int64_t slab_bytes[BUFFER_CLASS_COUNT];
};

struct program_options {
    const struct backend *backend;
    device *device;
    enum precision precision;
    bool training;
    int n_states;
    /* How the step is split, and which worker this is; NULL: one worker. Must outlive the program.
     */
    const struct plan *plan;
    int worker;
    const struct comm_table *transport; /* whose reductions' workspaces are laid out; NULL: none */
    int n_steps;                        /* an asynchronous pipeline's window; 0: the plan's */
    /* Another program over the same network and plan whose weights and optimizer state this one
     * uses, with their layouts and offsets; NULL: lay them out afresh. (A short last batch, an
     * evaluation.) */
    const struct program *shares_params_of;
};

/* Lowers the graph, which must outlive the program. */
enum status program_create(const struct graph *graph, const struct program_options *options,
                           struct program **out) MUST_USE;
void program_destroy(struct program *p); /* NULL is fine */

/* The programs of all workers of a plan. */
struct program_set {
    arena *memory; /* of the members below; programs have their own */
    int n_workers;
    struct program **programs; /* by worker; twins share one */
    int *twin_of; /* by worker: the lowest-numbered of its twins, whose program it is */
};

/* Lowers the graph for every worker of the plan. Not read are options->worker and shares_params_of;
 * `shares` stands for the latter, and may be NULL. All programs use the one device, which is meant
 * for looking at a plan (describe_only).
 *
 * Twins are workers that do the same on other samples: data parallelism has no others. Their
 * programs are the same but for
 *   - program.worker, and so the position among the members of reductions,
 *   - program.samples, those of loads and of results, and the origin of groups,
 *   - program_param.saves.
 * With `twins` only one of each set of twins is lowered, and programs[i] is then the same as
 * programs[twin_of[i]]. Otherwise twin_of[i] is i throughout. A worker that sends or receives
 * anything outside reductions has no twin. */
enum status program_create_all(const struct graph *graph, const struct program_options *options,
                               const struct program_set *shares, bool twins,
                               struct program_set *set) MUST_USE;
void program_destroy_all(struct program_set *set); /* the programs, too; a zeroed set is fine */

/* ---- the slabs alone ----
 *
 * Of programs that share memory with each other, as those of a run do: the slab_bytes that they
 * have in the programs of program_create_all. The work comes in items, one for each worker of each
 * program, which may be done in any order, and at the same time by several threads if the backend
 * describes_together.
 *
 *     struct program_case cases[1] = {{graph, options, slab_bytes}};
 *     struct program_slabs *study;
 *     TRY(program_slabs_open(cases, 1, &set, n_threads, &study));
 *     for (int i = 0; i < program_slabs_items(study); i++)
 *         TRY_GOTO(st, program_slabs_do(study, i, 0), out);   // 0: the first thread
 *     program_slabs_close(study);
 */
struct program_case {
    const struct graph *graph;
    struct program_options options; /* with a plan; as for program_create_all */
    /* By worker. On entry the slabs that exist in any case; they are only made larger. */
    int64_t (*slab_bytes)[BUFFER_CLASS_COUNT];
};

struct program_slabs;

/* `cases`, all for the same number of workers, must outlive the study, and so must `shares` (as in
 * program_create_all; may be NULL). */
enum status program_slabs_open(const struct program_case *cases, int n_cases,
                               const struct program_set *shares, int n_threads,
                               struct program_slabs **out) MUST_USE;
int program_slabs_items(const struct program_slabs *s);
/* `thread`: below n_threads; no two callers may pass the same number at the same time. */
enum status program_slabs_do(struct program_slabs *s, int item, int thread) MUST_USE;
void program_slabs_close(struct program_slabs *s); /* NULL is fine */

/* Everything, as text, one line per buffer and instruction. */
void program_dump(const struct program *p, FILE *out);

/* All slabs together. */
int64_t program_memory_bytes(const struct program *p);

/* Payload bytes that this worker sends in one run of the program, or that a twin of it sends: its
 * position in reductions may be another. */
int64_t program_sent_bytes(const struct program *p);
int64_t program_sent_bytes_by(const struct program *p, int worker);

/* One line that names instruction i for people: "backward_weights layer1.0.conv1". */
const char *program_instr_text(const struct program *p, int i, char *buffer, size_t size);

#endif
