/* What came out: errors, noise, the order of the plans; as tables and as JSON lines. */
#include "base/numbers.h"
#include "base/text.h"
#include "base/timer.h"
#include "cli/bench.h"
#include "cli/bench_accuracy.h"
#include "cli/output.h"

#include <math.h>
#include <string.h>

static const double near_enough = 0.02; /* a plan so much slower than the fastest is as good */

/* ---- figures of a case ---- */

double accuracy_median(const double *values, int n)
{
    double sorted[ACCURACY_MAX_ROUNDS];
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    numbers_sort(sorted, n);
    return numbers_quantile(sorted, n, 0.5);
}

double accuracy_measured_s(const struct accuracy_case *c)
{
    int64_t sorted[ACCURACY_MAX_ROUNDS];
    memcpy(sorted, c->rounds_ns, sizeof sorted);
    return c->n_rounds ? (double)bench_median(sorted, c->n_rounds) * 1e-9 : 0;
}

static double error_of_round(const struct accuracy_case *c, int i)
{
    return c->predicted_rounds_s[i] / ((double)c->rounds_ns[i] * 1e-9) - 1;
}

double accuracy_error(const struct accuracy_case *c)
{
    double errors[ACCURACY_MAX_ROUNDS] = {0};
    for (int i = 0; i < c->n_rounds; i++)
        errors[i] = error_of_round(c, i);
    return c->n_rounds ? accuracy_median(errors, c->n_rounds) : 0;
}

double accuracy_doubt(const struct accuracy_case *c)
{
    double n = c->n_rounds, sum = 0, squares = 0;
    if (n < 2)
        return INFINITY;
    for (int i = 0; i < c->n_rounds; i++)
        sum += error_of_round(c, i);
    for (int i = 0; i < c->n_rounds; i++) {
        double off = error_of_round(c, i) - sum / n;
        squares += off * off;
    }
    return sqrt(squares / (n - 1) / n);
}

double accuracy_noise(const struct accuracy_case *c)
{
    int64_t least = c->rounds_ns[0], most = least;
    for (int i = 1; i < c->n_rounds; i++) {
        least = c->rounds_ns[i] < least ? c->rounds_ns[i] : least;
        most = c->rounds_ns[i] > most ? c->rounds_ns[i] : most;
    }
    return (double)(most - least) * 1e-9 / accuracy_measured_s(c);
}

static bool is_within_bar(const struct accuracy_case *c)
{
    return fabs(accuracy_error(c)) * accuracy_measured_s(c) <= c->error_s;
}

/* ---- the order of plans ---- */

static bool is_candidate(const struct accuracy_case *c, int workers)
{
    return !c->skipped && (c->workers == workers || c->workers == 1);
}

static double time_of(const struct accuracy_case *c, bool predicted)
{
    return predicted ? c->predicted_s : accuracy_measured_s(c);
}

/* From 1; plans that take the same time share the mean of their ranks. */
static double find_rank(const struct accuracy_subject *s, int workers,
                        const struct accuracy_case *of, bool predicted)
{
    int n_faster = 0, n_same = 0;
    for (int i = 0; i < s->n_cases; i++) {
        const struct accuracy_case *c = &s->cases[i];
        if (!is_candidate(c, workers))
            continue;
        n_faster += time_of(c, predicted) < time_of(of, predicted);
        n_same += time_of(c, predicted) == time_of(of, predicted);
    }
    return n_faster + 0.5 * (n_same + 1);
}

/* Spearman's: the correlation of the ranks. */
static double correlate(const struct accuracy_subject *s, int workers, int n)
{
    double mean = 0.5 * (n + 1), both = 0, of_predicted = 0, of_measured = 0;
    for (int i = 0; i < s->n_cases; i++) {
        const struct accuracy_case *c = &s->cases[i];
        if (!is_candidate(c, workers))
            continue;
        double x = find_rank(s, workers, c, true) - mean;
        double y = find_rank(s, workers, c, false) - mean;
        both += x * y;
        of_predicted += x * x;
        of_measured += y * y;
    }
    double norm = sqrt(of_predicted * of_measured);
    return norm > 0 ? both / norm : (double)NAN;
}

bool accuracy_choose(const struct accuracy_subject *s, int workers, struct accuracy_choice *out)
{
    *out = (struct accuracy_choice){.workers = workers};
    for (int i = 0; i < s->n_cases; i++) {
        const struct accuracy_case *c = &s->cases[i];
        if (!is_candidate(c, workers))
            continue;
        out->n_plans++;
        if (!out->predicted || c->predicted_s < out->predicted->predicted_s)
            out->predicted = c;
        if (!out->measured || accuracy_measured_s(c) < accuracy_measured_s(out->measured))
            out->measured = c;
    }
    if (out->n_plans < 2)
        return false;
    out->regret = accuracy_measured_s(out->predicted) / accuracy_measured_s(out->measured) - 1;
    out->correlation = correlate(s, workers, out->n_plans);
    return true;
}

/* Goes through the numbers of workers that there is something to choose for, each once: from the
 * case number *at on. */
static bool next_choice(const struct accuracy_subject *s, int *at, struct accuracy_choice *out)
{
    while (*at < s->n_cases) {
        int i = (*at)++, workers = s->cases[i].workers;
        bool is_new = workers > 1;
        for (int k = 0; k < i && is_new; k++)
            is_new = s->cases[k].workers != workers;
        if (is_new && accuracy_choose(s, workers, out))
            return true;
    }
    return false;
}

/* ---- all of it ---- */

struct totals {
    int n_run, n_skipped, n_within, n_memory, n_moved; /* the last two: as predicted */
    double sum_error, most_error, sum_noise;
    int n_noise; /* with more than one round */
    const struct accuracy_case *worst;
    const struct accuracy_subject *worst_of;
    int n_choices, n_right, n_correlations;
    double most_regret, sum_correlation;
};

static void add_case(struct totals *t, const struct accuracy_subject *s,
                     const struct accuracy_case *c)
{
    double error = fabs(accuracy_error(c));
    t->n_run++;
    t->n_within += is_within_bar(c);
    t->n_memory += c->memory == c->predicted_memory;
    t->n_moved += c->moved == c->predicted_moved;
    t->sum_error += error;
    t->n_noise += c->n_rounds > 1;
    t->sum_noise += accuracy_noise(c);
    if (!t->worst || error > t->most_error) {
        t->most_error = error;
        t->worst = c;
        t->worst_of = s;
    }
}

static void add_choices(struct totals *t, const struct accuracy_subject *s)
{
    struct accuracy_choice c;
    for (int at = 0; next_choice(s, &at, &c);) {
        t->n_choices++;
        t->n_right += c.regret <= near_enough;
        t->most_regret = fmax(t->most_regret, c.regret);
        if (isnan(c.correlation))
            continue;
        t->n_correlations++;
        t->sum_correlation += c.correlation;
    }
}

static struct totals sum_up(const struct accuracy_study *s)
{
    struct totals t = {0};
    for (int i = 0; i < s->n_subjects; i++) {
        const struct accuracy_subject *subject = &s->subjects[i];
        for (int k = 0; k < subject->n_cases; k++) {
            if (subject->cases[k].skipped)
                t.n_skipped++;
            else
                add_case(&t, subject, &subject->cases[k]);
        }
        add_choices(&t, subject);
    }
    return t;
}

static double mean(double sum, int n)
{
    return n ? sum / n : (double)NAN;
}

/* ---- tables ---- */

static void add_row(table *t, const struct accuracy_case *c)
{
    char predicted[32], measured[32];
    table_cell(t, "%s", c->plan);
    table_cell(t, "%d", c->workers);
    table_cell(t, "%s", text_seconds(predicted, sizeof predicted, c->predicted_s));
    table_cell(t, "%.1f %%", 100 * c->error_s / c->predicted_s);
    table_cell(t, "%s", text_seconds(measured, sizeof measured, accuracy_measured_s(c)));
    table_cell(t, "%+.1f %%", 100 * accuracy_error(c));
    if (c->n_rounds > 1)
        table_cell(t, "%.1f %%", 100 * accuracy_noise(c));
    else
        table_cell(t, "-");
    table_cell(t, c->memory == c->predicted_memory ? "equal" : "differs");
    table_cell(t, c->moved == c->predicted_moved ? "equal" : "differs");
}

static void print_note(const struct accuracy_case *c)
{
    char who[128];
    (void)snprintf(who, sizeof who, "%.80s, %d worker%s", c->plan, c->workers,
                   c->workers == 1 ? "" : "s");
    if (c->skipped) {
        printf("not run: %s: %s\n", who, c->skipped);
        return;
    }
    if (c->memory != c->predicted_memory)
        printf("%s: memory predicted %lld bytes, allocated %lld\n", who,
               (long long)c->predicted_memory, (long long)c->memory);
    if (c->moved != c->predicted_moved)
        printf("%s: bytes moved predicted %lld, counted %lld\n", who, (long long)c->predicted_moved,
               (long long)c->moved);
}

static enum status print_subject(const struct accuracy_study *study,
                                 const struct accuracy_subject *s)
{
    static const struct table_column columns[] = {
        {"plan", TABLE_LEFT, 8},   {"workers", TABLE_RIGHT, 0},  {"predicted", TABLE_RIGHT, 0},
        {"+-", TABLE_RIGHT, 0},    {"measured", TABLE_RIGHT, 0}, {"error", TABLE_RIGHT, 0},
        {"noise", TABLE_RIGHT, 0}, {"memory", TABLE_LEFT, 0},    {"bytes", TABLE_LEFT, 0}};
    const struct forecast_options *f = &study->options->forecast;
    table *t;
    printf("%s on %s, batch %lld, %lld thread%s per worker\n", s->model, s->data_name,
           (long long)f->batch, (long long)f->threads, f->threads == 1 ? "" : "s");
    TRY(table_create(columns, 9, &t));
    for (int i = 0; i < s->n_cases; i++)
        if (!s->cases[i].skipped)
            add_row(t, &s->cases[i]);
    TRY(table_finish(t, stdout));
    for (int i = 0; i < s->n_cases; i++)
        print_note(&s->cases[i]);
    printf("\n");
    (void)fflush(stdout);
    return STATUS_OK;
}

static void add_choice_row(table *t, const struct accuracy_subject *s,
                           const struct accuracy_choice *c)
{
    table_cell(t, "%s", s->model);
    table_cell(t, "%s", s->data_name);
    table_cell(t, "%d", c->workers);
    table_cell(t, "%s", c->predicted->plan);
    table_cell(t, "%s", c->measured->plan);
    table_cell(t, "%.1f %%", 100 * c->regret);
    if (isnan(c->correlation))
        table_cell(t, "-");
    else
        table_cell(t, "%.2f", c->correlation);
}

static enum status print_choices(const struct accuracy_study *s)
{
    static const struct table_column columns[] = {
        {"network", TABLE_LEFT, 8},   {"data", TABLE_LEFT, 6},    {"workers", TABLE_RIGHT, 0},
        {"predicted", TABLE_LEFT, 6}, {"fastest", TABLE_LEFT, 6}, {"slower by", TABLE_RIGHT, 0},
        {"order", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, 7, &t));
    for (int i = 0; i < s->n_subjects; i++) {
        struct accuracy_choice c;
        for (int at = 0; next_choice(&s->subjects[i], &at, &c);)
            add_choice_row(t, &s->subjects[i], &c);
    }
    return table_finish(t, stdout);
}

static void print_totals(const struct totals *t)
{
    printf("%d case%s", t->n_run, t->n_run == 1 ? "" : "s");
    if (t->n_skipped)
        printf(", %d not run", t->n_skipped);
    printf("\n");
    if (t->n_run == 0)
        return;
    printf("step time: mean error %.1f %%, largest %.1f %% (%s on %s, %s, %d worker%s)\n",
           100 * mean(t->sum_error, t->n_run), 100 * t->most_error, t->worst_of->model,
           t->worst_of->data_name, t->worst->plan, t->worst->workers,
           t->worst->workers == 1 ? "" : "s");
    printf("           %.0f %% within their error bar", 100 * mean(t->n_within, t->n_run));
    if (t->n_noise)
        printf("; mean noise of the machine %.1f %%", 100 * mean(t->sum_noise, t->n_noise));
    printf("\n");
    printf("memory:    equal in %d of %d\n", t->n_memory, t->n_run);
    printf("bytes:     equal in %d of %d\n", t->n_moved, t->n_run);
    if (t->n_choices)
        printf("choice:    within %.0f %% of the fastest in %d of %d, %.1f %% slower at most\n",
               100 * near_enough, t->n_right, t->n_choices, 100 * t->most_regret);
    if (t->n_correlations)
        printf("order:     mean rank correlation %.2f\n",
               mean(t->sum_correlation, t->n_correlations));
}

/* ---- JSON ---- */

static json_t *rounds_json(const struct accuracy_case *c, bool predicted)
{
    json_t *rounds = json_array();
    for (int i = 0; i < c->n_rounds; i++)
        (void)json_array_append_new(rounds, json_real(predicted ? c->predicted_rounds_s[i]
                                                                : (double)c->rounds_ns[i] * 1e-9));
    return rounds;
}

static enum status write_case(const struct accuracy_study *study, const struct accuracy_subject *s,
                              const struct accuracy_case *c)
{
    const struct forecast_options *f = &study->options->forecast;
    if (c->skipped)
        return output_json(json_pack("{s:s, s:s, s:s, s:s, s:i, s:s}", "event", "skipped", "model",
                                     s->model, "data", s->data, "plan", c->plan, "workers",
                                     c->workers, "reason", c->skipped));
    return output_json(json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:f, s:o, s:I, s:f, s:o, s:o, s:b, s:I, "
        "s:I, s:I, s:I, s:o, s:{s:f, s:f, s:f}}",
        "event", "case", "model", s->model, "data", s->data, "plan", c->plan, "workers", c->workers,
        "threads", (json_int_t)f->threads, "batch", (json_int_t)f->batch, "predicted_step_s",
        c->predicted_s, "error_s", c->error_s, "measured_step_s", accuracy_measured_s(c),
        "rounds_s", rounds_json(c, false), "steps", (json_int_t)c->n_steps, "error",
        accuracy_error(c), "standard_error", output_number(accuracy_doubt(c)), "noise",
        c->n_rounds > 1 ? json_real(accuracy_noise(c)) : json_null(), "within_error",
        is_within_bar(c), "predicted_memory_bytes", (json_int_t)c->predicted_memory, "memory_bytes",
        (json_int_t)c->memory, "predicted_bytes_moved", (json_int_t)c->predicted_moved,
        "bytes_moved", (json_int_t)c->moved, "predicted_rounds_s", rounds_json(c, true), "costs",
        "measured", c->share[COST_MEASURED], "fitted", c->share[COST_FITTED], "roofline",
        c->share[COST_ROOFLINE]));
}

static enum status write_choices(const struct accuracy_subject *s)
{
    struct accuracy_choice c;
    for (int at = 0; next_choice(s, &at, &c);)
        TRY(output_json(json_pack("{s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:f, s:o}", "event", "order",
                                  "model", s->model, "data", s->data, "workers", c.workers, "plans",
                                  c.n_plans, "predicted_fastest", c.predicted->plan,
                                  "measured_fastest", c.measured->plan, "regret", c.regret,
                                  "rank_correlation", output_number(c.correlation))));
    return STATUS_OK;
}

static enum status write_subject(const struct accuracy_study *study,
                                 const struct accuracy_subject *s)
{
    for (int i = 0; i < s->n_cases; i++)
        TRY(write_case(study, s, &s->cases[i]));
    return write_choices(s);
}

static json_t *worst_json(const struct totals *t)
{
    return t->worst
               ? json_pack("{s:s, s:s, s:s, s:i}", "model", t->worst_of->model, "data",
                           t->worst_of->data, "plan", t->worst->plan, "workers", t->worst->workers)
               : json_null();
}

static enum status write_totals(const struct accuracy_study *s, const struct totals *t)
{
    double seconds = (double)(timer_now_ns() - s->began_ns) * 1e-9;
    return output_json(json_pack(
        "{s:s, s:i, s:i, s:o, s:f, s:o, s:o, s:o, s:i, s:i, s:i, s:i, s:f, s:o, s:f}", "event",
        "done", "cases", t->n_run, "skipped", t->n_skipped, "mean_error",
        output_number(mean(t->sum_error, t->n_run)), "largest_error", t->most_error, "largest_in",
        worst_json(t), "within_error_share", output_number(mean(t->n_within, t->n_run)),
        "mean_noise", output_number(mean(t->sum_noise, t->n_noise)), "memory_equal", t->n_memory,
        "bytes_equal", t->n_moved, "orders", t->n_choices, "orders_right", t->n_right,
        "largest_regret", t->most_regret, "mean_rank_correlation",
        output_number(mean(t->sum_correlation, t->n_correlations)), "seconds", seconds));
}

/* ---- reports ---- */

enum status accuracy_report_subject(const struct accuracy_study *study,
                                    const struct accuracy_subject *s)
{
    if (study->options->quiet)
        return STATUS_OK;
    return study->options->json ? write_subject(study, s) : print_subject(study, s);
}

static enum status print_end(const struct accuracy_study *s, const struct totals *t)
{
    if (t->n_choices) {
        TRY(print_choices(s));
        printf("\n");
    }
    print_totals(t);
    return STATUS_OK;
}

enum status accuracy_report_end(const struct accuracy_study *s)
{
    struct totals t = sum_up(s);
    TRY(s->options->json ? write_totals(s, &t) : print_end(s, &t));
    if (t.n_memory < t.n_run || t.n_moved < t.n_run)
        return status_fail(STATUS_FAILED,
                           "memory is not as predicted in %d and bytes moved in %d of %d cases",
                           t.n_run - t.n_memory, t.n_run - t.n_moved, t.n_run);
    return STATUS_OK;
}
