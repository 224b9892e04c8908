/* How the answer of `cleave plan` changes with the number of workers, or with the batch. */
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "bench/limits.h"
#include "cli/network_help.h"
#include "cli/plan_choose.h"
#include "runtime/stop.h"
#include "search/title.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The result of one search. */
struct point {
    int workers;
    int64_t batch;
    bool fits; /* something does */
    bool worth;
    char name[CANDIDATE_NAME_BYTES], title[CANDIDATE_TITLE_BYTES];
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
    (void)candidate_title(best, p->workers, p->title);
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

/* The points behind number i were not searched: they are left out. */
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

static struct value known(const struct point *p, double figure)
{
    return v_real(p->fits ? figure : NAN);
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

/* `by_batch`: rows are batches, else numbers of workers. */
static void report_points(const struct point *points, int n, bool by_batch, struct results *r)
{
    const struct point *first = find_first(points, n);
    bool workers = !by_batch, batches = by_batch;
    const struct field fields[] = {{workers ? "workers" : NULL, "workers", ">", 0, 0},
                                   {batches ? "batch" : NULL, "batch", ">", 0, 0},
                                   {"best plan", NULL, NULL, 0, 12},
                                   HIDDEN("best"),
                                   {batches ? "workers" : NULL, "used", ">", 0, 0},
                                   {"step", "step_s", "seconds", 0, 0},
                                   {"epoch", "epoch_s", "seconds", 0, 0},
                                   {batches ? "images/s" : NULL, "images_per_s", "%.0f", 0, 0},
                                   {workers ? "speed" : NULL, NULL, "%.2f", 0, 0},
                                   {workers ? "worker-h" : NULL, "worker_hours", "%.3g", 0, 0},
                                   HIDDEN("data_step_s"),
                                   {batches ? "of data's" : NULL, NULL, "%.2f", 0, 0},
                                   {workers ? "worth it" : NULL, "worth", NULL, 0, 0},
                                   HIDDEN("search_s"),
                                   {0}};
    results_table(r, "points", fields, FOR_PEOPLE | FOR_JSON);
    for (const struct point *p = points; p < points + n; p++)
        RESULTS_ROW(r, v_int(p->workers), v_int(p->batch),
                    v_text(p->fits ? p->title : "nothing fits"), v_text(p->fits ? p->name : NULL),
                    p->fits ? v_int(p->used) : v_text(NULL), known(p, p->step_s),
                    known(p, p->epoch_s), known(p, p->images_per_s),
                    known(p, first ? first->step_s / p->step_s : NAN), known(p, worker_hours(p)),
                    v_real(p->data_s), known(p, p->data_s / p->step_s), v_flag(p->worth),
                    v_real(p->search_s));
    results_table_end(r);
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
    struct results r;
    TRY(results_open(&r, o->json, NULL));
    results_put(&r, "model", v_text(c->forecast->graph->name));
    results_put(&r, "precision", v_text(precision_names[c->forecast->options->run.precision]));
    results_put(&r, "machine", v_text(c->forecast->machine->name));
    results_say(&r, 2, "%s on %s, batch %lld, in %s, on %s", c->forecast->graph->name,
                c->forecast->data.name, (long long)c->forecast->graph->batch,
                precision_names[c->forecast->options->run.precision], c->forecast->machine->name);
    results_say(&r, 0, "%s", "");
    report_points(points, n, false, &r);
    results_put(&r, "worth_workers", v_int(count_worth(points, n)));
    if (find_first(points, n)) {
        results_say(&r, 0, "%s", "");
        results_say(&r, 0,
                    "Worth paying for: %d (each doubling of any smaller number gives at least %gx "
                    "the speed). speed: against the first row; worker-h: workers times hours of an "
                    "epoch.",
                    count_worth(points, n), LIMITS_WORTH);
    }
    TRY(results_close(&r, STATUS_OK));
    return refuse(o, points, n);
}

enum status plan_scale_workers(const struct plan_choose_options *o)
{
    struct chooser_options options = o->chooser;
    struct chooser c;
    int counts[PLAN_MAX_POINTS], n;
    if (!plan_parse_range(o->workers, counts, &n))
        return status_fail(STATUS_USAGE, "--workers '%s' is no range", o->workers);
    options.workers = counts[n - 1];
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

enum status plan_scale_batches(const struct plan_choose_options *o)
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
    struct results r;
    const struct forecast_options *f = &o->chooser.forecast;
    TRY(results_open(&r, o->json, NULL));
    results_put(&r, "model", v_text(o->model));
    results_put(&r, "machine", v_text(f->machine));
    results_say(&r, 2, "%s on %s, on %s", o->model, f->data, f->machine);
    results_say(&r, 0, "%s", "");
    report_points(points, n, true, &r);
    results_say(&r, 0, "%s", "");
    results_say(&r, 0, "of data's: images/s against data parallelism on all workers");
    TRY(results_close(&r, STATUS_OK));
    return refuse(o, points, n);
}
