#include "predict/strategy_traffic.h"

#include "backend/backend.h"
#include "comm/comm.h"
#include "plan/plan.h"
#include "program/program.h"

#include <string.h>

/* Instructions that are lowered; then the strategies that are left are left out. */
static const int64_t MOST_INSTRS = 4000000;

struct measuring {
    const struct graph *graph;
    const struct backend *backend;
    device *device;
    json_t *list;
    int64_t n_instrs;
};

static enum status put_plan(struct measuring *m, const struct plan *plan,
                            const struct program_set *all)
{
    int64_t sent = 0, memory = 0;
    for (int i = 0; i < plan->n_workers; i++) {
        int64_t bytes = program_memory_bytes(all->programs[i]);
        m->n_instrs += all->programs[i]->n_instrs;
        sent += program_sent_bytes_by(all->programs[i], i);
        memory = bytes > memory ? bytes : memory;
    }
    int steps = all->programs[0]->n_steps > 0 ? all->programs[0]->n_steps : 1;
    json_t *entry = json_pack("{s:s, s:I, s:I}", "name", plan->name, "bytes_moved",
                              (json_int_t)(sent / steps), "memory_bytes", (json_int_t)memory);
    return json_array_append_new(m->list, entry) == 0 ? STATUS_OK : status_no_memory(0);
}

static enum status lower_plan(struct measuring *m, const struct plan *plan)
{
    struct program_set all = {0};
    const struct program_options how = {.backend = m->backend,
                                        .device = m->device,
                                        .training = true,
                                        .n_states = 1,
                                        .plan = plan,
                                        .transport = comm_find_table("threads")};
    enum status st = program_create_all(m->graph, &how, NULL, true, &all);
    if (st == STATUS_OK)
        st = put_plan(m, plan, &all);
    program_destroy_all(&all);
    return st;
}

/* A strategy that cannot use so many workers is left out. */
static void measure_strategy(struct measuring *m, const char *name, int n_workers)
{
    const struct plan_request request = {.n_workers = n_workers};
    struct plan *plan;
    enum status st = plan_build(name, m->graph, &request, &plan);
    if (st == STATUS_OK) {
        st = lower_plan(m, plan);
        plan_destroy(plan);
    }
    if (st != STATUS_OK)
        status_clear();
}

enum status strategy_traffic(const struct graph *graph, int n_workers, json_t **out)
{
    const struct device_options options = {.threads = 1, .describe_only = true};
    struct measuring m = {.graph = graph, .backend = backend_list()[0], .list = json_array()};
    if (!m.list)
        return status_no_memory(0);
    *out = m.list;
    if (n_workers < 2 || n_workers > STRATEGY_TRAFFIC_WORKERS)
        return STATUS_OK;
    TRY(m.backend->device_open(&options, &m.device));
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
        if (strcmp(s->name, "serial") != 0 && m.n_instrs < MOST_INSTRS)
            measure_strategy(&m, s->name, n_workers);
    m.backend->device_close(m.device);
    return STATUS_OK;
}
