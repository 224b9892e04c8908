#include "predict/advise.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A change of a plan; fields that are 0 change nothing. */
struct change {
    const char *strategy;
    int workers, micro_batches;
    int64_t batch;
    bool in_turn;   /* schedule 1f1b: a micro-batch goes backward before the next goes forward */
    bool recompute; /* in as many segments as need the least memory */
};

struct search {
    const struct advise_request *request;
    const struct predict_request *predict; /* of the batch that is tried */
    struct advice *found;
    int n_found;
    int64_t *instrs_left; /* to be lowered for this kind of change */
};

/* Plans with many workers and micro-batches take long to lower, and many may be tried in vain: the
 * work for each kind of change has a limit, which a slow host reaches as a fast one does. */
static void begin_kind(struct search *s)
{
    static const int64_t MOST_INSTRS = 4000000;
    *s->instrs_left = MOST_INSTRS;
}

/* ---- changing a plan ---- */

/* As for the user: the strategy builds another plan, a file's plan is edited. */
static enum status make_unedited(const struct search *s, const struct change *c, struct plan **out)
{
    const struct advise_request *r = s->request;
    const struct plan *old = r->predict->plan;
    const char *strategy = c->strategy ? c->strategy : r->strategy;
    if (!strategy)
        return plan_copy(old, out);
    struct plan_request how = r->how;
    how.n_workers = c->workers ? c->workers : old->n_workers;
    if (c->micro_batches)
        how.micro_batches = c->micro_batches;
    return plan_build(strategy, s->predict->graph, &how, out);
}

static enum status make_plan(const struct search *s, const struct change *c, struct plan **out)
{
    struct plan *plan;
    TRY(make_unedited(s, c, &plan));
    if (c->micro_batches)
        plan->micro_batches = c->micro_batches;
    if (c->in_turn)
        plan->schedule = PLAN_1F1B;
    enum status st = STATUS_OK;
    if (c->recompute)
        st = plan_recompute_segments(plan, s->predict->graph, PLAN_SEGMENTS_AUTO);
    if (st == STATUS_OK)
        st = plan_check(plan, s->predict->graph);
    if (st != STATUS_OK)
        plan_destroy(plan);
    else
        *out = plan;
    return st;
}

/* ---- what it needs ---- */

struct need {
    bool works; /* the plan can be made for this network */
    bool fits;
    int64_t bytes;      /* if it does not fit, those of training alone */
    int64_t limit;      /* what there is */
    int64_t eval_batch; /* in the test, where it must be smaller to fit; else 0 */
    bool hopeless;      /* not even the weights with their gradients and states fit */
};

/* The request without its tests. */
static struct predict_request training_alone(const struct predict_request *r)
{
    struct predict_request training = *r;
    training.n_others = 0;
    for (int i = 0; i < r->n_others; i++)
        if (r->others[i].training)
            training.others[training.n_others++] = r->others[i];
    return training;
}

static enum status weigh_request(const struct search *s, struct predict_request request,
                                 const struct plan *plan, struct need *out)
{
    struct prediction *p;
    request.plan = plan;
    TRY(predict_memory(&request, &p));
    int64_t lasting = p->tight_memory[BUFFER_WEIGHTS] + p->tight_memory[BUFFER_OPTIMIZER] +
                      p->tight_memory[BUFFER_GRADIENTS];
    bool hopeless = lasting > p->limit_bytes;
    *out = (struct need){.works = true,
                         .fits = p->too_large_worker == -1,
                         .bytes = p->needed_bytes,
                         .limit = p->limit_bytes,
                         .hopeless = hopeless};
    for (int i = 0; i < p->n_workers; i++)
        *s->instrs_left -= p->programs[i]->n_instrs;
    prediction_destroy(p);
    return STATUS_OK;
}

static enum status weigh_batches(const struct search *s, const struct plan *plan,
                                 int64_t eval_batch, struct need *out)
{
    const struct advise_request *r = s->request;
    struct predict_request request = *s->predict;
    void *opened;
    TRY(r->open_batches(r->user, s->predict->graph->batch, eval_batch, &request, &opened));
    enum status st = weigh_request(s, request, plan, out);
    r->close_batches(opened);
    out->eval_batch = eval_batch;
    return st;
}

static int64_t eval_batch_of(const struct predict_request *r)
{
    for (int i = 0; i < r->n_others; i++)
        if (!r->others[i].training)
            return r->others[i].graph->batch;
    return 0;
}

/* Training comes first: a plan that is too large for training needs no test. */
static enum status weigh_plan(const struct search *s, const struct plan *plan, struct need *out)
{
    TRY(weigh_request(s, training_alone(s->predict), plan, out));
    int64_t eval_batch = eval_batch_of(s->predict);
    if (!out->fits || eval_batch == 0)
        return STATUS_OK;
    struct need training = *out;
    TRY(weigh_request(s, *s->predict, plan, out));
    while (!out->fits && s->request->open_batches && (eval_batch /= 2) > 0)
        TRY(weigh_batches(s, plan, eval_batch, out));
    out->bytes = out->fits ? out->bytes : training.bytes;
    return STATUS_OK;
}

/* A change that cannot be made, for whatever reason, is not advised; the user is told the error of
 * the plan itself. */
static struct need weigh(const struct search *s, const struct change *c)
{
    struct need need = {0};
    struct plan *plan = NULL;
    if (*s->instrs_left <= 0)
        return need;
    enum status st = make_plan(s, c, &plan);
    if (st == STATUS_OK) {
        bool delays = plan_is_stale(plan);
        const struct plan *old = s->request->predict->plan;
        if (!delays || plan_is_stale(old))
            st = weigh_plan(s, plan, &need);
        plan_destroy(plan);
    }
    if (st != STATUS_OK)
        status_clear();
    return st == STATUS_OK ? need : (struct need){0};
}

/* ---- saying it ---- */

static void append(char text[ADVICE_BYTES], const char *format, ...) PRINTF_LIKE(2, 3);

static void append(char text[ADVICE_BYTES], const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + used, ADVICE_BYTES - used, format, args);
    va_end(args);
}

/* A change without an option is written into the plan's file; then all other changes of the plan
 * are, too. */
static bool needs_file(const struct search *s, const struct change *c)
{
    return !s->request->strategy || c->in_turn;
}

static void describe_edits(const struct search *s, const struct change *c, char text[ADVICE_BYTES])
{
    char edits[ADVICE_BYTES] = "";
    if (c->micro_batches && needs_file(s, c))
        append(edits, ", \"micro_batches\": %d", c->micro_batches);
    if (c->in_turn)
        append(edits, ", \"schedule\": \"1f1b\"");
    if (c->recompute && needs_file(s, c))
        append(edits, ", \"recompute\": \"auto\"");
    if (*edits)
        append(text, "%s%s in the plan's file", *text ? " and " : "", edits + 2);
}

static void describe(const struct search *s, const struct change *c, int64_t eval_batch,
                     char text[ADVICE_BYTES])
{
    char options[ADVICE_BYTES] = "";
    if (c->strategy)
        append(options, " --plan %s", c->strategy);
    if (c->workers)
        append(options, " --workers %d", c->workers);
    if (c->micro_batches && !needs_file(s, c))
        append(options, " --micro-batches %d", c->micro_batches);
    if (c->recompute && !needs_file(s, c))
        append(options, " --recompute auto");
    if (c->batch)
        append(options, " --batch %lld", (long long)c->batch);
    if (eval_batch)
        append(options, " --eval-batch %lld", (long long)eval_batch);
    *text = '\0';
    append(text, "%s", *options ? options + 1 : "");
    describe_edits(s, c, text);
}

static bool add_if_fits(struct search *s, const struct change *c, const struct need *need)
{
    if (!need->fits)
        return false;
    struct advice *to = &s->found[s->n_found++];
    describe(s, c, need->eval_batch, to->change);
    to->memory_bytes = need->bytes;
    return true;
}

static bool try_change(struct search *s, const struct change *c)
{
    struct need need = weigh(s, c);
    return add_if_fits(s, c, &need);
}

/* ---- the kinds ---- */

bool advise_may_fit(int64_t before_bytes, int64_t bytes, int64_t limit_bytes)
{
    int64_t saved = before_bytes - bytes;
    return saved > 0 && bytes - saved <= limit_bytes;
}

/* More and more of them, below `end`, until the plan fits. Returns the number that fits, or 0. */
static int try_micro_batches(struct search *s, struct change c, int end)
{
    int64_t last = INT64_MAX;
    int64_t m = s->request->predict->plan->micro_batches, batch = s->predict->graph->batch;
    while ((m = plan_more_micro_batches(m, batch)) > 0 && m < end) {
        c.micro_batches = (int)m;
        struct need need = weigh(s, &c);
        if (add_if_fits(s, &c, &need))
            return c.micro_batches;
        if (!need.works || need.hopeless || !advise_may_fit(last, need.bytes, need.limit))
            return 0;
        last = need.bytes;
    }
    return 0;
}

enum { MANY = INT_MAX };

/* All forward, then all backward keeps all activations, however many micro-batches there are. A
 * single stage can as well take the micro-batches one by one. */
static int advise_micro_batches(struct search *s)
{
    const struct plan *plan = s->predict->plan;
    int n = try_micro_batches(s, (struct change){0}, MANY);
    if (!n && plan->n_stages == 1 && plan->schedule == PLAN_GPIPE)
        n = try_micro_batches(s, (struct change){.in_turn = true}, MANY);
    return n;
}

/* With fewer micro-batches than fit without it, or it would be the larger change. */
static void advise_recomputation(struct search *s, int micro_batches)
{
    struct change c = {.recompute = true};
    if (!try_change(s, &c))
        (void)try_micro_batches(s, c, micro_batches ? micro_batches : MANY);
}

static bool try_strategies(struct search *s, int workers)
{
    for (const struct plan_strategy *to = plan_strategies(); to->name; to++) {
        struct change c = {.strategy = to->name, .workers = workers};
        bool same = s->request->strategy && strcmp(to->name, s->request->strategy) == 0;
        if (!same && try_change(s, &c))
            return true;
    }
    return false;
}

/* The number of workers in a plan's file is not among the options. */
static void advise_strategies(struct search *s)
{
    const struct plan *plan = s->predict->plan;
    (void)try_strategies(s,
                         s->request->how.n_workers || plan->n_workers == 1 ? 0 : plan->n_workers);
}

static bool try_batch(struct search *s, int64_t batch, bool *hopeless)
{
    const struct advise_request *r = s->request;
    struct predict_request smaller = *r->predict;
    void *opened;
    *hopeless = true;
    if (r->open_batches(r->user, batch, 0, &smaller, &opened) != STATUS_OK) {
        status_clear();
        return false;
    }
    struct search within = {.request = r, .predict = &smaller, .instrs_left = s->instrs_left};
    struct change c = {.batch = batch};
    struct need need = weigh(&within, &c);
    r->close_batches(opened);
    *hopeless = !need.works || need.hopeless;
    return add_if_fits(s, &c, &need);
}

static void advise_batch(struct search *s)
{
    bool hopeless = !s->request->open_batches;
    for (int64_t n = s->predict->graph->batch / 2; n >= 1 && !hopeless; n /= 2)
        if (try_batch(s, n, &hopeless))
            return;
}

static bool try_workers(struct search *s, int workers)
{
    struct change c = {.workers = workers};
    if (strcmp(s->request->strategy, "serial") == 0)
        return try_strategies(s, workers);
    return try_change(s, &c);
}

/* Cores of one host share its memory: more workers there would not help. */
static void advise_workers(struct search *s)
{
    int most = s->predict->machine->n_devices;
    int workers = s->predict->plan->n_workers;
    if (s->predict->local || !s->request->strategy)
        return;
    while (workers < most) {
        workers = workers > most / 2 ? most : 2 * workers;
        if (try_workers(s, workers))
            return;
    }
}

int advise_find(const struct advise_request *request, struct advice found[ADVICE_MAX])
{
    int64_t instrs_left;
    struct search s = {.request = request,
                       .predict = request->predict,
                       .found = found,
                       .instrs_left = &instrs_left};
    begin_kind(&s);
    if (try_change(&s, &(struct change){0})) /* it was the test alone */
        return s.n_found;
    int micro_batches = advise_micro_batches(&s);
    begin_kind(&s);
    advise_recomputation(&s, micro_batches);
    begin_kind(&s);
    advise_strategies(&s);
    begin_kind(&s);
    advise_batch(&s);
    begin_kind(&s);
    if (s.n_found < ADVICE_MAX)
        advise_workers(&s);
    return s.n_found;
}
