/* How the threads of a device wait for each other, and for the next loop.
 *
 * They are OpenMP's. GNU's OpenMP lets a waiting thread spin for some milliseconds before it
 * sleeps, unless there are more of its threads than cores: then for some microseconds. Spinning is
 * right while each thread has a core, for a thread that sleeps at each of a step's hundred loops
 * wakes late. Where other programs want the cores it is wrong: the thread that is waited for cannot
 * run while another one spins, and a step takes twenty times as long as it could.
 *
 * The library reads its policy from the environment once, when it is loaded, so neither this
 * program nor one that uses libcleave can set it. But it counts threads. So a device looks every
 * few milliseconds how long its threads stood in line for a core, which Linux keeps in /proc. If
 * that is a good part of the time, the brake goes on: one more team, which sleeps, and with which
 * there are more threads than cores. After a while the brake goes off again to see whether the
 * others are gone; each time that they are not, the while is twice as long.
 *
 * The number of threads that compute stays, and with it every bit of the result. Under another
 * OpenMP library, or without /proc, the brake does nothing. */
#include "backend/cpu/cpu_parts.h"

#include "base/numbers.h"
#include "base/timer.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static const int64_t look_ns = 5000000;           /* between two looks */
static const double crowded_share = 0.1;          /* of the threads' time in line for a core */
static const int64_t shortest_hold_ns = 50000000; /* the brake's first while */
static const int64_t longest_hold_ns = 2000000000;
static const int64_t same_crowd_ns =
    500000000; /* so soon after it went off: they are still there */

/* One for the process: the library counts the threads of all teams together. */
static struct {
    pthread_mutex_t lock;
    bool is_on;
    pthread_t thread;
    int n_threads;
    sem_t release;
    int64_t until_ns, hold_ns, off_ns;
} brake = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the brake ---- */

/* Its team is there from the region on until this thread ends. */
static void *hold_brake(void *unused)
{
    atomic_int n = 0;
    (void)unused;
    omp_set_dynamic(0);
#pragma omp parallel num_threads(brake.n_threads)
    atomic_fetch_add(&n, 1);
    while (sem_wait(&brake.release) != 0)
        continue;
    return NULL;
}

/* OpenMP ends the process if it cannot start a thread, so none is asked for where memory for stacks
 * may be short. */
static bool may_start_threads(void)
{
    struct rlimit space;
    return getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur == RLIM_INFINITY;
}

static void put_brake_on(const device *d, int64_t now_ns)
{
    sigset_t all, before;
    if (!may_start_threads())
        return;
    bool again = brake.hold_ns > 0 && now_ns - brake.off_ns < same_crowd_ns;
    brake.hold_ns = again ? int64_min(2 * brake.hold_ns, longest_hold_ns) : shortest_hold_ns;
    brake.until_ns = now_ns + brake.hold_ns;
    /* The library knows of the d->threads that have just computed. */
    brake.n_threads = int_max((int)sysconf(_SC_NPROCESSORS_ONLN) - d->threads, 0) + 2;
    (void)sem_init(&brake.release, 0, 0);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    brake.is_on = pthread_create(&brake.thread, NULL, hold_brake, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void take_brake_off(int64_t now_ns)
{
    brake.is_on = false;
    brake.off_ns = now_ns;
    (void)sem_post(&brake.release);
    (void)pthread_join(brake.thread, NULL);
    (void)sem_destroy(&brake.release);
}

/* ---- time in line for a core ---- */

static void close_lines(device *d)
{
    for (int i = 0; i < d->n_lines; i++)
        (void)close(d->lines[i]);
    d->n_lines = 0;
}

/* Of the team that computes for the calling thread. */
static void open_lines(device *d)
{
    pid_t ids[DEVICE_LINES] = {0};
    close_lines(d);
#pragma omp parallel num_threads(d->threads)
    if (omp_get_thread_num() < DEVICE_LINES)
        ids[omp_get_thread_num()] = gettid();
    d->caller = ids[0];
    for (int i = 0; i < d->threads && i < DEVICE_LINES; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)ids[i]);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0)
            d->lines[d->n_lines++] = file;
    }
}

/* Nanoseconds since they were started, of all threads together; -1: not known. A team may have
 * other threads than before. */
static int64_t read_lines(const device *d)
{
    int64_t sum = 0;
    if (d->caller != gettid())
        return -1;
    for (int i = 0; i < d->n_lines; i++) {
        char text[96], *behind_computed;
        ssize_t n = pread(d->lines[i], text, sizeof text - 1, 0);
        if (n <= 0)
            return -1;
        text[n] = '\0';
        (void)strtoll(text, &behind_computed, 10);
        sum += strtoll(behind_computed, NULL, 10);
    }
    return sum;
}

/* ---- what a device does ---- */

void waiting_look(device *d)
{
    if (d->threads == 1)
        return;
    int64_t now_ns = timer_now_ns(), since_ns = now_ns - d->looked_ns;
    if (since_ns < look_ns)
        return;
    int64_t line_ns = d->looked_ns ? read_lines(d) : -1, before_ns = d->line_ns;
    if (line_ns < 0) {
        open_lines(d);
        line_ns = read_lines(d);
        before_ns = line_ns;
    }
    d->looked_ns = timer_now_ns();
    d->line_ns = line_ns;
    double share = d->n_lines ? (double)(line_ns - before_ns) / ((double)since_ns * d->n_lines) : 0;
    if (pthread_mutex_trylock(&brake.lock) != 0)
        return; /* another device sees to it */
    if (brake.is_on && now_ns > brake.until_ns)
        take_brake_off(now_ns);
    else if (!brake.is_on && share > crowded_share)
        put_brake_on(d, now_ns);
    (void)pthread_mutex_unlock(&brake.lock);
}

void waiting_end(device *d)
{
    close_lines(d);
    if (d->threads == 1)
        return;
    pthread_mutex_lock(&brake.lock);
    if (brake.is_on)
        take_brake_off(timer_now_ns()); /* other devices put it on again if they need it */
    pthread_mutex_unlock(&brake.lock);
}
