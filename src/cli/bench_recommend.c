/* bench_recommend.c: `cleave bench recommend`: is the recommended plan the fastest? It is trained
 * beside every named strategy, in turns, in one process. */
#include "backend/backend.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/subject.h"
#include "runtime/stop.h"
#include "search/chooser.h"
#include "search/trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is as fast within this is as good. */
static const double RIGHT = 0.02;
static const double MOST_MEMORY = 0.8;

struct recommend_options {
    struct chooser_options chooser;
    const char *models;
    int64_t workers;
    double seconds;
    bool json;
};

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

static enum status parse(int argc, char **argv, struct recommend_options *o, bool *help)
{
    struct chooser_options *c = &o->chooser;
    *o = (struct recommend_options){
        .chooser = {.forecast = {.machine = "local", .run = forecast_usual_run, .no_eval = true},
                    .fewer = true}};
    struct forecast_options *f = &c->forecast;
    const struct option options[] = {
        OPTION_TEXT("--models", "MODEL,...", &o->models,
                    "alexnet,vgg11,resnet18,mobilenetv2,googlenet,inceptionv3", "networks"),
        OPTION_TEXT("--data", "SPEC", &f->data, "synthetic:imagenet", "the data to train on"),
        OPTION_INTEGER("--batch", "N", &f->batch, 1, SUBJECT_LARGEST_BATCH, "32",
                       "images in a step"),
        OPTION_INTEGER("--workers", "N", &o->workers, 1, PLAN_MAX_WORKERS, NULL,
                       "of each strategy; the recommended plan has at most so many [all cores]"),
        OPTION_INTEGER("--threads", "N", &f->threads, 1, BACKEND_MAX_THREADS, NULL,
                       "of each worker [all cores, shared out]"),
        OPTION_REAL("--seconds", "S", &o->seconds, 0, 1e9, "60",
                    "of training a network, all plans in turns; at least three rounds"),
        OPTION_REAL("--limit", "SECONDS", &c->limit_s, 0, 1e9, "120", "of each search"),
        OPTION_REAL("--try", "SECONDS", &c->try_s, 0, 1e9, "10",
                    "of the search's own trial of the best few; 0: the clock alone decides"),
        OPTION_FLAG("--allow-stale", &c->allow_stale,
                    "plans that train with older weights take part (pipedream)"),
        OPTION_TEXT("--backend", "BACKEND", &f->backend, NULL,
                    "what computes: cpu or reference [the best of this build]"),
        OPTION_TEXT("--profile", "FILE", &f->profile, NULL,
                    "where measured costs are kept [$CLEAVE_PROFILE or "
                    "~/.cache/cleave/profile.db]"),
        OPTION_FLAG("--json", &o->json, "print JSON lines: events model and done"),
        OPTION_FLAG("--quiet", &c->quiet, "no progress"),
        OPTION_END,
    };
    const struct positional positionals[] = {{0}};
    const struct option_set set = {
        .command = "bench recommend",
        .about =
            "Plans for this host, then trains the recommended plan beside every named\n"
            "strategy, in turns; who is clearly behind has no further ones. A recommendation is\n"
            "right if it is at most 2 % slower than the fastest of them.",
        .positionals = positionals,
        .options = options,
        .notes = subject_data_notes,
        .examples = "  cleave bench recommend --models alexnet,resnet18 --batch 16 --workers 2\n",
    };
    TRY(options_parse(&set, argc, argv, help));
    c->workers = (int)o->workers;
    f->quiet = c->quiet;
    return STATUS_OK;
}

/* ---- the plans ---- */

static const struct candidate *find_candidate(const struct contest *t, const char *name)
{
    for (int i = 0; i < t->set->n; i++)
        if (strcmp(t->set->list[i].name, name) == 0)
            return &t->set->list[i];
    return NULL;
}

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

/* What cannot be cut so, or does not fit, is no rival. */
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
        double weather = first > 1 ? t->plans[0].step_s / together[0].step_s : 1;
        if (first == 1)
            t->plans[0] = together[0];
        for (int i = 0; i < n; i++) {
            t->plans[first + i] = together[1 + i];
            t->plans[first + i].step_s *= weather;
        }
    }
    return STATUS_OK;
}

static enum status train_all(const struct recommend_options *o, struct chooser *c,
                             struct contest *t)
{
    const struct forecast_options *f = &c->forecast_options;
    struct trial_request request = {.model = t->model,
                                    .data = f->data,
                                    .backend = f->backend,
                                    .graph = c->forecast->graph,
                                    .batch = f->batch,
                                    .threads = (int)f->threads,
                                    .run = f->run,
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

/* ---- what is printed ---- */

/* Of few rounds little is known. */
static double noise_of(const struct trial_plan *p)
{
    return p->n_rounds >= TRIAL_LEAST_ROUNDS ? p->noise : NAN;
}

static double predicted_s(const struct contest *t, int i)
{
    const struct candidate *c = find_candidate(t, t->plans[i].name);
    return c ? c->step_s : NAN;
}

static void add_row(table *out, const struct contest *t, int i)
{
    const struct trial_plan *p = &t->plans[i];
    double predicted = predicted_s(t, i);
    char text[32];
    table_cell(out, "%s%s%s", i == 0 ? "* " : "  ", p->name, t->stale[i] ? " (stale)" : "");
    table_cell(out, "%d", p->plan->n_workers);
    table_cell(out, "%s", text_seconds(text, sizeof text, p->step_s));
    if (isfinite(noise_of(p)))
        table_cell(out, "%.1f %%", 100 * p->noise);
    else
        table_cell(out, "%s", "");
    table_cell(out, "%d", p->n_rounds);
    table_cell(out, "%s", isfinite(predicted) ? text_seconds(text, sizeof text, predicted) : "");
}

static enum status print_contest(const struct contest *t, const char *data)
{
    static const struct table_column columns[] = {
        {"  plan", TABLE_LEFT, 16}, {"workers", TABLE_RIGHT, 0}, {"measured", TABLE_RIGHT, 0},
        {"+-", TABLE_RIGHT, 0},     {"rounds", TABLE_RIGHT, 0},  {"predicted", TABLE_RIGHT, 0}};
    table *out;
    printf("%s on %s: found in %.1f s\n\n", t->model, data, t->set->search_s);
    TRY(table_create(columns, 6, &out));
    for (int i = 0; i < t->n; i++)
        add_row(out, t, i);
    TRY(table_finish(out, stdout));
    if (isfinite(t->regret))
        printf("\nrecommended: %s, %+.1f %% (+- %.1f) of %s, the fastest named one: %s\n\n",
               t->plans[0].name, 100 * t->regret, 100 * t->plans[t->best].noise,
               t->plans[t->best].name, t->regret <= RIGHT ? "right" : "wrong");
    return STATUS_OK;
}

static json_t *plans_json(const struct contest *t)
{
    json_t *list = json_array();
    for (int i = 0; i < t->n; i++)
        (void)json_array_append_new(
            list,
            json_pack("{s:s, s:i, s:f, s:o, s:i, s:o, s:b}", "plan", t->plans[i].name, "workers",
                      t->plans[i].plan->n_workers, "measured_s", t->plans[i].step_s, "noise",
                      output_number(noise_of(&t->plans[i])), "rounds", t->plans[i].n_rounds,
                      "predicted_s", output_number(predicted_s(t, i)), "stale", t->stale[i]));
    return list;
}

static enum status print_json(const struct contest *t)
{
    return output_json(
        json_pack("{s:s, s:s, s:s, s:o, s:s?, s:o, s:b, s:f, s:i}", "event", "model", "model",
                  t->model, "recommended", t->plans[0].name, "plans", plans_json(t),
                  "fastest_named", t->best >= 0 ? t->plans[t->best].name : NULL, "regret",
                  output_number(t->regret), "right", isfinite(t->regret) && t->regret <= RIGHT,
                  "search_s", t->set->search_s, "rounds", t->plans[0].n_rounds));
}

static enum status print_end(const struct recommend_options *o, int n_right, int n_faster, int n)
{
    if (o->json)
        return output_json(json_pack("{s:s, s:i, s:i, s:i, s:f}", "event", "done", "models", n,
                                     "right", n_right, "faster", n_faster, "rate",
                                     n ? (double)n_right / n : 0));
    printf("right in %d of %d (%.0f %%), faster than every named strategy in %d\n", n_right, n,
           n ? 100.0 * n_right / n : 0, n_faster);
    return STATUS_OK;
}

/* ---- the command ---- */

static enum status hold_contest(const struct recommend_options *o, const char *model,
                                double *regret)
{
    struct chooser_options options = o->chooser;
    struct contest t = {.model = model};
    struct candidate_set *set = NULL;
    struct chooser c;
    enum status st;
    options.forecast.model = model;
    TRY_GOTO(st, chooser_open(&c, &options), out);
    TRY_GOTO(st, chooser_find(&c, c.n_workers, &set), out);
    t.set = set;
    TRY_GOTO(st, train_all(o, &c, &t), out);
    TRY_GOTO(st, o->json ? print_json(&t) : print_contest(&t, options.forecast.data), out);
    *regret = t.regret;
out:
    for (int i = 0; i < t.n; i++)
        plan_destroy(t.own[i]);
    candidates_destroy(set);
    chooser_close(&c);
    return st;
}

enum status command_bench_recommend(int argc, char **argv)
{
    struct recommend_options o;
    bool help;
    int n = 0, n_right = 0, n_faster = 0;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    TRY(stop_install());
    for (const char *at = o.models;; at++) {
        char model[64];
        size_t length = strcspn(at, ",");
        double regret = NAN;
        (void)snprintf(model, sizeof model, "%.*s", (int)length, at);
        TRY(hold_contest(&o, model, &regret));
        n += isfinite(regret);
        n_right += isfinite(regret) && regret <= RIGHT;
        n_faster += isfinite(regret) && regret < 0;
        at += length;
        if (!*at)
            return print_end(&o, n_right, n_faster, n);
    }
}
