/* The search for the best plan. Its results are copied; the candidates' plans stay, for those
 * that are asked for. */
#include "api/handles.h"
#include "base/text.h"
#include "search/chooser.h"
#include "search/explain.h"
#include "search/title.h"

#include <stdlib.h>

struct cleave_search {
    const cleave_model *model;
    arena *memory;
    struct candidate_set *set;
    struct plan_made_for made; /* of its plans */
    struct cleave_search_info info;
    struct cleave_candidate *candidates;
    struct cleave_part *parts;
};

/* ---- results ---- */

static enum status fill_candidates(cleave_search *s, const struct chooser *c)
{
    size_t n = (size_t)s->set->n;
    double batch = (double)c->forecast->graph->batch;
    TRY(arena_alloc_array(s->memory, n, sizeof *s->candidates, &s->candidates));
    for (size_t i = 0; i < n; i++) {
        const struct candidate *from = &s->set->list[i];
        bool clocked = from->state == CANDIDATE_CLOCKED;
        s->candidates[i] = (struct cleave_candidate){
            .name = from->name,
            .workers = from->plan->n_workers,
            .predicted = clocked,
            .error_s = clocked ? from->error_s : 0,
            .memory_bytes = clocked ? from->memory_bytes : 0,
            .bytes_moved = clocked ? from->bytes_moved : 0,
            .measured_share = clocked ? from->share[COST_MEASURED] : 0,
            .fits = from->state != CANDIDATE_REFUSED && (!clocked || from->fits),
            .stale = from->stale,
            .step_s = from->step_s,
            .images_per_s = batch / from->step_s,
            .epoch_s = chooser_epoch_s(c, from->step_s),
            .tried_s = from->tried_s};
        char title[CANDIDATE_TITLE_BYTES];
        TRY(arena_copy_text(s->memory, candidate_title(from, c->n_workers, title),
                            &s->candidates[i].title));
    }
    return STATUS_OK;
}

static enum status fill_info(cleave_search *s, const struct chooser *c)
{
    const struct candidate_set *set = s->set;
    s->info = (struct cleave_search_info){.n_candidates = set->n,
                                          .eval_batch = c->eval_batch,
                                          .best = set->best,
                                          .fastest = set->fastest,
                                          .data = set->data,
                                          .serial = set->serial,
                                          .complete = set->complete,
                                          .search_s = set->search_s};
    return STATUS_OK;
}

static enum status copy_text(cleave_search *s, const char *text, const char **out)
{
    *out = NULL;
    return text && *text ? arena_copy_text(s->memory, text, out) : STATUS_OK;
}

static enum status fill_part(cleave_search *s, const struct explained_layers *from,
                             struct cleave_part *to)
{
    *to = (struct cleave_part){.n_layers = from->n_layers,
                               .stage = from->stage,
                               .seconds = from->seconds,
                               .other_s = from->other_s};
    TRY(copy_text(s, from->first, &to->first));
    TRY(copy_text(s, from->last, &to->last));
    TRY(copy_text(s, from->cut, &to->cut));
    return copy_text(s, from->other, &to->other);
}

static enum status fill_reasons(cleave_search *s, const struct explanation *e)
{
    struct cleave_search_info *i = &s->info;
    const struct explained_limits *l = &e->limits;
    i->worker = l->worker;
    i->compute_s = l->compute_s;
    i->wait_s = l->wait_s;
    i->free_step_s = l->free_s;
    i->longest_layer_s = l->layer_s;
    i->busiest_link_share = l->link_share;
    i->n_parts = e->n_layers;
    TRY(copy_text(s, l->layer, &i->longest_layer));
    TRY(copy_text(s, l->link, &i->busiest_link));
    TRY(arena_alloc_array(s->memory, (size_t)e->n_layers, sizeof *s->parts, &s->parts));
    for (int k = 0; k < e->n_layers; k++)
        TRY(fill_part(s, &e->layers[k], &s->parts[k]));
    return STATUS_OK;
}

static enum status explain(cleave_search *s, struct chooser *c)
{
    const struct candidate *best = &s->set->list[s->set->best];
    struct predict_request request;
    struct explanation *e;
    TRY(chooser_request(c, best->plan, &request));
    TRY(explain_plan(&request, best, &e));
    enum status st = fill_reasons(s, e);
    explanation_destroy(e);
    return st;
}

/* ---- searching ---- */

static void on_candidate(void *user, int done, int all, const char *name)
{
    api_hook_call(user, all > 0 ? (double)done / all : 0, name);
}

static bool wants_no_more(void *user)
{
    return ((const struct api_hook *)user)->stopped;
}

static enum status search_with(cleave_search *s, struct chooser *c)
{
    TRY(chooser_find(c, c->n_workers, &s->set));
    TRY(chooser_refuse(c, s->set));
    TRY(fill_info(s, c));
    TRY(fill_candidates(s, c));
    return explain(s, c);
}

static enum status check_seconds(const char *what, double value)
{
    if (!(value >= 0 && value <= 1e9))
        return status_fail(STATUS_USAGE, "%s is %g, it must be 0 to 1e9", what, value);
    return STATUS_OK;
}

static enum status take_options(const cleave_machine *machine,
                                const struct cleave_search_options *options,
                                struct cleave_search_options *o, struct cleave_predict_options *p)
{
    *o = cleave_search_defaults();
    *p = cleave_predict_defaults();
    TRY(api_take_options(options, sizeof *o, "cleave_search_defaults", o));
    TRY(api_take_options(o->predict, sizeof *p, "cleave_predict_defaults", p));
    TRY(api_check_predict_options(p));
    TRY(api_check_range("micro_batches", o->micro_batches, 0, 1 << 20));
    int64_t most = machine->info.local ? PLAN_MAX_WORKERS : machine->info.n_devices;
    TRY(api_check_range("workers", o->workers, 0, most));
    TRY(check_seconds("limit_s", o->limit_s));
    return check_seconds("try_s", o->try_s);
}

static enum status search(cleave_search *s, const cleave_machine *machine,
                          const struct cleave_search_options *options)
{
    struct cleave_search_options o;
    struct cleave_predict_options p;
    struct api_hook hook;
    struct forecast_options forecast;
    struct chooser c;
    enum plan_batch_norm batch_norm;
    TRY(take_options(machine, options, &o, &p));
    TRY(api_find_batch_norm(o.batch_norm, &batch_norm));
    TRY(api_forecast_options(s->model, machine, &p, &hook, &forecast));
    TRY(arena_create(&s->memory));
    const struct plan_made_for made = {
        .precision = "float",
        .optimizer = p.optimizer ? p.optimizer : "sgd",
        .machine = machine->spec,
        .machine_digest = machine->digest[0] ? machine->digest : NULL,
        .calibrate = p.calibrate_images_per_s,
        .calibrate_batch = p.calibrate_images_per_s <= 0 ? 0
                           : p.calibrate_batch           ? p.calibrate_batch
                                                         : s->model->info.batch};
    TRY(plan_copy_made_for(s->memory, &made, &s->made));
    const struct chooser_options how = {.forecast = forecast,
                                        .workers = o.workers,
                                        .micro_batches = o.micro_batches,
                                        .batch_norm = batch_norm,
                                        .allow_stale = o.allow_stale,
                                        .named_only = o.named_only,
                                        .fewer = o.fewer,
                                        .limit_s = o.limit_s,
                                        .try_s = o.try_s,
                                        .quiet = true,
                                        .on_candidate = on_candidate,
                                        .stops = wants_no_more};
    enum status st = chooser_open(&c, &how);
    if (st == STATUS_OK)
        st = search_with(s, &c);
    chooser_close(&c);
    return st;
}

enum cleave_status cleave_search_run(const cleave_model *model, const cleave_machine *machine,
                                     const struct cleave_search_options *options,
                                     cleave_search **out)
{
    cleave_search *s;
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(model);
    API_NEEDS(machine);
    enum status st = api_alloc(sizeof *s, &s);
    if (st != STATUS_OK)
        return api_end(st);
    s->model = api_hold_model(model);
    st = search(s, machine, options);
    if (st == STATUS_OK)
        *out = s;
    else
        cleave_search_destroy(s);
    return api_end(st);
}

void cleave_search_destroy(cleave_search *search)
{
    if (!search)
        return;
    candidates_destroy(search->set);
    arena_destroy(search->memory);
    cleave_model_destroy((cleave_model *)search->model);
    free(search);
}

/* ---- looking ---- */

const struct cleave_search_info *cleave_search_get_info(const cleave_search *search)
{
    return search ? &search->info : NULL;
}

const struct cleave_candidate *cleave_search_get_candidate(const cleave_search *search, int index)
{
    return search && index >= 0 && index < search->info.n_candidates ? &search->candidates[index]
                                                                     : NULL;
}

const struct cleave_part *cleave_search_get_part(const cleave_search *search, int index)
{
    return search && index >= 0 && index < search->info.n_parts ? &search->parts[index] : NULL;
}

/* Plans are not counted inside. The copy is checked, as the model's batch may be larger than the
 * one that the search settled for. */
static enum status copy_plan(const cleave_search *s, int index, cleave_plan **out)
{
    struct plan *plan;
    TRY(plan_copy(s->set->list[index].plan, &plan));
    enum status st = plan_set_made_for(plan, s->model->graph, &s->made);
    if (st == STATUS_OK)
        st = plan_check(plan, s->model->graph);
    if (st != STATUS_OK) {
        plan_destroy(plan);
        return st;
    }
    return api_wrap_plan(s->model, plan, out);
}

enum cleave_status cleave_search_get_plan(const cleave_search *search, int index, cleave_plan **out)
{
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(search);
    enum status st = api_check_range("index", index, 0, search->info.n_candidates - 1);
    return api_end(st == STATUS_OK ? copy_plan(search, index, out) : st);
}
