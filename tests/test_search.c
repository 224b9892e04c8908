/* The search: exact solutions against brute force, choices that can run, prices, plans. */
#include "random_graphs.h"
#include "search/problem.h"

#include <math.h>

static const uint64_t SEED = 5;

/* ---- random problems ---- */

enum { MAX_NODES = 9, MAX_CHOICES = 5, MAX_EDGES = 40 };

struct random_problem {
    struct search_problem problem;
    struct search_node nodes[MAX_NODES];
    struct search_edge edges[MAX_EDGES];
    double costs[MAX_NODES][MAX_CHOICES], tables[MAX_EDGES][MAX_CHOICES * MAX_CHOICES];
};

/* Whole numbers, so that every order of adding gives the same sum. */
static double draw_cost(struct draw *d, bool forbids)
{
    return forbids && draw_chance(d, 5) ? (double)INFINITY : draw_number(d, -20, 100);
}

static void draw_edge(struct draw *d, struct random_problem *r, int a, int b)
{
    int k = r->problem.n_edges++;
    int size = r->nodes[a].n_choices * r->nodes[b].n_choices;
    for (int i = 0; i < size; i++)
        r->tables[k][i] = draw_cost(d, true);
    /* Equal tables are shared. */
    bool again = k > 0 && draw_chance(d, 20) &&
                 r->nodes[r->edges[k - 1].a].n_choices == r->nodes[a].n_choices &&
                 r->nodes[r->edges[k - 1].b].n_choices == r->nodes[b].n_choices;
    r->edges[k] = (struct search_edge){a, b, again ? r->edges[k - 1].cost : r->tables[k]};
}

/* A chain with branches that meet again, parallel edges, parts that do not hang together; `percent`
 * of all further pairs make most of them irreducible. */
static void draw_problem(struct draw *d, int percent, struct random_problem *r)
{
    *r = (struct random_problem){.problem = {.nodes = r->nodes, .edges = r->edges}};
    r->problem.n_nodes = draw_number(d, 1, MAX_NODES);
    for (int i = 0; i < r->problem.n_nodes; i++) {
        r->nodes[i] = (struct search_node){draw_number(d, 1, MAX_CHOICES), r->costs[i]};
        for (int x = 0; x < r->nodes[i].n_choices; x++)
            r->costs[i][x] = draw_cost(d, false);
        if (i > 0 && draw_chance(d, 95))
            draw_edge(d, r, draw_number(d, i > 2 ? i - 3 : 0, i - 1), i);
        if (i > 0 && draw_chance(d, 20)) /* the other way round, and perhaps a second time */
            draw_edge(d, r, i, draw_number(d, 0, i - 1));
    }
    for (int a = 0; a < r->problem.n_nodes; a++)
        for (int b = 0; b < a; b++)
            if (r->problem.n_edges < MAX_EDGES && draw_chance(d, percent))
                draw_edge(d, r, a, b);
}

static double brute_force(const struct search_problem *p)
{
    int choice[MAX_NODES] = {0};
    double least = INFINITY;
    for (;;) {
        double sum = search_sum(p, choice);
        least = sum < least ? sum : least;
        int i = 0;
        while (i < p->n_nodes && ++choice[i] == p->nodes[i].n_choices)
            choice[i++] = 0;
        if (i == p->n_nodes)
            return least;
    }
}

static void check_against_brute_force(int count, int percent, int64_t table_limit,
                                      struct search_answer *sum)
{
    struct random_problem *r = malloc(sizeof *r);
    *sum = (struct search_answer){0};
    assert_non_null(r);
    for (int i = 0; i < count; i++) {
        struct draw d = draw_begin(SEED, (uint32_t)(1000 * percent + i));
        struct search_options o = {.table_limit = table_limit};
        struct search_answer a;
        int choice[MAX_NODES];
        draw_problem(&d, percent, r);
        assert_ok(search_solve(&r->problem, &o, choice, &a));
        double least = brute_force(&r->problem);
        if (a.cost != least || search_sum(&r->problem, choice) != least || !a.optimal ||
            a.bound != least)
            fail_msg("seed %llu, problem %d of %d %%: found %g (%g), brute force %g",
                     (unsigned long long)SEED, i, percent, a.cost, search_sum(&r->problem, choice),
                     least);
        sum->n_reduced += a.n_reduced;
        sum->n_tabled += a.n_tabled;
        sum->n_branches += a.n_branches;
    }
    free(r);
}

static void test_reducible_graphs_equal_brute_force(void **state)
{
    (void)state;
    struct search_answer sum;
    print_message("seed %llu\n", (unsigned long long)SEED);
    check_against_brute_force(400, 0, 0, &sum);
    assert_true(sum.n_reduced > 1000 && sum.n_branches == 0);
}

static void test_tables_of_many_equal_brute_force(void **state)
{
    (void)state;
    struct search_answer sum;
    check_against_brute_force(200, 40, 0, &sum);
    assert_true(sum.n_tabled > 100 && sum.n_branches == 0);
}

static void test_branch_and_bound_equals_brute_force(void **state)
{
    (void)state;
    struct search_answer sum;
    check_against_brute_force(200, 60, 4, &sum);
    assert_true(sum.n_branches > 100);
    check_against_brute_force(200, 50, 100, &sum);
    print_message("tabled %lld, branches %lld\n", (long long)sum.n_tabled,
                  (long long)sum.n_branches);
    assert_true(sum.n_tabled > 50 && sum.n_branches > 20);
}

/* ---- a large one ---- */

struct patience {
    int asked, allowed;
    double best, bound;
};

static bool lose_patience(void *user, double best, double bound)
{
    struct patience *p = user;
    assert_true(bound <= best);
    p->best = best;
    p->bound = bound;
    return ++p->asked > p->allowed;
}

enum { GRID = 7, GRID_CHOICES = 6 };

/* A grid, which has no nodes of two neighbours but its corners. */
static void test_stopping_gives_the_best_so_far(void **state)
{
    (void)state;
    static double costs[GRID * GRID][GRID_CHOICES];
    static double tables[2 * GRID * GRID][GRID_CHOICES * GRID_CHOICES];
    struct search_node nodes[GRID * GRID];
    struct search_edge edges[2 * GRID * GRID];
    struct search_problem p = {GRID * GRID, nodes, 0, edges};
    struct draw d = draw_begin(SEED, 77);
    for (int i = 0; i < GRID * GRID; i++) {
        nodes[i] = (struct search_node){GRID_CHOICES, costs[i]};
        for (int x = 0; x < GRID_CHOICES; x++)
            costs[i][x] = draw_cost(&d, false);
        int before[2] = {i % GRID ? i - 1 : -1, i >= GRID ? i - GRID : -1};
        for (int k = 0; k < 2; k++) {
            if (before[k] < 0)
                continue;
            for (int x = 0; x < GRID_CHOICES * GRID_CHOICES; x++)
                tables[p.n_edges][x] = draw_cost(&d, false);
            edges[p.n_edges] = (struct search_edge){before[k], i, tables[p.n_edges]};
            p.n_edges++;
        }
    }
    int choice[GRID * GRID];
    struct search_answer exact, stopped;
    assert_ok(search_solve(&p, NULL, choice, &exact));
    assert_true(exact.optimal && exact.n_tabled > 0);
    assert_true(search_sum(&p, choice) == exact.cost);
    for (int allowed = 0; allowed < 3000; allowed = 2 * allowed + 1) {
        struct patience patience = {.allowed = allowed};
        struct search_options o = {lose_patience, &patience, 50};
        assert_ok(search_solve(&p, &o, choice, &stopped));
        assert_true(search_sum(&p, choice) == stopped.cost);
        assert_true(stopped.bound <= exact.cost && exact.cost <= stopped.cost);
        assert_true(!stopped.optimal || stopped.cost == exact.cost);
        assert_true(allowed > 50 || !stopped.optimal);
    }
}

/* Wherever it is stopped: the rest of a branch that was begun may hold the optimum. */
static void test_bounds_of_a_stopped_search_hold(void **state)
{
    (void)state;
    struct random_problem *r = malloc(sizeof *r);
    int n_stopped = 0;
    assert_non_null(r);
    for (int i = 0; i < 100; i++) {
        struct draw d = draw_begin(SEED, (uint32_t)(200000 + i));
        struct search_answer a = {0};
        draw_problem(&d, 60, r);
        double least = brute_force(&r->problem);
        for (int allowed = 0; !a.optimal; allowed++) {
            struct patience patience = {.allowed = allowed};
            struct search_options o = {lose_patience, &patience, 4};
            int choice[MAX_NODES];
            assert_ok(search_solve(&r->problem, &o, choice, &a));
            assert_that(a.bound <= least && least <= a.cost && patience.bound <= least,
                        "seed %llu, problem %d stopped after %d: bound %g, least %g, found %g",
                        (unsigned long long)SEED, i, allowed, a.bound, least, a.cost);
            n_stopped += a.n_branches > 0 && !a.optimal;
        }
    }
    assert_true(n_stopped > 200);
    free(r);
}

static void test_wrong_edges_are_refused(void **state)
{
    (void)state;
    const double cost[1] = {1};
    struct search_node nodes[2] = {{1, cost}, {1, cost}};
    struct search_edge edge = {0, 0, cost};
    struct search_problem p = {2, nodes, 1, &edge};
    struct search_answer a;
    int choice[2];
    assert_int_equal(search_solve(&p, NULL, choice, &a), STATUS_USAGE);
    status_clear();
    edge.b = 2;
    assert_int_equal(search_solve(&p, NULL, choice, &a), STATUS_USAGE);
    status_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reducible_graphs_equal_brute_force),
        cmocka_unit_test(test_tables_of_many_equal_brute_force),
        cmocka_unit_test(test_branch_and_bound_equals_brute_force),
        cmocka_unit_test(test_stopping_gives_the_best_so_far),
        cmocka_unit_test(test_bounds_of_a_stopped_search_hold),
        cmocka_unit_test(test_wrong_edges_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
