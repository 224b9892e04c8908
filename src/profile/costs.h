/* costs.h: the costs of a program's computing instructions on a device: measured, else fitted to
 * measurements of the same family, else the roofline of the machine's device (cost_compute).
 * Every instruction gets a cost; its origin says which of the three it is.
 */
#ifndef CLEAVE_PROFILE_COSTS_H
#define CLEAVE_PROFILE_COSTS_H

#include "machine/machine.h"
#include "profile/profile.h"
#include "program/work.h"

/* Factors of rooflines, from a known speed of a whole network; 0: 1.
 *
 * Matrix products and ops that only stream through memory come about as near to a device's peaks in
 * one network as in another. Convolutions do not: libraries do them in up to four times fewer
 * operations than there are in the definition (Winograd; VGG-16 at 184 images/s would else be 17
 * TFLOP/s, on a P100 of 10.6), or badly, if they are small or odd. So the difference between a
 * network's speed and its roofline is put down to its convolutions. Only where they cannot explain
 * it is everything scaled. */
struct cost_scales {
    double convolutions, others;
};

struct cost_source {
    profile *profile; /* NULL: rooflines only */
    /* The settings of measured costs with all neighbours busy, and alone. */
    struct profile_setting busy, alone;
    const struct machine_kind *kind; /* whose roofline counts */
    struct cost_scales scales;
};

/* Sums over instructions of which both costs are known. */
struct cost_sums {
    double busy_s, alone_s;
};

/* costs[i] is the cost of instruction i, zero for communicating ones. Adds to the sums. */
void costs_find(const struct cost_source *source, const struct program *p, struct instr_cost *costs,
                struct cost_sums *sums);

/* Whether costs alone are to be believed, which is decided for all programs of a plan at once: they
 * were measured at another time, when the host may have been slower. If their sum is more than with
 * all neighbours busy they are taken to be the same. To take the smaller of the two for each
 * instruction would be to take the luckier one. */
void costs_settle_alone(const struct cost_sums *sums, struct instr_cost *costs, int n);

/* The cost of work that was not lowered and has no key, with all neighbours busy: fitted, else the
 * roofline. */
double costs_estimate(const struct cost_source *source, const struct instr_work *work);

#endif
