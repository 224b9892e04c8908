/* profile_file.h: the inside of the store; shared by profile_file.c, which opens and checks the
 * file and words its errors, and profile_store.c, which reads and writes its rows. */
#ifndef CLEAVE_PROFILE_PROFILE_FILE_H
#define CLEAVE_PROFILE_PROFILE_FILE_H

#include "profile/profile_store.h"

#include <sqlite3.h>

enum statement {
    STATEMENT_BEGIN,
    STATEMENT_COMMIT,
    STATEMENT_ROLLBACK,
    STATEMENT_DATA_VERSION,
    STATEMENT_ADD_SETTING,
    STATEMENT_ADD_ENTRY,
    STATEMENT_REPLACE_ENTRY,
    STATEMENT_ADD_TEXT,
    STATEMENT_REPLACE_TEXT,
    STATEMENT_REMOVE_ENTRIES,
    STATEMENT_REMOVE_SETTING,
    STATEMENT_REMOVE_ALL_ENTRIES,
    STATEMENT_REMOVE_ALL_SETTINGS,
    STATEMENT_REMOVE_ALL_TEXTS,
    STATEMENT_READ_ANY,
    STATEMENT_READ_ALL,
    STATEMENT_READ_SETTING,
    STATEMENT_READ_SETTINGS,
    STATEMENT_READ_NAMES,
    STATEMENT_READ_TEXTS,
    STATEMENT_READ_TEXT,
    STATEMENT_COUNT
};

struct store {
    char *path; /* what messages say */
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT]; /* prepared when first used */
    int64_t data_version;                      /* SQLite's number of what others wrote */
    int wait_ms;
};

/* The failure that the connection met last, as a sentence for people. */
enum status store_fail(const store *s) MUST_USE;
enum status store_fail_damaged(const store *s, const char *reason) MUST_USE;

/* Statements that give nothing back. */
enum status store_exec(store *s, const char *sql) MUST_USE;

/* Reads every row; its checksum must be right. */
enum status store_verify_rows(store *s) MUST_USE;

#endif
