/* turns.h: who computes next, where the workers of a plan rehearse one at a time.
 *
 * In a step every worker has cores of its own, and sleeps where what it waits for does not come
 * within COMM_SPIN_S. So each has a time of its own here, which goes on with what it computes and
 * with what it would wait for. Who comes to a wait goes on if, by these times, all comes so soon
 * that it waits for; else it would sleep, and another one computes meanwhile, if any can:
 *
 *     a step      worker 0  [forward]...................[backward][update]
 *                 worker 1           [forward][backward][update]
 *     one by one  worker 0  [forward]                            [backward][update] [forward] ...
 *                 worker 1           [forward][backward][update]
 *
 * Both times worker 0's backward comes after a sleep, and its forward does not. What is sent
 * arrives at once; what comes from workers that do not take part is there already.
 *
 *     TRY(turns_create(programs, 2, &t));
 *     turns_begin(t);                                // of a step
 *     who = turns_pass(t, -1);                       // who is first
 *     turns_compute(t, who, instr, seconds);         // ... for each that it computes
 *     if (turns_sleep_s(t, who, instr) > 0)          // before one that waits for others
 *         next = turns_pass(t, who);
 *     turns_end(t, who);                             // its program is over
 */
#ifndef CLEAVE_PROFILE_TURNS_H
#define CLEAVE_PROFILE_TURNS_H

#include "program/program.h"

typedef struct turns turns;

/* The programs must outlive it. */
enum status turns_create(const struct program *const *programs, int n, turns **out) MUST_USE;
void turns_destroy(turns *t); /* NULL is fine */

/* Nobody has computed anything. */
void turns_begin(turns *t);
void turns_compute(turns *t, int who, int instr, double seconds);
void turns_end(turns *t, int who);

/* How long it would sleep before it computes this instruction; 0: not at all, or so shortly that it
 * would look on meanwhile; INFINITY: that is known when others have computed. It stays there until
 * it gets a turn, or computes it. */
double turns_sleep_s(turns *t, int who, int instr);

/* Whose turn it is when `who` (-1: nobody) sleeps or has ended: of those who need not wait for
 * anything to be computed, the one whose time is first, and `who` itself if there is no other. -1:
 * all have ended. */
int turns_pass(turns *t, int who);

/* Of a step that is over for all: whether it would have slept before this instruction, at which it
 * was asked how long; also if it went on at once. */
bool turns_slept(turns *t, int who, int instr);

#endif
