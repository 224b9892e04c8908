/* bench_limits.c: `cleave bench limits`: how far a plan scales, and what stops it. */
#include "cli/bench_limits.h"

#include "base/text.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "cli/subject.h"
#include "runtime/plan_choice.h"
#include "runtime/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What this command takes an option to be where it is not given. */
static void change_preset(struct option *options, const char *name, const char *preset,
                          const char *help)
{
    for (struct option *o = options; o->kind != OPTION_KIND_NONE; o++)
        if (strcmp(o->name, name) == 0) {
            o->preset = preset;
            o->help = help;
        }
}

static enum status parse(int argc, char **argv, struct limits_options *o, bool *help)
{
    *o = (struct limits_options){.forecast = {.run = forecast_usual_run, .shape_only = true}};
    struct option options[] = {
        FORECAST_OPTIONS(&o->forecast),
        OPTION_INTEGER("--batch-per-worker", "N", &o->batch_per_worker, 1, SUBJECT_LARGEST_BATCH,
                       "32", "images of each worker, where the batch grows"),
        OPTION_TEXT("--workers", "N,...", &o->workers, "1,2,4,8,16,32,64,128,256,512,1024",
                    "numbers of workers; one is always among them"),
        OPTION_TEXT("--plan", "STRATEGY", &o->plan, "data", "how they share the work"),
        OPTION_TEXT("--inter", "BANDWIDTH", &o->inter, "10Gbit/s",
                    "--machine local: of the network between hosts like this one"),
        OPTION_TEXT("--latency", "TIME", &o->latency, "30us",
                    "--machine local: of a message between them"),
        SPLIT_OPTIONS(&o->split),
        RUN_OPTIONS(&o->forecast.run),
        OPTION_FLAG("--json", &o->json, "print JSON"),
        OPTION_END,
    };
    change_preset(options, "--data", "synthetic:imagenet", "the data whose shape is used");
    change_preset(options, "--batch", "1024", "images in a step, where the batch is fixed");
    change_preset(options, "--machine", "128x8:v100",
                  "a file, a string such as 4x4:p100,inter=4.5GB/s, or local: as many hosts like "
                  "this one as there are workers");
    change_preset(options, "--calibrate-batch", NULL,
                  "images in a step at that speed [--batch-per-worker]");
    const struct positional positionals[] = {{"MODEL", &o->forecast.model, subject_model_help()},
                                             {0}};
    static char notes[2048];
    (void)snprintf(notes, sizeof notes, "%s\n%s", subject_data_notes, split_strategy_notes);
    const struct option_set set = {
        .command = "bench limits",
        .about =
            "Predicts steps for more and more workers, at a fixed batch and at one that grows\n"
            "with them: what is computing, exposed communication and waiting; where\n"
            "communication overtakes computing; what would be left of the limits if it were\n"
            "free; and how many workers are worth paying for.",
        .positionals = positionals,
        .options = options,
        .notes = notes,
        .examples = "  cleave bench limits alexnet --batch 1024 --machine 128x8:v100\n"
                    "  cleave bench limits googlenet --batch 256 --machine keuper \\\n"
                    "      --workers 1,2,4,8,16,32,64,128 --sync tree\n"
                    "  cleave bench limits lenet5 --data synthetic:mnist --machine local \\\n"
                    "      --inter 1Gbit/s --workers 1,2,4,8,16\n",
    };
    return options_parse(&set, argc, argv, help);
}

/* ---- the list of workers ---- */

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Ascending, each once. */
static void put_in_order(struct limits_study *s)
{
    int kept = 0;
    qsort(s->counts, (size_t)s->n_counts, sizeof *s->counts, compare);
    for (int i = 0; i < s->n_counts; i++)
        if (kept == 0 || s->counts[kept - 1] != s->counts[i])
            s->counts[kept++] = s->counts[i];
    s->n_counts = kept;
}

static enum status parse_workers(const char *text, struct limits_study *s)
{
    s->counts[s->n_counts++] = 1;
    for (;; text++) {
        size_t length = strcspn(text, ",");
        char word[32];
        int64_t value;
        (void)snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), text);
        if (s->n_counts == LIMITS_MAX_POINTS)
            return status_fail(STATUS_USAGE, "--workers takes at most %d numbers",
                               LIMITS_MAX_POINTS - 1);
        TRY(text_parse_integer("--workers", word, 1, PLAN_MAX_WORKERS, &value));
        s->counts[s->n_counts++] = (int)value;
        text += length;
        if (!*text)
            break;
    }
    put_in_order(s);
    return STATUS_OK;
}

/* ---- the command ---- */

static enum status check_plan(const char *name)
{
    enum { MAX_NAMES = 64 };
    const char *names[MAX_NAMES + 1];
    int n = 0;
    if (plan_is_file(name))
        return status_fail(STATUS_USAGE,
                           "--plan %s: a file is for one number of workers; name a strategy", name);
    for (const struct plan_strategy *p = plan_strategies(); p->name && n < MAX_NAMES; p++) {
        if (strcmp(p->name, name) == 0)
            return STATUS_OK;
        names[n++] = p->name;
    }
    names[n] = NULL;
    return text_fail_unknown("plan", name, names);
}

/* One worker has the plan 'serial' whatever is asked for: so it is looked at before. */
static enum status check_split(const struct limits_options *o)
{
    struct split_options split = o->split;
    struct plan_request request;
    TRY(split_request(&split, &request));
    return plan_check_used(&request, o->plan);
}

static enum status run(const struct limits_options *o, arena *memory)
{
    struct limits_study *s; /* too large for the stack */
    TRY(arena_alloc(memory, sizeof *s, &s));
    *s = (struct limits_study){.options = o, .memory = memory};
    TRY(check_plan(o->plan));
    TRY(check_split(o));
    TRY(parse_workers(o->workers, s));
    TRY(stop_install());
    TRY(limits_predict(s));
    return o->json ? limits_print_json(s) : limits_print_tables(s);
}

enum status command_bench_limits(int argc, char **argv)
{
    struct limits_options o;
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    arena *memory;
    TRY(arena_create(&memory));
    enum status st = run(&o, memory);
    arena_destroy(memory);
    return st;
}
