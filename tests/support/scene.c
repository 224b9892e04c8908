#include "scene.h"

void scene_open(struct scene *s, struct graph *graph)
{
    *s = (struct scene){.graph = graph, .options = {.transport = "threads", .keep_times = true}};
    assert_ok(backend_find("reference", &s->backend));
    assert_ok(s->backend->device_open(&(struct device_options){.threads = 1}, &s->device));
    assert_ok(arena_create(&s->memory));
}

static void scene_drop_plan(struct scene *s)
{
    for (int i = 0; i < s->n; i++)
        program_destroy(s->programs[i]);
    plan_destroy(s->plan);
    s->plan = NULL;
    s->n = 0;
}

void scene_close(struct scene *s)
{
    scene_drop_plan(s);
    machine_destroy(s->machine);
    arena_destroy(s->memory);
    s->backend->device_close(s->device);
    graph_destroy(s->graph);
}

void scene_take(struct scene *s, struct plan *plan)
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

void scene_split(struct scene *s, const char *strategy, const struct plan_request *request)
{
    struct plan *plan;
    assert_ok(plan_build(strategy, s->graph, request, &plan));
    scene_take(s, plan);
}

void scene_parse(struct scene *s, const char *text)
{
    struct plan *plan;
    assert_ok(plan_parse(text, strlen(text), "plan", s->graph, &plan));
    scene_take(s, plan);
}

void scene_place(struct scene *s, const char *machine)
{
    machine_destroy(s->machine);
    assert_ok(machine_parse(machine, &s->machine));
    s->options.machine = s->machine;
}

/* ---- costs ---- */

void scene_cost_between(struct scene *s, int worker, int instr, double alone_s, double busy_s)
{
    s->costs[worker][instr] = (struct instr_cost){alone_s, busy_s, 0, COST_MEASURED};
}

void scene_cost(struct scene *s, int worker, int instr, double seconds)
{
    scene_cost_between(s, worker, instr, seconds, seconds);
}

void scene_cost_nothing(struct scene *s)
{
    for (int w = 0; w < s->n; w++)
        for (int i = 0; i < s->programs[w]->n_instrs; i++)
            scene_cost(s, w, i, 0);
}

double scene_sum(const struct scene *s, int worker)
{
    double sum = 0;
    for (int i = 0; i < s->programs[worker]->n_instrs; i++)
        if (s->programs[worker]->instrs[i].stream == STREAM_COMPUTE)
            sum += s->costs[worker][i].busy_s;
    return sum;
}

int scene_find_run(const struct program *p, bool backward, int micro, int number)
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

int scene_find_kind(const struct program *p, enum instr_kind kind, int number)
{
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].kind == kind && number-- == 0)
            return i;
    fail_msg("worker %d has no such instruction", p->worker);
    return -1;
}

/* ---- running ---- */

const struct clock_result *scene_run(struct scene *s)
{
    assert_ok(clock_run(s->workers, s->n, &s->options, s->memory, &s->result));
    return &s->result;
}

double scene_step(struct scene *s)
{
    return scene_run(s)->step_s;
}

double scene_took(const struct scene *s, int worker, int instr)
{
    const struct clock_time *t = &s->result.workers[worker].times[instr];
    return t->end_s - t->begin_s;
}
