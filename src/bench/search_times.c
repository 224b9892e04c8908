/* search_times.c: how long the search for a plan takes, on one core, with costs known. Beside the
 * times stand the bars that are held, where there is one. */
#include "base/log.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/timer.h"
#include "bench/bench.h"
#include "machine/machine.h"
#include "predict/subject.h"
#include "runtime/stop.h"
#include "search/pipelines.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_CASES = 64,
    MAX_ROUNDS = BENCH_MAX_ROUNDS,
    MAX_KINDS = 8,
    MOST_FOUND = 12,
    NAME_BYTES = 64
};

static const char all_cases[] = "lenet5:4,alexnet:4,vgg16:4,inceptionv3:4,inceptionv3:16,"
                                "inceptionv3:64,inceptionv3:1024";

/* Times to keep on one core; with pipelines ten times as much. */
static const struct {
    const char *model;
    int workers;
    double seconds;
} bars[] = {{"lenet5", 4, 0.002},      {"alexnet", 4, 0.005},    {"vgg16", 4, 0.010},
            {"inceptionv3", 4, 0.050}, {"inceptionv3", 16, 0.5}, {"inceptionv3", 64, 5},
            {"inceptionv3", 1024, 60}};
static const double PIPELINES_BAR = 10;

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

/* ---- the cases ---- */

static double find_bar(const char *model, int workers)
{
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++)
        if (bars[i].workers == workers && strcmp(bars[i].model, model) == 0)
            return bars[i].seconds;
    return NAN;
}

/* "vgg16:4". Of a machine's workers as many stand on a node as divide them. */
static enum status read_case(const struct bench_search *o, char *word, struct search_case *c)
{
    int64_t workers, per_node = o->per_node;
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

static enum status read_cases(const struct bench_search *o, struct search_case *cases, int *n)
{
    const char *list = o->cases ? o->cases : all_cases;
    char word[2 * NAME_BYTES];
    for (*n = 0; text_next_word(&list, word, sizeof word); ++*n) {
        if (*n == MAX_CASES || strlen(word) >= NAME_BYTES)
            return status_fail(STATUS_USAGE, "--cases takes at most %d cases", MAX_CASES);
        TRY(read_case(o, word, &cases[*n]));
    }
    return STATUS_OK;
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

static enum status search_rounds(const struct bench_search *o,
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
    c->layers_s = numbers_median(layers_s, n);
    c->pipelines_s = numbers_median(all_s, n);
    return STATUS_OK;
}

static enum status search_case(const struct bench_search *o, struct search_case *c)
{
    bool small = strcmp(c->model, "lenet5") == 0 || strcmp(c->model, "mlp") == 0;
    struct cost_source sources[MAX_KINDS] = {0};
    struct dataset_info data;
    struct graph *graph;
    struct machine *m = NULL;
    TRY(subject_build(c->model, small ? "synthetic:mnist" : "synthetic:imagenet", c->batch, -1,
                      &data, &graph));
    enum status st = machine_parse(c->machine, &m);
    if (st == STATUS_OK) {
        for (int i = 0; i < m->n_kinds && i < MAX_KINDS; i++)
            sources[i].kind = &m->kinds[i];
        struct pricing_request pricing = {.graph = graph,
                                          .machine = m,
                                          .transport = "threads",
                                          .sources = sources,
                                          .n_workers = c->workers,
                                          .n_states = 1};
        st = search_rounds(o, &pricing, c);
        machine_destroy(m);
    }
    graph_destroy(graph);
    return st;
}

/* ---- results ---- */

static bool is_held(const struct search_case *c)
{
    return !(c->layers_s > c->bar_s) && !(c->pipelines_s > PIPELINES_BAR * c->bar_s);
}

static void report(const struct search_case *cases, int n, int n_missed, struct results *r)
{
    static const struct field fields[] = {{"network", "model", NULL, 0, 0},
                                          {"workers", "workers", ">", 0, 0},
                                          HIDDEN("machine"),
                                          HIDDEN("batch"),
                                          {"plans", "log10_plans", "1e%.0f", 0, 0},
                                          {"search", "search_s", "seconds", 0, 0},
                                          HIDDEN("pricing_s"),
                                          {"bar", "bar_s", "seconds", 0, 0},
                                          {"+ pipelines", "with_pipelines_s", "seconds", 0, 0},
                                          {"bar", "with_pipelines_bar_s", "seconds", 0, 0},
                                          HIDDEN("layers"),
                                          HIDDEN("different_layers"),
                                          HIDDEN("choices"),
                                          HIDDEN("optimal"),
                                          HIDDEN("pipelines"),
                                          HIDDEN("held"),
                                          {"held", NULL, NULL, 0, 0},
                                          {0}};
    results_table(r, "cases", fields, FOR_ALL);
    for (int i = 0; i < n; i++) {
        const struct search_case *c = &cases[i];
        RESULTS_ROW(r, v_text(c->model), v_int(c->workers), v_text(c->machine), v_int(c->batch),
                    v_real(c->log10_plans), v_real(c->layers_s), v_real(c->pricing_s),
                    v_real(c->bar_s), v_real(c->pipelines_s), v_real(PIPELINES_BAR * c->bar_s),
                    v_int(c->n_layers), v_int(c->n_priced_layers), v_int(c->n_choices),
                    v_flag(c->optimal), v_int(c->n_found), v_flag(is_held(c)),
                    v_text(!isfinite(c->bar_s) ? NULL
                           : is_held(c)        ? "yes"
                                               : "no"));
    }
    results_table_end(r);
    results_put(r, "held", v_flag(n_missed == 0));
    results_say(r, 0, "%s", "");
    results_say(r, 0,
                "plans: how many there are of one stage; search: of the best of them, one core");
    results_event(r, NULL);
}

enum status bench_search(const struct bench_search *o, struct results *r)
{
    static struct search_case cases[MAX_CASES];
    int n, n_missed = 0;
    TRY(read_cases(o, cases, &n));
    TRY(stop_install());
    for (int i = 0; i < n; i++) {
        TRY(search_case(o, &cases[i]));
        n_missed += !is_held(&cases[i]);
    }
    log_progress_end();
    report(cases, n, n_missed, r);
    if (o->check && n_missed > 0)
        return status_fail(STATUS_FAILED, "%d of %d cases take longer than their bar", n_missed, n);
    return STATUS_OK;
}
