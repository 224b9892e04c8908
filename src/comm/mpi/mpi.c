/* Workers as MPI ranks: see end.h. */
#include "comm/mpi/create.h"
#include "comm/mpi/end.h"

#include "base/timer.h"
#include "comm/control.h"
#include "comm/order.h"

#include <errno.h>
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
static const double nap_s = 50e-6;   /* MPI wakes nobody: a sleeper looks again after this */
static const double end_abort_s = 2; /* others' time to end by themselves */

static struct mpi_end *end_of(comm *c)
{
    return (struct mpi_end *)c;
}

static struct mpi_op *op_of(comm_op *op)
{
    return (struct mpi_op *)op;
}

static void lock(struct mpi_end *end)
{
    (void)pthread_mutex_lock(&end->lock);
}

static enum status unlock(struct mpi_end *end, enum status st)
{
    (void)pthread_mutex_unlock(&end->lock);
    return st;
}

/* ---- ending in failure ---- */

static void note_abort(struct mpi_end *end, const struct mpi_abort *why)
{
    if (end->aborted)
        return;
    end->aborted = true;
    end->abort = *why;
    end->c.cause = (enum status)why->cause;
    end->c.told = why->rank != end->c.rank;
}

/* Notes whether another rank has called abort; returns what MPI said. */
static int hear_abort(struct mpi_end *end)
{
    const struct mpi_abort *here = host_find_abort(end);
    if (here)
        note_abort(end, here);
    if (end->aborted || end->all_on_host || end->c.size == 1)
        return MPI_SUCCESS;
    int arrived = 0, error = MPI_Test(&end->abort_request, &arrived, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS && arrived)
        note_abort(end, &end->abort_incoming);
    return error;
}

/* Whether this or another rank has called abort. */
static enum status check_abort(struct mpi_end *end)
{
    TRY_MPI(hear_abort(end));
    return end->aborted ? status_fail(STATUS_LOST, "%s", end->abort.text) : STATUS_OK;
}

/* Tells every rank; text and requests stay until the messages are gone, or to the end. */
static void mpi_abort(comm *c, enum status cause, const char *why)
{
    struct mpi_end *end = end_of(c);
    struct mpi_abort mine = {.cause = (int)cause, .rank = c->rank};
    (void)snprintf(mine.text, sizeof mine.text, "%s", why);
    lock(end);
    host_abort(end, &mine);
    const struct mpi_abort *here = host_find_abort(end); /* another may have been first */
    bool first = !end->aborted;
    note_abort(end, here ? here : &mine);
    for (int i = 0; i < c->size && first && !end->all_on_host; i++) {
        MPI_Request request;
        if (i != c->rank && MPI_Isend(&end->abort, (int)sizeof end->abort, MPI_BYTE, i, 0,
                                      end->aborts, &request) == MPI_SUCCESS)
            (void)MPI_Request_free(&request);
    }
    eventcount_signal(end->event);
    (void)unlock(end, STATUS_OK);
}

/* What /proc says of a process of this host: R, S, T (stopped), Z (ended, and nobody has asked for
 * its exit status yet), .. 0: there is none; '?': unknown. */
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

static enum status check_process(const struct mpi_end *end, int rank)
{
    const struct mpi_peer *peer = &end->peers[rank];
    char state = find_process_state(peer->pid);
    if (state != 0 && state != 'Z' && state != 'X')
        return STATUS_OK;
    return status_fail(STATUS_LOST, "worker %d (process %lld) is gone", rank, (long long)peer->pid);
}

static void mpi_name_stopped(comm *c, char *text, size_t text_bytes)
{
    const struct mpi_end *end = end_of(c);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < c->size && used < text_bytes; i++) {
        const struct mpi_peer *peer = &end->peers[i];
        if (i == c->rank || peer->host_rank < 0 || find_process_state(peer->pid) != 'T')
            continue;
        used += (size_t)snprintf(text + used, text_bytes - used,
                                 "; worker %d (process %lld) is stopped", i, (long long)peer->pid);
    }
}

static enum status mpi_check_peers(comm *c)
{
    struct mpi_end *end = end_of(c);
    lock(end);
    enum status st = check_abort(end);
    (void)unlock(end, st);
    for (int i = 0; i < c->size && st == STATUS_OK; i++) {
        if (i != c->rank && end->peers[i].host_rank >= 0)
            st = check_process(end, i);
    }
    return st;
}

/* ---- transfers and reductions ---- */

static enum status check_tag(const struct mpi_end *end, int64_t tag)
{
    if (tag >= 0 && tag <= end->tag_limit)
        return STATUS_OK;
    return status_fail(STATUS_USAGE, "transfer %lld: MPI allows tags from 0 to %d", (long long)tag,
                       end->tag_limit);
}

static enum status mpi_start_send(comm *c, int peer, int64_t tag, const void *data, int64_t n_bytes,
                                  comm_op *op)
{
    struct mpi_end *end = end_of(c);
    TRY(check_tag(end, tag));
    lock(end);
    TRY(unlock(end,
               transfer_start_send(end, end->transfers, peer, (int)tag, data, n_bytes, op_of(op))));
    c->sent_bytes += n_bytes;
    c->sent_messages++;
    return STATUS_OK;
}

static enum status mpi_start_receive(comm *c, int peer, int64_t tag, void *data, int64_t n_bytes,
                                     comm_op *op)
{
    struct mpi_end *end = end_of(c);
    TRY(check_tag(end, tag));
    lock(end);
    return unlock(
        end, transfer_start_receive(end, end->transfers, peer, (int)tag, data, n_bytes, op_of(op)));
}

static enum status mpi_start_reduce(comm *c, const struct comm_reduction *r, void *data,
                                    void *workspace, comm_op *op)
{
    struct mpi_end *end = end_of(c);
    int position;
    TRY(order_check(c, r, &position));
    lock(end);
    enum status st = host_has_all(end, r)
                         ? host_start(end, r, position, data, op_of(op))
                         : lanes_start(end, r, position, data, workspace, op_of(op));
    TRY(unlock(end, st));
    c->sent_bytes += comm_reduce_sent_bytes(r, position);
    c->sent_messages += order_sent_messages(r, position);
    return STATUS_OK;
}

/* Whether the members share a host is not known here: enough for both ways. */
static int64_t mpi_reduce_workspace_bytes(const struct comm_reduction *r)
{
    return lanes_workspace_bytes(r);
}

static enum status poll_op(struct mpi_end *end, struct mpi_op *op, bool *done)
{
    switch (op->kind) {
    case OP_TRANSFER:
        return transfer_poll(end, &op->transfer, done);
    case OP_LANES:
        return lanes_poll(end, &op->lanes, done);
    case OP_GATHER:
        return gather_poll(end, &op->gather, done);
    case OP_HOST:
        return host_poll(end, &op->host, done);
    default:
        *done = true;
        return STATUS_OK;
    }
}

static enum status mpi_poll(comm *c, comm_op *op, bool *done)
{
    struct mpi_end *end = end_of(c);
    *done = false;
    lock(end);
    /* A look at MPI costs a call of the system: whether another host gave up is asked in pause. */
    enum status st = end->aborted || end->all_on_host ? check_abort(end) : STATUS_OK;
    if (st == STATUS_OK)
        st = poll_op(end, op_of(op), done);
    if (st == STATUS_OK && *done)
        op_of(op)->kind = OP_DONE;
    return unlock(end, st);
}

static int64_t find_spin_ns(struct mpi_end *end)
{
    return end->crowded && atomic_load(&end->c.computes) ? crowded_spin_ns : poll_spin_ns;
}

/* The bell is rung by ranks of this host and by wake; messages ring no bell, so while some are
 * under way this returns at once for a while, and then naps. */
static enum status mpi_pause(comm *c, double seconds)
{
    struct mpi_end *end = end_of(c);
    lock(end);
    TRY(unlock(end, check_abort(end)));
    int64_t now_ns = end->n_requests_open > 0 || end->busy ? timer_now_ns() : 0;
    if (end->busy) {
        end->busy = false;
        end->moved_ns = now_ns;
        eventcount_wait(end->event, &end->waiter, 0);
        return STATUS_OK;
    }
    if (end->n_requests_open > 0) {
        if (now_ns - end->moved_ns < find_spin_ns(end)) {
            if (end->waiter.yields)
                (void)sched_yield();
            eventcount_wait(end->event, &end->waiter, 0);
            return STATUS_OK;
        }
        seconds = seconds < nap_s ? seconds : nap_s;
    } else if (!end->all_on_host && seconds > 0.01) {
        seconds = 0.01; /* to hear of an abort */
    }
    eventcount_wait(end->event, &end->waiter, seconds);
    return STATUS_OK;
}

static void mpi_wake(comm *c)
{
    eventcount_signal(end_of(c)->event);
}

/* ---- control messages ---- */

static enum status control_start_send(comm *c, int peer, const void *data, int64_t n_bytes,
                                      comm_op *op)
{
    struct mpi_end *end = end_of(c);
    lock(end);
    return unlock(end, transfer_start_send(end, end->control, peer, 0, data, n_bytes, op_of(op)));
}

static enum status control_start_receive(comm *c, int peer, void *data, int64_t n_bytes,
                                         comm_op *op)
{
    struct mpi_end *end = end_of(c);
    lock(end);
    return unlock(end,
                  transfer_start_receive(end, end->control, peer, 0, data, n_bytes, op_of(op)));
}

static void control_withdraw(comm *c, comm_op *op)
{
    struct mpi_end *end = end_of(c);
    lock(end);
    if (op_of(op)->kind == OP_TRANSFER)
        transfer_withdraw(end, &op_of(op)->transfer);
    (void)unlock(end, STATUS_OK);
}

static const struct control_ways ways = {
    .start_send = control_start_send,
    .start_receive = control_start_receive,
    .withdraw = control_withdraw,
};

static enum status mpi_exchange(comm *c, const void *mine, int64_t n_bytes, void *all)
{
    return control_exchange(c, &ways, end_of(c)->control_ops, mine, n_bytes, all);
}

static enum status mpi_broadcast(comm *c, int root, void *data, int64_t n_bytes)
{
    return control_broadcast(c, &ways, end_of(c)->control_ops, root, data, n_bytes);
}

static enum status mpi_send(comm *c, int peer, const void *data, int64_t n_bytes)
{
    return control_send(c, &ways, end_of(c)->control_ops, peer, data, n_bytes);
}

static enum status mpi_receive(comm *c, int peer, void *data, int64_t n_bytes)
{
    return control_receive(c, &ways, end_of(c)->control_ops, peer, data, n_bytes);
}

/* ---- beginning and ending ---- */

/* Whether everybody has come to the end, within the time given. */
static bool all_arrive(struct mpi_end *end, double seconds)
{
    MPI_Request request;
    if (MPI_Ibarrier(end->control, &request) != MPI_SUCCESS)
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

static void free_end(struct mpi_end *end)
{
    MPI_Comm *comms[] = {&end->transfers, &end->reductions, &end->control, &end->aborts};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++) {
        if (*comms[i] != MPI_COMM_NULL)
            (void)MPI_Comm_free(comms[i]);
    }
    (void)pthread_mutex_destroy(&end->lock);
    free(end->control_ops);
    free(end->peers);
    free(end);
}

/* MPI_Finalize waits for all ranks, without end; so nobody calls it before all have come here. If
 * some do not, MPI_Abort ends the job. */
static void mpi_destroy(comm *c)
{
    if (!c)
        return;
    struct mpi_end *end = end_of(c);
    (void)hear_abort(end);
    bool aborted = end->aborted;
    if (!all_arrive(end, aborted ? end_abort_s : c->timeout_s)) {
        (void)fprintf(stderr, "cleave: worker %d: other workers did not come to the end\n",
                      c->rank);
        (void)MPI_Abort(MPI_COMM_WORLD, (int)(aborted ? c->cause : STATUS_TIMEOUT));
    }
    if (end->abort_request != MPI_REQUEST_NULL && MPI_Cancel(&end->abort_request) == MPI_SUCCESS)
        (void)MPI_Wait(&end->abort_request, MPI_STATUS_IGNORE);
    host_destroy(end);
    free_end(end);
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
    .exchange = mpi_exchange,
    .broadcast = mpi_broadcast,
    .send = mpi_send,
    .receive = mpi_receive,
    .abort = mpi_abort,
    .check_peers = mpi_check_peers,
    .name_stopped = mpi_name_stopped,
    .destroy = mpi_destroy,
};

/* Of Open MPI over TCP: messages longer than 192 KiB are not to be put into the receiver's memory
 * in one piece, because nothing else leaves over that connection meanwhile, not even the word that
 * the other direction waits for. Sums over two hosts of 100 Mbit/s take 0.34 s of 4 MiB with this
 * and 0.48 s without. What the user has set stays. */
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

static enum status learn_peers(struct mpi_end *end)
{
    struct mpi_peer mine = {.pid = (int64_t)getpid(), .host_rank = -1};
    if (gethostname(mine.host, sizeof mine.host - 1) != 0)
        mine.host[0] = '\0';
    TRY_MPI(MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, end->peers, (int)sizeof mine, MPI_BYTE,
                          MPI_COMM_WORLD));
    return STATUS_OK;
}

static enum status duplicate_comms(struct mpi_end *end)
{
    MPI_Comm *comms[] = {&end->transfers, &end->reductions, &end->control, &end->aborts};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++) {
        TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, comms[i])); /* with its error handler */
    }
    int *limit, there;
    TRY_MPI(MPI_Comm_get_attr(end->transfers, MPI_TAG_UB, &limit, &there));
    end->tag_limit = there ? *limit : 32767;
    return STATUS_OK;
}

static enum status init_end(struct mpi_end *end)
{
    TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &end->c.rank));
    TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &end->c.size));
    size_t n = (size_t)end->c.size;
    end->peers = calloc(n, sizeof *end->peers);
    end->control_ops = malloc(2 * n * sizeof *end->control_ops);
    if (!end->peers || !end->control_ops)
        return status_no_memory(n * sizeof *end->peers);
    TRY(learn_peers(end));
    TRY(duplicate_comms(end));
    TRY(host_create(end));
    int ranks_here = 0;
    for (int i = 0; i < end->c.size; i++)
        ranks_here += end->peers[i].host_rank >= 0;
    end->waiter = (struct eventcount_waiter){.spin_ns = longest_spin_ns,
                                             .max_spin_ns = longest_spin_ns,
                                             .yields = ranks_here > comm_count_cores()};
    end->crowded = ranks_here >= comm_count_cores();
    if (end->c.size > 1)
        TRY_MPI(MPI_Irecv(&end->abort_incoming, (int)sizeof end->abort_incoming, MPI_BYTE,
                          MPI_ANY_SOURCE, 0, end->aborts, &end->abort_request));
    return STATUS_OK;
}

enum status mpi_create(double timeout_s, comm **out)
{
    TRY(init_mpi());
    struct mpi_end *end = aligned_alloc(_Alignof(struct mpi_end), sizeof *end);
    if (!end)
        return status_no_memory(sizeof *end);
    memset(end, 0, sizeof *end);
    end->c = (struct comm){.table = &mpi_table, .timeout_s = timeout_s};
    end->transfers = end->reductions = end->control = end->aborts = MPI_COMM_NULL;
    end->abort_request = MPI_REQUEST_NULL;
    (void)pthread_mutex_init(&end->lock, NULL);
    eventcount_init(&end->own_event, false);
    end->event = &end->own_event;
    TRY(init_end(end)); /* on failure the process ends now; what MPI holds ends with it */
    *out = &end->c;
    return STATUS_OK;
}
