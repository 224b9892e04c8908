/* executor.h: the interpreter that runs one worker's programs on tensors.
 *
 * It allocates exactly the slabs that its programs ask for (classes that do not live between steps
 * are shared, the largest program decides) and nothing in the step. It knows no strategy: it runs
 * instructions.
 *
 *     TRY(executor_create(programs, 3, NULL, &e));
 *     TRY(executor_step(e, 0, &batch, &state, &rule, &result));
 *
 * Computation runs on the calling thread. Where a program communicates, the same thread starts the
 * communication in order and polls it, between instructions and while it waits, if the members of
 * the transport do each other's work (comm.h: shared_work); else, over MPI, a second thread does,
 * and wakes the first. Either waits only where an instruction says so. When nothing has moved on
 * this worker for comm->timeout_s the run ends with STATUS_TIMEOUT, naming the instruction that
 * waits and the workers that it waits for.
 */
#ifndef CLEAVE_RUNTIME_EXECUTOR_H
#define CLEAVE_RUNTIME_EXECUTOR_H

#include "program/program.h"

#include <stdatomic.h>

typedef struct executor executor;

struct executor_batch {
    const float *images;   /* host, [n, c, h, w] plain */
    const int32_t *labels; /* host, [n] */
    int64_t first_sample;  /* which sample of the step's batch the first of these is */
};

/* Where batches come from: called once per step of the program, when it loads first. The batch must
 * stay until the next call, or the end of the run. */
struct executor_feed {
    enum status (*next)(void *user, struct executor_batch *batch);
    void *user;
};

struct executor_result {
    double loss;            /* mean over this worker's samples; 0 if it has none */
    double loss_sum;        /* over this worker's samples */
    int64_t n_samples;      /* in loss_sum */
    int64_t correct;        /* evaluation programs: samples whose largest logit is their label */
    int64_t compute_ns;     /* time inside computing instructions, loading not counted */
    int64_t wait_ns;        /* computation waited for communication */
    int64_t communicate_ns; /* something was under way */
};

/* When an instruction was reached, began and ended (timer.h); communication begins when it is
 * started. */
struct executor_time {
    int64_t reached_ns, begin_ns, end_ns;
};

/* programs[0] is the training program (or the only one) and lays out the weights; the others share
 * its parameters. All must outlive the executor, and so must the comm, which is NULL for a worker
 * alone. */
enum status executor_create(const struct program *const *programs, int n_programs, comm *end,
                            executor **out) MUST_USE;

/* NULL is fine. After a failure under MPI, which may still write into receive buffers, the memory
 * stays until the process ends. */
void executor_destroy(executor *e);

/* Runs program number `program` once: n_steps steps, with so many states, rules (NULL for an
 * evaluation program) and results. A failing instruction is named. A loss that is not finite is an
 * error that names the step, for a worker alone (of several, the crew checks the sum). A failure
 * ends the run of all other workers as well; a worker alone can run again after it. */
enum status executor_run(executor *e, int program, const struct executor_feed *feed,
                         const struct step_state *states, const struct update_rule *rules,
                         struct executor_result *results) MUST_USE;

/* The same for a program of one step with the batch at hand. */
enum status executor_step(executor *e, int program, const struct executor_batch *batch,
                          const struct step_state *state, const struct update_rule *rule,
                          struct executor_result *result) MUST_USE;

/* The failure of a step whose loss is not finite. */
enum status executor_refuse_loss(uint32_t step, double loss) MUST_USE;

/* For a thread that watches: a number that changes with every computing instruction that begins or
 * ends; odd while one runs. Waiting, communicating and loading do not count: they have deadlines of
 * their own. */
unsigned executor_count_moves(const executor *e);

/* The failure of one that runs for longer than timeout_s, with STATUS_TIMEOUT. */
enum status executor_refuse_time(const executor *e, double timeout_s) MUST_USE;

/* All slab bytes that were allocated. */
int64_t executor_memory_bytes(const executor *e);

/* Measures each instruction of every following step: times[i] collects nanoseconds of instruction
 * i of program 0. NULL turns it off. The array belongs to the caller. */
void executor_time_instructions(executor *e, int64_t *times_ns);

/* From now on keeps the times of each run's instructions; executor_get_times gives those of the
 * last run of a program, by instruction. */
enum status executor_keep_times(executor *e) MUST_USE;
const struct executor_time *executor_get_times(const executor *e, int program);

/* ---- measuring: the time of computing, without communication ---- */

/* An executor that only measures. Its programs may communicate, but it has no transport and no
 * second thread. All memory is filled with small random numbers: nothing that is computed
 * means anything, but nothing is zero, huge or denormal either. Times are kept. */
enum status executor_create_measuring(const struct program *const *programs, int n_programs,
                                      executor **out) MUST_USE;

/* Called in place of waiting, before every instruction that waits for a message of another worker,
 * or for a sum over workers. The times of the instructions before it are there. NULL, as at
 * first: nothing is called. */
typedef void executor_wait(void *user, int instr);
void executor_call_at_waits(executor *e, executor_wait *wait, void *user);

/* Once *over is true, a round ends before its next instruction: it only kept its core busy, and
 * its times are not used. NULL, as at first: it goes on to the end. */
void executor_stop_measuring(executor *e, const atomic_bool *over);

/* Runs all computing instructions of a program once, in order: nothing is sent, received or waited
 * for; where something would be received, numbers are written again. Every step of the program gets
 * the same batch, which must hold the program's samples, and the same rule; a learning rate of 0
 * keeps the weights as they are. The times are executor_get_times's, those of communicating
 * instructions 0. */
enum status executor_measure(executor *e, int program, const struct executor_batch *batch,
                             const struct update_rule *rule) MUST_USE;

/* ---- parameters and optimizer state, on the host as plain floats ---- */

enum executor_tensor { TENSOR_WEIGHT, TENSOR_STATE_0, TENSOR_STATE_1 };

/* Parameter number as in the graph; the region of it that this worker holds (program_param), in row
 * order. STATUS_FAILED if it holds none. */
enum status executor_read(executor *e, int param, enum executor_tensor which, float *to) MUST_USE;
enum status executor_write(executor *e, int param, enum executor_tensor which,
                           const float *from) MUST_USE;

/* A copy of all parameters with their bits, which the caller frees. */
enum status executor_keep_weights(executor *e, void **kept) MUST_USE;
enum status executor_put_back_weights(executor *e, const void *kept) MUST_USE;
void executor_free_kept(executor *e, void *kept); /* NULL is fine */

#endif
