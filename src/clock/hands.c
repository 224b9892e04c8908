/* What members of a message or a sum do together (comm_table.shared_work): it is cut into chunks,
 * and whoever of them has a hand free does the next one. Who waits does nothing else; who computes
 * looks in between two instructions, does COMM_CHUNKS_PER_POLL chunks at most, and goes on.
 *
 *     worker 0  [backward fc]##[backward conv2           ]##[backward conv1]
 *     worker 1  ..waits......###########################.. has it all
 *
 * So a large message to or from one that computes is mostly the other one's work, and takes twice
 * as long as between two that wait, which is how it was measured. */
#include "clock/parts.h"

#include <math.h>

/* Who waits for several shares its time between them. */
static double find_hands(const struct clock_run *c, const struct flow *f)
{
    double hands = 0;
    for (int i = 0; i < f->n_demands; i++) {
        const struct worker *w = &c->workers[f->demands[i].resource];
        const struct host *h = &c->hosts[w->host];
        double speed = h->crowded ? worker_pool_speed(h) : 1;
        hands += w->computing ? 0 : speed / c->resources[f->demands[i].resource].n_flows;
    }
    return hands;
}

enum status hands_settle(struct clock_run *c, const struct resource *core)
{
    for (int k = 0; k < core->n_flows; k++) {
        const struct flow *f = &c->flows[core->flows[k]];
        if (f->work_s > 0)
            TRY(flow_set_rate(c, core->flows[k], fmin(f->limit, find_hands(c, f) / f->work_s)));
    }
    return STATUS_OK;
}

/* Returns what it takes. */
static double do_part(struct clock_run *c, int flow)
{
    const struct flow *f = &c->flows[flow];
    double left = fmax(0, f->left - (c->now_s - f->since) * f->rate), part = fmin(left, f->visit);
    if (part > 0)
        flow_skip(c, flow, part);
    return part * f->work_s;
}

void hands_visit(struct clock_run *c, int worker)
{
    const struct resource *core = &c->resources[worker];
    for (int k = 0; c->attends && k < core->n_flows; k++)
        c->workers[worker].owed_s += do_part(c, core->flows[k]);
}

/* Who computes, or is about to, owes what taking part takes; who came last looks at it before it
 * goes on. Beside others that compute all takes longer, as instructions do. */
void hands_begin(struct clock_run *c, int flow)
{
    struct flow *f = &c->flows[flow];
    const struct meeting *m = &c->meetings[f->meeting];
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

void hands_turn(struct clock_run *c, int worker)
{
    if (c->attends && c->resources[worker].n_flows > 0)
        flows_note_change(c, worker);
}

void hands_change(struct clock_run *c, int worker)
{
    struct worker *w = &c->workers[worker];
    bool any = c->attends && c->resources[worker].n_flows > 0, lends = any && !w->computing;
    if (lends == w->lends)
        return;
    c->hosts[w->host].lending += lends - w->lends;
    w->lends = lends;
    workers_note_load(c, w);
}
