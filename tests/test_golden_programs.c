/* Lowered programs do not change by accident: the dump of every worker's program, hashed, against
 * tests/golden/programs.txt. Every named strategy on every network at 1, 2, 3, 4, 7 and 16 workers,
 * and 200 random plans of random networks, all on the `reference` backend (layouts of `cpu` differ
 * by instruction set).
 *
 *     GOLDEN=write test_golden_programs    writes the file anew
 *     cleave plan dump STRATEGY MODEL ...  shows one worker's program
 *
 * A change that is meant to alter programs replaces the file in a commit of its own that says why.
 */
#include "comm/comm.h"
#include "model/network.h"
#include "program/program.h"
#include "random_plans.h"

#include <xxhash.h>

enum { N_RANDOM = 200, FIRST_SEED = 1000, LINE_BYTES = 128 };

static const int worker_counts[] = {1, 2, 3, 4, 7, 16};
enum { N_WORKER_COUNTS = sizeof worker_counts / sizeof worker_counts[0] };

static const struct backend *backend;
static device *on_device;

/* Either the expected lines, in the order of the cases, or the file that is written. */
static FILE *golden;
static bool writes;

static int open_golden(void **state)
{
    const char *mode = getenv("GOLDEN");
    (void)state;
    writes = mode && strcmp(mode, "write") == 0;
    golden = fopen(TESTS_DIR "/golden/programs.txt", writes ? "w" : "r");
    if (!golden || backend_find("reference", &backend) != STATUS_OK)
        return 1;
    return backend->device_open(&(struct device_options){.threads = 1, .describe_only = true},
                                &on_device) != STATUS_OK;
}

static int close_golden(void **state)
{
    (void)state;
    backend->device_close(on_device);
    return fclose(golden);
}

/* ---- one case ---- */

/* Of the dumps of all workers' programs, one after the other. */
static uint64_t hash_programs(const struct graph *graph, const struct plan *plan, bool training)
{
    struct program_options options = {.backend = backend,
                                      .device = on_device,
                                      .training = training,
                                      .n_states = training ? 1 : 0,
                                      .plan = plan,
                                      .transport =
                                          plan->n_workers > 1 ? comm_find_table("threads") : NULL};
    struct program_set set;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_ok(program_create_all(graph, &options, NULL, false, &set));
    for (int w = 0; w < set.n_workers; w++)
        program_dump(set.programs[w], out);
    program_destroy_all(&set);
    assert_int_equal(fclose(out), 0);
    uint64_t hash = XXH64(text, size, 0);
    free(text);
    return hash;
}

/* The next line of the file is the case's. */
static void settle(const char *name, const char *result)
{
    char expected[LINE_BYTES], line[LINE_BYTES];
    (void)snprintf(line, sizeof line, "%s %s\n", name, result);
    if (writes) {
        assert_true(fputs(line, golden) >= 0);
        return;
    }
    assert_that(fgets(expected, sizeof expected, golden), "the golden file ends before %s", name);
    assert_that(strcmp(expected, line) == 0,
                "the programs of %.*s differ from the golden file's %s", (int)strlen(line) - 1,
                line, expected);
}

static void settle_plan(const char *name, const struct graph *graph, const struct plan *plan)
{
    char result[LINE_BYTES];
    (void)snprintf(result, sizeof result, "%016llx %016llx",
                   (unsigned long long)hash_programs(graph, plan, true),
                   (unsigned long long)hash_programs(graph, plan, false));
    settle(name, result);
}

/* ---- named strategies ---- */

static struct graph *build_network(const char *name)
{
    bool small = strcmp(name, "mlp") == 0 || strcmp(name, "lenet5") == 0;
    int64_t side = small ? 28 : strcmp(name, "inceptionv3") == 0 ? 299 : 224;
    struct graph_variant v = {.batch = 32,
                              .channels = small ? 1 : 3,
                              .height = side,
                              .width = side,
                              .classes = small ? 10 : 1000,
                              .small_form = small,
                              .drop_probability = -1};
    struct graph *g;
    assert_ok(network_build(name, &v, &g));
    return g;
}

static void check_strategy(const struct graph *graph, const char *strategy, int n_workers)
{
    char name[LINE_BYTES / 2];
    struct plan *plan;
    (void)snprintf(name, sizeof name, "%s %s %d", graph->name, strategy, n_workers);
    if (plan_build(strategy, graph, &(struct plan_request){.n_workers = n_workers}, &plan) !=
        STATUS_OK) {
        status_clear();
        settle(name, "refused");
        return;
    }
    settle_plan(name, graph, plan);
    plan_destroy(plan);
}

static void test_named_strategies(void **state)
{
    (void)state;
    for (const char *const *model = network_names(); *model; model++) {
        struct graph *graph = build_network(*model);
        for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
            for (int k = 0; k < N_WORKER_COUNTS; k++)
                check_strategy(graph, s->name, worker_counts[k]);
        graph_destroy(graph);
    }
}

/* ---- random plans ---- */

static void test_random_plans(void **state)
{
    int n_lowered = 0;
    (void)state;
    for (uint64_t seed = FIRST_SEED; n_lowered < N_RANDOM; seed++) {
        struct draw d = draw_begin(seed, 0);
        struct graph *graph = draw_graph(&d, &(struct graph_wish){0});
        struct sketch s = draw_sketch(&d, graph);
        s.norms_by_worker = false; /* the hashes are older */
        char *text = write_sketch(graph, &s), name[LINE_BYTES / 2];
        struct plan *plan;
        (void)snprintf(name, sizeof name, "random %llu", (unsigned long long)seed);
        if (plan_parse(text, strlen(text), "plan", graph, &plan) == STATUS_OK) {
            settle_plan(name, graph, plan);
            plan_destroy(plan);
            n_lowered++;
        } else {
            status_clear();
            settle(name, "refused");
        }
        free(text);
        graph_destroy(graph);
    }
    assert_true(writes || fgetc(golden) == EOF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_named_strategies),
                                       cmocka_unit_test(test_random_plans)};
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
