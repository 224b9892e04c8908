/* bench_search.c: `cleave bench search`: how long the search for a plan takes, on one core, with
 * costs known. Beside the times stand the bars that are held, where there is one. */
#include "base/log.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/timer.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/subject.h"
#include "machine/machine.h"
#include "runtime/stop.h"
#include "search/pipelines.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CASES = 64, MAX_ROUNDS = 100, MAX_KINDS = 8, MOST_FOUND = 12, NAME_BYTES = 64 };

static const char all_cases[] = "lenet5:4,alexnet:4,vgg16:4,inceptionv3:4,inceptionv3:16,"
                                "inceptionv3:64,inceptionv3:1024";

/* What is held on one core; with pipelines ten times as much. */
static const struct {
    const char *model;
    int workers;
    double seconds;
} bars[] = {{"lenet5", 4, 0.002},      {"alexnet", 4, 0.005},    {"vgg16", 4, 0.010},
            {"inceptionv3", 4, 0.050}, {"inceptionv3", 16, 0.5}, {"inceptionv3", 64, 5},
            {"inceptionv3", 1024, 60}};
static const double PIPELINES_BAR = 10;

struct search_bench {
    const char *cases, *device;
    int64_t per_node, batch_per_worker, rounds;
    bool json, check, no_pipelines;
};

/* One network on one machine. */
struct search_case {
    char model[NAME_BYTES], machine[NAME_BYTES];
    int workers;
    int64_t batch;
    double bar_s;               /* NAN: none */
    double layers_s, pricing_s; /* of the per-layer search, and of it the pricing */
    double pipelines_s;         /* of that and of the search for pipelines; NAN: left out */
    int n_layers, n_priced_layers, n_found;
    int64_t n_choices;
    double log10_plans;
    bool optimal;
};

static enum status parse(int argc, char **argv, struct search_bench *o, bool *help)
{
    *o = (struct search_bench){.cases = all_cases};
    const struct option options[] = {
        OPTION_TEXT("--cases", "LIST", &o->cases, NULL,
                    "networks, each with its workers: lenet5:4,vgg16:16 [all that have a bar]"),
        OPTION_TEXT("--device", "KIND", &o->device, "p100", "what the workers are"),
        OPTION_INTEGER("--devices-per-node", "N", &o->per_node, 1, PLAN_MAX_WORKERS, "4",
                       "of the machine"),
        OPTION_INTEGER("--batch-per-worker", "N", &o->batch_per_worker, 1, 1024, "32",
                       "images of each worker"),
        OPTION_INTEGER("--rounds", "N", &o->rounds, 1, MAX_ROUNDS, "5",
                       "of which the middle one counts; one, where it takes more than 2 s"),
        OPTION_FLAG("--no-pipelines", &o->no_pipelines, "the best cut of every layer alone"),
        OPTION_FLAG("--check", &o->check, "exit code 1 where a bar is not reached"),
        OPTION_FLAG("--json", &o->json, "print JSON"),
        OPTION_END,
    };
    const struct positional positionals[] = {{0}};
    const struct option_set set = {
        .command = "bench search",
        .about = "Measures how long the search for the best cut of every layer takes, and with it\n"
                 "that for the best pipelines. Costs are known (peak figures of the device), one\n"
                 "core works, and nothing goes through the clock.",
        .positionals = positionals,
        .options = options,
        .examples = "  cleave bench search\n"
                    "  cleave bench search --cases vgg16:4,vgg16:16,vgg16:64 --json\n",
    };
    return options_parse(&set, argc, argv, help);
}

/* ---- the cases ---- */

static double find_bar(const char *model, int workers)
{
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++)
        if (bars[i].workers == workers && strcmp(bars[i].model, model) == 0)
            return bars[i].seconds;
    return NAN;
}

/* "vgg16:4". Of a machine's workers as many stand on a node as divide them. */
static enum status read_case(const struct search_bench *o, const char *text, size_t length,
                             struct search_case *c)
{
    char word[2 * NAME_BYTES];
    int64_t workers, per_node = o->per_node;
    (void)snprintf(word, sizeof word, "%.*s", (int)length, text);
    char *colon = strrchr(word, ':');
    if (!colon)
        return status_fail(STATUS_USAGE, "--cases: '%s' must be MODEL:WORKERS, like vgg16:4", word);
    *colon = '\0';
    TRY(text_parse_integer("--cases: workers", colon + 1, 2, PLAN_MAX_WORKERS, &workers));
    while (workers % per_node != 0)
        per_node--;
    *c = (struct search_case){.workers = (int)workers,
                              .batch = workers * o->batch_per_worker,
                              .bar_s = find_bar(word, (int)workers),
                              .pipelines_s = NAN};
    (void)snprintf(c->model, sizeof c->model, "%.*s", NAME_BYTES - 1, word);
    (void)snprintf(c->machine, sizeof c->machine, "%lldx%lld:%.24s",
                   (long long)(workers / per_node), (long long)per_node, o->device);
    return STATUS_OK;
}

static enum status read_cases(const struct search_bench *o, struct search_case *cases, int *n)
{
    *n = 0;
    for (const char *at = o->cases;; at++) {
        size_t length = strcspn(at, ",");
        if (*n == MAX_CASES || length >= NAME_BYTES)
            return status_fail(STATUS_USAGE, "--cases takes at most %d cases", MAX_CASES);
        TRY(read_case(o, at, length, &cases[(*n)++]));
        at += length;
        if (!*at)
            return STATUS_OK;
    }
}

/* ---- one search ---- */

static bool is_stopped(void *user, double best, double bound)
{
    (void)user;
    (void)best;
    (void)bound;
    return stop_requested() != 0;
}

static enum status search_once(const struct pricing_request *pricing, bool pipelines,
                               struct search_case *c, double *layers_s, double *all_s)
{
    const struct search_options options = {.stop = is_stopped};
    struct layers_request layers = {.pricing = *pricing, .options = options};
    struct layers_answer *a = NULL;
    int64_t start_ns = timer_now_ns();
    layers.pricing.hidden_sync = 1;
    TRY(search_layers(&layers, &a));
    *layers_s = a->search_s;
    c->pricing_s = a->pricing_s;
    c->n_layers = a->n_layers;
    c->n_priced_layers = a->n_priced_layers;
    c->n_choices = a->n_choices;
    c->log10_plans = a->log10_plans;
    c->optimal = a->optimal;
    layers_answer_destroy(a);
    *all_s = NAN;
    if (!pipelines)
        return STATUS_OK;
    struct pipelines_request wanted = {.pricing = *pricing, .options = options};
    struct pipelines_found found[MOST_FOUND];
    TRY(search_pipelines(&wanted, found, MOST_FOUND, &c->n_found));
    *all_s = (double)(timer_now_ns() - start_ns) * 1e-9;
    for (int i = 0; i < c->n_found; i++)
        plan_destroy(found[i].plan);
    return STATUS_OK;
}

static enum status search_rounds(const struct search_bench *o,
                                 const struct pricing_request *pricing, struct search_case *c)
{
    static const double LONG_S = 2;
    double layers_s[MAX_ROUNDS], all_s[MAX_ROUNDS];
    int n = 0;
    for (; n < o->rounds && (n == 0 || !(fmax(layers_s[0], all_s[0]) > LONG_S)); n++) {
        log_progress("%s on %d: round %d", c->model, c->workers, n + 1);
        TRY(search_once(pricing, !o->no_pipelines, c, &layers_s[n], &all_s[n]));
        if (stop_requested())
            return status_fail(STATUS_STOPPED, "stopped while searching for %s on %d workers",
                               c->model, c->workers);
    }
    numbers_sort(layers_s, n);
    numbers_sort(all_s, n);
    c->layers_s = numbers_quantile(layers_s, n, 0.5);
    c->pipelines_s = numbers_quantile(all_s, n, 0.5);
    return STATUS_OK;
}

static enum status search_on(const struct search_bench *o, const struct graph *graph,
                             struct search_case *c)
{
    struct cost_source sources[MAX_KINDS] = {0};
    struct machine *m;
    TRY(machine_parse(c->machine, &m));
    for (int i = 0; i < m->n_kinds && i < MAX_KINDS; i++)
        sources[i].kind = &m->kinds[i];
    struct pricing_request pricing = {.graph = graph,
                                      .machine = m,
                                      .transport = "threads",
                                      .sources = sources,
                                      .n_workers = c->workers,
                                      .n_states = 1};
    enum status st = search_rounds(o, &pricing, c);
    machine_destroy(m);
    return st;
}

static enum status search_case(const struct search_bench *o, struct search_case *c)
{
    bool small = strcmp(c->model, "lenet5") == 0 || strcmp(c->model, "mlp") == 0;
    struct dataset_info data;
    struct graph *graph;
    TRY(subject_build(c->model, small ? "synthetic:mnist" : "synthetic:imagenet", c->batch, -1,
                      &data, &graph));
    enum status st = search_on(o, graph, c);
    graph_destroy(graph);
    return st;
}

/* ---- what is printed ---- */

static bool is_held(const struct search_case *c)
{
    return !(c->layers_s > c->bar_s) && !(c->pipelines_s > PIPELINES_BAR * c->bar_s);
}

static void add_time(table *t, double seconds, double bar_s)
{
    char text[32];
    table_cell(t, "%s", isfinite(seconds) ? text_seconds(text, sizeof text, seconds) : "-");
    table_cell(t, "%s", isfinite(bar_s) ? text_seconds(text, sizeof text, bar_s) : "-");
}

static enum status print_table(const struct search_case *cases, int n)
{
    static const struct table_column columns[] = {
        {"network", TABLE_LEFT, 0}, {"workers", TABLE_RIGHT, 0}, {"plans", TABLE_RIGHT, 0},
        {"search", TABLE_RIGHT, 0}, {"bar", TABLE_RIGHT, 0},     {"+ pipelines", TABLE_RIGHT, 0},
        {"bar", TABLE_RIGHT, 0},    {"held", TABLE_LEFT, 0}};
    table *t;
    TRY(table_create(columns, 8, &t));
    for (int i = 0; i < n; i++) {
        const struct search_case *c = &cases[i];
        table_cell(t, "%s", c->model);
        table_cell(t, "%d", c->workers);
        table_cell(t, "1e%.0f", c->log10_plans);
        add_time(t, c->layers_s, c->bar_s);
        add_time(t, c->pipelines_s, PIPELINES_BAR * c->bar_s);
        table_cell(t, "%s", !isfinite(c->bar_s) ? "-" : is_held(c) ? "yes" : "no");
    }
    TRY(table_finish(t, stdout));
    printf("\nplans: how many there are of one stage; search: of the best of them, one core\n");
    return STATUS_OK;
}

static json_t *case_json(const struct search_case *c)
{
    return json_pack(
        "{s:s, s:i, s:s, s:I, s:f, s:f, s:o, s:o, s:o, s:i, s:i, s:I, s:f, s:b, s:i, s:b}", "model",
        c->model, "workers", c->workers, "machine", c->machine, "batch", (json_int_t)c->batch,
        "search_s", c->layers_s, "pricing_s", c->pricing_s, "bar_s", output_number(c->bar_s),
        "with_pipelines_s", output_number(c->pipelines_s), "with_pipelines_bar_s",
        output_number(PIPELINES_BAR * c->bar_s), "layers", c->n_layers, "different_layers",
        c->n_priced_layers, "choices", (json_int_t)c->n_choices, "log10_plans", c->log10_plans,
        "optimal", c->optimal, "pipelines", c->n_found, "held", is_held(c));
}

static enum status print_json(const struct search_case *cases, int n, int n_missed)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list, case_json(&cases[i]));
    return output_json(json_pack("{s:o, s:b}", "cases", list, "held", n_missed == 0));
}

/* ---- the command ---- */

enum status command_bench_search(int argc, char **argv)
{
    static struct search_case cases[MAX_CASES];
    struct search_bench o;
    bool help;
    int n, n_missed = 0;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    TRY(read_cases(&o, cases, &n));
    TRY(stop_install());
    for (int i = 0; i < n; i++) {
        TRY(search_case(&o, &cases[i]));
        n_missed += !is_held(&cases[i]);
    }
    log_progress_end();
    TRY(o.json ? print_json(cases, n, n_missed) : print_table(cases, n));
    if (o.check && n_missed > 0)
        return status_fail(STATUS_FAILED, "%d of %d cases take longer than their bar", n_missed, n);
    return STATUS_OK;
}
