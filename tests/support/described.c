#include "described.h"

static const struct backend *backend;

static device *on_device;

struct graph *described_graph(const char *model, int batch)
{
    struct graph_variant v = {batch, 3, 32, 32, 10, true, -1};
    struct graph *g;
    assert_ok(network_build(model, &v, &g));
    return g;
}

struct plan *described_plan(const char *strategy, const struct graph *g, int n_workers, int micros)
{
    struct plan_request request = {.n_workers = n_workers, .micro_batches = micros};
    struct plan *plan;
    assert_ok(plan_build(strategy, g, &request, &plan));
    return plan;
}

struct program_options described_options(const struct plan *plan)
{
    return (struct program_options){
        .backend = backend, .device = on_device, .training = true, .n_states = 1, .plan = plan};
}

int described_open(void **state)
{
    (void)state;
    struct device_options how = {.threads = 1, .describe_only = true};
    if (backend_find("reference", &backend) != STATUS_OK)
        return 1;
    return backend->device_open(&how, &on_device) != STATUS_OK;
}

int described_close(void **state)
{
    (void)state;
    backend->device_close(on_device);
    return 0;
}
