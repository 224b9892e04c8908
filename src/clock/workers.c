/* The two streams of a worker, as the executor runs them: computation in order, one instruction at
 * a time; communication started in order as soon as what it waits for has ended. */
#include "clock/parts.h"

#include <math.h>

/* The computing thread spins for so long before it sleeps, where another thread communicates. */
static const double SPIN_S = 20e-6;
/* The system evens out the queues of its cores within about a time slice (bench/oversubscribed.c;
 * Linux 6).
 */
static const double EVENED_S = 3e-3;
/* After a wait of this length caches are cold, whether the worker slept or spun: others computed.
 */
static const double COLD_S = 1e-3;
/* A core that is full of communication still computes a little: the system shares it out. */
static const double LEAST_RATE = 0.05;

static const struct instr *next_instr(const struct worker *w)
{
    return &w->program->instrs[w->streams->compute[w->compute_at]];
}

bool worker_has_ended(const struct worker *w, int instr)
{
    if (w->program->instrs[instr].stream == STREAM_COMPUTE)
        return w->computed >= instr;
    return w->done[w->comm_position[instr]];
}

static bool may_start(const struct worker *w, const struct instr *instr)
{
    for (int k = 0; k < instr->n_waits; k++)
        if (!worker_has_ended(w, instr->waits[k]))
            return false;
    return true;
}

/* The time to wake a thread that slept for so long, from the begin of the signal to it. */
static double find_wake(const struct clock_run *c, const struct worker *w, double slept_s)
{
    const struct machine *m = c->machine;
    if (!w->on_cpu || c->options->free_communication)
        return 0;
    double depth =
        slept_s > MACHINE_SHORT_SLEEP_S ? fmin(1, log10(slept_s / MACHINE_SHORT_SLEEP_S)) : 0;
    return m->wake_s + depth * (m->deep_wake_s - m->wake_s);
}

bool worker_sleeps(const struct clock_run *c, const struct worker *w)
{
    double spin_s = !c->attends ? SPIN_S : c->hosts[w->host].crowded ? 0 : COMM_SPIN_S;
    return w->on_cpu && !w->computing && !w->resuming && c->now_s - w->reached_s > spin_s;
}

/* ---- data ---- */

/* The threads that make the next step's samples share the worker's cores with its computation;
 * while it waits the cores are theirs. */
static double feed_usage(const struct clock_run *c, const struct worker *w)
{
    double threads = c->options->feed.threads;
    return w->on_cpu && w->feed_left_s > 0 ? threads / (threads + w->cores) : 0;
}

/* One thread's seconds per second. */
static double feed_speed(const struct clock_run *c, const struct worker *w)
{
    double threads = c->options->feed.threads, cores = w->cores;
    if (w->on_cpu && w->computing)
        cores *= threads / (threads + cores);
    return w->on_cpu ? fmin(threads, cores) : threads;
}

/* Called before the speed changes. */
static void settle_feed(const struct clock_run *c, struct worker *w)
{
    if (w->feed_left_s > 0)
        w->feed_left_s = fmax(0, w->feed_left_s - (c->now_s - w->feed_since) * feed_speed(c, w));
    w->feed_since = c->now_s;
}

static enum status plan_fed(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    if (!w->on_cpu || w->feed_left_s <= 0)
        return STATUS_OK;
    return events_add(&c->events, c->now_s + w->feed_left_s / feed_speed(c, w), EVENT_FED, number,
                      ++w->feed_version);
}

double worker_feed_rest(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    settle_feed(c, w);
    return w->feed_left_s > 0 ? w->feed_left_s / feed_speed(c, w) : 0;
}

bool worker_waits_for_others(const struct worker *w, const struct instr *instr)
{
    for (int k = 0; k < instr->n_waits; k++)
        if (w->program->instrs[instr->waits[k]].stream != STREAM_COMPUTE)
            return true;
    return false;
}

/* ---- computing ---- */

/* Workers that have a core: so many were measured side by side. */
static int most_at_once(const struct host *h, const struct worker *w)
{
    int room = h->pooled ? h->cores / w->cores : h->population;
    return room < h->population ? room : h->population;
}

double worker_find_load(const struct clock_run *c, const struct worker *w)
{
    const struct host *h = &c->hosts[w->host];
    int others = most_at_once(h, w) - 1;
    return w->on_cpu && others > 0 ? fmin(1, (double)(h->busy + h->helping - 1) / others) : 1;
}

/* Between alone and all busy, by how many workers of the host compute, or copy. */
static double find_cost(const struct clock_run *c, const struct worker *w)
{
    const struct instr_cost *cost = &w->costs[w->streams->compute[w->compute_at]];
    double cost_s = cost->alone_s + worker_find_load(c, w) * (cost->busy_s - cost->alone_s);
    if (w->cold)
        cost_s = fmax(cost_s, c->options->cold * cost->alone_s);
    return c->options->slowest > 0 ? c->options->slowest * cost_s : cost_s;
}

void workers_note_load(struct clock_run *c, const struct worker *w)
{
    struct host *h = &c->hosts[w->host];
    if (h->load_changed || h->population < 2 || !w->on_cpu)
        return;
    h->load_changed = true;
    c->changed_hosts[c->n_changed_hosts++] = w->host;
}

/* Communication comes first; in a crowd helping workers take turns with computing ones. */
double worker_pool_speed(const struct host *h)
{
    double left = h->cores - h->comm_usage, wanted = h->busy_cores + (h->crowded ? h->helping : 0);
    return wanted <= left ? 1 : fmax(0, left / wanted);
}

/* A thread stays in the queue of one core, and the system moves it to a shorter queue only after a
 * while. Of three workers on two cores two share one core, and the step waits for these:
 *
 *     core 0  [a][b][a][b]     ceil(n / cores) * cores / n  times as long as with a perfect
 *     core 1  [c][c]           division, but at most EVENED_S longer
 */
double clock_unevenness(int n, int places, double stretch_s)
{
    if (n <= places)
        return 1;
    int longest = (n + places - 1) / places;
    double even_s = stretch_s * n / places, worst = (double)longest * places / n - 1;
    return 1 + (even_s > 0 ? fmin(worst, EVENED_S / even_s) : worst);
}

/* Stages do not begin together: a woken thread goes where a core is free. */
static double find_unevenness(const struct host *h, const struct worker *w)
{
    int places = h->cores / w->cores > 0 ? h->cores / w->cores : 1;
    if (!h->crowded || w->program->plan->n_stages > 1)
        return 1;
    return clock_unevenness(h->busy, places, w->stretch_s[w->compute_at]);
}

static double find_speed(const struct clock_run *c, const struct worker *w)
{
    const struct host *h = &c->hosts[w->host];
    double speed = h->pooled ? worker_pool_speed(h) / find_unevenness(h, w) : 1 - w->usage;
    return w->on_cpu ? fmax(LEAST_RATE, speed - feed_usage(c, w)) : 1;
}

static enum status plan_end(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    w->rate = find_speed(c, w);
    w->since = c->now_s;
    return events_add(&c->events, c->now_s + w->left_s / w->rate, EVENT_COMPUTED, number,
                      ++w->version);
}

static enum status change_speed(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    if (!w->computing)
        return STATUS_OK;
    w->left_s = fmax(0, w->left_s - (c->now_s - w->since) * w->rate);
    return plan_end(c, number);
}

static enum status change_cost(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    if (!w->computing)
        return STATUS_OK;
    double cost_s = find_cost(c, w), change = w->cost_s > 0 ? cost_s / w->cost_s : 1;
    if (fabs(change - 1) < 1e-12)
        return STATUS_OK;
    w->left_s = change * fmax(0, w->left_s - (c->now_s - w->since) * w->rate);
    w->cost_s = cost_s;
    return plan_end(c, number);
}

enum status workers_settle(struct clock_run *c)
{
    for (int i = 0; i < c->n_changed_hosts; i++) {
        struct host *h = &c->hosts[c->changed_hosts[i]];
        h->load_changed = false;
        for (int k = h->first_worker; k >= 0; k = c->workers[k].next_on_host) {
            TRY(change_cost(c, k));
            if (h->crowded)
                TRY(change_speed(c, k));
        }
    }
    c->n_changed_hosts = 0;
    return STATUS_OK;
}

/* On a pooled host every worker's speed changes. */
static enum status change_pool(struct clock_run *c, const struct host *h, double before)
{
    if (!h->pooled || fabs(worker_pool_speed(h) - before) < 1e-12)
        return STATUS_OK;
    for (int i = h->first_worker; i >= 0; i = c->workers[i].next_on_host)
        TRY(change_speed(c, i));
    return STATUS_OK;
}

static enum status set_busy(struct clock_run *c, struct worker *w, bool busy)
{
    struct host *h = &c->hosts[w->host];
    double before = worker_pool_speed(h);
    if (busy != w->busy)
        workers_note_load(c, w);
    h->busy += busy - w->busy;
    h->busy_cores += (busy - w->busy) * w->cores;
    w->busy = busy;
    return change_pool(c, h, before);
}

static void keep_begin(struct clock_run *c, int number, int instr)
{
    struct clock_worker_result *r = &c->result->workers[number];
    r->wait_s += c->now_s - c->workers[number].reached_s;
    c->workers[number].began_s = c->now_s;
    if (r->times)
        r->times[instr].begin_s = c->now_s;
}

static enum status compute(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    int instr = w->streams->compute[w->compute_at];
    settle_feed(c, w);
    TRY(set_busy(c, w, true));
    w->computing = true;
    shared_work_note_computing(c, number);
    w->cost_s = find_cost(c, w);
    w->left_s = w->cost_s + fmax(0, w->owed_s - (c->now_s - w->reached_s));
    w->owed_s = w->signalled_s = 0;
    keep_begin(c, number, instr);
    TRY(plan_fed(c, number));
    return plan_end(c, number);
}

enum status worker_resume(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    w->resuming = false;
    return compute(c, number);
}

static enum status go_on(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    w->reached_s = c->now_s;
    if (w->compute_at == w->streams->n_compute || !may_start(w, next_instr(w)))
        return set_busy(c, w, false);
    w->cold = w->cold && !worker_waits_for_others(w, next_instr(w));
    return compute(c, number);
}

enum status worker_computed(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    struct clock_worker_result *r = &c->result->workers[number];
    int instr = w->streams->compute[w->compute_at++];
    settle_feed(c, w);
    w->computing = false;
    shared_work_note_computing(c, number);
    shared_work_poll(c, number);
    w->feed_version++;
    w->computed = instr;
    r->compute_s += c->now_s - w->began_s;
    if (r->times)
        r->times[instr].end_s = c->now_s;
    bool starts = w->streams->wakes_comm[instr] || w->starts_later;
    w->starts_later = false;
    if (starts && !w->starting && w->comm_at < w->streams->n_comm) {
        double wake_s = w->under_way || c->attends ? 0 : find_wake(c, w, 0);
        w->starting = true;
        TRY(events_add(&c->events, c->now_s + wake_s, EVENT_START_COMM, number, 0));
    }
    return go_on(c, number);
}

/* A worker that waits for another node polls. */
static enum status settle_usage(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    struct host *h = &c->hosts[w->host];
    double before = worker_pool_speed(h),
           waiting = w->far_under_way > 0 ? c->machine->wait_share : 0;
    bool counts = w->on_cpu && !c->options->free_communication;
    double usage = fmin(1, w->comm_usage + (counts ? waiting : 0));
    if (fabs(usage - w->usage) < 1e-12)
        return STATUS_OK;
    h->comm_usage = fmax(0, h->comm_usage + usage - w->usage);
    w->usage = usage;
    return h->pooled ? change_pool(c, h, before) : change_speed(c, number);
}

enum status worker_change_usage(struct clock_run *c, int number, double usage)
{
    c->workers[number].comm_usage = usage > 1e-9 ? usage : 0;
    return settle_usage(c, number);
}

static bool is_far(const struct clock_run *c, const struct worker *w, int instr)
{
    const struct instr *i = &w->program->instrs[instr];
    if (i->kind != INSTR_REDUCE)
        return c->workers[w->program->messages[i->index].peer].node != w->node;
    const struct comm_reduction *r = &w->program->reductions[i->index].spec;
    return c->workers[r->members[0]].node != c->workers[r->members[r->n_members - 1]].node;
}

static enum status change_under_way(struct clock_run *c, int number, int instr, int change)
{
    struct worker *w = &c->workers[number];
    if (!(c->machine->wait_share > 0) || !is_far(c, w, instr))
        return STATUS_OK;
    w->far_under_way += change;
    return settle_usage(c, number);
}

enum status worker_fed(struct clock_run *c, int number)
{
    c->workers[number].feed_left_s = 0;
    return change_speed(c, number);
}

/* ---- communicating ---- */

enum status worker_start_comm(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    w->starting = false;
    while (w->comm_at < w->streams->n_comm) {
        int instr = w->streams->comm[w->comm_at];
        struct clock_worker_result *r = &c->result->workers[number];
        if (!may_start(w, &w->program->instrs[instr]))
            return STATUS_OK;
        w->comm_at++;
        if (w->under_way++ == 0)
            w->under_way_since = c->now_s;
        if (r->times)
            r->times[instr].begin_s = c->now_s;
        TRY(change_under_way(c, number, instr, 1));
        TRY(transfer_post(c, number, instr));
    }
    return STATUS_OK;
}

enum status worker_communicated(struct clock_run *c, int number, int instr)
{
    struct worker *w = &c->workers[number];
    struct clock_worker_result *r = &c->result->workers[number];
    w->done[w->comm_position[instr]] = true;
    if (r->times)
        r->times[instr].end_s = c->now_s;
    if (--w->under_way == 0)
        r->communicate_s += c->now_s - w->under_way_since;
    TRY(change_under_way(c, number, instr, -1));
    if (c->attends && w->on_cpu && w->computing) {
        w->starts_later = true;
    } else if (!w->starting && w->comm_at < w->streams->n_comm) {
        w->starting = true;
        TRY(events_add(&c->events, c->now_s, EVENT_START_COMM, number, 0));
    }
    bool waits = !w->computing && !w->resuming && w->compute_at < w->streams->n_compute;
    if (!waits || !may_start(w, next_instr(w)))
        return STATUS_OK;
    w->cold = c->now_s - w->reached_s > COLD_S;
    double wake_s = worker_sleeps(c, w) ? find_wake(c, w, c->now_s - w->reached_s) : 0;
    w->resuming = true;
    TRY(set_busy(c, w, true));
    return events_add(&c->events, c->now_s + fmax(0, wake_s - w->signalled_s), EVENT_RESUME, number,
                      0);
}

/* ---- beginning ---- */

enum status worker_prepare(struct clock_run *c, int number)
{
    struct worker *w = &c->workers[number];
    const struct range *samples = &w->program->samples;
    const struct clock_feed *feed = &c->options->feed;
    w->computed = -1;
    if (feed->sample_s > 0 && feed->threads > 0)
        w->feed_left_s =
            (double)((samples->end - samples->begin) * w->program->n_steps) * feed->sample_s;
    return set_busy(c, w, w->streams->n_compute > 0 && may_start(w, next_instr(w)));
}

enum status worker_begin(struct clock_run *c, int number)
{
    c->workers[number].starting = true;
    TRY(events_add(&c->events, 0, EVENT_START_COMM, number, 0));
    return go_on(c, number);
}
