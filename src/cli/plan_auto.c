#include "cli/plan_auto.h"

#include "base/log.h"
#include "base/text.h"
#include "cli/plan_choose.h"
#include "runtime/stop.h"
#include "search/title.h"

#include <stdio.h>

static const double LIMIT_S = 60, TRY_S = 5;
/* So many candidates keep their plan and timeline in the record of the run. */
enum { SHOWN_PLANS = 6 };

static void say(const struct chooser *c, const struct candidate_set *set,
                const struct candidate *best)
{
    char title[CANDIDATE_TITLE_BYTES];
    char step[32], error[32], search[32];
    int workers = best->plan->n_workers;
    log_info("plan auto: %s on %d worker%s, %s +- %s a step; found among %d in %s",
             candidate_title(best, c->n_workers, title), workers, workers == 1 ? "" : "s",
             text_seconds(step, sizeof step, best->step_s),
             text_seconds(error, sizeof error, best->error_s), set->n,
             text_seconds(search, sizeof search, set->search_s));
}

/* Timelines are only to be looked at: a run does without them. */
static enum status record_search(struct plan_answer *a, struct auto_plan *out)
{
    enum status st = plan_answer_json(a, &out->search);
    if (st == STATUS_OK || st == STATUS_STOPPED)
        return st;
    log_warn("%s; the record of this run has no timelines of its candidates", status_message());
    status_clear();
    a->details = 0;
    return plan_answer_json(a, &out->search);
}

static enum status take_best(struct chooser *c, struct candidate_set *set, struct auto_plan *out)
{
    if (stop_requested())
        return status_fail(STATUS_STOPPED, "stopped by %s while planning",
                           stop_signal_name(stop_requested()));
    struct plan_answer answer = {.chooser = c, .set = set, .edited = -1, .details = SHOWN_PLANS};
    TRY(chooser_refuse(c, set));
    const struct candidate *best = &set->list[set->best];
    say(c, set, best);
    out->step_s = best->step_s;
    out->error_s = best->error_s;
    TRY(record_search(&answer, out));
    return plan_copy(best->plan, &out->plan);
}

enum status auto_plan_find(struct chooser_options options, struct auto_plan *out)
{
    options.forecast.machine = "local";
    options.fewer = true;
    options.limit_s = LIMIT_S;
    options.try_s = TRY_S;
    struct chooser c;
    struct candidate_set *set = NULL;
    enum status st;
    *out = (struct auto_plan){0};
    TRY_GOTO(st, chooser_open(&c, &options), out);
    TRY_GOTO(st, chooser_find(&c, c.n_workers, &set), out);
    TRY_GOTO(st, take_best(&c, set, out), out);
out:
    candidates_destroy(set);
    chooser_close(&c);
    return st;
}

void auto_plan_free(struct auto_plan *p)
{
    plan_destroy(p->plan);
    json_decref(p->search);
    *p = (struct auto_plan){0};
}

void auto_plan_compare(const struct auto_plan *p, double measured_step_s)
{
    char predicted[32], error[32], measured[32];
    if (!p->plan || measured_step_s <= 0)
        return;
    printf("predicted step %s +- %s, measured %s: %+.1f %%\n",
           text_seconds(predicted, sizeof predicted, p->step_s),
           text_seconds(error, sizeof error, p->error_s),
           text_seconds(measured, sizeof measured, measured_step_s),
           100 * (measured_step_s / p->step_s - 1));
}
