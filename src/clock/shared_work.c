/* The work of a message or a sum that its members share (comm_table.shared_work). The transport
 * cuts it into chunks, and a member that is free does the next one. A waiting worker does nothing
 * else; a computing worker polls between two instructions, does COMM_CHUNKS_PER_POLL chunks at
 * most, and goes on.
 *
 *     worker 0  [backward fc]##[backward conv2           ]##[backward conv1]
 *     worker 1  ..waits......###########################.. has it all
 *
 * So a large message to or from a computing worker is mostly the other worker's work, and takes
 * twice as long as between two waiting workers, which is how it was measured. */
#include "clock/parts.h"

#include <math.h>

/* A worker that waits for several flows divides its time between them. */
static double count_helpers(const struct clock_run *c, const struct flow *f)
{
    double helpers = 0;
    for (int i = 0; i < f->n_demands; i++) {
        const struct worker *w = &c->workers[f->demands[i].resource];
        const struct host *h = &c->hosts[w->host];
        double speed = h->crowded ? worker_pool_speed(h) : 1;
        helpers += w->computing ? 0 : speed / c->resources[f->demands[i].resource].n_flows;
    }
    return helpers;
}

enum status shared_work_settle(struct clock_run *c, const struct resource *core)
{
    for (int k = 0; k < core->n_flows; k++) {
        const struct flow *f = &c->flows[core->flows[k]];
        if (f->work_s > 0)
            TRY(flow_set_rate(c, core->flows[k], fmin(f->limit, count_helpers(c, f) / f->work_s)));
    }
    return STATUS_OK;
}

/* Does one poll's share of a flow; returns the seconds that it takes. */
static double do_part(struct clock_run *c, int flow)
{
    const struct flow *f = &c->flows[flow];
    double left = fmax(0, f->left - (c->now_s - f->since) * f->rate), part = fmin(left, f->visit);
    if (part > 0)
        flow_skip(c, flow, part);
    return part * f->work_s;
}

void shared_work_poll(struct clock_run *c, int worker)
{
    const struct resource *core = &c->resources[worker];
    for (int k = 0; c->attends && k < core->n_flows; k++)
        c->workers[worker].owed_s += do_part(c, core->flows[k]);
}

/* Every member is charged the cost of taking part, which delays it if it computes; the member that
 * arrived last polls once before it goes on. Beside busy neighbours the work takes longer, as
 * instructions do. */
void shared_work_begin(struct clock_run *c, int flow)
{
    struct flow *f = &c->flows[flow];
    const struct transfer *m = &c->transfers[f->transfer];
    struct worker *last = &c->workers[m->workers[m->n_members - 1]];
    double slower = 1 + worker_find_load(c, last) * (c->hosts[last->host].contention - 1);
    f->work_s *= slower;
    f->limit /= slower;
    f->soonest_s = c->now_s + 1 / f->limit;
    for (int i = 0; i < m->n_members; i++)
        c->workers[m->workers[i]].owed_s += m->load.each_s;
    if (last->computing)
        last->owed_s += do_part(c, flow);
    if (!(f->work_s > 0))
        flow_skip(c, flow, 1);
}

void shared_work_note_computing(struct clock_run *c, int worker)
{
    if (c->attends && c->resources[worker].n_flows > 0)
        flows_note_change(c, worker);
}

void shared_work_note_helping(struct clock_run *c, int worker)
{
    struct worker *w = &c->workers[worker];
    bool any = c->attends && c->resources[worker].n_flows > 0, helps = any && !w->computing;
    if (helps == w->helps)
        return;
    c->hosts[w->host].helping += helps - w->helps;
    w->helps = helps;
    workers_note_load(c, w);
}
