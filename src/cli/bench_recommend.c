/* bench_recommend.c: `cleave bench recommend`: is the recommended plan the fastest? It is trained
 * beside every named strategy, in turns, in one process. */
#include "base/text.h"
#include "base/timer.h"
#include "cli/bench_accuracy.h"
#include "cli/chooser.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/subject.h"
#include "runtime/stop.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_MODELS = 32, MAX_CASES = 32, PATH_BYTES = 256 };

/* What is as fast within this is as good. */
static const double RIGHT = 0.02;

struct recommend_options {
    struct accuracy_options accuracy;
    struct chooser_options chooser;
    int64_t workers;
    const char *models;
    bool allow_stale, json;
};

/* One network. */
struct trial {
    struct accuracy_subject subject;
    struct accuracy_case cases[MAX_CASES];
    char name[CANDIDATE_NAME_BYTES]; /* of the recommended plan */
    int recommended;                 /* among the cases */
    double predicted_s, search_s;
    int best;      /* measured, of the named ones */
    double regret; /* recommended over best, less 1 */
};

static enum status parse(int argc, char **argv, struct recommend_options *o, bool *help)
{
    *o =
        (struct recommend_options){.accuracy = {.forecast = {.machine = "local", .no_eval = true}}};
    struct forecast_options *f = &o->accuracy.forecast;
    const struct option options[] = {
        OPTION_TEXT("--models", "MODEL,...", &o->models,
                    "alexnet,vgg11,resnet18,mobilenetv2,googlenet,inceptionv3", "networks"),
        OPTION_TEXT("--data", "SPEC", &f->data, "synthetic:imagenet", "the data to train on"),
        OPTION_INTEGER("--batch", "N", &f->batch, 1, SUBJECT_LARGEST_BATCH, "32",
                       "images in a step"),
        OPTION_INTEGER("--workers", "N", &o->workers, 1, PLAN_MAX_WORKERS, NULL,
                       "of each strategy; the recommended plan has at most so many [all cores]"),
        OPTION_INTEGER("--threads", "N", &f->threads, 1, 4096, NULL,
                       "of each worker [all cores, shared out]"),
        OPTION_INTEGER("--steps", "N", &o->accuracy.steps, 1, 100000, NULL,
                       "of each turn that count [about 2 s, 6 to 60]"),
        OPTION_INTEGER("--rounds", "N", &o->accuracy.rounds, 1, ACCURACY_MAX_ROUNDS, "3",
                       "turns of training that each plan gets"),
        OPTION_REAL("--limit", "SECONDS", &o->chooser.limit_s, 0, 1e9, "120", "of each search"),
        OPTION_FLAG("--allow-stale", &o->allow_stale,
                    "plans that train with older weights take part (pipedream)"),
        OPTION_TEXT("--backend", "BACKEND", &f->backend, NULL,
                    "what computes: cpu or reference [the best of this build]"),
        OPTION_TEXT("--profile", "FILE", &f->profile, NULL,
                    "where measured costs are kept [$CLEAVE_PROFILE or "
                    "~/.cache/cleave/profile.db]"),
        OPTION_FLAG("--json", &o->json, "print JSON lines: events model and done"),
        OPTION_FLAG("--quiet", &o->accuracy.quiet, "no progress"),
        OPTION_END,
    };
    const struct positional positionals[] = {{0}};
    const struct option_set set = {
        .command = "bench recommend",
        .about = "Plans for this host, then trains the recommended plan beside every named\n"
                 "strategy, in turns. A recommendation is right if it is at most 2 % slower than\n"
                 "the fastest of them.",
        .positionals = positionals,
        .options = options,
        .notes = subject_data_notes,
        .examples = "  cleave bench recommend --models alexnet,resnet18 --batch 16 --workers 2\n",
    };
    return options_parse(&set, argc, argv, help);
}

/* ---- the cases ---- */

static void add_case(struct trial *t, const char *plan, int workers)
{
    t->cases[t->subject.n_cases++] = (struct accuracy_case){.plan = plan, .workers = workers};
}

/* Those of as many workers stand together. */
static void list_named(struct trial *t, int workers, bool allow_stale)
{
    add_case(t, "serial", 1);
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
        if (strcmp(s->name, "serial") != 0 && (allow_stale || strcmp(s->name, "pipedream") != 0) &&
            workers > 1 && t->subject.n_cases < MAX_CASES - 1)
            add_case(t, s->name, workers);
}

/* A recommendation that is a named strategy is that case; any other is one more, by its file. */
static enum status add_recommended(struct chooser *c, const struct candidate *best, struct trial *t,
                                   const char *path)
{
    (void)snprintf(t->name, sizeof t->name, "%s", best->name);
    t->predicted_s = best->step_s;
    for (int i = 0; i < t->subject.n_cases; i++)
        if (strcmp(t->cases[i].plan, best->name) == 0) {
            t->recommended = i;
            return STATUS_OK;
        }
    t->recommended = t->subject.n_cases;
    add_case(t, path, best->plan->n_workers);
    return plan_write(best->plan, c->forecast->graph, path);
}

static enum status recommend(const struct recommend_options *o, struct trial *t, int *workers,
                             const char *path)
{
    struct chooser_options options = o->chooser;
    struct chooser c;
    struct candidate_set *set = NULL;
    enum status st;
    options.forecast = o->accuracy.forecast;
    options.forecast.model = t->subject.model;
    options.workers = (int)o->workers;
    options.allow_stale = o->allow_stale;
    options.fewer = true;
    options.quiet = o->accuracy.quiet;
    TRY_GOTO(st, chooser_open(&c, &options), out);
    *workers = c.n_workers;
    TRY_GOTO(st, chooser_find(&c, c.n_workers, &set), out);
    if (set->best < 0) {
        st = status_fail(STATUS_NO_FIT, "%s: no plan fits", t->subject.model);
        goto out;
    }
    t->search_s = set->search_s;
    list_named(t, c.n_workers, o->allow_stale);
    TRY_GOTO(st, add_recommended(&c, &set->list[set->best], t, path), out);
out:
    candidates_destroy(set);
    chooser_close(&c);
    return st;
}

/* ---- one network ---- */

static void judge(struct trial *t)
{
    t->best = -1;
    for (int i = 0; i < t->subject.n_cases; i++) {
        const struct accuracy_case *c = &t->cases[i];
        bool own = i == t->recommended && strcmp(c->plan, t->name) != 0;
        if (!c->skipped && !own &&
            (t->best < 0 || accuracy_measured_s(c) < accuracy_measured_s(&t->cases[t->best])))
            t->best = i;
    }
    t->regret = NAN;
    if (t->best >= 0 && !t->cases[t->recommended].skipped)
        t->regret = accuracy_measured_s(&t->cases[t->recommended]) /
                        accuracy_measured_s(&t->cases[t->best]) -
                    1;
}

static enum status try_model(const struct recommend_options *o, struct accuracy_study *s,
                             struct trial *t, const char *path)
{
    int workers;
    t->subject.data = o->accuracy.forecast.data;
    t->subject.cases = t->cases;
    t->subject.weight = 1;
    TRY(recommend(o, t, &workers, path));
    TRY(accuracy_measure(s, &t->subject));
    judge(t);
    return STATUS_OK;
}

/* ---- what is printed ---- */

static const char *case_name(const struct trial *t, int i)
{
    return i == t->recommended ? t->name : t->cases[i].plan;
}

static enum status print_trial(const struct trial *t)
{
    static const struct table_column columns[] = {{"plan", TABLE_LEFT, 16},
                                                  {"workers", TABLE_RIGHT, 0},
                                                  {"measured", TABLE_RIGHT, 0},
                                                  {"predicted", TABLE_RIGHT, 0},
                                                  {"noise", TABLE_RIGHT, 0}};
    table *t_out;
    char text[32];
    printf("%s on %s\n\n", t->subject.model, t->subject.data);
    TRY(table_create(columns, 5, &t_out));
    for (int i = 0; i < t->subject.n_cases; i++) {
        const struct accuracy_case *c = &t->cases[i];
        table_cell(t_out, "%s%s", i == t->recommended ? "* " : "  ", case_name(t, i));
        table_cell(t_out, "%d", c->workers);
        table_cell(t_out, "%s",
                   c->skipped ? "-" : text_seconds(text, sizeof text, accuracy_measured_s(c)));
        table_cell(t_out, "%s", c->skipped ? "-" : text_seconds(text, sizeof text, c->predicted_s));
        if (c->skipped)
            table_cell(t_out, "-");
        else
            table_cell(t_out, "%.1f %%", 100 * accuracy_noise(c));
    }
    TRY(table_finish(t_out, stdout));
    if (isfinite(t->regret))
        printf("\nrecommended: %s, %+.1f %% of %s, the fastest named one: %s\n\n", t->name,
               100 * t->regret, case_name(t, t->best), t->regret <= RIGHT ? "right" : "wrong");
    return STATUS_OK;
}

static json_t *cases_json(const struct trial *t)
{
    json_t *list = json_array();
    for (int i = 0; i < t->subject.n_cases; i++) {
        const struct accuracy_case *c = &t->cases[i];
        json_t *measured = c->skipped ? json_null() : json_real(accuracy_measured_s(c));
        (void)json_array_append_new(list, json_pack("{s:s, s:i, s:o, s:f, s:s?}", "plan",
                                                    case_name(t, i), "workers", c->workers,
                                                    "measured_s", measured, "predicted_s",
                                                    c->predicted_s, "skipped", c->skipped));
    }
    return list;
}

static enum status print_json(const struct trial *t)
{
    return output_json(
        json_pack("{s:s, s:s, s:s, s:o, s:s?, s:o, s:b, s:f}", "event", "model", "model",
                  t->subject.model, "recommended", t->name, "cases", cases_json(t), "fastest_named",
                  t->best >= 0 ? case_name(t, t->best) : NULL, "regret", output_number(t->regret),
                  "right", isfinite(t->regret) && t->regret <= RIGHT, "search_s", t->search_s));
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

static enum status try_all(const struct recommend_options *o, arena *memory, const char *path)
{
    struct accuracy_study s = {
        .options = &o->accuracy, .memory = memory, .n_subjects = 1, .began_ns = timer_now_ns()};
    int n = 0, n_right = 0, n_faster = 0;
    for (const char *at = o->models;; at++) {
        struct trial *t;
        size_t length = strcspn(at, ",");
        TRY(arena_alloc(memory, sizeof *t, &t));
        TRY(arena_print(memory, &t->subject.model, "%.*s", (int)length, at));
        TRY(try_model(o, &s, t, path));
        TRY(o->json ? print_json(t) : print_trial(t));
        n += isfinite(t->regret);
        n_right += isfinite(t->regret) && t->regret <= RIGHT;
        n_faster += isfinite(t->regret) && t->regret < 0;
        at += length;
        if (!*at)
            return print_end(o, n_right, n_faster, n);
    }
}

static enum status with_memory(const struct recommend_options *o, const char *path)
{
    arena *memory;
    TRY(arena_create(&memory));
    enum status st = try_all(o, memory, path);
    arena_destroy(memory);
    return st;
}

enum status command_bench_recommend(int argc, char **argv)
{
    struct recommend_options o;
    bool help;
    char folder[] = "/tmp/cleave-plan-XXXXXX", path[PATH_BYTES];
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    TRY(stop_install());
    if (!mkdtemp(folder))
        return status_fail(STATUS_FAILED, "%s: cannot make it: %s", folder, strerror(errno));
    (void)snprintf(path, sizeof path, "%s/recommended.json", folder);
    enum status st = with_memory(&o, path);
    (void)unlink(path);
    (void)rmdir(folder);
    return st;
}
