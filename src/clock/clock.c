#include "clock/parts.h"

#include "base/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS_BETWEEN = 1024 }; /* two updates of the progress line */

/* ---- setting up ---- */

static enum status find_streams(struct clock_run *c, const struct program *p, struct streams *to,
                                int **positions)
{
    size_t n = (size_t)p->n_instrs;
    to->program = p;
    TRY(arena_alloc_array(c->scratch, n, sizeof *to->compute, &to->compute));
    TRY(arena_alloc_array(c->scratch, n, sizeof *to->comm, &to->comm));
    TRY(arena_alloc_array(c->scratch, n, sizeof *to->wakes_comm, &to->wakes_comm));
    TRY(arena_alloc_array(c->scratch, n, sizeof **positions, positions));
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        if (instr->stream == STREAM_COMPUTE) {
            to->compute[to->n_compute++] = i;
            continue;
        }
        (*positions)[i] = to->n_comm;
        to->comm[to->n_comm++] = i;
        for (int k = 0; k < instr->n_waits; k++)
            to->wakes_comm[instr->waits[k]] = true;
    }
    return STATUS_OK;
}

/* The worker before this one that runs the same program; NULL: none does. */
static const struct worker *find_twin(const struct clock_run *c, int number)
{
    for (int i = number - 1; i >= 0; i--)
        if (c->workers[i].program == c->workers[number].program)
            return &c->workers[i];
    return NULL;
}

static enum status take_streams(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    const struct worker *twin = find_twin(c, number);
    if (twin) {
        w->streams = twin->streams;
        w->comm_position = twin->comm_position;
        return STATUS_OK;
    }
    struct streams *streams;
    TRY(arena_alloc(c->scratch, sizeof *streams, &streams));
    *streams = (struct streams){0};
    w->streams = streams;
    return find_streams(c, w->program, streams, &w->comm_position);
}

static enum status make_done(struct clock_run *c, struct worker *w)
{
    size_t n_comm = w->streams ? (size_t)w->streams->n_comm : 0;
    return arena_alloc_array(c->scratch, n_comm, sizeof *w->done, &w->done);
}

static void join_host(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    struct host *h = &c->hosts[w->host];
    for (int i = h->first_worker; i >= 0 && h->pooled; i = c->workers[i].next_on_host)
        h->pooled = c->workers[i].node != w->node;
    h->pooled = h->pooled && w->on_cpu;
    h->population++;
    w->next_on_host = h->first_worker;
    h->first_worker = number;
}

static enum status prepare_hosts(struct clock_run *c)
{
    const struct machine *m = c->machine;
    size_t n = (size_t)m->n_nodes;
    TRY(arena_alloc_array(c->scratch, n, sizeof *c->hosts, &c->hosts));
    TRY(arena_alloc_array(c->scratch, n, sizeof *c->changed_hosts, &c->changed_hosts));
    for (int i = 0; i < m->n_nodes; i++)
        c->hosts[i] = (struct host){.cores = m->nodes[i].cores,
                                    .first_worker = -1,
                                    .pooled = m->nodes[i].cores > 0 && !m->nodes[i].own_cores};
    return STATUS_OK;
}

static enum status add_worker(struct clock_run *c, const struct clock_worker *from, int number)
{
    const struct machine *m = c->machine;
    struct worker *w = &c->workers[number];
    if (from->device < 0 || from->device >= m->n_devices)
        return status_fail(STATUS_USAGE, "worker %d has no device: %s has %d", number, m->name,
                           m->n_devices);
    const struct machine_kind *kind = &m->kinds[m->devices[from->device].kind];
    int node = m->devices[from->device].node;
    *w = (struct worker){.program = from->program,
                         .costs = from->costs,
                         .device = from->device,
                         .node = node,
                         .host = machine_find_host(m, node),
                         .cores = kind->cores > 0 ? kind->cores : 1,
                         .on_cpu = kind->class == MACHINE_CPU};
    join_host(c, number);
    TRY(take_streams(c, number));
    return make_done(c, w);
}

static enum status find_stretches(struct clock_run *c, struct worker *w)
{
    int n = w->streams->n_compute;
    TRY(arena_alloc_array(c->scratch, (size_t)n, sizeof *w->stretch_s, &w->stretch_s));
    for (int first = 0, end; first < n; first = end) {
        double sum_s = w->costs[w->streams->compute[first]].busy_s;
        for (end = first + 1; end < n; end++) {
            int instr = w->streams->compute[end];
            if (worker_waits_for_others(w, &w->program->instrs[instr]))
                break;
            sum_s += w->costs[instr].busy_s;
        }
        for (int k = first; k < end; k++)
            w->stretch_s[k] = sum_s;
    }
    return STATUS_OK;
}

/* Workers without a core of their own take turns, and do not keep a core while they wait. */
static enum status find_crowds(struct clock_run *c)
{
    for (int i = 0; i < c->machine->n_nodes; i++) {
        struct host *h = &c->hosts[i];
        int wanted = 0;
        for (int k = h->first_worker; k >= 0; k = c->workers[k].next_on_host)
            wanted += c->workers[k].on_cpu ? c->workers[k].cores : 0;
        h->crowded = h->cores > 0 && wanted > h->cores && !c->machine->nodes[i].own_cores;
        h->pooled |= h->crowded;
        for (int k = h->first_worker; k >= 0 && h->crowded; k = c->workers[k].next_on_host)
            TRY(find_stretches(c, &c->workers[k]));
    }
    return STATUS_OK;
}

static void find_contention(const struct clock_run *c, struct host *h)
{
    double alone_s = 0, busy_s = 0;
    for (int i = h->first_worker; i >= 0; i = c->workers[i].next_on_host) {
        const struct worker *w = &c->workers[i];
        for (int k = 0; k < w->streams->n_compute; k++) {
            alone_s += w->costs[w->streams->compute[k]].alone_s;
            busy_s += w->costs[w->streams->compute[k]].busy_s;
        }
    }
    h->contention = alone_s > 0 ? fmax(1, busy_s / alone_s) : 1;
}

static enum status prepare_result(struct clock_run *c)
{
    struct clock_result *r = c->result;
    size_t n = (size_t)c->n_workers;
    *r = (struct clock_result){0};
    TRY(arena_alloc_array(c->memory, n, sizeof *r->workers, &r->workers));
    TRY(arena_alloc_array(c->memory, (size_t)c->machine->n_links, sizeof *r->link_bytes,
                          &r->link_bytes));
    for (size_t i = 0; c->options->keep_times && i < n; i++)
        TRY(arena_alloc_array(c->memory, (size_t)c->workers[i].program->n_instrs,
                              sizeof *r->workers[i].times, &r->workers[i].times));
    return STATUS_OK;
}

static enum status prepare(struct clock_run *c, const struct clock_worker *workers)
{
    c->n_resources = c->n_workers + c->machine->n_links;
    TRY(arena_alloc_array(c->scratch, (size_t)c->n_workers, sizeof *c->workers, &c->workers));
    TRY(prepare_hosts(c));
    TRY(arena_alloc_array(c->scratch, (size_t)c->n_resources, sizeof *c->resources, &c->resources));
    for (int i = 0; i < c->n_workers; i++)
        c->resources[i].capacity = 1;
    for (int i = 0; i < c->machine->n_links; i++) {
        struct resource *r = &c->resources[c->n_workers + i];
        r->capacity = c->machine->links[i].bytes_per_s;
        r->burst = c->machine->links[i].burst_bytes;
    }
    for (int i = 0; i < c->n_workers; i++)
        TRY(add_worker(c, &workers[i], i));
    TRY(find_crowds(c));
    for (int i = 0; i < c->machine->n_nodes; i++)
        if (c->hosts[i].first_worker >= 0 && c->workers[c->hosts[i].first_worker].on_cpu)
            find_contention(c, &c->hosts[i]);
    TRY(prepare_result(c));
    TRY(flows_init(c));
    TRY(demands_init(c));
    return transfer_init(c);
}

/* ---- running ---- */

static enum status handle(struct clock_run *c, const struct clock_event *e)
{
    switch (e->kind) {
    case EVENT_COMPUTED:
        return worker_computed(c, e->target);
    case EVENT_RESUME:
        return worker_resume(c, e->target);
    case EVENT_START_COMM:
        return worker_start_comm(c, e->target);
    case EVENT_FED:
        return worker_fed(c, e->target);
    case EVENT_FLOW_BEGIN:
        return transfer_begin(c, e->target);
    case EVENT_FLOW_END:
        return transfer_flowed(c, e->target);
    }
    return STATUS_OK;
}

static bool is_stale(const struct clock_run *c, const struct clock_event *e)
{
    return (e->kind == EVENT_COMPUTED && e->version != c->workers[e->target].version) ||
           (e->kind == EVENT_FED && e->version != c->workers[e->target].feed_version);
}

static int first_unended(const struct worker *w, int n, const int *instrs)
{
    for (int k = 0; k < n; k++)
        if (!worker_has_ended(w, instrs[k]))
            return instrs[k];
    return -1;
}

/* Fails if a worker has not come to its end. Programs that passed verify_programs always do. */
static enum status check_ended(const struct clock_run *c)
{
    for (int i = 0; i < c->n_workers; i++) {
        const struct worker *w = &c->workers[i];
        const struct streams *s = w->streams;
        int at = first_unended(w, s->n_compute, s->compute), cause = -1;
        char text[160], cause_text[160];
        if (at >= 0)
            cause = first_unended(w, w->program->instrs[at].n_waits, w->program->instrs[at].waits);
        else
            at = first_unended(w, s->n_comm, s->comm);
        if (at < 0)
            continue;
        (void)program_instr_text(w->program, at, text, sizeof text);
        if (cause < 0)
            return status_fail(STATUS_FAILED, "simulated deadlock: worker %d never finishes %s", i,
                               text);
        return status_fail(STATUS_FAILED, "simulated deadlock: worker %d waits at %s for %s", i,
                           text,
                           program_instr_text(w->program, cause, cause_text, sizeof cause_text));
    }
    return STATUS_OK;
}

/* The next event, after costs and rates are settled. */
static enum status take_event(struct clock_run *c, struct clock_event *e, bool *there)
{
    bool changed = c->area.n_changed > 0 || c->n_changed_hosts > 0;
    if (changed && events_next_s(&c->events) > c->now_s) {
        TRY(flows_settle(c));
        TRY(workers_settle(c));
    }
    *there = events_take(&c->events, e);
    return STATUS_OK;
}

/* The clock of thousands of workers takes seconds; the first worker's progress is shown. */
static void show_progress(const struct clock_run *c, struct progress *p, int n_events)
{
    const struct worker *w = &c->workers[0];
    if (n_events % EVENTS_BETWEEN == 0 && w->streams->n_compute > 0)
        progress_show(p, (double)w->compute_at / w->streams->n_compute, "running the clock");
}

static enum status run(struct clock_run *c)
{
    struct clock_event e = {0};
    struct progress progress = {0};
    int n_events = 0;
    for (int i = 0; i < c->n_workers; i++)
        TRY(worker_prepare(c, i));
    for (int i = 0; i < c->n_workers; i++)
        TRY(worker_begin(c, i));
    for (bool there = true; there;) {
        TRY(take_event(c, &e, &there));
        if (!there || is_stale(c, &e))
            continue;
        c->now_s = e.t_s;
        show_progress(c, &progress, n_events++);
        TRY(handle(c, &e));
    }
    return check_ended(c);
}

/* ---- summing up ---- */

/* Relative errors: typical of a roofline, of what links and waits are taken to cost, and of workers
 * that share too few cores. */
static const double ROOFLINE_ERROR = 0.3, COMMUNICATION_ERROR = 0.15, CROWD_ERROR = 0.06;

/* Costs are off together, by half their spread where they were measured: the median of several
 * rounds is steadier than one of them. */
static void find_error(struct clock_run *c)
{
    struct clock_result *r = c->result;
    double off_s = 0, sum_s[COST_ORIGIN_COUNT] = {0}, all_s = 0, wait_s = 0, crowded_s = 0;
    for (int i = 0; i < c->n_workers; i++) {
        const struct worker *w = &c->workers[i];
        for (int k = 0; k < w->streams->n_compute; k++) {
            const struct instr_cost *cost = &w->costs[w->streams->compute[k]];
            off_s += cost->busy_s * (cost->origin == COST_ROOFLINE   ? ROOFLINE_ERROR
                                     : cost->origin == COST_MEASURED ? cost->spread / 2
                                                                     : cost->spread);
            sum_s[cost->origin] += cost->busy_s;
            all_s += cost->busy_s;
            crowded_s += c->hosts[w->host].crowded ? cost->busy_s : 0;
        }
        wait_s += r->workers[i].wait_s;
    }
    for (int k = 0; k < COST_ORIGIN_COUNT; k++)
        r->share[k] = all_s > 0 ? sum_s[k] / all_s : 0;
    off_s = hypot(hypot(off_s, COMMUNICATION_ERROR * wait_s), CROWD_ERROR * crowded_s);
    if (all_s + wait_s > 0)
        r->error_s = r->step_s * off_s / (all_s + wait_s);
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* As program_sent_bytes, but for this worker, which may share its program with twins: in a sum each
 * has a place of its own. */
static int64_t find_sent_bytes(const struct worker *w, int number)
{
    const struct program *p = w->program;
    int64_t sum = 0;
    for (int i = 0; i < w->streams->n_comm; i++) {
        const struct instr *instr = &p->instrs[w->streams->comm[i]];
        if (instr->kind == INSTR_SEND)
            sum += p->messages[instr->index].n_bytes;
        if (instr->kind != INSTR_REDUCE)
            continue;
        const struct comm_reduction *r = &p->reductions[instr->index].spec;
        const int *at =
            bsearch(&number, r->members, (size_t)r->n_members, sizeof number, by_number);
        sum += at ? comm_reduce_sent_bytes(r, (int)(at - r->members)) : 0;
    }
    return sum;
}

/* To start and gather the workers; a measurement on one host does not hold for several. */
static double find_step(const struct clock_run *c)
{
    bool several = c->workers[0].node != c->workers[c->n_workers - 1].node;
    double step_s = c->options->step_s > 0 && !several ? c->options->step_s : c->machine->step_s;
    return c->workers[0].on_cpu && c->n_workers > 1 ? step_s : 0;
}

static void sum_up(struct clock_run *c)
{
    struct clock_result *r = c->result;
    int n_steps = c->workers[0].program->n_steps;
    double rest_s = 0;
    for (int i = 0; i < c->n_workers; i++) {
        const struct program *p = c->workers[i].program;
        struct clock_worker_result *w = &r->workers[i];
        memcpy(w->memory_bytes, p->slab_bytes, sizeof w->memory_bytes);
        w->sent_bytes = find_sent_bytes(&c->workers[i], i);
        w->load_s = worker_feed_rest(c, i);
        w->wait_s += w->load_s;
        r->bytes_moved += w->sent_bytes;
        rest_s = fmax(rest_s, w->load_s);
    }
    for (int i = 0; i < c->machine->n_links; i++)
        r->link_bytes[i] /= n_steps;
    r->bytes_moved /= n_steps;
    r->run_s = c->now_s + rest_s + find_step(c);
    r->step_s = r->run_s / n_steps;
    find_error(c);
}

enum status clock_run(const struct clock_worker *workers, int n_workers,
                      const struct clock_options *options, arena *memory,
                      struct clock_result *result)
{
    const struct comm_table *table =
        options->transport ? comm_find_table(options->transport) : NULL;
    struct clock_run c = {.options = options,
                          .machine = options->machine,
                          .attends = table && table->shared_work,
                          .memory = memory,
                          .n_workers = n_workers,
                          .result = result};
    TRY(arena_create(&c.scratch));
    enum status st;
    TRY_GOTO(st, prepare(&c, workers), out);
    TRY_GOTO(st, run(&c), out);
    sum_up(&c);
out:
    events_deinit(&c.events);
    arena_destroy(c.scratch);
    return st;
}
