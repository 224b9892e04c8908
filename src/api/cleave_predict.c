/* Predictions. Everything is copied out of the inner one: a prediction holds nothing else. */
#include "api/handles.h"
#include "backend/backend.h"

#include <stdlib.h>

struct cleave_prediction {
    struct cleave_prediction_info info;
    struct cleave_worker *workers;
};

/* ---- options ---- */

/* Links are measured by threads of their own, which cannot be stopped there. */
void api_hook_call(struct api_hook *hook, double share, const char *what)
{
    if (!hook->on_progress || hook->stopped || !pthread_equal(hook->caller, pthread_self()))
        return;
    hook->stopped = hook->on_progress(hook->user, share, what) != 0;
    status_clear(); /* failures inside the callback are the caller's */
}

static enum status on_progress(void *user, double share, const char *what)
{
    struct api_hook *hook = user;
    api_hook_call(hook, share, what);
    if (hook->stopped)
        return status_fail(STATUS_STOPPED, "stopped by the caller while measuring %s", what);
    return STATUS_OK;
}

enum status api_check_predict_options(const struct cleave_predict_options *o)
{
    TRY(api_check_range("threads", o->threads, 0, BACKEND_MAX_THREADS));
    TRY(api_check_range("calibrate_batch", o->calibrate_batch, 0, GRAPH_LARGEST_BATCH));
    TRY(api_check_range("n_samples", o->n_samples, 0, INT64_MAX));
    TRY(api_check_range("eval_batch", o->eval_batch, 0, GRAPH_LARGEST_BATCH));
    if (!(o->momentum >= 0 && o->momentum <= 1))
        return status_fail(STATUS_USAGE, "momentum is %g, it must be 0 to 1", o->momentum);
    if (!(o->calibrate_images_per_s >= 0 && o->calibrate_images_per_s <= 1e12))
        return status_fail(STATUS_USAGE, "calibrate_images_per_s is %g, it must be 0 to 1e12",
                           o->calibrate_images_per_s);
    return STATUS_OK;
}

static enum status fill_run(const struct cleave_predict_options *o, struct forecast_run *run)
{
    enum update_kind kind = UPDATE_SGD;
    TRY(api_find_optimizer(o->optimizer, &kind));
    *run = forecast_usual_run;
    run->optimizer = (int)kind;
    run->momentum = o->momentum;
    run->limit = o->n_samples;
    run->augment = o->augment;
    return STATUS_OK;
}

enum status api_forecast_options(const cleave_model *model, const cleave_machine *machine,
                                 const struct cleave_predict_options *options,
                                 struct api_hook *hook, struct forecast_options *out)
{
    *hook = (struct api_hook){
        .on_progress = options->on_progress, .user = options->user, .caller = pthread_self()};
    *out = (struct forecast_options){
        .graph = model->graph,
        .data = model->info.data,
        .machine = machine->text,
        .backend = options->backend,
        .profile = options->profile,
        .batch = model->info.batch,
        .eval_batch = options->eval_batch,
        .threads = options->threads,
        .calibrate = options->calibrate_images_per_s,
        .calibrate_batch = options->calibrate_batch,
        .measure = {.look_only = !options->measure, .callbacks = {on_progress, NULL, hook}},
        .no_eval = !options->evaluate,
        .quiet = true};
    return fill_run(options, &out->run);
}

/* ---- results ---- */

static void fill_worker(const struct prediction *from, int i, struct cleave_worker *to)
{
    const struct clock_worker_result *w = &from->clock.workers[i];
    const int64_t *memory = from->memory[i];
    int n_steps = from->programs[0]->n_steps;
    *to = (struct cleave_worker){.compute_s = w->compute_s / n_steps,
                                 .communicate_s = w->communicate_s / n_steps,
                                 .wait_s = w->wait_s / n_steps,
                                 .sent_bytes = w->sent_bytes / n_steps,
                                 .weights_bytes = memory[BUFFER_WEIGHTS],
                                 .weight_versions_bytes = memory[BUFFER_WEIGHT_VERSIONS],
                                 .optimizer_bytes = memory[BUFFER_OPTIMIZER],
                                 .gradients_bytes = memory[BUFFER_GRADIENTS],
                                 .activations_bytes = memory[BUFFER_ACTIVATIONS],
                                 .transfer_bytes = memory[BUFFER_TRANSFER],
                                 .workspace_bytes = memory[BUFFER_WORKSPACE]};
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        to->memory_bytes += memory[k];
}

static enum status fill(const struct forecast *f, const struct prediction *from,
                        cleave_prediction *to)
{
    int64_t batch = f->graph->batch, steps = (f->data.n_train + batch - 1) / batch;
    const struct clock_result *c = &from->clock;
    to->info = (struct cleave_prediction_info){.workers = from->n_workers,
                                               .step_s = c->step_s,
                                               .error_s = c->error_s,
                                               .images_per_s = (double)batch / c->step_s,
                                               .epoch_s = c->step_s * (double)steps,
                                               .memory_bytes = from->largest_bytes,
                                               .bytes_moved = c->bytes_moved,
                                               .measured_share = c->share[COST_MEASURED],
                                               .fits = from->too_large_worker < 0,
                                               .needed_bytes = from->needed_bytes,
                                               .limit_bytes = from->limit_bytes};
    TRY(api_alloc((size_t)from->n_workers * sizeof *to->workers, &to->workers));
    for (int i = 0; i < from->n_workers; i++)
        fill_worker(from, i, &to->workers[i]);
    return STATUS_OK;
}

/* ---- predicting ---- */

static enum status predict_with(struct forecast *f, const struct plan *plan, cleave_prediction *to)
{
    struct prediction *p;
    const struct predict_request request = forecast_request(f, plan, false);
    TRY(forecast_plan(f, plan, false, &p));
    enum status st = fill(f, p, to);
    if (st == STATUS_OK)
        st = prediction_free_communication(&request, p, &to->info.free_step_s);
    prediction_destroy(p);
    return st;
}

static enum status predict(const cleave_plan *plan, const cleave_machine *machine,
                           const struct cleave_predict_options *options, cleave_prediction *to)
{
    struct cleave_predict_options o = cleave_predict_defaults();
    struct api_hook hook;
    struct forecast_options how;
    struct forecast f;
    TRY(api_take_options(options, sizeof o, "cleave_predict_defaults", &o));
    TRY(api_check_predict_options(&o));
    TRY(api_forecast_options(plan->model, machine, &o, &hook, &how));
    enum status st = forecast_open(&f, &how);
    if (st == STATUS_OK)
        st = forecast_find_machine(&f, plan->plan->n_workers);
    if (st == STATUS_OK)
        st = predict_with(&f, plan->plan, to);
    forecast_close(&f);
    return st;
}

enum cleave_status cleave_predict(const cleave_plan *plan, const cleave_machine *machine,
                                  const struct cleave_predict_options *options,
                                  cleave_prediction **out)
{
    cleave_prediction *p;
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(plan);
    API_NEEDS(machine);
    enum status st = api_alloc(sizeof *p, &p);
    if (st != STATUS_OK)
        return api_end(st);
    st = predict(plan, machine, options, p);
    if (st == STATUS_OK)
        *out = p;
    else
        cleave_prediction_destroy(p);
    return api_end(st);
}

void cleave_prediction_destroy(cleave_prediction *prediction)
{
    if (!prediction)
        return;
    free(prediction->workers);
    free(prediction);
}

const struct cleave_prediction_info *cleave_prediction_get_info(const cleave_prediction *prediction)
{
    return prediction ? &prediction->info : NULL;
}

const struct cleave_worker *cleave_prediction_get_worker(const cleave_prediction *prediction,
                                                         int index)
{
    return prediction && index >= 0 && index < prediction->info.workers
               ? &prediction->workers[index]
               : NULL;
}
