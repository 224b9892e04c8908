/* rehearsal.h: the computing instructions of some workers, run for real at the same time, each
 * worker a thread on cores and with a device of its own as in training, and timed.
 *
 *     struct rehearsal_request r = {.graph = g, .plan = plan, .backend = backend, .threads = 1,
 *                                   .n = 2, .workers = (int[]){0, 1}, .n_places = 2, .pins = true,
 *                                   .budget_s = 1.5, .least_rounds = 3, .most_rounds = 25};
 *     struct rehearsal_result result;
 *     TRY(rehearsal_run(&r, take, user, &result)); // calls take for each of the two
 *
 * All begin each round together; the first one warms up and is not kept. Who has less to do than
 * the longest begins its program again, and stops wherever it is when the longest is through: all
 * cores are busy to the end of the round, and only what each did first is kept.
 * Or they take turns, as the stages of a pipeline without micro-batches do: what a core computes
 * after a sleep takes longer, because its caches are cold and it has to gather speed. So each
 * sleeps where it would in a step, and nowhere else (turns.h).
 *
 * A round in which other programs had a core that was computing is not kept, as long as enough
 * others are: what they take is no cost of the plan. Where rounds still differ from one moment to
 * the next when the budget is spent, there are more of them.
 */
#ifndef CLEAVE_PROFILE_REHEARSAL_H
#define CLEAVE_PROFILE_REHEARSAL_H

#include "program/program.h"

struct rehearsal_request {
    const struct graph *graph;
    const struct plan *plan;
    const struct backend *backend;
    enum precision precision;
    int threads;  /* of each device; 0: all cores */
    int n_states; /* of the optimizer, per trained parameter */
    int n;        /* threads, and whose program each runs; one may stand there several times */
    const int *workers;
    bool takes_turns; /* one at a time: where one would sleep for others, another one goes on */
    bool pins;        /* binds each to its cores: the i-th of n_places */
    int n_places;     /* at least n */

    double budget_s; /* rounds end when so much was spent (from the first one that is kept) ... */
    double most_s;   /* ... or where they are not steady by then (wander.h), so much; 0: budget_s */
    int least_rounds, most_rounds; /* ... within these bounds */

    /* Between rounds, on the calling thread; NULL: not called. `share`: about how much is done. A
     * status other than OK ends it all. */
    enum status (*between)(void *user, double share);
    void *user;
};

/* What a worker's instructions took: seconds[round * program->n_instrs + instruction], 0 for those
 * that communicate. */
typedef enum status rehearsal_take(void *user, const struct program *program, int n_rounds,
                                   const double *seconds);

struct rehearsal_result {
    /* What it takes to start all of them and to hear that they are done, beside what they do; the
     * median of the rounds. */
    double start_s;
    double wander;    /* of the rounds that were kept (wander_of_rounds); negative: not known */
    double disturbed; /* the share of them in which other programs had a core */
};

/* Calls `take` for each of the n when all is over, on the calling thread. */
enum status rehearsal_run(const struct rehearsal_request *request, rehearsal_take *take, void *user,
                          struct rehearsal_result *result) MUST_USE;

#endif
