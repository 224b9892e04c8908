/* Which plan is recommended: never a slower one than data parallelism, never one that does not fit,
 * the simpler one where both are as fast; and how a search is stopped.
 */
#include "model/network.h"
#include "plan/plan.h"
#include "search/candidates.h"
#include "search/candidates_searched.h"
#include "search/explain.h"
#include "search/plan_price.h"
#include "testing.h"

#include <math.h>
#include <string.h>

struct desk {
    struct graph *graph, *eval;
    struct machine *machine;
    const struct backend *backend;
    struct candidate_request request;
    int calls, most_calls; /* of stops() */
    /* What a trial finds: as the clock, but for one plan. */
    const char *slow;
    double slow_by, noise;
    int n_tried;
    int n_again; /* predictions after the trial */
};

static enum status prepare(void *user, const struct plan *plan, struct predict_request *out)
{
    struct desk *d = user;
    d->n_again += d->n_tried > 0;
    *out = (struct predict_request){.graph = d->graph,
                                    .plan = plan,
                                    .machine = d->machine,
                                    .backend = d->backend,
                                    .transport = "threads",
                                    .device.threads = 1,
                                    .n_states = 1};
    if (d->eval)
        out->others[out->n_others++] = (struct predict_other){d->eval, false};
    return STATUS_OK;
}

static struct graph *build(const char *model, int64_t batch)
{
    struct graph *g;
    bool large = strcmp(model, "alexnet") == 0;
    struct graph_variant v = {batch, 3, large ? 224 : 32, large ? 224 : 32, 10, !large, -1};
    assert_ok(network_build(model, &v, &g));
    return g;
}

static void desk_open(struct desk *d, const char *model, int64_t batch, const char *machine)
{
    *d = (struct desk){.graph = build(model, batch)};
    assert_ok(machine_parse(machine, &d->machine));
    assert_ok(backend_find("reference", &d->backend));
    d->request = (struct candidate_request){.graph = d->graph,
                                            .machine = d->machine,
                                            .n_workers = d->machine->n_devices,
                                            .prepare = prepare,
                                            .user = d};
}

static void desk_close(struct desk *d)
{
    machine_destroy(d->machine);
    graph_destroy(d->eval);
    graph_destroy(d->graph);
}

static const struct candidate *find(const struct candidate_set *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->list[i].name, name) == 0)
            return &s->list[i];
    return NULL;
}

/* ---- the winner ---- */

static void check_set(const struct desk *d, const struct candidate_set *s)
{
    const struct candidate *data = find(s, d->request.n_workers > 1 ? "data" : "serial");
    assert_non_null(data);
    assert_int_equal(data->state, CANDIDATE_CLOCKED);
    assert_ptr_equal(data, &s->list[s->data]);
    assert_true(s->best >= 0 && s->fastest >= 0);
    const struct candidate *best = &s->list[s->best], *fastest = &s->list[s->fastest];
    assert_true(best->state == CANDIDATE_CLOCKED && best->fits && !best->stale && best->checked);
    assert_true(fastest->step_s <= best->step_s);
    assert_true(!candidates_beats(fastest, best));
    assert_true(!data->fits || best->step_s <= data->step_s);
    for (int i = 0; i < s->n; i++) {
        const struct candidate *c = &s->list[i];
        bool clocked = c->state == CANDIDATE_CLOCKED;
        assert_that(!clocked || c->bound_s <= c->step_s, "%s: bound %g, clock %g", c->name,
                    c->bound_s, c->step_s);
        assert_that(!clocked || !c->fits || c->stale || c->step_s >= fastest->step_s,
                    "%s is faster", c->name);
        assert_ok(plan_check(c->plan, d->graph));
        for (int k = 0; k < i; k++)
            assert_that(strcmp(s->list[k].name, c->name) != 0, "two are called %s", c->name);
    }
}

static const struct {
    const char *model;
    int64_t batch;
    const char *machine;
} cases[] = {
    {"lenet5", 64, "1x1:p100"},
    {"lenet5", 64, "1x4:p100"},
    {"vgg11", 64, "2x2:p100,inter=1GB/s"},
    {"resnet18", 32, "1x3:p100"},
    {"alexnet", 64, "2x4:p100,inter=100MB/s"},
    {"vgg11", 64, "1x4:p100+p100+k40+k40"},
    {"lenet5", 4, "1x8:p100"}, /* fewer samples than workers */
};

static void test_never_worse_than_data(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int fewer = 0; fewer < 2; fewer++) {
            struct desk d;
            struct candidate_set *s;
            desk_open(&d, cases[i].model, cases[i].batch, cases[i].machine);
            d.request.fewer = fewer;
            assert_ok(candidates_find(&d.request, &s));
            check_set(&d, s);
            assert_true(s->complete && s->search_s > 0);
            candidates_destroy(s);
            desk_close(&d);
        }
}

/* Fewer workers are simpler and win where they are as fast; where data parallelism is faster, by
 * less than guessed costs tell apart, it wins. */
static void test_little_slower_than_data(void **state)
{
    (void)state;
    static const double serial_s[] = {0.999, 1.0, 1.001, 1.025};
    struct graph *g = build("lenet5", 8);
    struct plan *plans[2];
    for (int k = 0; k < 2; k++)
        assert_ok(plan_build(k ? "data" : "serial", g, &(struct plan_request){.n_workers = 1 + k},
                             &plans[k]));
    for (int i = 0; i < 4; i++) {
        struct candidate list[2] = {{.family = FAMILY_SERIAL, .step_s = serial_s[i]},
                                    {.family = FAMILY_DATA, .step_s = 1}};
        struct candidate_request request = {.graph = g};
        struct candidate_set s = {.n = 2, .list = list, .data = 1};
        for (int k = 0; k < 2; k++) {
            list[k].plan = plans[k];
            list[k].plain = true;
            list[k].state = CANDIDATE_CLOCKED;
            list[k].fits = list[k].checked = true;
            list[k].compute_s = list[k].step_s;
            list[k].share[COST_ROOFLINE] = 1;
        }
        assert_ok(candidates_choose(&request, &s));
        assert_int_equal(s.best, serial_s[i] > 1);
    }
    plan_destroy(plans[0]);
    plan_destroy(plans[1]);
    graph_destroy(g);
}

/* Where links are slow, cutting the classifier is worth much. */
static void test_searched_plan_wins(void **state)
{
    (void)state;
    struct desk d;
    struct candidate_set *s;
    desk_open(&d, "alexnet", 64, "2x2:p100,inter=500MB/s");
    assert_ok(candidates_find(&d.request, &s));
    check_set(&d, s);
    const struct candidate *best = &s->list[s->best];
    assert_that(best->step_s < 0.7 * s->list[s->data].step_s, "%s: %g, data: %g", best->name,
                best->step_s, s->list[s->data].step_s);
    candidates_destroy(s);
    desk_close(&d);
}

static bool is_uneven(const struct plan *plan)
{
    for (int i = 1; i < plan->n_layers; i++)
        for (int k = 0; k < plan->layers[i].n_cuts; k++)
            if (plan->layers[i].cut[k].sizes)
                return true;
    return false;
}

/* Slow devices beside fast ones get less to do, by samples and by any other cut, and that is worth
 * it by the clock; where all are alike nobody does. */
static void test_mixed_devices(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool all; /* the slow ones are of use */
    } machines[] = {{"1x4:p100+p100+k40+k40", true},
                    {"1x2:v100,1x2:k80,inter=100Gbit/s", true},
                    {TESTS_DIR "/../machines/mixed.json", false}};
    struct candidate_set *s;
    struct desk d;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        desk_open(&d, "alexnet", 256, machines[i].text);
        assert_ok(candidates_find(&d.request, &s));
        check_set(&d, s);
        const struct candidate *best = &s->list[s->best], *data = &s->list[s->data];
        const struct candidate *uneven = find(s, "data uneven");
        assert_non_null(uneven);
        assert_true(is_uneven(uneven->plan) && !is_uneven(data->plan));
        assert_that(best->step_s < 0.8 * data->step_s, "%s: %s %g, data %g", machines[i].text,
                    best->name, best->step_s, data->step_s);
        assert_true(is_uneven(best->plan) || !machines[i].all);
        assert_true(uneven->state != CANDIDATE_CLOCKED || uneven->step_s < data->step_s);
        candidates_destroy(s);
        desk_close(&d);
    }
    desk_open(&d, "alexnet", 256, "1x4:p100");
    assert_ok(candidates_find(&d.request, &s));
    assert_null(find(s, "data uneven"));
    assert_false(is_uneven(s->list[s->best].plan));
    candidates_destroy(s);
    desk_close(&d);
}

static void set_even(struct plan *plan)
{
    for (int i = 1; i < plan->n_layers; i++)
        for (int k = 0; k < plan->layers[i].n_cuts; k++)
            plan->layers[i].cut[k].sizes = NULL;
}

/* What the searches add beside one plan; `beside` becomes the list's. */
static struct candidate_list search_beside(const struct desk *d, struct plan *beside)
{
    struct candidate_list list = {0};
    struct known_costs costs = {.known = true, .transport = "threads", .n_states = 1};
    const struct search_options never = {0};
    assert_ok(arena_create(&list.memory));
    if (beside)
        assert_ok(candidate_append(&list, "beside", FAMILY_DATA, beside));
    assert_ok(candidates_list_searched(&d->request, &costs, &never, &never, &list));
    return list;
}

static int count_per_layer(const struct candidate_list *list)
{
    int n = 0;
    for (int i = 0; i < list->n; i++)
        n += list->list[i].family == FAMILY_PER_LAYER;
    return n;
}

static void drop_list(struct candidate_list *list)
{
    for (int i = 0; i < list->n; i++)
        plan_destroy(list->list[i].plan);
    arena_destroy(list->memory);
}

/* A plan is known if one is there with the same parts, not just as many. */
static void test_uneven_beside_even(void **state)
{
    (void)state;
    struct desk d;
    desk_open(&d, "vgg11", 64, "1x2:p100+k40");
    struct candidate_list all = search_beside(&d, NULL);
    int n = count_per_layer(&all);
    assert_true(n > 0 && all.list[0].family == FAMILY_PER_LAYER);
    struct plan *found = all.list[0].plan;
    all.list[0].plan = NULL;
    assert_true(is_uneven(found));
    struct candidate_list same = search_beside(&d, found);
    assert_int_equal(count_per_layer(&same), n - 1);
    set_even(found);
    same.list[0].plan = NULL;
    struct candidate_list beside = search_beside(&d, found);
    assert_int_equal(count_per_layer(&beside), n);
    drop_list(&all);
    drop_list(&same);
    drop_list(&beside);
    desk_close(&d);
}

/* Plans that train with older weights win only where they may. */
static void test_stale(void **state)
{
    (void)state;
    struct desk d;
    struct candidate_set *s;
    int n_stale = 0;
    desk_open(&d, "vgg11", 64, "2x2:p100,inter=100MB/s");
    assert_ok(candidates_find(&d.request, &s));
    assert_true(!s->list[s->best].stale && !s->list[s->fastest].stale);
    for (int i = 0; i < s->n; i++)
        n_stale += s->list[i].stale;
    assert_true(n_stale >= 2);
    double best_s = s->list[s->fastest].step_s;
    candidates_destroy(s);
    d.request.allow_stale = true;
    assert_ok(candidates_find(&d.request, &s));
    assert_true(s->list[s->fastest].step_s <= best_s);
    candidates_destroy(s);
    desk_close(&d);
}

/* ---- memory ---- */

static struct candidate_set *find_with_memory(struct desk *d, int64_t memory_bytes)
{
    struct candidate_set *s;
    d->machine->kinds[0].memory_bytes = memory_bytes;
    assert_ok(candidates_find(&d->request, &s));
    return s;
}

static void test_memory(void **state)
{
    (void)state;
    struct desk d;
    desk_open(&d, "vgg11", 256, "1x4:p100");
    struct candidate_set *s = find_with_memory(&d, INT64_C(16) << 30);
    int64_t needed = s->list[s->data].needed_bytes;
    candidates_destroy(s);
    int n_found = 0;
    for (int k = 1; k < 8; k++) { /* less and less: something else, then nothing */
        s = find_with_memory(&d, needed * (8 - k) / 8);
        assert_false(s->list[s->data].fits);
        n_found += s->best >= 0;
        if (s->best >= 0)
            check_set(&d, s);
        for (int i = 0; i < s->n; i++)
            if (s->list[i].state == CANDIDATE_CLOCKED)
                assert_true(s->list[i].fits == (s->list[i].needed_bytes <= s->list[i].limit_bytes));
        candidates_destroy(s);
    }
    assert_true(n_found >= 2);
    s = find_with_memory(&d, 1 << 20);
    assert_true(s->best < 0 && s->fastest < 0 && s->n > 0);
    candidates_destroy(s);
    desk_close(&d);
}

/* The test's batch counts for the winner. */
static void test_memory_of_the_test(void **state)
{
    (void)state;
    struct desk d;
    desk_open(&d, "lenet5", 32, "1x2:p100");
    d.eval = build("lenet5", 8192);
    struct candidate_set *s = find_with_memory(&d, INT64_C(16) << 30);
    int64_t needed = s->list[s->best].needed_bytes;
    candidates_destroy(s);
    s = find_with_memory(&d, needed / 8); /* the training alone would fit */
    assert_true(s->best < 0);
    candidates_destroy(s);
    desk_close(&d);
}

/* Of kinds that this host does not have nothing was measured. */
static void test_costs_of_other_kinds(void **state)
{
    (void)state;
    static const bool here[] = {false, true};
    struct known_costs costs = {.known = true, .kinds_here = here};
    const struct cost_source *sources;
    struct machine *m;
    assert_ok(machine_parse("1x2:p100+k40", &m));
    assert_int_equal(m->n_kinds, 2);
    assert_ok(profile_open(NULL, &costs.profile));
    assert_ok(known_costs_find_sources(&costs, m, m->memory, &sources));
    assert_true(!sources[0].profile && sources[1].profile == costs.profile);
    costs.kinds_here = NULL; /* the machine is this host */
    assert_ok(known_costs_find_sources(&costs, m, m->memory, &sources));
    assert_true(sources[0].profile && sources[1].profile);
    profile_close(costs.profile);
    machine_destroy(m);
}

/* ---- the end of a search ---- */

static bool stops_later(void *user)
{
    struct desk *d = user;
    return ++d->calls > d->most_calls;
}

/* ---- trials ---- */

static enum status try_plans(void *user, int n, struct candidate *const *finalists)
{
    struct desk *d = user;
    d->n_tried = n;
    for (int i = 0; i < n; i++) {
        bool slow = d->slow && strcmp(finalists[i]->name, d->slow) == 0;
        assert_true(finalists[i]->checked && finalists[i]->fits && !finalists[i]->stale);
        finalists[i]->tried_s = finalists[i]->step_s * (slow ? d->slow_by : 1);
        finalists[i]->tried_noise = d->noise;
    }
    return STATUS_OK;
}

static struct candidate_set *find_tried(struct desk *d, const char *slow, double by, double noise)
{
    struct candidate_set *s;
    d->slow = slow;
    d->slow_by = by;
    d->noise = noise;
    d->request.try_plans = try_plans;
    assert_ok(candidates_find(&d->request, &s));
    assert_in_range(d->n_tried, CANDIDATES_LEAST_TRIED, CANDIDATES_MOST_TRIED);
    assert_int_equal(s->n_tried, d->n_tried);
    assert_true(s->list[s->data].tried_s > 0 && s->list[s->best].tried_s > 0);
    return s;
}

/* The fastest by the clock was found too large for the test: those behind it are tried. */
static void test_finalists_behind_one_that_is_too_large(void **state)
{
    (void)state;
    struct desk d = {0};
    struct plan *plan;
    struct plan_request two = {.n_workers = 2};
    struct graph *g = build("lenet5", 8);
    struct candidate_request request = {.graph = g, .try_plans = try_plans, .user = &d};
    struct candidate list[3] = {{.name = "large", .step_s = 0.9},
                                {.name = "first", .step_s = 1},
                                {.name = "second", .step_s = 1.1}};
    struct candidate_set s = {.n = 3, .list = list, .best = 1, .data = -1, .serial = -1};
    assert_ok(plan_build("data", g, &two, &plan));
    for (int k = 0; k < 3; k++) {
        list[k].plan = plan;
        list[k].state = CANDIDATE_CLOCKED;
        list[k].checked = true;
        list[k].fits = k > 0;
    }
    assert_ok(candidates_try(&request, &s));
    assert_int_equal(d.n_tried, 2);
    assert_string_equal(list[s.best].name, "first");
    plan_destroy(plan);
    graph_destroy(g);
}

/* The clock may be wrong about all of them: where none is near, the next ones are tried. */
static void test_finalists_where_none_is_near(void **state)
{
    (void)state;
    enum { N = CANDIDATES_MOST_TRIED + 2 };
    struct desk d = {0};
    struct plan *plan;
    struct plan_request two = {.n_workers = 2};
    struct graph *g = build("lenet5", 8);
    struct candidate_request request = {.graph = g, .try_plans = try_plans, .user = &d};
    struct candidate list[N] = {{.name = "first", .step_s = 1}};
    struct candidate_set s = {.n = N, .list = list, .data = -1, .serial = -1};
    assert_ok(plan_build("data", g, &two, &plan));
    for (int k = 0; k < N; k++) {
        list[k].plan = plan;
        list[k].state = CANDIDATE_CLOCKED;
        list[k].fits = list[k].checked = true;
        list[k].step_s = k == 0 ? 1 : 2 * CANDIDATES_NEAR + k;
    }
    assert_ok(candidates_try(&request, &s));
    assert_int_equal(d.n_tried, CANDIDATES_LEAST_TRIED);
    assert_true(list[CANDIDATES_LEAST_TRIED - 1].tried_s > 0);
    plan_destroy(plan);
    graph_destroy(g);
}

/* Measured steps decide, and a plan that was dropped does not win. */
static void test_behind_in_a_trial(void **state)
{
    (void)state;
    struct plan *plan;
    struct plan_request two = {.n_workers = 2};
    struct graph *g = build("lenet5", 8);
    struct candidate_request request = {.graph = g};
    struct candidate list[2] = {{.name = "data", .step_s = 2, .tried_s = 1},
                                {.name = "owt", .step_s = 1, .tried_s = 0.9}};
    struct candidate_set s = {.n = 2, .list = list, .n_tried = 2};
    assert_ok(plan_build("data", g, &two, &plan));
    for (int k = 0; k < 2; k++) {
        list[k].plan = plan;
        list[k].state = CANDIDATE_CLOCKED;
        list[k].fits = list[k].checked = true;
    }
    assert_ok(candidates_choose(&request, &s));
    assert_string_equal(list[s.best].name, "owt");
    list[1].tried_behind = true;
    assert_ok(candidates_choose(&request, &s));
    assert_string_equal(list[s.best].name, "data");
    plan_destroy(plan);
    graph_destroy(g);
}

/* Memory holds only some of the finalists at once: data parallelism is in the trial all the same,
 * and first; where it does not even go together with the clock's choice the clock decides. */
static void test_data_is_always_tried(void **state)
{
    (void)state;
    enum { N = 4 };
    static const struct {
        double best_share;
        int n_tried;
        const char *best;
    } table[] = {{0.3, 3, "data"}, {0.5, 0, "fast"}};
    struct plan *plan;
    struct plan_request two = {.n_workers = 2};
    struct graph *g = build("lenet5", 8);
    assert_ok(plan_build("data", g, &two, &plan));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct desk d = {.slow = "fast", .slow_by = 2};
        struct candidate_request request = {.graph = g, .try_plans = try_plans, .user = &d};
        struct candidate list[N] = {
            {.name = "fast", .step_s = 1},
            {.name = "other", .step_s = 1.1, .needed_bytes = 40},
            {.name = "large", .step_s = 1.15, .needed_bytes = 60},
            {.name = "data", .plain = true, .step_s = 1.05, .needed_bytes = 30}};
        struct candidate_set s = {.n = N, .list = list, .data = 3, .serial = -1, .best = 0};
        list[0].needed_bytes = (int64_t)(100 * table[i].best_share);
        for (int k = 0; k < N; k++) {
            list[k].plan = plan;
            list[k].state = CANDIDATE_CLOCKED;
            list[k].fits = list[k].checked = true;
            list[k].limit_bytes = 100;
        }
        assert_ok(candidates_try(&request, &s));
        assert_int_equal(d.n_tried, table[i].n_tried);
        assert_int_equal(list[3].tried_s > 0, table[i].n_tried > 0);
        assert_true(list[2].tried_s <= 0);
        assert_string_equal(list[s.best].name, table[i].best);
        assert_true(candidates_known_s(&s, s.best) <= candidates_known_s(&s, s.data));
    }
    plan_destroy(plan);
    graph_destroy(g);
}

/* Memory has no room for one worker beside data parallelism: the trial, in which the clock's choice
 * disappoints, is not used against it. */
static void test_one_worker_without_a_trial(void **state)
{
    (void)state;
    enum { N = 3 };
    struct plan *plans[2];
    struct graph *g = build("lenet5", 8);
    assert_ok(plan_build("data", g, &(struct plan_request){.n_workers = 2}, &plans[0]));
    assert_ok(plan_build("serial", g, &(struct plan_request){.n_workers = 1}, &plans[1]));
    struct desk d = {.slow = "fast", .slow_by = 3};
    struct candidate_request request = {.graph = g, .try_plans = try_plans, .user = &d};
    struct candidate list[N] = {
        {.name = "fast", .family = FAMILY_OWT, .step_s = 1, .needed_bytes = 30},
        {.name = "serial", .plain = true, .step_s = 1.2, .needed_bytes = 60},
        {.name = "data", .family = FAMILY_DATA, .plain = true, .step_s = 1.5, .needed_bytes = 30}};
    struct candidate_set s = {.n = N, .list = list, .data = 2, .serial = 1};
    for (int k = 0; k < N; k++) {
        list[k].plan = plans[k == 1];
        list[k].state = CANDIDATE_CLOCKED;
        list[k].fits = list[k].checked = true;
        list[k].limit_bytes = 100;
    }
    assert_ok(candidates_try(&request, &s));
    assert_int_equal(d.n_tried, 2);
    assert_true(list[1].tried_s <= 0 && list[2].tried_s > 0);
    assert_string_equal(list[s.best].name, "serial");
    plan_destroy(plans[0]);
    plan_destroy(plans[1]);
    graph_destroy(g);
}

/* A trial that is not within the error of a plan's costs: they are measured again. */
static void test_doubt_after_a_trial(void **state)
{
    (void)state;
    struct desk d;
    struct candidate_set *s;
    desk_open(&d, "lenet5", 64, "1x2:p100");
    d.slow = "data";
    d.slow_by = 3;
    d.request.try_plans = try_plans;
    d.request.measures_again = true;
    d.request.named_only = true;
    assert_ok(candidates_find(&d.request, &s));
    assert_true(d.n_again > 0);
    for (int i = 0; i < s->n; i++)
        assert_int_equal(s->list[i].doubted_s > 0, strcmp(s->list[i].name, "data") == 0);
    candidates_destroy(s);
    desk_close(&d);
}

/* The clock's choice does not win where it is slow for real; data parallelism is always tried, and
 * one worker. */
static void test_trial_decides(void **state)
{
    (void)state;
    struct desk d;
    char winner[CANDIDATE_NAME_BYTES];
    desk_open(&d, "alexnet", 64, "2x2:p100,inter=500MB/s");
    d.request.fewer = true;
    struct candidate_set *s = find_tried(&d, NULL, 1, 0);
    const struct candidate *one = &s->list[s->serial];
    assert_true(one->tried_s > 0 && one->step_s > CANDIDATES_NEAR * s->list[s->best].step_s);
    memcpy(winner, s->list[s->best].name, sizeof winner);
    assert_string_not_equal(winner, "data");
    candidates_destroy(s);
    s = find_tried(&d, winner, 3, 0);
    assert_string_not_equal(s->list[s->best].name, winner);
    for (int i = 0; i < s->n; i++)
        assert_true(s->list[i].tried_s == 0 || s->list[i].tried_s >= s->list[s->fastest].tried_s);
    candidates_destroy(s);
    desk_close(&d);
}

/* A margin of no more than CANDIDATES_TRIED goes to the simpler plan. */
static void test_margin_of_a_trial(void **state)
{
    (void)state;
    static const struct {
        double margin;
        bool stays;
    } table[] = {{0.002, true}, {0.008, true}, {0.02, false}, {0.03, false}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct candidate list[2] = {{.name = "data",
                                     .family = FAMILY_DATA,
                                     .state = CANDIDATE_CLOCKED,
                                     .step_s = 1,
                                     .tried_s = 1 + table[i].margin},
                                    {.name = "owt",
                                     .family = FAMILY_OWT,
                                     .state = CANDIDATE_CLOCKED,
                                     .step_s = 1,
                                     .tried_s = 1}};
        struct plan *plan;
        struct plan_request two = {.n_workers = 2};
        struct graph *g = build("lenet5", 8);
        struct candidate_request request = {.graph = g};
        struct candidate_set s = {.n = 2, .list = list, .n_tried = 2};
        assert_ok(plan_build("data", g, &two, &plan));
        for (int k = 0; k < 2; k++) {
            list[k].plan = plan;
            list[k].fits = list[k].checked = true;
        }
        assert_ok(candidates_choose(&request, &s));
        assert_string_equal(list[s.fastest].name, "owt");
        assert_string_equal(list[s.best].name, table[i].stays ? "data" : "owt");
        plan_destroy(plan);
        graph_destroy(g);
    }
}

static void test_stopped(void **state)
{
    (void)state;
    struct desk d;
    struct candidate_set *s;
    desk_open(&d, "vgg11", 64, "2x2:p100,inter=1GB/s");
    d.request.stops = stops_later;
    for (d.most_calls = 0; d.most_calls < 40; d.most_calls += 3) {
        d.calls = 0;
        assert_ok(candidates_find(&d.request, &s));
        assert_true(s->best >= 0 &&
                    s->list[s->best].step_s <= s->list[s->data].step_s * (1 + CANDIDATES_GUESSED));
        assert_true(d.calls <= d.most_calls || !s->complete);
        candidates_destroy(s);
    }
    d.request.stops = NULL;
    d.request.limit_s = 1e-9;
    assert_ok(candidates_find(&d.request, &s));
    assert_true(!s->complete && (s->best == s->data || s->best == s->serial));
    candidates_destroy(s);
    desk_close(&d);
}

static void test_budget(void **state)
{
    (void)state;
    struct desk d;
    struct candidate_set *s;
    desk_open(&d, "lenet5", 256, "1x8:p100");
    d.request.fewer = true;
    assert_ok(candidates_find(&d.request, &s));
    double one_s = s->list[s->serial].step_s;
    candidates_destroy(s);
    d.request.most_worker_s = 1.2 * one_s;
    assert_ok(candidates_find(&d.request, &s));
    const struct candidate *best = &s->list[s->best];
    assert_true(best->plan->n_workers * best->step_s <= d.request.most_worker_s);
    candidates_destroy(s);
    d.request.most_worker_s = 0.01 * one_s;
    assert_ok(candidates_find(&d.request, &s));
    assert_int_equal(s->best, -1);
    candidates_destroy(s);
    desk_close(&d);
}

static void test_nonsense(void **state)
{
    (void)state;
    struct desk d;
    struct candidate_set *s;
    desk_open(&d, "lenet5", 64, "1x2:p100");
    d.request.n_workers = 0;
    assert_fails(candidates_find(&d.request, &s), STATUS_USAGE, "0 workers");
    d.request.n_workers = -3;
    assert_fails(candidates_find(&d.request, &s), STATUS_USAGE, "-3 workers");
    desk_close(&d);
}

/* ---- error bars ---- */

static struct candidate made(double compute_s, double wait_s, double error)
{
    struct candidate c = {.compute_s = compute_s, .wait_s = wait_s};
    c.step_s = compute_s + wait_s;
    c.error_s = hypot(error * compute_s, 0.15 * wait_s);
    c.share[error > 0.1 ? COST_ROOFLINE : COST_MEASURED] = 1;
    return c;
}

static void test_error_bars(void **state)
{
    (void)state;
    struct candidate slow = made(10, 0, 0.02), fast = made(9.999, 0, 0.02);
    assert_false(candidates_beats(&fast, &slow)); /* noise */
    assert_false(candidates_beats(&slow, &fast));
    fast = made(8, 0, 0.3);
    slow = made(10, 0, 0.3);
    assert_true(candidates_beats(&fast, &slow)); /* both are off alike */
    fast = made(12, 1, 0.02), slow = made(10, 3.2, 0.02);
    assert_false(candidates_beats(&fast, &slow)); /* 0.2 of 13 won by 2.2 less of uncertain waits */
    fast = made(12, 1, 0.02), slow = made(10, 3.9, 0.02);
    assert_true(candidates_beats(&fast, &slow)); /* no more than 2 % is given up */
}

/* An error of the host is common to all plans: it does not make two of them alike. */
static void test_host_error_does_not_count_between_plans(void **state)
{
    (void)state;
    struct candidate fast = made(10, 0, 0.01), slow = made(12, 0, 0.01);
    slow.step_s = 10.08;
    assert_true(candidates_beats(&fast, &slow));
    struct candidate *both[] = {&fast, &slow};
    for (int i = 0; i < 2; i++) {
        both[i]->host_error = 0.1;
        both[i]->error_s = hypot(both[i]->error_s, 0.1 * both[i]->step_s);
    }
    assert_true(candidates_beats(&fast, &slow));
    fast.host_error = slow.host_error = 0; /* an error of its own does */
    assert_false(candidates_beats(&fast, &slow));
}

/* ---- estimates ---- */

static void test_estimates(void **state)
{
    (void)state;
    struct desk d;
    struct candidate_list list = {0};
    desk_open(&d, "resnet18", 64, "2x2:p100,inter=1GB/s");
    assert_ok(arena_create(&list.memory));
    assert_ok(candidates_list_simple(&d.request, 4, &list));
    assert_ok(candidates_list_others(&d.request, 4, &list));
    assert_true(list.n > 20);
    for (int i = 0; i < list.n; i++) {
        struct plan_price e;
        struct predict_request r;
        struct prediction *p;
        const struct candidate *c = &list.list[i];
        assert_ok(
            plan_price(d.graph, c->plan, d.machine, PRECISION_FLOAT, (struct cost_scales){0}, &e));
        assert_ok(prepare(&d, c->plan, &r));
        assert_ok(predict_plan(&r, &p));
        assert_that(e.bound_s <= p->clock.step_s, "%s: bound %g, clock %g", c->name, e.bound_s,
                    p->clock.step_s);
        assert_that(e.step_s < 3 * p->clock.step_s && e.step_s > p->clock.step_s / 3,
                    "%s: estimate %g, clock %g", c->name, e.step_s, p->clock.step_s);
        prediction_destroy(p);
        plan_destroy(c->plan);
    }
    arena_destroy(list.memory);
    desk_close(&d);
}

/* ---- why ---- */

static void test_explanation(void **state)
{
    (void)state;
    struct desk d;
    struct candidate_set *s;
    struct predict_request r;
    struct explanation *e;
    desk_open(&d, "vgg11", 64, "1x4:p100,intra=2GB/s");
    assert_ok(candidates_find(&d.request, &s));
    const struct candidate *best = &s->list[s->best];
    assert_ok(prepare(&d, best->plan, &r));
    assert_ok(explain_plan(&r, best, &e));
    int n_layers = 0;
    for (int i = 0; i < e->n_layers; i++)
        n_layers += e->layers[i].n_layers;
    assert_int_equal(n_layers, d.graph->n_nodes - 1);
    assert_true(fabs(e->step_s - best->step_s) < 1e-9);
    assert_non_null(e->limits.layer);
    assert_non_null(e->limits.link);
    assert_true(e->limits.free_s <= e->step_s && e->limits.link_share > 0);
    assert_true(e->limits.limit_bytes > e->limits.needed_bytes);
    explanation_destroy(e);
    candidates_destroy(s);
    desk_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_worse_than_data),
        cmocka_unit_test(test_little_slower_than_data),
        cmocka_unit_test(test_searched_plan_wins),
        cmocka_unit_test(test_mixed_devices),
        cmocka_unit_test(test_uneven_beside_even),
        cmocka_unit_test(test_costs_of_other_kinds),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_of_the_test),
        cmocka_unit_test(test_finalists_behind_one_that_is_too_large),
        cmocka_unit_test(test_finalists_where_none_is_near),
        cmocka_unit_test(test_behind_in_a_trial),
        cmocka_unit_test(test_data_is_always_tried),
        cmocka_unit_test(test_one_worker_without_a_trial),
        cmocka_unit_test(test_doubt_after_a_trial),
        cmocka_unit_test(test_trial_decides),
        cmocka_unit_test(test_margin_of_a_trial),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_error_bars),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_explanation),
        cmocka_unit_test(test_host_error_does_not_count_between_plans),
    };
    return test_run(tests);
}
