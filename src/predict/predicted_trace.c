#include "predict/predicted_trace.h"

#include "base/json.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "program/timeline.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { PREDICTED_STEP = 1, REAL_DIGITS = 15 };

/* A measured trace, and the run of it that was chosen. */
struct measured {
    const char *path;
    json_t *root; /* NULL: none */
    const json_t *events;
    json_int_t step;
    double begin_us; /* of the run, on its earliest worker */
};

struct sheet {
    const struct predict_request *request;
    const struct prediction *prediction;
    struct measured measured;
};

/* ---- the predicted part ---- */

static int64_t nanoseconds(double t_s)
{
    return (int64_t)llround(t_s * 1e9);
}

static void put_instrs(struct timeline_worker *w, const struct program *p,
                       const struct clock_time *times)
{
    int64_t reached_ns = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        struct timeline_time at = {reached_ns, nanoseconds(times[i].begin_s),
                                   nanoseconds(times[i].end_s)};
        timeline_put_instr(w, p, i, PREDICTED_STEP, &at);
        if (p->instrs[i].stream == STREAM_COMPUTE)
            reached_ns = at.end_ns;
    }
}

static double last_end(const struct program *p, const struct clock_time *times)
{
    double end_s = 0;
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].stream == STREAM_COMPUTE)
            end_s = fmax(end_s, times[i].end_s);
    return end_s;
}

/* What the clock adds behind the instructions: data that were not ready, and what a step of CPU
 * workers costs beside its instructions. */
static void put_rest(const struct timeline_worker *w, const struct sheet *s, int worker)
{
    const struct clock_result *r = &s->prediction->clock;
    const struct clock_worker_result *of = &r->workers[worker];
    const struct machine *m = s->request->machine;
    bool on_cpu = m->kinds[m->devices[0].kind].class == MACHINE_CPU;
    int64_t end_ns = nanoseconds(last_end(s->prediction->programs[worker], of->times));
    int64_t fed_ns = end_ns + nanoseconds(of->load_s), run_ns = nanoseconds(r->run_s);
    int64_t gather_ns = run_ns - nanoseconds(on_cpu ? m->step_s : 0);
    if (fed_ns > end_ns)
        timeline_put(w, "wait for data", "wait", PREDICTED_STEP, end_ns, fed_ns);
    if (run_ns > gather_ns)
        timeline_put(w, "start and gather the workers", "step", PREDICTED_STEP,
                     gather_ns > fed_ns ? gather_ns : fed_ns, run_ns);
}

/* In a merged file the two processes of a worker stand together. */
static int process_of(const struct sheet *s, int worker, bool measured)
{
    return s->measured.root ? 2 * worker + measured : worker;
}

static void put_predicted(FILE *f, const struct sheet *s, int worker)
{
    struct timeline_worker w;
    char name[48];
    int process = process_of(s, worker, false);
    (void)snprintf(name, sizeof name, "worker %d (predicted)", worker);
    timeline_open_worker(&w, f, process, process, name);
    put_instrs(&w, s->prediction->programs[worker], s->prediction->clock.workers[worker].times);
    put_rest(&w, s, worker);
}

/* ---- reading the measured part ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static json_int_t integer_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static bool is_slice_of(const json_t *e, json_int_t step)
{
    return strcmp(text_of(e, "ph"), "X") == 0 &&
           integer_of(json_object_get(e, "args"), "step") == step &&
           json_is_number(json_object_get(e, "ts"));
}

/* Whether all workers have slices of the run; then also when it began. */
static enum status look_for_run(struct measured *m, json_int_t step, int n_workers, bool *found)
{
    arena *memory;
    bool *seen;
    int n_seen = 0;
    double begin_us = INFINITY;
    TRY(arena_create(&memory));
    enum status st = arena_alloc_array(memory, (size_t)n_workers, sizeof *seen, &seen);
    for (size_t i = 0; st == STATUS_OK && i < json_array_size(m->events); i++) {
        const json_t *e = json_array_get(m->events, i);
        json_int_t worker = integer_of(e, "pid");
        if (!is_slice_of(e, step) || worker < 0 || worker >= n_workers)
            continue;
        begin_us = fmin(begin_us, json_number_value(json_object_get(e, "ts")));
        n_seen += !seen[worker];
        seen[worker] = true;
    }
    arena_destroy(memory);
    *found = n_seen == n_workers;
    m->step = step;
    m->begin_us = begin_us;
    return st;
}

/* The last one of this batch; a run of the short last batch of an epoch is another program. */
static enum status choose_run(struct measured *m, const json_t *runs, const struct sheet *s)
{
    const struct program *p = s->prediction->programs[0];
    bool found = false;
    for (size_t i = json_array_size(runs); i-- > 0 && !found;) {
        const json_t *run = json_array_get(runs, i);
        if (integer_of(run, "batch") == p->graph->batch && integer_of(run, "steps") == p->n_steps)
            TRY(look_for_run(m, integer_of(run, "step"), s->prediction->n_workers, &found));
    }
    if (found)
        return STATUS_OK;
    return status_fail(STATUS_USAGE, "%s: holds no complete run of batch %lld and %d step%s",
                       m->path, (long long)p->graph->batch, p->n_steps, p->n_steps == 1 ? "" : "s");
}

static enum status check_measured(struct measured *m, const struct sheet *s)
{
    const json_t *head = json_object_get(m->root, "otherData");
    const json_t *runs = json_object_get(head, "runs");
    const char *plan = s->request->plan->name;
    json_int_t workers = integer_of(head, "workers");
    m->events = json_object_get(m->root, "traceEvents");
    if (strcmp(text_of(head, "kind"), "measured") != 0 || !json_is_array(m->events) ||
        !json_is_array(runs))
        return status_fail(STATUS_USAGE, "%s: is no trace that 'cleave train --trace' wrote",
                           m->path);
    if (workers != s->prediction->n_workers)
        return status_fail(STATUS_USAGE, "%s: is of %lld worker%s, the plan has %d", m->path,
                           (long long)workers, workers == 1 ? "" : "s", s->prediction->n_workers);
    if (strcmp(text_of(head, "plan"), plan) != 0)
        log_warn("%s is of the plan '%s', the prediction of '%s'", m->path, text_of(head, "plan"),
                 plan);
    return choose_run(m, runs, s);
}

static enum status read_measured(struct sheet *s)
{
    json_error_t error;
    struct measured *m = &s->measured;
    m->root = json_load_file(m->path, 0, &error);
    if (!m->root && error.line > 0)
        return status_fail(STATUS_FAILED, "%s:%d:%d: %s", m->path, error.line, error.column,
                           json_error_reason(&error));
    if (!m->root)
        return status_fail(STATUS_FAILED, "%s: cannot read: %s", m->path, error.text);
    return check_measured(m, s);
}

/* ---- writing it beside the other ---- */

/* To the nanosecond: see timeline.h. */
static double since(double ts_us, double begin_us)
{
    return round((ts_us - begin_us) * 1e3) / 1e3;
}

static enum status rename_process(json_t *e)
{
    json_t *args = json_object_get(e, "args");
    json_t *name = json_sprintf("%s (measured)", text_of(args, "name"));
    return json_object_set_new(args, "name", name) == 0 ? STATUS_OK : status_no_memory(0);
}

/* False: it is not of this run. */
static enum status change_event(const struct sheet *s, json_t *e, bool *wanted)
{
    const struct measured *m = &s->measured;
    const char *name = text_of(e, "name");
    int process = process_of(s, (int)integer_of(e, "pid"), true);
    *wanted = false;
    if (is_slice_of(e, m->step)) {
        double ts_us = json_number_value(json_object_get(e, "ts"));
        if (json_object_set_new(e, "ts", json_real(since(ts_us, m->begin_us))) != 0)
            return status_no_memory(0);
    } else if (strcmp(text_of(e, "ph"), "M") != 0) {
        return STATUS_OK;
    } else if (strcmp(name, "process_name") == 0) {
        TRY(rename_process(e));
    } else if (strcmp(name, "process_sort_index") == 0) {
        json_t *args = json_pack("{s:i}", "sort_index", process);
        if (json_object_set_new(e, "args", args) != 0)
            return status_no_memory(0);
    }
    *wanted = true;
    return json_object_set_new(e, "pid", json_integer(process)) == 0 ? STATUS_OK
                                                                     : status_no_memory(0);
}

static enum status put_measured(FILE *f, const struct sheet *s)
{
    const struct measured *m = &s->measured;
    for (size_t i = 0; i < json_array_size(m->events); i++) {
        json_t *e = json_array_get(m->events, i);
        json_int_t worker = integer_of(e, "pid");
        bool wanted = false;
        if (worker >= 0 && worker < s->prediction->n_workers)
            TRY(change_event(s, e, &wanted));
        if (!wanted)
            continue;
        (void)fputs(",\n", f);
        (void)json_dumpf(e, f, JSON_COMPACT | JSON_REAL_PRECISION(REAL_DIGITS));
    }
    return STATUS_OK;
}

/* ---- the file ---- */

static enum status write_all(FILE *f, void *user)
{
    const struct sheet *s = user;
    const struct program *p = s->prediction->programs[0];
    struct timeline_run run = {PREDICTED_STEP, p->n_steps, p->graph->batch};
    struct timeline_head head = {.kind = s->measured.root ? "predicted and measured" : "predicted",
                                 .plan = s->request->plan->name,
                                 .n_workers = s->prediction->n_workers,
                                 .n_runs = 1,
                                 .runs = &run};
    timeline_begin(f, &head);
    for (int i = 0; i < s->prediction->n_workers; i++)
        put_predicted(f, s, i);
    if (s->measured.root)
        TRY(put_measured(f, s));
    timeline_end(f);
    return STATUS_OK;
}

enum status predicted_trace_write(const struct predict_request *request, const struct prediction *p,
                                  const char *path, const char *measured)
{
    struct sheet s = {.request = request, .prediction = p, .measured = {.path = measured}};
    enum status st = measured ? read_measured(&s) : STATUS_OK;
    if (st == STATUS_OK)
        st = whole_file_write(path, write_all, &s);
    json_decref(s.measured.root);
    return st;
}

enum status predicted_trace_put(const struct predict_request *request, const struct prediction *p,
                                FILE *f)
{
    struct sheet s = {.request = request, .prediction = p};
    return write_all(f, &s);
}
