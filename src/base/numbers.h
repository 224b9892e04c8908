/* numbers.h: the middle of measured numbers, and how they scatter.
 *
 *     numbers_sort(times, n);
 *     double median = numbers_quantile(times, n, 0.5);
 */
#ifndef CLEAVE_BASE_NUMBERS_H
#define CLEAVE_BASE_NUMBERS_H

/* Ascending. */
void numbers_sort(double *numbers, int n);

/* At `share` of the way through n > 0 sorted numbers, between the two nearest. */
double numbers_quantile(const double *sorted, int n, double share);

/* The mean of n > 0 sorted numbers without the tenth at either end: what strikes only now and then
 * is left out, but where the speed of a shared core jumps between a few values, it does not jump
 * with it as a median would. */
double numbers_middle(const double *sorted, int n);

/* The quantile of a normal distribution, in deviations (Tukey's approximation, good to 0.01 where
 * 0.005 < share < 0.995). */
double numbers_normal(double share);

/* Where the rank-th (from 0) of n draws from it is expected, in deviations (Blom's approximation).
 */
double numbers_normal_place(int rank, int n);

#endif
