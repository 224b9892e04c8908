/* trainer.h: training as a library: data, programs, steps, evaluation, checkpoints.
 *
 *     struct trainer_options o = trainer_default_options();
 *     o.model = "lenet5";
 *     o.data = "fashion-mnist";
 *     o.epochs = 5;
 *     trainer *t;
 *     TRY(trainer_create(&o, &t));           // everything is allocated here
 *     struct trainer_callbacks calls = {.on_epoch = print_epoch};
 *     enum status st = trainer_run(t, &calls, NULL);
 *     trainer_destroy(t);
 *
 * With a plan for many workers they train together (crew.h); the losses are those of one. A plan
 * whose program covers several steps (pipedream's window) reports them one by one when they are
 * done, and stops and saves between two windows; windows begin at multiples of their length in the
 * epoch, and steps that do not fill one run one by one.
 *
 * A step is counted from 0 while it runs; `steps done` is one more. An epoch is one pass over the
 * training samples; its last batch may be short and counts as a step with the mean over its own
 * samples.
 */
#ifndef CLEAVE_RUNTIME_TRAINER_H
#define CLEAVE_RUNTIME_TRAINER_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "plan/plan.h"
#include "runtime/schedule.h"

/* Text belongs to the caller and must live until trainer_destroy. Start from
 * trainer_default_options(), which sets the defaults named below. */
struct trainer_options {
    const char *model;    /* a name of network.h; NULL: that of `graph` */
    const char *data;     /* a spec of dataset.h */
    int64_t data_limit;   /* first samples of the train split alone; 0 (default): all */
    int64_t batch;        /* default 64; more than there are samples: all of them */
    int64_t epochs;       /* default 1; 0: no limit, then max_steps is needed */
    int64_t max_steps;    /* steps in all, those before a resume included; 0 (default): no limit */
    uint64_t seed;        /* default 1 */
    bool augment;         /* random flips and crops of training images */
    int64_t skip_corrupt; /* replace up to so many samples that cannot be read (crew.h); 0
                             (default): none */
    bool skips_silently;  /* without a warning for each; default false */
    double drop_probability; /* replaces every dropout's; negative (default): the network's own */

    const char *backend;      /* NULL (default): the best there is */
    enum precision precision; /* default PRECISION_FLOAT */
    int threads;              /* of each worker; 0 (default): all cores, shared out */
    int loader_threads;       /* 0 (default): as loader.h */

    /* The workers: threads of this process, or, with an end of its own (comm_mpi_create), this
     * process as one of several that all make the same calls; then the root alone reads, writes and
     * calls back. The end stays the caller's, to be destroyed after the trainer. */
    comm *process;               /* NULL (default): threads */
    int workers;                 /* 0 (default): as many as processes, or as the plan's file says,
                                    or 1 */
    const char *plan;            /* a strategy or a file; NULL (default): serial, or data for more
                                    than one worker */
    struct plan_request request; /* for a strategy; its n_workers is ignored */
    /* Values that the caller has already made; they stay the caller's and must outlive the trainer.
     * The graph was built for the data, and for any batch: the trainer resizes it. */
    const struct graph *graph;        /* NULL (default): built from `model` and the data */
    const struct plan *resolved_plan; /* NULL (default): as `plan` says */
    double timeout_s; /* default 60: how long a worker waits for another that does not
                         move, or computes one instruction */
    void (*on_stuck)(enum status st); /* as in crew.h; NULL (default) */
    const char *trace; /* where the times of the last steps go (trace.h); NULL (default):
                          nowhere */
    int trace_steps;   /* how many; 0 (default): TRACE_STEPS */
    bool trace_aside;  /* the user did not ask for it: where it cannot be written, that
                          is a warning; default false */

    struct update_rule rule; /* default SGD 0.01, momentum 0.9, weight decay 5e-4; AdamW's betas 0.9
                                and 0.999, epsilon 1e-8; rule.step is ignored */
    struct schedule schedule; /* default constant; its end is the end of the last epoch, or
                                 max_steps where epochs is 0, unless this says otherwise: */
    int64_t schedule_epochs;  /* 0 (default): as above */

    bool evaluate;      /* after each epoch, and at the end; default true; needs a test split */
    int64_t eval_batch; /* 0 (default): as batch */

    const char *weights; /* a .safetensors file to start from; NULL (default): initialise */

    /* A checkpoint is saved at the end, when asked to stop, and as said below. */
    const char *checkpoint; /* NAME of checkpoint.h; NULL (default): none; ".json" at its end is
                               dropped */
    bool resume;            /* go on from the checkpoint, if there is one */
    bool overwrite;         /* else a checkpoint that is there, and not gone on from, is an error */
    bool checkpoint_each_epoch;     /* default true */
    int64_t checkpoint_every_steps; /* 0 (default): no */
    double checkpoint_every_s;      /* 0 (default): no */
};

struct trainer_options trainer_default_options(void);

/* How the program and the library train where nothing else is asked for: so many epochs, unless a
 * number of steps is given, with this schedule. */
enum { TRAINER_USUAL_EPOCHS = 5 };
#define TRAINER_USUAL_SCHEDULE "cosine"

/* Learning rate and weight decay that a network of that name is usually trained with by the rule's
 * kind of optimizer. */
enum status trainer_set_usual(const char *model, struct update_rule *rule) MUST_USE;

/* What trainer_create found and built. */
struct trainer_info {
    const char *model;
    struct dataset_info data; /* of the train split, as limited */
    int64_t batch, eval_batch;
    int64_t n_train, n_test; /* n_test 0: no evaluation */
    int64_t n_parameters;
    int64_t steps_per_epoch, steps_total;
    int64_t schedule_steps; /* at which the learning rate's schedule ends */
    int64_t memory_bytes;   /* all slabs of the largest worker */
    int64_t bytes_moved;    /* by all workers, in a step */
    int workers;
    const char *plan;          /* its name */
    const struct graph *graph; /* of a training step */
    const struct plan *resolved_plan;
    const char *backend, *device;
    int threads; /* of each worker */
    bool root;   /* this process reports */
    bool resumed;
    int64_t first_step; /* 0, or the steps done before */
};

struct trainer_step {
    int64_t step;        /* steps done, from 1 */
    int64_t steps_total; /* of the whole run */
    int64_t epoch;       /* from 1 */
    int64_t n_samples;
    double loss; /* mean over the batch */
    double learning_rate;
    int64_t step_ns; /* all of it: waiting, loading, computing */
    /* Of a worker, the mean of all. */
    int64_t compute_ns;     /* inside computing instructions */
    int64_t communicate_ns; /* something was on its way, computation going on or not */
    int64_t wait_ns;        /* computation stood still: for data and for other workers */
    int64_t data_ns;        /* for data alone */
    double images_per_s;    /* smoothed over the last steps */
    double eta_s;           /* to the end of the run, evaluations not counted */
};

struct trainer_epoch {
    int64_t epoch; /* from 1 */
    int64_t step;  /* steps done */
    double train_loss;
    bool evaluated; /* else the next two are 0 */
    double test_loss, test_accuracy;
    double seconds; /* of this epoch, evaluation included; since the resume where there was one */
};

struct trainer_done {
    int64_t steps;     /* done in all */
    int64_t steps_run; /* by this trainer_run */
    double last_loss;
    double median_step_s;        /* of the last 4096 steps */
    double images_per_s;         /* batch over the median step */
    double overall_images_per_s; /* of trainer_run, with tests and saves */
    double bubble_share;  /* of the time of all steps, of a plan with stages; else 0: the workers
                             neither compute nor wait for data */
    double wait_share;    /* of the time of all steps; waiting for data and for other workers */
    double data_share;    /* for data alone */
    int64_t memory_bytes; /* as in trainer_info */
    int64_t bytes_moved;  /* likewise */
    double seconds;       /* of trainer_run */
    bool evaluated;
    double test_loss, test_accuracy; /* of the last evaluation */
    int64_t n_skipped;               /* samples that could not be read and were replaced */
};

/* Each may be NULL. A status other than OK ends the run with it. */
struct trainer_callbacks {
    enum status (*on_step)(const struct trainer_step *step, void *user);
    enum status (*on_epoch)(const struct trainer_epoch *epoch, void *user);
    enum status (*on_done)(const struct trainer_done *done, void *user);
};

typedef struct trainer trainer;

/* Opens the data, builds the network and its programs (the batch, the short last batch, and both
 * again for the evaluation), allocates, and initialises or resumes. STATUS_USAGE for
 * options that make no sense. */
enum status trainer_create(const struct trainer_options *options, trainer **out) MUST_USE;
void trainer_destroy(trainer *t); /* NULL is fine */

/* Valid until trainer_destroy. */
const struct trainer_info *trainer_get_info(const trainer *t);

/* Trains to the end. Errors name the step. Looks at stop_requested() after each step and each batch
 * of an evaluation: then it saves (where a checkpoint is named) and returns STATUS_STOPPED with
 * "stopped by SIGTERM at step 120; saved to NAME". After STATUS_STOPPED it may be run again, and
 * goes on from there; after any other failure it cannot. */
enum status trainer_run(trainer *t, const struct trainer_callbacks *callbacks, void *user) MUST_USE;

/* Asks the run that is under way, or the next one, to end as a signal would ("stopped by the
 * caller"). Any thread may call it, a signal handler, too. For the workers of one process. */
void trainer_stop(trainer *t);

/* The test split through the network as it is, between runs; not again if nothing has changed
 * since. STATUS_USAGE if there is none. */
enum status trainer_evaluate(trainer *t, double *loss, double *accuracy) MUST_USE;

/* Saves the checkpoint between runs, if one is named and nothing was saved since the last step. */
enum status trainer_save(trainer *t) MUST_USE;

/* Saves the weights alone as a safetensors file. */
enum status trainer_save_weights(trainer *t, const char *path) MUST_USE;

#endif
