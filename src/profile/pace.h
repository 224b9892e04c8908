/* pace.h: how far workers that run at the same time drift apart.
 *
 * A host's cores are not equally fast at any moment: others use them, too. What strikes all of them
 * is in every cost anyway; what counts for those who wait for each other is by how much one is
 * behind the rest just then.
 */
#ifndef CLEAVE_PROFILE_PACE_H
#define CLEAVE_PROFILE_PACE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

/* One worker's rounds in one rehearsal. */
struct pace_row {
    int rehearsal;    /* rows of the same one ran together, and have as many rounds */
    uint64_t program; /* rows with the same do the same */
    int n_rounds;
    const double *seconds; /* what it computed in each */
};

/* Half the distance of the quartiles of the workers' times, each over what its program usually
 * takes and over the mean of its round; 0 if nobody ran together. */
enum status pace_find_spread(const struct pace_row *rows, int n, arena *memory,
                             double *spread) MUST_USE;

#endif
