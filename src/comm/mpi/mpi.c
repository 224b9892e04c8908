/* Workers as MPI ranks: see rank.h. */
#include "comm/mpi/create.h"
#include "comm/mpi/rank.h"

#include "base/timer.h"
#include "comm/control.h"
#include "comm/order.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t longest_spin_ns = 50000;
/* How long pause lets polls follow each other; where ranks have no core to spare, and compute, the
 * computation would pay for it. */
static const int64_t poll_spin_ns = 60000, crowded_spin_ns = 15000;
static const double nap_s = 50e-6;   /* MPI wakes no thread: a sleeper polls again after this */
static const double end_abort_s = 2; /* others' time to end by themselves */

static struct mpi_rank *rank_of(comm *c)
{
    return (struct mpi_rank *)c;
}

static struct mpi_op *op_of(comm_op *op)
{
    return (struct mpi_op *)op;
}

static void lock(struct mpi_rank *self)
{
    (void)pthread_mutex_lock(&self->lock);
}

static enum status unlock(struct mpi_rank *self, enum status st)
{
    (void)pthread_mutex_unlock(&self->lock);
    return st;
}

/* ---- ending in failure ---- */

static void note_abort(struct mpi_rank *self, const struct mpi_abort *why)
{
    if (self->aborted)
        return;
    self->aborted = true;
    self->abort = *why;
    self->c.cause = (enum status)why->cause;
    self->c.told = why->rank != self->c.rank;
}

/* Notes whether another rank has called abort; returns what MPI said. */
static int hear_abort(struct mpi_rank *self)
{
    const struct mpi_abort *here = host_find_abort(self);
    if (here)
        note_abort(self, here);
    if (self->aborted || self->all_on_host || self->c.size == 1)
        return MPI_SUCCESS;
    int arrived = 0, error = MPI_Test(&self->abort_request, &arrived, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS && arrived)
        note_abort(self, &self->abort_incoming);
    return error;
}

/* Whether this or another rank has called abort. */
static enum status check_abort(struct mpi_rank *self)
{
    TRY_MPI(hear_abort(self));
    return self->aborted ? status_fail(STATUS_LOST, "%s", self->abort.text) : STATUS_OK;
}

/* Tells every rank; text and requests stay until the messages are gone, or to the end. */
static void mpi_abort(comm *c, enum status cause, const char *why)
{
    struct mpi_rank *self = rank_of(c);
    struct mpi_abort mine = {.cause = (int)cause, .rank = c->rank};
    (void)snprintf(mine.text, sizeof mine.text, "%s", why);
    lock(self);
    host_abort(self, &mine);
    const struct mpi_abort *here = host_find_abort(self); /* another may have been first */
    bool first = !self->aborted;
    note_abort(self, here ? here : &mine);
    for (int i = 0; i < c->size && first && !self->all_on_host; i++) {
        MPI_Request request;
        if (i != c->rank && MPI_Isend(&self->abort, (int)sizeof self->abort, MPI_BYTE, i, 0,
                                      self->aborts, &request) == MPI_SUCCESS)
            (void)MPI_Request_free(&request);
    }
    eventcount_signal(self->event);
    (void)unlock(self, STATUS_OK);
}

/* What /proc says of a process of this host: R, S, T (stopped), Z (ended, but its exit
 * status was not read yet), .. 0: there is none; '?': unknown. */
static char find_process_state(int64_t pid)
{
    char path[64], line[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return errno == ENOENT && kill((pid_t)pid, 0) != 0 && errno == ESRCH ? 0 : '?';
    const char *after_name = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    (void)fclose(f);
    return after_name ? after_name[2] : '?';
}

static enum status check_process(const struct mpi_rank *self, int rank)
{
    const struct mpi_peer *peer = &self->peers[rank];
    char state = find_process_state(peer->pid);
    if (state != 0 && state != 'Z' && state != 'X')
        return STATUS_OK;
    return status_fail(STATUS_LOST, "worker %d (process %lld) is gone", rank, (long long)peer->pid);
}

static void mpi_name_stopped(comm *c, char *text, size_t text_bytes)
{
    const struct mpi_rank *self = rank_of(c);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < c->size && used < text_bytes; i++) {
        const struct mpi_peer *peer = &self->peers[i];
        if (i == c->rank || peer->host_rank < 0 || find_process_state(peer->pid) != 'T')
            continue;
        used += (size_t)snprintf(text + used, text_bytes - used,
                                 "; worker %d (process %lld) is stopped", i, (long long)peer->pid);
    }
}

static enum status mpi_check_peers(comm *c)
{
    struct mpi_rank *self = rank_of(c);
    lock(self);
    enum status st = check_abort(self);
    (void)unlock(self, st);
    for (int i = 0; i < c->size && st == STATUS_OK; i++) {
        if (i != c->rank && self->peers[i].host_rank >= 0)
            st = check_process(self, i);
    }
    return st;
}

/* ---- transfers and reductions ---- */

static enum status start_transfer(comm *c, bool receives, bool is_control, int peer, int64_t tag,
                                  const void *data, int64_t n_bytes, comm_op *op)
{
    struct mpi_rank *self = rank_of(c);
    struct transfer_op t = {.receives = receives,
                            .peer = peer,
                            .tag = (int)tag,
                            .mpi_comm = is_control ? self->control : self->transfers,
                            .data = (char *)(uintptr_t)data, /* a send only reads it */
                            .n_bytes = n_bytes};
    if (tag < 0 || tag > self->tag_limit)
        return status_fail(STATUS_USAGE, "transfer %lld: MPI allows tags from 0 to %d",
                           (long long)tag, self->tag_limit);
    lock(self);
    return unlock(self, transfer_start(self, &t, op_of(op)));
}

static enum status mpi_start_send(comm *c, int peer, int64_t tag, const void *data, int64_t n_bytes,
                                  comm_op *op)
{
    TRY(start_transfer(c, false, false, peer, tag, data, n_bytes, op));
    c->sent_bytes += n_bytes;
    c->sent_messages++;
    return STATUS_OK;
}

static enum status mpi_start_receive(comm *c, int peer, int64_t tag, void *data, int64_t n_bytes,
                                     comm_op *op)
{
    return start_transfer(c, true, false, peer, tag, data, n_bytes, op);
}

static enum status mpi_start_reduce(comm *c, const struct comm_reduction *r, void *data,
                                    void *workspace, comm_op *op)
{
    struct mpi_rank *self = rank_of(c);
    int position;
    TRY(order_check(c, r, &position));
    lock(self);
    enum status st = host_has_all(self, r)
                         ? host_start(self, r, position, data, op_of(op))
                         : messages_start(self, r, position, data, workspace, op_of(op));
    TRY(unlock(self, st));
    c->sent_bytes += comm_reduce_sent_bytes(r, position);
    c->sent_messages += order_sent_messages(r, position);
    return STATUS_OK;
}

/* Whether the members share a host is not known here: enough for both calls. */
static int64_t mpi_reduce_workspace_bytes(const struct comm_reduction *r)
{
    return messages_workspace_bytes(r);
}

static enum status poll_op(struct mpi_rank *self, struct mpi_op *op, bool *done)
{
    switch (op->kind) {
    case OP_TRANSFER:
        return transfer_poll(self, &op->transfer, done);
    case OP_CHANNELS:
        return channels_poll(self, &op->channels, done);
    case OP_GATHER:
        return gather_poll(self, &op->gather, done);
    case OP_HOST:
        return host_poll(self, &op->host, done);
    default:
        *done = true;
        return STATUS_OK;
    }
}

static enum status mpi_poll(comm *c, comm_op *op, bool *done)
{
    struct mpi_rank *self = rank_of(c);
    *done = false;
    lock(self);
    /* MPI_Test costs a system call: pause asks whether another host has aborted. */
    enum status st = self->aborted || self->all_on_host ? check_abort(self) : STATUS_OK;
    if (st == STATUS_OK)
        st = poll_op(self, op_of(op), done);
    if (st == STATUS_OK && *done)
        op_of(op)->kind = OP_DONE;
    return unlock(self, st);
}

static int64_t find_spin_ns(struct mpi_rank *self)
{
    return self->crowded && atomic_load(&self->c.computes) ? crowded_spin_ns : poll_spin_ns;
}

/* Ranks of this host and wake signal the eventcount; messages do not, so while some are under way
 * this returns at once for a while, and then naps. */
static enum status mpi_pause(comm *c, double seconds)
{
    struct mpi_rank *self = rank_of(c);
    lock(self);
    TRY(unlock(self, check_abort(self)));
    if (self->busy) {
        self->busy = false;
        self->moved_ns = timer_now_ns();
        seconds = 0;
    } else if (self->n_requests_open > 0) {
        bool spins = timer_now_ns() - self->moved_ns < find_spin_ns(self);
        if (spins && self->waiter.yields)
            (void)sched_yield();
        seconds = spins ? 0 : fmin(seconds, nap_s);
    } else if (!self->all_on_host) {
        seconds = fmin(seconds, 0.01); /* to hear of an abort */
    }
    eventcount_wait(self->event, &self->waiter, seconds);
    return STATUS_OK;
}

static void mpi_wake(comm *c)
{
    eventcount_signal(rank_of(c)->event);
}

/* ---- control messages ---- */

static enum status control_start_send(comm *c, int peer, const void *data, int64_t n_bytes,
                                      comm_op *op)
{
    return start_transfer(c, false, true, peer, 0, data, n_bytes, op);
}

static enum status control_start_receive(comm *c, int peer, void *data, int64_t n_bytes,
                                         comm_op *op)
{
    return start_transfer(c, true, true, peer, 0, data, n_bytes, op);
}

static void control_withdraw(comm *c, comm_op *op)
{
    struct mpi_rank *self = rank_of(c);
    lock(self);
    if (op_of(op)->kind == OP_TRANSFER)
        transfer_withdraw(self, &op_of(op)->transfer);
    (void)unlock(self, STATUS_OK);
}

static const struct control_calls control = {
    .start_send = control_start_send,
    .start_receive = control_start_receive,
    .withdraw = control_withdraw,
};

/* ---- beginning and ending ---- */

/* Whether all ranks come to the end within the time given. */
static bool all_arrive(struct mpi_rank *self, double seconds)
{
    MPI_Request request;
    if (MPI_Ibarrier(self->control, &request) != MPI_SUCCESS)
        return false;
    int64_t until_ns = timer_now_ns() + (int64_t)(seconds * 1e9);
    for (int done = 0; timer_now_ns() < until_ns;) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return false;
        if (done)
            return true;
        struct timespec nap = {.tv_nsec = 200000};
        (void)nanosleep(&nap, NULL);
    }
    return false;
}

static void free_rank(struct mpi_rank *self)
{
    MPI_Comm *comms[] = {&self->transfers, &self->reductions, &self->control, &self->aborts};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++) {
        if (*comms[i] != MPI_COMM_NULL)
            (void)MPI_Comm_free(comms[i]);
    }
    (void)pthread_mutex_destroy(&self->lock);
    free(self->c.control_ops);
    free(self->peers);
    free(self);
}

/* MPI_Finalize waits for all ranks, without end, so it is called only when all have come here. If
 * some do not, MPI_Abort ends the job. */
static void mpi_destroy(comm *c)
{
    if (!c)
        return;
    struct mpi_rank *self = rank_of(c);
    (void)hear_abort(self);
    bool aborted = self->aborted;
    if (!all_arrive(self, aborted ? end_abort_s : c->timeout_s)) {
        (void)fprintf(stderr, "cleave: worker %d: other workers did not come to the end\n",
                      c->rank);
        (void)MPI_Abort(MPI_COMM_WORLD, (int)(aborted ? c->cause : STATUS_TIMEOUT));
    }
    if (self->abort_request != MPI_REQUEST_NULL && MPI_Cancel(&self->abort_request) == MPI_SUCCESS)
        (void)MPI_Wait(&self->abort_request, MPI_STATUS_IGNORE);
    host_destroy(self);
    free_rank(self);
    (void)MPI_Finalize();
}

const struct comm_table mpi_table = {
    .name = "mpi",
    .start_send = mpi_start_send,
    .start_receive = mpi_start_receive,
    .start_reduce = mpi_start_reduce,
    .reduce_workspace_bytes = mpi_reduce_workspace_bytes,
    .poll = mpi_poll,
    .pause = mpi_pause,
    .wake = mpi_wake,
    .exchange = control_exchange,
    .broadcast = control_broadcast,
    .send = control_send,
    .receive = control_receive,
    .abort = mpi_abort,
    .check_peers = mpi_check_peers,
    .name_stopped = mpi_name_stopped,
    .destroy = mpi_destroy,
};

/* Of Open MPI over TCP: messages longer than 192 KiB are not to be put into the receiver's memory
 * in one piece, because nothing else leaves over that connection meanwhile, not even the word that
 * the other direction waits for. Sums over two hosts of 100 Mbit/s take 0.34 s of 4 MiB with this
 * and 0.48 s without. A value that the user has set stays. */
static void set_up_open_mpi(void)
{
    (void)setenv("OMPI_MCA_btl_tcp_flags", "send,inplace,need-ack,need-csum,hetero-rdma", 0);
}

static enum status init_mpi(void)
{
    int initialized = 0, finalized = 0, provided = 0;
    (void)MPI_Initialized(&initialized);
    (void)MPI_Finalized(&finalized);
    if (initialized || finalized)
        return status_fail(STATUS_USAGE, "MPI was used before in this process");
    set_up_open_mpi();
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
        return status_fail(STATUS_FAILED, "MPI_Init_thread failed");
    if (provided < MPI_THREAD_SERIALIZED)
        return status_fail(STATUS_FAILED, "this MPI does not support threads (level %d)", provided);
    TRY_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    return STATUS_OK;
}

static enum status learn_peers(struct mpi_rank *self)
{
    struct mpi_peer mine = {.pid = (int64_t)getpid(), .host_rank = -1};
    if (gethostname(mine.host, sizeof mine.host - 1) != 0)
        mine.host[0] = '\0';
    TRY_MPI(MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, self->peers, (int)sizeof mine,
                          MPI_BYTE, MPI_COMM_WORLD));
    return STATUS_OK;
}

static enum status duplicate_comms(struct mpi_rank *self)
{
    MPI_Comm *comms[] = {&self->transfers, &self->reductions, &self->control, &self->aborts};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++) {
        TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, comms[i])); /* with its error handler */
    }
    int *limit, there;
    TRY_MPI(MPI_Comm_get_attr(self->transfers, MPI_TAG_UB, &limit, &there));
    self->tag_limit = there ? *limit : 32767;
    return STATUS_OK;
}

static enum status init_rank(struct mpi_rank *self)
{
    TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &self->c.rank));
    TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &self->c.size));
    size_t n = (size_t)self->c.size;
    self->peers = calloc(n, sizeof *self->peers);
    self->c.control_ops = malloc(2 * n * sizeof *self->c.control_ops);
    if (!self->peers || !self->c.control_ops)
        return status_no_memory(n * sizeof *self->peers);
    TRY(learn_peers(self));
    TRY(duplicate_comms(self));
    TRY(host_create(self));
    int ranks_here = 0;
    for (int i = 0; i < self->c.size; i++)
        ranks_here += self->peers[i].host_rank >= 0;
    self->waiter = (struct eventcount_waiter){.spin_ns = longest_spin_ns,
                                              .max_spin_ns = longest_spin_ns,
                                              .yields = ranks_here > comm_count_cores()};
    self->crowded = ranks_here >= comm_count_cores();
    if (self->c.size > 1)
        TRY_MPI(MPI_Irecv(&self->abort_incoming, (int)sizeof self->abort_incoming, MPI_BYTE,
                          MPI_ANY_SOURCE, 0, self->aborts, &self->abort_request));
    return STATUS_OK;
}

enum status mpi_create(double timeout_s, comm **out)
{
    TRY(init_mpi());
    struct mpi_rank *self = aligned_alloc(_Alignof(struct mpi_rank), sizeof *self);
    if (!self)
        return status_no_memory(sizeof *self);
    memset(self, 0, sizeof *self);
    self->c = (struct comm){.table = &mpi_table, .timeout_s = timeout_s, .control = &control};
    self->transfers = self->reductions = self->control = self->aborts = MPI_COMM_NULL;
    self->abort_request = MPI_REQUEST_NULL;
    (void)pthread_mutex_init(&self->lock, NULL);
    eventcount_init(&self->own_event, false);
    self->event = &self->own_event;
    TRY(init_rank(self)); /* on failure the process ends now; what MPI holds ends with it */
    *out = &self->c;
    return STATUS_OK;
}
