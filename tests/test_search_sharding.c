/* Bytes between two layers, against counting it worker by worker, and legal placements. */
#include "odd_axes.h"
#include "random_graphs.h"

#include "search/compose.h"
#include "search/topology.h"

#include <math.h>

static const uint64_t SEED = 8;
enum { MOST_WORKERS = 8 };

struct regions {
    bool has[MOST_WORKERS];
    struct range at[MOST_WORKERS][SHAPE_MAX_RANK];
    int rank;
    double copies;
};

/* The regions of an input of a layer's first node, or (input < 0) of its last node's output. */
static void find_regions(const struct pricing *p, int layer, int choice, int input,
                         struct regions *out)
{
    const struct pricing_layer *l = &p->layers[layer];
    const struct choice *c = &l->choices[choice];
    int member = input < 0 ? l->nodes.n_nodes - 1 : 0;
    struct plan_layer cuts = {0};
    struct loop_nest nest;
    arena *memory;
    assert_ok(arena_create(&memory));
    assert_ok(choice_write(p->request.graph, &l->nodes, member, c, memory, &cuts));
    op_get_loops(&p->request.graph->nodes[l->nodes.node[member]].op, &nest);
    const struct tensor_map *map = input < 0 ? &nest.output : &nest.input[input];
    *out = (struct regions){.rank = map->rank, .copies = 1};
    for (int i = 0; i < cuts.n_pieces; i++) {
        struct box box;
        plan_piece_box(&cuts, &nest, i, &box);
        op_get_piece_region(&nest, map, &box, out->at[cuts.workers[i]]);
        out->has[cuts.workers[i]] = true;
    }
    arena_destroy(memory);
}

static double common(const struct regions *a, int i, const struct regions *b, int k)
{
    double volume = a->has[i] && b->has[k];
    for (int x = 0; x < a->rank; x++) {
        struct range r = a->at[i][x], s = b->at[k][x];
        int64_t begin = r.begin > s.begin ? r.begin : s.begin, end = r.end < s.end ? r.end : s.end;
        volume *= end > begin ? (double)(end - begin) : 0;
    }
    return volume;
}

static double link_s(const struct machine *m, int link, double elements)
{
    return link < 0 ? 0 : 4 * elements / m->links[link].bytes_per_s;
}

/* One direction: every message counted on its links; the busiest link. */
static double busiest_s(const struct machine *m, int n, const struct regions *own,
                        const struct regions *read, bool *moves)
{
    double in[MOST_WORKERS] = {0}, out[MOST_WORKERS] = {0}, busiest = 0;
    double far_in[MOST_WORKERS] = {0}, far_out[MOST_WORKERS] = {0}; /* by node */
    *moves = false;
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) {
            double volume = from == to ? 0 : common(read, to, own, from);
            int a = m->devices[from].node, b = m->devices[to].node;
            *moves |= volume > 0;
            out[from] += volume;
            in[to] += volume;
            far_out[a] += a == b ? 0 : volume;
            far_in[b] += a == b ? 0 : volume;
        }
    for (int i = 0; i < n; i++) {
        int node = m->devices[i].node;
        busiest = fmax(busiest, link_s(m, m->device_in[i], in[i]));
        busiest = fmax(busiest, link_s(m, m->device_out[i], out[i]));
        busiest = fmax(busiest, link_s(m, m->node_in[node], far_in[node]));
        busiest = fmax(busiest, link_s(m, m->node_out[node], far_out[node]));
    }
    return busiest;
}

static double copies_s(const struct machine *m, int n, const struct regions *read)
{
    double slowest = 0;
    for (int i = 0; i < n; i++)
        slowest = fmax(slowest, 5 * 4 * common(read, i, read, i) /
                                    m->kinds[m->devices[i].kind].reached_bytes_per_s);
    return slowest + 4 * m->kinds[m->n_kinds - 1].launch_s;
}

static bool same(const struct regions *a, const struct regions *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a->has[i] != b->has[i] || common(a, i, b, i) != common(a, i, a, i) ||
            common(a, i, b, i) != common(b, i, b, i))
            return false;
    return true;
}

/* Links without latency, so that the sum is all. */
static void check_edge(const struct pricing *p, const struct pricing_edge *e, int x, int y,
                       uint32_t number, int *moved)
{
    const struct machine *m = p->request.machine;
    int n = p->request.n_workers;
    struct regions own, read;
    bool moves;
    find_regions(p, e->from, x, -1, &own);
    find_regions(p, e->to, y, e->input, &read);
    bool partial = p->layers[e->from].choices[x].partial && p->layers[e->from].nodes.n_nodes == 1;
    double s = 2 * busiest_s(m, n, &own, &read, &moves) + copies_s(m, n, &read);
    double expected = same(&own, &read, n) && !partial ? 0 : s;
    double priced = e->table[(int64_t)x * p->layers[e->to].n_choices + y];
    *moved += moves;
    if (fabs(priced - expected) > 1e-9 * expected)
        fail_msg("seed %llu, graph %u, edge %d to %d, choices %d and %d: priced %g, counted %g",
                 (unsigned long long)SEED, number, e->from, e->to, x, y, priced, expected);
}

static const char *const machines[] = {
    "1x4:p100,intra=1GB/s,intra_latency=0", "1x7:p100,intra=1GB/s,intra_latency=0",
    "2x3:p100,intra=8GB/s,inter=1GB/s,intra_latency=0,latency=0",
    /* the last node has slower ports, then other devices behind its first */
    "2x2:p100,intra=8GB/s,1x2:p100,intra=1GB/s,inter=10GB/s,intra_latency=0,latency=0",
    "2x2:p100,1x2:p100+k40,intra=2GB/s,inter=2GB/s,intra_latency=0,latency=0"};
enum { MACHINES = sizeof machines / sizeof *machines };

/* A few pairs of choices of one graph on one machine. */
static void check_graph(const struct graph *g, const char *machine, struct draw *d, uint32_t number,
                        int *moved)
{
    struct machine *m;
    struct pricing *p;
    assert_ok(machine_parse(machine, &m));
    const struct cost_source sources[2] = {{.kind = &m->kinds[0]},
                                           {.kind = &m->kinds[m->n_kinds - 1]}};
    struct pricing_request r = {.graph = g,
                                .machine = m,
                                .transport = "threads",
                                .sources = sources,
                                .n_workers = m->n_devices};
    assert_ok(pricing_create(&r, NULL, &p));
    for (int k = 0; p->n_edges > 0 && k < 100; k++) {
        const struct pricing_edge *e = &p->edges[draw_number(d, 0, p->n_edges - 1)];
        double n_elements = (double)shape_elements(&g->nodes[e->node].op.input[e->input]);
        assert_near(e->tensor_bytes, 4 * n_elements * (double)p->request.samples / (double)g->batch,
                    1e-9);
        check_edge(p, e, draw_number(d, 0, p->layers[e->from].n_choices - 1),
                   draw_number(d, 0, p->layers[e->to].n_choices - 1), number, moved);
    }
    pricing_destroy(p);
    machine_destroy(m);
}

static void test_moves_equal_counting(void **state)
{
    (void)state;
    int moved = 0;
    print_message("seed %llu\n", (unsigned long long)SEED);
    for (uint32_t i = 0; i < 100; i++) {
        struct draw d = draw_begin(SEED, i);
        struct graph *g = draw_graph(&d, &(struct graph_wish){0});
        check_graph(g, machines[i % MACHINES], &d, i, &moved);
        graph_destroy(g);
    }
    assert_true(moved > 2000);
}

/* Tensors of five axes, of which the second is the batch. */
static void test_moves_of_five_axes(void **state)
{
    struct graph *g = odd_graph(8);
    int moved = 0;
    (void)state;
    for (uint32_t i = 0; i < MACHINES; i++) {
        struct draw d = draw_begin(SEED, i);
        check_graph(g, machines[i], &d, i, &moved);
    }
    assert_true(moved > 100);
    graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves_equal_counting),
        cmocka_unit_test(test_moves_of_five_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
