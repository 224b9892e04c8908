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
#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* What a small file in /proc or /sys says; "" if there is none. */
static const char *read_small(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = file >= 0 ? read(file, text, size - 1) : 0;
    if (file >= 0)
        (void)close(file);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* The number in a file of a folder; -1: there is none, or it is "max". */
static long read_number(const char *folder, const char *name)
{
    char path[PATH_MAX + 16], text[32], *end;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    long n = strtol(read_small(path, text, sizeof text), &end, 10);
    return end == text ? -1 : n;
}

/* Each group of a process and of its parents may have a limit, down to that of the mount, which
 * inside a container is the container's. */
static bool groups_have_room(const char *mount, const char *below, int n_threads)
{
    char folder[PATH_MAX];
    size_t root = strlen(mount);
    if (snprintf(folder, sizeof folder, "%s%s", mount, below) >= (int)sizeof folder)
        return false;
    for (;;) {
        long most = read_number(folder, "pids.max");
        if (most >= 0 && read_number(folder, "pids.current") + n_threads > most)
            return false;
        char *end = strrchr(folder, '/');
        if (end < folder + root)
            return true;
        *end = '\0';
    }
}

/* Lines "0::/GROUP" of version 2, "8:pids:/GROUP" of version 1. */
static bool cgroup_has_room(int n_threads)
{
    char text[4096], *rest = NULL;
    (void)read_small("/proc/self/cgroup", text, sizeof text);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *names = strchr(line, ':'), *below = names ? strchr(names + 1, ':') : NULL;
        if (!below)
            continue;
        *below++ = '\0';
        bool is_2 = names[1] == '\0', counts = is_2 || strcmp(names + 1, "pids") == 0;
        if (counts &&
            !groups_have_room(is_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids", below, n_threads))
            return false;
    }
    return true;
}

/* The limit counts the threads of a user, of which there are no more than threads on the host: the
 * fourth word of /proc/loadavg, "1/345". */
static bool user_has_room(int n_threads)
{
    struct rlimit most;
    char text[128];
    if (getrlimit(RLIMIT_NPROC, &most) != 0 || most.rlim_cur == RLIM_INFINITY)
        return true;
    const char *there = strchr(read_small("/proc/loadavg", text, sizeof text), '/');
    return there && (rlim_t)strtol(there + 1, NULL, 10) + (rlim_t)n_threads <= most.rlim_cur;
}

/* OpenMP ends the process if it cannot start a thread, so none is asked for where memory for stacks
 * or the number of threads may be short. Others start threads meanwhile, too. */
static bool may_start_threads(int n)
{
    struct rlimit space;
    int n_all = 4 * n + 16;
    return getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur == RLIM_INFINITY &&
           user_has_room(n_all) && cgroup_has_room(n_all);
}

/* The library lets waiting threads sleep once it has more than the cores that this process may use
 * when the library is loaded; workers that are bound to some of them later do not matter to it. */
static int n_cores;

__attribute__((constructor)) static void count_cores(void)
{
    n_cores = omp_get_num_procs();
}

static void put_brake_on(const device *d, int64_t now_ns)
{
    sigset_t all, before;
    bool again = brake.hold_ns > 0 && now_ns - brake.off_ns < same_crowd_ns;
    /* The library knows of the d->threads that have just computed. */
    brake.n_threads = int_max(n_cores - d->threads, 0) + 2;
    if (!may_start_threads(brake.n_threads)) {
        brake.until_ns = now_ns + longest_hold_ns; /* when it is asked again */
        return;
    }
    brake.hold_ns = again ? int64_min(2 * brake.hold_ns, longest_hold_ns) : shortest_hold_ns;
    brake.until_ns = now_ns + brake.hold_ns;
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
    else if (!brake.is_on && share > crowded_share && now_ns > brake.until_ns)
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
