/* How the answer of `cleave plan` changes with the number of workers, or with the batch. */
#include "base/log.h"
#include "base/output.h"
#include "base/text.h"
#include "bench/limits.h"
#include "cli/network_help.h"
#include "cli/plan_choose.h"
#include "runtime/stop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is kept of one search. */
struct point {
    int workers;
    int64_t batch;
    bool fits; /* something does */
    bool worth;
    char name[CANDIDATE_NAME_BYTES];
    int used; /* workers of the best plan */
    double step_s, error_s;
    double data_s; /* data parallelism on all workers; NAN: it does not fit */
    double epoch_s, images_per_s, search_s;
};

static void take_answer(struct point *p, const struct chooser *c, const struct candidate_set *s)
{
    p->batch = c->forecast->graph->batch;
    p->search_s = s->search_s;
    p->data_s = s->data >= 0 && s->list[s->data].fits ? s->list[s->data].step_s : NAN;
    p->fits = s->best >= 0;
    if (!p->fits)
        return;
    const struct candidate *best = &s->list[s->best];
    (void)snprintf(p->name, sizeof p->name, "%s", best->name);
    p->used = best->plan->n_workers;
    p->step_s = best->step_s;
    p->error_s = best->error_s;
    p->epoch_s = chooser_epoch_s(c, best->step_s);
    p->images_per_s = (double)p->batch / best->step_s;
}

static enum status find_point(struct chooser *c, struct point *p)
{
    struct candidate_set *s;
    TRY(chooser_find(c, p->workers, &s));
    take_answer(p, c, s);
    candidates_destroy(s);
    return STATUS_OK;
}

/* What was asked for behind point i is left out: nobody has looked at it. */
static void end_if_stopped(int i, int *n)
{
    if (stop_requested() && i + 1 < *n) {
        log_warn("stopped: %d of %d searches are left out", *n - i - 1, *n);
        *n = i + 1;
    }
}

static double worker_hours(const struct point *p)
{
    return p->used * p->epoch_s / 3600;
}

static json_t *point_json(const struct point *p)
{
    return json_pack("{s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:f}", "workers",
                     p->workers, "batch", (json_int_t)p->batch, "best",
                     p->fits ? json_string(p->name) : json_null(), "used",
                     p->fits ? json_integer(p->used) : json_null(), "step_s",
                     p->fits ? json_real(p->step_s) : json_null(), "images_per_s",
                     p->fits ? json_real(p->images_per_s) : json_null(), "epoch_s",
                     p->fits ? json_real(p->epoch_s) : json_null(), "worker_hours",
                     p->fits ? json_real(worker_hours(p)) : json_null(), "data_step_s",
                     output_number(p->data_s), "worth", p->worth, "search_s", p->search_s);
}

static json_t *points_json(const struct point *points, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list, point_json(&points[i]));
    return list;
}

/* ---- over workers ---- */

static bool take_count(const char **at, char end, int *out)
{
    int64_t n = 0;
    const char *c = *at;
    for (; *c >= '0' && *c <= '9' && n <= PLAN_MAX_WORKERS; c++)
        n = 10 * n + (*c - '0');
    if (c == *at || *c != end || n < 1 || n > PLAN_MAX_WORKERS)
        return false;
    *at = c;
    *out = (int)n;
    return true;
}

bool plan_parse_range(const char *text, int counts[PLAN_MAX_POINTS], int *n_counts)
{
    int first, last;
    *n_counts = 0;
    if (!take_count(&text, '.', &first) || strncmp(text, "..", 2) != 0)
        return false;
    text += 2;
    if (!take_count(&text, '\0', &last) || last < first)
        return false;
    for (int64_t n = first; n < last && *n_counts < PLAN_MAX_POINTS - 1; n *= 2)
        counts[(*n_counts)++] = (int)n;
    counts[(*n_counts)++] = last;
    return true;
}

/* As in bench limits: against every smaller number. */
static void find_worth(struct point *points, int n)
{
    for (int i = 0; i < n; i++) {
        points[i].worth = points[i].fits;
        for (int k = 0; k < i && points[i].worth; k++)
            if (points[k].fits) {
                double doublings = log2((double)points[i].workers / points[k].workers);
                double gain = points[k].step_s / points[i].step_s;
                points[i].worth = gain >= pow(LIMITS_WORTH, doublings);
            }
    }
}

static int count_worth(const struct point *points, int n)
{
    int worth = 0;
    for (int i = 0; i < n; i++)
        worth = points[i].worth ? points[i].workers : worth;
    return worth;
}

static const struct point *find_first(const struct point *points, int n)
{
    for (int i = 0; i < n; i++)
        if (points[i].fits)
            return &points[i];
    return NULL;
}

static void add_point(table *t, const struct point *p, const struct point *first)
{
    char text[32];
    table_cell(t, "%d", p->workers);
    table_cell(t, "%s", p->fits ? p->name : "nothing fits");
    if (!p->fits) {
        for (int i = 0; i < 5; i++)
            table_cell(t, "%s", "");
        return;
    }
    table_cell(t, "%s", text_seconds(text, sizeof text, p->step_s));
    table_cell(t, "%s", text_seconds(text, sizeof text, p->epoch_s));
    table_cell(t, "%.2f", first->step_s / p->step_s);
    table_cell(t, "%.3g", worker_hours(p));
    table_cell(t, "%s", p->worth ? "yes" : "no");
}

static enum status print_workers(const struct chooser *c, const struct point *points, int n)
{
    static const struct table_column columns[] = {
        {"workers", TABLE_RIGHT, 0}, {"best plan", TABLE_LEFT, 12}, {"step", TABLE_RIGHT, 0},
        {"epoch", TABLE_RIGHT, 0},   {"speed", TABLE_RIGHT, 0},     {"worker-h", TABLE_RIGHT, 0},
        {"worth it", TABLE_LEFT, 0}};
    const struct point *first = find_first(points, n);
    table *t;
    printf("%s on %s, batch %lld, on %s\n\n", c->forecast->graph->name, c->forecast->data.name,
           (long long)c->forecast->graph->batch, c->forecast->machine->name);
    TRY(table_create(columns, 7, &t));
    for (int i = 0; i < n; i++)
        add_point(t, &points[i], first);
    TRY(table_finish(t, stdout));
    if (first) {
        printf("\n");
        output_line(0,
                    "Worth paying for: %d (each doubling of any smaller number gives at least %gx "
                    "the speed). speed: against the first row; worker-h: workers times hours of an "
                    "epoch.",
                    count_worth(points, n), LIMITS_WORTH);
    }
    return STATUS_OK;
}

static enum status refuse(const struct plan_choose_options *o, const struct point *points, int n)
{
    double hours = o->chooser.most_worker_hours;
    if (find_first(points, n))
        return STATUS_OK;
    if (hours > 0)
        return status_fail(
            STATUS_NO_FIT,
            "no plan fits into memory and keeps within the budget of %g worker-hours "
            "an epoch",
            hours);
    return status_fail(STATUS_NO_FIT, "no plan fits into memory; try a smaller --batch");
}

static enum status study_workers(struct chooser *c, const struct plan_choose_options *o)
{
    struct point points[PLAN_MAX_POINTS] = {0};
    int counts[PLAN_MAX_POINTS], n;
    (void)plan_parse_range(o->workers, counts, &n);
    for (int i = 0; i < n; i++) {
        points[i].workers = counts[i];
        TRY(find_point(c, &points[i]));
        end_if_stopped(i, &n);
    }
    find_worth(points, n);
    if (o->json)
        TRY(output_json(json_pack("{s:s, s:s, s:o, s:i}", "model", c->forecast->graph->name,
                                  "machine", c->forecast->machine->name, "points",
                                  points_json(points, n), "worth_workers",
                                  count_worth(points, n))));
    else
        TRY(print_workers(c, points, n));
    return refuse(o, points, n);
}

enum status plan_study_workers(const struct plan_choose_options *o)
{
    struct chooser_options options = o->chooser;
    struct chooser c;
    int counts[PLAN_MAX_POINTS], n;
    if (!plan_parse_range(o->workers, counts, &n))
        return status_fail(STATUS_USAGE, "--workers '%s' is no range", o->workers);
    options.workers = counts[n - 1];
    options.fewer = false;
    options.try_s = 0; /* the clock is enough for a curve */
    enum status st = chooser_open(&c, &options);
    if (st == STATUS_OK)
        st = study_workers(&c, o);
    chooser_close(&c);
    return st;
}

/* ---- over batches ---- */

static enum status study_batch(const struct plan_choose_options *o, int64_t batch, struct point *p)
{
    struct chooser_options options = o->chooser;
    struct chooser c;
    options.forecast.batch = batch;
    options.try_s = 0;
    enum status st = chooser_open(&c, &options);
    p->workers = c.n_workers;
    p->batch = batch;
    if (st == STATUS_OK)
        st = find_point(&c, p);
    chooser_close(&c);
    return st;
}

static enum status print_batches(const struct plan_choose_options *o, const struct point *points,
                                 int n)
{
    static const struct table_column columns[] = {
        {"batch", TABLE_RIGHT, 0},    {"best plan", TABLE_LEFT, 12}, {"workers", TABLE_RIGHT, 0},
        {"step", TABLE_RIGHT, 0},     {"epoch", TABLE_RIGHT, 0},     {"images/s", TABLE_RIGHT, 0},
        {"of data's", TABLE_RIGHT, 0}};
    table *t;
    printf("%s on %s, on %s\n\n", o->chooser.forecast.model, o->chooser.forecast.data,
           o->chooser.forecast.machine);
    TRY(table_create(columns, 7, &t));
    for (int i = 0; i < n; i++) {
        const struct point *p = &points[i];
        char text[32];
        table_cell(t, "%lld", (long long)p->batch);
        table_cell(t, "%s", p->fits ? p->name : "nothing fits");
        table_cell(t, p->fits ? "%d" : "-", p->used);
        table_cell(t, "%s", p->fits ? text_seconds(text, sizeof text, p->step_s) : "");
        table_cell(t, "%s", p->fits ? text_seconds(text, sizeof text, p->epoch_s) : "");
        table_cell(t, p->fits ? "%.0f" : "-", p->images_per_s);
        table_cell(t, p->fits && isfinite(p->data_s) ? "%.2f" : "-", p->data_s / p->step_s);
    }
    TRY(table_finish(t, stdout));
    printf("\nof data's: images/s against data parallelism on all workers\n");
    return STATUS_OK;
}

enum status plan_study_batches(const struct plan_choose_options *o)
{
    struct point points[PLAN_MAX_POINTS] = {0};
    int64_t sizes[PLAN_MAX_POINTS];
    int n;
    TRY(text_parse_integers("--batches", o->batches, 1, GRAPH_LARGEST_BATCH, PLAN_MAX_POINTS, sizes,
                            &n));
    for (int i = 0; i < n; i++) {
        TRY(study_batch(o, sizes[i], &points[i]));
        end_if_stopped(i, &n);
    }
    if (o->json)
        TRY(output_json(json_pack("{s:s, s:s, s:o}", "model", o->chooser.forecast.model, "machine",
                                  o->chooser.forecast.machine, "points", points_json(points, n))));
    else
        TRY(print_batches(o, points, n));
    return refuse(o, points, n);
}
