#include "comm/threads/rendezvous.h"

#include "comm/order.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PER_BUCKET = 4, /* made at the start; more come when needed, and stay */
    LINE_BYTES = 64,
};

/* ---- rendezvous ---- */

static enum status make_rendezvous(int size, struct rendezvous **out)
{
    size_t n = (size_t)size;
    size_t n_bytes = sizeof(struct rendezvous) + n * (sizeof(void *) + sizeof(int) + sizeof(bool));
    n_bytes = (n_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    struct rendezvous *m = aligned_alloc(LINE_BYTES, n_bytes);
    if (!m)
        return status_no_memory(n_bytes);
    memset(m, 0, n_bytes);
    m->parts = (void **)(m + 1);
    m->members = (int *)(m->parts + n);
    m->posted = (bool *)(m->members + n);
    *out = m;
    return STATUS_OK;
}

static void free_rendezvous(struct rendezvous *m)
{
    while (m) {
        struct rendezvous *next = m->next;
        free(m);
        m = next;
    }
}

static int64_t unit_bytes(const struct rendezvous *m)
{
    return m->kind == RENDEZVOUS_REDUCE ? element_bytes(m->r.type) : 1;
}

static void open_rendezvous(struct rendezvous *m, enum rendezvous_kind kind,
                            const struct comm_reduction *r)
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
    m->chunks = comm_cut(r->count, unit_bytes(m), r->n_members);
}

static bool same_key(const struct rendezvous *m, enum rendezvous_kind kind,
                     const struct comm_reduction *r)
{
    return m->kind == kind && m->r.tag == r->tag && m->r.n_members == r->n_members &&
           memcmp(m->members, r->members, (size_t)r->n_members * sizeof *m->members) == 0;
}

static struct bucket *bucket_of(struct thread_group *group, enum rendezvous_kind kind,
                                const struct comm_reduction *r)
{
    uint64_t h = (uint64_t)r->tag * 0x9e3779b97f4a7c15u + (uint64_t)kind;
    h = (h ^ (h >> 32) ^ (uint64_t)r->members[0]) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32) ^ (uint64_t)r->members[r->n_members - 1]) * 0x9e3779b97f4a7c15u;
    return &group->buckets[(h >> 40) % BUCKET_COUNT];
}

static enum status check_same(const struct rendezvous *m, const struct comm_reduction *r)
{
    if (m->r.count == r->count && m->r.kind == r->kind && m->r.method == r->method &&
        m->r.type == r->type && m->r.node_size == r->node_size)
        return STATUS_OK;
    if (m->kind == RENDEZVOUS_REDUCE)
        return status_fail(STATUS_FAILED,
                           "reduction %lld: the members disagree: %s by %s of %lld elements, and "
                           "%s by %s of %lld",
                           (long long)r->tag, comm_kind_name(m->r.kind),
                           comm_method_name(m->r.method), (long long)m->r.count,
                           comm_kind_name(r->kind), comm_method_name(r->method),
                           (long long)r->count);
    return status_fail(STATUS_FAILED,
                       "transfer %lld from worker %d to worker %d: one side has %lld bytes, the "
                       "other %lld",
                       (long long)r->tag, r->members[0], r->members[1], (long long)m->r.count,
                       (long long)r->count);
}

/* The oldest rendezvous of this key that `position` has not joined yet, or a new one. The bucket is
 * locked. */
static enum status find_or_open(struct thread_group *group, struct bucket *b,
                                enum rendezvous_kind kind, const struct comm_reduction *r,
                                int position, struct rendezvous **out)
{
    for (struct rendezvous *m = b->active; m; m = m->next) {
        if (same_key(m, kind, r) && !m->posted[position]) {
            *out = m;
            return check_same(m, r);
        }
    }
    struct rendezvous *m = b->free;
    if (m)
        b->free = m->next;
    else
        TRY(make_rendezvous(group->size, &m));
    open_rendezvous(m, kind, r);
    if (b->active)
        b->last->next = m;
    else
        b->active = m;
    b->last = m;
    *out = m;
    return STATUS_OK;
}

/* Moves the rendezvous to the free ones. The bucket is locked. */
static void close_rendezvous(struct bucket *b, struct rendezvous *m)
{
    struct rendezvous **link = &b->active, *before = NULL;
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

static void leave(struct rendezvous_op *op)
{
    struct rendezvous *m = op->rendezvous;
    op->rendezvous = NULL;
    int n_members = m->r.n_members; /* once this one has left, the rendezvous is the others' */
    if (atomic_fetch_add(&m->n_left, 1) + 1 < n_members)
        return;
    pthread_mutex_lock(&op->bucket->lock);
    close_rendezvous(op->bucket, m);
    pthread_mutex_unlock(&op->bucket->lock);
}

/* ---- the work ---- */

static void signal_others(const struct thread_rank *self, const struct rendezvous *m)
{
    for (int i = 0; i < m->r.n_members; i++) {
        if (m->members[i] != self->c.rank)
            eventcount_signal(&self->group->ranks[m->members[i]]->event);
    }
}

static void do_chunk(const struct rendezvous *m, int64_t number)
{
    int64_t first = number * m->chunks.size;
    int64_t n = m->r.count - first < m->chunks.size ? m->r.count - first : m->chunks.size;
    if (n <= 0)
        return;
    if (m->kind != RENDEZVOUS_REDUCE) {
        memcpy((char *)m->parts[1] + first, (const char *)m->parts[0] + first, (size_t)n);
        return;
    }
    void *at[m->r.n_members];
    for (int i = 0; i < m->r.n_members; i++)
        at[i] = (char *)m->parts[i] + first * unit_bytes(m);
    order_run(&m->r, at, first, n);
}

/* Claims and does up to `most` chunks. Between `working` and the look at `aborted` the order is
 * sequentially consistent: group_abort, which writes the second and then reads the first, either
 * waits for this, or this stops. */
static void work(struct thread_rank *self, struct rendezvous *m, int most)
{
    for (int i = 0; i < most; i++) {
        if (atomic_load_explicit(&m->next_chunk, memory_order_relaxed) >= m->chunks.n)
            return;
        atomic_store(&self->working, true);
        int64_t number = m->chunks.n;
        if (!atomic_load(&self->group->aborted))
            number = atomic_fetch_add(&m->next_chunk, 1);
        if (number < m->chunks.n) {
            do_chunk(m, number);
            if (atomic_fetch_add(&m->chunks_done, 1) + 1 == m->chunks.n)
                signal_others(self, m);
        }
        atomic_store_explicit(&self->working, false, memory_order_release);
    }
}

enum status rendezvous_post(struct thread_rank *self, enum rendezvous_kind kind,
                            const struct comm_reduction *r, int position, void *data,
                            struct rendezvous_op *op)
{
    TRY(group_check(self->group));
    struct bucket *b = bucket_of(self->group, kind, r);
    struct rendezvous *m = NULL;
    pthread_mutex_lock(&b->lock);
    enum status st = find_or_open(self->group, b, kind, r, position, &m);
    if (st != STATUS_OK) {
        pthread_mutex_unlock(&b->lock);
        return st;
    }
    m->posted[position] = true;
    m->parts[position] = data;
    int n_posted = ++m->n_posted_locked;
    atomic_store_explicit(&m->n_posted, n_posted, memory_order_release);
    pthread_mutex_unlock(&b->lock);

    *op = (struct rendezvous_op){.rendezvous = m, .bucket = b, .position = position};
    if (n_posted == r->n_members) {
        if (m->chunks.n == 1)
            work(self, m, 1); /* takes less time than waking the others */
        else
            signal_others(self, m);
    }
    return STATUS_OK;
}

enum status rendezvous_poll(struct thread_rank *self, struct rendezvous_op *op, bool *done)
{
    struct rendezvous *m = op->rendezvous;
    *done = !m;
    if (!m)
        return STATUS_OK;
    TRY(group_check(self->group));
    if (atomic_load_explicit(&m->n_posted, memory_order_acquire) < m->r.n_members)
        return STATUS_OK;
    work(self, m, COMM_CHUNKS_PER_POLL);
    if (atomic_load_explicit(&m->chunks_done, memory_order_acquire) == m->chunks.n) {
        leave(op);
        *done = true;
    } else if (atomic_load_explicit(&m->next_chunk, memory_order_relaxed) < m->chunks.n) {
        self->busy = true;
    }
    return STATUS_OK;
}

void rendezvous_withdraw(struct thread_rank *self, struct rendezvous_op *op)
{
    struct rendezvous *m = op->rendezvous;
    if (!m)
        return;
    pthread_mutex_lock(&op->bucket->lock);
    bool complete = m->n_posted_locked == m->r.n_members;
    if (!complete) {
        m->posted[op->position] = false;
        atomic_store_explicit(&m->n_posted, --m->n_posted_locked, memory_order_relaxed);
        if (m->n_posted_locked == 0)
            close_rendezvous(op->bucket, m);
        op->rendezvous = NULL;
    }
    pthread_mutex_unlock(&op->bucket->lock);
    bool done = !complete;
    while (!done && rendezvous_poll(self, op, &done) == STATUS_OK) {
    }
}

/* ---- ending in failure ---- */

/* A worker that learns of the abort will free memory that others may be reading: they finish the
 * chunk they are at, and begin no other. */
static void wait_for_workers(const struct thread_group *group)
{
    for (int i = 0; i < group->size; i++) {
        while (atomic_load(&group->ranks[i]->working))
            (void)sched_yield();
    }
}

void group_abort(struct thread_group *group, const char *why)
{
    pthread_mutex_lock(&group->abort_lock);
    if (!atomic_load(&group->aborted)) {
        (void)snprintf(group->abort_text, sizeof group->abort_text, "%s", why);
        atomic_store(&group->aborted, true);
    }
    pthread_mutex_unlock(&group->abort_lock);
    for (int i = 0; i < group->size; i++)
        eventcount_signal(&group->ranks[i]->event);
    wait_for_workers(group);
}

enum status group_check(struct thread_group *group)
{
    if (!atomic_load_explicit(&group->aborted, memory_order_acquire))
        return STATUS_OK;
    wait_for_workers(group);
    return status_fail(STATUS_LOST, "%s", group->abort_text);
}

/* ---- making one ---- */

static enum status fill_bucket(struct thread_group *group, struct bucket *b)
{
    for (int i = 0; i < PER_BUCKET; i++) {
        struct rendezvous *m = NULL;
        TRY(make_rendezvous(group->size, &m));
        m->next = b->free;
        b->free = m;
    }
    return STATUS_OK;
}

enum status group_create(int size, struct thread_group **out)
{
    struct thread_group *group = aligned_alloc(_Alignof(struct thread_group), sizeof *group);
    if (!group)
        return status_no_memory(sizeof *group);
    memset(group, 0, sizeof *group);
    group->size = size;
    (void)pthread_mutex_init(&group->abort_lock, NULL);
    for (int i = 0; i < BUCKET_COUNT; i++)
        (void)pthread_mutex_init(&group->buckets[i].lock, NULL);
    enum status st = STATUS_OK;
    group->ranks = calloc((size_t)size, sizeof *group->ranks);
    if (!group->ranks)
        st = status_no_memory((size_t)size * sizeof *group->ranks);
    for (int i = 0; i < BUCKET_COUNT && st == STATUS_OK; i++)
        st = fill_bucket(group, &group->buckets[i]);
    if (st != STATUS_OK) {
        group_destroy(group);
        return st;
    }
    *out = group;
    return STATUS_OK;
}

void group_destroy(struct thread_group *group)
{
    for (int i = 0; i < BUCKET_COUNT; i++) {
        free_rendezvous(group->buckets[i].active);
        free_rendezvous(group->buckets[i].free);
        (void)pthread_mutex_destroy(&group->buckets[i].lock);
    }
    (void)pthread_mutex_destroy(&group->abort_lock);
    free(group->ranks);
    free(group);
}
