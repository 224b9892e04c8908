#include "profile/profile_fit.h"

#include <math.h>

static const double least_spread = 0.02;
static const double least_seconds = 1e-9; /* no clock is finer */
static const double most_rate = 1e100;    /* so that no square overflows */
static const double least_pivot = 1e-11;  /* below, one column is a multiple of others */
static const double least_gain = 1e-12;   /* of the mean squared error, to add an unknown for */

/* One point's row of the problem: what the unknowns are multiplied with for a relative time of 1.
 */
static void make_row(const struct fit_point *p, double row[FIT_UNKNOWNS])
{
    double seconds = fmax(p->seconds, least_seconds);
    row[0] = 1 / seconds;
    row[1] = fmin(p->flops / seconds, most_rate);
    row[2] = fmin(p->bytes / seconds, most_rate);
}

/* The normal equations, each unknown scaled so that its diagonal element is 1: flops and bytes are
 * large numbers and a fixed time is a small one. */
struct equations {
    double scale[FIT_UNKNOWNS];
    double matrix[FIT_UNKNOWNS][FIT_UNKNOWNS];
    double right[FIT_UNKNOWNS];
};

static void set_equations(const struct fit_point *points, int n, struct equations *e)
{
    *e = (struct equations){0};
    double row[FIT_UNKNOWNS];
    for (int i = 0; i < n; i++) {
        make_row(&points[i], row);
        for (int k = 0; k < FIT_UNKNOWNS; k++)
            e->scale[k] += row[k] * row[k];
    }
    for (int k = 0; k < FIT_UNKNOWNS; k++)
        e->scale[k] = e->scale[k] > 0 ? 1 / sqrt(e->scale[k]) : 0;
    for (int i = 0; i < n; i++) {
        make_row(&points[i], row);
        for (int k = 0; k < FIT_UNKNOWNS; k++) {
            e->right[k] += row[k] * e->scale[k];
            for (int l = 0; l < FIT_UNKNOWNS; l++)
                e->matrix[k][l] += row[k] * e->scale[k] * row[l] * e->scale[l];
        }
    }
}

/* The unknowns of `set` (bits), the others being zero, by Gauss' elimination; the matrix is
 * positive, so that no rows need be exchanged. False: they are not determined. */
static bool solve(const struct equations *e, unsigned set, double x[FIT_UNKNOWNS])
{
    struct equations w = *e;
    for (int k = 0; k < FIT_UNKNOWNS; k++) {
        if (!(set & 1u << k))
            continue;
        if (!(w.matrix[k][k] > least_pivot))
            return false;
        for (int i = k + 1; i < FIT_UNKNOWNS; i++) {
            double factor = w.matrix[i][k] / w.matrix[k][k];
            for (int j = k; j < FIT_UNKNOWNS; j++)
                w.matrix[i][j] -= factor * w.matrix[k][j];
            w.right[i] -= factor * w.right[k];
        }
    }
    for (int k = FIT_UNKNOWNS - 1; k >= 0; k--) {
        x[k] = 0;
        if (!(set & 1u << k))
            continue;
        double rest = w.right[k];
        for (int j = k + 1; j < FIT_UNKNOWNS; j++)
            if (set & 1u << j)
                rest -= w.matrix[k][j] * x[j];
        x[k] = rest / w.matrix[k][k];
    }
    for (int k = 0; k < FIT_UNKNOWNS; k++)
        x[k] *= e->scale[k];
    return true;
}

static bool is_allowed(const double x[FIT_UNKNOWNS])
{
    for (int k = 0; k < FIT_UNKNOWNS; k++)
        if (!(x[k] >= 0 && isfinite(x[k])))
            return false;
    return true;
}

static double squared_error(const struct fit_point *points, int n, const double x[FIT_UNKNOWNS])
{
    double sum = 0, row[FIT_UNKNOWNS];
    for (int i = 0; i < n; i++) {
        make_row(&points[i], row);
        double error = row[0] * x[0] + row[1] * x[1] + row[2] * x[2] - 1;
        sum += error * error;
    }
    return sum;
}

bool fit_points(const struct fit_point *points, int n, struct fit *out)
{
    /* Simple answers first: a more complicated one must be better. */
    static const unsigned sets[] = {1, 2, 4, 3, 5, 6, 7};
    static const int sizes[] = {1, 1, 1, 2, 2, 2, 3};
    if (n < FIT_LEAST_POINTS)
        return false;
    struct equations e;
    set_equations(points, n, &e);
    double best = INFINITY, variance = INFINITY, x[FIT_UNKNOWNS];
    for (int i = 0; i < 7; i++) {
        if (!solve(&e, sets[i], x) || !is_allowed(x))
            continue;
        double error = squared_error(points, n, x);
        if (n > sizes[i])
            variance = fmin(variance, error / (n - sizes[i]));
        if (!(error < best - least_gain * n))
            continue;
        best = error;
        for (int k = 0; k < FIT_UNKNOWNS; k++)
            out->of[k] = x[k];
    }
    out->spread = fmax(least_spread, sqrt(variance));
    return isfinite(best);
}

double fit_seconds(const struct fit *f, double flops, double bytes)
{
    return f->of[0] + f->of[1] * flops + f->of[2] * bytes;
}
