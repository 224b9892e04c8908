/* Programs of many workers: every strategy is lowered for all of its workers and proved sound.
 * Broken programs are in test_mutations. */
#include "lowered.h"

/* ---- every strategy ---- */

/* False if the strategy refuses the request. */
static bool check_strategy(const char *model, const char *strategy,
                           const struct plan_request *request)
{
    for (int training = 0; training < 2; training++) {
        struct team t;
        if (!team_create(&t, model, strategy, request, training))
            return false;
        enum status st = team_check(&t);
        assert_that(st == STATUS_OK, "%s: %s", t.name, status_message());
        team_destroy(&t);
    }
    return true;
}

static void test_strategies(void **state)
{
    static const char *const models[] = {"lenet5", "alexnet", "resnet18", "mobilenetv2",
                                         "googlenet"};
    static const int workers[] = {2, 3, 4, 7};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
            for (size_t k = 0; k < sizeof workers / sizeof workers[0]; k++)
                if (!check_strategy(models[i], s->name,
                                    &(struct plan_request){.n_workers = workers[k]}))
                    session_expect_refusal(s->name, workers[k]);
}

/* The same in other ways: micro-batches of two sizes, other methods, servers one by one. */
static void test_variants(void **state)
{
    static const char *const models[] = {"lenet5", "resnet18"};
    static const int workers[] = {3, 4};
    int n_checked = 0;
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (size_t k = 0; k < sizeof workers / sizeof workers[0]; k++)
            for (const struct plan_strategy *s = plan_strategies(); s->name; s++) {
                struct plan_request request = {.n_workers = workers[k],
                                               .micro_batches = 3,
                                               .sync = PLAN_HIERARCHICAL,
                                               .workers_per_node = 2,
                                               .bucket_bytes = 4096};
                n_checked += check_strategy(models[i], s->name, &request);
                request.asynchronous = true;
                request.sync = PLAN_TREE;
                request.micro_batches = 1;
                if (strcmp(s->name, "ps") == 0)
                    assert_true(check_strategy(models[i], s->name, &request));
            }
    assert_true(n_checked >= 4 * 4); /* of each network and number: data, model, spatial, owt, .. */
}

static void test_written_plans(void **state)
{
    (void)state;
    for (int i = 0; i < N_WRITTEN; i++)
        for (int training = 0; training < 2; training++) {
            struct team t;
            team_create_from(&t, written[i].model, written[i].plan, training);
            enum status st = team_check(&t);
            assert_that(st == STATUS_OK, "plan %d: %s", i, status_message());
            team_destroy(&t);
        }
}

static void test_flattened(void **state)
{
    (void)state;
    for (int i = 0; i < N_FLATTENED; i++)
        for (int training = 0; training < 2; training++) {
            struct team t;
            team_create_flattened(&t, i, training);
            enum status st = team_check(&t);
            assert_that(st == STATUS_OK, "%s: %s", t.name, status_message());
            team_destroy(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategies),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_written_plans),
        cmocka_unit_test(test_flattened),
    };
    return cmocka_run_group_tests(tests, described_open, described_close);
}
