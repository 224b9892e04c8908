/* Messages, over MPI's own. */
#include "comm/mpi/rank.h"

enum status mpi_check(int error, const char *what)
{
    if (error == MPI_SUCCESS)
        return STATUS_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)MPI_Error_string(error, text, &length);
    return status_fail(STATUS_LOST, "MPI: %s (%.40s)", text, what);
}

/* To other hosts messages go in parts that MPI sends at once, without asking the receiver whether
 * it is ready: the answer would queue in the one connection of the pair behind the messages
 * that the receiver sends itself, and so the two directions of a link would take turns. 64 KiB less
 * its header is what Open MPI sends so over TCP; see also init_mpi. Parts stay in order, since a
 * pair has no two transfers of one tag at a time. */
enum { AT_ONCE_BYTES = 60 * 1024 };

static int64_t find_part_bytes(const struct mpi_rank *self, MPI_Comm mpi_comm, int peer)
{
    bool far = mpi_comm == self->transfers && self->peers[peer].host_rank < 0;
    return far ? AT_ONCE_BYTES : MPI_PART_BYTES;
}

static int part_bytes(const struct transfer_op *op, int part)
{
    int64_t left = op->n_bytes - part * op->part_bytes;
    return (int)(left < op->part_bytes ? left : op->part_bytes);
}

static enum status start_part(struct mpi_rank *self, struct transfer_op *op)
{
    int part = op->n_started, n_bytes = part_bytes(op, part);
    char *data = op->data + part * op->part_bytes;
    MPI_Request *request = &op->requests[part % MPI_PARTS];
    if (op->receives)
        TRY_MPI(MPI_Irecv(data, n_bytes, MPI_BYTE, op->peer, op->tag, op->mpi_comm, request));
    else
        TRY_MPI(MPI_Isend(data, n_bytes, MPI_BYTE, op->peer, op->tag, op->mpi_comm, request));
    op->n_started++;
    self->n_requests_open++;
    return STATUS_OK;
}

/* As many as there is room for. Sends to a peer stand in a row: one that is too long to be started
 * at once would else end behind all that were sent after it. */
static enum status start_parts(struct mpi_rank *self, struct transfer_op *op)
{
    struct mpi_peer *peer = &self->peers[op->peer];
    if (op->n_started == op->n_parts || (op->place >= 0 && op->place != peer->n_sends_started))
        return STATUS_OK;
    while (op->n_started < op->n_parts && op->n_started - op->n_done < MPI_PARTS)
        TRY(start_part(self, op));
    peer->n_sends_started += op->place >= 0 && op->n_started == op->n_parts;
    return STATUS_OK;
}

enum status transfer_start(struct mpi_rank *self, const struct transfer_op *like, struct mpi_op *op)
{
    int64_t most = (int64_t)MPI_PARTS * MPI_PART_BYTES;
    if (like->peer < 0 || like->peer >= self->c.size || like->peer == self->c.rank ||
        like->n_bytes < 0 || like->n_bytes > most)
        return status_fail(
            STATUS_USAGE, "transfer %d between worker %d and worker %d: %lld bytes (at most %lld)",
            like->tag, self->c.rank, like->peer, (long long)like->n_bytes, (long long)most);
    struct transfer_op *t = &op->transfer;
    op->kind = OP_TRANSFER;
    *t = *like;
    t->part_bytes = find_part_bytes(self, t->mpi_comm, t->peer);
    t->n_parts = (int)((t->n_bytes + t->part_bytes - 1) / t->part_bytes);
    if (t->n_parts == 0)
        t->n_parts = 1; /* an empty message is one, too */
    bool in_row = !t->receives && t->mpi_comm == self->transfers;
    t->place = in_row ? self->peers[t->peer].n_sends++ : -1;
    return start_parts(self, t);
}

enum status transfer_poll(struct mpi_rank *self, struct transfer_op *op, bool *done)
{
    TRY(start_parts(self, op)); /* it may be first in the row by now */
    while (op->n_done < op->n_parts) {
        int arrived = 0;
        MPI_Status status;
        if (op->n_done == op->n_started)
            return STATUS_OK;
        TRY_MPI(MPI_Test(&op->requests[op->n_done % MPI_PARTS], &arrived, &status));
        if (!arrived)
            return STATUS_OK;
        int n_bytes = part_bytes(op, op->n_done);
        if (op->receives)
            TRY_MPI(MPI_Get_count(&status, MPI_BYTE, &n_bytes));
        if (n_bytes != part_bytes(op, op->n_done))
            return status_fail(STATUS_FAILED, "worker %d sent %d bytes where worker %d expected %d",
                               op->peer, n_bytes, self->c.rank, part_bytes(op, op->n_done));
        op->n_done++;
        self->n_requests_open--;
        self->busy = true;
        TRY(start_parts(self, op));
    }
    *done = true;
    return STATUS_OK;
}

/* A receive is cancelled; a send that is never received is left to MPI, which may read its memory
 * to the end: this only happens after a failure. */
void transfer_withdraw(struct mpi_rank *self, struct transfer_op *op)
{
    for (; op->n_done < op->n_started; op->n_done++) {
        MPI_Request *request = &op->requests[op->n_done % MPI_PARTS];
        if (op->receives && MPI_Cancel(request) == MPI_SUCCESS)
            (void)MPI_Wait(request, MPI_STATUS_IGNORE);
        else
            (void)MPI_Request_free(request);
        self->n_requests_open--;
    }
}
