/* Plans: made, loaded, saved, checked. */
#include "api/handles.h"
#include "base/text.h"
#include "program/program.h"
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

/* ---- handles ---- */

static enum status fill(cleave_plan *p)
{
    struct plan *plan = p->plan;
    struct plan_made_for made = plan->made_for;
    made.data = p->model->info.data;
    TRY(plan_set_made_for(plan, p->model->graph, &made));
    TRY(plan_print(plan, p->model->graph, &p->text));
    p->info = (struct cleave_plan_info){.name = plan->name,
                                        .workers = plan->n_workers,
                                        .stages = plan->n_stages,
                                        .micro_batches = plan->micro_batches,
                                        .stale = plan_is_stale(plan),
                                        .text = p->text,
                                        .machine = made.machine,
                                        .optimizer = made.optimizer,
                                        .calibrate_images_per_s = made.calibrate,
                                        .calibrate_batch = made.calibrate_batch};
    return STATUS_OK;
}

enum status api_wrap_plan(const cleave_model *model, struct plan *plan, cleave_plan **out)
{
    cleave_plan *p;
    enum status st = api_alloc(sizeof *p, &p);
    if (st != STATUS_OK) {
        plan_destroy(plan);
        return st;
    }
    atomic_init(&p->holders, 1);
    p->model = api_hold_model(model);
    p->plan = plan;
    st = fill(p);
    if (st == STATUS_OK)
        *out = p;
    else
        cleave_plan_destroy(p);
    return st;
}

const cleave_plan *api_hold_plan(const cleave_plan *plan)
{
    atomic_fetch_add(&((cleave_plan *)plan)->holders, 1);
    return plan;
}

void cleave_plan_destroy(cleave_plan *plan)
{
    if (!plan || atomic_fetch_sub(&plan->holders, 1) > 1)
        return;
    plan_destroy(plan->plan);
    free(plan->text);
    cleave_model_destroy((cleave_model *)plan->model);
    free(plan);
}

const struct cleave_plan_info *cleave_plan_get_info(const cleave_plan *plan)
{
    return plan ? &plan->info : NULL;
}

/* ---- making ---- */

static enum status find_sync(const char *text, enum plan_sync *out)
{
    for (int i = 0; plan_sync_names[i]; i++)
        if (!text || strcmp(plan_sync_names[i], text) == 0) {
            *out = (enum plan_sync)i;
            return STATUS_OK;
        }
    return status_fail(STATUS_USAGE, "sync '%.80s' is none of: ring, tree, hierarchical, server",
                       text);
}

enum status api_find_batch_norm(const char *text, enum plan_batch_norm *out)
{
    for (int i = 0; plan_batch_norm_names[i]; i++)
        if (!text || strcmp(plan_batch_norm_names[i], text) == 0) {
            *out = (enum plan_batch_norm)i;
            return STATUS_OK;
        }
    return status_fail(STATUS_USAGE, "batch_norm '%.80s' is none of: batch, worker", text);
}

static enum status check_replicas(const struct cleave_plan_options *o)
{
    if (!o->replicas)
        return STATUS_OK;
    TRY(api_check_range("n_stages", o->n_stages, 1, PLAN_MAX_WORKERS));
    for (int i = 0; i < o->n_stages; i++)
        TRY(api_check_range("a stage's number of workers", o->replicas[i], 1, PLAN_MAX_WORKERS));
    return STATUS_OK;
}

static enum status check_options(int workers, const struct cleave_plan_options *o)
{
    TRY(api_check_range("workers", workers, 1, PLAN_MAX_WORKERS));
    TRY(api_check_range("micro_batches", o->micro_batches, 0, 1 << 20));
    TRY(api_check_range("model_workers", o->model_workers, 0, PLAN_MAX_WORKERS));
    TRY(api_check_range("servers", o->servers, 0, PLAN_MAX_WORKERS));
    TRY(api_check_range("window", o->window, 0, 1 << 16));
    TRY(api_check_range("workers_per_node", o->workers_per_node, 0, PLAN_MAX_WORKERS));
    TRY(api_check_range("bucket_bytes", o->bucket_bytes, 0, INT64_C(1) << 40));
    TRY(api_check_range("segments", o->segments, PLAN_SEGMENTS_AUTO, PLAN_MAX_SEGMENTS));
    return check_replicas(o);
}

static enum status make(const cleave_model *model, const char *strategy, int workers,
                        const struct cleave_plan_options *options, cleave_plan **out)
{
    struct cleave_plan_options o = cleave_plan_defaults();
    struct plan *plan;
    TRY(api_take_options(options, sizeof o, "cleave_plan_defaults", &o));
    TRY(check_options(workers, &o));
    struct plan_request request = {.n_workers = workers,
                                   .micro_batches = o.micro_batches,
                                   .bucket_bytes = o.bucket_bytes,
                                   .workers_per_node = o.workers_per_node,
                                   .n_servers = o.servers,
                                   .asynchronous = o.asynchronous,
                                   .window = o.window,
                                   .segments = o.segments,
                                   .replicas = o.replicas,
                                   .n_stages = o.replicas ? o.n_stages : 0,
                                   .model_workers = o.model_workers};
    TRY(find_sync(o.sync, &request.sync));
    TRY(api_find_batch_norm(o.batch_norm, &request.batch_norm));
    TRY(plan_build(strategy, model->graph, &request, &plan));
    return api_wrap_plan(model, plan, out);
}

enum cleave_status cleave_plan_make(const cleave_model *model, const char *strategy, int workers,
                                    const struct cleave_plan_options *options, cleave_plan **out)
{
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(model);
    API_NEEDS(strategy);
    return api_end(make(model, strategy, workers, options, out));
}

/* ---- files ---- */

static enum status open_with(const char *path, arena *memory, cleave_plan **out)
{
    struct plan_made_for made;
    cleave_model *model;
    struct plan *plan;
    TRY(plan_read_made_for(path, memory, &made));
    if (!made.model || !made.data || !made.batch)
        return status_fail(STATUS_USAGE,
                           "%s: does not say which network, data and batch it was made for: open "
                           "the model yourself, and use cleave_plan_load",
                           path);
    TRY(api_open_model(made.model, made.data, made.batch, &model));
    enum status st = plan_read(path, model->graph, &plan);
    if (st == STATUS_OK)
        st = api_wrap_plan(model, plan, out);
    cleave_model_destroy(model);
    return st;
}

enum cleave_status cleave_plan_open(const char *path, cleave_plan **out)
{
    arena *memory;
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(path);
    enum status st = arena_create(&memory);
    if (st != STATUS_OK)
        return api_end(st);
    st = open_with(path, memory, out);
    arena_destroy(memory);
    return api_end(st);
}

const cleave_model *cleave_plan_get_model(const cleave_plan *plan)
{
    return plan ? plan->model : NULL;
}

static enum status load(const cleave_model *model, const char *path, cleave_plan **out)
{
    struct plan *plan;
    TRY(plan_read(path, model->graph, &plan));
    return api_wrap_plan(model, plan, out);
}

enum cleave_status cleave_plan_load(const cleave_model *model, const char *path, cleave_plan **out)
{
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(model);
    API_NEEDS(path);
    return api_end(load(model, path, out));
}

static enum status parse(const cleave_model *model, const char *text, cleave_plan **out)
{
    struct plan *plan;
    TRY(plan_parse(text, strlen(text), "the plan", model->graph, &plan));
    return api_wrap_plan(model, plan, out);
}

enum cleave_status cleave_plan_parse(const cleave_model *model, const char *text, cleave_plan **out)
{
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(model);
    API_NEEDS(text);
    return api_end(parse(model, text, out));
}

enum cleave_status cleave_plan_save(const cleave_plan *plan, const char *path)
{
    API_BEGIN();
    API_NEEDS(plan);
    API_NEEDS(path);
    return api_end(plan_write(plan->plan, plan->model->graph, path));
}

/* ---- proving ---- */

static enum status lower_and_prove(const cleave_plan *p, const struct backend *backend, device *on)
{
    struct program_set all = {0};
    bool alone = p->plan->n_workers == 1;
    const struct program_options how = {.backend = backend,
                                        .device = on,
                                        .training = true,
                                        .n_states = 1,
                                        .plan = p->plan,
                                        .transport = alone ? NULL : comm_find_table("threads")};
    enum status st = program_create_all(p->model->graph, &how, NULL, false, &all);
    if (st == STATUS_OK)
        st = verify_programs((const struct program *const *)all.programs, all.n_workers);
    program_destroy_all(&all);
    return st;
}

static enum status check(const cleave_plan *p)
{
    const struct device_options how = {.threads = 1, .describe_only = true};
    const struct backend *backend = backend_list()[0];
    device *on;
    TRY(backend->device_open(&how, &on));
    enum status st = lower_and_prove(p, backend, on);
    backend->device_close(on);
    return st;
}

enum cleave_status cleave_plan_check(const cleave_plan *plan)
{
    API_BEGIN();
    API_NEEDS(plan);
    return api_end(check(plan));
}
