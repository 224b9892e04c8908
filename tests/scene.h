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
static inline void scene_open(struct scene *s, struct graph *graph)
{
    *s = (struct scene){.graph = graph, .options = {.transport = "threads", .keep_times = true}};
    assert_ok(backend_find("reference", &s->backend));
    assert_ok(s->backend->device_open(&(struct device_options){.threads = 1}, &s->device));
    assert_ok(arena_create(&s->memory));
}

static inline void scene_drop_plan(struct scene *s)
{
    for (int i = 0; i < s->n; i++)
        program_destroy(s->programs[i]);
    plan_destroy(s->plan);
    s->plan = NULL;
    s->n = 0;
}

static inline void scene_close(struct scene *s)
{
    scene_drop_plan(s);
    machine_destroy(s->machine);
    arena_destroy(s->memory);
    s->backend->device_close(s->device);
    graph_destroy(s->graph);
}

/* Lowers the plan, which is the scene's from here on; every instruction costs nothing. */
static inline void scene_take(struct scene *s, struct plan *plan)
{
    scene_drop_plan(s);
    s->plan = plan;
    assert_true(plan->n_workers <= SCENE_MAX_WORKERS);
    for (int i = 0; i < plan->n_workers; i++) {
        struct program_options o = {.backend = s->backend,
                                    .device = s->device,
                                    .training = true,
                                    .n_states = 1,
                                    .plan = plan,
                                    .worker = i,
                                    .transport = comm_find_table("threads")};
        assert_ok(program_create(s->graph, &o, &s->programs[i]));
        s->n++;
        assert_ok(arena_alloc_array(s->memory, (size_t)s->programs[i]->n_instrs,
                                    sizeof *s->costs[i], &s->costs[i]));
        s->workers[i] =
            (struct clock_worker){.program = s->programs[i], .costs = s->costs[i], .device = i};
    }
}

static inline void scene_split(struct scene *s, const char *strategy,
                               const struct plan_request *request)
{
    struct plan *plan;
    assert_ok(plan_build(strategy, s->graph, request, &plan));
    scene_take(s, plan);
}

static inline void scene_parse(struct scene *s, const char *text)
{
    struct plan *plan;
    assert_ok(plan_parse(text, strlen(text), "plan", s->graph, &plan));
    scene_take(s, plan);
}

static inline void scene_place(struct scene *s, const char *machine)
{
    machine_destroy(s->machine);
    assert_ok(machine_parse(machine, &s->machine));
    s->options.machine = s->machine;
}

/* ---- costs ---- */

static inline void scene_cost_between(struct scene *s, int worker, int instr, double alone_s,
                                      double busy_s)
{
    s->costs[worker][instr] = (struct instr_cost){alone_s, busy_s, 0, COST_MEASURED};
}

static inline void scene_cost(struct scene *s, int worker, int instr, double seconds)
{
    scene_cost_between(s, worker, instr, seconds, seconds);
}

static inline void scene_cost_nothing(struct scene *s)
{
    for (int w = 0; w < s->n; w++)
        for (int i = 0; i < s->programs[w]->n_instrs; i++)
            scene_cost(s, w, i, 0);
}

/* What all computing instructions of a worker take together with nobody else there. */
static inline double scene_sum(const struct scene *s, int worker)
{
    double sum = 0;
    for (int i = 0; i < s->programs[worker]->n_instrs; i++)
        if (s->programs[worker]->instrs[i].stream == STREAM_COMPUTE)
            sum += s->costs[worker][i].busy_s;
    return sum;
}

/* The number-th RUN (from 0; from the end if negative: -1 is the last) of a micro-batch that is
 * forward, or backward. */
static inline int scene_find_run(const struct program *p, bool backward, int micro, int number)
{
    int found = -1, n = 0;
    for (int k = 0; k < p->n_instrs; k++) {
        int i = number < 0 ? p->n_instrs - 1 - k : k;
        const struct instr *instr = &p->instrs[i];
        bool forward = instr->pass == PASS_FORWARD || instr->pass == PASS_FORWARD_STATISTICS;
        if (instr->kind == INSTR_RUN && forward != backward && instr->micro == micro &&
            n++ == (number < 0 ? -1 - number : number))
            found = i;
    }
    assert_true(found >= 0);
    return found;
}

static inline int scene_find_kind(const struct program *p, enum instr_kind kind, int number)
{
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].kind == kind && number-- == 0)
            return i;
    fail_msg("worker %d has no such instruction", p->worker);
    return -1;
}

/* ---- running ---- */

static inline const struct clock_result *scene_run(struct scene *s)
{
    assert_ok(clock_run(s->workers, s->n, &s->options, s->memory, &s->result));
    return &s->result;
}

static inline double scene_step(struct scene *s)
{
    return scene_run(s)->step_s;
}

/* How long a worker's instruction took in the last run. */
static inline double scene_took(const struct scene *s, int worker, int instr)
{
    const struct clock_time *t = &s->result.workers[worker].times[instr];
    return t->end_s - t->begin_s;
}

#endif
