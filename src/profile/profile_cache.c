#include "profile/profile_cache.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct known {
    const char *key;
    uint64_t hash;
    int family;
    double flops, bytes;
    struct profile_cost cost;
    bool is_checked;
};

enum fit_state { FIT_OPEN, FIT_MADE, FIT_IMPOSSIBLE };

struct family {
    const char *name;
    uint64_t hash;
    int n_entries;
    enum fit_state state;
    struct fit fit;
};

/* A setting. */
struct shelf {
    struct profile_setting setting;
    bool loaded;
    arena *memory; /* of the texts */
    struct known *entries;
    int n_entries;
    int entries_capacity;
    uint32_t *slots;  /* 1 + an entry's number, at its hash or behind; 0: free */
    uint32_t n_slots; /* a power of two, at least twice the entries */
    struct family *families;
    int n_families;
    int families_capacity;
};

struct cache {
    store *store;
    arena *memory; /* of the list of settings; NULL: not read yet */
    struct shelf *shelves;
    int n_shelves;
    struct shelf *last; /* the one asked for last, most likely asked for again */
};

static uint64_t hash_text(const char *text)
{
    return XXH3_64bits(text, strlen(text));
}

/* ---- one setting ---- */

static void shelf_clear(struct shelf *s)
{
    arena_destroy(s->memory);
    free(s->entries);
    free(s->slots);
    free(s->families);
    *s = (struct shelf){.setting = s->setting};
}

static struct known *shelf_find(const struct shelf *s, const char *key)
{
    if (s->n_entries == 0)
        return NULL;
    uint64_t hash = hash_text(key);
    uint32_t mask = s->n_slots - 1;
    for (uint32_t at = (uint32_t)hash & mask; s->slots[at]; at = (at + 1) & mask) {
        struct known *k = &s->entries[s->slots[at] - 1];
        if (k->hash == hash && !strcmp(k->key, key))
            return k;
    }
    return NULL;
}

static void set_slot(struct shelf *s, int entry)
{
    uint32_t mask = s->n_slots - 1, at = (uint32_t)s->entries[entry].hash & mask;
    while (s->slots[at])
        at = (at + 1) & mask;
    s->slots[at] = (uint32_t)entry + 1;
}

static enum status grow_slots(struct shelf *s)
{
    uint32_t n_slots = s->n_slots ? 2 * s->n_slots : 256;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots)
        return status_no_memory(n_slots * sizeof *slots);
    free(s->slots);
    s->slots = slots;
    s->n_slots = n_slots;
    for (int i = 0; i < s->n_entries; i++)
        set_slot(s, i);
    return STATUS_OK;
}

/* -1: none. There are a few dozen. */
static int find_family(const struct shelf *s, const char *name)
{
    uint64_t hash = hash_text(name);
    for (int i = s->n_families - 1; i >= 0; i--)
        if (s->families[i].hash == hash && !strcmp(s->families[i].name, name))
            return i;
    return -1;
}

static enum status add_family(struct shelf *s, const char *name, int *out)
{
    *out = find_family(s, name);
    if (*out < 0) {
        struct family f = {.hash = hash_text(name)};
        TRY(array_reserve(NULL, &s->families, s->n_families + 1, &s->families_capacity,
                          sizeof *s->families));
        TRY(arena_copy_text(s->memory, name, &f.name));
        *out = s->n_families;
        s->families[s->n_families++] = f;
    }
    return STATUS_OK;
}

static enum status shelf_add(struct shelf *s, const struct profile_entry *e, bool replaces)
{
    struct known *there = shelf_find(s, e->key);
    if (there && replaces && e->cost.disturbed <= there->cost.disturbed) {
        there->cost = e->cost;
        s->families[there->family].state = FIT_OPEN;
    }
    if (there)
        return STATUS_OK;
    struct known k = {
        .hash = hash_text(e->key), .flops = e->work.flops, .bytes = e->work.bytes, .cost = e->cost};
    TRY(array_reserve(NULL, &s->entries, s->n_entries + 1, &s->entries_capacity,
                      sizeof *s->entries));
    if ((uint32_t)s->n_entries >= s->n_slots / 2)
        TRY(grow_slots(s));
    TRY(add_family(s, e->work.family, &k.family));
    TRY(arena_copy_text(s->memory, e->key, &k.key));
    s->families[k.family].n_entries++;
    s->families[k.family].state = FIT_OPEN;
    s->entries[s->n_entries] = k;
    set_slot(s, s->n_entries++);
    return STATUS_OK;
}

static enum status put_row(const struct store_row *row, void *user)
{
    return shelf_add(user, &row->entry, false);
}

static enum status shelf_load(struct shelf *s, store *from)
{
    if (s->loaded)
        return STATUS_OK;
    enum status st;
    TRY_GOTO(st, arena_create(&s->memory), fail);
    TRY_GOTO(st, store_read(from, &s->setting, put_row, s), fail);
    s->loaded = true;
    return STATUS_OK;
fail:
    shelf_clear(s);
    return st;
}

/* ---- fits ---- */

static int compare_keys(const void *a, const void *b)
{
    const struct known *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

/* By key, so that the sums do not depend on when an entry was added. */
static enum status make_fit(const struct shelf *s, int family, struct family *f)
{
    size_t n = (size_t)f->n_entries, k = 0;
    const struct known **entries = malloc(n * sizeof *entries);
    struct fit_point *points = malloc(n * sizeof *points);
    enum status st = entries && points ? STATUS_OK : status_no_memory(n * sizeof *points);
    if (st == STATUS_OK) {
        for (int i = 0; i < s->n_entries; i++)
            if (s->entries[i].family == family)
                entries[k++] = &s->entries[i];
        qsort(entries, n, sizeof *entries, compare_keys);
        for (k = 0; k < n; k++)
            points[k] =
                (struct fit_point){entries[k]->flops, entries[k]->bytes, entries[k]->cost.seconds};
        f->state = fit_points(points, (int)n, &f->fit) ? FIT_MADE : FIT_IMPOSSIBLE;
    }
    free(entries);
    free(points);
    return st;
}

static enum status shelf_fit(struct shelf *s, const char *name, const struct fit **fit)
{
    *fit = NULL;
    int i = find_family(s, name);
    if (i < 0 || s->families[i].n_entries < FIT_LEAST_POINTS)
        return STATUS_OK;
    struct family *f = &s->families[i];
    if (f->state == FIT_OPEN)
        TRY(make_fit(s, i, f));
    if (f->state == FIT_MADE)
        *fit = &f->fit;
    return STATUS_OK;
}

/* ---- all settings ---- */

enum status cache_create(store *s, cache **out)
{
    cache *c = calloc(1, sizeof *c);
    if (!c)
        return status_no_memory(sizeof *c);
    c->store = s;
    *out = c;
    return STATUS_OK;
}

void cache_forget(cache *c)
{
    for (int i = 0; i < c->n_shelves; i++)
        shelf_clear(&c->shelves[i]);
    arena_destroy(c->memory);
    *c = (cache){.store = c->store};
}

void cache_destroy(cache *c)
{
    if (!c)
        return;
    cache_forget(c);
    free(c);
}

static enum status list_shelves(cache *c)
{
    if (c->memory)
        return STATUS_OK;
    enum status st;
    struct profile_summary *settings;
    int n;
    TRY(arena_create(&c->memory));
    TRY_GOTO(st, store_read_settings(c->store, c->memory, false, &settings, &n), fail);
    TRY_GOTO(st, arena_alloc_array(c->memory, (size_t)n, sizeof *c->shelves, &c->shelves), fail);
    for (c->n_shelves = 0; c->n_shelves < n; c->n_shelves++)
        c->shelves[c->n_shelves].setting = settings[c->n_shelves].setting;
    return STATUS_OK;
fail:
    cache_forget(c);
    return st;
}

static bool same_workers(const struct profile_setting *a, const struct profile_setting *b)
{
    return a->threads == b->threads && !strcmp(a->device, b->device);
}

static struct shelf *find_shelf(cache *c, const struct profile_setting *s)
{
    if (c->last && c->last->setting.load == s->load && same_workers(&c->last->setting, s))
        return c->last;
    for (int i = 0; i < c->n_shelves; i++) {
        const struct profile_setting *t = &c->shelves[i].setting;
        if (t->load == s->load && same_workers(t, s))
            return c->last = &c->shelves[i];
    }
    return NULL;
}

/* NULL: nothing was measured in this setting. */
static enum status get_shelf(cache *c, const struct profile_setting *s, struct shelf **out)
{
    TRY(list_shelves(c));
    *out = find_shelf(c, s);
    return *out ? shelf_load(*out, c->store) : STATUS_OK;
}

enum status cache_find(cache *c, const struct profile_setting *s, const char *key,
                       const struct profile_cost **cost)
{
    struct shelf *shelf = NULL;
    *cost = NULL;
    TRY(get_shelf(c, s, &shelf));
    const struct known *k = shelf ? shelf_find(shelf, key) : NULL;
    if (k)
        *cost = &k->cost;
    return STATUS_OK;
}

enum status cache_fit(cache *c, const struct profile_setting *s, const char *family,
                      const struct fit **fit)
{
    struct shelf *shelf = NULL;
    *fit = NULL;
    TRY(get_shelf(c, s, &shelf));
    if (shelf)
        TRY(shelf_fit(shelf, family, fit));
    if (*fit)
        return STATUS_OK;
    int64_t nearest = INT64_MAX;
    for (int i = 0; i < c->n_shelves; i++) {
        struct shelf *other = &c->shelves[i];
        int64_t distance = llabs((int64_t)other->setting.load - s->load);
        if (distance == 0 || distance >= nearest || !same_workers(&other->setting, s))
            continue;
        const struct fit *theirs;
        TRY(shelf_load(other, c->store));
        TRY(shelf_fit(other, family, &theirs));
        if (theirs) {
            *fit = theirs;
            nearest = distance;
        }
    }
    return STATUS_OK;
}

static enum status add_all(cache *c, const struct profile_setting *s,
                           const struct profile_entry *entries, int n, bool replaces)
{
    struct shelf *shelf = c->memory ? find_shelf(c, s) : NULL;
    if (!shelf) /* a new setting: the list is read again */
        cache_forget(c);
    else if (shelf->loaded)
        for (int i = 0; i < n; i++)
            TRY(shelf_add(shelf, &entries[i], replaces));
    return STATUS_OK;
}

void cache_add(cache *c, const struct profile_setting *s, const struct profile_entry *entries,
               int n, bool replaces)
{
    struct status_error ignored;
    enum status st = add_all(c, s, entries, n, replaces);
    if (st != STATUS_OK) {
        status_take(st, &ignored);
        cache_forget(c);
    }
}

/* NULL: it is not in memory. */
static struct known *find_loaded(cache *c, const struct profile_setting *s, const char *key)
{
    struct shelf *shelf = c->memory ? find_shelf(c, s) : NULL;
    return shelf && shelf->loaded ? shelf_find(shelf, key) : NULL;
}

bool cache_is_checked(cache *c, const struct profile_setting *s, const char *key)
{
    const struct known *k = find_loaded(c, s, key);
    return k && k->is_checked;
}

void cache_note_checked(cache *c, const struct profile_setting *s, const char *key)
{
    const struct profile_cost *cost;
    struct status_error ignored;
    enum status st = cache_find(c, s, key, &cost); /* reads the setting if need be */
    if (st != STATUS_OK)
        status_take(st, &ignored);
    struct known *k = find_loaded(c, s, key);
    if (k)
        k->is_checked = true;
}
