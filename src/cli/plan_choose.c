/* plan_choose.c: `cleave plan MODEL`: which way to train? */
#include "cli/plan_choose.h"

#include "base/output.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/network_help.h"
#include "cli/run_options.h"
#include "cli/strategy_options.h"
#include "cli/subject_options.h"
#include "model/network.h"
#include "plan/edit.h"
#include "runtime/stop.h"

#include <stdio.h>
#include <string.h>

enum { MOST_DETAILS = 64 };

static const char notes[] =
    "Candidates, and their \"name\" in JSON:\n"
    "  data, sums along a tree       data tree    data parallelism, another order of sums\n"
    "  hybrid 8x2                    hybrid 8x2   parts of the batch times those of channels\n"
    "  best cut per layer            per layer    of each layer, by the search\n"
    "  pipeline 4x4, 2 micro-batches 1f1b 4x4 m2  4 stages of 4 workers each\n"
    "  pipeline 15+1, recompute      1f1b 15-1 r  stages of 15 and of 1 worker; outputs are\n"
    "                                             computed again instead of kept\n"
    "  data on 8                     data on 8    of the machine's devices, 8 are used\n\n"
    "More: 'cleave plan make' writes the plan of a strategy, 'cleave plan check' proves\n"
    "one sound, 'cleave plan dump' prints a worker's program; each has --help.\n";

static const char examples[] =
    "  cleave plan vgg16 --data imagenet --batch 512 --machine 4x4:p100 -o best.json\n"
    "  cleave plan alexnet --data imagenet --machine 1x4:p100 --set classifier.1=n:4\n"
    "  cleave plan resnet50 --data imagenet --machine 8x8:h200 --workers 1..64\n"
    "  cleave plan vgg16 --data imagenet --machine optcnn --batches 32,128,512\n"
    "  cleave plan lenet5 --workers 2\n";

static enum status parse(int argc, char **argv, struct plan_choose_options *o, bool *help)
{
    struct chooser_options *c = &o->chooser;
    *o = (struct plan_choose_options){.chooser.forecast.run = forecast_usual_run};
    const struct option options[] = {
        FORECAST_OPTIONS(&c->forecast),
        OPTION_TEXT("--workers", "N|A..B", &o->workers, NULL,
                    "at most so many; a range says how many are worth it [all devices]"),
        OPTION_INTEGER("--nodes", "N", &o->nodes, 1, MACHINE_MAX_DEVICES, NULL,
                       "instead of --machine: a cluster of so many nodes [1]"),
        OPTION_INTEGER("--devices-per-node", "N", &o->devices_per_node, 1, MACHINE_MAX_DEVICES,
                       NULL, "of that cluster [4]"),
        OPTION_TEXT("--device", "KIND", &o->device, NULL, "of that cluster [titanrtx]"),
        OPTION_TEXT("--intra", "BANDWIDTH", &o->intra, NULL,
                    "between devices of a node [the kind's]"),
        OPTION_TEXT("--inter", "BANDWIDTH", &o->inter, NULL, "between nodes [the kind's]"),
        OPTION_INTEGER("--micro-batches", "M", &c->micro_batches, 1, 1 << 20, NULL,
                       "of pipelines [several are tried]"),
        BATCH_NORM_OPTION(&o->batch_norm),
        OPTION_TEXT("--without", "NODE,...", &c->without, NULL,
                    "the machine less these nodes: the plan after a loss [none]"),
        OPTION_TEXT("--set", "LAYER=LOOP:PARTS,...", &o->set, NULL,
                    "also price the best plan with this edit: fc1=n:4, or conv1=n:2+p:2 [no]"),
        OPTION_TEXT("--batches", "N,...", &o->batches, NULL,
                    "how the answer changes with the batch [no]"),
        OPTION_REAL("--budget", "HOURS", &c->most_worker_hours, 1e-9, 1e12, NULL,
                    "most worker-hours (workers times hours) that an epoch may cost [no limit]"),
        OPTION_REAL("--limit", "SECONDS", &c->limit_s, 0, 1e9, NULL,
                    "of the search; then the best so far [60 on this host; else its work is "
                    "limited, and the "
                    "answer does not depend on this host]"),
        OPTION_REAL(
            "--try", "SECONDS", &c->try_s, 0, 1e9, "10",
            "on this host: train the best few in turns before choosing; 0, --no-measure and "
            "--no-data: do not"),
        OPTION_FLAG("--allow-stale", &c->allow_stale,
                    "let plans win that train with older weights (pipedream, ps asynchronous)"),
        OPTION_FLAG("--named", &c->named_only, "named strategies only: no search"),
        OPTION_FLAG("--all", &o->all, "list all candidates, also those far behind"),
        RUN_OPTIONS(&c->forecast.run),
        OPTION_FLAG("--no-eval", &c->forecast.no_eval, "the run would have no test"),
        OPTION_INTEGER("--eval-batch", "N", &c->forecast.eval_batch, 1, GRAPH_LARGEST_BATCH, NULL,
                       "images in a step of the test [as --batch]"),
        OPTION_TEXT("-o", "FILE", &o->output, NULL,
                    "write the plan, for 'cleave train --plan FILE' [nothing is written]"),
        OPTION_FLAG("--json", &o->json, "print JSON"),
        OPTION_INTEGER(
            "--details", "N", &o->details, 1, MOST_DETAILS, NULL,
            "with --json: also the plans and timelines of N candidates, the chosen one, the "
            "fastest of each kind and others, which 'cleave report' shows [none]"),
        OPTION_END,
    };
    const struct positional positionals[] = {{"MODEL", &o->model, network_names_help()}, {0}};
    static char all_notes[4096];
    (void)snprintf(all_notes, sizeof all_notes, "%s\n%s", data_notes, notes);
    const struct option_set set = {
        .command = "plan",
        .about = "Compares the named strategies with the best plans that a search finds, predicts\n"
                 "each with the clock, recommends one that fits into memory and says why. Plain\n"
                 "data parallelism is always among them. Exit code 3: nothing fits.",
        .positionals = positionals,
        .options = options,
        .notes = all_notes,
        .examples = examples,
    };
    return options_parse(&set, argc, argv, help);
}

/* ---- options that say the same as others ---- */

/* The inputs of a cluster by parts, as a machine's string. */
static enum status join_machine(struct plan_choose_options *o)
{
    bool parts = o->nodes || o->devices_per_node || o->device || o->intra || o->inter;
    struct forecast_options *f = &o->chooser.forecast;
    if (!parts)
        return STATUS_OK;
    if (strcmp(f->machine, "local") != 0)
        return status_fail(STATUS_USAGE,
                           "--nodes, --devices-per-node, --device, --intra and --inter describe a "
                           "machine; --machine %s does, too: give one of both",
                           f->machine);
    (void)snprintf(o->machine, sizeof o->machine, "%lldx%lld:%.60s%s%.60s%s%.60s",
                   (long long)(o->nodes ? o->nodes : 1),
                   (long long)(o->devices_per_node ? o->devices_per_node : 4),
                   o->device ? o->device : "titanrtx", o->intra ? ",intra=" : "",
                   o->intra ? o->intra : "", o->inter ? ",inter=" : "", o->inter ? o->inter : "");
    f->machine = o->machine;
    return STATUS_OK;
}

/* Over workers or batches every row has a best plan of its own: there is none to write or to edit.
 */
static enum status check_single(const struct plan_choose_options *o, bool range)
{
    const char *single = o->output ? "-o" : o->set ? "--set" : o->details ? "--details" : NULL;
    if (o->details && !o->json)
        return status_fail(STATUS_USAGE, "--details is about what --json prints: give --json, too");
    if (o->batches && range)
        return status_fail(STATUS_USAGE,
                           "--batches and --workers A..B are two questions: give one of both");
    if (single && (o->batches || range))
        return status_fail(STATUS_USAGE, "%s is for one plan, %s compares several: leave one out",
                           single, range ? "--workers A..B" : "--batches");
    return STATUS_OK;
}

static enum status settle(struct plan_choose_options *o)
{
    struct chooser_options *c = &o->chooser;
    int counts[PLAN_MAX_POINTS], n;
    int64_t workers;
    TRY(join_machine(o));
    c->fewer = true;
    c->batch_norm = (enum plan_batch_norm)o->batch_norm;
    bool range = o->workers && plan_parse_range(o->workers, counts, &n);
    TRY(check_single(o, range));
    if (!o->workers || range)
        return STATUS_OK;
    if (strstr(o->workers, ".."))
        return status_fail(STATUS_USAGE,
                           "--workers '%.80s' must be A..B with whole numbers, A at least 1, B at "
                           "least A and at most %d",
                           o->workers, PLAN_MAX_WORKERS);
    TRY(text_parse_integer("--workers", o->workers, 1, PLAN_MAX_WORKERS, &workers));
    c->workers = (int)workers;
    return STATUS_OK;
}

/* ---- a hand edit ---- */

static enum status add_edit(struct plan_answer *a, const char *text)
{
    char name[CANDIDATE_NAME_BYTES];
    struct plan *plan;
    if (!text || a->set->best < 0)
        return STATUS_OK;
    TRY(plan_edit(a->set->list[a->set->best].plan, a->chooser->forecast->graph, text, &plan));
    (void)snprintf(name, sizeof name, "edit %s", text);
    return chooser_add(a->chooser, a->set, name, plan, &a->edited);
}

/* ---- the command ---- */

static enum status explain(struct plan_answer *a)
{
    struct predict_request r;
    if (a->set->best < 0)
        return STATUS_OK;
    const struct candidate *best = &a->set->list[a->set->best];
    TRY(chooser_request(a->chooser, best->plan, &r));
    return explain_plan(&r, best, &a->explained);
}

/* On this host the costs of the other kernels would have to be measured first. */
static enum status ask_other_norm(struct plan_answer *a)
{
    const struct forecast *f = a->chooser->forecast;
    struct predict_request r;
    struct prediction *p;
    struct plan *other;
    if (a->set->best < 0 || f->local)
        return STATUS_OK;
    const struct plan *best = a->set->list[a->set->best].plan;
    if (best->asynchronous || !plan_cuts_norms(best, f->graph))
        return STATUS_OK;
    TRY(plan_copy(best, &other));
    other->batch_norm = best->batch_norm == PLAN_NORM_WORKER ? PLAN_NORM_BATCH : PLAN_NORM_WORKER;
    enum status st = chooser_request(a->chooser, other, &r);
    if (st == STATUS_OK)
        st = predict_plan(&r, &p);
    if (st == STATUS_OK) {
        a->other_norm_s = p->clock.step_s;
        prediction_destroy(p);
    }
    plan_destroy(other);
    return st;
}

static enum status write_best(const struct plan_choose_options *o, const struct plan_answer *a)
{
    struct plan *best = a->set->best >= 0 ? a->set->list[a->set->best].plan : NULL;
    const struct graph *graph = a->chooser->forecast->graph;
    if (!o->output || !best)
        return STATUS_OK;
    TRY(subject_note(&o->chooser.forecast, graph, true, best));
    return plan_write(best, graph, o->output);
}

static enum status answer(const struct plan_choose_options *o, struct plan_answer *a)
{
    TRY(add_edit(a, o->set));
    TRY(explain(a));
    TRY(ask_other_norm(a));
    TRY(write_best(o, a));
    TRY(o->json ? plan_print_answer_json(a) : plan_print_answer(a));
    return chooser_refuse(a->chooser, a->set);
}

static enum status choose(const struct plan_choose_options *o)
{
    struct chooser c;
    struct plan_answer a = {.chooser = &c, .edited = -1, .all = o->all, .details = (int)o->details};
    enum status st;
    if (o->set) /* a slip in it is found before the search, not behind it */
        TRY(plan_check_edit(o->chooser.forecast.graph, o->set));
    TRY_GOTO(st, chooser_open(&c, &o->chooser), out);
    TRY_GOTO(st, chooser_find(&c, c.n_workers, &a.set), out);
    TRY_GOTO(st, answer(o, &a), out);
out:
    explanation_destroy(a.explained);
    candidates_destroy(a.set);
    chooser_close(&c);
    return st;
}

enum status command_plan_choose(int argc, char **argv)
{
    struct plan_choose_options o;
    const struct network *network;
    struct graph *graph;
    bool help;
    int counts[PLAN_MAX_POINTS], n;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    TRY(settle(&o));
    if (o.output)
        TRY(whole_file_check_place(o.output));
    TRY(whole_file_check_input("-o", o.output, o.chooser.forecast.machine));
    TRY(whole_file_check_input("-o", o.output, o.chooser.forecast.profile));
    TRY(network_find(o.model, &network));
    o.model = network->name;
    TRY(subject_settle_data(o.model, &o.chooser.forecast.data));
    TRY(stop_install());
    TRY(forecast_build_graph(&o.chooser.forecast, o.model, &graph));
    bool range = o.workers && plan_parse_range(o.workers, counts, &n);
    enum status st = o.batches ? plan_scale_batches(&o)
                     : range   ? plan_scale_workers(&o)
                               : choose(&o);
    graph_destroy(graph);
    return st;
}
