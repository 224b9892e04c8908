/* The demands of a transfer or a reduction on cores and links: its cost (cost.h) by the resources
 * of this run. */
#include "clock/parts.h"

enum status demands_init(struct clock_run *c)
{
    TRY(arena_alloc_array(c->scratch, (size_t)c->n_workers, sizeof *c->devices, &c->devices));
    return cost_create(c->machine, c->scratch, &c->cost);
}

/* Cores are the first resources, links follow. */
static enum status write_demands(struct clock_run *c, const struct cost_call *call,
                                 const int *members, struct load *load)
{
    const struct cost *cost = &c->cost;
    bool works = cost->core_s > 0 || cost->core_byte_s > 0;
    int n = cost->n_links + (works ? call->n_members : 0);
    if (n > load->capacity) {
        TRY(arena_alloc_array(c->scratch, (size_t)n, sizeof *load->demands, &load->demands));
        load->capacity = n;
    }
    load->n_demands = 0;
    for (int i = 0; i < cost->n_links; i++) {
        int link = cost->links[i];
        load->demands[load->n_demands++] =
            (struct demand){c->n_workers + link, cost->link_bytes[link]};
    }
    for (int i = 0; works && i < call->n_members; i++) {
        double core_s = cost_core_s(call, cost, i);
        if (core_s > 0)
            load->demands[load->n_demands++] = (struct demand){members[i], core_s};
    }
    return STATUS_OK;
}

enum status demands_find(struct clock_run *c, struct transfer *m)
{
    const struct comm_reduction *r = m->reduction;
    const int ends[2] = {m->first, m->last};
    const int *members = m->reduces ? r->members : ends;
    struct cost_call call = {.transport = c->options->transport,
                             .method = COMM_GATHER,
                             .n_bytes = m->n_bytes,
                             .n_members = m->n_members};
    if (m->reduces) {
        call.reduces = true;
        call.kind = r->kind;
        call.method = r->method;
        call.node_size = r->node_size;
        call.type = r->type;
        call.n_bytes = r->count * element_bytes(r->type);
    }
    for (int i = 0; i < (m->reduces ? r->n_members : 2); i++)
        c->devices[i] = c->workers[members[i]].device;
    cost_call(c->machine, &call, c->devices, &c->cost);
    m->latency_s = c->cost.latency_s;
    m->load.least_s = c->cost.least_s;
    m->load.sent_left = c->cost.sent_left;
    if (c->attends) {
        m->load.each_s = c->cost.each_s;
        m->load.work_s = c->cost.work_s;
        m->load.visit = c->cost.visit;
    }
    return write_demands(c, &call, members, &m->load);
}
