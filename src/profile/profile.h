/* profile.h: what instructions cost, measured once and kept in an SQLite file.
 *
 * A cost belongs to a setting (which device and library, how many threads, how many workers of the
 * host compute at the same time) and to a key, the text that says all that an instruction's time
 * depends on (program/work.h). It stays until a calmer or later measurement replaces it
 * (measure.h). Several processes may read and write one file at a time; an open profile belongs to
 * one thread at a time, and does not survive a fork.
 *
 *     char path[PATH_MAX];
 *     profile *p;
 *     TRY(profile_default_path(path, sizeof path));
 *     TRY(profile_open(path, &p));
 *     struct profile_cost cost;
 *     if (!profile_find(p, &setting, key, &cost))
 *         found = profile_estimate(p, &setting, &work, &cost);    // fitted to the neighbours
 *     profile_close(p);
 *
 * The entries of a setting are read into memory when it is first asked for; a lookup then takes one
 * hash. Entries that other processes add are seen after the next profile_add.
 *
 * Functions that write fail with STATUS_FAILED, naming the file, where it is read-only, the disk is
 * full or a row does not have its checksum any more, and with STATUS_TIMEOUT where another process
 * keeps the file locked for a minute. They change all or nothing.
 */
#ifndef CLEAVE_PROFILE_PROFILE_H
#define CLEAVE_PROFILE_PROFILE_H

#include "base/status.h"

#include <stdint.h>
#include <stdio.h>

typedef struct profile profile;

struct profile_setting {
    const char *device; /* "cpu oneDNN 2.6.3 avx512, Intel Xeon Platinum 8481C" */
    int threads;        /* of one worker */
    int load;           /* workers of the host that compute at the same time, this one included */
};

/* An instruction's family, and how large it is. Times within a family are about
 * a + b flops + c bytes. */
struct profile_work {
    const char *family; /* "conv2d 3x3 s1 forward" */
    double flops, bytes;
};

struct profile_cost {
    double seconds;   /* the median of the measurements */
    double spread;    /* half the distance of the quartiles, over the median; or of an estimate: the
                         typical relative error of the fit at its own points, at least 0.02 */
    int count;        /* measurements; 0: estimated */
    double disturbed; /* the share of measurements beside other programs; 1, too, where an earlier
                         version of Cleave measured, which did not keep it */
};

struct profile_entry {
    const char *key;
    struct profile_work work;
    struct profile_cost cost;
};

/* Opens a profile, and creates it and its folders if need be; NULL: in memory alone. A file of an
 * earlier version is upgraded. STATUS_FAILED, with the path and what to do, for a file that is
 * damaged, that is no profile, or of a later version. The whole file is checked: about 1 ms for
 * 1000 entries. A file that cannot be written is opened for reading. */
enum status profile_open(const char *path, profile **out) MUST_USE;
void profile_close(profile *p); /* NULL is fine */

/* $CLEAVE_PROFILE, else $XDG_CACHE_HOME/cleave/profile.db, else ~/.cache/cleave/profile.db. */
enum status profile_default_path(char *path, size_t size) MUST_USE;

/* False: not measured. If the file cannot be read any more it is false, too, with one warning; to
 * add is then an error. */
bool profile_find(profile *p, const struct profile_setting *s, const char *key,
                  struct profile_cost *cost);

/* From the measured costs of the family in this setting, or else in the setting that differs in
 * nothing but load, by as little as possible: non-negative a + b flops + c bytes with the smallest
 * relative error (profile_fit.h). False: fewer than three entries are known. */
bool profile_estimate(profile *p, const struct profile_setting *s, const struct profile_work *work,
                      struct profile_cost *cost);

/* All in one transaction; entries that are there stay as they are. An entry must have a key, finite
 * sizes and times that are not negative, and count >= 1. */
enum status profile_add(profile *p, const struct profile_setting *s,
                        const struct profile_entry *entries, int n) MUST_USE;
/* Of entries that are there, those stay that were measured with less disturbance. */
enum status profile_replace(profile *p, const struct profile_setting *s,
                            const struct profile_entry *entries, int n) MUST_USE;

/* Whether a cost was noted as checked since the profile was opened: another process may have
 * measured it, on another day. What other processes write makes the profile forget it. */
bool profile_is_checked(profile *p, const struct profile_setting *s, const char *key);
void profile_note_checked(profile *p, const struct profile_setting *s, const char *key);

/* Other measurements, as text under a name (the links of this host). *text is malloc'ed, or NULL if
 * there is none. A text that is put replaces an earlier one. */
enum status profile_get_text(profile *p, const char *name, char **text) MUST_USE;
enum status profile_put_text(profile *p, const char *name, const char *text) MUST_USE;

/* ---- moving ---- */

/* One line per entry or text, tab-separated, after a line with the format's version; sorted. The
 * same profile gives the same bytes, and so does a profile imported from them. */
enum status profile_export(profile *p, FILE *out) MUST_USE;
/* Adds the text that export wrote, or another profile file; entries and texts that are there stay.
 * *added: how many were new. A message names the file and line of an error; then nothing is added.
 */
enum status profile_import(profile *p, const char *path, int64_t *added) MUST_USE;

/* ---- looking ---- */

struct profile_summary {
    struct profile_setting setting;
    int64_t n_entries;
    int64_t n_disturbed;  /* of them: measured beside other programs */
    const char *measured; /* date and time of the last one, UTC: "2025-01-31T12:00:00Z" */
};
/* Visits settings by device, threads and load. A visit may change the profile. */
typedef enum status profile_visit(const struct profile_summary *s, void *user);
enum status profile_list(profile *p, profile_visit *visit, void *user) MUST_USE;
/* Removes a setting's entries; with NULL all entries and texts. */
enum status profile_forget(profile *p, const struct profile_setting *s) MUST_USE;

#endif
