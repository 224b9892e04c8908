/* Reductions over messages, where the members are on several hosts.
 *
 * A few channels run at once; each takes every MPI_CHANNELS-th segment and makes its steps one
 * after the other (reduce_steps.h). While one channel waits for its neighbour, another adds.
 * Messages of different channels have different tags, since channels may overtake each other.
 *
 * gather instead sends the whole array to everybody at once and adds when all have arrived: one
 * exchange of messages is the least latency there can be.
 */
#include "comm/mpi/rank.h"
#include "comm/mpi/reduce_steps.h"

#include <string.h>

static bool is_empty(struct order_range range)
{
    return range.begin >= range.end;
}

/* ---- channels ---- */

static void *element(const struct comm_reduction *r, void *data, int64_t i)
{
    return (char *)data + i * element_bytes(r->type);
}

static int range_bytes(const struct comm_reduction *r, struct order_range range)
{
    return (int)((range.end - range.begin) * element_bytes(r->type));
}

static void *channel_room(const struct channels_op *op, const struct channel *channel)
{
    return element(&op->r, op->workspace, (channel - op->channels) * reduce_segment(&op->r));
}

static enum status start_step(struct mpi_rank *self, struct channels_op *op,
                              struct channel *channel, const struct reduce_step *step)
{
    int tag = (int)(op->r.tag * MPI_CHANNELS + (channel - op->channels));
    if (step->from >= 0 && !is_empty(step->received)) {
        void *into = step->adds ? channel_room(op, channel)
                                : element(&op->r, op->data, step->received.begin);
        TRY_MPI(MPI_Irecv(into, range_bytes(&op->r, step->received), MPI_BYTE,
                          op->r.members[step->from], tag, self->reductions, &channel->receive));
        self->n_requests_open++;
    }
    if (step->to >= 0 && !is_empty(step->sent)) {
        TRY_MPI(MPI_Isend(element(&op->r, op->data, step->sent.begin),
                          range_bytes(&op->r, step->sent), MPI_BYTE, op->r.members[step->to], tag,
                          self->reductions, &channel->send));
        self->n_requests_open++;
    }
    return STATUS_OK;
}

/* Tests a request that may be none; *open stays true while it is under way. */
static enum status test_request(struct mpi_rank *self, MPI_Request *request, bool *arrived)
{
    int done = 1;
    *arrived = false;
    if (*request == MPI_REQUEST_NULL)
        return STATUS_OK;
    TRY_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
    if (done) {
        *arrived = true;
        self->n_requests_open--;
        self->busy = true;
    }
    return STATUS_OK;
}

/* Starts the step that channel->step and channel->segment say, or that of its next segment. */
static enum status go_on(struct mpi_rank *self, struct channels_op *op, struct channel *channel,
                         bool *over)
{
    struct reduce_step step;
    while (!reduce_step_get(&op->r, op->position, channel->segment, channel->step, &step)) {
        channel->segment += MPI_CHANNELS;
        channel->step = 0;
        if (channel->segment >= reduce_segment_count(&op->r)) {
            *over = true;
            return STATUS_OK;
        }
    }
    return start_step(self, op, channel, &step);
}

static enum status poll_channel(struct mpi_rank *self, struct channels_op *op,
                                struct channel *channel)
{
    int64_t n_segments = reduce_segment_count(&op->r);
    for (bool over = channel->segment >= n_segments; !over;) {
        bool received, sent;
        TRY(test_request(self, &channel->receive, &received));
        struct reduce_step step;
        if (received &&
            reduce_step_get(&op->r, op->position, channel->segment, channel->step, &step) &&
            step.adds)
            order_add(op->r.type, step.received.end - step.received.begin,
                      element(&op->r, op->data, step.received.begin), channel_room(op, channel));
        TRY(test_request(self, &channel->send, &sent));
        if (channel->receive != MPI_REQUEST_NULL || channel->send != MPI_REQUEST_NULL)
            return STATUS_OK;
        channel->step++;
        TRY(go_on(self, op, channel, &over));
    }
    return STATUS_OK;
}

enum status channels_poll(struct mpi_rank *self, struct channels_op *op, bool *done)
{
    int64_t n_segments = reduce_segment_count(&op->r);
    int n_over = 0;
    for (int i = 0; i < MPI_CHANNELS; i++) {
        TRY(poll_channel(self, op, &op->channels[i]));
        n_over += op->channels[i].segment >= n_segments;
    }
    *done = n_over == MPI_CHANNELS;
    return STATUS_OK;
}

static enum status start_channels(struct mpi_rank *self, struct channels_op *op)
{
    int64_t n_segments = reduce_segment_count(&op->r);
    for (int i = 0; i < MPI_CHANNELS; i++) {
        struct channel *channel = &op->channels[i];
        *channel =
            (struct channel){.segment = i, .send = MPI_REQUEST_NULL, .receive = MPI_REQUEST_NULL};
        bool over;
        if (i < n_segments)
            TRY(go_on(self, op, channel, &over));
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
    return r->count * element_bytes(r->type);
}

static void *gather_array(const struct gather_op *op, int position)
{
    return (char *)op->workspace + requests_bytes(&op->r) + position * array_bytes(&op->r);
}

static enum status start_gather(struct mpi_rank *self, struct gather_op *op)
{
    const struct comm_reduction *r = &op->r;
    if (array_bytes(r) > MPI_PART_BYTES)
        return status_fail(STATUS_USAGE, "reduction %lld: %lld bytes are too many for 'gather'",
                           (long long)r->tag, (long long)array_bytes(r));
    MPI_Request *requests = gather_requests(op);
    int tag = (int)(r->tag * MPI_CHANNELS);
    for (int i = 0; i < r->n_members; i++) {
        requests[2 * i] = requests[2 * i + 1] = MPI_REQUEST_NULL;
        if (i == op->position)
            continue;
        TRY_MPI(MPI_Irecv(gather_array(op, i), (int)array_bytes(r), MPI_BYTE, r->members[i], tag,
                          self->reductions, &requests[2 * i]));
        self->n_requests_open++;
    }
    for (int k = 1; k < r->n_members; k++) {
        int i = (op->position + k) % r->n_members;
        TRY_MPI(MPI_Isend(op->data, (int)array_bytes(r), MPI_BYTE, r->members[i], tag,
                          self->reductions, &requests[2 * i + 1]));
        self->n_requests_open++;
    }
    return STATUS_OK;
}

enum status gather_poll(struct mpi_rank *self, struct gather_op *op, bool *done)
{
    const struct comm_reduction *r = &op->r;
    MPI_Request *requests = gather_requests(op);
    for (; op->n_done < 2 * r->n_members; op->n_done++) {
        bool arrived;
        TRY(test_request(self, &requests[op->n_done], &arrived));
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

int64_t messages_workspace_bytes(const struct comm_reduction *r)
{
    if (r->method == COMM_GATHER)
        return requests_bytes(r) + r->n_members * array_bytes(r);
    return MPI_CHANNELS * reduce_segment(r) * element_bytes(r->type);
}

enum status messages_start(struct mpi_rank *self, const struct comm_reduction *r, int position,
                           void *data, void *workspace, struct mpi_op *op)
{
    if (r->tag < 0 || r->tag > self->tag_limit / MPI_CHANNELS - 1)
        return status_fail(STATUS_USAGE, "reduction %lld: MPI allows tags from 0 to %d",
                           (long long)r->tag, self->tag_limit / MPI_CHANNELS - 1);
    if (r->n_members == 1 || r->count == 0) {
        op->kind = OP_DONE;
        return STATUS_OK;
    }
    if (r->method == COMM_GATHER) {
        op->kind = OP_GATHER;
        op->gather =
            (struct gather_op){.r = *r, .data = data, .workspace = workspace, .position = position};
        return start_gather(self, &op->gather);
    }
    op->kind = OP_CHANNELS;
    op->channels =
        (struct channels_op){.r = *r, .data = data, .workspace = workspace, .position = position};
    return start_channels(self, &op->channels);
}
