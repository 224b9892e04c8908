/* other_load.h: the share of this process's cores that other programs have.
 *
 *     struct other_load l = other_load_begin();
 *     ...
 *     double share = other_load_share(&l);     // between the two
 *
 * The system counts in hundredths of a second: less than a few of them say nothing.
 */
#ifndef CLEAVE_PROFILE_OTHER_LOAD_H
#define CLEAVE_PROFILE_OTHER_LOAD_H

#include <stdbool.h>

struct other_load {
    double busy_s, own_s; /* so far: of the cores that this process may use, and its own of it */
    double now_s;
    int cores; /* 0: the system does not say */
};

struct other_load other_load_begin(void);
/* From 0 to 1; 0 where the system does not say. */
double other_load_share(const struct other_load *begin);

/* Measurements are disturbed from this share on. */
#define OTHER_LOAD_DISTURBS 0.1
/* Whether a cost measured at a share is worth measuring again: it was disturbed, and other
 * programs have less than half as much now. Takes 0.1 s where it was disturbed. */
bool other_load_is_calmer_than(double share);

#endif
