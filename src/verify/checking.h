/* checking.h: the steps of verify_program and verify_programs, one file each. Not for use outside
 * this room. */
#ifndef CLEAVE_VERIFY_CHECKING_H
#define CLEAVE_VERIFY_CHECKING_H

#include "verify/contents.h"
#include "verify/verify.h"

/* STATUS_FAILED: "program check: instruction 12 (forward conv1) ..." */
enum status check_fail(const struct program *p, int number, const char *format, ...)
    PRINTF_LIKE(3, 4) MUST_USE;

/* The buffer that b lies in, or b itself. */
int check_root(const struct program *p, int b);

/* ---- one_program.c ---- */

struct holdings;

/* verify_program, with the plan's holdings. */
enum status check_program(const struct program *p, struct holdings *holdings) MUST_USE;

/* ---- access_lists.c ---- */

/* Numbers are in range, buffers are large enough, and every instruction lists exactly the buffers
 * that its array entry says it reads and writes. */
enum status check_lists(const struct program *p) MUST_USE;

/* ---- memory_order.c ---- */

/* Waits are sound and order everything that meets in memory; every read finds the value written for
 * it. */
enum status check_memory(const struct program *p) MUST_USE;

/* ---- holdings.c: which pieces and regions of parameters each worker has, as the plan says ---- */

struct param_region {
    struct range range[SHAPE_MAX_RANK];
};

struct param_regions {
    int n;
    struct param_region *list; /* no two are equal */
};

/* Looked up for every pair of workers, so found once for all programs of a plan. One thread at a
 * time uses it. */
struct holdings {
    int n_workers;
    int *piece;                    /* [node][worker]; -1: none */
    int *kind;                     /* [param][worker]: which of its regions; -1: none */
    struct param_regions *regions; /* [param] */
    struct op_piece **pieces;      /* [node][worker][size], when first asked for; NULL: not yet */
    arena *memory;
};

enum status holdings_create(const struct graph *graph, const struct plan *plan, arena *memory,
                            struct holdings *out) MUST_USE;

static inline int holdings_piece(const struct holdings *h, int node, int worker)
{
    return h->piece[(size_t)node * (size_t)h->n_workers + (size_t)worker];
}

static inline int holdings_kind(const struct holdings *h, int param, int worker)
{
    return h->kind[(size_t)param * (size_t)h->n_workers + (size_t)worker];
}

/* ---- expected.c: the contents that buffers must have, from graph and plan ---- */

/* A node's group, from the programs' lists of groups. */
struct node_group {
    int first, last; /* nodes; -1: no known program has a piece of it */
    enum activation activation;
};

/* The programs that are checked together. Where one is checked alone, the contents that others send
 * are foreign. */
struct world {
    const struct graph *graph;
    const struct plan *plan;
    bool training;
    int n_micros, n_steps;                 /* micro-batches of a step */
    int n_workers;                         /* of the plan */
    const struct program *const *programs; /* by worker; NULL: not known */
    struct holdings *holdings;
    arena *scratch;
    struct node_group *groups; /* by node */
    bool *identity;            /* [node][worker]: its output is its input */
    struct content **contents; /* by worker and buffer */
    int **updates;             /* by worker and parameter: how many so far */
};

enum status world_create(struct world *w) MUST_USE; /* the fields up to scratch are set */

/* The last node is a loss: every sample has a result. */
bool world_has_loss(const struct world *w);

/* Of micro-batch m (over all steps): where it begins in its step's batch, and how long it is. */
int64_t world_first_sample(const struct world *w, int m);
int64_t world_count_samples(const struct world *w, int m);

/* A worker's piece of a node in a micro-batch; NULL where it has none, or an empty one. */
enum status world_get_piece(struct world *w, int node, int worker, int m,
                            const struct op_piece **out) MUST_USE;
/* The region of a parameter that a worker computes with; false: none. */
bool world_get_param(const struct world *w, int param, int worker, struct range *region);
bool world_shares_param(const struct world *w, int param, int a, int b); /* the same region */
int world_server_of(const struct world *w, int param);                   /* -1: none */

/* The worker's piece of the node has no instruction: its output is its input, in memory and (where
 * nothing is flattened) in meaning. Its gradients are its input's, one by one. */
bool world_is_identity(const struct world *w, int node, int worker);
bool world_is_flattened(const struct world *w, int node, int worker); /* seen in another shape */

/* Symbols. */
uint64_t world_value(const struct world *w, int node, int m);
uint64_t world_partial_value(const struct world *w, int node, int m, int worker);
enum symbol_kind {
    SYMBOL_SAVED = 16,
    SYMBOL_FORWARD_STATISTICS,
    SYMBOL_BACKWARD_STATISTICS,
    SYMBOL_FOLDED,         /* a group's output gradient behind the derivative of its activation */
    SYMBOL_PARAM_GRADIENT, /* number: the parameter */
    SYMBOL_LABELS,
    SYMBOL_INPUT_GRADIENT,
};
uint64_t world_symbol(enum symbol_kind kind, int number, int m, int worker);
/* The symbol that a piece of the node adds to the gradient of input k. */
uint64_t world_input_gradient(int node, int k, int m, int worker);
/* Weights after so many updates, running statistics after so many micro-batches. */
uint64_t world_weight(const struct world *w, int param, int worker, int version);
uint64_t world_state(const struct world *w, int param, int k, int version);
/* Which version of a parameter a worker computes micro-batch m with. */
enum status world_find_version(struct world *w, int param, int worker, int m, int *out) MUST_USE;

/* The content of the region behind a kernel that has written the node's output there. A kernel that
 * only copies, where another worker's does nothing, leaves the partial sums of its input. */
enum status world_put_value(struct world *w, int node, int m, int rank, const struct range *region,
                            struct content *out) MUST_USE;
/* Adds to *out what the region must hold of a node's output, or of its gradient: the sum of what
 * all pieces of all consumers add. */
enum status world_want_value(struct world *w, int node, int m, struct wanted *out) MUST_USE;
enum status world_want_gradient(struct world *w, int node, int m, struct wanted *out) MUST_USE;
/* The gradient of a parameter at its update in this step; holder -1: all of those that share. */
enum status world_want_param_gradient(struct world *w, int param, int worker, int step, int holder,
                                      struct wanted *out) MUST_USE;
/* A batch norm's statistics of all pieces with the same channels as this worker's, and, where
 * batch norms see a worker's samples alone, the same samples. */
enum status world_want_statistics(struct world *w, int node, int m, int worker, bool backward,
                                  struct wanted *out) MUST_USE;

/* ---- symbolic_run.c: the effect of instructions on contents ---- */

/* A computation; or, alone, any instruction. */
enum status meaning_apply(struct world *w, int worker, int number) MUST_USE;
enum status meaning_message(struct world *w, int from, int send, int to, int receive) MUST_USE;
/* numbers[i] is the instruction of member i. */
enum status meaning_reduce(struct world *w, const struct comm_reduction *r,
                           const int *numbers) MUST_USE;

/* Runs one worker's program alone. */
enum status check_meaning(const struct program *p, struct holdings *holdings) MUST_USE;

/* ---- params_and_results.c: before the first instruction, and behind the last ---- */

/* Checks that parameters are held as the plan says, and gives them their first contents. */
enum status meaning_begin(struct world *w, int worker) MUST_USE;
/* All updates have been made, and all results are there. */
enum status meaning_end(struct world *w, int worker) MUST_USE;

#endif
