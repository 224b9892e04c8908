#include "comm/control.h"

#include "base/timer.h"

#include <stdio.h>
#include <string.h>

static const double longest_pause_s = 0.05;
static const int64_t check_every_ns = 1000000000;

/* Operations number 0 .. n_sends - 1 send, the others receive; peers[] is not needed, since with
 * everybody in turn operation i is about worker i or i - size. */
struct wait {
    comm *c;
    const struct control_ways *ways;
    comm_op *ops;     /* [2 * size]: sends to every worker, then receives from every worker */
    const char *what; /* "an exchange" */
};

static bool is_pending(const bool *pending, int size, int worker)
{
    return pending[worker] || pending[size + worker];
}

/* "worker 2", "workers 1, 3, 5" */
static void name_missing(const bool *pending, int size, char *text, size_t text_bytes)
{
    int missing = 0;
    for (int i = 0; i < size; i++)
        missing += is_pending(pending, size, i);
    size_t used = (size_t)snprintf(text, text_bytes, "worker%s", missing == 1 ? "" : "s");
    const char *separator = " ";
    for (int i = 0; i < size && used < text_bytes; i++) {
        if (!is_pending(pending, size, i))
            continue;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%d", separator, i);
        separator = ", ";
    }
}

/* Polls what is pending once. */
static enum status poll_pending(const struct wait *w, bool *pending, int *left)
{
    *left = 0;
    for (int i = 0; i < 2 * w->c->size; i++) {
        if (!pending[i])
            continue;
        bool done = false;
        TRY(w->c->table->poll(w->c, &w->ops[i], &done));
        pending[i] = !done;
        *left += !done;
    }
    return STATUS_OK;
}

static enum status wait_for_all(const struct wait *w, bool *pending)
{
    comm *c = w->c;
    int64_t start_ns = timer_now_ns(), checked_ns = start_ns;
    for (;;) {
        int left;
        TRY(poll_pending(w, pending, &left));
        if (left == 0)
            return STATUS_OK;
        int64_t now_ns = timer_now_ns();
        double left_s = c->timeout_s - (double)(now_ns - start_ns) * 1e-9;
        if (left_s <= 0) {
            char missing[400], stopped[400] = "";
            name_missing(pending, c->size, missing, sizeof missing);
            if (c->table->name_stopped)
                c->table->name_stopped(c, stopped, sizeof stopped);
            return status_fail(STATUS_TIMEOUT, "worker %d waited %g s for %s: nothing from %s%s",
                               c->rank, c->timeout_s, w->what, missing,
                               *stopped ? stopped : " (is it stopped, or much slower?)");
        }
        if (c->table->check_peers && now_ns - checked_ns > check_every_ns) {
            checked_ns = now_ns;
            TRY(c->table->check_peers(c));
        }
        TRY(c->table->pause(c, left_s < longest_pause_s ? left_s : longest_pause_s));
    }
}

/* Waits for what was started, whose start gave `st`; on failure nothing stays under way. */
static enum status finish(const struct wait *w, bool *pending, enum status st)
{
    if (st == STATUS_OK)
        st = wait_for_all(w, pending);
    if (st != STATUS_OK) {
        for (int i = 0; i < 2 * w->c->size; i++) {
            if (pending[i])
                w->ways->withdraw(w->c, &w->ops[i]);
        }
    }
    return st;
}

static enum status start_send(const struct wait *w, bool *pending, int peer, const void *data,
                              int64_t n_bytes)
{
    TRY(w->ways->start_send(w->c, peer, data, n_bytes, &w->ops[peer]));
    pending[peer] = true;
    return STATUS_OK;
}

static enum status start_receive(const struct wait *w, bool *pending, int peer, void *data,
                                 int64_t n_bytes)
{
    int i = w->c->size + peer;
    TRY(w->ways->start_receive(w->c, peer, data, n_bytes, &w->ops[i]));
    pending[i] = true;
    return STATUS_OK;
}

static enum status start_exchange(const struct wait *w, bool *pending, const void *mine,
                                  int64_t n_bytes, void *all)
{
    for (int i = 0; i < w->c->size; i++) {
        if (i != w->c->rank)
            TRY(start_receive(w, pending, i, (char *)all + i * n_bytes, n_bytes));
    }
    for (int i = 0; i < w->c->size; i++) {
        if (i != w->c->rank)
            TRY(start_send(w, pending, i, mine, n_bytes));
    }
    return STATUS_OK;
}

enum status control_exchange(comm *c, const struct control_ways *ways, comm_op *ops,
                             const void *mine, int64_t n_bytes, void *all)
{
    struct wait w = {c, ways, ops, "an exchange with all workers"};
    bool pending[2 * c->size];
    memset(pending, 0, sizeof pending);
    if (n_bytes > 0)
        memcpy((char *)all + c->rank * n_bytes, mine, (size_t)n_bytes);
    return finish(&w, pending, start_exchange(&w, pending, mine, n_bytes, all));
}

static enum status start_to_all(const struct wait *w, bool *pending, const void *data,
                                int64_t n_bytes)
{
    for (int i = 0; i < w->c->size; i++) {
        if (i != w->c->rank)
            TRY(start_send(w, pending, i, data, n_bytes));
    }
    return STATUS_OK;
}

static enum status check_peer(const comm *c, int peer, bool may_be_self)
{
    if (peer < 0 || peer >= c->size || (peer == c->rank && !may_be_self))
        return status_fail(STATUS_USAGE, "worker %d cannot exchange messages with worker %d of %d",
                           c->rank, peer, c->size);
    return STATUS_OK;
}

enum status control_broadcast(comm *c, const struct control_ways *ways, comm_op *ops, int root,
                              void *data, int64_t n_bytes)
{
    TRY(check_peer(c, root, true));
    struct wait w = {c, ways, ops, "a broadcast"};
    bool pending[2 * c->size];
    memset(pending, 0, sizeof pending);
    if (c->rank == root)
        return finish(&w, pending, start_to_all(&w, pending, data, n_bytes));
    return finish(&w, pending, start_receive(&w, pending, root, data, n_bytes));
}

enum status control_send(comm *c, const struct control_ways *ways, comm_op *ops, int peer,
                         const void *data, int64_t n_bytes)
{
    TRY(check_peer(c, peer, false));
    struct wait w = {c, ways, ops, "a message to be taken"};
    bool pending[2 * c->size];
    memset(pending, 0, sizeof pending);
    return finish(&w, pending, start_send(&w, pending, peer, data, n_bytes));
}

enum status control_receive(comm *c, const struct control_ways *ways, comm_op *ops, int peer,
                            void *data, int64_t n_bytes)
{
    TRY(check_peer(c, peer, false));
    struct wait w = {c, ways, ops, "a message"};
    bool pending[2 * c->size];
    memset(pending, 0, sizeof pending);
    return finish(&w, pending, start_receive(&w, pending, peer, data, n_bytes));
}
