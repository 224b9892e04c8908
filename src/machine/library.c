/* The machines and devices of machines/, which are compiled in. */
#include "machine/builder.h"

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

/* The list of devices; the caller calls json_close. */
static enum status open_devices(struct json_text *text, struct json_place *list)
{
    const struct machine_file *file = find_any(devices_name);
    if (!file)
        return status_fail(STATUS_FAILED, "machines/devices.json was not compiled in");
    *text = (struct json_text){.name = "machines/devices.json",
                               .what = "list of devices",
                               .text = file->text,
                               .n_bytes = file->n_bytes,
                               .says_paths = true};
    TRY(json_open(text));
    *list = json_member(json_top(text), "devices");
    enum status st = json_check_version(json_top(text), "cleave_devices", 1, 1);
    if (st == STATUS_OK)
        st = json_check_list(*list, 1, SIZE_MAX);
    if (st != STATUS_OK)
        json_close(text);
    return st;
}

enum status machine_kind_names(arena *memory, const char *const **out)
{
    struct json_text text;
    struct json_place list;
    const char **names;
    TRY(open_devices(&text, &list));
    size_t n = json_array_size(list.value);
    enum status st = arena_alloc_array(memory, n + 1, sizeof *names, &names);
    for (size_t i = 0; st == STATUS_OK && i < n; i++) {
        const char *name = "";
        st = json_read_text(json_member(json_element(list, i), "name"), &name);
        if (st == STATUS_OK)
            st = arena_copy_text(memory, name, &names[i]);
    }
    json_close(&text);
    *out = names;
    return st;
}

/* How well a device is the wanted one: 0, not at all. Of a model's name the longest match wins,
 * "V100-SXM2-32GB" before "V100". */
static size_t rate(const json_t *device, const char *name, const char *model)
{
    const json_t *matches = json_object_get(device, "match");
    const char *own = json_string_value(json_object_get(device, "name"));
    size_t longest = 0;
    if (name)
        return own && !strcasecmp(own, name);
    for (size_t i = 0; i < json_array_size(matches); i++) {
        const char *match = json_string_value(json_array_get(matches, i));
        if (match && strlen(match) > longest && strcasestr(model, match))
            longest = strlen(match);
    }
    return longest;
}

/* By its name, or by a model that contains one of its "match" texts. */
static enum status find_device(const char *name, const char *model, arena *memory,
                               struct machine_kind *k, bool *found)
{
    struct json_text text;
    struct json_place list, best = {0};
    enum status st = STATUS_OK;
    size_t most = 0;
    TRY(open_devices(&text, &list));
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        struct json_place device = json_element(list, i);
        size_t rating = rate(device.value, name, model);
        if (rating > most) {
            most = rating;
            best = device;
        }
    }
    *found = most > 0;
    if (*found) {
        *k = (struct machine_kind){
            .name = "", .about = "", .note = "", .sold = "", .class = MACHINE_GPU};
        TRY_GOTO(st, machine_read_kind(best, k), out);
        TRY_GOTO(st, arena_copy_text(memory, k->name, &k->name), out);
        TRY_GOTO(st, arena_copy_text(memory, k->about, &k->about), out);
        TRY_GOTO(st, arena_copy_text(memory, k->note, &k->note), out);
        TRY_GOTO(st, arena_copy_text(memory, k->sold, &k->sold), out);
    }
out:
    json_close(&text);
    return st;
}

enum status machine_library_kind(const char *name, arena *memory, struct machine_kind *out,
                                 bool *found)
{
    return find_device(name, NULL, memory, out, found);
}

enum status machine_library_match(const char *model, arena *memory, struct machine_kind *out,
                                  bool *found)
{
    return find_device(NULL, model, memory, out, found);
}
