/* plan_report.c: the answer of `cleave plan MODEL`, as tables and as JSON. */
#include "base/output.h"
#include "base/text.h"
#include "cli/packed_trace.h"
#include "cli/plan_choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 14 };

static const char *const family_names[FAMILY_COUNT] = {
    [FAMILY_SERIAL] = "serial",      [FAMILY_DATA] = "data",     [FAMILY_OWT] = "owt",
    [FAMILY_HYBRID] = "hybrid",      [FAMILY_MODEL] = "model",   [FAMILY_SPATIAL] = "spatial",
    [FAMILY_SERVER] = "server",      [FAMILY_LAYERS] = "layers", [FAMILY_PIPELINE] = "pipeline",
    [FAMILY_PER_LAYER] = "per layer"};

static double speedup(const struct plan_answer *a, const struct candidate *c)
{
    return a->set->serial >= 0 ? a->set->list[a->set->serial].step_s / c->step_s : NAN;
}

static double guessed_share(const struct plan_answer *a)
{
    int i = a->set->best >= 0 ? a->set->best : a->set->data;
    return i >= 0 ? a->set->list[i].share[COST_ROOFLINE] : 1;
}

/* ---- the table of candidates ---- */

static void print_head(const struct plan_answer *a)
{
    const struct forecast *f = a->chooser->forecast;
    printf("%s on %s, batch %lld, in %s, %d worker%s of %s\n", f->graph->name, f->data.name,
           (long long)f->graph->batch, precision_names[f->options->run.precision],
           a->chooser->n_workers, a->chooser->n_workers == 1 ? "" : "s", f->machine->name);
    if (guessed_share(a) > 0.5)
        printf("unmeasured: times come from the peak figures of the devices\n");
    if (!a->set->complete)
        printf("the search was ended early: the best so far (--limit gives it more time)\n");
    printf("\n");
}

static void add_row(table *t, const struct plan_answer *a, int i)
{
    const struct candidate *c = &a->set->list[i];
    bool clocked = c->state == CANDIDATE_CLOCKED;
    char text[32];
    table_style(t, i == a->set->best ? STYLE_GOOD : clocked && !c->fits ? STYLE_BAD : STYLE_PLAIN);
    table_cell(t, "%s%s", i == a->set->best ? "* " : "  ", c->name);
    table_cell(t, "%s%s", clocked ? "" : "~", text_seconds(text, sizeof text, c->step_s));
    if (clocked)
        table_cell(t, "%.0f %%", 100 * c->error_s / c->step_s);
    else
        table_cell(t, "%s", "");
    table_cell(t, "%s", text_duration(text, sizeof text, chooser_epoch_s(a->chooser, c->step_s)));
    table_cell(t, isfinite(speedup(a, c)) ? "%.2f" : "-", speedup(a, c));
    table_cell(t, "%s", clocked ? text_bytes(text, sizeof text, (double)c->memory_bytes) : "");
    table_cell(t, "%s", clocked ? text_bytes(text, sizeof text, (double)c->bytes_moved) : "");
    table_cell(t, "%s", !clocked ? "" : !c->fits ? "no" : c->stale ? "stale" : "yes");
}

/* The first rows, and of every family the first. */
static bool is_shown(const struct plan_answer *a, int i)
{
    if (a->all || i < MOST_ROWS / 2 || i == a->set->best || i == a->set->data ||
        i == a->set->serial || i == a->edited || i == a->set->fastest)
        return true;
    for (int k = 0; k < i; k++)
        if (a->set->list[k].family == a->set->list[i].family)
            return false;
    return true;
}

static enum status print_candidates(const struct plan_answer *a)
{
    static const struct table_column columns[] = {
        {"  plan", TABLE_LEFT, -14}, {"step", TABLE_RIGHT, 0},  {"+-", TABLE_RIGHT, 0},
        {"epoch", TABLE_RIGHT, 0},   {"speed", TABLE_RIGHT, 0}, {"memory", TABLE_RIGHT, 0},
        {"moved", TABLE_RIGHT, 0},   {"fits", TABLE_LEFT, 0}};
    table *t;
    int left_out = 0;
    TRY(table_create(columns, 8, &t));
    for (int i = 0; i < a->set->n; i++) {
        if (is_shown(a, i))
            add_row(t, a, i);
        else
            left_out++;
    }
    TRY(table_finish(t, stdout));
    printf("\nspeed: against one worker; memory: of the largest one; moved: by all in a step\n");
    printf("~: estimated only, it would not have won; %d more candidate%s%s\n", left_out,
           left_out == 1 ? "" : "s", left_out ? " with --all" : "");
    return STATUS_OK;
}

/* ---- the trial ---- */

static enum status print_tried(const struct plan_answer *a)
{
    static const struct table_column columns[] = {{"  tried, in turns", TABLE_LEFT, 12},
                                                  {"measured", TABLE_RIGHT, 0},
                                                  {"+-", TABLE_RIGHT, 0},
                                                  {"predicted", TABLE_RIGHT, 0}};
    table *t;
    char text[32];
    if (a->set->n_tried == 0)
        return STATUS_OK;
    printf("\n");
    TRY(table_create(columns, 4, &t));
    for (int i = 0; i < a->set->n; i++) {
        const struct candidate *c = &a->set->list[i];
        if (c->tried_s <= 0)
            continue;
        table_cell(t, "%s%s", i == a->set->best ? "* " : "  ", c->name);
        table_cell(t, "%s", text_seconds(text, sizeof text, c->tried_s));
        if (c->tried_noise > 0)
            table_cell(t, "%.1f %%", 100 * c->tried_noise);
        else /* the one that all are compared with, or too few rounds to tell */
            table_cell(t, "%s", "");
        table_cell(t, "%s", text_seconds(text, sizeof text, c->step_s));
    }
    return table_finish(t, stdout);
}

/* ---- the recommendation ---- */

static void print_best(const struct plan_answer *a)
{
    const struct candidate_set *s = a->set;
    const struct candidate *best = &s->list[s->best];
    char text[32], faster[80] = "";
    if (s->data >= 0 && s->data != s->best && s->list[s->data].fits)
        (void)snprintf(faster, sizeof faster, ", %.2f times as fast as data parallelism",
                       candidates_known_s(s, s->data) / candidates_known_s(s, s->best));
    printf("\n");
    output_line(2, "Use %s%s: found in %s.", best->name, faster,
                text_seconds(text, sizeof text, s->search_s));
}

static void print_choice(const struct plan_answer *a)
{
    const struct candidate_set *s = a->set;
    char text[32], other[32];
    if (s->best < 0)
        return;
    const struct candidate *best = &s->list[s->best], *fastest = &s->list[s->fastest];
    print_best(a);
    if (candidates_known_s(s, s->best) > (1 + CANDIDATES_NOISE) * candidates_known_s(s, s->fastest))
        output_line(
            2, "%s would take %s instead of %s: less than the error bar, and it is less simple.",
            fastest->name, text_seconds(text, sizeof text, candidates_known_s(s, s->fastest)),
            text_seconds(other, sizeof other, candidates_known_s(s, s->best)));
    for (int i = 0; i < s->n; i++)
        if (s->list[i].stale && s->list[i].state == CANDIDATE_CLOCKED && s->list[i].fits &&
            s->list[i].step_s < best->step_s) {
            output_line(2, "%s would be faster, but trains with older weights (--allow-stale).",
                        s->list[i].name);
            return;
        }
}

static void print_edit(const struct plan_answer *a)
{
    char text[32], other[32];
    if (a->edited < 0)
        return;
    const struct candidate *edit = &a->set->list[a->edited], *best = &a->set->list[a->set->best];
    printf("%s: %s instead of %s%s.\n", edit->name, text_seconds(text, sizeof text, edit->step_s),
           text_seconds(other, sizeof other, best->step_s),
           edit->fits ? "" : ", and it does not fit");
}

static void print_other_norm(const struct plan_answer *a)
{
    char text[32];
    if (a->other_norm_s <= 0)
        return;
    bool worker = a->set->list[a->set->best].plan->batch_norm == PLAN_NORM_WORKER;
    printf("With --batch-norm %s, %s, its step would take %s.\n", worker ? "batch" : "worker",
           worker ? "statistics of the whole batch" : "statistics of each worker's own samples",
           text_seconds(text, sizeof text, a->other_norm_s));
}

static void add_layers_row(table *t, const struct explained_layers *l, bool stages)
{
    char text[32];
    if (l->n_layers == 1)
        table_cell(t, "%s", l->first);
    else
        table_cell(t, "%s .. %s", l->first, l->last);
    if (stages)
        table_cell(t, "%d", l->stage);
    table_cell(t, "%s", l->cut);
    table_cell(t, "%s", l->seconds >= 0 ? text_seconds(text, sizeof text, l->seconds) : "");
    if (l->other[0])
        table_cell(t, "%s: %c%s", l->other, l->other_s < 0 ? '-' : '+',
                   text_seconds(text, sizeof text, fabs(l->other_s)));
    else
        table_cell(t, "%s", "");
}

static enum status print_layers(const struct plan_answer *a)
{
    static const struct table_column columns[] = {{"layers", TABLE_LEFT, 20},
                                                  {"cut", TABLE_LEFT, 8},
                                                  {"time", TABLE_RIGHT, 0},
                                                  {"cheapest other cut", TABLE_LEFT, 12}};
    static const struct table_column with_stages[] = {{"layers", TABLE_LEFT, 20},
                                                      {"stage", TABLE_RIGHT, 0},
                                                      {"cut", TABLE_LEFT, 8},
                                                      {"time", TABLE_RIGHT, 0},
                                                      {"cheapest other cut", TABLE_LEFT, 12}};
    const struct explanation *e = a->explained;
    bool stages = a->set->list[a->set->best].plan->n_stages > 1;
    table *t;
    printf("\n");
    TRY(table_create(stages ? with_stages : columns, stages ? 5 : 4, &t));
    for (int i = 0; i < e->n_layers; i++)
        add_layers_row(t, &e->layers[i], stages);
    return table_finish(t, stdout);
}

static void print_limits(const struct plan_answer *a)
{
    const struct explained_limits *l = &a->explained->limits;
    double step_s = a->explained->step_s;
    char text[32], limit[32];
    printf("\nLimits:\n");
    printf("  computing  %.0f %% of the step on worker %d", 100 * l->compute_s / step_s, l->worker);
    if (l->layer)
        printf("; %s takes most, %.0f %%", l->layer, 100 * l->layer_s / step_s);
    printf("\n");
    if (a->set->list[a->set->best].plan->n_workers > 1)
        printf("  waiting    %.0f %%; a step would take %s if communication were free\n",
               100 * l->wait_s / step_s, text_seconds(text, sizeof text, l->free_s));
    if (l->link)
        printf("  links      %s is busiest: %.0f %% of the step\n", l->link, 100 * l->link_share);
    if (l->limit_bytes > 0)
        printf("  memory     %s of %s\n", text_bytes(text, sizeof text, (double)l->needed_bytes),
               text_bytes(limit, sizeof limit, (double)l->limit_bytes));
}

enum status plan_print_answer(const struct plan_answer *a)
{
    print_head(a);
    TRY(print_candidates(a));
    TRY(print_tried(a));
    print_choice(a);
    print_edit(a);
    print_other_norm(a);
    if (!a->explained)
        return STATUS_OK;
    TRY(print_layers(a));
    print_limits(a);
    return STATUS_OK;
}

/* ---- JSON ---- */

static json_t *candidate_json(const struct plan_answer *a, const struct candidate *c)
{
    bool clocked = c->state == CANDIDATE_CLOCKED;
    double batch = (double)a->chooser->forecast->graph->batch;
    return json_pack(
        "{s:s, s:s, s:i, s:f, s:o, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:b, s:b, s:o, s:o}", "name",
        c->name, "family", family_names[c->family], "workers", c->plan->n_workers, "step_s",
        c->step_s, "error_s", clocked ? json_real(c->error_s) : json_null(), "estimate_s",
        c->estimate_s, "images_per_s", batch / c->step_s, "epoch_s",
        chooser_epoch_s(a->chooser, c->step_s), "speedup", output_number(speedup(a, c)),
        "memory_bytes", clocked ? json_integer((json_int_t)c->memory_bytes) : json_null(),
        "bytes_moved", clocked ? json_integer((json_int_t)c->bytes_moved) : json_null(), "fits",
        clocked ? json_boolean(c->fits) : json_null(), "clocked", clocked, "stale", c->stale,
        "tried_s", c->tried_s > 0 ? json_real(c->tried_s) : json_null(), "tried_noise",
        c->tried_s > 0 ? json_real(c->tried_noise) : json_null());
}

static json_t *layers_json(const struct explanation *e)
{
    json_t *list = json_array();
    for (int i = 0; e && i < e->n_layers; i++) {
        const struct explained_layers *l = &e->layers[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:i, s:i, s:s, s:o, s:o, s:o}", "first", l->first, "last",
                            l->last, "layers", l->n_layers, "stage", l->stage, "cut", l->cut,
                            "seconds", l->seconds >= 0 ? json_real(l->seconds) : json_null(),
                            "other", l->other[0] ? json_string(l->other) : json_null(),
                            "other_more_s", l->other[0] ? json_real(l->other_s) : json_null()));
    }
    return list;
}

static json_t *limits_json(const struct explanation *e)
{
    if (!e)
        return json_null();
    const struct explained_limits *l = &e->limits;
    return json_pack("{s:i, s:f, s:f, s:f, s:s?, s:f, s:s?, s:f, s:I, s:I}", "worker", l->worker,
                     "compute_s", l->compute_s, "wait_s", l->wait_s, "free_step_s", l->free_s,
                     "layer", l->layer, "layer_s", l->layer_s, "link", l->link, "link_share",
                     l->link_share, "needed_bytes", (json_int_t)l->needed_bytes, "limit_bytes",
                     (json_int_t)l->limit_bytes);
}

static json_t *name_json(const struct plan_answer *a, int i)
{
    return i >= 0 ? json_string(a->set->list[i].name) : json_null();
}

/* What a report needs to show a candidate's network and timeline: "plan" and "timeline". */
static enum status add_details(const struct plan_answer *a, const struct candidate *c,
                               json_t *entry)
{
    struct predict_request r;
    struct prediction *p;
    json_error_t error;
    json_t *line;
    char *text;
    TRY(plan_print(c->plan, a->chooser->forecast->graph, &text));
    json_t *plan = json_loads(text, 0, &error);
    free(text);
    if (json_object_set_new(entry, "plan", plan) != 0)
        return status_no_memory(0);
    TRY(chooser_request(a->chooser, c->plan, &r));
    r.keep_times = true;
    TRY(predict_plan(&r, &p));
    enum status st = packed_trace_json(&r, p, &line);
    prediction_destroy(p);
    TRY(st);
    return json_object_set_new(entry, "timeline", line) == 0 ? STATUS_OK : status_no_memory(0);
}

static bool is_known(const struct candidate *c)
{
    return c->state == CANDIDATE_CLOCKED && c->fits;
}

static bool is_first_of_family(const struct candidate_set *s, int i)
{
    for (int k = 0; k < i; k++)
        if (is_known(&s->list[k]) && s->list[k].family == s->list[i].family)
            return false;
    return true;
}

/* Of the chosen one first, then of the fastest of each family, then of the fastest. */
static enum status add_all_details(const struct plan_answer *a, json_t *list)
{
    const struct candidate_set *s = a->set;
    int done = 0;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < s->n && done < a->details; i++) {
            json_t *entry = json_array_get(list, (size_t)i);
            bool wanted = round == 0 ? i == s->best : round == 2 || is_first_of_family(s, i);
            if (!wanted || !is_known(&s->list[i]) || json_object_get(entry, "plan"))
                continue;
            TRY(add_details(a, &s->list[i], entry));
            done++;
        }
    return STATUS_OK;
}

enum status plan_answer_json(const struct plan_answer *a, json_t **out)
{
    const struct forecast *f = a->chooser->forecast;
    json_t *list = json_array();
    for (int i = 0; i < a->set->n; i++)
        (void)json_array_append_new(list, candidate_json(a, &a->set->list[i]));
    if (a->details > 0) {
        enum status st = add_all_details(a, list);
        if (st != STATUS_OK) {
            json_decref(list);
            return st;
        }
    }
    *out = json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:f, s:b, s:b, s:o, s:o, s:s, s:o}",
        "model", f->graph->name, "data", f->options->data, "batch", (json_int_t)f->graph->batch,
        "precision", precision_names[f->options->run.precision], "machine", f->machine->name,
        "workers", a->chooser->n_workers, "candidates", list, "best", name_json(a, a->set->best),
        "fastest", name_json(a, a->set->fastest), "edit", name_json(a, a->edited), "search_s",
        a->set->search_s, "complete", a->set->complete, "measured", guessed_share(a) <= 0.5,
        "layers", layers_json(a->explained), "limits", limits_json(a->explained), "batch_norm",
        plan_batch_norm_names[a->chooser->options->batch_norm], "other_batch_norm_step_s",
        a->other_norm_s > 0 ? json_real(a->other_norm_s) : json_null());
    return *out ? STATUS_OK : status_no_memory(0);
}

enum status plan_print_answer_json(const struct plan_answer *a)
{
    json_t *answer;
    TRY(plan_answer_json(a, &answer));
    return output_json(answer);
}
