/* rounds.h: the programs of some workers, run for real and timed in rounds, without communication.
 * Shared by measure.c and rounds.c.
 *
 * Each worker is a thread on cores and with a device of its own, as in training. In a round
 * together all workers begin at the same time; a worker that ends early starts its program again,
 * uncounted, so that every worker has busy neighbours to its end:
 *
 *     core 0  [worker 0          ][again, stopped
 *     core 1  [worker 1                          ]
 *
 * In a round in turn one worker computes and the others sleep. Each runs its program twice: first
 * it hands the turn on wherever it waits for others in a step, so that it computes after a sleep,
 * with cold caches; then once more from the begin to the end, which is what its times are. The
 * first run over the second is the cold factor.
 *
 *     worker 0  [forward].........[backward][forward backward].....................
 *     worker 1           [forward]............................[backward][forward ..]
 *
 * A round in which another program had a core that was computing is not kept, as long as enough
 * other rounds are there. Where the second half of the rounds is faster or slower than the first,
 * more rounds follow.
 *
 *     struct rounds r = {.programs = programs, .n = 2, .workers = workers,
 *                        .n_places = 2, .budget_s = 1, .least_rounds = 3, .most_rounds = 1000};
 *     TRY_GOTO(st, rounds_run(&r), out);
 *     ... rounds_seconds(&r, player, round)[instr] ...
 *     out: rounds_free(&r);
 */
#ifndef CLEAVE_PROFILE_ROUNDS_H
#define CLEAVE_PROFILE_ROUNDS_H

#include "profile/measure.h"

struct rounds_player;

struct rounds {
    const struct program *const *programs; /* by worker: each player runs one like its worker's */
    int n;                                 /* threads, and whose program each runs */
    const int *workers;
    int n_places; /* at least n: thread i gets the cores of place i, if the plan has more workers */
    bool in_turn;
    double budget_s; /* rounds end when so much was spent (from the first one that is kept), ... */
    double most_s;   /* ... or where they are not steady by then, so much; 0: budget_s ... */
    int least_rounds, most_rounds; /* ... within these bounds */
    /* Called between rounds, on the calling thread; NULL: not. `share`: about how much is done. A
     * status other than OK ends it all. */
    enum status (*between)(void *user, double share);
    void *user;

    /* Found by rounds_run: */
    int n_rounds;
    struct rounds_player *players; /* [n] */
    double start_s;   /* together: what it takes to start all workers and to hear that they are
                         done, beside what they do; the median */
    double cold;      /* in turn: after sleeps over back to back; the median, at least 1 */
    double disturbed; /* the share of kept rounds in which other programs had a core */
};

enum status rounds_run(struct rounds *r) MUST_USE;
void rounds_free(struct rounds *r);

const struct program *rounds_program(const struct rounds *r, int player);
/* By instruction; 0 for those that communicate. */
const double *rounds_seconds(const struct rounds *r, int player, int round);

#endif
