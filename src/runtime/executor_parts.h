/* executor_parts.h: the executor from inside; shared by executor.c, which computes,
 * executor_comm.c, which communicates, and executor_measure.c. */
#ifndef CLEAVE_RUNTIME_EXECUTOR_PARTS_H
#define CLEAVE_RUNTIME_EXECUTOR_PARTS_H

#include "runtime/executor.h"

#include <pthread.h>
#include <stdatomic.h>

/* A program with every buffer number turned into a pointer. */
struct bound_program {
    const struct program *program;
    struct group_args *args; /* by run */
    float *losses, *logits;  /* on the host; room for the largest result */
    int n_comm;              /* communicating instructions, and their numbers */
    int *comm_instrs;
    bool *wakes_comm;            /* by instruction: communication waits for it */
    atomic_bool *done;           /* by instruction; only of communication */
    comm_op *ops;                /* by communicating instruction */
    int *update_number;          /* by instruction: earlier updates of the weight in its step */
    int *n_updates;              /* by parameter: in a step */
    struct executor_time *times; /* NULL: not kept */
};

/* The communication under way: positions in the list of communicating instructions. */
struct flight {
    const struct bound_program *b;
    int next; /* the first that was not started */
    int n, *under_way;
    int64_t since_ns; /* when the first of them was started */
    int64_t looked_ns;
};

struct executor {
    arena *memory;
    const struct backend *backend;
    device *device;
    stream *stream;
    comm *comm;
    void *slab[BUFFER_CLASS_COUNT];
    int64_t slab_bytes[BUFFER_CLASS_COUNT];
    int n_programs;
    struct bound_program *programs;
    int64_t *times_ns;
    bool measures;       /* communicating instructions are left out, and nothing is waited for */
    executor_wait *wait; /* in place of it, or NULL */
    void *wait_user;
    const atomic_bool *over; /* a round ends when it is true; NULL: never */
    float *numbers;          /* of a round, to fill memory with */

    /* The computing thread communicates, too: between instructions and while it waits. Else, where
     * a transport must be polled all the time, a second thread does. */
    bool attends;
    struct flight flight; /* of the thread that communicates */

    /* ---- for a thread that watches ---- */
    atomic_uint n_moves; /* see executor_count_moves */
    atomic_int at_program, at_instr, at_step;

    /* ---- between the two threads ---- */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;              /* something below, or an instruction, is done */
    const struct bound_program *running; /* NULL: nothing to communicate */
    bool quit;
    uint32_t step;             /* for errors */
    atomic_int computed;       /* number of the last computing instruction done, or -1 */
    atomic_llong progress_ns;  /* when anything last moved */
    atomic_bool compute_waits; /* the computing thread sleeps on `changed` */
    atomic_bool failed;        /* in this run; error holds the first failure */
    bool has_failed;           /* in any run; under lock */
    struct status_error error; /* under lock */
    int64_t communicate_ns;
};

/* One run of a program. */
struct run {
    executor *e;
    const struct bound_program *b;
    const struct executor_feed *feed;
    const struct step_state *states;
    const struct update_rule *rules;
    struct executor_result *results;
    int fed; /* steps whose batch has come */
    struct executor_batch batch;
};

enum status executor_create_kind(const struct program *const *programs, int n_programs, comm *end,
                                 bool measures, executor **out) MUST_USE;

/* Runs computing instruction `number`, and keeps its time: it was reached at reached_ns, and had
 * waited until begin_ns. */
enum status executor_compute(struct run *r, int number) MUST_USE;
void executor_keep_time(struct run *r, int number, int64_t reached_ns, int64_t begin_ns);

/* An executor_feed.next that gives the batch at `user` each time. */
enum status executor_feed_once(void *user, struct executor_batch *batch) MUST_USE;

/* Where a buffer lies; NULL for NO_BUFFER. */
void *executor_place(const executor *e, const struct program *p, int buffer);

/* Records this thread's error as that of the run (the first wins) and tells the other workers. */
void executor_fail(executor *e, enum status st);

/* Adds the step and the instruction to this thread's error. */
enum status executor_name_instr(enum status st, const struct program *p, int number, uint32_t step);

enum status executor_comm_create(executor *e) MUST_USE;
void executor_comm_destroy(executor *e);
enum status executor_comm_start(executor *e, const struct bound_program *b) MUST_USE;
/* Until all communication of the run is done or has failed. */
enum status executor_comm_finish(executor *e) MUST_USE;
/* Until communicating instruction `number` is done. */
enum status executor_comm_wait(executor *e, const struct bound_program *b, int number) MUST_USE;
/* Computing instruction `number` is done. */
enum status executor_comm_computed(executor *e, const struct bound_program *b, int number) MUST_USE;

#endif
