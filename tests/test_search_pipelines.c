/* Pipelines: the dynamic programme against exhaustive search, and its results on networks. */
#include "random_graphs.h"
#include "search_subject.h"

#include "model/network.h"
#include "predict/predict.h"
#include "search/pipelines.h"
#include "search/stage_costs.h"
#include "search/stage_split.h"

#include <math.h>

static const uint64_t SEED = 6;

/* ---- splitting, against every way ---- */

enum { BLOCKS = 6, SLOTS = 5 };

struct table {
    int n_blocks, n_slots;
    int stage[BLOCKS + 1][BLOCKS + 1][SLOTS + 1][SLOTS + 1];
    int cross[BLOCKS + 1][SLOTS + 1][SLOTS + 1][SLOTS + 1];
    int micro_batches;
    double rounds;
    int n_crosses; /* asked for */
};

/* One stage, with those behind it. */
struct part {
    struct split_cost stage, cross; /* to the next */
};

/* More stages behind need more memory: the costliest parts do not fit there. */
static bool stage_cost(void *user, int first, int end, int slot, int n, int behind,
                       struct split_cost *cost)
{
    const struct table *t = user;
    int c = t->stage[first][end][slot][n];
    *cost = (struct split_cost){c, (t->micro_batches - 1) * c + slot % 3};
    return c < 95 - 5 * behind;
}

static struct split_cost cross_cost(void *user, int at, int slot, int n, int next_n)
{
    struct table *t = user;
    int c = t->cross[at][slot][n][next_n];
    t->n_crosses++;
    return (struct split_cost){2 * c, (t->micro_batches - 1) * c};
}

static double total_cost(void *user, int n_stages, const struct split_cost *cost)
{
    (void)user;
    return cost->sum + cost->longest + n_stages;
}

static double cost_of_parts(struct table *t, const struct part *parts, int n)
{
    struct split_cost cost = {0, 0};
    for (int s = n - 1; s >= 0; s--) {
        cost.sum += parts[s].stage.sum;
        cost.longest = fmax(cost.longest, parts[s].stage.longest);
        if (s + 1 < n) {
            cost.sum += parts[s].cross.sum;
            cost.longest = fmax(cost.longest, parts[s].cross.longest);
        }
        cost.longest = fmax(cost.longest, t->rounds * cost.sum / (n - s));
    }
    return total_cost(t, n, &cost);
}

/* Every way on from here. */
static void try_all(struct table *t, int n_stages, int done, int block, int slot, int last_n,
                    struct part *parts, double *best)
{
    int behind = n_stages - done - 1;
    for (int end = block + 1; end + behind <= t->n_blocks; end++)
        for (int n = 1; slot + n + behind <= t->n_slots; n++) {
            if (behind == 0 && (end < t->n_blocks || slot + n < t->n_slots))
                continue;
            if (!stage_cost(t, block, end, slot, n, behind, &parts[done].stage))
                continue;
            if (done > 0)
                parts[done - 1].cross = cross_cost(t, block, slot - last_n, last_n, n);
            if (behind == 0)
                *best = fmin(*best, cost_of_parts(t, parts, n_stages));
            else
                try_all(t, n_stages, done + 1, end, slot + n, n, parts, best);
        }
}

static void draw_table(struct draw *d, struct table *t)
{
    t->n_blocks = draw_number(d, 1, BLOCKS);
    t->n_slots = draw_number(d, 1, SLOTS);
    t->micro_batches = draw_number(d, 1, 8);
    t->rounds = draw_number(d, 0, 3) * 12;
    int *all = &t->stage[0][0][0][0];
    for (size_t i = 0; i < sizeof t->stage / sizeof *all; i++)
        all[i] = draw_number(d, 1, 100);
    all = &t->cross[0][0][0][0];
    for (size_t i = 0; i < sizeof t->cross / sizeof *all; i++)
        all[i] = draw_number(d, 0, 40);
}

/* The cost of the split found, taken apart. */
static double cost_of_found(struct table *t, const struct split_found *f)
{
    struct part parts[BLOCKS];
    int block = 0, slot = 0;
    for (int s = 0; s < f->n_stages; s++) {
        const struct split_stage *stage = &f->stages[s];
        assert_int_equal(stage->first, block);
        assert_int_equal(stage->slot, slot);
        assert_true(stage_cost(t, block, stage->end, slot, stage->n_slots, f->n_stages - 1 - s,
                               &parts[s].stage));
        block = stage->end;
        slot += stage->n_slots;
        if (s + 1 < f->n_stages)
            parts[s].cross =
                cross_cost(t, block, stage->slot, stage->n_slots, f->stages[s + 1].n_slots);
    }
    assert_int_equal(block, t->n_blocks);
    assert_int_equal(slot, t->n_slots);
    return cost_of_parts(t, parts, f->n_stages);
}

static void test_splits_equal_exhaustive_search(void **state)
{
    (void)state;
    static struct table t;
    int n_found = 0, n_none = 0;
    print_message("seed %llu\n", (unsigned long long)SEED);
    for (uint32_t i = 0; i < 300; i++) {
        struct draw d = draw_begin(SEED, i);
        struct split_found found[BLOCKS + 2];
        draw_table(&d, &t);
        struct split_problem p = {.n_blocks = t.n_blocks,
                                  .n_slots = t.n_slots,
                                  .max_stages = BLOCKS,
                                  .rounds = t.rounds,
                                  .user = &t,
                                  .stage = stage_cost,
                                  .cross = cross_cost,
                                  .total = total_cost};
        t.n_crosses = 0;
        assert_ok(split_solve(&p, found));
        /* before each block but the first, once for each three numbers of slots within all */
        int places = (t.n_blocks - 1) * (t.n_slots + 1) * t.n_slots * (t.n_slots - 1) / 6;
        assert_in_range(t.n_crosses, 0, places);
        for (int s = 1; s <= BLOCKS; s++) {
            double best = INFINITY;
            struct part parts[BLOCKS];
            try_all(&t, s, 0, 0, 0, 0, parts, &best);
            if (isinf(best)) {
                assert_int_equal(found[s].n_stages, 0);
                n_none++;
                continue;
            }
            n_found++;
            assert_int_equal(found[s].n_stages, s);
            if (fabs(found[s].total - best) > 1e-9 * best ||
                fabs(cost_of_found(&t, &found[s]) - best) > 1e-9 * best)
                fail_msg("seed %llu, case %u, %d stages: %g, exhaustive %g",
                         (unsigned long long)SEED, i, s, found[s].total, best);
        }
    }
    assert_true(n_found > 500 && n_none > 100);
}

/* ---- networks ---- */

enum { ROOM = 6 };

static struct pipelines_request ask(const struct subject *s)
{
    return (struct pipelines_request){.pricing = {.graph = s->graph,
                                                  .machine = s->machine,
                                                  .transport = "threads",
                                                  .sources = s->sources,
                                                  .n_workers = s->machine->n_devices,
                                                  .n_states = 1}};
}

/* Of the fastest plan by the clock. */
struct fastest {
    double step_s;
    int first_workers, last_workers; /* of its first and last stage */
};

/* All of them are lowered, run by the clock and fit; destroys them. */
static struct fastest check_found(const struct subject *s, struct pipelines_found *found, int n)
{
    struct fastest best = {.step_s = INFINITY};
    for (int i = 0; i < n; i++) {
        assert_ok(plan_check(found[i].plan, s->graph));
        assert_true(found[i].plan->n_stages == found[i].n_stages && found[i].n_stages >= 2);
        assert_true(i == 0 || found[i].step_s >= found[i - 1].step_s);
        struct prediction *p = predict(s, found[i].plan);
        if (p->too_large_worker >= 0)
            fail_msg("%s needs %lld bytes of %lld; the estimate was %.0f", found[i].plan->name,
                     (long long)p->needed_bytes, (long long)p->limit_bytes, found[i].memory_bytes);
        const struct plan *plan = found[i].plan;
        if (p->clock.step_s < best.step_s)
            best = (struct fastest){p->clock.step_s, plan->stages[0].n_workers,
                                    plan->stages[plan->n_stages - 1].n_workers};
        prediction_destroy(p);
        plan_destroy(found[i].plan);
    }
    return best;
}

static void test_random_networks_get_pipelines(void **state)
{
    (void)state;
    static const char *const machines[] = {"1x2:p100", "1x3:p100+p100+k40", "2x2:v100,inter=1GB/s",
                                           "1x5:cpu"};
    int n_all = 0;
    for (uint32_t i = 0; i < 40; i++) {
        struct draw d = draw_begin(SEED, 5000 + i);
        struct subject s = {.graph = draw_graph(&d, &(struct graph_wish){0})};
        struct pipelines_found found[ROOM];
        int n;
        take_machine(&s, machines[i % 4]);
        struct pipelines_request r = ask(&s);
        assert_ok(search_pipelines(&r, found, ROOM, &n));
        n_all += n;
        check_found(&s, found, n);
        drop_subject(&s);
    }
    assert_true(n_all > 100);
}

static void test_memory_is_kept_to(void **state)
{
    (void)state;
    static const char *const limits[] = {"memory=16GiB", "memory=8GiB", "memory=4GiB",
                                         "memory=2GiB", "memory=64MiB"};
    int before = ROOM, recomputed = 0;
    for (int k = 0; k < 5; k++) {
        struct subject s;
        struct pipelines_found found[ROOM];
        char text[64];
        int n;
        (void)snprintf(text, sizeof text, "1x4:p100,%s", limits[k]);
        take_network(&s, "resnet18", 256, text);
        struct pipelines_request r = ask(&s);
        assert_ok(search_pipelines(&r, found, ROOM, &n));
        for (int i = 0; i < n; i++)
            recomputed += found[i].recompute;
        check_found(&s, found, n);
        assert_true(n <= before);
        before = n;
        drop_subject(&s);
    }
    assert_int_equal(before, 0);
    assert_true(recomputed > 0);
}

/* Narayanan et al. 2019: over slow links VGG-16 and AlexNet want many workers for the
 * convolutions, whose weights are few, and few for the linear layers. */
static void test_slow_links_want_wide_fronts(void **state)
{
    (void)state;
    static const struct {
        const char *network, *machine;
        int64_t batch;
        int least_first, most_last;
    } cases[] = {{"vgg16", "4x1:v100,inter=10Gbit/s", 256, 3, 1},
                 {"vgg16", "16x1:v100,inter=10Gbit/s", 1024, 15, 1},
                 {"alexnet", "4x4:v100,inter=10Gbit/s", 512, 12, 4}};
    for (int k = 0; k < 3; k++) {
        struct subject s;
        struct pipelines_found found[ROOM];
        int n;
        take_network(&s, cases[k].network, cases[k].batch, cases[k].machine);
        struct pipelines_request r = ask(&s);
        struct plan_request data = {.n_workers = s.machine->n_devices};
        struct plan *plan;
        assert_ok(search_pipelines(&r, found, ROOM, &n));
        assert_true(n > 0);
        assert_ok(plan_build("data", s.graph, &data, &plan));
        struct prediction *p = predict(&s, plan);
        struct fastest ours = check_found(&s, found, n);
        print_message("%s on %s: %d .. %d %.3f ms, data parallel %.3f ms\n", cases[k].network,
                      cases[k].machine, ours.first_workers, ours.last_workers, ours.step_s * 1e3,
                      p->clock.step_s * 1e3);
        assert_true(ours.step_s < 0.9 * p->clock.step_s);
        assert_true(ours.first_workers >= cases[k].least_first);
        assert_true(ours.last_workers <= cases[k].most_last);
        prediction_destroy(p);
        plan_destroy(plan);
        drop_subject(&s);
    }
}

/* A transfer between stages takes as long as that through the slowest port. */
static void test_slow_port_of_a_stage(void **state)
{
    (void)state;
    static const char *const machines[] = {"1x4:k40+p100+p100+p100", "1x4:p100+k40+p100+p100",
                                           "1x4:p100+p100+p100+k40"};
    static const double n_bytes = 1e9;
    for (int i = 0; i < 3; i++) {
        struct subject s;
        struct topology r;
        take_machine(&s, machines[i]);
        assert_ok(topology_create(s.machine, "threads", 0, 4, s.machine->memory, &r));
        double slow = fmin(r.in_bytes_per_s[0], fmin(r.in_bytes_per_s[1], r.in_bytes_per_s[3]));
        assert_true(slow < r.in_bytes_per_s[2]);
        assert_near(stage_cross_s(&r, 0, 2, 2, 2, n_bytes), n_bytes / 2 / slow + r.near_s, 1e-9);
        machine_destroy(s.machine);
    }
}

/* Workers behind slow ports do not sum gradients as fast as those of the node before. */
static void test_ports_of_other_nodes(void **state)
{
    (void)state;
    struct subject s;
    struct pipelines_found found[ROOM];
    int n;
    take_network(&s, "resnet50", 64, "1x2:p100,intra=20GB/s,1x2:p100,intra=500MB/s,inter=10GB/s");
    struct pipelines_request r = ask(&s);
    r.micro_batches = 4;
    r.max_stages = 2;
    r.synchronous = r.only_batch = true;
    assert_ok(search_pipelines(&r, found, ROOM, &n));
    assert_int_equal(n, 2);
    for (int i = 0; i < n; i++) {
        struct prediction *p = predict(&s, found[i].plan);
        assert_that(fabs(found[i].step_s / p->clock.step_s - 1) < 0.1, "%s: %g, clock %g",
                    found[i].plan->name, found[i].step_s, p->clock.step_s);
        prediction_destroy(p);
    }
    check_found(&s, found, n);
    drop_subject(&s);
}

static void test_stopping(void **state)
{
    (void)state;
    struct subject s;
    int most = 0;
    take_network(&s, "alexnet", 64, "1x4:p100");
    for (int allowed = 0; allowed < 4000; allowed = 2 * allowed + 1) {
        int left = allowed, n;
        struct pipelines_found found[ROOM];
        struct pipelines_request r = ask(&s);
        r.options = (struct search_options){.stop = stop_after, .user = &left};
        assert_ok(search_pipelines(&r, found, ROOM, &n));
        assert_true(allowed > 0 || n == 0);
        most = n > most ? n : most;
        check_found(&s, found, n);
    }
    assert_true(most > 0);
    drop_subject(&s);
}

static void test_wishes_are_granted(void **state)
{
    (void)state;
    struct subject s;
    take_network(&s, "alexnet", 64, "1x4:p100");
    struct pipelines_request r = ask(&s);
    struct pipelines_found found[ROOM];
    int n;
    r.micro_batches = 5;
    r.synchronous = true;
    r.max_stages = 2;
    r.without[PLAN_1F1B] = true;
    r.only_batch = true;
    assert_ok(search_pipelines(&r, found, ROOM, &n));
    assert_int_equal(n, 1);
    assert_int_equal(found[0].plan->schedule, PLAN_GPIPE);
    assert_int_equal(found[0].plan->micro_batches, 5);
    check_found(&s, found, n);
    r.pricing.n_workers = 1;
    assert_ok(search_pipelines(&r, found, ROOM, &n));
    assert_int_equal(n, 0);
    drop_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits_equal_exhaustive_search),
        cmocka_unit_test(test_random_networks_get_pipelines),
        cmocka_unit_test(test_memory_is_kept_to),
        cmocka_unit_test(test_slow_links_want_wide_fronts),
        cmocka_unit_test(test_slow_port_of_a_stage),
        cmocka_unit_test(test_ports_of_other_nodes),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_wishes_are_granted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
