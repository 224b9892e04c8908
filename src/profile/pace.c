#include "profile/pace.h"

#include "base/numbers.h"

#include <math.h>
#include <string.h>

static enum status find_medians(const struct pace_row *rows, int n, arena *memory, double *medians)
{
    for (int i = 0; i < n; i++) {
        double *sorted;
        size_t count = (size_t)rows[i].n_rounds;
        TRY(arena_alloc_array(memory, count, sizeof *sorted, &sorted));
        memcpy(sorted, rows[i].seconds, count * sizeof *sorted);
        numbers_sort(sorted, rows[i].n_rounds);
        medians[i] = numbers_quantile(sorted, rows[i].n_rounds, 0.5);
    }
    return STATUS_OK;
}

/* Over all who do the same, for one of them may always be slower. */
static double find_usual(const struct pace_row *rows, int n, const double *medians, int of)
{
    double sum = 0;
    int count = 0;
    for (int i = 0; i < n; i++)
        if (rows[i].program == rows[of].program) {
            sum += medians[i];
            count++;
        }
    return sum / count;
}

/* Appends how far each row of `first`'s rehearsal was from the mean of the round. */
static int compare_round(const struct pace_row *rows, int n, int first, const double *usual,
                         int round, double *out)
{
    double sum = 0;
    int count = 0;
    for (int i = first; i < n; i++)
        if (rows[i].rehearsal == rows[first].rehearsal && usual[i] > 0) {
            sum += rows[i].seconds[round] / usual[i];
            count++;
        }
    if (count < 2 || sum <= 0)
        return 0;
    /* the mean is the rows' own, and follows each of them a little */
    double own = sqrt((double)count / (count - 1));
    for (int i = first, k = 0; i < n; i++)
        if (rows[i].rehearsal == rows[first].rehearsal && usual[i] > 0)
            out[k++] = own * (rows[i].seconds[round] / usual[i] * count / sum - 1);
    return count;
}

static bool is_first(const struct pace_row *rows, int i)
{
    for (int k = 0; k < i; k++)
        if (rows[k].rehearsal == rows[i].rehearsal)
            return false;
    return true;
}

enum status pace_find_spread(const struct pace_row *rows, int n, arena *memory, double *spread)
{
    double *medians, *usual, *apart;
    size_t most = 0;
    int count = 0;
    for (int i = 0; i < n; i++)
        most += (size_t)rows[i].n_rounds;
    TRY(arena_alloc_array(memory, (size_t)n + 1, sizeof *medians, &medians));
    TRY(arena_alloc_array(memory, (size_t)n + 1, sizeof *usual, &usual));
    TRY(arena_alloc_array(memory, most + 1, sizeof *apart, &apart));
    TRY(find_medians(rows, n, memory, medians));
    for (int i = 0; i < n; i++)
        usual[i] = find_usual(rows, n, medians, i);
    for (int i = 0; i < n; i++)
        for (int round = 0; is_first(rows, i) && round < rows[i].n_rounds; round++)
            count += compare_round(rows, n, i, usual, round, apart + count);
    numbers_sort(apart, count);
    *spread =
        count ? (numbers_quantile(apart, count, 0.75) - numbers_quantile(apart, count, 0.25)) / 2
              : 0;
    return STATUS_OK;
}
