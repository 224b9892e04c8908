#include "profile/profile.h"

#include "base/log.h"
#include "profile/profile_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

enum status profile_open(const char *path, profile **out)
{
    profile *p = calloc(1, sizeof *p);
    if (!p)
        return status_no_memory(sizeof *p);
    enum status st;
    TRY_GOTO(st, store_open(path, &p->store), fail);
    TRY_GOTO(st, cache_create(p->store, &p->cache), fail);
    *out = p;
    return STATUS_OK;
fail:
    profile_close(p);
    return st;
}

void profile_close(profile *p)
{
    if (!p)
        return;
    cache_destroy(p->cache);
    store_close(p->store);
    free(p);
}

enum status profile_default_path(char *path, size_t size)
{
    const char *given = getenv("CLEAVE_PROFILE"), *cache_home = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int length;
    if (given && *given)
        length = snprintf(path, size, "%s", given);
    else if (cache_home && *cache_home == '/') /* the standard says to ignore others */
        length = snprintf(path, size, "%s/cleave/profile.db", cache_home);
    else if (home && *home)
        length = snprintf(path, size, "%s/.cache/cleave/profile.db", home);
    else
        return status_fail(STATUS_FAILED, "no place for the profile: HOME is not set: name a file "
                                          "with --profile FILE or CLEAVE_PROFILE");
    if (length < 0 || (size_t)length >= size)
        return status_fail(STATUS_FAILED, "the path of the profile is too long (over %zu bytes)",
                           size - 1);
    return STATUS_OK;
}

/* ---- looking up ---- */

/* A file that cannot be read any more counts as empty, until something is to be written: then it is
 * an error. */
static void give_up(profile *p, enum status st)
{
    status_take(st, &p->broken);
    log_warn("%s", p->broken.message);
}

bool profile_find(profile *p, const struct profile_setting *s, const char *key,
                  struct profile_cost *cost)
{
    const struct profile_cost *found = NULL;
    if (p->broken.status != STATUS_OK)
        return false;
    enum status st = cache_find(p->cache, s, key, &found);
    if (st != STATUS_OK)
        give_up(p, st);
    else if (found)
        *cost = *found;
    return st == STATUS_OK && found;
}

bool profile_estimate(profile *p, const struct profile_setting *s, const struct profile_work *work,
                      struct profile_cost *cost)
{
    const struct fit *fit = NULL;
    if (p->broken.status != STATUS_OK)
        return false;
    enum status st = cache_fit(p->cache, s, work->family, &fit);
    if (st != STATUS_OK)
        give_up(p, st);
    if (st != STATUS_OK || !fit)
        return false;
    double seconds = fit_seconds(fit, work->flops, work->bytes);
    if (!isfinite(seconds))
        return false;
    *cost = (struct profile_cost){.seconds = seconds, .spread = fit->spread, .count = 0};
    return true;
}

/* ---- adding ---- */

static enum status write_entries(store *s, const struct profile_setting *setting,
                                 const struct profile_entry *entries, int n, bool replaces)
{
    char now[STORE_TIME_BYTES];
    struct store_row row = {.setting = *setting, .measured = store_now(now)};
    enum status st;
    bool added;
    TRY(store_begin(s));
    for (int i = 0; i < n; i++) {
        row.entry = entries[i];
        TRY_GOTO(st, store_add_row(s, &row, replaces, &added), out);
    }
    st = STATUS_OK;
out:
    return store_end(s, st);
}

/* True where the memory may differ from the file. */
static bool others_wrote(store *s)
{
    bool changed = true;
    struct status_error ignored;
    enum status st = store_poll_changes(s, &changed);
    if (st != STATUS_OK)
        status_take(st, &ignored);
    return changed;
}

static enum status put(profile *p, const struct profile_setting *s,
                       const struct profile_entry *entries, int n, bool replaces)
{
    TRY(status_give(&p->broken));
    if (n == 0)
        return STATUS_OK;
    TRY(write_entries(p->store, s, entries, n, replaces));
    if (others_wrote(p->store))
        cache_forget(p->cache);
    else
        cache_add(p->cache, s, entries, n, replaces);
    return STATUS_OK;
}

enum status profile_add(profile *p, const struct profile_setting *s,
                        const struct profile_entry *entries, int n)
{
    return put(p, s, entries, n, false);
}

enum status profile_replace(profile *p, const struct profile_setting *s,
                            const struct profile_entry *entries, int n)
{
    return put(p, s, entries, n, true);
}

bool profile_is_checked(profile *p, const struct profile_setting *s, const char *key)
{
    return p->broken.status == STATUS_OK && cache_is_checked(p->cache, s, key);
}

void profile_note_checked(profile *p, const struct profile_setting *s, const char *key)
{
    if (p->broken.status == STATUS_OK)
        cache_note_checked(p->cache, s, key);
}

/* ---- texts ---- */

enum status profile_get_text(profile *p, const char *name, char **text)
{
    return store_read_text(p->store, name, text);
}

enum status profile_put_text(profile *p, const char *name, const char *text)
{
    bool added;
    TRY(store_begin(p->store));
    return store_end(p->store,
                     store_add_text(p->store, &(struct store_text){name, text}, true, &added));
}

/* ---- looking ---- */

enum status profile_list(profile *p, profile_visit *visit, void *user)
{
    struct profile_summary *all;
    arena *memory;
    int n;
    TRY(arena_create(&memory));
    enum status st;
    TRY_GOTO(st, store_read_settings(p->store, memory, true, &all, &n), out);
    for (int i = 0; i < n; i++)
        TRY_GOTO(st, visit(&all[i], user), out);
out:
    arena_destroy(memory);
    return st;
}

enum status profile_forget(profile *p, const struct profile_setting *s)
{
    TRY(store_begin(p->store));
    TRY(store_end(p->store, store_remove(p->store, s)));
    cache_forget(p->cache);
    return STATUS_OK;
}
