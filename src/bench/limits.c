/* limits.c: predicting how far a plan scales, and its limits. */
#include "bench/limits.h"

#include "base/log.h"
#include "base/progress.h"
#include "runtime/plan_choice.h"
#include "runtime/stop.h"

#include <math.h>
#include <stdlib.h>

/* ---- one point ---- */

/* The clock on costs of nothing: only communication takes time. */
static enum status find_communication(const struct predict_request *r, const struct prediction *p,
                                      double *step_s)
{
    size_t n = (size_t)p->n_workers, n_instrs = 0;
    struct clock_worker *workers;
    struct instr_cost *nothing;
    struct clock_result result;
    for (size_t i = 0; i < n; i++)
        if ((size_t)p->programs[i]->n_instrs > n_instrs)
            n_instrs = (size_t)p->programs[i]->n_instrs;
    TRY(arena_alloc_array(p->memory_arena, n, sizeof *workers, &workers));
    TRY(arena_alloc_array(p->memory_arena, n_instrs, sizeof *nothing, &nothing));
    for (size_t i = 0; i < n; i++)
        workers[i] =
            (struct clock_worker){.program = p->programs[i], .costs = nothing, .device = (int)i};
    struct clock_options o = {.machine = r->machine, .transport = r->transport};
    TRY(clock_run(workers, p->n_workers, &o, p->memory_arena, &result));
    *step_s = n > 1 ? result.step_s : 0;
    return STATUS_OK;
}

/* A worker's time by type, on average. */
static void find_types(const struct prediction *p, struct limits_point *to)
{
    double each = 1.0 / p->n_workers / p->programs[0]->n_steps;
    for (int w = 0; w < p->n_workers; w++)
        for (int i = 0; i < p->programs[w]->n_instrs; i++)
            if (p->programs[w]->instrs[i].stream == STREAM_COMPUTE)
                to->type_s[layer_instr_type(p->programs[w], i)] += each * p->costs[w][i].busy_s;
    for (int type = 0; type < TYPE_COUNT; type++)
        to->compute_s += to->type_s[type];
}

/* The rest, but for rounding. */
static double rest_of(double all_s, double part_s)
{
    return all_s - part_s > 1e-9 * all_s ? all_s - part_s : 0;
}

static enum status take_prediction(const struct predict_request *r, struct prediction *p,
                                   struct limits_point *to)
{
    to->step_s = p->clock.step_s;
    to->error_s = p->clock.error_s;
    to->memory_bytes = p->largest_bytes;
    to->bytes_moved = p->clock.bytes_moved;
    to->fits = p->too_large_worker < 0;
    find_types(p, to);
    TRY(prediction_free_communication(r, p, &to->free_s));
    TRY(find_communication(r, p, &to->communicate_s));
    /* Cores of a pipeline that compute alone are a little faster than their costs say. */
    to->compute_s = fmin(to->compute_s, to->free_s);
    to->wait_s = rest_of(to->free_s, to->compute_s);
    to->exposed_s = rest_of(to->step_s, to->free_s);
    return STATUS_OK;
}

static enum status predict_plan_of(const struct limits_study *s, struct forecast *f,
                                   struct limits_point *to)
{
    struct plan_request request = s->options->request;
    struct plan *plan;
    struct prediction *p;
    request.n_workers = to->workers;
    TRY(plan_build(to->workers > 1 ? s->options->plan : "serial", f->graph, &request, &plan));
    struct predict_request r = forecast_request(f, plan, false);
    r.n_others = 0; /* of the run a step is enough */
    enum status st = predict_plan(&r, &p);
    if (st == STATUS_OK) {
        st = take_prediction(&r, p, to);
        prediction_destroy(p);
    }
    plan_destroy(plan);
    return st;
}

static enum status predict_point(const struct limits_study *s, const struct forecast *f,
                                 struct limits_point *to)
{
    struct forecast_batch own;
    TRY(forecast_open_batch(f, to->batch, &own));
    enum status st = predict_plan_of(s, &own.forecast, to);
    forecast_close_batch(&own);
    return st;
}

/* ---- a curve ---- */

static enum status check_batch(const struct limits_curve *c, const struct limits_point *p)
{
    if (p->workers > p->batch)
        return status_fail(STATUS_USAGE,
                           "a batch of %lld has no image for each of %d workers (--batch)",
                           (long long)p->batch, p->workers);
    if (p->batch > GRAPH_LARGEST_BATCH)
        return status_fail(STATUS_USAGE,
                           "%d workers with %lld images each: the largest batch is %d", p->workers,
                           (long long)c->batch, GRAPH_LARGEST_BATCH);
    return STATUS_OK;
}

/* A mistake in a number of workers ends the curve; one that one worker has, too, ends the study. */
static enum status end_curve(const struct limits_study *s, struct limits_curve *c, enum status st)
{
    struct status_error error;
    if (st != STATUS_USAGE || c->n_points == 0)
        return st;
    status_take(st, &error);
    return arena_copy_text(s->memory, error.message, &c->ended_at);
}

static enum status predict_curve(const struct limits_study *s, const struct forecast *f,
                                 struct limits_curve *c)
{
    static struct progress progress;
    for (int i = 0; i < s->n_counts && !c->ended_at; i++) {
        struct limits_point p = {.workers = s->counts[i]};
        p.batch = c->grows ? c->batch * p.workers : c->batch;
        progress_show(&progress, (c->grows ? 0.5 : 0) + 0.5 * i / s->n_counts,
                      "%s batch, %d worker%s", c->grows ? "growing" : "fixed", p.workers,
                      p.workers == 1 ? "" : "s");
        if (stop_requested())
            return status_fail(STATUS_STOPPED, "stopped before %d workers", p.workers);
        enum status st = check_batch(c, &p);
        if (st == STATUS_OK)
            st = predict_point(s, f, &p);
        if (st == STATUS_OK)
            c->points[c->n_points++] = p;
        else
            TRY(end_curve(s, c, st));
    }
    return STATUS_OK;
}

/* ---- the machine ---- */

/* Hosts like this one, each a worker, on a network that is not there. */
static enum status multiply_host(const struct limits_study *s, struct forecast *f)
{
    char text[256];
    struct machine *m, *host = f->machine;
    (void)snprintf(text, sizeof text, "%dx1:cpu,inter=%.80s,latency=%.80s",
                   s->counts[s->n_counts - 1], s->options->inter, s->options->latency);
    TRY(machine_parse(text, &m));
    struct machine_kind kind = host->kinds[host->devices[0].kind];
    kind.name = m->kinds[0].name;
    kind.about = m->kinds[0].about;
    kind.note = m->kinds[0].note;
    m->kinds[0] = kind;
    for (int i = 0; i < m->n_nodes; i++)
        m->nodes[i].memory_bytes = host->nodes[0].memory_bytes;
    m->wake_s = host->wake_s;
    m->step_s = host->step_s;
    machine_destroy(host);
    f->machine = m;
    return STATUS_OK;
}

/* Numbers that nobody asked for end where the machine does. */
static void cut_counts(struct limits_study *s, int n_devices)
{
    int n = s->n_counts;
    while (n > 0 && s->counts[n - 1] > n_devices)
        n--;
    s->cut_at = n < s->n_counts ? n_devices : 0;
    if (s->cut_at && (n == 0 || s->counts[n - 1] < n_devices))
        s->counts[n++] = n_devices;
    s->n_counts = n;
}

static enum status check_devices(const struct limits_study *s, const struct machine *m)
{
    int most = s->counts[s->n_counts - 1];
    if (most > m->n_devices)
        return status_fail(STATUS_USAGE,
                           "%d workers, but %s has %d device%s; give --workers or a larger "
                           "--machine",
                           most, m->name, m->n_devices, m->n_devices == 1 ? "" : "s");
    return STATUS_OK;
}

static enum status predict_with(struct limits_study *s, struct forecast *f)
{
    if (f->local)
        TRY(multiply_host(s, f));
    else if (s->options->usual_counts)
        cut_counts(s, f->machine->n_devices);
    TRY(check_devices(s, f->machine));
    TRY(arena_copy_text(s->memory, f->machine->name, &s->machine));
    TRY(arena_copy_text(s->memory, f->graph->name, &s->model));
    TRY(predict_curve(s, f, &s->fixed));
    return predict_curve(s, f, &s->growing);
}

/* The forecast is opened for the batch of one worker: a known speed of a device is that of a batch
 * which it can hold. */
static enum status predict(struct limits_study *s)
{
    struct forecast_options o = s->options->forecast;
    struct forecast f;
    struct graph *graph;
    s->fixed = (struct limits_curve){.batch = o.batch};
    s->growing = (struct limits_curve){.grows = true, .batch = s->options->batch_per_worker};
    o.batch = s->options->batch_per_worker;
    o.no_eval = true;
    TRY(forecast_build_graph(&o, s->options->model, &graph));
    enum status st = forecast_open(&f, &o);
    if (st == STATUS_OK)
        st = forecast_find_machine(&f, 1);
    if (st == STATUS_OK)
        st = predict_with(s, &f);
    log_progress_end();
    forecast_close(&f);
    graph_destroy(graph);
    return st;
}

/* ---- the study ---- */

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Ascending, from 1, each once. */
static void set_counts(struct limits_study *s, const struct bench_limits *o)
{
    int n = 0, all[BENCH_MAX_COUNTS + 1] = {1};
    for (int i = 0; i < o->n_counts; i++)
        all[i + 1] = (int)o->counts[i];
    qsort(all, (size_t)o->n_counts + 1, sizeof *all, compare);
    for (int i = 0; i <= o->n_counts; i++)
        if (n == 0 || s->counts[n - 1] != all[i])
            s->counts[n++] = all[i];
    s->n_counts = n;
}

static enum status run(const struct bench_limits *o, arena *memory, struct results *r)
{
    struct limits_study *s; /* too large for the stack */
    TRY(arena_alloc(memory, sizeof *s, &s));
    *s = (struct limits_study){.options = o, .memory = memory};
    if (plan_is_file(o->plan))
        return status_fail(STATUS_USAGE,
                           "--plan %s: a file is for one number of workers; name a strategy",
                           o->plan);
    TRY(bench_check_strategy(o->plan));
    /* One worker has the plan 'serial' whatever is asked for, so this comes first. */
    TRY(plan_check_used(&o->request, o->plan));
    set_counts(s, o);
    TRY(stop_install());
    TRY(predict(s));
    limits_report(s, r);
    return STATUS_OK;
}

enum status bench_limits(const struct bench_limits *o, struct results *r)
{
    arena *memory;
    TRY(arena_create(&memory));
    enum status st = run(o, memory, r);
    arena_destroy(memory);
    return st;
}
