/* Nothing is allocated in a step, be it of one worker or of many with their loaders. Linked with
 * --wrap, so every call of Cleave's own objects to the allocator goes through the counters below;
 * what oneDNN and the C library do among themselves is not wrapped, and is held by the heap's size
 * instead, which must not grow. */
#include "runtime/crew.h"
#include "runtime/initialise.h"
#include "session.h"

#include <malloc.h>
#include <stdatomic.h>
#include <sys/resource.h>

static atomic_int n_calls;

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t count, size_t n_bytes);
void *__real_realloc(void *p, size_t n_bytes);
void *__real_aligned_alloc(size_t alignment, size_t n_bytes);
void __real_free(void *p);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t count, size_t n_bytes);
void *__wrap_realloc(void *p, size_t n_bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n_bytes)
{
    atomic_fetch_add(&n_calls, 1);
    return __real_malloc(n_bytes);
}

void *__wrap_calloc(size_t count, size_t n_bytes)
{
    atomic_fetch_add(&n_calls, 1);
    return __real_calloc(count, n_bytes);
}

void *__wrap_realloc(void *p, size_t n_bytes)
{
    atomic_fetch_add(&n_calls, 1);
    return __real_realloc(p, n_bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes)
{
    atomic_fetch_add(&n_calls, 1);
    return __real_aligned_alloc(alignment, n_bytes);
}

void __wrap_free(void *p)
{
    atomic_fetch_add(&n_calls, 1);
    __real_free(p);
}

static const struct test_case {
    const char *model, *backend;
    struct graph_variant variant;
    int n_steps; /* counted ones; the plain C of the reference backend is slow */
} cases[] = {
    {"lenet5", "cpu", {4, 1, 28, 28, 10, true, -1}, 20},
    {"resnet18", "cpu", {2, 3, 16, 16, 10, true, -1}, 20},
    {"mobilenetv2", "cpu", {2, 3, 16, 16, 10, true, -1}, 20},
    {"alexnet", "cpu", {2, 3, 64, 64, 10, false, -1}, 3}, /* with dropout */
    {"lenet5", "reference", {4, 1, 28, 28, 10, true, -1}, 20},
    {"resnet18", "reference", {1, 3, 8, 8, 10, true, -1}, 3},
    {"mobilenetv2", "reference", {1, 3, 8, 8, 10, true, -1}, 3},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* A training and an evaluation step of each. */
static void run_steps(struct session *s, const struct fixture_batch *batch, int n_steps)
{
    const struct update_rule rule = {
        .kind = UPDATE_SGD, .learning_rate = 1e-4, .momentum = 0.9, .weight_decay = 1e-4};
    for (int i = 0; i < n_steps; i++) {
        (void)session_step(s, 0, batch, &rule, (uint32_t)i);
        (void)session_step(s, 1, batch, NULL, (uint32_t)i);
    }
}

static void start(struct session *s, const struct test_case *c)
{
    session_open(s, c->backend, PRECISION_FLOAT);
    session_add(s, c->model, &c->variant, true, 1);
    session_add(s, c->model, &c->variant, false, 0);
    session_start(s);
    assert_ok(initialise_parameters(s->graph[0], s->executor, 1));
}

static void test_calls(void **state)
{
    const struct test_case *c = *state;
    struct session s;
    start(&s, c);
    struct fixture_batch batch = fixture_make_batch(s.graph[0], 0);
    assert_that(atomic_load(&n_calls) > 0, "nothing is counted: is --wrap missing at the link?");
    run_steps(&s, &batch, 1);
    int before = atomic_load(&n_calls);
    run_steps(&s, &batch, c->n_steps);
    int calls = atomic_load(&n_calls) - before;
    fixture_free_batch(&batch);
    session_close(&s);
    assert_that(calls == 0, "%d calls to the allocator in %d steps", calls, c->n_steps);
}

/* Bytes in use by the whole process, mapped ones included. */
static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void test_heap(void **state)
{
    const struct test_case *c = *state;
    if (TEST_UNDER_SANITIZER)
        skip_because("mallinfo2 knows nothing of the sanitizer's heap");
    struct session s;
    start(&s, c);
    struct fixture_batch batch = fixture_make_batch(s.graph[0], 0);
    /* The C library's per-thread caches count as in use and may still take a chunk or two; a
     * leak grows in every round. */
    size_t before, after;
    int round = 0;
    run_steps(&s, &batch, 2);
    do {
        before = heap_bytes();
        run_steps(&s, &batch, c->n_steps);
        after = heap_bytes();
    } while (after != before && ++round < 4);
    fixture_free_batch(&batch);
    session_close(&s);
    assert_that(after == before, "%zu bytes in use before, %zu after %d steps, again and again",
                before, after, c->n_steps);
}

/* ---- many workers: messages, sums, batches from loaders ---- */

static const struct crew_case {
    const char *name, *model, *strategy, *data;
    int n_workers;
    int64_t channels, side;
} crews[] = {
    {"three workers: data", "lenet5", "data", "synthetic:1x28x28/10/800", 3, 1, 28},
    {"four workers: hybrid", "lenet5", "hybrid", "synthetic:1x28x28/10/800", 4, 1, 28},
    {"three workers: 1f1b", "lenet5", "1f1b", "synthetic:1x28x28/10/800", 3, 1, 28},
    {"three workers: ps", "lenet5", "ps", "synthetic:1x28x28/10/800", 3, 1, 28},
    {"two workers: spatial", "resnet18", "spatial", "synthetic:3x16x16/10/800", 2, 3, 16},
};
enum { N_CREWS = sizeof crews / sizeof crews[0], BATCH = 8 };

static void run_crew(crew *c, int n_steps, uint32_t *step)
{
    for (int i = 0; i < n_steps; i++) {
        struct step_state now = {.seed = 1, .step = ++*step};
        struct update_rule rule = {
            .kind = UPDATE_SGD, .learning_rate = 1e-4, .momentum = 0.9, .step = *step};
        struct crew_result result;
        assert_ok(crew_run(c, CREW_TRAIN, &now, &rule, &result, NULL));
        assert_int_equal(result.n_samples, BATCH);
    }
}

/* A worker that runs further ahead than any before may want one more meeting of the transport's;
 * what a step allocates, it allocates in every round. */
static void test_crew_calls(void **state)
{
    const struct crew_case *k = *state;
    const struct graph_variant variant = {BATCH, k->channels, k->side, k->side, 10, true, -1};
    const struct plan_request request = {.n_workers = k->n_workers};
    struct crew_options o = {.timeout_s = 60,
                             .threads = 1,
                             .n_states = 1,
                             .train_loader = {.batch = BATCH, .shuffle = true}};
    struct graph *graph;
    struct plan *plan;
    crew *c;
    int calls, before, round = 0, n_steps = session_has_backend("cpu") ? 10 : 2;
    uint32_t step = 0;
    assert_ok(network_build(k->model, &variant, &graph));
    assert_ok(plan_build(k->strategy, graph, &request, &plan));
    assert_ok(backend_find(session_has_backend("cpu") ? "cpu" : "reference", &o.backend));
    assert_ok(dataset_open(k->data, DATASET_TRAIN, NULL, &o.train_set));
    o.plan = plan;
    o.graphs[CREW_TRAIN] = graph;
    assert_ok(crew_create(&o, &c));
    assert_ok(crew_start_epoch(c, CREW_TRAIN, 0, 0));
    run_crew(c, 2, &step);
    do {
        before = atomic_load(&n_calls);
        run_crew(c, n_steps, &step);
        calls = atomic_load(&n_calls) - before;
    } while (calls != 0 && ++round < 5);
    crew_destroy(c);
    dataset_close(o.train_set);
    plan_destroy(plan);
    graph_destroy(graph);
    assert_that(before > 0, "nothing is counted: is --wrap missing at the link?");
    assert_that(calls == 0, "%d calls to the allocator in %d steps, again and again", calls,
                n_steps);
}

int main(void)
{
    static char names[2 * N_CASES][64];
    struct CMUnitTest tests[2 * N_CASES + N_CREWS];
    for (int i = 0; i < N_CREWS; i++)
        tests[2 * N_CASES + i] = (struct CMUnitTest){.name = crews[i].name,
                                                     .test_func = test_crew_calls,
                                                     .initial_state = (void *)(uintptr_t)&crews[i]};
    for (int i = 0; i < 2 * N_CASES; i++) {
        const struct test_case *c = &cases[i / 2];
        (void)snprintf(names[i], sizeof names[i], "%s: %s on %s", i % 2 ? "heap" : "calls",
                       c->model, c->backend);
        tests[i] = (struct CMUnitTest){.name = names[i],
                                       .test_func = i % 2 ? test_heap : test_calls,
                                       .initial_state = (void *)(uintptr_t)c};
    }
    /* Any limit keeps the device's brake off (backend/cpu/waiting.c), which allocates: beside other
     * programs it would go on in some steps. */
    const struct rlimit space = {RLIM_INFINITY / 2, RLIM_INFINITY};
    (void)setrlimit(RLIMIT_AS, &space);
    return test_run(tests);
}
