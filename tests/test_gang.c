/* Threads that do the same at the same time, again and again. */
#include "base/timer.h"
#include "runtime/gang.h"
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

static void work(int number, void *user)
{
    struct ledger *l = user;
    if (number == 0 && !pthread_equal(pthread_self(), l->caller))
        l->first_elsewhere = true;
    if (l->nap_us)
        (void)usleep(l->nap_us);
    atomic_fetch_add(&l->calls[number], 1);
}

/* Every member has done every call when gang_do returns, also with more of them than cores. */
static void test_everybody_does_everything(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, MOST};
    for (int k = 0; k < 4; k++) {
        struct ledger l = {.caller = pthread_self()};
        gang *g;
        assert_ok(gang_create(sizes[k], &g));
        for (int call = 1; call <= CALLS; call++) {
            gang_do(g, work, &l);
            for (int i = 0; i < MOST; i++)
                assert_int_equal(atomic_load(&l.calls[i]), i < sizes[k] ? call : 0);
        }
        assert_false(l.first_elsewhere);
        gang_destroy(g);
    }
}

/* Members that have gone to sleep come, too. */
static void test_sleepers_come(void **state)
{
    (void)state;
    struct ledger l = {.caller = pthread_self(), .nap_us = 3000};
    gang *g;
    assert_ok(gang_create(3, &g));
    for (int call = 1; call <= 20; call++) {
        (void)usleep(2000);
        gang_do(g, work, &l);
        for (int i = 0; i < 3; i++)
            assert_int_equal(atomic_load(&l.calls[i]), call);
    }
    gang_destroy(g);
    gang_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everybody_does_everything),
        cmocka_unit_test(test_sleepers_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
