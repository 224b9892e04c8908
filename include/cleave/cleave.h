/* cleave.h: the library behind the program `cleave`: how long a training step of a neural network
 * takes under any way of splitting it over workers, which way is best, and training that way.
 *
 *     #include <cleave/cleave.h>
 *     cc example.c $(pkg-config --cflags --libs cleave)
 *
 *     cleave_model *model;
 *     cleave_machine *machine;
 *     cleave_search *search;
 *     if (cleave_model_open("vgg16", "imagenet", 512, &model) != CLEAVE_OK ||
 *         cleave_machine_open("4x4:p100", &machine) != CLEAVE_OK ||
 *         cleave_search_run(model, machine, NULL, &search) != CLEAVE_OK) {
 *         fprintf(stderr, "%s\n", cleave_error_message());
 *         exit(1);
 *     }
 *     const struct cleave_search_info *found = cleave_search_get_info(search);
 *     printf("use %s\n", cleave_search_get_candidate(search, found->best)->title);
 *
 * The numbered examples (share/doc/cleave/examples, or examples/ of the sources) show each part.
 *
 * WHAT HOLDS FOR ALL OF IT
 *
 *   Errors     Whatever can fail returns an enum cleave_status, and hands results back through its
 *              last argument, which is set to NULL on failure. cleave_error_message() says what was
 *              wrong, in one line for people. A NULL where something is needed is CLEAVE_USAGE,
 *              never a crash; so is a number that is out of range. Functions that cannot fail say
 *              what they give for a NULL or a wrong number.
 *   Memory     What open, make, load, run and create hand out is yours until you pass it to its
 *              _destroy, which takes NULL. Destroy in any order: objects still needed stay.
 *              Pointers that a _get_ function returns belong to the handle it was asked of, and
 *              live as long. Text that you pass in is copied.
 *   Threads    Any thread may call anything, and threads do not share errors. Models, machines,
 *              plans, predictions and searches do not change once they are there: any number of
 *              threads may use one at a time. A trainer belongs to one thread at a time, but for
 *              cleave_trainer_stop. Predicting on this host measures, and training uses all cores:
 *              do one of these at a time, or times will be off.
 *   Stability  Functions and members stay as they are within a major version (within a minor one
 *              while the major is 0); members are only added at the ends of structs. A struct that
 *              you fill in comes from its _defaults() function and carries its size, so a program
 *              runs with a later library that knows more members. Do not make arrays of the others,
 *              nor copy them whole.
 *   Units      Seconds, bytes, images: names end in _s, _bytes, _per_s. The batch is always that
 *              of all workers together.
 *   Signals    The library installs no handlers, writes to no stream but as cleave_set_log says,
 *              and never ends the process.
 */
#ifndef CLEAVE_CLEAVE_H
#define CLEAVE_CLEAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLEAVE_API __attribute__((visibility("default")))
#define CLEAVE_MUST_USE __attribute__((warn_unused_result))

/* ---- version ------------------------------------------------------------------------------- */

/* Of this header. */
#define CLEAVE_VERSION_MAJOR 0
#define CLEAVE_VERSION_MINOR 1
#define CLEAVE_VERSION_PATCH 0

/* Of the library that runs: "0.1.0". */
CLEAVE_API const char *cleave_version(void);

/* ---- errors -------------------------------------------------------------------------------- */

enum cleave_status {
    CLEAVE_OK = 0,
    CLEAVE_FAILED = 1,  /* a file, the system or the data is at fault */
    CLEAVE_USAGE = 2,   /* the request is at fault: unknown name, impossible value, NULL */
    CLEAVE_NO_FIT = 3,  /* needs more memory than there is */
    CLEAVE_LOST = 4,    /* a worker was lost */
    CLEAVE_TIMEOUT = 5, /* a wait passed its deadline */
    CLEAVE_STOPPED = 6  /* asked to stop by a callback or cleave_trainer_stop */
};

/* Why the last call of this thread failed; "" if it did not. One line, naming the file, option or
 * layer, and where a name was unknown the allowed ones. Valid until the thread's next call. */
CLEAVE_API const char *cleave_error_message(void);

/* "ok", "failed", "usage", ...; "unknown" for a number that is none of them. */
CLEAVE_API const char *cleave_status_name(enum cleave_status status);

/* ---- warnings ------------------------------------------------------------------------------ */

/* Lines worth knowing that are no errors ("4 workers with 1 thread each share 2 cores: they take
 * turns") go to write, one by one, from any thread; NULL: nowhere. Until this is called they go
 * to stderr. Call it before other threads use the library. */
CLEAVE_API void cleave_set_log(void (*write)(void *user, const char *line), void *user);

/* ---- names --------------------------------------------------------------------------------- */

/* The built-in networks ("lenet5", "resnet50", ..) and the strategies that make plans ("serial",
 * "data", "owt", ..); each list ends with NULL and lives for ever. */
CLEAVE_API const char *const *cleave_network_names(void);
CLEAVE_API const char *const *cleave_strategy_names(void);

/* ---- models: a network, for data of some shape, in batches --------------------------------- */

typedef struct cleave_model cleave_model;

/* `data` decides the input's shape, the classes, and whether the small form (images of at most 32
 * rows) or the large form of the network is built:
 *
 *     fashion-mnist[:DIR]      the four IDX files; DIR: where Debian's package puts them
 *     mnist:DIR  cifar10:DIR   the files as they are published
 *     imagefolder:DIR[@SIZE]   your own JPEG and PNG images, one folder per class
 *     packed:FILE[,TESTFILE]   what `cleave pack` wrote
 *     synthetic:NAME           made-up images like those of mnist, cifar10, imagenet, highres or
 *                              imagenet22k
 *     synthetic:CxHxW/CLASSES[/COUNT]     made-up images of any shape
 *     mnist cifar10 imagenet highres imagenet22k      the shape alone: to predict for machines that
 *                              are not here (or, on this host, without measuring), not to train
 *
 * No file is opened where the text alone says enough. CLEAVE_USAGE for an unknown name, with the
 * nearest match, and for data that the network's layers cannot take. */
CLEAVE_API enum cleave_status cleave_model_open(const char *network, const char *data,
                                                int64_t batch, cleave_model **out) CLEAVE_MUST_USE;
CLEAVE_API void cleave_model_destroy(cleave_model *model);

/* Groups of weights that learn otherwise than the rest, before a plan is made of the model
 * (CLEAVE_USAGE afterwards, and for a glob that matches no weight). Weights are named by globs
 * with commas between them, as in a shell: "features.*,*.bias". A frozen weight stays as it is: no
 * gradient is computed, kept or sent for it. A call that fails changes nothing. */
CLEAVE_API enum cleave_status cleave_model_freeze(cleave_model *model,
                                                  const char *globs) CLEAVE_MUST_USE;
/* Their weight decay is 0. */
CLEAVE_API enum cleave_status cleave_model_skip_decay(cleave_model *model,
                                                      const char *globs) CLEAVE_MUST_USE;
/* Their learning rate is the run's times a factor: "features.*=0.1,fc.*=10". */
CLEAVE_API enum cleave_status cleave_model_scale_rates(cleave_model *model,
                                                       const char *factors) CLEAVE_MUST_USE;

struct cleave_model_info {
    const char *network, *data; /* its name; the data as asked for */
    int64_t batch;
    int channels, height, width, classes;
    int64_t n_train, n_test; /* samples; n_test 0: there is no test split */
    int n_layers;
    int64_t parameters;       /* trained ones, as PyTorch counts */
    double forward_flops;     /* of a batch; a multiply-add is two */
    int64_t activation_bytes; /* every layer's output once, as floats */
};
/* NULL for NULL. */
CLEAVE_API const struct cleave_model_info *cleave_model_get_info(const cleave_model *model);

struct cleave_layer {
    const char *name;   /* PyTorch's: "layer1.0.conv1" */
    const char *op;     /* "conv2d" */
    const char *output; /* its shape: "128x6x28x28" */
    int64_t parameters;
    double forward_flops;
    const char *loops; /* the loop nest: "n=128 g=1 k=6 p=28 q=28 | c=1 r=5 s=5"; those behind |
                          are summed */
    const char *cuts;  /* which of them a plan may cut: "n g k p q c r s" */
};
/* Layer `index` from 0, in the order they are computed; NULL for any other number. */
CLEAVE_API const struct cleave_layer *cleave_model_get_layer(const cleave_model *model, int index);

/* ---- machines: devices and the links between them ------------------------------------------ */

typedef struct cleave_machine cleave_machine;

/* `text` is one of
 *
 *     local                                       this host: its cores
 *     4x4:p100,intra=15GB/s,inter=4.5GB/s         nodes x devices of each : kind; options
 *     optcnn                                      a machine that the library knows by name
 *     my.json, host.xml                           a file: a machine, or hwloc's XML
 *     {"cleave_machine": 1, ...                   the text of such a file
 *
 * docs/machines.md has kinds, options and the format. CLEAVE_USAGE says what is wrong with the
 * text, and what is allowed; CLEAVE_FAILED if the file cannot be read. */
CLEAVE_API enum cleave_status cleave_machine_open(const char *text,
                                                  cleave_machine **out) CLEAVE_MUST_USE;
CLEAVE_API void cleave_machine_destroy(cleave_machine *machine);

/* Writes the file that cleave_machine_open reads. */
CLEAVE_API enum cleave_status cleave_machine_save(const cleave_machine *machine,
                                                  const char *path) CLEAVE_MUST_USE;

struct cleave_machine_info {
    const char *name;
    bool local; /* this host: times are measured, not estimated */
    int n_nodes, n_devices, n_links;
};
/* NULL for NULL. */
CLEAVE_API const struct cleave_machine_info *cleave_machine_get_info(const cleave_machine *machine);

struct cleave_device {
    const char *kind, *about; /* "p100"; "NVIDIA Tesla P100 SXM2, 16 GB" */
    int node;
    int64_t memory_bytes;      /* that a worker on it may use; 0: not known */
    double peak_flops_per_s;   /* in single precision */
    double memory_bytes_per_s; /* at most */
};
/* Device `index` from 0; NULL for any other number. */
CLEAVE_API const struct cleave_device *cleave_machine_get_device(const cleave_machine *machine,
                                                                 int index);

/* ---- plans: which worker computes which part of each layer ---------------------------------- */

typedef struct cleave_plan cleave_plan;

/* What a strategy may be told beside the number of workers. 0 and NULL: its own choice. What it has
 * no use for it leaves aside: "data" with servers is plain data parallelism. */
struct cleave_plan_options {
    size_t size;          /* set by cleave_plan_defaults */
    int micro_batches;    /* pipelines: parts of a batch */
    int model_workers;    /* hybrid: workers along the channels */
    int servers;          /* ps, "server": how many of the workers keep weights */
    bool asynchronous;    /* ps: each worker's gradients are applied as they come */
    int window;           /* pipedream: steps between two flushes */
    const char *sync;     /* how gradients are summed: "ring", "tree", "hierarchical", "server" */
    int workers_per_node; /* for hierarchical; 0: all are on one node */
    int64_t bucket_bytes; /* gradients are summed in buckets of this size */
    const int *replicas;  /* pipelines: workers of each stage */
    int n_stages;         /* how many there are of those */
    /* Over which samples batch norm takes its statistics: "batch" (default), so that every number
     * of workers trains to the same losses, or "worker", each worker's own, as with
     * DistributedDataParallel. */
    const char *batch_norm;
    /* Recomputation: outputs between so many runs of layers are kept, and each run goes forward
     * again before its backward; CLEAVE_SEGMENTS_AUTO: as many as need the least memory. 0: all
     * are kept. */
    int segments;
};
enum { CLEAVE_SEGMENTS_AUTO = -1 };
static inline struct cleave_plan_options cleave_plan_defaults(void)
{
    struct cleave_plan_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    return o;
}

/* The plan of a strategy (cleave_strategy_names) for so many workers; options may be NULL.
 * CLEAVE_USAGE where the strategy cannot use so many, with the most it can. */
CLEAVE_API enum cleave_status cleave_plan_make(const cleave_model *model, const char *strategy,
                                               int workers,
                                               const struct cleave_plan_options *options,
                                               cleave_plan **out) CLEAVE_MUST_USE;

/* A plan from its file alone: its model is the one that the file says the plan was made for. Every
 * plan that this library or the program saves says so; CLEAVE_USAGE for a file that does not (of an
 * older version, or written by hand: cleave_plan_load), and if the network's layers are no longer
 * those that the plan was made for.
 *
 *     cleave_plan *plan;
 *     if (cleave_plan_open("best.json", &plan) != CLEAVE_OK ||
 *         cleave_machine_open(cleave_plan_get_info(plan)->machine, &machine) != CLEAVE_OK || ..
 */
CLEAVE_API enum cleave_status cleave_plan_open(const char *path, cleave_plan **out) CLEAVE_MUST_USE;
/* The model of any plan, which lives as long as the plan; not to be destroyed. NULL for NULL. */
CLEAVE_API const cleave_model *cleave_plan_get_model(const cleave_plan *plan);

/* A plan from its file, or from the text of one (docs/plans.md has the format), with every rule
 * checked that a plan must keep for this model. CLEAVE_FAILED names line and layer; a sound plan of
 * another model is CLEAVE_USAGE. */
CLEAVE_API enum cleave_status cleave_plan_load(const cleave_model *model, const char *path,
                                               cleave_plan **out) CLEAVE_MUST_USE;
CLEAVE_API enum cleave_status cleave_plan_parse(const cleave_model *model, const char *text,
                                                cleave_plan **out) CLEAVE_MUST_USE;
CLEAVE_API enum cleave_status cleave_plan_save(const cleave_plan *plan,
                                               const char *path) CLEAVE_MUST_USE;
CLEAVE_API void cleave_plan_destroy(cleave_plan *plan);

/* Proves the plan sound: lowers it to the instructions of all workers, and checks that nothing is
 * read before it is written, that every message has its other side, and that nothing can wait for
 * ever. A plan that came out of this library passes unless the library is at fault. */
CLEAVE_API enum cleave_status cleave_plan_check(const cleave_plan *plan) CLEAVE_MUST_USE;

struct cleave_plan_info {
    const char *name;
    int workers, stages, micro_batches;
    bool stale;       /* trains with older weights: not to the losses of one worker */
    const char *text; /* as in its file */
    /* What it was made for, beside its model. NULL and 0: not known. */
    const char *machine;   /* as for cleave_machine_open */
    const char *optimizer; /* as for cleave_predict_options, and so are the next two */
    double calibrate_images_per_s;
    int64_t calibrate_batch;
};
/* NULL for NULL. */
CLEAVE_API const struct cleave_plan_info *cleave_plan_get_info(const cleave_plan *plan);

/* ---- predictions: what a plan will cost on a machine --------------------------------------- */

typedef struct cleave_prediction cleave_prediction;

/* On a machine that is not here times come from the figures of its devices. On this host
 * unknown costs are measured, which takes seconds, and kept in the profile file. */
struct cleave_predict_options {
    size_t size;         /* set by cleave_predict_defaults */
    int threads;         /* of each worker of this host; 0: all cores, shared out */
    const char *backend; /* of this host's workers: "cpu", "reference"; NULL: the best */
    const char *profile; /* file of measured costs; NULL: $CLEAVE_PROFILE, or cleave/profile.db in
                            $XDG_CACHE_HOME or ~/.cache */
    bool measure;        /* default true; false: costs missing in the profile are estimated */
    bool evaluate;       /* default true: the run will test, too, which may need more memory */
    /* Images per second that one device alone is known to reach, and in batches of what size (0:
     * the model's): scales the estimates of devices that are not here. 0: not known. */
    double calibrate_images_per_s;
    int64_t calibrate_batch;
    /* Now and then while it takes time: how far it is (0 to 1) and the name of its work. Anything
     * but 0 stops it: predicting ends with CLEAVE_STOPPED, searching with the best so far. NULL:
     * not called. Comes on the calling thread. */
    int (*on_progress)(void *user, double share, const char *what);
    void *user;
    /* What the run will be told (struct cleave_train_options), and that changes what it takes: */
    const char *optimizer; /* "sgd" (default) or "adamw" */
    double momentum;       /* sgd; default 0.9; without any there is no state to keep */
    int64_t n_samples;     /* of the training samples; 0 (default): all */
    int64_t eval_batch;    /* 0 (default): the model's */
    bool augment;          /* random flips and crops */
};
static inline struct cleave_predict_options cleave_predict_defaults(void)
{
    struct cleave_predict_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.measure = true;
    o.evaluate = true;
    o.momentum = 0.9;
    return o;
}

/* `options` may be NULL. That a plan does not fit into memory is no failure (see `fits`);
 * CLEAVE_USAGE if it has more workers than the machine has devices (workers of this host take
 * turns then). */
CLEAVE_API enum cleave_status cleave_predict(const cleave_plan *plan, const cleave_machine *machine,
                                             const struct cleave_predict_options *options,
                                             cleave_prediction **out) CLEAVE_MUST_USE;
CLEAVE_API void cleave_prediction_destroy(cleave_prediction *prediction);

struct cleave_prediction_info {
    int workers;
    double step_s;
    double error_s; /* about how far off step_s may be, two times out of three */
    double images_per_s, epoch_s;
    double free_step_s;    /* did communication take no time */
    int64_t memory_bytes;  /* of the worker that needs most */
    int64_t bytes_moved;   /* by all workers, in a step */
    double measured_share; /* of the computing time that comes from measurements; the rest is
                              estimated */
    bool fits;
    /* Where memory is scarcest, a device or a host whose workers share it: what they need, and what
     * there is. limit_bytes 0: not known. */
    int64_t needed_bytes, limit_bytes;
};
/* NULL for NULL. */
CLEAVE_API const struct cleave_prediction_info *
cleave_prediction_get_info(const cleave_prediction *prediction);

struct cleave_worker {
    /* Of a step: inside computing instructions; while something is on its way; while computation
     * stands still. */
    double compute_s, communicate_s, wait_s;
    int64_t sent_bytes; /* in a step */
    int64_t memory_bytes;
    /* Of memory_bytes, by class. Exactly what training allocates. */
    int64_t weights_bytes;
    int64_t weight_versions_bytes; /* older weights of an asynchronous pipeline */
    int64_t optimizer_bytes;       /* its state */
    int64_t gradients_bytes;
    int64_t activations_bytes;
    int64_t transfer_bytes;  /* of messages on their way */
    int64_t workspace_bytes; /* scratch memory of kernels */
};
/* Worker `index` from 0; NULL for any other number. */
CLEAVE_API const struct cleave_worker *
cleave_prediction_get_worker(const cleave_prediction *prediction, int index);

/* ---- search: the best plan, and why --------------------------------------------------------- */

typedef struct cleave_search cleave_search;

struct cleave_search_options {
    size_t size;       /* set by cleave_search_defaults */
    int workers;       /* at most; 0: all devices of the machine */
    bool fewer;        /* default true: plans for fewer workers may win */
    bool allow_stale;  /* plans that train with older weights may win */
    bool named_only;   /* the strategies alone, nothing is searched for */
    int micro_batches; /* of pipelines; 0: several are tried */
    double limit_s; /* then the best so far; 0: 60 on this host, where it measures; else none, the
                       work is limited, and the answer does not depend on this host */
    const struct cleave_predict_options *predict; /* how candidates are predicted; NULL: defaults */
    /* On this host the best few are then trained in turns for about so long, unless `measure` is
     * false or it was stopped; default 10, 0: they are not. Nobody is called back meanwhile. */
    double try_s;
    const char *batch_norm; /* of all plans, see cleave_plan_options */
};
static inline struct cleave_search_options cleave_search_defaults(void)
{
    struct cleave_search_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.fewer = true;
    o.try_s = 10;
    return o;
}

/* Compares the strategies with the best plans there are. `options` may be NULL. CLEAVE_NO_FIT if
 * nothing fits into memory, with the memory that is needed at least. */
CLEAVE_API enum cleave_status cleave_search_run(const cleave_model *model,
                                                const cleave_machine *machine,
                                                const struct cleave_search_options *options,
                                                cleave_search **out) CLEAVE_MUST_USE;
CLEAVE_API void cleave_search_destroy(cleave_search *search);

/* Candidates are ordered by time: those that were predicted, then those that were only estimated,
 * and last those that do not fit. */
struct cleave_search_info {
    int n_candidates;
    int best;      /* to use: the fastest, unless a simpler one is as fast within the error bar */
    int fastest;   /* whatever its margin */
    int data;      /* plain data parallelism */
    int serial;    /* one worker; -1: it was not looked at */
    bool complete; /* false: the time or its work was up, or it was stopped */
    double search_s;
    /* Why the best is as fast as it is. In its step: */
    int worker;                /* that computes longest */
    double compute_s, wait_s;  /* of it */
    double free_step_s;        /* the step, did communication take no time */
    const char *longest_layer; /* of that worker: the one that takes most; NULL: not known */
    double longest_layer_s;    /* what it takes */
    const char *busiest_link;  /* NULL: none is used */
    double busiest_link_share; /* of the step that it carries something */
    int n_parts;               /* runs of layers that are cut alike (cleave_search_get_part) */
    int64_t eval_batch; /* give a run of the best so many images in a step of its test: more do not
                           fit; 0: as many as asked for do */
};
/* NULL for NULL. */
CLEAVE_API const struct cleave_search_info *cleave_search_get_info(const cleave_search *search);

struct cleave_candidate {
    const char *name; /* "data", "hybrid 8x2", "per layer", "1f1b 4x4 m16", .. */
    int workers;
    bool predicted;        /* false: estimated only, it would not have won; then the next five
                              are not known (0, and fits is true) */
    double error_s;        /* of step_s */
    int64_t memory_bytes;  /* of the worker that needs most */
    int64_t bytes_moved;   /* by all, in a step */
    double measured_share; /* of the computing time that comes from measurements */
    bool fits;
    bool stale; /* trains with older weights */
    double step_s, images_per_s, epoch_s;
    double tried_s;    /* a step, in a trial beside the best others; 0: it was not in one */
    const char *title; /* in words: "best cut per layer", "pipeline 4x4, 16 micro-batches" */
};
/* Candidate `index` from 0; NULL for any other number. */
CLEAVE_API const struct cleave_candidate *cleave_search_get_candidate(const cleave_search *search,
                                                                      int index);

/* Its plan, to save, to predict, to train with; it is yours. */
CLEAVE_API enum cleave_status cleave_search_get_plan(const cleave_search *search, int index,
                                                     cleave_plan **out) CLEAVE_MUST_USE;

/* Neighbouring layers that the best plan cuts alike. */
struct cleave_part {
    const char *first, *last; /* layers */
    int n_layers, stage;
    const char *cut;   /* "n=4", "n=4 channels=4", "whole" */
    double seconds;    /* of a step; -1: not known */
    const char *other; /* the best other cut of one of them; NULL: there is none */
    double other_s;    /* more that the step would take with it */
};
/* Part `index` from 0; NULL for any other number. */
CLEAVE_API const struct cleave_part *cleave_search_get_part(const cleave_search *search, int index);

/* ---- training ------------------------------------------------------------------------------- */

typedef struct cleave_trainer cleave_trainer;

struct cleave_step {
    int64_t step, steps_total; /* steps done, from 1; of the whole run */
    int64_t epoch;             /* from 1 */
    int64_t n_samples;
    double loss; /* mean over the batch */
    double learning_rate;
    double seconds;                          /* of the step */
    double compute_s, communicate_s, wait_s; /* of a worker, the mean of all */
    double images_per_s;                     /* smoothed */
    double left_s;                           /* to the end of the run, about */
};

struct cleave_epoch {
    int64_t epoch, step; /* from 1; steps done */
    double train_loss;
    bool evaluated; /* else the next two are 0 */
    double test_loss, test_accuracy;
    double seconds;
};

/* The defaults are those of `cleave train`. */
struct cleave_train_options {
    size_t size;       /* set by cleave_train_defaults */
    int64_t epochs;    /* 0 (default): as many as max_steps needs, or 5 without it */
    int64_t max_steps; /* in all, those before a resume included; 0 (default): no limit */
    uint64_t seed;     /* default 1: of weights, order of samples, dropout, augmentation */
    int64_t n_samples; /* use the first so many training samples; 0 (default): all */
    bool augment;      /* random flips and crops */

    const char *optimizer; /* "sgd" (default) or "adamw" */
    double learning_rate;  /* 0 (default): 0.05 of sgd (alexnet, vgg: 0.01), 0.001 of adamw */
    double momentum;       /* sgd; default 0.9 */
    bool nesterov;         /* sgd */
    double weight_decay;   /* negative (default): 5e-4 of sgd, 0.01 of adamw */
    const char *schedule;  /* of the learning rate: "cosine[:FLOOR]" (default), "constant",
                              "step:EPOCHS:FACTOR" */
    int64_t warmup_steps;  /* during which it rises from 0 */

    int threads;         /* of each worker; 0 (default): all cores, shared out */
    const char *backend; /* "cpu", "reference"; NULL (default): the best */
    double timeout_s;    /* default 60: how long a worker waits for another that does not move */

    bool evaluate;      /* default true: test after each epoch and at the end, if there is a test
                           split */
    int64_t eval_batch; /* 0 (default): the model's */

    const char *weights; /* a safetensors file to start from; NULL (default): initialised */
    /* NAME.json and NAME-STEP.safetensors: saved after each epoch, at the end, when stopped, and
     * every so many steps; NULL (default): nothing is saved. */
    const char *checkpoint;
    int64_t checkpoint_every_steps; /* 0 (default): no */
    bool resume; /* go on from the checkpoint, if it is there; the plan may be another one */

    /* After every step and epoch, on the thread that runs. Anything but 0 ends the run in good
     * order with CLEAVE_STOPPED, and saves if a checkpoint is named. They may call
     * cleave_trainer_stop and the functions of other handles, but none else of this trainer. */
    int (*on_step)(void *user, const struct cleave_step *step);
    int (*on_epoch)(void *user, const struct cleave_epoch *epoch);
    void *user;

    bool overwrite; /* a checkpoint that is there, and is not gone on from, is replaced; false
                       (default): it is an error, CLEAVE_USAGE */
    int64_t schedule_epochs; /* the length of the schedule, where that is not the run's; 0
                                (default): that of the run */
};
static inline struct cleave_train_options cleave_train_defaults(void)
{
    struct cleave_train_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.seed = 1;
    o.momentum = 0.9;
    o.weight_decay = -1;
    o.timeout_s = 60;
    o.evaluate = true;
    return o;
}

/* Opens the data, allocates all that training needs, and initialises or resumes. The workers are
 * threads of this process. The losses are those of one worker whatever the plan (unless it is
 * stale), to float rounding; and the same plan gives the same bits. `options` may be NULL.
 * CLEAVE_NO_FIT if there is not enough memory, before it is touched. */
CLEAVE_API enum cleave_status cleave_trainer_create(const cleave_plan *plan,
                                                    const struct cleave_train_options *options,
                                                    cleave_trainer **out) CLEAVE_MUST_USE;
CLEAVE_API void cleave_trainer_destroy(cleave_trainer *training);

/* Trains to the end. CLEAVE_STOPPED if it was asked to stop; calling it again goes on from there,
 * to the same bits as without. After any other failure the trainer can only be destroyed. */
CLEAVE_API enum cleave_status cleave_trainer_run(cleave_trainer *training) CLEAVE_MUST_USE;

/* Asks cleave_trainer_run to end after the step it is in, or cleave_trainer_evaluate after the
 * batch. Any thread may call it, a signal handler, too. A run that has not begun yet ends after its
 * first step. */
CLEAVE_API void cleave_trainer_stop(cleave_trainer *training);

/* The whole test split through the network as it is now: before, after and between runs. Either
 * pointer may be NULL. CLEAVE_USAGE if the data has no test split, or `evaluate` was false. */
CLEAVE_API enum cleave_status cleave_trainer_evaluate(cleave_trainer *training, double *loss,
                                                      double *accuracy) CLEAVE_MUST_USE;

/* Saves the checkpoint now; CLEAVE_USAGE if none was named. */
CLEAVE_API enum cleave_status cleave_trainer_save(cleave_trainer *training) CLEAVE_MUST_USE;

/* The weights alone, as a safetensors file under PyTorch's names. */
CLEAVE_API enum cleave_status cleave_trainer_save_weights(cleave_trainer *training,
                                                          const char *path) CLEAVE_MUST_USE;

struct cleave_trainer_info {
    int workers, threads;    /* threads of each */
    const char *backend;     /* "cpu" */
    int64_t memory_bytes;    /* of the worker that needs most */
    int64_t bytes_moved;     /* by all workers, in a step */
    int64_t n_train, n_test; /* samples that are used; n_test 0: no test */
    int64_t steps_per_epoch, steps_total;
    bool resumed;         /* from a checkpoint, which had done: */
    int64_t first_step;   /* so many steps */
    int64_t steps;        /* done so far, first_step included */
    double loss;          /* of the last step; 0 before the first */
    double median_step_s; /* 0 unless the last run went to its end */
    double images_per_s;
    bool evaluated; /* else the next two are 0 */
    double test_loss, test_accuracy;
};
/* Up to date when no run is under way; NULL for NULL. */
CLEAVE_API const struct cleave_trainer_info *
cleave_trainer_get_info(const cleave_trainer *training);

#ifdef __cplusplus
}
#endif

#endif
