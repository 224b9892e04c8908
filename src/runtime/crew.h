/* crew.h: the workers of a run that live in this process, run together.
 *
 * Without MPI all workers of the plan are here, each a thread with a device, programs, an executor
 * and loaders of its own; under MPI every process has a crew of one, and the crews act as one. A
 * crew of one works on the calling thread.
 *
 *     struct crew_options o = {.plan = plan, .backend = backend, .n_states = 1, .timeout_s = 60,
 *                              .graphs = {[CREW_TRAIN] = graph}, .train_set = train_set,
 *                              .train_loader = {.batch = graph->batch}};
 *     crew *c;
 *     TRY(crew_create(&o, &c));                                // everything is allocated here
 *     TRY(crew_start_epoch(c, CREW_TRAIN, 0, 0));
 *     struct crew_result r;
 *     TRY(crew_run(c, CREW_TRAIN, &state, &rule, &r, NULL));   // r: of all workers together
 *     crew_destroy(c);
 *
 * All processes make the same calls in the same order, and get the same results. When a worker
 * fails, all end, and the cause comes out, not the loss of a worker that ended because of it; then
 * the crew can only be destroyed.
 */
#ifndef CLEAVE_RUNTIME_CREW_H
#define CLEAVE_RUNTIME_CREW_H

#include "data/loader.h"
#include "runtime/executor.h"
#include "runtime/tensor_store.h"

enum crew_program {
    CREW_TRAIN,
    CREW_TRAIN_ONE,   /* the same batch, one step: where CREW_TRAIN covers several */
    CREW_TRAIN_SHORT, /* the last batch of an epoch, where it is smaller */
    CREW_EVAL,
    CREW_EVAL_SHORT,
    CREW_PROGRAM_COUNT
};

/* Everything pointed to must outlive the crew. */
struct crew_options {
    const struct plan *plan;
    const struct backend *backend;
    enum precision precision;
    int threads;  /* of each worker's device; 0: the cores divided by the workers on them */
    int n_states; /* of the optimizer, per trained parameter */
    /* NULL: all workers are threads of this process. Else this is one of plan->n_workers
     * processes. */
    comm *process;
    double timeout_s; /* of waiting for another worker, and of one instruction's computing */
    /* Called from a thread of its own when a worker of this process has computed for longer than
     * timeout_s: status_message() names the instruction. A thread that computes cannot be stopped
     * from outside, so this should end the process; the other processes know already. NULL: nobody
     * watches how long computing takes. */
    void (*on_stuck)(enum status st);

    /* By program; NULL: there is none. CREW_TRAIN must be there. CREW_TRAIN_ONE has the graph of
     * CREW_TRAIN, if the plan's window is more than 1. */
    const struct graph *graphs[CREW_PROGRAM_COUNT];
    dataset *train_set, *test_set;
    /* Batch, order and threads of each; the parts are the programs'. */
    struct loader_options train_loader, test_loader;

    /* Samples that cannot be read, of both sets and all processes together, each counted once: so
     * many are replaced (dataset_read_or_next), with a warning for each unless `skips_silently`;
     * one more ends the run. 0: none is. */
    int64_t skip_corrupt;
    bool skips_silently;

    int trace_steps; /* keep the times of so many last training steps; 0: none */
};

/* One step, summed over all workers. */
struct crew_result {
    double loss; /* mean over the batch */
    double loss_sum;
    int64_t n_samples, correct;
    int64_t compute_ns;     /* inside computing instructions */
    int64_t wait_ns;        /* computation waited for communication */
    int64_t communicate_ns; /* something was under way */
    int64_t data_ns;        /* computation waited for data */
};

/* What the processes tell each other after each run; all get the largest of each. */
struct crew_words {
    int64_t stop; /* signal that asked to stop, or 0 */
    int64_t save; /* whether a checkpoint is due */
};

typedef struct crew crew;

/* Opens devices, lowers the plan for each local worker, allocates. All processes fail together. */
enum status crew_create(const struct crew_options *options, crew **out) MUST_USE;
void crew_destroy(crew *c); /* NULL is fine */

struct crew_info {
    int n_workers, n_local;
    int threads;          /* of each worker here */
    int64_t memory_bytes; /* of the largest worker */
    int64_t bytes_moved;  /* by all workers, in a run of CREW_TRAIN */
    const char *device;   /* of the first worker here */
    bool root;            /* this process has worker 0: it reads, writes and reports */
    bool alone;           /* no other process takes part */
    int64_t n_skipped;    /* samples that were replaced so far, as skip_corrupt counts them */
};
const struct crew_info *crew_get_info(const crew *c);

/* Steps that a run of the program covers. */
int crew_count_steps(const crew *c, enum crew_program which);

/* Where the loaders of that program begin (see loader_start). */
enum status crew_start_epoch(crew *c, enum crew_program which, int64_t epoch,
                             int64_t first_batch) MUST_USE;

/* Runs a program once, on the next batches: as many states, rules (NULL in an evaluation) and
 * results as it has steps. *words goes in as this process's and comes out as the largest of all;
 * NULL: all zero. A loss that is not finite is a failure that names the step. */
enum status crew_run(crew *c, enum crew_program which, const struct step_state *states,
                     const struct update_rule *rules, struct crew_result *results,
                     struct crew_words *words) MUST_USE;

/* Ends the run on all processes, after this one's failure `st`: those that wait for it fail with
 * its message. */
void crew_abort(crew *c, enum status st);

/* Every process returns the first failure of any of them (in worker order). NULL: no others. */
enum status crew_agree(comm *process, enum status mine) MUST_USE;

/* Whether the last failure is one that all processes know alike. */
bool crew_failed_together(void);

/* ---- tensors ---- */

/* Runs `work` on the root with a store of whole tensors; the other processes hand over and take in
 * the tensors that it asks for. All return its status. */
typedef enum status crew_tensor_work(const struct tensor_store *tensors, void *user);
enum status crew_with_tensors(crew *c, crew_tensor_work *work, void *user) MUST_USE;

/* Keeps every worker's parameters as they are, and gives them back: for an evaluation with other
 * weights than those that the workers train with. Takes a second room for them as long. */
enum status crew_keep_weights(crew *c) MUST_USE;
enum status crew_put_back_weights(crew *c) MUST_USE;

/* Writes alone (its read is NULL), into the workers of this process: for values that every process
 * can make. */
struct tensor_store crew_local_tensors(crew *c);

#endif
