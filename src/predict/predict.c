#include "predict/predict.h"

#include "base/numbers.h"
#include "base/parallel.h"
#include "base/timer.h"
#include "profile/costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- programs ---- */

static struct program_options describe(const struct predict_request *r, const struct prediction *p)
{
    return (struct program_options){
        .backend = r->backend,
        .device = p->device,
        .precision = r->precision,
        .training = true,
        .n_states = r->n_states,
        .plan = r->plan,
        .transport = r->plan->n_workers > 1 ? comm_find_table(r->transport) : NULL};
}

static enum status lower(const struct predict_request *r, struct prediction *p)
{
    struct device_options how = r->device;
    how.describe_only = true;
    TRY(r->backend->device_open(&how, &p->device));
    struct program_options o = describe(r, p);
    TRY(program_create_all(r->graph, &o, NULL, true, &p->set));
    p->programs = (const struct program *const *)p->set.programs;
    return STATUS_OK;
}

/* ---- memory ---- */

static void take_larger(int64_t to[BUFFER_CLASS_COUNT], const int64_t from[BUFFER_CLASS_COUNT])
{
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        to[k] = from[k] > to[k] ? from[k] : to[k];
}

/* The k-th other program; its slabs, by worker, matter only where they are larger than the step's.
 */
static enum status describe_other(const struct predict_request *r, const struct prediction *p,
                                  int k, struct program_case *out)
{
    *out = (struct program_case){.graph = r->others[k].graph, .options = describe(r, p)};
    out->options.training = r->others[k].training;
    out->options.n_steps = 1;
    TRY(arena_alloc_array(p->memory_arena, (size_t)p->n_workers, sizeof *out->slab_bytes,
                          &out->slab_bytes));
    for (int i = 0; i < p->n_workers; i++)
        memcpy(out->slab_bytes[i], p->programs[i]->slab_bytes, sizeof out->slab_bytes[i]);
    return STATUS_OK;
}

static int64_t sum_classes(const int64_t classes[BUFFER_CLASS_COUNT])
{
    int64_t sum = 0;
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        sum += classes[k];
    return sum;
}

/* All programs of a run share one set of slabs. */
static void unite_memory(struct prediction *p, const struct program_case *others, int n_others)
{
    for (int i = 0; i < p->n_workers; i++) {
        take_larger(p->memory[i], p->programs[i]->slab_bytes);
        for (int k = 0; k < n_others; k++)
            take_larger(p->memory[i], others[k].slab_bytes[i]);
        int64_t all = sum_classes(p->memory[i]);
        if (all > p->largest_bytes) {
            p->largest_bytes = all;
            p->largest_worker = i;
        }
    }
}

static int device_of(const struct machine *m, int worker)
{
    return worker % m->n_devices;
}

/* A memory: a GPU has its own, the cores of a host share the host's. */
struct place {
    int first_worker, n_workers;
    int64_t limit_bytes; /* 0: unknown */
    int64_t memory[BUFFER_CLASS_COUNT];
};

static void add_to_place(struct place *to, int worker, const int64_t memory[BUFFER_CLASS_COUNT])
{
    if (to->n_workers++ == 0)
        to->first_worker = worker;
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        to->memory[k] += memory[k];
}

static double share_used(int64_t needed, int64_t limit)
{
    return limit > 0 ? (double)needed / (double)limit : 0;
}

static void take_tighter(struct prediction *p, const struct place *place)
{
    int64_t needed = sum_classes(place->memory);
    if (place->n_workers == 0 || place->limit_bytes <= 0 ||
        (p->tight_worker >= 0 &&
         share_used(needed, place->limit_bytes) <= share_used(p->needed_bytes, p->limit_bytes)))
        return;
    p->tight_worker = place->first_worker;
    p->n_tight = place->n_workers;
    p->needed_bytes = needed;
    p->limit_bytes = place->limit_bytes;
    memcpy(p->tight_memory, place->memory, sizeof p->tight_memory);
}

static enum status check_fit(const struct predict_request *r, struct prediction *p)
{
    const struct machine *m = r->machine;
    struct place *places; /* devices, then nodes */
    int n_places = m->n_devices + m->n_nodes;
    TRY(arena_alloc_array(p->memory_arena, (size_t)n_places, sizeof *places, &places));
    for (int i = 0; i < p->n_workers; i++) {
        int number = device_of(m, i), node = m->devices[number].node;
        const struct machine_kind *kind = &m->kinds[m->devices[number].kind];
        bool own = kind->class == MACHINE_GPU;
        struct place *place = &places[own ? number : m->n_devices + node];
        place->limit_bytes = own ? kind->memory_bytes : m->nodes[node].memory_bytes;
        add_to_place(place, i, p->memory[i]);
    }
    p->tight_worker = -1;
    for (int i = 0; i < n_places; i++)
        take_tighter(p, &places[i]);
    p->too_large_worker = p->needed_bytes > p->limit_bytes ? p->tight_worker : -1;
    return STATUS_OK;
}

/* ---- time ---- */

static enum status measure(const struct predict_request *r, struct prediction *p)
{
    const struct machine *m = r->machine;
    int *n, crowd = 1; /* workers that share the cores of one host, at most */
    TRY(arena_alloc_array(p->memory_arena, (size_t)m->n_nodes, sizeof *n, &n));
    for (int i = 0; i < p->n_workers; i++)
        crowd = int_max(crowd, ++n[machine_find_host(m, m->devices[device_of(m, i)].node)]);
    struct measure_request q = {.programs = p->programs,
                                .most_at_once = crowd,
                                /* stages and servers leave workers idle */
                                .alone = r->plan->n_stages > 1 || r->plan->n_servers > 0,
                                .how = r->measure};
    q.how.look_only |= p->too_large_worker >= 0;
    return profile_measure(r->profile, &q, &p->measured);
}

static enum status find_costs(const struct predict_request *r, struct prediction *p)
{
    struct cost_sums sums = {0};
    TRY(arena_alloc_array(p->memory_arena, (size_t)p->n_workers, sizeof *p->costs, &p->costs));
    for (int i = 0; i < p->n_workers; i++) {
        const struct machine *m = r->machine;
        const struct machine_kind *kind = &m->kinds[m->devices[device_of(m, i)].kind];
        for (int k = 0; k < i && !p->costs[i]; k++)
            if (p->programs[k] == p->programs[i] &&
                m->devices[device_of(m, k)].kind == m->devices[device_of(m, i)].kind)
                p->costs[i] = p->costs[k];
        if (p->costs[i])
            continue;
        bool here = r->local && (!r->kinds_here || r->kinds_here[kind - m->kinds]);
        struct cost_source source = {.profile = here ? r->profile : NULL,
                                     .busy = p->measured.setting,
                                     .alone = p->measured.alone,
                                     .kind = kind,
                                     .scales = r->scales};
        TRY(arena_alloc_array(p->memory_arena, (size_t)p->programs[i]->n_instrs, sizeof **p->costs,
                              &p->costs[i]));
        costs_find(&source, p->programs[i], p->costs[i], &sums);
    }
    for (int i = 0; i < p->n_workers; i++)
        costs_settle_alone(&sums, p->costs[i], p->programs[i]->n_instrs);
    return STATUS_OK;
}

static enum status run_clock(const struct predict_request *r, struct prediction *p,
                             bool free_communication, bool keep_times, struct clock_result *out)
{
    struct clock_worker *workers;
    TRY(arena_alloc_array(p->memory_arena, (size_t)p->n_workers, sizeof *workers, &workers));
    struct measure_factors factors = {.slowest = 1, .cold = 1};
    if (r->local && r->profile && p->n_workers > 1)
        measure_find_factors(r->profile, &p->measured.setting, r->graph, r->plan, &factors);
    for (int i = 0; i < p->n_workers; i++)
        workers[i] = (struct clock_worker){p->programs[i], p->costs[i], device_of(r->machine, i)};
    struct clock_options o = {.machine = r->machine,
                              .transport = r->transport,
                              .step_s = factors.start_s,
                              .slowest = factors.slowest,
                              .cold = factors.cold,
                              .feed = r->feed,
                              .free_communication = free_communication,
                              .keep_times = keep_times};
    return clock_run(workers, p->n_workers, &o, p->memory_arena, out);
}

enum status prediction_free_communication(const struct predict_request *r, struct prediction *p,
                                          double *step_s)
{
    struct clock_result result;
    TRY(run_clock(r, p, true, false, &result));
    *step_s = result.step_s;
    return STATUS_OK;
}

/* ---- all of it ---- */

static enum status check_request(const struct predict_request *r)
{
    const struct machine *m = r->machine;
    if ((!r->local || r->kinds_here) && r->plan->n_workers > m->n_devices)
        return status_fail(
            STATUS_USAGE,
            "the plan has %d workers, but %s has %d device%s: give --workers %d, or a "
            "larger --machine",
            r->plan->n_workers, m->name, m->n_devices, m->n_devices == 1 ? "" : "s", m->n_devices);
    if (r->plan->n_workers > 1 && !comm_find_table(r->transport))
        return status_fail(STATUS_USAGE, "this build has no transport '%s'", r->transport);
    return STATUS_OK;
}

/* The steps after lowering: the memory of the other programs, and, if nothing is to be measured,
 * the time. Neither needs the other, so both run at the same time. */
struct rest {
    const struct predict_request *request;
    struct prediction *prediction;
    bool with_time;
    bool apart; /* each item of the study is one item here; else all of them are one */
    struct program_slabs *study;
};

static enum status find_time(const struct predict_request *r, struct prediction *p)
{
    TRY(find_costs(r, p));
    TRY(run_clock(r, p, r->free_communication, r->keep_times, &p->clock));
    p->host_error = r->local && r->profile ? PREDICT_HOST_ERROR : 0;
    p->clock.error_s = hypot(p->clock.error_s, p->host_error * p->clock.step_s);
    return STATUS_OK;
}

static enum status do_item(void *user, int item, int thread)
{
    const struct rest *rest = user;
    int other = item - rest->with_time;
    if (other < 0)
        return find_time(rest->request, rest->prediction);
    if (rest->apart)
        return program_slabs_do(rest->study, other, thread);
    for (int i = 0; i < program_slabs_items(rest->study); i++)
        TRY(program_slabs_do(rest->study, i, thread));
    return STATUS_OK;
}

/* Lowers the plan and finds its memory, and at the same time, `with_time`, its time. */
static enum status find_memory(const struct predict_request *r, struct prediction *p,
                               bool with_time)
{
    struct rest rest = {.request = r,
                        .prediction = p,
                        .with_time = with_time,
                        .apart = r->backend->describes_together};
    struct program_case others[PREDICT_MAX_OTHERS];
    int n_others = r->n_others;
    int n_threads = parallel_threads(with_time + n_others * p->n_workers);
    TRY(check_request(r));
    TRY(lower(r, p));
    TRY(arena_alloc_array(p->memory_arena, (size_t)p->n_workers, sizeof *p->memory, &p->memory));
    for (int k = 0; k < n_others; k++)
        TRY(describe_other(r, p, k, &others[k]));
    TRY(program_slabs_open(others, n_others, &p->set, n_threads, &rest.study));
    int n_items = with_time + (rest.apart ? program_slabs_items(rest.study) : 1);
    enum status st = parallel_run(n_items, n_threads, do_item, &rest);
    program_slabs_close(rest.study);
    TRY(st);
    unite_memory(p, others, n_others);
    return check_fit(r, p);
}

static enum status create(const struct predict_request *r, struct prediction **out)
{
    arena *memory;
    struct prediction *p;
    TRY(arena_create(&memory));
    enum status st = arena_alloc(memory, sizeof *p, &p);
    if (st != STATUS_OK) {
        arena_destroy(memory);
        return st;
    }
    *p = (struct prediction){
        .memory_arena = memory, .backend = r->backend, .n_workers = r->plan->n_workers};
    *out = p;
    return STATUS_OK;
}

/* Hands the prediction over, unless its making failed. */
static enum status finish(struct prediction *p, int64_t start_ns, enum status st,
                          struct prediction **out)
{
    if (st != STATUS_OK) {
        prediction_destroy(p);
        return st;
    }
    p->predict_s = (double)(timer_now_ns() - start_ns) * 1e-9 - p->measured.seconds;
    *out = p;
    return STATUS_OK;
}

/* Memory comes first where costs are measured: a plan that does not fit is not run. */
enum status predict_plan(const struct predict_request *r, struct prediction **out)
{
    int64_t start_ns = timer_now_ns();
    bool measures = r->local && r->profile;
    struct prediction *p = NULL;
    enum status st;
    TRY(create(r, &p));
    TRY_GOTO(st, find_memory(r, p, !measures), out);
    if (measures) {
        TRY_GOTO(st, measure(r, p), out);
        TRY_GOTO(st, find_time(r, p), out);
    }
out:
    return finish(p, start_ns, st, out);
}

enum status predict_memory(const struct predict_request *r, struct prediction **out)
{
    int64_t start_ns = timer_now_ns();
    struct prediction *p = NULL;
    TRY(create(r, &p));
    return finish(p, start_ns, find_memory(r, p, false), out);
}

void prediction_destroy(struct prediction *p)
{
    if (!p)
        return;
    program_destroy_all(&p->set);
    if (p->device)
        p->backend->device_close(p->device);
    arena_destroy(p->memory_arena);
}
