/* Searches on parts of a machine: more devices never make the answer slower, the host's load does
 * not change it, and the library's is the command's; the bound of a price holds, and no plan that
 * was dropped would have won.
 */
#include "search_subject.h"

#include "base/random.h"
#include "cleave/cleave.h"
#include "search/chooser.h"
#include "search/plan_price.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct desk {
    struct subject subject;
    const struct backend *backend;
    useconds_t nap_us; /* before each prediction: a host that is busy */
};

static enum status prepare(void *user, const struct plan *plan, struct predict_request *out)
{
    const struct desk *d = user;
    if (d->nap_us > 0)
        (void)usleep(d->nap_us);
    *out = (struct predict_request){.graph = d->subject.graph,
                                    .plan = plan,
                                    .machine = d->subject.machine,
                                    .backend = d->backend,
                                    .transport = "threads",
                                    .device.threads = 1,
                                    .n_states = 1};
    return STATUS_OK;
}

/* Networks of small images have those of Fashion-MNIST; the others small ones of their own. */
static void take(struct desk *d, const char *network, int64_t batch, const char *machine)
{
    bool small = strcmp(network, "mlp") == 0 || strcmp(network, "lenet5") == 0;
    bool wide = strncmp(network, "alexnet", 7) == 0 || strcmp(network, "inceptionv3") == 0;
    int64_t side = small ? 28 : wide ? 224 : 64;
    struct graph_variant v = {batch, small ? 1 : 3, side, side, 10, small, -1};
    *d = (struct desk){0};
    assert_ok(network_build(network, &v, &d->subject.graph));
    take_machine(&d->subject, machine);
    assert_ok(backend_find("reference", &d->backend));
}

static struct candidate_set *search(struct desk *d)
{
    struct candidate_request r = {.graph = d->subject.graph,
                                  .machine = d->subject.machine,
                                  .n_workers = d->subject.machine->n_devices,
                                  .fewer = true,
                                  .prepare = prepare,
                                  .user = d};
    struct candidate_set *s;
    assert_ok(candidates_find(&r, &s));
    assert_true(s->best >= 0);
    return s;
}

/* ---- more devices ---- */

static void test_more_devices_are_never_slower(void **state)
{
    (void)state;
    static const struct {
        const char *network;
        int64_t batch;
        const char *machine; /* of so many nodes */
    } cases[] = {
        {"lenet5", 256, "%dx2:p100,inter=1GB/s"},  {"resnet18", 64, "%dx4:h200,inter=100Gbit/s"},
        {"alexnet", 128, "%dx4:v100,inter=2GB/s"}, {"mobilenetv2", 48, "%dx3:a100-80"},
        {"vgg11", 64, "%dx2:gtx1080,inter=1GB/s"}, {"mlp", 64, "%dx8:h100"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double before_s = INFINITY, before_fastest_s = INFINITY;
        for (int nodes = 1; nodes <= 8; nodes *= 2) {
            struct desk d;
            char machine[64];
            (void)snprintf(machine, sizeof machine, cases[i].machine, nodes);
            take(&d, cases[i].network, cases[i].batch, machine);
            struct candidate_set *s = search(&d);
            double step_s = s->list[s->best].step_s, fastest_s = s->list[s->fastest].step_s;
            assert_that(step_s <= before_s && fastest_s <= before_fastest_s,
                        "%s on %s: %s takes %g, half of it took %g", cases[i].network, machine,
                        s->list[s->best].name, step_s, before_s);
            before_s = step_s;
            before_fastest_s = fastest_s;
            candidates_destroy(s);
            drop_subject(&d.subject);
        }
    }
}

/* The same for numbers of workers that are no powers of two, down to half of them each. */
static void test_halves(void **state)
{
    (void)state;
    double before_s = INFINITY;
    for (int n = 3; n <= 12; n *= 2) {
        struct desk d;
        struct candidate_set *s;
        take(&d, "resnet18", 24, "3x4:h200,inter=1GB/s");
        struct candidate_request r = {.graph = d.subject.graph,
                                      .machine = d.subject.machine,
                                      .n_workers = n,
                                      .fewer = true,
                                      .prepare = prepare,
                                      .user = &d};
        assert_ok(candidates_find(&r, &s));
        assert_that(s->list[s->best].step_s <= before_s, "%d workers: %g, half of them %g", n,
                    s->list[s->best].step_s, before_s);
        before_s = s->list[s->best].step_s;
        candidates_destroy(s);
        drop_subject(&d.subject);
    }
}

/* ---- the host, and the way in ---- */

/* A slow host finds the same, in the same order; no limit of time is set for another machine. */
static void test_load_does_not_count(void **state)
{
    (void)state;
    struct candidate_set *sets[2];
    struct desk d[2];
    for (int i = 0; i < 2; i++) {
        take(&d[i], "vgg11", 64, "8x2:p100,inter=1GB/s");
        d[i].nap_us = i ? 20000 : 0;
        sets[i] = search(&d[i]);
    }
    assert_int_equal(sets[0]->n, sets[1]->n);
    assert_int_equal(sets[0]->best, sets[1]->best);
    for (int i = 0; i < sets[0]->n; i++) {
        assert_string_equal(sets[0]->list[i].name, sets[1]->list[i].name);
        assert_true(sets[0]->list[i].state == sets[1]->list[i].state);
        assert_true(sets[0]->list[i].step_s == sets[1]->list[i].step_s);
    }
    for (int i = 0; i < 2; i++) {
        candidates_destroy(sets[i]);
        drop_subject(&d[i].subject);
    }
    struct chooser_options o = {
        .forecast = {.data = "synthetic:1x28x28/10", .machine = "1x2:p100", .batch = 64}};
    struct chooser c;
    struct candidate_set *s;
    struct graph *graph;
    o.forecast.run = forecast_usual_run;
    assert_ok(forecast_build_graph(&o.forecast, "lenet5", &graph));
    assert_ok(chooser_open(&c, &o));
    assert_ok(chooser_find(&c, 2, &s));
    assert_true(c.limit_s == 0 && s->complete);
    candidates_destroy(s);
    chooser_close(&c);
    graph_destroy(graph);
}

static json_t *ask_command(const char *network, int batch, const char *machine)
{
    char line[512];
    (void)snprintf(line, sizeof line, "'%s' plan %s --data imagenet --batch %d --machine %s --json",
                   getenv("CLEAVE"), network, batch, machine);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    json_t *answer = json_loadf(f, 0, NULL);
    assert_int_equal(pclose(f), 0);
    assert_non_null(answer);
    return answer;
}

static void test_library_is_the_command(void **state)
{
    (void)state;
    static const char *const machines[] = {"1x4:p100", "4x2:h200,inter=100Gbit/s"};
    if (!getenv("CLEAVE"))
        skip_because("CLEAVE does not name the program");
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        cleave_model *model;
        cleave_machine *machine;
        cleave_search *s;
        json_t *answer = ask_command("resnet50", 256, machines[i]);
        assert_int_equal(cleave_model_open("resnet50", "imagenet", 256, &model), CLEAVE_OK);
        assert_int_equal(cleave_machine_open(machines[i], &machine), CLEAVE_OK);
        assert_int_equal(cleave_search_run(model, machine, NULL, &s), CLEAVE_OK);
        const struct cleave_search_info *info = cleave_search_get_info(s);
        const json_t *list = json_object_get(answer, "candidates");
        assert_int_equal(info->n_candidates, json_array_size(list));
        assert_string_equal(cleave_search_get_candidate(s, info->best)->name,
                            json_string_value(json_object_get(answer, "best")));
        for (int k = 0; k < info->n_candidates; k++) {
            const struct cleave_candidate *c = cleave_search_get_candidate(s, k);
            const json_t *other = json_array_get(list, (size_t)k);
            assert_string_equal(c->name, json_string_value(json_object_get(other, "name")));
            assert_near(json_real_value(json_object_get(other, "step_s")) / c->step_s, 1, 1e-6);
        }
        cleave_search_destroy(s);
        cleave_machine_destroy(machine);
        cleave_model_destroy(model);
        json_decref(answer);
    }
}

/* ---- plans that are dropped ---- */

static const char *const machines[] = {
    "1x1:titanrtx",
    "1x4:p100",
    "2x2:h200",
    "2x4:v100,inter=100MB/s",
    "1x4:p100+p100+k40+k40",
    "3x2:k80,intra=1TB/s,inter=1TB/s,intra_latency=0,latency=0",
};
enum { N_MACHINES = sizeof machines / sizeof *machines };

struct dice {
    uint64_t seed, n_thrown;
};

static int pick(struct dice *from, int n)
{
    struct random_key key = {.seed = from->seed, .use = RANDOM_TEST};
    return (int)(random_word(key, 0, from->n_thrown++) % (uint32_t)n);
}

/* All networks and strategies, each on machines that a seed picks; every other time with memory and
 * launches that take no time, where nothing but arithmetic is left. */
static void test_bounds_hold(void **state)
{
    (void)state;
    struct dice from = {.seed = 41};
    int n = 0;
    for (const char *const *name = network_names(); *name; name++)
        for (const struct plan_strategy *to = plan_strategies(); to->name; to++) {
            struct desk d;
            struct plan *plan;
            struct plan_price price;
            const char *machine = machines[pick(&from, N_MACHINES)];
            take(&d, *name, 4 + pick(&from, 20), machine);
            struct machine *m = d.subject.machine;
            for (int k = 0; k < m->n_kinds && n % 2; k++) {
                m->kinds[k].launch_s = 0;
                m->kinds[k].reached_bytes_per_s = m->kinds[k].peak_bytes_per_s = 1e18;
            }
            struct plan_request how = {.n_workers =
                                           strcmp(to->name, "serial") == 0 ? 1 : m->n_devices};
            enum status st = plan_build(to->name, d.subject.graph, &how, &plan);
            if (st == STATUS_OK) {
                n++;
                assert_ok(plan_price(d.subject.graph, plan, m, PRECISION_FLOAT,
                                     (struct cost_scales){0}, &price));
                double step_s = clock_step_s(&d.subject, plan);
                assert_that(price.bound_s <= step_s, "%s, %s on %s: bound %g, clock %g", *name,
                            to->name, machine, price.bound_s, step_s);
                plan_destroy(plan);
            } else
                status_clear();
            drop_subject(&d.subject);
        }
    assert_true(n > 60);
}

/* Every plan that was not clocked is, now: none is faster than the fastest. */
static void test_no_winner_is_dropped(void **state)
{
    (void)state;
    struct dice from = {.seed = 42};
    int n = 0;
    for (const char *const *name = network_names(); *name; name++) {
        struct desk d;
        const char *machine = machines[1 + pick(&from, N_MACHINES - 1)];
        take(&d, *name, 8 + pick(&from, 24), machine);
        struct candidate_set *s = search(&d);
        for (int i = 0; i < s->n; i++) {
            const struct candidate *c = &s->list[i];
            struct predict_request r;
            struct prediction *p;
            if (c->state != CANDIDATE_ESTIMATED || c->stale)
                continue;
            assert_ok(prepare(&d, c->plan, &r));
            if (predict_plan(&r, &p) != STATUS_OK) {
                status_clear();
                continue;
            }
            n++;
            const struct candidate *fastest = &s->list[s->fastest];
            assert_that(p->clock.step_s >= fastest->step_s || p->too_large_worker >= 0,
                        "%s on %s, batch %lld: %s was dropped at %g, but takes %g; %s takes %g",
                        *name, machine, (long long)d.subject.graph->batch, c->name, c->step_s,
                        p->clock.step_s, fastest->name, fastest->step_s);
            prediction_destroy(p);
        }
        candidates_destroy(s);
        drop_subject(&d.subject);
    }
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_devices_are_never_slower),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_load_does_not_count),
        cmocka_unit_test(test_library_is_the_command),
        cmocka_unit_test(test_bounds_hold),
        cmocka_unit_test(test_no_winner_is_dropped),
    };
    return test_run(tests);
}
