#include "runtime/checkpoint.h"

#include "base/arena.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "runtime/checkpoint_state.h"
#include "runtime/safetensors.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RECORD_BYTES = 16 << 20 }; /* most of it the names of classes */

struct checkpoint {
    char path[PATH_MAX]; /* of NAME.json */
    char tensors_path[PATH_MAX + NAME_MAX + 2];
    struct checkpoint_record record;
    safetensors *tensors;
};

static const char STATE_PREFIX[] = "optimizer/", COPY_PREFIX[] = "worker/";

/* ---- which tensors --------------------------------------------------------------------------- */

struct item {
    int param;
    enum executor_tensor which;
    int worker; /* whose own copy of the weight it is; OF_ALL: the one that counts */
    const char *name;
};

enum { OF_ALL = -1 };

struct item_list {
    arena *memory;
    int count, n_shared; /* without the workers' copies, which come last */
    struct item *items;
};

static enum status add_item(struct item_list *list, struct item item, const char *prefix,
                            const char *name, int suffix)
{
    if (item.worker != OF_ALL)
        TRY(arena_print(list->memory, &item.name, "%s%d/%s", prefix, item.worker, name));
    else if (item.which != TENSOR_WEIGHT)
        TRY(arena_print(list->memory, &item.name, "%s%s/%d", prefix, name, suffix));
    else
        item.name = name;
    list->items[list->count++] = item;
    return STATUS_OK;
}

/* Weights in the graph's order, then each state tensor of those that learn, then workers' copies.
 */
static enum status list_items(const struct graph *graph, int n_states,
                              const struct tensor_store *tensors, struct item_list *list)
{
    size_t most = (size_t)graph->n_params * (size_t)(1 + n_states + tensors->n_workers);
    TRY(arena_alloc_array(list->memory, most, sizeof *list->items, &list->items));
    for (int i = 0; i < graph->n_params; i++)
        TRY(add_item(list, (struct item){i, TENSOR_WEIGHT, OF_ALL, NULL}, "", graph->params[i].name,
                     0));
    for (int state = 0; state < n_states; state++)
        for (int i = 0; i < graph->n_params; i++)
            if (graph_param_learns(&graph->params[i]))
                TRY(add_item(
                    list,
                    (struct item){i, state == 0 ? TENSOR_STATE_0 : TENSOR_STATE_1, OF_ALL, NULL},
                    STATE_PREFIX, graph->params[i].name, state));
    list->n_shared = list->count;
    for (int worker = 0; worker < tensors->n_workers; worker++)
        for (int i = 0; i < graph->n_params; i++)
            if (tensors->has_copy(tensors->holder, i, worker))
                TRY(add_item(list, (struct item){i, TENSOR_WEIGHT, worker, NULL}, COPY_PREFIX,
                             graph->params[i].name, 0));
    return STATUS_OK;
}

static enum status read_from(const struct tensor_store *tensors, const struct item *item, float *to)
{
    return item->worker == OF_ALL
               ? tensors->read(tensors->holder, item->param, item->which, to)
               : tensors->read_copy(tensors->holder, item->param, item->worker, to);
}

static enum status write_to(const struct tensor_store *tensors, const struct item *item,
                            const float *from)
{
    return item->worker == OF_ALL
               ? tensors->write(tensors->holder, item->param, item->which, from)
               : tensors->write_copy(tensors->holder, item->param, item->worker, from);
}

/* ---- writing tensors ------------------------------------------------------------------------- */

static enum status write_items(const char *path, const struct item_list *list,
                               const struct checkpoint_subject *subject, const struct graph *graph,
                               const struct tensor_store *tensors, struct safetensors_sum *sum)
{
    const char *const *metadata;
    struct safetensors_entry *entries;
    safetensors_writer *w = NULL;
    float *scratch = NULL;
    enum status st;
    TRY(checkpoint_subject_metadata(subject, graph, list->memory, &metadata));
    TRY(arena_alloc_array(list->memory, (size_t)list->count, sizeof *entries, &entries));
    for (int i = 0; i < list->count; i++)
        entries[i] = (struct safetensors_entry){list->items[i].name,
                                                graph->params[list->items[i].param].spec.shape};
    TRY_GOTO(st, tensor_store_alloc_scratch(graph, &scratch), out);
    TRY_GOTO(st, safetensors_writer_open(path, entries, list->count, metadata, &w), out);
    for (int i = 0; i < list->count; i++) {
        TRY_GOTO(st, read_from(tensors, &list->items[i], scratch), out);
        TRY_GOTO(st, safetensors_writer_put(w, scratch), out);
    }
    TRY_GOTO(st, safetensors_writer_finish(w, sum), out);
out:
    safetensors_writer_close(w);
    free(scratch);
    return st;
}

/* Weights, n_states optimizer tensors per trained weight, and workers' copies into the file `path`,
 * synchronised. */
static enum status write_tensors(const char *path, const struct checkpoint_subject *subject,
                                 const struct graph *graph, const struct tensor_store *tensors,
                                 int n_states, struct safetensors_sum *sum)
{
    struct item_list list = {0};
    TRY(arena_create(&list.memory));
    enum status st = list_items(graph, n_states, tensors, &list);
    if (st == STATUS_OK)
        st = write_items(path, &list, subject, graph, tensors, sum);
    arena_destroy(list.memory);
    return st;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The names of one save. */
struct places {
    char folder[PATH_MAX];   /* "." where NAME has none */
    char base[NAME_MAX + 1]; /* NAME without its folder */
    char json[PATH_MAX], tensors[PATH_MAX], lock[PATH_MAX];
    char tensors_file[NAME_MAX + 1]; /* `tensors` without its folder */
};

/* PATH_MAX bytes hold NAME and the longest suffix only if NAME leaves room for it. */
enum { SUFFIX_BYTES = 80 };

static bool join(char *to, const char *left, const char *right)
{
    int n = snprintf(to, PATH_MAX, "%s%s", left, right);
    return n > 0 && n < PATH_MAX;
}

static enum status split_name(const char *name, struct places *p)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    if (!*base || strlen(base) > NAME_MAX - SUFFIX_BYTES ||
        strlen(name) > PATH_MAX - SUFFIX_BYTES || !join(p->json, name, ".json") ||
        !join(p->lock, name, ".lock"))
        return status_fail(STATUS_USAGE, "checkpoint '%.200s' is not a usable name of a file",
                           name);
    (void)snprintf(p->base, sizeof p->base, "%s", base);
    folder_of(name, p->folder);
    return STATUS_OK;
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
    return STATUS_OK;
}

static enum status fail_at(const char *path, const char *what)
{
    return status_fail(STATUS_FAILED, "%s: cannot %s: %s", path, what, strerror(errno));
}

static const char *skip_digits(const char *at)
{
    while (isdigit((unsigned char)*at))
        at++;
    return at;
}

/* What a save that was killed adds to a name; the second form is that of earlier versions. */
static bool is_left(const char *tail)
{
    return whole_file_is_tail(tail) || strcmp(tail, ".tmp") == 0;
}

/* Whether `file` is BASE-<digits>[.<digits>].safetensors, or left of writing such a file or
 * BASE.json. */
static bool belongs_to(const char *file, const char *base)
{
    static const char json[] = ".json", tensors[] = ".safetensors";
    size_t length = strlen(base);
    if (strncmp(file, base, length) != 0)
        return false;
    const char *at = file + length;
    if (strncmp(at, json, sizeof json - 1) == 0)
        return is_left(at + sizeof json - 1);
    if (*at != '-' || !isdigit((unsigned char)at[1]))
        return false;
    at = skip_digits(at + 1);
    if (*at == '.' && isdigit((unsigned char)at[1]))
        at = skip_digits(at + 1);
    if (strncmp(at, tensors, sizeof tensors - 1) != 0)
        return false;
    at += sizeof tensors - 1;
    return !*at || is_left(at);
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

/* ---- saving ---------------------------------------------------------------------------------- */

/* NAME.json in its place is the commit. */
static enum status put_record(const struct places *p, const struct checkpoint_record *record,
                              const struct checkpoint_subject *subject)
{
    char *text = NULL;
    TRY(checkpoint_record_print(record, subject, &text));
    enum status st = whole_file_put_text(p->json, text);
    free(text);
    return st;
}

/* After a failure that is recorded already: whether NAME.json surely does not name the new tensor
 * file. It may name it, because only the last synchronisation failed, and not be readable now. */
static bool is_surely_unnamed(const struct places *p)
{
    struct checkpoint_record record;
    struct status_error cause;
    struct stat info;
    status_take(STATUS_FAILED, &cause);
    bool unnamed;
    if (read_record(p->json, &record) == STATUS_OK)
        unnamed = strcmp(record.tensors_file, p->tensors_file) != 0;
    else if (lstat(p->json, &info) == 0)
        unnamed = S_ISDIR(info.st_mode); /* no file can take its place */
    else
        unnamed = errno == ENOENT;
    status_clear();
    (void)!status_give(&cause);
    return unnamed;
}

enum status checkpoint_save(const char *name, const struct checkpoint_state *state,
                            const struct checkpoint_subject *subject, const struct graph *graph,
                            const struct tensor_store *tensors)
{
    struct places p;
    struct checkpoint_record record = {.state = *state};
    TRY(choose_places(name, state->step, &p));
    memcpy(record.tensors_file, p.tensors_file, sizeof record.tensors_file);
    TRY(write_tensors(p.tensors, subject, graph, tensors, update_rule_states(&state->rule),
                      &record.tensors_sum));
    enum status st = put_record(&p, &record, subject);
    if (st == STATUS_OK)
        remove_former(&p);
    else if (is_surely_unnamed(&p)) /* else NAME.json may or may not last: both files must stay */
        (void)unlink(p.tensors);
    return st;
}

enum status checkpoint_save_weights(const char *path, const struct checkpoint_subject *subject,
                                    const struct graph *graph, const struct tensor_store *tensors)
{
    struct tensor_store weights = *tensors;
    struct safetensors_sum sum;
    weights.n_workers = 0; /* the workers' own copies matter to this run alone */
    return write_tensors(path, subject, graph, &weights, 0, &sum);
}

enum status checkpoint_check_state(const char *name, const struct checkpoint_state *state,
                                   const struct checkpoint_subject *subject)
{
    struct places p;
    struct checkpoint_record record = {.state = *state};
    char *text = NULL;
    TRY(choose_places(name, state->step, &p));
    memcpy(record.tensors_file, p.tensors_file, sizeof record.tensors_file);
    TRY(checkpoint_record_print(&record, subject, &text));
    free(text);
    return STATUS_OK;
}

enum status checkpoint_make_place(const char *name)
{
    struct places p;
    struct stat info;
    bool made;
    TRY(split_name(name, &p));
    TRY(folder_make(p.folder, &made));
    if (stat(p.folder, &info) != 0)
        return fail_at(p.folder, "save checkpoints there");
    if (!S_ISDIR(info.st_mode))
        return status_fail(STATUS_FAILED, "%s: cannot save checkpoints there: not a folder",
                           p.folder);
    if (access(p.folder, W_OK | X_OK) != 0)
        return fail_at(p.folder, "save checkpoints there");
    return STATUS_OK;
}

enum status checkpoint_lock(const char *name, lock_file **out)
{
    struct places p;
    char holder[LOCK_HOLDER_BYTES];
    TRY(split_name(name, &p));
    TRY(lock_file_take(p.lock, holder, out));
    if (*out)
        return STATUS_OK;
    return status_fail(STATUS_USAGE,
                       "%s: another run saves there: %s; wait for its end, or name another "
                       "--checkpoint",
                       p.json, holder);
}

enum status checkpoint_refuse_overwrite(const char *name)
{
    struct places p;
    struct checkpoint_record record;
    char what[64] = "a file";
    TRY(split_name(name, &p));
    if (read_record(p.json, &record) == STATUS_OK)
        (void)snprintf(what, sizeof what, "a checkpoint of step %lld",
                       (long long)record.state.step);
    status_clear();
    return status_fail(STATUS_USAGE,
                       "%s: there is %s already: go on from it with --resume, replace it with "
                       "--overwrite, or name another --checkpoint",
                       p.json, what);
}

/* ---- loading --------------------------------------------------------------------------------- */

bool checkpoint_exists(const char *name)
{
    char path[PATH_MAX];
    struct stat info;
    return join(path, name, ".json") && (lstat(path, &info) == 0 || errno != ENOENT);
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
    memcpy(c->path, p.json, sizeof c->path);
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

/* Drops the workers' copies from the list unless the file holds just those: of another plan they
 * mean nothing. */
static void match_copies(const char *path, const safetensors *f, struct item_list *list)
{
    int n_there = 0, n_wanted = list->count - list->n_shared;
    for (int i = 0; i < safetensors_count(f); i++)
        n_there += strncmp(safetensors_get(f, i)->name, COPY_PREFIX, sizeof COPY_PREFIX - 1) == 0;
    bool all = n_there == n_wanted;
    for (int i = list->n_shared; all && i < list->count; i++)
        all = safetensors_find(f, list->items[i].name) != NULL;
    if (all)
        return;
    list->count = list->n_shared;
    if (n_wanted > 0)
        log_warn("%s: the copies of weights of an asynchronous plan's workers are not those of "
                 "this plan: all workers begin with the servers' weights",
                 path);
}

static enum status check_items(const char *path, const safetensors *f, const struct item_list *list,
                               const struct graph *graph)
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
    return STATUS_OK;
}

static enum status read_items(const char *path, safetensors *f, struct item_list *list,
                              const struct graph *graph, const struct tensor_store *tensors)
{
    float *scratch;
    enum status st = STATUS_OK;
    match_copies(path, f, list);
    TRY(check_items(path, f, list, graph));
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
        TRY_GOTO(st, write_to(tensors, item, scratch), out);
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
    enum status st = list_items(graph, n_states, tensors, &list);
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
    struct tensor_store weights = *tensors;
    weights.n_workers = 0; /* all of them begin alike */
    TRY(safetensors_open(path, &f));
    enum status st = read_tensors(path, f, 0, graph, &weights);
    safetensors_close(f);
    return st;
}
