#include "cli/run_description.h"

#include "base/log.h"
#include "machine/machine.h"
#include "predict/predicted_trace.h"
#include "predict/prediction_json.h"
#include "predict/subject.h"
#include "report/report.h"
#include "runtime/plan_choice.h"

static enum status put_machine(run_record *r)
{
    struct machine *machine;
    TRY(machine_discover(1, &machine));
    FILE *f = fopen(run_record_path(r, REPORT_MACHINE), "w");
    enum status st = f ? machine_write(machine, f) : STATUS_OK;
    if (!f || fclose(f) != 0)
        run_record_warn(r, REPORT_MACHINE);
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
static enum status put_prediction(run_record *r, const struct trainer_options *t,
                                  const struct trainer_info *info, const struct plan *plan,
                                  struct run_description *d)
{
    const struct forecast_options options = {.model = info->model,
                                             .data = t->data,
                                             .machine = "local",
                                             .backend = info->backend,
                                             .batch = info->batch,
                                             .threads = info->threads,
                                             .eval_batch = info->eval_batch,
                                             .run = {.optimizer = (int)t->rule.kind,
                                                     .momentum = t->rule.momentum,
                                                     .precision = (int)t->precision,
                                                     .drop_probability = t->drop_probability,
                                                     .limit = t->data_limit,
                                                     .augment = t->augment},
                                             .no_eval = info->n_test == 0,
                                             .no_measure = true,
                                             .quiet = true};
    struct forecast f;
    enum status st = forecast_open(&f, &options, info->workers);
    if (st == STATUS_OK)
        st = predict(r, &f, plan, d);
    forecast_close(&f);
    return st;
}

static enum status describe(run_record *r, const struct trainer_options *t,
                            const struct trainer_info *info, struct run_description *d)
{
    struct dataset_info data;
    struct graph *graph;
    struct plan *plan = NULL;
    struct plan_request request = t->request;
    enum status st;
    request.n_workers = info->workers;
    if (d->search)
        run_record_put(r, REPORT_SEARCH, json_incref((json_t *)d->search));
    TRY(put_machine(r));
    TRY(subject_build(info->model, t->data, info->batch, t->drop_probability, &data, &graph));
    run_record_put(r, REPORT_NETWORK, report_network(graph));
    TRY_GOTO(st, plan_choose(t->plan ? t->plan : info->plan, graph, &request, &plan), out);
    TRY_GOTO(st, plan_write(plan, graph, run_record_path(r, REPORT_PLAN)), out);
    if (d->predict && !t->process)
        TRY_GOTO(st, put_prediction(r, t, info, plan, d), out);
out:
    plan_destroy(plan);
    graph_destroy(graph);
    return st;
}

void run_describe(run_record *r, const struct trainer_options *options,
                  const struct trainer_info *info, struct run_description *d)
{
    if (!run_record_directory(r) || describe(r, options, info, d) == STATUS_OK)
        return;
    log_warn("the record of this run is incomplete: %s", status_message());
    status_clear();
}
