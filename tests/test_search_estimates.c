/* Estimates against the clock where parts differ: a batch that micro-batches or workers do not
 * divide, fewer samples than workers, sizes by speed. */
#include "search_subject.h"

#include "predict/predict.h"
#include "search/pipelines.h"
#include "search/plan_price.h"

#include <math.h>

static struct plan *build_plan(const struct subject *s, const char *strategy, int micro_batches)
{
    struct plan_request r = {.n_workers = s->machine->n_devices, .micro_batches = micro_batches};
    struct plan *plan;
    assert_ok(plan_build(strategy, s->graph, &r, &plan));
    return plan;
}

static struct plan_price estimate(const struct subject *s, const struct plan *plan)
{
    struct plan_price e;
    assert_ok(plan_price(s->graph, plan, s->machine, PRECISION_FLOAT, (struct cost_scales){0}, &e));
    return e;
}

/* Beside a server parts of parameters stay with their workers: only whole ones go there. */
static void test_a_server_beside_cut_layers(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        int model_workers;
    } cases[] = {{"owt", 0}, {"hybrid", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct subject s;
        struct plan *plan;
        take_network(&s, "alexnet", 64, "1x5:p100,intra=2GB/s");
        struct plan_request r = {.n_workers = 5,
                                 .n_servers = 1,
                                 .sync = PLAN_SERVER,
                                 .model_workers = cases[i].model_workers};
        assert_ok(plan_build(cases[i].strategy, s.graph, &r, &plan));
        struct plan_price e = estimate(&s, plan);
        double clocked_s = clock_step_s(&s, plan), off = e.step_s / clocked_s;
        assert_that(e.bound_s <= clocked_s, "%s: bound %g, clock %g", cases[i].strategy, e.bound_s,
                    clocked_s);
        assert_that(off < 1.5 && off > 1 / 1.5, "%s: estimate %g, clock %g", cases[i].strategy,
                    e.step_s, clocked_s);
        plan_destroy(plan);
        drop_subject(&s);
    }
}

/* No bound is above the clock, and every estimate near it; which it need not be where the largest
 * part of a step is none of what an estimate counts. */
static void test_parts_that_differ(void **state)
{
    (void)state;
    static const struct {
        int64_t batch;
        const char *machine, *strategy;
        int micro_batches;
        double most_off; /* either way */
    } cases[] = {
        {9, "1x1:k80", "serial", 8, 1.25}, /* micro-batches of 1, and one of 2 */
        {17, "1x2:k80", "gpipe", 16, 1.25},
        {33, "1x2:p100", "data", 16, 1.25},
        {9, "1x8:p100", "data", 1, 1.1}, /* one worker has 2 samples, the others 1 */
        {70, "1x4:p100", "owt", 1, 1.1},
        /* five of eight have a sample; the slow one has none, but its port is slow */
        {5, "1x8:h100+h100+cpu+h100+h100+h100+h100+h100", "data", 1, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct subject s;
        take_network(&s, "resnet18", cases[i].batch, cases[i].machine);
        struct plan *plan = build_plan(&s, cases[i].strategy, cases[i].micro_batches);
        struct plan_price e = estimate(&s, plan);
        double clocked_s = clock_step_s(&s, plan), off = e.step_s / clocked_s;
        assert_that(e.bound_s <= clocked_s, "%s m%d, batch %lld on %s: bound %g, clock %g",
                    cases[i].strategy, cases[i].micro_batches, (long long)cases[i].batch,
                    cases[i].machine, e.bound_s, clocked_s);
        assert_that(off < cases[i].most_off && off > 1 / cases[i].most_off,
                    "%s m%d, batch %lld on %s: estimate %g, clock %g", cases[i].strategy,
                    cases[i].micro_batches, (long long)cases[i].batch, cases[i].machine, e.step_s,
                    clocked_s);
        plan_destroy(plan);
        drop_subject(&s);
    }
}

/* The data gradient of the first layer is never computed: in an mlp that is a fifth of all
 * arithmetic. Nothing else makes the bound larger than a step on devices with fast memory. */
static void test_bound_of_the_first_layer(void **state)
{
    (void)state;
    static const char *const strategies[] = {"serial", "data", "model", "layers"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct graph_variant v = {4096, 1, 28, 28, 10, true, -1};
        struct subject s;
        assert_ok(network_build("mlp", &v, &s.graph));
        take_machine(&s, i == 0 ? "1x1:p100" : "1x2:p100");
        s.machine->kinds[0].launch_s = 1e-9;
        s.machine->kinds[0].reached_bytes_per_s = s.machine->kinds[0].peak_bytes_per_s = 1e18;
        struct plan *plan = build_plan(&s, strategies[i], 0);
        double bound_s = estimate(&s, plan).bound_s, clocked_s = clock_step_s(&s, plan);
        assert_that(bound_s <= clocked_s, "%s: bound %g, clock %g", strategies[i], bound_s,
                    clocked_s);
        assert_that(strcmp(strategies[i], "serial") != 0 || bound_s > 0.9 * clocked_s,
                    "bound %g, clock %g", bound_s, clocked_s);
        plan_destroy(plan);
        drop_subject(&s);
    }
}

/* The largest piece counts, wherever it is. */
static void test_largest_piece(void **state)
{
    (void)state;
    static const int64_t sizes[2][2] = {{1, 3}, {3, 1}};
    struct plan_request how = {.n_workers = 4, .model_workers = 2};
    struct plan_price e[2];
    struct subject s;
    take_network(&s, "vgg11", 40, "1x4:p100");
    for (int k = 0; k < 2; k++) {
        struct plan *plan;
        assert_ok(plan_build("hybrid", s.graph, &how, &plan));
        for (int i = 1; i < plan->n_layers; i++)
            for (int c = 0; c < plan->layers[i].n_cuts; c++)
                if (plan->layers[i].cut[c].loop != 0)
                    plan->layers[i].cut[c].sizes = sizes[k];
        e[k] = estimate(&s, plan);
        plan_destroy(plan);
    }
    assert_near(e[0].compute_s / e[1].compute_s, 1, 1e-9);
    assert_near(e[0].sync_s / e[1].sync_s, 1, 1e-9);
    assert_near(e[0].bound_s / e[1].bound_s, 1, 1e-9);
    drop_subject(&s);
}

/* Of pipelines, too, micro-batches count by their samples. */
static void test_pipelines(void **state)
{
    (void)state;
    double before_s = 0;
    for (int64_t batch = 16; batch <= 32; batch += 4) {
        struct subject s;
        struct pipelines_found found[2];
        int n;
        take_network(&s, "resnet18", batch, "1x2:k80");
        struct pipelines_request r = {.pricing = {.graph = s.graph,
                                                  .machine = s.machine,
                                                  .transport = "threads",
                                                  .sources = s.sources,
                                                  .n_workers = 2,
                                                  .n_states = 1},
                                      .micro_batches = 16,
                                      .synchronous = true};
        assert_ok(search_pipelines(&r, found, 2, &n));
        assert_int_equal(n, 2);
        for (int i = 0; i < n; i++) {
            double off = found[i].step_s / clock_step_s(&s, found[i].plan);
            assert_that(off < 1.2 && off > 1 / 1.5, "%s, batch %lld: %g of the clock",
                        found[i].plan->name, (long long)batch, off);
            plan_destroy(found[i].plan);
        }
        assert_that(found[0].step_s > 1.05 * before_s, "batch %lld: %g, of 4 less %g",
                    (long long)batch, found[0].step_s, before_s);
        before_s = found[0].step_s;
        drop_subject(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_server_beside_cut_layers),
        cmocka_unit_test(test_parts_that_differ),
        cmocka_unit_test(test_bound_of_the_first_layer),
        cmocka_unit_test(test_largest_piece),
        cmocka_unit_test(test_pipelines),
    };
    return test_run(tests);
}
