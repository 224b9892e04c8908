/* Plans: parts, strategies, and the JSON there and back. test_plan_files has the contents of files.
 */
#include "plans.h"

static const int worker_counts[] = {1, 2, 3, 4, 7};
enum { WORKER_COUNTS = sizeof worker_counts / sizeof *worker_counts };

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

/* A strategy refuses an impossible request as STATUS_USAGE. */
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

/* The copy reads as the plan did, after the plan is gone; sizes of parts and servers are kept. */
static void test_copies_stand_alone(void **state)
{
    (void)state;
    struct graph *g = build(0);
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++) {
        struct plan_request request = {.n_workers = strcmp(s->name, "serial") ? 2 : 1};
        static const int64_t sizes[] = {3, 1};
        struct plan *p, *copy;
        char *before, *after;
        assert_ok(plan_build(s->name, g, &request, &p));
        for (int i = 1; i < p->n_layers; i++)
            if (p->layers[i].n_cuts == 1 && p->layers[i].cut[0].loop == 0)
                p->layers[i].cut[0].sizes = sizes;
        assert_ok(plan_print(p, g, &before));
        assert_ok(plan_copy(p, &copy));
        plan_destroy(p);
        assert_ok(plan_check(copy, g));
        assert_ok(plan_print(copy, g, &after));
        assert_string_equal(after, before);
        free(before);
        free(after);
        plan_destroy(copy);
    }
    graph_destroy(g);
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

/* ---- strategies ---- */

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

/* The keeper of every parameter of the layer: "1 -", a server or the workers themselves. */
static const char *keepers_text(const struct plan *p, const struct graph *g, const char *name)
{
    static char text[64];
    const struct graph_node *node = &g->nodes[find_node(g, name)];
    size_t used = 0;
    for (int k = 0; k < node->n_params; k++) {
        int server = plan_server_of(p, g, node->first_param + k);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%c", k ? " " : "",
                                 server < 0 ? '-' : '0' + server);
    }
    return text;
}

static void test_servers_keep_what_is_whole(void **state)
{
    (void)state;
    struct graph *g = build(0);
    struct plan *p;
    struct plan_request request = {.n_workers = 5, .sync = PLAN_SERVER, .n_servers = 2};
    assert_ok(plan_build("owt", g, &request, &p));
    assert_int_equal(p->n_workers, 5);
    assert_int_equal(p->stages[0].n_workers, 3);
    assert_int_equal(p->n_servers, 2);
    assert_int_equal(p->servers[0], 3);
    assert_string_equal(cuts_text(p, g, "fc1"), "o 3");
    check_round_trip(p, g);
    assert_string_equal(keepers_text(p, g, "conv1"), "3 4");
    assert_string_equal(keepers_text(p, g, "conv2"), "3 4");
    assert_string_equal(keepers_text(p, g, "fc1"), "- -"); /* the bias is indexed by o, too */
    struct plan_layer *fc2 = &p->layers[find_node(g, "fc2")];
    fc2->cut[0].loop = 2; /* i, which a bias has not */
    assert_string_equal(keepers_text(p, g, "fc2"), "- 4");
    p->n_servers = 0;
    assert_string_equal(keepers_text(p, g, "conv1"), "- -");
    plan_destroy(p);
    graph_destroy(g);

    g = build(3); /* resnet18 */
    assert_ok(plan_build("ps", g, &(struct plan_request){.n_workers = 3}, &p));
    assert_string_equal(keepers_text(p, g, "bn1"),
                        "2 2 - -"); /* running statistics are no server's */
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
        {"owt",
         {.n_workers = 2, .sync = PLAN_SERVER, .n_servers = 2},
         "at least one server and one other worker"},
        {"owt",
         {.n_workers = 3, .sync = PLAN_SERVER, .asynchronous = true},
         "with an asynchronous server every layer is cut along n alone"},
        {"pipedream", {.n_workers = 3, .sync = PLAN_SERVER}, "does not go with a server"},
    };
    struct graph *g = build(0);
    struct plan *p;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(plan_build(cases[i].strategy, g, &cases[i].request, &p), STATUS_USAGE,
                     cases[i].message);
    graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_cover_and_do_not_overlap),
        cmocka_unit_test(test_sizes_are_kept_and_scaled),
        cmocka_unit_test(test_last_cut_changes_fastest),
        cmocka_unit_test(test_every_strategy_comes_back),
        cmocka_unit_test(test_copies_stand_alone),
        cmocka_unit_test(test_file_comes_back),
        cmocka_unit_test(test_strategies_cut_as_they_say),
        cmocka_unit_test(test_model_follows_groups),
        cmocka_unit_test(test_hybrid_keeps_rows),
        cmocka_unit_test(test_stages_are_balanced),
        cmocka_unit_test(test_requests_are_kept),
        cmocka_unit_test(test_servers_keep_what_is_whole),
        cmocka_unit_test(test_impossible_requests),
    };
    return test_run(tests);
}
