/* pace.h: how far workers that run at the same time drift apart.
 *
 * A host's cores are not equally fast at any moment: others use them, too. What strikes all of them
 * is in every cost anyway; what counts for those who wait for each other is by how much one is
 * behind the rest just then. Some of it lasts for a whole round, some comes and goes within one.
 */
#ifndef CLEAVE_PROFILE_PACE_H
#define CLEAVE_PROFILE_PACE_H

#include "base/arena.h"
#include "base/status.h"

/* A round is looked at in blocks of instructions that usually take as long as this, or longer. */
#define PACE_BLOCK_S 1e-3

/* One worker's rounds in one rehearsal. */
struct pace_row {
    int rehearsal;  /* rows of the same one ran together, and have as many rounds */
    double usual_s; /* what a round is said to take: a core that is always slower is behind it */
    int n_rounds, n_blocks;
    const double *seconds; /* [n_rounds][n_blocks]: what it computed */
};

/* Standard deviations, relative; negative: nothing is known of it. */
struct pace {
    double drift;  /* of workers' rounds, each over what it is said to take and over the mean of all
                      in that round: as many draws with this deviation are expected to have the
                      last of them as far behind as it was. Who has much less to do than others
                      waits anyway, and does not count. */
    double jitter; /* of blocks, over what they usually take and over their round */
};

enum status pace_find(const struct pace_row *rows, int n, arena *memory, struct pace *out) MUST_USE;

#endif
