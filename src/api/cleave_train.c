/* Training, with callbacks. */
#include "api/handles.h"
#include "base/text.h"
#include "runtime/trainer.h"

#include <stdlib.h>
#include <string.h>

struct cleave_trainer {
    const cleave_plan *plan;
    struct cleave_train_options options; /* its texts are in memory */
    arena *memory;
    trainer *trainer;
    bool runs;   /* a callback is not to call back */
    bool broken; /* a failure other than a stop */
    struct cleave_trainer_info info;
};

static const char *const optimizers[UPDATE_KIND_COUNT] = {
    [UPDATE_SGD] = "sgd",
    [UPDATE_ADAMW] = "adamw",
};

/* ---- options ---- */

enum status api_find_optimizer(const char *name, enum update_kind *out)
{
    for (int i = 0; i < UPDATE_KIND_COUNT; i++)
        if (!name || strcmp(optimizers[i], name) == 0) {
            *out = (enum update_kind)i;
            return STATUS_OK;
        }
    return status_fail(STATUS_USAGE, "optimizer '%.80s' is none of: sgd, adamw", name);
}

static enum status set_rule(const struct cleave_train_options *o, const char *model,
                            struct update_rule *rule)
{
    enum update_kind kind = UPDATE_SGD;
    TRY(api_find_optimizer(o->optimizer, &kind));
    rule->kind = kind;
    TRY(trainer_set_usual(model, rule));
    rule->learning_rate = o->learning_rate == 0 ? rule->learning_rate : o->learning_rate;
    rule->weight_decay = o->weight_decay < 0 ? rule->weight_decay : o->weight_decay;
    rule->momentum = o->momentum;
    rule->nesterov = o->nesterov && kind == UPDATE_SGD;
    return STATUS_OK;
}

static enum status fill_options(const cleave_trainer *t, struct trainer_options *to)
{
    const struct cleave_train_options *o = &t->options;
    const cleave_model *model = t->plan->model;
    *to = trainer_default_options();
    to->graph = model->graph;
    to->data = model->info.data;
    to->data_limit = o->n_samples;
    to->batch = model->info.batch;
    to->epochs = o->epochs || o->max_steps ? o->epochs : TRAINER_USUAL_EPOCHS;
    to->max_steps = o->max_steps;
    to->seed = o->seed;
    to->augment = o->augment;
    to->backend = o->backend;
    to->threads = o->threads;
    to->resolved_plan = t->plan->plan;
    to->timeout_s = o->timeout_s;
    to->evaluate = o->evaluate;
    to->eval_batch = o->eval_batch;
    to->weights = o->weights;
    to->checkpoint = o->checkpoint;
    to->checkpoint_every_steps = o->checkpoint_every_steps;
    to->resume = o->resume;
    to->overwrite = o->overwrite;
    to->schedule_epochs = o->schedule_epochs;
    TRY(set_rule(o, model->info.network, &to->rule));
    TRY(schedule_parse(o->schedule ? o->schedule : TRAINER_USUAL_SCHEDULE, &to->schedule));
    to->schedule.warmup_steps = o->warmup_steps;
    return STATUS_OK;
}

/* The caller's texts need not outlive the call. */
static enum status keep_texts(cleave_trainer *t)
{
    struct cleave_train_options *o = &t->options;
    const char **texts[] = {&o->optimizer, &o->schedule, &o->backend, &o->weights, &o->checkpoint};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i])
            TRY(arena_copy_text(t->memory, *texts[i], texts[i]));
    return STATUS_OK;
}

/* ---- creating ---- */

static void describe(cleave_trainer *t)
{
    const struct trainer_info *i = trainer_get_info(t->trainer);
    t->info = (struct cleave_trainer_info){.workers = i->workers,
                                           .threads = i->threads,
                                           .backend = i->backend,
                                           .memory_bytes = i->memory_bytes,
                                           .bytes_moved = i->bytes_moved,
                                           .n_train = i->n_train,
                                           .n_test = i->n_test,
                                           .steps_per_epoch = i->steps_per_epoch,
                                           .steps_total = i->steps_total,
                                           .resumed = i->resumed,
                                           .first_step = i->first_step,
                                           .steps = i->first_step};
}

static enum status fill(cleave_trainer *t, const struct cleave_train_options *options)
{
    struct trainer_options how;
    t->options = cleave_train_defaults();
    TRY(api_take_options(options, sizeof t->options, "cleave_train_defaults", &t->options));
    TRY(arena_create(&t->memory));
    TRY(keep_texts(t));
    TRY(fill_options(t, &how));
    TRY(trainer_create(&how, &t->trainer));
    describe(t);
    return STATUS_OK;
}

enum cleave_status cleave_trainer_create(const cleave_plan *plan,
                                         const struct cleave_train_options *options,
                                         cleave_trainer **out)
{
    cleave_trainer *t;
    API_BEGIN();
    API_NEEDS_OUT(out);
    API_NEEDS(plan);
    enum status st = api_alloc(sizeof *t, &t);
    if (st != STATUS_OK)
        return api_end(st);
    t->plan = api_hold_plan(plan);
    st = fill(t, options);
    if (st == STATUS_OK)
        *out = t;
    else
        cleave_trainer_destroy(t);
    return api_end(st);
}

void cleave_trainer_destroy(cleave_trainer *training)
{
    if (!training || training->runs)
        return;
    trainer_destroy(training->trainer);
    arena_destroy(training->memory);
    cleave_plan_destroy((cleave_plan *)training->plan);
    free(training);
}

/* ---- running ---- */

static double seconds(int64_t t_ns)
{
    return (double)t_ns * 1e-9;
}

static enum status on_step(const struct trainer_step *s, void *user)
{
    cleave_trainer *t = user;
    const struct cleave_step step = {.step = s->step,
                                     .steps_total = s->steps_total,
                                     .epoch = s->epoch,
                                     .n_samples = s->n_samples,
                                     .loss = s->loss,
                                     .learning_rate = s->learning_rate,
                                     .seconds = seconds(s->step_ns),
                                     .compute_s = seconds(s->compute_ns),
                                     .communicate_s = seconds(s->communicate_ns),
                                     .wait_s = seconds(s->wait_ns),
                                     .images_per_s = s->images_per_s,
                                     .left_s = s->eta_s};
    t->info.steps = s->step;
    t->info.loss = s->loss;
    t->info.images_per_s = s->images_per_s;
    if (t->options.on_step && t->options.on_step(t->options.user, &step) != 0)
        trainer_stop(t->trainer);
    status_clear(); /* failures inside the callback are the caller's */
    return STATUS_OK;
}

static void take_test(cleave_trainer *t, bool evaluated, double loss, double accuracy)
{
    t->info.evaluated = t->info.evaluated || evaluated;
    if (!evaluated)
        return;
    t->info.test_loss = loss;
    t->info.test_accuracy = accuracy;
}

static enum status on_epoch(const struct trainer_epoch *e, void *user)
{
    cleave_trainer *t = user;
    const struct cleave_epoch epoch = {.epoch = e->epoch,
                                       .step = e->step,
                                       .train_loss = e->train_loss,
                                       .evaluated = e->evaluated,
                                       .test_loss = e->test_loss,
                                       .test_accuracy = e->test_accuracy,
                                       .seconds = e->seconds};
    take_test(t, e->evaluated, e->test_loss, e->test_accuracy);
    if (t->options.on_epoch && t->options.on_epoch(t->options.user, &epoch) != 0)
        trainer_stop(t->trainer);
    status_clear();
    return STATUS_OK;
}

static enum status on_done(const struct trainer_done *d, void *user)
{
    cleave_trainer *t = user;
    t->info.median_step_s = d->median_step_s;
    t->info.images_per_s = d->images_per_s;
    take_test(t, d->evaluated, d->test_loss, d->test_accuracy);
    return STATUS_OK;
}

/* Whether the trainer can be asked for something now. */
static enum status check_ready(const cleave_trainer *t, const char *function)
{
    if (t->runs)
        return status_fail(STATUS_USAGE, "%s: the trainer runs: not from its callbacks", function);
    if (t->broken)
        return status_fail(STATUS_USAGE, "%s: the trainer has failed: destroy it", function);
    return STATUS_OK;
}

/* Ends a call: a failure breaks the trainer, a stop does not. */
static enum cleave_status leave(cleave_trainer *t, enum status st)
{
    t->runs = false;
    t->broken = st != STATUS_OK && st != STATUS_STOPPED;
    return api_end(st);
}

enum cleave_status cleave_trainer_run(cleave_trainer *training)
{
    static const struct trainer_callbacks calls = {
        .on_step = on_step, .on_epoch = on_epoch, .on_done = on_done};
    API_BEGIN();
    API_NEEDS(training);
    enum status st = check_ready(training, __func__);
    if (st != STATUS_OK)
        return api_end(st);
    training->runs = true;
    training->info.median_step_s = 0;
    return leave(training, trainer_run(training->trainer, &calls, training));
}

void cleave_trainer_stop(cleave_trainer *training)
{
    if (training)
        trainer_stop(training->trainer);
}

enum cleave_status cleave_trainer_evaluate(cleave_trainer *training, double *loss, double *accuracy)
{
    double found_loss, found_accuracy;
    API_BEGIN();
    API_NEEDS(training);
    enum status st = check_ready(training, __func__);
    if (st == STATUS_OK && training->info.n_test == 0)
        st = status_fail(STATUS_USAGE, "%s: there is no test split, or 'evaluate' was false",
                         training->plan->model->info.data);
    if (st != STATUS_OK)
        return api_end(st);
    st = trainer_evaluate(training->trainer, &found_loss, &found_accuracy);
    if (st == STATUS_OK) {
        take_test(training, true, found_loss, found_accuracy);
        if (loss)
            *loss = found_loss;
        if (accuracy)
            *accuracy = found_accuracy;
    }
    return leave(training, st);
}

/* ---- saving ---- */

enum cleave_status cleave_trainer_save(cleave_trainer *training)
{
    API_BEGIN();
    API_NEEDS(training);
    enum status st = check_ready(training, __func__);
    if (st == STATUS_OK && !training->options.checkpoint)
        st = status_fail(STATUS_USAGE, "nothing can be saved: options.checkpoint was NULL");
    return api_end(st == STATUS_OK ? trainer_save(training->trainer) : st);
}

enum cleave_status cleave_trainer_save_weights(cleave_trainer *training, const char *path)
{
    API_BEGIN();
    API_NEEDS(training);
    API_NEEDS(path);
    enum status st = check_ready(training, __func__);
    return api_end(st == STATUS_OK ? trainer_save_weights(training->trainer, path) : st);
}

const struct cleave_trainer_info *cleave_trainer_get_info(const cleave_trainer *training)
{
    return training ? &training->info : NULL;
}
