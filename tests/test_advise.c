/* What to change of a plan that does not fit: it fits then, and no smaller change of its kind does.
 */
#include "model/network.h"
#include "predict/advise.h"
#include "testing.h"

enum { BATCH = 64, EVAL_BATCH = 512, WORKERS = 2 };

/* A plan on GPUs whose memory can be set to the byte. */
struct desk {
    struct graph *graph, *eval;
    struct plan *plan;
    struct machine *machine;
    struct predict_request predict;
    struct advise_request advise;
};

static struct graph *build(int64_t batch)
{
    struct graph *g;
    struct graph_variant v = {batch, 3, 32, 32, 10, true, -1};
    assert_ok(network_build("vgg11", &v, &g));
    return g;
}

/* The graphs opened for other batches. */
struct opened {
    struct graph *graph, *eval;
};

static enum status open_batches(void *user, int64_t batch, int64_t eval_batch,
                                struct predict_request *request, void **out)
{
    const struct desk *d = user;
    struct opened *o = calloc(1, sizeof *o);
    assert_non_null(o);
    o->graph = build(batch);
    request->graph = o->graph;
    o->eval = d->eval ? build(eval_batch ? eval_batch : EVAL_BATCH) : NULL;
    request->others[0].graph = o->eval;
    *out = o;
    return STATUS_OK;
}

static void close_batches(void *opened)
{
    struct opened *o = opened;
    graph_destroy(o->graph);
    graph_destroy(o->eval);
    free(o);
}

static void desk_open(struct desk *d, const char *strategy, bool tests)
{
    *d = (struct desk){.graph = build(BATCH), .eval = tests ? build(EVAL_BATCH) : NULL};
    struct plan_request how = {.n_workers = WORKERS};
    assert_ok(plan_build(strategy, d->graph, &how, &d->plan));
    assert_ok(machine_parse("1x8:p100", &d->machine));
    d->predict = (struct predict_request){.graph = d->graph,
                                          .plan = d->plan,
                                          .machine = d->machine,
                                          .transport = "threads",
                                          .device.threads = 1,
                                          .n_states = 1};
    assert_ok(backend_find("reference", &d->predict.backend));
    if (tests)
        d->predict.others[d->predict.n_others++] = (struct predict_other){d->eval, false};
    d->advise = (struct advise_request){.predict = &d->predict,
                                        .strategy = strategy,
                                        .how = how,
                                        .open_batches = open_batches,
                                        .close_batches = close_batches,
                                        .user = d};
}

static void desk_close(struct desk *d)
{
    machine_destroy(d->machine);
    plan_destroy(d->plan);
    graph_destroy(d->eval);
    graph_destroy(d->graph);
}

static int64_t weigh(const struct predict_request *r)
{
    struct prediction *p;
    assert_ok(predict_memory(r, &p));
    int64_t needed = p->needed_bytes;
    assert_int_equal(p->largest_bytes, needed); /* a GPU has one worker */
    assert_true((p->too_large_worker < 0) == (needed <= p->limit_bytes));
    prediction_destroy(p);
    return needed;
}

static int advise(struct desk *d, int64_t limit, struct advice found[ADVICE_MAX])
{
    d->machine->kinds[0].memory_bytes = limit;
    int n = advise_find(&d->advise, found);
    assert_string_equal(status_message(), "");
    return n;
}

/* The number behind `option` in the change, or 0. */
static int64_t number_of(const struct advice *a, const char *option)
{
    const char *at = strstr(a->change, option);
    return at ? strtoll(at + strlen(option), NULL, 10) : 0;
}

/* ---- kinds ---- */

static int64_t weigh_micro_batches(const struct desk *d, int n)
{
    struct predict_request r = d->predict;
    struct plan plan = *d->plan;
    plan.micro_batches = n;
    plan.schedule = PLAN_1F1B;
    r.plan = &plan;
    return weigh(&r);
}

static void test_micro_batches(void **state)
{
    (void)state;
    struct desk d;
    struct advice found[ADVICE_MAX];
    desk_open(&d, "data", false);
    for (int n = 4; n <= 16; n *= 2) {
        int64_t needed = weigh_micro_batches(&d, n);
        assert_true(needed < weigh_micro_batches(&d, n / 2));
        assert_true(advise(&d, needed, found) > 0);
        assert_that(number_of(&found[0], "--micro-batches ") == n, "%s", found[0].change);
        assert_int_equal(found[0].memory_bytes, needed);
        assert_true(advise(&d, needed - 1, found) > 0);
        assert_that(number_of(&found[0], "--micro-batches ") == 2 * n, "%s", found[0].change);
    }
    desk_close(&d);
}

/* All forward, then all backward: outputs of all micro-batches are kept, unless they are made
 * again. */
static void test_recomputation(void **state)
{
    (void)state;
    struct desk d;
    struct advice found[ADVICE_MAX];
    desk_open(&d, "gpipe", false);
    int64_t before = weigh(&d.predict);
    assert_ok(plan_recompute_segments(d.plan, d.predict.graph, PLAN_SEGMENTS_AUTO));
    int64_t needed = weigh(&d.predict);
    for (int i = 1; i < d.plan->n_layers; i++)
        d.plan->layers[i].recompute = false;
    assert_true(needed < before);
    int n_found = advise(&d, needed, found), at = 0;
    while (at < n_found && !strstr(found[at].change, "recompute"))
        at++;
    assert_true(at < n_found);
    assert_string_equal(found[at].change, "--recompute auto");
    assert_int_equal(found[at].memory_bytes, needed);
    d.advise.strategy = NULL; /* a file's: not even micro-batches are an option */
    for (int64_t limit = needed; limit > needed / 2; limit -= needed / 9) {
        int n = advise(&d, limit, found);
        for (int i = 0; i < n; i++)
            assert_that(!strstr(found[i].change, "--micro-batches"), "%s", found[i].change);
    }
    desk_close(&d);
}

/* ---- all of them, with less and less memory ---- */

static int64_t weigh_batch(struct desk *d, int64_t batch)
{
    struct predict_request r = d->predict;
    struct plan_request how = d->advise.how;
    struct plan *plan;
    void *opened;
    assert_ok(open_batches(d, batch, 0, &r, &opened));
    assert_ok(plan_build(d->advise.strategy, r.graph, &how, &plan));
    r.plan = plan;
    int64_t needed = weigh(&r);
    plan_destroy(plan);
    close_batches(opened);
    return needed;
}

static void check_advice(struct desk *d, const struct advice *a, int64_t limit)
{
    assert_that(a->memory_bytes > 0 && a->memory_bytes <= limit, "%s: %lld of %lld", a->change,
                (long long)a->memory_bytes, (long long)limit);
    assert_that(!strstr(a->change, "pipedream"), "%s trains to something else", a->change);
    int64_t batch = strncmp(a->change, "--batch ", 8) == 0 ? number_of(a, "--batch ") : 0;
    if (batch == 0)
        return;
    assert_int_equal(weigh_batch(d, batch), a->memory_bytes);
    assert_that(2 * batch == BATCH || weigh_batch(d, 2 * batch) > limit, "%s is too little",
                a->change);
}

static void sweep(const char *strategy)
{
    struct desk d;
    struct advice found[ADVICE_MAX];
    int n_batches = 0;
    desk_open(&d, strategy, false);
    int64_t needed = weigh(&d.predict);
    for (int k = 1; k <= 8; k++) {
        int64_t limit = needed * k / 9;
        int n = advise(&d, limit, found);
        assert_true(n >= 0 && n <= ADVICE_MAX);
        for (int i = 0; i < n; i++) {
            check_advice(&d, &found[i], limit);
            n_batches += strncmp(found[i].change, "--batch ", 8) == 0;
            for (int j = 0; j < i; j++)
                assert_string_not_equal(found[i].change, found[j].change);
        }
    }
    assert_that(n_batches > 0, "%s: no smaller batch was advised", strategy);
    assert_int_equal(advise(&d, 1, found), 0);
    desk_close(&d);
}

static void test_less_and_less_memory(void **state)
{
    (void)state;
    sweep("data");
    sweep("model");
    sweep("gpipe");
}

/* ---- tests and workers ---- */

static void test_the_test_alone_is_too_large(void **state)
{
    (void)state;
    struct desk d;
    struct advice found[ADVICE_MAX];
    desk_open(&d, "data", true);
    struct predict_request training = d.predict;
    training.n_others = 0;
    int64_t limit = weigh(&training);
    assert_true(weigh(&d.predict) > limit);
    assert_int_equal(advise(&d, limit, found), 1);
    int64_t eval_batch = number_of(&found[0], "--eval-batch ");
    assert_true(eval_batch > 0 && eval_batch < EVAL_BATCH);
    assert_true(found[0].memory_bytes <= limit);
    /* Training changes, and the test with it. */
    d.predict = training;
    limit = weigh_micro_batches(&d, 4);
    d.predict.n_others = 1;
    assert_true(advise(&d, limit, found) > 0);
    assert_int_equal(number_of(&found[0], "--micro-batches "), 4);
    assert_true(number_of(&found[0], "--eval-batch ") > 0);
    desk_close(&d);
}

static void test_more_workers(void **state)
{
    (void)state;
    struct desk d;
    struct advice found[ADVICE_MAX];
    desk_open(&d, "data", false);
    d.advise.open_batches = NULL;
    int seen = 0;
    int64_t needed = weigh(&d.predict);
    for (int k = 1; k < 9; k++) {
        int n = advise(&d, needed * k / 9, found);
        for (int i = 0; i < n; i++)
            if (number_of(&found[i], "--workers ") > WORKERS && i == n - 1)
                seen++;
    }
    assert_true(seen > 0);
    d.predict.local = true; /* cores of one host share its memory */
    for (int k = 1; k < 9; k++) {
        int n = advise(&d, needed * k / 9, found);
        for (int i = 0; i < n; i++)
            assert_that(!strstr(found[i].change, "--workers"), "%s", found[i].change);
    }
    desk_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_recomputation),
        cmocka_unit_test(test_less_and_less_memory),
        cmocka_unit_test(test_the_test_alone_is_too_large),
        cmocka_unit_test(test_more_workers),
    };
    return test_run(tests);
}
