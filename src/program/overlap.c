/* Transfers run beside computation.
 *
 * Two things would make one wait for the other without need. A receive starts only when everything
 * before it in the list has started; emitted at the place of its send, it would wait until the
 * worker's computation has come that far. So it is moved up. And memory is used again as soon as
 * the list no longer needs it, although a send may still be reading. So sent buffers live on for a
 * while.
 *
 *     as emitted       F0, send 0, receive 1, F1, send 1, receive 2, F2 ..    of a stage's worker
 *     moved up         receive 1, F0, send 0, receive 2, F1, send 1, ..
 *
 * A message between stages may be received from the begin of the worker's task before the one that
 * needs it, and a buffer sent to another stage lives on through the worker's next task. So there
 * are at most two of each. (A stage's backward of the same micro-batch follows the other stages'
 * backwards, so the send has ended by then.) Workers of one stage are about as far as each other: a
 * buffer sent between them lives until the worker's next RUN. So messages to several workers are
 * under way at the same time, and none waits for the memory of the one before.
 *
 * This adds no deadlock. A receive that was moved up needs only its own memory, which its last user
 * has left before the place it was moved to. Of all unfinished instructions of all workers, the one
 * that was emitted first still finds done all that it waits for, and started all that its list has
 * before it. */
#include "base/numbers.h"
#include "program/lowering.h"

#include <string.h>

/* ---- tasks ---- */

static bool is_member(const struct plan_stage *stage, int worker)
{
    for (int i = 0; i < stage->n_workers; i++)
        if (stage->workers[i] == worker)
            return true;
    return false;
}

static void hold_until_here(struct emitter *e, const struct held_list *list)
{
    for (int i = 0; i < list->n; i++) {
        struct buffer *b = &e->p->buffers[list->held[i].buffer];
        b->held_until = e->p->n_instrs;
        if (b->parent != NO_BUFFER)
            e->p->buffers[b->parent].held_until = e->p->n_instrs;
    }
}

/* Buffers sent in the task before live through this one, unless it brings the answer. */
static void keep_through(struct emitter *e, const struct task *t)
{
    struct held_list *before = &e->sent_before, now = *before;
    *before = e->sent_now;
    e->sent_now = now;
    e->sent_now.n = 0;
    int n = 0;
    for (int i = 0; i < before->n; i++)
        if (t->forward || !before->held[i].forward || before->held[i].micro != t->micro)
            before->held[n++] = before->held[i];
    before->n = n;
}

void overlap_begin_task(struct emitter *e, const struct task *t)
{
    e->now = *t;
    e->computes = is_member(&e->p->plan->stages[t->stage], e->me);
    if (!e->computes)
        return;
    e->task_begin = e->p->n_instrs;
    keep_through(e, t);
}

void overlap_end_task(struct emitter *e)
{
    if (e->computes)
        hold_until_here(e, &e->sent_before);
    e->computes = false;
}

/* ---- messages ---- */

enum status overlap_send(struct emitter *e, int buffer, int peer)
{
    bool near = is_member(&e->p->plan->stages[e->now.stage], peer);
    struct held_list *list = near ? &e->sent_near : &e->sent_now;
    struct held h = {buffer, e->now.micro, e->now.forward};
    return emit_append(e, &list->held, &list->n, &list->capacity, sizeof h, &h);
}

void overlap_run(struct emitter *e)
{
    hold_until_here(e, &e->sent_near);
    e->sent_near.n = 0;
}

/* Messages of one worker to another keep their order. */
enum status overlap_receive(struct emitter *e, int peer)
{
    struct moved m = {e->p->n_instrs - 1, int_max(e->task_begin, e->received_from[peer])};
    if (e->computes) {
        e->received_from[peer] = e->p->n_instrs;
        return STATUS_OK;
    }
    if (e->n_moved)
        m.to = int_max(m.to, e->moved[e->n_moved - 1].to);
    return emit_append(e, &e->moved, &e->n_moved, &e->moved_capacity, sizeof m, &m);
}

/* ---- when all is emitted ---- */

/* Puts the moved receives where they go. Moves are in the order of emission, and none goes behind
 * the place of an earlier one. */
enum status overlap_settle(struct emitter *e)
{
    struct program *p = e->p;
    struct instr *to;
    int *place; /* by number as emitted */
    int n = 0, next = 0, skip = 0;
    if (e->n_moved == 0)
        return STATUS_OK;
    TRY(arena_alloc_array(e->scratch, (size_t)p->n_instrs, sizeof *to, &to));
    TRY(arena_alloc_array(e->scratch, (size_t)p->n_instrs + 1, sizeof *place, &place));
    for (int i = 0; i < p->n_instrs; i++) {
        for (; next < e->n_moved && e->moved[next].to <= i; next++) {
            place[e->moved[next].from] = n;
            to[n++] = p->instrs[e->moved[next].from];
        }
        if (skip < e->n_moved && e->moved[skip].from == i) {
            skip++;
            continue;
        }
        place[i] = n;
        to[n++] = p->instrs[i];
    }
    place[p->n_instrs] = p->n_instrs;
    memcpy(p->instrs, to, (size_t)p->n_instrs * sizeof *to);
    for (int i = 0; i < p->n_buffers; i++)
        p->buffers[i].held_until = place[p->buffers[i].held_until];
    return STATUS_OK;
}
