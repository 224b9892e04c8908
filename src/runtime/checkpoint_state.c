#include "runtime/checkpoint_state.h"

#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Reals are printed with 17 digits (jansson's default), which give the same double back. */
enum { PRINT_FLAGS = JSON_INDENT(2) | JSON_REAL_PRECISION(17) };

static const char *const rule_names[UPDATE_KIND_COUNT + 1] = {
    [UPDATE_SGD] = "sgd", [UPDATE_ADAMW] = "adamw"};

/* ---- fields ---------------------------------------------------------------------------------- */

/* One row per field: printing, parsing and comparing go over the same table. */
enum field_type { FIELD_TEXT, FIELD_INTEGER, FIELD_UNSIGNED, FIELD_REAL, FIELD_BOOL, FIELD_NAME };
enum field_role { FIELD_IDENTITY, FIELD_LEARNING, FIELD_PLACE };

struct field {
    const char *name;
    enum field_type type;
    enum field_role role;
    size_t offset;
    size_t n_bytes;           /* FIELD_TEXT: of the array */
    const char *const *names; /* FIELD_NAME: of an enum's values */
    const char *what;         /* for people */
};

#define FIELD(name_, type_, role_, member, what_)                                       \
    {                                                                                   \
        name_, FIELD_##type_, FIELD_##role_, offsetof(struct checkpoint_state, member), \
            sizeof(((struct checkpoint_state *)0)->member), NULL, what_                 \
    }
#define NAME(name_, member, names_)                                                              \
    {                                                                                            \
        name_, FIELD_NAME, FIELD_IDENTITY, offsetof(struct checkpoint_state, member), 0, names_, \
            name_                                                                                \
    }

static const struct field fields[] = {
    FIELD("model", TEXT, IDENTITY, model, "model"),
    FIELD("data", TEXT, IDENTITY, data, "data"),
    FIELD("channels", INTEGER, IDENTITY, channels, "channels of an image"),
    FIELD("height", INTEGER, IDENTITY, height, "height of an image"),
    FIELD("width", INTEGER, IDENTITY, width, "width of an image"),
    FIELD("classes", INTEGER, IDENTITY, classes, "number of classes"),
    FIELD("batch", INTEGER, IDENTITY, batch, "batch"),
    FIELD("n_train", INTEGER, IDENTITY, n_train, "number of training samples"),
    FIELD("seed", UNSIGNED, IDENTITY, seed, "seed"),
    NAME("precision", precision, precision_names),
    FIELD("augment", BOOL, IDENTITY, augment, "augmentation"),
    FIELD("drop_probability", REAL, IDENTITY, drop_probability, "drop probability"),
    NAME("optimizer", rule.kind, rule_names),
    FIELD("learning_rate", REAL, LEARNING, rule.learning_rate, "learning rate"),
    FIELD("weight_decay", REAL, LEARNING, rule.weight_decay, "weight decay"),
    FIELD("momentum", REAL, LEARNING, rule.momentum, "momentum"),
    FIELD("nesterov", BOOL, LEARNING, rule.nesterov, "Nesterov momentum"),
    FIELD("beta1", REAL, LEARNING, rule.beta1, "beta1"),
    FIELD("beta2", REAL, LEARNING, rule.beta2, "beta2"),
    FIELD("epsilon", REAL, LEARNING, rule.epsilon, "epsilon"),
    FIELD("groups", TEXT, LEARNING, groups, "the choice of groups of weights"),
    FIELD("warmup_steps", INTEGER, LEARNING, schedule.warmup_steps, "warm-up steps"),
    FIELD("schedule_steps", INTEGER, PLACE, schedule_steps, "steps of the schedule"),
    FIELD("step", INTEGER, PLACE, step, "step"),
    FIELD("epoch", INTEGER, PLACE, epoch, "epoch"),
    FIELD("position", INTEGER, PLACE, position, "position"),
    FIELD("loss_sum", REAL, PLACE, loss_sum, "loss_sum"),
    FIELD("n_seen", INTEGER, PLACE, n_seen, "n_seen"),
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static json_t *field_print(const struct field *f, const struct checkpoint_state *s)
{
    const void *at = (const char *)s + f->offset;
    char text[24];
    switch (f->type) {
    case FIELD_TEXT:
        return json_string(at);
    case FIELD_INTEGER:
        return json_integer(*(const int64_t *)at);
    case FIELD_UNSIGNED: /* as text: JSON readers lose bits above 2^53 */
        (void)snprintf(text, sizeof text, "%" PRIu64, *(const uint64_t *)at);
        return json_string(text);
    case FIELD_REAL:
        return json_real(*(const double *)at);
    case FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    default:
        return json_string(f->names[*(const int *)at]);
    }
}

static bool parse_unsigned(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || *end || errno || *text == '-')
        return false;
    *out = value;
    return true;
}

static bool parse_name(const char *text, const char *const *names, int *out)
{
    for (int i = 0; text && names[i]; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return true;
        }
    return false;
}

/* Not in checkpoints of earlier versions. */
static bool may_lack(const struct field *f)
{
    return f->offset == offsetof(struct checkpoint_state, schedule_steps) ||
           f->offset == offsetof(struct checkpoint_state, groups);
}

/* Larger integers are no counts of this program's: adding to one must not overflow. */
static const int64_t MOST = INT64_C(1) << 53;

static bool field_parse(const struct field *f, const json_t *value, struct checkpoint_state *s)
{
    void *at = (char *)s + f->offset;
    const char *text = json_string_value(value);
    switch (f->type) {
    case FIELD_TEXT:
        if (!text || strlen(text) >= f->n_bytes)
            return false;
        memcpy(at, text, strlen(text) + 1);
        return true;
    case FIELD_INTEGER:
        *(int64_t *)at = json_integer_value(value);
        return json_is_integer(value) && *(int64_t *)at >= 0 && *(int64_t *)at <= MOST;
    case FIELD_UNSIGNED:
        return parse_unsigned(text, at);
    case FIELD_REAL:
        *(double *)at = json_number_value(value);
        return json_is_number(value);
    case FIELD_BOOL:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    default:
        return parse_name(text, f->names, at);
    }
}

/* The value as people read it, and as it is compared. */
static const char *field_text(const struct field *f, const struct checkpoint_state *s, char *buffer,
                              size_t size)
{
    const void *at = (const char *)s + f->offset;
    switch (f->type) {
    case FIELD_TEXT:
        (void)snprintf(buffer, size, "'%s'", (const char *)at);
        break;
    case FIELD_INTEGER:
        (void)snprintf(buffer, size, "%" PRId64, *(const int64_t *)at);
        break;
    case FIELD_UNSIGNED:
        (void)snprintf(buffer, size, "%" PRIu64, *(const uint64_t *)at);
        break;
    case FIELD_REAL:
        (void)snprintf(buffer, size, "%.12g", *(const double *)at);
        break;
    case FIELD_BOOL:
        (void)snprintf(buffer, size, "%s", *(const bool *)at ? "on" : "off");
        break;
    default:
        (void)snprintf(buffer, size, "%s", f->names[*(const int *)at]);
        break;
    }
    return buffer;
}

/* ---- comparing ------------------------------------------------------------------------------- */

enum { VALUE_BYTES = CHECKPOINT_TEXT_BYTES + 8 };

static enum status compare_field(const char *path, const struct field *f,
                                 const struct checkpoint_state *saved,
                                 const struct checkpoint_state *wanted)
{
    char before[VALUE_BYTES], now[VALUE_BYTES];
    (void)field_text(f, saved, before, sizeof before);
    (void)field_text(f, wanted, now, sizeof now);
    bool is_known = f->offset != offsetof(struct checkpoint_state, groups) || *saved->groups;
    if (strcmp(before, now) == 0 || f->role == FIELD_PLACE || !is_known)
        return STATUS_OK;
    if (f->role == FIELD_IDENTITY)
        return status_fail(STATUS_USAGE,
                           "%s: cannot continue from it: %s is %.300s there, %.300s was asked for "
                           "(give the same, or another --checkpoint)",
                           path, f->what, before, now);
    log_warn("%s: %s was %s, continuing with %s", path, f->what, before, now);
    return STATUS_OK;
}

enum status checkpoint_state_match(const char *path, const struct checkpoint_state *saved,
                                   const struct checkpoint_state *wanted)
{
    for (int i = 0; i < N_FIELDS; i++)
        TRY(compare_field(path, &fields[i], saved, wanted));
    int had = update_rule_states(&saved->rule), needed = update_rule_states(&wanted->rule);
    if (had != needed)
        return status_fail(STATUS_USAGE,
                           "%s: cannot continue from it: momentum is %g there, %g was asked for "
                           "(on and off keep different state)",
                           path, saved->rule.momentum, wanted->rule.momentum);
    char before[80], now[80];
    (void)schedule_text(before, sizeof before, &saved->schedule);
    (void)schedule_text(now, sizeof now, &wanted->schedule);
    if (strcmp(before, now) != 0)
        log_warn("%s: schedule was %s, continuing with %s", path, before, now);
    return STATUS_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* The checksum of all members but "checksum", as 16 hexadecimal digits. NULL: out of memory. */
static json_t *record_checksum(const json_t *record)
{
    json_t *rest = json_copy((json_t *)record);
    (void)json_object_del(rest, "checksum");
    char *text = json_dumps(rest, PRINT_FLAGS | JSON_SORT_KEYS);
    json_decref(rest);
    if (!text)
        return NULL;
    json_t *sum = json_sprintf("%016" PRIx64, (uint64_t)XXH64(text, strlen(text), 0));
    free(text);
    return sum;
}

static json_t *record_to_json(const struct checkpoint_record *r,
                              const struct checkpoint_subject *subject)
{
    char schedule[80];
    json_t *root = json_object();
    bool good =
        json_object_set_new(root, "cleave_checkpoint", json_integer(CHECKPOINT_VERSION)) == 0;
    for (int i = 0; good && i < N_FIELDS; i++)
        good = json_object_set_new(root, fields[i].name, field_print(&fields[i], &r->state)) == 0;
    (void)schedule_text(schedule, sizeof schedule, &r->state.schedule);
    good = good && json_object_set_new(root, "schedule", json_string(schedule)) == 0;
    json_t *tensors = json_pack("{s:s, s:I, s:o}", "file", r->tensors_file, "bytes",
                                (json_int_t)r->tensors_sum.n_bytes, "xxh64",
                                json_sprintf("%016" PRIx64, r->tensors_sum.xxh64));
    json_t *about = checkpoint_subject_json(subject);
    good = good && about && json_object_update(root, about) == 0;
    json_decref(about);
    good = good && json_object_set_new(root, "tensors", tensors) == 0;
    good = good && json_object_set_new(root, "checksum", record_checksum(root)) == 0;
    if (!good) {
        json_decref(root);
        return NULL;
    }
    return root;
}

enum status checkpoint_record_print(const struct checkpoint_record *r,
                                    const struct checkpoint_subject *subject, char **out)
{
    json_t *root = record_to_json(r, subject);
    char *text = root ? json_dumps(root, PRINT_FLAGS) : NULL;
    json_decref(root);
    if (!text)
        return status_fail(STATUS_FAILED,
                           "cannot describe the checkpoint: out of memory, or a path is not UTF-8");
    *out = text;
    return STATUS_OK;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static enum status check_version(const char *path, const json_t *root)
{
    const json_t *version = json_object_get(root, "cleave_checkpoint");
    if (!json_is_integer(version))
        return status_fail(STATUS_FAILED, "%s: not a checkpoint of cleave", path);
    if (json_integer_value(version) != CHECKPOINT_VERSION)
        return status_fail(STATUS_FAILED,
                           "%s: a checkpoint of version %lld, this program reads version %d", path,
                           (long long)json_integer_value(version), CHECKPOINT_VERSION);
    json_t *sum = record_checksum(root);
    bool same = sum && json_equal(sum, json_object_get(root, "checksum"));
    json_decref(sum);
    if (!same)
        return status_fail(STATUS_FAILED, "%s: corrupt: its values do not match its checksum",
                           path);
    return STATUS_OK;
}

static bool parse_tensors(const json_t *tensors, struct checkpoint_record *r)
{
    const char *file = json_string_value(json_object_get(tensors, "file"));
    const char *sum = json_string_value(json_object_get(tensors, "xxh64"));
    const json_t *n_bytes = json_object_get(tensors, "bytes");
    /* The file lies beside NAME.json: a path would reach elsewhere. */
    if (!file || !*file || strlen(file) > NAME_MAX || strchr(file, '/') || !sum ||
        strlen(sum) != 16 || strspn(sum, "0123456789abcdef") != 16 || !json_is_integer(n_bytes))
        return false;
    memcpy(r->tensors_file, file, strlen(file) + 1);
    r->tensors_sum.n_bytes = json_integer_value(n_bytes);
    r->tensors_sum.xxh64 = strtoull(sum, NULL, 16);
    return true;
}

static enum status parse_schedule(const json_t *root, struct schedule *s)
{
    const char *text = json_string_value(json_object_get(root, "schedule"));
    int64_t warmup_steps = s->warmup_steps;
    if (!text)
        return status_fail(STATUS_FAILED, "there is no schedule");
    TRY(schedule_parse(text, s));
    s->warmup_steps = warmup_steps;
    return STATUS_OK;
}

static enum status parse_members(const char *path, const json_t *root, struct checkpoint_record *r)
{
    TRY(check_version(path, root));
    for (int i = 0; i < N_FIELDS; i++) {
        const json_t *value = json_object_get(root, fields[i].name);
        if (!(may_lack(&fields[i]) && !value) && !field_parse(&fields[i], value, &r->state))
            return status_fail(STATUS_FAILED, "%s: corrupt: '%s' is missing or makes no sense",
                               path, fields[i].name);
    }
    if (parse_schedule(root, &r->state.schedule) != STATUS_OK) {
        status_clear();
        return status_fail(STATUS_FAILED, "%s: corrupt: 'schedule' is missing or makes no sense",
                           path);
    }
    if (!parse_tensors(json_object_get(root, "tensors"), r))
        return status_fail(STATUS_FAILED, "%s: corrupt: 'tensors' is missing or makes no sense",
                           path);
    return STATUS_OK;
}

enum status checkpoint_record_parse(const char *path, const char *text, size_t n_bytes,
                                    struct checkpoint_record *out)
{
    json_error_t error;
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return status_fail(STATUS_FAILED, "%s:%d:%d: not valid JSON: %s", path, error.line,
                           error.column, json_error_reason(&error));
    struct checkpoint_record record = {0};
    enum status st = parse_members(path, root, &record);
    json_decref(root);
    if (st == STATUS_OK)
        *out = record;
    return st;
}
