/* Programs that are broken on purpose: the checker refuses every one of them. */
#include "mutations.h"

/* Breaks the team in `count` ways; returns the number that the checker did not see. */
static int break_team(const struct team *t, int count, int *by_kind)
{
    int missed = 0;
    for (int i = 0; i < count; i++) {
        struct mutant m;
        uint64_t seed = random_state;
        int kind = i % N_MUTATIONS;
        mutant_begin(&m, t);
        if (mutations[kind].apply(&m)) {
            by_kind[kind]++;
            if (team_check(&m.team) == STATUS_OK) {
                print_message("not caught: %s, seed %llu: %s: %s\n", t->name,
                              (unsigned long long)seed, mutations[kind].name, m.what);
                missed++;
            } else {
                assert_that(strncmp(status_message(), "program check: ", 15) == 0, "%s",
                            status_message());
            }
            status_clear();
        }
        arena_destroy(m.memory);
    }
    return missed;
}

static void test_mutations(void **state)
{
    static const struct {
        const char *model, *strategy;
        struct plan_request request;
    } cases[] = {
        {"lenet5", "data", {.n_workers = 3}},
        {"lenet5", "model", {.n_workers = 3}},
        {"lenet5", "hybrid", {.n_workers = 4, .micro_batches = 3}},
        {"lenet5", "gpipe", {.n_workers = 3}},
        {"lenet5", "1f1b", {.n_workers = 3}},
        {"lenet5", "pipedream", {.n_workers = 3}},
        {"lenet5", "ps", {.n_workers = 4}},
        {"lenet5", "ps", {.n_workers = 4, .asynchronous = true}},
        {"lenet5", "data", {.n_workers = 4, .micro_batches = 3}},
        {"resnet18", "spatial", {.n_workers = 2}},
        {"resnet18", "data", {.n_workers = 2, .bucket_bytes = 65536}},
        {"mobilenetv2", "1f1b", {.n_workers = 2}},
    };
    enum { N = sizeof cases / sizeof cases[0] };
    int by_kind[N_MUTATIONS] = {0}, missed = 0, all = 0;
    (void)state;
    random_state = test_seed();
    for (int i = 0; i < N + N_BROKEN + N_FLATTENED; i++) {
        struct team t;
        if (i < N)
            assert_true(
                team_create(&t, cases[i].model, cases[i].strategy, &cases[i].request, true));
        else if (i < N + N_BROKEN)
            team_create_from(&t, written[i - N].model, written[i - N].plan, true);
        else
            team_create_flattened(&t, i - N - N_BROKEN, true);
        bool small = t.graph->n_nodes < 20;
        missed += break_team(&t, (small ? 6 : 2) * N_MUTATIONS, by_kind);
        team_destroy(&t);
    }
    for (int k = 0; k < N_MUTATIONS; k++) {
        all += by_kind[k];
        print_message("%s %d, ", mutations[k].name, by_kind[k]);
        assert_that(by_kind[k] > 0, "no mutation '%s' was made", mutations[k].name);
    }
    print_message("all %d\n", all);
    assert_int_equal(missed, 0);
    assert_true(all >= 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations)};
    return cmocka_run_group_tests(tests, described_open, described_close);
}
