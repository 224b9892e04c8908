/* command_plan.c: `cleave plan make`, `check` and `dump`: plans written, checked and looked into.
 */
#include "base/log.h"
#include "base/numbers.h"
#include "base/results.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/network_help.h"
#include "cli/options.h"
#include "cli/strategy_options.h"
#include "cli/subject_options.h"
#include "model/network.h"
#include "program/program.h"
#include "runtime/plan_choice.h"
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct plan_options {
    const char *plan, *model, *data, *output, *backend;
    int64_t batch, worker;
    int precision; /* enum precision */
    bool json;
    struct strategy_options split;
};

#define SUBJECT_OPTIONS(o)                                                                     \
    OPTION_TEXT("--data", "SPEC", &(o)->data, NULL,                                            \
                "the data whose shape is used [what the plan's file says, else fashion-mnist " \
                "for mlp and lenet5, imagenet for others]"),                                   \
        OPTION_INTEGER("--batch", "N", &(o)->batch, 1, GRAPH_LARGEST_BATCH, "128",             \
                       "images in a step")

#define BACKEND_OPTION(o)                                    \
    OPTION_TEXT("--backend", "BACKEND", &(o)->backend, NULL, \
                "whose layouts count: cpu or reference [the best of this build]")
#define PRECISION_OPTION(o) \
    OPTION_CHOICE("--precision", &(o)->precision, precision_names, "float", "of the numbers")

#define WORKERS_OPTION(o)                                                            \
    OPTION_INTEGER("--workers", "N", &(o)->split.workers, 1, PLAN_MAX_WORKERS, NULL, \
                   "for a strategy [1]; a file must be for so many")

/* ---- the programs of a plan ---- */

/* Lowered here without running anything. */
struct lowered_plan {
    struct subject_file subject;
    struct graph *graph;
    struct plan *plan;
    const struct backend *backend;
    device *device;
    struct program_set all;  /* check: of all workers */
    struct program *program; /* dump: of one */
};

static void lowered_close(struct lowered_plan *s)
{
    program_destroy_all(&s->all);
    program_destroy(s->program);
    if (s->device)
        s->backend->device_close(s->device);
    plan_destroy(s->plan);
    graph_destroy(s->graph);
    subject_close(&s->subject);
}

static enum status make_plan(struct plan_options *o, struct lowered_plan *s)
{
    struct dataset_info info;
    struct plan_request request;
    TRY(subject_open(&s->subject, "plan check", &o->model, &o->plan));
    subject_take_data(&s->subject, &o->data, &o->batch);
    TRY(subject_settle_data(o->model, &o->data));
    subject_tell(&s->subject);
    TRY(subject_build(o->model, o->data, o->batch, -1, &info, &s->graph));
    TRY(strategy_request(&o->split, NULL, &request));
    return plan_choose(o->plan, s->graph, &request, &s->plan);
}

/* How programs of the plan are made; opens the device. */
static enum status open_device(const struct plan_options *o, struct lowered_plan *s,
                               struct program_options *how)
{
    struct device_options device_options = {.threads = 1, .describe_only = true};
    s->backend = backend_list()[0];
    if (o->backend)
        TRY(backend_find(o->backend, &s->backend));
    if (!s->backend->describes_all_precisions)
        TRY(backend_check_precision(s->backend, (enum precision)o->precision));
    TRY(s->backend->device_open(&device_options, &s->device));
    *how = (struct program_options){.backend = s->backend,
                                    .device = s->device,
                                    .precision = (enum precision)o->precision,
                                    .training = true,
                                    .n_states = 1,
                                    .plan = s->plan,
                                    .worker = (int)o->worker,
                                    .transport =
                                        s->plan->n_workers > 1 ? comm_find_table("threads") : NULL};
    return STATUS_OK;
}

/* The three commands share the options and the plan; the work behind it is each command's own. */
typedef enum status parse_function(int argc, char **argv, struct plan_options *o, bool *help);
typedef enum status work_function(const struct plan_options *o, struct lowered_plan *s);

static enum status run_command(int argc, char **argv, parse_function *parse, work_function *work)
{
    struct plan_options o;
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    struct lowered_plan s = {0};
    enum status st;
    TRY_GOTO(st, make_plan(&o, &s), out);
    TRY_GOTO(st, work(&o, &s), out);
out:
    lowered_close(&s);
    return st;
}

/* ---- check ---- */

static int stage_of(const struct plan *plan, int worker)
{
    for (int i = 0; i < plan->n_stages; i++)
        for (int k = 0; k < plan->stages[i].n_workers; k++)
            if (plan->stages[i].workers[k] == worker)
                return i;
    return -1;
}

static const char *plural(int n, const char *end)
{
    return n == 1 ? "" : end;
}

static void report_check(const struct lowered_plan *s, struct results *r)
{
    static const struct field fields[] = {{"worker", "worker", ">", 0, 0},
                                          {"stage", NULL, ">", 0, 0},
                                          HIDDEN("stage"),
                                          {"instructions", "instructions", ">", 0, 0},
                                          {"memory", "memory_bytes", "bytes", 0, 0},
                                          {"sends", "sent_bytes", "bytes", 0, 0},
                                          {0}};
    const struct plan *p = s->plan;
    int64_t moved = 0, most = 0;
    results_put(r, "plan", v_text(p->name));
    results_put(r, "model", v_text(s->graph->name));
    results_put(r, "stages", v_int(p->n_stages));
    results_put(r, "micro_batches", v_int(p->micro_batches));
    results_put(r, "steps", v_int(s->all.programs[0]->n_steps));
    results_say(r, 2, "%s: %s, %d worker%s, %d stage%s, %d micro-batch%s", p->name, s->graph->name,
                p->n_workers, plural(p->n_workers, "s"), p->n_stages, plural(p->n_stages, "s"),
                p->micro_batches, plural(p->micro_batches, "es"));
    results_say(r, 0, "%s", "");
    results_table(r, "workers", fields, FOR_PEOPLE | FOR_JSON);
    for (int i = 0; i < p->n_workers; i++) {
        int64_t memory = program_memory_bytes(s->all.programs[i]);
        int64_t sent = program_sent_bytes(s->all.programs[i]);
        int stage = stage_of(p, i);
        moved += sent;
        most = int64_max(most, memory);
        RESULTS_ROW(r, v_int(i), stage < 0 ? v_text("server") : v_int(stage), v_int(stage),
                    v_int(s->all.programs[i]->n_instrs), v_int(memory), v_int(sent));
    }
    results_table_end(r);
    results_put(r, "memory_bytes", v_int(most));
    results_put(r, "bytes_moved", v_int(moved));
}

static enum status parse_check(int argc, char **argv, struct plan_options *o, bool *help)
{
    *o = (struct plan_options){0};
    const struct option options[] = {
        SUBJECT_OPTIONS(o), WORKERS_OPTION(o),   STRATEGY_OPTIONS(&o->split),
        BACKEND_OPTION(o),  PRECISION_OPTION(o), OPTION_FLAG("--json", &o->json, "print JSON"),
        OPTION_END,
    };
    const struct positional positionals[] = {
        {"PLAN", &o->plan, "a file, or the name of a strategy"},
        {"MODEL", &o->model, network_or_file_help()},
        {0}};
    const struct option_set set = {
        .command = "plan check",
        .about = "Reads a plan, lowers it to the programs of all workers and proves them sound:\n"
                 "nothing is read before it is written, every message has its other side, and\n"
                 "nothing waits for ever. Prints what each worker holds and sends.",
        .positionals = positionals,
        .n_optional = 1,
        .options = options,
        .notes = plan_notes,
        .examples = "  cleave plan check my.json\n"
                    "  cleave plan check owt alexnet --data imagenet --workers 4\n",
    };
    return options_parse(&set, argc, argv, help);
}

static enum status check(const struct plan_options *o, struct lowered_plan *s)
{
    struct program_options how;
    TRY(open_device(o, s, &how));
    TRY(program_create_all(s->graph, &how, NULL, false, &s->all));
    enum status st =
        verify_programs((const struct program *const *)s->all.programs, s->plan->n_workers);
    log_progress_end();
    TRY(st);
    struct results r;
    TRY(results_open(&r, o->json, NULL));
    report_check(s, &r);
    return results_close(&r, STATUS_OK);
}

static enum status command_plan_check(int argc, char **argv)
{
    return run_command(argc, argv, parse_check, check);
}

/* ---- make ---- */

static enum status parse_make(int argc, char **argv, struct plan_options *o, bool *help)
{
    *o = (struct plan_options){0};
    const struct option options[] = {
        SUBJECT_OPTIONS(o),
        WORKERS_OPTION(o),
        STRATEGY_OPTIONS(&o->split),
        OPTION_TEXT("-o", "FILE", &o->output, NULL, "where it goes [standard output]"),
        OPTION_END,
    };
    const struct positional positionals[] = {{"STRATEGY", &o->plan, strategy_names_help()},
                                             {"MODEL", &o->model, network_names_help()},
                                             {0}};
    const struct option_set set = {
        .command = "plan make",
        .about = "Writes the plan of a strategy as a file, every layer spelled out, to be changed\n"
                 "by hand and handed back with --plan FILE.",
        .positionals = positionals,
        .options = options,
        .notes = strategy_notes,
        .examples = "  cleave plan make owt alexnet --data imagenet --workers 4 -o owt.json\n"
                    "  cleave plan make 1f1b vgg11 --data cifar10 --workers 4 --replicas 3,1\n",
    };
    return options_parse(&set, argc, argv, help);
}

static enum status write_plan(const struct plan_options *o, struct lowered_plan *s)
{
    TRY(whole_file_check_input("-o", o->output, o->plan));
    const struct forecast_options made = {.data = o->data, .run = forecast_usual_run};
    TRY(subject_note(&made, s->graph, false, s->plan));
    if (o->output)
        return plan_write(s->plan, s->graph, o->output);
    char *text;
    TRY(plan_print(s->plan, s->graph, &text));
    (void)fputs(text, stdout);
    free(text);
    return STATUS_OK;
}

static enum status command_plan_make(int argc, char **argv)
{
    return run_command(argc, argv, parse_make, write_plan);
}

/* ---- dump ---- */

static enum status parse_dump(int argc, char **argv, struct plan_options *o, bool *help)
{
    *o = (struct plan_options){0};
    const struct option options[] = {
        SUBJECT_OPTIONS(o),
        WORKERS_OPTION(o),
        STRATEGY_OPTIONS(&o->split),
        OPTION_INTEGER("--worker", "W", &o->worker, 0, PLAN_MAX_WORKERS - 1, "0", "whose program"),
        BACKEND_OPTION(o),
        PRECISION_OPTION(o),
        OPTION_END,
    };
    const struct positional positionals[] = {
        {"PLAN", &o->plan, "a file, or the name of a strategy"},
        {"MODEL", &o->model, network_or_file_help()},
        {0}};
    const struct option_set set = {
        .command = "plan dump",
        .about = "Prints the program that one worker runs under a plan: its buffers with their\n"
                 "places in memory, and its instructions with what they read, write and wait for.",
        .positionals = positionals,
        .n_optional = 1,
        .options = options,
        .notes = plan_notes,
        .examples = "  cleave plan dump data lenet5 --workers 2 --worker 1\n",
    };
    return options_parse(&set, argc, argv, help);
}

static enum status dump(const struct plan_options *o, struct lowered_plan *s)
{
    struct program_options how;
    if (o->worker >= s->plan->n_workers)
        return status_fail(STATUS_USAGE, "--worker %lld: the plan has workers 0 to %d",
                           (long long)o->worker, s->plan->n_workers - 1);
    TRY(open_device(o, s, &how));
    TRY(program_create(s->graph, &how, &s->program));
    program_dump(s->program, stdout);
    return STATUS_OK;
}

static enum status command_plan_dump(int argc, char **argv)
{
    return run_command(argc, argv, parse_dump, dump);
}

/* ---- the command ---- */

static bool names_network(const char *word)
{
    for (const char *const *name = network_names(); *name; name++)
        if (strcasecmp(*name, word) == 0)
            return true;
    return false;
}

/* A word that is nearer to a command than to a network is a slip of the former. */
static bool is_command(const struct command *commands, const char *word)
{
    const char *names[] = {commands[0].name, commands[1].name, commands[2].name, NULL};
    return word[0] != '-' && !names_network(word) && text_nearest(word, names);
}

/* `cleave plan MODEL` looks for a plan; the commands are about one that there is. */
enum status command_plan(int argc, char **argv)
{
    static const struct command commands[] = {
        {"make", "write the plan of a strategy as a file", command_plan_make},
        {"check", "prove a plan sound, and show what each worker holds", command_plan_check},
        {"dump", "print the program of one worker", command_plan_dump},
        {0},
    };
    static const char *const options[] = {"--help", NULL};
    static const struct command_set set = {
        .path = "cleave plan",
        .about = "Plans say how the work of a training step is split.\n",
        .examples = "  cleave plan make owt alexnet --data imagenet --workers 4 -o owt.json\n",
        .commands = commands,
        .options = options,
        .for_networks = "make data",
    };
    if (argc == 1 ? help_get_form() == HELP_LIST : is_command(commands, argv[1]))
        return command_dispatch(&set, argc, argv);
    if (help_get_form() == HELP_COMPLETE && argc == 2 && argv[1][0] != '-')
        complete_commands(&set, argv[1]);
    return command_plan_choose(argc, argv);
}
