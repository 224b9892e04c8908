/* The trainer has a thread of its own, with its cores and its pool of threads, and sleeps in the
 * callback of the last step of a slice: data are read ahead meanwhile. */
#include "search/training.h"

#include "base/array.h"
#include "base/timer.h"
#include "runtime/trainer.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const double timeout_s = 600;      /* a worker may have to wait for a long step of another */
static const double learning_rate = 1e-4; /* losses stay finite; no one uses the weights */
enum { ENDLESS = 1 << 30 };

/* The caller and the thread take turns: only one of them reads and writes this at a time. */
struct training {
    struct training_request request;
    struct trainer_info info;
    int64_t steps_per_epoch, whole_steps; /* of an epoch, and of them in whole windows */
    int64_t slice_began_ns, n_in_slice;   /* steps in whole windows */
    int64_t n_slices;                     /* before this one */
    bool is_long;                         /* its steps are: the first window of a slice counts */
    int64_t *times_ns;
    int n_times, capacity;
    pthread_t thread;
    sem_t go, rests; /* the thread's turn, the caller's turn */
    bool quits, has_ended;
    struct status_error error; /* once it has ended */
};

static void wait_for_turn(sem_t *turn)
{
    while (sem_wait(turn) != 0) /* a signal came */
        ;
}

static bool has_enough(const training *t)
{
    return t->request.most_steps && t->n_times >= t->request.most_steps;
}

/* ---- the training thread ---- */

static enum status rest(training *t)
{
    (void)sem_post(&t->rests);
    wait_for_turn(&t->go);
    t->slice_began_ns = timer_now_ns();
    t->n_slices += t->n_in_slice > 0;
    t->n_in_slice = 0;
    return t->quits ? status_fail(STATUS_STOPPED, "the training is over") : STATUS_OK;
}

static enum status on_step(const struct trainer_step *step, void *user)
{
    training *t = user;
    int window = t->request.plan->window;
    if ((step->step - 1) % t->steps_per_epoch >= t->whole_steps)
        return STATUS_OK;
    t->n_in_slice++;
    if (t->n_slices == 0)
        t->is_long = t->request.long_s > 0 && (double)step->step_ns * 1e-9 >= t->request.long_s;
    int n_cold = t->is_long && t->n_slices > 0 ? 0 : window;
    if (t->n_in_slice > n_cold && !has_enough(t)) {
        TRY(array_reserve(NULL, &t->times_ns, t->n_times + 1, &t->capacity, sizeof *t->times_ns));
        t->times_ns[t->n_times++] = step->step_ns;
    }
    double seconds = (double)(timer_now_ns() - t->slice_began_ns) * 1e-9;
    bool is_whole = t->n_in_slice % window == 0 && t->n_in_slice >= n_cold + window;
    return is_whole && (seconds >= t->request.slice_s || has_enough(t)) ? rest(t) : STATUS_OK;
}

void training_tell(const struct forecast_run *run, struct trainer_options *to)
{
    to->rule.kind = (enum update_kind)run->optimizer;
    to->rule.momentum = run->momentum;
    to->precision = (enum precision)run->precision;
    to->drop_probability = run->drop_probability;
    to->data_limit = run->limit;
    to->augment = run->augment;
}

/* Without a whole window no slice would ever end. If there are few samples, one batch has all. */
static enum status train(training *t)
{
    const struct training_request *r = &t->request;
    const struct trainer_callbacks calls = {.on_step = on_step};
    struct trainer_options o = trainer_default_options();
    trainer *own;
    o.graph = r->graph;
    o.data = r->forecast->data;
    o.batch = r->graph->batch;
    training_tell(&r->forecast->run, &o);
    o.epochs = 0;
    o.max_steps = ENDLESS;
    o.backend = r->forecast->backend;
    o.threads = (int)r->forecast->threads;
    o.resolved_plan = r->plan;
    o.timeout_s = timeout_s;
    o.rule.learning_rate = learning_rate;
    o.evaluate = false;
    o.skip_corrupt = DATASET_TIMED_SKIPS;
    o.skips_silently = true;
    TRY(trainer_create(&o, &own));
    t->info = *trainer_get_info(own);
    t->steps_per_epoch = t->info.steps_per_epoch;
    t->whole_steps = t->info.n_train / t->info.batch / r->plan->window * r->plan->window;
    enum status st =
        t->whole_steps > 0
            ? rest(t)
            : status_fail(STATUS_USAGE,
                          "the data have no %d whole batches of %lld, which are a window of the "
                          "plan",
                          r->plan->window, (long long)t->info.batch);
    if (st == STATUS_OK)
        st = trainer_run(own, &calls, t);
    if (st == STATUS_OK)
        st = status_fail(STATUS_FAILED, "the training ended too early");
    trainer_destroy(own);
    return st;
}

static void *run(void *user)
{
    training *t = user;
    status_take(train(t), &t->error);
    t->has_ended = true;
    (void)sem_post(&t->rests);
    return NULL;
}

/* ---- the caller ---- */

static enum status wait_for_slice(training *t)
{
    wait_for_turn(&t->rests);
    return t->has_ended ? status_give(&t->error) : STATUS_OK;
}

enum status training_let(training *t)
{
    if (has_enough(t))
        return STATUS_OK;
    if (t->has_ended)
        return status_give(&t->error);
    (void)sem_post(&t->go);
    return wait_for_slice(t);
}

enum status training_open(const struct training_request *request, training **out)
{
    sigset_t all, before;
    training *t = calloc(1, sizeof *t);
    if (!t)
        return status_no_memory(sizeof *t);
    t->request = *request;
    int window = request->plan->window;
    t->request.most_steps = (request->most_steps + window - 1) / window * window;
    (void)sem_init(&t->go, 0, 0);
    (void)sem_init(&t->rests, 0, 0);
    (void)sigfillset(&all); /* signals are for the thread that called */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&t->thread, NULL, run, t);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        free(t);
        return status_fail(STATUS_FAILED, "cannot start a thread: %s", strerror(error));
    }
    enum status st = wait_for_slice(t);
    if (st != STATUS_OK) {
        training_close(t);
        return st;
    }
    *out = t;
    return STATUS_OK;
}

void training_close(training *t)
{
    if (!t)
        return;
    t->quits = true;
    (void)sem_post(&t->go);
    (void)pthread_join(t->thread, NULL);
    (void)sem_destroy(&t->go);
    (void)sem_destroy(&t->rests);
    free(t->times_ns);
    free(t);
}

int64_t training_times(const training *t, const int64_t **times_ns)
{
    *times_ns = t->times_ns;
    return t->n_times;
}

int64_t training_memory_bytes(const training *t)
{
    return t->info.memory_bytes;
}

int64_t training_bytes_moved(const training *t)
{
    return t->info.bytes_moved;
}
