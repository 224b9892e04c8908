/* trainer_parts.h: the trainer from inside; shared by trainer.c, which builds and saves it, and
 * trainer_run.c, which runs it. */
#ifndef CLEAVE_RUNTIME_TRAINER_PARTS_H
#define CLEAVE_RUNTIME_TRAINER_PARTS_H

#include "data/loader.h"
#include "runtime/checkpoint.h"
#include "runtime/executor.h"
#include "runtime/trainer.h"

#include <limits.h>

enum trainer_program {
    PROGRAM_TRAIN,
    PROGRAM_TRAIN_SHORT, /* the last batch of an epoch, where it is smaller */
    PROGRAM_EVAL,
    PROGRAM_EVAL_SHORT,
    TRAINER_PROGRAM_COUNT
};

enum { STEP_TIMES = 4096 };

struct trainer {
    struct trainer_options options;
    char checkpoint[PATH_MAX]; /* "": none */
    struct trainer_info info;

    dataset *train_set, *test_set;
    loader *train_loader, *test_loader;

    const struct backend *backend;
    device *device;
    struct graph *graphs[TRAINER_PROGRAM_COUNT];     /* NULL where there is no such batch */
    struct program *programs[TRAINER_PROGRAM_COUNT]; /* likewise */
    int executor_program[TRAINER_PROGRAM_COUNT];     /* its number in the executor */
    executor *executor;

    int64_t schedule_steps;        /* where the schedule ends */
    struct checkpoint_state state; /* where the run stands */
    int64_t saved_step, saved_epoch, saved_at_ns;
    int64_t evaluated_step; /* steps done when the last evaluation was made; -1: none was */

    int64_t step_times_ns[STEP_TIMES]; /* a ring */
    int64_t n_steps_run, steps_ns, waits_ns;
    double smooth_step_s;
    struct trainer_done done;
};

/* Saves the state under the checkpoint's name; nothing to do without one, or right after a save. */
enum status trainer_save(trainer *t) MUST_USE;

#endif
