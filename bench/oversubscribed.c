/* oversubscribed.c: what more threads than cores take for work that they all begin and end
 * together, as workers of a step do. Each computes so long by its own clock; then they meet,
 * asleep.
 *
 *     build/bench/oversubscribed [THREADS ...]
 *
 * Printed is the time of a round over that of a perfect division of all work among all cores: the
 * median, and behind it what the clock takes it to be (clock_unevenness). */
#include "clock/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_THREADS = 256, MOST_ROUNDS = 2000, N_STRETCHES = 7 };
static const double stretches_s[N_STRETCHES] = {0.3e-3, 1e-3, 3e-3, 8e-3, 25e-3, 75e-3, 200e-3};
static const double least_s = 0.6;

static struct {
    pthread_barrier_t meeting;
    double stretch_s;
    int n_rounds;
    double begin_s[MOST_THREADS], end_s[MOST_THREADS];
    double round_s[MOST_ROUNDS];
    int n_threads;
} team;

static double now_s(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void compute(void)
{
    double until_s = now_s(CLOCK_THREAD_CPUTIME_ID) + team.stretch_s;
    while (now_s(CLOCK_THREAD_CPUTIME_ID) < until_s)
        for (volatile int i = 0; i < 1000; i++) {
        }
}

static void keep_round(int round)
{
    double begin_s = team.begin_s[0], end_s = team.end_s[0];
    for (int i = 1; i < team.n_threads; i++) {
        begin_s = team.begin_s[i] < begin_s ? team.begin_s[i] : begin_s;
        end_s = team.end_s[i] > end_s ? team.end_s[i] : end_s;
    }
    team.round_s[round] = end_s - begin_s;
}

static void *work(void *user)
{
    int me = (int)(size_t)user;
    for (int i = 0; i < team.n_rounds; i++) {
        (void)pthread_barrier_wait(&team.meeting);
        team.begin_s[me] = now_s(CLOCK_MONOTONIC);
        compute();
        team.end_s[me] = now_s(CLOCK_MONOTONIC);
        (void)pthread_barrier_wait(&team.meeting);
        if (me == 0)
            keep_round(i);
        (void)pthread_barrier_wait(&team.meeting);
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double find_perfect(int n, int cores, double stretch_s)
{
    return n > cores ? stretch_s * n / cores : stretch_s;
}

static int measure(int n, int cores, double stretch_s)
{
    pthread_t threads[MOST_THREADS];
    double perfect_s = find_perfect(n, cores, stretch_s), rounds = least_s / perfect_s;
    team.n_threads = n;
    team.stretch_s = stretch_s;
    team.n_rounds = rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds < 5 ? 5 : (int)rounds;
    if (pthread_barrier_init(&team.meeting, NULL, (unsigned)n) != 0)
        return 1;
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(size_t)i) != 0) {
            (void)fprintf(stderr, "oversubscribed: cannot start %d threads\n", n);
            exit(1); /* those that run wait for it */
        }
    for (int i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pthread_barrier_destroy(&team.meeting);
    qsort(team.round_s, (size_t)team.n_rounds, sizeof *team.round_s, by_value);
    printf("  %5.2f (%4.2f)", team.round_s[team.n_rounds / 2] / perfect_s,
           clock_unevenness(n, cores, stretch_s));
    (void)fflush(stdout);
    return 0;
}

static int measure_all(int n, int cores)
{
    printf("%7d", n);
    for (int i = 0; i < N_STRETCHES; i++)
        if (measure(n, cores, stretches_s[i]) != 0)
            return 1;
    printf("\n");
    return 0;
}

int main(int argc, char **argv)
{
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    int cores = CPU_COUNT(&allowed), usual[] = {cores, cores + 1, 2 * cores, 2 * cores + 1};
    int n = argc > 1 ? argc - 1 : 4;
    printf("%d cores; the time of a round over that of a perfect division, median (assumed)\n"
           "threads",
           cores);
    for (int i = 0; i < N_STRETCHES; i++)
        printf("  %8.1f ms", 1e3 * stretches_s[i]);
    printf("\n");
    for (int i = 0; i < n; i++) {
        int threads = argc > 1 ? atoi(argv[i + 1]) : usual[i];
        if (threads < 1 || threads > MOST_THREADS) {
            (void)fprintf(stderr, "oversubscribed: THREADS must be 1 to %d\n", MOST_THREADS);
            return 2;
        }
        if (measure_all(threads, cores) != 0)
            return 1;
    }
    return 0;
}
