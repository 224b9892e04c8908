/* Workers as threads of one process: see rendezvous.h. */
#include "comm/control.h"
#include "comm/order.h"
#include "comm/threads/rendezvous.h"
#include "comm/threads/table.h"

#include <stdlib.h>
#include <string.h>

static const int64_t longest_spin_ns = (int64_t)(COMM_SPIN_S * 1e9);

static struct thread_rank *rank_of(comm *c)
{
    return (struct thread_rank *)c;
}

static struct rendezvous_op *op_of(comm_op *op)
{
    return (struct rendezvous_op *)op;
}

/* ---- transfers and reductions ---- */

static enum status post_transfer(comm *c, enum rendezvous_kind kind, int from, int to, int64_t tag,
                                 void *data, int64_t n_bytes, comm_op *op)
{
    int peer = from == c->rank ? to : from;
    if (peer < 0 || peer >= c->size || peer == c->rank || n_bytes < 0)
        return status_fail(STATUS_USAGE, "transfer %lld: %lld bytes from worker %d to worker %d",
                           (long long)tag, (long long)n_bytes, from, to);
    int members[] = {from, to};
    struct comm_reduction r = {.n_members = 2, .members = members, .count = n_bytes, .tag = tag};
    return rendezvous_post(rank_of(c), kind, &r, from == c->rank ? 0 : 1, data, op_of(op));
}

static enum status threads_start_send(comm *c, int peer, int64_t tag, const void *data,
                                      int64_t n_bytes, comm_op *op)
{
    TRY(post_transfer(c, RENDEZVOUS_TRANSFER, c->rank, peer, tag, (void *)(uintptr_t)data, n_bytes,
                      op));
    c->sent_bytes += n_bytes;
    c->sent_messages++;
    return STATUS_OK;
}

static enum status threads_start_receive(comm *c, int peer, int64_t tag, void *data,
                                         int64_t n_bytes, comm_op *op)
{
    return post_transfer(c, RENDEZVOUS_TRANSFER, peer, c->rank, tag, data, n_bytes, op);
}

static enum status threads_start_reduce(comm *c, const struct comm_reduction *r, void *data,
                                        void *workspace, comm_op *op)
{
    (void)workspace; /* sums are made in the members' own memory */
    int position;
    TRY(order_check(c, r, &position));
    TRY(rendezvous_post(rank_of(c), RENDEZVOUS_REDUCE, r, position, data, op_of(op)));
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
    return rendezvous_poll(rank_of(c), op_of(op), done);
}

static enum status threads_pause(comm *c, double seconds)
{
    struct thread_rank *self = rank_of(c);
    TRY(group_check(self->group));
    eventcount_wait(&self->event, &self->waiter, self->busy ? 0 : seconds);
    self->busy = false;
    return group_check(self->group);
}

static void threads_wake(comm *c)
{
    eventcount_signal(&rank_of(c)->event);
}

/* ---- control messages: transfers of another kind, matched in order ---- */

static enum status control_start_send(comm *c, int peer, const void *data, int64_t n_bytes,
                                      comm_op *op)
{
    return post_transfer(c, RENDEZVOUS_CONTROL, c->rank, peer, 0, (void *)(uintptr_t)data, n_bytes,
                         op);
}

static enum status control_start_receive(comm *c, int peer, void *data, int64_t n_bytes,
                                         comm_op *op)
{
    return post_transfer(c, RENDEZVOUS_CONTROL, peer, c->rank, 0, data, n_bytes, op);
}

static void control_withdraw(comm *c, comm_op *op)
{
    rendezvous_withdraw(rank_of(c), op_of(op));
}

static const struct control_calls control = {
    .start_send = control_start_send,
    .start_receive = control_start_receive,
    .withdraw = control_withdraw,
};

/* ---- beginning and ending ---- */

static void threads_abort(comm *c, enum status cause, const char *why)
{
    (void)cause; /* each worker's own status is at hand in the same process */
    group_abort(rank_of(c)->group, why);
}

/* The group and the first n of its ranks. */
static void free_group(struct thread_group *group, int n)
{
    for (int i = 0; i < n; i++) {
        free(group->ranks[i]->c.control_ops);
        free(group->ranks[i]);
    }
    group_destroy(group);
}

/* Other ranks may still signal this one: the last to be destroyed frees them all. */
static void threads_destroy(comm *c)
{
    if (!c)
        return;
    struct thread_group *group = rank_of(c)->group;
    if (atomic_fetch_sub(&group->n_ranks, 1) > 1)
        return;
    free_group(group, group->size);
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
    .exchange = control_exchange,
    .broadcast = control_broadcast,
    .send = control_send,
    .receive = control_receive,
    .abort = threads_abort,
    .check_peers = NULL,
    .destroy = threads_destroy,
};

static enum status make_rank(struct thread_group *group, int rank, double timeout_s,
                             struct thread_rank **out)
{
    struct thread_rank *self = aligned_alloc(_Alignof(struct thread_rank), sizeof *self);
    if (!self)
        return status_no_memory(sizeof *self);
    memset(self, 0, sizeof *self);
    self->c = (struct comm){.table = &threads_table,
                            .control = &control,
                            .rank = rank,
                            .size = group->size,
                            .timeout_s = timeout_s};
    self->group = group;
    if (group->size <= comm_count_cores())
        self->waiter =
            (struct eventcount_waiter){.spin_ns = longest_spin_ns, .max_spin_ns = longest_spin_ns};
    size_t n_bytes = 2 * (size_t)group->size * sizeof *self->c.control_ops;
    self->c.control_ops = malloc(n_bytes);
    if (!self->c.control_ops) {
        free(self);
        return status_no_memory(n_bytes);
    }
    eventcount_init(&self->event, false);
    *out = self;
    return STATUS_OK;
}

enum status comm_threads_create(int size, double timeout_s, comm **ends)
{
    if (size < 1)
        return status_fail(STATUS_USAGE, "%d workers: at least one is needed", size);
    struct thread_group *group;
    TRY(group_create(size, &group));
    for (int i = 0; i < size; i++) {
        enum status st = make_rank(group, i, timeout_s, &group->ranks[i]);
        if (st != STATUS_OK) {
            free_group(group, i);
            return st;
        }
        ends[i] = &group->ranks[i]->c;
    }
    atomic_init(&group->n_ranks, size);
    return STATUS_OK;
}
