/* rank.h: one MPI rank, and the operations it can have under way.
 *
 *     transfers     MPI_Isend and MPI_Irecv                             transfer.c
 *     reductions    members on one host: through memory they share      host_reduce.c
 *                   others: own algorithms over Isend and Irecv         channels.c, reduce_steps.c
 *     control       Isend and Irecv on a communicator of their own      mpi.c
 *     abort         a text in the host's memory, and a message to all   mpi.c
 *
 * MPI is initialised for one thread at a time; `lock` makes it so: every entry takes it, except
 * wake, and pause gives it back while it sleeps.
 */
#ifndef CLEAVE_COMM_MPI_RANK_H
#define CLEAVE_COMM_MPI_RANK_H

#include "comm/comm.h"
#include "comm/eventcount.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    MPI_ABORT_TEXT_BYTES = 900,
    MPI_HOST_NAME_BYTES = 64,
    MPI_PART_BYTES = 1 << 30, /* a message's length is an int */
    MPI_PARTS = 16,           /* of one transfer at once */
    MPI_CHANNELS = 4,
};

/* The message of a worker that aborts. */
struct mpi_abort {
    int cause; /* enum status */
    int rank;  /* that gave up */
    char text[MPI_ABORT_TEXT_BYTES];
};

/* Another rank. */
struct mpi_peer {
    int64_t pid;
    char host[MPI_HOST_NAME_BYTES];
    int host_rank;                    /* among the ranks of this host; -1 on another */
    int64_t n_sends, n_sends_started; /* to it; of them, whose parts have all been started */
};

struct host;

struct mpi_rank {
    struct comm c; /* first: a comm * is a mpi_rank * */
    pthread_mutex_t lock;
    MPI_Comm transfers, reductions, control, aborts;
    int tag_limit;          /* largest MPI tag */
    struct mpi_peer *peers; /* [size] */
    struct host *host;      /* memory shared with the ranks of this host; NULL: alone, or off */
    bool all_on_host;
    struct eventcount own_event; /* used when there is no host */
    struct eventcount *event;
    struct eventcount_waiter waiter;
    int n_requests_open; /* MPI requests of operations under way: only polling moves them */
    bool busy;           /* the last polls moved something, or left work */
    int64_t moved_ns;    /* when something last moved */
    bool crowded;        /* the ranks of this host have no core to spare */
    MPI_Request abort_request;
    bool aborted;
    struct mpi_abort abort, abort_incoming;
};

enum mpi_op_kind { OP_DONE, OP_TRANSFER, OP_CHANNELS, OP_GATHER, OP_HOST };

/* A message, in parts if it is long. */
struct transfer_op {
    bool receives;
    int peer, tag;
    MPI_Comm mpi_comm;
    char *data;
    int64_t n_bytes, part_bytes;
    int64_t place; /* of a send: in the row of those to its peer; -1: in none */
    int n_parts, n_started, n_done;
    MPI_Request requests[MPI_PARTS]; /* of part i: number i % MPI_PARTS */
};

/* See channels.c. */
struct channel {
    int64_t segment;
    int step; /* number of the step under way in that segment */
    MPI_Request send, receive;
};

struct channels_op {
    struct comm_reduction r;
    void *data, *workspace;
    int position;
    struct channel channels[MPI_CHANNELS];
};

struct gather_op {
    struct comm_reduction r;
    void *data, *workspace;
    int position;
    int n_done;
};

/* See host_reduce.c. */
struct host_op {
    struct comm_reduction r;
    void *data;
    int position;
    int reduction;
    int64_t rounds[3]; /* that this member has finished, by phase */
};

struct mpi_op {
    enum mpi_op_kind kind;
    union {
        struct transfer_op transfer;
        struct channels_op channels;
        struct gather_op gather;
        struct host_op host;
    };
};
_Static_assert(sizeof(struct mpi_op) <= sizeof(comm_op), "an operation has room");

/* The status of an MPI function's result. */
enum status mpi_check(int error, const char *what) MUST_USE;
#define TRY_MPI(call) TRY(mpi_check((call), #call))

/* transfer.c */
/* `like` says the first six fields. */
enum status transfer_start(struct mpi_rank *self, const struct transfer_op *like,
                           struct mpi_op *op) MUST_USE;
enum status transfer_poll(struct mpi_rank *self, struct transfer_op *op, bool *done) MUST_USE;
void transfer_withdraw(struct mpi_rank *self, struct transfer_op *op);

/* channels.c: reductions over messages */
enum status messages_start(struct mpi_rank *self, const struct comm_reduction *r, int position,
                           void *data, void *workspace, struct mpi_op *op) MUST_USE;
enum status channels_poll(struct mpi_rank *self, struct channels_op *op, bool *done) MUST_USE;
enum status gather_poll(struct mpi_rank *self, struct gather_op *op, bool *done) MUST_USE;
int64_t messages_workspace_bytes(const struct comm_reduction *r);

/* host_reduce.c: reductions in memory that the ranks of a host share */
enum status host_create(struct mpi_rank *self) MUST_USE;
void host_destroy(struct mpi_rank *self);
bool host_has_all(const struct mpi_rank *self, const struct comm_reduction *r);
enum status host_start(struct mpi_rank *self, const struct comm_reduction *r, int position,
                       void *data, struct mpi_op *op) MUST_USE;
enum status host_poll(struct mpi_rank *self, struct host_op *op, bool *done) MUST_USE;
void host_abort(struct mpi_rank *self, const struct mpi_abort *why);
/* The message of the first rank of this host that called abort, or NULL. */
const struct mpi_abort *host_find_abort(const struct mpi_rank *self);

#endif
