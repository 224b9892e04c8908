/* Flows share cores and links max-min fairly (Bertsekas and Gallager, Data Networks, 6.5.2): no
 * flow's rate can be raised without lowering the rate of a flow that is no faster. TCP's streams
 * come near to that.
 *
 *     link 0, capacity 3   [a][b][c]     first offer 1 each      then 1.25, 0.5, 1.25
 *     link 1, capacity 1      [b][d]     first offer 0.5 each    full: b and d are settled
 *
 * Rates are found by progressive filling. Every resource offers each of its flows an even share of
 * its free capacity, and a flow could run at its least offer:
 *
 *     rate = min over demands ( left / flows that are not settled / amount ),  at most 1 / least_s
 *
 * A flow is settled at that rate if it cannot gain any more: it is at its own limit, or a resource
 * that limits it would be full if all flows ran at their offers. What settled flows leave is
 * offered to the others in the next pass.
 *
 * A flow that begins or ends changes only the flows that are connected with it, by a resource or
 * through other flows. All changes of a moment are settled together, before time goes on. Where
 * more than MOST_TOGETHER flows are connected, only direct neighbours are looked at, and what one
 * flow leaves is not offered again: there all links are about as full as each other. */
#include "base/array.h"
#include "clock/parts.h"

#include <math.h>

enum { MOST_TOGETHER = 128 };
/* Up to rounding, a share of this is full. */
static const double NEARLY = 1 - 1e-12;
static const double BURST_MOST = 0.98; /* of a load, so that some is left to flow */

/* As fmin, but inlined: filling spends its time here. */
static double least(double a, double b)
{
    return a < b ? a : b;
}

static double not_negative(double a)
{
    return a > 0 ? a : 0;
}

/* ---- rates ---- */

/* Cores that the flow works on compute slower. */
static enum status tell_cores(struct clock_run *c, const struct flow *f, double change)
{
    for (int i = 0; f->works && i < f->n_demands; i++) {
        int w = f->demands[i].resource;
        if (w < c->n_workers && c->workers[w].on_cpu)
            TRY(worker_change_usage(c, w,
                                    c->workers[w].comm_usage + change * f->demands[i].amount));
    }
    return STATUS_OK;
}

static void plan_end(struct clock_run *c, int number)
{
    const struct flow *f = &c->flows[number];
    double until = f->sent ? 0 : f->sent_left;
    double rest = not_negative(f->left - until);
    double stands = f->visit > 0 && rest > 0 ? INFINITY : 0; /* until a member helps */
    double end_s = c->now_s + (f->rate > 0 ? rest / f->rate : stands);
    events_set_end(&c->events, number, fmax(end_s, f->soonest_s));
}

enum status flow_set_rate(struct clock_run *c, int flow, double rate)
{
    struct flow *f = &c->flows[flow];
    double before = f->rate;
    if (fabs(rate - before) <= (1 - NEARLY) * before)
        return STATUS_OK;
    if (isfinite(before))
        f->left = not_negative(f->left - (c->now_s - f->since) * before);
    f->since = c->now_s;
    f->rate = rate;
    if (!isfinite(rate))
        f->left = 0;
    else
        TRY(tell_cores(c, f, rate - before));
    plan_end(c, flow);
    return STATUS_OK;
}

void flow_skip(struct clock_run *c, int flow, double share)
{
    struct flow *f = &c->flows[flow];
    f->left = not_negative(f->left - (c->now_s - f->since) * f->rate - share);
    f->since = c->now_s;
    plan_end(c, flow);
}

/* ---- filling ---- */

/* Where all amounts are equal the least share decides, and is divided once. */
static double find_offer(const struct clock_run *c, const struct flow *f)
{
    double rate = f->limit;
    if (f->even > 0) {
        double share = INFINITY;
        for (int i = 0; i < f->n_demands; i++)
            share = least(share, c->resources[f->demands[i].resource].share);
        return least(rate, share / f->even);
    }
    for (int i = 0; i < f->n_demands; i++)
        rate = least(rate, c->resources[f->demands[i].resource].share / f->demands[i].amount);
    return rate;
}

static void offer(struct clock_run *c)
{
    const struct flow_area *a = &c->area;
    for (int i = 0; i < a->n_resources; i++) {
        struct resource *r = &c->resources[a->resources[i]];
        r->wanted = 0;
        r->share = r->left / r->n_open;
    }
    for (int i = 0; i < a->n_open; i++) {
        struct flow *f = &c->flows[a->flows[i]];
        f->offer = find_offer(c, f);
        for (int k = 0; k < f->n_demands; k++)
            c->resources[f->demands[k].resource].wanted += f->offer * f->demands[k].amount;
    }
}

static double fullness(const struct resource *r)
{
    return r->n_open ? r->wanted / r->left : 0;
}

/* Where a flow's amounts differ no resource may be full: then the fullest counts. */
static double find_fullest(const struct clock_run *c)
{
    double most = 0;
    for (int i = 0; i < c->area.n_resources; i++)
        most = fmax(most, fullness(&c->resources[c->area.resources[i]]));
    return most;
}

static bool is_settled(const struct clock_run *c, const struct flow *f)
{
    if (f->offer >= f->limit * NEARLY)
        return true;
    for (int i = 0; i < f->n_demands; i++) {
        const struct resource *r = &c->resources[f->demands[i].resource];
        if (r->full && f->offer * f->demands[i].amount >= r->share * NEARLY)
            return true;
    }
    return false;
}

/* Moves settled flows behind the open ones; settle_some takes their shares off that capacity when
 * all flows have been looked at. */
static void part(struct clock_run *c, double full)
{
    struct flow_area *a = &c->area;
    for (int i = 0; i < a->n_resources; i++) {
        struct resource *r = &c->resources[a->resources[i]];
        r->full = fullness(r) >= full * NEARLY;
    }
    for (int i = a->n_open - 1; i >= 0; i--) {
        int number = a->flows[i];
        if (!is_settled(c, &c->flows[number]))
            continue;
        a->flows[i] = a->flows[--a->n_open];
        a->flows[a->n_open] = number;
    }
}

static void settle_some(struct clock_run *c)
{
    struct flow_area *a = &c->area;
    int before = a->n_open;
    part(c, 1);
    if (a->n_open == before)
        part(c, find_fullest(c));
    if (a->n_open == before) /* only rounding is left to share */
        a->n_open = 0;
    if (a->n_open == 0)
        return;
    for (int i = a->n_open; i < before; i++) {
        const struct flow *f = &c->flows[a->flows[i]];
        for (int k = 0; k < f->n_demands; k++) {
            struct resource *r = &c->resources[f->demands[k].resource];
            r->left = not_negative(r->left - f->offer * f->demands[k].amount);
            r->n_open--;
        }
    }
}

static enum status fill(struct clock_run *c)
{
    struct flow_area *a = &c->area;
    for (int i = 0; i < a->n_resources; i++) {
        struct resource *r = &c->resources[a->resources[i]];
        r->left = r->capacity;
        r->n_open = r->n_flows;
    }
    for (a->n_open = a->n_flows; a->n_open > 0;) {
        offer(c);
        settle_some(c);
    }
    for (int i = 0; i < a->n_flows; i++)
        TRY(flow_set_rate(c, a->flows[i], c->flows[a->flows[i]].offer));
    return STATUS_OK;
}

/* ---- which flows are connected ---- */

static void add_resource(struct clock_run *c, int resource)
{
    struct resource *r = &c->resources[resource];
    if (r->mark == c->area.mark)
        return;
    r->mark = c->area.mark;
    c->area.resources[c->area.n_resources++] = resource;
}

/* Adds the flows of a resource and their other resources; false if there are too many. */
static bool add_flows(struct clock_run *c, const struct resource *r)
{
    struct flow_area *a = &c->area;
    for (int k = 0; k < r->n_flows; k++) {
        struct flow *f = &c->flows[r->flows[k]];
        if (f->mark == a->mark || f->visit > 0)
            continue;
        if (a->n_flows == MOST_TOGETHER)
            return false;
        f->mark = a->mark;
        a->flows[a->n_flows++] = r->flows[k];
        for (int d = 0; d < f->n_demands; d++)
            add_resource(c, f->demands[d].resource);
    }
    return true;
}

/* Gathers the flows and resources that are connected with `resource`; false if they are too many,
 * or connected with an area that was too large since `first_mark`. */
static bool find_area(struct clock_run *c, int resource, int first_mark)
{
    struct flow_area *a = &c->area;
    a->mark++;
    a->n_flows = a->n_resources = 0;
    add_resource(c, resource);
    if (c->resources[resource].n_flows > MOST_TOGETHER) {
        c->resources[resource].crowded = a->mark;
        return false;
    }
    for (int i = 0; i < a->n_resources; i++) {
        const struct resource *r = &c->resources[a->resources[i]];
        if (r->crowded <= first_mark && add_flows(c, r))
            continue;
        for (int k = 0; k < a->n_resources; k++)
            c->resources[a->resources[k]].crowded = a->mark;
        return false;
    }
    return true;
}

/* Even shares, in one pass. A flow on several resources that changed is looked at once: shares stay
 * as they are until the next flow begins or ends. */
static enum status settle_crowd(struct clock_run *c, const struct resource *r, int first_mark)
{
    for (int k = 0; k < r->n_flows; k++) {
        struct flow *f = &c->flows[r->flows[k]];
        double rate = f->limit, share = INFINITY;
        if (f->evened > first_mark)
            continue;
        f->evened = first_mark + 1;
        for (int i = 0; i < f->n_demands; i++) {
            double own = c->resources[f->demands[i].resource].even_rate;
            if (f->even > 0)
                share = least(share, own);
            else
                rate = least(rate, own / f->demands[i].amount);
        }
        if (f->even > 0)
            rate = least(rate, share / f->even);
        TRY(flow_set_rate(c, r->flows[k], rate));
    }
    return STATUS_OK;
}

enum status flows_init(struct clock_run *c)
{
    struct flow_area *a = &c->area;
    size_t n = (size_t)c->n_resources;
    c->free_flow = -1;
    TRY(arena_alloc_array(c->scratch, n, sizeof *a->changed, &a->changed));
    TRY(arena_alloc_array(c->scratch, n, sizeof *a->resources, &a->resources));
    return arena_alloc_array(c->scratch, MOST_TOGETHER, sizeof *a->flows, &a->flows);
}

enum status flows_settle(struct clock_run *c)
{
    struct flow_area *a = &c->area;
    int first_mark = a->mark;
    for (int i = 0; i < a->n_changed; i++) {
        struct resource *r = &c->resources[a->changed[i]];
        r->changed = false;
        if (c->attends && a->changed[i] < c->n_workers) {
            TRY(shared_work_settle(c, r));
            continue;
        }
        if (r->filled > first_mark)
            continue; /* another resource of its area was settled */
        if (r->crowded > first_mark || !find_area(c, a->changed[i], first_mark)) {
            TRY(settle_crowd(c, r, first_mark));
            continue;
        }
        TRY(fill(c));
        for (int k = 0; k < a->n_resources; k++)
            c->resources[a->resources[k]].filled = a->mark;
    }
    a->n_changed = 0;
    return STATUS_OK;
}

/* ---- flows that begin and end ---- */

void flows_note_change(struct clock_run *c, int resource)
{
    struct resource *r = &c->resources[resource];
    r->even_rate = r->capacity / r->n_flows;
    if (resource < c->n_workers)
        shared_work_note_helping(c, resource);
    if (r->changed)
        return;
    r->changed = true;
    c->area.changed[c->area.n_changed++] = resource;
}

static enum status join(struct clock_run *c, struct resource *r, int number)
{
    TRY(array_reserve(c->scratch, &r->flows, r->n_flows + 1, &r->flow_capacity, sizeof *r->flows));
    r->flows[r->n_flows++] = number;
    return STATUS_OK;
}

static void leave(struct resource *r, int number)
{
    for (int i = 0; i < r->n_flows; i++)
        if (r->flows[i] == number) {
            r->flows[i] = r->flows[--r->n_flows];
            return;
        }
}

static enum status take_free(struct clock_run *c, int *out)
{
    *out = c->free_flow;
    if (c->free_flow >= 0) {
        c->free_flow = c->flows[c->free_flow].transfer;
        return STATUS_OK;
    }
    TRY(array_reserve(c->scratch, &c->flows, c->n_flows + 1, &c->flow_capacity, sizeof *c->flows));
    *out = c->n_flows++;
    return events_make_places(&c->events, c->n_flows);
}

/* The amount of all demands, or 0. */
static double find_even(const struct load *load)
{
    for (int i = 1; i < load->n_demands; i++)
        if (load->demands[i].amount < load->demands[0].amount ||
            load->demands[i].amount > load->demands[0].amount)
            return 0;
    return load->n_demands ? load->demands[0].amount : 0;
}

/* After a rest a shaped link (a token bucket) lets some bytes through at once: they are taken off
 * the load, which ends sooner by as much. Bytes saved up before the step are not known: none.
 */
static void use_bursts(struct clock_run *c, struct load *load)
{
    double spared_s = 0;
    for (int i = 0; i < load->n_demands; i++) {
        struct demand *d = &load->demands[i];
        struct resource *r = &c->resources[d->resource];
        if (r->burst <= 0)
            continue;
        if (r->n_flows == 0)
            r->saved = fmin(r->burst, r->saved + (c->now_s - r->idle_since) * r->capacity);
        double used = fmin(r->saved, BURST_MOST * d->amount);
        r->saved -= used;
        d->amount -= used;
        spared_s = fmax(spared_s, used / r->capacity);
    }
    load->least_s = fmax((1 - BURST_MOST) * load->least_s, load->least_s - spared_s);
}

static struct flow make_flow(const struct clock_run *c, int number)
{
    const struct load *load = &c->transfers[number].load;
    struct flow f = {.limit = load->least_s > 0 ? 1 / load->least_s : INFINITY,
                     .even = find_even(load),
                     .n_demands = load->n_demands,
                     .demands = load->demands,
                     .left = 1,
                     .since = c->now_s,
                     .sent_left = load->sent_left,
                     .work_s = load->work_s,
                     .visit = load->visit,
                     .transfer = number};
    for (int i = 0; i < f.n_demands && !(f.visit > 0); i++)
        f.works |= f.demands[i].resource < c->n_workers;
    return f;
}

enum status flow_begin(struct clock_run *c, int number)
{
    int at = -1;
    TRY(take_free(c, &at));
    struct flow *f = &c->flows[at];
    use_bursts(c, &c->transfers[number].load);
    *f = make_flow(c, number);
    for (int i = 0; i < f->n_demands; i++) {
        TRY(join(c, &c->resources[f->demands[i].resource], at));
        flows_note_change(c, f->demands[i].resource);
    }
    if (f->n_demands == 0)
        return flow_set_rate(c, at, f->limit);
    if (f->visit > 0)
        shared_work_begin(c, at);
    return STATUS_OK;
}

void flow_pass(struct clock_run *c, int flow)
{
    struct flow *f = &c->flows[flow];
    if (isfinite(f->rate))
        f->left = not_negative(f->left - (c->now_s - f->since) * f->rate);
    f->since = c->now_s;
    f->sent = true;
    plan_end(c, flow);
}

enum status flow_end(struct clock_run *c, int flow)
{
    struct flow *f = &c->flows[flow];
    if (isfinite(f->rate))
        TRY(tell_cores(c, f, -f->rate));
    for (int i = 0; i < f->n_demands; i++) {
        leave(&c->resources[f->demands[i].resource], flow);
        c->resources[f->demands[i].resource].idle_since = c->now_s;
        flows_note_change(c, f->demands[i].resource);
    }
    f->transfer = c->free_flow;
    c->free_flow = flow;
    return STATUS_OK;
}
