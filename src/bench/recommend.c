/* recommend.c: is the recommended plan the fastest? It is trained beside every named strategy, in
 * turns, in one process. */
#include "base/text.h"
#include "bench/bench.h"
#include "runtime/stop.h"
#include "search/chooser.h"
#include "search/trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Plans whose times differ by less are equally good. */
static const double RIGHT = 0.02;
static const double MOST_MEMORY = 0.8;

/* One network: every named strategy, and the recommended plan. */
struct contest {
    const char *model;
    const struct candidate_set *set;
    int n;
    struct trial_plan plans[TRIAL_MAX_PLANS];
    struct plan *own[TRIAL_MAX_PLANS];    /* those of the named strategies; NULL: the set's */
    bool stale[TRIAL_MAX_PLANS];          /* trains with older weights */
    double memory_share[TRIAL_MAX_PLANS]; /* of the host's */
    int best;                             /* measured, of the named ones */
    double regret;                        /* recommended over best, less 1 */
};

/* ---- the plans ---- */

static double share_of(int64_t needed_bytes, int64_t limit_bytes)
{
    return limit_bytes > 0 ? (double)needed_bytes / (double)limit_bytes : 0;
}

static void add_plan(struct contest *t, const char *name, const struct plan *plan, struct plan *own,
                     double memory_share)
{
    t->plans[t->n] = (struct trial_plan){.name = name, .plan = plan};
    t->own[t->n] = own;
    t->memory_share[t->n] = memory_share;
    t->stale[t->n++] = plan_is_stale(plan);
}

/* A strategy that cannot cut the network so, or does not fit, is left out. */
static enum status add_named(struct chooser *c, struct contest *t, const char *name, int workers)
{
    struct plan_request request = {.n_workers = workers};
    struct plan *plan;
    struct predict_request r;
    struct prediction *p;
    enum status st = plan_build(name, c->forecast->graph, &request, &plan);
    if (st == STATUS_USAGE) {
        status_clear();
        return STATUS_OK;
    }
    TRY(st);
    st = chooser_request(c, plan, &r);
    if (st == STATUS_OK)
        st = predict_memory(&r, &p);
    bool fits = st == STATUS_OK && p->too_large_worker < 0;
    double share = fits ? share_of(p->needed_bytes, p->limit_bytes) : 0;
    if (st == STATUS_OK)
        prediction_destroy(p);
    if (fits)
        add_plan(t, name, plan, plan, share);
    else
        plan_destroy(plan);
    return st;
}

/* The recommended plan is the first: all others are compared with it. */
static enum status list_plans(struct chooser *c, struct contest *t)
{
    const struct candidate *best = &t->set->list[t->set->best];
    add_plan(t, best->name, best->plan, NULL, share_of(best->needed_bytes, best->limit_bytes));
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++) {
        int workers = strcmp(s->name, "serial") == 0 ? 1 : c->n_workers;
        bool again = strcmp(s->name, best->name) == 0;
        if (t->n < TRIAL_MAX_PLANS && !again && (workers == c->n_workers || c->n_workers > 1))
            TRY(add_named(c, t, s->name, workers));
    }
    return STATUS_OK;
}

/* ---- one network ---- */

static bool is_named(const struct contest *t, int i)
{
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
        if (strcmp(s->name, t->plans[i].name) == 0)
            return true;
    return false;
}

/* The recommended plan may be one of the named strategies itself. */
static void judge(struct contest *t)
{
    t->best = -1;
    t->regret = NAN;
    for (int i = 0; i < t->n; i++)
        if (t->plans[i].step_s > 0 && !t->plans[i].aside && is_named(t, i) &&
            (t->best < 0 || t->plans[i].step_s < t->plans[t->best].step_s))
            t->best = i;
    if (t->best >= 0 && t->plans[0].step_s > 0)
        t->regret = t->plans[0].step_s / t->plans[t->best].step_s - 1;
}

/* So many of those from `first` on as fit into memory beside the recommended plan; at least one. */
static int count_together(const struct contest *t, int first)
{
    double share = t->memory_share[0];
    int last = first;
    do
        share += t->memory_share[last++];
    while (last < t->n && share + t->memory_share[last] <= MOST_MEMORY);
    return last - first;
}

/* In groups that fit into memory, the recommended plan in each: all are compared with it. */
static enum status train_groups(const struct trial_request *request, struct contest *t)
{
    struct trial_plan together[TRIAL_MAX_PLANS];
    for (int first = 1, n; first < t->n; first += n) {
        struct trial_request part = *request;
        n = count_together(t, first);
        part.limit_s *= (double)n / (t->n - 1);
        together[0] = t->plans[0];
        for (int i = 0; i < n; i++)
            together[1 + i] = t->plans[first + i];
        TRY(trial_run(&part, together, n + 1));
        double host_speed = first > 1 ? t->plans[0].step_s / together[0].step_s : 1;
        if (first == 1)
            t->plans[0] = together[0];
        for (int i = 0; i < n; i++) {
            t->plans[first + i] = together[1 + i];
            t->plans[first + i].step_s *= host_speed;
        }
    }
    return STATUS_OK;
}

static enum status train_all(const struct bench_recommend *o, struct chooser *c, struct contest *t)
{
    struct trial_request request = {.forecast = &c->forecast_options,
                                    .graph = c->forecast->graph,
                                    .limit_s = o->seconds,
                                    .quiet = o->chooser.quiet};
    if (t->set->best < 0)
        return status_fail(STATUS_NO_FIT, "%s: no plan fits", t->model);
    TRY(list_plans(c, t));
    for (int i = 1; i < t->n; i++)
        t->plans[i].aside = t->stale[i] && !o->chooser.allow_stale;
    TRY(train_groups(&request, t));
    if (stop_requested())
        return status_fail(STATUS_STOPPED, "stopped while training");
    judge(t);
    return STATUS_OK;
}

/* ---- results ---- */

static double predicted_s(const struct contest *t, int i)
{
    for (int k = 0; k < t->set->n; k++)
        if (strcmp(t->set->list[k].name, t->plans[i].name) == 0)
            return t->set->list[k].step_s;
    return NAN;
}

static void report(const struct contest *t, const char *data, struct results *r)
{
    static const struct field fields[] = {{"  plan", NULL, NULL, 0, 16},
                                          HIDDEN("plan"),
                                          {"workers", "workers", ">", 0, 0},
                                          {"measured", "measured_s", "seconds", 0, 0},
                                          {"+-", "noise", "%.1f %%", 100, 0},
                                          {"rounds", "rounds", ">", 0, 0},
                                          {"predicted", "predicted_s", "seconds", 0, 0},
                                          HIDDEN("stale"),
                                          {0}};
    const char *best = t->best >= 0 ? t->plans[t->best].name : NULL;
    bool right = isfinite(t->regret) && t->regret <= RIGHT;
    results_put(r, "model", v_text(t->model));
    results_put(r, "recommended", v_text(t->plans[0].name));
    results_say(r, 0, "%s on %s: found in %.1f s", t->model, data, t->set->search_s);
    results_say(r, 0, "%s", "");
    results_table(r, "plans", fields, FOR_PEOPLE | FOR_JSON);
    for (int i = 0; i < t->n; i++) {
        const struct trial_plan *p = &t->plans[i];
        char name[128];
        (void)snprintf(name, sizeof name, "%s%.100s%s", i == 0 ? "* " : "  ", p->name,
                       t->stale[i] ? " (stale)" : "");
        RESULTS_ROW(r, v_text(name), v_text(p->name), v_int(p->plan->n_workers), v_real(p->step_s),
                    /* of few rounds little is known */
                    v_real(p->n_rounds >= TRIAL_LEAST_ROUNDS ? p->noise : NAN), v_int(p->n_rounds),
                    v_real(predicted_s(t, i)), v_flag(t->stale[i]));
    }
    results_table_end(r);
    results_put(r, "fastest_named", v_text(best));
    results_put(r, "regret", v_real(t->regret));
    results_put(r, "right", v_flag(right));
    results_put(r, "search_s", v_real(t->set->search_s));
    results_put(r, "rounds", v_int(t->plans[0].n_rounds));
    results_event(r, "model");
    if (!isfinite(t->regret))
        return;
    results_say(r, 0, "%s", "");
    results_say(r, 2, "recommended: %s, %+.1f %% (+- %.1f) of %s, the fastest named one: %s",
                t->plans[0].name, 100 * t->regret, 100 * t->plans[t->best].noise, best,
                right ? "right" : "wrong");
    results_say(r, 0, "%s", "");
}

static enum status try_network(const struct bench_recommend *o, const char *model,
                               struct results *r, double *regret)
{
    struct chooser_options options = o->chooser;
    struct contest t = {.model = model};
    struct candidate_set *set = NULL;
    struct chooser c;
    enum status st;
    struct graph *graph;
    TRY(forecast_build_graph(&options.forecast, model, &graph));
    TRY_GOTO(st, chooser_open(&c, &options), out);
    TRY_GOTO(st, chooser_find(&c, c.n_workers, &set), out);
    t.set = set;
    TRY_GOTO(st, train_all(o, &c, &t), out);
    report(&t, options.forecast.data, r);
    *regret = t.regret;
out:
    for (int i = 0; i < t.n; i++)
        plan_destroy(t.own[i]);
    candidates_destroy(set);
    chooser_close(&c);
    graph_destroy(graph);
    return st;
}

enum status bench_recommend(const struct bench_recommend *o, struct results *r)
{
    const char *list = o->models;
    char model[64];
    int n = 0, n_right = 0, n_faster = 0;
    TRY(stop_install());
    while (text_next_word(&list, model, sizeof model)) {
        double regret = NAN;
        TRY(try_network(o, model, r, &regret));
        n += isfinite(regret);
        n_right += isfinite(regret) && regret <= RIGHT;
        n_faster += isfinite(regret) && regret < 0;
    }
    results_put(r, "models", v_int(n));
    results_put(r, "right", v_int(n_right));
    results_put(r, "faster", v_int(n_faster));
    results_put(r, "rate", v_real(n ? (double)n_right / n : 0));
    results_event(r, "done");
    results_say(r, 2, "right in %d of %d (%.0f %%), faster than every named strategy in %d",
                n_right, n, n ? 100.0 * n_right / n : 0, n_faster);
    return STATUS_OK;
}
