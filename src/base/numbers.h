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

#endif
