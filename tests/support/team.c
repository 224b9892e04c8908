#include "team.h"

#include "asynchronous.h"

struct team_worker {
    struct team_run *run;
    int number, n_workers;
    comm *comm;
    const struct backend *backend;
    device *device;
    struct program *train, *eval;
    executor *executor;
    double *loss_sums;
    enum status status;
    struct status_error error;
    pthread_barrier_t *built;
    struct fixture_batch *batches;
    int next_batch;
    struct fixture_batch lent; /* the memory that each batch is lent in, as a loader does */
    uint64_t hash;
    struct team_worker *all; /* n_workers of them */
};

/* ---- weights ---- */

float team_weight(const struct graph_param *param, int number, int64_t element)
{
    double fan = (double)(param->spec.fan > 0 ? param->spec.fan : 1);
    switch (param->spec.init) {
    case INIT_ONE:
        return 1;
    case INIT_ZERO:
        return 0;
    default:
        return (float)(fixture_number((uint64_t)number, (uint64_t)element) * sqrt(3 / fan));
    }
}

/* Element `i` of a region in row order: its place in the whole parameter. */
static int64_t team_place(const struct shape *whole, const struct range *region, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int a = whole->rank - 1; a >= 0; a--) {
        int64_t n = region[a].end - region[a].begin;
        at += (region[a].begin + i % n) * stride;
        i /= n;
        stride *= whole->dim[a];
    }
    return at;
}

static int64_t team_region_elements(const struct program_param *p, int rank)
{
    int64_t n = 1;
    for (int a = 0; a < rank; a++)
        n *= p->region[a].end - p->region[a].begin;
    return n;
}

static enum status team_set_weights(struct team_worker *w)
{
    const struct graph *g = w->run->graph;
    for (int k = 0; k < g->n_params; k++) {
        const struct program_param *param = &w->train->params[k];
        const struct shape *shape = &g->params[k].spec.shape;
        if (param->weight == NO_BUFFER)
            continue;
        int64_t n = team_region_elements(param, shape->rank);
        float *values = malloc((size_t)n * sizeof *values);
        for (int64_t i = 0; i < n; i++)
            values[i] = (w->run->weight ? w->run->weight : team_weight)(
                &g->params[k], k, team_place(shape, param->region, i));
        enum status st = executor_write(w->executor, k, TENSOR_WEIGHT, values);
        free(values);
        TRY(st);
    }
    return STATUS_OK;
}

static enum status team_hash_weights(struct team_worker *w)
{
    const struct graph *g = w->run->graph;
    for (int k = 0; k < g->n_params; k++) {
        const struct program_param *param = &w->train->params[k];
        if (param->weight == NO_BUFFER)
            continue;
        int64_t n = team_region_elements(param, g->params[k].spec.shape.rank);
        float *values = malloc((size_t)n * sizeof *values);
        enum status st = executor_read(w->executor, k, TENSOR_WEIGHT, values);
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof bits);
            w->hash = (w->hash ^ bits) * 0x100000001B3u;
        }
        free(values);
        TRY(st);
    }
    return STATUS_OK;
}

int64_t team_weight_elements(const struct graph *g)
{
    int64_t n = 0;
    for (int k = 0; k < g->n_params; k++)
        n += shape_elements(&g->params[k].spec.shape);
    return n;
}

/* Puts a worker's part of a parameter into the whole at `to`, or compares it with what another
 * worker put there. */
static enum status team_merge_param(const struct team_worker *w, int k, float *to)
{
    const struct program_param *param = &w->train->params[k];
    const struct shape *shape = &w->run->graph->params[k].spec.shape;
    int64_t n = team_region_elements(param, shape->rank);
    float *values = malloc((size_t)n * sizeof *values);
    enum status st = executor_read(w->executor, k, TENSOR_WEIGHT, values);
    for (int64_t i = 0; st == STATUS_OK && i < n; i++) {
        float *place = &to[team_place(shape, param->region, i)];
        if (isnan(*place))
            *place = values[i];
        double difference = fabs((double)*place - (double)values[i]);
        if (!(difference <= w->run->spread))
            w->run->spread = isnan(difference) ? INFINITY : difference;
    }
    free(values);
    return st;
}

static enum status team_merge_weights(struct team_run *r, const struct team_worker *workers,
                                      int n_workers)
{
    float *to = r->weights;
    for (int64_t i = 0; i < team_weight_elements(r->graph); i++)
        to[i] = NAN;
    for (int k = 0; k < r->graph->n_params; k++) {
        for (int i = 0; i < n_workers; i++)
            if (workers[i].train->params[k].weight != NO_BUFFER)
                TRY(team_merge_param(&workers[i], k, to));
        to += shape_elements(&r->graph->params[k].spec.shape);
    }
    return STATUS_OK;
}

/* ---- one worker ---- */

static enum status team_next_batch(void *user, struct executor_batch *batch)
{
    struct team_worker *w = user;
    const struct fixture_batch *b = &w->batches[w->next_batch++];
    const struct shape *images = &w->run->graph->nodes[0].op.output;
    memcpy(w->lent.images, b->images, (size_t)shape_elements(images) * sizeof *b->images);
    memcpy(w->lent.labels, b->labels, (size_t)images->dim[0] * sizeof *b->labels);
    *batch = (struct executor_batch){.images = w->lent.images, .labels = w->lent.labels};
    return STATUS_OK;
}

static enum status team_build_worker(struct team_worker *w)
{
    const struct team_run *r = w->run;
    struct device_options d = {.threads = r->threads ? r->threads : 1};
    TRY(w->backend->device_open(&d, &w->device));
    struct program_options o = {.backend = w->backend,
                                .device = w->device,
                                .precision = r->precision,
                                .training = true,
                                .n_states = update_rule_states(&r->rule),
                                .plan = r->plan,
                                .worker = w->number,
                                .transport = w->comm ? w->comm->table : NULL};
    TRY(program_create(r->graph, &o, &w->train));
    o.training = false;
    o.shares_params_of = w->train;
    TRY(program_create(r->graph, &o, &w->eval));
    if (r->check) {
        TRY(verify_program(w->train));
        TRY(verify_program(w->eval));
    }
    const struct program *programs[2] = {w->train, w->eval};
    TRY(executor_create(programs, 2, w->comm, &w->executor));
    return team_set_weights(w);
}

static enum status team_run_worker(struct team_worker *w)
{
    struct team_run *r = w->run;
    enum { MOST = 64 };
    struct executor_feed feed = {team_next_batch, w};
    for (int step = 0; step < r->n_steps;) {
        struct step_state states[MOST];
        struct update_rule rules[MOST];
        struct executor_result results[MOST];
        int n = w->train->n_steps;
        assert_true(n <= MOST);
        for (int i = 0; i < n; i++) {
            states[i] = (struct step_state){.seed = 1, .step = (uint32_t)(step + i + 1)};
            rules[i] = r->rule;
            rules[i].step = step + i + 1;
        }
        w->next_batch = step;
        TRY(executor_run(w->executor, 0, &feed, states, rules, results));
        for (int i = 0; i < n; i++)
            w->loss_sums[step + i] = results[i].loss_sum;
        step += n;
    }
    if (r->evaluate) {
        struct step_state state = {.seed = 1};
        struct executor_result result;
        w->next_batch = 0;
        TRY(executor_run(w->executor, 1, &feed, &state, NULL, &result));
        w->loss_sums[r->n_steps] = result.loss_sum;
    }
    return team_hash_weights(w);
}

/* The first worker proves all programs together, once all are built. */
static enum status team_check_all(struct team_worker *w)
{
    const struct program *train[TEAM_MAX_WORKERS], *eval[TEAM_MAX_WORKERS];
    for (int i = 0; i < w->n_workers; i++) {
        if (w->all[i].status != STATUS_OK)
            return STATUS_OK; /* that one says why */
        train[i] = w->all[i].train;
        eval[i] = w->all[i].eval;
    }
    TRY(verify_programs(train, w->n_workers));
    return verify_programs(eval, w->n_workers);
}

static void team_note(struct team_worker *w, enum status status)
{
    w->status = status;
    if (status == STATUS_OK)
        return;
    status_take(status, &w->error);
    if (w->comm)
        w->comm->table->abort(w->comm, status, w->error.message);
}

static void *team_thread(void *user)
{
    struct team_worker *w = user;
    team_note(w, team_build_worker(w));
    (void)pthread_barrier_wait(w->built);
    if (w->run->check) {
        enum status st = w->number == 0 && w->status == STATUS_OK ? team_check_all(w) : STATUS_OK;
        (void)pthread_barrier_wait(w->built); /* no worker reads the others any more */
        if (st != STATUS_OK)
            team_note(w, st);
    }
    if (w->status == STATUS_OK) {
        w->status = team_run_worker(w);
        if (w->status != STATUS_OK)
            status_take(w->status, &w->error);
    }
    return NULL;
}

static void team_close_worker(struct team_worker *w)
{
    executor_destroy(w->executor);
    program_destroy(w->eval);
    program_destroy(w->train);
    if (w->device)
        w->backend->device_close(w->device);
    if (w->comm)
        w->comm->table->destroy(w->comm);
    free(w->loss_sums);
}

/* ---- all of them ---- */

/* The root cause of a failed run: whatever is not merely the loss of another worker. */
static enum status team_status(struct team_worker *workers, int n)
{
    struct team_worker *worst = NULL;
    for (int i = 0; i < n; i++)
        if (workers[i].status != STATUS_OK &&
            (!worst || (worst->status == STATUS_LOST && workers[i].status != STATUS_LOST)))
            worst = &workers[i];
    return worst ? status_give(&worst->error) : STATUS_OK;
}

static int64_t team_expected_bytes(const struct team_worker *w)
{
    int n_runs = w->run->n_steps / w->train->n_steps;
    int64_t evaluation = w->run->evaluate ? program_sent_bytes(w->eval) : 0;
    return n_runs * program_sent_bytes(w->train) + evaluation;
}

enum status team_train(struct team_run *r, double *losses)
{
    int n = r->plan ? r->plan->n_workers : 1, n_losses = r->n_steps + r->evaluate;
    struct team_worker workers[TEAM_MAX_WORKERS] = {0};
    comm *ends[TEAM_MAX_WORKERS] = {0};
    pthread_t threads[TEAM_MAX_WORKERS];
    pthread_barrier_t built;
    struct fixture_batch *batches = malloc((size_t)n_losses * sizeof *batches);
    assert_true(n <= TEAM_MAX_WORKERS);
    for (int i = 0; i < n_losses; i++)
        batches[i] = fixture_make_batch(r->graph, (uint64_t)i);
    if (n > 1)
        assert_ok(comm_threads_create(n, r->timeout_s > 0 ? r->timeout_s : 60, ends));
    (void)pthread_barrier_init(&built, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        workers[i] = (struct team_worker){.run = r,
                                          .number = i,
                                          .n_workers = n,
                                          .comm = ends[i],
                                          .built = &built,
                                          .all = workers,
                                          .batches = batches,
                                          .lent = fixture_make_batch(r->graph, 0)};
        workers[i].loss_sums = calloc((size_t)n_losses, sizeof *workers[i].loss_sums);
        if (strcmp(r->backend, "asynchronous") == 0)
            workers[i].backend = asynchronous_backend("reference");
        else
            assert_ok(backend_find(r->backend, &workers[i].backend));
        assert_int_equal(pthread_create(&threads[i], NULL, team_thread, &workers[i]), 0);
    }
    for (int i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
    enum status st = team_status(workers, n);
    r->spread = 0;
    if (r->weights && st == STATUS_OK)
        st = team_merge_weights(r, workers, n);
    r->hash = 0;
    r->sent_bytes = r->counted_bytes = r->expected_bytes = 0;
    for (int k = 0; k < n_losses; k++)
        losses[k] = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n_losses; k++)
            losses[k] += workers[i].loss_sums[k] / (double)r->graph->batch;
        r->hash = r->hash * 31 + workers[i].hash;
        if (workers[i].train)
            r->sent_bytes += program_sent_bytes(workers[i].train);
        if (workers[i].train && workers[i].eval)
            r->expected_bytes += team_expected_bytes(&workers[i]);
        if (workers[i].comm)
            r->counted_bytes += workers[i].comm->sent_bytes;
        r->memory_bytes[i] = workers[i].executor ? executor_memory_bytes(workers[i].executor) : 0;
    }
    for (int i = 0; i < n; i++) {
        team_close_worker(&workers[i]);
        fixture_free_batch(&workers[i].lent);
    }
    (void)pthread_barrier_destroy(&built);
    for (int i = 0; i < n_losses; i++)
        fixture_free_batch(&batches[i]);
    free(batches);
    return st;
}
