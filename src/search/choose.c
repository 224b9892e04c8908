/* Which of the candidates to use: by the clock, by memory, and by a trial of the best few. */
#include "base/log.h"
#include "base/text.h"
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

/* Once some were tried, one of them wins; not one that was dropped. A trial that had no room for
 * data parallelism or one worker says nothing against them. */
static bool is_eligible(const struct candidate_request *r, const struct candidate_set *s, int i)
{
    const struct candidate *c = &s->list[i];
    if (!candidates_may_win(r, c))
        return false;
    if (s->n_tried == 0 || (c->tried_s <= 0 && (i == s->data || i == s->serial)))
        return true;
    return c->tried_s > 0 && !c->tried_behind;
}

double candidates_known_s(const struct candidate_set *s, int i)
{
    const struct candidate *c = &s->list[i];
    if (c->tried_s > 0)
        return c->tried_s;
    return s->n_tried > 0 && s->tried_scale > 0 ? s->tried_scale * c->step_s : c->step_s;
}

static bool is_beaten(const struct candidate_set *s, int i)
{
    if (s->n_tried == 0)
        return candidates_beats(&s->list[s->fastest], &s->list[i]);
    return candidates_known_s(s, i) > (1 + CANDIDATES_TRIED) * candidates_known_s(s, s->fastest);
}

/* Plain data parallelism on so many workers, or one worker; -1: it may not win. */
static int find_plain(const struct candidate_request *r, const struct candidate_set *s,
                      int n_workers)
{
    for (int i = 0; i < s->n; i++)
        if (s->list[i].plain && s->list[i].plan->n_workers == n_workers && is_eligible(r, s, i))
            return i;
    return -1;
}

/* A plan that may win in place of the fastest. For simplicity's sake some speed is given up against
 * other plans, but none against plain data parallelism, nor against the choice for fewer workers.
 */
static bool is_as_good(const struct candidate_request *r, const struct candidate_set *s, int i)
{
    return is_eligible(r, s, i) && !is_beaten(s, i) && candidates_known_s(s, i) <= s->most_s;
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

/* Of the plans for at most so many workers. */
static void choose_within(const struct candidate_request *r, struct candidate_set *s, int n_workers)
{
    int plain = find_plain(r, s, n_workers);
    s->best = s->fastest = -1;
    for (int i = 0; i < s->n; i++)
        if (s->list[i].plan->n_workers <= n_workers && is_eligible(r, s, i) &&
            (s->fastest < 0 || candidates_known_s(s, i) < candidates_known_s(s, s->fastest)))
            s->fastest = i;
    s->best = s->fastest;
    if (plain >= 0)
        s->most_s = fmin(s->most_s, candidates_known_s(s, plain));
    for (int i = 0; i < s->n; i++)
        if (s->list[i].plan->n_workers <= n_workers && is_as_good(r, s, i) &&
            compare_simplicity(&s->list[i], &s->list[s->best]) < 0)
            s->best = i;
    if (s->best < 0)
        return;
    s->best = find_thriftiest(r, s, s->best);
    s->most_s = fmin(s->most_s, candidates_known_s(s, s->best));
}

static int find_more_workers(const struct candidate_set *s, int n_workers)
{
    int next = 0;
    for (int i = 0; i < s->n; i++) {
        int n = s->list[i].plan->n_workers;
        next = n > n_workers && (next == 0 || n < next) ? n : next;
    }
    return next;
}

/* Level by level: the choice for a part of the machine is made as if there were no more, and the
 * whole is never slower. Memory in the whole run counts for each: *unchecked, unless it is -1,
 * is a choice of which that is not known. */
static void choose(const struct candidate_request *r, struct candidate_set *s, int *unchecked)
{
    *unchecked = -1;
    s->best = s->fastest = -1;
    s->most_s = INFINITY;
    for (int n = find_more_workers(s, 0); n > 0; n = find_more_workers(s, n)) {
        choose_within(r, s, n);
        if (s->best >= 0 && !s->list[s->best].checked) {
            *unchecked = s->best;
            return;
        }
    }
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
    int unchecked;
    choose(request, s, &unchecked);
    while (unchecked >= 0) {
        TRY(candidates_check_memory(request, &s->list[unchecked]));
        choose(request, s, &unchecked);
    }
    return STATUS_OK;
}

enum status candidates_choose_again(const struct candidate_request *request,
                                    struct candidate_set *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->list[i].state == CANDIDATE_CLOCKED) {
            s->list[i].fits = s->list[i].trains;
            s->list[i].checked = false;
        }
    return candidates_choose(request, s);
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

static bool is_doubtful(const struct candidate *c)
{
    double error_s = hypot(c->error_s, c->tried_noise * c->tried_s);
    return c->tried_s > 0 && !c->tried_behind && fabs(c->tried_s - c->step_s) > error_s;
}

/* The trial and the costs cannot both be right. */
static enum status settle_doubt(const struct candidate_request *r, struct candidate *c)
{
    char tried[32], before[32], now[32];
    if (!is_doubtful(c) || (r->stops && r->stops(r->user)))
        return STATUS_OK;
    c->doubted_s = c->step_s;
    TRY(candidates_measure_again(r, c));
    log_info("%s took %s in the trial, its costs said %s: measured again, they say %s%s", c->name,
             text_seconds(tried, sizeof tried, c->tried_s),
             text_seconds(before, sizeof before, c->doubted_s),
             text_seconds(now, sizeof now, c->step_s),
             is_doubtful(c) ? ", which is still off by more than their error" : "");
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
    for (int k = 0; k < n && r->measures_again; k++)
        TRY(settle_doubt(r, finalists[k]));
    s->tried_scale = finalists[0]->tried_s / finalists[0]->step_s;
    return candidates_choose(r, s);
}
