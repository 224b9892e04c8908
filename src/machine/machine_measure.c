/* Measuring a host's threads, and processes. The measurements themselves are in survey.c. */
#include "machine/machine_measure.h"

#include "base/numbers.h"
#include "machine/builder.h"
#include "machine/measure_host.h"
#include "machine/survey.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double wait_s =
    60; /* deadline for another worker; each should need less than a second */

/* ---- threads ---- */

struct team {
    struct machine_measure_options options;
    comm **ends;
    struct survey *surveys;
    struct status_error *errors;
};

static void take_part(int worker, void *user)
{
    struct team *t = user;
    struct survey *s = &t->surveys[worker];
    if (t->options.bind)
        t->options.bind(worker, t->options.workers, t->options.user);
    *s = (struct survey){.end = t->ends[worker], .options = &t->options};
    enum status st = arena_create(&s->memory);
    if (st == STATUS_OK)
        st = survey_run(s);
    else
        s->end->table->abort(s->end, st, status_message());
    if (st != STATUS_OK)
        status_take(st, &t->errors[worker]);
}

/* The cause, not a lost worker that follows from it. */
static enum status first_error(const struct team *t)
{
    const struct status_error *first = NULL;
    for (int i = 0; i < t->options.workers; i++) {
        const struct status_error *e = &t->errors[i];
        if (e->status != STATUS_OK && (!first || first->status == STATUS_LOST))
            first = e;
    }
    return first ? status_give(first) : STATUS_OK;
}

static enum status open_team(struct team *t)
{
    size_t n = (size_t)t->options.workers;
    t->ends = calloc(n, sizeof *t->ends);
    t->surveys = calloc(n, sizeof *t->surveys);
    t->errors = calloc(n, sizeof *t->errors);
    if (!t->ends || !t->surveys || !t->errors)
        return status_no_memory(n * sizeof *t->surveys);
    return comm_threads_create(t->options.workers, wait_s, t->ends);
}

static void close_team(struct team *t)
{
    for (int i = 0; i < t->options.workers; i++) {
        if (t->surveys)
            arena_destroy(t->surveys[i].memory);
        if (t->ends && t->ends[i])
            t->ends[i]->table->destroy(t->ends[i]);
    }
    free(t->errors);
    free(t->surveys);
    free(t->ends);
}

static enum status measure_curves(struct machine *m, const struct machine_measure_options *o)
{
    struct team t = {.options = *o};
    enum status st;
    TRY_GOTO(st, open_team(&t), out);
    TRY_GOTO(st, machine_run_threads(o->workers, take_part, &t), out);
    TRY_GOTO(st, first_error(&t), out);
    st = machine_replace_curves(m, t.ends[0]->table->name, t.surveys[0].curves,
                                t.surveys[0].n_curves);
out:
    close_team(&t);
    return st;
}

static enum status measure_memory(struct machine *m, const struct machine_measure_options *o)
{
    struct machine_kind *kind = &m->kinds[m->devices[0].kind];
    double bytes_per_s;
    if (kind->class != MACHINE_CPU)
        return STATUS_OK;
    TRY(machine_measure_memory(o, &bytes_per_s));
    kind->reached_bytes_per_s = bytes_per_s;
    kind->peak_bytes_per_s = fmax(kind->peak_bytes_per_s, bytes_per_s);
    return STATUS_OK;
}

static enum status measure_waking(struct machine *m, const struct machine_measure_options *o)
{
    double ring_s;
    TRY(machine_measure_wake(o, MACHINE_SHORT_SLEEP_S, &m->wake_s, &ring_s));
    return machine_measure_wake(o, 10 * MACHINE_SHORT_SLEEP_S, &m->deep_wake_s, &m->ring_s);
}

enum status machine_measure_threads(struct machine *m, const struct machine_measure_options *o)
{
    if (o->workers < 1 || o->workers > MACHINE_MAX_DEVICES)
        return status_fail(STATUS_USAGE, "%d workers: 1 to %d can be measured", o->workers,
                           MACHINE_MAX_DEVICES);
    TRY(measure_memory(m, o));
    TRY(measure_waking(m, o));
    TRY(machine_measure_step(o, &m->step_s));
    if (o->workers > 1)
        TRY(measure_curves(m, o));
    return machine_check(m);
}

/* ---- processes ---- */

/* Half of the median latency of the node's row (or column) of links: the other node's link has the
 * other half. */
static double half_latency(const struct survey *s, int node, bool out)
{
    double values[MACHINE_MAX_DEVICES];
    int n = 0;
    for (int i = 0; i < s->n_nodes && n < MACHINE_MAX_DEVICES; i++) {
        const struct survey_link *l =
            out ? &s->links[node * s->n_nodes + i] : &s->links[i * s->n_nodes + node];
        if (l->bytes_per_s > 0)
            values[n++] = l->latency_s / 2;
    }
    return numbers_median(values, n);
}

/* The node's fastest link: the others are limited by their other node. */
static struct survey_link best_way(const struct survey *s, int node, bool out)
{
    struct survey_link best = {0};
    for (int i = 0; i < s->n_nodes; i++) {
        const struct survey_link *l =
            out ? &s->links[node * s->n_nodes + i] : &s->links[i * s->n_nodes + node];
        if (l->bytes_per_s > best.bytes_per_s)
            best = *l;
    }
    best.latency_s = half_latency(s, node, out);
    return best;
}

static void set_link(struct machine *m, int link, struct survey_link found)
{
    if (link < 0 || !(found.bytes_per_s > 0))
        return;
    m->links[link].bytes_per_s = found.bytes_per_s;
    m->links[link].latency_s = found.latency_s;
    m->links[link].burst_bytes = found.burst_bytes;
}

static void set_links(struct machine *m, const struct survey *s)
{
    for (int i = 0; i < s->n_nodes && s->links; i++) {
        set_link(m, m->node_out[i], best_way(s, i, true));
        set_link(m, m->node_in[i], best_way(s, i, false));
    }
}

/* Each process measures its host; all use the first one's figure. */
static enum status measure_wake(struct machine *m, comm *process,
                                const struct machine_measure_options *o)
{
    enum status st = measure_waking(m, o);
    if (st != STATUS_OK) {
        process->table->abort(process, st, status_message());
        return st;
    }
    TRY(process->table->broadcast(process, 0, &m->ring_s, sizeof m->ring_s));
    TRY(process->table->broadcast(process, 0, &m->deep_wake_s, sizeof m->deep_wake_s));
    return process->table->broadcast(process, 0, &m->wake_s, sizeof m->wake_s);
}

static int count_nodes(const comm *process, const int *node_of_rank)
{
    int n = 0;
    for (int i = 0; i < process->size; i++)
        n = int_max(n, node_of_rank[i] + 1);
    return n;
}

/* The workers of a node divide its cores. */
static void bind_process(const comm *process, const int *node_of_rank,
                         const struct machine_measure_options *o)
{
    int place = 0, n_places = 0;
    for (int i = 0; i < process->size; i++) {
        bool neighbour = node_of_rank[i] == node_of_rank[process->rank];
        place += neighbour && i < process->rank;
        n_places += neighbour;
    }
    if (o->bind)
        o->bind(place, n_places, o->user);
}

static enum status measure_processes(struct machine *m, struct survey *s)
{
    TRY(survey_run(s));
    TRY(measure_wake(m, s->end, s->options));
    m->step_s = s->exchange_s;
    m->wait_share = s->wait_share;
    m->far_byte_s = s->far_byte_s;
    set_links(m, s);
    TRY(machine_replace_curves(m, s->end->table->name, s->curves, s->n_curves));
    return machine_check(m);
}

enum status machine_measure_processes(struct machine *m, comm *process, const int *node_of_rank,
                                      const struct machine_measure_options *options)
{
    struct machine_measure_options o = *options;
    if (count_nodes(process, node_of_rank) != m->n_nodes)
        return status_fail(STATUS_USAGE, "the machine has %d nodes, but the processes are on %d",
                           m->n_nodes, count_nodes(process, node_of_rank));
    bind_process(process, node_of_rank, &o);
    o.workers = 1;
    o.bind = NULL; /* threads inherit it */
    struct survey s = {.end = process, .node_of = node_of_rank, .options = &o};
    TRY(arena_create(&s.memory));
    enum status st = measure_processes(m, &s);
    arena_destroy(s.memory);
    return st;
}
