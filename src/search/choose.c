/* Which of the candidates to use: by the clock, by memory, and by a trial of the best few. */
#include "base/log.h"
#include "search/candidates.h"
#include "search/trial.h"

#include <math.h>

/* ---- by the clock ---- */

bool candidates_may_win(const struct candidate_request *r, const struct candidate *c)
{
    bool dear = r->most_worker_s > 0 && c->plan->n_workers * c->step_s > r->most_worker_s;
    return c->state == CANDIDATE_CLOCKED && c->fits && !dear && (r->allow_stale || !c->stale);
}

/* Relative error of its computing: the error bar less the part of waiting, and less the part that
 * all plans on this host have in common, which makes them slower alike. */
static double compute_error(const struct candidate *c)
{
    static const double WAIT_ERROR = 0.15;
    double all_s = c->compute_s + c->wait_s;
    double whole = c->error_s / c->step_s * all_s, waiting = WAIT_ERROR * c->wait_s;
    double square =
        whole * whole - waiting * waiting - c->host_error * c->host_error * all_s * all_s;
    return c->compute_s > 0 ? sqrt(fmax(0, square)) / c->compute_s : 0;
}

bool candidates_beats(const struct candidate *a, const struct candidate *b)
{
    double margin_s = b->step_s - a->step_s;
    double r = fmax(compute_error(a), compute_error(b));
    double guessed = fmax(a->share[COST_ROOFLINE], b->share[COST_ROOFLINE]);
    double most = CANDIDATES_GIVEN_UP + (CANDIDATES_GUESSED - CANDIDATES_GIVEN_UP) * guessed;
    double least = CANDIDATES_NOISE + (CANDIDATES_ROUGH - CANDIDATES_NOISE) * guessed;
    double error_s = hypot(r * (b->compute_s - a->compute_s), 0.15 * (b->wait_s - a->wait_s));
    error_s = fmax(least * a->step_s, fmin(error_s, most * a->step_s));
    return margin_s > error_s;
}

/* ---- by simplicity ---- */

static int count_recomputed(const struct plan *plan)
{
    int n = 0;
    for (int i = 1; i < plan->n_layers; i++)
        n += plan->layers[i].recompute;
    return n;
}

static int sign(int64_t n)
{
    return (n > 0) - (n < 0);
}

/* < 0: a is simpler than b. Fewer workers are simpler than another way to split the work. */
static int compare_simplicity(const struct candidate *a, const struct candidate *b)
{
    const struct plan *p = a->plan, *q = b->plan;
    const int by[] = {sign((int)a->stale - (int)b->stale),
                      sign((int)a->family - (int)b->family),
                      sign(p->n_workers - q->n_workers),
                      sign(p->n_stages - q->n_stages),
                      sign(count_recomputed(p) - count_recomputed(q)),
                      sign(p->micro_batches - q->micro_batches),
                      sign((int)p->sync - (int)q->sync)};
    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (by[i] != 0)
            return by[i];
    return 0;
}

/* ---- the choice ---- */

/* Once some were tried, one of them wins; not one that was dropped. */
static bool is_eligible(const struct candidate_request *r, const struct candidate_set *s, int i)
{
    const struct candidate *c = &s->list[i];
    return candidates_may_win(r, c) && (s->n_tried == 0 || (c->tried_s > 0 && !c->tried_behind));
}

double candidates_known_s(const struct candidate_set *s, int i)
{
    return s->list[i].tried_s > 0 ? s->list[i].tried_s : s->list[i].step_s;
}

static bool is_beaten(const struct candidate_set *s, int i)
{
    if (s->n_tried == 0)
        return candidates_beats(&s->list[s->fastest], &s->list[i]);
    return candidates_known_s(s, i) > (1 + CANDIDATES_TRIED) * candidates_known_s(s, s->fastest);
}

/* A plan that may win in place of the fastest. For simplicity's sake some speed is given up against
 * other plans, but none against plain data parallelism. */
static bool is_as_good(const struct candidate_request *r, const struct candidate_set *s, int i)
{
    bool slower_than_data = s->data >= 0 && is_eligible(r, s, s->data) &&
                            candidates_known_s(s, i) > candidates_known_s(s, s->data);
    return is_eligible(r, s, i) && !is_beaten(s, i) && !slower_than_data;
}

/* Of plans that are as simple and as fast, the one that moves least: it leaves most of the links to
 * others. */
static int find_thriftiest(const struct candidate_request *r, const struct candidate_set *s,
                           int best)
{
    double most_s = (1 + CANDIDATES_NOISE) * candidates_known_s(s, best);
    int found = best;
    for (int i = 0; i < s->n; i++)
        if (is_as_good(r, s, i) && candidates_known_s(s, i) <= most_s &&
            s->list[i].bytes_moved < s->list[found].bytes_moved &&
            compare_simplicity(&s->list[i], &s->list[best]) == 0)
            found = i;
    return found;
}

static void choose(const struct candidate_request *r, struct candidate_set *s)
{
    s->best = s->fastest = -1;
    for (int i = 0; i < s->n; i++)
        if (is_eligible(r, s, i) &&
            (s->fastest < 0 || candidates_known_s(s, i) < candidates_known_s(s, s->fastest)))
            s->fastest = i;
    s->best = s->fastest;
    for (int i = 0; i < s->n; i++)
        if (is_as_good(r, s, i) && compare_simplicity(&s->list[i], &s->list[s->best]) < 0)
            s->best = i;
    if (s->best >= 0)
        s->best = find_thriftiest(r, s, s->best);
}

enum status candidates_check_memory(const struct candidate_request *request, struct candidate *c)
{
    struct predict_request r;
    struct prediction *p;
    TRY(request->prepare(request->user, c->plan, &r));
    TRY(predict_memory(&r, &p));
    c->fits = p->too_large_worker < 0;
    c->memory_bytes = p->largest_bytes;
    c->needed_bytes = p->needed_bytes;
    c->limit_bytes = p->limit_bytes;
    c->checked = true;
    prediction_destroy(p);
    return STATUS_OK;
}

enum status candidates_choose(const struct candidate_request *request, struct candidate_set *s)
{
    choose(request, s);
    while (s->best >= 0 && !s->list[s->best].checked) {
        TRY(candidates_check_memory(request, &s->list[s->best]));
        choose(request, s);
    }
    return STATUS_OK;
}

/* ---- by a trial ---- */

double candidates_memory_share(const struct candidate *c)
{
    return c->limit_bytes > 0 ? (double)c->needed_bytes / (double)c->limit_bytes : 0;
}

/* Adds candidate i to the n finalists if it may win and there is memory for it beside the first of
 * them; returns how many there are. */
static enum status consider(const struct candidate_request *r, struct candidate_set *s, int i,
                            struct candidate **finalists, int *n)
{
    struct candidate *c = &s->list[i];
    for (int k = 0; k < *n; k++)
        if (finalists[k] == c)
            return STATUS_OK;
    if (*n == CANDIDATES_MOST_TRIED || !candidates_may_win(r, c))
        return STATUS_OK;
    if (!c->checked)
        TRY(candidates_check_memory(r, c));
    double beside = *n > 0 ? candidates_memory_share(finalists[0]) : 0;
    if (c->fits && (*n == 0 || beside + candidates_memory_share(c) <= TRIAL_MOST_MEMORY))
        finalists[(*n)++] = c;
    return STATUS_OK;
}

/* Data parallelism, which all are compared with; the choice of the clock; one worker; those that
 * are near by the clock; and where these are few, those that come next. */
static enum status find_finalists(const struct candidate_request *r, struct candidate_set *s,
                                  struct candidate **finalists, int *n)
{
    double near_s = CANDIDATES_NEAR * s->list[s->best].step_s;
    const struct candidate *best = &s->list[s->best];
    if (s->data >= 0)
        TRY(consider(r, s, s->data, finalists, n));
    TRY(consider(r, s, s->best, finalists, n));
    if (*n > 0 && finalists[*n - 1] != best) {
        log_warn("no trial: memory does not hold %s and %s at the same time; the clock decides",
                 finalists[0]->name, best->name);
        *n = 0;
        return STATUS_OK;
    }
    if (s->serial >= 0)
        TRY(consider(r, s, s->serial, finalists, n));
    for (int i = 0; i < s->n; i++) /* one that was found too large since may stand before others */
        if (s->list[i].step_s < near_s || *n < CANDIDATES_LEAST_TRIED)
            TRY(consider(r, s, i, finalists, n));
    return STATUS_OK;
}

enum status candidates_try(const struct candidate_request *r, struct candidate_set *s)
{
    struct candidate *finalists[CANDIDATES_MOST_TRIED];
    int n = 0;
    if (s->best < 0)
        return STATUS_OK;
    TRY(find_finalists(r, s, finalists, &n));
    if (n < 2)
        return STATUS_OK;
    TRY(r->try_plans(r->user, n, finalists));
    for (int k = 0; k < n; k++)
        s->n_tried += finalists[k]->tried_s > 0;
    return candidates_choose(r, s);
}
