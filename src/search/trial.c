#include "search/trial.h"

#include "base/log.h"
#include "base/numbers.h"
#include "base/timer.h"
#include "plan/plan.h"
#include "runtime/stop.h"
#include "search/training.h"

#include <stdlib.h>

static const double slice_s = 0.1, long_s = 0.03;

/* What is done with one of the plans. */
struct entrant {
    char *text; /* of the plan, for the training */
    training *training;
    int64_t n_seen; /* of the training's times */
};

struct trial {
    const struct trial_request *request;
    int n, n_rounds;
    const struct trial_plan *plans;
    struct entrant *entrants;       /* by plan */
    struct contestant *contestants; /* by plan */
    int64_t trained_ns;             /* after the first round */
};

/* ---- building ---- */

static enum status open_entrant(const struct trial *t, int i)
{
    const struct trial_request *r = t->request;
    const struct trial_plan *p = &t->plans[i];
    struct entrant *e = &t->entrants[i];
    if (!r->quiet)
        log_progress("building %s for a trial", p->name);
    TRY(plan_print(p->plan, r->graph, &e->text));
    struct training_request asked = {.model = r->model,
                                     .data = r->data,
                                     .plan = e->text,
                                     .backend = r->backend,
                                     .workers = p->plan->n_workers,
                                     .threads = r->threads,
                                     .run = r->run,
                                     .window = p->plan->window,
                                     .batch = r->batch,
                                     .slice_s = slice_s,
                                     .long_s = long_s};
    return training_open(&asked, &e->training);
}

static void close_entrant(struct entrant *e)
{
    training_close(e->training);
    free(e->text);
    e->training = NULL;
    e->text = NULL;
}

static void close_all(struct trial *t)
{
    for (int i = 0; i < t->n; i++)
        close_entrant(&t->entrants[i]);
    free(t->entrants);
    free(t->contestants);
}

/* ---- rounds ---- */

/* The middle of the steps that were not seen before. */
static enum status take_times(const struct trial *t, int i)
{
    struct entrant *e = &t->entrants[i];
    const int64_t *times_ns;
    int64_t n = training_times(e->training, &times_ns) - e->n_seen;
    if (n < 1)
        return status_fail(STATUS_USAGE, "%s: the data have too few whole batches to try it",
                           t->plans[i].name);
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted)
        return status_no_memory((size_t)n * sizeof *sorted);
    for (int64_t k = 0; k < n; k++)
        sorted[k] = (double)times_ns[e->n_seen + k] * 1e-9;
    numbers_sort(sorted, (int)n);
    contest_add(&t->contestants[i], numbers_middle(sorted, (int)n));
    e->n_seen += n;
    free(sorted);
    return STATUS_OK;
}

static enum status play_turn(struct trial *t, int who)
{
    struct entrant *e = &t->entrants[who];
    if (!e->training)
        TRY(open_entrant(t, who));
    if (!t->request->quiet)
        log_progress("trying %s, round %d", t->plans[who].name, t->n_rounds + 1);
    int64_t began_ns = timer_now_ns();
    enum status st = training_let(e->training);
    if (t->n_rounds > 0)
        t->trained_ns += timer_now_ns() - began_ns;
    if (stop_requested()) { /* the training may have heard of it as well */
        status_clear();
        return STATUS_OK;
    }
    TRY(st);
    return take_times(t, who);
}

static double trained_s(const struct trial *t)
{
    return (double)t->trained_ns * 1e-9;
}

/* A plan that is out of it leaves its memory to the others: pages are scarce where all plans of a
 * large network are built, and those that remain would be slower than alone. */
static void judge(struct trial *t)
{
    contest_judge(t->contestants, t->n, trained_s(t));
    for (int i = 0; i < t->n; i++)
        if (t->contestants[i].behind)
            close_entrant(&t->entrants[i]);
}

/* Every round begins with another plan: who comes first after a sleep of the machine, or last, is
 * not always the same. In the first one each is built when its turn comes, so that who is far
 * behind is gone before the next one is built. */
static enum status play_round(struct trial *t)
{
    for (int i = 0; i < t->n && !stop_requested(); i++) {
        int who = (t->n_rounds + i) % t->n;
        if (t->contestants[who].behind)
            continue;
        TRY(play_turn(t, who));
        if (t->n_rounds == 0 && t->contestants[0].n_rounds > 0) /* else stopped in its turn */
            judge(t);
    }
    if (!stop_requested())
        t->n_rounds++;
    return STATUS_OK;
}

/* ---- the whole ---- */

static bool is_over(const struct trial *t)
{
    bool late = trained_s(t) > t->request->limit_s && t->n_rounds >= TRIAL_LEAST_ROUNDS;
    return contest_is_decided(t->contestants, t->n) || late || t->n_rounds == CONTEST_MAX_ROUNDS ||
           stop_requested();
}

static enum status play(struct trial *t)
{
    while (!is_over(t)) {
        TRY(play_round(t));
        if (t->contestants[0].n_rounds > 0)
            judge(t);
    }
    return STATUS_OK;
}

static void tell(const struct trial *t, struct trial_plan *plans)
{
    for (int i = 0; i < t->n; i++) {
        const struct contestant *c = &t->contestants[i];
        plans[i].step_s = c->step_s;
        plans[i].noise = c->noise;
        plans[i].n_rounds = c->n_rounds;
        plans[i].behind = c->behind;
    }
}

enum status trial_run(const struct trial_request *request, struct trial_plan *plans, int n)
{
    struct trial t = {.request = request, .n = n, .plans = plans};
    t.entrants = calloc((size_t)n, sizeof *t.entrants);
    t.contestants = calloc((size_t)n, sizeof *t.contestants);
    enum status st = STATUS_OK;
    if (!t.entrants || !t.contestants) {
        t.n = 0;
        st = status_no_memory((size_t)n * (sizeof *t.entrants + sizeof *t.contestants));
    }
    for (int i = 0; i < t.n; i++)
        t.contestants[i].aside = plans[i].aside;
    if (t.n > 0)
        st = play(&t);
    tell(&t, plans);
    log_progress_end();
    close_all(&t);
    return st;
}
