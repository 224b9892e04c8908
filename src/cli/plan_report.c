/* plan_report.c: the answer of `cleave plan MODEL`, as tables and as JSON. */
#include "base/output.h"
#include "base/text.h"
#include "cli/packed_trace.h"
#include "cli/plan_choose.h"
#include "search/title.h"

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
    if (guessed_share(a) > 0.5 && f->options->calibrate > 0)
        printf("calibrated: the devices' figures, scaled so that one reaches %g images/s\n",
               f->options->calibrate);
    else if (guessed_share(a) > 0.5)
        printf("unmeasured: times come from the peak figures of the devices\n");
    if (*f->machine->links_note)
        output_line(2, "%s", f->machine->links_note);
    if (!a->set->complete)
        printf("the search was ended early: the best so far (--limit gives it more time)\n");
    printf("\n");
}

static const char *title(const struct plan_answer *a, int i, char text[CANDIDATE_TITLE_BYTES])
{
    return candidate_title(&a->set->list[i], a->chooser->n_workers, text);
}

static void add_row(table *t, const struct plan_answer *a, int i)
{
    const struct candidate *c = &a->set->list[i];
    bool clocked = c->state == CANDIDATE_CLOCKED;
    char text[32], name[CANDIDATE_TITLE_BYTES];
    table_style(t, i == a->set->best ? STYLE_GOOD : clocked && !c->fits ? STYLE_BAD : STYLE_PLAIN);
    table_cell(t, "%s%s", i == a->set->best ? "* " : "  ", title(a, i, name));
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

/* Those that the answer speaks of; of the others the first rows, and of every family the first;
 * near-duplicates are one row. */
static void choose_rows(const struct plan_answer *a, bool *shown)
{
    const struct candidate_set *s = a->set;
    int n_shown = 0;
    for (int i = 0; i < s->n; i++) {
        bool family = false, kin = false;
        for (int k = 0; k < i; k++) {
            family |= s->list[k].family == s->list[i].family;
            kin |= shown[k] && candidates_are_kin(&s->list[k], &s->list[i]);
        }
        bool named =
            i == s->best || i == s->data || i == s->serial || i == a->edited || i == s->fastest;
        shown[i] = a->all || named || (!kin && (!family || n_shown < MOST_ROWS / 2));
        n_shown += shown[i];
    }
}

/* The words that the shown titles have. */
static void print_legend(const struct plan_answer *a, const bool *shown)
{
    char line[2048] = "", name[CANDIDATE_TITLE_BYTES];
    for (const struct title_word *w = title_words; w->word; w++)
        for (int i = 0; i < a->set->n; i++)
            if (shown[i] && i != a->edited && strstr(title(a, i, name), w->word)) {
                size_t used = strlen(line);
                (void)snprintf(line + used, sizeof line - used, "%s%s", used ? "; " : "",
                               w->meaning);
                break;
            }
    output_line(0, "%s", line);
}

static enum status print_candidates(const struct plan_answer *a)
{
    static const struct table_column columns[] = {
        {"  plan", TABLE_LEFT, -14}, {"step", TABLE_RIGHT, 0},  {"+-", TABLE_RIGHT, 0},
        {"epoch", TABLE_RIGHT, 0},   {"speed", TABLE_RIGHT, 0}, {"memory", TABLE_RIGHT, 0},
        {"moved", TABLE_RIGHT, 0},   {"fits", TABLE_LEFT, 0}};
    table *t;
    bool *shown;
    int left_out = 0;
    TRY(arena_alloc_array(a->set->memory, (size_t)a->set->n, sizeof *shown, &shown));
    choose_rows(a, shown);
    TRY(table_create(columns, 8, &t));
    for (int i = 0; i < a->set->n; i++) {
        if (shown[i])
            add_row(t, a, i);
        else
            left_out++;
    }
    TRY(table_finish(t, stdout));
    printf("\n");
    print_legend(a, shown);
    printf("speed: against one worker; memory: of the largest one; moved: by all in a step\n");
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
    char text[32], name[CANDIDATE_TITLE_BYTES];
    if (a->set->n_tried == 0)
        return STATUS_OK;
    printf("\n");
    TRY(table_create(columns, 4, &t));
    for (int i = 0; i < a->set->n; i++) {
        const struct candidate *c = &a->set->list[i];
        if (c->tried_s <= 0)
            continue;
        table_cell(t, "%s%s", i == a->set->best ? "* " : "  ", title(a, i, name));
        table_cell(t, "%s", text_seconds(text, sizeof text, c->tried_s));
        if (c->tried_noise > 0)
            table_cell(t, "%.1f %%", 100 * c->tried_noise);
        else /* the one that all are compared with, or too few rounds to tell */
            table_cell(t, "%s", "");
        table_cell(t, "%s", text_seconds(text, sizeof text, c->step_s));
    }
    TRY(table_finish(t, stdout));
    for (int i = 0; i < a->set->n; i++) {
        const struct candidate *c = &a->set->list[i];
        char before[32];
        if (c->doubted_s > 0)
            output_line(2,
                        "%s: predicted %s, but the trial took %s: its costs were measured again.",
                        title(a, i, name), text_seconds(before, sizeof before, c->doubted_s),
                        text_seconds(text, sizeof text, c->tried_s));
    }
    return STATUS_OK;
}

/* ---- the recommendation ---- */

/* Of a step, by which the figure of a candidate may be off, less what all plans on this host have
 * in common. */
static double own_error_s(const struct candidate *c)
{
    double common_s = c->host_error * c->step_s;
    return c->tried_s > 0 ? c->tried_noise * c->tried_s
                          : sqrt(fmax(0, c->error_s * c->error_s - common_s * common_s));
}

static void print_best(const struct plan_answer *a)
{
    const struct candidate_set *s = a->set;
    const struct candidate *best = &s->list[s->best];
    char text[32], faster[160] = "", name[CANDIDATE_TITLE_BYTES];
    if (s->data >= 0 && s->data != s->best && s->list[s->data].fits) {
        const struct candidate *data = &s->list[s->data];
        double best_s = candidates_known_s(s, s->best), data_s = candidates_known_s(s, s->data);
        bool sure = data_s - best_s > hypot(own_error_s(best), own_error_s(data));
        char on[32] = "";
        if (best->family == FAMILY_DATA)
            (void)snprintf(on, sizeof on, " on %d workers", data->plan->n_workers);
        (void)snprintf(faster, sizeof faster, ", %.2f times as fast as data parallelism%s%s",
                       data_s / best_s, on,
                       sure ? "" : " but not surely faster (the error bars overlap)");
    }
    printf("\n");
    output_line(2, "Use %s%s: found in %s.", title(a, s->best, name), faster,
                text_seconds(text, sizeof text, s->search_s));
}

static void print_eval_batch(const struct plan_answer *a)
{
    if (a->chooser->eval_batch)
        output_line(2, "Give its run --eval-batch %lld: a test of %lld at a time does not fit.",
                    (long long)a->chooser->eval_batch,
                    (long long)a->chooser->forecast->eval->batch);
}

static void print_choice(const struct plan_answer *a)
{
    const struct candidate_set *s = a->set;
    char text[32], other[32], name[CANDIDATE_TITLE_BYTES];
    if (s->best < 0)
        return;
    const struct candidate *best = &s->list[s->best];
    print_best(a);
    print_eval_batch(a);
    if (candidates_known_s(s, s->best) > (1 + CANDIDATES_NOISE) * candidates_known_s(s, s->fastest))
        output_line(
            2, "%s would take %s instead of %s: less than the error bar, and it is less simple.",
            title(a, s->fastest, name),
            text_seconds(text, sizeof text, candidates_known_s(s, s->fastest)),
            text_seconds(other, sizeof other, candidates_known_s(s, s->best)));
    for (int i = 0; i < s->n; i++)
        if (s->list[i].stale && s->list[i].state == CANDIDATE_CLOCKED && s->list[i].fits &&
            s->list[i].step_s < best->step_s) {
            output_line(2, "%s would be faster, but trains with older weights (--allow-stale).",
                        title(a, i, name));
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
    char text[CANDIDATE_TITLE_BYTES];
    return json_pack(
        "{s:s, s:s, s:s, s:i, s:f, s:o, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:b, s:b, s:o, s:o, "
        "s:o}",
        "name", c->name, "title", candidate_title(c, a->chooser->n_workers, text), "family",
        family_names[c->family], "workers", c->plan->n_workers, "step_s", c->step_s, "error_s",
        clocked ? json_real(c->error_s) : json_null(), "estimate_s", c->estimate_s, "images_per_s",
        batch / c->step_s, "epoch_s", chooser_epoch_s(a->chooser, c->step_s), "speedup",
        output_number(speedup(a, c)), "memory_bytes",
        clocked ? json_integer((json_int_t)c->memory_bytes) : json_null(), "bytes_moved",
        clocked ? json_integer((json_int_t)c->bytes_moved) : json_null(), "fits",
        clocked ? json_boolean(c->fits) : json_null(), "clocked", clocked, "stale", c->stale,
        "tried_s", c->tried_s > 0 ? json_real(c->tried_s) : json_null(), "tried_noise",
        c->tried_s > 0 ? json_real(c->tried_noise) : json_null(), "doubted_s",
        c->doubted_s > 0 ? json_real(c->doubted_s) : json_null());
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
        "{s:s, s:s, s:I, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:f, s:b, s:b, s:o, s:o, s:s, s:o, "
        "s:s, "
        "s:o}",
        "model", f->graph->name, "data", f->options->data, "batch", (json_int_t)f->graph->batch,
        "precision", precision_names[f->options->run.precision], "machine", f->machine->name,
        "workers", a->chooser->n_workers, "candidates", list, "best", name_json(a, a->set->best),
        "fastest", name_json(a, a->set->fastest), "edit", name_json(a, a->edited), "search_s",
        a->set->search_s, "complete", a->set->complete, "measured", guessed_share(a) <= 0.5,
        "layers", layers_json(a->explained), "limits", limits_json(a->explained), "batch_norm",
        plan_batch_norm_names[a->chooser->options->batch_norm], "other_batch_norm_step_s",
        a->other_norm_s > 0 ? json_real(a->other_norm_s) : json_null(), "links_note",
        f->machine->links_note, "eval_batch",
        a->chooser->eval_batch ? json_integer((json_int_t)a->chooser->eval_batch) : json_null());
    return *out ? STATUS_OK : status_no_memory(0);
}

enum status plan_print_answer_json(const struct plan_answer *a)
{
    json_t *answer;
    TRY(plan_answer_json(a, &answer));
    return output_json(answer);
}
