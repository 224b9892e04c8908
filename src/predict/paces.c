#include "predict/paces.h"

#include "base/numbers.h"
#include "profile/measure.h"

#include <math.h>

void paces_find(profile *p, const struct profile_setting *setting, const struct graph *graph,
                const struct plan *plan, struct paces *out)
{
    static const char *const keys[] = {MEASURE_DRIFT_KEY, MEASURE_JITTER_KEY, MEASURE_START_KEY};
    enum { DRIFT, JITTER, START, KEYS };
    struct profile_cost found[KEYS] = {0};
    for (int i = 0; i < KEYS; i++) {
        char own[MEASURE_KEY_BYTES];
        (void)measure_plan_key(keys[i], graph, plan, own, sizeof own);
        if (!profile_find(p, setting, own, &found[i]))
            (void)profile_find(p, setting, keys[i], &found[i]);
    }
    *out = (struct paces){.drift = found[DRIFT].spread,
                          .jitter = found[JITTER].spread,
                          .start_s = found[START].seconds};
}

/* What it computes in a step. */
static double total_s(const struct clock_worker *w)
{
    double sum = 0;
    for (int i = 0; i < w->program->n_instrs; i++)
        if (w->program->instrs[i].stream == STREAM_COMPUTE)
            sum += w->costs[i].busy_s;
    return sum;
}

/* Half as much to do as the longest, at least: of those the drift was measured (profile/pace.h). */
static enum status find_leaders(const struct clock_worker *workers, int n, arena *memory,
                                bool **leads)
{
    double *totals_s, longest_s = 0;
    TRY(arena_alloc_array(memory, (size_t)n, sizeof *totals_s, &totals_s));
    TRY(arena_alloc_array(memory, (size_t)n, sizeof **leads, leads));
    for (int i = 0; i < n; i++) {
        bool is_twin = i > 0 && workers[i].program == workers[i - 1].program &&
                       workers[i].costs == workers[i - 1].costs;
        totals_s[i] = is_twin ? totals_s[i - 1] : total_s(&workers[i]);
        longest_s = fmax(longest_s, totals_s[i]);
    }
    for (int i = 0; i < n; i++)
        (*leads)[i] = totals_s[i] >= longest_s / 2;
    return STATUS_OK;
}

/* Where each stands among those who have about as much to do when all drift alike, in deviations:
 * the last must be one of those whom the others wait for. Else who stands where is arbitrary; it
 * must only not follow the stages. */
static enum status find_places(const struct clock_worker *workers, int n, arena *memory,
                               double **places)
{
    bool *leads;
    TRY(find_leaders(workers, n, memory, &leads));
    TRY(arena_alloc_array(memory, (size_t)n, sizeof **places, places));
    for (int i = 0; i < n; i++) {
        int rank = 0, count = 0;
        for (int k = 0; k < n; k++) {
            count += leads[k] == leads[i];
            rank += leads[k] == leads[i] && (uint32_t)k * 2654435761u < (uint32_t)i * 2654435761u;
        }
        (*places)[i] = numbers_normal_place(rank, count);
    }
    return STATUS_OK;
}

static void set_paces(const struct paces *paces, const double *places, double side,
                      struct clock_worker *workers, int n)
{
    for (int i = 0; i < n; i++) {
        workers[i].pace = fmax(CLOCK_LEAST_PACE, 1 + side * paces->drift * places[i]);
        workers[i].jitter = side * paces->jitter;
    }
}

static void average(double *a, double b)
{
    *a = (*a + b) / 2;
}

/* So that they end when the mean of the runs does. */
static void stretch_times(struct clock_time *times, int n, double factor)
{
    for (int i = 0; times && i < n; i++) {
        times[i].begin_s *= factor;
        times[i].end_s *= factor;
    }
}

static void average_results(struct clock_result *a, const struct clock_result *b,
                            const struct clock_worker *workers, int n_workers)
{
    double first_s = a->run_s;
    average(&a->run_s, b->run_s);
    average(&a->step_s, b->step_s);
    average(&a->error_s, b->error_s);
    for (int i = 0; i < COST_ORIGIN_COUNT; i++)
        average(&a->share[i], b->share[i]);
    for (int i = 0; i < n_workers; i++) {
        average(&a->workers[i].compute_s, b->workers[i].compute_s);
        average(&a->workers[i].wait_s, b->workers[i].wait_s);
        average(&a->workers[i].communicate_s, b->workers[i].communicate_s);
        average(&a->workers[i].load_s, b->workers[i].load_s);
        stretch_times(a->workers[i].times, workers[i].program->n_instrs, a->run_s / first_s);
    }
}

enum status paces_run_clock(const struct paces *paces, struct clock_worker *workers, int n_workers,
                            const struct clock_options *options, arena *memory,
                            struct clock_result *out)
{
    struct clock_options again = *options;
    struct clock_result other;
    double *places;
    TRY(find_places(workers, n_workers, memory, &places));
    set_paces(paces, places, 1, workers, n_workers);
    TRY(clock_run(workers, n_workers, options, memory, out));
    if (!(paces->drift > 0) && !(paces->jitter > 0))
        return STATUS_OK;
    again.keep_times = false;
    set_paces(paces, places, -1, workers, n_workers);
    TRY(clock_run(workers, n_workers, &again, memory, &other));
    average_results(out, &other, workers, n_workers);
    return STATUS_OK;
}
