/* What `cleave bench limits` found, as tables and as JSON. */
#include "base/text.h"
#include "cli/bench_limits.h"
#include "cli/output.h"

#include <math.h>
#include <string.h>

/* ---- tables ---- */

static void add_seconds(table *t, double seconds)
{
    char text[32];
    table_cell(t, "%s", seconds > 0 ? text_seconds(text, sizeof text, seconds) : "-");
}

static void add_point(table *t, const struct limits_curve *c, int i)
{
    const struct limits_point *p = &c->points[i];
    double speedup = limits_speedup(c, i), serial = limits_serial_share(c);
    table_cell(t, "%d%s", p->workers, p->fits ? "" : "*");
    add_seconds(t, p->step_s);
    add_seconds(t, p->compute_s);
    add_seconds(t, p->exposed_s);
    add_seconds(t, p->wait_s);
    table_cell(t, "%.2f", speedup);
    table_cell(t, "%.0f", 100 * speedup / p->workers);
    table_cell(t, "%.2f", limits_free_speedup(c, i));
    if (!c->grows)
        table_cell(t, "%.2f", limits_amdahl(serial, p->workers));
}

static enum status print_points(const struct limits_curve *c)
{
    static const struct table_column columns[] = {
        {"workers", TABLE_RIGHT, 0}, {"step", TABLE_RIGHT, 0}, {"compute", TABLE_RIGHT, 0},
        {"exposed", TABLE_RIGHT, 0}, {"wait", TABLE_RIGHT, 0}, {"speed", TABLE_RIGHT, 0},
        {"%", TABLE_RIGHT, 0},       {"free", TABLE_RIGHT, 0}, {"Amdahl", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, c->grows ? 8 : 9, &t));
    for (int i = 0; i < c->n_points; i++)
        add_point(t, c, i);
    return table_finish(t, stdout);
}

static void print_crossing(const struct limits_curve *c, bool exposed)
{
    double at = limits_crossing(c, exposed);
    const char *what = exposed ? "Exposed communication" : "Communication";
    if (at > 0)
        printf("%s takes longer than computing from about %.3g workers on.\n", what, at);
    else
        printf("%s takes less time than computing for up to %d workers.\n", what,
               c->points[c->n_points - 1].workers);
}

static bool any_unfit(const struct limits_curve *c)
{
    for (int i = 0; i < c->n_points; i++)
        if (!c->points[i].fits)
            return true;
    return false;
}

static void print_findings(const struct limits_curve *c)
{
    printf("\n");
    if (any_unfit(c))
        printf("* needs more memory than a device has.\n");
    if (c->ended_at)
        printf("It ends there: %s.\n", c->ended_at);
    if (c->n_points < 2)
        return;
    print_crossing(c, false);
    print_crossing(c, true);
    printf("Worth paying for: %d worker%s (the most that fit and still give %gx the\n"
           "speed for each doubling of any smaller number).\n",
           limits_worth(c), limits_worth(c) == 1 ? "" : "s", LIMITS_WORTH);
}

static enum status print_curve(const struct limits_curve *c)
{
    printf("\n%s: %lld images %s\n\n", c->grows ? "Growing batch" : "Fixed batch",
           (long long)c->batch, c->grows ? "per worker" : "in a step");
    TRY(print_points(c));
    print_findings(c);
    return STATUS_OK;
}

static enum status print_types(const struct limits_curve *c)
{
    const struct limits_point *one = &c->points[0], *most = &c->points[c->n_points - 1];
    char title[32];
    (void)snprintf(title, sizeof title, "of %d", most->workers);
    const struct table_column columns[] = {
        {"type", TABLE_LEFT, 0},           {"of 1", TABLE_RIGHT, 0},
        {title, TABLE_RIGHT, 0},           {"speed", TABLE_RIGHT, 0},
        {"not shrinking", TABLE_RIGHT, 0}, {"% of step", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, 6, &t));
    for (int type = 0; type < TYPE_COUNT; type++) {
        if (one->type_s[type] <= 0 && most->type_s[type] <= 0)
            continue;
        table_cell(t, "%s", layer_type_name(type));
        add_seconds(t, one->type_s[type]);
        add_seconds(t, most->type_s[type]);
        table_cell(t, "%.2f",
                   most->type_s[type] > 0 ? one->type_s[type] / most->type_s[type] : NAN);
        add_seconds(t, limits_serial_s(c, type));
        table_cell(t, "%.3f", 100 * limits_serial_s(c, type) / one->compute_s);
    }
    return table_finish(t, stdout);
}

static enum status print_amdahl(const struct limits_curve *c)
{
    double share = limits_serial_share(c);
    if (c->n_points < 2)
        return STATUS_OK;
    printf("\nComputing time of a worker by layer type, fixed batch\n\n");
    TRY(print_types(c));
    printf("\n%.3f %% of the computing does not shrink with the number of workers", 100 * share);
    if (share > 0)
        printf(": were\ncommunication free, Amdahl's law allows at most %.0f times the speed of "
               "one.\n",
               1 / share);
    else
        printf(".\n");
    return STATUS_OK;
}

enum status limits_print_tables(const struct limits_study *s)
{
    printf("%s, plan %s on %s\n", s->model, s->options->plan, s->machine);
    TRY(print_curve(&s->fixed));
    TRY(print_amdahl(&s->fixed));
    TRY(print_curve(&s->growing));
    printf("\nstep = compute + exposed communication + wait (for each other, for data).\n"
           "speed: in images/s, against one worker; %%: of the ideal; free: the speed, did\n"
           "communication take no time.\n");
    return STATUS_OK;
}

/* ---- JSON ---- */

static json_t *point_types_json(const struct limits_point *p)
{
    json_t *types = json_object();
    for (int type = 0; type < TYPE_COUNT; type++)
        if (p->type_s[type] > 0)
            (void)json_object_set_new(types, layer_type_name(type), json_real(p->type_s[type]));
    return types;
}

static json_t *point_json(const struct limits_curve *c, int i)
{
    const struct limits_point *p = &c->points[i];
    double speedup = limits_speedup(c, i);
    json_t *amdahl =
        c->grows ? json_null() : json_real(limits_amdahl(limits_serial_share(c), p->workers));
    return json_pack(
        "{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:I, s:I, s:b, "
        "s:o}",
        "workers", p->workers, "batch", (json_int_t)p->batch, "step_s", p->step_s, "error_s",
        p->error_s, "compute_s", p->compute_s, "exposed_s", p->exposed_s, "wait_s", p->wait_s,
        "communicate_s", p->communicate_s, "free_step_s", p->free_s, "images_per_s",
        (double)p->batch / p->step_s, "speedup", speedup, "efficiency", speedup / p->workers,
        "free_speedup", limits_free_speedup(c, i), "amdahl_speedup", amdahl, "memory_bytes",
        (json_int_t)p->memory_bytes, "bytes_moved", (json_int_t)p->bytes_moved, "fits", p->fits,
        "types", point_types_json(p));
}

static json_t *crossing_json(const struct limits_curve *c, bool exposed)
{
    double at = limits_crossing(c, exposed);
    return at > 0 ? json_real(at) : json_null();
}

static json_t *curve_json(const struct limits_curve *c)
{
    json_t *points = json_array();
    for (int i = 0; i < c->n_points; i++)
        (void)json_array_append_new(points, point_json(c, i));
    return json_pack("{s:I, s:o, s:s?, s:o, s:o, s:i}", "batch", (json_int_t)c->batch, "points",
                     points, "ended", c->ended_at, "communication_overtakes",
                     crossing_json(c, false), "exposed_overtakes", crossing_json(c, true),
                     "worth_workers", limits_worth(c));
}

static json_t *types_json(const struct limits_curve *c)
{
    const struct limits_point *one = &c->points[0], *most = &c->points[c->n_points - 1];
    json_t *types = json_array();
    for (int type = 0; type < TYPE_COUNT; type++)
        if (one->type_s[type] > 0 || most->type_s[type] > 0)
            (void)json_array_append_new(
                types, json_pack("{s:s, s:f, s:f, s:o, s:f}", "type", layer_type_name(type),
                                 "one_s", one->type_s[type], "most_s", most->type_s[type],
                                 "speedup", output_number(one->type_s[type] / most->type_s[type]),
                                 "serial_s", limits_serial_s(c, type)));
    return types;
}

enum status limits_print_json(const struct limits_study *s)
{
    double share = limits_serial_share(&s->fixed);
    return output_json(json_pack(
        "{s:s, s:s, s:s, s:s, s:f, s:o, s:o, s:o, s:{s:i, s:f, s:o}}", "model", s->model, "data",
        s->options->forecast.data, "machine", s->machine, "plan", s->options->plan, "worth_rule",
        LIMITS_WORTH, "fixed", curve_json(&s->fixed), "growing", curve_json(&s->growing), "types",
        types_json(&s->fixed), "amdahl", "workers", s->fixed.points[s->fixed.n_points - 1].workers,
        "serial_share", share, "limit", output_number(1 / share)));
}
