/* crew_parts.h: the crew from inside: crew.c makes it and its threads, crew_worker.c one worker,
 * crew_run.c runs, crew_tensors.c moves parameters, crew_memory.c looks whether it fits, trace.c
 * keeps times. */
#ifndef CLEAVE_RUNTIME_CREW_PARTS_H
#define CLEAVE_RUNTIME_CREW_PARTS_H

#include "base/arena.h"
#include "runtime/crew.h"
#include "runtime/gang.h"
#include "runtime/pin.h"

#include <pthread.h>

/* A loader as an executor's feed: each call gives the last batch back. */
struct crew_feed {
    loader *loader;  /* NULL: this worker loads nothing */
    bool holds;      /* a batch that was not given back */
    int taken;       /* batches of this run */
    int64_t wait_ns; /* of this run */
};

/* The times of one run. */
struct crew_times {
    enum crew_program which;
    uint32_t step; /* its first */
    struct executor_time *times;
};

struct crew_worker {
    struct crew *crew;
    int number; /* in the plan */
    int place;  /* among those who share its cores */
    device *device;
    struct program *programs[CREW_PROGRAM_COUNT];
    int executor_program[CREW_PROGRAM_COUNT];
    executor *executor;
    comm *end; /* NULL: alone */
    struct crew_feed train, test;
    struct executor_result *results; /* room for the longest run */
    float *scratch;                  /* room for its largest region of a parameter */
    int n_kept, n_kept_most;         /* runs kept in all; the last n_kept_most of them are there */
    struct crew_times *kept;         /* a ring */

    struct status_error error; /* of its last work */
};

typedef enum status crew_work(struct crew_worker *w, void *user);

struct crew {
    arena *memory;
    pthread_mutex_t lock; /* of memory, while workers take from it at the same time */
    struct crew_options options;
    struct crew_info info;
    struct crew_worker *workers; /* info.n_local of them */
    int threads, n_places;       /* of a worker; who share the same cores */
    int most_steps;
    int64_t clock_ns; /* this process's clock when the crew was complete */

    gang *gang;          /* the workers' threads; NULL: there is one worker, which has none */
    struct pin_mask own; /* where worker 0 runs, since its first work has bound it */
    crew_work *work;     /* that they do */
    void *user;

    /* ---- with other processes ---- */
    struct crew_report *mine, *all; /* room for what is exchanged after a run */
    float *room;                    /* room_count elements, for a tensor on its way */
    int64_t room_count;
    struct crew_param_part *parts; /* [n_workers][n_params]: who saves what; NULL: alone */
};

/* Every local worker does it on its thread, the first one on the calling thread; returns the cause
 * if one failed. */
enum status crew_do(crew *c, crew_work *work, void *user) MUST_USE;

/* This process's end, or NULL where there is no other process. */
comm *crew_process(const crew *c);
/* Whether waiting for other processes may take long, because one of them reads, builds or saves. */
void crew_be_patient(crew *c, bool patient);
/* A failure that every process comes to by itself. */
void crew_note_common_failure(const crew *c);

/* The transport that programs are lowered for; NULL: none. */
const struct comm_table *crew_transport(const crew *c);

/* crew_worker.c: its device and programs, and then everything that takes memory. */
enum status crew_worker_lower(struct crew_worker *w, void *user) MUST_USE;
enum status crew_worker_open(struct crew_worker *w, void *user) MUST_USE;
void crew_worker_close(struct crew_worker *w);
enum status crew_feed_next(void *user, struct executor_batch *batch) MUST_USE;
/* Skips what the program did not ask for, and gives back what is held. */
enum status crew_feed_finish(struct crew_feed *f, int n_steps) MUST_USE;

/* crew_memory.c: STATUS_NO_FIT if the programs of this host's workers need more than it has. */
enum status crew_check_memory(crew *c) MUST_USE;

/* crew_tensors.c: learns what the other processes hold. */
enum status crew_learn_parts(crew *c) MUST_USE;

/* trace.c: copies the times of the worker's last run of the program. */
void crew_keep_times(struct crew_worker *w, enum crew_program which, uint32_t step);
enum status crew_alloc_times(struct crew_worker *w) MUST_USE;

/* Whether the program trains. */
static inline bool crew_trains(enum crew_program which)
{
    return which < CREW_EVAL;
}

#endif
