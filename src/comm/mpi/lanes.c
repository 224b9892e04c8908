/* Reductions over messages, where the members are on several hosts.
 *
 * A few lanes run at once; each takes every MPI_LANES-th segment and makes its moves one after the
 * other (moves.h). While one lane waits for its neighbour, another adds. Messages of different
 * lanes have different tags, since lanes may overtake each other.
 *
 * gather instead sends the whole array to everybody at once and adds when all have arrived: one
 * exchange of messages is the least latency there can be.
 */
#include "comm/mpi/end.h"
#include "comm/mpi/moves.h"

#include <string.h>

static bool is_empty(struct order_range range)
{
    return range.begin >= range.end;
}

/* ---- lanes ---- */

static void *element(const struct comm_reduction *r, void *data, int64_t i)
{
    return (char *)data + i * order_type_bytes(r->type);
}

static int range_bytes(const struct comm_reduction *r, struct order_range range)
{
    return (int)((range.end - range.begin) * order_type_bytes(r->type));
}

static void *lane_room(const struct lanes_op *op, const struct lane *lane)
{
    return element(&op->r, op->workspace, (lane - op->lanes) * moves_segment(&op->r));
}

static enum status start_move(struct mpi_end *end, struct lanes_op *op, struct lane *lane,
                              const struct move *move)
{
    int tag = (int)(op->r.tag * MPI_LANES + (lane - op->lanes));
    if (move->from >= 0 && !is_empty(move->received)) {
        void *into =
            move->adds ? lane_room(op, lane) : element(&op->r, op->data, move->received.begin);
        TRY_MPI(MPI_Irecv(into, range_bytes(&op->r, move->received), MPI_BYTE,
                          op->r.members[move->from], tag, end->reductions, &lane->receive));
        end->n_requests_open++;
    }
    if (move->to >= 0 && !is_empty(move->sent)) {
        TRY_MPI(MPI_Isend(element(&op->r, op->data, move->sent.begin),
                          range_bytes(&op->r, move->sent), MPI_BYTE, op->r.members[move->to], tag,
                          end->reductions, &lane->send));
        end->n_requests_open++;
    }
    return STATUS_OK;
}

/* Tests a request that may be none; *open stays true while it is under way. */
static enum status test_request(struct mpi_end *end, MPI_Request *request, bool *arrived)
{
    int done = 1;
    *arrived = false;
    if (*request == MPI_REQUEST_NULL)
        return STATUS_OK;
    TRY_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
    if (done) {
        *arrived = true;
        end->n_requests_open--;
        end->busy = true;
    }
    return STATUS_OK;
}

/* Starts the move that lane->move and lane->segment say, or that of its next segment. */
static enum status go_on(struct mpi_end *end, struct lanes_op *op, struct lane *lane, bool *over)
{
    struct move move;
    while (!moves_get(&op->r, op->position, lane->segment, lane->move, &move)) {
        lane->segment += MPI_LANES;
        lane->move = 0;
        if (lane->segment >= moves_segment_count(&op->r)) {
            *over = true;
            return STATUS_OK;
        }
    }
    return start_move(end, op, lane, &move);
}

static enum status poll_lane(struct mpi_end *end, struct lanes_op *op, struct lane *lane)
{
    int64_t n_segments = moves_segment_count(&op->r);
    for (bool over = lane->segment >= n_segments; !over;) {
        bool received, sent;
        TRY(test_request(end, &lane->receive, &received));
        struct move move;
        if (received && moves_get(&op->r, op->position, lane->segment, lane->move, &move) &&
            move.adds)
            order_add(op->r.type, move.received.end - move.received.begin,
                      element(&op->r, op->data, move.received.begin), lane_room(op, lane));
        TRY(test_request(end, &lane->send, &sent));
        if (lane->receive != MPI_REQUEST_NULL || lane->send != MPI_REQUEST_NULL)
            return STATUS_OK;
        lane->move++;
        TRY(go_on(end, op, lane, &over));
    }
    return STATUS_OK;
}

enum status lanes_poll(struct mpi_end *end, struct lanes_op *op, bool *done)
{
    int64_t n_segments = moves_segment_count(&op->r);
    int n_over = 0;
    for (int i = 0; i < MPI_LANES; i++) {
        TRY(poll_lane(end, op, &op->lanes[i]));
        n_over += op->lanes[i].segment >= n_segments;
    }
    *done = n_over == MPI_LANES;
    return STATUS_OK;
}

static enum status start_lanes(struct mpi_end *end, struct lanes_op *op)
{
    int64_t n_segments = moves_segment_count(&op->r);
    for (int i = 0; i < MPI_LANES; i++) {
        struct lane *lane = &op->lanes[i];
        *lane = (struct lane){.segment = i, .send = MPI_REQUEST_NULL, .receive = MPI_REQUEST_NULL};
        bool over;
        if (i < n_segments)
            TRY(go_on(end, op, lane, &over));
    }
    return STATUS_OK;
}

/* ---- gather ---- */

/* The workspace: requests, then the arrays of all members in order. */
static MPI_Request *gather_requests(const struct gather_op *op)
{
    return op->workspace;
}

static int64_t requests_bytes(const struct comm_reduction *r)
{
    int64_t n_bytes = 2 * r->n_members * (int64_t)sizeof(MPI_Request);
    return (n_bytes + 63) / 64 * 64;
}

static int64_t array_bytes(const struct comm_reduction *r)
{
    return r->count * order_type_bytes(r->type);
}

static void *gather_array(const struct gather_op *op, int position)
{
    return (char *)op->workspace + requests_bytes(&op->r) + position * array_bytes(&op->r);
}

static enum status start_gather(struct mpi_end *end, struct gather_op *op)
{
    const struct comm_reduction *r = &op->r;
    if (array_bytes(r) > MPI_PART_BYTES)
        return status_fail(STATUS_USAGE, "reduction %lld: %lld bytes are too many for 'gather'",
                           (long long)r->tag, (long long)array_bytes(r));
    MPI_Request *requests = gather_requests(op);
    int tag = (int)(r->tag * MPI_LANES);
    for (int i = 0; i < r->n_members; i++) {
        requests[2 * i] = requests[2 * i + 1] = MPI_REQUEST_NULL;
        if (i == op->position)
            continue;
        TRY_MPI(MPI_Irecv(gather_array(op, i), (int)array_bytes(r), MPI_BYTE, r->members[i], tag,
                          end->reductions, &requests[2 * i]));
        end->n_requests_open++;
    }
    for (int k = 1; k < r->n_members; k++) {
        int i = (op->position + k) % r->n_members;
        TRY_MPI(MPI_Isend(op->data, (int)array_bytes(r), MPI_BYTE, r->members[i], tag,
                          end->reductions, &requests[2 * i + 1]));
        end->n_requests_open++;
    }
    return STATUS_OK;
}

enum status gather_poll(struct mpi_end *end, struct gather_op *op, bool *done)
{
    const struct comm_reduction *r = &op->r;
    MPI_Request *requests = gather_requests(op);
    for (; op->n_done < 2 * r->n_members; op->n_done++) {
        bool arrived;
        TRY(test_request(end, &requests[op->n_done], &arrived));
        if (requests[op->n_done] != MPI_REQUEST_NULL)
            return STATUS_OK;
    }
    void *sum = gather_array(op, 0);
    memcpy(gather_array(op, op->position), op->data, (size_t)array_bytes(r));
    for (int i = 1; i < r->n_members; i++)
        order_add(r->type, r->count, sum, gather_array(op, i));
    memcpy(op->data, sum, (size_t)array_bytes(r));
    *done = true;
    return STATUS_OK;
}

/* ---- both ---- */

int64_t lanes_workspace_bytes(const struct comm_reduction *r)
{
    if (r->method == COMM_GATHER)
        return requests_bytes(r) + r->n_members * array_bytes(r);
    return MPI_LANES * moves_segment(r) * order_type_bytes(r->type);
}

enum status lanes_start(struct mpi_end *end, const struct comm_reduction *r, int position,
                        void *data, void *workspace, struct mpi_op *op)
{
    if (r->tag < 0 || r->tag > end->tag_limit / MPI_LANES - 1)
        return status_fail(STATUS_USAGE, "reduction %lld: MPI allows tags from 0 to %d",
                           (long long)r->tag, end->tag_limit / MPI_LANES - 1);
    if (r->n_members == 1 || r->count == 0) {
        op->kind = OP_DONE;
        return STATUS_OK;
    }
    if (r->method == COMM_GATHER) {
        op->kind = OP_GATHER;
        op->gather =
            (struct gather_op){.r = *r, .data = data, .workspace = workspace, .position = position};
        return start_gather(end, &op->gather);
    }
    op->kind = OP_LANES;
    op->lanes =
        (struct lanes_op){.r = *r, .data = data, .workspace = workspace, .position = position};
    return start_lanes(end, &op->lanes);
}
