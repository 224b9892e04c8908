#include "profiles.h"

#include <sqlite3.h>

const struct profile_setting one = {"cpu oneDNN 2.6.3 avx512, Some Processor", 2, 1};

const struct profile_setting loaded = {"cpu oneDNN 2.6.3 avx512, Some Processor", 2, 4};

const struct profile_setting gpu = {"gpu", 0, 1};

profile *open_profile(const char *name)
{
    char path[PATH_MAX];
    profile *p;
    assert_ok(profile_open(test_path(path, name), &p));
    return p;
}

struct profile_entry make_entry(int i, char key[64])
{
    static const char *const families[] = {"conv2d 3x3 s1 forward", "linear forward", "fold"};
    (void)snprintf(key, 64, "conv2d [%d,%d,8,8] 3x3 s1 forward", i % 97, i);
    return (struct profile_entry){.key = key,
                                  .work = {families[i % 3], 1e6 * (i + 1), 1e3 * (i % 11 + 1)},
                                  .cost = {1e-6 * (i + 1), 0.01 * (i % 7), 1 + i % 30, 0}};
}

void add_numbered(profile *p, const struct profile_setting *s, int from, int n)
{
    struct profile_entry *entries = malloc((size_t)n * sizeof *entries);
    char(*keys)[64] = malloc((size_t)n * sizeof *keys);
    assert_non_null(entries);
    assert_non_null(keys);
    for (int i = 0; i < n; i++)
        entries[i] = make_entry(from + i, keys[i]);
    assert_ok(profile_add(p, s, entries, n));
    free(entries);
    free(keys);
}

bool has_numbered(profile *p, const struct profile_setting *s, int i)
{
    char key[64];
    struct profile_entry e = make_entry(i, key);
    struct profile_cost c;
    if (!profile_find(p, s, key, &c))
        return false;
    assert_true(c.seconds == e.cost.seconds && c.spread == e.cost.spread);
    assert_int_equal(c.count, e.cost.count);
    return true;
}

char *export_text(profile *p)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_ok(profile_export(p, out));
    assert_int_equal(fclose(out), 0);
    return text;
}

void assert_same_export(profile *a, profile *b)
{
    char *x = export_text(a), *y = export_text(b);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

void write_sample(const char *name)
{
    profile *p = open_profile(name);
    add_numbered(p, &one, 0, 150);
    add_numbered(p, &loaded, 100, 50);
    assert_ok(profile_put_text(p, "links", "{\"bandwidth\": 1e10}"));
    profile_close(p);
}

void change_file(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}
