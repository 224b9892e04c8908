/* numbers.h: the smaller and the larger of two, the middle of measured numbers, and how they
 * scatter.
 *
 *     double median = numbers_median(times, n);
 *     double quartile = numbers_quantile(times, n, 0.25);
 */
#ifndef CLEAVE_BASE_NUMBERS_H
#define CLEAVE_BASE_NUMBERS_H

#include <stdint.h>

/* Of reals, C's fmin and fmax. */
static inline int int_min(int a, int b)
{
    return a < b ? a : b;
}

static inline int int_max(int a, int b)
{
    return a > b ? a : b;
}

static inline int64_t int64_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t int64_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Ascending. */
void numbers_sort(double *numbers, int n);

/* Sorts them; of an even number the mean of the middle two, and 0 of none. */
double numbers_median(double *numbers, int n);
double numbers_median_ns(int64_t *times_ns, int64_t n);

/* At `share` of the way through n > 0 sorted numbers, between the two nearest. */
double numbers_quantile(const double *sorted, int n, double share);

/* The mean of n > 0 sorted numbers without the tenth at either end: it ignores rare outliers, and
 * where a shared core jumps between a few speeds it moves less than a median. */
double numbers_middle(const double *sorted, int n);

/* The quantile of a normal distribution, in deviations (Tukey's approximation, good to 0.01 where
 * 0.005 < share < 0.995). */
double numbers_normal(double share);

/* Where the rank-th (from 0) of n draws from it is expected, in deviations (Blom's approximation).
 */
double numbers_normal_place(int rank, int n);

#endif
