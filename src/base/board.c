#include "base/board.h"

#include "base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Who looks around reads `is_open` alone, which changes twice a loop; what changes with every item
 * has a line of memory of its own. */
struct place {
    _Alignas(64) atomic_bool is_open;
    struct board_loop loop; /* changes only while nobody is inside */
    _Alignas(64) atomic_llong next;
    atomic_int inside; /* helpers that read the loop, or do an item of it */
    atomic_flag failed;
    struct status_error error; /* of who set the flag */
};

struct board {
    int n_seats;
    struct place *places;
};

enum status board_create(int n_seats, board **out)
{
    size_t n_bytes = (size_t)n_seats * sizeof(struct place);
    board *b = malloc(sizeof *b);
    struct place *places = aligned_alloc(_Alignof(struct place), n_bytes);
    if (!b || !places) {
        free(b);
        free(places);
        return status_no_memory(n_bytes);
    }
    memset(places, 0, n_bytes);
    *b = (board){n_seats, places};
    *out = b;
    return STATUS_OK;
}

void board_destroy(board *b)
{
    if (!b)
        return;
    free(b->places);
    free(b);
}

/* No item begins after this. */
static void fail(struct place *p, enum status st)
{
    struct status_error error;
    status_take(st, &error);
    if (!atomic_flag_test_and_set(&p->failed))
        p->error = error;
    atomic_store_explicit(&p->next, p->loop.n_items, memory_order_relaxed);
}

static bool run_next(struct place *p, void *scratch)
{
    int64_t item = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
    if (item >= p->loop.n_items)
        return false;
    enum status st = p->loop.run(p->loop.user, item, scratch);
    if (st != STATUS_OK)
        fail(p, st);
    return true;
}

enum status board_share(board *b, int seat, const struct board_loop *loop, void *scratch)
{
    struct place *p = &b->places[seat];
    p->loop = *loop;
    p->error.status = STATUS_OK;
    atomic_flag_clear(&p->failed);
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store(&p->is_open, true);
    while (run_next(p, scratch)) {
    }
    atomic_store(&p->is_open, false);
    while (atomic_load(&p->inside) > 0) /* for an item at most */
        thread_relax();
    return p->error.status == STATUS_OK ? STATUS_OK : status_give(&p->error);
}

/* A helper is counted before it looks whether the loop is open, and the owner closes it before it
 * looks whether anybody is counted: one of the two sees the other. */
static bool help_at(struct place *p, void *scratch, int64_t scratch_bytes)
{
    bool helped = false;
    (void)atomic_fetch_add(&p->inside, 1);
    if (atomic_load(&p->is_open) && p->loop.scratch_bytes <= scratch_bytes)
        helped = run_next(p, scratch);
    (void)atomic_fetch_sub(&p->inside, 1);
    return helped;
}

bool board_help(board *b, int seat, void *scratch, int64_t scratch_bytes)
{
    for (int k = 1; k < b->n_seats; k++) {
        struct place *p = &b->places[(seat + k) % b->n_seats];
        if (atomic_load_explicit(&p->is_open, memory_order_relaxed) &&
            help_at(p, scratch, scratch_bytes))
            return true;
    }
    return false;
}
