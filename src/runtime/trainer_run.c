/* The training loop: trainer_run, run_steps, and then the crew. */
#include "base/log.h"
#include "base/numbers.h"
#include "base/progress.h"
#include "base/timer.h"
#include "runtime/stop.h"
#include "runtime/trace.h"
#include "runtime/trainer_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The callbacks of one trainer_run. */
struct listener {
    const struct trainer_callbacks *calls;
    void *user;
};

/* A callback that fails ends the run on all processes. */
static enum status heard(trainer *t, enum status st)
{
    if (st != STATUS_OK)
        crew_abort(t->crew, st);
    return st;
}

enum { ASKED_BY_CALLER = -1 }; /* in place of a signal's number */

void trainer_stop(trainer *t)
{
    atomic_store(&t->asked, true);
}

/* The request to stop: a signal's number, ASKED_BY_CALLER, or 0. With other processes it is the one
 * that all agreed on after the last run, so that all stop at the same step. */
static int stop_signal(const trainer *t)
{
    if (!crew_get_info(t->crew)->alone)
        return (int)t->words.stop;
    return atomic_load(&t->asked) ? ASKED_BY_CALLER : stop_requested();
}

static enum status stop_and_save(trainer *t)
{
    int asked_by = stop_signal(t);
    const char *asker = asked_by == ASKED_BY_CALLER ? "the caller" : stop_signal_name(asked_by);
    long long step = t->state.step;
    atomic_store(&t->asked, false);
    if (*t->checkpoint && t->info.root && asked_by != ASKED_BY_CALLER)
        log_note("%s: it stops, and saves step %lld; a second signal ends it without saving", asker,
                 step);
    TRY(trainer_save(t));
    if (!*t->checkpoint)
        return status_fail(STATUS_STOPPED,
                           "stopped by %s at step %lld; nothing was saved: no checkpoint is named",
                           asker, step);
    return status_fail(STATUS_STOPPED, "stopped by %s at step %lld; saved to %s.json", asker, step,
                       t->checkpoint);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The short batch at the end of an epoch, a whole window where one fits, or one step. */
static enum crew_program choose_program(const trainer *t)
{
    const struct trainer_info *i = &t->info;
    int64_t at = t->state.position, n_full = i->n_train / i->batch;
    if (at == n_full)
        return CREW_TRAIN_SHORT;
    bool fits = at % t->window == 0 && at + t->window <= n_full &&
                t->state.step + t->window <= i->steps_total;
    return fits || t->window == 1 ? CREW_TRAIN : CREW_TRAIN_ONE;
}

static void set_steps(trainer *t, int n_steps)
{
    const struct trainer_options *o = &t->options;
    for (int s = 0; s < n_steps; s++) {
        int64_t number = t->state.step + s;
        struct update_rule *rule = &t->step_rules[s];
        *rule = o->rule;
        rule->step = number + 1;
        rule->learning_rate = schedule_rate(&o->schedule, rule->learning_rate, number,
                                            t->info.steps_per_epoch, t->info.schedule_steps);
        t->step_states[s] = (struct step_state){o->seed, (uint32_t)(number + 1)};
    }
}

/* Times of the whole run, and those that the progress line shows. */
static void take_times(trainer *t, struct trainer_step *s)
{
    double seconds = (double)s->step_ns * 1e-9;
    t->step_times_ns[t->n_steps_run % STEP_TIMES] = s->step_ns;
    /* The first step warms caches up: the second replaces it, later ones are averaged in. */
    double share = t->n_steps_run < 2 ? 1 : 0.1;
    t->smooth_step_s += share * (seconds - t->smooth_step_s);
    t->n_steps_run++;
    t->steps_ns += s->step_ns;
    t->n_images_run += s->n_samples;
    t->waits_ns += s->wait_ns;
    t->computes_ns += s->compute_ns;
    t->data_ns += s->data_ns;
    s->images_per_s = (double)t->info.batch / fmax(t->smooth_step_s, 1e-9);
    s->eta_s = t->smooth_step_s * (double)(s->steps_total - s->step);
}

static struct trainer_step count_step(trainer *t, const struct crew_result *r, double rate,
                                      int64_t step_ns)
{
    struct checkpoint_state *state = &t->state;
    state->step++;
    state->position++;
    state->loss_sum += r->loss * (double)r->n_samples;
    state->n_seen += r->n_samples;
    t->done.last_loss = r->loss;
    struct trainer_step s = {.step = state->step,
                             .steps_total = t->info.steps_total,
                             .epoch = state->epoch + 1,
                             .n_samples = r->n_samples,
                             .loss = r->loss,
                             .learning_rate = rate,
                             .step_ns = step_ns,
                             .compute_ns = r->compute_ns / t->info.workers,
                             .communicate_ns = r->communicate_ns / t->info.workers,
                             .wait_ns = (r->wait_ns + r->data_ns) / t->info.workers,
                             .data_ns = r->data_ns / t->info.workers};
    take_times(t, &s);
    return s;
}

static bool time_to_save(const trainer *t)
{
    double since_s = (double)(timer_now_ns() - t->saved_at_ns) * 1e-9;
    return t->options.checkpoint_every_s > 0 && since_s >= t->options.checkpoint_every_s;
}

static bool save_is_due(const trainer *t, int64_t step_before)
{
    int64_t every = t->options.checkpoint_every_steps;
    if (every && t->state.step / every != step_before / every)
        return true;
    return crew_get_info(t->crew)->alone ? time_to_save(t) : t->words.save != 0;
}

/* Trains on the next batch, or the next window of them. */
static enum status run_steps(trainer *t, const struct listener *to)
{
    int64_t start_ns = timer_now_ns(), step_before = t->state.step;
    enum crew_program which = choose_program(t);
    int n_steps = crew_count_steps(t->crew, which);
    set_steps(t, n_steps);
    t->words = (struct crew_words){stop_requested(), t->info.root && time_to_save(t)};
    TRY(crew_run(t->crew, which, t->step_states, t->step_rules, t->results, &t->words));
    int64_t step_ns = (timer_now_ns() - start_ns) / n_steps;
    for (int s = 0; s < n_steps; s++) {
        struct trainer_step report =
            count_step(t, &t->results[s], t->step_rules[s].learning_rate, step_ns);
        if (to->calls->on_step)
            TRY(heard(t, to->calls->on_step(&report, to->user)));
    }
    if (stop_signal(t))
        return stop_and_save(t);
    return save_is_due(t, step_before) ? trainer_save(t) : STATUS_OK;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Gives the tensors that are saved to all holders: the running statistics of the first holder, and
 * with asynchronous servers their weights. */
static enum status share_saved(const struct tensor_store *tensors, void *user)
{
    const trainer *t = user;
    const struct graph *graph = t->graphs[CREW_TRAIN];
    float *scratch;
    enum status st = tensor_store_alloc_scratch(graph, &scratch);
    for (int i = 0; st == STATUS_OK && i < graph->n_params; i++) {
        if (graph->params[i].spec.trained && !t->plan->asynchronous)
            continue;
        st = tensors->read(tensors->holder, i, TENSOR_WEIGHT, scratch);
        if (st == STATUS_OK)
            st = tensors->write(tensors->holder, i, TENSOR_WEIGHT, scratch);
    }
    free(scratch);
    return st;
}

/* *stops: it was asked to end before all batches were tested. */
static enum status evaluate_batches(trainer *t, double *loss_sum, int64_t *n_correct, bool *stops)
{
    const struct trainer_info *i = &t->info;
    struct step_state state = {t->options.seed, (uint32_t)t->state.step};
    struct progress progress = {0};
    *stops = false;
    if (plan_norms_by_worker(t->plan))
        TRY(crew_with_tensors(t->crew, share_saved, t));
    TRY(crew_start_epoch(t->crew, CREW_EVAL, 0, 0));
    for (int64_t done = 0; done < i->n_test;) {
        struct crew_result result;
        bool full = done + i->eval_batch <= i->n_test;
        t->words = (struct crew_words){.stop = stop_requested()};
        TRY(crew_run(t->crew, full ? CREW_EVAL : CREW_EVAL_SHORT, &state, NULL, &result,
                     &t->words));
        done += full ? i->eval_batch : i->n_test - done;
        *loss_sum += result.loss * (double)result.n_samples;
        *n_correct += result.correct;
        if (i->root)
            progress_show(&progress, (double)done / (double)i->n_test, "testing after step %lld",
                          (long long)t->state.step);
        *stops = stop_signal(t) != 0;
        if (*stops)
            return STATUS_OK;
    }
    return STATUS_OK;
}

/* With the weights that are saved. The workers of asynchronous servers train with older copies of
 * their own, which they get back. */
static enum status evaluate_saved(trainer *t, double *loss_sum, int64_t *n_correct)
{
    bool stops;
    if (t->plan->asynchronous)
        TRY(crew_keep_weights(t->crew));
    TRY(evaluate_batches(t, loss_sum, n_correct, &stops));
    if (t->plan->asynchronous)
        TRY(crew_put_back_weights(t->crew));
    return stops ? stop_and_save(t) : STATUS_OK;
}

/* Fills the result into t->done, unless there is no test split or it is known already. */
static enum status evaluate(trainer *t)
{
    double loss_sum = 0;
    int64_t n_correct = 0;
    if (t->info.n_test == 0 || t->evaluated_step == t->state.step)
        return STATUS_OK;
    enum status st = evaluate_saved(t, &loss_sum, &n_correct);
    if (st == STATUS_STOPPED)
        return st;
    if (st != STATUS_OK) {
        struct status_error cause;
        status_take(st, &cause);
        return status_fail(st, "evaluation after step %lld: %.940s", (long long)t->state.step,
                           cause.message);
    }
    t->evaluated_step = t->state.step;
    t->done.evaluated = true;
    t->done.test_loss = loss_sum / (double)t->info.n_test;
    t->done.test_accuracy = (double)n_correct / (double)t->info.n_test;
    return STATUS_OK;
}

enum status trainer_evaluate(trainer *t, double *loss, double *accuracy)
{
    if (t->info.n_test == 0)
        return status_fail(STATUS_USAGE, "%s: there is nothing to test with", t->options.data);
    TRY(evaluate(t));
    *loss = t->done.test_loss;
    *accuracy = t->done.test_accuracy;
    return STATUS_OK;
}

/* ---- epochs ---------------------------------------------------------------------------------- */

static enum status finish_epoch(trainer *t, int64_t start_ns, const struct listener *to)
{
    struct checkpoint_state *state = &t->state;
    TRY(evaluate(t));
    struct trainer_epoch report = {
        .epoch = state->epoch + 1,
        .step = state->step,
        .train_loss = state->n_seen ? state->loss_sum / (double)state->n_seen : 0,
        .evaluated = t->done.evaluated,
        .test_loss = t->done.test_loss,
        .test_accuracy = t->done.test_accuracy,
        .seconds = (double)(timer_now_ns() - start_ns) * 1e-9,
    };
    state->epoch++;
    state->position = 0;
    state->loss_sum = 0;
    state->n_seen = 0;
    if (to->calls->on_epoch)
        TRY(heard(t, to->calls->on_epoch(&report, to->user)));
    if (t->options.checkpoint_each_epoch)
        TRY(trainer_save(t));
    return STATUS_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void summarise(trainer *t, int64_t start_ns)
{
    struct trainer_done *d = &t->done;
    d->steps = t->state.step;
    d->steps_run = t->n_steps_run;
    int64_t n_times = int64_min(t->n_steps_run, STEP_TIMES);
    d->median_step_s = numbers_median_ns(t->step_times_ns, n_times) * 1e-9; /* sorts the ring */
    d->images_per_s = d->median_step_s > 0 ? (double)t->info.batch / d->median_step_s : 0;
    d->wait_share = t->steps_ns > 0 ? (double)t->waits_ns / (double)t->steps_ns : 0;
    d->data_share = t->steps_ns > 0 ? (double)t->data_ns / (double)t->steps_ns : 0;
    if (t->plan->n_stages > 1 && t->steps_ns > 0)
        d->bubble_share = fmax(1 - (double)t->computes_ns / (double)t->steps_ns - d->data_share, 0);
    d->memory_bytes = t->info.memory_bytes;
    d->bytes_moved = t->info.bytes_moved;
    d->n_skipped = crew_get_info(t->crew)->n_skipped;
    d->seconds = (double)(timer_now_ns() - start_ns) * 1e-9;
    d->overall_images_per_s = (double)t->n_images_run / fmax(d->seconds, 1e-9);
}

enum status trainer_run(trainer *t, const struct trainer_callbacks *callbacks, void *user)
{
    static const struct trainer_callbacks silent;
    const struct listener to = {callbacks && t->info.root ? callbacks : &silent, user};
    const struct trainer_info *i = &t->info;
    const struct checkpoint_state *at = &t->state;
    int64_t start_ns = timer_now_ns(), epoch_ns = start_ns;
    t->saved_at_ns = start_ns;
    /* A finished epoch may still lack its evaluation even though all steps are done. */
    while (at->step < i->steps_total || at->position == i->steps_per_epoch) {
        if (at->position < i->steps_per_epoch)
            TRY(crew_start_epoch(t->crew, CREW_TRAIN, at->epoch, at->position));
        while (at->position < i->steps_per_epoch && at->step < i->steps_total)
            TRY(run_steps(t, &to));
        if (at->position == i->steps_per_epoch)
            TRY(finish_epoch(t, epoch_ns, &to));
        epoch_ns = timer_now_ns();
        if (atomic_load(&t->asked))
            return stop_and_save(t);
    }
    TRY(evaluate(t));
    TRY(trainer_save(t));
    if (t->options.trace)
        TRY(trace_write(t->crew, t->options.trace, t->options.trace_aside));
    summarise(t, start_ns);
    atomic_store(&t->asked, false);
    return to.calls->on_done ? heard(t, to.calls->on_done(&t->done, user)) : STATUS_OK;
}
