/* accuracy_report.c: errors, noise, and the order of the plans. */
#include "base/numbers.h"
#include "base/timer.h"
#include "bench/accuracy.h"

#include <math.h>
#include <string.h>

static const double near_enough = 0.02; /* a plan that is at most so much slower is as good */

/* ---- figures of a case ---- */

double accuracy_median(const double *values, int n)
{
    double copy[ACCURACY_MAX_ROUNDS];
    memcpy(copy, values, (size_t)n * sizeof *copy);
    return numbers_median(copy, n);
}

/* The median of the rounds. */
static double measured_s(const struct accuracy_case *c)
{
    return accuracy_median(c->rounds_s, c->n_rounds);
}

static double error_of_round(const struct accuracy_case *c, int i)
{
    return c->predicted_rounds_s[i] / c->rounds_s[i] - 1;
}

/* Predicted over measured, less 1: the median of the turns. */
static double error_of(const struct accuracy_case *c)
{
    double errors[ACCURACY_MAX_ROUNDS] = {0};
    for (int i = 0; i < c->n_rounds; i++)
        errors[i] = error_of_round(c, i);
    return numbers_median(errors, c->n_rounds);
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

/* The distance between the slowest and the fastest round over the median; NAN for one round. */
static double noise_of(const struct accuracy_case *c)
{
    double least = c->rounds_s[0], most = least;
    for (int i = 1; i < c->n_rounds; i++) {
        least = fmin(least, c->rounds_s[i]);
        most = fmax(most, c->rounds_s[i]);
    }
    return c->n_rounds > 1 ? (most - least) / measured_s(c) : (double)NAN;
}

static bool is_within_bar(const struct accuracy_case *c)
{
    return fabs(error_of(c)) * measured_s(c) <= c->error_s;
}

/* ---- the order of plans ---- */

static bool is_candidate(const struct accuracy_case *c, int workers)
{
    return !c->skipped && (c->workers == workers || c->workers == 1);
}

static double time_of(const struct accuracy_case *c, bool predicted)
{
    return predicted ? c->predicted_s : measured_s(c);
}

/* From 1; plans that take the same time share the mean of their ranks. */
static double find_rank(const struct accuracy_task *s, int workers, const struct accuracy_case *of,
                        bool predicted)
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
static double correlate(const struct accuracy_task *s, int workers, int n)
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

/* The plans that `workers` workers can choose from: those for just so many, and serial. */
struct choice {
    int workers, n_plans;
    const struct accuracy_case *predicted, *measured; /* the fastest */
    double regret;      /* how much slower the one predicted fastest is than the fastest, over it */
    double correlation; /* Spearman's, of the orders; NAN where it is not defined */
};

/* False: fewer than two plans were run. */
static bool choose(const struct accuracy_task *s, int workers, struct choice *out)
{
    *out = (struct choice){.workers = workers};
    for (int i = 0; i < s->n_cases; i++) {
        const struct accuracy_case *c = &s->cases[i];
        if (!is_candidate(c, workers))
            continue;
        out->n_plans++;
        if (!out->predicted || c->predicted_s < out->predicted->predicted_s)
            out->predicted = c;
        if (!out->measured || measured_s(c) < measured_s(out->measured))
            out->measured = c;
    }
    if (out->n_plans < 2)
        return false;
    out->regret = measured_s(out->predicted) / measured_s(out->measured) - 1;
    out->correlation = correlate(s, workers, out->n_plans);
    return true;
}

/* Goes through the numbers of workers that there is something to choose for, each once: from the
 * case number *at on. */
static bool next_choice(const struct accuracy_task *s, int *at, struct choice *out)
{
    while (*at < s->n_cases) {
        int i = (*at)++, workers = s->cases[i].workers;
        bool is_new = workers > 1;
        for (int k = 0; k < i && is_new; k++)
            is_new = s->cases[k].workers != workers;
        if (is_new && choose(s, workers, out))
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
    const struct accuracy_task *worst_of;
    int n_choices, n_right, n_correlations;
    double most_regret, sum_correlation;
};

static void add_case(struct totals *t, const struct accuracy_task *s, const struct accuracy_case *c)
{
    double error = fabs(error_of(c));
    t->n_run++;
    t->n_within += is_within_bar(c);
    t->n_memory += c->memory == c->predicted_memory;
    t->n_moved += c->moved == c->predicted_moved;
    t->sum_error += error;
    t->n_noise += c->n_rounds > 1;
    t->sum_noise += c->n_rounds > 1 ? noise_of(c) : 0;
    if (!t->worst || error > t->most_error) {
        t->most_error = error;
        t->worst = c;
        t->worst_of = s;
    }
}

static void add_choices(struct totals *t, const struct accuracy_task *s)
{
    struct choice c;
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
    for (int i = 0; i < s->n_tasks; i++) {
        const struct accuracy_task *task = &s->tasks[i];
        for (int k = 0; k < task->n_cases; k++) {
            if (task->cases[k].skipped)
                t.n_skipped++;
            else
                add_case(&t, task, &task->cases[k]);
        }
        add_choices(&t, task);
    }
    return t;
}

static double mean(double sum, int n)
{
    return n ? sum / n : (double)NAN;
}

/* ---- results ---- */

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static json_t *rounds_json(const double *rounds_s, int n)
{
    json_t *rounds = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(rounds, json_real(rounds_s[i]));
    return rounds;
}

static void report_case(const struct accuracy_study *study, const struct accuracy_task *s,
                        const struct accuracy_case *c, struct results *r)
{
    const struct forecast_options *f = &study->options->forecast;
    RESULTS_ROW(
        r, v_text(s->model), v_text(s->data), v_text(c->plan), v_int(c->workers), v_int(f->threads),
        v_int(f->batch), v_real(c->predicted_s), v_real(c->error_s / c->predicted_s),
        v_real(c->error_s), v_real(measured_s(c)), v_json(rounds_json(c->rounds_s, c->n_rounds)),
        v_int(c->n_steps), v_real(error_of(c)), v_real(accuracy_doubt(c)), v_real(noise_of(c)),
        v_flag(is_within_bar(c)), v_text(c->memory == c->predicted_memory ? "equal" : "differs"),
        v_int(c->predicted_memory), v_int(c->memory),
        v_text(c->moved == c->predicted_moved ? "equal" : "differs"), v_int(c->predicted_moved),
        v_int(c->moved), v_json(rounds_json(c->predicted_rounds_s, c->n_rounds)),
        v_json(json_pack("{s:f, s:f, s:f}", "measured", c->share[COST_MEASURED], "fitted",
                         c->share[COST_FITTED], "roofline", c->share[COST_ROOFLINE])));
}

static void report_skipped(const struct accuracy_task *s, const struct accuracy_case *c,
                           struct results *r)
{
    results_put(r, "model", v_text(s->model));
    results_put(r, "data", v_text(s->data));
    results_put(r, "plan", v_text(c->plan));
    results_put(r, "workers", v_int(c->workers));
    results_put(r, "reason", v_text(c->skipped));
    results_event(r, "skipped");
}

/* For people, below the table. */
static void note_case(const struct accuracy_case *c, struct results *r)
{
    if (c->skipped) {
        results_say(r, 2, "not run: %.80s, %d worker%s: %s", c->plan, c->workers,
                    plural(c->workers), c->skipped);
        return;
    }
    if (c->memory != c->predicted_memory)
        results_say(r, 2, "%.80s, %d worker%s: memory predicted %lld bytes, allocated %lld",
                    c->plan, c->workers, plural(c->workers), (long long)c->predicted_memory,
                    (long long)c->memory);
    if (c->moved != c->predicted_moved)
        results_say(r, 2, "%.80s, %d worker%s: bytes moved predicted %lld, counted %lld", c->plan,
                    c->workers, plural(c->workers), (long long)c->predicted_moved,
                    (long long)c->moved);
}

static void report_choices(const struct accuracy_task *s, struct results *r)
{
    struct choice c;
    for (int at = 0; next_choice(s, &at, &c);)
        RESULTS_ROW(r, v_text(s->model), v_text(s->data_name), v_text(s->data), v_int(c.workers),
                    v_int(c.n_plans), v_text(c.predicted->plan), v_text(c.measured->plan),
                    v_real(c.regret), v_real(c.correlation));
}

static const struct field choice_fields[] = {{"network", "model", NULL, 0, 8},
                                             {"data", NULL, NULL, 0, 6},
                                             HIDDEN("data"),
                                             {"workers", "workers", ">", 0, 0},
                                             HIDDEN("plans"),
                                             {"predicted", "predicted_fastest", NULL, 0, 6},
                                             {"fastest", "measured_fastest", NULL, 0, 6},
                                             {"slower by", "regret", "%.1f %%", 100, 0},
                                             {"order", "rank_correlation", "%.2f", 0, 0},
                                             {0}};

void accuracy_report_task(const struct accuracy_study *study, const struct accuracy_task *s,
                          struct results *r)
{
    static const struct field fields[] = {HIDDEN("model"),
                                          HIDDEN("data"),
                                          {"plan", "plan", NULL, 0, 8},
                                          {"workers", "workers", ">", 0, 0},
                                          HIDDEN("threads"),
                                          HIDDEN("batch"),
                                          {"predicted", "predicted_step_s", "seconds", 0, 0},
                                          {"+-", NULL, "%.1f %%", 100, 0},
                                          HIDDEN("error_s"),
                                          {"measured", "measured_step_s", "seconds", 0, 0},
                                          HIDDEN("rounds_s"),
                                          HIDDEN("steps"),
                                          {"error", "error", "%+.1f %%", 100, 0},
                                          HIDDEN("standard_error"),
                                          {"noise", "noise", "%.1f %%", 100, 0},
                                          HIDDEN("within_error"),
                                          {"memory", NULL, NULL, 0, 0},
                                          HIDDEN("predicted_memory_bytes"),
                                          HIDDEN("memory_bytes"),
                                          {"bytes", NULL, NULL, 0, 0},
                                          HIDDEN("predicted_bytes_moved"),
                                          HIDDEN("bytes_moved"),
                                          HIDDEN("predicted_rounds_s"),
                                          HIDDEN("costs"),
                                          {0}};
    const struct forecast_options *f = &study->options->forecast;
    if (study->options->quiet)
        return;
    results_say(r, 2, "%s on %s, batch %lld, %lld thread%s per worker", s->model, s->data_name,
                (long long)f->batch, (long long)f->threads, plural((int)f->threads));
    results_table_events(r, "case", fields, FOR_PEOPLE | FOR_JSON);
    for (int i = 0; i < s->n_cases; i++) {
        if (s->cases[i].skipped)
            report_skipped(s, &s->cases[i], r);
        else
            report_case(study, s, &s->cases[i], r);
    }
    results_table_end(r);
    for (int i = 0; i < s->n_cases; i++)
        note_case(&s->cases[i], r);
    results_table_events(r, "order", choice_fields, FOR_JSON);
    report_choices(s, r);
    results_table_end(r);
    results_say(r, 0, "%s", "");
    (void)fflush(stdout);
}

static void say_totals(const struct totals *t, struct results *r)
{
    char skipped[40] = "", noise[80] = "";
    if (t->n_skipped)
        (void)snprintf(skipped, sizeof skipped, ", %d not run", t->n_skipped);
    if (t->n_noise)
        (void)snprintf(noise, sizeof noise, "; mean noise of the machine %.1f %%",
                       100 * mean(t->sum_noise, t->n_noise));
    results_say(r, 0, "%d case%s%s", t->n_run, plural(t->n_run), skipped);
    if (t->n_run == 0)
        return;
    results_say(r, 11, "step time: mean error %.1f %%, largest %.1f %% (%s on %s, %s, %d worker%s)",
                100 * mean(t->sum_error, t->n_run), 100 * t->most_error, t->worst_of->model,
                t->worst_of->data_name, t->worst->plan, t->worst->workers,
                plural(t->worst->workers));
    results_say(r, 11, "           %.0f %% within their error bar%s",
                100 * mean(t->n_within, t->n_run), noise);
    results_say(r, 11, "memory:    equal in %d of %d", t->n_memory, t->n_run);
    results_say(r, 11, "bytes:     equal in %d of %d", t->n_moved, t->n_run);
    if (t->n_choices)
        results_say(r, 11,
                    "choice:    within %.0f %% of the fastest in %d of %d, %.1f %% slower "
                    "at most",
                    100 * near_enough, t->n_right, t->n_choices, 100 * t->most_regret);
    if (t->n_correlations)
        results_say(r, 11, "order:     mean rank correlation %.2f",
                    mean(t->sum_correlation, t->n_correlations));
}

static void put_totals(const struct accuracy_study *s, const struct totals *t, struct results *r)
{
    json_t *worst = t->worst ? json_pack("{s:s, s:s, s:s, s:i}", "model", t->worst_of->model,
                                         "data", t->worst_of->data, "plan", t->worst->plan,
                                         "workers", t->worst->workers)
                             : json_null();
    results_put(r, "cases", v_int(t->n_run));
    results_put(r, "skipped", v_int(t->n_skipped));
    results_put(r, "mean_error", v_real(mean(t->sum_error, t->n_run)));
    results_put(r, "largest_error", v_real(t->most_error));
    results_put(r, "largest_in", v_json(worst));
    results_put(r, "within_error_share", v_real(mean(t->n_within, t->n_run)));
    results_put(r, "mean_noise", v_real(mean(t->sum_noise, t->n_noise)));
    results_put(r, "memory_equal", v_int(t->n_memory));
    results_put(r, "bytes_equal", v_int(t->n_moved));
    results_put(r, "orders", v_int(t->n_choices));
    results_put(r, "orders_right", v_int(t->n_right));
    results_put(r, "largest_regret", v_real(t->most_regret));
    results_put(r, "mean_rank_correlation", v_real(mean(t->sum_correlation, t->n_correlations)));
    results_put(r, "seconds", v_real((double)(timer_now_ns() - s->began_ns) * 1e-9));
    results_event(r, "done");
}

enum status accuracy_report_end(const struct accuracy_study *s, struct results *r)
{
    struct totals t = sum_up(s);
    if (t.n_choices) {
        results_table(r, NULL, choice_fields, FOR_PEOPLE);
        for (int i = 0; i < s->n_tasks; i++)
            report_choices(&s->tasks[i], r);
        results_table_end(r);
        results_say(r, 0, "%s", "");
    }
    say_totals(&t, r);
    put_totals(s, &t, r);
    if (t.n_memory < t.n_run || t.n_moved < t.n_run)
        return status_fail(STATUS_FAILED,
                           "memory is not as predicted in %d and bytes moved in %d of %d cases",
                           t.n_run - t.n_memory, t.n_run - t.n_moved, t.n_run);
    return STATUS_OK;
}
