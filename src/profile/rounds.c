#include "profile/rounds.h"

#include "base/numbers.h"
#include "base/random.h"
#include "base/timer.h"
#include "runtime/executor.h"
#include "runtime/pin.h"
#include "runtime/thread_team.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct shared;

struct rounds_player {
    struct shared *shared;
    int place;
    device *device;
    struct program *program;
    executor *executor;
    float *images;
    int32_t *labels;
    struct executor_batch batch;
    double *seconds; /* [most_rounds][n_instrs] */
    /* Of the last round: */
    int64_t played_ns;     /* all of it */
    double cold_s, warm_s; /* in turn: the first and the second run of the program */
    bool disturbed;        /* another program had the core */
    bool finished;         /* in turn */
};

/* What the players share while they run. */
struct shared {
    struct rounds *rounds;
    struct update_rule rule;
    thread_team *thread_team;
    enum status (*play)(struct rounds_player *p); /* what all of them do now */
    atomic_int n_left;                            /* together: those that have not ended once */
    atomic_bool over;                             /* together: none is left */
    pthread_mutex_t lock;
    pthread_cond_t passed;
    int turn; /* in turn: the player that computes; -1: all have finished. Under the lock. */
    /* By round, [most_rounds]: */
    double *starts_s, *rounds_s, *colds;
    bool *disturbed;
};

const struct program *rounds_program(const struct rounds *r, int player)
{
    return r->players[player].program;
}

const double *rounds_seconds(const struct rounds *r, int player, int round)
{
    const struct rounds_player *p = &r->players[player];
    return p->seconds + (size_t)round * (size_t)p->program->n_instrs;
}

/* ---- opening and closing a player ---- */

/* Any optimizer with that many states; the weights stay as they are. */
static struct update_rule rule_with(int n_states)
{
    if (n_states == 2)
        return (struct update_rule){
            .kind = UPDATE_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .step = 1};
    return (struct update_rule){.kind = UPDATE_SGD, .momentum = n_states ? 0.9 : 0};
}

/* The samples that the program loads. */
static enum status make_batch(struct rounds_player *p, const struct graph *graph)
{
    enum { PERIOD = 1 << 12 };
    const struct random_key key = {1, RANDOM_TEST, 1};
    int64_t n = p->program->samples.end - p->program->samples.begin;
    int64_t floats = n * graph_sample_elements(graph);
    float numbers[PERIOD];
    if (n == 0)
        return STATUS_OK;
    p->images = malloc((size_t)floats * sizeof *p->images);
    p->labels = malloc((size_t)n * sizeof *p->labels);
    if (!p->images || !p->labels)
        return status_no_memory((size_t)floats * sizeof *p->images);
    for (int i = 0; i < PERIOD; i++)
        numbers[i] = (float)(2 * random_uniform(key, 0, (uint64_t)i) - 1);
    for (int64_t i = 0; i < floats; i++)
        p->images[i] = numbers[i % PERIOD];
    for (int64_t i = 0; i < n; i++)
        p->labels[i] = (int32_t)(i % graph->classes);
    p->batch = (struct executor_batch){p->images, p->labels, p->program->samples.begin};
    return STATUS_OK;
}

static enum status open_player(struct rounds_player *p)
{
    const struct rounds *r = p->shared->rounds;
    const struct program *like = r->programs[r->workers[p->place]];
    const struct plan *plan = like->plan;
    struct device_options wanted = {.threads = like->backend->device_threads(like->device)};
    if (plan->n_workers > 1)
        (void)pin_thread(p->place, r->n_places, wanted.threads);
    TRY(like->backend->device_open(&wanted, &p->device));
    /* Of an asynchronous pipeline's window, enough steps to have every kind of instruction. */
    struct program_options o = {.backend = like->backend,
                                .device = p->device,
                                .precision = like->precision,
                                .training = true,
                                .n_states = like->n_states,
                                .plan = plan,
                                .worker = r->workers[p->place],
                                .n_steps = int_min(plan->window, plan->n_stages + 1)};
    TRY(program_create(like->graph, &o, &p->program));
    const struct program *const programs[] = {p->program};
    TRY(executor_create_measuring(programs, 1, &p->executor));
    TRY(make_batch(p, like->graph));
    size_t n = (size_t)r->most_rounds * (size_t)p->program->n_instrs + 1;
    p->seconds = calloc(n, sizeof *p->seconds);
    return p->seconds ? STATUS_OK : status_no_memory(n * sizeof *p->seconds);
}

static void close_player(struct rounds_player *p, const struct backend *backend)
{
    executor_destroy(p->executor);
    program_destroy(p->program);
    if (p->device)
        backend->device_close(p->device);
    free(p->images);
    free(p->labels);
    free(p->seconds);
}

/* ---- a round of one player ---- */

static enum status run_program(struct rounds_player *p)
{
    return executor_measure(p->executor, 0, &p->batch, &p->shared->rule);
}

/* Of the last run; by instruction into `to`, unless it is NULL. Returns the sum. */
static double read_times(const struct rounds_player *p, double *to)
{
    const struct executor_time *times = executor_get_times(p->executor, 0);
    double sum = 0;
    for (int i = 0; i < p->program->n_instrs; i++) {
        double seconds = (double)(times[i].end_ns - times[i].begin_ns) * 1e-9;
        sum += seconds;
        if (to)
            to[i] = seconds;
    }
    return sum;
}

/* Runs the program once and keeps its times. The thread was away from its core if it waited for it
 * longer than the system's own business takes, which strikes steps of a training as well. */
static enum status run_timed(struct rounds_player *p)
{
    static const double LEAST_AWAY_NS = 50e3, LEAST_AWAY_SHARE = 0.1;
    int64_t start_ns = timer_now_ns(), cpu_ns = timer_thread_ns();
    TRY(run_program(p));
    double wall_ns = (double)(timer_now_ns() - start_ns);
    double away_ns = wall_ns - (double)(timer_thread_ns() - cpu_ns);
    p->disturbed = away_ns > LEAST_AWAY_NS && away_ns > LEAST_AWAY_SHARE * wall_ns;
    size_t at = (size_t)p->shared->rounds->n_rounds * (size_t)p->program->n_instrs;
    p->warm_s = read_times(p, p->seconds + at);
    return STATUS_OK;
}

static bool computes(const struct program *p)
{
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].stream == STREAM_COMPUTE)
            return true;
    return false;
}

static enum status play_together(struct rounds_player *p)
{
    struct shared *s = p->shared;
    executor_stop_measuring(p->executor, NULL);
    enum status st = run_timed(p);
    if (atomic_fetch_sub(&s->n_left, 1) == 1)
        atomic_store(&s->over, true);
    executor_stop_measuring(p->executor, &s->over);
    while (st == STATUS_OK && computes(p->program) && !atomic_load(&s->over))
        st = run_program(p);
    return st;
}

/* To the next player that has not finished. The lock is held. */
static void hand_on_turn(struct rounds_player *p)
{
    struct shared *s = p->shared;
    s->turn = -1;
    for (int k = 1, n = s->rounds->n; k <= n && s->turn < 0; k++)
        if (!s->rounds->players[(p->place + k) % n].finished)
            s->turn = (p->place + k) % n;
    pthread_cond_broadcast(&s->passed);
}

static void sleep_until_turn(struct rounds_player *p)
{
    while (p->shared->turn != p->place)
        pthread_cond_wait(&p->shared->passed, &p->shared->lock);
}

/* Where the worker waits for others in a step. If all others have finished, the core rests all the
 * same. */
static void sleep_as_in_a_step(void *player, int instr)
{
    struct rounds_player *p = player;
    (void)instr;
    pthread_mutex_lock(&p->shared->lock);
    hand_on_turn(p);
    bool alone = p->shared->turn == p->place;
    sleep_until_turn(p);
    pthread_mutex_unlock(&p->shared->lock);
    if (alone)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static enum status play_in_turn(struct rounds_player *p)
{
    struct shared *s = p->shared;
    pthread_mutex_lock(&s->lock);
    sleep_until_turn(p);
    pthread_mutex_unlock(&s->lock);
    executor_call_at_waits(p->executor, sleep_as_in_a_step, p);
    enum status st = run_program(p);
    executor_call_at_waits(p->executor, NULL, NULL);
    p->cold_s = st == STATUS_OK ? read_times(p, NULL) : 0;
    if (st == STATUS_OK)
        st = run_timed(p);
    pthread_mutex_lock(&s->lock);
    p->finished = true;
    hand_on_turn(p);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* ---- all players ---- */

static enum status play(int place, void *user)
{
    struct shared *s = user;
    struct rounds_player *p = &s->rounds->players[place];
    int64_t start_ns = timer_now_ns();
    enum status st = s->play(p);
    p->played_ns = timer_now_ns() - start_ns;
    return st;
}

/* Every player on its thread; the first failure comes out. */
static enum status play_all(struct shared *s, enum status (*what)(struct rounds_player *p))
{
    struct rounds *r = s->rounds;
    s->play = what;
    s->turn = r->n - 1; /* the last stage: if it waits at once, a first stage computes before it */
    atomic_store(&s->n_left, r->n);
    atomic_store(&s->over, false);
    for (int i = 0; i < r->n; i++)
        r->players[i].finished = false;
    return thread_team_run(s->thread_team, play, s);
}

static enum status play_round(struct shared *s)
{
    struct rounds *r = s->rounds;
    int64_t start_ns = timer_now_ns(), longest_ns = 0;
    TRY(play_all(s, r->in_turn ? play_in_turn : play_together));
    int64_t wall_ns = timer_now_ns() - start_ns;
    int round = r->n_rounds++;
    double cold_s = 0;
    for (int i = 0; i < r->n; i++) {
        const struct rounds_player *p = &r->players[i];
        longest_ns = int64_max(longest_ns, p->played_ns);
        cold_s += p->cold_s;
        s->rounds_s[round] += p->warm_s;
        s->disturbed[round] |= p->disturbed;
    }
    s->starts_s[round] = (double)(wall_ns - longest_ns) * 1e-9;
    s->colds[round] = s->rounds_s[round] > 0 ? cold_s / s->rounds_s[round] : 1;
    return STATUS_OK;
}

static int count_disturbed(const struct shared *s)
{
    int n = 0;
    for (int i = 0; i < s->rounds->n_rounds; i++)
        n += s->disturbed[i];
    return n;
}

/* Both bounds must be reached, or the most rounds. */
static double done_share(const struct rounds *r, double spent_s)
{
    double rounds = (double)r->n_rounds / r->least_rounds, time = spent_s / r->budget_s;
    return fmax(fmin(rounds, time), (double)r->n_rounds / r->most_rounds);
}

/* Whether the second half of the rounds took as long as the first. */
static bool is_steady(const struct shared *s, double *scratch)
{
    static const double STEADY = 0.03;
    int n = s->rounds->n_rounds, half = n / 2;
    memcpy(scratch, s->rounds_s, (size_t)n * sizeof *scratch);
    double first = numbers_median(scratch, half), second = numbers_median(scratch + half, n - half);
    return half > 1 && fabs(second - first) <= STEADY * first;
}

static bool goes_on(const struct shared *s, double spent_s, double *scratch)
{
    const struct rounds *r = s->rounds;
    if (done_share(r, spent_s) < 1)
        return true;
    if (r->n_rounds >= r->most_rounds)
        return false;
    /* Disturbed rounds are made up for, unless all are. */
    if (r->n_rounds - count_disturbed(s) < r->least_rounds && r->n_rounds < 2 * r->least_rounds)
        return true;
    return spent_s < r->most_s && !is_steady(s, scratch);
}

static enum status play_rounds(struct shared *s, double *scratch)
{
    struct rounds *r = s->rounds;
    double spent_s = 0;
    TRY(r->between ? r->between(r->user, 0) : STATUS_OK);
    TRY(play_all(s, r->in_turn ? play_in_turn : play_together)); /* warms up */
    int64_t start_ns = timer_now_ns();
    do {
        TRY(r->between ? r->between(r->user, fmin(1, done_share(r, spent_s))) : STATUS_OK);
        TRY(play_round(s));
        spent_s = (double)(timer_now_ns() - start_ns) * 1e-9;
    } while (goes_on(s, spent_s, scratch));
    return STATUS_OK;
}

/* ---- keeping rounds ---- */

/* Unless too few others are left. */
static void drop_disturbed(struct shared *s)
{
    struct rounds *r = s->rounds;
    int kept = 0, n_disturbed = count_disturbed(s);
    bool drops = r->n_rounds - n_disturbed >= r->least_rounds;
    r->disturbed = drops ? 0 : (double)n_disturbed / r->n_rounds;
    for (int from = 0; drops && from < r->n_rounds; from++) {
        if (s->disturbed[from])
            continue;
        s->starts_s[kept] = s->starts_s[from];
        s->colds[kept] = s->colds[from];
        for (int i = 0; i < r->n; i++) {
            size_t n = (size_t)r->players[i].program->n_instrs;
            double *seconds = r->players[i].seconds;
            memmove(seconds + (size_t)kept * n, seconds + (size_t)from * n, n * sizeof *seconds);
        }
        kept++;
    }
    r->n_rounds = drops ? kept : r->n_rounds;
}

enum status rounds_run(struct rounds *r)
{
    struct shared s = {.rounds = r, .rule = rule_with(r->programs[0]->n_states)};
    size_t rounds = (size_t)r->most_rounds + 1;
    struct pin_mask before; /* of this thread, which is the first player's */
    enum status st;
    (void)pthread_mutex_init(&s.lock, NULL);
    (void)pthread_cond_init(&s.passed, NULL);
    pin_remember(&before);
    double *numbers = calloc(4 * rounds, sizeof *numbers);
    s.disturbed = calloc(rounds, sizeof *s.disturbed);
    r->players = calloc((size_t)r->n, sizeof *r->players);
    if (!numbers || !s.disturbed || !r->players)
        TRY_GOTO(st, status_no_memory(4 * rounds * sizeof *numbers), out);
    s.starts_s = numbers;
    s.rounds_s = numbers + rounds;
    s.colds = numbers + 2 * rounds;
    for (int i = 0; i < r->n; i++)
        r->players[i] = (struct rounds_player){.shared = &s, .place = i};
    TRY_GOTO(st, thread_team_create(r->n, &s.thread_team), out);
    TRY_GOTO(st, play_all(&s, open_player), out);
    TRY_GOTO(st, play_rounds(&s, numbers + 3 * rounds), out);
    drop_disturbed(&s);
    r->start_s = numbers_median(s.starts_s, r->n_rounds);
    r->cold = fmax(1, numbers_median(s.colds, r->n_rounds));
out:
    thread_team_destroy(s.thread_team);
    pin_restore(&before);
    free(s.disturbed);
    free(numbers);
    (void)pthread_cond_destroy(&s.passed);
    (void)pthread_mutex_destroy(&s.lock);
    return st;
}

void rounds_free(struct rounds *r)
{
    for (int i = 0; r->players && i < r->n; i++)
        close_player(&r->players[i], r->programs[0]->backend);
    free(r->players);
    r->players = NULL;
}
