/* wander.h: how much faster or slower a whole host gets by and by.
 *
 * Hosts that share memory, caches or cores with others are faster in one minute than in the next,
 * for all workers alike, and nothing that is measured now says what will be when the plan is run.
 * So it is no part of a predicted time, but of its error bar: a host that wandered by 8 % while it
 * was measured will not be met to 2 %.
 *
 * It is known from two sides: how the rounds of a rehearsal change over its seconds, and how much
 * the instructions that were measured earlier, and are run again beside others that were not,
 * differ from what they took then. What each of them says is kept with the profile, the mean of the
 * last ones counts.
 *
 *     wander_note(p, &setting, wander_of_rounds(round_s, n));
 *     error_s = hypot(error_s, wander_find(p, &setting) * step_s);
 */
#ifndef CLEAVE_PROFILE_WANDER_H
#define CLEAVE_PROFILE_WANDER_H

#include "profile/profile.h"

/* What n rounds of the same work took, in the order in which they ran: the relative deviation, over
 * a longer time than they lasted, of slices of them (WANDER_SLICE_S, a round at least). Negative:
 * there were fewer than WANDER_LEAST_SLICES. */
#define WANDER_SLICE_S 0.25
#define WANDER_LEAST_SLICES 3
double wander_of_rounds(const double *round_s, int n);

/* Whether the mean of these rounds is known to WANDER_STEADY: the standard error of their slices'
 * mean. */
#define WANDER_STEADY 0.015
bool wander_is_steady(const double *round_s, int n);

/* The same work, now and at another time: as a deviation of either. */
double wander_between(double now_s, double then_s);

/* Adds a deviation to what is known of a setting; negative ones and those that are no numbers are
 * left out. */
enum status wander_note(profile *p, const struct profile_setting *s, double deviation) MUST_USE;
/* With what is usual for such hosts, which counts for less the more is known. */
enum status wander_find(profile *p, const struct profile_setting *s, double *deviation) MUST_USE;

#endif
