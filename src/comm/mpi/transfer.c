/* Messages, over MPI's own. */
#include "comm/mpi/end.h"

enum status mpi_check(int error, const char *what)
{
    if (error == MPI_SUCCESS)
        return STATUS_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)MPI_Error_string(error, text, &length);
    return status_fail(STATUS_LOST, "MPI: %s (%.40s)", text, what);
}

static enum status begin(struct mpi_end *end, int peer, int tag, int64_t n_bytes, bool receives,
                         struct mpi_op *op)
{
    int64_t most = (int64_t)MPI_PARTS * MPI_PART_BYTES;
    if (peer < 0 || peer >= end->c.size || peer == end->c.rank || n_bytes < 0 || n_bytes > most)
        return status_fail(STATUS_USAGE,
                           "transfer %d between worker %d and worker %d: %lld bytes (at most %lld)",
                           tag, end->c.rank, peer, (long long)n_bytes, (long long)most);
    op->kind = OP_TRANSFER;
    op->transfer = (struct transfer_op){.receives = receives, .peer = peer, .n_bytes = n_bytes};
    op->transfer.n_parts = (int)((n_bytes + MPI_PART_BYTES - 1) / MPI_PART_BYTES);
    if (op->transfer.n_parts == 0)
        op->transfer.n_parts = 1; /* an empty message is one, too */
    return STATUS_OK;
}

static int part_bytes(const struct transfer_op *op, int part)
{
    int64_t left = op->n_bytes - (int64_t)part * MPI_PART_BYTES;
    return (int)(left < MPI_PART_BYTES ? left : MPI_PART_BYTES);
}

enum status transfer_start_send(struct mpi_end *end, MPI_Comm mpi_comm, int peer, int tag,
                                const void *data, int64_t n_bytes, struct mpi_op *op)
{
    TRY(begin(end, peer, tag, n_bytes, false, op));
    for (int i = 0; i < op->transfer.n_parts; i++) {
        const char *part = (const char *)data + (int64_t)i * MPI_PART_BYTES;
        TRY_MPI(MPI_Isend(part, part_bytes(&op->transfer, i), MPI_BYTE, peer, tag, mpi_comm,
                          &op->transfer.requests[i]));
        end->n_requests_open++;
    }
    return STATUS_OK;
}

enum status transfer_start_receive(struct mpi_end *end, MPI_Comm mpi_comm, int peer, int tag,
                                   void *data, int64_t n_bytes, struct mpi_op *op)
{
    TRY(begin(end, peer, tag, n_bytes, true, op));
    for (int i = 0; i < op->transfer.n_parts; i++) {
        char *part = (char *)data + (int64_t)i * MPI_PART_BYTES;
        TRY_MPI(MPI_Irecv(part, part_bytes(&op->transfer, i), MPI_BYTE, peer, tag, mpi_comm,
                          &op->transfer.requests[i]));
        end->n_requests_open++;
    }
    return STATUS_OK;
}

enum status transfer_poll(struct mpi_end *end, struct transfer_op *op, bool *done)
{
    while (op->n_done < op->n_parts) {
        int arrived = 0;
        MPI_Status status;
        TRY_MPI(MPI_Test(&op->requests[op->n_done], &arrived, &status));
        if (!arrived)
            return STATUS_OK;
        int n_bytes = part_bytes(op, op->n_done);
        if (op->receives)
            TRY_MPI(MPI_Get_count(&status, MPI_BYTE, &n_bytes));
        if (n_bytes != part_bytes(op, op->n_done))
            return status_fail(STATUS_FAILED, "worker %d sent %d bytes where worker %d expected %d",
                               op->peer, n_bytes, end->c.rank, part_bytes(op, op->n_done));
        op->n_done++;
        end->n_requests_open--;
        end->busy = true;
    }
    *done = true;
    return STATUS_OK;
}

/* A receive is cancelled; a send that nobody takes is left to MPI, which may read its memory until
 * the end: it only happens on the way to giving up. */
void transfer_withdraw(struct mpi_end *end, struct transfer_op *op)
{
    for (; op->n_done < op->n_parts; op->n_done++) {
        MPI_Request *request = &op->requests[op->n_done];
        if (op->receives && MPI_Cancel(request) == MPI_SUCCESS)
            (void)MPI_Wait(request, MPI_STATUS_IGNORE);
        else
            (void)MPI_Request_free(request);
        end->n_requests_open--;
    }
}
