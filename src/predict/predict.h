/* predict.h: the time and memory of a plan on a machine: its programs are lowered, their costs are
 * found (and, on this host, measured where they are not known), and the clock runs on them.
 *
 *     struct predict_request r = {.graph = g, .plan = plan, .machine = m, .backend = backend,
 *                                 .device.threads = 1, .n_states = 1, .profile = p, .local = true};
 *     struct prediction *out;
 *     TRY(predict_plan(&r, &out));
 *     out->clock.step_s, out->memory[w][BUFFER_ACTIVATIONS], ...
 *     prediction_destroy(out);
 */
#ifndef CLEAVE_PREDICT_PREDICT_H
#define CLEAVE_PREDICT_PREDICT_H

#include "clock/clock.h"
#include "machine/machine.h"
#include "profile/costs.h"
#include "profile/measure.h"
#include "profile/profile.h"

enum { PREDICT_MAX_OTHERS = 4 };

/* The part of a relative error that all plans on this host have in common: hosts that share cores,
 * caches or memory with others get faster and slower by and by, and no measurement of now
 * tells the speed when the plan is run. */
#define PREDICT_HOST_ERROR 0.05

/* A program that a run of the plan has beside the training step: the short last batch, the test. */
struct predict_other {
    const struct graph *graph;
    bool training;
};

struct predict_request {
    const struct graph *graph; /* of the batch */
    const struct plan *plan;
    const struct machine *machine;
    const struct backend *backend; /* whose layouts and kernels count */
    const char *transport;         /* "threads" or "mpi" */
    struct device_options device;  /* of each worker */
    enum precision precision;
    int n_states; /* of the optimizer, per trained parameter */
    bool local;   /* this host has the machine's devices: measured costs of this backend count */
    /* By kind of device: whether this host has such ones; others get rooflines. NULL: the machine
     * is this host, and workers beyond its devices take turns. */
    const bool *kinds_here;
    profile *profile;               /* where they are kept; NULL: rooflines only */
    struct measure_options measure; /* look_only: unknown costs are estimated */
    struct cost_scales scales;
    struct clock_feed feed;
    bool keep_times, free_communication;
    /* For the memory of a whole run: all programs share one set of slabs. */
    int n_others;
    struct predict_other others[PREDICT_MAX_OTHERS];
};

struct prediction {
    arena *memory_arena;
    int n_workers;
    struct program_set set;
    const struct program *const *programs; /* by worker; twins share one */
    struct instr_cost **costs;             /* by worker */
    device *device;
    const struct backend *backend;
    struct clock_result clock;             /* its error_s with `host_error` */
    double host_error;                     /* PREDICT_HOST_ERROR; 0: another machine */
    int64_t (*memory)[BUFFER_CLASS_COUNT]; /* by worker: what a run allocates */
    int64_t largest_bytes;                 /* of one worker */
    int largest_worker;
    /* Where memory is scarcest: a GPU, or a host whose CPU devices share its memory. */
    int tight_worker;                         /* the first there; -1 if no limit is known */
    int n_tight;                              /* workers there */
    int64_t tight_memory[BUFFER_CLASS_COUNT]; /* of all of them */
    int64_t needed_bytes, limit_bytes;        /* by them together; that there are */
    int too_large_worker;                     /* tight_worker if it does not fit, else -1 */
    struct measure_result measured;           /* local */
    double predict_s;                         /* without measuring: lowering, looking up, clock */
};

/* A plan that does not fit is not measured: its time is estimated from known costs. */
enum status predict_plan(const struct predict_request *r, struct prediction **out) MUST_USE;
/* Only the memory: no costs are found, and no clock runs. */
enum status predict_memory(const struct predict_request *r, struct prediction **out) MUST_USE;
void prediction_destroy(struct prediction *p); /* NULL is fine */

/* Runs the clock again on the same programs and costs, with transfers that take no time. */
enum status prediction_free_communication(const struct predict_request *request,
                                          struct prediction *p, double *step_s) MUST_USE;

/* ---- this host ---- */

/* This host with `workers` devices of `threads` cores each, and the links between them: from the
 * profile, or measured now and kept there. They are measured again if other programs disturbed them
 * and are gone. */
enum status predict_local_machine(profile *p, int workers, int threads, bool look_only,
                                  const struct measure_callbacks *callbacks,
                                  struct machine **out) MUST_USE;

#endif
