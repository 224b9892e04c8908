#include "runtime/checkpoint.h"

#include "base/arena.h"
#include "base/log.h"
#include "runtime/checkpoint_state.h"
#include "runtime/safetensors.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RECORD_BYTES = 1 << 20 };

struct checkpoint {
    char path[PATH_MAX]; /* of NAME.json */
    char tensors_path[PATH_MAX + NAME_MAX + 2];
    struct checkpoint_record record;
    safetensors *tensors;
};

/* ---- which tensors --------------------------------------------------------------------------- */

struct item {
    int param;
    enum executor_tensor which;
    const char *name;
};

struct item_list {
    arena *memory;
    int count;
    struct item *items;
};

/* Weights in the graph's order, then each state tensor of those that learn. */
static enum status list_items(const struct graph *graph, int n_states, struct item_list *list)
{
    size_t most = (size_t)graph->n_params * (size_t)(1 + n_states);
    TRY(arena_alloc_array(list->memory, most, sizeof *list->items, &list->items));
    for (int i = 0; i < graph->n_params; i++)
        list->items[list->count++] = (struct item){i, TENSOR_WEIGHT, graph->params[i].name};
    for (int state = 0; state < n_states; state++)
        for (int i = 0; i < graph->n_params; i++) {
            const struct graph_param *p = &graph->params[i];
            struct item *item = &list->items[list->count];
            if (!graph_param_learns(p))
                continue;
            *item = (struct item){i, state == 0 ? TENSOR_STATE_0 : TENSOR_STATE_1, NULL};
            TRY(arena_print(list->memory, &item->name, "optimizer/%s/%d", p->name, state));
            list->count++;
        }
    return STATUS_OK;
}

/* ---- writing tensors ------------------------------------------------------------------------- */

static enum status write_items(const char *path, const struct item_list *list,
                               const struct graph *graph, const struct tensor_store *tensors,
                               struct safetensors_sum *sum)
{
    const char *const metadata[] = {"format", "pt", "model", graph->name, NULL};
    struct safetensors_entry *entries;
    safetensors_writer *w = NULL;
    float *scratch = NULL;
    enum status st;
    TRY(arena_alloc_array(list->memory, (size_t)list->count, sizeof *entries, &entries));
    for (int i = 0; i < list->count; i++)
        entries[i] = (struct safetensors_entry){list->items[i].name,
                                                graph->params[list->items[i].param].spec.shape};
    TRY_GOTO(st, tensor_store_alloc_scratch(graph, &scratch), out);
    TRY_GOTO(st, safetensors_writer_open(path, entries, list->count, metadata, &w), out);
    for (int i = 0; i < list->count; i++) {
        const struct item *item = &list->items[i];
        TRY_GOTO(st, tensors->read(tensors->holder, item->param, item->which, scratch), out);
        TRY_GOTO(st, safetensors_writer_put(w, scratch), out);
    }
    TRY_GOTO(st, safetensors_writer_finish(w, sum), out);
out:
    safetensors_writer_close(w);
    free(scratch);
    return st;
}

/* Weights and n_states optimizer tensors per trained weight into the file `path`, synchronised. */
static enum status write_tensors(const char *path, const struct graph *graph,
                                 const struct tensor_store *tensors, int n_states,
                                 struct safetensors_sum *sum)
{
    struct item_list list = {0};
    TRY(arena_create(&list.memory));
    enum status st = list_items(graph, n_states, &list);
    if (st == STATUS_OK)
        st = write_items(path, &list, graph, tensors, sum);
    arena_destroy(list.memory);
    return st;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The names of one save. */
struct places {
    char folder[PATH_MAX];   /* "." where NAME has none */
    char base[NAME_MAX + 1]; /* NAME without its folder */
    char json[PATH_MAX], json_temporary[PATH_MAX];
    char tensors[PATH_MAX], tensors_temporary[PATH_MAX];
    char tensors_file[NAME_MAX + 1]; /* `tensors` without its folder */
};

/* PATH_MAX bytes hold NAME and the longest suffix only if NAME leaves room for it. */
enum { SUFFIX_BYTES = 80 };

/* Into folder[PATH_MAX]: "." where the path has none; "/a" lies in "/". */
static void find_folder(const char *path, char *folder)
{
    const char *slash = strrchr(path, '/');
    int length = slash == path ? 1 : slash ? (int)(slash - path) : 1;
    (void)snprintf(folder, PATH_MAX, "%.*s", length, slash ? path : ".");
}

static enum status split_name(const char *name, struct places *p)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    if (!*base || strlen(base) > NAME_MAX - SUFFIX_BYTES || strlen(name) > PATH_MAX - SUFFIX_BYTES)
        return status_fail(STATUS_USAGE, "checkpoint '%.200s' is not a usable name of a file",
                           name);
    (void)snprintf(p->base, sizeof p->base, "%s", base);
    find_folder(name, p->folder);
    return STATUS_OK;
}

static bool join(char *to, const char *left, const char *right)
{
    int n = snprintf(to, PATH_MAX, "%s%s", left, right);
    return n > 0 && n < PATH_MAX;
}

/* Chooses a tensor file name that does not exist: the one that NAME.json names must stay whole
 * until the new NAME.json is in place, even when the same step is saved twice. */
static enum status choose_places(const char *name, int64_t step, struct places *p)
{
    struct stat info;
    TRY(split_name(name, p));
    char suffix[SUFFIX_BYTES];
    for (int attempt = 0;; attempt++) {
        if (attempt == 0)
            (void)snprintf(suffix, sizeof suffix, "-%lld.safetensors", (long long)step);
        else
            (void)snprintf(suffix, sizeof suffix, "-%lld.%d.safetensors", (long long)step, attempt);
        if (!join(p->tensors, name, suffix) || lstat(p->tensors, &info) != 0)
            break;
    }
    (void)snprintf(p->tensors_file, sizeof p->tensors_file, "%.*s%s", NAME_MAX - SUFFIX_BYTES,
                   p->base, suffix);
    if (!join(p->tensors_temporary, p->tensors, ".tmp") || !join(p->json, name, ".json") ||
        !join(p->json_temporary, p->json, ".tmp"))
        return status_fail(STATUS_USAGE, "checkpoint '%.200s' is too long a path", name);
    return STATUS_OK;
}

static enum status fail_at(const char *path, const char *what)
{
    return status_fail(STATUS_FAILED, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* Makes renames in the folder last. */
static enum status sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_at(folder, "open");
    enum status st = STATUS_OK;
    if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: this file system cannot, and need not */
        st = fail_at(folder, "synchronise");
    (void)close(fd);
    return st;
}

static enum status write_all(int fd, const char *path, const char *text)
{
    for (size_t done = 0, n_bytes = strlen(text); done < n_bytes;) {
        ssize_t n = write(fd, text + done, n_bytes - done);
        if (n < 0 && errno != EINTR)
            return fail_at(path, "write");
        done += n < 0 ? 0 : (size_t)n;
    }
    return fsync(fd) == 0 ? STATUS_OK : fail_at(path, "synchronise");
}

static enum status write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_at(path, "create");
    enum status st = write_all(fd, path, text);
    if (close(fd) != 0 && st == STATUS_OK)
        st = fail_at(path, "close");
    return st;
}

static enum status rename_file(const char *from, const char *to)
{
    return rename(from, to) == 0 ? STATUS_OK : fail_at(to, "rename the finished file");
}

static const char *skip_digits(const char *at)
{
    while (isdigit((unsigned char)*at))
        at++;
    return at;
}

/* Whether `file` is BASE.json.tmp or BASE-<digits>[.<digits>].safetensors[.tmp]. */
static bool belongs_to(const char *file, const char *base)
{
    size_t length = strlen(base);
    if (strncmp(file, base, length) != 0)
        return false;
    const char *at = file + length;
    if (strcmp(at, ".json.tmp") == 0)
        return true;
    if (*at != '-' || !isdigit((unsigned char)at[1]))
        return false;
    at = skip_digits(at + 1);
    if (*at == '.' && isdigit((unsigned char)at[1]))
        at = skip_digits(at + 1);
    return strcmp(at, ".safetensors") == 0 || strcmp(at, ".safetensors.tmp") == 0;
}

/* Best effort: a file that cannot be removed now is tried again after the next save. */
static void remove_former(const struct places *p)
{
    DIR *folder = opendir(p->folder);
    if (!folder)
        return;
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (belongs_to(entry->d_name, p->base) && strcmp(entry->d_name, p->tensors_file) != 0)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    (void)closedir(folder);
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* The last line is the commit. */
static enum status put_record(const struct places *p, const struct checkpoint_record *record)
{
    char *text = NULL;
    TRY(checkpoint_record_print(record, &text));
    enum status st = write_text(p->json_temporary, text);
    free(text);
    return st == STATUS_OK ? rename_file(p->json_temporary, p->json) : st;
}

enum status checkpoint_save(const char *name, const struct checkpoint_state *state,
                            const struct graph *graph, const struct tensor_store *tensors)
{
    struct places p;
    struct checkpoint_record record = {.state = *state};
    enum status st;
    TRY(choose_places(name, state->step, &p));
    memcpy(record.tensors_file, p.tensors_file, sizeof record.tensors_file);
    TRY_GOTO(st,
             write_tensors(p.tensors_temporary, graph, tensors, update_rule_states(&state->rule),
                           &record.tensors_sum),
             undo);
    TRY_GOTO(st, rename_file(p.tensors_temporary, p.tensors), undo);
    TRY_GOTO(st, sync_folder(p.folder), undo);
    TRY_GOTO(st, put_record(&p, &record), undo);
    TRY(sync_folder(p.folder)); /* NAME.json may or may not last: both tensor files must stay */
    remove_former(&p);
    return STATUS_OK;
undo:
    (void)unlink(p.tensors_temporary);
    (void)unlink(p.tensors);
    (void)unlink(p.json_temporary);
    return st;
}

enum status checkpoint_save_weights(const char *path, const struct graph *graph,
                                    const struct tensor_store *tensors)
{
    char temporary[PATH_MAX], folder[PATH_MAX];
    struct safetensors_sum sum;
    enum status st;
    if (!join(temporary, path, ".tmp"))
        return status_fail(STATUS_USAGE, "'%.200s' is too long a path", path);
    TRY_GOTO(st, write_tensors(temporary, graph, tensors, 0, &sum), undo);
    TRY_GOTO(st, rename_file(temporary, path), undo);
    find_folder(path, folder);
    return sync_folder(folder);
undo:
    (void)unlink(temporary);
    return st;
}

enum status checkpoint_check_state(const char *name, const struct checkpoint_state *state)
{
    struct places p;
    struct checkpoint_record record = {.state = *state};
    char *text = NULL;
    TRY(choose_places(name, state->step, &p));
    memcpy(record.tensors_file, p.tensors_file, sizeof record.tensors_file);
    TRY(checkpoint_record_print(&record, &text));
    free(text);
    return STATUS_OK;
}

enum status checkpoint_check_place(const char *name)
{
    struct places p;
    struct stat info;
    TRY(split_name(name, &p));
    if (stat(p.folder, &info) != 0)
        return fail_at(p.folder, "save checkpoints there");
    if (!S_ISDIR(info.st_mode))
        return status_fail(STATUS_FAILED, "%s: cannot save checkpoints there: not a folder",
                           p.folder);
    if (access(p.folder, W_OK | X_OK) != 0)
        return fail_at(p.folder, "save checkpoints there");
    return STATUS_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

bool checkpoint_exists(const char *name)
{
    char path[PATH_MAX];
    struct stat info;
    return join(path, name, ".json") && (lstat(path, &info) == 0 || errno != ENOENT);
}

static enum status read_record(const char *path, struct checkpoint_record *out)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return fail_at(path, "open");
    char *text = malloc(MAX_RECORD_BYTES);
    enum status st = text ? STATUS_OK : status_no_memory(MAX_RECORD_BYTES);
    size_t n_bytes = text ? fread(text, 1, MAX_RECORD_BYTES, f) : 0;
    if (st == STATUS_OK && ferror(f))
        st = fail_at(path, "read");
    if (st == STATUS_OK && n_bytes == MAX_RECORD_BYTES)
        st = status_fail(STATUS_FAILED, "%s: too large for a checkpoint's description", path);
    if (st == STATUS_OK)
        st = checkpoint_record_parse(path, text, n_bytes, out);
    free(text);
    (void)fclose(f);
    return st;
}

static enum status open_tensors(checkpoint *c, const char *folder)
{
    const char *path = c->tensors_path;
    struct safetensors_sum sum;
    const struct safetensors_sum *expected = &c->record.tensors_sum;
    (void)snprintf(c->tensors_path, sizeof c->tensors_path, "%s/%s", folder,
                   c->record.tensors_file);
    TRY(safetensors_open(path, &c->tensors));
    TRY(safetensors_get_sum(c->tensors, &sum));
    if (sum.n_bytes != expected->n_bytes)
        return status_fail(STATUS_FAILED, "%s: corrupt: %lld bytes, %s says %lld", path,
                           (long long)sum.n_bytes, c->path, (long long)expected->n_bytes);
    if (sum.xxh64 != expected->xxh64)
        return status_fail(STATUS_FAILED, "%s: corrupt: its checksum is not the one in %s", path,
                           c->path);
    return STATUS_OK;
}

static enum status open_parts(const char *name, checkpoint *c)
{
    struct places p;
    TRY(split_name(name, &p));
    if (!join(c->path, name, ".json"))
        return status_fail(STATUS_USAGE, "checkpoint '%.200s' is too long a path", name);
    TRY(read_record(c->path, &c->record));
    return open_tensors(c, p.folder);
}

enum status checkpoint_open(const char *name, checkpoint **out)
{
    checkpoint *c = calloc(1, sizeof *c);
    if (!c)
        return status_no_memory(sizeof *c);
    enum status st = open_parts(name, c);
    if (st != STATUS_OK) {
        checkpoint_close(c);
        return st;
    }
    *out = c;
    return STATUS_OK;
}

void checkpoint_close(checkpoint *c)
{
    if (!c)
        return;
    safetensors_close(c->tensors);
    free(c);
}

const struct checkpoint_state *checkpoint_get_state(const checkpoint *c)
{
    return &c->record.state;
}

const char *checkpoint_get_tensors_path(const checkpoint *c)
{
    return c->tensors_path;
}

enum status checkpoint_match(const checkpoint *c, const struct checkpoint_state *wanted)
{
    return checkpoint_state_match(c->path, &c->record.state, wanted);
}

static enum status check_item(const char *path, const safetensors *f, const struct item *item,
                              const struct shape *shape)
{
    const struct safetensors_tensor *t = safetensors_find(f, item->name);
    if (!t)
        return status_fail(STATUS_FAILED, "%s: there is no tensor '%s'", path, item->name);
    struct shape found = {.rank = t->rank <= SHAPE_MAX_RANK ? t->rank : 0};
    for (int i = 0; i < found.rank; i++)
        found.dim[i] = t->dim[i];
    if (t->rank != found.rank || !shape_equal(&found, shape)) {
        char have[64], want[64];
        return status_fail(STATUS_FAILED, "%s: tensor '%s' has shape %s, the network's has %s",
                           path, item->name, shape_text(have, sizeof have, &found),
                           shape_text(want, sizeof want, shape));
    }
    if (t->type != SAFETENSORS_F32)
        return status_fail(STATUS_FAILED, "%s: tensor '%s' has dtype %s, F32 is needed", path,
                           item->name, safetensors_type_name(t->type));
    return STATUS_OK;
}

/* Weights that were frozen when the file was saved have no states in it. */
static bool was_frozen(const safetensors *f, const struct item *item)
{
    return item->which != TENSOR_WEIGHT && !safetensors_find(f, item->name);
}

static enum status read_items(const char *path, safetensors *f, const struct item_list *list,
                              const struct graph *graph, const struct tensor_store *tensors)
{
    int n_thawed = 0;
    for (int i = 0; i < list->count; i++) {
        const struct item *item = &list->items[i];
        if (was_frozen(f, item))
            n_thawed++;
        else
            TRY(check_item(path, f, item, &graph->params[item->param].spec.shape));
    }
    if (n_thawed > 0)
        log_warn("%s: %d states of the optimizer are not in it, because the weights were frozen: "
                 "they begin at zero",
                 path, n_thawed);
    float *scratch;
    enum status st = STATUS_OK;
    TRY(tensor_store_alloc_scratch(graph, &scratch));
    for (int i = 0; i < list->count; i++) {
        const struct item *item = &list->items[i];
        const struct safetensors_tensor *t = safetensors_find(f, item->name);
        if (t)
            TRY_GOTO(st, safetensors_read_floats(f, t, scratch), out);
        else
            memset(scratch, 0,
                   (size_t)shape_elements(&graph->params[item->param].spec.shape) *
                       sizeof *scratch);
        TRY_GOTO(st, tensors->write(tensors->holder, item->param, item->which, scratch), out);
    }
out:
    free(scratch);
    return st;
}

static enum status read_tensors(const char *path, safetensors *f, int n_states,
                                const struct graph *graph, const struct tensor_store *tensors)
{
    struct item_list list = {0};
    TRY(arena_create(&list.memory));
    enum status st = list_items(graph, n_states, &list);
    if (st == STATUS_OK)
        st = read_items(path, f, &list, graph, tensors);
    arena_destroy(list.memory);
    return st;
}

enum status checkpoint_read(checkpoint *c, const struct graph *graph,
                            const struct tensor_store *tensors)
{
    int n_states = update_rule_states(&c->record.state.rule);
    return read_tensors(c->tensors_path, c->tensors, n_states, graph, tensors);
}

enum status checkpoint_load_weights(const char *path, const struct graph *graph,
                                    const struct tensor_store *tensors)
{
    safetensors *f = NULL;
    TRY(safetensors_open(path, &f));
    enum status st = read_tensors(path, f, 0, graph, tensors);
    safetensors_close(f);
    return st;
}
