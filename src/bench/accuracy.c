/* accuracy.c: which networks, plans and workers are compared. */
#include "bench/accuracy.h"

#include "base/array.h"
#include "base/text.h"
#include "base/timer.h"
#include "model/network.h"
#include "runtime/plan_choice.h"
#include "runtime/stop.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lists ---- */

struct list {
    int n;
    const char **words;
};

static enum status split_list(const char *option, const char *text, arena *memory, struct list *out)
{
    char word[512];
    int room = 0;
    for (*out = (struct list){0}; text_next_word(&text, word, sizeof word);) {
        if (!*word)
            return status_fail(STATUS_USAGE, "%s: there is an empty place in the list", option);
        TRY(array_reserve(memory, &out->words, out->n + 1, &room, sizeof *out->words));
        TRY(arena_copy_text(memory, word, &out->words[out->n++]));
    }
    return STATUS_OK;
}

/* A mistake in a name is reported now, not after an hour of measuring. */
static enum status check_names(const struct bench_accuracy *o, const struct list *models,
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
        if (!plan_is_file(plans->words[i]))
            TRY(bench_check_strategy(plans->words[i]));
    return o->forecast.backend ? backend_find(o->forecast.backend, &backend) : STATUS_OK;
}

/* ---- the study ---- */

static void add_cases(struct accuracy_task *s, const struct list *plans, int workers, bool serial)
{
    for (int i = 0; i < plans->n; i++)
        if ((strcmp(plans->words[i], "serial") == 0) == serial)
            s->cases[s->n_cases++] =
                (struct accuracy_case){.plan = plans->words[i], .workers = workers};
}

/* One worker has nothing to choose. */
static enum status make_cases(struct accuracy_task *s, const struct list *plans,
                              const int64_t *workers, int n_workers, arena *memory)
{
    size_t most = (size_t)plans->n * (size_t)(n_workers + 1);
    TRY(arena_alloc_array(memory, most, sizeof *s->cases, &s->cases));
    add_cases(s, plans, 1, true);
    for (int i = 0; i < n_workers; i++)
        if (workers[i] > 1)
            add_cases(s, plans, (int)workers[i], false);
    if (s->n_cases == 0)
        return status_fail(STATUS_USAGE, "there is nothing to compare: for one worker there is "
                                         "only the plan 'serial'");
    return STATUS_OK;
}

/* Larger networks take longer. */
static double count_flops(const struct graph *graph)
{
    double flops = 0;
    for (int i = 1; i < graph->n_nodes; i++) {
        struct op_cost cost;
        op_get_cost(&graph->nodes[i].op, &cost);
        flops += cost.forward_flops;
    }
    return flops;
}

/* The cases of a network that does not suit the data are skipped. */
static enum status build_graph(struct accuracy_study *s, struct accuracy_task *task)
{
    struct forecast_options o = s->options->forecast;
    o.data = task->data;
    enum status st = forecast_build_graph(&o, task->model, &task->graph);
    if (st != STATUS_OK)
        return accuracy_skip(s, task->cases, task->n_cases, st);
    task->weight = count_flops(task->graph);
    return STATUS_OK;
}

static enum status make_study(struct accuracy_study *s)
{
    const struct bench_accuracy *o = s->options;
    struct list models, data, plans;
    int64_t workers[BENCH_MAX_COUNTS];
    int n_workers;
    double all = 0;
    TRY(split_list("--models", o->models, s->memory, &models));
    TRY(split_list("--data", o->data, s->memory, &data));
    TRY(split_list("--plans", o->plans, s->memory, &plans));
    TRY(text_parse_integers("--workers", o->workers, 1, PLAN_MAX_WORKERS, BENCH_MAX_COUNTS, workers,
                            &n_workers));
    TRY(check_names(o, &models, &data, &plans));
    size_t n = (size_t)models.n * (size_t)data.n;
    TRY(arena_alloc_array(s->memory, n, sizeof *s->tasks, &s->tasks));
    for (int i = 0; i < models.n; i++)
        for (int k = 0; k < data.n; k++) {
            struct accuracy_task *task = &s->tasks[s->n_tasks++];
            *task = (struct accuracy_task){.model = models.words[i], .data = data.words[k]};
            TRY(make_cases(task, &plans, workers, n_workers, s->memory));
            TRY(build_graph(s, task));
            all += task->weight;
        }
    for (int i = 0; i < s->n_tasks && all > 0; i++)
        s->tasks[i].weight /= all;
    return STATUS_OK;
}

static enum status run_study(struct accuracy_study *s, struct results *r)
{
    TRY(make_study(s));
    TRY(stop_install());
    s->began_ns = timer_now_ns();
    for (int i = 0; i < s->n_tasks; i++) {
        TRY(accuracy_measure(s, &s->tasks[i]));
        accuracy_report_task(s, &s->tasks[i], r);
        s->weight_done += s->tasks[i].weight;
    }
    return accuracy_report_end(s, r);
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

static enum status run_fresh(struct accuracy_study *s, struct bench_accuracy *o, struct results *r)
{
    char folder[PATH_MAX], path[PATH_MAX];
    TRY(make_folder(folder));
    (void)snprintf(path, sizeof path, "%.*s/profile.db", PATH_MAX - 32, folder);
    o->forecast.profile = path;
    enum status st = run_study(s, r);
    o->forecast.profile = NULL;
    accuracy_clear_profile(path);
    (void)rmdir(folder);
    return st;
}

enum status bench_accuracy(struct bench_accuracy *o, struct results *r)
{
    struct accuracy_study study = {.options = o};
    if (o->fresh && o->forecast.profile)
        return status_fail(STATUS_USAGE, "--fresh and --profile do not go together");
    if (o->most_rounds && o->most_rounds < o->rounds)
        return status_fail(STATUS_USAGE, "--most-rounds %lld is less than --rounds %lld",
                           (long long)o->most_rounds, (long long)o->rounds);
    TRY(arena_create(&study.memory));
    enum status st = o->fresh ? run_fresh(&study, o, r) : run_study(&study, r);
    for (int i = 0; i < study.n_tasks; i++)
        graph_destroy(study.tasks[i].graph);
    arena_destroy(study.memory);
    return st;
}
