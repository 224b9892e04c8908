/* rendezvous.h: operations between threads of one process.
 *
 * Every operation, a transfer or a reduction, is a rendezvous: its members post the address of
 * their memory, and when the last one has come, the work (a copy, or a sum that is left in the
 * memory of each) is cut into chunks that any polling member claims and does. The order in which
 * elements are added does not depend on the thread that adds, so neither do the bits; and once a
 * member has posted, it delays no other, even while its thread is not running.
 *
 *     posted 0..n  ->  next_chunk counts up (claims)  ->  chunks_done == n_chunks  ->  all left
 *
 * The members of one rendezvous are found by kind, tag and members, in a hash table with one lock
 * per bucket, held only while posting and when the last one leaves. The same key can be posted
 * again before the rendezvous is over (the next step): a member joins the oldest rendezvous of that
 * key that it is not yet part of.
 */
#ifndef CLEAVE_COMM_THREADS_RENDEZVOUS_H
#define CLEAVE_COMM_THREADS_RENDEZVOUS_H

#include "comm/comm.h"
#include "comm/eventcount.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BUCKET_COUNT = 64, ABORT_TEXT_BYTES = 900 };

enum rendezvous_kind { RENDEZVOUS_TRANSFER, RENDEZVOUS_CONTROL, RENDEZVOUS_REDUCE };

struct rendezvous {
    struct rendezvous *next;
    enum rendezvous_kind kind;
    struct comm_reduction r; /* a transfer has members {from, to} in that order, count in bytes */
    int n_posted_locked;     /* under the bucket's lock */
    atomic_int n_posted;
    atomic_int n_left;
    struct comm_chunks chunks;
    _Alignas(64) atomic_llong next_chunk;
    _Alignas(64) atomic_llong chunks_done;
    int *members; /* [size] */
    bool *posted; /* [size], under the bucket's lock */
    void **parts; /* [size] */
};

struct bucket {
    _Alignas(64) pthread_mutex_t lock;
    struct rendezvous *active, *last; /* oldest first */
    struct rendezvous *free;
};

struct thread_rank;

/* The threads that one comm_threads_create has connected. */
struct thread_group {
    int size;
    atomic_int n_ranks; /* not yet destroyed */
    atomic_bool aborted;
    pthread_mutex_t abort_lock;
    char abort_text[ABORT_TEXT_BYTES]; /* written once, before `aborted` */
    struct bucket buckets[BUCKET_COUNT];
    struct thread_rank **ranks; /* [size] */
};

/* One worker of the group. */
struct thread_rank {
    struct comm c; /* first: a comm * is a thread_rank * */
    struct thread_group *group;
    struct eventcount event;
    struct eventcount_waiter waiter;
    bool busy;                        /* the last polls left work that can be done at once */
    _Alignas(64) atomic_bool working; /* touches memory of others, which must stay */
};

/* The content of a comm_op. */
struct rendezvous_op {
    struct rendezvous *rendezvous; /* NULL: done */
    struct bucket *bucket;
    int position;
};
_Static_assert(sizeof(struct rendezvous_op) <= sizeof(comm_op), "an operation has room");

enum status group_create(int size, struct thread_group **out) MUST_USE;
void group_destroy(struct thread_group *group);

/* Posts `data` as member number `position` of the rendezvous. If it was the last and the work is
 * small, does it. */
enum status rendezvous_post(struct thread_rank *self, enum rendezvous_kind kind,
                            const struct comm_reduction *r, int position, void *data,
                            struct rendezvous_op *op) MUST_USE;

/* Does a share of the work if all have come. */
enum status rendezvous_poll(struct thread_rank *self, struct rendezvous_op *op,
                            bool *done) MUST_USE;

/* Takes the post back; if all have come meanwhile, ends the rendezvous regularly. */
void rendezvous_withdraw(struct thread_rank *self, struct rendezvous_op *op);

/* The first cause is kept. Returns when no thread touches the memory of others any more. */
void group_abort(struct thread_group *group, const char *why);
/* STATUS_OK, or the failure of an aborted group. */
enum status group_check(struct thread_group *group) MUST_USE;

#endif
