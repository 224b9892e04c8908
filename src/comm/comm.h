/* comm.h: how workers reach each other: a commented table of functions that every transport fills.
 *
 * Each worker has one struct comm, its end. Operations are started and then polled, never waited
 * for inside: one thread of the worker at a time starts operations in program order, polls all that
 * are under way, and sleeps in `pause` when nothing moved. Operations on the same pair and tag
 * match; tags are unique within a step and are used again in the next one, in the same order. Tags
 * are from 0 to 8190 where every MPI must take them, and to 2^29 - 2 with Open MPI. Members of the
 * same list and tag match in reductions; a tag of a reduction may be one of a transfer, too.
 *
 *     comm_op op;                                          // room for one operation, no allocation
 *     TRY(comm->table->start_receive(comm, 3, tag, buffer, n_bytes, &op));
 *     for (bool done = false; !done;) {
 *         TRY(comm->table->poll(comm, &op, &done));
 *         if (!done)
 *             TRY(comm->table->pause(comm, 0.001));
 *     }
 *
 * The same operations give the same bits over every transport: the order in which a reduction adds
 * is defined here, by its method, and not by the order of arrival. With members m0 < m1 < .. (N of
 * them) and the elements cut into N even slices (element i*count/N on):
 *     gather        ((x0 + x1) + x2) + ..                       for all elements
 *     ring          slice s: ((x(s+1) + x(s+2)) + ..) + x(s), indices modulo N
 *     tree          binary tree over member positions: at distance d = 1, 2, 4 .. position i (a
 *                   multiple of 2d) becomes x(i) + x(i+d)
 *     hierarchical  gather-order sums inside every node (positions in runs of node_size), then ring
 *                   over the nodes, then handed out inside
 *
 * A lost peer is STATUS_LOST, naming it; nothing else in here waits without end: `pause` returns
 * after its time, and the caller keeps deadlines.
 */
#ifndef CLEAVE_COMM_COMM_H
#define CLEAVE_COMM_COMM_H

#include "base/element.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>

enum comm_method { COMM_GATHER, COMM_RING, COMM_TREE, COMM_HIERARCHICAL, COMM_METHOD_COUNT };

const char *comm_method_name(enum comm_method method);

/* What the members are left with. Member i owns slice i of N even ones (element i*count/N on). */
enum comm_kind {
    COMM_ALL_REDUCE,     /* each: the sum */
    COMM_REDUCE_SCATTER, /* member i: slice i of the sum; its other slices hold anything */
    COMM_ALL_GATHER,     /* each: slice i of every member i; nothing is added */
    COMM_KIND_COUNT
};

const char *comm_kind_name(enum comm_kind kind);

/* A collective over the same array of several workers. A reduce-scatter and an all-gather are the
 * halves of a ring, and have no other method: one after the other they give the bits of an
 * all-reduce. */
struct comm_reduction {
    enum comm_kind kind;
    enum comm_method method;
    enum element type; /* F32 or F64 */
    int n_members;
    const int *members; /* worker numbers, ascending; this worker is one of them. Read until the
                           operation is done */
    int node_size;      /* hierarchical */
    int64_t count;      /* elements */
    int64_t tag;
};

/* One operation under way; its content is the transport's. */
typedef struct comm_op {
    _Alignas(16) unsigned char state[256];
} comm_op;

typedef struct comm comm;

/* How an operation is cut where its members do it together (comm_table.shared_work): a member that
 * polls does at most COMM_CHUNKS_PER_POLL of the chunks. */
enum { COMM_CHUNKS_PER_POLL = 4 };
struct comm_chunks {
    int64_t size, n; /* elements of one, and how many there are, at least one */
};
struct comm_chunks comm_cut(int64_t count, int64_t element_bytes, int n_members);

/* Where shared_work is, a waiting worker spins for so long before it sleeps, if all have a core
 * each: a core that rests loses its caches and its speed, and computes a tenth to a fifth slower
 * after it. Other threads that want the core meanwhile get it. */
#ifndef COMM_SPIN_S
#define COMM_SPIN_S 50e-3
#endif

struct comm_table {
    const char *name;

    /* An operation that all members have started moves on when any of them polls: no member waits
     * for one that is busy, and a worker needs no thread that does nothing but communicate. */
    bool shared_work;

    /* Starts; never blocks. The memory must stay as it is until the operation is done. To other
     * hosts messages for a peer pass in the order of their starts: to wait for one, poll those
     * before it, too. */
    enum status (*start_send)(comm *c, int peer, int64_t tag, const void *data, int64_t n_bytes,
                              comm_op *op);
    enum status (*start_receive)(comm *c, int peer, int64_t tag, void *data, int64_t n_bytes,
                                 comm_op *op);
    /* `data` is summed in place; `workspace` has reduce_workspace_bytes. */
    enum status (*start_reduce)(comm *c, const struct comm_reduction *r, void *data,
                                void *workspace, comm_op *op);
    int64_t (*reduce_workspace_bytes)(const struct comm_reduction *r);

    /* Moves the operation on; *done once its memory may be used again (a send: was read by the
     * peer or copied out; a receive: has arrived; a reduction: holds the sum, and no member
     * reads it any more). STATUS_LOST if the peer is gone, or any worker has called abort. */
    enum status (*poll)(comm *c, comm_op *op, bool *done);

    /* Sleeps until something may have changed for this worker, or wake was called, or the time
     * has passed. */
    enum status (*pause)(comm *c, double seconds);
    void (*wake)(comm *c); /* from any thread of this process */

    /* ---- between steps, from one thread, while no operation is under way: these block, each with
     * the deadline timeout_s (STATUS_TIMEOUT names the workers that are missing) ---- */

    /* The n_bytes of each worker, in worker order, to all: `all` has size * n_bytes. */
    enum status (*exchange)(comm *c, const void *mine, int64_t n_bytes, void *all);
    enum status (*broadcast)(comm *c, int root, void *data, int64_t n_bytes);
    enum status (*send)(comm *c, int peer, const void *data, int64_t n_bytes);
    enum status (*receive)(comm *c, int peer, void *data, int64_t n_bytes);

    /* Tells all others that this worker ends in failure (first cause wins), so that their polls
     * fail with STATUS_LOST and this text. Never fails, never waits long. */
    void (*abort)(comm *c, enum status cause, const char *why);

    /* Called by its worker about every second of a long wait and at every step: says "I am alive"
     * and notices processes that are gone. NULL: nothing to do (threads of one process). */
    enum status (*check_peers)(comm *c);

    /* For the message of a time-out: "; worker 2 (process 1234) is stopped", for each peer that is
     * known to be; "" if none is. NULL: nothing can be known. */
    void (*name_stopped)(comm *c, char *text, size_t text_bytes);

    void (*destroy)(comm *c);
};

/* One worker's end: the part that every transport has; a transport's own struct begins with it. */
struct comm {
    const struct comm_table *table;
    int rank, size; /* this worker's number, and how many there are */
    double timeout_s;
    int64_t sent_bytes; /* payload handed to peers since the start, reductions included, counted as
                           the method on a network would: ring 2 (N-1)/N of the array per member */
    int64_t sent_messages;
    /* Set by the user: another thread of this worker computes. Then polling is not to take its
     * core. */
    atomic_bool computes;
    /* Workers that are processes: the cause of the first call of abort anywhere, once it is known
     * here, and whether another worker made it. A job has one exit code: that of its first failure,
     * and not of those that ended because of it. */
    enum status cause;
    bool told;
    /* The transport's, for exchange, broadcast, send and receive (control.h). */
    const struct control_calls *control;
    comm_op *control_ops; /* [2 * size] */
};

/* threads/: `size` ends in one process, ends[i] for worker i. Destroy each. Sends and reductions
 * read straight from the peer's memory. */
enum status comm_threads_create(int size, double timeout_s, comm **ends) MUST_USE;

/* The transports by name, "threads" and "mpi", for questions that need no peers
 * (reduce_workspace_bytes); NULL: not in this build. */
const struct comm_table *comm_find_table(const char *name);

/* mpi/: this process's end in MPI_COMM_WORLD; in a build without MPI, STATUS_USAGE says so. The
 * first call initialises MPI (serialized threads), the last destroy finalizes it. */
enum status comm_mpi_create(double timeout_s, comm **out) MUST_USE;

/* Whether this process was started by mpirun or srun with MPI support: by its environment,
 * without touching MPI. *rank and *size are set if so. */
bool comm_mpi_launched(int *rank, int *size);

/* Payload bytes that member number `position` of the reduction sends (see sent_bytes). */
int64_t comm_reduce_sent_bytes(const struct comm_reduction *r, int position);

/* Cores that this process may run on; at least 1. */
int comm_count_cores(void);

#endif
