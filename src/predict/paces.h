/* paces.h: the clock for workers that are not equally fast at any moment (profile/pace.h).
 *
 * Which worker is behind in a step, and when, is chance. The mean over all that may happen is taken
 * from two runs of the clock: the workers' paces are the expected places of as many draws, within
 * the step they change by some draws more, and in the second run everybody is always as far behind
 * as he was ahead in the first. So who waits for nobody takes as long as usual, however few draws
 * there are.
 */
#ifndef CLEAVE_PREDICT_PACES_H
#define CLEAVE_PREDICT_PACES_H

#include "clock/clock.h"
#include "profile/profile.h"

/* How the workers of this host go together; all 0: it is not known, or there are no others. */
struct paces {
    double drift, jitter;
    double start_s; /* what it takes to start them all and to hear that they are done */
};

/* What was measured of this plan, else of the first in this setting. */
void paces_find(profile *p, const struct profile_setting *setting, const struct graph *graph,
                const struct plan *plan, struct paces *out);

/* Sets the workers' paces and runs the clock. The times of instructions, where they are kept, are
 * those of the first run, stretched to end with the mean. */
enum status paces_run_clock(const struct paces *paces, struct clock_worker *workers, int n_workers,
                            const struct clock_options *options, arena *memory,
                            struct clock_result *out) MUST_USE;

#endif
