/* plans.h: plans of networks at hand, their cuts as text, and whether two are the same, for tests.
 *
 *     struct graph *g = build(0); // lenet5
 *     struct plan *p = make(g, "model", 4);
 *     assert_string_equal(cuts_text(p, g, "conv1"), "k 4");
 *     check_round_trip(p, g); // written and read back, nothing has changed
 */
#ifndef CLEAVE_TESTS_PLANS_H
#define CLEAVE_TESTS_PLANS_H

#include "model/network.h"
#include "plan/plan.h"
#include "plan/shared.h"
#include "testing.h"

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

static inline struct graph *build(int k)
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

static inline int find_node(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!strcmp(g->nodes[i].name, name))
            return i;
    fail_msg("no layer %s", name);
    return -1;
}

static inline struct plan *make(const struct graph *g, const char *strategy, int n_workers)
{
    struct plan *p;
    assert_ok(plan_build(strategy, g, &(struct plan_request){.n_workers = n_workers}, &p));
    return p;
}

/* "n 2 o 2" of a layer, in a buffer that the next call reuses. */
static inline const char *cuts_text(const struct plan *p, const struct graph *g, const char *name)
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

/* ---- there and back ---- */

static inline void assert_same_layer(const struct plan_layer *a, const struct plan_layer *b,
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

static inline void assert_same_plan(const struct plan *a, const struct plan *b,
                                    const struct graph *g)
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

static inline void check_round_trip(const struct plan *p, const struct graph *g)
{
    struct plan *back;
    char *text;
    assert_ok(plan_print(p, g, &text));
    assert_ok(plan_parse(text, strlen(text), "printed", g, &back));
    assert_same_plan(p, back, g);
    plan_destroy(back);
    free(text);
}

#endif
