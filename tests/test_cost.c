/* The formulas of cost.h against their closed forms, on machines whose links are alike. */
#include "cost/cost.h"
#include "machine/machine.h"
#include "testing.h"

#include <math.h>

enum { MB = 1000000 };
static const double port = 1e9, card = 5e8, near_s = 2e-6, far_s = 12e-6;

struct bench {
    struct machine *machine;
    struct cost cost;
};

/* Links of 1 GB/s within nodes of so many devices, of 0.5 GB/s between them. */
static void bench_open(struct bench *b, const char *shape)
{
    char text[128];
    (void)snprintf(text, sizeof text,
                   "%s:p100,intra=1GB/s,intra_latency=2us,inter=500MB/s,latency=10us", shape);
    assert_ok(machine_parse(text, &b->machine));
    assert_ok(cost_create(b->machine, b->machine->memory, &b->cost));
}

static double collective_s(struct bench *b, enum comm_kind kind, enum comm_method method,
                           int node_size, int n, double n_bytes, int alike)
{
    const struct cost_call call = {.transport = "threads",
                                   .reduces = true,
                                   .kind = kind,
                                   .method = method,
                                   .node_size = node_size,
                                   .type = ELEMENT_F32,
                                   .n_bytes = (int64_t)n_bytes,
                                   .n_members = n};
    int devices[16];
    for (int i = 0; i < n; i++)
        devices[i] = i;
    cost_call(b->machine, &call, devices, &b->cost);
    return cost_alone_s(b->machine, &call, &b->cost, alike);
}

static double sum_s(struct bench *b, enum comm_method method, int node_size, int n, double n_bytes,
                    int alike)
{
    return collective_s(b, COMM_ALL_REDUCE, method, node_size, n, n_bytes, alike);
}

static void test_roofline(void **state)
{
    (void)state;
    const struct machine_kind kind = {.launch_s = 1e-5,
                                      .rates = {[ARITHMETIC_F32] = {.reached = 1e12}},
                                      .reached_bytes_per_s = 1e11};
    assert_near(cost_compute(&kind, &(struct cost_work){1e9, 1e6, ARITHMETIC_F32, 0}), 1e-5 + 1e-3,
                1e-15);
    assert_near(cost_compute(&kind, &(struct cost_work){1e6, 1e9, ARITHMETIC_F32, 0}), 1e-5 + 1e-2,
                1e-15);
    assert_near(cost_compute(&kind, &(struct cost_work){1e9, 1e6, ARITHMETIC_F32, 0.5}),
                1e-5 + 5e-4, 1e-15);
}

static void test_message(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "2x2");
    const struct cost_call call = {.transport = "threads", .n_bytes = MB, .n_members = 2};
    const int near_ends[2] = {0, 1}, far_ends[2] = {0, 3};
    cost_call(b.machine, &call, near_ends, &b.cost);
    assert_near(cost_alone_s(b.machine, &call, &b.cost, 1), near_s + MB / port, 1e-12);
    assert_near(cost_latency_s(b.machine, 0, 1), near_s, 1e-15);
    cost_call(b.machine, &call, far_ends, &b.cost);
    assert_near(cost_alone_s(b.machine, &call, &b.cost, 1), far_s + MB / card, 1e-12);
    assert_near(cost_alone_s(b.machine, &call, &b.cost, 3), far_s + 3 * MB / card, 1e-12);
    assert_near(cost_latency_s(b.machine, 0, 3), far_s, 1e-15);
    machine_destroy(b.machine);
}

static void test_sums_within_a_node(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "1x8");
    for (int n = 2; n <= 8; n++) {
        int levels = (int)ceil(log2(n));
        assert_near(sum_s(&b, COMM_RING, 0, n, MB, 1),
                    2.0 * (n - 1) * near_s + 2.0 * (n - 1) / n * MB / port, 1e-12);
        for (int kind = COMM_REDUCE_SCATTER; kind < COMM_KIND_COUNT; kind++)
            assert_near(collective_s(&b, (enum comm_kind)kind, COMM_RING, 0, n, MB, 1),
                        (n - 1) * near_s + (double)(n - 1) / n * MB / port, 1e-12);
        assert_near(sum_s(&b, COMM_GATHER, 0, n, MB, 1), near_s + (n - 1) * MB / port, 1e-12);
        /* The first member gets a message on every level, and they share its port. */
        assert_near(sum_s(&b, COMM_TREE, 0, n, MB, 1), 2.0 * levels * (near_s + MB / port), 1e-12);
    }
    machine_destroy(b.machine);
}

static void test_sums_over_nodes(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "4x4");
    double each = 2.0 * 15 / 16 * MB;
    assert_near(sum_s(&b, COMM_RING, 0, 16, MB, 1), 30 * far_s + each / card, 1e-12);
    assert_near(sum_s(&b, COMM_RING, 0, 16, MB, 4), 30 * far_s + 4 * each / card, 1e-12);
    assert_near(sum_s(&b, COMM_GATHER, 0, 16, MB, 1), far_s + 4 * 12 * MB / card, 1e-12);
    double inside_s = 2 * (near_s + 3 * MB / port);
    double between_s = 6 * far_s + 2.0 * 3 / 4 * MB / card;
    assert_near(sum_s(&b, COMM_HIERARCHICAL, 4, 16, MB, 1), inside_s + between_s, 1e-12);
    assert_near(sum_s(&b, COMM_HIERARCHICAL, 1, 16, MB, 1), sum_s(&b, COMM_RING, 0, 16, MB, 1), 0);
    machine_destroy(b.machine);
}

/* A call leaves nothing to the next one. */
static void test_used_again(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "2x4");
    double before = sum_s(&b, COMM_RING, 0, 3, MB, 1);
    (void)sum_s(&b, COMM_GATHER, 0, 8, 7 * MB, 1);
    assert_near(sum_s(&b, COMM_RING, 0, 3, MB, 1), before, 0);
    machine_destroy(b.machine);
}

/* Within a CPU host a call takes the measured time, or a guess. */
static void test_on_a_host(void **state)
{
    (void)state;
    struct bench b;
    assert_ok(machine_parse("1x4:cpu", &b.machine));
    assert_ok(cost_create(b.machine, b.machine->memory, &b.cost));
    const struct cost_call call = {.transport = "threads",
                                   .reduces = true,
                                   .method = COMM_RING,
                                   .type = ELEMENT_F32,
                                   .n_bytes = MB,
                                   .n_members = 4};
    double seconds = sum_s(&b, COMM_RING, 0, 4, MB, 1);
    assert_near(seconds, cost_on_host(b.machine, &call, MB).seconds, 1e-15);
    assert_true(seconds > 0 && b.cost.n_links == 0 && b.cost.visit > 0);
    assert_near(cost_core_s(&call, &b.cost, 2), cost_on_host(b.machine, &call, MB).cpu_s, 1e-15);
    machine_destroy(b.machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roofline),           cmocka_unit_test(test_message),
        cmocka_unit_test(test_sums_within_a_node), cmocka_unit_test(test_sums_over_nodes),
        cmocka_unit_test(test_used_again),         cmocka_unit_test(test_on_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
