/* profile_fit.h: seconds = fixed + per_flop flops + per_byte bytes, fitted to measurements.
 *
 * Sum of squared relative errors as small as can be with no coefficient below zero:
 *
 *     sum over points of  ((fixed + per_flop flops + per_byte bytes) / seconds - 1)^2
 *
 * Of three unknowns some are zero in the best answer and the others solve the ordinary problem
 * without bounds; there are seven ways to choose them, and all are tried.
 */
#ifndef CLEAVE_PROFILE_PROFILE_FIT_H
#define CLEAVE_PROFILE_PROFILE_FIT_H

#include <stdbool.h>

enum { FIT_UNKNOWNS = 3, FIT_LEAST_POINTS = 3 };

struct fit_point {
    double flops, bytes, seconds;
};

struct fit {
    double of[FIT_UNKNOWNS]; /* seconds: fixed, per flop, per byte */
    /* Typical relative error: the root of the mean squared one, where each unknown uses up a point
     * (three points say nothing about a fit with three unknowns; then that of a simpler one
     * counts). At least 0.02. */
    double spread;
};

/* False: fewer than FIT_LEAST_POINTS. */
bool fit_points(const struct fit_point *points, int n, struct fit *out);

double fit_seconds(const struct fit *f, double flops, double bytes);

#endif
