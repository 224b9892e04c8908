/* Loops that threads which wait join in. */
#include "base/board.h"
#include "testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SEATS = 4, ITEMS = 200, LOOPS = 300, SCRATCH = 64 };

/* One thread's loop: what each of its items was done with. */
struct ledger {
    atomic_int done[ITEMS];
    atomic_int by_others, mixed_up; /* items; scratch memory that another used */
    int late;                       /* items that were not done when their loop was */
    pthread_t owner;
    int64_t fails; /* the item that does, or -1 */
    atomic_bool failing;
    unsigned nap_us;
};

/* Other programs may have the core of who fails for some milliseconds before it is noted: all the
 * items behind take far longer. */
static void outlast_failure(struct ledger *l)
{
    while (!atomic_load(&l->failing))
        (void)usleep(20);
    (void)usleep(2000);
}

static enum status note(const void *user, int64_t item, void *scratch)
{
    struct ledger *l = (struct ledger *)(uintptr_t)user;
    volatile int64_t *mine = scratch;
    *mine = item;
    if (l->nap_us)
        (void)usleep(l->nap_us);
    if (l->fails >= 0 && item > l->fails)
        outlast_failure(l);
    if (!pthread_equal(pthread_self(), l->owner))
        atomic_fetch_add(&l->by_others, 1);
    atomic_fetch_add(&l->done[item], 1);
    atomic_fetch_add(&l->mixed_up, *mine != item);
    if (item == l->fails) {
        atomic_store(&l->failing, true);
        return status_fail(STATUS_FAILED, "item %d is broken", (int)item);
    }
    return STATUS_OK;
}

struct sitter {
    pthread_t thread;
    board *board;
    int seat;
    atomic_bool *over;
    int64_t scratch_bytes;
    int helped;
};

static void *help_until_over(void *user)
{
    struct sitter *s = user;
    _Alignas(64) char scratch[SCRATCH];
    while (!atomic_load(s->over))
        s->helped += board_help(s->board, s->seat, scratch, s->scratch_bytes);
    return NULL;
}

static void count_late(struct ledger *l, int n_loops)
{
    for (int i = 0; i < ITEMS; i++)
        l->late += n_loops - atomic_load(&l->done[i]);
}

/* Shares a loop on seat 0 while the other seats help; returns how often they did. */
static int share(struct ledger *l, int n_loops, int64_t helpers_bytes, enum status *st)
{
    board *b;
    struct sitter sitters[SEATS];
    atomic_bool over = false;
    _Alignas(64) char scratch[SCRATCH];
    const struct board_loop loop = {note, l, ITEMS, SCRATCH};
    int helped = 0;
    l->owner = pthread_self();
    assert_ok(board_create(SEATS, &b));
    for (int i = 1; i < SEATS; i++) {
        sitters[i] =
            (struct sitter){.board = b, .seat = i, .over = &over, .scratch_bytes = helpers_bytes};
        assert_int_equal(pthread_create(&sitters[i].thread, NULL, help_until_over, &sitters[i]), 0);
    }
    *st = STATUS_OK;
    for (int i = 1; i <= n_loops && *st == STATUS_OK; i++) {
        *st = board_share(b, 0, &loop, scratch);
        count_late(l, i);
    }
    atomic_store(&over, true);
    for (int i = 1; i < SEATS; i++) {
        (void)pthread_join(sitters[i].thread, NULL);
        helped += sitters[i].helped;
    }
    board_destroy(b);
    return helped;
}

static void test_every_item_once_a_loop(void **state)
{
    (void)state;
    struct ledger l = {.fails = -1};
    enum status st;
    int helped = share(&l, LOOPS, SCRATCH, &st);
    assert_ok(st);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(atomic_load(&l.done[i]), LOOPS);
    assert_int_equal(atomic_load(&l.by_others), helped);
    assert_int_equal(atomic_load(&l.mixed_up), 0);
    assert_int_equal(l.late, 0);
}

/* With time for it, the others do most of the items. */
static void test_others_help(void **state)
{
    (void)state;
    struct ledger l = {.fails = -1, .nap_us = 200};
    enum status st;
    int helped = share(&l, 1, SCRATCH, &st);
    assert_ok(st);
    assert_true(helped > ITEMS / 4);
    assert_int_equal(l.late, 0);
}

static void test_little_scratch_does_not_help(void **state)
{
    (void)state;
    struct ledger l = {.fails = -1, .nap_us = 50};
    enum status st;
    assert_int_equal(share(&l, 1, SCRATCH - 1, &st), 0);
    assert_ok(st);
    assert_int_equal(atomic_load(&l.done[ITEMS - 1]), 1);
}

/* Whoever it strikes, the owner hears of it, and no more items begin. */
static void test_a_failure_ends_the_loop(void **state)
{
    (void)state;
    for (int k = 0; k < 20; k++) {
        struct ledger l = {.fails = 20 + k, .nap_us = 20};
        enum status st;
        (void)share(&l, 1, SCRATCH, &st);
        assert_fails(st, STATUS_FAILED, "is broken");
        assert_int_equal(atomic_load(&l.done[ITEMS - 1]), 0);
    }
}

/* The next loop begins as if nothing had been. */
static void test_after_a_failure(void **state)
{
    (void)state;
    board *b;
    struct ledger l = {.fails = 3, .owner = pthread_self()};
    struct board_loop loop = {note, &l, ITEMS, SCRATCH};
    _Alignas(64) char scratch[SCRATCH];
    assert_ok(board_create(1, &b));
    assert_fails(board_share(b, 0, &loop, scratch), STATUS_FAILED, "item 3 is broken");
    l.fails = -1;
    assert_ok(board_share(b, 0, &loop, scratch));
    assert_int_equal(atomic_load(&l.done[3]), 2);
    assert_int_equal(atomic_load(&l.done[4]), 1);
    assert_false(board_help(b, 0, scratch, SCRATCH));
    board_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once_a_loop),
        cmocka_unit_test(test_others_help),
        cmocka_unit_test(test_little_scratch_does_not_help),
        cmocka_unit_test(test_a_failure_ends_the_loop),
        cmocka_unit_test(test_after_a_failure),
    };
    return test_run(tests);
}
