/* What is under way shares cores and links. A flow's rate is that of its slowest resource, of which
 * it gets an even share:
 *
 *     rate = min over demands ( capacity / flows on it / amount ),  at most 1 / least_s
 *
 * What one flow leaves unused of its share is not handed to the others: with few flows on a link it
 * makes no difference, and rates stay simple to follow. */
#include "clock/parts.h"

#include <math.h>

static double find_rate(const struct clock_run *c, const struct flow *f)
{
    double rate = f->least_s > 0 ? 1 / f->least_s : INFINITY;
    for (int i = 0; i < f->n_demands; i++) {
        const struct resource *r = &c->resources[f->demands[i].resource];
        if (f->demands[i].amount > 0)
            rate = fmin(rate, r->capacity / r->n_flows / f->demands[i].amount);
    }
    return rate;
}

/* Cores that the flow works on compute so much slower. */
static enum status tell_cores(struct clock_run *c, const struct flow *f, double change)
{
    for (int i = 0; i < f->n_demands; i++) {
        int w = f->demands[i].resource;
        if (w < c->n_workers && c->workers[w].on_cpu)
            TRY(worker_change_usage(c, w,
                                    c->workers[w].comm_usage + change * f->demands[i].amount));
    }
    return STATUS_OK;
}

static enum status plan_end(struct clock_run *c, int number)
{
    struct flow *f = &c->meetings[number].flow;
    double rest_s = f->rate > 0 ? f->left / f->rate : 0;
    return events_add(&c->events, c->now_s + rest_s, EVENT_FLOW_END, number, ++f->version);
}

static enum status settle(struct clock_run *c, int number)
{
    struct flow *f = &c->meetings[number].flow;
    double rate = find_rate(c, f);
    if (rate == f->rate)
        return STATUS_OK;
    double before = f->rate;
    if (isfinite(before))
        f->left = fmax(0, f->left - (c->now_s - f->since) * before);
    f->since = c->now_s;
    f->rate = rate;
    if (!isfinite(rate))
        f->left = 0;
    else
        TRY(tell_cores(c, f, rate - before));
    return plan_end(c, number);
}

/* All flows that meet the one that came or went. */
static enum status settle_neighbours(struct clock_run *c, int number)
{
    struct flow *f = &c->meetings[number].flow;
    for (int i = 0; i < f->n_demands; i++) {
        const struct resource *r = &c->resources[f->demands[i].resource];
        for (int k = 0; k < r->n_flows; k++)
            if (r->flows[k] != number)
                TRY(settle(c, r->flows[k]));
    }
    return STATUS_OK;
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

enum status flow_begin(struct clock_run *c, int number)
{
    struct flow *f = &c->meetings[number].flow;
    f->active = true;
    f->left = 1;
    f->rate = 0;
    f->since = c->now_s;
    for (int i = 0; i < f->n_demands; i++)
        TRY(join(c, &c->resources[f->demands[i].resource], number));
    TRY(settle(c, number));
    return settle_neighbours(c, number);
}

enum status flow_end(struct clock_run *c, int number)
{
    struct flow *f = &c->meetings[number].flow;
    f->active = false;
    f->version++;
    if (isfinite(f->rate))
        TRY(tell_cores(c, f, -f->rate));
    for (int i = 0; i < f->n_demands; i++)
        leave(&c->resources[f->demands[i].resource], number);
    return settle_neighbours(c, number);
}
