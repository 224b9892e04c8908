/* Transfers beside computation: receives are posted ahead, sent memory lives on, and no instruction
 * waits or computes again without need. */
#include "described.h"
#include "verify/verify.h"

static void lower(const struct graph *g, const struct plan *plan, struct program_set *set)
{
    struct program_options o = described_options(plan);
    assert_ok(program_create_all(g, &o, NULL, false, set));
    assert_ok(verify_programs((const struct program *const *)set->programs, set->n_workers));
}

static bool computes(const struct program *p, int i)
{
    return p->instrs[i].stream == STREAM_COMPUTE;
}

/* ---- waits ---- */

/* The instructions that have ended before another starts, as flags. */
static void take_over(bool *to, const bool *from, int before)
{
    for (int i = 0; i < before; i++)
        to[i] |= from[i];
    to[before] = true;
}

static bool is_implied(const struct program *p, bool *const *ended, int i, int k, int last)
{
    const struct instr *instr = &p->instrs[i];
    int wanted = instr->waits[k];
    if (computes(p, i) && last >= 0 && ended[last][wanted])
        return true;
    for (int other = 0; other < instr->n_waits; other++)
        if (other != k && ended[instr->waits[other]][wanted])
            return true;
    return false;
}

static int count_implied(const struct program *p, int *n_waits)
{
    size_t n = (size_t)p->n_instrs;
    bool **ended = calloc(n, sizeof(bool *)), *rows = calloc(n * n, sizeof *rows);
    int implied = 0, last = -1;
    assert_non_null(ended);
    assert_non_null(rows);
    for (int i = 0; i < p->n_instrs; i++) {
        ended[i] = rows + (size_t)i * n;
        for (int k = 0; k < p->instrs[i].n_waits; k++) {
            implied += is_implied(p, ended, i, k, last);
            take_over(ended[i], ended[p->instrs[i].waits[k]], p->instrs[i].waits[k]);
        }
        *n_waits += p->instrs[i].n_waits;
        if (!computes(p, i))
            continue;
        if (last >= 0)
            take_over(ended[i], ended[last], last);
        last = i;
    }
    free(rows);
    free(ended);
    return implied;
}

/* Hardly any wait is implied by another one. */
static void test_waits_are_needed(void **state)
{
    (void)state;
    static const char *const strategies[] = {"data", "model", "spatial", "1f1b", "ps", "gpipe"};
    struct graph *g = described_graph("resnet18", 8);
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        bool pipeline = strcmp(strategies[s], "1f1b") == 0 || strcmp(strategies[s], "gpipe") == 0;
        struct plan *plan = described_plan(strategies[s], g, 4, pipeline ? 4 : 1);
        struct program_set set;
        int n = 0, implied = 0;
        lower(g, plan, &set);
        for (int w = 0; w < set.n_workers; w++)
            implied += count_implied(set.programs[w], &n);
        assert_that(n > 0 && implied * 100 <= n, "%s: %d of %d waits are implied", strategies[s],
                    implied, n);
        program_destroy_all(&set);
        plan_destroy(plan);
    }
    graph_destroy(g);
}

/* ---- pipelines ---- */

static int first_run(const struct program *p, int micro, bool forward)
{
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].kind == INSTR_RUN && p->instrs[i].micro == micro &&
            (p->instrs[i].pass == PASS_FORWARD) == forward)
            return i;
    return -1;
}

static int find_message(const struct program *p, enum instr_kind kind, int micro, int peer)
{
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].kind == kind && p->instrs[i].micro == micro &&
            p->messages[p->instrs[i].index].peer == peer)
            return i;
    return -1;
}

static void test_receives_come_a_task_ahead(void **state)
{
    (void)state;
    struct graph *g = described_graph("vgg11", 8);
    struct plan *plan = described_plan("gpipe", g, 3, 4);
    struct program_set set;
    lower(g, plan, &set);
    for (int m = 1; m < 4; m++) {
        const struct program *p = set.programs[1];
        int receive = find_message(p, INSTR_RECEIVE, m, 0), run = first_run(p, m - 1, true);
        assert_that(receive >= 0 && receive < run, "%d is received at %d, behind %d", m, receive,
                    run);
        if (m >= 2)
            assert_true(receive > first_run(p, m - 2, true)); /* and not sooner */
        receive = find_message(p, INSTR_RECEIVE, m - 1, 2);
        assert_that(receive < first_run(p, m, false), "the gradient of %d comes late", m - 1);
    }
    program_destroy_all(&set);
    plan_destroy(plan);
    graph_destroy(g);
}

/* Whether an instruction between two numbers waits for `for_whom`. */
static bool is_waited_for(const struct program *p, int for_whom, int from, int to)
{
    for (int i = from; i < to; i++)
        for (int k = 0; k < p->instrs[i].n_waits; k++)
            if (p->instrs[i].waits[k] == for_whom)
                return true;
    return false;
}

static void test_next_forward_does_not_wait_for_the_send(void **state)
{
    (void)state;
    struct graph *g = described_graph("vgg11", 8);
    struct plan *plan = described_plan("gpipe", g, 2, 4);
    struct program_set set;
    for (int i = 1; i < plan->n_layers; i++)
        plan->layers[i].recompute = true; /* so that no output is kept for backward */
    lower(g, plan, &set);
    const struct program *p = set.programs[0];
    for (int m = 0; m < 2; m++) {
        int send = find_message(p, INSTR_SEND, m, 1), next = first_run(p, m + 1, true);
        assert_true(send >= 0 && send < next);
        assert_false(is_waited_for(p, send, next, first_run(p, m + 2, true)));
    }
    program_destroy_all(&set);
    plan_destroy(plan);
    graph_destroy(g);
}

/* ---- exchanges within a stage ---- */

/* A region is packed without waiting for one that was sent in the same exchange. */
static void test_packing_does_not_wait_for_the_message_before(void **state)
{
    (void)state;
    struct graph *g = described_graph("vgg11", 8);
    struct plan *plan = described_plan("model", g, 4, 1);
    struct program_set set;
    int n_packs = 0;
    lower(g, plan, &set);
    const struct program *p = set.programs[2];
    for (int i = 0, last_run = -1; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        if (instr->kind == INSTR_RUN)
            last_run = i;
        if (instr->kind != INSTR_COPY)
            continue;
        n_packs += p->buffers[p->copies[instr->index].to].class == BUFFER_TRANSFER;
        for (int k = 0; k < instr->n_waits; k++)
            assert_false(p->instrs[instr->waits[k]].kind == INSTR_SEND &&
                         instr->waits[k] > last_run);
    }
    assert_true(n_packs > 0);
    program_destroy_all(&set);
    plan_destroy(plan);
    graph_destroy(g);
}

/* ---- recomputation ---- */

static int count_again(const struct program *p, int micro)
{
    int n = 0;
    for (int i = 0; i < p->n_instrs; i++)
        n += p->instrs[i].kind == INSTR_RUN && p->instrs[i].micro == micro &&
             p->runs[p->instrs[i].index].again;
    return n;
}

static void test_nothing_fresh_is_computed_again(void **state)
{
    (void)state;
    static const char *const strategies[] = {"gpipe", "1f1b"};
    struct graph *g = described_graph("vgg11", 8);
    for (int s = 0; s < 2; s++) {
        struct plan *plan = described_plan(strategies[s], g, 2, 4);
        struct program_set set;
        for (int i = 1; i < plan->n_layers; i++)
            plan->layers[i].recompute = true;
        lower(g, plan, &set);
        for (int w = 0; w < 2; w++)
            for (int m = 0; m < 4; m++) {
                bool fresh = s == 0 ? m == 3 : w == 1;
                int n = count_again(set.programs[w], m);
                assert_that(fresh == (n == 0), "%s, worker %d, micro-batch %d: %d groups again",
                            strategies[s], w, m, n);
            }
        program_destroy_all(&set);
        plan_destroy(plan);
    }
    graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_are_needed),
        cmocka_unit_test(test_receives_come_a_task_ahead),
        cmocka_unit_test(test_next_forward_does_not_wait_for_the_send),
        cmocka_unit_test(test_packing_does_not_wait_for_the_message_before),
        cmocka_unit_test(test_nothing_fresh_is_computed_again),
    };
    return cmocka_run_group_tests(tests, described_open, described_close);
}
