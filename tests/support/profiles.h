/* profiles.h: profiles with costs that are known by their numbers, for tests.
 *
 *     profile *p = open_profile("a.db"); // in the test's folder
 *     add_numbered(p, &one, 0, 150);
 *     assert_true(has_numbered(p, &one, 149));
 *     profile_close(p);
 */
#ifndef CLEAVE_TESTS_PROFILES_H
#define CLEAVE_TESTS_PROFILES_H

#include "profile/profile_parts.h"
#include "testing.h"

extern const struct profile_setting one;

extern const struct profile_setting loaded;

extern const struct profile_setting gpu;

profile *open_profile(const char *name);

/* A cost that follows from its number, so that it can be known again. */
struct profile_entry make_entry(int i, char key[64]);

void add_numbered(profile *p, const struct profile_setting *s, int from, int n);

bool has_numbered(profile *p, const struct profile_setting *s, int i);

char *export_text(profile *p);

void assert_same_export(profile *a, profile *b);

/* Something of everything: several pages, two settings, texts. */
void write_sample(const char *name);

/* Behind the back of the profile. */
void change_file(const char *path, const char *sql);

#endif
