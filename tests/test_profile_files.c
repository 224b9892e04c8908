/* Files of profiles: damaged ones, other ones, places where nothing can be written, and several
 * processes with one file. */
#include "base/random.h"
#include "base/timer.h"
#include "profiles.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <sqlite3.h>

/* ---- files that are no profiles ---- */

static void assert_refused(const char *path)
{
    profile *p = NULL;
    assert_fails(profile_open(path, &p), STATUS_FAILED, path);
    assert_null(p);
}

/* Opens as before or is refused; says which. */
static bool opens_unharmed(const char *path, const char *before)
{
    profile *p;
    enum status st = profile_open(path, &p);
    if (st != STATUS_OK) {
        assert_fails(st, STATUS_FAILED, path);
        return false;
    }
    char *text = export_text(p);
    assert_string_equal(text, before);
    free(text);
    for (int i = 0; i < 150; i++) /* another way through the file */
        assert_true(has_numbered(p, &one, i) && has_numbered(p, &loaded, 100 + i % 50));
    profile_close(p);
    return true;
}

static void remove_with_journal(const char *path)
{
    static const char *const tails[] = {"", "-journal", "-wal", "-shm"};
    for (int i = 0; i < 4; i++) {
        char file[PATH_MAX + 16];
        (void)snprintf(file, sizeof file, "%s%s", path, tails[i]);
        (void)unlink(file);
    }
}

enum { PAGE = 4096 };

/* Every bit of the heads of all pages, then any place: a bit, a byte, or a whole stretch. */
static void damage(char *bytes, size_t n, int trial, int n_pages)
{
    struct random_key key = {(uint64_t)trial, RANDOM_TEST, 0};
    size_t at = random_word(key, 0, 0) % n, length = 1;
    uint32_t bit = random_word(key, 0, 2) % 8;
    bool fresh = trial % 2;
    if (trial < 12 * 8 * n_pages) {
        at = (size_t)(trial / 96) * PAGE + (size_t)(trial / 8 % 12);
        bit = (uint32_t)trial % 8;
        fresh = false;
    } else if (trial % 10 == 9) {
        length = 1 + random_word(key, 0, 1) % 600;
    }
    for (size_t i = at; i < at + length && i < n; i++)
        bytes[i] = (char)(fresh ? random_word(key, 1, i) : (uint32_t)bytes[i] ^ 1u << bit);
}

static void test_damage_is_noticed(void **state)
{
    (void)state;
    char path[PATH_MAX], whole[PATH_MAX];
    write_sample("whole.db");
    profile *p = open_profile("whole.db");
    char *before = export_text(p);
    profile_close(p);
    size_t n;
    char *bytes = test_read_file(test_path(whole, "whole.db"), &n), *broken = malloc(n);
    assert_non_null(broken);
    assert_true(n > 5 * (size_t)PAGE && n % PAGE == 0);
    test_path(path, "broken.db");
    int n_refused = 0, n_pages = (int)(n / PAGE), n_trials = 12 * 8 * n_pages + 3000;
    for (int trial = 0; trial < n_trials; trial++) {
        memcpy(broken, bytes, n);
        damage(broken, n, trial, n_pages);
        test_write_file(path, broken, n);
        n_refused += !opens_unharmed(path, before);
        remove_with_journal(path);
    }
    print_message("%d of %d damaged files were refused, the others read as before\n", n_refused,
                  n_trials);
    assert_true(n_refused > n_trials / 3);
    /* SQLite takes one byte for none. */
    for (size_t length = 2; length < n; length += 1 + length / 7) {
        test_write_file(path, bytes, length);
        assert_false(opens_unharmed(path, before));
    }
    free(broken);
    free(bytes);
    free(before);
}

/* What the figures say is covered as well, not only how they are stored. */
static void test_changed_figures_are_noticed(void **state)
{
    (void)state;
    static const char *const changes[] = {
        "UPDATE entry SET seconds = 2 * seconds WHERE key LIKE '%[5,5,%'",
        "UPDATE entry SET key = key || 'x' WHERE key LIKE '%[5,5,%'",
        "UPDATE entry SET family = 'f' WHERE key LIKE '%[5,5,%'",
        "UPDATE entry SET key = cast(key AS BLOB) WHERE key LIKE '%[5,5,%'",
        "UPDATE entry SET count = count + 1 WHERE key LIKE '%[5,5,%'",
        "UPDATE entry SET seconds = 'a' WHERE key LIKE '%[5,5,%'",
        "UPDATE setting SET threads = threads + 1",
        "UPDATE setting SET device = 'other'||load",
        "DELETE FROM setting",
        "UPDATE text SET value = ''",
        "CREATE TRIGGER t AFTER INSERT ON entry BEGIN DELETE FROM text; END",
        "CREATE VIEW v AS SELECT * FROM entry",
        "DROP TABLE text",
        "ALTER TABLE entry ADD COLUMN more",
    };
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        sqlite3 *db;
        write_sample("figures.db");
        assert_int_equal(sqlite3_open(test_path(path, "figures.db"), &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, changes[i], NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        profile *p;
        assert_fails(profile_open(path, &p), STATUS_FAILED, "figures.db: the profile is damaged");
        remove_with_journal(path);
    }
}

/* Between opening and looking. */
static void test_damage_behind_the_back(void **state)
{
    (void)state;
    char path[PATH_MAX];
    sqlite3 *db;
    write_sample("later.db");
    profile *p = open_profile("later.db");
    assert_int_equal(sqlite3_open(test_path(path, "later.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "UPDATE entry SET seconds = 1", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    struct profile_cost c;
    struct profile_work w = {"fold", 1, 1};
    assert_false(profile_find(p, &one, "conv2d [0,0,8,8] 3x3 s1 forward", &c)); /* warns */
    assert_false(profile_find(p, &one, "conv2d [0,0,8,8] 3x3 s1 forward", &c)); /* does not */
    assert_false(profile_estimate(p, &one, &w, &c));
    assert_string_equal(status_message(), "");
    struct profile_entry e = {"new", {"f", 1, 1}, {1, 0, 1, 0}};
    assert_fails(profile_add(p, &one, &e, 1), STATUS_FAILED, "later.db: the profile is damaged");
    profile_close(p);
}

static void test_foreign_files_are_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": 1}\n", png[] = "\x89PNG\r\n\x1a\n";
    char path[PATH_MAX], long_text[5000];
    profile *p;
    test_write_file(test_path(path, "text"), text, sizeof text - 1);
    assert_fails(profile_open(path, &p), STATUS_FAILED, "text: is no profile of Cleave");
    test_write_file(test_path(path, "png"), png, sizeof png - 1);
    assert_refused(path);
    memset(long_text, 'S', sizeof long_text);
    test_write_file(test_path(path, "long"), long_text, sizeof long_text);
    assert_refused(path);
    change_file(test_path(path, "other.db"), "CREATE TABLE entry (a)");
    assert_fails(profile_open(path, &p), STATUS_FAILED, "other.db: is no profile of Cleave");
    change_file(test_path(path, "marked.db"), "PRAGMA application_id = 17");
    assert_refused(path);
    assert_refused(test_folder());
    assert_refused("/dev/null");
    assert_fails(profile_open("", &p), STATUS_USAGE, "empty");
    /* and left as they were */
    size_t n;
    char *after = test_read_file(test_path(path, "text"), &n);
    assert_string_equal(after, text);
    free(after);
}

static void test_later_versions_are_refused(void **state)
{
    (void)state;
    char path[PATH_MAX];
    profile *p;
    write_sample("version.db");
    change_file(test_path(path, "version.db"), "PRAGMA user_version = 3; CREATE TABLE more (a)");
    assert_fails(profile_open(path, &p), STATUS_FAILED,
                 "version.db: was written by a later version of Cleave (format 3");
}

/* As version 1 wrote it: how calmly it was measured is not known. */
static void write_version_1(const char *name)
{
    char path[PATH_MAX];
    const struct profile_entry e = {"k", {"f", 1, 1}, {2, 0.5, 7, 1}};
    profile *p = open_profile(name);
    assert_ok(profile_add(p, &one, &e, 1));
    assert_ok(profile_put_text(p, "links", "{}"));
    profile_close(p);
    change_file(test_path(path, name),
                "ALTER TABLE entry RENAME TO entry_2;"
                "CREATE TABLE entry (setting INTEGER NOT NULL, key TEXT NOT NULL, family TEXT NOT"
                " NULL, flops REAL NOT NULL, bytes REAL NOT NULL, seconds REAL NOT NULL, spread"
                " REAL NOT NULL, count INTEGER NOT NULL, measured TEXT NOT NULL, sum INTEGER NOT"
                " NULL, PRIMARY KEY (setting, key)) WITHOUT ROWID;"
                "INSERT INTO entry SELECT setting, key, family, flops, bytes, seconds, spread,"
                " count, measured, sum FROM entry_2;"
                "DROP TABLE entry_2; PRAGMA user_version = 1;");
}

static void test_version_1_is_upgraded(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct profile_cost c;
    profile *p;
    write_version_1("old.db");
    for (int i = 0; i < 2; i++) {
        p = open_profile("old.db");
        assert_true(profile_find(p, &one, "k", &c));
        assert_true(c.seconds == 2 && c.spread == 0.5 && c.count == 7 && c.disturbed == 1);
        profile_close(p);
    }
    write_version_1("bad.db");
    change_file(test_path(path, "bad.db"), "UPDATE entry SET seconds = 3");
    assert_fails(profile_open(path, &p), STATUS_FAILED, "bad.db: the profile is damaged");
    if (geteuid() == 0) /* root may write everything */
        return;
    write_version_1("fixed.db");
    assert_int_equal(chmod(test_path(path, "fixed.db"), 0444), 0);
    p = open_profile("fixed.db");
    assert_true(profile_find(p, &one, "k", &c) && c.disturbed == 1);
    profile_close(p);
}

static void test_empty_files_are_filled(void **state)
{
    (void)state;
    char path[PATH_MAX];
    test_write_file(test_path(path, "empty.db"), "", 0);
    write_sample("empty.db");
    profile *p = open_profile("empty.db");
    assert_true(has_numbered(p, &one, 149));
    profile_close(p);
}

static void test_names_that_mean_something_to_sqlite(void **state)
{
    (void)state;
    static const char *const names[] = {":memory:", "file:x?mode=memory", "plain", "sub/../dots"};
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(test_folder()), 0);
    for (int i = 0; i < 4; i++) {
        profile *p;
        assert_ok(profile_open(names[i], &p));
        add_numbered(p, &one, 0, 3);
        profile_close(p);
        assert_int_equal(access(names[i], F_OK), 0);
    }
    assert_int_equal(chdir(before), 0);
}

/* ---- places where nothing can be written ---- */

/* In a process of its own: a test that fails there fails here. */
static void in_child(int (*work)(void))
{
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(work());
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == 77)
        skip_because("mounting a small or read-only disk is not allowed");
    assert_int_equal(WEXITSTATUS(how), 0);
}

static bool fails_saying(enum status st, const char *part)
{
    bool right = st == STATUS_FAILED && strstr(status_message(), part);
    if (right)
        status_clear();
    return right;
}

static int use_read_only(void)
{
    char path[PATH_MAX];
    profile *p;
    struct profile_entry e = {"new", {"f", 1, 1}, {1, 0, 1, 0}};
    int64_t added;
    if (geteuid() == 0 && setuid(65534) != 0)
        return 77;
    child_check(profile_open(test_path(path, "locked/p.db"), &p) == STATUS_OK);
    child_check(has_numbered(p, &one, 3));
    child_check(
        fails_saying(profile_add(p, &one, &e, 1), "p.db: cannot write: the file or its folder"));
    child_check(fails_saying(profile_put_text(p, "a", "b"), "p.db: cannot write"));
    child_check(fails_saying(profile_forget(p, NULL), "p.db: cannot write"));
    child_check(fails_saying(profile_import(p, path, &added), "p.db: cannot write"));
    child_check(has_numbered(p, &one, 3));
    profile_close(p);
    child_check(
        fails_saying(profile_open(test_path(path, "locked/new.db"), &p), "new.db: cannot open"));
    child_check(fails_saying(profile_open(test_path(path, "locked/sub/new.db"), &p),
                             "sub: cannot make the folder: Permission denied"));
    child_check(
        fails_saying(profile_open(test_path(path, "secret.db"), &p), "secret.db: cannot open"));
    return 0;
}

static void test_read_only_files_can_be_looked_at(void **state)
{
    (void)state;
    char path[PATH_MAX];
    write_sample("locked/p.db");
    write_sample("secret.db");
    assert_int_equal(chmod(test_folder(), 0755), 0);
    assert_int_equal(chmod(test_path(path, "secret.db"), 0), 0);
    assert_int_equal(chmod(test_path(path, "locked/p.db"), 0444), 0);
    assert_int_equal(chmod(test_path(path, "locked"), 0555), 0);
    in_child(use_read_only);
}

static int use_limited_files(void)
{
    char path[PATH_MAX];
    (void)signal(SIGXFSZ, SIG_IGN);
    profile *p;
    struct rlimit before, small;
    int n_failed = 0;
    child_check(getrlimit(RLIMIT_FSIZE, &before) == 0);
    static struct profile_entry entries[2000];
    static char keys[2000][64];
    for (int i = 0; i < 2000; i++)
        entries[i] = make_entry(1000 + i, keys[i]);
    for (rlim_t limit = 0;; limit += 5000) {
        small = before;
        small.rlim_cur = limit;
        child_check(setrlimit(RLIMIT_FSIZE, &small) == 0);
        child_check(profile_open(test_path(path, "limit.db"), &p) == STATUS_OK);
        enum status st = profile_add(p, &one, entries, 2000);
        child_check(setrlimit(RLIMIT_FSIZE, &before) == 0);
        child_check(has_numbered(p, &one, 149));
        if (st == STATUS_OK)
            break;
        n_failed++;
        child_check(fails_saying(st, "limit.db: cannot"));
        child_check(!has_numbered(p, &one, 1000));
        profile_close(p);
    }
    child_check(has_numbered(p, &one, 2999));
    profile_close(p);
    child_check(n_failed > 10);
    return 0;
}

static void test_write_errors_change_nothing(void **state)
{
    (void)state;
    write_sample("limit.db");
    in_child(use_limited_files);
}

static int use_small_disk(void)
{
    char path[PATH_MAX];
    profile *p;
    int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;
    if (unshare(flags) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", test_path(path, "disk"), "tmpfs", 0, "size=128k") != 0)
        return 77;
    test_path(path, "disk/p.db");
    child_check(profile_open(path, &p) == STATUS_OK);
    add_numbered(p, &one, 0, 100);
    static struct profile_entry entries[2000];
    static char keys[2000][64];
    for (int i = 0; i < 2000; i++)
        entries[i] = make_entry(1000 + i, keys[i]);
    child_check(
        fails_saying(profile_add(p, &one, entries, 2000), "p.db: cannot write: no space left"));
    child_check(!has_numbered(p, &one, 1000) && has_numbered(p, &one, 99));
    add_numbered(p, &one, 100, 10);
    profile_close(p);
    child_check(profile_open(path, &p) == STATUS_OK);
    child_check(has_numbered(p, &one, 109) && !has_numbered(p, &one, 1000));
    profile_close(p);
    return 0;
}

static void test_full_disks_change_nothing(void **state)
{
    (void)state;
    char path[PATH_MAX];
    assert_int_equal(mkdir(test_path(path, "disk"), 0755), 0);
    in_child(use_small_disk);
}

static void test_locked_files_are_waited_for(void **state)
{
    (void)state;
    char path[PATH_MAX];
    sqlite3 *db;
    struct profile_entry e = {"new", {"f", 1, 1}, {1, 0, 1, 0}};
    write_sample("busy.db");
    profile *p = open_profile("busy.db");
    assert_int_equal(sqlite3_open(test_path(path, "busy.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    store_set_wait(p->store, 100);
    int64_t began_ns = timer_now_ns();
    assert_fails(profile_add(p, &one, &e, 1), STATUS_TIMEOUT, "busy.db: another process");
    assert_true(timer_now_ns() - began_ns >= 90000000);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_ok(profile_add(p, &one, &e, 1));
    profile_close(p);
}

/* ---- several processes ---- */

enum { WRITERS = 4, BATCHES = 60, BATCH = 25 };

/* Its own entries, and those that all writers bring, each with its own idea of their cost. */
static int write_beside_others(int me)
{
    char path[PATH_MAX], keys[BATCH + 1][64];
    struct profile_entry entries[BATCH + 1];
    profile *p;
    if (profile_open(test_path(path, "shared/p.db"), &p) != STATUS_OK)
        return 1;
    for (int b = 0; b < BATCHES; b++) {
        for (int i = 0; i < BATCH; i++)
            entries[i] = make_entry(100000 * (me + 1) + b * BATCH + i, keys[i]);
        (void)snprintf(keys[BATCH], sizeof keys[BATCH], "shared %d", (b * 7 + me * 3) % BATCHES);
        entries[BATCH] = (struct profile_entry){keys[BATCH], {"f", 1, 1}, {me + 1, 0, 1, 0}};
        struct profile_cost before, after;
        bool known = profile_find(p, &one, keys[BATCH], &before);
        if (profile_add(p, &one, entries, BATCH + 1) != STATUS_OK)
            return 2;
        if (!profile_find(p, &one, keys[BATCH], &after) ||
            (known && before.seconds != after.seconds))
            return 3;
    }
    profile_close(p);
    return 0;
}

static pid_t start(int (*work)(int), int argument)
{
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int result = work(argument);
        if (result)
            print_error("writer %d: %d: %s\n", argument, result, status_message());
        _exit(result);
    }
    return child;
}

static void await(pid_t child)
{
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void test_processes_lose_nothing(void **state)
{
    (void)state;
    pid_t children[WRITERS];
    for (int k = 0; k < WRITERS; k++)
        children[k] = start(write_beside_others, k);
    for (int k = 0; k < WRITERS; k++)
        await(children[k]);
    profile *p = open_profile("shared/p.db");
    for (int k = 0; k < WRITERS; k++)
        for (int i = 0; i < BATCHES * BATCH; i++)
            assert_true(has_numbered(p, &one, 100000 * (k + 1) + i));
    for (int i = 0; i < BATCHES; i++) {
        char key[64];
        struct profile_cost c;
        (void)snprintf(key, sizeof key, "shared %d", i);
        assert_true(profile_find(p, &one, key, &c) && c.seconds >= 1 && c.seconds <= WRITERS);
    }
    profile_close(p);
}

static int open_for_the_first_time(int round)
{
    char path[PATH_MAX], name[32];
    profile *p;
    (void)snprintf(name, sizeof name, "first/%d.db", round);
    if (profile_open(test_path(path, name), &p) != STATUS_OK)
        return 1;
    add_numbered(p, &one, 0, 3);
    profile_close(p);
    return 0;
}

static void test_processes_make_one_file(void **state)
{
    (void)state;
    for (int round = 0; round < 25; round++) {
        pid_t children[WRITERS];
        for (int k = 0; k < WRITERS; k++)
            children[k] = start(open_for_the_first_time, round);
        for (int k = 0; k < WRITERS; k++)
            await(children[k]);
    }
}

static int write_for_ever(int from)
{
    char path[PATH_MAX];
    profile *p;
    if (profile_open(test_path(path, "killed.db"), &p) != STATUS_OK)
        return 1;
    for (int i = from;; i += BATCH)
        add_numbered(p, &one, i, BATCH);
}

static void test_killed_processes_leave_whole_batches(void **state)
{
    (void)state;
    enum { KILLS = 12 };
    int n_batches = 0;
    for (int k = 0; k < KILLS; k++) {
        pid_t child = start(write_for_ever, 10000000 * k);
        (void)usleep(20000 + 7000 * (useconds_t)k);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    profile *p = open_profile("killed.db");
    for (int k = 0; k < KILLS; k++)
        for (int b = 0; has_numbered(p, &one, 10000000 * k + b * BATCH); b++, n_batches++)
            for (int i = 1; i < BATCH; i++)
                assert_true(has_numbered(p, &one, 10000000 * k + b * BATCH + i));
    assert_true(n_batches > 0);
    profile_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage_is_noticed),
        cmocka_unit_test(test_changed_figures_are_noticed),
        cmocka_unit_test(test_damage_behind_the_back),
        cmocka_unit_test(test_foreign_files_are_refused),
        cmocka_unit_test(test_later_versions_are_refused),
        cmocka_unit_test(test_version_1_is_upgraded),
        cmocka_unit_test(test_empty_files_are_filled),
        cmocka_unit_test(test_names_that_mean_something_to_sqlite),
        cmocka_unit_test(test_read_only_files_can_be_looked_at),
        cmocka_unit_test(test_write_errors_change_nothing),
        cmocka_unit_test(test_full_disks_change_nothing),
        cmocka_unit_test(test_locked_files_are_waited_for),
        cmocka_unit_test(test_processes_lose_nothing),
        cmocka_unit_test(test_processes_make_one_file),
        cmocka_unit_test(test_killed_processes_leave_whole_batches),
    };
    return test_run(tests);
}
