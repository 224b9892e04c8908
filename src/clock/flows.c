/* What is under way shares cores and links, max-min fairly: nobody's rate can be raised without
 * lowering that of one who has no more of what both use. TCP's streams come near to that.
 *
 *     link 0 [== a, b, c ==]   capacity 3: b is held up by link 1 and leaves half of its third;
 *     link 1 [== b, d ==]      capacity 1  a and c get it: 1.25, 0.5, 1.25; and d 0.5
 *
 * Rates are found by filling. Every resource offers each of its flows an even share of what is
 * left of it; a flow could go as fast as its least offer lets it,
 *
 *     rate = min over demands ( left / flows that are not settled / amount ),  at most 1 / least_s
 *
 * and is settled at that if it cannot gain any more: it goes at most so fast by itself, or the
 * resource that holds it up would be full if all went like this. What settled flows leave is
 * offered again to the others.
 *
 * Only flows that are joined to one that came or went, by a resource or through others, can change.
 * All changes of a moment are settled together, before time goes on. In a crowd of more than
 * MOST_TOGETHER flows only the direct neighbours are looked at, and what one leaves is not handed
 * on: there all links are about as full as each other. */
#include "clock/parts.h"

#include <math.h>

enum { MOST_TOGETHER = 128 };
/* What is as good as full, or as slow as. */
static const double NEARLY = 1 - 1e-12;
static const double BURST_MOST = 0.98; /* of a load, so that some is left to flow */

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double not_negative(double a)
{
    return a > 0 ? a : 0;
}

/* ---- rates ---- */

/* Cores that the flow works on compute so much slower. */
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
    double stands = f->visit > 0 && rest > 0 ? INFINITY : 0; /* until somebody has a hand free */
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

/* Where all amounts are alike the least share decides, and is divided once. */
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

/* Where amounts are of unlike proportions no resource may be full: then the fullest counts. */
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

/* Those that are settled come behind the open ones, and take what they got only when all have been
 * looked at. */
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
    if (a->n_open == before) /* no more than rounding is left to give away */
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

/* ---- who is joined to whom ---- */

static void add_resource(struct clock_run *c, int resource)
{
    struct resource *r = &c->resources[resource];
    if (r->mark == c->area.mark)
        return;
    r->mark = c->area.mark;
    c->area.resources[c->area.n_resources++] = resource;
}

/* The flows of a resource of the area, and what they demand; false if there are too many. */
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

/* Flows and resources that are joined to `resource`; false if they are too many, or joined to an
 * area that was since `first_mark`. */
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

/* Even shares, nothing handed on. Who uses several resources that changed is looked at once: shares
 * stay as they are until the next flow comes or goes. */
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
            TRY(hands_settle(c, r));
            continue;
        }
        if (r->filled > first_mark)
            continue; /* it is joined to another that changed */
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

/* ---- coming and going ---- */

void flows_note_change(struct clock_run *c, int resource)
{
    struct resource *r = &c->resources[resource];
    r->even_rate = r->capacity / r->n_flows;
    if (resource < c->n_workers)
        hands_change(c, resource);
    if (r->changed)
        return;
    r->changed = true;
    c->area.changed[c->area.n_changed++] = resource;
}

static enum status join(struct clock_run *c, struct resource *r, int number)
{
    if (r->n_flows == r->flow_capacity) {
        int capacity = r->flow_capacity ? 2 * r->flow_capacity : 4, *flows;
        TRY(arena_alloc_array(c->scratch, (size_t)capacity, sizeof *flows, &flows));
        for (int i = 0; i < r->n_flows; i++)
            flows[i] = r->flows[i];
        r->flows = flows;
        r->flow_capacity = capacity;
    }
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

static enum status grow(struct clock_run *c)
{
    int capacity = c->flow_capacity ? 2 * c->flow_capacity : 64;
    struct flow *flows;
    TRY(arena_alloc_array(c->scratch, (size_t)capacity, sizeof *flows, &flows));
    for (int i = 0; i < c->n_flows; i++)
        flows[i] = c->flows[i];
    c->flows = flows;
    c->flow_capacity = capacity;
    return events_make_places(&c->events, capacity);
}

static enum status take_free(struct clock_run *c, int *out)
{
    *out = c->free_flow;
    if (c->free_flow >= 0) {
        c->free_flow = c->flows[c->free_flow].meeting;
        return STATUS_OK;
    }
    if (c->n_flows == c->flow_capacity)
        TRY(grow(c));
    *out = c->n_flows++;
    return STATUS_OK;
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

/* After a rest a shaped link lets some of it through at once: that is taken off the load, which
 * ends sooner by as much. What was saved up before the step is not known: nothing. */
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

static struct flow make_flow(const struct clock_run *c, int meeting)
{
    const struct load *load = &c->meetings[meeting].load;
    struct flow f = {.limit = load->least_s > 0 ? 1 / load->least_s : INFINITY,
                     .even = find_even(load),
                     .n_demands = load->n_demands,
                     .demands = load->demands,
                     .left = 1,
                     .since = c->now_s,
                     .sent_left = load->sent_left,
                     .work_s = load->work_s,
                     .visit = load->visit,
                     .meeting = meeting};
    for (int i = 0; i < f.n_demands && !(f.visit > 0); i++)
        f.works |= f.demands[i].resource < c->n_workers;
    return f;
}

enum status flow_begin(struct clock_run *c, int number)
{
    int at = -1;
    TRY(take_free(c, &at));
    struct flow *f = &c->flows[at];
    use_bursts(c, &c->meetings[number].load);
    *f = make_flow(c, number);
    for (int i = 0; i < f->n_demands; i++) {
        TRY(join(c, &c->resources[f->demands[i].resource], at));
        flows_note_change(c, f->demands[i].resource);
    }
    if (f->n_demands == 0)
        return flow_set_rate(c, at, f->limit);
    if (f->visit > 0)
        hands_begin(c, at);
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
    f->meeting = c->free_flow;
    c->free_flow = flow;
    return STATUS_OK;
}
