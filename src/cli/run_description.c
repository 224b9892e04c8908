#include "cli/run_description.h"

#include "base/log.h"
#include "cli/subject_options.h"
#include "machine/machine.h"
#include "predict/predicted_trace.h"
#include "predict/prediction_json.h"
#include "report/report.h"

static enum status put_machine(run_record *r)
{
    struct machine *machine;
    TRY(machine_discover(1, &machine));
    enum status st = machine_write_file(machine, run_record_path(r, REPORT_MACHINE));
    machine_destroy(machine);
    return st;
}

static enum status predict(run_record *r, struct forecast *f, const struct plan *plan,
                           struct run_description *d)
{
    struct prediction *p;
    TRY(forecast_plan(f, plan, true, &p));
    const struct predict_answer answer = {.plan = plan, .prediction = p};
    struct predict_request request = forecast_request(f, plan, true);
    d->step_s = p->clock.step_s;
    d->error_s = p->clock.error_s;
    run_record_put(r, REPORT_PREDICTION, predict_json(f, &answer));
    enum status st =
        predicted_trace_write(&request, p, run_record_path(r, REPORT_PREDICTED_TRACE), NULL);
    prediction_destroy(p);
    return st;
}

/* With the costs that are known: a training does not wait for measurements. */
static enum status put_prediction(run_record *r, const struct trainer_info *info,
                                  struct run_description *d)
{
    struct forecast_options options = *d->forecast;
    options.graph = info->graph;
    options.machine = "local";
    options.backend = info->backend;
    options.batch = info->batch;
    options.eval_batch = info->eval_batch;
    options.threads = info->threads;
    options.no_eval = info->n_test == 0;
    options.measure.look_only = true;
    options.quiet = true;
    struct forecast f;
    enum status st = forecast_open(&f, &options);
    if (st == STATUS_OK)
        st = forecast_find_machine(&f, info->workers);
    if (st == STATUS_OK)
        st = predict(r, &f, info->resolved_plan, d);
    forecast_close(&f);
    return st;
}

/* It was made for this run, wherever it came from. */
static enum status put_plan(run_record *r, const struct trainer_info *info,
                            const struct run_description *d)
{
    struct forecast_options options = *d->forecast;
    struct plan *plan;
    options.machine = "local";
    TRY(plan_copy(info->resolved_plan, &plan));
    enum status st = subject_note(&options, info->graph, true, plan);
    if (st == STATUS_OK)
        st = plan_write(plan, info->graph, run_record_path(r, REPORT_PLAN));
    plan_destroy(plan);
    return st;
}

static enum status describe(run_record *r, const struct trainer_options *t,
                            const struct trainer_info *info, struct run_description *d)
{
    if (d->search)
        run_record_put(r, REPORT_SEARCH, json_incref((json_t *)d->search));
    TRY(put_machine(r));
    run_record_put(r, REPORT_NETWORK, report_network(info->graph));
    TRY(put_plan(r, info, d));
    return d->predict && !t->process ? put_prediction(r, info, d) : STATUS_OK;
}

void run_describe(run_record *r, const struct trainer_options *options,
                  const struct trainer_info *info, struct run_description *d)
{
    if (!run_record_directory(r) || describe(r, options, info, d) == STATUS_OK)
        return;
    log_warn("the record of this run is incomplete: %s", status_message());
    status_clear();
}
