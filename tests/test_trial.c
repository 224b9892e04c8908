/* Plans trained in turns: more work takes longer, whichever plan stands first; and stopping is no
 * failure. Which plans are dropped is in test_trial_rounds. */
#include "model/network.h"
#include "plan/plan.h"
#include "runtime/stop.h"
#include "search/trial.h"
#include "testing.h"

#include <signal.h>
#include <stdlib.h>

enum { BATCH = 8 };
static const char images[] = "synthetic:1x28x28/10/512";

struct pair {
    struct graph *graph;
    struct plan *plain, *twice; /* the second computes every layer again for its gradients */
    struct forecast_options forecast;
    struct trial_request request;
};

static void pair_open(struct pair *p)
{
    struct graph_variant v = {BATCH, 1, 28, 28, 10, true, -1};
    struct plan_request one = {.n_workers = 1, .micro_batches = 4};
    assert_ok(network_build("lenet5", &v, &p->graph));
    assert_ok(plan_build("serial", p->graph, &one, &p->plain));
    assert_ok(plan_build("serial", p->graph, &one, &p->twice));
    p->plain->schedule = p->twice->schedule = PLAN_GPIPE; /* no backward follows its forward */
    for (int i = 1; i < p->twice->n_layers - 1; i++)
        p->twice->layers[i].recompute = true;
    assert_ok(plan_check(p->twice, p->graph));
    p->forecast = (struct forecast_options){.data = images, .backend = "reference", .threads = 1};
    p->request = (struct trial_request){
        .forecast = &p->forecast, .graph = p->graph, .limit_s = 2, .quiet = true};
}

static void pair_close(struct pair *p)
{
    plan_destroy(p->plain);
    plan_destroy(p->twice);
    graph_destroy(p->graph);
}

/* Whichever stands first. Other programs on the machine may hide it in one order, hardly in both.
 */
static void test_more_work_takes_longer(void **state)
{
    (void)state;
    struct pair p;
    double ratio = 1;
    pair_open(&p);
    for (int first = 0; first < 2; first++) {
        struct trial_plan plans[2] = {{.name = "a", .plan = first ? p.twice : p.plain},
                                      {.name = "b", .plan = first ? p.plain : p.twice}};
        assert_ok(trial_run(&p.request, plans, 2));
        const struct trial_plan *plain = &plans[first], *twice = &plans[1 - first];
        assert_true(plans[0].n_rounds >= TRIAL_LEAST_ROUNDS && plans[1].n_rounds >= 1);
        assert_true(plans[0].step_s > 0 && plans[1].noise >= 0);
        ratio *= twice->step_s / plain->step_s;
    }
    assert_that(ratio > 1.05, "twice the work takes %g times as long", ratio);
    pair_close(&p);
}

/* A plan that is no rival is dropped after its first round whatever that took. */
static void test_a_plan_aside_has_one_round(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    struct trial_plan plans[2] = {{.name = "plain", .plan = p.plain},
                                  {.name = "twice", .plan = p.twice, .aside = true}};
    assert_ok(trial_run(&p.request, plans, 2));
    assert_true(plans[1].behind && !plans[0].behind);
    assert_int_equal(plans[1].n_rounds, 1);
    assert_true(plans[0].n_rounds >= TRIAL_LEAST_ROUNDS);
    assert_true(plans[0].step_s > 0 && plans[1].step_s > 0);
    pair_close(&p);
}

/* Memory holds two at once: the first plan is trained beside each of the others in turn, and each
 * is compared with it. */
static void test_groups(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    struct trial_plan plans[3] = {{.name = "first", .plan = p.plain, .memory_share = 0.35},
                                  {.name = "same", .plan = p.plain, .memory_share = 0.35},
                                  {.name = "twice", .plan = p.twice, .memory_share = 0.35}};
    p.request.limit_s = 1;
    assert_ok(trial_run(&p.request, plans, 3));
    for (int i = 1; i < 3; i++) {
        assert_true(plans[i].n_rounds >= TRIAL_LEAST_ROUNDS || plans[i].behind);
        assert_true(plans[i].step_s > 0.3 * plans[0].step_s);
        assert_true(plans[i].n_rounds < plans[0].n_rounds);
    }
    pair_close(&p);
}

/* A batch larger than the data is all of them; a window that they do not fill is refused. */
static void test_few_samples(void **state)
{
    (void)state;
    struct pair p;
    struct plan *windowed;
    const struct plan_request two = {.n_workers = 2, .window = 65};
    pair_open(&p);
    struct trial_plan plans[2] = {{.name = "a", .plan = p.plain}, {.name = "b", .plan = p.plain}};
    p.forecast.data = "synthetic:1x28x28/10/4";
    p.request.limit_s = 0.1;
    assert_ok(trial_run(&p.request, plans, 2));
    assert_true(plans[0].n_rounds >= TRIAL_LEAST_ROUNDS && plans[0].step_s > 0);

    assert_ok(plan_build("pipedream", p.graph, &two, &windowed));
    plans[0].plan = windowed;
    p.forecast.data = images; /* 64 batches */
    assert_fails(trial_run(&p.request, plans, 1), STATUS_USAGE, "no 65 whole batches of 8");
    plan_destroy(windowed);
    pair_close(&p);
}

static void test_stopped(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    struct trial_plan plans[2] = {{.name = "a", .plan = p.plain}, {.name = "b", .plan = p.plain}};
    assert_ok(stop_install());
    assert_int_equal(kill(getpid(), SIGTERM), 0); /* another thread takes it */
    for (int i = 0; i < 10000 && !stop_requested(); i++)
        (void)usleep(1000);
    assert_ok(trial_run(&p.request, plans, 2));
    assert_true(plans[0].n_rounds == 0 && plans[0].step_s == 0);
    stop_remove();
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_work_takes_longer),
        cmocka_unit_test(test_a_plan_aside_has_one_round),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_few_samples),
        cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
