/* command_train.c: `cleave train`: the trainer (runtime/trainer.h) with options, progress and
 * results. */
#include "backend/backend.h"
#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/timer.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/network_help.h"
#include "cli/options.h"
#include "cli/plan_auto.h"
#include "cli/run_description.h"
#include "cli/run_options.h"
#include "cli/strategy_options.h"
#include "cli/subject_options.h"
#include "report/report.h"
#include "report/tensorboard.h"
#include "runtime/crew.h"
#include "runtime/guard.h"
#include "runtime/plan_choice.h"
#include "runtime/run_record.h"
#include "runtime/stop.h"
#include "runtime/trainer.h"
#include "search/training.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { NOT_GIVEN = -1, PROGRESS_INTERVAL_NS = 100000000 };
enum { MOST_TRACED = 64, FEW_STEPS = 5 }; /* of a record that was not asked for: workers, steps */

struct train_options {
    const char *model, *schedule, *checkpoint, *weights, *plan, *trace, *run;
    const char *tensorboard, *no_decay, *rate_factors;
    int64_t epochs, steps, warmup, seed, checkpoint_every, schedule_epochs, skip_corrupt;
    double rate, weight_decay, timeout;
    struct forecast_options forecast; /* data, batches, backend, threads and the rest of the run */
    struct strategy_options split;
    bool nesterov, resume, overwrite, json, quiet;
    struct auto_plan planned; /* --plan auto */
};

/* ---- options ---- */

static enum status parse_with(const struct option *options, int argc, char **argv,
                              const char **model, bool *help)
{
    const struct positional positionals[] = {{"MODEL", model, model_or_plan_help()}, {0}};
    static char notes[2048];
    (void)snprintf(notes, sizeof notes, "%s\n%s", data_notes, plan_notes);
    const struct option_set set = {
        .command = "train",
        .about =
            "Trains a network, with a line of results for each epoch. SIGTERM and Ctrl-C stop\n"
            "it in good order, with exit code 6.",
        .positionals = positionals,
        .n_optional = 1,
        .options = options,
        .notes = notes,
        .examples =
            "  cleave train lenet5 --data fashion-mnist\n"
            "  cleave train lenet5 --data fashion-mnist --workers 2 --plan data\n"
            "  cleave train best.json\n"
            "  mpirun -n 4 cleave train alexnet --data synthetic:imagenet --plan owt\n"
            "  cleave train resnet18 --data cifar10:/data/cifar10 --epochs 30 --augment \\\n"
            "      --checkpoint runs/a --resume\n"
            "  cleave train vgg11 --data synthetic:imagenet --batch 8 --steps 10 --json\n",
    };
    return options_parse(&set, argc, argv, help);
}

/* How the weights learn. */
#define LEARNING_OPTIONS(o)                                                                        \
    OPTION_REAL("--lr", "RATE", &(o)->rate, 0, 1e6, NULL,                                          \
                "learning rate [0.05; of alexnet and vgg 0.01; with adamw 0.001]"),                \
        OPTION_FLAG("--nesterov", &(o)->nesterov, "Nesterov's form of the momentum"),              \
        OPTION_REAL("--weight-decay", "D", &(o)->weight_decay, 0, 1e6, NULL,                       \
                    "the pull of weights towards 0 [0.0005; with adamw 0.01]"),                    \
        OPTION_TEXT("--no-decay", "PATTERN,...", &(o)->no_decay, NULL,                             \
                    "weights without it, by name: '*.bias,*bn?.*' [none]"),                        \
        OPTION_TEXT("--lr-factor", "PATTERN=F,...", &(o)->rate_factors, NULL,                      \
                    "factors of the learning rate of some weights: 'features.*=0.1,fc.*=10' "      \
                    "[all have 1]"),                                                               \
        OPTION_TEXT("--schedule", "SCHEDULE", &(o)->schedule, TRAINER_USUAL_SCHEDULE,              \
                    "of the learning rate: constant, step:EPOCHS:FACTOR or cosine[:FLOOR]"),       \
        OPTION_INTEGER("--schedule-epochs", "N", &(o)->schedule_epochs, 1, 1000000, NULL,          \
                       "its length, where that is not the run's: for one that will be lengthened " \
                       "or was [as many as are trained]"),                                         \
        OPTION_INTEGER("--warmup", "STEPS", &(o)->warmup, 0, INT64_C(1) << 40, "0",                \
                       "steps in which the rate grows from 0")

static enum status parse(int argc, char **argv, struct train_options *o, bool *help)
{
    *o = (struct train_options){.epochs = NOT_GIVEN,
                                .steps = NOT_GIVEN,
                                .rate = NOT_GIVEN,
                                .weight_decay = NOT_GIVEN,
                                .forecast.run = forecast_usual_run};
    const struct option options[] = {
        OPTION_TEXT("--data", "SPEC", &o->forecast.data, NULL,
                    "the data to train on [what the plan's file says, else fashion-mnist for mlp "
                    "and lenet5; other networks need it]"),
        OPTION_INTEGER("--batch", "N", &o->forecast.batch, 1, GRAPH_LARGEST_BATCH, "128",
                       "images in a step"),
        OPTION_INTEGER("--epochs", "N", &o->epochs, 1, 1000000, NULL,
                       "passes over the data [5, or as many as --steps needs]"),
        OPTION_INTEGER("--steps", "N", &o->steps, 1, INT64_C(1) << 40, NULL,
                       "end after this many steps [no limit]"),
        RUN_OPTIONS(&o->forecast.run),
        RUN_LIMIT_OPTION(&o->forecast.run),
        LEARNING_OPTIONS(o),
        OPTION_INTEGER("--seed", "N", &o->seed, 0, INT64_MAX, "1",
                       "of weights, order, augmentation and dropout"),
        OPTION_FLAG("--no-eval", &o->forecast.no_eval, "skip the test after each epoch"),
        OPTION_INTEGER("--eval-batch", "N", &o->forecast.eval_batch, 1, GRAPH_LARGEST_BATCH, NULL,
                       "images in a step of the test [as --batch]"),
        OPTION_INTEGER("--skip-corrupt", "N", &o->skip_corrupt, 0, INT64_C(1) << 40, "0",
                       "replace up to N images that cannot be read, each by the next one that can, "
                       "with a line for each ('cleave data check' lists all)"),
        OPTION_TEXT("--weights", "FILE", &o->weights, NULL,
                    "start from the weights in this .safetensors file [random]"),
        OPTION_TEXT("--checkpoint", "PATH", &o->checkpoint, NULL,
                    "save the run as PATH.json and PATH-STEP.safetensors after each epoch, at the "
                    "end and when stopped [nothing is saved]"),
        OPTION_INTEGER("--checkpoint-every", "STEPS", &o->checkpoint_every, 1, INT64_C(1) << 40,
                       NULL, "save also after every so many steps [no]"),
        OPTION_FLAG("--resume", &o->resume, "go on from the checkpoint, if there is one"),
        OPTION_FLAG("--overwrite", &o->overwrite, "replace the checkpoint that is there"),
        OPTION_TEXT("--backend", "BACKEND", &o->forecast.backend, NULL,
                    "the backend: cpu (fast) or reference (plain C) [the best of this build]"),
        OPTION_INTEGER("--threads", "N", &o->forecast.threads, 1, BACKEND_MAX_THREADS, NULL,
                       "of each worker [all cores, shared out]"),
        OPTION_INTEGER("--workers", "N", &o->split.workers, 1, PLAN_MAX_WORKERS, NULL,
                       "threads of this process that share the work; under mpirun or srun the "
                       "workers are its processes [1, or what the plan's file says]"),
        OPTION_TEXT("--plan", "PLAN|auto", &o->plan, NULL,
                    "how they share it: a file, one of the names below, or auto: the fastest on "
                    "this host (see 'cleave plan') [serial, or data for more than one worker]"),
        STRATEGY_OPTIONS(&o->split),
        OPTION_REAL(
            "--timeout", "SECONDS", &o->timeout, 1e-3, 1e9, "60",
            "how long a worker waits for others that do not move, or computes one instruction"),
        OPTION_TEXT("--trace", "FILE", &o->trace, NULL,
                    "write when each instruction of the last steps ran; ui.perfetto.dev shows it "
                    "[nothing is written]"),
        OPTION_TEXT(
            "--run", "DIR|none", &o->run, NULL,
            "keep the record of the run there, with a checkpoint, for 'cleave report'; none: "
            "nowhere [runs/MODEL-NNN, without a checkpoint]"),
        OPTION_TEXT("--tensorboard", "DIR", &o->tensorboard, NULL,
                    "also write event files for TensorBoard there: loss, accuracy, learning rate "
                    "and images/s [nothing is written]"),
        OPTION_FLAG("--json", &o->json, "print JSON lines: events step, epoch and done"),
        OPTION_FLAG("--quiet", &o->quiet,
                    "print the summary alone; with --json leave out the steps"),
        OPTION_END,
    };
    return parse_with(options, argc, argv, &o->model, help);
}

static bool keeps_record(const struct train_options *o)
{
    return !o->run || strcmp(o->run, "none") != 0;
}

static bool names_run(const struct train_options *o)
{
    return o->run && keeps_record(o);
}

static enum status check_options(const struct train_options *o)
{
    bool saves = o->checkpoint || names_run(o);
    if (o->resume && o->overwrite)
        return status_fail(STATUS_USAGE, "--resume goes on from the checkpoint, --overwrite begins "
                                         "anew: give one of them");
    if (o->overwrite && !saves)
        return status_fail(STATUS_USAGE, "--overwrite needs --checkpoint PATH to replace");
    if (o->resume && !saves)
        return status_fail(STATUS_USAGE, "--resume needs --checkpoint PATH to go on from");
    if (o->checkpoint_every && !saves)
        return status_fail(STATUS_USAGE, "--checkpoint-every needs --checkpoint PATH to save to");
    if (o->nesterov && (o->forecast.run.optimizer != UPDATE_SGD || o->forecast.run.momentum == 0))
        return status_fail(STATUS_USAGE, "--nesterov needs --optimizer sgd and a --momentum");
    return STATUS_OK;
}

/* Of a worker that hangs. */
static void end_process(enum status st)
{
    command_report(st);
    guard_end_worker((int)st);
}

static enum status fill_trainer_options(struct train_options *o, struct trainer_options *t)
{
    *t = trainer_default_options();
    training_tell(&o->forecast.run, t);
    t->model = o->model;
    t->data = o->forecast.data;
    t->batch = o->forecast.batch;
    t->max_steps = o->steps == NOT_GIVEN ? 0 : o->steps;
    t->epochs = o->epochs != NOT_GIVEN  ? o->epochs
                : o->steps != NOT_GIVEN ? 0
                                        : TRAINER_USUAL_EPOCHS;
    t->seed = (uint64_t)o->seed;
    t->backend = o->forecast.backend;
    t->threads = (int)o->forecast.threads;
    t->workers = (int)o->split.workers;
    t->plan = o->plan;
    TRY(strategy_request(&o->split, NULL, &t->request));
    t->timeout_s = o->timeout;
    t->on_stuck = end_process;
    t->trace = o->trace;
    TRY(trainer_set_usual(t->model, &t->rule));
    t->rule.learning_rate = o->rate < 0 ? t->rule.learning_rate : o->rate;
    t->rule.weight_decay = o->weight_decay < 0 ? t->rule.weight_decay : o->weight_decay;
    t->rule.nesterov = o->nesterov;
    TRY(schedule_parse(o->schedule, &t->schedule));
    t->schedule.warmup_steps = o->warmup;
    t->evaluate = !o->forecast.no_eval;
    t->eval_batch = o->forecast.eval_batch;
    t->skip_corrupt = o->skip_corrupt;
    t->weights = o->weights;
    t->checkpoint = o->checkpoint;
    t->resume = o->resume;
    t->overwrite = o->overwrite;
    t->schedule_epochs = o->schedule_epochs;
    t->checkpoint_every_steps = o->checkpoint_every;
    return STATUS_OK;
}

/* ---- printing ---- */

struct train_view {
    const struct train_options *options;
    const struct trainer_info *info;
    run_record *record; /* NULL: none is kept */
    struct run_description described;
    tensorboard *events;      /* NULL: nothing is written */
    int64_t wait_ns, step_ns; /* of all steps so far; waiting for data */
    int64_t next_progress_ns;
};

static double seconds(int64_t t_ns)
{
    return (double)t_ns * 1e-9;
}

static void print_start(const struct train_options *o, const struct trainer_info *info)
{
    char memory[32], tested[64] = "";
    if (info->n_test > 0)
        (void)snprintf(tested, sizeof tested, ", %lld to test with", (long long)info->n_test);
    log_info("%s on %s: %lld parameters, %lld images in batches of %lld%s", info->model,
             info->data.name, (long long)info->n_parameters, (long long)info->n_train,
             (long long)info->batch, tested);
    int64_t frozen = graph_count_frozen(o->forecast.graph);
    if (frozen > 0)
        log_info("%lld of the parameters are frozen: they have no gradient, and stay as they are",
                 (long long)frozen);
    char groups[80];
    if (strcmp(graph_groups_text(o->forecast.graph, groups, sizeof groups), "none") != 0)
        log_info("groups of weights: %s", groups);
    log_info("backend %s (%s), %d thread%s, %s", info->backend, info->device, info->threads,
             info->threads == 1 ? "" : "s",
             text_bytes(memory, sizeof memory, (double)info->memory_bytes));
    if (info->workers > 1)
        log_info("plan %s: %d workers with %d thread%s each, %s moved in a step", info->plan,
                 info->workers, info->threads, info->threads == 1 ? "" : "s",
                 text_bytes(memory, sizeof memory, (double)info->bytes_moved));
    if (plan_is_stale(info->resolved_plan))
        log_info("plan %s is asynchronous: gradients are of older weights, so losses and accuracy "
                 "are not those of one worker",
                 info->plan);
    if (info->resumed)
        log_info("%s: going on after step %lld", o->checkpoint ? o->checkpoint : o->run,
                 (long long)info->first_step);
    else if (o->resume)
        log_info("there is no checkpoint yet: it starts at the beginning");
}

static int64_t count_epochs(const struct trainer_info *info)
{
    return (info->steps_total + info->steps_per_epoch - 1) / info->steps_per_epoch;
}

static void show_progress(struct train_view *v, const struct trainer_step *s)
{
    int64_t now_ns = timer_now_ns();
    if (now_ns < v->next_progress_ns)
        return;
    v->next_progress_ns = now_ns + PROGRESS_INTERVAL_NS;
    char left[32], waiting[64] = "";
    double wait_percent = v->step_ns ? 100.0 * (double)v->wait_ns / (double)v->step_ns : 0;
    if (wait_percent >= 1)
        (void)snprintf(waiting, sizeof waiting, "  waiting for data %.0f %%", wait_percent);
    log_progress("epoch %lld/%lld  step %lld/%lld  loss %.4f  %.0f images/s  %s left%s",
                 (long long)s->epoch, (long long)count_epochs(v->info), (long long)s->step,
                 (long long)s->steps_total, s->loss, s->images_per_s,
                 progress_time(left, sizeof left, s->eta_s), waiting);
}

/* Where nobody reads the results any more (`| head -1`) the training is still worth keeping: the
 * run stops as it does after a signal. */
static enum status printed(enum status st)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    if (st == STATUS_OK || poll(&out, 1, 0) != 1 || !(out.revents & (POLLERR | POLLHUP)))
        return st;
    status_clear();
    stop_request(SIGPIPE);
    return STATUS_OK;
}

/* Into the record, and on stdout if that is wanted. */
static enum status put_event(const struct train_view *v, bool print, json_t *value)
{
    if (v->record && value)
        run_record_event(v->record, value);
    if (print && stop_requested() != SIGPIPE)
        return printed(output_json(value));
    json_decref(value);
    return STATUS_OK;
}

/* A write error ends the events, not the run; the same holds for the record. */
static void warn_events(void)
{
    log_warn("the events of this run are incomplete: %s", status_message());
    status_clear();
}

static void put_scalars(struct train_view *v, int64_t step, const struct tensorboard_scalar *values,
                        int n)
{
    if (!v->events || tensorboard_write(v->events, step, values, n) == STATUS_OK)
        return;
    warn_events();
    if (tensorboard_close(v->events) != STATUS_OK)
        status_clear(); /* said already */
    v->events = NULL;
}

static enum status on_step(const struct trainer_step *s, void *user)
{
    struct train_view *v = user;
    const struct tensorboard_scalar scalars[] = {{"train/loss", s->loss},
                                                 {"train/learning_rate", s->learning_rate},
                                                 {"train/images_per_s", s->images_per_s}};
    put_scalars(v, s->step, scalars, 3);
    v->wait_ns += s->data_ns;
    v->step_ns += s->step_ns;
    if (!v->options->quiet)
        show_progress(v, s);
    return put_event(v, v->options->json && !v->options->quiet,
                     json_pack("{s:s, s:I, s:o, s:f, s:f, s:f, s:f}", "event", "step", "step",
                               (json_int_t)s->step, "loss", output_number(s->loss), "step_s",
                               seconds(s->step_ns), "compute_s", seconds(s->compute_ns),
                               "communicate_s", seconds(s->communicate_ns), "wait_s",
                               seconds(s->wait_ns)));
}

static json_t *number_if(bool known, double value)
{
    return known ? output_number(value) : json_null();
}

static enum status on_epoch(const struct trainer_epoch *e, void *user)
{
    struct train_view *v = user;
    const struct tensorboard_scalar scalars[] = {{"epoch/train_loss", e->train_loss},
                                                 {"epoch/test_loss", e->test_loss},
                                                 {"epoch/test_accuracy", e->test_accuracy}};
    put_scalars(v, e->step, scalars, e->evaluated ? 3 : 1);
    TRY(put_event(v, v->options->json,
                  json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:f}", "event", "epoch", "epoch",
                            (json_int_t)e->epoch, "step", (json_int_t)e->step, "train_loss",
                            output_number(e->train_loss), "test_loss",
                            number_if(e->evaluated, e->test_loss), "test_accuracy",
                            number_if(e->evaluated, e->test_accuracy), "seconds", e->seconds)));
    if (v->options->json)
        return STATUS_OK;
    if (v->options->quiet)
        return STATUS_OK;
    log_progress_end();
    printf("epoch %lld/%lld  train loss %.4f  ", (long long)e->epoch,
           (long long)count_epochs(v->info), e->train_loss);
    if (e->evaluated)
        printf("test loss %.4f  test accuracy %.2f %%  ", e->test_loss, 100 * e->test_accuracy);
    char time[32];
    printf("%s\n", text_seconds(time, sizeof time, e->seconds));
    if (fflush(stdout) != 0)
        return printed(status_fail(STATUS_FAILED, "cannot write the results to standard output: %s",
                                   strerror(errno)));
    return STATUS_OK;
}

static bool has_stages(const struct trainer_info *info)
{
    return info->resolved_plan->n_stages > 1;
}

static json_t *done_json(const struct train_view *v, const struct trainer_done *d)
{
    double predicted_s = v->options->planned.step_s, error_s = v->options->planned.error_s;
    if (predicted_s <= 0) {
        predicted_s = v->described.step_s;
        error_s = v->described.error_s;
    }
    return json_pack(
        "{s:s, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:f, s:o, s:f, s:I, s:i, s:s, "
        "s:I, s:I, s:I}",
        "event", "done", "steps", (json_int_t)d->steps, "median_step_s",
        number_if(d->steps_run > 0, d->median_step_s), "images_per_s",
        number_if(d->steps_run > 0, d->images_per_s), "overall_images_per_s",
        number_if(d->steps_run > 0, d->overall_images_per_s), "memory_bytes",
        (json_int_t)d->memory_bytes, "predicted_step_s", number_if(predicted_s > 0, predicted_s),
        "predicted_error_s", number_if(predicted_s > 0, error_s), "test_accuracy",
        number_if(d->evaluated, d->test_accuracy), "wait_share", d->wait_share, "bubble_share",
        number_if(has_stages(v->info), d->bubble_share), "seconds", d->seconds, "bytes_moved",
        (json_int_t)d->bytes_moved, "workers", v->info->workers, "plan", v->info->plan,
        "train_images", (json_int_t)v->info->n_train, "test_images", (json_int_t)v->info->n_test,
        "skipped_images", (json_int_t)d->n_skipped);
}

static void log_places(const struct train_view *v)
{
    const char *directory = v->record ? run_record_directory(v->record) : NULL;
    if (v->options->checkpoint)
        log_info("saved to %s", v->options->checkpoint);
    if (directory && !run_record_is_lost(v->record))
        log_info("recorded in %s; 'cleave report %s' shows it", directory, directory);
}

static enum status on_done(const struct trainer_done *d, void *user)
{
    const struct train_view *v = user;
    TRY(put_event(v, v->options->json, done_json(v, d)));
    if (v->options->json)
        return STATUS_OK;
    log_progress_end();
    char total[32], median[32], memory[32];
    printf("done: %lld step%s in %s", (long long)d->steps_run, d->steps_run == 1 ? "" : "s",
           text_seconds(total, sizeof total, d->seconds));
    if (d->steps_run > 0)
        printf(", %.0f images/s over all\n      median step %s, %.0f images/s\n",
               d->overall_images_per_s, text_seconds(median, sizeof median, d->median_step_s),
               d->images_per_s);
    if (d->steps_run > 0 && has_stages(v->info))
        printf("      pipeline bubble %.1f %% of the step\n", 100 * d->bubble_share);
    if (d->steps_run > 0)
        printf("      waiting for data %.1f %%", 100 * d->data_share);
    if (v->info->workers > 1)
        printf(", for other workers %.1f %%", 100 * (d->wait_share - d->data_share));
    printf(", memory %s\n", text_bytes(memory, sizeof memory, (double)d->memory_bytes));
    if (d->evaluated)
        printf("test accuracy %.2f %%\n", 100 * d->test_accuracy);
    if (d->n_skipped > 0)
        printf("%lld image%s could not be read and %s replaced\n", (long long)d->n_skipped,
               d->n_skipped == 1 ? "" : "s", d->n_skipped == 1 ? "was" : "were");
    if (d->steps_run > 0)
        auto_plan_compare(&v->options->planned, d->median_step_s);
    log_places(v);
    return STATUS_OK;
}

/* ---- the run ---- */

/* The events, and the place of the trace: where they cannot be written, nothing is trained. */
static enum status open_outputs(const struct train_options *o, struct train_view *v)
{
    bool made;
    if (!v->info->root)
        return STATUS_OK;
    if (o->tensorboard)
        TRY(folder_make(o->tensorboard, &made));
    if (o->trace)
        TRY(whole_file_check_place(o->trace));
    if (!o->tensorboard)
        return STATUS_OK;
    return tensorboard_open(o->tensorboard, o->resume ? v->info->first_step : -1, &v->events);
}

/* A failure of the run keeps its message. */
static void close_tensorboard(struct train_view *v, enum status st)
{
    if (tensorboard_close(v->events) != STATUS_OK && st == STATUS_OK)
        warn_events();
}

static void begin_record(struct train_view *v, const struct trainer_options *options)
{
    const struct train_options *o = v->options;
    const struct run_record_about about = {.options = options,
                                           .info = v->info,
                                           .optimizer =
                                               run_optimizer_names[o->forecast.run.optimizer],
                                           .precision = precision_names[o->forecast.run.precision]};
    v->described = (struct run_description){.forecast = &o->forecast,
                                            .search = o->planned.search,
                                            .predict = o->run || v->info->workers <= MOST_TRACED};
    run_record_begin(v->record, &about);
    run_describe(v->record, options, v->info, &v->described);
}

/* A record that was not asked for stays small: a few steps, and not of hundreds of processes. */
static void set_trace(const struct train_options *o, const run_record *kept,
                      struct trainer_options *options)
{
    if (!o->run && options->process && options->process->size > MOST_TRACED)
        return;
    options->trace = run_record_trace(kept);
    options->trace_steps = o->run ? 0 : FEW_STEPS;
    options->trace_aside = true;
}

static enum status create_record(const struct train_options *o, struct trainer_options *options,
                                 run_record **kept)
{
    bool root = !options->process || options->process->rank == 0;
    const struct run_record_options how = {.directory = o->run, .root = root, .again = o->resume};
    TRY(crew_agree(options->process, run_record_create(&how, kept)));
    if (!o->trace)
        set_trace(o, *kept, options);
    if (!o->checkpoint && o->run)
        options->checkpoint = run_record_path(*kept, "checkpoint");
    return STATUS_OK;
}

/* Keeps the record and the other outputs around the trainer. */
static enum status train(const struct train_options *o, struct trainer_options *options)
{
    const struct trainer_callbacks calls = {
        .on_step = on_step, .on_epoch = on_epoch, .on_done = on_done};
    struct train_view view = {.options = o};
    trainer *t = NULL;
    enum status st;
    if (keeps_record(o))
        TRY_GOTO(st, create_record(o, options, &view.record), out);
    TRY_GOTO(st, trainer_create(options, &t), out);
    view.info = trainer_get_info(t);
    /* The root alone opens them; if it cannot, all processes stop instead of waiting for it. */
    TRY_GOTO(st, crew_agree(options->process, open_outputs(o, &view)), out);
    if (view.info->root)
        print_start(o, view.info);
    if (view.info->root && view.record && report_check_build() != STATUS_OK) {
        log_warn("%s", status_message()); /* before the hours of training, and not behind them */
        status_clear();
    }
    if (view.record)
        begin_record(&view, options);
    TRY_GOTO(st, trainer_run(t, &calls, &view), out);
    if (view.record && o->trace)
        run_record_copy_trace(view.record, o->trace);
out:
    close_tensorboard(&view, st);
    if (view.record && run_record_is_lost(view.record))
        log_warn("the record of this run is lost: %s was removed or renamed while it ran",
                 run_record_directory(view.record));
    trainer_destroy(t);
    run_record_destroy(view.record);
    return st;
}

/* Under mpirun or srun the workers are the processes that it started. */
static enum status join_processes(double timeout_s, comm **out)
{
    int rank, size;
    *out = NULL;
    if (!comm_mpi_launched(&rank, &size) || size == 1)
        return STATUS_OK;
    if (rank > 0 && !options_debug())
        log_set_level(LOG_WARN);
    return comm_mpi_create(timeout_s, out);
}

/* The process that failed first has said why; those that ended because of it take its status
 * without a message, so that the job has one status whichever process ends first. The others are
 * told of a failure that only this process met: else they would wait for it until their time is up.
 */
static enum status leave_processes(comm *process, enum status st)
{
    bool alike = st == STATUS_OK || st == STATUS_STOPPED || crew_failed_together();
    if (st != STATUS_LOST || !process->told)
        command_report(st);
    else
        command_leave_report();
    if (!alike)
        process->table->abort(process, st, status_message());
    if (st == STATUS_LOST && process->cause != STATUS_OK)
        st = process->cause;
    process->table->destroy(process);
    return st;
}

/* Replaces --plan auto by the plan that `cleave plan` would recommend for this host. */
static enum status plan_first(struct train_options *o, struct trainer_options *options)
{
    struct chooser_options search = {.forecast = o->forecast,
                                     .workers = (int)o->split.workers,
                                     .micro_batches = o->split.micro_batches,
                                     .batch_norm = options->request.batch_norm,
                                     .quiet = o->quiet};
    if (!o->plan || strcasecmp(o->plan, "auto") != 0)
        return STATUS_OK;
    if (options->process)
        return status_fail(STATUS_USAGE,
                           "--plan auto is for threads of one process; for %d processes first run "
                           "'cleave plan %s --data %s --batch %lld --workers %d -o best.json', "
                           "then 'mpirun -n %d cleave train best.json'",
                           options->process->size, o->model, o->forecast.data,
                           (long long)o->forecast.batch, options->process->size,
                           options->process->size);
    struct plan_request asked = options->request;
    asked.micro_batches = 0; /* the search heeds these two */
    asked.batch_norm = PLAN_NORM_BATCH;
    TRY(plan_check_bare(&asked, "--plan auto"));
    TRY(auto_plan_find(search, &o->planned));
    options->resolved_plan = o->planned.plan;
    options->workers = 0; /* as the plan says */
    return STATUS_OK;
}

static enum status build_graph(struct train_options *o, struct graph **out)
{
    TRY(forecast_build_graph(&o->forecast, o->model, out)); /* frozen weights change its cost */
    if (o->no_decay)
        TRY(graph_skip_decay(*out, o->no_decay));
    return o->rate_factors ? graph_scale_rates(*out, o->rate_factors) : STATUS_OK;
}

/* Reads the plan's file, and refuses impossible requests. */
static enum status settle(struct train_options *o, struct subject_file *s,
                          struct trainer_options *options)
{
    TRY(check_options(o));
    TRY(subject_open(s, "train", &o->model, &o->plan));
    TRY(whole_file_check_input("--trace", o->trace, o->weights));
    TRY(whole_file_check_input("--trace", o->trace, o->plan)); /* which may have stood as MODEL */
    TRY(strategy_check_plan(o->plan, o->model, true));
    TRY(subject_take_run(s, &o->forecast));
    TRY(subject_settle_training_data(o->model, &o->forecast.data));
    subject_tell(s);
    return fill_trainer_options(o, options);
}

/* The processes join before they read any file: then one that fails alone can tell the others, and
 * a failure of all is one error. */
static enum status join_and_train(struct train_options *o, struct subject_file *s)
{
    struct trainer_options options = {0};
    struct graph *graph = NULL;
    comm *process;
    if (o->quiet)
        progress_hide();
    else if (!options_debug())
        log_set_level(LOG_INFO);
    (void)signal(SIGPIPE, SIG_IGN); /* see printed() */
    TRY(guard_start(o->timeout) ? stop_install_guarded() : stop_install());
    TRY(join_processes(o->timeout, &process));
    o->forecast.quiet = o->quiet;
    enum status st = crew_agree(process, settle(o, s, &options));
    options.process = process;
    if (st == STATUS_OK)
        st = crew_agree(process, build_graph(o, &graph));
    options.graph = graph;
    if (st == STATUS_OK)
        st = crew_agree(process, plan_first(o, &options));
    if (st == STATUS_OK)
        st = train(o, &options);
    auto_plan_free(&o->planned);
    graph_destroy(graph);
    return process ? leave_processes(process, st) : st;
}

enum status command_train(int argc, char **argv)
{
    struct train_options o;
    struct subject_file s = {0};
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    enum status st = join_and_train(&o, &s);
    subject_close(&s);
    return st;
}
