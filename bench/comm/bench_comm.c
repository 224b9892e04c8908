/* Sums over workers, alone: cleave-bench-comm [--workers N] [--from BYTES] [--to BYTES]
 *                                             [--seconds S] [--json FILE]
 *
 * Started plainly: N threads. Started by mpirun: its ranks, and MPI_Allreduce in turns with
 * Cleave's methods. For every size (powers of 4) and way: the median over rounds of the time from
 * when the last worker begins to when the last one has ended; beside it the time in which all
 * workers copy an array of that size at once, since every element must be read and written once.
 *
 *     algorithm bandwidth   bytes of the array / time
 *     bus bandwidth         that times 2 (N-1)/N: what a ring sends per worker
 */
#include "base/timer.h"
#include "comm/comm.h"

#ifdef CLEAVE_HAVE_MPI
#include <mpi.h>
#endif
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORKERS = 64, MAX_ROUNDS = 400, LEAST_ROUNDS = 5 };

enum way { WAY_COPY, WAY_RING, WAY_TREE, WAY_GATHER, WAY_MPI, WAY_COUNT };
static const char *const way_names[] = {"copy", "ring", "tree", "gather", "MPI_Allreduce"};
static const int64_t largest_gather_bytes = 1 << 20;

struct settings {
    int workers;
    int64_t from_bytes, to_bytes;
    double seconds; /* per size and way, about */
    const char *json;
    bool mpi;
};

struct bench {
    const struct settings *settings;
    comm *c;
    float *data, *other;
    void *workspace;
    int64_t round_ns[WAY_COUNT][MAX_ROUNDS];
    FILE *json;
    bool first_row;
};

static void fail(const char *what)
{
    (void)fprintf(stderr, "cleave-bench-comm: %s: %s\n", what, status_message());
    exit(1);
}

static void check(enum status st, const char *what)
{
    if (st != STATUS_OK)
        fail(what);
}

static struct comm_reduction reduction_of(const comm *c, enum way way, int64_t count,
                                          const int *members)
{
    static const enum comm_method methods[] = {
        [WAY_RING] = COMM_RING, [WAY_TREE] = COMM_TREE, [WAY_GATHER] = COMM_GATHER};
    return (struct comm_reduction){.method = methods[way],
                                   .n_members = c->size,
                                   .members = members,
                                   .count = count,
                                   .tag = way};
}

static void reduce(struct bench *b, enum way way, int64_t count)
{
    int members[MAX_WORKERS];
    for (int i = 0; i < b->c->size; i++)
        members[i] = i;
    struct comm_reduction r = reduction_of(b->c, way, count, members);
    comm_op op;
    check(b->c->table->start_reduce(b->c, &r, b->data, b->workspace, &op), way_names[way]);
    for (bool done = false; !done;) {
        check(b->c->table->poll(b->c, &op, &done), "poll");
        if (!done)
            check(b->c->table->pause(b->c, 0.1), "pause");
    }
}

static void run_once(struct bench *b, enum way way, int64_t count)
{
    if (way == WAY_COPY) {
        memcpy(b->other, b->data, (size_t)count * sizeof *b->data);
    } else if (way == WAY_MPI) {
#ifdef CLEAVE_HAVE_MPI
        if (MPI_Allreduce(MPI_IN_PLACE, b->data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) !=
            MPI_SUCCESS)
            fail("MPI_Allreduce");
#endif
    } else {
        reduce(b, way, count);
    }
}

/* From the last beginning to the last end; the clock is the host's, the same for all workers. */
static int64_t time_once(struct bench *b, enum way way, int64_t count)
{
    int64_t mine[2], all[2 * MAX_WORKERS];
    check(b->c->table->exchange(b->c, NULL, 0, NULL), "barrier");
    mine[0] = timer_now_ns();
    run_once(b, way, count);
    mine[1] = timer_now_ns();
    check(b->c->table->exchange(b->c, mine, sizeof mine, all), "exchange");
    int64_t begin = all[0], end = all[1];
    for (int i = 1; i < b->c->size; i++) {
        begin = all[2 * i] > begin ? all[2 * i] : begin;
        end = all[2 * i + 1] > end ? all[2 * i + 1] : end;
    }
    return end - begin;
}

static bool has_way(const struct bench *b, enum way way, int64_t n_bytes)
{
    if (way == WAY_GATHER)
        return n_bytes <= largest_gather_bytes;
    return way != WAY_MPI || b->settings->mpi;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median_s(int64_t *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, compare_times);
    return (double)(n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2) * 1e-9;
}

static void print_row(struct bench *b, enum way way, int64_t n_bytes, double seconds, int rounds,
                      double mpi_s, double copy_s)
{
    int n = b->c->size;
    double algorithm = (double)n_bytes / seconds, bus = algorithm * 2 * (n - 1) / n;
    if (way == WAY_COPY)
        printf("%-8s %2d  %10lld  %-14s %10.1f us %8.2f GB/s", b->c->table->name, n,
               (long long)n_bytes, "copy (limit)", seconds * 1e6, algorithm * 1e-9);
    else
        printf("%-8s %2d  %10lld  %-14s %10.1f us %8.2f GB/s %8.2f GB/s  %5.2f x copy",
               b->c->table->name, n, (long long)n_bytes, way_names[way], seconds * 1e6,
               algorithm * 1e-9, bus * 1e-9, seconds / copy_s);
    if (way != WAY_COPY && way != WAY_MPI && mpi_s > 0)
        printf("  %5.2f x as fast as MPI", mpi_s / seconds);
    printf("\n");
    if (!b->json)
        return;
    (void)fprintf(b->json,
                  "%s\n  {\"transport\": \"%s\", \"workers\": %d, \"bytes\": %lld, \"way\": "
                  "\"%s\", \"seconds\": %.9f, \"rounds\": %d, \"algorithm_bytes_per_s\": %.0f, "
                  "\"bus_bytes_per_s\": %.0f}",
                  b->first_row ? "" : ",", b->c->table->name, n, (long long)n_bytes, way_names[way],
                  seconds, rounds, algorithm, way == WAY_COPY ? 0 : bus);
    b->first_row = false;
}

/* All workers take the same number of rounds: worker 0 says how many. */
static int choose_rounds(struct bench *b, int64_t count)
{
    int64_t slowest = 1;
    for (int way = 0; way < WAY_COUNT; way++) {
        if (!has_way(b, (enum way)way, count * 4))
            continue;
        (void)time_once(b, (enum way)way, count); /* warms up */
        int64_t t = time_once(b, (enum way)way, count);
        slowest = t > slowest ? t : slowest;
    }
    double rounds = b->settings->seconds * 1e9 / (double)slowest;
    int n = rounds > MAX_ROUNDS ? MAX_ROUNDS : (int)rounds;
    n = n < LEAST_ROUNDS ? LEAST_ROUNDS : n;
    check(b->c->table->broadcast(b->c, 0, &n, sizeof n), "broadcast");
    return n;
}

static void measure_size(struct bench *b, int64_t n_bytes)
{
    int64_t count = n_bytes / 4;
    int rounds = choose_rounds(b, count);
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < WAY_COUNT; k++) {
            int way = (i + k) % WAY_COUNT; /* what each finds in the caches changes in turn */
            if (has_way(b, (enum way)way, n_bytes))
                b->round_ns[way][i] = time_once(b, (enum way)way, count);
        }
    }
    if (b->c->rank != 0)
        return;
    double copy_s = median_s(b->round_ns[WAY_COPY], rounds);
    double mpi_s = b->settings->mpi ? median_s(b->round_ns[WAY_MPI], rounds) : 0;
    for (int way = 0; way < WAY_COUNT; way++) {
        if (has_way(b, (enum way)way, n_bytes))
            print_row(b, (enum way)way, n_bytes, median_s(b->round_ns[way], rounds), rounds, mpi_s,
                      copy_s);
    }
    (void)fflush(stdout);
}

/* The largest any of the measured reductions needs. */
static int64_t workspace_bytes(const comm *c, int64_t to_bytes)
{
    int members[MAX_WORKERS] = {0};
    int64_t most = 0;
    for (int64_t n_bytes = to_bytes; n_bytes >= 4; n_bytes /= 4) {
        for (int way = WAY_RING; way <= WAY_GATHER; way++) {
            if (way == WAY_GATHER && n_bytes > largest_gather_bytes)
                continue;
            struct comm_reduction r = reduction_of(c, (enum way)way, n_bytes / 4, members);
            int64_t needed = c->table->reduce_workspace_bytes(&r);
            most = needed > most ? needed : most;
        }
    }
    return most;
}

static void run_worker(struct bench *b)
{
    size_t n_bytes = (size_t)b->settings->to_bytes;
    b->data = malloc(n_bytes);
    b->other = malloc(n_bytes);
    b->workspace = malloc((size_t)workspace_bytes(b->c, b->settings->to_bytes) + 64);
    if (!b->data || !b->other || !b->workspace)
        fail("no memory");
    memset(b->data, 0, n_bytes);
    memset(b->other, 0, n_bytes);
    if (b->c->rank == 0 && b->settings->json) {
        b->json = fopen(b->settings->json, "w");
        if (!b->json)
            fail(b->settings->json);
        (void)fprintf(b->json, "[");
        b->first_row = true;
    }
    for (int64_t size = b->settings->from_bytes; size <= b->settings->to_bytes; size *= 4)
        measure_size(b, size);
    if (b->json) {
        (void)fprintf(b->json, "\n]\n");
        (void)fclose(b->json);
    }
    free(b->data);
    free(b->other);
    free(b->workspace);
    b->c->table->destroy(b->c);
}

static void *thread_main(void *argument)
{
    run_worker(argument);
    return NULL;
}

static void run_threads(const struct settings *s)
{
    comm *ends[MAX_WORKERS];
    pthread_t threads[MAX_WORKERS];
    struct bench *benches = calloc((size_t)s->workers, sizeof *benches);
    if (!benches)
        fail("no memory");
    check(comm_threads_create(s->workers, 60, ends), "threads");
    for (int i = 0; i < s->workers; i++) {
        benches[i].settings = s;
        benches[i].c = ends[i];
        if (pthread_create(&threads[i], NULL, thread_main, &benches[i]) != 0)
            fail("cannot start a thread");
    }
    for (int i = 0; i < s->workers; i++)
        (void)pthread_join(threads[i], NULL);
    free(benches);
}

static void run_mpi(const struct settings *s)
{
    static struct bench b;
    b.settings = s;
    check(comm_mpi_create(60, &b.c), "MPI");
    if (b.c->size > MAX_WORKERS)
        fail("at most 64 ranks");
    run_worker(&b);
}

static void read_options(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"workers", required_argument, NULL, 'w'}, {"from", required_argument, NULL, 'f'},
        {"to", required_argument, NULL, 't'},      {"seconds", required_argument, NULL, 's'},
        {"json", required_argument, NULL, 'j'},    {NULL, 0, NULL, 0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'w')
            s->workers = atoi(optarg); /* NOLINT: checked below */
        else if (o == 'f')
            s->from_bytes = atoll(optarg); /* NOLINT */
        else if (o == 't')
            s->to_bytes = atoll(optarg); /* NOLINT */
        else if (o == 's')
            s->seconds = atof(optarg); /* NOLINT */
        else if (o == 'j')
            s->json = optarg;
        else
            exit(2);
    }
    if (s->workers < 1 || s->workers > MAX_WORKERS || s->from_bytes < 4 ||
        s->to_bytes < s->from_bytes || s->to_bytes > (int64_t)1 << 32 || !(s->seconds > 0)) {
        (void)fprintf(stderr, "cleave-bench-comm: 1 to %d workers, 4 <= from <= to <= 4 GiB\n",
                      MAX_WORKERS);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct settings s = {.workers = 2, .from_bytes = 1024, .to_bytes = 256 << 20, .seconds = 0.5};
    read_options(argc, argv, &s);
    int rank, size;
    s.mpi = comm_mpi_launched(&rank, &size);
    if (s.mpi)
        run_mpi(&s);
    else
        run_threads(&s);
    return 0;
}
