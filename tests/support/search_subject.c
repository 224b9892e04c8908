#include "search_subject.h"

void take_machine(struct subject *s, const char *text)
{
    assert_ok(machine_parse(text, &s->machine));
    assert_true(s->machine->n_kinds <= 8);
    memset(s->sources, 0, sizeof s->sources);
    for (int i = 0; i < s->machine->n_kinds; i++)
        s->sources[i].kind = &s->machine->kinds[i];
}

void take_network(struct subject *s, const char *name, int64_t batch, const char *machine)
{
    struct graph_variant v = {.batch = batch,
                              .channels = 3,
                              .height = 224,
                              .width = 224,
                              .classes = 1000,
                              .drop_probability = -1};
    assert_ok(network_build(name, &v, &s->graph));
    take_machine(s, machine);
}

void drop_subject(struct subject *s)
{
    graph_destroy(s->graph);
    machine_destroy(s->machine);
}

struct prediction *predict(const struct subject *s, const struct plan *plan)
{
    const struct backend *backend;
    struct prediction *p;
    assert_ok(backend_find("reference", &backend));
    struct predict_request r = {.graph = s->graph,
                                .plan = plan,
                                .machine = s->machine,
                                .backend = backend,
                                .transport = "threads",
                                .device.threads = 1,
                                .n_states = 1};
    assert_ok(predict_plan(&r, &p));
    return p;
}

double clock_step_s(const struct subject *s, const struct plan *plan)
{
    struct prediction *p = predict(s, plan);
    double step_s = p->clock.step_s;
    prediction_destroy(p);
    return step_s;
}

bool stop_after(void *user, double best, double bound)
{
    int *left = user;
    (void)best;
    (void)bound;
    return --*left < 0;
}
