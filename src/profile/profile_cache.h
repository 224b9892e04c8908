/* profile_cache.h: entries in memory, so that a lookup takes one hash.
 *
 * The entries of a setting are read from the store when it is first asked for, and stay until
 * another process is seen to have written. A key is found by XXH3 and compared in full.
 */
#ifndef CLEAVE_PROFILE_PROFILE_CACHE_H
#define CLEAVE_PROFILE_PROFILE_CACHE_H

#include "profile/profile_fit.h"
#include "profile/profile_store.h"

typedef struct cache cache;

enum status cache_create(store *s, cache **out) MUST_USE; /* `s` must outlive it */
void cache_destroy(cache *c);                             /* NULL is fine */

/* *cost is NULL if there is none. Valid until the cache changes. */
enum status cache_find(cache *c, const struct profile_setting *s, const char *key,
                       const struct profile_cost **cost) MUST_USE;

/* The fit to a family in this setting, or else in the one of the nearest load; *fit is NULL if
 * there are too few entries. Valid until the cache changes. */
enum status cache_fit(cache *c, const struct profile_setting *s, const char *family,
                      const struct fit **fit) MUST_USE;

/* These went into the store, as profile_add or profile_replace says. On failure everything is
 * forgotten, to be read again. */
void cache_add(cache *c, const struct profile_setting *s, const struct profile_entry *entries,
               int n, bool replaces);

/* A mark on a cost, which is lost when it is read again. */
bool cache_is_checked(cache *c, const struct profile_setting *s, const char *key);
void cache_note_checked(cache *c, const struct profile_setting *s, const char *key);

/* Settings are read again when they are asked for. */
void cache_forget(cache *c);

#endif
