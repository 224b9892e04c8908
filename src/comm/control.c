#include "comm/control.h"

#include "base/timer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double longest_pause_s = 0.05;
static const int64_t check_every_ns = 1000000000;

/* Operation i of c->control_ops sends to worker i, operation size + i receives from worker i;
 * pending[] says which of them are under way. */

static enum status start_send(comm *c, bool *pending, int peer, const void *data, int64_t n_bytes)
{
    TRY(c->control->start_send(c, peer, data, n_bytes, &c->control_ops[peer]));
    pending[peer] = true;
    return STATUS_OK;
}

static enum status start_receive(comm *c, bool *pending, int peer, void *data, int64_t n_bytes)
{
    int i = c->size + peer;
    TRY(c->control->start_receive(c, peer, data, n_bytes, &c->control_ops[i]));
    pending[i] = true;
    return STATUS_OK;
}

/* "worker 2", "workers 1, 3, 5" */
static void name_missing(const bool *pending, int size, char *text, size_t text_bytes)
{
    char list[400] = "";
    size_t used = 0;
    int n_missing = 0;
    for (int i = 0; i < size && used < sizeof list; i++)
        if (pending[i] || pending[size + i])
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d",
                                     n_missing++ ? ", " : "", i);
    (void)snprintf(text, text_bytes, "worker%s %s", n_missing == 1 ? "" : "s", list);
}

static enum status fail_late(comm *c, const bool *pending, const char *what)
{
    char missing[420], stopped[400] = "";
    name_missing(pending, c->size, missing, sizeof missing);
    if (c->table->name_stopped)
        c->table->name_stopped(c, stopped, sizeof stopped);
    return status_fail(STATUS_TIMEOUT, "worker %d waited %g s for %s: nothing from %s%s", c->rank,
                       c->timeout_s, what, missing,
                       *stopped ? stopped : " (is it stopped, or much slower?)");
}

static enum status wait_for_all(comm *c, bool *pending, const char *what)
{
    int64_t start_ns = timer_now_ns(), checked_ns = start_ns;
    for (;;) {
        int n_left = 0;
        for (int i = 0; i < 2 * c->size; i++) {
            bool done = false;
            if (!pending[i])
                continue;
            TRY(c->table->poll(c, &c->control_ops[i], &done));
            pending[i] = !done;
            n_left += !done;
        }
        if (n_left == 0)
            return STATUS_OK;
        int64_t now_ns = timer_now_ns();
        double left_s = c->timeout_s - (double)(now_ns - start_ns) * 1e-9;
        if (left_s <= 0)
            return fail_late(c, pending, what);
        if (c->table->check_peers && now_ns - checked_ns > check_every_ns) {
            checked_ns = now_ns;
            TRY(c->table->check_peers(c));
        }
        TRY(c->table->pause(c, fmin(left_s, longest_pause_s)));
    }
}

/* Waits for the pending operations, whose start gave `st`; on failure none stays under way. `what`
 * is for the message of a time-out: "an exchange". */
static enum status finish(comm *c, bool *pending, const char *what, enum status st)
{
    if (st == STATUS_OK)
        st = wait_for_all(c, pending, what);
    for (int i = 0; i < 2 * c->size && st != STATUS_OK; i++)
        if (pending[i])
            c->control->withdraw(c, &c->control_ops[i]);
    return st;
}

static enum status check_peer(const comm *c, int peer, bool may_be_self)
{
    if (peer < 0 || peer >= c->size || (peer == c->rank && !may_be_self))
        return status_fail(STATUS_USAGE, "worker %d cannot exchange messages with worker %d of %d",
                           c->rank, peer, c->size);
    return STATUS_OK;
}

enum status control_exchange(comm *c, const void *mine, int64_t n_bytes, void *all)
{
    bool pending[2 * c->size];
    enum status st = STATUS_OK;
    memset(pending, 0, sizeof pending);
    if (n_bytes > 0)
        memcpy((char *)all + c->rank * n_bytes, mine, (size_t)n_bytes);
    for (int i = 0; i < c->size && st == STATUS_OK; i++)
        if (i != c->rank)
            st = start_receive(c, pending, i, (char *)all + i * n_bytes, n_bytes);
    for (int i = 0; i < c->size && st == STATUS_OK; i++)
        if (i != c->rank)
            st = start_send(c, pending, i, mine, n_bytes);
    return finish(c, pending, "an exchange with all workers", st);
}

enum status control_broadcast(comm *c, int root, void *data, int64_t n_bytes)
{
    TRY(check_peer(c, root, true));
    bool pending[2 * c->size];
    enum status st = STATUS_OK;
    memset(pending, 0, sizeof pending);
    if (c->rank != root)
        st = start_receive(c, pending, root, data, n_bytes);
    for (int i = 0; i < c->size && c->rank == root && st == STATUS_OK; i++)
        if (i != root)
            st = start_send(c, pending, i, data, n_bytes);
    return finish(c, pending, "a broadcast", st);
}

enum status control_send(comm *c, int peer, const void *data, int64_t n_bytes)
{
    TRY(check_peer(c, peer, false));
    bool pending[2 * c->size];
    memset(pending, 0, sizeof pending);
    return finish(c, pending, "a message to be taken", start_send(c, pending, peer, data, n_bytes));
}

enum status control_receive(comm *c, int peer, void *data, int64_t n_bytes)
{
    TRY(check_peer(c, peer, false));
    bool pending[2 * c->size];
    memset(pending, 0, sizeof pending);
    return finish(c, pending, "a message", start_receive(c, pending, peer, data, n_bytes));
}
