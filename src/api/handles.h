/* handles.h: shared by the files of the public interface (include/cleave/cleave.h). For src/api
 * alone.
 *
 * Handles that others are made from (models, plans) count their holders: destroying one releases
 * it, and the last release frees it. So they may be destroyed in any order.
 *
 * A public function clears the thread's error, checks its arguments, and calls the rooms:
 *
 *     enum cleave_status cleave_plan_save(const cleave_plan *plan, const char *path)
 *     {
 *         API_BEGIN();
 *         API_NEEDS(plan);
 *         API_NEEDS(path);
 *         return api_end(plan_write(plan->plan, plan->model->graph, path));
 *     }
 */
#ifndef CLEAVE_API_HANDLES_H
#define CLEAVE_API_HANDLES_H

#include "base/arena.h"
#include "cleave/cleave.h"
#include "data/dataset.h"
#include "machine/machine.h"
#include "model/graph.h"
#include "plan/plan.h"
#include "predict/forecast.h"

#include <pthread.h>
#include <stdatomic.h>

struct cleave_model {
    atomic_int holders;
    arena *memory;
    struct graph *graph;
    struct dataset_info data;
    struct cleave_model_info info;
    struct cleave_layer *layers;
};

struct cleave_machine {
    struct machine *machine;
    char *text;                     /* from which each prediction makes a machine of its own */
    char *spec;                     /* as asked for; NULL: it was the text of a file */
    char digest[PLAN_DIGEST_BYTES]; /* of the file's bytes; "": it was none */
    struct cleave_machine_info info;
    struct cleave_device *devices;
};

struct cleave_plan {
    atomic_int holders;
    const cleave_model *model;
    struct plan *plan;
    char *text;
    struct cleave_plan_info info;
};

/* ---- entering and leaving ---- */

#define API_BEGIN() status_clear()

/* An argument that must not be NULL. */
#define API_NEEDS(argument)                                     \
    do {                                                        \
        if (!(argument))                                        \
            return api_end(api_fail_null(__func__, #argument)); \
    } while (0)

/* The same for the pointer to a result, which is made NULL. */
#define API_NEEDS_OUT(out) \
    do {                   \
        API_NEEDS(out);    \
        *(out) = NULL;     \
    } while (0)

enum status api_fail_null(const char *function, const char *argument) MUST_USE;

/* The public status of an inner one. */
enum cleave_status api_end(enum status st);

/* Zeroed memory for free(). */
enum status api_alloc(size_t n_bytes, void *out) MUST_USE;

/* Options that the caller filled in, over the defaults in *to, which is n_bytes long: as much as
 * both know. NULL: the defaults stay. STATUS_USAGE if the size in front is impossible. */
enum status api_take_options(const void *options, size_t n_bytes, const char *defaults,
                             void *to) MUST_USE;

/* ---- holding ---- */

const cleave_model *api_hold_model(const cleave_model *model);
const cleave_plan *api_hold_plan(const cleave_plan *plan);

/* The handle of cleave_model_open. */
enum status api_open_model(const char *network, const char *data, int64_t batch,
                           cleave_model **out) MUST_USE;
/* A handle for a plan, which becomes its own, also where that fails. It notes that the plan is for
 * this model; what else it was made for stays. */
enum status api_wrap_plan(const cleave_model *model, struct plan *plan, cleave_plan **out) MUST_USE;

/* ---- training ---- */

/* "sgd" for NULL. */
enum status api_find_optimizer(const char *name, enum update_kind *out) MUST_USE;

/* ---- predicting ---- */

/* STATUS_USAGE names the member that is out of range. */
enum status api_check_predict_options(const struct cleave_predict_options *o) MUST_USE;
/* NULL: that of the whole batch. */
enum status api_find_batch_norm(const char *text, enum plan_batch_norm *out) MUST_USE;
/* The same of one number. */
enum status api_check_range(const char *what, int64_t value, int64_t least, int64_t most) MUST_USE;

/* The options of a forecast; *hook and the options' texts must outlive it. */
struct api_hook {
    int (*on_progress)(void *user, double share, const char *what); /* or NULL */
    void *user;
    pthread_t caller;
    bool stopped;
};
enum status api_forecast_options(const cleave_model *model, const cleave_machine *machine,
                                 const struct cleave_predict_options *options,
                                 struct api_hook *hook, struct forecast_options *out) MUST_USE;
/* Calls the caller back, and remembers if it wants no more. Not from another thread. */
void api_hook_call(struct api_hook *hook, double share, const char *what);

#endif
