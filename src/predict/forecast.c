#include "predict/forecast.h"

#include "base/log.h"
#include "base/numbers.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/timer.h"
#include "predict/subject.h"
#include "runtime/pin.h"
#include "runtime/stop.h"

#include <limits.h>
#include <string.h>

const struct forecast_run forecast_usual_run = {
    .optimizer = UPDATE_SGD, .momentum = 0.9, .drop_probability = -1};

/* ---- showing progress ---- */

static enum status show_progress(void *user, double share, const char *what)
{
    static struct progress progress;
    (void)user;
    progress_show(&progress, share, "measuring %s", what);
    return STATUS_OK;
}

static bool is_stopped(void *user)
{
    (void)user;
    return stop_requested() != 0;
}

/* The options for measuring, with the callbacks that are not set. */
static struct measure_options measuring(const struct forecast *f)
{
    struct measure_options how = f->options->measure;
    if (!how.callbacks.on_progress && !f->options->quiet)
        how.callbacks.on_progress = show_progress;
    if (!how.callbacks.stops)
        how.callbacks.stops = is_stopped;
    return how;
}

/* ---- opening ---- */

static enum status open_profile(struct forecast *f)
{
    char path[PATH_MAX];
    if (f->options->profile)
        return profile_open(f->options->profile, &f->profile);
    TRY(profile_default_path(path, sizeof path));
    return profile_open(path, &f->profile);
}

/* The backend of this host, and its costs. */
static enum status open_costs(struct forecast *f)
{
    f->local = true;
    f->backend = backend_list()[0];
    if (f->options->backend)
        TRY(backend_find(f->options->backend, &f->backend));
    TRY(backend_check_precision(f->backend, (enum precision)f->options->run.precision));
    return open_profile(f);
}

static enum status open_feed(struct forecast *f)
{
    const struct forecast_options *o = f->options;
    struct profile_cost cost;
    struct feed_request feed = {.data = o->data,
                                .batch = o->batch,
                                .augment = o->run.augment,
                                .callbacks = measuring(f).callbacks};
    if (o->no_data || o->measure.look_only)
        return STATUS_OK;
    TRY(profile_measure_feed(f->profile, &feed, &cost, NULL));
    f->feed = (struct clock_feed){.sample_s = cost.seconds,
                                  .threads = f->data.in_memory ? 1 : f->threads};
    return STATUS_OK;
}

static enum status open_local(struct forecast *f, int workers)
{
    const struct forecast_options *o = f->options;
    const struct measure_options how = measuring(f);
    int cores = pin_count_cores(), shared = cores / workers;
    f->threads = o->threads ? (int)o->threads : shared > 0 ? shared : 1;
    TRY(open_costs(f));
    TRY(predict_local_machine(f->profile, workers, f->threads, how.look_only, &how.callbacks,
                              &f->machine));
    return open_feed(f);
}

/* Finds which kinds of the machine's devices this host has, by the model of the processor; *first:
 * the first such kind, or -1. */
static enum status find_kinds_here(struct forecast *f, int *first)
{
    struct machine *m = f->machine, *host;
    bool *here;
    TRY(machine_discover(1, &host));
    const struct machine_kind *own = &host->kinds[host->devices[0].kind];
    enum status st = arena_alloc_array(m->memory, (size_t)m->n_kinds, sizeof *here, &here);
    *first = -1;
    for (int i = m->n_kinds - 1; i >= 0 && st == STATUS_OK; i--) {
        const struct machine_kind *k = &m->kinds[i];
        here[i] = k->class == MACHINE_CPU && own->class == MACHINE_CPU && *k->about &&
                  !strcmp(k->about, own->about);
        *first = here[i] ? i : *first;
    }
    if (st == STATUS_OK)
        f->kinds_here = here;
    machine_destroy(host);
    return st;
}

/* MPI, if the machine was measured with it. */
static const char *find_transport(const struct machine *m)
{
    for (int i = 0; i < m->n_curves; i++)
        if (!strcmp(m->curves[i].transport, "mpi"))
            return "mpi";
    return "threads";
}

/* Devices of another host have no kernels of ours: dense tensors, and rooflines. Those of the same
 * kind as this host's have measured costs. */
static enum status open_distant(struct forecast *f)
{
    const struct forecast_options *o = f->options;
    int kind = -1;
    f->threads = 1;
    TRY(backend_find("reference", &f->backend));
    TRY(machine_parse(o->machine, &f->machine));
    TRY(machine_check_rates(f->machine, (enum precision)o->run.precision));
    TRY(find_kinds_here(f, &kind));
    f->foreign = kind < 0;
    if (f->foreign)
        return STATUS_OK;
    f->threads = o->threads ? (int)o->threads : f->machine->kinds[kind].cores;
    f->transport = find_transport(f->machine);
    TRY(open_costs(f));
    return open_feed(f);
}

/* No graph for a batch of 0. */
static enum status resize_graph(const struct forecast *f, int64_t batch, struct graph **out)
{
    return batch > 0 ? graph_resize(f->options->graph, batch, out) : STATUS_OK;
}

/* As in the trainer: if there are fewer images than a batch, a step takes all of them. */
static enum status build_graphs(struct forecast *f)
{
    const struct forecast_options *o = f->options;
    TRY(dataset_describe(o->data, &f->data));
    if (o->run.limit)
        f->data.n_train = int64_min(f->data.n_train, o->run.limit);
    if (f->data.n_train < 1)
        return status_fail(STATUS_FAILED, "%s has no training samples", o->data);
    int64_t batch = o->shape_only ? o->batch : int64_min(o->batch, f->data.n_train);
    TRY(resize_graph(f, batch, &f->graph));
    TRY(resize_graph(f, o->shape_only ? 0 : f->data.n_train % batch, &f->train_short));
    int64_t asked = o->eval_batch ? o->eval_batch : o->batch;
    int64_t eval = o->no_eval ? 0 : int64_min(asked, f->data.n_test);
    TRY(resize_graph(f, eval, &f->eval));
    return resize_graph(f, eval ? f->data.n_test % eval : 0, &f->eval_short);
}

/* The parts of a step on one device. */
struct step_parts {
    double launches_s, convolutions_s, others_s;
};

static struct step_parts find_parts(const struct forecast *f, const struct prediction *p)
{
    const struct machine *m = f->machine;
    double launch_s = m->kinds[m->devices[0].kind].launch_s;
    struct step_parts parts = {0};
    for (int i = 0; i < p->programs[0]->n_instrs; i++) {
        double work_s = p->costs[0][i].busy_s - launch_s;
        if (p->costs[0][i].busy_s <= 0)
            continue;
        parts.launches_s += launch_s;
        if (program_instr_amount(p->programs[0], i).convolves)
            parts.convolutions_s += work_s;
        else
            parts.others_s += work_s;
    }
    return parts;
}

/* See struct cost_scales for why convolutions come first. */
static enum status find_scales(const struct forecast *f, const struct step_parts *parts,
                               struct cost_scales *scales)
{
    static const double least = 0.25; /* Winograd's: 36 products in place of 144 */
    double wanted_s = (double)f->graph->batch / f->options->calibrate - parts->launches_s;
    if (wanted_s <= 0)
        return status_fail(STATUS_USAGE,
                           "--calibrate %g: not even the launches of the kernels fit into that",
                           f->options->calibrate);
    double left_s = wanted_s - parts->others_s;
    double all = wanted_s / (parts->convolutions_s + parts->others_s);
    *scales = parts->convolutions_s > 0 && left_s >= least * parts->convolutions_s
                  ? (struct cost_scales){left_s / parts->convolutions_s, 1}
                  : (struct cost_scales){all, all};
    return STATUS_OK;
}

static enum status calibrate_batch(struct forecast *f, struct cost_scales *scales)
{
    struct plan *serial;
    struct prediction *p;
    struct plan_request one = {.n_workers = 1};
    TRY(plan_build("serial", f->graph, &one, &serial));
    enum status st = forecast_plan(f, serial, false, &p);
    if (st == STATUS_OK) {
        struct step_parts parts = find_parts(f, p);
        st = find_scales(f, &parts, scales);
        prediction_destroy(p);
    }
    plan_destroy(serial);
    return st;
}

/* The one known figure of a device says how far its roofline is off. */
static enum status calibrate(struct forecast *f)
{
    struct forecast_batch own;
    if (f->options->calibrate <= 0 || f->local)
        return STATUS_OK;
    if (!f->options->calibrate_batch)
        return calibrate_batch(f, &f->scales);
    TRY(forecast_open_batch(f, f->options->calibrate_batch, &own));
    enum status st = calibrate_batch(&own.forecast, &f->scales);
    forecast_close_batch(&own);
    return st;
}

enum status forecast_build_graph(struct forecast_options *o, const char *model, struct graph **out)
{
    struct dataset_info info;
    TRY(subject_build(model, o->data, o->batch, o->run.drop_probability, &info, out));
    o->graph = *out;
    if (!o->run.freeze)
        return STATUS_OK;
    enum status st = graph_freeze(*out, o->run.freeze);
    if (st != STATUS_OK) {
        graph_destroy(*out);
        *out = NULL;
    }
    return st;
}

enum status forecast_open(struct forecast *f, const struct forecast_options *o)
{
    *f = (struct forecast){.options = o, .transport = "threads"};
    TRY(build_graphs(f));
    if (f->graph->batch < o->batch && !o->quiet)
        log_warn("batch %lld: there are only %lld samples, each step takes all of them",
                 (long long)o->batch, (long long)f->graph->batch);
    return STATUS_OK;
}

enum status forecast_find_machine(struct forecast *f, int workers)
{
    if (strcmp(f->options->machine, "local") == 0)
        TRY(open_local(f, int_max(workers, 1)));
    else
        TRY(open_distant(f));
    log_progress_end();
    return calibrate(f);
}

static void close_graphs(struct forecast *f)
{
    graph_destroy(f->eval_short);
    graph_destroy(f->eval);
    graph_destroy(f->train_short);
    graph_destroy(f->graph);
}

void forecast_close(struct forecast *f)
{
    machine_destroy(f->machine);
    profile_close(f->profile);
    close_graphs(f);
}

enum status forecast_open_batches(const struct forecast *f, int64_t batch, int64_t eval_batch,
                                  struct forecast_batch *out)
{
    struct forecast *own = &out->forecast;
    out->options = *f->options;
    out->options.batch = batch;
    out->options.eval_batch = eval_batch;
    *own = *f;
    own->options = &out->options;
    own->graph = own->train_short = own->eval = own->eval_short = NULL;
    enum status st = build_graphs(own);
    if (st != STATUS_OK)
        close_graphs(own);
    return st;
}

enum status forecast_open_batch(const struct forecast *f, int64_t batch, struct forecast_batch *out)
{
    return forecast_open_batches(f, batch, f->options->eval_batch, out);
}

void forecast_close_batch(struct forecast_batch *b)
{
    close_graphs(&b->forecast);
}

/* ---- predicting ---- */

static void add_other(struct predict_request *r, const struct graph *graph, bool training)
{
    if (graph)
        r->others[r->n_others++] = (struct predict_other){graph, training};
}

static int count_states(const struct forecast_run *run)
{
    struct update_rule rule = {.kind = (enum update_kind)run->optimizer, .momentum = run->momentum};
    return update_rule_states(&rule);
}

struct predict_request forecast_request(struct forecast *f, const struct plan *plan,
                                        bool keep_times)
{
    struct predict_request r = {.graph = f->graph,
                                .plan = plan,
                                .machine = f->machine,
                                .backend = f->backend,
                                .transport = f->transport,
                                .device = {.threads = f->threads, .has_all_types = f->foreign},
                                .precision = (enum precision)f->options->run.precision,
                                .n_states = count_states(&f->options->run),
                                .local = f->local,
                                .kinds_here = f->kinds_here,
                                .profile = f->profile,
                                .measure = measuring(f),
                                .scales = f->scales,
                                .feed = f->feed,
                                .keep_times = keep_times};
    if (plan->schedule == PLAN_PIPEDREAM && plan->window > 1)
        add_other(&r, f->graph, true);
    add_other(&r, f->train_short, true);
    add_other(&r, f->eval, false);
    add_other(&r, f->eval_short, false);
    return r;
}

static void warn_if_disturbed(const struct forecast *f, const struct measure_result *m)
{
    if (m->disturbed > 0 && !f->options->quiet)
        log_warn("other programs had cores in %.0f %% of the measurements: costs may be too high, "
                 "until the plan is predicted again on a calm host",
                 100 * m->disturbed);
}

enum status forecast_plan(struct forecast *f, const struct plan *plan, bool keep_times,
                          struct prediction **out)
{
    struct predict_request r = forecast_request(f, plan, keep_times);
    enum status st = predict_plan(&r, out);
    log_progress_end();
    if (st != STATUS_OK)
        return st;
    f->n_measured += (*out)->measured.n_measured;
    warn_if_disturbed(f, &(*out)->measured);
    return STATUS_OK;
}
