/* program.h: a training or evaluation step of one worker as a list of instructions over buffers
 * whose places are fixed before anything runs.
 *
 * Lowering (program_create) goes through the graph once:
 *   1. nodes are gathered into groups: an op with the residual sum and activation folded into it;
 *   2. forward: one instruction per group, in order; the backend chooses layouts on the way;
 *   3. backward, in reverse: fold where several consumers' gradients meet, gradients, and right
 *      behind the last use of a weight its update, so that gradient memory is reused;
 *   4. every buffer gets its live range and its offset in one slab per class.
 * The runtime allocates the slabs, and nothing more. program_check proves that every read was
 * written and that no two live buffers overlap. program_dump prints all of it.
 */
#ifndef CLEAVE_PROGRAM_PROGRAM_H
#define CLEAVE_PROGRAM_PROGRAM_H

#include "backend/backend.h"
#include "model/graph.h"

#include <stdio.h>

enum buffer_class {
    BUFFER_WEIGHTS,     /* parameters and running statistics; live between steps */
    BUFFER_OPTIMIZER,   /* momentum and moments; live between steps */
    BUFFER_GRADIENTS,   /* of parameters */
    BUFFER_ACTIVATIONS, /* inputs, outputs, what forward saves for backward, and their gradients */
    BUFFER_WORKSPACE,   /* scratch memory of one instruction */
    BUFFER_CLASS_COUNT
};

const char *buffer_class_name(enum buffer_class class);

enum { BUFFER_ALIGNMENT = 64, NO_BUFFER = -1 };

struct buffer {
    const char *name;
    enum buffer_class class;
    const layout *layout; /* NULL for bytes without a shape (saved, workspace, labels) */
    int64_t n_bytes;
    int64_t offset;            /* in the slab of its class */
    int first_write, last_use; /* instruction numbers; weights and optimizer state live always */
};

enum instr_kind {
    INSTR_LOAD,   /* images and labels of the batch into their buffers */
    INSTR_RUN,    /* one pass of a group */
    INSTR_FOLD,   /* sum gradients and apply a folded activation's derivative */
    INSTR_UPDATE, /* one parameter by its gradient */
    INSTR_KIND_COUNT
};

struct instr {
    enum instr_kind kind;
    int group;      /* RUN, FOLD: the group it belongs to */
    enum pass pass; /* RUN */
    int param;      /* UPDATE: parameter number of the graph */
    int n_reads, n_writes;
    const int *reads, *writes; /* buffer numbers */
};

/* One op of the graph with what is folded into it, and the buffers of its tensors (NO_BUFFER where
 * there is none). */
struct program_group {
    const char *name; /* of its first node */
    int first_node, last_node;
    struct group_spec spec;
    struct group_needs needs;
    group *kernels; /* owned by the program */
    int input[OP_MAX_INPUTS], residual, output;
    int param[OP_MAX_PARAMS];
    int saved, forward_workspace, backward_workspace;
    int n_output_grads, output_grad[GROUP_MAX_ADDENDS];
    int folded_grad; /* of the output, as backward reads it; may be one of output_grad */
    int input_grad[OP_MAX_INPUTS];
    int param_grad[OP_MAX_PARAMS];
};

/* Whether something must be folded before the group's gradients: a sum, or an activation. */
static inline bool program_group_folds(const struct program_group *g)
{
    return g->n_output_grads > 1 || (g->n_output_grads && g->spec.activation != ACTIVATION_NONE);
}

/* Buffers of one parameter of the graph, by parameter number. */
struct program_param {
    int weight, gradient, state[2];
};

struct program {
    arena *memory;
    const struct graph *graph;
    const struct backend *backend;
    device *device;
    bool training;
    int n_states; /* optimizer tensors per trained parameter */
    int n_groups;
    struct program_group *groups;
    int n_instrs;
    struct instr *instrs;
    int n_buffers;
    struct buffer *buffers;
    struct program_param *params;       /* graph->n_params of them */
    int images, labels, logits, losses; /* buffers that meet the host */
    int64_t slab_bytes[BUFFER_CLASS_COUNT];
};

struct program_options {
    const struct backend *backend;
    device *device;
    bool training;
    int n_states;
    /* Another program over the same network whose weights and optimizer state this one uses, with
     * their layouts and offsets; NULL: lay them out afresh. (A short last batch, an evaluation.) */
    const struct program *shares_params_of;
};

/* Lowers the graph, which must outlive the program. */
enum status program_create(const struct graph *graph, const struct program_options *options,
                           struct program **out) MUST_USE;
void program_destroy(struct program *p); /* NULL is fine */

/* Proves the program sound from its instructions alone; STATUS_FAILED names the instruction and
 * the buffer. */
enum status program_check(const struct program *p) MUST_USE;

/* Everything, as text, one line per buffer and instruction. */
void program_dump(const struct program *p, FILE *out);

/* All slabs together. */
int64_t program_memory_bytes(const struct program *p);

/* One line that names instruction i for people: "backward_weights layer1.0.conv1". */
const char *program_instr_text(const struct program *p, int i, char *buffer, size_t size);

#endif
