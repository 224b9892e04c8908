/* What is compiled in: the machines and the devices of machines/. */
#include "machine/parts.h"
#include "machine/read.h"

#include <string.h>
#include <strings.h>

static const char devices_name[] = "devices";

static const struct machine_file *find_any(const char *name)
{
    for (const struct machine_file *f = machine_files; f->name; f++)
        if (!strcmp(f->name, name))
            return f;
    return NULL;
}

const struct machine_file *machine_find_file(const char *name)
{
    return strcmp(name, devices_name) != 0 ? find_any(name) : NULL;
}

enum status machine_names(arena *memory, const char *const **out)
{
    const char **names;
    size_t n = 0, used = 0;
    while (machine_files[n].name)
        n++;
    TRY(arena_alloc_array(memory, n + 1, sizeof *names, &names));
    for (size_t i = 0; i < n; i++)
        if (strcmp(machine_files[i].name, devices_name) != 0)
            names[used++] = machine_files[i].name;
    *out = names;
    return STATUS_OK;
}

/* ---- devices.json ---- */

/* Calls `visit` with each device until it says that it is done. */
typedef enum status visit_device(const struct machine_place *at, const json_t *object, void *user,
                                 bool *done);

static enum status visit_all(const struct machine_place *top, const json_t *root,
                             visit_device *visit, void *user)
{
    const json_t *list = json_object_get(root, "devices");
    struct machine_place here = machine_place_of(top, "devices");
    TRY(machine_read_version(top, root, "cleave_devices", "devices"));
    TRY(machine_read_list(&here, list, 1));
    bool done = false;
    for (size_t i = 0; i < json_array_size(list) && !done; i++) {
        struct machine_place element = machine_place_at(&here, i);
        TRY(visit(&element, json_array_get(list, i), user, &done));
    }
    return STATUS_OK;
}

static enum status visit_devices(visit_device *visit, void *user)
{
    static const struct machine_place top = {.file = "machines/devices.json"};
    const struct machine_file *file = find_any(devices_name);
    json_t *root;
    if (!file)
        return status_fail(STATUS_FAILED, "machines/devices.json was not compiled in");
    TRY(machine_read_json(file->text, file->n_bytes, top.file, &root));
    enum status st = visit_all(&top, root, visit, user);
    json_decref(root);
    return st;
}

/* ---- names ---- */

struct name_list {
    arena *memory;
    const char **names;
    int n, room;
};

static enum status list_name(const struct machine_place *at, const json_t *object, void *user,
                             bool *done)
{
    struct name_list *list = user;
    const char *name = "";
    *done = false;
    TRY(machine_read_text(at, object, "name", &name));
    if (list->n + 1 < list->room)
        TRY(arena_copy_text(list->memory, name, &list->names[list->n++]));
    return STATUS_OK;
}

enum status machine_kind_names(arena *memory, const char *const **out)
{
    struct name_list list = {.memory = memory, .room = 256};
    TRY(arena_alloc_array(memory, (size_t)list.room, sizeof *list.names, &list.names));
    TRY(visit_devices(list_name, &list));
    *out = list.names;
    return STATUS_OK;
}

/* ---- kinds ---- */

struct search {
    const char *name, *model; /* one of them */
    arena *memory;
    struct machine_kind *out;
    size_t matched; /* length of the longest match so far */
    bool found;
};

static enum status take(const struct machine_place *at, const json_t *object, struct search *s)
{
    struct machine_kind *k = s->out;
    *k = (struct machine_kind){.name = "", .about = "", .note = "", .class = MACHINE_GPU};
    TRY(machine_read_kind(at, object, k));
    TRY(arena_copy_text(s->memory, k->name, &k->name));
    TRY(arena_copy_text(s->memory, k->about, &k->about));
    TRY(arena_copy_text(s->memory, k->note, &k->note));
    s->found = true;
    return STATUS_OK;
}

static enum status take_if_named(const struct machine_place *at, const json_t *object, void *user,
                                 bool *done)
{
    struct search *s = user;
    const char *name = "";
    TRY(machine_read_text(at, object, "name", &name));
    *done = !strcasecmp(name, s->name);
    return *done ? take(at, object, s) : STATUS_OK;
}

/* The longest match wins: "V100-SXM2-32GB" before "V100". */
static enum status take_if_matching(const struct machine_place *at, const json_t *object,
                                    void *user, bool *done)
{
    struct search *s = user;
    const json_t *matches = json_object_get(object, "match");
    *done = false;
    for (size_t i = 0; i < json_array_size(matches); i++) {
        const char *match = json_string_value(json_array_get(matches, i));
        if (!match || strlen(match) <= s->matched || !strcasestr(s->model, match))
            continue;
        s->matched = strlen(match);
        TRY(take(at, object, s));
    }
    return STATUS_OK;
}

enum status machine_library_kind(const char *name, arena *memory, struct machine_kind *out,
                                 bool *found)
{
    struct search s = {.name = name, .memory = memory, .out = out};
    TRY(visit_devices(take_if_named, &s));
    *found = s.found;
    return STATUS_OK;
}

enum status machine_library_match(const char *model, arena *memory, struct machine_kind *out,
                                  bool *found)
{
    struct search s = {.model = model, .memory = memory, .out = out};
    TRY(visit_devices(take_if_matching, &s));
    *found = s.found;
    return STATUS_OK;
}
