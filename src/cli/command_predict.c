/* command_predict.c: `cleave predict`: the cost of a plan, before it is trained. */
#include "base/log.h"
#include "base/output.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/forecast_options.h"
#include "cli/network_help.h"
#include "cli/options.h"
#include "cli/run_options.h"
#include "cli/strategy_options.h"
#include "cli/subject_options.h"
#include "predict/predicted_trace.h"
#include "predict/prediction_json.h"
#include "runtime/plan_choice.h"
#include "runtime/stop.h"

#include <math.h>
#include <stdlib.h>

struct predict_options {
    const char *model;
    struct forecast_options forecast;
    struct strategy_options split;
    const char *plan, *trace, *merge;
    bool json;
};

static enum status parse(int argc, char **argv, struct predict_options *o, bool *help)
{
    *o = (struct predict_options){.forecast.run = forecast_usual_run};
    const struct option options[] = {
        FORECAST_OPTIONS(&o->forecast),
        OPTION_INTEGER("--workers", "N", &o->split.workers, 1, PLAN_MAX_WORKERS, NULL,
                       "that share the work [1, or what the plan's file says]"),
        OPTION_TEXT("--plan", "PLAN", &o->plan, NULL,
                    "how they share it: a file or one of the names below [serial, or data for "
                    "more than one worker]"),
        STRATEGY_OPTIONS(&o->split),
        RUN_OPTIONS(&o->forecast.run),
        RUN_LIMIT_OPTION(&o->forecast.run),
        OPTION_FLAG("--no-eval", &o->forecast.no_eval, "the run would have no test"),
        OPTION_INTEGER("--eval-batch", "N", &o->forecast.eval_batch, 1, GRAPH_LARGEST_BATCH, NULL,
                       "images in a step of the test [as --batch]"),
        OPTION_TEXT("--trace", "FILE", &o->trace, NULL,
                    "write when each instruction would run; ui.perfetto.dev shows it [nothing is "
                    "written]"),
        OPTION_TEXT("--merge", "MEASURED", &o->merge, NULL,
                    "into the trace also the last step of this one, which 'cleave train --trace' "
                    "wrote [no]"),
        OPTION_FLAG("--json", &o->json, "print JSON"),
        OPTION_END,
    };
    const struct positional positionals[] = {{"MODEL", &o->model, model_or_plan_help()}, {0}};
    static char notes[2048];
    (void)snprintf(notes, sizeof notes, "%s\n%s", data_notes, plan_notes);
    const struct option_set set = {
        .command = "predict",
        .about = "Says what a step of training would take under a plan, on this host or on any\n"
                 "machine: time, memory of every worker, bytes on every link. What a layer costs\n"
                 "on this host is measured, kept and checked. A plan that does not fit into memory "
                 "gets\n"
                 "exit code 3, and what to change.",
        .positionals = positionals,
        .n_optional = 1,
        .options = options,
        .notes = notes,
        .examples = "  cleave predict lenet5 --workers 2 --plan data\n"
                    "  cleave predict best.json\n"
                    "  cleave predict vgg16 --data imagenet --batch 512 --workers 16 \\\n"
                    "      --plan owt --machine 4x4:p100,intra=15GB/s,inter=4.5GB/s\n",
    };
    return options_parse(&set, argc, argv, help);
}

/* ---- printing ---- */

static void print_origins(const struct forecast *f, const struct prediction *p)
{
    char figures[96] = "from the machine's peak figures", text[256];
    if (f->options->calibrate > 0 && !f->local)
        (void)snprintf(figures, sizeof figures, "calibrated: one device alone reaches %g images/s",
                       f->options->calibrate);
    const char *const names[COST_ORIGIN_COUNT] = {NULL, "measured", "fitted to neighbours",
                                                  figures};
    int used = snprintf(text, sizeof text, "  of the computing time");
    const char *between = " ";
    for (int k = 1; k < COST_ORIGIN_COUNT; k++)
        if (p->clock.share[k] > 0) {
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%.0f %% %s", between,
                             100 * p->clock.share[k], names[k]);
            between = ", ";
        }
    if (p->host_error > 0)
        (void)snprintf(text + used, sizeof text - (size_t)used,
                       "; this host's speed varies by %.0f %%", 100 * p->host_error);
    output_line(2, "%s", text);
}

/* A long table has one row for neighbours that are alike to this part of a step, or of their bytes.
 * A short one has them all. */
#define ALIKE 0.01
enum { FEW_ROWS = 8 };

static bool are_near(double a, double b, double all)
{
    return fabs(a - b) <= ALIKE * all;
}

static bool are_alike(const struct prediction *p, int i, int k)
{
    const struct clock_worker_result *a = &p->clock.workers[i], *b = &p->clock.workers[k];
    double run_s = p->clock.step_s * p->programs[0]->n_steps;
    double bytes = (double)predict_worker_bytes(p, i), sent = (double)a->sent_bytes;
    return are_near(a->compute_s, b->compute_s, run_s) &&
           are_near(a->communicate_s, b->communicate_s, run_s) &&
           are_near(a->wait_s, b->wait_s, run_s) &&
           are_near(bytes, (double)predict_worker_bytes(p, k), bytes) &&
           are_near(sent, (double)b->sent_bytes, sent);
}

static enum status print_workers(const struct prediction *p)
{
    static const struct table_column columns[] = {
        {"worker", TABLE_RIGHT, 0}, {"computes", TABLE_RIGHT, 0}, {"communicates", TABLE_RIGHT, 0},
        {"waits", TABLE_RIGHT, 0},  {"memory", TABLE_RIGHT, 0},   {"sends", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, 6, &t));
    int n_steps = p->programs[0]->n_steps;
    bool folds = p->n_workers > FEW_ROWS, folded = false;
    for (int i = 0, alike; i < p->n_workers; i += alike) {
        char text[5][32];
        const struct clock_worker_result *w = &p->clock.workers[i];
        for (alike = 1; folds && i + alike < p->n_workers && are_alike(p, i, i + alike);)
            alike++;
        folded |= alike > 1;
        if (alike > 1)
            table_cell(t, "%d to %d", i, i + alike - 1);
        else
            table_cell(t, "%d", i);
        table_cell(t, "%s", text_seconds(text[0], sizeof text[0], w->compute_s / n_steps));
        table_cell(t, "%s", text_seconds(text[1], sizeof text[1], w->communicate_s / n_steps));
        table_cell(t, "%s", text_seconds(text[2], sizeof text[2], w->wait_s / n_steps));
        table_cell(t, "%s",
                   text_bytes(text[3], sizeof text[3], (double)predict_worker_bytes(p, i)));
        table_cell(t, "%s",
                   text_bytes(text[4], sizeof text[4], (double)w->sent_bytes / (double)n_steps));
    }
    TRY(table_finish(t, stdout));
    if (folded)
        printf("workers that differ by less than 1 %% share a row: the figures of the first\n");
    return STATUS_OK;
}

static void add_memory_row(table *t, const char *name, int64_t of_worker, int64_t of_all, bool all)
{
    char text[32];
    table_cell(t, "%s", name);
    table_cell(t, "%s", text_bytes(text, sizeof text, (double)of_worker));
    if (all)
        table_cell(t, "%s", text_bytes(text, sizeof text, (double)of_all));
}

/* The limit stands in the last column: it is that of the largest worker, which has a device of its
 * own, or of all workers of its host. */
static void add_limit_row(table *t, const struct prediction *p, bool all)
{
    char text[32];
    if (p->tight_worker < 0)
        return;
    table_rule(t);
    table_cell(t, "there are");
    if (all)
        table_cell(t, "%s", "");
    table_cell(t, "%s", text_bytes(text, sizeof text, (double)p->limit_bytes));
}

/* Of the largest worker where the memory is scarcest, and of all workers that share it. */
static enum status print_memory(const struct prediction *p)
{
    bool all = p->n_tight > 1;
    int w = p->n_tight == 1 ? p->tight_worker : p->largest_worker;
    char worker[32], workers[32];
    (void)snprintf(worker, sizeof worker, "worker %d", w);
    (void)snprintf(workers, sizeof workers, "%d workers", p->n_tight);
    const struct table_column columns[] = {
        {"memory", TABLE_LEFT, 0}, {worker, TABLE_RIGHT, 0}, {workers, TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, all ? 3 : 2, &t));
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        add_memory_row(t, buffer_class_name((enum buffer_class)k), p->memory[w][k],
                       p->tight_memory[k], all);
    table_rule(t);
    add_memory_row(t, "all", predict_worker_bytes(p, w), p->needed_bytes, all);
    add_limit_row(t, p, all);
    return table_finish(t, stdout);
}

static bool are_links_alike(const struct forecast *f, const struct prediction *p, int i, int k)
{
    const double *bytes = p->clock.link_bytes;
    return f->machine->links[i].bytes_per_s == f->machine->links[k].bytes_per_s &&
           are_near(bytes[i], bytes[k], bytes[i]);
}

/* The links that are like link i, from it on: how many, and the last; 0: one before it is. */
static int count_links_alike(const struct forecast *f, const struct prediction *p, int i, int *last)
{
    int n = 0;
    for (int k = 0; k < i; k++)
        if (are_links_alike(f, p, k, i))
            return 0;
    for (int k = i; k < f->machine->n_links; k++)
        if (are_links_alike(f, p, i, k)) {
            n++;
            *last = k;
        }
    return n;
}

static enum status print_links(const struct forecast *f, const struct prediction *p)
{
    static const struct table_column columns[] = {{"link", TABLE_LEFT, 10},
                                                  {"bytes in a step", TABLE_RIGHT, 0},
                                                  {"busy", TABLE_RIGHT, 0},
                                                  {"how many", TABLE_RIGHT, 0}};
    const struct machine *m = f->machine;
    int used = 0;
    for (int i = 0; i < m->n_links; i++)
        used += p->clock.link_bytes[i] > 0;
    if (used == 0)
        return STATUS_OK;
    table *t;
    bool folds = used > 2 * FEW_ROWS;
    printf("\n");
    TRY(table_create(columns, folds ? 4 : 3, &t));
    for (int i = 0; i < m->n_links; i++) {
        char text[32];
        int last = i, alike = folds ? count_links_alike(f, p, i, &last) : 1;
        if (p->clock.link_bytes[i] <= 0 || alike == 0)
            continue;
        if (alike > 1)
            table_cell(t, "%s .. %s", m->links[i].name, m->links[last].name);
        else
            table_cell(t, "%s", m->links[i].name);
        table_cell(t, "%s", text_bytes(text, sizeof text, p->clock.link_bytes[i]));
        table_cell(t, "%.0f %%",
                   100 * p->clock.link_bytes[i] / m->links[i].bytes_per_s / p->clock.step_s);
        if (folds)
            table_cell(t, "%d", alike);
    }
    return table_finish(t, stdout);
}

static void print_advice(const struct predict_answer *a)
{
    char memory[32];
    if (a->prediction->too_large_worker < 0)
        return;
    printf("\n");
    for (int i = 0; i < a->n_advice; i++)
        output_line(2, "fits with %s: %s", a->advice[i].change,
                    text_bytes(memory, sizeof memory, (double)a->advice[i].memory_bytes));
    if (a->n_advice == 0)
        output_line(
            0, "no other micro-batches, strategy, batch or number of workers that was tried fits");
}

static enum status print_answer(const struct forecast *f, const struct predict_answer *a)
{
    const struct plan *plan = a->plan;
    const struct prediction *p = a->prediction;
    char step[32], error[32], epoch[32], moved[32];
    printf("%s: %s, batch %lld, in %s, %d worker%s on %s%s\n", plan->name, f->graph->name,
           (long long)f->graph->batch, precision_names[f->options->run.precision], plan->n_workers,
           plan->n_workers == 1 ? "" : "s", f->machine->name,
           p->too_large_worker < 0 ? "" : ": does not fit");
    output_line(2, "  step %s +- %s, %.1f images/s, epoch %s, moves %s",
                text_seconds(step, sizeof step, p->clock.step_s),
                text_seconds(error, sizeof error, p->clock.error_s),
                (double)f->graph->batch / p->clock.step_s,
                text_seconds(epoch, sizeof epoch, predict_epoch_seconds(f, p)),
                text_bytes(moved, sizeof moved, (double)p->clock.bytes_moved));
    print_origins(f, p);
    if (*f->machine->links_note)
        output_line(2, "  %s", f->machine->links_note);
    printf("\n");
    TRY(print_workers(p));
    printf("\n");
    TRY(print_memory(p));
    TRY(print_links(f, p));
    print_advice(a);
    return STATUS_OK;
}

/* ---- the command ---- */

static enum status refuse(const struct prediction *p)
{
    char needed[32], limit[32], workers[64];
    if (p->too_large_worker < 0)
        return STATUS_OK;
    if (p->n_tight == 1)
        (void)snprintf(workers, sizeof workers, "worker %d needs", p->too_large_worker);
    else
        (void)snprintf(workers, sizeof workers, "the %d workers of a host need", p->n_tight);
    return status_fail(STATUS_NO_FIT, "it does not fit: %s %s, there are %s", workers,
                       text_bytes(needed, sizeof needed, (double)p->needed_bytes),
                       text_bytes(limit, sizeof limit, (double)p->limit_bytes));
}

/* For the advice: the network at other batches. */
struct advised {
    struct forecast *forecast;
    const struct plan *plan;
};

static enum status open_batches(void *user, int64_t batch, int64_t eval_batch,
                                struct predict_request *request, void **opened)
{
    const struct advised *a = user;
    struct forecast_batch *b = malloc(sizeof *b);
    if (!b)
        return status_no_memory(sizeof *b);
    int64_t asked = eval_batch ? eval_batch : a->forecast->options->eval_batch;
    enum status st = forecast_open_batches(a->forecast, batch, asked, b);
    if (st != STATUS_OK) {
        free(b);
        return st;
    }
    *request = forecast_request(&b->forecast, a->plan, false);
    *opened = b;
    return STATUS_OK;
}

static void close_batches(void *opened)
{
    forecast_close_batch(opened);
    free(opened);
}

static const char *plan_name(const struct predict_options *o)
{
    return o->plan ? o->plan : o->split.workers > 1 ? "data" : "serial";
}

static enum status advise(struct forecast *f, struct predict_options *o, struct predict_answer *a)
{
    struct advised advised = {.forecast = f, .plan = a->plan};
    struct predict_request request = forecast_request(f, a->plan, false);
    struct advise_request r = {.predict = &request,
                               .strategy = plan_is_file(plan_name(o)) ? NULL : plan_name(o),
                               .open_batches = open_batches,
                               .close_batches = close_batches,
                               .user = &advised};
    TRY(strategy_request(&o->split, o->forecast.machine, &r.how));
    a->n_advice = advise_find(&r, a->advice);
    return STATUS_OK;
}

static enum status answer(struct forecast *f, struct predict_options *o, const struct plan *plan,
                          const struct prediction *p)
{
    struct predict_request request = forecast_request(f, plan, true);
    struct predict_answer a = {.plan = plan, .prediction = p};
    if (o->trace)
        TRY(predicted_trace_write(&request, p, o->trace, o->merge));
    if (p->too_large_worker >= 0)
        TRY(advise(f, o, &a));
    TRY(o->json ? output_json(predict_json(f, &a)) : print_answer(f, &a));
    return refuse(p);
}

/* A plan's file says how many workers there are: it is read before the machine is looked at. */
static enum status choose_plan(const struct forecast *f, struct predict_options *o,
                               struct plan **out)
{
    struct plan_request request;
    TRY(strategy_request(&o->split, o->forecast.machine, &request));
    return plan_choose(plan_name(o), f->graph, &request, out);
}

/* The plan's file says what the command line leaves open. */
static enum status settle(struct predict_options *o, struct subject_file *s)
{
    TRY(subject_open(s, "predict", &o->model, &o->plan));
    TRY(strategy_check_plan(o->plan, o->model, false));
    TRY(subject_take(s, &o->forecast));
    TRY(subject_settle_data(o->model, &o->forecast.data));
    subject_tell(s);
    return STATUS_OK;
}

static enum status predict(struct predict_options *o)
{
    struct forecast f = {0};
    struct graph *graph;
    struct plan *plan = NULL;
    struct prediction *p = NULL;
    enum status st;
    TRY(forecast_build_graph(&o->forecast, o->model, &graph));
    TRY_GOTO(st, forecast_open(&f, &o->forecast), out);
    TRY_GOTO(st, choose_plan(&f, o, &plan), out);
    if (!plan)
        goto out; /* said for the static analyser: choose_plan gives one */
    TRY_GOTO(st, forecast_find_machine(&f, plan->n_workers), out);
    if (!f.profile)
        stop_remove(); /* nothing is measured that should end in good order */
    TRY_GOTO(st, forecast_plan(&f, plan, o->trace != NULL, &p), out);
    st = answer(&f, o, plan, p);
out:
    prediction_destroy(p);
    plan_destroy(plan);
    forecast_close(&f);
    graph_destroy(graph);
    return st;
}

enum status command_predict(int argc, char **argv)
{
    struct predict_options o;
    struct subject_file s = {0};
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    if (o.merge && !o.trace)
        return status_fail(STATUS_USAGE, "--merge needs --trace FILE to write to");
    if (o.trace)
        TRY(whole_file_check_place(o.trace));
    enum status st;
    TRY_GOTO(st, settle(&o, &s), out);
    const char *const inputs[] = {o.merge, o.plan, o.forecast.machine, o.forecast.profile};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        TRY_GOTO(st, whole_file_check_input("--trace", o.trace, inputs[i]), out);
    TRY_GOTO(st, stop_install(), out);
    st = predict(&o);
out:
    subject_close(&s);
    return st;
}
