#include "session.h"

bool session_has_backend(const char *name)
{
    const struct backend *const *list = backend_list();
    while (*list && strcmp((*list)->name, name) != 0)
        list++;
    return *list != NULL;
}

void session_expect_refusal(const char *strategy, int n_workers)
{
    bool right = strcmp(strategy, "serial") == 0 ? n_workers > 1
                                                 : strcmp(strategy, "ps") == 0 && n_workers == 1;
    assert_that(right, "%s with %d workers is refused: %s", strategy, n_workers, status_message());
    status_clear();
}

void session_open(struct session *s, const char *backend, enum precision precision)
{
    if (!session_has_backend(backend))
        skip_because("this build has no backend '%s'", backend);
    *s = (struct session){0};
    assert_ok(backend_find(backend, &s->backend));
    s->precision = precision;
    assert_ok(s->backend->device_open(&(struct device_options){0}, &s->device));
}

struct program *session_add(struct session *s, const char *model,
                            const struct graph_variant *variant, bool training, int n_states)
{
    int i = s->n_programs++;
    struct program_options options = {.backend = s->backend,
                                      .device = s->device,
                                      .precision = s->precision,
                                      .training = training,
                                      .n_states = n_states,
                                      .shares_params_of = i ? s->program[0] : NULL};
    assert_true(i < SESSION_MAX_PROGRAMS);
    assert_ok(network_build(model, variant, &s->graph[i]));
    assert_ok(program_create(s->graph[i], &options, &s->program[i]));
    return s->program[i];
}

void session_start(struct session *s)
{
    const struct program *programs[SESSION_MAX_PROGRAMS];
    for (int i = 0; i < s->n_programs; i++)
        programs[i] = s->program[i];
    assert_ok(executor_create(programs, s->n_programs, NULL, &s->executor));
}

void session_close(struct session *s)
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

uint64_t fixture_bits(uint64_t tensor, uint64_t element)
{
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    uint64_t z = golden * (tensor + 1) + element + golden;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

double fixture_number(uint64_t tensor, uint64_t element)
{
    return (double)(fixture_bits(tensor, element) >> 40) * 0x1p-23 - 1.0;
}

void fixture_fill_batch(const struct graph *g, uint64_t step, struct fixture_batch *b)
{
    int64_t n = shape_elements(&g->nodes[0].op.output);
    for (int64_t i = 0; i < n; i++)
        b->images[i] = (float)fixture_number(FIXTURE_IMAGES + step, (uint64_t)i);
    for (int64_t i = 0; i < g->batch; i++)
        b->labels[i] =
            (int32_t)(fixture_bits(FIXTURE_LABELS + step, (uint64_t)i) % (uint64_t)g->classes);
}

struct fixture_batch fixture_make_batch(const struct graph *g, uint64_t step)
{
    struct fixture_batch b = {
        .images = malloc((size_t)shape_elements(&g->nodes[0].op.output) * sizeof *b.images),
        .labels = malloc((size_t)g->batch * sizeof *b.labels)};
    assert_true(b.images && b.labels);
    fixture_fill_batch(g, step, &b);
    return b;
}

void fixture_free_batch(struct fixture_batch *b)
{
    free(b->images);
    free(b->labels);
}

double session_step(struct session *s, int program, const struct fixture_batch *b,
                    const struct update_rule *rule, uint32_t step)
{
    struct executor_result result;
    struct executor_batch batch = {.images = b->images, .labels = b->labels};
    struct step_state state = {.seed = 1, .step = step};
    assert_ok(executor_step(s->executor, program, &batch, &state, rule, &result));
    return result.loss;
}
