/* Offsets of buffers: each lies at the lowest one that is free, placed largest first; and slabs of
 * programs beside larger slabs. */
#include "described.h"

struct kind {
    const char *strategy;
    int n_workers, micros;
};

static const struct kind kinds[] = {{"serial", 1, 1},  {"data", 4, 1},      {"model", 4, 1},
                                    {"spatial", 4, 1}, {"owt", 3, 1},       {"gpipe", 4, 8},
                                    {"1f1b", 4, 8},    {"pipedream", 3, 1}, {"ps", 4, 1}};
enum { N_KINDS = sizeof kinds / sizeof *kinds, MOST_WORKERS = 4 };

static struct plan *build(const struct kind *k, const struct graph *g)
{
    return described_plan(k->strategy, g, k->n_workers, k->micros);
}

/* ---- places ---- */

static bool comes_before(const struct buffer *a, const struct buffer *b)
{
    return a->n_bytes > b->n_bytes || (a->n_bytes == b->n_bytes && a < b);
}

static bool is_placed(const struct buffer *b)
{
    return b->parent == NO_BUFFER && b->first_write >= 0 && b->class != BUFFER_WEIGHTS &&
           b->class != BUFFER_OPTIMIZER;
}

/* Whether `a` was placed before b and lives at the same time. */
static bool is_in_the_way(const struct buffer *a, const struct buffer *b)
{
    return a != b && is_placed(a) && a->class == b->class && comes_before(a, b) &&
           a->first_write <= b->last_use && b->first_write <= a->last_use;
}

/* Goes behind each buffer that is in the way until none is. */
static int64_t lowest_offset(const struct program *p, const struct buffer *b)
{
    int64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < p->n_buffers; i++) {
            const struct buffer *a = &p->buffers[i];
            if (!is_in_the_way(a, b) || a->offset >= offset + b->n_bytes ||
                a->offset + a->n_bytes <= offset)
                continue;
            offset = a->offset + a->n_bytes;
            moved = true;
        }
    }
    return offset;
}

static void check_places(const struct program *p, const char *strategy)
{
    for (int i = 0; i < p->n_buffers; i++) {
        const struct buffer *b = &p->buffers[i];
        int64_t lowest = is_placed(b) ? lowest_offset(p, b) : b->offset;
        assert_that(b->offset == lowest, "%s, worker %d: buffer %d lies at %lld, not at %lld",
                    strategy, p->worker, i, (long long)b->offset, (long long)lowest);
    }
}

static void test_lowest_first(void **state)
{
    (void)state;
    struct graph *g = described_graph("resnet18", 16);
    for (int k = 0; k < N_KINDS; k++) {
        struct plan *plan = build(&kinds[k], g);
        struct program_options o = described_options(plan);
        struct program_set set;
        assert_ok(program_create_all(g, &o, NULL, true, &set));
        for (int w = 0; w < set.n_workers; w++)
            if (set.twin_of[w] == w)
                check_places(set.programs[w], kinds[k].strategy);
        program_destroy_all(&set);
        plan_destroy(plan);
    }
    graph_destroy(g);
}

/* ---- slabs alone ---- */

static void study(const struct graph *g, const struct program_options *o,
                  const struct program_set *shares, int64_t (*slabs)[BUFFER_CLASS_COUNT])
{
    struct program_case one = {g, *o, slabs};
    struct program_slabs *s;
    assert_ok(program_slabs_open(&one, 1, shares, 1, &s));
    for (int i = 0; i < program_slabs_items(s); i++)
        assert_ok(program_slabs_do(s, i, 0));
    program_slabs_close(s);
}

/* Of the step itself, with nothing there. */
static void check_alone(const struct graph *g, const struct program_options *o,
                        const struct program_set *step)
{
    int64_t slabs[MOST_WORKERS][BUFFER_CLASS_COUNT] = {{0}};
    study(g, o, NULL, slabs);
    for (int w = 0; w < step->n_workers; w++)
        assert_memory_equal(slabs[w], step->programs[w]->slab_bytes, sizeof slabs[w]);
}

/* With slabs of `percent` of the step's there already. */
static void check_study(const struct graph *g, const struct program_options *o,
                        const struct program_set *step, int percent, const char *strategy)
{
    struct program_set exact;
    int64_t slabs[MOST_WORKERS][BUFFER_CLASS_COUNT];
    assert_ok(program_create_all(g, o, step, false, &exact));
    for (int w = 0; w < step->n_workers; w++)
        for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
            slabs[w][k] = step->programs[w]->slab_bytes[k] * percent / 100;
    study(g, o, step, slabs);
    for (int w = 0; w < step->n_workers; w++)
        for (int k = 0; k < BUFFER_CLASS_COUNT; k++) {
            int64_t needed = exact.programs[w]->slab_bytes[k];
            int64_t there = step->programs[w]->slab_bytes[k] * percent / 100;
            int64_t wanted = needed > there ? needed : there;
            assert_that(slabs[w][k] == wanted, "%s, %d %%, worker %d: %s %lld, not %lld", strategy,
                        percent, w, buffer_class_name((enum buffer_class)k), (long long)slabs[w][k],
                        (long long)wanted);
        }
    program_destroy_all(&exact);
}

/* Those of a short batch and of an evaluation, beside a step's. */
static void test_slabs_beside_larger_ones(void **state)
{
    (void)state;
    struct graph *g = described_graph("resnet18", 16), *rest = described_graph("resnet18", 9);
    for (int k = 0; k < N_KINDS; k++) {
        struct plan *plan = build(&kinds[k], g);
        struct program_options o = described_options(plan), test = o;
        struct program_set step;
        test.training = false;
        assert_ok(program_create_all(g, &o, NULL, true, &step));
        check_alone(g, &o, &step);
        o.n_steps = test.n_steps = 1;
        for (int percent = 0; percent <= 100; percent += 20) {
            check_study(rest, &o, &step, percent, kinds[k].strategy);
            check_study(g, &test, &step, percent, kinds[k].strategy);
        }
        program_destroy_all(&step);
        plan_destroy(plan);
    }
    graph_destroy(rest);
    graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowest_first),
        cmocka_unit_test(test_slabs_beside_larger_ones),
    };
    return cmocka_run_group_tests(tests, described_open, described_close);
}
