#include "base/timer.h"
#include "runtime/stop.h"
#include "runtime/trainer_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The callbacks of one trainer_run. */
struct listener {
    const struct trainer_callbacks *calls;
    void *user;
};

/* The loader does not know about steps; what it reports must name one. */
static enum status name_step(enum status st, int64_t step)
{
    struct status_error cause;
    status_take(st, &cause);
    return status_fail(st, "step %lld: %.960s", (long long)step, cause.message);
}

static enum status stop_and_save(trainer *t)
{
    const char *signal_name = stop_signal_name(stop_requested());
    long long step = t->state.step;
    TRY(trainer_save(t));
    if (!*t->checkpoint)
        return status_fail(STATUS_STOPPED,
                           "stopped by %s at step %lld; nothing was saved: no checkpoint is named",
                           signal_name, step);
    return status_fail(STATUS_STOPPED, "stopped by %s at step %lld; saved to %s.json", signal_name,
                       step, t->checkpoint);
}

/* ---- one step -------------------------------------------------------------------------------- */

static enum status compute(trainer *t, const struct batch *b, struct executor_result *result,
                           struct trainer_step *report)
{
    const struct trainer_info *i = &t->info;
    int64_t number = t->state.step + 1;
    struct update_rule rule = t->options.rule;
    rule.step = number;
    rule.learning_rate = schedule_rate(&t->options.schedule, rule.learning_rate, t->state.step,
                                       i->steps_per_epoch, t->schedule_steps);
    struct executor_batch batch = {b->images, b->labels};
    struct step_state state = {t->options.seed, (uint32_t)number};
    enum trainer_program which = b->n_samples == i->batch ? PROGRAM_TRAIN : PROGRAM_TRAIN_SHORT;
    TRY(executor_step(t->executor, t->executor_program[which], &batch, &state, &rule, result));
    report->learning_rate = rule.learning_rate;
    return STATUS_OK;
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
    t->waits_ns += s->wait_ns;
    s->images_per_s = (double)t->info.batch / fmax(t->smooth_step_s, 1e-9);
    s->eta_s = t->smooth_step_s * (double)(s->steps_total - s->step);
}

/* Trains on the next batch; s->n_samples is 0 at the end of the epoch. */
static enum status run_step(trainer *t, struct trainer_step *s)
{
    struct batch b;
    struct executor_result result;
    int64_t start_ns = timer_now_ns();
    enum status st = loader_next(t->train_loader, &b);
    if (st != STATUS_OK)
        return name_step(st, t->state.step + 1);
    *s = (struct trainer_step){.n_samples = b.n_samples};
    if (b.n_global == 0)
        return STATUS_OK;
    st = compute(t, &b, &result, s);
    loader_release(t->train_loader);
    TRY(st);

    struct checkpoint_state *state = &t->state;
    state->step++;
    state->position++;
    state->loss_sum += result.loss * (double)b.n_samples;
    state->n_seen += b.n_samples;
    t->done.last_loss = s->loss = result.loss;
    s->step = state->step;
    s->steps_total = t->info.steps_total;
    s->epoch = state->epoch + 1;
    s->step_ns = timer_now_ns() - start_ns;
    s->compute_ns = result.compute_ns;
    s->wait_ns = b.wait_ns;
    take_times(t, s);
    return STATUS_OK;
}

static bool save_is_due(const trainer *t)
{
    const struct trainer_options *o = &t->options;
    if (o->checkpoint_every_steps && t->state.step % o->checkpoint_every_steps == 0)
        return true;
    double since_s = (double)(timer_now_ns() - t->saved_at_ns) * 1e-9;
    return o->checkpoint_every_s > 0 && since_s >= o->checkpoint_every_s;
}

static enum status after_step(trainer *t, const struct trainer_step *s, const struct listener *to)
{
    if (to->calls->on_step)
        TRY(to->calls->on_step(s, to->user));
    if (stop_requested())
        return stop_and_save(t);
    if (save_is_due(t))
        TRY(trainer_save(t));
    return STATUS_OK;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static enum status evaluate_batches(trainer *t, double *loss_sum, int64_t *n_correct)
{
    const struct trainer_info *i = &t->info;
    struct step_state state = {t->options.seed, (uint32_t)t->state.step};
    TRY(loader_start(t->test_loader, 0, 0));
    for (;;) {
        struct batch b;
        struct executor_result result;
        TRY(loader_next(t->test_loader, &b));
        if (b.n_global == 0)
            return STATUS_OK;
        bool full = b.n_samples == i->eval_batch;
        struct executor_batch batch = {b.images, b.labels};
        int program = t->executor_program[full ? PROGRAM_EVAL : PROGRAM_EVAL_SHORT];
        enum status st = executor_step(t->executor, program, &batch, &state, NULL, &result);
        loader_release(t->test_loader);
        TRY(st);
        *loss_sum += result.loss * (double)b.n_samples;
        *n_correct += result.correct;
        if (stop_requested())
            return stop_and_save(t);
    }
}

/* Fills the result into t->done, unless there is no test split or it is known already. */
static enum status evaluate(trainer *t)
{
    double loss_sum = 0;
    int64_t n_correct = 0;
    if (t->info.n_test == 0 || t->evaluated_step == t->state.step)
        return STATUS_OK;
    enum status st = evaluate_batches(t, &loss_sum, &n_correct);
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
        TRY(to->calls->on_epoch(&report, to->user));
    if (t->options.checkpoint_each_epoch)
        TRY(trainer_save(t));
    return STATUS_OK;
}

/* From where the state stands to the end of the epoch or of the run. */
static enum status run_epoch(trainer *t, const struct listener *to)
{
    int64_t start_ns = timer_now_ns();
    const struct trainer_info *i = &t->info;
    if (t->state.position < i->steps_per_epoch)
        TRY(loader_start(t->train_loader, t->state.epoch, t->state.position));
    while (t->state.position < i->steps_per_epoch && t->state.step < i->steps_total) {
        struct trainer_step s = {0};
        TRY(run_step(t, &s));
        if (s.n_samples == 0)
            return status_fail(STATUS_FAILED, "step %lld: the data ended after batch %lld of %lld",
                               (long long)t->state.step + 1, (long long)t->state.position,
                               (long long)i->steps_per_epoch);
        TRY(after_step(t, &s, to));
    }
    if (t->state.position == i->steps_per_epoch)
        TRY(finish_epoch(t, start_ns, to));
    return STATUS_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the ring, which is not needed any more. */
static double median_step_s(trainer *t)
{
    int64_t n = t->n_steps_run < STEP_TIMES ? t->n_steps_run : STEP_TIMES;
    if (n == 0)
        return 0;
    qsort(t->step_times_ns, (size_t)n, sizeof *t->step_times_ns, compare_times);
    int64_t low = t->step_times_ns[(n - 1) / 2], high = t->step_times_ns[n / 2];
    return (double)(low + high) * 0.5e-9;
}

static void summarise(trainer *t, int64_t start_ns)
{
    struct trainer_done *d = &t->done;
    d->steps = t->state.step;
    d->steps_run = t->n_steps_run;
    d->median_step_s = median_step_s(t);
    d->images_per_s = d->median_step_s > 0 ? (double)t->info.batch / d->median_step_s : 0;
    d->wait_share = t->steps_ns > 0 ? (double)t->waits_ns / (double)t->steps_ns : 0;
    d->memory_bytes = t->info.memory_bytes;
    d->seconds = (double)(timer_now_ns() - start_ns) * 1e-9;
}

enum status trainer_run(trainer *t, const struct trainer_callbacks *callbacks, void *user)
{
    static const struct trainer_callbacks silent;
    const struct listener to = {callbacks ? callbacks : &silent, user};
    int64_t start_ns = timer_now_ns();
    t->saved_at_ns = start_ns;
    /* A finished epoch may still lack its evaluation even though all steps are done. */
    while (t->state.step < t->info.steps_total || t->state.position == t->info.steps_per_epoch)
        TRY(run_epoch(t, &to));
    TRY(evaluate(t));
    TRY(trainer_save(t));
    summarise(t, start_ns);
    if (to.calls->on_done)
        TRY(to.calls->on_done(&t->done, user));
    return STATUS_OK;
}
