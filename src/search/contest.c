#include "search/contest.h"

#include "base/numbers.h"

#include <math.h>
#include <string.h>

enum { FEW_ROUNDS = 10, ENOUGH_ROUNDS = 8 };

void contest_add(struct contestant *c, double step_s)
{
    c->round_s[c->n_rounds++] = step_s;
}

/* Of few rounds the median: so few have no tenth that numbers_middle could leave out, and one round
 * that met something else would weigh too much. */
static double middle(const double *sorted, int n)
{
    return n < FEW_ROUNDS ? numbers_quantile(sorted, n, 0.5) : numbers_middle(sorted, n);
}

/* The middle of the ratios to the first one's in the rounds that both had, and how far off it may
 * be. */
static void compare(struct contestant *c, const struct contestant *first)
{
    double ratio[CONTEST_MAX_ROUNDS];
    int n = c->n_rounds < first->n_rounds ? c->n_rounds : first->n_rounds;
    c->step_s = 0;
    if (n < 1)
        return;
    for (int k = 0; k < n; k++)
        ratio[k] = c->round_s[k] / first->round_s[k];
    numbers_sort(ratio, n);
    double spread = numbers_quantile(ratio, n, 0.75) - numbers_quantile(ratio, n, 0.25);
    c->step_s = middle(ratio, n);
    c->noise = 0.93 * spread / sqrt(n) / c->step_s; /* of a middle of normal numbers */
}

static double middle_s(const struct contestant *c)
{
    double sorted[CONTEST_MAX_ROUNDS];
    memcpy(sorted, c->round_s, (size_t)c->n_rounds * sizeof *sorted);
    numbers_sort(sorted, c->n_rounds);
    return middle(sorted, c->n_rounds);
}

/* How much longer than the best one takes who is left out. The more rounds and seconds there were,
 * the less; the noise of few rounds is itself little known, and that of few seconds is not all. */
static double margin_after(int n_rounds, double seconds)
{
    static const double early = 3, least = 0.05, spell_s = 0.5;
    if (n_rounds < CONTEST_LEAST_ROUNDS)
        return early;
    return fmax(least, fmax(1.0 / n_rounds, fmin(early, spell_s / seconds)));
}

static void leave_out(struct contestant *all, int n, double seconds)
{
    double best_s = INFINITY;
    for (int i = 0; i < n; i++)
        if (!all[i].aside && all[i].n_rounds > 0)
            best_s = fmin(best_s, all[i].step_s);
    double margin = margin_after(all[0].n_rounds, seconds);
    for (int i = 1; i < n; i++) {
        struct contestant *c = &all[i];
        if (c->n_rounds == 0)
            continue;
        if (c->aside || c->step_s > best_s * (1 + fmax(margin, 3 * c->noise)))
            c->behind = true;
    }
}

void contest_judge(struct contestant *all, int n, double seconds)
{
    double first_s = middle_s(&all[0]);
    for (int i = 0; i < n; i++)
        compare(&all[i], &all[0]);
    for (int i = 0; i < n; i++)
        all[i].step_s *= first_s;
    leave_out(all, n, seconds);
}

bool contest_is_decided(const struct contestant *all, int n)
{
    static const double equal = 0.003;
    for (int i = 1; i < n; i++)
        if (!all[i].behind && (all[i].n_rounds == 0 || all[i].noise > equal))
            return false;
    return all[0].n_rounds >= ENOUGH_ROUNDS;
}
