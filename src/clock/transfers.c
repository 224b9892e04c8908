/* Messages and reductions. Both sides of a message, or all members of a sum, must have arrived
 * before it starts; then the latency passes, the flow runs, and the operation ends for all members
 * at once, as in the transports.
 *
 *     worker 0  [compute   ]post ..wait.............. end
 *     worker 1  [compute            ]post ........... end
 *                                        latency|flow|
 *
 * A message between CPU hosts streams: all messages from one worker to another go through one
 * connection, in the order in which they were sent, whether the receiver has posted or not. So the
 * message flows when its sender has posted and the messages before it have passed. Its sender may
 * go on earlier, when the rest of the message is in buffers. */
#include "base/array.h"
#include "clock/parts.h"

enum { LEAST_BUCKETS = 1024 };

enum status transfer_init(struct clock_run *c)
{
    c->n_buckets = LEAST_BUCKETS;
    while (c->n_buckets < 16 * c->n_workers)
        c->n_buckets *= 2;
    c->free_transfer = -1;
    TRY(arena_alloc_array(c->scratch, (size_t)c->n_buckets, sizeof *c->buckets, &c->buckets));
    for (int i = 0; i < c->n_buckets; i++)
        c->buckets[i] = -1;
    TRY(arena_alloc_array(c->scratch, (size_t)c->n_buckets, sizeof *c->lines, &c->lines));
    for (int i = 0; i < c->n_buckets; i++)
        c->lines[i] = -1;
    return STATUS_OK;
}

static int *bucket_of(const struct clock_run *c, const struct transfer *m)
{
    uint64_t h = (uint64_t)m->tag * 2 + m->reduces;
    h = h * 0x9e3779b97f4a7c15u ^ (uint64_t)m->first;
    h = h * 0x9e3779b97f4a7c15u ^ (uint64_t)m->last;
    return &c->buckets[(h * 0x9e3779b97f4a7c15u >> 32) % (uint64_t)c->n_buckets];
}

static bool is_same(const struct transfer *a, const struct transfer *b)
{
    return a->tag == b->tag && a->reduces == b->reduces && a->first == b->first &&
           a->last == b->last && a->n_members == b->n_members;
}

static void set_free(struct clock_run *c, int number)
{
    c->transfers[number].next = c->free_transfer;
    c->free_transfer = number;
}

/* A free one keeps its arrays. */
static enum status open_transfer(struct clock_run *c, struct transfer like, int *out)
{
    *out = c->free_transfer;
    if (*out >= 0) {
        c->free_transfer = c->transfers[*out].next;
    } else {
        TRY(array_reserve(c->scratch, &c->transfers, c->n_transfers + 1, &c->transfer_capacity,
                          sizeof *c->transfers));
        *out = c->n_transfers++;
        c->transfers[*out] = (struct transfer){0};
    }
    struct transfer *m = &c->transfers[*out];
    int *bucket = bucket_of(c, &like);
    like.next = *bucket;
    *bucket = *out;
    like.member_capacity = m->member_capacity;
    like.workers = m->workers;
    like.instrs = m->instrs;
    like.load = (struct load){.capacity = m->load.capacity, .demands = m->load.demands};
    if (!like.workers || like.n_members > like.member_capacity) {
        size_t n = (size_t)like.n_members;
        TRY(arena_alloc_array(c->scratch, n, sizeof *like.workers, &like.workers));
        TRY(arena_alloc_array(c->scratch, n, sizeof *like.instrs, &like.instrs));
        like.member_capacity = like.n_members;
    }
    *m = like;
    return STATUS_OK;
}

static enum status find_or_open(struct clock_run *c, const struct transfer *like, int *out)
{
    for (int i = *bucket_of(c, like); i >= 0; i = c->transfers[i].next)
        if (is_same(&c->transfers[i], like)) {
            *out = i;
            return STATUS_OK;
        }
    return open_transfer(c, *like, out);
}

static struct transfer describe(const struct worker *w, int number, int instr)
{
    const struct program *p = w->program;
    const struct instr *i = &p->instrs[instr];
    if (i->kind == INSTR_REDUCE) {
        const struct comm_reduction *r = &p->reductions[i->index].spec;
        return (struct transfer){.tag = r->tag,
                                 .reduces = true,
                                 .n_members = r->n_members,
                                 .first = r->members[0],
                                 .last = r->members[r->n_members - 1],
                                 .reduction = r};
    }
    const struct program_message *m = &p->messages[i->index];
    bool sends = i->kind == INSTR_SEND;
    return (struct transfer){.tag = m->tag,
                             .n_members = 2,
                             .first = sends ? number : m->peer,
                             .last = sends ? m->peer : number,
                             .n_bytes = m->n_bytes};
}

static void leave_bucket(struct clock_run *c, int number)
{
    int *link = bucket_of(c, &c->transfers[number]);
    while (*link != number)
        link = &c->transfers[*link].next;
    *link = c->transfers[number].next;
}

/* The member that arrives last wakes the others, which delays it. They are waking up meanwhile. */
static void ring_for_sleepers(struct clock_run *c, struct transfer *m, int w)
{
    double ring_s = c->attends ? c->machine->ring_s : 0;
    for (int i = 0; i < m->n_members; i++) {
        struct worker *sleeper = &c->workers[m->workers[i]];
        if (m->workers[i] == w || !worker_sleeps(c, sleeper))
            continue;
        m->latency_s += ring_s;
        c->workers[w].owed_s += ring_s;
        sleeper->signalled_s = ring_s;
    }
}

/* ---- streaming ---- */

/* A message whose sender may go on before this share of it has flowed is in buffers at once. */
static const double AT_ONCE = 0.1;

static bool is_streamed(const struct clock_run *c, const struct transfer *m)
{
    const struct worker *from = &c->workers[m->first], *to = &c->workers[m->last];
    return !m->reduces && from->on_cpu && to->on_cpu && from->node != to->node &&
           !c->options->free_communication;
}

/* The queue of the connection; other connections may share it. */
static int *line_of(const struct clock_run *c, const struct transfer *m)
{
    uint64_t h = ((uint64_t)m->first << 32 ^ (uint64_t)m->last) * 0x9e3779b97f4a7c15u;
    return &c->lines[(h >> 32) % (uint64_t)c->n_buckets];
}

static bool same_way(const struct transfer *a, const struct transfer *b)
{
    return a->first == b->first && a->last == b->last;
}

/* Appends it; *first: no message is before it on the same connection. */
static void get_in_line(struct clock_run *c, int number, bool *first)
{
    struct transfer *m = &c->transfers[number];
    int *link = line_of(c, m);
    *first = true;
    for (; *link >= 0; link = &c->transfers[*link].next_in_line)
        *first = *first && !same_way(&c->transfers[*link], m);
    *link = number;
    m->next_in_line = -1;
}

/* Returns the next message on the same connection; -1: none. */
static int leave_line(struct clock_run *c, int number)
{
    const struct transfer *m = &c->transfers[number];
    int *link = line_of(c, m), next = m->next_in_line;
    while (*link != number)
        link = &c->transfers[*link].next_in_line;
    *link = next;
    while (next >= 0 && !same_way(&c->transfers[next], m))
        next = c->transfers[next].next_in_line;
    return next;
}

/* The sender has posted. */
static enum status start_stream(struct clock_run *c, int number, int w, int instr)
{
    struct transfer *m = &c->transfers[number];
    bool first = false;
    m->streams = true;
    TRY(demands_find(c, m));
    get_in_line(c, number, &first);
    if (first)
        return events_add(&c->events, c->now_s + m->latency_s, EVENT_FLOW_BEGIN, number, 0);
    m->told = m->load.sent_left > 1 - AT_ONCE;
    return m->told ? worker_communicated(c, w, instr) : STATUS_OK;
}

/* One side of a message that streams has posted. */
static enum status post_side(struct clock_run *c, int number, int w, int instr)
{
    struct transfer *m = &c->transfers[number];
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

enum status transfer_post(struct clock_run *c, int w, int instr)
{
    struct transfer like = describe(&c->workers[w], w, instr);
    int number = -1;
    TRY(find_or_open(c, &like, &number));
    struct transfer *m = &c->transfers[number];
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

/* Ends the instructions of members that have posted: of the sender of a message, of the others. */
static enum status tell(struct clock_run *c, int number, bool sender, bool others)
{
    for (int i = 0; i < c->transfers[number].n_posted; i++) {
        const struct transfer *m = &c->transfers[number];
        if (!m->reduces && m->workers[i] == m->first ? sender : others)
            TRY(worker_communicated(c, m->workers[i], m->instrs[i]));
    }
    return STATUS_OK;
}

/* A message that streams stays until its receiver has posted. */
static enum status finish(struct clock_run *c, int number, bool sender_waits)
{
    struct transfer *m = &c->transfers[number];
    int next = m->streams ? leave_line(c, number) : -1;
    bool waits = m->n_posted < m->n_members;
    m->arrived = true;
    if (next >= 0) /* it follows at once, without a latency of its own */
        TRY(events_add(&c->events, c->now_s, EVENT_FLOW_BEGIN, next, 0));
    TRY(tell(c, number, sender_waits && !m->told, true));
    if (!waits)
        set_free(c, number);
    return STATUS_OK;
}

enum status transfer_begin(struct clock_run *c, int number)
{
    const struct load *load = &c->transfers[number].load;
    for (int i = 0; i < load->n_demands; i++)
        if (load->demands[i].resource >= c->n_workers)
            c->result->link_bytes[load->demands[i].resource - c->n_workers] +=
                load->demands[i].amount;
    if (load->n_demands > 0 || load->least_s > 0)
        return flow_begin(c, number);
    return finish(c, number, true);
}

enum status transfer_flowed(struct clock_run *c, int flow)
{
    const struct flow *f = &c->flows[flow];
    int number = f->transfer;
    bool was_sent = f->sent;
    if (f->sent_left > 0 && !f->sent) {
        flow_pass(c, flow);
        return tell(c, number, !c->transfers[number].told, false);
    }
    TRY(flow_end(c, flow));
    return finish(c, number, !was_sent);
}
