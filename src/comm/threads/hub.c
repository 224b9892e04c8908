#include "comm/threads/hub.h"

#include "comm/order.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MEETINGS_PER_BUCKET = 4, /* made at the start; more come when needed, and stay */
    LINE_BYTES = 64,
};

/* ---- meetings ---- */

static enum status make_meeting(int size, struct meeting **out)
{
    size_t n = (size_t)size;
    size_t n_bytes = sizeof(struct meeting) + n * (sizeof(void *) + sizeof(int) + sizeof(bool));
    n_bytes = (n_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    struct meeting *m = aligned_alloc(LINE_BYTES, n_bytes);
    if (!m)
        return status_no_memory(n_bytes);
    memset(m, 0, n_bytes);
    m->parts = (void **)(m + 1);
    m->members = (int *)(m->parts + n);
    m->posted = (bool *)(m->members + n);
    *out = m;
    return STATUS_OK;
}

static void free_meetings(struct meeting *m)
{
    while (m) {
        struct meeting *next = m->next;
        free(m);
        m = next;
    }
}

static int64_t element_bytes(const struct meeting *m)
{
    return m->kind == MEETING_REDUCE ? order_type_bytes(m->r.type) : 1;
}

static void open_meeting(struct meeting *m, enum meeting_kind kind, const struct comm_reduction *r)
{
    m->next = NULL;
    m->kind = kind;
    memcpy(m->members, r->members, (size_t)r->n_members * sizeof *m->members);
    memset(m->posted, 0, (size_t)r->n_members * sizeof *m->posted);
    m->r = *r;
    m->r.members = m->members;
    m->n_posted_locked = 0;
    atomic_store_explicit(&m->n_posted, 0, memory_order_relaxed);
    atomic_store_explicit(&m->n_left, 0, memory_order_relaxed);
    atomic_store_explicit(&m->next_chunk, 0, memory_order_relaxed);
    atomic_store_explicit(&m->chunks_done, 0, memory_order_relaxed);
    m->chunks = comm_cut(r->count, element_bytes(m), r->n_members);
}

static bool same_key(const struct meeting *m, enum meeting_kind kind,
                     const struct comm_reduction *r)
{
    return m->kind == kind && m->r.tag == r->tag && m->r.n_members == r->n_members &&
           memcmp(m->members, r->members, (size_t)r->n_members * sizeof *m->members) == 0;
}

static struct bucket *bucket_of(struct hub *hub, enum meeting_kind kind,
                                const struct comm_reduction *r)
{
    uint64_t h = (uint64_t)r->tag * 0x9e3779b97f4a7c15u + (uint64_t)kind;
    h = (h ^ (h >> 32) ^ (uint64_t)r->members[0]) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32) ^ (uint64_t)r->members[r->n_members - 1]) * 0x9e3779b97f4a7c15u;
    return &hub->buckets[(h >> 40) % BUCKET_COUNT];
}

static enum status check_same(const struct meeting *m, const struct comm_reduction *r)
{
    if (m->r.count == r->count && m->r.method == r->method && m->r.type == r->type &&
        m->r.node_size == r->node_size)
        return STATUS_OK;
    if (m->kind == MEETING_REDUCE)
        return status_fail(STATUS_FAILED,
                           "reduction %lld: the members disagree: %s of %lld elements, and %s of "
                           "%lld",
                           (long long)r->tag, comm_method_name(m->r.method), (long long)m->r.count,
                           comm_method_name(r->method), (long long)r->count);
    return status_fail(STATUS_FAILED,
                       "transfer %lld from worker %d to worker %d: one side has %lld bytes, the "
                       "other %lld",
                       (long long)r->tag, r->members[0], r->members[1], (long long)m->r.count,
                       (long long)r->count);
}

/* The oldest meeting of this key that `position` has not joined yet, or a new one. The bucket is
 * locked. */
static enum status find_or_open(struct hub *hub, struct bucket *b, enum meeting_kind kind,
                                const struct comm_reduction *r, int position, struct meeting **out)
{
    for (struct meeting *m = b->active; m; m = m->next) {
        if (same_key(m, kind, r) && !m->posted[position]) {
            *out = m;
            return check_same(m, r);
        }
    }
    struct meeting *m = b->free;
    if (m)
        b->free = m->next;
    else
        TRY(make_meeting(hub->size, &m));
    open_meeting(m, kind, r);
    if (b->active)
        b->last->next = m;
    else
        b->active = m;
    b->last = m;
    *out = m;
    return STATUS_OK;
}

/* Moves the meeting to the free ones. The bucket is locked. */
static void close_meeting(struct bucket *b, struct meeting *m)
{
    struct meeting **link = &b->active, *before = NULL;
    while (*link != m) {
        before = *link;
        link = &before->next;
    }
    *link = m->next;
    if (b->last == m)
        b->last = before;
    m->next = b->free;
    b->free = m;
}

static void leave(struct hub_op *op)
{
    struct meeting *m = op->meeting;
    op->meeting = NULL;
    int n_members = m->r.n_members; /* once this one has left, the meeting is the others' */
    if (atomic_fetch_add(&m->n_left, 1) + 1 < n_members)
        return;
    pthread_mutex_lock(&op->bucket->lock);
    close_meeting(op->bucket, m);
    pthread_mutex_unlock(&op->bucket->lock);
}

/* ---- the work ---- */

static void signal_others(const struct hub_end *end, const struct meeting *m)
{
    for (int i = 0; i < m->r.n_members; i++) {
        if (m->members[i] != end->c.rank)
            eventcount_signal(&end->hub->ends[m->members[i]]->event);
    }
}

static void do_chunk(const struct meeting *m, int64_t number)
{
    int64_t first = number * m->chunks.size;
    int64_t n = m->r.count - first < m->chunks.size ? m->r.count - first : m->chunks.size;
    if (n <= 0)
        return;
    if (m->kind != MEETING_REDUCE) {
        memcpy((char *)m->parts[1] + first, (const char *)m->parts[0] + first, (size_t)n);
        return;
    }
    void *at[m->r.n_members];
    for (int i = 0; i < m->r.n_members; i++)
        at[i] = (char *)m->parts[i] + first * element_bytes(m);
    order_sum_to_all(&m->r, at, first, n);
}

/* Claims and does up to `most` chunks. Between `working` and the look at `aborted` the order is
 * sequentially consistent: hub_abort, which writes the second and then reads the first, either
 * waits for this, or this stops. */
static void work(struct hub_end *end, struct meeting *m, int most)
{
    for (int i = 0; i < most; i++) {
        if (atomic_load_explicit(&m->next_chunk, memory_order_relaxed) >= m->chunks.n)
            return;
        atomic_store(&end->working, true);
        int64_t number = m->chunks.n;
        if (!atomic_load(&end->hub->aborted))
            number = atomic_fetch_add(&m->next_chunk, 1);
        if (number < m->chunks.n) {
            do_chunk(m, number);
            if (atomic_fetch_add(&m->chunks_done, 1) + 1 == m->chunks.n)
                signal_others(end, m);
        }
        atomic_store_explicit(&end->working, false, memory_order_release);
    }
}

enum status hub_post(struct hub_end *end, enum meeting_kind kind, const struct comm_reduction *r,
                     int position, void *data, struct hub_op *op)
{
    TRY(hub_check(end->hub));
    struct bucket *b = bucket_of(end->hub, kind, r);
    struct meeting *m = NULL;
    pthread_mutex_lock(&b->lock);
    enum status st = find_or_open(end->hub, b, kind, r, position, &m);
    if (st != STATUS_OK) {
        pthread_mutex_unlock(&b->lock);
        return st;
    }
    m->posted[position] = true;
    m->parts[position] = data;
    int n_posted = ++m->n_posted_locked;
    atomic_store_explicit(&m->n_posted, n_posted, memory_order_release);
    pthread_mutex_unlock(&b->lock);

    *op = (struct hub_op){.meeting = m, .bucket = b, .position = position};
    if (n_posted == r->n_members) {
        if (m->chunks.n == 1)
            work(end, m, 1); /* sooner done than said */
        else
            signal_others(end, m);
    }
    return STATUS_OK;
}

enum status hub_poll(struct hub_end *end, struct hub_op *op, bool *done)
{
    struct meeting *m = op->meeting;
    *done = !m;
    if (!m)
        return STATUS_OK;
    TRY(hub_check(end->hub));
    if (atomic_load_explicit(&m->n_posted, memory_order_acquire) < m->r.n_members)
        return STATUS_OK;
    work(end, m, COMM_CHUNKS_PER_POLL);
    if (atomic_load_explicit(&m->chunks_done, memory_order_acquire) == m->chunks.n) {
        leave(op);
        *done = true;
    } else if (atomic_load_explicit(&m->next_chunk, memory_order_relaxed) < m->chunks.n) {
        end->busy = true;
    }
    return STATUS_OK;
}

void hub_withdraw(struct hub_end *end, struct hub_op *op)
{
    struct meeting *m = op->meeting;
    if (!m)
        return;
    pthread_mutex_lock(&op->bucket->lock);
    bool complete = m->n_posted_locked == m->r.n_members;
    if (!complete) {
        m->posted[op->position] = false;
        atomic_store_explicit(&m->n_posted, --m->n_posted_locked, memory_order_relaxed);
        if (m->n_posted_locked == 0)
            close_meeting(op->bucket, m);
        op->meeting = NULL;
    }
    pthread_mutex_unlock(&op->bucket->lock);
    bool done = !complete;
    while (!done && hub_poll(end, op, &done) == STATUS_OK) {
    }
}

/* ---- ending in failure ---- */

/* Who hears that the hub was aborted will free memory that others may be reading: they finish the
 * chunk they are at, and begin no other. */
static void wait_for_workers(const struct hub *hub)
{
    for (int i = 0; i < hub->size; i++) {
        while (atomic_load(&hub->ends[i]->working))
            (void)sched_yield();
    }
}

void hub_abort(struct hub *hub, const char *why)
{
    pthread_mutex_lock(&hub->abort_lock);
    if (!atomic_load(&hub->aborted)) {
        (void)snprintf(hub->abort_text, sizeof hub->abort_text, "%s", why);
        atomic_store(&hub->aborted, true);
    }
    pthread_mutex_unlock(&hub->abort_lock);
    for (int i = 0; i < hub->size; i++)
        eventcount_signal(&hub->ends[i]->event);
    wait_for_workers(hub);
}

enum status hub_check(struct hub *hub)
{
    if (!atomic_load_explicit(&hub->aborted, memory_order_acquire))
        return STATUS_OK;
    wait_for_workers(hub);
    return status_fail(STATUS_LOST, "%s", hub->abort_text);
}

/* ---- making one ---- */

static enum status fill_bucket(struct hub *hub, struct bucket *b)
{
    for (int i = 0; i < MEETINGS_PER_BUCKET; i++) {
        struct meeting *m = NULL;
        TRY(make_meeting(hub->size, &m));
        m->next = b->free;
        b->free = m;
    }
    return STATUS_OK;
}

enum status hub_create(int size, struct hub **out)
{
    struct hub *hub = aligned_alloc(_Alignof(struct hub), sizeof *hub);
    if (!hub)
        return status_no_memory(sizeof *hub);
    memset(hub, 0, sizeof *hub);
    hub->size = size;
    (void)pthread_mutex_init(&hub->abort_lock, NULL);
    for (int i = 0; i < BUCKET_COUNT; i++)
        (void)pthread_mutex_init(&hub->buckets[i].lock, NULL);
    enum status st = STATUS_OK;
    hub->ends = calloc((size_t)size, sizeof *hub->ends);
    if (!hub->ends)
        st = status_no_memory((size_t)size * sizeof *hub->ends);
    for (int i = 0; i < BUCKET_COUNT && st == STATUS_OK; i++)
        st = fill_bucket(hub, &hub->buckets[i]);
    if (st != STATUS_OK) {
        hub_destroy(hub);
        return st;
    }
    *out = hub;
    return STATUS_OK;
}

void hub_destroy(struct hub *hub)
{
    for (int i = 0; i < BUCKET_COUNT; i++) {
        free_meetings(hub->buckets[i].active);
        free_meetings(hub->buckets[i].free);
        (void)pthread_mutex_destroy(&hub->buckets[i].lock);
    }
    (void)pthread_mutex_destroy(&hub->abort_lock);
    free(hub->ends);
    free(hub);
}
