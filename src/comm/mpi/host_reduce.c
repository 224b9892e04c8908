/* Reductions among ranks of one host, through a segment of memory that all of them map:
 *
 *     struct shared    the lists of reductions, the slots' counters, one eventcount per rank
 *     staging          [SLOTS][ranks][SLOT_BYTES]         parts of large arrays
 *     small            [SMALL_SLOTS][ranks][SMALL_BYTES]  whole small arrays
 *
 * The arrays themselves are in the ranks' own memory, so parts of a large one go through staging,
 * which stays in the caches. Each member owns one slice of the array. A slice is cut into pieces,
 * and in round t, for the t-th piece of every slice,
 *
 *     in     each member copies its pieces of the others' slices into staging
 *     sum    each owner adds the pieces of its slice, its own straight from its array, in the order
 *            of the method, and copies the sum into its array
 *     out    each member copies the sums of the others' slices from staging into its array
 *
 *                 slice 0    slice 1    slice 2       (3 members, one round)
 *     member 0    own        in  out    in  out
 *     member 1    in  out    own        in  out
 *     member 2    in  out    in  out    own
 *
 * Staging has room for several rounds, and no member waits for a whole phase: it may copy in round
 * t once all have finished `out` of round t - ROUNDS, may sum once all are `in`, may copy out once
 * all have summed. Three counters per member say how far it is; rounds take no lock. An element is
 * read and written once in memory; two copies for each hop, as over MPI's messages, are more.
 *
 * Staging is scarce, so a reduction gets a slot only when all members have posted: then all of them
 * poll it, it ends, and the next in line gets the slot. Members that start their reductions in
 * different orders cannot block each other.
 *
 * Small arrays have slots of their own, given to the first member that posts: each copies its array
 * in while posting, the last one adds all, the others copy the sum out.
 *
 * One robust mutex guards the lists. If a rank dies while it holds that mutex, the lists may be
 * half edited: the mutex then stays unusable, and every later operation fails with STATUS_LOST. An
 * abort does not need it: each rank writes a record of its own, and the first to enter its number
 * counts.
 */
#include "comm/mpi/rank.h"
#include "comm/order.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_RANKS = 64, /* on a host; bits of a word */
    REDUCTIONS = 2048,
    BUCKETS = 256,
    SLOTS = 3,
    SLOT_BYTES = 1 << 20, /* per rank */
    ROUNDS = 4,
    SMALL_SLOTS = 64,
    SMALL_BYTES = 16384, /* per rank */
    BLOCK_BYTES = 8192,
    STEPS_PER_POLL = 2 * ROUNDS,
    NONE = -1,
};

enum phase { PHASE_IN, PHASE_SUM, PHASE_OUT, N_PHASES };
_Static_assert(sizeof((struct host_op *)0)->rounds == N_PHASES * sizeof(int64_t), "one per phase");

/* How far a member is in the slot's reduction. */
struct progress {
    _Alignas(64) atomic_llong rounds[N_PHASES]; /* that it has finished */
};

struct slot {
    int reduction; /* NONE: free */
    struct progress members[MAX_RANKS];
};

struct reduction {
    int next; /* in its bucket, in the line for slots, or among the free ones */
    int next_ready;
    int64_t tag, count;
    int kind, method, type, node_size;
    uint64_t members, posted; /* bits of host ranks */
    int n_members, n_posted, n_left;
    atomic_int slot;        /* NONE until it has one */
    int small_slot;         /* NONE: large */
    atomic_bool small_done; /* the place of position 0 holds the sum */
};

struct shared {
    pthread_mutex_t lock;               /* of everything but atomics, aborts and progress */
    struct mpi_abort aborts[MAX_RANKS]; /* by rank of this host, each written once */
    atomic_int first_abort;             /* number of the one that counts, or NONE */
    int buckets[BUCKETS], bucket_ends[BUCKETS];
    int free_reduction, first_ready, last_ready;
    int small_users[SMALL_SLOTS]; /* reduction, or NONE */
    struct slot slots[SLOTS];
    struct reduction reductions[REDUCTIONS];
    struct eventcount events[MAX_RANKS];
};

struct host {
    MPI_Comm mpi_comm;
    MPI_Win window;
    int rank, size;
    const double *timeout_s; /* the rank's */
    struct shared *shared;
    char *staging, *small;
};

/* ---- locking, waking ---- */

/* A worker that is stopped may hold it: that wait has a deadline like any other. */
static enum status lock(const struct host *h, double seconds)
{
    struct shared *s = h->shared;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1 + (time_t)seconds;
    int error = pthread_mutex_timedlock(&s->lock, &until);
    if (error == ETIMEDOUT)
        return status_fail(STATUS_TIMEOUT,
                           "waited %g s for a worker of this host that has stopped in the midst of "
                           "a reduction",
                           seconds);
    if (error == EOWNERDEAD) /* not made consistent: from now on it is ENOTRECOVERABLE */
        (void)pthread_mutex_unlock(&s->lock);
    if (error == EOWNERDEAD || error == ENOTRECOVERABLE)
        return status_fail(STATUS_LOST, "a worker on this host died in the midst of a reduction");
    if (error)
        return status_fail(STATUS_FAILED, "cannot lock shared memory: %s", strerror(error));
    return STATUS_OK;
}

static void signal_members(const struct host *h, uint64_t members)
{
    for (int i = 0; i < h->size; i++) {
        if (i != h->rank && (members >> i & 1))
            eventcount_signal(&h->shared->events[i]);
    }
}

/* ---- reductions; the lock is held ---- */

static int bucket_of(int64_t tag, uint64_t members)
{
    uint64_t hash = ((uint64_t)tag ^ members * 0xbf58476d1ce4e5b9u) * 0x9e3779b97f4a7c15u;
    return (int)((hash >> 40) % BUCKETS);
}

static bool same_reduction(const struct reduction *d, const struct comm_reduction *r)
{
    return d->count == r->count && d->kind == (int)r->kind && d->method == (int)r->method &&
           d->type == (int)r->type &&
           (r->method != COMM_HIERARCHICAL || d->node_size == r->node_size);
}

static int64_t array_bytes(const struct comm_reduction *r)
{
    return r->count * element_bytes(r->type);
}

static int take_small_slot(struct shared *s, int reduction, const struct comm_reduction *r)
{
    if (array_bytes(r) > SMALL_BYTES)
        return NONE;
    for (int i = 0; i < SMALL_SLOTS; i++) {
        if (s->small_users[i] == NONE) {
            s->small_users[i] = reduction;
            return i;
        }
    }
    return NONE;
}

static enum status open_reduction(struct shared *s, const struct comm_reduction *r,
                                  uint64_t members, int *out)
{
    int number = s->free_reduction;
    if (number == NONE)
        return status_fail(STATUS_FAILED, "more than %d reductions are under way on this host",
                           REDUCTIONS);
    struct reduction *d = &s->reductions[number];
    s->free_reduction = d->next;
    d->next = d->next_ready = NONE;
    d->tag = r->tag;
    d->count = r->count;
    d->kind = (int)r->kind;
    d->method = (int)r->method;
    d->type = (int)r->type;
    d->node_size = r->node_size;
    d->members = members;
    d->posted = 0;
    d->n_members = r->n_members;
    d->n_posted = d->n_left = 0;
    atomic_store(&d->slot, NONE);
    atomic_store(&d->small_done, false);
    d->small_slot = take_small_slot(s, number, r);
    int bucket = bucket_of(r->tag, members);
    if (s->buckets[bucket] == NONE)
        s->buckets[bucket] = number;
    else
        s->reductions[s->bucket_ends[bucket]].next = number;
    s->bucket_ends[bucket] = number;
    *out = number;
    return STATUS_OK;
}

/* The oldest that this rank has not posted to, or a new one. */
static enum status find_or_open(const struct host *h, const struct comm_reduction *r,
                                uint64_t members, int *out)
{
    struct shared *s = h->shared;
    for (int i = s->buckets[bucket_of(r->tag, members)]; i != NONE; i = s->reductions[i].next) {
        const struct reduction *d = &s->reductions[i];
        if (d->tag != r->tag || d->members != members || (d->posted >> h->rank & 1))
            continue;
        if (!same_reduction(d, r))
            return status_fail(STATUS_FAILED,
                               "reduction %lld: the members disagree: %s by %s of %lld elements, "
                               "and %s by %s of %lld",
                               (long long)r->tag, comm_kind_name((enum comm_kind)d->kind),
                               comm_method_name((enum comm_method)d->method), (long long)d->count,
                               comm_kind_name(r->kind), comm_method_name(r->method),
                               (long long)r->count);
        *out = i;
        return STATUS_OK;
    }
    return open_reduction(s, r, members, out);
}

static void close_reduction(struct shared *s, int number)
{
    struct reduction *d = &s->reductions[number];
    int bucket = bucket_of(d->tag, d->members), before = NONE;
    for (int i = s->buckets[bucket]; i != number; i = s->reductions[i].next)
        before = i;
    if (before == NONE)
        s->buckets[bucket] = d->next;
    else
        s->reductions[before].next = d->next;
    if (s->bucket_ends[bucket] == number)
        s->bucket_ends[bucket] = before;
    if (d->small_slot != NONE)
        s->small_users[d->small_slot] = NONE;
    d->next = s->free_reduction;
    s->free_reduction = number;
}

/* Gives slots to those in line. */
static void hand_out_slots(const struct host *h)
{
    struct shared *s = h->shared;
    for (int i = 0; i < SLOTS && s->first_ready != NONE; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->reduction != NONE)
            continue;
        struct reduction *d = &s->reductions[s->first_ready];
        slot->reduction = s->first_ready;
        s->first_ready = d->next_ready;
        for (int k = 0; k < d->n_members; k++)
            for (int p = 0; p < N_PHASES; p++)
                atomic_store_explicit(&slot->members[k].rounds[p], 0, memory_order_relaxed);
        atomic_store(&d->slot, i);
        signal_members(h, d->members);
    }
}

static void get_in_line(struct shared *s, int number)
{
    s->reductions[number].next_ready = NONE;
    if (s->first_ready == NONE)
        s->first_ready = number;
    else
        s->reductions[s->last_ready].next_ready = number;
    s->last_ready = number;
}

/* ---- small arrays ---- */

static void *small_room(const struct host *h, int small_slot, int position)
{
    return h->small + ((int64_t)small_slot * h->size + position) * SMALL_BYTES;
}

/* The last one has come: adds in the members' places. The slices of a ring end in different ones,
 * so all are copied to that of position 0. Of an all-gather each slice is taken from its owner. */
static void sum_small(const struct host *h, struct reduction *d, const struct comm_reduction *r)
{
    void *parts[MAX_RANKS];
    if (r->n_members < 1)
        return; /* never: order_check has refused it */
    for (int i = 0; i < r->n_members; i++)
        parts[i] = small_room(h, d->small_slot, i);
    int64_t type_bytes = element_bytes(r->type);
    for (int64_t first = 0, end; first < r->count; first = end) {
        end = order_slice_end(r, first);
        void *at[MAX_RANKS];
        for (int i = 0; i < r->n_members; i++)
            at[i] = (char *)parts[i] + first * type_bytes;
        int owner = order_slice_of(r, first);
        int sum = r->kind == COMM_ALL_GATHER ? owner : order_sum(r, at, first, end - first);
        if (sum != 0)
            memcpy(at[0], at[sum], (size_t)((end - first) * type_bytes));
    }
    atomic_store_explicit(&d->small_done, true, memory_order_release);
    signal_members(h, d->members);
}

/* ---- large arrays ---- */

/* Elements of a piece: a member has room for ROUNDS rounds of n_members pieces. */
static int64_t piece_elements(const struct comm_reduction *r)
{
    int64_t line = 64 / element_bytes(r->type);
    int64_t most = SLOT_BYTES / ROUNDS / r->n_members / element_bytes(r->type) / line * line;
    int64_t slice = (r->count + r->n_members - 1) / r->n_members;
    /* Arrays that are not much larger than a piece are cut, too, so that phases overlap. */
    int64_t piece = (slice / ROUNDS + line - 1) / line * line;
    int64_t least = BLOCK_BYTES / element_bytes(r->type);
    piece = piece < least ? least : piece;
    return piece < most ? piece : most;
}

static int64_t round_count(const struct comm_reduction *r)
{
    int64_t slice = (r->count + r->n_members - 1) / r->n_members;
    int64_t piece = piece_elements(r);
    return (slice + piece - 1) / piece;
}

static struct order_range piece_of(const struct comm_reduction *r, int slice, int64_t round)
{
    struct order_range range = order_cut(r->count, r->n_members, slice);
    int64_t piece = piece_elements(r);
    range.begin += round * piece;
    if (range.begin > range.end)
        range.begin = range.end;
    if (range.end - range.begin > piece)
        range.end = range.begin + piece;
    return range;
}

/* Where member `position` stages its piece of `slice` in this round. */
static char *piece_room(const struct host *h, int slot, const struct comm_reduction *r,
                        int position, int64_t round, int slice)
{
    char *room = h->staging + ((int64_t)slot * h->size + position) * SLOT_BYTES;
    int64_t place = round % ROUNDS * r->n_members + slice;
    return room + place * piece_elements(r) * element_bytes(r->type);
}

static char *element(const struct host_op *op, int64_t i)
{
    return (char *)op->data + i * element_bytes(op->r.type);
}

static size_t range_bytes(const struct comm_reduction *r, struct order_range range)
{
    return (size_t)((range.end - range.begin) * element_bytes(r->type));
}

static void copy_in(const struct host *h, int slot, const struct host_op *op)
{
    if (op->r.kind == COMM_ALL_GATHER)
        return; /* the owners' own pieces are all there is */
    for (int k = 1; k < op->r.n_members; k++) {
        int slice = (op->position + k) % op->r.n_members;
        struct order_range range = piece_of(&op->r, slice, op->rounds[PHASE_IN]);
        memcpy(piece_room(h, slot, &op->r, op->position, op->rounds[PHASE_IN], slice),
               element(op, range.begin), range_bytes(&op->r, range));
    }
}

/* The owner's own staging of its own piece is where the sum goes. */
static void sum_own(const struct host *h, int slot, const struct host_op *op)
{
    const struct comm_reduction *r = &op->r;
    int own = op->position;
    int64_t type_bytes = element_bytes(r->type), block = BLOCK_BYTES / type_bytes;
    struct order_range range = piece_of(r, own, op->rounds[PHASE_SUM]);
    char *rooms[MAX_RANKS];
    for (int i = 0; i < r->n_members; i++)
        rooms[i] = piece_room(h, slot, r, i, op->rounds[PHASE_SUM], own);
    for (int64_t first = range.begin, end; first < range.end; first = end) {
        end = order_slice_end(r, first);
        end = end < range.end ? end : range.end;
        end = end - first > block ? first + block : end;
        void *at[MAX_RANKS];
        for (int i = 0; i < r->n_members; i++)
            at[i] = rooms[i] + (first - range.begin) * type_bytes;
        void *result = at[own];
        at[own] = element(op, first);
        size_t n_bytes = (size_t)((end - first) * type_bytes);
        bool adds = r->kind != COMM_ALL_GATHER;
        int sum = adds ? order_sum(r, at, first, end - first) : own;
        memcpy(result, at[sum], n_bytes);
        if (sum != own)
            memcpy(at[own], at[sum], n_bytes);
    }
}

static void copy_out(const struct host *h, int slot, const struct host_op *op)
{
    if (op->r.kind == COMM_REDUCE_SCATTER)
        return;
    for (int k = 1; k < op->r.n_members; k++) {
        int slice = (op->position + k) % op->r.n_members;
        struct order_range range = piece_of(&op->r, slice, op->rounds[PHASE_OUT]);
        memcpy(element(op, range.begin),
               piece_room(h, slot, &op->r, slice, op->rounds[PHASE_OUT], slice),
               range_bytes(&op->r, range));
    }
}

/* Whether every member has finished more than `round` rounds of the phase. */
static bool all_beyond(struct slot *slot, int n_members, enum phase phase, int64_t round)
{
    for (int i = 0; i < n_members; i++)
        if (atomic_load_explicit(&slot->members[i].rounds[phase], memory_order_acquire) <= round)
            return false;
    return true;
}

/* Does one phase of one round, if one can be done. */
static bool step(const struct host *h, int number, struct host_op *op, uint64_t members)
{
    struct slot *slot = &h->shared->slots[number];
    int n = op->r.n_members;
    int64_t rounds = round_count(&op->r), *mine = op->rounds;
    enum phase phase;
    if (mine[PHASE_OUT] < rounds && all_beyond(slot, n, PHASE_SUM, mine[PHASE_OUT])) {
        phase = PHASE_OUT;
        copy_out(h, number, op);
    } else if (mine[PHASE_SUM] < rounds && all_beyond(slot, n, PHASE_IN, mine[PHASE_SUM])) {
        phase = PHASE_SUM;
        sum_own(h, number, op);
    } else if (mine[PHASE_IN] < rounds && all_beyond(slot, n, PHASE_OUT, mine[PHASE_IN] - ROUNDS)) {
        phase = PHASE_IN;
        copy_in(h, number, op);
    } else {
        return false;
    }
    atomic_store_explicit(&slot->members[op->position].rounds[phase], ++mine[phase],
                          memory_order_release);
    signal_members(h, members);
    return true;
}

/* ---- the functions of rank.h ---- */

bool host_has_all(const struct mpi_rank *self, const struct comm_reduction *r)
{
    if (!self->host)
        return false;
    for (int i = 0; i < r->n_members; i++) {
        if (self->peers[r->members[i]].host_rank < 0)
            return false;
    }
    return true;
}

static uint64_t members_bits(const struct mpi_rank *self, const struct comm_reduction *r)
{
    uint64_t bits = 0;
    for (int i = 0; i < r->n_members; i++)
        bits |= (uint64_t)1 << self->peers[r->members[i]].host_rank;
    return bits;
}

/* Joins the reduction; a large one that is complete gets in line. */
static enum status post(const struct host *h, const struct comm_reduction *r, uint64_t members,
                        int *number, int *small_slot)
{
    TRY(lock(h, *h->timeout_s));
    enum status st = find_or_open(h, r, members, number);
    if (st == STATUS_OK) {
        struct reduction *d = &h->shared->reductions[*number];
        d->posted |= (uint64_t)1 << h->rank;
        *small_slot = d->small_slot;
        if (d->small_slot == NONE && ++d->n_posted == d->n_members) {
            get_in_line(h->shared, *number);
            hand_out_slots(h);
        }
    }
    (void)pthread_mutex_unlock(&h->shared->lock);
    return st;
}

enum status host_start(struct mpi_rank *self, const struct comm_reduction *r, int position,
                       void *data, struct mpi_op *op)
{
    struct host *h = self->host;
    op->kind = OP_HOST;
    op->host = (struct host_op){.r = *r, .data = data, .position = position};
    int small_slot;
    TRY(post(h, r, members_bits(self, r), &op->host.reduction, &small_slot));
    if (small_slot == NONE)
        return STATUS_OK;
    struct reduction *d = &h->shared->reductions[op->host.reduction];
    memcpy(small_room(h, small_slot, position), data, (size_t)array_bytes(r));
    TRY(lock(h, *h->timeout_s));
    bool last = ++d->n_posted == d->n_members;
    (void)pthread_mutex_unlock(&h->shared->lock);
    if (last)
        sum_small(h, d, r);
    return STATUS_OK;
}

static enum status leave(const struct host *h, const struct host_op *op)
{
    struct shared *s = h->shared;
    TRY(lock(h, *h->timeout_s));
    struct reduction *d = &s->reductions[op->reduction];
    if (++d->n_left == d->n_members) {
        int slot = atomic_load(&d->slot);
        close_reduction(s, op->reduction);
        if (slot != NONE) {
            s->slots[slot].reduction = NONE;
            hand_out_slots(h);
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
    return STATUS_OK;
}

enum status host_poll(struct mpi_rank *self, struct host_op *op, bool *done)
{
    struct host *h = self->host;
    struct reduction *d = &h->shared->reductions[op->reduction];
    if (d->small_slot != NONE) {
        if (!atomic_load_explicit(&d->small_done, memory_order_acquire))
            return STATUS_OK;
        memcpy(op->data, small_room(h, d->small_slot, 0), (size_t)array_bytes(&op->r));
        *done = true;
        return leave(h, op);
    }
    int slot = atomic_load(&d->slot);
    if (slot == NONE)
        return STATUS_OK;
    int64_t rounds = round_count(&op->r);
    for (int i = 0; i < STEPS_PER_POLL && op->rounds[PHASE_OUT] < rounds; i++) {
        if (!step(h, slot, op, d->members))
            return STATUS_OK;
        self->busy = true;
    }
    *done = op->rounds[PHASE_OUT] == rounds;
    return *done ? leave(h, op) : STATUS_OK;
}

void host_abort(struct mpi_rank *self, const struct mpi_abort *why)
{
    struct host *h = self->host;
    int none = NONE;
    if (!h || atomic_load(&h->shared->first_abort) == h->rank) /* its record is read by others */
        return;
    h->shared->aborts[h->rank] = *why;
    (void)atomic_compare_exchange_strong(&h->shared->first_abort, &none, h->rank);
    signal_members(h, UINT64_MAX);
}

const struct mpi_abort *host_find_abort(const struct mpi_rank *self)
{
    const struct host *h = self->host;
    int first = h ? atomic_load_explicit(&h->shared->first_abort, memory_order_acquire) : NONE;
    return first == NONE ? NULL : &h->shared->aborts[first];
}

/* ---- making it ---- */

static enum status init_lock(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);
    if (!error)
        error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (!error)
        error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (!error)
        error = pthread_mutex_init(mutex, &attributes);
    if (error)
        return status_fail(STATUS_FAILED, "cannot create a shared mutex: %s", strerror(error));
    (void)pthread_mutexattr_destroy(&attributes);
    return STATUS_OK;
}

static enum status init_shared(struct shared *s, int size)
{
    TRY(init_lock(&s->lock));
    atomic_init(&s->first_abort, NONE);
    for (int i = 0; i < BUCKETS; i++)
        s->buckets[i] = s->bucket_ends[i] = NONE;
    for (int i = 0; i < SMALL_SLOTS; i++)
        s->small_users[i] = NONE;
    for (int i = 0; i < SLOTS; i++)
        s->slots[i].reduction = NONE;
    for (int i = 0; i < REDUCTIONS; i++)
        s->reductions[i].next = i + 1 < REDUCTIONS ? i + 1 : NONE;
    s->free_reduction = 0;
    s->first_ready = s->last_ready = NONE;
    for (int i = 0; i < size; i++)
        eventcount_init(&s->events[i], true);
    return STATUS_OK;
}

/* The ranks of this host, in the order of their numbers. */
static enum status find_host_ranks(struct mpi_rank *self, struct host *h)
{
    int *world_ranks = calloc((size_t)h->size, sizeof *world_ranks);
    if (!world_ranks)
        return status_no_memory((size_t)h->size * sizeof *world_ranks);
    enum status st =
        mpi_check(MPI_Allgather(&self->c.rank, 1, MPI_INT, world_ranks, 1, MPI_INT, h->mpi_comm),
                  "allgather");
    for (int i = 0; i < h->size && st == STATUS_OK; i++)
        self->peers[world_ranks[i]].host_rank = i;
    free(world_ranks);
    return st;
}

static enum status map_memory(struct host *h)
{
    int64_t header = ((int64_t)sizeof(struct shared) + 4095) / 4096 * 4096;
    int64_t staging = (int64_t)SLOTS * h->size * SLOT_BYTES;
    int64_t small = (int64_t)SMALL_SLOTS * h->size * SMALL_BYTES;
    MPI_Aint n_bytes = h->rank == 0 ? (MPI_Aint)(header + staging + small + 4096) : 0;
    void *mine;
    TRY_MPI(MPI_Win_allocate_shared(n_bytes, 1, MPI_INFO_NULL, h->mpi_comm, &mine, &h->window));
    void *base;
    int unit;
    MPI_Aint base_bytes;
    TRY_MPI(MPI_Win_shared_query(h->window, 0, &base_bytes, &unit, &base));
    char *aligned = (char *)(((uintptr_t)base + 63) / 64 * 64);
    h->shared = (struct shared *)aligned;
    h->staging = aligned + header;
    h->small = h->staging + staging;
    if (h->rank == 0)
        TRY(init_shared(h->shared, h->size));
    TRY_MPI(MPI_Barrier(h->mpi_comm));
    return STATUS_OK;
}

enum status host_create(struct mpi_rank *self)
{
    MPI_Comm mpi_comm;
    TRY_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, self->c.rank, MPI_INFO_NULL,
                                &mpi_comm));
    struct host h = {.mpi_comm = mpi_comm, .timeout_s = &self->c.timeout_s};
    TRY_MPI(MPI_Comm_rank(mpi_comm, &h.rank));
    TRY_MPI(MPI_Comm_size(mpi_comm, &h.size));
    TRY(find_host_ranks(self, &h));
    self->all_on_host = h.size == self->c.size;
    /* CLEAVE_SHARED_MEMORY=no sends everything as messages, as between several hosts. */
    const char *wish = getenv("CLEAVE_SHARED_MEMORY");
    bool wanted = !wish || strcmp(wish, "no") != 0;
    if (h.size < 2 || h.size > MAX_RANKS || !wanted) {
        self->all_on_host = false;
        TRY_MPI(MPI_Comm_free(&h.mpi_comm));
        return STATUS_OK;
    }
    TRY(map_memory(&h));
    self->host = malloc(sizeof *self->host);
    if (!self->host)
        return status_no_memory(sizeof *self->host);
    *self->host = h;
    self->event = &h.shared->events[h.rank];
    return STATUS_OK;
}

void host_destroy(struct mpi_rank *self)
{
    if (!self->host)
        return;
    (void)MPI_Win_free(&self->host->window);
    (void)MPI_Comm_free(&self->host->mpi_comm);
    free(self->host);
    self->host = NULL;
}
