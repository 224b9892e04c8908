#include "base/numbers.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void numbers_sort(double *numbers, int n)
{
    qsort(numbers, (size_t)n, sizeof *numbers, compare);
}

double numbers_median(double *numbers, int n)
{
    numbers_sort(numbers, n);
    return n > 0 ? (numbers[(n - 1) / 2] + numbers[n / 2]) / 2 : 0;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

double numbers_median_ns(int64_t *times_ns, int64_t n)
{
    qsort(times_ns, (size_t)n, sizeof *times_ns, compare_times);
    int64_t low = (n - 1) / 2, high = n / 2;
    return n > 0 ? (double)(times_ns[low] + times_ns[high]) / 2 : 0;
}

double numbers_quantile(const double *sorted, int n, double share)
{
    double at = share * (n - 1);
    int low = (int)at, high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

double numbers_middle(const double *sorted, int n)
{
    int cut = n / 10;
    double sum = 0;
    for (int i = cut; i < n - cut; i++)
        sum += sorted[i];
    return sum / (n - 2 * cut);
}
