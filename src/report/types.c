/* Whether a JSON file that goes into the page has the types that the page draws (web/check.js has
 * the same list, for pages that outlive this program). */
#include "report/gather.h"

#include <stdio.h>
#include <string.h>

/* A path leads from the top of the file: members behind slashes, "*" for each element of a list,
 * "{}" for each member of an object. */
enum type { TEXT, NUMBER, TRUTH, LIST, OBJECT, CUT, TYPE_COUNT };

static const char *const type_names[TYPE_COUNT] = {
    [TEXT] = "a text", [NUMBER] = "a number",  [TRUTH] = "true or false",
    [LIST] = "a list", [OBJECT] = "an object", [CUT] = "a number or a list"};

struct rule {
    const char *kind, *path;
    enum type type;
    bool needed; /* else it may be missing, or null */
};

static const struct rule rules[] = {
    {"network", "name", TEXT, false},
    {"network", "batch", NUMBER, false},
    {"network", "nodes", LIST, true},
    {"network", "nodes/*", OBJECT, true},
    {"network", "nodes/*/name", TEXT, true},
    {"network", "nodes/*/op", TEXT, true},
    {"network", "nodes/*/inputs", LIST, true},
    {"network", "nodes/*/inputs/*", NUMBER, true},
    {"network", "nodes/*/shape", LIST, true},
    {"network", "nodes/*/shape/*", NUMBER, true},
    {"network", "nodes/*/parameters", NUMBER, false},
    {"network", "nodes/*/flops", NUMBER, false},
    {"network", "nodes/*/loops", OBJECT, false},
    {"network", "nodes/*/loops/summed", OBJECT, false},
    {"network", "nodes/*/loops/summed/{}", NUMBER, true},
    {"network", "nodes/*/loops/output", OBJECT, false},
    {"network", "nodes/*/loops/output/{}", NUMBER, true},
    {"plan", "name", TEXT, false},
    {"plan", "model", TEXT, false},
    {"plan", "workers", NUMBER, false},
    {"plan", "stages", LIST, false},
    {"plan", "stages/*", OBJECT, true},
    {"plan", "stages/*/workers", LIST, true},
    {"plan", "stages/*/workers/*", NUMBER, true},
    {"plan", "layers", OBJECT, false},
    {"plan", "layers/{}", OBJECT, true},
    {"plan", "layers/{}/stage", NUMBER, false},
    {"plan", "layers/{}/workers", LIST, false},
    {"plan", "layers/{}/workers/*", NUMBER, true},
    {"plan", "layers/{}/cut", OBJECT, false},
    {"plan", "layers/{}/cut/{}", CUT, true},
    {"config", "model", TEXT, false},
    {"config", "data", TEXT, false},
    {"config", "plan", TEXT, false},
    {"config", "batch", NUMBER, false},
    {"config", "workers", NUMBER, false},
    {"config", "first_step", NUMBER, false},
    {"config", "steps_per_epoch", NUMBER, false},
    {"machine", "links", LIST, false},
    {"machine", "links/*", OBJECT, true},
    {"machine", "links/*/name", TEXT, true},
    {"machine", "nodes", LIST, false},
    {"machine", "nodes/*", OBJECT, true},
    {"machine", "nodes/*/devices", LIST, true},
    {"machine", "nodes/*/devices/*", OBJECT, true},
    {"prediction", "step_s", NUMBER, true},
    {"prediction", "plan", TEXT, false},
    {"prediction", "model", TEXT, false},
    {"prediction", "data", TEXT, false},
    {"prediction", "batch", NUMBER, false},
    {"prediction", "machine", TEXT, false},
    {"prediction", "memory_bytes", NUMBER, false},
    {"prediction", "bytes_moved", NUMBER, false},
    {"prediction", "fits", TRUTH, false},
    {"prediction", "workers", LIST, false},
    {"prediction", "workers/*", OBJECT, true},
    {"prediction", "workers/*/compute_s", NUMBER, false},
    {"prediction", "workers/*/communicate_s", NUMBER, false},
    {"prediction", "workers/*/wait_s", NUMBER, false},
    {"prediction", "workers/*/memory", OBJECT, false},
    {"prediction", "workers/*/memory/{}", NUMBER, true},
    {"prediction", "links", LIST, false},
    {"prediction", "links/*", OBJECT, true},
    {"prediction", "links/*/name", TEXT, true},
    {"prediction", "nodes", LIST, false},
    {"prediction", "nodes/*", OBJECT, true},
    {"prediction", "nodes/*/devices", LIST, true},
    {"prediction", "nodes/*/devices/*", OBJECT, true},
    {"search", "best", TEXT, false},
    {"search", "candidates", LIST, true},
    {"search", "candidates/*", OBJECT, true},
    {"search", "candidates/*/name", TEXT, true},
    {"search", "candidates/*/step_s", NUMBER, false},
    {"search", "candidates/*/memory_bytes", NUMBER, false},
    {"search", "candidates/*/fits", TRUTH, false},
    {"limits", "fixed", OBJECT, true},
    {"limits", "fixed/points", LIST, true},
    {"limits", "fixed/points/*", OBJECT, true},
    {"limits", "fixed/points/*/workers", NUMBER, true},
    {"limits", "growing", OBJECT, true},
    {"limits", "growing/points", LIST, true},
    {"limits", "growing/points/*", OBJECT, true},
    {"limits", "growing/points/*/workers", NUMBER, true},
    {"study", "points", LIST, true},
    {"study", "points/*", OBJECT, true},
    {"study", "points/*/workers", NUMBER, false},
    {"study", "points/*/batch", NUMBER, false},
    {"study", "points/*/step_s", NUMBER, false},
};

/* Where the walk is, for the message. */
struct walk {
    const char *file;
    const struct rule *rule;
    char place[400];
};

static bool has_type(const json_t *value, enum type type)
{
    switch (type) {
    case TEXT:
        return json_is_string(value);
    case NUMBER:
        return json_is_number(value);
    case TRUTH:
        return json_is_boolean(value);
    case LIST:
        return json_is_array(value);
    case OBJECT:
        return json_is_object(value);
    default:
        return json_is_number(value) || json_is_array(value);
    }
}

static enum status walk_from(struct walk *w, const json_t *value, const char *path, size_t used);

/* Goes on at a member or an element, whose name the message would have. */
static enum status walk_into(struct walk *w, const json_t *value, const char *path, size_t used,
                             const char *name)
{
    int n = snprintf(w->place + used, sizeof w->place - used, "%s%.80s", used ? "/" : "", name);
    size_t now = used + (size_t)(n > 0 ? n : 0);
    return walk_from(w, value, path, now < sizeof w->place ? now : sizeof w->place - 1);
}

/* A value on the way that is of another type has a rule of its own. */
static enum status walk_from(struct walk *w, const json_t *value, const char *path, size_t used)
{
    if (*path == '\0') {
        bool missing = !value || json_is_null(value);
        if (has_type(value, w->rule->type) || (missing && !w->rule->needed))
            return STATUS_OK;
        return status_fail_content("%s: %s %s %s", w->file, w->place,
                                   missing ? "is missing, it must be" : "must be",
                                   type_names[w->rule->type]);
    }
    size_t length = strcspn(path, "/");
    const char *rest = path + length + (path[length] == '/');
    char name[80];
    (void)snprintf(name, sizeof name, "%.*s", (int)length, path);
    if (strcmp(name, "*") == 0) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            (void)snprintf(name, sizeof name, "%zu", i);
            TRY(walk_into(w, json_array_get(value, i), rest, used, name));
        }
        return STATUS_OK;
    }
    if (strcmp(name, "{}") == 0) {
        const char *key;
        json_t *member;
        json_object_foreach((json_t *)value, key, member)
        {
            TRY(walk_into(w, member, rest, used, key));
        }
        return STATUS_OK;
    }
    return json_is_object(value) ? walk_into(w, json_object_get(value, name), rest, used, name)
                                 : STATUS_OK;
}

/* The page draws layers in their order. */
static enum status check_inputs(const char *file, const json_t *network)
{
    const json_t *nodes = json_object_get(network, "nodes");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *inputs = json_object_get(json_array_get(nodes, i), "inputs");
        for (size_t k = 0; k < json_array_size(inputs); k++) {
            const json_t *from = json_array_get(inputs, k);
            json_int_t number = json_integer_value(from);
            if (!json_is_integer(from) || number < 0 || number >= (json_int_t)i)
                return status_fail_content(
                    "%s: nodes/%zu/inputs/%zu must be the number of a layer before "
                    "it",
                    file, i, k);
        }
    }
    return STATUS_OK;
}

enum status report_check_types(const char *path, const char *kind, const json_t *root)
{
    if (!json_is_object(root))
        return status_fail_content("%s: must be an object", path);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct walk w = {.file = path, .rule = &rules[i]};
        if (strcmp(rules[i].kind, kind) == 0)
            TRY(walk_from(&w, root, rules[i].path, 0));
    }
    return strcmp(kind, "network") == 0 ? check_inputs(path, root) : STATUS_OK;
}
