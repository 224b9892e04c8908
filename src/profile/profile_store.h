/* profile_store.h: the file of a profile: opened, checked, read and written; the only part that
 * uses SQLite.
 *
 * It has three tables. Every row has a checksum, which is compared whenever the row is read, so
 * that no damaged figure is ever used.
 *
 *     setting   id, device, threads, load
 *     entry     setting, key, family, flops, bytes, seconds, spread, count, disturbed, measured,
 * sum text      name, value, sum
 *
 * The journal is SQLite's usual one (a file beside it while something is written), not the
 * write-ahead log: that needs memory shared by all processes that use the file, which a file server
 * does not give, and two more files that a copy would have to include. A writer locks the file for
 * a few milliseconds; others wait for it.
 */
#ifndef CLEAVE_PROFILE_PROFILE_STORE_H
#define CLEAVE_PROFILE_PROFILE_STORE_H

#include "base/arena.h"
#include "profile/profile.h"

typedef struct store store;

struct store_row {
    struct profile_setting setting;
    struct profile_entry entry;
    const char *measured; /* "2025-01-31T12:00:00Z" */
};

struct store_text {
    const char *name, *value;
};

enum { STORE_TIME_BYTES = 32, STORE_WAIT_MS = 60000 };

/* As profile_open; NULL: in memory alone. */
enum status store_open(const char *path, store **out) MUST_USE;
void store_close(store *s); /* NULL is fine */
/* How long to wait for other processes; STORE_WAIT_MS at first. */
void store_set_wait(store *s, int wait_ms);

/* ---- reading ---- */

/* The row lives until the visit returns. A visit must not use the store. */
typedef enum status store_visit(const struct store_row *row, void *user);

/* The rows of a setting, by key. */
enum status store_read(store *s, const struct profile_setting *only, store_visit *visit,
                       void *user) MUST_USE;

/* Everything, copied: rows by device, threads, load and key, texts by name. */
struct store_content {
    arena *memory; /* owns it all */
    struct store_row *rows;
    int n_rows, rows_capacity;
    struct store_text *texts;
    int n_texts, texts_capacity;
};
enum status store_content_create(struct store_content *c) MUST_USE; /* empty */
void store_content_destroy(struct store_content *c);
enum status store_content_add_row(struct store_content *c, const struct store_row *row) MUST_USE;
enum status store_content_add_text(struct store_content *c, const struct store_text *t) MUST_USE;
enum status store_read_all(store *s, struct store_content *c) MUST_USE;

/* The settings; array and texts are in `memory`. If `counted`, they are sorted, and the numbers and
 * times of their entries are given, which takes reading all entries. */
enum status store_read_settings(store *s, arena *memory, bool counted, struct profile_summary **out,
                                int *n) MUST_USE;

/* malloc'ed; NULL if there is none of that name. */
enum status store_read_text(store *s, const char *name, char **value) MUST_USE;

/* Whether another process has written since the last call. */
enum status store_poll_changes(store *s, bool *changed) MUST_USE;

/* ---- writing: between begin and end ---- */

enum status store_begin(store *s) MUST_USE;
/* Commits all since begin if st is STATUS_OK, else rolls it back; returns st, or why that failed.
 */
enum status store_end(store *s, enum status st) MUST_USE;

/* As profile_add, or profile_replace; *added: false if it was there already, and stays as it was.
 */
enum status store_add_row(store *s, const struct store_row *row, bool replaces,
                          bool *added) MUST_USE;
enum status store_add_text(store *s, const struct store_text *t, bool replace,
                           bool *added) MUST_USE;
/* NULL: all rows and texts. */
enum status store_remove(store *s, const struct profile_setting *only) MUST_USE;

/* ---- rows ---- */

/* Describes the fault in the figures or texts of a row; NULL: there is none. */
const char *store_check_row(const struct store_row *row);
/* Now, as rows have it. */
const char *store_now(char buffer[STORE_TIME_BYTES]);
const char *store_path(const store *s);

#endif
