/* profile_file.c: the file opened, made and checked, and its failures put into words. */
#include "profile/profile_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* "Clvp", in the place for the owner of an SQLite file. */
enum { APPLICATION_ID = 0x436c7670, FORMAT_VERSION = 2, FOLDER_MODE = 0777 };

/* The columns of an entry before and after `disturbed`, which version 1 did not have. */
#define ENTRY_BEGIN                                                                           \
    "CREATE TABLE entry (setting INTEGER NOT NULL, key TEXT NOT NULL, family TEXT NOT NULL,"  \
    " flops REAL NOT NULL, bytes REAL NOT NULL, seconds REAL NOT NULL, spread REAL NOT NULL," \
    " count INTEGER NOT NULL,"
#define ENTRY_END \
    " measured TEXT NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (setting, key)) WITHOUT ROWID"

static const char *const schema[] = {
    "CREATE TABLE setting (id INTEGER PRIMARY KEY, device TEXT NOT NULL, threads INTEGER NOT NULL,"
    " load INTEGER NOT NULL, UNIQUE (device, threads, load))",
    "CREATE TABLE text (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL)"
    " WITHOUT ROWID",
    ENTRY_BEGIN " disturbed REAL NOT NULL," ENTRY_END,
};
static const char entry_of_version_1[] = ENTRY_BEGIN ENTRY_END;
static const char in_memory[] = ":memory:";
enum { SCHEMA_TABLES = sizeof schema / sizeof *schema, ENTRY_TABLE = SCHEMA_TABLES - 1 };

/* ---- failures ---- */

enum status store_fail_damaged(const store *s, const char *reason)
{
    return status_fail(STATUS_FAILED,
                       "%s: the profile is damaged (%.200s): remove it, and what it held is "
                       "measured again, or put back a copy",
                       s->path, reason);
}

static enum status fail_foreign(const store *s)
{
    return status_fail(STATUS_FAILED,
                       "%s: is no profile of Cleave: name another file with --profile FILE or "
                       "CLEAVE_PROFILE, or remove this one",
                       s->path);
}

static enum status fail_system(const store *s, const char *what)
{
    int error = sqlite3_system_errno(s->db);
    return status_fail(STATUS_FAILED, "%s: %s: %s", s->path, what,
                       error ? strerror(error) : sqlite3_errmsg(s->db));
}

enum status store_fail(const store *s)
{
    switch (sqlite3_errcode(s->db)) {
    case SQLITE_CORRUPT:
        return store_fail_damaged(s, sqlite3_errmsg(s->db));
    case SQLITE_NOTADB:
        return fail_foreign(s);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return status_fail(STATUS_TIMEOUT,
                           "%s: another process has kept the profile locked for %g s: try again "
                           "when it is done",
                           s->path, s->wait_ms / 1000.0);
    case SQLITE_READONLY:
        return status_fail(STATUS_FAILED,
                           "%s: cannot write: the file or its folder is read-only: name another "
                           "with --profile FILE or CLEAVE_PROFILE",
                           s->path);
    case SQLITE_FULL:
        return status_fail(STATUS_FAILED, "%s: cannot write: no space left on the disk", s->path);
    case SQLITE_CANTOPEN:
        return fail_system(s, "cannot open the profile or a journal beside it");
    case SQLITE_IOERR:
        return fail_system(s, "cannot read or write");
    case SQLITE_NOMEM:
        return status_fail(STATUS_FAILED, "%s: out of memory", s->path);
    default:
        return status_fail(STATUS_FAILED, "%s: %s", s->path, sqlite3_errmsg(s->db));
    }
}

/* ---- single questions ---- */

enum status store_exec(store *s, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? STATUS_OK : store_fail(s);
}

/* The one number that `sql` gives; `bound` goes into its places, if any. */
static enum status ask_number(store *s, const char *sql, const char *const *bound, int n_bound,
                              int64_t *out)
{
    sqlite3_stmt *q = NULL;
    *out = 0;
    if (sqlite3_prepare_v2(s->db, sql, -1, &q, NULL) != SQLITE_OK)
        return store_fail(s);
    for (int i = 0; i < n_bound; i++)
        (void)sqlite3_bind_text(q, i + 1, bound[i], -1, SQLITE_STATIC);
    enum status st = STATUS_OK;
    if (sqlite3_step(q) == SQLITE_ROW)
        *out = sqlite3_column_int64(q, 0);
    else
        st = store_fail(s);
    (void)sqlite3_finalize(q);
    return st;
}

/* ---- checking ---- */

/* *version is 0 if the file is empty. */
static enum status check_owner(store *s, int64_t *out)
{
    int64_t application, version, n_objects;
    TRY(ask_number(s, "PRAGMA application_id", NULL, 0, &application));
    TRY(ask_number(s, "PRAGMA user_version", NULL, 0, &version));
    TRY(ask_number(s, "SELECT count(*) FROM sqlite_schema", NULL, 0, &n_objects));
    *out = version;
    if (application == 0 && version == 0 && n_objects == 0)
        return STATUS_OK;
    if (application != APPLICATION_ID)
        return fail_foreign(s);
    if (version > FORMAT_VERSION)
        return status_fail(STATUS_FAILED,
                           "%s: was written by a later version of Cleave (format %lld, this one "
                           "reads %d): update, or name another file with --profile FILE",
                           s->path, (long long)version, FORMAT_VERSION);
    if (version < 1)
        return store_fail_damaged(s, "its version is unknown");
    return STATUS_OK;
}

/* Only our tables: no foreign view or trigger runs here. */
static enum status check_schema(store *s, int64_t version)
{
    int64_t ours, others;
    const char *tables[SCHEMA_TABLES];
    memcpy(tables, schema, sizeof tables);
    if (version == 1)
        tables[ENTRY_TABLE] = entry_of_version_1;
    TRY(ask_number(s, "SELECT count(*) FROM sqlite_schema WHERE sql IN (?1, ?2, ?3)", tables,
                   SCHEMA_TABLES, &ours));
    TRY(ask_number(s,
                   "SELECT count(*) FROM sqlite_schema WHERE sql NOT IN (?1, ?2, ?3)"
                   " AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
                   tables, SCHEMA_TABLES, &others));
    if (ours != SCHEMA_TABLES || others > 0)
        return store_fail_damaged(s, "its tables are not those of a profile");
    return STATUS_OK;
}

/* Finds pages that are missing, used twice or out of order, and an index that differs from its
 * table. Checksums protect the rows themselves. */
static enum status check_structure(store *s)
{
    sqlite3_stmt *q = NULL;
    if (sqlite3_prepare_v2(s->db, "PRAGMA integrity_check(1)", -1, &q, NULL) != SQLITE_OK)
        return store_fail(s);
    enum status st = STATUS_OK;
    if (sqlite3_step(q) != SQLITE_ROW) {
        st = store_fail(s);
    } else {
        const char *answer = (const char *)sqlite3_column_text(q, 0);
        if (!answer || strcmp(answer, "ok") != 0)
            st = store_fail_damaged(s, answer ? answer : "it cannot be checked");
    }
    (void)sqlite3_finalize(q);
    return st;
}

/* Rows of an earlier version are verified when they have been upgraded. */
static enum status check_all(store *s, int64_t *version)
{
    TRY(check_owner(s, version));
    if (*version == 0)
        return STATUS_OK;
    TRY(check_schema(s, *version));
    TRY(check_structure(s));
    return *version == FORMAT_VERSION ? store_verify_rows(s) : STATUS_OK;
}

/* ---- making ---- */

static enum status set_pragma(store *s, const char *name, int value)
{
    char pragma[64];
    (void)snprintf(pragma, sizeof pragma, "PRAGMA %s = %d", name, value);
    return store_exec(s, pragma);
}

static enum status create_tables(store *s)
{
    for (int i = 0; i < SCHEMA_TABLES; i++)
        TRY(store_exec(s, schema[i]));
    TRY(set_pragma(s, "application_id", APPLICATION_ID));
    return set_pragma(s, "user_version", FORMAT_VERSION);
}

/* Version 1 did not keep how calmly it measured: its costs count as disturbed. */
static enum status upgrade_tables(store *s)
{
    TRY(store_exec(s, "ALTER TABLE entry RENAME TO old_entry"));
    TRY(store_exec(s, schema[ENTRY_TABLE]));
    TRY(store_exec(s, "INSERT INTO entry SELECT setting, key, family, flops, bytes, seconds,"
                      " spread, count, 1, measured, sum FROM old_entry"));
    TRY(store_exec(s, "DROP TABLE old_entry"));
    TRY(set_pragma(s, "user_version", FORMAT_VERSION));
    return store_verify_rows(s);
}

/* Another process may have done it while this process waited for the lock. */
static enum status create_or_upgrade(store *s)
{
    int64_t version;
    TRY(store_begin(s));
    enum status st;
    TRY_GOTO(st, check_all(s, &version), out);
    if (version == 0)
        TRY_GOTO(st, create_tables(s), out);
    if (version == 1)
        TRY_GOTO(st, upgrade_tables(s), out);
out:
    return store_end(s, st);
}

/* A file of version 1 that cannot be written is read through a view. */
static enum status show_upgraded(store *s)
{
    TRY(store_exec(s, "CREATE TEMP VIEW entry AS SELECT *, 1 AS disturbed FROM main.entry"));
    return store_verify_rows(s);
}

static bool can_write(store *s)
{
    struct status_error ignored;
    enum status st = store_begin(s);
    if (st == STATUS_OK)
        st = store_end(s, set_pragma(s, "application_id", APPLICATION_ID));
    if (st != STATUS_OK)
        status_take(st, &ignored);
    return st == STATUS_OK || st == STATUS_TIMEOUT;
}

/* All questions in one transaction: between two of them another process could write. */
static enum status check_or_create(store *s)
{
    int64_t version = 0;
    TRY(store_exec(s, "BEGIN"));
    TRY(store_end(s, check_all(s, &version)));
    if (version == FORMAT_VERSION)
        return STATUS_OK;
    return version == 1 && !can_write(s) ? show_upgraded(s) : create_or_upgrade(s);
}

/* ---- opening ---- */

static enum status make_folders(const char *path)
{
    char *folder = strdup(path);
    if (!folder)
        return status_no_memory(strlen(path) + 1);
    enum status st = STATUS_OK;
    for (char *slash = strchr(folder + 1, '/'); slash && st == STATUS_OK;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, FOLDER_MODE) != 0 && errno != EEXIST)
            st = status_fail(STATUS_FAILED, "%s: cannot make the folder: %s", folder,
                             strerror(errno));
        *slash = '/';
    }
    free(folder);
    return st;
}

static enum status check_place(const char *path)
{
    struct stat info;
    if (!*path)
        return status_fail(STATUS_USAGE, "the path of a profile must not be empty");
    if (stat(path, &info) != 0)
        return errno == ENOENT ? make_folders(path)
                               : status_fail(STATUS_FAILED, "%s: cannot open the profile: %s", path,
                                             strerror(errno));
    if (!S_ISREG(info.st_mode))
        return status_fail(STATUS_FAILED, "%s: is no file: a profile is one SQLite file", path);
    return STATUS_OK;
}

/* Some names mean something else to SQLite (":memory:", "file:..."); none does behind "./". */
static enum status connect_file(store *s, const char *path)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    size_t size = strlen(path) + 3;
    char *plain = malloc(size);
    if (!plain)
        return status_no_memory(size);
    (void)snprintf(plain, size, "%s%s", *path == '/' ? "" : "./", path);
    int code = sqlite3_open_v2(path == in_memory ? in_memory : plain, &s->db, flags, NULL);
    free(plain);
    if (!s->db)
        return status_fail(STATUS_FAILED, "%s: out of memory", s->path);
    if (code != SQLITE_OK)
        return store_fail(s);
    /* The file may come from anywhere: nothing in it is run or trusted. */
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    store_set_wait(s, STORE_WAIT_MS);
    /* KiB: pages read by the check stay cached */
    return store_exec(s, "PRAGMA cache_size = -32000");
}

enum status store_open(const char *path, store **out)
{
    if (path)
        TRY(check_place(path));
    else
        path = in_memory;
    store *s = calloc(1, sizeof *s);
    if (!s)
        return status_no_memory(sizeof *s);
    enum status st;
    s->path = strdup(path);
    if (!s->path)
        TRY_GOTO(st, status_no_memory(strlen(path) + 1), fail);
    TRY_GOTO(st, connect_file(s, path), fail);
    TRY_GOTO(st, check_or_create(s), fail);
    *out = s;
    return STATUS_OK;
fail:
    store_close(s);
    return st;
}

void store_close(store *s)
{
    if (!s)
        return;
    for (int i = 0; i < STATEMENT_COUNT; i++)
        (void)sqlite3_finalize(s->statements[i]);
    (void)sqlite3_close(s->db);
    free(s->path);
    free(s);
}

void store_set_wait(store *s, int wait_ms)
{
    s->wait_ms = wait_ms;
    (void)sqlite3_busy_timeout(s->db, wait_ms);
}

const char *store_path(const store *s)
{
    return s->path;
}
