/* What lets transfers run beside computation.
 *
 * Two things would make one wait for the other without need. A receive that stands where its
 * message is sent starts only when everything before it in the list has started, so when the
 * worker's computation has come that far: it is moved up. And memory is used again as soon as the
 * list no longer needs it, although a send may still be reading: what was sent lives on for a
 * while.
 *
 *     as emitted       F0, send 0, receive 1, F1, send 1, receive 2, F2 ..    of a stage's worker
 *     moved up         receive 1, F0, send 0, receive 2, F1, send 1, ..
 *
 * A message between stages is received from the begin of the worker's task before the one that
 * needs it, and what is sent to another stage lives on through the worker's next task: there are
 * two of each then, and no more. (A stage's backward of the same micro-batch comes when the others
 * have done theirs, so the send has ended.) Between workers of one stage, who are about as far as
 * each other, what is sent in an exchange lives until the worker's next RUN: so messages to several
 * workers are under way at the same time, and none waits for the memory of the one before.
 *
 * Nothing waits for ever because of it. A receive that was moved up needs no other place than its
 * own memory, which whoever had it before has left before the place it was moved to. Among all
 * unfinished instructions of all workers the one that was emitted earliest still finds all done
 * that it waits for, and all started that its list has before it. */
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

/* Sent in the task before: they live through this one, unless it brings the answer. */
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

static int latest(int a, int b)
{
    return a > b ? a : b;
}

/* Messages of one worker to another keep their order. */
enum status overlap_receive(struct emitter *e, int peer)
{
    struct moved m = {e->p->n_instrs - 1, latest(e->task_begin, e->received_from[peer])};
    if (e->computes) {
        e->received_from[peer] = e->p->n_instrs;
        return STATUS_OK;
    }
    if (e->n_moved)
        m.to = latest(m.to, e->moved[e->n_moved - 1].to);
    return emit_append(e, &e->moved, &e->n_moved, &e->moved_capacity, sizeof m, &m);
}

/* ---- when all is emitted ---- */

/* Moves are in the order of emission, and never go back behind an earlier one's place. */
static void reorder(struct emitter *e, struct instr *to, int *place)
{
    const struct program *p = e->p;
    int n = 0, next = 0, skip = 0;
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
}

enum status overlap_settle(struct emitter *e)
{
    struct program *p = e->p;
    struct instr *moved;
    int *place;
    if (e->n_moved == 0)
        return STATUS_OK;
    TRY(arena_alloc_array(e->scratch, (size_t)p->n_instrs, sizeof *moved, &moved));
    TRY(arena_alloc_array(e->scratch, (size_t)p->n_instrs + 1, sizeof *place, &place));
    reorder(e, moved, place);
    place[p->n_instrs] = p->n_instrs;
    memcpy(p->instrs, moved, (size_t)p->n_instrs * sizeof *moved);
    for (int i = 0; i < p->n_buffers; i++)
        p->buffers[i].held_until = place[p->buffers[i].held_until];
    return STATUS_OK;
}
