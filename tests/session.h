/* session.h: what the tests of programs and executors share: a device, the programs of one network
 * over one set of weights, and their executor.
 *
 *     struct session s = {0};
 *     session_open(&s, "cpu", PRECISION_FLOAT); // skips the test where the build has no such one
 *     session_add(&s, "lenet5", &variant, true, 1);   // program 0 lays out the weights
 *     session_add(&s, "lenet5", &variant, false, 0);  // program 1 shares them
 *     session_start(&s);
 *     ...
 *     session_close(&s);
 */
#ifndef CLEAVE_TESTS_SESSION_H
#define CLEAVE_TESTS_SESSION_H

#include "model/network.h"
#include "runtime/executor.h"
#include "testing.h"

/* Whether memory and time are a sanitizer's (address or thread) and not our own. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define TEST_UNDER_SANITIZER 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_UNDER_SANITIZER 1
#endif
#endif
#ifndef TEST_UNDER_SANITIZER
#define TEST_UNDER_SANITIZER 0
#endif

/* Ends the test as skipped and says why. */
#define skip_because(...)           \
    do {                            \
        print_message("skipped: "); \
        print_message(__VA_ARGS__); \
        print_message("\n");        \
        skip();                     \
    } while (0)

enum { SESSION_MAX_PROGRAMS = 4 };

struct session {
    const struct backend *backend;
    device *device;
    int n_programs;
    struct graph *graph[SESSION_MAX_PROGRAMS];
    struct program *program[SESSION_MAX_PROGRAMS];
    executor *executor;
};

static inline bool session_has_backend(const char *name)
{
    const struct backend *const *list = backend_list();
    while (*list && strcmp((*list)->name, name) != 0)
        list++;
    return *list != NULL;
}

/* Behind a plan_build that failed: any strategy can use any number of workers, but for these two.
 * So a loop over strategies that leaves out what is refused cannot come to leave out all. */
static inline void session_expect_refusal(const char *strategy, int n_workers)
{
    bool right = strcmp(strategy, "serial") == 0 ? n_workers > 1
                                                 : strcmp(strategy, "ps") == 0 && n_workers == 1;
    assert_that(right, "%s with %d workers is refused: %s", strategy, n_workers, status_message());
    status_clear();
}

static inline void session_open(struct session *s, const char *backend, enum precision precision)
{
    if (!session_has_backend(backend))
        skip_because("this build has no backend '%s'", backend);
    *s = (struct session){0};
    assert_ok(backend_find(backend, &s->backend));
    assert_ok(
        s->backend->device_open(&(struct device_options){.precision = precision}, &s->device));
}

/* Builds the network and lowers it; the first program lays out the weights for all. */
static inline struct program *session_add(struct session *s, const char *model,
                                          const struct graph_variant *variant, bool training,
                                          int n_states)
{
    int i = s->n_programs++;
    struct program_options options = {.backend = s->backend,
                                      .device = s->device,
                                      .training = training,
                                      .n_states = n_states,
                                      .shares_params_of = i ? s->program[0] : NULL};
    assert_true(i < SESSION_MAX_PROGRAMS);
    assert_ok(network_build(model, variant, &s->graph[i]));
    assert_ok(program_create(s->graph[i], &options, &s->program[i]));
    return s->program[i];
}

static inline void session_start(struct session *s)
{
    const struct program *programs[SESSION_MAX_PROGRAMS];
    for (int i = 0; i < s->n_programs; i++)
        programs[i] = s->program[i];
    assert_ok(executor_create(programs, s->n_programs, NULL, &s->executor));
}

static inline void session_close(struct session *s)
{
    executor_destroy(s->executor);
    for (int i = 0; i < s->n_programs; i++) {
        program_destroy(s->program[i]);
        graph_destroy(s->graph[i]);
    }
    if (s->device)
        s->backend->device_close(s->device);
    *s = (struct session){0};
}

/* ---- numbers that every implementation computes alike: see fixtures/README.md ---- */

enum { FIXTURE_IMAGES = 1000003, FIXTURE_LABELS = 2000003 };

/* Element `element` of tensor number `tensor`: 64 mixed bits, and as a number in [-1, 1). */
static inline uint64_t fixture_bits(uint64_t tensor, uint64_t element)
{
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    uint64_t z = golden * (tensor + 1) + element + golden;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline double fixture_number(uint64_t tensor, uint64_t element)
{
    return (double)(fixture_bits(tensor, element) >> 40) * 0x1p-23 - 1.0;
}

/* A batch of step `step` for a graph, in memory of its own. */
struct fixture_batch {
    float *images;
    int32_t *labels;
};

static inline void fixture_fill_batch(const struct graph *g, uint64_t step, struct fixture_batch *b)
{
    int64_t n = shape_elements(&g->nodes[0].op.output);
    for (int64_t i = 0; i < n; i++)
        b->images[i] = (float)fixture_number(FIXTURE_IMAGES + step, (uint64_t)i);
    for (int64_t i = 0; i < g->batch; i++)
        b->labels[i] =
            (int32_t)(fixture_bits(FIXTURE_LABELS + step, (uint64_t)i) % (uint64_t)g->classes);
}

static inline struct fixture_batch fixture_make_batch(const struct graph *g, uint64_t step)
{
    struct fixture_batch b = {
        .images = malloc((size_t)shape_elements(&g->nodes[0].op.output) * sizeof *b.images),
        .labels = malloc((size_t)g->batch * sizeof *b.labels)};
    assert_true(b.images && b.labels);
    fixture_fill_batch(g, step, &b);
    return b;
}

static inline void fixture_free_batch(struct fixture_batch *b)
{
    free(b->images);
    free(b->labels);
}

/* One step of program `program` on a batch; the loss. */
static inline double session_step(struct session *s, int program, const struct fixture_batch *b,
                                  const struct update_rule *rule, uint32_t step)
{
    struct executor_result result;
    struct executor_batch batch = {.images = b->images, .labels = b->labels};
    struct step_state state = {.seed = 1, .step = step};
    assert_ok(executor_step(s->executor, program, &batch, &state, rule, &result));
    return result.loss;
}

#endif
