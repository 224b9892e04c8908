/* crew_parts.h: the crew from inside: crew.c makes the workers, crew_run.c runs them,
 * crew_tensors.c moves parameters, crew_memory.c looks whether they fit, crew_skips.c counts
 * samples that cannot be read, crew_watch.c watches how long they compute, trace.c keeps times. */
#ifndef CLEAVE_RUNTIME_CREW_PARTS_H
#define CLEAVE_RUNTIME_CREW_PARTS_H

#include "base/arena.h"
#include "runtime/crew.h"
#include "runtime/thread_team.h"

#include <pthread.h>

/* A loader as an executor's feed: each call gives the last batch back. */
struct crew_feed {
    const crew *crew;
    loader *loader;                    /* NULL: this worker loads nothing */
    bool holds;                        /* a batch that was not given back */
    int taken;                         /* batches of this run */
    int64_t wait_ns;                   /* of this run */
    struct dataset_replaced *replaced; /* [n_replaced] of this run, in the order of the data */
    int n_replaced, replaced_room;
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
    int place;  /* among the workers that share its cores */
    device *device;
    struct program *programs[CREW_PROGRAM_COUNT];
    int executor_program[CREW_PROGRAM_COUNT];
    executor *executor;
    comm *end; /* NULL: alone */
    struct crew_feed train, test;
    struct executor_result *results; /* room for the longest run */
    float *scratch;                  /* room for its largest region of a parameter */
    void *kept_weights;              /* crew_keep_weights; NULL: none */
    int n_kept, n_kept_most;         /* runs kept in all; the last n_kept_most of them are there */
    struct crew_times *kept;         /* a ring */
};

struct crew {
    arena *memory;
    pthread_mutex_t lock; /* of memory, while workers take from it at the same time */
    struct crew_options options;
    struct crew_info info;
    struct crew_worker *workers; /* info.n_local of them */
    thread_team *thread_team;    /* their threads */
    struct crew_watch *watch;    /* NULL: nobody watches how long computing takes */
    int threads;                 /* of each worker */
    int n_places;                /* workers that share the same cores */
    int64_t clock_ns;            /* this process's clock when the crew was complete */

    uint8_t *seen[2]; /* crew_skips.c: by set, a bit for each sample that was replaced; or NULL */

    /* ---- with other processes ---- */
    struct crew_report *mine, *all; /* room for the exchange after a run */
    float *room;                    /* room_count elements, for a tensor on its way */
    int64_t room_count;
    struct crew_param_part *parts; /* [n_workers][n_params]; NULL: alone */
};

/* This process's end, or NULL where there is no other process. */
comm *crew_process(const crew *c);
/* Whether waiting for other processes may take long, because one of them reads, builds or saves. */
void crew_be_patient(crew *c, bool patient);
/* A failure that every process comes to by itself. */
void crew_note_common_failure(const crew *c);

/* crew_memory.c: STATUS_NO_FIT if the programs of this host's workers need more than it has. */
enum status crew_check_memory(crew *c) MUST_USE;

/* crew_watch.c: looks for workers that compute for longer than the deadline, where the
 * options ask for it. */
enum status crew_start_watch(crew *c) MUST_USE;
void crew_end_watch(crew *c);

/* crew_tensors.c: learns what the other processes hold. */
enum status crew_learn_parts(crew *c) MUST_USE;

/* trace.c: copies the times of the worker's last run of the program. */
void crew_keep_times(struct crew_worker *w, enum crew_program which, uint32_t step);
enum status crew_alloc_times(struct crew_worker *w) MUST_USE;

/* ---- crew_skips.c: samples that cannot be read ---- */

/* Before the first run. */
enum status crew_alloc_skips(crew *c) MUST_USE;
/* What the loader's error means to the user. */
enum status crew_explain_corrupt(const crew *c, enum status st) MUST_USE;
/* Keeps what the batch had replaced, until the run has ended. */
enum status crew_note_skips(struct crew_feed *f, const struct batch *b) MUST_USE;
/* How many samples a worker here kept, and of the run on all processes the most: then all of them
 * are counted, the root says them, and one too many fails alike on every process. */
int64_t crew_most_skips(const crew *c, enum crew_program which);
enum status crew_count_skips(crew *c, enum crew_program which, uint32_t step,
                             int64_t most) MUST_USE;

/* Whether the program trains. */
static inline bool crew_trains(enum crew_program which)
{
    return which < CREW_EVAL;
}

/* The data that the worker gets for the program. */
static inline struct crew_feed *crew_feed_of(struct crew_worker *w, enum crew_program which)
{
    return crew_trains(which) ? &w->train : &w->test;
}

#endif
