/* trainer_parts.h: the trainer from inside; shared by trainer.c, which checks and builds,
 * trainer_state.c, which resumes and saves, and trainer_run.c, which runs. */
#ifndef CLEAVE_RUNTIME_TRAINER_PARTS_H
#define CLEAVE_RUNTIME_TRAINER_PARTS_H

#include "base/arena.h"
#include "runtime/checkpoint.h"
#include "runtime/crew.h"
#include "runtime/trainer.h"

#include <limits.h>
#include <stdatomic.h>

enum { STEP_TIMES = 4096 };

struct trainer {
    struct trainer_options options;
    char checkpoint[PATH_MAX]; /* "": none */
    lock_file *lock;           /* on it; the root's */
    arena *memory;             /* of the subject */
    struct checkpoint_subject subject;
    struct trainer_info info;

    dataset *train_set, *test_set;
    const struct backend *backend;
    /* By program; NULL where there is no such batch. CREW_TRAIN's serves CREW_TRAIN_ONE, too. */
    struct graph *graphs[CREW_PROGRAM_COUNT];
    const struct plan *plan;
    struct plan *own_plan; /* where the options hold none */
    crew *crew;

    struct checkpoint_state state; /* where the run stands */
    int64_t saved_step, saved_epoch, saved_at_ns;
    int64_t evaluated_step; /* steps done when the last evaluation was made; -1: none was */

    int window; /* steps of a run of CREW_TRAIN; room for as many below */
    struct step_state *step_states;
    struct update_rule *step_rules;
    struct crew_result *results;
    struct crew_words words; /* what the processes said after the last run */
    atomic_bool asked;       /* to stop, by trainer_stop */

    int64_t step_times_ns[STEP_TIMES]; /* a ring */
    int64_t n_steps_run, n_images_run, steps_ns, waits_ns, data_ns, computes_ns;
    double smooth_step_s;
    struct trainer_done done;
};

/* Initialises, loads weights or resumes. */
enum status trainer_set_state(trainer *t) MUST_USE;

#endif
