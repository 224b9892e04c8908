#include "search/training.h"

#include "base/timer.h"
#include "runtime/trainer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const double timeout_s = 600;      /* a worker may have to wait for a long step of another */
static const double learning_rate = 1e-4; /* losses stay finite; what is learnt does not matter */
enum { ENDLESS = 1 << 30 };

enum training_state { SLEEPS, RUNS, HAS_ENDED };

struct training {
    struct training_request request;
    struct trainer_info info;

    /* ---- its thread's ---- */
    int64_t steps_per_epoch, whole_steps; /* of an epoch, and of them in whole windows */
    int64_t slice_began_ns, n_in_slice;   /* steps in whole windows */
    int64_t n_slices;                     /* before this one */
    bool is_long;                         /* its steps are: the first window of a slice counts */
    int64_t n_times, capacity, *times_ns;

    /* ---- between the two threads ---- */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum training_state state;
    bool quits;
    struct status_error error; /* once it has ended */
};

/* ---- the training thread ---- */

static void set_state(training *t, enum training_state state)
{
    pthread_mutex_lock(&t->lock);
    t->state = state;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* Until it is let go on. */
static enum status sleep_a_while(training *t)
{
    pthread_mutex_lock(&t->lock);
    t->state = SLEEPS;
    pthread_cond_broadcast(&t->changed);
    while (t->state == SLEEPS && !t->quits)
        pthread_cond_wait(&t->changed, &t->lock);
    bool quits = t->quits;
    pthread_mutex_unlock(&t->lock);
    t->slice_began_ns = timer_now_ns();
    t->n_slices += t->n_in_slice > 0;
    t->n_in_slice = 0;
    return quits ? status_fail(STATUS_STOPPED, "the training is over") : STATUS_OK;
}

static bool has_enough(const training *t)
{
    return t->request.most_steps && t->n_times >= t->request.most_steps;
}

/* Steps at the beginning of a slice that do not count. */
static int64_t count_cold(const training *t)
{
    return t->is_long && t->n_slices > 0 ? 0 : t->request.window;
}

static enum status keep_time(training *t, int64_t step_ns)
{
    if (t->n_in_slice <= count_cold(t) || has_enough(t))
        return STATUS_OK;
    if (t->n_times == t->capacity) {
        int64_t capacity = t->capacity ? 2 * t->capacity : 1024;
        int64_t *larger = realloc(t->times_ns, (size_t)capacity * sizeof *larger);
        if (!larger)
            return status_no_memory((size_t)capacity * sizeof *larger);
        t->times_ns = larger;
        t->capacity = capacity;
    }
    t->times_ns[t->n_times++] = step_ns;
    return STATUS_OK;
}

static bool is_slice_over(const training *t)
{
    double seconds = (double)(timer_now_ns() - t->slice_began_ns) * 1e-9;
    int64_t window = t->request.window;
    return t->n_in_slice % window == 0 && t->n_in_slice >= count_cold(t) + window &&
           (seconds >= t->request.slice_s || has_enough(t));
}

static enum status on_step(const struct trainer_step *step, void *user)
{
    training *t = user;
    if ((step->step - 1) % t->steps_per_epoch >= t->whole_steps)
        return STATUS_OK;
    t->n_in_slice++;
    if (t->n_slices == 0)
        t->is_long = t->request.long_s > 0 && (double)step->step_ns * 1e-9 >= t->request.long_s;
    TRY(keep_time(t, step->step_ns));
    return is_slice_over(t) ? sleep_a_while(t) : STATUS_OK;
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

static enum status build(const training *t, trainer **out)
{
    const struct training_request *r = &t->request;
    struct trainer_options o = trainer_default_options();
    o.model = r->model;
    o.data = r->data;
    o.batch = r->batch;
    training_tell(&r->run, &o);
    o.epochs = 0;
    o.max_steps = ENDLESS;
    o.backend = r->backend;
    o.threads = r->threads;
    o.workers = r->workers;
    o.plan = r->plan;
    o.timeout_s = timeout_s;
    o.rule.learning_rate = learning_rate;
    o.evaluate = false;
    return trainer_create(&o, out);
}

/* Without a whole window no slice would ever end. Of few samples a batch has all. */
static enum status count_steps(training *t)
{
    int window = t->request.window;
    t->steps_per_epoch = t->info.steps_per_epoch;
    t->whole_steps = t->info.n_train / t->info.batch / window * window;
    if (t->whole_steps > 0)
        return STATUS_OK;
    return status_fail(STATUS_USAGE,
                       "the data have no %d whole batches of %lld, which are a window of the plan",
                       window, (long long)t->info.batch);
}

static enum status train(training *t)
{
    const struct trainer_callbacks calls = {.on_step = on_step};
    trainer *own;
    TRY(build(t, &own));
    t->info = *trainer_get_info(own);
    enum status st = count_steps(t);
    if (st == STATUS_OK)
        st = sleep_a_while(t);
    if (st == STATUS_OK)
        st = trainer_run(own, &calls, t);
    trainer_destroy(own);
    return st;
}

static void *run(void *user)
{
    training *t = user;
    enum status st = train(t);
    t->error.status = STATUS_OK;
    if (st != STATUS_OK)
        status_take(st, &t->error);
    set_state(t, HAS_ENDED);
    return NULL;
}

/* ---- the other thread ---- */

static enum status wait_for_it(training *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->state == RUNS)
        pthread_cond_wait(&t->changed, &t->lock);
    bool ended = t->state == HAS_ENDED;
    pthread_mutex_unlock(&t->lock);
    if (!ended)
        return STATUS_OK;
    return t->error.status != STATUS_OK
               ? status_give(&t->error)
               : status_fail(STATUS_FAILED, "the training ended too early");
}

enum status training_let(training *t)
{
    if (has_enough(t))
        return STATUS_OK;
    set_state(t, RUNS);
    return wait_for_it(t);
}

/* Signals are for the thread that called. */
static int start(training *t)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&t->thread, NULL, run, t);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void free_all(training *t)
{
    (void)pthread_cond_destroy(&t->changed);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->times_ns);
    free(t);
}

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

enum status training_open(const struct training_request *request, training **out)
{
    training *t = calloc(1, sizeof *t);
    if (!t)
        return status_no_memory(sizeof *t);
    t->request = *request;
    t->request.most_steps = round_up(request->most_steps, request->window);
    t->state = RUNS;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->changed, NULL);
    int error = start(t);
    if (error) {
        free_all(t);
        return status_fail(STATUS_FAILED, "cannot start a thread: %s", strerror(error));
    }
    enum status st = wait_for_it(t);
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
    pthread_mutex_lock(&t->lock);
    t->quits = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    free_all(t);
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
