#include "search/chooser.h"

#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/timer.h"
#include "runtime/pin.h"
#include "runtime/stop.h"
#include "search/trial.h"

#include <math.h>
#include <string.h>

static const int64_t PROGRESS_FROM_NS = 2000000000; /* shorter searches show none */

/* ---- forecasts ---- */

static bool is_local(const struct chooser *c)
{
    return strcmp(c->forecast_options.machine, "local") == 0;
}

static enum status add_forecast(struct chooser *c, int workers, struct forecast **out)
{
    if (c->n_forecasts == CHOOSER_MAX_FORECASTS)
        return status_fail(STATUS_USAGE, "more than %d numbers of workers", CHOOSER_MAX_FORECASTS);
    struct chooser_forecast *f = &c->forecasts[c->n_forecasts++];
    f->workers = workers;
    *out = &f->forecast;
    TRY(forecast_open(&f->forecast, &c->forecast_options));
    return forecast_find_machine(&f->forecast, workers);
}

static enum status find_forecast(struct chooser *c, int workers, struct forecast **out)
{
    for (int i = 0; i < c->n_forecasts; i++)
        if (c->forecasts[i].workers == workers || !is_local(c)) {
            *out = &c->forecasts[i].forecast;
            return STATUS_OK;
        }
    return add_forecast(c, workers, out);
}

/* Which kinds this host has lies in the memory of the machine that goes; the rest has the same. */
static enum status keep_kinds(struct forecast *f, const struct machine *rest)
{
    bool *here;
    if (!f->kinds_here)
        return STATUS_OK;
    TRY(arena_alloc_array(rest->memory, (size_t)rest->n_kinds, sizeof *here, &here));
    memcpy(here, f->kinds_here, (size_t)rest->n_kinds * sizeof *here);
    f->kinds_here = here;
    return STATUS_OK;
}

/* The machine less the nodes that are lost. */
static enum status remove_nodes(struct forecast *f, const char *names)
{
    struct machine *rest;
    enum status st = machine_without(f->machine, names, &rest);
    if (st != STATUS_OK) {
        struct status_error error;
        status_take(st, &error);
        return status_fail(st, "--without %s: %s", names, error.message);
    }
    st = keep_kinds(f, rest);
    if (st != STATUS_OK) {
        machine_destroy(rest);
        return st;
    }
    machine_destroy(f->machine);
    f->machine = rest;
    return STATUS_OK;
}

static enum status open_distant(struct chooser *c)
{
    int asked = c->options->workers;
    TRY(add_forecast(c, 0, &c->forecast));
    if (c->options->without)
        TRY(remove_nodes(c->forecast, c->options->without));
    const struct machine *m = c->forecast->machine;
    if (asked > m->n_devices)
        return status_fail(STATUS_USAGE, "--workers %d: %s has %d device%s", asked, m->name,
                           m->n_devices, m->n_devices == 1 ? "" : "s");
    c->n_workers = asked ? asked : m->n_devices;
    return STATUS_OK;
}

static enum status open_local(struct chooser *c)
{
    int threads = (int)c->options->forecast.threads;
    int cores = pin_count_cores() / (threads ? threads : 1);
    if (c->options->without)
        return status_fail(STATUS_USAGE, "--without: this host has no nodes to lose");
    c->n_workers = c->options->workers ? c->options->workers : cores > 0 ? cores : 1;
    return add_forecast(c, c->n_workers, &c->forecast);
}

enum status chooser_open(struct chooser *c, const struct chooser_options *options)
{
    *c = (struct chooser){.options = options, .forecast_options = options->forecast};
    if (c->forecast_options.measure.budget_s <= 0) /* the best of many are tried in the end */
        c->forecast_options.measure.budget_s = 1;
    TRY(is_local(c) ? open_local(c) : open_distant(c));
    if (c->n_workers > PLAN_MAX_WORKERS)
        c->n_workers = PLAN_MAX_WORKERS;
    return STATUS_OK;
}

static void end_smaller_test(struct chooser *c)
{
    if (c->eval_batch)
        forecast_close_batch(&c->smaller);
    c->eval_batch = 0;
}

void chooser_close(struct chooser *c)
{
    end_smaller_test(c);
    for (int i = 0; i < c->n_forecasts; i++)
        forecast_close(&c->forecasts[i].forecast);
}

/* ---- searching ---- */

static enum status prepare(void *user, const struct plan *plan, struct predict_request *out)
{
    struct chooser *c = user;
    struct forecast *f = NULL;
    TRY(find_forecast(c, plan->n_workers, &f));
    *out = forecast_request(c->eval_batch ? &c->smaller.forecast : f, plan, false);
    return STATUS_OK;
}

enum status chooser_request(struct chooser *c, const struct plan *plan, struct predict_request *out)
{
    return prepare(c, plan, out);
}

static bool is_stopped(void *user)
{
    const struct chooser_options *o = ((const struct chooser *)user)->options;
    return stop_requested() != 0 || (o->stops && o->stops(o->forecast.measure.callbacks.user));
}

static enum status try_plans(void *user, int n, struct candidate *const *finalists)
{
    const struct chooser *c = user;
    struct trial_plan plans[CANDIDATES_MOST_TRIED];
    struct trial_request request = {.forecast = &c->forecast_options,
                                    .graph = c->forecast->graph,
                                    .limit_s = c->options->try_s,
                                    .quiet = c->options->quiet};
    for (int i = 0; i < n; i++)
        plans[i] = (struct trial_plan){.name = finalists[i]->name,
                                       .plan = finalists[i]->plan,
                                       .memory_share = candidates_memory_share(finalists[i])};
    TRY(trial_run(&request, plans, n));
    for (int i = 0; i < n && plans[0].n_rounds >= TRIAL_LEAST_ROUNDS; i++) {
        if (plans[i].n_rounds < TRIAL_LEAST_ROUNDS && !plans[i].behind)
            continue;
        finalists[i]->tried_s = plans[i].step_s;
        finalists[i]->tried_noise = plans[i].noise;
        finalists[i]->tried_behind = plans[i].behind;
    }
    return STATUS_OK;
}

static int64_t steps_per_epoch(const struct chooser *c)
{
    int64_t batch = c->forecast->graph->batch, n = c->forecast->data.n_train;
    return (n + batch - 1) / batch;
}

double chooser_epoch_s(const struct chooser *c, double step_s)
{
    return step_s * (double)steps_per_epoch(c);
}

/* Only measuring takes time that nobody can tell before. */
static double find_limit(const struct chooser *c)
{
    return c->options->limit_s > 0 ? c->options->limit_s : is_local(c) ? 60 : 0;
}

/* A trial reads the data: there may be none where they are taken to be ready. */
static bool can_try(const struct chooser *c)
{
    const struct forecast_options *f = &c->forecast_options;
    return is_local(c) && c->options->try_s > 0 && !f->measure.look_only && !f->no_data;
}

/* A search with a limit ends by it at the latest. */
static void show(void *user, int done, int all, const char *name)
{
    const struct chooser *c = user;
    char left[32];
    double taken_s = (double)(timer_now_ns() - c->start_ns) * 1e-9;
    double left_s = c->limit_s - taken_s;
    const char *text = progress_time(left, sizeof left, left_s > 0 ? left_s : 0);
    if (c->options->on_candidate)
        c->options->on_candidate(c->options->forecast.measure.callbacks.user, done, all, name);
    else if (taken_s * 1e9 > PROGRESS_FROM_NS)
        log_progress("planning: %s; %d of %d candidates%s%s%s (Ctrl-C: the best so far)", name,
                     done, all, c->limit_s > 0 ? ", " : "", c->limit_s > 0 ? text : "",
                     c->limit_s > 0 ? " left at most" : "");
}

static struct candidate_request request_of(struct chooser *c, int n_workers)
{
    const struct chooser_options *o = c->options;
    return (struct candidate_request){
        .graph = c->forecast->graph,
        .machine = c->forecast->machine,
        .n_workers = n_workers,
        .fewer = o->fewer || o->most_worker_hours > 0,
        .brief = o->without,
        .allow_stale = o->allow_stale,
        .named_only = o->named_only,
        .micro_batches = o->micro_batches,
        .batch_norm = o->batch_norm,
        .precision = (enum precision)c->forecast->options->run.precision,
        .scales = c->forecast->scales,
        .limit_s = find_limit(c),
        .most_worker_s = o->most_worker_hours * 3600 / (double)steps_per_epoch(c),
        .prepare = prepare,
        .try_plans = can_try(c) ? try_plans : NULL,
        .measures_again = can_try(c),
        .on_progress = o->quiet && !o->on_candidate ? NULL : show,
        .stops = is_stopped,
        .user = c};
}

/* Where plans train but none has room for the test: half of its batch, a quarter, .., as the advice
 * of a single plan goes (predict/advise.h). */
static enum status shrink_test(struct chooser *c, const struct candidate_request *r,
                               struct candidate_set *set)
{
    bool trains = false;
    for (int i = 0; i < set->n; i++)
        trains |= set->list[i].state == CANDIDATE_CLOCKED && set->list[i].trains;
    int64_t eval_batch = c->forecast->eval ? c->forecast->eval->batch : 0;
    while (set->best < 0 && trains && !is_local(c) && (eval_batch /= 2) > 0) {
        end_smaller_test(c);
        TRY(forecast_open_batches(c->forecast, c->forecast->graph->batch, eval_batch, &c->smaller));
        c->eval_batch = eval_batch;
        TRY(candidates_choose_again(r, set));
    }
    if (set->best < 0)
        end_smaller_test(c);
    return STATUS_OK;
}

enum status chooser_find(struct chooser *c, int n_workers, struct candidate_set **out)
{
    struct candidate_request r = request_of(c, n_workers);
    struct forecast *f = NULL;
    end_smaller_test(c);
    TRY(find_forecast(c, n_workers, &f));
    r.machine = f->machine;
    c->start_ns = timer_now_ns();
    c->limit_s = r.limit_s;
    enum status st = candidates_find(&r, out);
    log_progress_end();
    TRY(st);
    st = shrink_test(c, &r, *out);
    if (st != STATUS_OK) {
        candidates_destroy(*out);
        *out = NULL;
    }
    return st;
}

enum status chooser_add(struct chooser *c, struct candidate_set *set, const char *name,
                        struct plan *plan, int *index)
{
    struct candidate_request r = request_of(c, plan->n_workers);
    return candidates_add(&r, set, name, plan, index);
}

/* ---- nothing fits ---- */

static const struct candidate *find_smallest(const struct candidate_set *s)
{
    const struct candidate *least = NULL;
    for (int i = 0; i < s->n; i++)
        if (s->list[i].state == CANDIDATE_CLOCKED &&
            (!least || s->list[i].needed_bytes < least->needed_bytes))
            least = &s->list[i];
    return least;
}

static bool anything_fits(const struct candidate_set *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->list[i].state == CANDIDATE_CLOCKED && s->list[i].fits)
            return true;
    return false;
}

enum status chooser_refuse(const struct chooser *c, const struct candidate_set *set)
{
    char needed[32], limit[32];
    const struct candidate *least = find_smallest(set);
    if (set->best >= 0)
        return STATUS_OK;
    if (!least)
        return status_fail(STATUS_FAILED, "no plan was found within the time limit");
    if (anything_fits(set))
        return status_fail(STATUS_NO_FIT,
                           "no plan keeps within the budget of %g worker-hours an epoch",
                           c->options->most_worker_hours);
    return status_fail(STATUS_NO_FIT,
                       "no plan fits into memory: %s, which needs least, needs %s, there are %s; "
                       "try a smaller batch",
                       least->name, text_bytes(needed, sizeof needed, (double)least->needed_bytes),
                       text_bytes(limit, sizeof limit, (double)least->limit_bytes));
}
