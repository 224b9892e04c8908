/* bench_accuracy.c: `cleave bench accuracy`: which networks, plans and workers are compared. */
#include "cli/bench_accuracy.h"

#include "backend/backend.h"
#include "base/text.h"
#include "base/timer.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "cli/split.h"
#include "cli/subject.h"
#include "model/network.h"
#include "runtime/plan_choice.h"
#include "runtime/stop.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status parse(int argc, char **argv, struct accuracy_options *o, bool *help)
{
    *o = (struct accuracy_options){
        .forecast = {.machine = "local", .run = forecast_usual_run, .no_eval = true}};
    struct forecast_options *f = &o->forecast;
    const struct option options[] = {
        OPTION_TEXT("--models", "MODEL,...", &o->models,
                    "resnet18,resnet50,resnet152,vgg11,vgg16,mobilenetv2,lenet5", "networks"),
        OPTION_TEXT("--data", "SPEC,...", &o->data, "synthetic:mnist,synthetic:cifar10",
                    "data, with each of the networks"),
        OPTION_TEXT("--plans", "PLAN,...", &o->plans,
                    "serial,data,model,spatial,owt,layers,gpipe,1f1b,pipedream,ps", "plans"),
        OPTION_TEXT("--workers", "N,...", &o->workers, "2", "of each plan; serial has one"),
        OPTION_INTEGER("--batch", "N", &f->batch, 1, SUBJECT_LARGEST_BATCH, "64",
                       "images in a step"),
        OPTION_INTEGER("--threads", "N", &f->threads, 1, BACKEND_MAX_THREADS, "1",
                       "of each worker"),
        RUN_OPTIONS(&f->run),
        OPTION_INTEGER("--steps", "N", &o->steps, 1, 100000, NULL,
                       "of each turn that count [as many as the turn has room for]"),
        OPTION_INTEGER("--rounds", "N", &o->rounds, 1, ACCURACY_MAX_ROUNDS, "3",
                       "turns of predicting and training that each plan gets"),
        OPTION_INTEGER("--most-rounds", "N", &o->most_rounds, 1, ACCURACY_MAX_ROUNDS, NULL,
                       "turns of a plan whose error is not yet known to 2 %, its standard error "
                       "[--rounds]"),
        OPTION_TEXT("--backend", "BACKEND", &f->backend, NULL,
                    "what computes: cpu or reference [the best of this build]"),
        OPTION_TEXT("--profile", "FILE", &f->profile, NULL,
                    "where measured costs are kept [$CLEAVE_PROFILE or "
                    "~/.cache/cleave/profile.db]"),
        OPTION_FLAG("--no-measure", &f->no_measure,
                    "measure nothing before training: estimate what is not in the profile"),
        OPTION_FLAG("--fresh", &o->fresh,
                    "use no costs but those that this run measures, each turn anew"),
        OPTION_FLAG("--json", &o->json, "print JSON lines: events case, skipped, order and done"),
        OPTION_FLAG("--quiet", &o->quiet, "print the summary alone, and no progress"),
        OPTION_END,
    };
    const struct positional positionals[] = {{0}};
    static char notes[2048];
    (void)snprintf(notes, sizeof notes, "%s\n%s", subject_data_notes, split_notes);
    const struct option_set set = {
        .command = "bench accuracy",
        .about = "Predicts and trains in turns, and sets the two side by side: time,\n"
                 "memory, bytes moved, and whether the order of the plans was right. Exit code 1:\n"
                 "memory or bytes are not as predicted.",
        .positionals = positionals,
        .options = options,
        .notes = notes,
        .examples = "  cleave bench accuracy --models lenet5,resnet18 --fresh\n"
                    "  cleave bench accuracy --models alexnet,googlenet \\\n"
                    "      --data synthetic:3x64x64/10 --plans serial,data,owt --workers 2,4\n",
    };
    TRY(options_parse(&set, argc, argv, help));
    if (o->fresh && f->profile)
        return status_fail(STATUS_USAGE, "--fresh and --profile do not go together");
    if (o->most_rounds && o->most_rounds < o->rounds)
        return status_fail(STATUS_USAGE, "--most-rounds %lld is less than --rounds %lld",
                           (long long)o->most_rounds, (long long)o->rounds);
    f->quiet = o->quiet;
    return STATUS_OK;
}

/* ---- lists ---- */

struct list {
    int n;
    const char **words;
};

static enum status split_list(const char *option, const char *text, arena *memory, struct list *out)
{
    size_t most = 1;
    for (const char *c = text; *c; c++)
        most += *c == ',';
    *out = (struct list){0};
    TRY(arena_alloc_array(memory, most, sizeof *out->words, &out->words));
    for (;; text++) {
        size_t length = strcspn(text, ",");
        if (length == 0)
            return status_fail(STATUS_USAGE, "%s: there is an empty place in the list", option);
        TRY(arena_print(memory, &out->words[out->n++], "%.*s", (int)length, text));
        text += length;
        if (!*text)
            return STATUS_OK;
    }
}

static enum status parse_workers(const struct list *words, arena *memory, int **out)
{
    TRY(arena_alloc_array(memory, (size_t)words->n, sizeof **out, out));
    for (int i = 0; i < words->n; i++) {
        int64_t value;
        TRY(text_parse_integer("--workers", words->words[i], 1, PLAN_MAX_WORKERS, &value));
        (*out)[i] = (int)value;
    }
    return STATUS_OK;
}

static enum status check_plan(const char *name)
{
    enum { MAX_NAMES = 64 };
    const char *names[MAX_NAMES + 1];
    int n = 0;
    if (plan_is_file(name))
        return STATUS_OK;
    for (const struct plan_strategy *p = plan_strategies(); p->name && n < MAX_NAMES; p++) {
        if (strcmp(p->name, name) == 0)
            return STATUS_OK;
        names[n++] = p->name;
    }
    names[n] = NULL;
    return text_fail_unknown("plan", name, names);
}

/* What is wrong with a name is said now, not after an hour of measuring. */
static enum status check_names(const struct accuracy_options *o, const struct list *models,
                               const struct list *data, const struct list *plans)
{
    const struct network *network;
    struct dataset_info info;
    const struct backend *backend;
    for (int i = 0; i < models->n; i++)
        TRY(network_find(models->words[i], &network));
    for (int i = 0; i < data->n; i++)
        TRY(dataset_describe(data->words[i], &info));
    for (int i = 0; i < plans->n; i++)
        TRY(check_plan(plans->words[i]));
    return o->forecast.backend ? backend_find(o->forecast.backend, &backend) : STATUS_OK;
}

/* ---- the study ---- */

static bool is_serial(const char *plan)
{
    return strcmp(plan, "serial") == 0;
}

static void add_cases(struct accuracy_subject *s, const struct list *plans, int workers,
                      bool serial)
{
    for (int i = 0; i < plans->n; i++)
        if (is_serial(plans->words[i]) == serial)
            s->cases[s->n_cases++] =
                (struct accuracy_case){.plan = plans->words[i], .workers = workers};
}

/* One worker has nothing to choose. */
static enum status make_cases(struct accuracy_subject *s, const struct list *plans,
                              const int *workers, int n_workers, arena *memory)
{
    size_t most = (size_t)plans->n * (size_t)(n_workers + 1);
    TRY(arena_alloc_array(memory, most, sizeof *s->cases, &s->cases));
    add_cases(s, plans, 1, true);
    for (int i = 0; i < n_workers; i++)
        if (workers[i] > 1)
            add_cases(s, plans, workers[i], false);
    if (s->n_cases == 0)
        return status_fail(STATUS_USAGE, "there is nothing to compare: for one worker there is "
                                         "only the plan 'serial'");
    return STATUS_OK;
}

static double count_flops(const struct graph *g)
{
    double sum = 0;
    for (int i = 1; i < g->n_nodes; i++) {
        struct op_cost cost;
        op_get_cost(&g->nodes[i].op, &cost);
        sum += cost.forward_flops;
    }
    return sum;
}

/* Larger networks take longer. One that cannot be built for the data is skipped later on. */
static double weigh(const struct accuracy_subject *s)
{
    struct dataset_info info;
    struct graph *graph;
    if (subject_build(s->model, s->data, 1, -1, &info, &graph) != STATUS_OK) {
        status_clear();
        return 0;
    }
    double flops = count_flops(graph);
    graph_destroy(graph);
    return flops;
}

static void share_weights(struct accuracy_study *s)
{
    double all = 0;
    for (int i = 0; i < s->n_subjects; i++)
        all += s->subjects[i].weight = weigh(&s->subjects[i]);
    for (int i = 0; i < s->n_subjects && all > 0; i++)
        s->subjects[i].weight /= all;
}

static enum status make_study(struct accuracy_study *s)
{
    const struct accuracy_options *o = s->options;
    struct list models, data, plans, words;
    int *workers;
    TRY(split_list("--models", o->models, s->memory, &models));
    TRY(split_list("--data", o->data, s->memory, &data));
    TRY(split_list("--plans", o->plans, s->memory, &plans));
    TRY(split_list("--workers", o->workers, s->memory, &words));
    TRY(parse_workers(&words, s->memory, &workers));
    TRY(check_names(o, &models, &data, &plans));
    size_t n = (size_t)models.n * (size_t)data.n;
    TRY(arena_alloc_array(s->memory, n, sizeof *s->subjects, &s->subjects));
    for (int i = 0; i < models.n; i++)
        for (int k = 0; k < data.n; k++) {
            struct accuracy_subject *subject = &s->subjects[s->n_subjects++];
            *subject = (struct accuracy_subject){.model = models.words[i], .data = data.words[k]};
            TRY(make_cases(subject, &plans, workers, words.n, s->memory));
        }
    share_weights(s);
    return STATUS_OK;
}

static enum status run_study(struct accuracy_study *s)
{
    TRY(make_study(s));
    TRY(stop_install());
    s->began_ns = timer_now_ns();
    for (int i = 0; i < s->n_subjects; i++) {
        TRY(accuracy_measure(s, &s->subjects[i]));
        TRY(accuracy_report_subject(s, &s->subjects[i]));
        s->weight_done += s->subjects[i].weight;
    }
    return accuracy_report_end(s);
}

/* ---- a profile for this run alone ---- */

static enum status make_folder(char folder[PATH_MAX])
{
    const char *where = getenv("TMPDIR");
    int length =
        snprintf(folder, PATH_MAX, "%s/cleave-accuracy.XXXXXX", where && *where ? where : "/tmp");
    if (length < 0 || length >= PATH_MAX - 32)
        return status_fail(STATUS_FAILED, "TMPDIR: the path is too long");
    if (!mkdtemp(folder))
        return status_fail(STATUS_FAILED, "%s: cannot make a folder: %s", folder, strerror(errno));
    return STATUS_OK;
}

void accuracy_clear_profile(const char *path)
{
    static const char *const ends[] = {"", "-journal", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char name[PATH_MAX];
        (void)snprintf(name, sizeof name, "%.*s%s", PATH_MAX - 16, path, ends[i]);
        (void)unlink(name);
    }
}

static enum status run_fresh(struct accuracy_study *s, struct accuracy_options *o)
{
    char folder[PATH_MAX], path[PATH_MAX];
    TRY(make_folder(folder));
    (void)snprintf(path, sizeof path, "%.*s/profile.db", PATH_MAX - 32, folder);
    o->forecast.profile = path;
    enum status st = run_study(s);
    o->forecast.profile = NULL;
    accuracy_clear_profile(path);
    (void)rmdir(folder);
    return st;
}

enum status command_bench_accuracy(int argc, char **argv)
{
    struct accuracy_options o;
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    struct accuracy_study study = {.options = &o};
    TRY(arena_create(&study.memory));
    enum status st = o.fresh ? run_fresh(&study, &o) : run_study(&study);
    arena_destroy(study.memory);
    return st;
}
