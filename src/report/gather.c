/* gather.c: reads the paths that a report was given, and puts them together by runs. */
#include "report/gather.h"

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "plan/plan.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = REPORT_PATH_BYTES, LARGEST_MACHINE_BYTES = 1 << 16, HEAD_BYTES = 64 };

/* ---- JSON files ---- */

enum status report_fail_json(const char *path, int line, const json_error_t *error)
{
    return status_fail_content("%s:%d:%d: %s", path, line, error->column, json_error_reason(error));
}

enum status report_load_json(const char *path, json_t **out)
{
    json_error_t error;
    char *text;
    size_t n_bytes = 0;
    TRY(text_read_file(path, "part of a report", &text, &n_bytes));
    *out = json_loadb(text, n_bytes, 0, &error);
    free(text);
    return *out ? STATUS_OK : report_fail_json(path, error.line, &error);
}

static enum status set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0 ? STATUS_OK : status_no_memory(0);
}

/* ---- subjects ---- */

static json_t *subjects_of(json_t *page)
{
    return json_object_get(page, "subjects");
}

static enum status add_subject(json_t *page, const char *name, json_t **out)
{
    *out = json_pack("{s:s, s:[]}", "name", name, "timelines");
    return *out && json_array_append_new(subjects_of(page), *out) == 0 ? STATUS_OK
                                                                       : status_no_memory(0);
}

/* The last subject, unless it has one of these already. */
static enum status find_subject(json_t *page, const char *key, const char *path, json_t **out)
{
    size_t n = json_array_size(subjects_of(page));
    *out = n > 0 ? json_array_get(subjects_of(page), n - 1) : NULL;
    if (*out && !json_object_get(*out, key))
        return STATUS_OK;
    return add_subject(page, path, out);
}

static bool has_timeline(const json_t *subject, const json_t *line)
{
    const char *kind = json_string_value(json_object_get(line, "kind"));
    const json_t *all = json_object_get(subject, "timelines");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(all, i), "kind")), kind) == 0)
            return true;
    return false;
}

static enum status place_timelines(json_t *page, const char *path, const json_t *lines)
{
    size_t n = json_array_size(subjects_of(page));
    json_t *subject = n > 0 ? json_array_get(subjects_of(page), n - 1) : NULL;
    for (size_t i = 0; subject && i < json_array_size(lines); i++)
        if (has_timeline(subject, json_array_get(lines, i)))
            subject = NULL;
    if (!subject)
        TRY(add_subject(page, path, &subject));
    return json_array_extend(json_object_get(subject, "timelines"), (json_t *)lines) == 0
               ? STATUS_OK
               : status_no_memory(0);
}

/* ---- networks and plans ---- */

/* While the paths are read: where the subject's plan came from. */
static const char PLAN_PATH[] = "plan_path";

static enum status add_network(const struct report_request *r, json_t *subject, const char *model,
                               const json_t *of)
{
    struct graph *graph;
    const char *data = json_string_value(json_object_get(of, "data"));
    json_int_t batch = json_integer_value(json_object_get(of, "batch"));
    if (json_object_get(subject, "network"))
        return STATUS_OK;
    TRY(r->build_graph(model, data, (int64_t)batch, r->user, &graph));
    enum status st = set(subject, "network", report_network(graph));
    graph_destroy(graph);
    return st;
}

/* As the program understood it, every layer written out. */
static enum status resolve_plan(const struct plan *plan, const struct graph *graph, json_t *subject)
{
    char *text;
    json_error_t error;
    TRY(plan_print(plan, graph, &text));
    enum status st = set(subject, "plan", json_loads(text, 0, &error));
    free(text);
    if (st == STATUS_OK && !json_object_get(subject, "network"))
        st = set(subject, "network", report_network(graph));
    return st;
}

static enum status add_plan(const struct report_request *r, json_t *page, const char *path)
{
    json_t *subject;
    struct graph *graph;
    struct plan *plan;
    TRY(r->open_plan(path, r->user, &graph, &plan));
    enum status st = find_subject(page, "plan", path, &subject);
    if (st == STATUS_OK)
        st = set(subject, PLAN_PATH, json_string(path));
    if (st == STATUS_OK)
        st = resolve_plan(plan, graph, subject);
    plan_destroy(plan);
    graph_destroy(graph);
    return st;
}

/* ---- files ---- */

/* A JSON file is known by the members it has. */
static const struct {
    const char *key, *members[3];
} kinds[] = {
    {"plan", {"cleave_plan"}},
    {"search", {"candidates"}},
    {"limits", {"fixed", "growing"}},
    {"prediction", {"step_s", "workers", "costs"}},
    {"study", {"points", "machine"}},
    {"machine", {"nodes", "links"}},
    {"config", {"model", "data", "optimizer"}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const char *find_kind(const json_t *root)
{
    for (int i = 0; i < N_KINDS; i++) {
        bool all = true;
        for (int k = 0; k < 3 && kinds[i].members[k]; k++)
            all = all && json_object_get(root, kinds[i].members[k]);
        if (all)
            return kinds[i].key;
    }
    return NULL;
}

/* False: the run left no such file. */
static bool file_in(char path[PATH_BYTES], const char *directory, const char *name, off_t *n_bytes)
{
    struct stat about;
    int n = snprintf(path, PATH_BYTES, "%s/%s", directory, name);
    if (n < 0 || n >= PATH_BYTES || stat(path, &about) != 0)
        return false;
    *n_bytes = about.st_size;
    return true;
}

/* Weights have no times, but the run that they are of has. */
static enum status refuse_weights(const char *path, const char *what)
{
    char directory[PATH_MAX], config[PATH_BYTES];
    off_t n_bytes;
    folder_of(path, directory);
    if (file_in(config, directory, REPORT_CONFIG, &n_bytes))
        return status_fail(STATUS_USAGE,
                           "%s: %s, which no report shows; 'cleave report %s' shows its run", path,
                           what, directory);
    return status_fail(STATUS_USAGE,
                       "%s: %s, which no report shows; give it the directory of a run ('cleave "
                       "train --run DIR' makes one)",
                       path, what);
}

static const char shown_paths[] = " (a run's directory, a plan, or what 'predict', 'plan' or "
                                  "'bench limits' print with --json, or "
                                  "a trace)";

static enum status add_json(const struct report_request *r, json_t *page, const char *path,
                            json_t *root)
{
    const char *kind = find_kind(root), *model;
    json_t *subject;
    if (json_object_get(root, "cleave_checkpoint"))
        return refuse_weights(path, "is a checkpoint");
    if (!kind)
        return status_fail(STATUS_USAGE, "%s: is nothing that a report can show%s", path,
                           shown_paths);
    if (strcmp(kind, "plan") == 0)
        return add_plan(r, page, path);
    TRY(report_check_types(path, kind, root));
    TRY(find_subject(page, kind, path, &subject));
    TRY(set(subject, kind, json_incref(root)));
    model = json_string_value(json_object_get(root, "model"));
    if (strcmp(kind, "prediction") == 0 && model)
        return add_network(r, subject, model, root);
    return STATUS_OK;
}

static enum status add_trace(json_t *page, const char *path)
{
    json_t *lines = json_array();
    enum status st = report_read_trace(path, lines);
    if (st == STATUS_OK)
        st = place_timelines(page, path, lines);
    json_decref(lines);
    return st;
}

static enum status add_events(json_t *page, const char *path)
{
    json_t *subject;
    TRY(find_subject(page, "steps", path, &subject));
    return report_read_events(path, subject);
}

/* Traces and JSON lines are too long to be read as one text: they are known by how they begin. So
 * are files that are no text. */
static enum status read_beginning(const char *path, char head[HEAD_BYTES], size_t *n)
{
    *n = 0;
    FILE *f = fopen(path, "r");
    if (!f)
        return status_fail(STATUS_FAILED, "%s: cannot read: %s", path, strerror(errno));
    *n = fread(head, 1, HEAD_BYTES - 1, f);
    head[*n] = '\0';
    (void)fclose(f);
    return STATUS_OK;
}

static enum status check_text(const char *path, const char *head, size_t n)
{
    /* The format safetensors: the length of its JSON in 8 bytes, and the JSON. */
    if (n > 8 && head[8] == '{' && memchr(head, '\0', 8))
        return refuse_weights(path, "holds weights (safetensors)");
    if (memchr(head, '\0', n))
        return status_fail(STATUS_USAGE, "%s: is no text, and nothing that a report can show%s",
                           path, shown_paths);
    return STATUS_OK;
}

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static enum status add_file(const struct report_request *r, json_t *page, const char *path)
{
    char head[HEAD_BYTES];
    size_t n = 0;
    json_t *root;
    TRY(read_beginning(path, head, &n));
    TRY(check_text(path, head, n));
    if (begins_with(head, "{\"displayTimeUnit\""))
        return add_trace(page, path);
    if (begins_with(head, "{\"event\""))
        return add_events(page, path);
    TRY(report_load_json(path, &root));
    enum status st = add_json(r, page, path, root);
    json_decref(root);
    return st;
}

/* ---- directories ---- */

/* A run that was killed, or that found the disk full, leaves half a file: the rest is shown. */
static enum status leave_out(enum status st)
{
    if (st == STATUS_OK || !status_is_of_content())
        return st;
    log_warn("%s; the report goes without this file", status_message());
    status_clear();
    return STATUS_OK;
}

static enum status read_member(const char *directory, const char *name, const char *key,
                               json_t *subject)
{
    char path[PATH_BYTES];
    json_t *root;
    off_t n_bytes;
    if (!file_in(path, directory, name, &n_bytes) ||
        (strcmp(key, "machine") == 0 && n_bytes > LARGEST_MACHINE_BYTES))
        return STATUS_OK;
    bool ours = strcmp(key, "limits") != 0; /* that one people put there */
    enum status st = report_load_json(path, &root);
    if (st != STATUS_OK)
        return ours ? leave_out(st) : st;
    /* Of another kind the page could draw nothing at all. */
    const char *kind = find_kind(root);
    if (!ours && (!kind || strcmp(kind, key) != 0)) {
        json_decref(root);
        return status_fail(STATUS_FAILED, "%s: is not what 'cleave bench limits --json' prints",
                           path);
    }
    /* A run of another version, or that somebody edited: the page says what is wrong, and draws the
     * rest. */
    if (report_check_types(path, key, root) != STATUS_OK) {
        log_warn("%s; the report goes without this part", status_message());
        status_clear();
    }
    return set(subject, key, root);
}

static enum status read_members(const char *directory, json_t *subject)
{
    static const struct {
        const char *name, *key;
    } members[] = {
        {REPORT_CONFIG, "config"},         {REPORT_VERSIONS, "versions"},
        {REPORT_NETWORK, "network"},       {REPORT_PLAN, "plan"},
        {REPORT_MACHINE, "machine"},       {REPORT_SEARCH, "search"},
        {REPORT_PREDICTION, "prediction"}, {REPORT_LIMITS, "limits"},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        TRY(read_member(directory, members[i].name, members[i].key, subject));
    return STATUS_OK;
}

static enum status add_directory(json_t *page, const char *directory)
{
    char path[PATH_BYTES];
    off_t n_bytes;
    json_t *subject;
    json_t *lines;
    static const char *const traces[] = {REPORT_PREDICTED_TRACE, REPORT_TRACE};
    if (!file_in(path, directory, REPORT_CONFIG, &n_bytes))
        return status_fail(STATUS_USAGE,
                           "%s: is no run's directory, it has no %s ('cleave train --run DIR' "
                           "makes one)",
                           directory, REPORT_CONFIG);
    TRY(add_subject(page, directory, &subject));
    TRY(read_members(directory, subject));
    if (file_in(path, directory, REPORT_EVENTS, &n_bytes))
        TRY(report_read_events(path, subject));
    lines = json_object_get(subject, "timelines");
    for (int i = 0; i < 2; i++)
        if (file_in(path, directory, traces[i], &n_bytes))
            TRY(leave_out(report_read_trace(path, lines)));
    return STATUS_OK;
}

/* ---- the plan that a search chose, where it kept it ---- */

static enum status use_chosen(const struct report_request *r, json_t *subject)
{
    json_t *search = json_object_get(subject, "search"), *chosen = NULL, *entry, *line, *lines;
    const char *best = json_string_value(json_object_get(search, "best")), *name;
    const char *model = json_string_value(json_object_get(search, "model"));
    size_t i;
    json_array_foreach(json_object_get(search, "candidates"), i, entry)
    {
        name = json_string_value(json_object_get(entry, "name"));
        if (best && name && strcmp(name, best) == 0)
            chosen = json_object_get(entry, "plan") ? entry : NULL;
    }
    if (!chosen || !model || json_object_get(subject, "plan"))
        return STATUS_OK;
    TRY(add_network(r, subject, model, search));
    TRY(set(subject, "plan", json_incref(json_object_get(chosen, "plan"))));
    line = json_object_get(chosen, "timeline");
    lines = json_object_get(subject, "timelines");
    if (!json_is_object(line) || json_array_size(lines) > 0)
        return STATUS_OK;
    return json_array_append(lines, line) == 0 ? STATUS_OK : status_no_memory(0);
}

static enum status use_all_chosen(const struct report_request *r, json_t *page)
{
    for (size_t i = 0; i < json_array_size(subjects_of(page)); i++)
        TRY(use_chosen(r, json_array_get(subjects_of(page), i)));
    return STATUS_OK;
}

/* ---- costs of plans that came alone ---- */

static enum status add_forecast(const struct report_request *r, json_t *subject, const char *path)
{
    json_t *prediction = NULL, *timeline = NULL;
    if (r->forecast(path, r->user, &prediction, &timeline) == STATUS_OK) {
        bool added = !timeline ||
                     json_array_append_new(json_object_get(subject, "timelines"), timeline) == 0;
        TRY(set(subject, "prediction", prediction));
        return added ? STATUS_OK : status_no_memory(0);
    }
    log_warn("%s: its costs are not in the report: %s", path, status_message());
    status_clear();
    return STATUS_OK;
}

static enum status forecast_plans(const struct report_request *r, json_t *page)
{
    for (size_t i = 0; i < json_array_size(subjects_of(page)); i++) {
        json_t *subject = json_array_get(subjects_of(page), i);
        const char *path = json_string_value(json_object_get(subject, PLAN_PATH));
        bool alone = json_array_size(json_object_get(subject, "timelines")) == 0 &&
                     !json_object_get(subject, "prediction");
        if (path && alone && r->forecast)
            TRY(add_forecast(r, subject, path));
        (void)json_object_del(subject, PLAN_PATH);
    }
    return STATUS_OK;
}

/* ---- traffic of the other strategies ---- */

/* The first of the subject's parts that has it; of a plan, in what it was made for, too. */
static json_t *find_in(const json_t *subject, const char *const *parts, const char *key)
{
    for (; *parts; parts++) {
        const json_t *part = json_object_get(subject, *parts);
        json_t *value = json_object_get(part, key);
        if (!value)
            value = json_object_get(json_object_get(part, "made_for"), key);
        if (value && !json_is_null(value))
            return value;
    }
    return NULL;
}

static enum status add_traffic(const struct report_request *r, json_t *subject)
{
    static const char *const parts[] = {"config", "prediction", "plan", NULL};
    json_t *list = NULL, *workers = find_in(subject, parts, "workers");
    const char *model = json_string_value(find_in(subject, parts, "model"));
    const char *data = json_string_value(find_in(subject, parts, "data"));
    if (!json_is_integer(workers))
        workers = find_in(subject, parts, "n_workers");
    if (!model || json_integer_value(workers) < 2 || json_object_get(subject, "search"))
        return STATUS_OK;
    int64_t batch = json_integer_value(find_in(subject, parts, "batch"));
    enum status st =
        r->count_traffic(model, data, batch, (int)json_integer_value(workers), r->user, &list);
    if (st == STATUS_OK)
        return set(subject, "strategies", list);
    json_decref(list);
    status_clear(); /* a network of another program, data that are not here: one chart less */
    return STATUS_OK;
}

static enum status add_traffics(const struct report_request *r, json_t *page)
{
    for (size_t i = 0; r->count_traffic && i < json_array_size(subjects_of(page)); i++)
        TRY(add_traffic(r, json_array_get(subjects_of(page), i)));
    return STATUS_OK;
}

/* ---- the whole ---- */

/* Names of files are bytes, those of a page are text. */
static enum status check_name(const char *path)
{
    json_t *name = json_string(path);
    if (!name)
        return status_fail(STATUS_USAGE,
                           "%s: this name is no UTF-8, as a page needs it: rename it, or go there "
                           "and name its contents",
                           path);
    json_decref(name);
    return STATUS_OK;
}

/* The page must not replace what it is made of. */
static enum status check_output(const struct report_request *request, const char *path,
                                bool directory)
{
    static const char *const names[] = {
        REPORT_CONFIG,  REPORT_VERSIONS,        REPORT_NETWORK,    REPORT_PLAN,
        REPORT_MACHINE, REPORT_SEARCH,          REPORT_PREDICTION, REPORT_LIMITS,
        REPORT_EVENTS,  REPORT_PREDICTED_TRACE, REPORT_TRACE};
    char member[PATH_BYTES];
    off_t n_bytes;
    if (!directory)
        return whole_file_check_input("-o", request->output, path);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (file_in(member, path, names[i], &n_bytes))
            TRY(whole_file_check_input("-o", request->output, member));
    return STATUS_OK;
}

enum status report_gather(const struct report_request *request, json_t *page)
{
    TRY(set(page, "subjects", json_array()));
    for (int i = 0; i < request->n_paths; i++) {
        struct stat about;
        const char *path = request->paths[i];
        TRY(check_name(path));
        if (stat(path, &about) != 0)
            return status_fail(STATUS_FAILED, "%s: cannot read: %s", path, strerror(errno));
        TRY(check_output(request, path, S_ISDIR(about.st_mode)));
        TRY(S_ISDIR(about.st_mode) ? add_directory(page, path) : add_file(request, page, path));
    }
    TRY(use_all_chosen(request, page));
    TRY(forecast_plans(request, page));
    return add_traffics(request, page);
}
