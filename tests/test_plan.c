/* Plans: parts, strategies, the JSON there and back, and every mistake with its line. */
#include "model/network.h"
#include "plan/internal.h"
#include "plan/plan.h"
#include "testing.h"

static const int worker_counts[] = {1, 2, 3, 4, 7};
enum { WORKER_COUNTS = sizeof worker_counts / sizeof *worker_counts };

static const struct {
    const char *name;
    int64_t image[3], classes;
    bool small_form;
} networks[] = {
    {"lenet5", {1, 28, 28}, 10, true},         {"alexnet", {3, 224, 224}, 1000, false},
    {"vgg11", {3, 32, 32}, 10, true},          {"resnet18", {3, 224, 224}, 1000, false},
    {"mobilenetv2", {3, 224, 224}, 10, false}, {"googlenet", {3, 224, 224}, 10, false},
    {"inceptionv3", {3, 299, 299}, 10, false},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

static struct graph *build(int k)
{
    struct graph_variant v = {.batch = 8,
                              .channels = networks[k].image[0],
                              .height = networks[k].image[1],
                              .width = networks[k].image[2],
                              .classes = networks[k].classes,
                              .small_form = networks[k].small_form,
                              .drop_probability = -1};
    struct graph *g;
    assert_ok(network_build(networks[k].name, &v, &g));
    return g;
}

static int find_node(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!strcmp(g->nodes[i].name, name))
            return i;
    fail_msg("no layer %s", name);
    return -1;
}

/* ---- parts ---- */

static void check_parts(const struct plan_cut *cut, int64_t extent)
{
    int64_t end = 0;
    for (int i = 0; i < cut->n_parts; i++) {
        struct range r = plan_part(cut, i, extent);
        assert_int_equal(r.begin, end);
        assert_true(r.end >= r.begin);
        end = r.end;
    }
    assert_int_equal(end, extent);
}

static void test_parts_cover_and_do_not_overlap(void **state)
{
    (void)state;
    static const int64_t sizes[] = {3, 1, 4, 1, 5, 9, 2};
    for (int n_parts = 1; n_parts <= 7; n_parts++)
        for (int64_t extent = 1; extent < 60; extent++) {
            struct plan_cut even = {0, n_parts, NULL}, uneven = {0, n_parts, sizes};
            check_parts(&even, extent);
            check_parts(&uneven, extent);
            for (int i = 0; i < n_parts; i++) {
                struct range r = plan_part(&even, i, extent);
                assert_int_equal(r.begin, i * extent / n_parts);
            }
        }
}

static void test_sizes_are_kept_and_scaled(void **state)
{
    (void)state;
    static const int64_t sizes[] = {3, 1, 4};
    struct plan_cut cut = {0, 3, sizes};
    for (int64_t scale = 1; scale <= 1000; scale *= 10)
        for (int i = 0; i < 3; i++) {
            struct range r = plan_part(&cut, i, 8 * scale);
            assert_int_equal(r.end - r.begin, sizes[i] * scale);
        }
    /* 5 samples in proportions 3 : 1 : 4: the exact boundaries are 1.875 and 2.5 */
    assert_int_equal(plan_part(&cut, 0, 5).end, 2);
    assert_int_equal(plan_part(&cut, 1, 5).end, 3);
}

static void test_last_cut_changes_fastest(void **state)
{
    (void)state;
    struct graph *g = build(0);
    const struct graph_node *conv = &g->nodes[find_node(g, "conv2")]; /* 8 x 16 x 10 x 10 */
    struct plan_layer layer = {.n_cuts = 2, .n_pieces = 6, .cut = {{3, 2, NULL}, {2, 3, NULL}}};
    struct loop_nest nest;
    struct box box;
    op_get_loops(&conv->op, &nest);
    for (int i = 0; i < 6; i++) {
        plan_piece_box(&layer, &nest, i, &box);
        assert_int_equal(box.range[3].begin, i / 3 * 5);
        assert_int_equal(box.range[3].end, i / 3 * 5 + 5);
        assert_int_equal(box.range[2].begin, i % 3 * 16 / 3);
        assert_int_equal(box.range[0].end, 8);
    }
    graph_destroy(g);
}

/* ---- there and back ---- */

static void assert_same_layer(const struct plan_layer *a, const struct plan_layer *b,
                              const char *name)
{
    assert_that(a->stage == b->stage && a->n_cuts == b->n_cuts && a->n_pieces == b->n_pieces &&
                    a->recompute == b->recompute,
                "%s", name);
    for (int i = 0; i < a->n_cuts; i++) {
        assert_that(a->cut[i].loop == b->cut[i].loop && a->cut[i].n_parts == b->cut[i].n_parts,
                    "%s", name);
        assert_that(!a->cut[i].sizes == !b->cut[i].sizes, "%s", name);
        if (a->cut[i].sizes)
            assert_memory_equal(a->cut[i].sizes, b->cut[i].sizes,
                                (size_t)a->cut[i].n_parts * sizeof(int64_t));
    }
    if (a->n_pieces)
        assert_memory_equal(a->workers, b->workers, (size_t)a->n_pieces * sizeof(int));
}

static void assert_same_plan(const struct plan *a, const struct plan *b, const struct graph *g)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->n_workers, b->n_workers);
    assert_int_equal(a->n_stages, b->n_stages);
    for (int s = 0; s < a->n_stages; s++) {
        assert_int_equal(a->stages[s].n_workers, b->stages[s].n_workers);
        assert_memory_equal(a->stages[s].workers, b->stages[s].workers,
                            (size_t)a->stages[s].n_workers * sizeof(int));
    }
    assert_int_equal(a->n_layers, b->n_layers);
    for (int i = 0; i < a->n_layers; i++)
        assert_same_layer(&a->layers[i], &b->layers[i], g->nodes[i].name);
    assert_int_equal(a->micro_batches, b->micro_batches);
    assert_int_equal(a->schedule, b->schedule);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->sync, b->sync);
    assert_int_equal(a->bucket_bytes, b->bucket_bytes);
    assert_int_equal(a->workers_per_node, b->workers_per_node);
    assert_int_equal(a->asynchronous, b->asynchronous);
    assert_int_equal(a->n_servers, b->n_servers);
    if (a->n_servers)
        assert_memory_equal(a->servers, b->servers, (size_t)a->n_servers * sizeof(int));
}

static void check_round_trip(const struct plan *p, const struct graph *g)
{
    struct plan *back;
    char *text;
    assert_ok(plan_print(p, g, &text));
    assert_ok(plan_parse(text, strlen(text), "printed", g, &back));
    assert_same_plan(p, back, g);
    plan_destroy(back);
    free(text);
}

/* What a strategy cannot do it refuses as a wrong request. */
static bool is_possible(const char *strategy, const struct graph *g, int n_workers)
{
    if (!strcmp(strategy, "serial"))
        return n_workers == 1;
    if (!strcmp(strategy, "ps"))
        return n_workers >= 2;
    return g->n_nodes > n_workers;
}

static void test_every_strategy_comes_back(void **state)
{
    (void)state;
    int n_plans = 0;
    for (int k = 0; k < NETWORKS; k++) {
        struct graph *g = build(k);
        for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
            for (int w = 0; w < WORKER_COUNTS; w++) {
                struct plan_request request = {.n_workers = worker_counts[w]};
                struct plan *p;
                if (!is_possible(s->name, g, request.n_workers)) {
                    assert_fails(plan_build(s->name, g, &request, &p), STATUS_USAGE, s->name);
                    continue;
                }
                assert_ok(plan_build(s->name, g, &request, &p));
                assert_string_equal(p->name, s->name);
                assert_ok(plan_check(p, g));
                check_round_trip(p, g);
                plan_destroy(p);
                n_plans++;
            }
        graph_destroy(g);
    }
    assert_int_equal(n_plans, NETWORKS * (9 * WORKER_COUNTS + 1 + WORKER_COUNTS - 1));
}

static void test_file_comes_back(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct graph *g = build(0);
    struct plan_request request = {.n_workers = 4, .sync = PLAN_TREE, .bucket_bytes = 1000};
    struct plan *p, *back;
    assert_ok(plan_build("hybrid", g, &request, &p));
    assert_ok(plan_write(p, g, test_path(path, "plan.json")));
    assert_ok(plan_read(path, g, &back));
    assert_int_equal(back->sync, PLAN_TREE);
    assert_same_plan(p, back, g);
    assert_fails(plan_read("nowhere.json", g, &back), STATUS_FAILED, "nowhere.json: cannot open");
    assert_fails(plan_write(p, g, "/nowhere/plan.json"), STATUS_FAILED, "/nowhere/plan.json");
    plan_destroy(p);
    plan_destroy(back);
    plan_destroy(NULL);
    graph_destroy(g);
}

/* ---- what strategies do ---- */

static struct plan *make(const struct graph *g, const char *strategy, int n_workers)
{
    struct plan *p;
    assert_ok(plan_build(strategy, g, &(struct plan_request){.n_workers = n_workers}, &p));
    return p;
}

/* "n 2 o 2" of a layer, in a buffer that the next call reuses. */
static const char *cuts_text(const struct plan *p, const struct graph *g, const char *name)
{
    static char text[128];
    int node = find_node(g, name), used = 0;
    struct loop_nest nest;
    op_get_loops(&g->nodes[node].op, &nest);
    text[0] = '\0';
    for (int i = 0; i < p->layers[node].n_cuts; i++) {
        const struct plan_cut *cut = &p->layers[node].cut[i];
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s %d", i ? " " : "",
                         nest.loop[cut->loop].name, cut->n_parts);
    }
    return text;
}

static void test_strategies_cut_as_they_say(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        int n_workers;
        const char *layer, *cuts;
    } expected[] = {
        {"serial", 1, "conv1", ""},         {"data", 4, "conv1", "n 4"},
        {"data", 4, "loss", "n 4"},         {"model", 4, "conv1", "k 4"},
        {"model", 7, "conv1", "k 6"},       {"model", 7, "relu1", "c 6"},
        {"model", 7, "pool1", "c 6"},       {"model", 7, "conv2", "k 7"},
        {"model", 7, "flatten", "c 7"},     {"model", 7, "fc1", "o 7"},
        {"model", 7, "relu3", "c 7"},       {"model", 7, "loss", "n 7"},
        {"spatial", 4, "conv1", "p 2 q 2"}, {"spatial", 7, "conv1", "p 7"},
        {"spatial", 7, "pool2", "p 5"},     {"spatial", 6, "relu1", "h 3 w 2"},
        {"spatial", 4, "flatten", "n 4"},   {"spatial", 4, "fc1", "n 4"},
        {"owt", 4, "conv2", "n 4"},         {"owt", 4, "flatten", "n 4"},
        {"owt", 4, "fc1", "o 4"},           {"owt", 4, "relu3", "c 4"},
        {"owt", 4, "loss", "n 4"},          {"hybrid", 4, "conv1", "n 2 k 2"},
        {"hybrid", 8, "fc1", "n 4 o 2"},    {"hybrid", 4, "loss", "n 4"},
        {"ps", 4, "conv1", "n 3"},          {"ps", 2, "conv1", ""},
    };
    struct graph *g = build(0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct plan *p = make(g, expected[i].strategy, expected[i].n_workers);
        const char *cuts = cuts_text(p, g, expected[i].layer);
        assert_that(!strcmp(cuts, expected[i].cuts), "%s %d %s: %s, not %s", expected[i].strategy,
                    expected[i].n_workers, expected[i].layer, cuts, expected[i].cuts);
        plan_destroy(p);
    }
    graph_destroy(g);
}

/* With channels cut, depthwise convolutions are cut along their groups, as their input is. */
static void test_model_follows_groups(void **state)
{
    (void)state;
    struct graph *g = build(4);
    struct plan *p = make(g, "model", 4);
    int n_depthwise = 0;
    for (int i = 1; i < g->n_nodes; i++)
        if (g->nodes[i].op.op == OP_CONV2D && g->nodes[i].op.attrs.groups > 1) {
            assert_string_equal(cuts_text(p, g, g->nodes[i].name), "g 4");
            n_depthwise++;
        }
    assert_int_equal(n_depthwise, 17);
    plan_destroy(p);
    graph_destroy(g);
}

/* A mesh with fewer columns than channels' workers keeps its rows. */
static void test_hybrid_keeps_rows(void **state)
{
    (void)state;
    struct graph *g = build(0);
    struct plan_request request = {.n_workers = 16, .model_workers = 8};
    struct plan *p;
    assert_ok(plan_build("hybrid", g, &request, &p));
    assert_string_equal(cuts_text(p, g, "conv1"), "n 2 k 6");
    const int *workers = p->layers[find_node(g, "conv1")].workers;
    for (int i = 0; i < 12; i++)
        assert_int_equal(workers[i], i / 6 * 8 + i % 6);
    check_round_trip(p, g);
    plan_destroy(p);
    request.model_workers = 5;
    assert_fails(plan_build("hybrid", g, &request, &p), STATUS_USAGE, "divisor");
    graph_destroy(g);
}

/* The stages are balanced for so many samples at a time. */
static int64_t micro_batch_of(const struct plan *p, const struct graph *g)
{
    return (g->batch + p->micro_batches - 1) / p->micro_batches;
}

static double slowest_stage(const struct plan *p, const struct graph *g)
{
    double slowest = 0;
    for (int s = 0; s < p->n_stages; s++) {
        double work = 0;
        for (int i = 1; i < g->n_nodes; i++)
            work +=
                p->layers[i].stage == s ? plan_node_work(&g->nodes[i], micro_batch_of(p, g)) : 0;
        slowest = fmax(slowest, work / p->stages[s].n_workers);
    }
    return slowest;
}

/* The least slowest stage over all ways to split nodes first .. into stages s .., by trying. */
static double try_all(const struct graph *g, int64_t samples, const int *replicas, int n_stages,
                      int s, int first)
{
    double best = INFINITY, work = 0;
    for (int end = first + 1; end <= g->n_nodes; end++) {
        work += plan_node_work(&g->nodes[end - 1], samples);
        if (work <= 0)
            continue;
        if (s == n_stages - 1 && end < g->n_nodes)
            continue;
        double rest = s == n_stages - 1 ? 0 : try_all(g, samples, replicas, n_stages, s + 1, end);
        best = fmin(best, fmax(work / replicas[s], rest));
    }
    return best;
}

static void check_balance(const struct graph *g, int n_stages, const int *replicas)
{
    struct plan_request request = {.replicas = replicas, .n_stages = n_stages};
    struct plan *p;
    for (int s = 0; s < n_stages; s++)
        request.n_workers += replicas[s];
    assert_ok(plan_build("1f1b", g, &request, &p));
    assert_int_equal(p->schedule, PLAN_1F1B);
    assert_int_equal(p->micro_batches, 4 * n_stages < 8 ? 4 * n_stages : 8);
    double best = try_all(g, micro_batch_of(p, g), replicas, n_stages, 0, 1);
    assert_that(fabs(slowest_stage(p, g) / best - 1) < 1e-12, "%s, %d stages", g->name, n_stages);
    for (int i = 1; i < g->n_nodes; i++)
        assert_int_equal(p->layers[i].n_pieces, replicas[p->layers[i].stage]);
    check_round_trip(p, g);
    plan_destroy(p);
}

static void test_stages_are_balanced(void **state)
{
    (void)state;
    static const int replicas[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 3, 2, 1}, {1, 1, 1, 5}};
    for (int k = 0; k < 3; k++) {
        struct graph *g = build(k);
        for (size_t r = 0; r < sizeof replicas / sizeof *replicas; r++)
            for (int n_stages = 1; n_stages <= 4; n_stages++)
                check_balance(g, n_stages, replicas[r]);
        graph_destroy(g);
    }
}

static void test_requests_are_kept(void **state)
{
    (void)state;
    struct graph *g = build(0);
    struct plan *p = make(g, "pipedream", 3);
    assert_int_equal(p->window, 12);
    assert_int_equal(p->micro_batches, 1);
    plan_destroy(p);

    p = make(g, "layers", 3);
    assert_int_equal(p->micro_batches, 1);
    plan_destroy(p);

    struct plan_request request = {.n_workers = 8, .n_servers = 3, .asynchronous = true};
    assert_ok(plan_build("ps", g, &request, &p));
    assert_int_equal(p->sync, PLAN_SERVER);
    assert_true(p->asynchronous);
    assert_int_equal(p->stages[0].n_workers, 5);
    assert_int_equal(p->servers[0], 5);
    assert_int_equal(p->servers[2], 7);
    check_round_trip(p, g);
    plan_destroy(p);

    request = (struct plan_request){.n_workers = 2,
                                    .sync = PLAN_HIERARCHICAL,
                                    .bucket_bytes = 4096,
                                    .workers_per_node = 2,
                                    .micro_batches = 4};
    assert_ok(plan_build("data", g, &request, &p));
    assert_int_equal(p->sync, PLAN_HIERARCHICAL);
    assert_int_equal(p->bucket_bytes, 4096);
    assert_int_equal(p->workers_per_node, 2);
    assert_int_equal(p->micro_batches, 4);
    plan_destroy(p);
    graph_destroy(g);
}

static void test_impossible_requests(void **state)
{
    (void)state;
    static const int wrong[] = {1, 2}, none[] = {3, 0};
    static const struct {
        const char *strategy;
        struct plan_request request;
        const char *message;
    } cases[] = {
        {"dta", {.n_workers = 2}, "unknown strategy 'dta': did you mean 'data'?"},
        {"serial", {.n_workers = 2}, "at most 1 worker"},
        {"data", {.n_workers = 0}, "1 to 4096"},
        {"data", {.n_workers = 5000}, "1 to 4096"},
        {"layers", {.n_workers = 40}, "at most 12"},
        {"ps", {.n_workers = 1}, "at least one server and one other worker"},
        {"ps", {.n_workers = 3, .n_servers = 3}, "3 workers with 3 servers"},
        {"gpipe", {.n_workers = 2, .micro_batches = 9}, "a batch of 8 can be split into 1 to 8"},
        {"gpipe", {.n_workers = 4, .replicas = wrong, .n_stages = 2}, "sum to 3, not to 4"},
        {"gpipe", {.n_workers = 3, .replicas = none, .n_stages = 2}, "stage 1 would have 0"},
        {"pipedream", {.n_workers = 2, .micro_batches = 2}, "one micro-batch a step"},
        {"data", {.n_workers = 2, .sync = PLAN_SERVER}, "needs workers that are servers"},
    };
    struct graph *g = build(0);
    struct plan *p;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(plan_build(cases[i].strategy, g, &cases[i].request, &p), STATUS_USAGE,
                     cases[i].message);
    graph_destroy(g);
}

/* ---- reading ---- */

static struct plan *parse(const struct graph *g, const char *text)
{
    struct plan *p;
    assert_ok(plan_parse(text, strlen(text), "text", g, &p));
    return p;
}

#define HEAD "{\"cleave_plan\": 1, \"workers\": 4,"
#define ONE "\"stages\": [{\"workers\": [0, 1, 2, 3]}]"

static void test_defaults_are_resolved(void **state)
{
    (void)state;
    struct graph *g = build(0);
    struct plan *p = parse(g, HEAD ONE ", \"default\": {\"cut\": {\"channels\": 4}}}");
    assert_string_equal(p->name, "unnamed");
    assert_string_equal(cuts_text(p, g, "conv1"), "k 4");
    assert_string_equal(cuts_text(p, g, "relu1"), "c 4");
    assert_string_equal(cuts_text(p, g, "fc1"), "o 4");
    assert_string_equal(cuts_text(p, g, "loss"), "");
    assert_int_equal(p->layers[find_node(g, "loss")].n_pieces, 1);
    assert_int_equal(p->layers[0].n_pieces, 0);
    plan_destroy(p);

    /* pool2 is 5 x 5: it has room for 4 rows; fc1 has none, and no height */
    p = parse(g, HEAD ONE ", \"default\": {\"cut\": {\"height\": 4, \"q\": 1}},"
                          "\"layers\": {\"fc1\": {\"workers\": [2]},"
                          "\"fc2\": {\"cut\": {\"o\": [40, 44]}, \"workers\": [3, 1]}}}");
    assert_string_equal(cuts_text(p, g, "conv1"), "p 4");
    assert_string_equal(cuts_text(p, g, "relu2"), "h 4");
    assert_string_equal(cuts_text(p, g, "pool2"), "p 4");
    assert_string_equal(cuts_text(p, g, "flatten"), "");
    assert_int_equal(p->layers[find_node(g, "fc1")].workers[0], 2);
    const struct plan_layer *fc2 = &p->layers[find_node(g, "fc2")];
    assert_int_equal(fc2->cut[0].sizes[1], 44);
    assert_int_equal(fc2->workers[0], 3);
    check_round_trip(p, g);
    plan_destroy(p);

    /* too many parts for the loop: dropped */
    p = parse(g, "{\"cleave_plan\": 1, \"workers\": 7, \"stages\": [{\"workers\": "
                 "[6, 5, 4, 3, 2, 1, 0]}], \"default\": {\"cut\": {\"k\": 7, \"o\": [1, 1]}},"
                 "\"layers\": {\"fc1\": {\"cut\": {}}, \"fc2\": {\"cut\": {}}, \"fc3\": {\"cut\": "
                 "{\"n\": [2, 1]}}}}");
    assert_string_equal(cuts_text(p, g, "conv1"), "");
    assert_string_equal(cuts_text(p, g, "conv2"), "k 7");
    assert_int_equal(p->layers[find_node(g, "fc3")].workers[1], 5);
    check_round_trip(p, g);
    plan_destroy(p);
    graph_destroy(g);
}

static void test_stages_are_resolved(void **state)
{
    (void)state;
    struct graph *g = build(0);
    struct plan *p =
        parse(g, HEAD "\"stages\": [{\"workers\": [0, 1, 2], \"cut\": {\"n\": 3}}, "
                      "{\"workers\": [3]}], \"default\": {\"cut\": {\"n\": 1}},"
                      "\"layers\": {\"conv2\": {\"stage\": 1}}, \"schedule\": \"pipedream\","
                      "\"name\": \"a \\\"b\\\"\\n\\u00e4\", \"recompute\": [\"relu1\"]}");
    assert_string_equal(p->name, "a \"b\"\n\xc3\xa4");
    assert_int_equal(p->layers[find_node(g, "pool1")].stage, 0);
    assert_int_equal(p->layers[find_node(g, "pool1")].n_pieces, 3);
    assert_int_equal(p->layers[find_node(g, "conv2")].stage, 1);
    assert_int_equal(p->layers[find_node(g, "loss")].stage, 1);
    assert_int_equal(p->layers[find_node(g, "loss")].workers[0], 3);
    assert_true(p->layers[find_node(g, "relu1")].recompute);
    assert_false(p->layers[find_node(g, "relu2")].recompute);
    assert_int_equal(p->window, 8);
    check_round_trip(p, g);
    plan_destroy(p);
    graph_destroy(g);

    /* a branch whose input is in stage 0, but which comes after a layer written into stage 1 */
    g = build(5);
    p = parse(g, HEAD "\"stages\": [{\"workers\": [0, 1]}, {\"workers\": [2, 3]}],"
                      "\"layers\": {\"inception3a.branch1.conv\": {\"stage\": 1}}}");
    assert_int_equal(p->layers[find_node(g, "maxpool2")].stage, 0);
    assert_int_equal(p->layers[find_node(g, "inception3a.branch2.0.conv")].stage, 1);
    plan_destroy(p);
    graph_destroy(g);
}

/* ---- mistakes ---- */

struct mistake {
    const char *text;    /* of the plan */
    const char *message; /* begins with the place */
};

static void check_mistakes(const struct graph *g, const struct mistake *mistakes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct plan *p;
        enum status st = plan_parse(mistakes[i].text, strlen(mistakes[i].text), "f", g, &p);
        assert_that(st == STATUS_USAGE, "%s: status %d", mistakes[i].text, (int)st);
        const char *expected = mistakes[i].message;
        assert_that(!strncmp(status_message(), expected, strlen(expected)),
                    "%s\n  gives    %s\n  expected %s", mistakes[i].text, status_message(),
                    expected);
        status_clear();
    }
}

#define CHECK_MISTAKES(g, mistakes) \
    check_mistakes(g, mistakes, sizeof(mistakes) / sizeof *(mistakes))

/* A plan with these layers in line 2. */
#define LAYERS(layers) HEAD ONE ",\n\"layers\": {" layers "}}"
/* A plan with these stages from line 2 on. */
#define STAGES(stages) HEAD "\n\"stages\": [" stages "]}"
#define WITH(members) HEAD ONE ",\n" members "}"

static void test_mistakes_in_the_top(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {"", "f:1: column"},
        {"{\n\"cleave_plan\": 1,\n\"workers\" 4}", "f:3: column 11: ':' expected near '4'"},
        {"{\"cleave_plan\": 1,\n\"workers\": 1,\n\"workers\": 2}", "f:3: column 9: duplicate"},
        {"[1]", "f:1: a plan must be an object"},
        {"\n{}", "f:2: this is no plan"},
        {"{\n\"cleave_plan\": 2, \"new\": 3}", "f:2: the plan is of another version"},
        {"{\n\"cleave_plan\": \"1\"}", "f:2: the plan is of another version"},
        {"{\"cleave_plan\": 1,\n\"model\": \"alexnet\"}", "f:2: the plan is for alexnet, not for "
                                                          "lenet5"},
        {"{\"cleave_plan\": 1,\n\"worker\": 2}",
         "f:2: unknown key 'worker': did you mean 'workers'?"},
        {"{\n\"cleave_plan\": 1}", "f:2: the plan does not say its \"workers\""},
        {"{\"cleave_plan\": 1, \"workers\": 1}", "f:1: the plan does not say its \"stages\""},
        {"{\"cleave_plan\": 1,\n\"workers\": 1.5, \"stages\": []}",
         "f:2: workers must be a whole number from 1 to 4096"},
        {"{\"cleave_plan\": 1,\n\"workers\": 5000, \"stages\": []}",
         "f:2: workers must be a whole number from 1 to 4096"},
        {WITH("\"name\": 1"), "f:2: name must be text"},
        {WITH("\"layers\": []"), "f:2: layers must be an object"},
        {WITH("\"default\": {\"cuts\": {}}"), "f:2: unknown key 'cuts': did you mean 'cut'?"},
        {WITH("\"default\": {\n\"cut\": {\n\"height\": 1, \"z\": 2}}"),
         "f:4: unknown loop 'z': did you mean 'n'?"},
        {WITH("\"default\": {\n\"cut\": {\n\"k\": [3, 5]}}"),
         "f:4: layer 'conv1': the sizes of loop k sum to 8, but it has 6 iterations"},
        {WITH("\"default\": {\n\"cut\": {\"k\": 2,\n\"channels\": 2}}"),
         "f:4: layer 'conv1': 'k' and 'channels' cut the same loop"},
        {WITH("\"default\": {\"cut\":\n{\"n\": 8}}"),
         "f:2: layer 'conv1' is cut into 8 pieces, but stage 0 has 4 workers"},
        {WITH("\"micro_batches\": 9"),
         "f:2: 9 micro-batches: a batch of 8 can be split into 1 to 8"},
        {WITH("\"micro_batches\": 0"), "f:2: micro_batches must be a whole number from 1"},
        {WITH("\"schedule\": \"1f1f\""), "f:2: unknown schedule '1f1f': did you mean '1f1b'?"},
        {WITH("\"window\": 3"), "f:2: only the schedule pipedream has a window"},
        {WITH("\"schedule\": \"pipedream\",\n\"micro_batches\": 2"),
         "f:3: the schedule pipedream has one micro-batch a step, not 2"},
        {WITH("\"recompute\": [\n\"relu1\",\n\"rleu2\"]"),
         "f:4: unknown layer 'rleu2': did you mean 'relu2'?"},
        {WITH("\"recompute\": [\n\"relu1\",\n7]"), "f:4: recompute/1 must be text"},
    };
    struct graph *g = build(0);
    CHECK_MISTAKES(g, mistakes);
    graph_destroy(g);
}

static void test_mistakes_in_stages(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {HEAD "\n\"stages\": {}}", "f:2: stages must be a list of 1 to 4"},
        {STAGES(""), "f:2: stages must be a list of 1 to 4"},
        {STAGES("\n7"), "f:3: stages/0 must be an object"},
        {STAGES("\n{}"), "f:3: stage 0 does not say its \"workers\""},
        {STAGES("\n{\"worker\": [0]}"), "f:3: unknown key 'worker': did you mean 'workers'?"},
        {STAGES("\n{\"workers\":\n[]}"), "f:3: stages/0/workers must be a list of 1 to 4096"},
        {STAGES("{\"workers\":\n[0,\n\"1\"]}"), "f:4: stages/0/workers/1 must be a whole number"},
        {STAGES("\n{\"workers\": [0, 1, 2, 4]}"),
         "f:3: worker 4 is out of range: the plan has workers 0 to 3"},
        {STAGES("\n{\"workers\": [0, 1, 2]},\n{\"workers\": [3, 1]}"),
         "f:4: worker 1 is used twice: it is in stage 0 already"},
        {STAGES("{\"workers\": [0, 1, 2]}"), "f:2: worker 3 is in no stage"},
        {STAGES("{\"workers\": [0, 1, 2]},\n{\"workers\": [3]}"), "f:3: stage 1 has no layer"},
        {STAGES("{\"workers\": [0, 1, 2, 3],\n\"cut\": {\"chanels\": 3}}"),
         "f:3: unknown loop 'chanels': did you mean 'channels'?"},
        {STAGES("{\"workers\": [0, 1, 2, 3],\n\"cut\": {\"n\": 2,\n\"k\": 3}}"),
         "f:3: layer 'conv1' is cut into 6 pieces, but stage 0 has 4 workers"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2]}, {\"workers\": [3]}], \"layers\": {\n"
              "\"conv2\": {\"stage\": 1},\n\"pool2\": {\n\"stage\": 0}}}",
         "f:4: layer 'pool2' is in stage 0, but its input 'relu2' is in the later stage 1"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2]}, {\"workers\": [3]}], \"layers\": {\n"
              "\"conv2\": {\"stage\": 2}}}",
         "f:2: layer 'conv2': there is no stage 2 (stages: 0 to 1)"},
    };
    struct graph *g = build(0);
    CHECK_MISTAKES(g, mistakes);
    graph_destroy(g);
}

static void test_mistakes_in_layers(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {LAYERS("\n\"cnv1\": {}"), "f:3: unknown layer 'cnv1': did you mean 'conv1'?"},
        {LAYERS("\"input\": {}"), "f:2: unknown layer 'input'"},
        {LAYERS("\n\"conv1\": 4"), "f:3: layers/conv1 must be an object"},
        {LAYERS("\"conv1\": {\n\"workrs\": [1]}"),
         "f:3: unknown key 'workrs': did you mean 'workers'?"},
        {LAYERS("\"conv1\": {\n\"cut\": 2}"), "f:3: layers/conv1/cut must be an object"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"o\": 2}}"),
         "f:3: unknown loop of layer 'conv1' 'o': did you mean 'n'? (allowed: n, g, k"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"channels\": 2}}"),
         "f:3: unknown loop of layer 'conv1' 'channels'"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": \"2\"}}"),
         "f:3: layers/conv1/cut/k must be a whole number from 1 to 4096"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": 0}}"), "f:3: layers/conv1/cut/k must be"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": [6]}}"),
         "f:3: layers/conv1/cut/k must be a list of 2 to 4096"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": [3,\n0]}}"),
         "f:4: layers/conv1/cut/k/1 must be a whole number from 1"},
        {LAYERS("\"conv1\": {\"cut\": {\"n\": 2,\n\"k\": 7}}"),
         "f:3: layer 'conv1': loop k has 6 iterations, too few for 7 parts"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": [3, 2]}}"),
         "f:3: layer 'conv1': the sizes of loop k sum to 5, but it has 6 iterations"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"n\": [1000000000, 1]}}"),
         "f:3: layer 'conv1': the sizes of loop n sum to over"},
        {LAYERS("\"pool1\": {\"cut\": {\n\"r\": 2}}"),
         "f:3: layer 'pool1': loop r of this max_pool may not be cut"},
        {LAYERS("\"loss\": {\"cut\": {\n\"k\": 2}}"),
         "f:3: layer 'loss': loop k of this softmax_cross_entropy may not be cut"},
        {LAYERS("\"conv1\": {\n\"cut\": {\n\"n\": 2,\n\"k\": 3}}"),
         "f:3: layer 'conv1' is cut into 6 pieces, but stage 0 has 4 workers"},
        {LAYERS("\"fc1\": {\n\"cut\": {\"n\": 4096, \"o\": 64, \"i\": 256}}"),
         "f:3: layer 'fc1' is cut into at least"},
        {LAYERS("\"conv1\": {\"cut\": {\"k\": 2},\n\"workers\": [0, 1, 2]}"),
         "f:3: layer 'conv1' names 3 workers, but is cut into 2 pieces"},
        {LAYERS("\"conv1\": {\"cut\": {\"k\": 2},\n\"workers\": [1, 1]}"),
         "f:3: layer 'conv1': worker 1 is used twice"},
        {LAYERS("\"conv1\": {\"cut\": {\"k\": 2},\n\"workers\": [1, 4]}"),
         "f:3: layer 'conv1': worker 4 is not in the layer's stage 0"},
        {LAYERS("\"conv1\": {\n\"stage\": -1}"), "f:3: layers/conv1/stage must be a whole number"},
    };
    struct graph *g = build(0);
    CHECK_MISTAKES(g, mistakes);
    graph_destroy(g);
}

#define SYNC(sync) HEAD ONE ",\n\"sync\": {" sync "}}"
#define SERVED(layers)                                                                             \
    HEAD "\"stages\": [{\"workers\": [0, 1, 2], \"cut\": {\"n\": 3}}],\n\"layers\": {" layers "}," \
         "\"sync\": {\"method\": \"server\", \"servers\": [3],\n\"asynchronous\": true}}"

static void test_mistakes_in_sync(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {SYNC("\n\"methd\": \"ring\""), "f:3: unknown key 'methd': did you mean 'method'?"},
        {SYNC("\n\"method\": \"rign\""), "f:3: unknown method 'rign': did you mean 'ring'?"},
        {SYNC("\n\"bucket_bytes\": 0"), "f:3: sync/bucket_bytes must be a whole number from 1"},
        {SYNC("\n\"workers_per_node\": true"), "f:3: sync/workers_per_node must be a whole number"},
        {SYNC("\n\"asynchronous\": 1"), "f:3: sync/asynchronous must be true or false"},
        {SYNC("\n\"asynchronous\": true"), "f:3: asynchronous goes with the method server"},
        {SYNC("\n\"method\": \"server\""), "f:3: the method server needs workers"},
        {SYNC("\"method\": \"server\",\n\"servers\": [3]"),
         "f:3: worker 3 cannot be a server: it is in stage 0"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2]}], \"sync\": {\n\"servers\": [3]}}",
         "f:2: servers go with the method server, not ring"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2]}], \"sync\": {\"method\": \"server\",\n"
              "\"servers\": [3]},\n\"schedule\": \"pipedream\"}",
         "f:3: the schedule pipedream does not go with a server"},
        {SERVED("\"fc1\": {\n\"cut\": {\"o\": 3}}"), "f:3: layer 'fc1': with an asynchronous"},
        {SERVED("\"fc1\": {\n\"cut\": {\"n\": 2}}"), "f:3: layer 'fc1': with an asynchronous"},
        {HEAD "\"stages\": [{\"workers\": [0, 1]}, {\"workers\": [2]}], \"layers\": {\"fc1\": "
              "{\"stage\": 1}}, \"sync\": {\"method\": \"server\", \"servers\": [3],\n"
              "\"asynchronous\": true}}",
         "f:2: an asynchronous server needs one stage, not 2"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2], \"cut\": {\"n\": 3}}],\n\"micro_batches\": 2, "
              "\"sync\": {\"method\": \"server\", \"servers\": [3],\n\"asynchronous\": true}}",
         "f:2: an asynchronous server goes with one micro-batch a step, not 2"},
    };
    struct graph *g = build(0);
    CHECK_MISTAKES(g, mistakes);
    struct plan *p = parse(g, SERVED(""));
    assert_true(p->asynchronous);
    plan_destroy(p);
    graph_destroy(g);
}

/* A grouped convolution, a norm over channels, and a convolution whose padding is wider than its
 * window. */
static struct graph *build_padded(void)
{
    struct graph_variant v = {
        .batch = 2, .channels = 4, .height = 4, .width = 4, .classes = 3, .drop_probability = -1};
    graph_builder *b;
    struct graph *g;
    assert_ok(graph_builder_create("padded", &v, &b));
    int x = graph_add_conv(b, "grouped", 0, 8, (struct graph_window){3, 1, 1}, 2, true);
    x = graph_add_simple(b, "relu", OP_RELU, x);
    struct op_attrs lrn = {.lrn_size = 3, .lrn_alpha = 1e-4, .lrn_beta = 0.75, .lrn_k = 1};
    x = graph_add(b, "lrn", OP_LOCAL_RESPONSE_NORM, &lrn, 1, &x);
    x = graph_add_simple(b, "tanh", OP_TANH, x);
    x = graph_add_conv(b, "wide", x, 2, (struct graph_window){2, 1, 3}, 1, true);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    x = graph_add_linear(b, "fc", x, 3);
    assert_ok(graph_builder_finish(b, x, &g));
    return g;
}

static void test_padding_and_groups(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {LAYERS("\"wide\": {\n\"cut\": {\"p\": [2, 3, 4]}}"),
         "f:3: layer 'wide': piece 0 would read nothing but padding"},
        {LAYERS("\"grouped\": {\"cut\": {\n\"k\": 2}}"),
         "f:3: layer 'grouped': loop k of this conv2d may not be cut"},
    };
    struct graph *g = build_padded();
    CHECK_MISTAKES(g, mistakes);
    struct plan *p = parse(g, HEAD ONE ", \"default\": {\"cut\": {\"channels\": 2}}}");
    assert_string_equal(cuts_text(p, g, "grouped"), "g 2");
    plan_destroy(p);
    /* 9 rows, of which the first 2 and the last 2 see no image: 4 parts would be too many */
    p = make(g, "spatial", 5);
    assert_string_equal(cuts_text(p, g, "grouped"), "p 4");
    assert_string_equal(cuts_text(p, g, "wide"), "p 3");
    plan_destroy(p);
    p = make(g, "model", 4);
    assert_string_equal(cuts_text(p, g, "grouped"), "g 2");
    assert_string_equal(cuts_text(p, g, "relu"), "c 2"); /* as its input is cut, not c 4 */
    assert_string_equal(cuts_text(p, g, "lrn"), "n 4");
    assert_string_equal(cuts_text(p, g, "tanh"), "n 4");
    assert_string_equal(cuts_text(p, g, "wide"), "k 2");
    assert_string_equal(cuts_text(p, g, "flatten"), "c 2");
    plan_destroy(p);
    graph_destroy(g);
}

/* plan_check does not rely on the reader: a plan spoiled in memory is refused, too. */
static void test_check_refuses_spoiled_plans(void **state)
{
    (void)state;
    struct graph *g = build(0);
    struct plan *p = make(g, "data", 4);
    struct plan_layer *conv = &p->layers[1];
    const struct plan_layer good = *conv;
#define SPOIL(what, message)                                   \
    do {                                                       \
        what;                                                  \
        assert_fails(plan_check(p, g), STATUS_USAGE, message); \
        *conv = good;                                          \
        assert_ok(plan_check(p, g));                           \
    } while (0)
    SPOIL(conv->stage = 1, "no stage 1");
    SPOIL(conv->n_pieces = 3, "its cuts make 4");
    SPOIL(conv->cut[0].loop = 8, "no loop");
    SPOIL(conv->cut[0].n_parts = 1, "one part");
    SPOIL((conv->n_cuts = 2, conv->cut[1] = conv->cut[0]), "cut twice");
#undef SPOIL
    p->n_layers--;
    assert_fails(plan_check(p, g), STATUS_USAGE, "13 layers, lenet5 has 14");
    plan_destroy(p);
    graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_cover_and_do_not_overlap),
        cmocka_unit_test(test_sizes_are_kept_and_scaled),
        cmocka_unit_test(test_last_cut_changes_fastest),
        cmocka_unit_test(test_every_strategy_comes_back),
        cmocka_unit_test(test_file_comes_back),
        cmocka_unit_test(test_strategies_cut_as_they_say),
        cmocka_unit_test(test_model_follows_groups),
        cmocka_unit_test(test_hybrid_keeps_rows),
        cmocka_unit_test(test_stages_are_balanced),
        cmocka_unit_test(test_requests_are_kept),
        cmocka_unit_test(test_impossible_requests),
        cmocka_unit_test(test_defaults_are_resolved),
        cmocka_unit_test(test_stages_are_resolved),
        cmocka_unit_test(test_mistakes_in_the_top),
        cmocka_unit_test(test_mistakes_in_stages),
        cmocka_unit_test(test_mistakes_in_layers),
        cmocka_unit_test(test_mistakes_in_sync),
        cmocka_unit_test(test_padding_and_groups),
        cmocka_unit_test(test_check_refuses_spoiled_plans),
    };
    return test_run(tests);
}
