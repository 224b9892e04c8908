/* Threads that do the same at the same time, again and again. */
#include "base/timer.h"
#include "runtime/thread_team.h"
#include "testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST = 9, CALLS = 2000 };

struct ledger {
    atomic_int calls[MOST];
    pthread_t caller;
    bool first_elsewhere;
    unsigned nap_us;
};

static enum status work(int number, void *user)
{
    struct ledger *l = user;
    if (number == 0 && !pthread_equal(pthread_self(), l->caller))
        l->first_elsewhere = true;
    if (l->nap_us)
        (void)usleep(l->nap_us);
    atomic_fetch_add(&l->calls[number], 1);
    return STATUS_OK;
}

/* Every member has done every call when thread_team_run returns, also with more of them than cores.
 */
static void test_every_member_does_every_call(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, MOST};
    for (int k = 0; k < 4; k++) {
        struct ledger l = {.caller = pthread_self()};
        thread_team *g;
        assert_ok(thread_team_create(sizes[k], &g));
        for (int call = 1; call <= CALLS; call++) {
            assert_ok(thread_team_run(g, work, &l));
            for (int i = 0; i < MOST; i++)
                assert_int_equal(atomic_load(&l.calls[i]), i < sizes[k] ? call : 0);
        }
        assert_false(l.first_elsewhere);
        thread_team_destroy(g);
    }
}

/* Members that have gone to sleep come, too. */
static void test_sleepers_come(void **state)
{
    (void)state;
    struct ledger l = {.caller = pthread_self(), .nap_us = 3000};
    thread_team *g;
    assert_ok(thread_team_create(3, &g));
    for (int call = 1; call <= 20; call++) {
        (void)usleep(2000);
        assert_ok(thread_team_run(g, work, &l));
        for (int i = 0; i < 3; i++)
            assert_int_equal(atomic_load(&l.calls[i]), call);
    }
    thread_team_destroy(g);
    thread_team_destroy(NULL);
}

static enum status fail_or_lose(int number, void *user)
{
    if (number == 0)
        return status_fail(STATUS_LOST, "member 0 lost another");
    return number >= *(const int *)user ? status_fail(STATUS_FAILED, "member %d", number)
                                        : STATUS_OK;
}

/* The first member that failed for a reason of its own is named, and the next call starts clean. */
static void test_the_cause_comes_out(void **state)
{
    (void)state;
    thread_team *g;
    assert_ok(thread_team_create(4, &g));
    for (int first = 1; first <= 4; first++) {
        char expected[32];
        (void)snprintf(expected, sizeof expected, "member %d", first < 4 ? first : 0);
        assert_fails(thread_team_run(g, fail_or_lose, &first),
                     first < 4 ? STATUS_FAILED : STATUS_LOST, expected);
    }
    struct ledger l = {.caller = pthread_self()};
    assert_ok(thread_team_run(g, work, &l));
    thread_team_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_member_does_every_call),
        cmocka_unit_test(test_sleepers_come),
        cmocka_unit_test(test_the_cause_comes_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
