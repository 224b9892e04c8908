/* scene.h: a plan on the clock with costs and a machine made by hand, for tests.
 *
 *     struct scene s;
 *     scene_open(&s, suite_build("lenet5", 8));
 *     scene_split(&s, "data", &(struct plan_request){.n_workers = 2});
 *     scene_place(&s, "1x2:p100,intra=1GB/s");
 *     scene_cost(&s, 0, 5, 1e-3);           // worker 0's instruction 5; all others cost nothing
 *     const struct clock_result *r = scene_run(&s);
 *     scene_close(&s);
 */
#ifndef CLEAVE_TESTS_SCENE_H
#define CLEAVE_TESTS_SCENE_H

#include "clock/clock.h"
#include "session.h"

enum { SCENE_MAX_WORKERS = 8 };

/* Times that come out of the same sums in another order. */
#define assert_seconds(actual, expected) assert_near(actual, expected, 1e-9)

struct scene {
    const struct backend *backend;
    device *device;
    struct graph *graph;
    struct plan *plan;
    int n;
    struct program *programs[SCENE_MAX_WORKERS];
    struct instr_cost *costs[SCENE_MAX_WORKERS];
    struct clock_worker workers[SCENE_MAX_WORKERS]; /* what the clock gets */
    struct machine *machine;
    struct clock_options options;
    arena *memory;
    struct clock_result result;
};

/* The graph is the scene's from here on. */
void scene_open(struct scene *s, struct graph *graph);

void scene_close(struct scene *s);

/* Lowers the plan, which is the scene's from here on; every instruction costs nothing. */
void scene_take(struct scene *s, struct plan *plan);

void scene_split(struct scene *s, const char *strategy, const struct plan_request *request);

void scene_parse(struct scene *s, const char *text);

void scene_place(struct scene *s, const char *machine);

/* ---- costs ---- */

void scene_cost_between(struct scene *s, int worker, int instr, double alone_s, double busy_s);

void scene_cost(struct scene *s, int worker, int instr, double seconds);

void scene_cost_nothing(struct scene *s);

/* What all computing instructions of a worker take together while the others are idle. */
double scene_sum(const struct scene *s, int worker);

/* The number-th RUN (from 0; from the end if negative: -1 is the last) of a micro-batch that is
 * forward, or backward. */
int scene_find_run(const struct program *p, bool backward, int micro, int number);

int scene_find_kind(const struct program *p, enum instr_kind kind, int number);

/* ---- running ---- */

const struct clock_result *scene_run(struct scene *s);

double scene_step(struct scene *s);

/* How long a worker's instruction took in the last run. */
double scene_took(const struct scene *s, int worker, int instr);

#endif
