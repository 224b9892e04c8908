/* Which of the candidates to use: by the clock, by memory, and by a trial of the best few. */
#include "search/candidates.h"

#include <math.h>

/* ---- by the clock ---- */

bool candidates_may_win(const struct candidate_request *r, const struct candidate *c)
{
    bool dear = r->most_worker_s > 0 && c->plan->n_workers * c->step_s > r->most_worker_s;
    return c->state == CANDIDATE_CLOCKED && c->fits && !dear && (r->allow_stale || !c->stale);
}

/* Relative error of its computing: the error bar less the part of waiting, and less what the host
 * wanders, which makes all plans slower alike. */
static double compute_error(const struct candidate *c)
{
    static const double WAIT_ERROR = 0.15;
    double all_s = c->compute_s + c->wait_s;
    double whole = c->error_s / c->step_s * all_s, waiting = WAIT_ERROR * c->wait_s;
    double square = whole * whole - waiting * waiting - c->wander * c->wander * all_s * all_s;
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

/* Of those that were tried, and to the end. */
static bool is_finalist(const struct candidate *c)
{
    return c->tried_s > 0 && !c->tried_behind;
}

/* Once some were tried, one of them it is. */
static bool is_eligible(const struct candidate_request *r, const struct candidate_set *s, int i)
{
    return candidates_may_win(r, &s->list[i]) && (s->n_tried == 0 || is_finalist(&s->list[i]));
}

/* How much slower or faster than predicted the machine was during the trial. */
static double find_weather(const struct candidate_set *s)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (is_finalist(&s->list[i])) {
            sum += log(s->list[i].tried_s / s->list[i].step_s);
            n++;
        }
    return n ? exp(sum / n) : 1;
}

double candidates_known_s(const struct candidate_set *s, int i)
{
    const struct candidate *c = &s->list[i];
    if (s->n_tried == 0)
        return c->step_s;
    double clocked_s = c->step_s * find_weather(s);
    if (c->tried_s <= 0)
        return clocked_s;
    double noise = c->tried_noise;
    double clock = fmax(CANDIDATES_CLOCK_ERROR, fabs(log(c->tried_s / clocked_s)) - 2 * noise);
    double trust = c->tried_behind ? 1 : clock * clock / (clock * clock + noise * noise);
    return pow(c->tried_s, trust) * pow(clocked_s, 1 - trust);
}

static bool is_beaten(const struct candidate_set *s, int i)
{
    if (s->n_tried == 0)
        return candidates_beats(&s->list[s->fastest], &s->list[i]);
    double noise = hypot(s->list[i].tried_noise, s->list[s->fastest].tried_noise);
    double margin = fmin(fmax(CANDIDATES_NOISE, noise), CANDIDATES_TRIED);
    return candidates_known_s(s, i) > (1 + margin) * candidates_known_s(s, s->fastest);
}

/* For simplicity's sake some speed is given up against other plans, but none against plain data
 * parallelism: what is slower by all that is known is not recommended in its place. */
static bool is_behind_data(const struct candidate_request *r, const struct candidate_set *s, int i)
{
    return s->data >= 0 && is_eligible(r, s, s->data) &&
           candidates_known_s(s, i) > candidates_known_s(s, s->data);
}

/* Of plans that are as simple and as fast, the one that moves least: it leaves most of the links to
 * others. */
static int find_thriftiest(const struct candidate_request *r, const struct candidate_set *s,
                           int best)
{
    double most_s = (1 + CANDIDATES_NOISE) * candidates_known_s(s, best);
    int found = best;
    for (int i = 0; i < s->n; i++)
        if (is_eligible(r, s, i) && candidates_known_s(s, i) <= most_s && !is_beaten(s, i) &&
            !is_behind_data(r, s, i) && s->list[i].bytes_moved < s->list[found].bytes_moved &&
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
        if (is_eligible(r, s, i) && compare_simplicity(&s->list[i], &s->list[s->best]) < 0 &&
            !is_beaten(s, i) && !is_behind_data(r, s, i))
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

/* What may be in a trial: the plans are in memory together. */
struct finalists {
    int n, index[CANDIDATES_MOST_TRIED];
    double share; /* of the host's memory, by those so far */
};

static enum status consider(const struct candidate_request *r, struct candidate_set *s, int i,
                            struct finalists *f)
{
    static const double MOST_MEMORY = 0.75;
    for (int k = 0; k < f->n; k++)
        if (f->index[k] == i)
            return STATUS_OK;
    if (f->n == CANDIDATES_MOST_TRIED || !candidates_may_win(r, &s->list[i]))
        return STATUS_OK;
    if (!s->list[i].checked)
        TRY(candidates_check_memory(r, &s->list[i]));
    const struct candidate *c = &s->list[i];
    double share = c->limit_bytes > 0 ? (double)c->needed_bytes / (double)c->limit_bytes : 0;
    if (c->fits && f->share + share <= MOST_MEMORY) {
        f->share += share;
        f->index[f->n++] = i;
    }
    return STATUS_OK;
}

/* The choice of the clock, the two plainest plans whatever the clock says of them, who comes near,
 * and who comes next where these are few. */
static enum status find_finalists(const struct candidate_request *r, struct candidate_set *s,
                                  struct finalists *f)
{
    double near_s = CANDIDATES_NEAR * s->list[s->best].step_s;
    TRY(consider(r, s, s->best, f));
    if (s->data >= 0)
        TRY(consider(r, s, s->data, f));
    if (s->serial >= 0)
        TRY(consider(r, s, s->serial, f));
    for (int i = 0; i < s->n; i++) /* one that was found too large since may stand before others */
        if (s->list[i].step_s < near_s || f->n < CANDIDATES_LEAST_TRIED)
            TRY(consider(r, s, i, f));
    return STATUS_OK;
}

enum status candidates_try(const struct candidate_request *r, struct candidate_set *s)
{
    struct finalists f = {0};
    struct candidate *finalists[CANDIDATES_MOST_TRIED];
    if (s->best < 0)
        return STATUS_OK;
    TRY(find_finalists(r, s, &f));
    if (f.n < 2)
        return STATUS_OK;
    for (int k = 0; k < f.n; k++)
        finalists[k] = &s->list[f.index[k]];
    TRY(r->try_plans(r->user, f.n, finalists));
    for (int k = 0; k < f.n; k++)
        s->n_tried += finalists[k]->tried_s > 0;
    return candidates_choose(r, s);
}
