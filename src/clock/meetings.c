/* Transfers and reductions. Both sides of a message, or all members of a sum, must have come; then
 * it takes its latency, flows, and ends for all of them at once, as the transports do it.
 *
 * A message between CPU hosts streams: all messages from one worker to another go through one
 * connection, in the order in which they were sent, whether the receiver has asked for them or not.
 * So it flows when its sender has come and those before it have passed. Its sender may go on
 * earlier, when the rest of it is in buffers. */
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
    TRY(arena_alloc_array(c->scratch, (size_t)c->n_buckets, sizeof *c->lines, &c->lines));
    for (int i = 0; i < c->n_buckets; i++)
        c->lines[i] = -1;
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

/* Who comes last wakes the others, and is late by it. They are waking up meanwhile. */
static void ring_for_sleepers(struct clock_run *c, struct meeting *m, int w)
{
    double ring_s = c->attends ? c->machine->ring_s : 0;
    for (int i = 0; i < m->n_members; i++) {
        struct worker *sleeper = &c->workers[m->workers[i]];
        if (m->workers[i] == w || !worker_sleeps(c, sleeper))
            continue;
        m->latency_s += ring_s;
        c->workers[w].owed_s += ring_s;
        sleeper->rung_s = ring_s;
    }
}

/* ---- streaming ---- */

/* A message whose sender may go on before this share of it has flowed is in buffers at once. */
static const double AT_ONCE = 0.1;

static bool is_streamed(const struct clock_run *c, const struct meeting *m)
{
    const struct worker *from = &c->workers[m->first], *to = &c->workers[m->last];
    return !m->reduces && from->on_cpu && to->on_cpu && from->node != to->node &&
           !c->options->free_communication;
}

/* Of the connection; others may share it. */
static int *line_of(const struct clock_run *c, const struct meeting *m)
{
    uint64_t h = ((uint64_t)m->first << 32 ^ (uint64_t)m->last) * 0x9e3779b97f4a7c15u;
    return &c->lines[(h >> 32) % (uint64_t)c->n_buckets];
}

static bool same_way(const struct meeting *a, const struct meeting *b)
{
    return a->first == b->first && a->last == b->last;
}

/* Behind the others; *first: there is none before it on the same way. */
static void get_in_line(struct clock_run *c, int number, bool *first)
{
    struct meeting *m = &c->meetings[number];
    int *link = line_of(c, m);
    *first = true;
    for (; *link >= 0; link = &c->meetings[*link].next_in_line)
        *first = *first && !same_way(&c->meetings[*link], m);
    *link = number;
    m->next_in_line = -1;
}

/* Returns who is next on the same way; -1: none. */
static int leave_line(struct clock_run *c, int number)
{
    const struct meeting *m = &c->meetings[number];
    int *link = line_of(c, m), next = m->next_in_line;
    while (*link != number)
        link = &c->meetings[*link].next_in_line;
    *link = next;
    while (next >= 0 && !same_way(&c->meetings[next], m))
        next = c->meetings[next].next_in_line;
    return next;
}

/* The sender has come. */
static enum status start_stream(struct clock_run *c, int number, int w, int instr)
{
    struct meeting *m = &c->meetings[number];
    bool first = false;
    m->streams = true;
    TRY(demands_find(c, m));
    get_in_line(c, number, &first);
    if (first)
        return events_add(&c->events, c->now_s + m->latency_s, EVENT_FLOW_BEGIN, number, 0);
    m->told = m->load.sent_left > 1 - AT_ONCE;
    return m->told ? worker_communicated(c, w, instr) : STATUS_OK;
}

/* One side of a message that streams, or may. */
static enum status post_side(struct clock_run *c, int number, int w, int instr)
{
    struct meeting *m = &c->meetings[number];
    if (m->n_posted == m->n_members)
        leave_bucket(c, number);
    if (w == m->first)
        return start_stream(c, number, w, instr);
    if (!m->arrived)
        return STATUS_OK;
    set_free(c, number);
    return worker_communicated(c, w, instr);
}

/* ---- posting and ending ---- */

enum status meetings_post(struct clock_run *c, int w, int instr)
{
    struct meeting like = describe(&c->workers[w], w, instr);
    int number = -1;
    TRY(find_or_open(c, &like, &number));
    struct meeting *m = &c->meetings[number];
    m->workers[m->n_posted] = w;
    m->instrs[m->n_posted++] = instr;
    if (is_streamed(c, m))
        return post_side(c, number, w, instr);
    if (m->n_posted < m->n_members)
        return STATUS_OK;
    leave_bucket(c, number);
    if (!c->options->free_communication) {
        TRY(demands_find(c, m));
        ring_for_sleepers(c, m, w);
    }
    return events_add(&c->events, c->now_s + m->latency_s, EVENT_FLOW_BEGIN, number, 0);
}

/* Of all members that have come, or of the sender of a message alone. */
static enum status tell(struct clock_run *c, int number, bool sender, bool others)
{
    for (int i = 0; i < c->meetings[number].n_posted; i++) {
        const struct meeting *m = &c->meetings[number];
        if (!m->reduces && m->workers[i] == m->first ? sender : others)
            TRY(worker_communicated(c, m->workers[i], m->instrs[i]));
    }
    return STATUS_OK;
}

/* What streams stays until its receiver has come. */
static enum status finish(struct clock_run *c, int number, bool sender_waits)
{
    struct meeting *m = &c->meetings[number];
    int next = m->streams ? leave_line(c, number) : -1;
    bool waits = m->n_posted < m->n_members;
    m->arrived = true;
    if (next >= 0) /* right behind it: no latency of its own */
        TRY(events_add(&c->events, c->now_s, EVENT_FLOW_BEGIN, next, 0));
    TRY(tell(c, number, sender_waits && !m->told, true));
    if (!waits)
        set_free(c, number);
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
    return finish(c, number, true);
}

enum status meetings_flowed(struct clock_run *c, int flow)
{
    const struct flow *f = &c->flows[flow];
    int number = f->meeting;
    bool was_sent = f->sent;
    if (f->sent_left > 0 && !f->sent) {
        flow_pass(c, flow);
        return tell(c, number, !c->meetings[number].told, false);
    }
    TRY(flow_end(c, flow));
    return finish(c, number, !was_sent);
}
