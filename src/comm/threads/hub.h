/* hub.h: where threads of one process meet.
 *
 * Every operation, a transfer or a reduction, is a meeting: its parties post the address of their
 * memory, and when the last one has come, the work (a copy, or a sum that is left in everybody's
 * memory) is cut into chunks that any party which polls claims and does. Which element is added in
 * which order does not depend on who does it, so neither do the bits; and a party whose thread is
 * not running delays nobody once it has posted.
 *
 *     posted 0..n  ->  next_chunk counts up (claims)  ->  chunks_done == n_chunks  ->  all left
 *
 * Parties of one meeting are found by kind, tag and members, in a hash table with one lock per
 * bucket, held only while posting and when the last one leaves. The same key can be posted again
 * before the meeting is over (the next step): a party joins the oldest meeting of that key that it
 * is not yet part of.
 */
#ifndef CLEAVE_COMM_THREADS_HUB_H
#define CLEAVE_COMM_THREADS_HUB_H

#include "comm/comm.h"
#include "comm/eventcount.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BUCKET_COUNT = 64, ABORT_TEXT_BYTES = 900 };

enum meeting_kind { MEETING_TRANSFER, MEETING_CONTROL, MEETING_REDUCE };

struct meeting {
    struct meeting *next;
    enum meeting_kind kind;
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
    struct meeting *active, *last; /* oldest first */
    struct meeting *free;
};

struct hub_end;

struct hub {
    int size;
    atomic_int n_ends; /* not yet destroyed */
    atomic_bool aborted;
    pthread_mutex_t abort_lock;
    char abort_text[ABORT_TEXT_BYTES]; /* written once, before `aborted` */
    struct bucket buckets[BUCKET_COUNT];
    struct hub_end **ends; /* [size] */
};

/* A worker's end. */
struct hub_end {
    struct comm c; /* first: a comm * is a hub_end * */
    struct hub *hub;
    struct eventcount event;
    struct eventcount_waiter waiter;
    bool busy;                        /* the last polls left work that can be done at once */
    comm_op *control_ops;             /* [2 * size] */
    _Alignas(64) atomic_bool working; /* touches memory of others, who must not free it */
};

/* What a comm_op holds. */
struct hub_op {
    struct meeting *meeting; /* NULL: done */
    struct bucket *bucket;
    int position;
};
_Static_assert(sizeof(struct hub_op) <= sizeof(comm_op), "an operation has room");

enum status hub_create(int size, struct hub **out) MUST_USE;
void hub_destroy(struct hub *hub);

/* Posts `data` as party number `position` of the meeting. If it was the last and the work is small,
 * does it. */
enum status hub_post(struct hub_end *end, enum meeting_kind kind, const struct comm_reduction *r,
                     int position, void *data, struct hub_op *op) MUST_USE;

/* Does a share of the work if all have come. */
enum status hub_poll(struct hub_end *end, struct hub_op *op, bool *done) MUST_USE;

/* Takes the post back; if all have come meanwhile, ends the meeting regularly. */
void hub_withdraw(struct hub_end *end, struct hub_op *op);

/* The first cause is kept. Returns when nobody touches the memory of others any more. */
void hub_abort(struct hub *hub, const char *why);
/* STATUS_OK, or the failure of an aborted hub. */
enum status hub_check(struct hub *hub) MUST_USE;

#endif
