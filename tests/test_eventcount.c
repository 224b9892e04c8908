/* How one thread waits for another: it spins for a while, yields its core to others meanwhile, and
 * sleeps then. */
#include "base/timer.h"
#include "comm/eventcount.h"
#include "testing.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

static const int64_t MS = 1000000;

struct sleeper {
    struct eventcount event;
    struct eventcount_waiter waiter;
    double seconds; /* that it waits, at most */
    int core;       /* -1: any */
    pthread_t thread;
};

static void stay_on(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof set, &set), 0);
}

static void *listen(void *user)
{
    struct sleeper *l = user;
    if (l->core >= 0)
        stay_on(l->core);
    eventcount_wait(&l->event, &l->waiter, l->seconds);
    return NULL;
}

static void start(struct sleeper *l)
{
    eventcount_init(&l->event, false);
    assert_int_equal(pthread_create(&l->thread, NULL, listen, l), 0);
}

static void end(struct sleeper *l)
{
    eventcount_signal(&l->event);
    assert_int_equal(pthread_join(l->thread, NULL), 0);
}

/* Whether it sleeps after so long. */
static bool sleeps_after(int64_t spin_ns, useconds_t us)
{
    struct sleeper l = {
        .waiter = {.spin_ns = spin_ns, .max_spin_ns = spin_ns}, .seconds = 60, .core = -1};
    start(&l);
    (void)usleep(us);
    bool sleeps = atomic_load(&l.event.asleep);
    end(&l);
    return sleeps;
}

static void test_spins_before_it_sleeps(void **state)
{
    (void)state;
    assert_false(sleeps_after(10000 * MS, 50000));
    assert_true(sleeps_after(MS, 200000));
    assert_true(sleeps_after(0, 200000));
}

/* Without a signal it returns when the time is up, whether it spins or sleeps then. */
static void test_waits_no_longer_than_asked(void **state)
{
    (void)state;
    for (int spins = 0; spins < 2; spins++) {
        int64_t spin_ns = spins ? 10000 * MS : MS, start_ns = timer_now_ns();
        struct sleeper l = {
            .waiter = {.spin_ns = spin_ns, .max_spin_ns = spin_ns}, .seconds = 0.02, .core = -1};
        start(&l);
        assert_int_equal(pthread_join(l.thread, NULL), 0);
        int64_t waited_ns = timer_now_ns() - start_ns;
        assert_true(waited_ns >= 20 * MS && waited_ns < 5000 * MS);
    }
}

/* Long waits make it spin for less, short ones for more again. */
static void test_spins_as_long_as_it_pays(void **state)
{
    (void)state;
    struct eventcount event;
    struct eventcount_waiter waiter = {.spin_ns = MS, .max_spin_ns = MS};
    eventcount_init(&event, false);
    eventcount_wait(&event, &waiter, 0.005);
    assert_int_equal(waiter.spin_ns, MS / 2);
    for (int i = 0; i < 20; i++)
        eventcount_wait(&event, &waiter, 0.002);
    assert_true(waiter.spin_ns > 0 && waiter.spin_ns <= MS / 50);
    for (int i = 0; i < 20; i++)
        eventcount_wait(&event, &waiter, 1e-6);
    assert_int_equal(waiter.spin_ns, MS);
}

static double cpu_s_of(pthread_t thread)
{
    clockid_t clock;
    struct timespec t;
    assert_int_equal(pthread_getcpuclockid(thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &t), 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* This thread's share of a core beside a waiter that spins. */
static double share_beside(int core)
{
    struct sleeper l = {
        .waiter = {.spin_ns = 10000 * MS, .max_spin_ns = 10000 * MS}, .seconds = 60, .core = core};
    start(&l);
    (void)usleep(20000);
    double start_s = cpu_s_of(pthread_self()), listener_s = cpu_s_of(l.thread), mine_s = 0;
    while (mine_s < 0.1)
        mine_s = cpu_s_of(pthread_self()) - start_s;
    listener_s = cpu_s_of(l.thread) - listener_s;
    end(&l);
    return mine_s / (mine_s + listener_s);
}

/* A loader, say, which has the worker's core. */
static void test_gives_its_core_away(void **state)
{
    (void)state;
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int core = 0;
    while (!CPU_ISSET((size_t)core, &before))
        core++;
    stay_on(core);
    double share = share_beside(core);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_true(share >= 0.8); /* half of it, if the listener kept it as long as it may */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spins_before_it_sleeps),
        cmocka_unit_test(test_waits_no_longer_than_asked),
        cmocka_unit_test(test_spins_as_long_as_it_pays),
        cmocka_unit_test(test_gives_its_core_away),
    };
    return test_run(tests);
}
