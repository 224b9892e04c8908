/* Predicting and training the plans of one subject, in turns. */
#include "base/log.h"
#include "base/text.h"
#include "base/timer.h"
#include "cli/bench.h"
#include "cli/bench_accuracy.h"
#include "runtime/plan_choice.h"
#include "runtime/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_STEPS = 6, MOST_STEPS = 60, WARMUP_STEPS = 2, PROGRESS_INTERVAL_NS = 200000000 };
static const double turn_s = 2;           /* about as long is one turn of training */
static const double timeout_s = 600;      /* a worker may have to wait for a long step of another */
static const double learning_rate = 1e-3; /* losses stay finite; what is learnt does not matter */

/* ---- progress ---- */

/* Predicting a plan counts as much as training it once: it rehearses it about as long. */
static double left_s(const struct accuracy_study *s, const struct accuracy_subject *subject,
                     int n_done)
{
    double all = (double)subject->n_cases * (double)(s->options->rounds + 1);
    double done = s->weight_done + subject->weight * (double)n_done / all;
    double elapsed_s = (double)(timer_now_ns() - s->began_ns) * 1e-9;
    return done > 0 ? elapsed_s * (1 - done) / done : 0;
}

/* Rounded: it is guessed. */
static const char *time_left(char *buffer, size_t size, double seconds)
{
    if (seconds >= 100)
        return text_seconds(buffer, size, seconds);
    (void)snprintf(buffer, size, "%.0f s", ceil(seconds));
    return buffer;
}

static void show_progress(const struct accuracy_study *s, const struct accuracy_subject *subject,
                          const struct accuracy_case *c, const char *what, int n_done)
{
    char left[32] = "";
    double seconds = left_s(s, subject, n_done);
    if (s->options->quiet)
        return;
    if (seconds > 0)
        (void)time_left(left, sizeof left, seconds);
    log_progress("%s on %s: %s %s, %d worker%s%s%s%s", subject->model, subject->data, what, c->plan,
                 c->workers, c->workers == 1 ? "" : "s", *left ? "; " : "", left,
                 *left ? " left" : "");
}

/* ---- predicting ---- */

/* Takes the reason out of an error that is about these cases alone. */
static enum status skip_cases(struct accuracy_study *s, struct accuracy_case *cases, int n,
                              enum status st)
{
    struct status_error error;
    if (st != STATUS_USAGE && st != STATUS_NO_FIT)
        return st;
    status_take(st, &error);
    for (int i = 0; i < n; i++)
        TRY(arena_copy_text(s->memory, error.message, &cases[i].skipped));
    return STATUS_OK;
}

static int64_t count_windows(const struct accuracy_study *s, const struct accuracy_subject *subject,
                             const struct accuracy_case *c)
{
    return subject->n_train / s->options->forecast.batch / c->window;
}

static enum status check_case(const struct accuracy_study *s,
                              const struct accuracy_subject *subject, const struct accuracy_case *c,
                              const struct prediction *p)
{
    char needed[32], limit[32];
    if (p->too_large_worker >= 0)
        return status_fail(STATUS_NO_FIT, "it does not fit: worker %d needs %s, there are %s",
                           p->too_large_worker,
                           text_bytes(needed, sizeof needed, (double)p->needed_bytes),
                           text_bytes(limit, sizeof limit, (double)p->limit_bytes));
    if (count_windows(s, subject, c) < 1)
        return status_fail(STATUS_USAGE, "the data have no %d whole batch%s of %lld", c->window,
                           c->window == 1 ? "" : "es", (long long)s->options->forecast.batch);
    return STATUS_OK;
}

static int64_t choose_steps(const struct accuracy_options *o, double step_s)
{
    if (o->steps)
        return o->steps;
    double n = ceil(turn_s / fmax(step_s, 1e-9));
    return n < LEAST_STEPS ? LEAST_STEPS : n > MOST_STEPS ? MOST_STEPS : (int64_t)n;
}

/* Whole windows alone count. */
static void take_prediction(const struct accuracy_options *o, const struct prediction *p,
                            struct accuracy_case *c)
{
    c->predicted_s = p->clock.step_s;
    c->error_s = p->clock.error_s;
    memcpy(c->share, p->clock.share, sizeof c->share);
    c->predicted_memory = p->largest_bytes;
    c->predicted_moved = p->clock.bytes_moved;
    c->window = p->programs[0]->n_steps;
    int64_t n_windows = (choose_steps(o, c->predicted_s) + c->window - 1) / c->window;
    c->n_steps = n_windows * c->window;
}

static enum status predict_case(const struct accuracy_study *s,
                                const struct accuracy_subject *subject, struct forecast *f,
                                struct accuracy_case *c)
{
    struct plan_request request = {.n_workers = c->workers};
    struct plan *plan;
    struct prediction *p;
    TRY(plan_choose(c->plan, f->graph, &request, &plan));
    enum status st = forecast_plan(f, plan, false, &p);
    if (st == STATUS_OK) {
        take_prediction(s->options, p, c);
        st = check_case(s, subject, c, p);
        prediction_destroy(p);
    }
    plan_destroy(plan);
    return st;
}

/* The cases from `first` on that have as many workers: they share what is measured of the host. */
static int count_alike(const struct accuracy_subject *subject, int first)
{
    int n = 1;
    while (first + n < subject->n_cases &&
           subject->cases[first + n].workers == subject->cases[first].workers)
        n++;
    return n;
}

static enum status predict_with(struct accuracy_study *s, struct accuracy_subject *subject,
                                struct forecast *f, int first, int n)
{
    subject->n_train = f->data.n_train;
    for (int i = first; i < first + n; i++) {
        struct accuracy_case *c = &subject->cases[i];
        show_progress(s, subject, c, "predicting", i);
        TRY(skip_cases(s, c, 1, predict_case(s, subject, f, c)));
    }
    return STATUS_OK;
}

static enum status predict_alike(struct accuracy_study *s, struct accuracy_subject *subject,
                                 int first, int n)
{
    struct forecast_options o = s->options->forecast;
    struct forecast f;
    o.model = subject->model;
    o.data = subject->data;
    enum status st = forecast_open(&f, &o, subject->cases[first].workers);
    if (st == STATUS_OK)
        st = predict_with(s, subject, &f, first, n);
    else /* the network may not suit the data */
        st = skip_cases(s, &subject->cases[first], n, st);
    forecast_close(&f);
    return st;
}

static enum status predict_all(struct accuracy_study *s, struct accuracy_subject *subject)
{
    for (int i = 0, n; i < subject->n_cases; i += n) {
        n = count_alike(subject, i);
        TRY(predict_alike(s, subject, i, n));
    }
    return STATUS_OK;
}

/* ---- training ---- */

/* One turn of one case, while it runs. */
struct turn {
    const struct accuracy_study *study;
    const struct accuracy_subject *subject;
    const struct accuracy_case *c;
    int n_before;                         /* turns of the subject that are done */
    int64_t steps_per_epoch, whole_steps; /* of an epoch, and of them in whole windows */
    int64_t n_warmup, n_seen;             /* steps in whole windows */
    int64_t *times_ns;                    /* those behind the warm-up */
    int64_t next_progress_ns;
};

static enum status on_step(const struct trainer_step *step, void *user)
{
    struct turn *t = user;
    int64_t now_ns = timer_now_ns();
    if (now_ns >= t->next_progress_ns) {
        t->next_progress_ns = now_ns + PROGRESS_INTERVAL_NS;
        show_progress(t->study, t->subject, t->c, "training", t->n_before);
    }
    if ((step->step - 1) % t->steps_per_epoch >= t->whole_steps)
        return STATUS_OK;
    int64_t at = t->n_seen++ - t->n_warmup;
    if (at >= 0 && at < t->c->n_steps)
        t->times_ns[at] = step->step_ns;
    return STATUS_OK;
}

/* The steps of a run in which that many are in whole windows, the last of them at its end. */
static int64_t count_steps(const struct turn *t, int64_t n_counted)
{
    int64_t n_epochs = (n_counted - 1) / t->whole_steps;
    return n_epochs * t->steps_per_epoch + n_counted - n_epochs * t->whole_steps;
}

static struct trainer_options describe_run(const struct turn *t)
{
    const struct forecast_options *f = &t->study->options->forecast;
    struct trainer_options o = trainer_default_options();
    o.model = t->subject->model;
    o.data = t->subject->data;
    o.batch = f->batch;
    o.epochs = 0;
    o.max_steps = count_steps(t, t->n_warmup + t->c->n_steps);
    o.backend = f->backend;
    o.threads = (int)f->threads;
    o.workers = t->c->workers;
    o.plan = t->c->plan;
    o.timeout_s = timeout_s;
    o.rule.learning_rate = learning_rate;
    o.evaluate = false;
    return o;
}

static enum status run_turn(struct turn *turn, struct accuracy_case *c)
{
    const struct trainer_options o = describe_run(turn);
    const struct trainer_callbacks calls = {.on_step = on_step};
    trainer *t;
    TRY(trainer_create(&o, &t));
    c->memory = trainer_get_info(t)->memory_bytes;
    c->moved = trainer_get_info(t)->bytes_moved;
    enum status st = trainer_run(t, &calls, turn);
    trainer_destroy(t);
    if (st == STATUS_OK && turn->n_seen < turn->n_warmup + c->n_steps)
        st = status_fail(STATUS_FAILED, "%s: its epochs are shorter than expected", o.data);
    return st;
}

static enum status train_case(const struct accuracy_study *s,
                              const struct accuracy_subject *subject, struct accuracy_case *c,
                              int n_before)
{
    int64_t batch = s->options->forecast.batch;
    struct turn t = {.study = s,
                     .subject = subject,
                     .c = c,
                     .n_before = n_before,
                     .steps_per_epoch = (subject->n_train + batch - 1) / batch,
                     .whole_steps = count_windows(s, subject, c) * c->window,
                     .n_warmup = c->window > 1 ? c->window : WARMUP_STEPS};
    show_progress(s, subject, c, "training", n_before);
    t.times_ns = calloc((size_t)c->n_steps, sizeof *t.times_ns);
    if (!t.times_ns)
        return status_no_memory((size_t)c->n_steps * sizeof *t.times_ns);
    enum status st = run_turn(&t, c);
    if (st == STATUS_OK)
        c->rounds_ns[c->n_rounds++] = bench_median(t.times_ns, c->n_steps);
    free(t.times_ns);
    return st;
}

/* Every other round goes backwards, and each pair of them begins elsewhere, so that no plan always
 * follows the same one. */
static int choose_turn(int round, int i, int n)
{
    int at = (i + round / 2) % n;
    return round % 2 ? n - 1 - at : at;
}

static enum status train_all(struct accuracy_study *s, struct accuracy_subject *subject)
{
    int n = subject->n_cases;
    for (int round = 0; round < (int)s->options->rounds; round++)
        for (int i = 0; i < n; i++) {
            struct accuracy_case *c = &subject->cases[choose_turn(round, i, n)];
            if (!c->skipped)
                TRY(train_case(s, subject, c, n * (1 + round) + i));
        }
    return STATUS_OK;
}

enum status accuracy_measure(struct accuracy_study *s, struct accuracy_subject *subject)
{
    struct dataset_info info;
    TRY(dataset_describe(subject->data, &info));
    memcpy(subject->data_name, info.name, sizeof subject->data_name);
    enum status st = predict_all(s, subject);
    if (st == STATUS_OK)
        st = train_all(s, subject);
    log_progress_end();
    return st;
}
