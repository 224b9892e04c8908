/* command_report.c: `cleave report`: plans, predictions and runs as one HTML file
 * (report/report.h). */
#include "report/report.h"

#include "base/log.h"
#include "base/output.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/forecast_options.h"
#include "cli/network_help.h"
#include "cli/options.h"
#include "cli/packed_trace.h"
#include "cli/subject_options.h"
#include "predict/prediction_json.h"
#include "predict/strategy_traffic.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATHS = 64 };

struct report_options {
    int n_paths;
    const char *paths[MAX_PATHS];
    const char *output, *data, *machine;
    int64_t batch;
    bool json;
};

static enum status parse(int argc, char **argv, struct report_options *o, bool *help)
{
    *o = (struct report_options){0};
    const struct option options[] = {
        OPTION_TEXT("-o", "FILE", &o->output, "report.html", "where it goes"),
        OPTION_TEXT("--data", "SPEC", &o->data, NULL,
                    "for a plan's file: other data than those that it says it was made for"),
        OPTION_INTEGER("--batch", "N", &o->batch, 1, GRAPH_LARGEST_BATCH, "128",
                       "likewise: images in a step"),
        OPTION_TEXT("--machine", "MACHINE", &o->machine, "local",
                    "likewise: what it is predicted for, from costs that are known; local, a file, "
                    "or a string such as 4x4:p100"),
        OPTION_FLAG("--json", &o->json, "print JSON: the file and its size"),
        OPTION_END,
    };
    const struct positional none[] = {{0}};
    const struct positional_list list = {.name = "PATH",
                                         .help = "a run's directory, a plan, a trace, or what "
                                                 "predict, plan or bench limits print with --json",
                                         .targets = o->paths,
                                         .most = MAX_PATHS,
                                         .n = &o->n_paths};
    const struct option_set set = {
        .command = "report",
        .about = "Writes one HTML file that opens offline: candidates, the network and its cuts,\n"
                 "timelines, memory, traffic, scaling, losses, and the limits of the run. Several\n"
                 "runs are compared. Files belong to the run before them, or stand together.",
        .positionals = none,
        .list = &list,
        .options = options,
        .examples = "  cleave report runs/lenet5-001\n"
                    "  cleave report runs/lenet5-001 runs/lenet5-002 -o compared.html\n"
                    "  cleave predict vgg16 --data imagenet --workers 16 --plan owt \\\n"
                    "      --machine 4x4:p100 --trace t.json --json > p.json\n"
                    "  cleave report p.json t.json\n",
    };
    return options_parse(&set, argc, argv, help);
}

static enum status build_graph(const char *model, const char *data, int64_t batch, void *user,
                               struct graph **out)
{
    const struct report_options *o = user;
    struct dataset_info info;
    if (!data)
        data = o->data;
    TRY(subject_settle_data(model, &data));
    return subject_build(model, data, batch > 0 ? batch : o->batch, -1, &info, out);
}

/* ---- a plan ---- */

/* What its file says, unless the command line says something else. */
struct opened_plan {
    struct subject_file subject;
    struct forecast_options options;
    struct graph *graph;
};

static enum status open_subject(const struct report_options *o, const char *path,
                                struct opened_plan *p)
{
    const char *model = NULL;
    p->options = (struct forecast_options){.data = o->data,
                                           .machine = o->machine,
                                           .batch = o->batch,
                                           .run = forecast_usual_run,
                                           .measure.look_only = true,
                                           .quiet = true};
    TRY(subject_open(&p->subject, "predict", &model, &path));
    TRY(subject_take(&p->subject, &p->options));
    TRY(subject_settle_data(model, &p->options.data));
    return forecast_build_graph(&p->options, model, &p->graph);
}

static void close_subject(struct opened_plan *p)
{
    graph_destroy(p->graph);
    subject_close(&p->subject);
}

static enum status open_plan(const char *path, void *user, struct graph **graph, struct plan **plan)
{
    struct opened_plan p = {0};
    enum status st = open_subject(user, path, &p);
    if (st == STATUS_OK)
        st = plan_read(path, p.graph, plan);
    if (st == STATUS_OK) {
        subject_tell(&p.subject);
        *graph = p.graph;
        p.graph = NULL;
    }
    close_subject(&p);
    return st;
}

/* ---- its costs, where it came alone ---- */

static enum status predict_with(struct forecast *f, const struct plan *plan, json_t **out,
                                json_t **timeline)
{
    struct prediction *p;
    TRY(forecast_plan(f, plan, true, &p));
    const struct predict_answer answer = {.plan = plan, .prediction = p};
    struct predict_request request = forecast_request(f, plan, true);
    enum status st = packed_trace_json(&request, p, timeline);
    if (st == STATUS_OK)
        *out = predict_json(f, &answer);
    prediction_destroy(p);
    return st;
}

/* The plan says how many workers share this host, so it is read before the machine is looked at. */
static enum status forecast(const char *path, void *user, json_t **answer, json_t **timeline)
{
    struct opened_plan p = {0};
    struct forecast f = {0};
    struct plan *plan = NULL;
    enum status st;
    TRY_GOTO(st, open_subject(user, path, &p), out);
    TRY_GOTO(st, forecast_open(&f, &p.options), out);
    TRY_GOTO(st, plan_read(path, f.graph, &plan), out);
    TRY_GOTO(st, forecast_find_machine(&f, plan->n_workers), out);
    st = predict_with(&f, plan, answer, timeline);
out:
    plan_destroy(plan);
    forecast_close(&f);
    close_subject(&p);
    return st;
}

/* ---- traffic of the other strategies ---- */

static enum status count_traffic(const char *model, const char *data, int64_t batch, int n_workers,
                                 void *user, json_t **out)
{
    struct graph *graph;
    TRY(build_graph(model, data, batch, user, &graph));
    enum status st = strategy_traffic(graph, n_workers, out);
    graph_destroy(graph);
    return st;
}

static enum status print_result(const struct report_options *o)
{
    struct stat about;
    char size[32];
    if (stat(o->output, &about) != 0)
        return status_fail(STATUS_FAILED, "%s: cannot read: %s", o->output, strerror(errno));
    if (o->json)
        return output_json(
            json_pack("{s:s, s:I}", "report", o->output, "bytes", (json_int_t)about.st_size));
    printf("%s: %s; open it in a browser\n", o->output,
           text_bytes(size, sizeof size, (double)about.st_size));
    return STATUS_OK;
}

/* ---- a folder of runs in the place of one ---- */

static time_t run_time(const char *directory)
{
    char path[PATH_MAX + 32];
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/%s", directory, REPORT_CONFIG);
    return stat(path, &about) == 0 ? about.st_mtime : 0;
}

/* The run that was begun last among the folders of this one; "" if there is none. */
static void find_last_run(DIR *folder, const char *path, char *last, size_t size)
{
    time_t latest = 0;
    last[0] = '\0';
    for (const struct dirent *e; (e = readdir(folder));) {
        char run[PATH_MAX];
        int n = snprintf(run, sizeof run, "%s/%s", path, e->d_name);
        time_t began = e->d_name[0] != '.' && n > 0 && n < PATH_MAX ? run_time(run) : 0;
        if (began > latest) {
            latest = began;
            (void)snprintf(last, size, "%s", run);
        }
    }
}

static enum status check_path(const char *path)
{
    char last[PATH_MAX];
    DIR *folder = run_time(path) ? NULL : opendir(path);
    if (!folder && access(path, F_OK) != 0 && errno == ENOENT)
        return status_fail(STATUS_FAILED,
                           "%s: cannot read: %s ('cleave train' keeps its runs in the folder runs)",
                           path, strerror(errno));
    if (!folder)
        return STATUS_OK;
    find_last_run(folder, path, last, sizeof last);
    (void)closedir(folder);
    if (!last[0])
        return STATUS_OK;
    return status_fail(
        STATUS_USAGE, "%s: holds runs, but is none: 'cleave report %s' shows the last", path, last);
}

enum status command_report_page(int argc, char **argv)
{
    struct report_options o;
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    const struct report_request request = {.n_paths = o.n_paths,
                                           .paths = o.paths,
                                           .output = o.output,
                                           .build_graph = build_graph,
                                           .open_plan = open_plan,
                                           .forecast = forecast,
                                           .count_traffic = count_traffic,
                                           .user = &o};
    for (int i = 0; i < o.n_paths; i++)
        TRY(check_path(o.paths[i]));
    TRY(whole_file_check_place(o.output));
    TRY(report_write(&request));
    return print_result(&o);
}
