/* whole_file.h: files that are there whole, or as they were before. Every file that the program
 * writes goes through it, except those that grow while a run goes on (events, profiles).
 *
 * A file is written beside its place under a name that nobody else has, synchronised, renamed, and
 * then its folder is synchronised:
 *
 *     report.html.5c01e9d7.tmp   written, synchronised   | killed here: report.html is as before
 *     report.html                renamed, folder synced    <- from here on it is the new one
 *
 * A full disk therefore leaves no half of a file. The file keeps the permissions of the one that it
 * replaces; of a symbolic link, the file behind it is replaced. A target that is no regular file (a
 * pipe, a device), or is open in this process already (/dev/stdout), is written directly.
 *
 *     TRY(whole_file_write("plan.json", print, user));     // print(FILE *, user)
 *
 *     whole_file *f;
 *     TRY(whole_file_open("a.pack", &f));
 *     enum status st = write_all(whole_file_descriptor(f));
 *     return whole_file_end(f, st);                        // in place, or removed
 */
#ifndef CLEAVE_BASE_WHOLE_FILE_H
#define CLEAVE_BASE_WHOLE_FILE_H

#include "base/status.h"

#include <stdio.h>

typedef struct whole_file whole_file;

/* STATUS_FAILED names the path and the cause. */
enum status whole_file_open(const char *path, whole_file **out) MUST_USE;

/* The two write to the same place: use one of them. Errors of the stream come out at the end. */
FILE *whole_file_stream(const whole_file *f);
int whole_file_descriptor(const whole_file *f);

/* Puts the file in its place if `st` is STATUS_OK, else removes the new file and returns `st`.
 * After a failure the former file is still there, unless the failure is that of synchronising the
 * folder: then either may be. */
enum status whole_file_end(whole_file *f, enum status st) MUST_USE;

/* Removes the new file. NULL is fine. */
void whole_file_drop(whole_file *f);

typedef enum status whole_file_writer(FILE *f, void *user);
/* All of it in one call. */
enum status whole_file_write(const char *path, whole_file_writer *write, void *user) MUST_USE;
enum status whole_file_put_text(const char *path, const char *text) MUST_USE;

/* Whether `text` is what a temporary name adds to that of its file: ".5c01e9d7.tmp". Such a file
 * was left by a process that was killed. */
bool whole_file_is_tail(const char *text);

/* STATUS_FAILED if a file cannot be written there, as far as that can be seen without writing: for
 * before the work whose results go there. */
enum status whole_file_check_place(const char *path) MUST_USE;

/* STATUS_USAGE if writing to `path`, given with `option`, would replace `input`, which the command
 * reads. Either may be NULL, or not be there. */
enum status whole_file_check_input(const char *option, const char *path,
                                   const char *input) MUST_USE;

/* Makes a folder and those above it. *made: whether the last one is new. */
enum status folder_make(const char *path, bool *made) MUST_USE;

/* The folder of a file into folder[PATH_MAX]: "." where the path has none; "/a" lies in "/". */
void folder_of(const char *path, char *folder);

#endif
