/* Items on several threads: each once, errors, rooms of their own. */
#include "base/parallel.h"
#include "testing.h"

#include <stdatomic.h>

enum { N_ITEMS = 500, N_THREADS = 4 };

struct counts {
    atomic_int done[N_ITEMS], in_room[N_THREADS];
    int fails_at, fails_also_at;
};

static enum status count(void *user, int item, int thread)
{
    struct counts *c = user;
    assert_in_range(thread, 0, N_THREADS - 1);
    if (item == c->fails_at || item == c->fails_also_at)
        return status_fail(STATUS_USAGE, "item %d", item);
    assert_int_equal(atomic_fetch_add(&c->in_room[thread], 1), 0); /* no other thread is in it */
    atomic_fetch_add(&c->done[item], 1);
    atomic_fetch_sub(&c->in_room[thread], 1);
    return STATUS_OK;
}

static void every_item_is_done_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= N_THREADS; threads++) {
        static struct counts c;
        c = (struct counts){.fails_at = -1, .fails_also_at = -1};
        assert_ok(parallel_run(N_ITEMS, threads, count, &c));
        for (int i = 0; i < N_ITEMS; i++)
            assert_int_equal(c.done[i], 1);
    }
    assert_ok(parallel_run(0, N_THREADS, count, NULL));
}

static void the_lowest_error_comes_back(void **state)
{
    (void)state;
    for (int threads = 1; threads <= N_THREADS; threads++) {
        static struct counts c;
        c = (struct counts){.fails_at = 7, .fails_also_at = 9};
        assert_int_equal(parallel_run(N_ITEMS, threads, count, &c), STATUS_USAGE);
        assert_string_equal(status_message(), "item 7");
        status_clear();
        for (int i = 0; i < 7; i++)
            assert_int_equal(c.done[i], 1);
    }
}

static enum status look_inside(void *user, int item, int thread)
{
    int *threads = user;
    (void)thread;
    threads[item] = parallel_threads(1000);
    return STATUS_OK;
}

/* Threads within threads do not become more than there are cores, if that many were asked for. */
static void tasks_share_the_cores(void **state)
{
    (void)state;
    int cores = parallel_threads(1 << 20), inside[2] = {0};
    assert_int_equal(parallel_threads(1), 1);
    assert_int_equal(parallel_threads(0), 1);
    assert_ok(parallel_run(2, 2, look_inside, inside));
    for (int i = 0; i < 2; i++)
        assert_int_equal(inside[i], cores / 2 > 1 ? cores / 2 : 1);
    assert_int_equal(parallel_threads(1 << 20), cores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(the_lowest_error_comes_back),
        cmocka_unit_test(tasks_share_the_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
