/* described.h: programs for a device that is only described, of networks on small images. */
#ifndef CLEAVE_TESTS_DESCRIBED_H
#define CLEAVE_TESTS_DESCRIBED_H

#include "session.h"

#include "program/program.h"

static const struct backend *backend;
static device *on_device;

static inline struct graph *described_graph(const char *model, int batch)
{
    struct graph_variant v = {batch, 3, 32, 32, 10, true, -1};
    struct graph *g;
    assert_ok(network_build(model, &v, &g));
    return g;
}

static inline struct plan *described_plan(const char *strategy, const struct graph *g,
                                          int n_workers, int micros)
{
    struct plan_request request = {.n_workers = n_workers, .micro_batches = micros};
    struct plan *plan;
    assert_ok(plan_build(strategy, g, &request, &plan));
    return plan;
}

static inline struct program_options described_options(const struct plan *plan)
{
    return (struct program_options){
        .backend = backend, .device = on_device, .training = true, .n_states = 1, .plan = plan};
}

static inline int described_open(void **state)
{
    (void)state;
    struct device_options how = {.threads = 1, .describe_only = true};
    if (backend_find("reference", &backend) != STATUS_OK)
        return 1;
    return backend->device_open(&how, &on_device) != STATUS_OK;
}

static inline int described_close(void **state)
{
    (void)state;
    backend->device_close(on_device);
    return 0;
}

#endif
