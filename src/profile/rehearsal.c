#include "profile/rehearsal.h"

#include "base/numbers.h"
#include "base/random.h"
#include "base/timer.h"
#include "profile/turns.h"
#include "profile/wander.h"
#include "runtime/executor.h"
#include "runtime/gang.h"
#include "runtime/pin.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct rehearsal;

struct actor {
    struct rehearsal *all;
    int place;
    int told;    /* takes_turns: of its instructions, how many it has told of in this round */
    int *sleepy; /* takes_turns: by instruction, rounds in which it would have slept, less others */
    device *device;
    struct program *program;
    executor *executor;
    float *images;
    int32_t *labels;
    struct executor_batch batch;
    double *seconds;   /* [most_rounds][n_instrs] */
    int64_t played_ns; /* all of its last round */
    bool disturbed;    /* in the last round: other programs had its core */
    struct status_error error;
};

struct rehearsal {
    const struct rehearsal_request *request;
    struct update_rule rule;
    struct actor *actors;
    int n_rounds;     /* kept so far */
    double *starts_s; /* [most_rounds] */
    double *rounds_s; /* [most_rounds]: what an actor computed, on average */
    bool *disturbed;  /* [most_rounds] */

    gang *gang;
    enum status (*scene)(struct actor *a); /* that all of them play */
    atomic_int n_left;                     /* of a round: who is not through with it once */
    atomic_bool over;                      /* nobody is left */
    pthread_mutex_t lock;
    pthread_cond_t passed;
    turns *turns;
    atomic_int turn; /* takes_turns: the actor who plays; -1: all have. Written under the lock. */
};

/* ---- one actor ---- */

/* Any optimizer with that many states; the weights stay as they are. */
static struct update_rule rule_with(int n_states)
{
    if (n_states == 2)
        return (struct update_rule){
            .kind = UPDATE_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .step = 1};
    return (struct update_rule){.kind = UPDATE_SGD, .momentum = n_states ? 0.9 : 0};
}

static void fill_batch(const struct graph *graph, int64_t n, int64_t floats, float *images,
                       int32_t *labels)
{
    enum { PERIOD = 1 << 12 };
    const struct random_key key = {1, RANDOM_TEST, 1};
    float numbers[PERIOD];
    for (int i = 0; i < PERIOD; i++)
        numbers[i] = (float)(2 * random_uniform(key, 0, (uint64_t)i) - 1);
    for (int64_t i = 0; i < floats; i++)
        images[i] = numbers[i % PERIOD];
    for (int64_t i = 0; i < n; i++)
        labels[i] = (int32_t)(i % graph->classes);
}

/* The samples that the program loads. */
static enum status make_batch(struct actor *a)
{
    const struct graph *graph = a->all->request->graph;
    const struct shape *images = &graph->nodes[0].op.output;
    int64_t n = a->program->samples.end - a->program->samples.begin;
    int64_t floats = n * (shape_elements(images) / images->dim[0]);
    if (n == 0)
        return STATUS_OK;
    a->images = malloc((size_t)floats * sizeof *a->images);
    a->labels = malloc((size_t)n * sizeof *a->labels);
    if (!a->images || !a->labels)
        return status_no_memory((size_t)floats * sizeof *a->images);
    fill_batch(graph, n, floats, a->images, a->labels);
    a->batch = (struct executor_batch){a->images, a->labels, a->program->samples.begin};
    return STATUS_OK;
}

/* Of an asynchronous pipeline's window enough steps to have every kind of instruction in it. */
static int steps_of(const struct plan *plan)
{
    int enough = plan->n_stages + 1;
    return plan->window < enough ? plan->window : enough;
}

/* ---- taking turns ---- */

/* The longer a core rests the deeper, but not beyond this: ten times MACHINE_NAP_S. */
static const double DEEP_SLEEP_S = 2e-3;

/* What the actor computed since it last told. */
static void tell_computed(struct actor *a, int end)
{
    const struct executor_time *times = executor_get_times(a->executor, 0);
    for (int i = a->told; i < end; i++)
        if (a->program->instrs[i].stream == STREAM_COMPUTE)
            turns_compute(a->all->turns, a->place, i,
                          (double)(times[i].end_ns - times[i].begin_ns) * 1e-9);
    a->told = end;
}

/* The lock is held. */
static void pass_on(struct actor *a)
{
    int next = turns_pass(a->all->turns, a->place);
    atomic_store(&a->all->turn, next);
    if (next != a->place)
        pthread_cond_broadcast(&a->all->passed);
}

/* The lock is held. */
static void sleep_until_turn(struct actor *a)
{
    while (atomic_load(&a->all->turn) != a->place)
        pthread_cond_wait(&a->all->passed, &a->all->lock);
}

/* It has to wait because one plays at a time, not because it would in a step: so its core must not
 * rest, which would make what follows slow. */
static void look_on_until(struct rehearsal *r, int turn)
{
    while (atomic_load(&r->turn) != turn)
        (void)sched_yield();
}

static void rest(double seconds)
{
    double s = seconds < DEEP_SLEEP_S ? seconds : DEEP_SLEEP_S;
    if (s > 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(s * 1e9)}, NULL);
}

/* Where a worker would sleep in a step it does so here: while the others play, if any can, or for
 * as long as it would have, having played ahead of them. What others have yet to compute, one at a
 * time, has come in a step perhaps, so that nobody would sleep. Where it mostly had so far, it goes
 * on: they will catch up, and to wait for them would cool its caches. */
static void sleep_as_in_a_step(void *actor, int instr)
{
    struct actor *a = actor;
    int64_t start_ns = timer_now_ns();
    pthread_mutex_lock(&a->all->lock);
    tell_computed(a, instr);
    double sleep_s = turns_sleep_s(a->all->turns, a->place, instr);
    bool goes_on = sleep_s == 0 || (sleep_s == INFINITY && a->sleepy[instr] < 0);
    if (!goes_on) {
        pass_on(a);
        sleep_until_turn(a);
    }
    pthread_mutex_unlock(&a->all->lock);
    if (sleep_s < INFINITY) /* else others have told, by computing */
        rest(sleep_s - (double)(timer_now_ns() - start_ns) * 1e-9);
}

/* When all have played: whether it was right to go on, and would have been. */
static void note_sleeps(struct actor *a)
{
    for (int i = 0; i < a->program->n_instrs; i++)
        a->sleepy[i] += turns_slept(a->all->turns, a->place, i) ? 1 : -1;
}

/* ---- opening and closing one ---- */

static enum status open_actor(struct actor *a)
{
    const struct rehearsal_request *r = a->all->request;
    if (r->pins)
        (void)pin_thread(a->place, r->n_places, r->threads);
    struct device_options wanted = {.precision = r->precision, .threads = r->threads};
    TRY(r->backend->device_open(&wanted, &a->device));
    struct program_options o = {.backend = r->backend,
                                .device = a->device,
                                .training = true,
                                .n_states = r->n_states,
                                .plan = r->plan,
                                .worker = r->workers[a->place],
                                .n_steps = steps_of(r->plan)};
    TRY(program_create(r->graph, &o, &a->program));
    const struct program *const programs[] = {a->program};
    TRY(executor_create_rehearsal(programs, 1, &a->executor));
    if (r->takes_turns)
        executor_wait_in_rehearsal(a->executor, sleep_as_in_a_step, a);
    TRY(make_batch(a));
    size_t n = (size_t)a->program->n_instrs, count = (size_t)r->most_rounds * n + 1;
    a->seconds = calloc(count, sizeof *a->seconds);
    a->sleepy = calloc(n + 1, sizeof *a->sleepy);
    return a->seconds && a->sleepy ? STATUS_OK : status_no_memory(count * sizeof *a->seconds);
}

static void close_actor(struct actor *a)
{
    executor_destroy(a->executor);
    program_destroy(a->program);
    if (a->device)
        a->all->request->backend->device_close(a->device);
    free(a->images);
    free(a->labels);
    free(a->sleepy);
    free(a->seconds);
}

/* Of what it played last. */
static void keep_seconds(struct actor *a)
{
    const struct executor_time *times = executor_get_times(a->executor, 0);
    int n = a->program->n_instrs;
    double *to = a->seconds + (size_t)a->all->n_rounds * (size_t)n;
    for (int i = 0; i < n; i++)
        to[i] = (double)(times[i].end_ns - times[i].begin_ns) * 1e-9;
}

static enum status play_in_turn(struct actor *a)
{
    struct rehearsal *r = a->all;
    look_on_until(r, a->place);
    enum status st = executor_rehearse(a->executor, 0, &a->batch, &r->rule);
    if (st == STATUS_OK)
        keep_seconds(a);
    pthread_mutex_lock(&r->lock);
    if (st == STATUS_OK)
        tell_computed(a, a->program->n_instrs);
    turns_end(r->turns, a->place);
    pass_on(a);
    pthread_mutex_unlock(&r->lock);
    look_on_until(r, -1);
    return st;
}

static bool computes(const struct program *p)
{
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].stream == STREAM_COMPUTE)
            return true;
    return false;
}

/* Whether a thread was away from its core for longer than the system's own business takes, which
 * strikes steps of a training as well. */
static bool was_away(int64_t wall_ns, int64_t cpu_ns)
{
    static const double LEAST_NS = 50e3, LEAST_SHARE = 0.1;
    double away_ns = (double)(wall_ns - cpu_ns);
    return away_ns > LEAST_NS && away_ns > LEAST_SHARE * (double)wall_ns;
}

/* Its program once, which is kept: it began together with everybody's. */
static enum status play_once(struct actor *a)
{
    struct rehearsal *r = a->all;
    int64_t start_ns = timer_now_ns(), cpu_ns = timer_thread_ns();
    executor_stop_rehearsal(a->executor, NULL);
    enum status st = executor_rehearse(a->executor, 0, &a->batch, &r->rule);
    a->disturbed = was_away(timer_now_ns() - start_ns, timer_thread_ns() - cpu_ns);
    if (st == STATUS_OK)
        keep_seconds(a);
    if (atomic_fetch_sub(&r->n_left, 1) == 1)
        atomic_store(&r->over, true);
    return st;
}

/* Who is through goes on from the start, so that the longest has busy neighbours to its end, and
 * stops wherever it is then. */
static enum status play_on(struct actor *a)
{
    struct rehearsal *r = a->all;
    executor_stop_rehearsal(a->executor, &r->over);
    while (computes(a->program) && !atomic_load(&r->over))
        TRY(executor_rehearse(a->executor, 0, &a->batch, &r->rule));
    return STATUS_OK;
}

static enum status play_round(struct actor *a)
{
    if (a->all->request->takes_turns)
        return play_in_turn(a);
    TRY(play_once(a));
    return play_on(a);
}

/* ---- all of them together ---- */

static enum status play(int place, void *user)
{
    struct rehearsal *r = user;
    struct actor *a = &r->actors[place];
    int64_t start_ns = timer_now_ns();
    enum status st = a->all->scene(a);
    a->played_ns = timer_now_ns() - start_ns;
    a->error.status = STATUS_OK;
    if (st != STATUS_OK)
        status_take(st, &a->error);
    return STATUS_OK;
}

/* Every actor plays the scene on its thread; the first failure comes out. */
static enum status play_all(struct rehearsal *r, enum status (*scene)(struct actor *a))
{
    r->scene = scene;
    atomic_store(&r->n_left, r->request->n);
    atomic_store(&r->over, false);
    for (int i = 0; i < r->request->n; i++)
        r->actors[i].told = 0;
    if (r->turns) {
        turns_begin(r->turns);
        atomic_store(&r->turn, turns_pass(r->turns, -1));
    }
    TRY(gang_do(r->gang, play, r));
    for (int i = 0; i < r->request->n; i++)
        if (r->actors[i].error.status != STATUS_OK)
            return status_give(&r->actors[i].error);
    return STATUS_OK;
}

static enum status play_once_more(struct rehearsal *r)
{
    TRY(play_all(r, play_round));
    for (int i = 0; r->turns && i < r->request->n; i++)
        note_sleeps(&r->actors[i]);
    return STATUS_OK;
}

static enum status look_up(const struct rehearsal *r, double share)
{
    const struct rehearsal_request *q = r->request;
    return q->between ? q->between(q->user, share < 1 ? share : 1) : STATUS_OK;
}

/* The larger of the two, because both bounds must be reached, or the most rounds. */
static double done_share(const struct rehearsal *r, double spent_s)
{
    const struct rehearsal_request *q = r->request;
    double rounds = (double)r->n_rounds / q->least_rounds, time = spent_s / q->budget_s;
    double least = rounds < time ? rounds : time, most = (double)r->n_rounds / q->most_rounds;
    return least > most ? least : most;
}

static double sum_round(const struct actor *a, int round)
{
    int n = a->program->n_instrs;
    const double *seconds = a->seconds + (size_t)round * (size_t)n;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += seconds[i];
    return sum;
}

static enum status play_timed(struct rehearsal *r)
{
    int64_t start_ns = timer_now_ns(), longest_ns = 0;
    TRY(play_once_more(r));
    int64_t wall_ns = timer_now_ns() - start_ns;
    int round = r->n_rounds++;
    for (int i = 0; i < r->request->n; i++) {
        const struct actor *a = &r->actors[i];
        longest_ns = a->played_ns > longest_ns ? a->played_ns : longest_ns;
        r->rounds_s[round] += sum_round(a, round) / r->request->n;
        r->disturbed[round] |= a->disturbed;
    }
    r->starts_s[round] = (double)(wall_ns - longest_ns) * 1e-9;
    return STATUS_OK;
}

static int count_disturbed(const struct rehearsal *r)
{
    int n = 0;
    for (int i = 0; i < r->n_rounds; i++)
        n += r->disturbed[i];
    return n;
}

static bool goes_on(const struct rehearsal *r, double spent_s)
{
    const struct rehearsal_request *q = r->request;
    if (done_share(r, spent_s) < 1)
        return true;
    if (r->n_rounds >= q->most_rounds)
        return false;
    /* Disturbed rounds are made up for, unless all are. */
    if (r->n_rounds - count_disturbed(r) < q->least_rounds && r->n_rounds < 2 * q->least_rounds)
        return true;
    return spent_s < q->most_s && !wander_is_steady(r->rounds_s, r->n_rounds);
}

static enum status play_rounds(struct rehearsal *r)
{
    TRY(look_up(r, 0));
    TRY(play_once_more(r));
    int64_t start_ns = timer_now_ns();
    double spent_s = 0;
    do {
        TRY(look_up(r, done_share(r, spent_s)));
        TRY(play_timed(r));
        spent_s = (double)(timer_now_ns() - start_ns) * 1e-9;
    } while (goes_on(r, spent_s));
    return STATUS_OK;
}

/* ---- what is kept ---- */

static void move_round(struct rehearsal *r, int from, int to)
{
    r->starts_s[to] = r->starts_s[from];
    r->rounds_s[to] = r->rounds_s[from];
    r->disturbed[to] = r->disturbed[from];
    for (int i = 0; i < r->request->n; i++) {
        struct actor *a = &r->actors[i];
        size_t n = (size_t)a->program->n_instrs;
        memmove(a->seconds + (size_t)to * n, a->seconds + (size_t)from * n, n * sizeof *a->seconds);
    }
}

static void drop_disturbed(struct rehearsal *r)
{
    int kept = 0;
    if (r->n_rounds - count_disturbed(r) < r->request->least_rounds)
        return;
    for (int i = 0; i < r->n_rounds; i++)
        if (!r->disturbed[i])
            move_round(r, i, kept++);
    r->n_rounds = kept;
}

static enum status make_turns(struct rehearsal *r)
{
    int n = r->request->n;
    const struct program **programs = calloc((size_t)n, sizeof *programs);
    if (!programs)
        return status_no_memory((size_t)n * sizeof *programs);
    for (int i = 0; i < n; i++)
        programs[i] = r->actors[i].program;
    enum status st = turns_create(programs, n, &r->turns);
    free(programs);
    return st;
}

static enum status perform(struct rehearsal *r, rehearsal_take *take, void *user)
{
    TRY(gang_create(r->request->n, &r->gang));
    TRY(play_all(r, open_actor));
    if (r->request->takes_turns)
        TRY(make_turns(r));
    TRY(play_rounds(r));
    drop_disturbed(r);
    for (int i = 0; i < r->request->n; i++)
        TRY(take(user, r->actors[i].program, r->n_rounds, r->actors[i].seconds));
    return STATUS_OK;
}

static double find_start(const struct rehearsal *r)
{
    numbers_sort(r->starts_s, r->n_rounds);
    return r->n_rounds ? numbers_quantile(r->starts_s, r->n_rounds, 0.5) : 0;
}

static void free_tables(struct rehearsal *r)
{
    free(r->actors);
    free(r->starts_s);
    free(r->rounds_s);
    free(r->disturbed);
}

static enum status make_tables(struct rehearsal *r)
{
    size_t n = (size_t)r->request->n, rounds = (size_t)r->request->most_rounds + 1;
    r->actors = calloc(n, sizeof *r->actors);
    r->starts_s = calloc(rounds, sizeof *r->starts_s);
    r->rounds_s = calloc(rounds, sizeof *r->rounds_s);
    r->disturbed = calloc(rounds, sizeof *r->disturbed);
    if (r->actors && r->starts_s && r->rounds_s && r->disturbed)
        return STATUS_OK;
    free_tables(r);
    return status_no_memory(n * sizeof *r->actors + 2 * rounds * sizeof *r->starts_s);
}

enum status rehearsal_run(const struct rehearsal_request *request, rehearsal_take *take, void *user,
                          struct rehearsal_result *result)
{
    struct rehearsal r = {.request = request, .rule = rule_with(request->n_states)};
    TRY(make_tables(&r));
    for (int i = 0; i < request->n; i++)
        r.actors[i] = (struct actor){.all = &r, .place = i};
    (void)pthread_mutex_init(&r.lock, NULL);
    (void)pthread_cond_init(&r.passed, NULL);
    struct pin_mask before; /* of this thread, which is the first actor's */
    pin_remember(&before);
    enum status st = perform(&r, take, user);
    *result = (struct rehearsal_result){
        .wander = wander_of_rounds(r.rounds_s, r.n_rounds),
        .disturbed = r.n_rounds ? (double)count_disturbed(&r) / r.n_rounds : 0};
    result->start_s = find_start(&r); /* sorts what the rounds took to start */
    gang_destroy(r.gang);
    turns_destroy(r.turns);
    pin_restore(&before);
    for (int i = 0; i < request->n; i++)
        close_actor(&r.actors[i]);
    (void)pthread_cond_destroy(&r.passed);
    (void)pthread_mutex_destroy(&r.lock);
    free_tables(&r);
    return st;
}
