#include "search/candidates.h"

#include "base/numbers.h"
#include "base/timer.h"
#include "predict/advise.h"
#include "search/candidates_searched.h"
#include "search/plan_price.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LEVELS = 40 };

struct finder {
    const struct candidate_request *request;
    struct candidate_list list;
    int64_t start_ns;
    bool local;      /* costs can be measured */
    bool look_only;  /* but are not to be */
    bool cut_short;  /* stopped, or out of time or work */
    bool search_cut; /* the searches were */
    /* The level at hand: plans for so many workers. */
    int level;
    double n_instrs, n_questions; /* of its work */
    double off[MOST_LEVELS];      /* by level: clock / estimate of plain data parallelism */
    int levels[MOST_LEVELS], n_levels;
    int n_clocked, n_measured;
    double longest_s;         /* that lowering and clocking one took */
    double shown_s;           /* when progress was, while searching */
    struct known_costs costs; /* for the searches */
};

/* ---- time and work ---- */

static double elapsed_s(const struct finder *f)
{
    return (double)(timer_now_ns() - f->start_ns) * 1e-9;
}

static bool is_stopped(const struct candidate_request *r)
{
    return r->stops && r->stops(r->user);
}

static bool is_over(struct finder *f)
{
    const struct candidate_request *r = f->request;
    f->cut_short = f->cut_short || is_stopped(r) || (r->limit_s > 0 && elapsed_s(f) > r->limit_s);
    return f->cut_short;
}

/* Whether one more would take longer than is left, as far as the ones before tell. */
static bool is_late(struct finder *f)
{
    double limit_s = f->request->limit_s;
    f->cut_short = f->cut_short || (limit_s > 0 && elapsed_s(f) + f->longest_s > limit_s);
    return f->cut_short;
}

static void show(const struct finder *f, const char *name)
{
    const struct candidate_request *r = f->request;
    if (r->on_progress)
        r->on_progress(r->user, f->n_clocked, f->list.n, name);
}

/* ---- the clock ---- */

static void take_prediction(struct candidate *c, const struct prediction *p)
{
    int n_steps = p->programs[0]->n_steps;
    c->state = CANDIDATE_CLOCKED;
    c->step_s = p->clock.step_s;
    c->error_s = p->clock.error_s;
    c->host_error = p->host_error;
    c->compute_s = c->wait_s = 0;
    for (int i = 0; i < p->n_workers; i++) {
        c->compute_s += p->clock.workers[i].compute_s / n_steps / p->n_workers;
        c->wait_s += p->clock.workers[i].wait_s / n_steps / p->n_workers;
    }
    c->fits = c->trains = p->too_large_worker < 0;
    c->memory_bytes = p->largest_bytes;
    c->needed_bytes = p->needed_bytes;
    c->limit_bytes = p->limit_bytes;
    c->bytes_moved = p->clock.bytes_moved;
    memcpy(c->share, p->clock.share, sizeof c->share);
    c->measured =
        p->measured.n_unchecked == 0 && (p->measured.n_missing == 0 || p->measured.n_measured > 0);
}

/* A plan that cannot be lowered (kernels that do not exist) is no candidate; anything else is a
 * failure. */
static enum status clock_candidate(struct finder *f, int i, bool look_only)
{
    struct candidate *c = &f->list.list[i];
    struct predict_request r;
    struct prediction *p;
    show(f, c->name);
    TRY(f->request->prepare(f->request->user, c->plan, &r));
    f->local = r.local && r.profile;
    f->look_only = r.measure.look_only;
    r.measure.look_only |= look_only;
    r.n_others = 0; /* the winner is held to the memory of the whole run later */
    enum status st = predict_plan(&r, &p);
    if (st == STATUS_USAGE) {
        status_clear();
        c->state = CANDIDATE_REFUSED;
        return STATUS_OK;
    }
    if (st == STATUS_STOPPED) { /* in the middle of measuring: it stays what it was */
        status_clear();
        f->cut_short = true;
        return STATUS_OK;
    }
    TRY(st);
    f->n_clocked += c->state != CANDIDATE_CLOCKED;
    for (int w = 0; w < p->n_workers; w++)
        f->n_instrs += p->programs[w]->n_instrs;
    take_prediction(c, p);
    if (!f->costs.known)
        known_costs_take(&f->costs, &r, p);
    prediction_destroy(p);
    return STATUS_OK;
}

enum status candidates_measure_again(const struct candidate_request *request, struct candidate *c)
{
    struct predict_request r;
    struct prediction *p;
    bool checked = c->checked, fits = c->fits;
    int64_t memory[3] = {c->memory_bytes, c->needed_bytes, c->limit_bytes};
    TRY(request->prepare(request->user, c->plan, &r));
    r.measure.again = true;
    r.n_others = 0;
    enum status st = predict_plan(&r, &p);
    if (st == STATUS_STOPPED) {
        status_clear();
        return STATUS_OK;
    }
    TRY(st);
    take_prediction(c, p);
    prediction_destroy(p);
    if (checked) { /* of the whole run */
        c->fits = fits;
        c->memory_bytes = memory[0];
        c->needed_bytes = memory[1];
        c->limit_bytes = memory[2];
    }
    return STATUS_OK;
}

/* ---- estimates ---- */

static enum status estimate_from(struct finder *f, int first)
{
    for (int i = first; i < f->list.n; i++) {
        struct candidate *c = &f->list.list[i];
        struct plan_price e;
        TRY(plan_price(f->request->graph, c->plan, f->request->machine, f->request->precision,
                       f->request->scales, &e));
        c->bound_s = e.bound_s;
        c->estimate_s = c->step_s = e.step_s;
        c->fits = true;
    }
    return STATUS_OK;
}

/* Same schedule, stages and recomputation: they differ in micro-batches alone. */
static bool is_sibling(const struct candidate *a, const struct candidate *b)
{
    const struct plan *p = a->plan, *q = b->plan;
    return a->family == FAMILY_PIPELINE && b->family == FAMILY_PIPELINE &&
           p->schedule == q->schedule && p->n_stages == q->n_stages &&
           p->n_workers == q->n_workers && p->sync == q->sync &&
           plan_recomputes(p) == plan_recomputes(q);
}

static int count_better_siblings(const struct finder *f, int i)
{
    const struct candidate *c = &f->list.list[i];
    int n = 0;
    for (int k = 0; k < f->list.n; k++) {
        const struct candidate *other = &f->list.list[k];
        n += k != i && is_sibling(c, other) &&
             (other->estimate_s < c->estimate_s || (other->estimate_s == c->estimate_s && k < i));
    }
    return n;
}

/* Of pipelines that differ in micro-batches alone two are kept; the others need less memory. */
static void thin_out(struct finder *f, int first)
{
    enum { KEPT = 2 };
    for (int i = first; i < f->list.n; i++)
        if (count_better_siblings(f, i) >= KEPT)
            f->list.list[i].state = CANDIDATE_SPARE;
}

static int find_level(const struct finder *f, int n_workers)
{
    int i = 0;
    while (i + 1 < f->n_levels && f->levels[i] < n_workers)
        i++;
    return i;
}

/* The estimate, scaled so that it is right for plain data parallelism on as many workers. */
static double expected_s(const struct finder *f, const struct candidate *c)
{
    double off = f->off[find_level(f, c->plan->n_workers)];
    off = off > 0 ? off : f->off[f->n_levels - 1];
    return c->estimate_s * (off > 0 ? off : 1);
}

/* The best time of the plans for at most so many workers that may win, by the clock as it is now: a
 * measured plan may be slower than it was guessed. INFINITY: there is none. */
static double find_best_s(const struct finder *f, int n_workers)
{
    double best_s = INFINITY;
    for (int i = 0; i < f->list.n; i++)
        if (candidates_may_win(f->request, &f->list.list[i]) &&
            f->list.list[i].plan->n_workers <= n_workers)
            best_s = fmin(best_s, f->list.list[i].step_s);
    return best_s;
}

/* One stage, and every layer whole or cut alike along the batch: a schedule says nothing here. */
static bool is_simple(enum candidate_family family)
{
    return family == FAMILY_SERIAL || family == FAMILY_DATA;
}

/* Same stages, workers, schedule and sums: they differ in micro-batches and recomputation alone. */
static bool is_variant(const struct candidate *a, const struct candidate *b)
{
    const struct plan *p = a->plan, *q = b->plan;
    return a->family == b->family && a->stale == b->stale && p->n_workers == q->n_workers &&
           p->n_stages == q->n_stages && p->sync == q->sync && p->n_servers == q->n_servers &&
           (is_simple(a->family) || p->schedule == q->schedule);
}

/* A variant with fewer micro-batches and no more recomputation is there, and fits; or those with
 * fewer need so much that this one cannot fit. */
static bool is_needless(const struct finder *f, const struct candidate *c)
{
    const struct candidate *last = NULL, *before = NULL;
    for (int i = 0; i < f->list.n; i++) {
        const struct candidate *other = &f->list.list[i];
        if (other == c || other->state != CANDIDATE_CLOCKED || !is_variant(c, other) ||
            other->plan->micro_batches > c->plan->micro_batches)
            continue;
        if (is_simple(c->family) && other->fits &&
            plan_recomputes(other->plan) <= plan_recomputes(c->plan))
            return true;
        if (plan_recomputes(other->plan) != plan_recomputes(c->plan) || other->fits)
            continue;
        if (!last || other->plan->micro_batches > last->plan->micro_batches) {
            before = last;
            last = other;
        } else if (!before || other->plan->micro_batches > before->plan->micro_batches)
            before = other;
    }
    return before && is_simple(c->family) &&
           !advise_may_fit(before->needed_bytes, last->needed_bytes, last->limit_bytes);
}

static bool is_hopeless(const struct finder *f, const struct candidate *c, double best_s)
{
    bool thrifty = c->plan->micro_batches > 1 || plan_recomputes(c->plan);
    if (thrifty && is_needless(f, c))
        return true;
    if (!isfinite(best_s))
        return false;
    bool bounded = !f->local && c->bound_s > best_s;
    double most = c->stale && !f->request->allow_stale ? 1 : CANDIDATES_HOPELESS;
    return bounded || expected_s(f, c) > most * best_s;
}

/* A plan that may not win goes through the clock last, so that people see its time. A plan whose
 * gradients are summed within nodes first has a twin that is estimated nearly alike: that one goes
 * before it, in case there is no time for both. */
static double find_rank(const struct finder *f, const struct candidate *c)
{
    static const double SECOND = 1.15;
    bool second = c->family == FAMILY_PER_LAYER && c->plan->sync == PLAN_HIERARCHICAL;
    return (second ? SECOND : 1) * c->estimate_s + (c->stale && !f->request->allow_stale ? 1e9 : 0);
}

/* Of this level; where costs are measured there is but one, with the plans for fewer workers. */
static bool is_at_hand(const struct finder *f, const struct candidate *c)
{
    return c->plan->n_workers == f->level || (f->local && c->plan->n_workers < f->level);
}

static int find_next(const struct finder *f)
{
    double best_s = find_best_s(f, f->level);
    int next = -1;
    for (int i = 0; i < f->list.n; i++) {
        const struct candidate *c = &f->list.list[i];
        if (c->state == CANDIDATE_ESTIMATED && is_at_hand(f, c) && !is_hopeless(f, c, best_s) &&
            (next < 0 || find_rank(f, c) < find_rank(f, &f->list.list[next])))
            next = i;
    }
    return next;
}

/* ---- measuring ---- */

/* The fastest plan whose costs are guessed and that may still be the best. */
static int find_unmeasured(const struct finder *f, double best_measured_s)
{
    static const double DOUBT = 0.9; /* a guess may be off by so much */
    int next = -1;
    for (int i = 0; i < f->list.n; i++) {
        const struct candidate *c = &f->list.list[i];
        if (candidates_may_win(f->request, c) && !c->measured &&
            c->step_s * DOUBT < best_measured_s &&
            (next < 0 || c->step_s < f->list.list[next].step_s))
            next = i;
    }
    return next;
}

static double find_best_measured(const struct finder *f)
{
    double best_s = INFINITY;
    for (int i = 0; i < f->list.n; i++)
        if (candidates_may_win(f->request, &f->list.list[i]) && f->list.list[i].measured)
            best_s = fmin(best_s, f->list.list[i].step_s);
    return best_s;
}

/* Costs that were measured for one plan count for the others: those that are near are clocked
 * again. */
static enum status look_again(struct finder *f)
{
    double near_s = CANDIDATES_HOPELESS * find_best_measured(f);
    for (int i = 0; i < f->list.n && !is_over(f); i++) {
        const struct candidate *c = &f->list.list[i];
        if (candidates_may_win(f->request, c) && !c->measured && c->step_s < near_s)
            TRY(clock_candidate(f, i, true));
    }
    return STATUS_OK;
}

static enum status measure_likely(struct finder *f)
{
    enum { MOST_MEASURED = 12 };
    for (; f->n_measured < MOST_MEASURED && !is_over(f); f->n_measured++) {
        int i = find_unmeasured(f, find_best_measured(f));
        if (i < 0)
            return STATUS_OK;
        TRY(clock_candidate(f, i, false));
        f->list.list[i].measured = true;
        TRY(look_again(f));
    }
    return STATUS_OK;
}

/* ---- levels ---- */

static void add_level(struct finder *f, int n_workers)
{
    int at = 0;
    while (at < f->n_levels && f->levels[at] < n_workers)
        at++;
    if ((at < f->n_levels && f->levels[at] == n_workers) || f->n_levels == MOST_LEVELS)
        return;
    for (int i = f->n_levels++; i > at; i--)
        f->levels[i] = f->levels[i - 1];
    f->levels[at] = n_workers;
}

/* A larger machine of the same nodes has all levels of a smaller one, so that it is never worse. */
static void find_levels(struct finder *f)
{
    const struct machine *m = f->request->machine;
    int all = f->request->n_workers, node = int_min(m->nodes[0].n_devices, all);
    add_level(f, all);
    for (int n = 1; n < node; n *= 2)
        add_level(f, n);
    for (int n = node; n < all; n *= 2)
        add_level(f, n);
    for (int n = all; n > 1; n /= 2)
        add_level(f, n);
    add_level(f, 1);
}

static void name_level(struct finder *f, int n_workers)
{
    f->list.suffix[0] = '\0';
    if (n_workers > 1 && n_workers < f->request->n_workers)
        (void)snprintf(f->list.suffix, sizeof f->list.suffix, " on %d", n_workers);
}

/* Plain data parallelism on all workers, which all others are held against, and one worker, for the
 * speed that more of them give. */
static enum status clock_first(struct finder *f)
{
    int all = f->request->n_workers;
    TRY(candidates_list_simple(f->request, all, &f->list));
    if (all > 1)
        TRY(candidates_list_simple(f->request, 1, &f->list));
    TRY(estimate_from(f, 0));
    for (int i = 0; i < f->list.n; i++)
        TRY(clock_candidate(f, i, false));
    return STATUS_OK;
}

/* Where costs are measured a plan takes seconds: of fewer workers the plainest is enough. */
static enum status list_fewer(struct finder *f)
{
    int first = f->list.n;
    for (int i = 0; i + 1 < f->n_levels; i++) {
        if (f->levels[i] == 1)
            continue;
        name_level(f, f->levels[i]);
        TRY(candidates_list_simple(f->request, f->levels[i], &f->list));
    }
    name_level(f, f->request->n_workers);
    return estimate_from(f, first);
}

static struct candidate *find_plain(const struct finder *f, int n_workers)
{
    for (int i = 0; i < f->list.n; i++)
        if (f->list.list[i].plain && f->list.list[i].plan->n_workers == n_workers)
            return &f->list.list[i];
    return NULL;
}

/* Where the plain form does not fit, those that need less. */
static enum status list_thrifty(struct finder *f)
{
    const struct candidate *plain = find_plain(f, f->level);
    int first = f->list.n;
    if (plain && plain->fits)
        return STATUS_OK;
    TRY(candidates_list_thrifty(f->request, f->level, &f->list));
    return estimate_from(f, first);
}

/* Of the time there is a part is left for the clock. The best cut of every layer is all or nothing,
 * pipelines are found one after the other: these have to end sooner. */
static bool is_search_over(struct finder *f, double share, const char *what)
{
    static const double SHOWN_EVERY_S = 0.2;
    double limit_s = f->request->limit_s, now_s = elapsed_s(f);
    if (now_s > f->shown_s + SHOWN_EVERY_S) {
        show(f, what);
        f->shown_s = now_s;
    }
    bool spent = limit_s > 0 ? now_s > share * limit_s : ++f->n_questions > CANDIDATES_QUESTIONS;
    f->search_cut = f->search_cut || spent;
    return spent || is_over(f);
}

static bool stop_layers(void *user, double best, double bound)
{
    (void)best;
    (void)bound;
    return is_search_over(user, 0.65, "searching the best cuts");
}

static bool stop_pipelines(void *user, double best, double bound)
{
    (void)best;
    (void)bound;
    return is_search_over(user, 0.5, "searching pipelines");
}

static enum status list_searched(struct finder *f)
{
    int first = f->list.n;
    struct candidate_request within = *f->request;
    within.n_workers = f->level;
    if (within.named_only || f->level == 1 || !f->costs.known || is_over(f))
        return STATUS_OK;
    const struct search_options layers = {.stop = stop_layers, .user = f};
    const struct search_options pipelines = {.stop = stop_pipelines, .user = f};
    TRY(candidates_list_searched(&within, &f->costs, &layers, &pipelines, &f->list));
    return estimate_from(f, first);
}

static bool fits_any(const struct finder *f)
{
    for (int i = 0; i < f->list.n; i++) {
        const struct candidate *c = &f->list.list[i];
        if (c->state == CANDIDATE_CLOCKED && c->fits && c->plan->n_workers <= f->level)
            return true;
    }
    return false;
}

/* Whether the level has had its work. While nothing fits it goes on for long. */
static bool is_spent(struct finder *f)
{
    static const double PATIENCE = 4;
    bool any = fits_any(f);
    bool spent = f->request->limit_s <= 0 && !f->local &&
                 f->n_instrs > (any ? 1 : PATIENCE) * CANDIDATES_INSTRS;
    f->search_cut |= spent;
    return spent;
}

static enum status clock_likely(struct finder *f)
{
    for (int i; !is_over(f) && !is_spent(f) && (i = find_next(f)) >= 0 && !is_late(f);) {
        double start_s = elapsed_s(f);
        TRY(clock_candidate(f, i, true));
        f->longest_s = fmax(f->longest_s, elapsed_s(f) - start_s);
    }
    return STATUS_OK;
}

/* The spares of this level are looked at after all. */
static void take_spares(struct finder *f)
{
    for (int i = 0; i < f->list.n; i++)
        if (f->list.list[i].state == CANDIDATE_SPARE && is_at_hand(f, &f->list.list[i]))
            f->list.list[i].state = CANDIDATE_ESTIMATED;
}

static enum status look_at_level(struct finder *f)
{
    int first = f->list.n;
    TRY(candidates_list_others(f->request, f->level, &f->list));
    TRY(estimate_from(f, first));
    thin_out(f, first);
    TRY(list_thrifty(f));
    TRY(list_searched(f));
    do { /* measuring may have made others likely */
        TRY(clock_likely(f));
        if (f->local && !f->look_only)
            TRY(measure_likely(f));
    } while (!is_over(f) && !is_spent(f) && find_next(f) >= 0 && !is_late(f));
    if (fits_any(f))
        return STATUS_OK;
    take_spares(f);
    return clock_likely(f);
}

/* Plans of a level are chosen only where they are at most so much slower than the fastest: a level
 * that cannot come so near to the best known plan, however it is used, is left out. */
static bool is_level_hopeless(const struct finder *f, const struct candidate *plain)
{
    double known_s = find_best_s(f, f->request->n_workers);
    return plain && !f->local && plain->bound_s > (1 + CANDIDATES_GUESSED) * known_s;
}

static enum status search_level(struct finder *f, int number)
{
    int first = f->list.n;
    f->level = f->levels[number];
    f->n_instrs = f->n_questions = 0;
    name_level(f, f->level);
    if (!find_plain(f, f->level)) {
        TRY(candidates_list_simple(f->request, f->level, &f->list));
        TRY(estimate_from(f, first));
    }
    struct candidate *plain = find_plain(f, f->level);
    if (is_over(f) || (f->level < f->request->n_workers && is_level_hopeless(f, plain)))
        return STATUS_OK;
    if (plain && plain->state == CANDIDATE_ESTIMATED)
        TRY(clock_candidate(f, (int)(plain - f->list.list), true));
    if (plain && plain->state == CANDIDATE_CLOCKED && plain->estimate_s > 0)
        f->off[number] = plain->step_s / plain->estimate_s;
    return f->request->brief && f->level < f->request->n_workers ? STATUS_OK : look_at_level(f);
}

static enum status find_all(struct finder *f)
{
    find_levels(f);
    f->level = f->request->n_workers;
    TRY(clock_first(f));
    if (f->local && f->request->fewer)
        TRY(list_fewer(f));
    for (int i = f->local || !f->request->fewer ? f->n_levels - 1 : 0; i < f->n_levels; i++)
        TRY(search_level(f, i));
    return STATUS_OK;
}

static int compare_rank(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    bool x_clocked = x->state == CANDIDATE_CLOCKED, y_clocked = y->state == CANDIDATE_CLOCKED;
    if (x_clocked != y_clocked)
        return x_clocked ? -1 : 1;
    return (x->step_s > y->step_s) - (x->step_s < y->step_s);
}

static int find_named(const struct candidate_set *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->list[i].name, name) == 0)
            return i;
    return -1;
}

static enum status hand_over(struct finder *f, struct candidate_set *s)
{
    const struct candidate_request *r = f->request;
    int kept = 0;
    for (int i = 0; i < f->list.n; i++) {
        struct candidate *c = &f->list.list[i];
        if (c->state == CANDIDATE_REFUSED || c->state == CANDIDATE_SPARE) {
            plan_destroy(c->plan);
            continue;
        }
        if (c->state == CANDIDATE_ESTIMATED) /* as the clock would have it */
            c->step_s = expected_s(f, c);
        f->list.list[kept++] = *c;
    }
    f->list.n = kept;
    qsort(f->list.list, (size_t)f->list.n, sizeof *f->list.list, compare_rank);
    s->n = f->list.n;
    s->list = f->list.list;
    s->serial = find_named(s, "serial");
    s->data = r->n_workers > 1 ? find_named(s, "data") : s->serial;
    TRY(candidates_choose(r, s));
    if (r->try_plans && !is_stopped(r))
        TRY(candidates_try(r, s));
    s->complete = !f->cut_short && !f->search_cut && !(r->try_plans && is_stopped(r));
    s->search_s = elapsed_s(f);
    return STATUS_OK;
}

enum status candidates_find(const struct candidate_request *request, struct candidate_set **out)
{
    struct finder f = {.request = request, .start_ns = timer_now_ns()};
    struct candidate_set *s;
    arena *memory;
    if (request->n_workers < 1 || request->n_workers > PLAN_MAX_WORKERS)
        return status_fail(STATUS_USAGE, "%d workers: a plan has 1 to %d", request->n_workers,
                           PLAN_MAX_WORKERS);
    TRY(arena_create(&memory));
    enum status st = arena_alloc(memory, sizeof *s, &s);
    if (st != STATUS_OK) {
        arena_destroy(memory);
        return st;
    }
    s->memory = f.list.memory = memory;
    f.list.batch_norm = request->batch_norm;
    st = find_all(&f);
    s->n = f.list.n;
    s->list = f.list.list;
    if (st == STATUS_OK)
        st = hand_over(&f, s);
    if (st == STATUS_OK)
        *out = s;
    else
        candidates_destroy(s);
    return st;
}

enum status candidates_add(const struct candidate_request *request, struct candidate_set *s,
                           const char *name, struct plan *plan, int *index)
{
    struct finder f = {.request = request,
                       .list = {.memory = s->memory,
                                .n = s->n,
                                .capacity = s->n,
                                .list = s->list,
                                .batch_norm = request->batch_norm}};
    TRY(candidate_append(&f.list, name, FAMILY_PER_LAYER, plan));
    *index = s->n;
    s->n = f.list.n;
    s->list = f.list.list;
    TRY(estimate_from(&f, *index));
    TRY(clock_candidate(&f, *index, false));
    TRY(candidates_check_memory(request, &s->list[*index]));
    if (s->list[*index].state == CANDIDATE_REFUSED)
        return status_fail(STATUS_USAGE, "%s cannot be run", name);
    return STATUS_OK;
}

void candidates_destroy(struct candidate_set *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++)
        plan_destroy(s->list[i].plan);
    arena_destroy(s->memory);
}
