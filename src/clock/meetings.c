/* Transfers and reductions. Both sides of a message, or all members of a sum, must have come; then
 * it takes its latency, flows, and ends for all of them at once, as the transports do it. Only the
 * sender of a message over a network may go on earlier, when the rest of it is in buffers. */
#include "clock/parts.h"

enum { LEAST_BUCKETS = 1024 };

enum status meetings_init(struct clock_run *c)
{
    c->n_buckets = LEAST_BUCKETS;
    while (c->n_buckets < 16 * c->n_workers)
        c->n_buckets *= 2;
    c->free_meeting = -1;
    TRY(arena_alloc_array(c->scratch, (size_t)c->n_buckets, sizeof *c->buckets, &c->buckets));
    for (int i = 0; i < c->n_buckets; i++)
        c->buckets[i] = -1;
    return STATUS_OK;
}

static int *bucket_of(const struct clock_run *c, const struct meeting *m)
{
    uint64_t h = (uint64_t)m->tag * 2 + m->reduces;
    h = h * 0x9e3779b97f4a7c15u ^ (uint64_t)m->first;
    h = h * 0x9e3779b97f4a7c15u ^ (uint64_t)m->last;
    return &c->buckets[(h * 0x9e3779b97f4a7c15u >> 32) % (uint64_t)c->n_buckets];
}

static bool is_same(const struct meeting *a, const struct meeting *b)
{
    return a->tag == b->tag && a->reduces == b->reduces && a->first == b->first &&
           a->last == b->last && a->n_members == b->n_members;
}

static enum status grow(struct clock_run *c)
{
    int capacity = c->meeting_capacity ? 2 * c->meeting_capacity : 256;
    struct meeting *meetings;
    TRY(arena_alloc_array(c->scratch, (size_t)capacity, sizeof *meetings, &meetings));
    for (int i = 0; i < c->n_meetings; i++)
        meetings[i] = c->meetings[i];
    c->meetings = meetings;
    c->meeting_capacity = capacity;
    return STATUS_OK;
}

static enum status take_free(struct clock_run *c, int *out)
{
    *out = c->free_meeting;
    if (c->free_meeting >= 0) {
        c->free_meeting = c->meetings[c->free_meeting].next;
        return STATUS_OK;
    }
    if (c->n_meetings == c->meeting_capacity)
        TRY(grow(c));
    *out = c->n_meetings++;
    return STATUS_OK;
}

static void set_free(struct clock_run *c, int number)
{
    c->meetings[number].next = c->free_meeting;
    c->free_meeting = number;
}

/* What one that is used again has room for stays with it. */
static enum status fill_in(struct clock_run *c, struct meeting *m, struct meeting like)
{
    like.member_capacity = m->member_capacity;
    like.workers = m->workers;
    like.instrs = m->instrs;
    like.load = (struct load){.capacity = m->load.capacity, .demands = m->load.demands};
    if (like.n_members > like.member_capacity) {
        size_t n = (size_t)like.n_members;
        TRY(arena_alloc_array(c->scratch, n, sizeof *like.workers, &like.workers));
        TRY(arena_alloc_array(c->scratch, n, sizeof *like.instrs, &like.instrs));
        like.member_capacity = like.n_members;
    }
    *m = like;
    return STATUS_OK;
}

static enum status open_meeting(struct clock_run *c, struct meeting like, int *out)
{
    TRY(take_free(c, out));
    int *bucket = bucket_of(c, &like);
    like.next = *bucket;
    *bucket = *out;
    return fill_in(c, &c->meetings[*out], like);
}

static enum status find_or_open(struct clock_run *c, const struct meeting *like, int *out)
{
    for (int i = *bucket_of(c, like); i >= 0; i = c->meetings[i].next)
        if (is_same(&c->meetings[i], like)) {
            *out = i;
            return STATUS_OK;
        }
    return open_meeting(c, *like, out);
}

static struct meeting describe(const struct worker *w, int number, int instr)
{
    const struct program *p = w->program;
    const struct instr *i = &p->instrs[instr];
    if (i->kind == INSTR_REDUCE) {
        const struct comm_reduction *r = &p->reductions[i->index].spec;
        return (struct meeting){.tag = r->tag,
                                .reduces = true,
                                .n_members = r->n_members,
                                .first = r->members[0],
                                .last = r->members[r->n_members - 1],
                                .reduction = r};
    }
    const struct program_message *m = &p->messages[i->index];
    bool sends = i->kind == INSTR_SEND;
    return (struct meeting){.tag = m->tag,
                            .n_members = 2,
                            .first = sends ? number : m->peer,
                            .last = sends ? m->peer : number,
                            .n_bytes = m->n_bytes};
}

static void leave_bucket(struct clock_run *c, int number)
{
    int *link = bucket_of(c, &c->meetings[number]);
    while (*link != number)
        link = &c->meetings[*link].next;
    *link = c->meetings[number].next;
}

/* Who comes last wakes the others, and is late by it. */
static void ring_for_sleepers(struct clock_run *c, struct meeting *m, int w)
{
    double ring_s = c->attends ? c->machine->ring_s : 0;
    for (int i = 0; i < m->n_members; i++)
        if (m->workers[i] != w && worker_sleeps(c, &c->workers[m->workers[i]])) {
            m->latency_s += ring_s;
            c->workers[w].owed_s += ring_s;
        }
}

enum status meetings_post(struct clock_run *c, int w, int instr)
{
    struct meeting like = describe(&c->workers[w], w, instr);
    int number = -1;
    TRY(find_or_open(c, &like, &number));
    struct meeting *m = &c->meetings[number];
    m->workers[m->n_posted] = w;
    m->instrs[m->n_posted++] = instr;
    if (m->n_posted < m->n_members)
        return STATUS_OK;
    leave_bucket(c, number);
    if (!c->options->free_communication) {
        TRY(demands_find(c, m));
        ring_for_sleepers(c, m, w);
    }
    return events_add(&c->events, c->now_s + m->latency_s, EVENT_FLOW_BEGIN, number, 0);
}

/* Of all members, or of the sender of a message alone. */
static enum status tell(struct clock_run *c, int number, bool sender, bool others)
{
    for (int i = 0; i < c->meetings[number].n_members; i++) {
        const struct meeting *m = &c->meetings[number];
        if (!m->reduces && m->workers[i] == m->first ? sender : others)
            TRY(worker_communicated(c, m->workers[i], m->instrs[i]));
    }
    return STATUS_OK;
}

enum status meetings_begin(struct clock_run *c, int number)
{
    const struct load *load = &c->meetings[number].load;
    for (int i = 0; i < load->n_demands; i++)
        if (load->demands[i].resource >= c->n_workers)
            c->result->link_bytes[load->demands[i].resource - c->n_workers] +=
                load->demands[i].amount;
    if (load->n_demands > 0 || load->least_s > 0)
        return flow_begin(c, number);
    TRY(tell(c, number, true, true));
    set_free(c, number);
    return STATUS_OK;
}

enum status meetings_flowed(struct clock_run *c, int flow)
{
    const struct flow *f = &c->flows[flow];
    int number = f->meeting;
    bool was_sent = f->sent;
    if (f->sent_left > 0 && !f->sent) {
        flow_pass(c, flow);
        return tell(c, number, true, false);
    }
    TRY(flow_end(c, flow));
    TRY(tell(c, number, !was_sent, true));
    set_free(c, number);
    return STATUS_OK;
}
