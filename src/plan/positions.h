/* positions.h: which line of a JSON text a value is on; jansson does not keep it.
 *
 *     struct plan_path path = plan_path_add(plan_path_add((struct plan_path){0}, "layers"), "fc");
 *     int line = plan_find_line(text, n_bytes, &path);
 */
#ifndef CLEAVE_PLAN_POSITIONS_H
#define CLEAVE_PLAN_POSITIONS_H

#include <stddef.h>

enum { PLAN_PATH_MAX = 6 };

/* Members and elements on the way from the top to a value. Keys are not copied. */
struct plan_path {
    int n;
    struct plan_step {
        const char *key; /* NULL: element `index` of an array */
        size_t index;
    } step[PLAN_PATH_MAX];
};

/* The path one step longer. */
struct plan_path plan_path_add(struct plan_path path, const char *key);
struct plan_path plan_path_at(struct plan_path path, size_t index);

/* "stages/0/workers", into a buffer of `size` bytes, which is returned. */
const char *plan_path_text(char *buffer, size_t size, const struct plan_path *path);

/* The line, from 1, of the path's last step that is there: of a member its key's. `text` is valid
 * JSON; in anything else the line is within the text, but may be another. Keys are compared as
 * they are written: one with an escape is not found, and its parent's line is given. */
int plan_find_line(const char *text, size_t n_bytes, const struct plan_path *path);

#endif
