/* limits_report.c: conclusions from the predicted points, and their presentation. */
#include "bench/limits.h"

#include <math.h>

/* ---- figures ---- */

static double images_per_s(const struct limits_point *p, double step_s)
{
    return (double)p->batch / step_s;
}

/* Images per second against those of one worker. */
static double speedup(const struct limits_curve *c, int i)
{
    const struct limits_point *one = &c->points[0], *p = &c->points[i];
    return images_per_s(p, p->step_s) / images_per_s(one, one->step_s);
}

/* The same with free communication. */
static double free_speedup(const struct limits_curve *c, int i)
{
    const struct limits_point *one = &c->points[0], *p = &c->points[i];
    return images_per_s(p, p->free_s) / images_per_s(one, one->step_s);
}

static double lead(const struct limits_point *p, bool exposed)
{
    return (exposed ? p->exposed_s : p->communicate_s) - p->compute_s;
}

/* The number of workers, interpolated, from which on communication takes longer than computing; or
 * from which on its exposed part does. NAN: there is none. */
static double crossing(const struct limits_curve *c, bool exposed)
{
    for (int i = 1; i < c->n_points; i++) {
        const struct limits_point *p = &c->points[i], *before = p - 1;
        double here = lead(p, exposed), there = lead(before, exposed);
        if (here < 0 || there >= 0)
            continue;
        double ratio = (double)p->workers / before->workers;
        return before->workers * pow(ratio, there / (there - here));
    }
    return NAN;
}

/* Against every smaller number: a slow link that is crossed on the way must be made up for. */
static bool is_worth(const struct limits_curve *c, int i)
{
    for (int k = 0; k < i; k++) {
        double doublings = log2((double)c->points[i].workers / c->points[k].workers);
        double gain = speedup(c, i) / speedup(c, k);
        if (gain < pow(LIMITS_WORTH, doublings))
            return false;
    }
    return c->points[i].fits;
}

/* The largest number of workers that fits and whose speed against every smaller one is at least
 * LIMITS_WORTH for each doubling. */
static int worth_workers(const struct limits_curve *c)
{
    int worth = 1;
    for (int i = 1; i < c->n_points; i++)
        if (is_worth(c, i))
            worth = c->points[i].workers;
    return worth;
}

/* Amdahl's law from two points of the curve of a fixed batch, one worker and the most: computing
 * time that does not shrink.
 *
 *     t(n) = serial + (t(1) - serial) / n
 *
 * Work that only comes with the cuts, copies for example, is among it. */
static double serial_s_of(const struct limits_curve *c, int type)
{
    const struct limits_point *most = &c->points[c->n_points - 1];
    double n = most->workers, one_s = c->points[0].type_s[type];
    if (c->n_points < 2)
        return 0;
    return fmax(0, (most->type_s[type] - one_s / n) / (1 - 1 / n));
}

static double serial_share(const struct limits_curve *c)
{
    double serial_s = 0, one_s = c->points[0].compute_s;
    for (int type = 0; type < TYPE_COUNT; type++)
        serial_s += serial_s_of(c, type);
    return one_s > 0 ? fmin(1, serial_s / one_s) : 0;
}

static double amdahl(double serial, int workers)
{
    return 1 / (serial + (1 - serial) / workers);
}

/* ---- a curve ---- */

static json_t *types_json(const struct limits_point *p)
{
    json_t *types = json_object();
    for (int type = 0; type < TYPE_COUNT; type++)
        if (p->type_s[type] > 0)
            (void)json_object_set_new(types, layer_type_name(type), json_real(p->type_s[type]));
    return types;
}

static void report_points(const struct limits_curve *c, struct results *r)
{
    struct field fields[] = {{"workers", NULL, ">", 0, 0},
                             HIDDEN("workers"),
                             HIDDEN("batch"),
                             {"step", "step_s", "-seconds", 0, 0},
                             HIDDEN("error_s"),
                             {"compute", "compute_s", "-seconds", 0, 0},
                             {"exposed", "exposed_s", "-seconds", 0, 0},
                             {"wait", "wait_s", "-seconds", 0, 0},
                             HIDDEN("communicate_s"),
                             HIDDEN("free_step_s"),
                             HIDDEN("images_per_s"),
                             {"speed", "speedup", "%.2f", 0, 0},
                             {"%", "efficiency", "%.0f", 100, 0},
                             {"free", "free_speedup", "%.2f", 0, 0},
                             {c->grows ? NULL : "Amdahl", "amdahl_speedup", "%.2f", 0, 0},
                             HIDDEN("memory_bytes"),
                             HIDDEN("bytes_moved"),
                             HIDDEN("fits"),
                             HIDDEN("types"),
                             {0}};
    results_table(r, "points", fields, FOR_PEOPLE | FOR_JSON);
    for (int i = 0; i < c->n_points; i++) {
        const struct limits_point *p = &c->points[i];
        char workers[32];
        (void)snprintf(workers, sizeof workers, "%d%s", p->workers, p->fits ? "" : "*");
        RESULTS_ROW(
            r, v_text(workers), v_int(p->workers), v_int(p->batch), v_real(p->step_s),
            v_real(p->error_s), v_real(p->compute_s), v_real(p->exposed_s), v_real(p->wait_s),
            v_real(p->communicate_s), v_real(p->free_s), v_real(images_per_s(p, p->step_s)),
            v_real(speedup(c, i)), v_real(speedup(c, i) / p->workers), v_real(free_speedup(c, i)),
            v_real(c->grows ? NAN : amdahl(serial_share(c), p->workers)), v_int(p->memory_bytes),
            v_int(p->bytes_moved), v_flag(p->fits), v_json(types_json(p)));
    }
    results_table_end(r);
}

static void say_crossing(const struct limits_curve *c, bool exposed, struct results *r)
{
    double at = crossing(c, exposed);
    const char *what = exposed ? "Exposed communication" : "Communication";
    if (isfinite(at))
        results_say(r, 0, "%s takes longer than computing from about %.3g workers on.", what, at);
    else
        results_say(r, 0, "%s takes less time than computing for up to %d workers.", what,
                    c->points[c->n_points - 1].workers);
}

static bool any_unfit(const struct limits_curve *c)
{
    for (int i = 0; i < c->n_points; i++)
        if (!c->points[i].fits)
            return true;
    return false;
}

static void report_curve(const struct limits_curve *c, struct results *r)
{
    results_put(r, "batch", v_int(c->batch));
    results_say(r, 0, "%s", "");
    results_say(r, 0, "%s: %lld images %s", c->grows ? "Growing batch" : "Fixed batch",
                (long long)c->batch, c->grows ? "per worker" : "in a step");
    results_say(r, 0, "%s", "");
    report_points(c, r);
    results_put(r, "ended", v_text(c->ended_at));
    results_put(r, "communication_overtakes", v_real(crossing(c, false)));
    results_put(r, "exposed_overtakes", v_real(crossing(c, true)));
    results_put(r, "worth_workers", v_int(worth_workers(c)));
    results_say(r, 0, "%s", "");
    if (any_unfit(c))
        results_say(r, 2, "* needs more memory than a device has.");
    if (c->ended_at)
        results_say(r, 2, "It ends there: %s.", c->ended_at);
    if (c->n_points < 2)
        return;
    say_crossing(c, false, r);
    say_crossing(c, true, r);
    results_say(r, 0,
                "Worth paying for: %d worker%s (the most that fit and still give %gx the speed for "
                "each doubling of any smaller number).",
                worth_workers(c), worth_workers(c) == 1 ? "" : "s", LIMITS_WORTH);
}

/* ---- computing by layer type ---- */

static void report_types(const struct limits_curve *c, struct results *r)
{
    const struct limits_point *one = &c->points[0], *most = &c->points[c->n_points - 1];
    char title[32];
    (void)snprintf(title, sizeof title, "of %d", most->workers);
    const struct field fields[] = {{"type", "type", NULL, 0, 0},
                                   {"of 1", "one_s", "-seconds", 0, 0},
                                   {title, "most_s", "-seconds", 0, 0},
                                   {"speed", "speedup", "%.2f", 0, 0},
                                   {"not shrinking", "serial_s", "-seconds", 0, 0},
                                   {"% of step", NULL, "%.3f", 100, 0},
                                   {0}};
    results_table(r, "types", fields, c->n_points < 2 ? FOR_JSON : FOR_PEOPLE | FOR_JSON);
    for (int type = 0; type < TYPE_COUNT; type++) {
        double one_s = one->type_s[type], most_s = most->type_s[type];
        double serial_s = serial_s_of(c, type);
        if (one_s > 0 || most_s > 0)
            RESULTS_ROW(r, v_text(layer_type_name(type)), v_real(one_s), v_real(most_s),
                        v_real(one_s / most_s), v_real(serial_s),
                        v_real(serial_s / one->compute_s));
    }
    results_table_end(r);
}

static void report_amdahl(const struct limits_curve *c, struct results *r)
{
    double share = serial_share(c);
    bool several = c->n_points > 1;
    if (several) {
        results_say(r, 0, "%s", "");
        results_say(r, 0, "Computing time of a worker by layer type, fixed batch");
        results_say(r, 0, "%s", "");
    }
    report_types(c, r);
    results_enter(r);
    results_put(r, "workers", v_int(c->points[c->n_points - 1].workers));
    results_put(r, "serial_share", v_real(share));
    results_put(r, "limit", v_real(1 / share));
    results_leave(r, "amdahl", false);
    if (!several)
        return;
    results_say(r, 0, "%s", "");
    if (share > 0)
        results_say(r, 0,
                    "%.3f %% of the computing does not shrink with the number of workers: were "
                    "communication free, Amdahl's law allows at most %.0f times the speed of one.",
                    100 * share, 1 / share);
    else
        results_say(r, 0, "All of the computing shrinks with the number of workers.");
}

void limits_report(const struct limits_study *s, struct results *r)
{
    results_put(r, "model", v_text(s->model));
    results_put(r, "data", v_text(s->options->forecast.data));
    results_put(r, "machine", v_text(s->machine));
    results_put(r, "plan", v_text(s->options->plan));
    results_put(r, "worth_rule", v_real(LIMITS_WORTH));
    results_say(r, 2, "%s, plan %s on %s", s->model, s->options->plan, s->machine);
    if (s->cut_at)
        results_say(r, 2, "up to the %d device%s that it has", s->cut_at,
                    s->cut_at == 1 ? "" : "s");
    results_enter(r);
    report_curve(&s->fixed, r);
    results_leave(r, "fixed", false);
    report_amdahl(&s->fixed, r);
    results_enter(r);
    report_curve(&s->growing, r);
    results_leave(r, "growing", false);
    results_say(r, 0, "%s", "");
    results_say(r, 0,
                "step = compute + exposed communication + wait (for each other, for data). speed: "
                "in images/s, against one worker; %%: of the ideal; free: the speed, did "
                "communication take no time.");
}
