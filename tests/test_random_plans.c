/* Any valid plan trains as one worker does: random networks under random plans, run for real with
 * every worker a thread, against one worker on the reference backend.
 *
 *     CLEAVE_TEST_CASES=5000 test_random_plans     more of them (400 otherwise)
 *     CLEAVE_TEST_SEED=17 test_random_plans        others; a case's seed is this plus its number
 *     CLEAVE_TEST_SEED=423 CLEAVE_TEST_CASES=1 ...      one case again
 *
 * A failing case is made smaller as long as it fails, and printed with its seed, graph and plan.
 */
#include "random_plans.h"
#include "team.h"

#include <time.h>

enum { DEFAULT_CASES = 400 };

/* ---- running one ---- */

struct trial {
    uint64_t seed;
    const struct graph *graph;
    const char *backend;
    enum precision precision;
    double tolerance;
    struct update_rule rule;
};

enum verdict { VERDICT_SAME, VERDICT_REFUSED, VERDICT_DIFFERS };

/* No weight begins as zero or one, so that a bias added twice shows. */
static float trial_weight(const struct graph_param *param, int number, int64_t element)
{
    double spread = fixture_number((uint64_t)number, (uint64_t)element);
    switch (param->spec.init) {
    case INIT_ONE:
        return (float)(1 + 0.3 * spread);
    case INIT_ZERO:
        return (float)(0.3 * spread);
    default:
        return team_weight(param, number, element);
    }
}

static struct team_run make_run(const struct trial *t, int n_steps)
{
    size_t n = (size_t)team_weight_elements(t->graph);
    struct team_run r = {.graph = t->graph,
                         .backend = t->backend,
                         .precision = t->precision,
                         .rule = t->rule,
                         .n_steps = n_steps,
                         .evaluate = true,
                         .timeout_s = TEST_UNDER_SANITIZER ? 120 : 30,
                         .check = true,
                         .weight = trial_weight,
                         .weights = malloc((n ? n : 1) * sizeof(float))};
    assert_non_null(r.weights);
    return r;
}

static bool has_batch_norm(const struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op.op == OP_BATCH_NORM)
            return true;
    return false;
}

/* The results that all must reach: one worker on the reference backend in double. Micro-batches
 * only where they change something, so that summing their gradients is tested, too. */
static enum status run_serial(const struct trial *t, const struct plan *like, struct team_run *r,
                              double *losses)
{
    struct plan_request q = {.n_workers = 1, .micro_batches = like->micro_batches};
    struct plan *serial = NULL;
    r->backend = "reference";
    r->precision = PRECISION_DOUBLE;
    if (!has_batch_norm(t->graph))
        return team_train(r, losses);
    TRY(plan_build("serial", t->graph, &q, &serial));
    serial->schedule = like->schedule;
    r->plan = serial;
    enum status st = team_train(r, losses);
    plan_destroy(serial);
    return st;
}

static bool losses_agree(const struct trial *t, const double *serial, const double *team, int n,
                         char *why, size_t size)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(serial[i] - team[i]) <= t->tolerance * fmax(0.1, fabs(serial[i])))) {
            (void)snprintf(why, size, "%s %d: the loss is %.9g, serial %.9g",
                           i == n - 1 ? "evaluation after step" : "step", i == n - 1 ? i : i + 1,
                           team[i], serial[i]);
            return false;
        }
    return true;
}

/* Relative to the largest of the parameter's elements. */
static bool weights_agree(const struct trial *t, const float *serial, const float *team, char *why,
                          size_t size)
{
    for (int k = 0; k < t->graph->n_params; k++) {
        int64_t n = shape_elements(&t->graph->params[k].spec.shape);
        double largest = 0.1;
        for (int64_t i = 0; i < n; i++)
            largest = fmax(largest, fabs((double)serial[i]));
        for (int64_t i = 0; i < n; i++)
            if (!(fabs((double)serial[i] - (double)team[i]) <= t->tolerance * largest)) {
                (void)snprintf(why, size, "%s[%lld] is %.9g, serial %.9g", t->graph->params[k].name,
                               (long long)i, (double)team[i], (double)serial[i]);
                return false;
            }
        serial += n;
        team += n;
    }
    return true;
}

static bool runs_agree(const struct trial *t, const struct plan *plan, struct team_run *serial,
                       struct team_run *team, char *why, size_t size)
{
    double expected[MAX_STEPS + 1], found[MAX_STEPS + 1];
    bool own_losses = plan_norms_by_worker(plan) && has_batch_norm(t->graph);
    if (run_serial(t, plan, serial, expected) != STATUS_OK) {
        (void)snprintf(why, size, "serial: %s", status_message());
        return false;
    }
    team->plan = plan;
    if (team_train(team, found) != STATUS_OK) {
        (void)snprintf(why, size, "%s", status_message());
        return false;
    }
    if (!own_losses && (!losses_agree(t, expected, found, team->n_steps + 1, why, size) ||
                        !weights_agree(t, serial->weights, team->weights, why, size)))
        return false;
    if (team->counted_bytes != team->expected_bytes) {
        (void)snprintf(why, size, "%lld bytes are sent, the programs say %lld",
                       (long long)team->counted_bytes, (long long)team->expected_bytes);
        return false;
    }
    if (team->spread != 0 && !own_losses)
        (void)snprintf(why, size, "two workers' copies of a weight differ by %g", team->spread);
    return team->spread == 0 || own_losses;
}

/* `why` gets the reason of a refusal, or the difference. */
static enum verdict try_sketch(const struct trial *t, const struct sketch *s, char *why,
                               size_t size)
{
    struct plan *plan = NULL;
    char *text = write_sketch(t->graph, s);
    enum status st = plan_parse(text, strlen(text), "random", t->graph, &plan);
    free(text);
    enum verdict verdict = VERDICT_SAME;
    if (st != STATUS_OK) {
        (void)snprintf(why, size, "%s", status_message());
        bool names_place = strncmp(why, "random:", 7) == 0; /* no failure of another kind */
        verdict = st == STATUS_FAILED && names_place ? VERDICT_REFUSED : VERDICT_DIFFERS;
    } else {
        struct team_run serial = make_run(t, s->n_steps), team = make_run(t, s->n_steps);
        if (!runs_agree(t, plan, &serial, &team, why, size))
            verdict = VERDICT_DIFFERS;
        free(serial.weights);
        free(team.weights);
    }
    status_clear();
    plan_destroy(plan);
    return verdict;
}

/* ---- making a failing plan smaller ---- */

static void remove_worker(int *n, int *workers, int worker)
{
    int kept = 0;
    for (int i = 0; i < *n; i++)
        if (workers[i] != worker)
            workers[kept++] = workers[i] - (workers[i] > worker);
    *n = kept;
}

static bool without_worker(struct sketch *s, int worker)
{
    if (worker >= s->n_workers || s->n_workers == 1)
        return false;
    s->n_workers--;
    for (int i = 0; i < s->n_stages; i++)
        remove_worker(&s->stages[i].n_workers, s->stages[i].workers, worker);
    remove_worker(&s->n_servers, s->servers, worker);
    for (int i = 1; i < s->n_layers; i++)
        remove_worker(&s->layers[i].n_workers, s->layers[i].workers, worker);
    return true;
}

static bool merge_stages(struct sketch *s, int stage)
{
    if (stage + 1 >= s->n_stages)
        return false;
    for (int i = 0; i < s->stages[stage + 1].n_workers; i++)
        s->stages[stage].workers[s->stages[stage].n_workers++] = s->stages[stage + 1].workers[i];
    for (int i = stage + 1; i + 1 < s->n_stages; i++)
        s->stages[i] = s->stages[i + 1];
    s->n_stages--;
    for (int i = 1; i < s->n_layers; i++)
        s->layers[i].stage -= s->layers[i].stage > stage;
    return true;
}

/* Everything about the plan that is not a layer's. */
static bool simplify_whole(struct sketch *s, int way)
{
    struct sketch before = *s;
    switch (way) {
    case 0:
        s->n_steps = 1;
        break;
    case 1:
        s->micro_batches = 1;
        break;
    case 2:
        s->default_use = NULL;
        break;
    case 3: /* servers compute with the rest */
        s->sync = "ring";
        while (s->n_servers)
            s->stages[0].workers[s->stages[0].n_workers++] = s->servers[--s->n_servers];
        break;
    case 4:
        s->bucket_bytes = 1 << 20;
        break;
    case 5:
        s->schedule = "gpipe";
        s->segments = 0;
        break;
    case 6:
        s->micro_batches = s->micro_batches > 2 ? 2 : s->micro_batches;
        break;
    case 7:
    case 8:
        return merge_stages(s, way - 7);
    default:
        return without_worker(s, way - 9);
    }
    return s->n_steps != before.n_steps || s->micro_batches != before.micro_batches ||
           s->default_use != before.default_use || strcmp(s->sync, before.sync) != 0 ||
           s->bucket_bytes != before.bucket_bytes || strcmp(s->schedule, before.schedule) != 0 ||
           s->segments != before.segments;
}

static bool simplify_layer(struct sketch_layer *layer, int way)
{
    bool any;
    switch (way) {
    case 0: /* no cuts, not even the default's */
        any = layer->n_cuts > 0 || !layer->named;
        layer->named = true;
        layer->n_cuts = 0;
        layer->n_workers = layer->n_workers > 0;
        return any;
    case 1:
        any = layer->n_workers > 0;
        layer->n_workers = 0;
        return any;
    case 2:
        any = layer->recompute;
        layer->recompute = false;
        return any;
    default:
        way -= 3;
        any = way < layer->n_cuts;
        if (any && layer->cut[way].sized && layer->n_cuts == 1) {
            layer->cut[way].sized = false;
        } else if (any) {
            for (int i = way; i + 1 < layer->n_cuts; i++)
                layer->cut[i] = layer->cut[i + 1];
            layer->n_cuts--;
            layer->n_workers = layer->n_workers ? count_pieces(layer) : 0;
        }
        return any;
    }
}

enum { WHOLE_WAYS = 9 + MAX_WORKERS, LAYER_WAYS = 3 + OP_MAX_LOOPS };

static bool simplify(struct sketch *s, int way)
{
    if (way < WHOLE_WAYS)
        return simplify_whole(s, way);
    way -= WHOLE_WAYS;
    return simplify_layer(&s->layers[1 + way / LAYER_WAYS], way % LAYER_WAYS);
}

/* Takes away all that can go, as long as the rest still fails. */
static void shrink(const struct trial *t, struct sketch *s, char *why, size_t size)
{
    int n_ways = WHOLE_WAYS + (s->n_layers - 1) * LAYER_WAYS;
    time_t end = time(NULL) + 60; /* failures that are deadlines take long */
    bool smaller = true;
    while (smaller && time(NULL) < end) {
        smaller = false;
        for (int way = 0; way < n_ways && time(NULL) < end; way++) {
            struct sketch next = *s;
            char reason[1200];
            if (simplify(&next, way) &&
                try_sketch(t, &next, reason, sizeof reason) == VERDICT_DIFFERS) {
                *s = next;
                smaller = true;
                (void)snprintf(why, size, "%s", reason);
            }
        }
    }
}

static void print_case(const struct trial *t, const struct sketch *s, const char *title,
                       const char *why)
{
    char *text = write_sketch(t->graph, s);
    (void)fprintf(stderr,
                  "%s: CLEAVE_TEST_SEED=%llu CLEAVE_TEST_CASES=1, backend %s, %d steps: %s\n%s",
                  title, (unsigned long long)t->seed, t->backend, s->n_steps, why, text);
    free(text);
}

/* ---- all of them ---- */

/* The reasons for which plan_check may refuse these plans; any other is a fault of the check. */
static const char *const reasons[] = {"would read nothing but padding", "micro-batches: a batch of",
                                      NULL};

struct tally {
    int n_run, n_cpu, n_failed;
    int n_refused[sizeof reasons / sizeof *reasons];
};

static int find_reason(const char *why)
{
    int i = 0;
    while (reasons[i] && !strstr(why, reasons[i]))
        i++;
    return i;
}

static struct trial draw_trial(struct draw *d, uint64_t seed, bool cpu)
{
    struct trial t = {.seed = seed,
                      .backend = cpu ? "cpu" : "reference",
                      .precision = cpu ? PRECISION_FLOAT : PRECISION_DOUBLE,
                      .tolerance = cpu ? 1e-4 : 1e-6};
    double rate = cpu ? 0.002 : 0.02;
    t.graph =
        draw_graph(d, &(struct graph_wish){.well_behaved = cpu, .wide = cpu && draw_chance(d, 30)});
    t.rule = (struct update_rule){.kind = UPDATE_SGD,
                                  .learning_rate = rate,
                                  .momentum = draw_chance(d, 70) ? 0.9 : 0,
                                  .weight_decay = 1e-3};
    if (draw_chance(d, 25)) /* a large epsilon: rounding must not become a direction */
        t.rule = (struct update_rule){.kind = UPDATE_ADAMW,
                                      .learning_rate = rate,
                                      .weight_decay = 1e-3,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .epsilon = 0.1};
    return t;
}

static void report_failure(const struct trial *t, struct sketch *s, char *why, size_t size)
{
    (void)fprintf(stderr, "graph, batch %lld:\n", (long long)t->graph->batch);
    graph_print(t->graph, stderr);
    print_case(t, s, "FAILED", why);
    shrink(t, s, why, size);
    print_case(t, s, "SMALLEST", why);
}

/* Some weights of some networks do not learn. */
static void draw_frozen(struct draw *d, struct graph *g)
{
    bool freezes = draw_chance(d, 30), learns = false;
    for (int i = 0; freezes && i < g->n_params; i++)
        g->params[i].group.frozen = g->params[i].spec.trained && draw_chance(d, 50);
    for (int i = 0; i < g->n_params; i++)
        learns |= graph_param_learns(&g->params[i]);
    for (int i = 0; !learns && i < g->n_params; i++)
        g->params[i].group.frozen = false;
}

/* One network, and plans for it until one runs. */
static void run_case(uint64_t seed, bool cpu, struct tally *tally)
{
    enum { TRIES = 20 };
    struct draw d = draw_begin(seed, 0);
    struct trial t = draw_trial(&d, seed, cpu);
    draw_frozen(&d, (struct graph *)t.graph);
    enum verdict verdict = VERDICT_REFUSED;
    for (int i = 0; i < TRIES && verdict == VERDICT_REFUSED; i++) {
        struct sketch s = draw_sketch(&d, t.graph);
        char why[1200] = "";
        verdict = try_sketch(&t, &s, why, sizeof why);
        if (verdict == VERDICT_REFUSED) {
            int reason = find_reason(why);
            tally->n_refused[reason]++;
            if (!reasons[reason])
                print_case(&t, &s, "REFUSED without need", why);
        }
        if (verdict == VERDICT_DIFFERS)
            report_failure(&t, &s, why, sizeof why);
    }
    tally->n_run += verdict != VERDICT_REFUSED;
    tally->n_cpu += verdict != VERDICT_REFUSED && cpu;
    tally->n_failed += verdict == VERDICT_DIFFERS;
    graph_destroy((struct graph *)t.graph);
}

static void test_random_plans_train_like_one_worker(void **state)
{
    (void)state;
    struct tally tally = {0};
    uint64_t seed = test_seed();
    long long n_cases = test_count(DEFAULT_CASES);
    bool has_cpu = session_has_backend("cpu");
    enum { ENOUGH_FAILURES = 5 };
    for (long long i = 0; i < n_cases && tally.n_failed < ENOUGH_FAILURES; i++) {
        uint64_t own = seed + (uint64_t)i;
        run_case(own, has_cpu && own % 4 == 0, &tally);
    }
    print_message("%d cases run, %d of them on the cpu backend, %d failed\n", tally.n_run,
                  tally.n_cpu, tally.n_failed);
    int n = (int)(sizeof reasons / sizeof *reasons);
    for (int i = 0; i < n; i++)
        print_message("refused %d times: %s\n", tally.n_refused[i],
                      reasons[i] ? reasons[i] : "for another reason");
    assert_int_equal(tally.n_failed, 0);
    assert_int_equal(tally.n_refused[n - 1], 0);
    assert_true(tally.n_run >= n_cases * 3 / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans_train_like_one_worker),
    };
    return test_run(tests);
}
