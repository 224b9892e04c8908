/* costs.h: what the computing instructions of a program cost on a device: measured, else fitted to
 * what was measured of the same family, else the roofline of the machine's device:
 *
 *     launch_s + max(flops / reached_flops_per_s, bytes / reached_bytes_per_s)
 *
 * Every instruction gets a cost; its origin says which of the three it is.
 */
#ifndef CLEAVE_PROFILE_COSTS_H
#define CLEAVE_PROFILE_COSTS_H

#include "machine/machine.h"
#include "profile/profile.h"
#include "program/work.h"

struct cost_source {
    profile *profile; /* NULL: rooflines only */
    /* Under which costs were measured with all neighbours busy, and with none. */
    struct profile_setting busy, alone;
    const struct machine_kind *kind; /* whose roofline counts */
    double scale; /* times every roofline: from a known speed of the whole network; 0: 1 */
};

/* costs[i] belongs to instruction i; those of communicating ones are zero. */
void costs_find(const struct cost_source *source, const struct program *p,
                struct instr_cost *costs);

/* Of work that has no key because it was not lowered: fitted, else the roofline, all neighbours
 * being busy. */
double costs_estimate(const struct cost_source *source, const struct instr_work *work);

#endif
