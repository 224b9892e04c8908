/* Workers as threads of one process: see hub.h. */
#include "comm/control.h"
#include "comm/order.h"
#include "comm/threads/hub.h"
#include "comm/threads/table.h"

#include <stdlib.h>
#include <string.h>

static const int64_t longest_spin_ns = (int64_t)(COMM_SPIN_S * 1e9);

static struct hub_end *end_of(comm *c)
{
    return (struct hub_end *)c;
}

static struct hub_op *op_of(comm_op *op)
{
    return (struct hub_op *)op;
}

/* ---- transfers and reductions ---- */

static enum status post_transfer(comm *c, enum meeting_kind kind, int from, int to, int64_t tag,
                                 void *data, int64_t n_bytes, comm_op *op)
{
    int peer = from == c->rank ? to : from;
    if (peer < 0 || peer >= c->size || peer == c->rank || n_bytes < 0)
        return status_fail(STATUS_USAGE, "transfer %lld: %lld bytes from worker %d to worker %d",
                           (long long)tag, (long long)n_bytes, from, to);
    int members[] = {from, to};
    struct comm_reduction r = {.n_members = 2, .members = members, .count = n_bytes, .tag = tag};
    return hub_post(end_of(c), kind, &r, from == c->rank ? 0 : 1, data, op_of(op));
}

static enum status threads_start_send(comm *c, int peer, int64_t tag, const void *data,
                                      int64_t n_bytes, comm_op *op)
{
    TRY(post_transfer(c, MEETING_TRANSFER, c->rank, peer, tag, (void *)(uintptr_t)data, n_bytes,
                      op));
    c->sent_bytes += n_bytes;
    c->sent_messages++;
    return STATUS_OK;
}

static enum status threads_start_receive(comm *c, int peer, int64_t tag, void *data,
                                         int64_t n_bytes, comm_op *op)
{
    return post_transfer(c, MEETING_TRANSFER, peer, c->rank, tag, data, n_bytes, op);
}

static enum status threads_start_reduce(comm *c, const struct comm_reduction *r, void *data,
                                        void *workspace, comm_op *op)
{
    (void)workspace; /* sums are made in the members' own memory */
    int position;
    TRY(order_check(c, r, &position));
    TRY(hub_post(end_of(c), MEETING_REDUCE, r, position, data, op_of(op)));
    c->sent_bytes += comm_reduce_sent_bytes(r, position);
    c->sent_messages += order_sent_messages(r, position);
    return STATUS_OK;
}

static int64_t threads_reduce_workspace_bytes(const struct comm_reduction *r)
{
    (void)r;
    return 0;
}

static enum status threads_poll(comm *c, comm_op *op, bool *done)
{
    return hub_poll(end_of(c), op_of(op), done);
}

static enum status threads_pause(comm *c, double seconds)
{
    struct hub_end *end = end_of(c);
    TRY(hub_check(end->hub));
    eventcount_wait(&end->event, &end->waiter, end->busy ? 0 : seconds);
    end->busy = false;
    return hub_check(end->hub);
}

static void threads_wake(comm *c)
{
    eventcount_signal(&end_of(c)->event);
}

/* ---- control messages: transfers of another kind, matched in order ---- */

static enum status control_start_send(comm *c, int peer, const void *data, int64_t n_bytes,
                                      comm_op *op)
{
    return post_transfer(c, MEETING_CONTROL, c->rank, peer, 0, (void *)(uintptr_t)data, n_bytes,
                         op);
}

static enum status control_start_receive(comm *c, int peer, void *data, int64_t n_bytes,
                                         comm_op *op)
{
    return post_transfer(c, MEETING_CONTROL, peer, c->rank, 0, data, n_bytes, op);
}

static void control_withdraw(comm *c, comm_op *op)
{
    hub_withdraw(end_of(c), op_of(op));
}

static const struct control_ways ways = {
    .start_send = control_start_send,
    .start_receive = control_start_receive,
    .withdraw = control_withdraw,
};

static enum status threads_exchange(comm *c, const void *mine, int64_t n_bytes, void *all)
{
    return control_exchange(c, &ways, end_of(c)->control_ops, mine, n_bytes, all);
}

static enum status threads_broadcast(comm *c, int root, void *data, int64_t n_bytes)
{
    return control_broadcast(c, &ways, end_of(c)->control_ops, root, data, n_bytes);
}

static enum status threads_send(comm *c, int peer, const void *data, int64_t n_bytes)
{
    return control_send(c, &ways, end_of(c)->control_ops, peer, data, n_bytes);
}

static enum status threads_receive(comm *c, int peer, void *data, int64_t n_bytes)
{
    return control_receive(c, &ways, end_of(c)->control_ops, peer, data, n_bytes);
}

/* ---- beginning and ending ---- */

static void threads_abort(comm *c, enum status cause, const char *why)
{
    (void)cause; /* each worker's own status is at hand in the same process */
    hub_abort(end_of(c)->hub, why);
}

static void free_end(struct hub_end *end)
{
    free(end->control_ops);
    free(end);
}

/* The ends of others may still signal this one: the last to be destroyed frees them all. */
static void threads_destroy(comm *c)
{
    if (!c)
        return;
    struct hub *hub = end_of(c)->hub;
    if (atomic_fetch_sub(&hub->n_ends, 1) > 1)
        return;
    for (int i = 0; i < hub->size; i++)
        free_end(hub->ends[i]);
    hub_destroy(hub);
}

const struct comm_table threads_table = {
    .name = "threads",
    .shared_work = true,
    .start_send = threads_start_send,
    .start_receive = threads_start_receive,
    .start_reduce = threads_start_reduce,
    .reduce_workspace_bytes = threads_reduce_workspace_bytes,
    .poll = threads_poll,
    .pause = threads_pause,
    .wake = threads_wake,
    .exchange = threads_exchange,
    .broadcast = threads_broadcast,
    .send = threads_send,
    .receive = threads_receive,
    .abort = threads_abort,
    .check_peers = NULL,
    .destroy = threads_destroy,
};

static enum status make_end(struct hub *hub, int rank, double timeout_s, struct hub_end **out)
{
    struct hub_end *end = aligned_alloc(_Alignof(struct hub_end), sizeof *end);
    if (!end)
        return status_no_memory(sizeof *end);
    memset(end, 0, sizeof *end);
    end->c = (struct comm){
        .table = &threads_table, .rank = rank, .size = hub->size, .timeout_s = timeout_s};
    end->hub = hub;
    if (hub->size <= comm_count_cores())
        end->waiter =
            (struct eventcount_waiter){.spin_ns = longest_spin_ns, .max_spin_ns = longest_spin_ns};
    size_t n_bytes = 2 * (size_t)hub->size * sizeof *end->control_ops;
    end->control_ops = malloc(n_bytes);
    if (!end->control_ops) {
        free(end);
        return status_no_memory(n_bytes);
    }
    eventcount_init(&end->event, false);
    *out = end;
    return STATUS_OK;
}

enum status comm_threads_create(int size, double timeout_s, comm **ends)
{
    if (size < 1)
        return status_fail(STATUS_USAGE, "%d workers: at least one is needed", size);
    struct hub *hub;
    TRY(hub_create(size, &hub));
    for (int i = 0; i < size; i++) {
        enum status st = make_end(hub, i, timeout_s, &hub->ends[i]);
        if (st != STATUS_OK) {
            while (i-- > 0)
                free_end(hub->ends[i]);
            hub_destroy(hub);
            return st;
        }
        ends[i] = &hub->ends[i]->c;
    }
    atomic_init(&hub->n_ends, size);
    return STATUS_OK;
}
