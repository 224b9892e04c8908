/* command_bench.c: `cleave bench`: the experiments of src/bench with their options. */
#include "bench/bench.h"

#include "base/text.h"
#include "cli/command.h"
#include "cli/forecast_options.h"
#include "cli/network_help.h"
#include "cli/run_options.h"
#include "cli/strategy_options.h"

#include <stdio.h>
#include <string.h>

#define JSON_OPTION(json) OPTION_FLAG("--json", json, "print JSON")
#define CSV_OPTION(csv) \
    OPTION_TEXT("--csv", "FILE", csv, NULL, "write CSV instead; - is standard output")
#define BACKEND_OPTIONS(b)                                                                  \
    OPTION_TEXT("--backend", "BACKEND", &(b)->name, NULL,                                   \
                "the backend: cpu (fast) or reference (plain C) [the best of this build]"), \
        OPTION_INTEGER("--threads", "N", &(b)->threads, 1, BACKEND_MAX_THREADS, NULL,       \
                       "of the backend [all cores]")

static const struct positional no_positionals[] = {{0}};

static enum status parse_batches(const char *list, struct bench_batches *out)
{
    return text_parse_integers("--batch", list, 1, GRAPH_LARGEST_BATCH, BENCH_MAX_BATCHES,
                               out->sizes, &out->n);
}

static enum status command_layers(int argc, char **argv)
{
    struct bench_layers s = {0};
    const char *batches, *csv = NULL;
    bool json, help;
    const struct option options[] = {
        OPTION_TEXT("--data", "SPEC", &s.data, "imagenet", "the data whose shape is used"),
        OPTION_TEXT("--batch", "B,...", &batches, "1,2,4,8,16", "batch sizes"),
        OPTION_INTEGER("--repeat", "N", &s.repeat, 1, 10000, "5", "steps of each; medians count"),
        CSV_OPTION(&csv),
        BACKEND_OPTIONS(&s.backend),
        JSON_OPTION(&json),
        OPTION_END,
    };
    const struct positional positionals[] = {{"MODEL", &s.model, network_names_help()}, {0}};
    const struct option_set set = {
        .command = "bench layers",
        .about = "Times every layer of a training step on noise: forward, gradient of the data,\n"
                 "gradient of the weights; its rate, and that as a share of the rate of a large\n"
                 "matrix product; then the time, the share of the step and the speed-up from\n"
                 "shrinking the batch, by layer type.",
        .positionals = positionals,
        .options = options,
        .notes = data_notes,
        .examples = "  cleave bench layers alexnet --batch 1,4,16,64\n"
                    "  cleave bench layers resnet18 --data cifar10 --batch 64 --csv layers.csv\n",
    };
    TRY(options_parse(&set, argc, argv, &help));
    if (help)
        return STATUS_OK;
    struct results r;
    TRY(parse_batches(batches, &s.batches));
    TRY(results_open(&r, json, csv));
    return results_close(&r, bench_layers(&s, &r));
}

static enum status command_gemm(int argc, char **argv)
{
    struct bench_gemm s = {0};
    const char *batches, *csv = NULL;
    bool json, help;
    const struct option options[] = {
        OPTION_TEXT("--batch", "B,...", &batches, "256,128,64,32,16,8,4,2,1",
                    "rows of the left matrix"),
        OPTION_INTEGER("--in", "N", &s.inner, 1, 65536, "4096", "its columns"),
        OPTION_INTEGER("--out", "N", &s.columns, 1, 65536, "9192", "columns of the right matrix"),
        OPTION_INTEGER("--repeat", "N", &s.repeat, 1, 1000, "10", "measurements at least"),
        CSV_OPTION(&csv),
        BACKEND_OPTIONS(&s.backend),
        JSON_OPTION(&json),
        OPTION_END,
    };
    const struct option_set set = {
        .command = "bench gemm",
        .about =
            "Times the matrix product of a fully connected layer, b x 4096 * 4096 x 9192, over\n"
            "batch sizes b: median time, rate, and the speed-up that shrinking the batch gives\n"
            "beside the ideal one.",
        .positionals = no_positionals,
        .options = options,
        .examples = "  cleave bench gemm --threads 2\n"
                    "  cleave bench gemm --in 1024 --out 1000 --batch 64,16,4,1 --csv -\n",
    };
    TRY(options_parse(&set, argc, argv, &help));
    if (help)
        return STATUS_OK;
    struct results r;
    TRY(parse_batches(batches, &s.batches));
    TRY(results_open(&r, json, csv));
    return results_close(&r, bench_gemm(&s, &r));
}

static enum status command_step(int argc, char **argv)
{
    struct bench_step s = {0};
    bool json, help;
    const struct option options[] = {
        OPTION_TEXT("--data", "SPEC", &s.data, "imagenet", "the data whose shape is used"),
        OPTION_INTEGER("--batch", "N", &s.batch, 1, GRAPH_LARGEST_BATCH, "16", "images in a step"),
        OPTION_INTEGER("--steps", "N", &s.steps, 1, 100000, "10", "steps that are timed"),
        OPTION_INTEGER("--warmup", "N", &s.warmup, 0, 1000, "2", "steps before them"),
        OPTION_FLAG("--interactive", &s.interactive,
                    "after the warm-up say {\"event\":\"ready\",...}; then answer each line N of "
                    "standard input with the times of N steps, {\"steps_s\":[...],\"loss\":x}"),
        OPTION_FLAG("--floor", &s.floor,
                    "also measure the floor: the sum of the least times of the library's own "
                    "convolution and matrix primitives, each alone"),
        BACKEND_OPTIONS(&s.backend),
        JSON_OPTION(&json),
        OPTION_END,
    };
    const struct positional positionals[] = {{"MODEL", &s.model, network_names_help()}, {0}};
    const struct option_set set = {
        .command = "bench step",
        .about = "Times whole training steps: loading one batch of noise, forward, backward, SGD\n"
                 "with momentum, and reading the loss.",
        .positionals = positionals,
        .options = options,
        .notes = data_notes,
        .examples = "  cleave bench step resnet18 --data synthetic:3x224x224/1000 --batch 16\n"
                    "  printf '5\\n5\\n' | cleave bench step lenet5 --data mnist --batch 128 "
                    "--interactive\n",
    };
    TRY(options_parse(&set, argc, argv, &help));
    if (help)
        return STATUS_OK;
    struct results r;
    TRY(results_open(&r, json, NULL));
    return results_close(&r, bench_step(&s, &r));
}

static enum status command_search(int argc, char **argv)
{
    struct bench_search s = {0};
    bool json, help;
    const struct option options[] = {
        OPTION_TEXT("--cases", "LIST", &s.cases, NULL,
                    "networks, each with its workers: lenet5:4,vgg16:16 [all that have a bar]"),
        OPTION_TEXT("--device", "KIND", &s.device, "p100", "the kind of each worker"),
        OPTION_INTEGER("--devices-per-node", "N", &s.per_node, 1, PLAN_MAX_WORKERS, "4",
                       "of the machine"),
        OPTION_INTEGER("--batch-per-worker", "N", &s.batch_per_worker, 1, 1024, "32",
                       "images of each worker"),
        OPTION_INTEGER("--rounds", "N", &s.rounds, 1, BENCH_MAX_ROUNDS, "5",
                       "of which the middle one counts; one, where it takes more than 2 s"),
        OPTION_FLAG("--no-pipelines", &s.no_pipelines, "the best cut of every layer alone"),
        OPTION_FLAG("--check", &s.check, "exit code 1 where a bar is not reached"),
        JSON_OPTION(&json),
        OPTION_END,
    };
    const struct option_set set = {
        .command = "bench search",
        .about = "Measures how long the search for the best cut of every layer takes, and with it\n"
                 "that for the best pipelines. Costs are known (peak figures of the device), one\n"
                 "core works, and nothing goes through the clock.",
        .positionals = no_positionals,
        .options = options,
        .examples = "  cleave bench search\n"
                    "  cleave bench search --cases vgg16:4,vgg16:16,vgg16:64 --json\n",
    };
    TRY(options_parse(&set, argc, argv, &help));
    if (help)
        return STATUS_OK;
    struct results r;
    TRY(results_open(&r, json, NULL));
    return results_close(&r, bench_search(&s, &r));
}

static enum status command_accuracy(int argc, char **argv)
{
    struct bench_accuracy s = {
        .forecast = {.machine = "local", .run = forecast_usual_run, .no_eval = true}};
    struct forecast_options *f = &s.forecast;
    bool json, help;
    const struct option options[] = {
        OPTION_TEXT("--models", "MODEL,...", &s.models,
                    "resnet18,resnet50,resnet152,vgg11,vgg16,mobilenetv2,lenet5", "networks"),
        OPTION_TEXT("--data", "SPEC,...", &s.data, "synthetic:mnist,synthetic:cifar10",
                    "data, with each of the networks"),
        OPTION_TEXT("--plans", "PLAN,...", &s.plans,
                    "serial,data,model,spatial,owt,layers,gpipe,1f1b,pipedream,ps", "plans"),
        OPTION_TEXT("--workers", "N,...", &s.workers, "2", "of each plan; serial has one"),
        OPTION_INTEGER("--batch", "N", &f->batch, 1, GRAPH_LARGEST_BATCH, "64", "images in a step"),
        OPTION_INTEGER("--threads", "N", &f->threads, 1, BACKEND_MAX_THREADS, "1",
                       "of each worker"),
        RUN_OPTIONS(&f->run),
        OPTION_INTEGER("--steps", "N", &s.steps, 1, 100000, NULL,
                       "of each turn that count [as many as the turn has room for]"),
        OPTION_INTEGER("--rounds", "N", &s.rounds, 1, ACCURACY_MAX_ROUNDS, "3",
                       "turns of predicting and training that each plan gets"),
        OPTION_INTEGER("--most-rounds", "N", &s.most_rounds, 1, ACCURACY_MAX_ROUNDS, NULL,
                       "turns of a plan whose error is not yet known to 2 %, its standard error "
                       "[--rounds]"),
        OPTION_TEXT("--backend", "BACKEND", &f->backend, NULL,
                    "the backend: cpu or reference [the best of this build]"),
        OPTION_TEXT("--profile", "FILE", &f->profile, NULL,
                    "where measured costs are kept [$CLEAVE_PROFILE or "
                    "~/.cache/cleave/profile.db]"),
        OPTION_FLAG("--no-measure", &f->measure.look_only,
                    "measure nothing before training: estimate costs missing in the profile"),
        OPTION_FLAG("--fresh", &s.fresh,
                    "use no costs but those that this run measures, each turn anew"),
        OPTION_FLAG("--json", &json, "print JSON lines: events case, skipped, order and done"),
        OPTION_FLAG("--quiet", &s.quiet, "print the summary alone, and no progress"),
        OPTION_END,
    };
    static char notes[2048];
    (void)snprintf(notes, sizeof notes, "%s\n%s", data_notes, plan_notes);
    const struct option_set set = {
        .command = "bench accuracy",
        .about = "Predicts and trains in turns, and sets the two side by side: time,\n"
                 "memory, bytes moved, and whether the order of the plans was right. Exit code 1:\n"
                 "memory or bytes are not as predicted.",
        .positionals = no_positionals,
        .options = options,
        .notes = notes,
        .examples = "  cleave bench accuracy --models lenet5,resnet18 --fresh\n"
                    "  cleave bench accuracy --models alexnet,googlenet \\\n"
                    "      --data synthetic:3x64x64/10 --plans serial,data,owt --workers 2,4\n",
    };
    TRY(options_parse(&set, argc, argv, &help));
    if (help)
        return STATUS_OK;
    f->quiet = s.quiet;
    struct results r;
    TRY(results_open(&r, json, NULL));
    return results_close(&r, bench_accuracy(&s, &r));
}

/* Gives an option another preset than other commands have. */
static void change_preset(struct option *options, const char *name, const char *preset,
                          const char *help)
{
    for (struct option *o = options; o->kind != OPTION_KIND_NONE; o++)
        if (strcmp(o->name, name) == 0) {
            o->preset = preset;
            o->help = help;
        }
}

static enum status command_limits(int argc, char **argv)
{
    struct bench_limits s = {.forecast = {.run = forecast_usual_run, .shape_only = true}};
    struct strategy_options split = {0};
    const char *workers;
    bool json, help;
    struct option options[] = {
        FORECAST_OPTIONS(&s.forecast),
        OPTION_INTEGER("--batch-per-worker", "N", &s.batch_per_worker, 1, GRAPH_LARGEST_BATCH, "32",
                       "images of each worker, where the batch grows"),
        OPTION_TEXT("--workers", "N,...", &workers, "1,2,4,8,16,32,64,128,256,512,1024",
                    "numbers of workers; one is always among them; these end at the machine's "
                    "devices"),
        OPTION_TEXT("--plan", "STRATEGY", &s.plan, "data", "how they share the work"),
        OPTION_TEXT("--inter", "BANDWIDTH", &s.inter, "10Gbit/s",
                    "--machine local: of the network between hosts like this one"),
        OPTION_TEXT("--latency", "TIME", &s.latency, "30us",
                    "--machine local: of a message between them"),
        STRATEGY_OPTIONS(&split),
        RUN_OPTIONS(&s.forecast.run),
        JSON_OPTION(&json),
        OPTION_END,
    };
    change_preset(options, "--data", "synthetic:imagenet", "the data whose shape is used");
    change_preset(options, "--batch", "1024", "images in a step, where the batch is fixed");
    change_preset(options, "--machine", "128x8:v100",
                  "a file, a string such as 4x4:p100,inter=4.5GB/s, or local: as many hosts like "
                  "this one as there are workers");
    change_preset(options, "--calibrate-batch", NULL,
                  "images in a step at that speed [--batch-per-worker]");
    const struct positional positionals[] = {{"MODEL", &s.model, network_names_help()}, {0}};
    static char notes[2048];
    (void)snprintf(notes, sizeof notes, "%s\n%s", data_notes, strategy_notes);
    const struct option_set set = {
        .command = "bench limits",
        .about =
            "Predicts steps for more and more workers, at a fixed batch and at one that grows\n"
            "with them: time of computing, exposed communication and waiting; where\n"
            "communication overtakes computing; which limits would remain if it were\n"
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
    TRY(options_parse(&set, argc, argv, &help));
    if (help)
        return STATUS_OK;
    TRY(text_parse_integers("--workers", workers, 1, PLAN_MAX_WORKERS, BENCH_MAX_COUNTS - 1,
                            s.counts, &s.n_counts));
    s.usual_counts = !options_given("--workers");
    TRY(strategy_request(&split, s.forecast.machine, &s.request));
    struct results r;
    TRY(results_open(&r, json, NULL));
    return results_close(&r, bench_limits(&s, &r));
}

static enum status command_recommend(int argc, char **argv)
{
    struct bench_recommend s = {
        .chooser = {.forecast = {.machine = "local", .run = forecast_usual_run, .no_eval = true},
                    .fewer = true}};
    struct chooser_options *c = &s.chooser;
    struct forecast_options *f = &c->forecast;
    int64_t workers = 0;
    bool json, help;
    const struct option options[] = {
        OPTION_TEXT("--models", "MODEL,...", &s.models,
                    "alexnet,vgg11,resnet18,mobilenetv2,googlenet,inceptionv3", "networks"),
        OPTION_TEXT("--data", "SPEC", &f->data, "synthetic:imagenet", "the data to train on"),
        OPTION_INTEGER("--batch", "N", &f->batch, 1, GRAPH_LARGEST_BATCH, "32", "images in a step"),
        OPTION_INTEGER("--workers", "N", &workers, 1, PLAN_MAX_WORKERS, NULL,
                       "of each strategy; the recommended plan has at most so many [all cores]"),
        OPTION_INTEGER("--threads", "N", &f->threads, 1, BACKEND_MAX_THREADS, NULL,
                       "of each worker [all cores, shared out]"),
        OPTION_REAL("--seconds", "S", &s.seconds, 0, 1e9, "60",
                    "of training a network, all plans in turns; at least three rounds"),
        OPTION_REAL("--limit", "SECONDS", &c->limit_s, 0, 1e9, "120", "of each search"),
        OPTION_REAL("--try", "SECONDS", &c->try_s, 0, 1e9, "10",
                    "of the search's own trial of the best few; 0: the clock alone decides"),
        OPTION_FLAG("--allow-stale", &c->allow_stale,
                    "plans that train with older weights take part (pipedream)"),
        OPTION_TEXT("--backend", "BACKEND", &f->backend, NULL,
                    "the backend: cpu or reference [the best of this build]"),
        OPTION_TEXT("--profile", "FILE", &f->profile, NULL,
                    "where measured costs are kept [$CLEAVE_PROFILE or "
                    "~/.cache/cleave/profile.db]"),
        OPTION_FLAG("--json", &json, "print JSON lines: events model and done"),
        OPTION_FLAG("--quiet", &c->quiet, "no progress"),
        OPTION_END,
    };
    const struct option_set set = {
        .command = "bench recommend",
        .about = "Plans for this host, then trains the recommended plan beside every named\n"
                 "strategy, in turns; a plan that is clearly slower has no further ones. A\n"
                 "recommendation is right if it is at most 2 % slower than the fastest of them.",
        .positionals = no_positionals,
        .options = options,
        .notes = data_notes,
        .examples = "  cleave bench recommend --models alexnet,resnet18 --batch 16 --workers 2\n",
    };
    TRY(options_parse(&set, argc, argv, &help));
    if (help)
        return STATUS_OK;
    c->workers = (int)workers;
    f->quiet = c->quiet;
    struct results r;
    TRY(results_open(&r, json, NULL));
    return results_close(&r, bench_recommend(&s, &r));
}

enum status command_bench(int argc, char **argv)
{
    static const struct command commands[] = {
        {"layers", "time of every layer and layer type over batch sizes", command_layers},
        {"gemm", "matrix products as a fully connected layer makes them", command_gemm},
        {"step", "whole training steps on one batch", command_step},
        {"accuracy", "predictions beside measured training", command_accuracy},
        {"limits", "how far a plan scales, predicted for up to 1024 workers", command_limits},
        {"recommend", "the recommended plan beside every named strategy", command_recommend},
        {"search", "how long the search for a plan takes", command_search},
        {0},
    };
    static const char *const options[] = {"--help", NULL};
    static const struct command_set set = {
        .path = "cleave bench",
        .about = "Measures how fast this machine trains.\n",
        .examples = "  cleave bench layers resnet18 --data cifar10 --batch 1,8,64\n"
                    "  cleave bench gemm --threads 2\n"
                    "  cleave bench step alexnet --data synthetic:3x224x224/1000 --batch 64\n",
        .commands = commands,
        .options = options,
        .for_networks = "layers",
    };
    return command_dispatch(&set, argc, argv);
}
