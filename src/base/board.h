/* board.h: loops that threads which wait for something else may join in.
 *
 * Each of a few threads has a seat at the board. Who has a loop of independent items offers it
 * there and works through it; who waits for others meanwhile does an item of it now and then. What
 * an item computes, and where it leaves it, must not depend on who does it: then neither does the
 * result.
 *
 *     TRY(board_share(board, seat, &loop, scratch));       // the owner: returns when all are done
 *     while (!what_i_wait_for())
 *         if (!board_help(board, seat, scratch, n_bytes))  // who waits: one item
 *             thread_relax();
 *
 * Offering a loop is two atomic stores where nobody helps. Nothing here sleeps or takes a lock.
 */
#ifndef CLEAVE_BASE_BOARD_H
#define CLEAVE_BASE_BOARD_H

#include "base/status.h"

#include <stdint.h>

typedef struct board board;

/* Who does the item hands over memory of its own, which holds nothing before and after. */
typedef enum status board_item(const void *user, int64_t item, void *scratch);

struct board_loop {
    board_item *run;
    const void *user;
    int64_t n_items;
    int64_t scratch_bytes; /* that an item needs; who has less does not help */
};

enum status board_create(int n_seats, board **out) MUST_USE;
void board_destroy(board *b); /* NULL is fine */

/* Does all items of the loop, begun in order, with whoever helps. One loop at a time from one seat.
 * After a failure no more are begun; the first one's error is returned, whoever it struck. */
enum status board_share(board *b, int seat, const struct board_loop *loop, void *scratch) MUST_USE;

/* Does one item of a loop that another seat offers; false: there was none. */
bool board_help(board *b, int seat, void *scratch, int64_t scratch_bytes);

#endif
