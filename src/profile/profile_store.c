#include "profile/profile_store.h"

#include "base/array.h"
#include "profile/profile_file.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

/* ---- statements ---- */

#define ROW_COLUMNS                                                             \
    "device, threads, load, key, family, flops, bytes, seconds, spread, count," \
    " disturbed, measured, entry.sum"

#define INSERT_ENTRY                                                                       \
    "INSERT INTO entry SELECT id, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13 FROM setting" \
    " WHERE device = ?1 AND threads = ?2 AND load = ?3"

static const char *const statement_texts[STATEMENT_COUNT] = {
    [STATEMENT_BEGIN] = "BEGIN IMMEDIATE",
    [STATEMENT_COMMIT] = "COMMIT",
    [STATEMENT_ROLLBACK] = "ROLLBACK",
    [STATEMENT_DATA_VERSION] = "PRAGMA data_version",
    [STATEMENT_ADD_SETTING] = "INSERT INTO setting (device, threads, load) VALUES (?1, ?2, ?3)"
                              " ON CONFLICT DO NOTHING",
    [STATEMENT_ADD_ENTRY] = INSERT_ENTRY " ON CONFLICT DO NOTHING",
    [STATEMENT_REPLACE_ENTRY] =
        INSERT_ENTRY " ON CONFLICT DO UPDATE SET family = excluded.family, flops = excluded.flops,"
                     " bytes = excluded.bytes, seconds = excluded.seconds,"
                     " spread = excluded.spread, count = excluded.count,"
                     " disturbed = excluded.disturbed, measured = excluded.measured,"
                     " sum = excluded.sum WHERE excluded.disturbed <= entry.disturbed",
    [STATEMENT_ADD_TEXT] = "INSERT INTO text VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    [STATEMENT_REPLACE_TEXT] = "INSERT OR REPLACE INTO text VALUES (?1, ?2, ?3)",
    [STATEMENT_REMOVE_ENTRIES] = "DELETE FROM entry WHERE setting = (SELECT id FROM setting"
                                 " WHERE device = ?1 AND threads = ?2 AND load = ?3)",
    [STATEMENT_REMOVE_SETTING] =
        "DELETE FROM setting WHERE device = ?1 AND threads = ?2 AND load = ?3",
    [STATEMENT_REMOVE_ALL_ENTRIES] = "DELETE FROM entry",
    [STATEMENT_REMOVE_ALL_SETTINGS] = "DELETE FROM setting",
    [STATEMENT_REMOVE_ALL_TEXTS] = "DELETE FROM text",
    /* From the entry's side: one whose setting is lost must be seen, too. */
    [STATEMENT_READ_ANY] =
        "SELECT " ROW_COLUMNS " FROM entry LEFT JOIN setting ON setting.id = entry.setting",
    [STATEMENT_READ_ALL] =
        "SELECT " ROW_COLUMNS " FROM entry LEFT JOIN setting ON setting.id = entry.setting"
        " ORDER BY device, threads, load, key",
    [STATEMENT_READ_SETTING] =
        "SELECT " ROW_COLUMNS " FROM setting JOIN entry ON setting.id = entry.setting"
        " WHERE device = ?1 AND threads = ?2 AND load = ?3 ORDER BY key",
    [STATEMENT_READ_SETTINGS] =
        "SELECT device, threads, load, count(*), max(measured), count(*) OVER (),"
        " sum(disturbed > 0) FROM setting"
        " JOIN entry ON setting.id = entry.setting GROUP BY id ORDER BY device, threads, load",
    [STATEMENT_READ_NAMES] =
        "SELECT device, threads, load, 0, '', count(*) OVER (), 0 FROM setting",
    [STATEMENT_READ_TEXTS] = "SELECT name, value, sum FROM text ORDER BY name",
    [STATEMENT_READ_TEXT] = "SELECT name, value, sum FROM text WHERE name = ?1",
};

/* Ready to be bound and stepped. The caller resets it, which also gives up its lock. */
static enum status use(store *s, enum statement which, sqlite3_stmt **out)
{
    sqlite3_stmt **kept = &s->statements[which];
    if (!*kept)
        (void)sqlite3_prepare_v3(s->db, statement_texts[which], -1, SQLITE_PREPARE_PERSISTENT, kept,
                                 NULL);
    *out = *kept;
    return *kept ? STATUS_OK : store_fail(s);
}

/* A step that gives no row, and the end of the statement. */
static enum status finish(store *s, sqlite3_stmt *q)
{
    int code = sqlite3_step(q);
    enum status st = code == SQLITE_DONE || code == SQLITE_ROW ? STATUS_OK : store_fail(s);
    (void)sqlite3_reset(q);
    return st;
}

static enum status run(store *s, enum statement which)
{
    sqlite3_stmt *q;
    TRY(use(s, which, &q));
    return finish(s, q);
}

/* Binding fails only if memory is short; the statement then fails on a missing value. The texts
 * outlive the step. */
static void bind_text(sqlite3_stmt *q, int place, const char *text)
{
    (void)sqlite3_bind_text(q, place, text, -1, SQLITE_STATIC);
}

static void bind_setting(sqlite3_stmt *q, const struct profile_setting *s)
{
    bind_text(q, 1, s->device);
    (void)sqlite3_bind_int(q, 2, s->threads);
    (void)sqlite3_bind_int(q, 3, s->load);
}

static enum status run_for(store *s, enum statement which, const struct profile_setting *setting)
{
    sqlite3_stmt *q;
    TRY(use(s, which, &q));
    bind_setting(q, setting);
    return finish(s, q);
}

/* ---- checksums ---- */

static uint64_t sum_text(const char *text, uint64_t sum)
{
    return XXH3_64bits_withSeed(text, strlen(text), sum);
}

static uint64_t sum_integer(int64_t value, uint64_t sum)
{
    uint64_t word = htole64((uint64_t)value);
    return XXH3_64bits_withSeed(&word, sizeof word, sum);
}

static uint64_t sum_real(double value, uint64_t sum)
{
    int64_t bits;
    value += 0.0; /* SQLite has no minus zero */
    memcpy(&bits, &value, sizeof bits);
    return sum_integer(bits, sum);
}

static int64_t row_sum(const struct store_row *r)
{
    uint64_t sum = sum_text(r->setting.device, 0);
    sum = sum_integer(r->setting.threads, sum);
    sum = sum_integer(r->setting.load, sum);
    sum = sum_text(r->entry.key, sum);
    sum = sum_text(r->entry.work.family, sum);
    sum = sum_real(r->entry.work.flops, sum);
    sum = sum_real(r->entry.work.bytes, sum);
    sum = sum_real(r->entry.cost.seconds, sum);
    sum = sum_real(r->entry.cost.spread, sum);
    sum = sum_integer(r->entry.cost.count, sum);
    if (r->entry.cost.disturbed < 1) /* else as in format 1, which did not have it */
        sum = sum_real(r->entry.cost.disturbed, sum);
    return (int64_t)sum_text(r->measured, sum);
}

static int64_t text_sum(const struct store_text *t)
{
    return (int64_t)sum_text(t->value, sum_text(t->name, 0));
}

/* ---- reading ---- */

/* Never NULL: a missing text, or bytes of another type, do not match the checksum. */
static const char *column_text(sqlite3_stmt *q, int column)
{
    if (sqlite3_column_type(q, column) != SQLITE_TEXT)
        return "";
    const unsigned char *text = sqlite3_column_text(q, column);
    return text ? (const char *)text : "";
}

static enum status get_row(store *s, sqlite3_stmt *q, struct store_row *row)
{
    *row = (struct store_row){
        .setting = {column_text(q, 0), sqlite3_column_int(q, 1), sqlite3_column_int(q, 2)},
        .entry = {.key = column_text(q, 3),
                  .work = {column_text(q, 4), sqlite3_column_double(q, 5),
                           sqlite3_column_double(q, 6)},
                  .cost = {sqlite3_column_double(q, 7), sqlite3_column_double(q, 8),
                           sqlite3_column_int(q, 9), sqlite3_column_double(q, 10)}},
        .measured = column_text(q, 11)};
    if (row_sum(row) != sqlite3_column_int64(q, 12) || store_check_row(row))
        return store_fail_damaged(s, "the checksum of an entry is wrong");
    return STATUS_OK;
}

static enum status get_text(store *s, sqlite3_stmt *q, struct store_text *t)
{
    *t = (struct store_text){column_text(q, 0), column_text(q, 1)};
    if (text_sum(t) != sqlite3_column_int64(q, 2))
        return store_fail_damaged(s, "the checksum of a text is wrong");
    return STATUS_OK;
}

/* Handles a row of a statement. */
typedef enum status handle_function(store *s, sqlite3_stmt *q, void *user);

static enum status for_each(store *s, sqlite3_stmt *q, handle_function *handle, void *user)
{
    enum status st = STATUS_OK;
    int code = SQLITE_DONE;
    while (st == STATUS_OK && (code = sqlite3_step(q)) == SQLITE_ROW)
        st = handle(s, q, user);
    if (st == STATUS_OK && code != SQLITE_DONE)
        st = store_fail(s);
    (void)sqlite3_reset(q);
    return st;
}

static enum status for_each_of(store *s, enum statement which, handle_function *handle, void *user)
{
    sqlite3_stmt *q;
    TRY(use(s, which, &q));
    return for_each(s, q, handle, user);
}

struct visitor {
    store_visit *visit;
    void *user;
};

static enum status show_row(store *s, sqlite3_stmt *q, void *user)
{
    const struct visitor *v = user;
    struct store_row row;
    TRY(get_row(s, q, &row));
    return v->visit(&row, v->user);
}

enum status store_read(store *s, const struct profile_setting *only, store_visit *visit, void *user)
{
    sqlite3_stmt *q;
    TRY(use(s, STATEMENT_READ_SETTING, &q));
    bind_setting(q, only);
    return for_each(s, q, show_row, &(struct visitor){visit, user});
}

static enum status check_row(store *s, sqlite3_stmt *q, void *user)
{
    (void)user;
    struct store_row row;
    return get_row(s, q, &row);
}

static enum status check_text(store *s, sqlite3_stmt *q, void *user)
{
    (void)user;
    struct store_text t;
    return get_text(s, q, &t);
}

enum status store_verify_rows(store *s)
{
    TRY(for_each_of(s, STATEMENT_READ_ANY, check_row, NULL));
    return for_each_of(s, STATEMENT_READ_TEXTS, check_text, NULL);
}

static enum status keep_row(store *s, sqlite3_stmt *q, void *user)
{
    struct store_row row;
    TRY(get_row(s, q, &row));
    return store_content_add_row(user, &row);
}

static enum status keep_text(store *s, sqlite3_stmt *q, void *user)
{
    struct store_text t;
    TRY(get_text(s, q, &t));
    return store_content_add_text(user, &t);
}

enum status store_read_all(store *s, struct store_content *c)
{
    TRY(for_each_of(s, STATEMENT_READ_ALL, keep_row, c));
    return for_each_of(s, STATEMENT_READ_TEXTS, keep_text, c);
}

static enum status copy_value(store *s, sqlite3_stmt *q, void *user)
{
    char **value = user;
    struct store_text t;
    TRY(get_text(s, q, &t));
    *value = strdup(t.value);
    return *value ? STATUS_OK : status_no_memory(strlen(t.value) + 1);
}

enum status store_read_text(store *s, const char *name, char **value)
{
    sqlite3_stmt *q;
    *value = NULL;
    TRY(use(s, STATEMENT_READ_TEXT, &q));
    bind_text(q, 1, name);
    enum status st = for_each(s, q, copy_value, value);
    if (st != STATUS_OK) {
        free(*value);
        *value = NULL;
    }
    return st;
}

struct summaries {
    arena *memory;
    struct profile_summary *list;
    int n;
};

static enum status keep_summary(store *s, sqlite3_stmt *q, void *user)
{
    (void)s;
    struct summaries *all = user;
    if (all->n == 0) /* the first says how many there are */
        TRY(arena_alloc_array(all->memory, (size_t)sqlite3_column_int64(q, 5), sizeof *all->list,
                              &all->list));
    struct profile_summary *out = &all->list[all->n];
    out->setting.threads = sqlite3_column_int(q, 1);
    out->setting.load = sqlite3_column_int(q, 2);
    out->n_entries = sqlite3_column_int64(q, 3);
    out->n_disturbed = sqlite3_column_int64(q, 6);
    TRY(arena_copy_text(all->memory, column_text(q, 0), &out->setting.device));
    TRY(arena_copy_text(all->memory, column_text(q, 4), &out->measured));
    all->n++;
    return STATUS_OK;
}

enum status store_read_settings(store *s, arena *memory, bool counted, struct profile_summary **out,
                                int *n)
{
    struct summaries all = {.memory = memory};
    enum statement which = counted ? STATEMENT_READ_SETTINGS : STATEMENT_READ_NAMES;
    TRY(for_each_of(s, which, keep_summary, &all));
    *out = all.list;
    *n = all.n;
    return STATUS_OK;
}

enum status store_poll_changes(store *s, bool *changed)
{
    sqlite3_stmt *q;
    TRY(use(s, STATEMENT_DATA_VERSION, &q));
    enum status st = STATUS_OK;
    if (sqlite3_step(q) == SQLITE_ROW) {
        int64_t version = sqlite3_column_int64(q, 0);
        *changed = s->data_version != version;
        s->data_version = version;
    } else {
        st = store_fail(s);
    }
    (void)sqlite3_reset(q);
    return st;
}

/* ---- writing ---- */

enum status store_begin(store *s)
{
    return run(s, STATEMENT_BEGIN);
}

enum status store_end(store *s, enum status st)
{
    if (st == STATUS_OK)
        st = run(s, STATEMENT_COMMIT);
    /* Some failures end the transaction by themselves. */
    if (st != STATUS_OK && !sqlite3_get_autocommit(s->db)) {
        sqlite3_stmt *q;
        if (use(s, STATEMENT_ROLLBACK, &q) == STATUS_OK) {
            (void)sqlite3_step(q);
            (void)sqlite3_reset(q);
        }
    }
    return st;
}

static enum status add_entry(store *s, const struct store_row *row, bool replaces, bool *added)
{
    const struct profile_entry *e = &row->entry;
    sqlite3_stmt *q;
    TRY(use(s, replaces ? STATEMENT_REPLACE_ENTRY : STATEMENT_ADD_ENTRY, &q));
    bind_setting(q, &row->setting);
    bind_text(q, 4, e->key);
    bind_text(q, 5, e->work.family);
    (void)sqlite3_bind_double(q, 6, e->work.flops);
    (void)sqlite3_bind_double(q, 7, e->work.bytes);
    (void)sqlite3_bind_double(q, 8, e->cost.seconds);
    (void)sqlite3_bind_double(q, 9, e->cost.spread);
    (void)sqlite3_bind_int(q, 10, e->cost.count);
    (void)sqlite3_bind_double(q, 11, e->cost.disturbed);
    bind_text(q, 12, row->measured);
    (void)sqlite3_bind_int64(q, 13, row_sum(row));
    TRY(finish(s, q));
    *added = sqlite3_changes(s->db) > 0;
    return STATUS_OK;
}

enum status store_add_row(store *s, const struct store_row *row, bool replaces, bool *added)
{
    const char *wrong = store_check_row(row);
    if (wrong)
        return status_fail(STATUS_FAILED, "%s: cannot keep the cost of '%.80s': %s", s->path,
                           row->entry.key, wrong);
    TRY(run_for(s, STATEMENT_ADD_SETTING, &row->setting));
    return add_entry(s, row, replaces, added);
}

enum status store_add_text(store *s, const struct store_text *t, bool replace, bool *added)
{
    sqlite3_stmt *q;
    TRY(use(s, replace ? STATEMENT_REPLACE_TEXT : STATEMENT_ADD_TEXT, &q));
    bind_text(q, 1, t->name);
    bind_text(q, 2, t->value);
    (void)sqlite3_bind_int64(q, 3, text_sum(t));
    TRY(finish(s, q));
    *added = sqlite3_changes(s->db) > 0;
    return STATUS_OK;
}

enum status store_remove(store *s, const struct profile_setting *only)
{
    if (only) {
        TRY(run_for(s, STATEMENT_REMOVE_ENTRIES, only));
        return run_for(s, STATEMENT_REMOVE_SETTING, only);
    }
    TRY(run(s, STATEMENT_REMOVE_ALL_ENTRIES));
    TRY(run(s, STATEMENT_REMOVE_ALL_SETTINGS));
    return run(s, STATEMENT_REMOVE_ALL_TEXTS);
}

/* ---- rows ---- */

static bool is_size(double value)
{
    return isfinite(value) && value >= 0;
}

static bool is_time(const char *text)
{
    static const char pattern[] = "0000-00-00T00:00:00Z";
    if (strlen(text) != sizeof pattern - 1)
        return false;
    for (size_t i = 0; i < sizeof pattern - 1; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        if (pattern[i] == '0' ? !digit : text[i] != pattern[i])
            return false;
    }
    return true;
}

const char *store_check_row(const struct store_row *r)
{
    const struct profile_entry *e = &r->entry;
    if (!*r->setting.device)
        return "the device must not be empty";
    if (r->setting.threads < 0 || r->setting.load < 1)
        return "threads must be at least 0, load at least 1";
    if (!*e->key)
        return "the key must not be empty";
    if (!is_size(e->work.flops) || !is_size(e->work.bytes))
        return "flops and bytes must be finite and at least 0";
    if (!is_size(e->cost.seconds) || !is_size(e->cost.spread))
        return "seconds and spread must be finite and at least 0";
    if (e->cost.count < 1)
        return "the number of measurements must be at least 1";
    if (!(e->cost.disturbed >= 0 && e->cost.disturbed <= 1))
        return "the disturbed share must be from 0 to 1";
    if (!is_time(r->measured))
        return "the time must be like 2025-01-31T12:00:00Z";
    return NULL;
}

const char *store_now(char buffer[STORE_TIME_BYTES])
{
    time_t now = time(NULL);
    struct tm parts;
    if (!gmtime_r(&now, &parts) ||
        strftime(buffer, STORE_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts) != 20)
        (void)snprintf(buffer, STORE_TIME_BYTES, "1970-01-01T00:00:00Z");
    return buffer;
}

/* ---- content ---- */

enum status store_content_create(struct store_content *c)
{
    *c = (struct store_content){0};
    return arena_create(&c->memory);
}

void store_content_destroy(struct store_content *c)
{
    arena_destroy(c->memory);
    free(c->rows);
    free(c->texts);
    *c = (struct store_content){0};
}

/* Rows come sorted: most have the device, family and time of the one before. */
static enum status copy_shared(arena *memory, const char *text, const char *before,
                               const char **out)
{
    if (before && !strcmp(text, before)) {
        *out = before;
        return STATUS_OK;
    }
    return arena_copy_text(memory, text, out);
}

enum status store_content_add_row(struct store_content *c, const struct store_row *row)
{
    static const struct store_row none;
    TRY(array_reserve(NULL, &c->rows, c->n_rows + 1, &c->rows_capacity, sizeof *c->rows));
    const struct store_row *before = c->n_rows ? &c->rows[c->n_rows - 1] : &none;
    struct store_row copy = *row;
    TRY(copy_shared(c->memory, row->setting.device, before->setting.device, &copy.setting.device));
    TRY(copy_shared(c->memory, row->entry.work.family, before->entry.work.family,
                    &copy.entry.work.family));
    TRY(copy_shared(c->memory, row->measured, before->measured, &copy.measured));
    TRY(arena_copy_text(c->memory, row->entry.key, &copy.entry.key));
    c->rows[c->n_rows++] = copy;
    return STATUS_OK;
}

enum status store_content_add_text(struct store_content *c, const struct store_text *t)
{
    TRY(array_reserve(NULL, &c->texts, c->n_texts + 1, &c->texts_capacity, sizeof *c->texts));
    struct store_text copy;
    TRY(arena_copy_text(c->memory, t->name, &copy.name));
    TRY(arena_copy_text(c->memory, t->value, &copy.value));
    c->texts[c->n_texts++] = copy;
    return STATUS_OK;
}
