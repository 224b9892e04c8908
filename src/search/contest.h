/* contest.h: how plans compare whose steps were timed in rounds, and who has lost for certain.
 * Arithmetic alone; trial.h has the trainings.
 *
 *     struct contestant c[3] = {{0}};
 *     do {
 *         for (int i = 0; i < 3; i++)
 *             if (!c[i].behind)
 *                 contest_add(&c[i], ...);
 *         contest_judge(c, 3, seconds_so_far);
 *     } while (!contest_is_decided(c, 3));
 *
 * The speed of a machine changes from second to second, for all alike. So a round counts by its
 * ratio to the first contestant's, who is in every round and never left out.
 */
#ifndef CLEAVE_SEARCH_CONTEST_H
#define CLEAVE_SEARCH_CONTEST_H

#include <stdbool.h>

/* Before the least number of rounds only those are left out that take many times as long: a single
 * round may have met anything. */
enum { CONTEST_LEAST_ROUNDS = 3, CONTEST_MAX_ROUNDS = 2000 };

struct contestant {
    bool aside; /* no rival: it has one round, and nobody is behind because of it */

    /* ---- set by contest_add ---- */
    int n_rounds;
    double round_s[CONTEST_MAX_ROUNDS]; /* of a step */

    /* ---- set by contest_judge ---- */
    double step_s; /* as if its rounds had met what all of the first one's did */
    double noise;  /* relative: of step_s against the first one's */
    bool behind;   /* clearly: it has no further rounds */
};

/* At most CONTEST_MAX_ROUNDS of them. */
void contest_add(struct contestant *c, double step_s);

/* After every round that the first of them has had, and so many seconds of all rounds. What favours
 * one plan, a core that is slow for a while, lasts a second or two: rounds of one second agree with
 * each other more than with those of the next. */
void contest_judge(struct contestant *all, int n, double seconds);

/* Enough rounds, and one is left; or all that are left are known as exactly as anybody cares. */
bool contest_is_decided(const struct contestant *all, int n);

#endif
