/* What the search hands out: choices that can run, prices that agree with the clock, plans that are
 * at least as good as those people wrote. */
#include "random_graphs.h"
#include "search_subject.h"

#include "model/network.h"
#include "predict/predict.h"
#include "search/compose.h"
#include "search/explain.h"
#include "search/layers.h"
#include "search/plan_price.h"

#include <math.h>

static const uint64_t SEED = 7;

static struct pricing_request price(const struct subject *s, int n_workers)
{
    return (struct pricing_request){.graph = s->graph,
                                    .machine = s->machine,
                                    .transport = "threads",
                                    .sources = s->sources,
                                    .n_workers = n_workers,
                                    .n_states = 1};
}

static struct layers_answer *search(const struct subject *s, double hidden_sync)
{
    struct layers_request r = {.pricing = price(s, s->machine->n_devices)};
    struct layers_answer *a;
    r.pricing.hidden_sync = hidden_sync;
    assert_ok(search_layers(&r, &a));
    return a;
}

static double strategy_step_s(const struct subject *s, const char *strategy)
{
    struct plan_request r = {.n_workers = s->machine->n_devices};
    struct plan *plan;
    assert_ok(plan_build(strategy, s->graph, &r, &plan));
    double step_s = clock_step_s(s, plan);
    plan_destroy(plan);
    return step_s;
}

/* ---- every choice can run ---- */

static const char *const machines[] = {"1x4:p100",          "1x7:v100", "2x3:p100,inter=1GB/s",
                                       "1x3:p100+p100+k40", "2x2:cpu",  "3x2:v100,2x1:k80",
                                       "1x16:p100"};
enum { MACHINES = sizeof machines / sizeof *machines };

static void test_random_choices_can_be_lowered(void **state)
{
    (void)state;
    print_message("seed %llu\n", (unsigned long long)SEED);
    for (uint32_t i = 0; i < 70; i++) {
        struct draw d = draw_begin(SEED, i);
        struct subject s = {.graph = draw_graph(&d, &(struct graph_wish){0})};
        take_machine(&s, machines[i % MACHINES]);
        struct pricing_request r = price(&s, s.machine->n_devices);
        struct pricing *p;
        assert_ok(pricing_create(&r, NULL, &p));
        int *choice = calloc((size_t)p->n_layers, sizeof *choice);
        assert_non_null(choice);
        for (int k = 0; k < 4; k++) {
            struct plan *plan;
            for (int l = 0; l < p->n_layers; l++)
                choice[l] = draw_number(&d, 0, p->layers[l].n_choices - 1);
            struct composed_stage stage = {p, 0, p->n_layers, choice, false};
            if (compose_plan("random", &stage, 1, 1, PLAN_GPIPE, 1, &plan) != STATUS_OK)
                fail_msg("seed %llu, graph %u: %s", (unsigned long long)SEED, i, status_message());
            assert_true(search_sum(&p->problem, choice) > 0);
            assert_true(clock_step_s(&s, plan) > 0);
            plan_destroy(plan);
        }
        free(choice);
        pricing_destroy(p);
        drop_subject(&s);
    }
}

/* The additive cost of the plan that cuts every layer along the batch, as far as it goes. */
static double data_parallel_s(const struct pricing *p)
{
    int *choice = calloc((size_t)p->n_layers, sizeof *choice);
    assert_non_null(choice);
    for (int l = 0; l < p->n_layers; l++)
        for (int x = 0; x < p->layers[l].n_choices; x++) {
            const struct choice *c = &p->layers[l].choices[x];
            if (c->n_cuts == 1 && c->cut[0].loop == 0 && c->n_pieces == p->request.n_workers)
                choice[l] = x;
        }
    double sum = search_sum(&p->problem, choice);
    free(choice);
    return sum;
}

static void test_searched_plans_can_be_lowered(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 70; i++) {
        struct draw d = draw_begin(SEED, 1000 + i);
        struct subject s = {.graph = draw_graph(&d, &(struct graph_wish){.wide = true})};
        take_machine(&s, machines[i % MACHINES]);
        struct pricing_request r = price(&s, s.machine->n_devices);
        struct layers_answer *a = search(&s, 0);
        struct pricing *p;
        assert_ok(pricing_create(&r, NULL, &p));
        assert_true(a->optimal && a->fits);
        assert_true(a->step_s <= data_parallel_s(p));
        assert_true(fabs(a->bound_s - a->step_s) <= 1e-9 * a->step_s);
        assert_true(clock_step_s(&s, a->plan) > 0);
        pricing_destroy(p);
        layers_answer_destroy(a);
        drop_subject(&s);
    }
}

/* Layers and edges that are equal are priced once, and each node of the graph is in one layer. */
static void test_equal_layers_are_priced_once(void **state)
{
    (void)state;
    struct subject s;
    struct pricing *p;
    take_network(&s, "googlenet", 64, "1x4:p100");
    struct pricing_request r = price(&s, 4);
    assert_ok(pricing_create(&r, NULL, &p));
    int n_nodes = 1;
    assert_true(p->n_priced_layers < p->n_layers && p->n_priced_edges < p->n_edges);
    for (int i = 0; i < p->n_layers; i++)
        n_nodes += p->layers[i].nodes.n_nodes;
    assert_int_equal(n_nodes, s.graph->n_nodes);
    pricing_destroy(p);
    drop_subject(&s);
}

/* The price of a plan that the search found is the search's own sum, but for what hides. */
static void test_price_of_a_plan(void **state)
{
    (void)state;
    static const char *const networks[] = {"alexnet", "resnet18", "googlenet"};
    static const char *const places[] = {"1x4:p100,intra=2GB/s", "2x2:p100,inter=1GB/s", "1x3:cpu"};
    for (int i = 0; i < 3; i++) {
        struct subject s;
        struct plan_price priced;
        take_network(&s, networks[i], 48, places[i]);
        struct layers_answer *a = search(&s, 0);
        assert_ok(plan_price(s.graph, a->plan, s.machine, PRECISION_FLOAT, (struct cost_scales){0},
                             &priced));
        assert_true(priced.step_s <= a->step_s * (1 + 1e-9));
        assert_that(priced.step_s >= (a->step_s - priced.sync_s) * (1 - 1e-9),
                    "%s: price %g, of which %g sums; search %g", networks[i], priced.step_s,
                    priced.sync_s, a->step_s);
        layers_answer_destroy(a);
        drop_subject(&s);
    }
}

/* The times of the layers of a plan: a move is in that of one layer, not of two. */
static void test_explained_times_add_up(void **state)
{
    (void)state;
    struct subject s;
    take_network(&s, "alexnet", 64, "1x4:p100,intra=2GB/s");
    struct layers_answer *a = search(&s, 0);
    struct prediction *p = predict(&s, a->plan);
    struct predict_request r = {.graph = s.graph,
                                .plan = a->plan,
                                .machine = s.machine,
                                .transport = "threads",
                                .n_states = 1};
    struct priced_node *priced = calloc((size_t)s.graph->n_nodes, sizeof *priced);
    double sum_s = 0, sync_s = 0, moves_s = 0;
    assert_non_null(priced);
    assert_ok(explain_price_layers(&r, p, a->plan, priced));
    struct pricing_request priced_as = price(&s, 4);
    struct pricing *pricing;
    assert_ok(pricing_create(&priced_as, NULL, &pricing));
    for (int i = 0; i < a->n_layers; i++) {
        const struct pricing_layer *l = &pricing->layers[i];
        const struct priced_node *node = &priced[l->nodes.node[0]];
        assert_true(node->known && node->other[0]);
        sum_s += node->seconds;
        sync_s += l->costs[a->choice[i]].sync_s;
        moves_s -= l->totals[a->choice[i]];
    }
    moves_s += a->step_s;
    pricing_destroy(pricing);
    double hidden_s = fmax(0, sync_s - p->clock.workers[0].wait_s);
    assert_true(moves_s > 0.01 * a->step_s);
    assert_that(fabs(sum_s - (a->step_s - hidden_s)) < 1e-9 * sum_s,
                "layers take %g, all of them %g less %g", sum_s, a->step_s, hidden_s);
    free(priced);
    prediction_destroy(p);
    layers_answer_destroy(a);
    drop_subject(&s);
}

static int find_layer(const struct pricing *p, const char *name)
{
    for (int i = 0; i < p->n_layers; i++)
        if (strcmp(p->request.graph->nodes[p->layers[i].nodes.node[0]].name, name) == 0)
            return i;
    fail_msg("there is no %s", name);
    return -1;
}

/* The seconds of summing gradients under a cut into so many samples and parts of a sum. */
static double sync_of(const struct pricing_layer *l, int samples, int summed)
{
    for (int x = 0; x < l->n_choices; x++) {
        const struct choice *c = &l->choices[x];
        bool by_samples = c->n_cuts > 0 && c->cut[0].loop == 0;
        int n_samples = by_samples ? c->cut[0].n_parts : 1;
        if (c->partial == (summed > 1) && n_samples == samples && c->place == PLACE_SPREAD &&
            c->n_cuts == (samples > 1) + (summed > 1) && c->n_pieces == samples * summed)
            return l->costs[x].sync_s;
    }
    fail_msg("there is no cut into %d samples and %d parts of a sum", samples, summed);
    return 0;
}

/* Of the parts of a sum one has the bias, and none of the others sums its gradient. */
static void test_bias_of_partial_sums(void **state)
{
    (void)state;
    static const double weights = 1000.0 * 4096, bias = 1000;
    struct subject s;
    struct pricing *p;
    take_network(&s, "alexnet", 64, "1x4:p100");
    struct pricing_request r = price(&s, 4);
    assert_ok(pricing_create(&r, NULL, &p));
    const struct pricing_layer *l = &p->layers[find_layer(p, "classifier.6")];
    double by_two = sync_of(l, 2, 1);
    assert_true(by_two > 0);
    assert_true(sync_of(l, 1, 2) == 0 && sync_of(l, 1, 4) == 0);
    assert_near(sync_of(l, 2, 2) / by_two, (weights / 2 + bias) / (weights + bias), 1e-9);
    pricing_destroy(p);
    drop_subject(&s);
}

/* Of the slow device, wherever it is among those that have the weights. */
static void test_updates_on_mixed_devices(void **state)
{
    (void)state;
    static const char *const mixed[] = {"1x2:k40", "1x2:k40+p100", "1x2:p100+k40"};
    double update_s[3] = {0};
    for (int i = 0; i < 3; i++) {
        struct subject s;
        struct pricing *p;
        take_network(&s, "alexnet", 64, mixed[i]);
        struct pricing_request r = price(&s, 2);
        assert_ok(pricing_create(&r, NULL, &p));
        const struct pricing_layer *l = &p->layers[find_layer(p, "classifier.6")];
        for (int x = 0; x < l->n_choices; x++)
            if (l->choices[x].n_cuts == 1 && l->choices[x].cut[0].loop == 0)
                update_s[i] = l->costs[x].update_s;
        pricing_destroy(p);
        drop_subject(&s);
    }
    assert_true(update_s[0] > 0);
    for (int i = 1; i < 3; i++)
        assert_that(update_s[i] == update_s[0], "on %s %g, on two slow ones %g", mixed[i],
                    update_s[i], update_s[0]);
}

/* ---- against the clock, and against people ---- */

static void check_price(const char *network, int64_t batch, const char *machine, double tolerance)
{
    struct subject s;
    take_network(&s, network, batch, machine);
    struct layers_answer *a = search(&s, 0);
    double clock_s = clock_step_s(&s, a->plan);
    print_message("%s on %s: priced %.3f ms, clock %.3f ms\n", network, machine, a->step_s * 1e3,
                  clock_s * 1e3);
    assert_true(fabs(a->step_s / clock_s - 1) < tolerance);
    layers_answer_destroy(a);
    drop_subject(&s);
}

static void test_prices_are_near_the_clock(void **state)
{
    (void)state;
    check_price("vgg16", 128, "1x4:p100,intra=15GB/s", 0.05);
    check_price("alexnet", 128, "1x4:p100,intra=15GB/s", 0.1);
    check_price("resnet18", 64, "1x2:p100,intra=15GB/s", 0.1);
    check_price("vgg16", 256, "2x4:p100,intra=15GB/s,inter=4.5GB/s", 0.1);
}

/* The one published plan (Jia et al. 2018, table 3): convolutions by samples, the last group by
 * rows and columns, the linear layers by channels, 4, 4 and 2. */
static const char published[] =
    "{\"cleave_plan\": 1, \"name\": \"published\", \"workers\": 4,"
    " \"stages\": [{\"workers\": [0, 1, 2, 3]}], \"default\": {\"cut\": {\"n\": 4}},"
    " \"layers\": {"
    "  \"features.24\": {\"cut\": {\"p\": 2, \"q\": 2}},"
    "  \"features.25\": {\"cut\": {\"h\": 2, \"w\": 2}},"
    "  \"features.26\": {\"cut\": {\"p\": 2, \"q\": 2}},"
    "  \"features.27\": {\"cut\": {\"h\": 2, \"w\": 2}},"
    "  \"features.28\": {\"cut\": {\"p\": 2, \"q\": 2}},"
    "  \"features.29\": {\"cut\": {\"h\": 2, \"w\": 2}},"
    "  \"classifier.0\": {\"cut\": {\"o\": 4}}, \"classifier.1\": {\"cut\": {\"c\": 4}},"
    "  \"classifier.2\": {\"cut\": {\"c\": 4}},"
    "  \"classifier.3\": {\"cut\": {\"o\": 4}}, \"classifier.4\": {\"cut\": {\"c\": 4}},"
    "  \"classifier.5\": {\"cut\": {\"c\": 4}},"
    "  \"classifier.6\": {\"cut\": {\"o\": 2}}, \"loss\": {\"cut\": {}}}}";

static void test_no_slower_than_the_published_plan(void **state)
{
    (void)state;
    struct subject s;
    struct plan *plan;
    take_network(&s, "vgg16", 128, "1x4:p100,intra=15GB/s");
    struct layers_answer *a = search(&s, 0);
    assert_ok(plan_parse(published, sizeof published - 1, "published", s.graph, &plan));
    double ours = clock_step_s(&s, a->plan), theirs = clock_step_s(&s, plan);
    print_message("searched %.3f ms, published %.3f ms\n", ours * 1e3, theirs * 1e3);
    assert_true(ours <= theirs);
    assert_true(ours <= strategy_step_s(&s, "data") && ours <= strategy_step_s(&s, "owt"));
    plan_destroy(plan);
    layers_answer_destroy(a);
    drop_subject(&s);
}

static void test_slow_devices_get_less(void **state)
{
    (void)state;
    struct subject s;
    take_network(&s, "resnet18", 64, "1x4:p100+p100+k40+k40");
    struct layers_answer *a = search(&s, 0.5);
    bool uneven = false;
    for (int i = 1; i < a->plan->n_layers; i++)
        for (int k = 0; k < a->plan->layers[i].n_cuts; k++) {
            const struct plan_cut *cut = &a->plan->layers[i].cut[k];
            if (!cut->sizes || cut->n_parts != 4)
                continue;
            uneven = true;
            assert_true(cut->sizes[0] > cut->sizes[2] && cut->sizes[1] > cut->sizes[3]);
        }
    assert_true(uneven);
    double even = strategy_step_s(&s, "data"), ours = clock_step_s(&s, a->plan);
    print_message("uneven %.3f ms, even %.3f ms\n", ours * 1e3, even * 1e3);
    assert_true(ours < 0.9 * even);
    layers_answer_destroy(a);
    drop_subject(&s);
}

/* ---- limits ---- */

static void test_bends_to_fit(void **state)
{
    (void)state;
    struct subject s;
    /* Summing gradients costs nothing here, so that without the limit all weights are copied; with
     * a small batch they are most of it, and cut by channels they fit. */
    take_network(&s, "resnet18", 8, "1x4:p100");
    struct layers_answer *free_ = search(&s, 1);
    double wanted = free_->memory_bytes;
    machine_destroy(s.machine);
    char text[64];
    (void)snprintf(text, sizeof text, "1x4:p100,memory=%.0fMB", 0.9 * wanted / 1e6);
    take_machine(&s, text);
    struct layers_answer *bent = search(&s, 1);
    assert_true(bent->fits && !bent->optimal && bent->memory_bytes <= 0.9 * wanted);
    assert_true(bent->step_s >= free_->step_s);
    machine_destroy(s.machine);
    take_machine(&s, "1x4:p100,memory=1MB");
    struct layers_answer *none = search(&s, 1);
    assert_true(!none->fits);
    layers_answer_destroy(none);
    layers_answer_destroy(bent);
    layers_answer_destroy(free_);
    drop_subject(&s);
}

static void test_stopping(void **state)
{
    (void)state;
    struct subject s;
    int finished = 0, stopped = 0;
    take_network(&s, "googlenet", 64, "1x4:p100");
    for (int allowed = 0; allowed < 4000; allowed = 2 * allowed + 1) {
        int left = allowed;
        struct layers_request r = {.pricing = price(&s, 4), .options = {.stop = stop_after}};
        struct layers_answer *a;
        r.options.user = &left;
        enum status st = search_layers(&r, &a);
        if (st == STATUS_STOPPED) {
            stopped++;
            status_clear();
            continue;
        }
        assert_ok(st);
        finished++;
        assert_true(a->bound_s <= a->step_s * (1 + 1e-12));
        layers_answer_destroy(a);
    }
    assert_true(finished > 0 && stopped > 0);
    drop_subject(&s);
}

static void test_nonsense_is_refused(void **state)
{
    (void)state;
    struct subject s;
    take_network(&s, "alexnet", 8, "1x2:p100");
    static const int counts[] = {0, -3, PLAN_MAX_WORKERS + 1};
    for (int i = 0; i < 3; i++) {
        struct layers_request r = {.pricing = price(&s, counts[i])};
        struct layers_answer *a;
        assert_int_equal(search_layers(&r, &a), STATUS_USAGE);
        status_clear();
    }
    drop_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_choices_can_be_lowered),
        cmocka_unit_test(test_searched_plans_can_be_lowered),
        cmocka_unit_test(test_equal_layers_are_priced_once),
        cmocka_unit_test(test_price_of_a_plan),
        cmocka_unit_test(test_explained_times_add_up),
        cmocka_unit_test(test_bias_of_partial_sums),
        cmocka_unit_test(test_updates_on_mixed_devices),
        cmocka_unit_test(test_prices_are_near_the_clock),
        cmocka_unit_test(test_no_slower_than_the_published_plan),
        cmocka_unit_test(test_slow_devices_get_less),
        cmocka_unit_test(test_bends_to_fit),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
