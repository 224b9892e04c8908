#include "cli/bench_limits.h"

#include <math.h>

static double images_per_s(const struct limits_point *p, double step_s)
{
    return (double)p->batch / step_s;
}

double limits_speedup(const struct limits_curve *c, int i)
{
    const struct limits_point *one = &c->points[0], *p = &c->points[i];
    return images_per_s(p, p->step_s) / images_per_s(one, one->step_s);
}

double limits_free_speedup(const struct limits_curve *c, int i)
{
    const struct limits_point *one = &c->points[0], *p = &c->points[i];
    return images_per_s(p, p->free_s) / images_per_s(one, one->step_s);
}

static double lead(const struct limits_point *p, bool exposed)
{
    return (exposed ? p->exposed_s : p->communicate_s) - p->compute_s;
}

double limits_crossing(const struct limits_curve *c, bool exposed)
{
    for (int i = 1; i < c->n_points; i++) {
        const struct limits_point *p = &c->points[i], *before = p - 1;
        double here = lead(p, exposed), there = lead(before, exposed);
        if (here < 0 || there >= 0)
            continue;
        double ratio = (double)p->workers / before->workers;
        return before->workers * pow(ratio, there / (there - here));
    }
    return 0;
}

/* Against every smaller number: a slow link that is crossed on the way must be made up for. */
static bool is_worth(const struct limits_curve *c, int i)
{
    for (int k = 0; k < i; k++) {
        double doublings = log2((double)c->points[i].workers / c->points[k].workers);
        double gain = limits_speedup(c, i) / limits_speedup(c, k);
        if (gain < pow(LIMITS_WORTH, doublings))
            return false;
    }
    return c->points[i].fits;
}

int limits_worth(const struct limits_curve *c)
{
    int worth = 1;
    for (int i = 1; i < c->n_points; i++)
        if (is_worth(c, i))
            worth = c->points[i].workers;
    return worth;
}

double limits_serial_s(const struct limits_curve *c, int type)
{
    const struct limits_point *most = &c->points[c->n_points - 1];
    double n = most->workers, one_s = c->points[0].type_s[type];
    if (c->n_points < 2)
        return 0;
    return fmax(0, (most->type_s[type] - one_s / n) / (1 - 1 / n));
}

double limits_serial_share(const struct limits_curve *c)
{
    double serial_s = 0, one_s = c->points[0].compute_s;
    for (int type = 0; type < TYPE_COUNT; type++)
        serial_s += limits_serial_s(c, type);
    return one_s > 0 ? fmin(1, serial_s / one_s) : 0;
}

double limits_amdahl(double serial_share, int workers)
{
    return 1 / (serial_share + (1 - serial_share) / workers);
}
