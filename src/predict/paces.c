#include "predict/paces.h"

#include "base/numbers.h"
#include "profile/measure.h"

#include <math.h>

static double find_spread(profile *p, const struct profile_setting *setting, const char *key)
{
    struct profile_cost cost;
    return profile_find(p, setting, key, &cost) ? cost.spread : 0;
}

void paces_find(profile *p, const struct profile_setting *setting, struct paces *out)
{
    struct profile_cost start = {0};
    (void)profile_find(p, setting, MEASURE_START_KEY, &start);
    *out = (struct paces){.drift = find_spread(p, setting, MEASURE_DRIFT_KEY),
                          .jitter = find_spread(p, setting, MEASURE_JITTER_KEY),
                          .start_s = start.seconds};
}

/* Where a worker stands among the others when all drift alike: the expected place, in deviations,
 * of the rank-th of n draws (Blom's approximation). Who stands where is arbitrary; it must only not
 * follow the stages. */
static double find_place(int worker, int n)
{
    int rank = 0;
    for (int i = 0; i < n; i++)
        rank += (uint32_t)i * 2654435761u < (uint32_t)worker * 2654435761u;
    return numbers_normal((rank + 0.625) / (n + 0.25));
}

static void set_paces(const struct paces *paces, double side, struct clock_worker *workers, int n)
{
    for (int i = 0; i < n; i++) {
        workers[i].pace = fmax(CLOCK_LEAST_PACE, 1 + side * paces->drift * find_place(i, n));
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
    set_paces(paces, 1, workers, n_workers);
    TRY(clock_run(workers, n_workers, options, memory, out));
    if (!(paces->drift > 0) && !(paces->jitter > 0))
        return STATUS_OK;
    again.keep_times = false;
    set_paces(paces, -1, workers, n_workers);
    TRY(clock_run(workers, n_workers, &again, memory, &other));
    average_results(out, &other, workers, n_workers);
    return STATUS_OK;
}
