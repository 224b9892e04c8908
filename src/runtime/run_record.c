#include "runtime/run_record.h"

#include "base/lock_file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { MOST_NUMBERED = 9999, REAL_DIGITS = 9 };

enum { PATH_BYTES = 4096 };

struct run_record {
    arena *memory;
    struct run_record_options options;
    const char *directory; /* NULL: not there yet, or nothing is recorded */
    bool writes;           /* the root, until something could not be written */
    bool made;             /* by this run_record */
    int folder;            /* the directory as it was when it was locked; -1: none */
    lock_file *lock;       /* on it, while its run writes into it */
    FILE *events;
    char trace[PATH_BYTES];
};

/* ---- the directory ---- */

static void unlock(run_record *r)
{
    lock_file_release(r->lock);
    r->lock = NULL;
    if (r->folder >= 0)
        (void)close(r->folder);
    r->folder = -1;
}

/* Where no lock can be made nothing else can be written either; that is said then. */
static enum status lock_directory(run_record *r)
{
    char holder[LOCK_HOLDER_BYTES];
    if (lock_file_take(run_record_path(r, "record.lock"), holder, &r->lock) != STATUS_OK)
        status_clear();
    else if (!r->lock)
        return status_fail(STATUS_USAGE,
                           "--run %s: another run is writing there: %s: name another directory, or "
                           "wait for its end",
                           r->directory, holder);
    r->folder = open(r->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return STATUS_OK;
}

static enum status number_directory(run_record *r, const char *model)
{
    for (int i = 1; i <= MOST_NUMBERED; i++) {
        const char *path;
        bool made;
        TRY(arena_print(r->memory, &path, "runs/%s-%03d", model, i));
        TRY(folder_make(path, &made));
        if (made) {
            r->directory = path;
            return lock_directory(r);
        }
    }
    return status_fail(STATUS_FAILED, "runs/%s-%d is there already: name a directory with --run",
                       model, MOST_NUMBERED);
}

static enum status take_directory(run_record *r)
{
    struct stat about;
    r->directory = r->options.directory;
    if (r->options.root) {
        TRY(folder_make(r->directory, &r->made));
        TRY(lock_directory(r));
    }
    /* All processes look, so that all end; the file comes once all are there. */
    if (r->options.again || stat(run_record_path(r, REPORT_CONFIG), &about) != 0)
        return STATUS_OK;
    unlock(r);
    return status_fail(STATUS_USAGE,
                       "--run %s: holds the record of another run: name another directory, or go "
                       "on with --resume",
                       r->directory);
}

enum status run_record_create(const struct run_record_options *options, run_record **out)
{
    arena *memory;
    run_record *r;
    TRY(arena_create(&memory));
    enum status st;
    TRY_GOTO(st, arena_alloc(memory, sizeof *r, &r), failed);
    *r = (struct run_record){.memory = memory, .options = *options, .folder = -1};
    if (options->directory)
        TRY_GOTO(st, take_directory(r), failed);
    *out = r;
    return STATUS_OK;
failed:
    arena_destroy(memory);
    return st;
}

static void warn_incomplete(void)
{
    log_warn("%s; the record of this run is incomplete", status_message());
    status_clear();
}

static void warn_events(const run_record *r)
{
    log_warn("%s/%s: cannot write: %s; the record of this run is incomplete", r->directory,
             REPORT_EVENTS, strerror(errno));
}

void run_record_destroy(run_record *r)
{
    if (!r)
        return;
    if (r->events && fclose(r->events) != 0 && r->writes)
        warn_events(r);
    unlock(r); /* which removes the lock */
    if (r->made && !r->writes)
        (void)rmdir(r->directory); /* succeeds where nothing is in it */
    arena_destroy(r->memory);
}

bool run_record_is_lost(const run_record *r)
{
    struct stat mine, there;
    return r->writes && r->folder >= 0 && fstat(r->folder, &mine) == 0 &&
           (stat(r->directory, &there) != 0 || there.st_dev != mine.st_dev ||
            there.st_ino != mine.st_ino);
}

const char *run_record_directory(const run_record *r)
{
    return r->writes ? r->directory : NULL;
}

const char *run_record_path(run_record *r, const char *name)
{
    const char *path;
    /* "": memory ran out; opening it fails with a message. */
    return arena_print(r->memory, &path, "%s/%s", r->directory, name) == STATUS_OK ? path : "";
}

const char *run_record_trace(const run_record *r)
{
    return r->trace;
}

static enum status copy_from(FILE *to, void *path)
{
    char bytes[16384];
    FILE *from = fopen(path, "r");
    if (!from)
        return status_fail(STATUS_FAILED, "%s: cannot open: %s", (char *)path, strerror(errno));
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, from)) > 0;)
        (void)fwrite(bytes, 1, n, to);
    bool well = !ferror(from);
    (void)fclose(from);
    return well ? STATUS_OK : status_fail(STATUS_FAILED, "%s: cannot read", (char *)path);
}

/* No link: the next run with the same --trace writes into that very file. */
void run_record_copy_trace(run_record *r, const char *path)
{
    struct stat about;
    if (!r->writes || lstat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return; /* bytes in a pipe are gone */
    if (whole_file_write(run_record_path(r, REPORT_TRACE), copy_from, (void *)(uintptr_t)path) !=
        STATUS_OK)
        warn_incomplete();
}

/* ---- the files ---- */

static enum status put_json(FILE *f, void *value)
{
    /* The stream keeps the error. */
    (void)json_dumpf(value, f, JSON_INDENT(1) | JSON_REAL_PRECISION(REAL_DIGITS));
    return STATUS_OK;
}

void run_record_put(run_record *r, const char *name, json_t *value)
{
    const char *path = run_record_path(r, name);
    enum status st;
    if (value)
        st = whole_file_write(path, put_json, value);
    else
        st = status_fail(STATUS_FAILED, "%s: cannot write: a path in it is not UTF-8", path);
    if (st != STATUS_OK)
        warn_incomplete();
    json_decref(value);
}

static json_t *rule_json(const struct run_record_about *a)
{
    const struct trainer_options *o = a->options;
    char schedule[64], groups[80];
    return json_pack(
        "{s:s, s:f, s:f, s:f, s:s, s:b, s:s, s:I}", "name", a->optimizer, "learning_rate",
        o->rule.learning_rate, "momentum", o->rule.momentum, "weight_decay", o->rule.weight_decay,
        "groups", graph_groups_text(o->graph, groups, sizeof groups), "nesterov", o->rule.nesterov,
        "schedule", schedule_text(schedule, sizeof schedule, &o->schedule), "warmup_steps",
        (json_int_t)o->schedule.warmup_steps);
}

static json_t *config_json(const struct run_record_about *a)
{
    const struct trainer_options *o = a->options;
    const struct trainer_info *i = a->info;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:s, s:i, s:s, s:i, "
                     "s:s, s:f, s:o, "
                     "s:b, s:I, s:s?, s:s?, s:I, s:b, s:I, s:I, s:I, s:o}",
                     "model", i->model, "data", o->data, "data_limit", (json_int_t)o->data_limit,
                     "batch", (json_int_t)i->batch, "epochs", (json_int_t)o->epochs, "max_steps",
                     (json_int_t)o->max_steps, "steps_total", (json_int_t)i->steps_total,
                     "steps_per_epoch", (json_int_t)i->steps_per_epoch, "seed", (json_int_t)o->seed,
                     "augment", o->augment, "backend", i->backend, "precision", a->precision,
                     "threads", i->threads, "plan", i->plan, "workers", i->workers, "transport",
                     o->process ? "mpi" : "threads", "timeout_s", o->timeout_s, "optimizer",
                     rule_json(a), "evaluate", o->evaluate, "eval_batch", (json_int_t)i->eval_batch,
                     "weights", o->weights, "checkpoint", o->checkpoint, "checkpoint_every",
                     (json_int_t)o->checkpoint_every_steps, "resumed", i->resumed, "first_step",
                     (json_int_t)i->first_step, "n_train", (json_int_t)i->n_train, "n_test",
                     (json_int_t)i->n_test, "dropout",
                     o->drop_probability >= 0 ? json_real(o->drop_probability) : json_null());
}

static json_t *versions_json(const struct trainer_info *info)
{
    struct utsname host = {0};
    char date[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    (void)uname(&host);
    if (gmtime_r(&now, &parts))
        (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "cleave", CLEAVE_VERSION, "compiler",
                     __VERSION__, "backend", info->backend, "device", info->device, "system",
                     host.release, "host", host.nodename, "began", date);
}

/* ---- a run that goes on ---- */

/* Whole, and of a step that is in the checkpoint. */
static bool is_kept(const char *line, int64_t first_step)
{
    if (!strchr(line, '\n'))
        return false;
    json_t *value = json_loads(line, 0, NULL);
    const json_t *step = json_object_get(value, "step");
    if (!step)
        step = json_object_get(value, "steps"); /* the end */
    bool kept = value && json_integer_value(step) <= first_step;
    json_decref(value);
    return kept;
}

struct kept_events {
    FILE *from;
    const char *path;
    int64_t first_step;
};

static enum status copy_events(FILE *to, void *user)
{
    const struct kept_events *kept = user;
    struct text_line line = {.file = kept->path};
    enum status st;
    while ((st = text_next_line(kept->from, &line)) == STATUS_OK && line.length > 0)
        if (is_kept(line.text, kept->first_step))
            (void)fputs(line.text, to);
    free(line.text);
    return st;
}

/* A run that was killed went on after its last checkpoint, and may have left half a line: these
 * steps are run again. */
static enum status trim_events(const char *path, int64_t first_step)
{
    struct kept_events kept = {fopen(path, "r"), path, first_step};
    if (!kept.from)
        return STATUS_OK; /* nothing was recorded before */
    enum status st = whole_file_write(path, copy_events, &kept);
    (void)fclose(kept.from);
    return st;
}

/* Candidates, prediction and trace of the run so far need not hold for the run as it goes on, and
 * it may leave no such file: another plan, processes instead of threads. */
static void drop_expected(run_record *r)
{
    static const char *const names[] = {REPORT_SEARCH, REPORT_PREDICTION, REPORT_PREDICTED_TRACE,
                                        REPORT_TRACE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlink(run_record_path(r, names[i]));
}

static enum status begin(run_record *r, const struct run_record_about *a)
{
    if (!r->directory)
        TRY(number_directory(r, a->info->model));
    const char *path = run_record_path(r, REPORT_EVENTS);
    if (a->info->resumed)
        TRY(trim_events(path, a->info->first_step));
    r->events = fopen(path, a->info->resumed ? "a" : "w");
    if (!r->events)
        return status_fail(STATUS_FAILED, "%s: cannot write: %s", path, strerror(errno));
    /* A run that is killed leaves its steps up to then. */
    (void)setvbuf(r->events, NULL, _IOLBF, BUFSIZ);
    r->writes = true;
    if (r->options.again)
        drop_expected(r);
    (void)snprintf(r->trace, sizeof r->trace, "%s/%s", r->directory, REPORT_TRACE);
    run_record_put(r, REPORT_CONFIG, config_json(a));
    run_record_put(r, REPORT_VERSIONS, versions_json(a->info));
    return STATUS_OK;
}

void run_record_begin(run_record *r, const struct run_record_about *about)
{
    /* A trace that was asked for must go somewhere. */
    (void)snprintf(r->trace, sizeof r->trace, "/dev/null");
    if (!r->options.root || begin(r, about) == STATUS_OK)
        return;
    log_warn("the record of this run is incomplete: %s", status_message());
    status_clear();
}

void run_record_event(run_record *r, const json_t *value)
{
    if (!r->writes)
        return;
    if (json_dumpf(value, r->events, JSON_COMPACT | JSON_REAL_PRECISION(REAL_DIGITS)) == 0 &&
        fputc('\n', r->events) != EOF)
        return;
    warn_events(r);
    r->writes = false;
}
