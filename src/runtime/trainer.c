#include "runtime/trainer.h"

#include "base/log.h"
#include "base/timer.h"
#include "model/network.h"
#include "runtime/initialise.h"
#include "runtime/trainer_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct trainer_options trainer_default_options(void)
{
    return (struct trainer_options){
        .batch = 64,
        .epochs = 1,
        .seed = 1,
        .drop_probability = -1,
        .rule = {.kind = UPDATE_SGD,
                 .learning_rate = 0.01,
                 .momentum = 0.9,
                 .weight_decay = 5e-4,
                 .beta1 = 0.9,
                 .beta2 = 0.999,
                 .epsilon = 1e-8},
        .evaluate = true,
        .checkpoint_each_epoch = true,
    };
}

/* ---- checks ---------------------------------------------------------------------------------- */

static enum status check_least(const char *what, int64_t value, int64_t least)
{
    if (value < least)
        return status_fail(STATUS_USAGE, "%s is %lld, it must be at least %lld", what,
                           (long long)value, (long long)least);
    return STATUS_OK;
}

static enum status check_real(const char *what, double value, double least, double below)
{
    if (!(value >= least && value < below))
        return status_fail(STATUS_USAGE, "%s is %g, it must be at least %g and below %g", what,
                           value, least, below);
    return STATUS_OK;
}

static enum status check_rule(const struct update_rule *r)
{
    TRY(check_real("learning rate", r->learning_rate, 0, HUGE_VAL));
    TRY(check_real("weight decay", r->weight_decay, 0, HUGE_VAL));
    if (r->kind == UPDATE_ADAMW) {
        TRY(check_real("beta1", r->beta1, 0, 1));
        TRY(check_real("beta2", r->beta2, 0, 1));
        return check_real("epsilon", r->epsilon, 0, HUGE_VAL);
    }
    TRY(check_real("momentum", r->momentum, 0, 1));
    if (r->nesterov && r->momentum == 0)
        return status_fail(STATUS_USAGE, "Nesterov's method needs a momentum above 0");
    return STATUS_OK;
}

static enum status check_options(const struct trainer_options *o)
{
    if (!o->model || !o->data)
        return status_fail(STATUS_USAGE, "a model and a dataset must be named");
    TRY(check_least("batch", o->batch, 1));
    TRY(check_least("evaluation batch", o->eval_batch, 0));
    TRY(check_least("epochs", o->epochs, 0));
    TRY(check_least("steps", o->max_steps, 0));
    TRY(check_least("data limit", o->data_limit, 0));
    TRY(check_least("threads", o->threads, 0));
    TRY(check_least("loader threads", o->loader_threads, 0));
    TRY(check_least("steps between checkpoints", o->checkpoint_every_steps, 0));
    TRY(check_real("seconds between checkpoints", o->checkpoint_every_s, 0, HUGE_VAL));
    TRY(check_least("warm-up steps", o->schedule.warmup_steps, 0));
    if (o->drop_probability >= 0)
        TRY(check_real("drop probability", o->drop_probability, 0, 1));
    if (o->epochs == 0 && o->max_steps == 0)
        return status_fail(STATUS_USAGE, "without a number of epochs or steps there is no end");
    if (o->resume && !o->checkpoint)
        return status_fail(STATUS_USAGE, "to resume, the checkpoint must be named");
    return check_rule(&o->rule);
}

static enum status set_checkpoint(trainer *t)
{
    const char *name = t->options.checkpoint;
    if (!name)
        return STATUS_OK;
    size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".json") == 0)
        length -= 5;
    if (length == 0 || length >= sizeof t->checkpoint)
        return status_fail(STATUS_USAGE, "checkpoint '%.200s' is not a usable name of a file",
                           name);
    memcpy(t->checkpoint, name, length);
    t->checkpoint[length] = '\0';
    return checkpoint_check_place(t->checkpoint);
}

/* ---- data ------------------------------------------------------------------------------------ */

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void count_steps(trainer *t)
{
    const struct trainer_options *o = &t->options;
    struct trainer_info *i = &t->info;
    i->steps_per_epoch = (i->n_train + i->batch - 1) / i->batch;
    int64_t all, most = o->max_steps ? o->max_steps : INT64_MAX;
    if (__builtin_mul_overflow(o->epochs, i->steps_per_epoch, &all))
        all = INT64_MAX;
    i->steps_total = o->epochs ? least_of(all, most) : o->max_steps;
    t->schedule_steps = o->epochs ? all : o->max_steps;
}

static enum status open_train_data(trainer *t)
{
    const struct trainer_options *o = &t->options;
    struct dataset_options data = {.seed = o->seed, .limit = o->data_limit};
    TRY(dataset_open(o->data, DATASET_TRAIN, &data, &t->train_set));
    t->info.data = *dataset_get_info(t->train_set);
    t->info.n_train = t->info.data.n_samples;
    if (t->info.n_train < 1)
        return status_fail(STATUS_FAILED, "%s has no training samples", o->data);
    t->info.batch = least_of(o->batch, t->info.n_train);
    if (t->info.batch < o->batch)
        log_warn("batch %lld: there are only %lld samples, each step takes all of them",
                 (long long)o->batch, (long long)t->info.batch);
    count_steps(t);
    struct loader_options l = {.batch = t->info.batch,
                               .seed = o->seed,
                               .shuffle = true,
                               .augment = o->augment,
                               .threads = o->loader_threads};
    return loader_create(t->train_set, &l, &t->train_loader);
}

static enum status open_test_data(trainer *t)
{
    const struct trainer_options *o = &t->options;
    if (!o->evaluate || t->info.data.n_test < 1)
        return STATUS_OK;
    struct dataset_options data = {.seed = o->seed};
    TRY(dataset_open(o->data, DATASET_TEST, &data, &t->test_set));
    const struct dataset_info *info = dataset_get_info(t->test_set);
    const struct dataset_info *train = &t->info.data;
    if (info->channels != train->channels || info->height != train->height ||
        info->width != train->width || info->classes != train->classes)
        return status_fail(STATUS_FAILED,
                           "%s: test images are %dx%dx%d of %d classes, training images %dx%dx%d "
                           "of %d",
                           o->data, info->channels, info->height, info->width, info->classes,
                           train->channels, train->height, train->width, train->classes);
    t->info.n_test = info->n_samples;
    t->info.eval_batch = least_of(o->eval_batch ? o->eval_batch : o->batch, info->n_samples);
    struct loader_options l = {.batch = t->info.eval_batch, .threads = o->loader_threads};
    return loader_create(t->test_set, &l, &t->test_loader);
}

/* ---- programs -------------------------------------------------------------------------------- */

static enum status open_device(trainer *t)
{
    const struct trainer_options *o = &t->options;
    t->backend = backend_list()[0];
    if (o->backend)
        TRY(backend_find(o->backend, &t->backend));
    struct device_options wanted = {.precision = o->precision, .threads = o->threads};
    TRY(t->backend->device_open(&wanted, &t->device));
    t->info.backend = t->backend->name;
    t->info.device = t->backend->device_describe(t->device);
    t->info.threads = t->backend->device_threads(t->device);
    return STATUS_OK;
}

static enum status build_program(trainer *t, enum trainer_program which, int64_t batch)
{
    const struct dataset_info *d = &t->info.data;
    struct graph_variant variant = {.batch = batch,
                                    .channels = d->channels,
                                    .height = d->height,
                                    .width = d->width,
                                    .classes = d->classes,
                                    .small_form = d->form == DATASET_FORM_SMALL,
                                    .drop_probability = t->options.drop_probability};
    struct program_options options = {.backend = t->backend,
                                      .device = t->device,
                                      .training =
                                          which == PROGRAM_TRAIN || which == PROGRAM_TRAIN_SHORT,
                                      .n_states = update_rule_states(&t->options.rule),
                                      .shares_params_of = t->programs[PROGRAM_TRAIN]};
    TRY(network_build(t->options.model, &variant, &t->graphs[which]));
    return program_create(t->graphs[which], &options, &t->programs[which]);
}

static enum status build_programs(trainer *t)
{
    const struct trainer_info *i = &t->info;
    const int64_t batches[TRAINER_PROGRAM_COUNT] = {
        [PROGRAM_TRAIN] = i->batch,
        [PROGRAM_TRAIN_SHORT] = i->n_train % i->batch,
        [PROGRAM_EVAL] = i->n_test ? i->eval_batch : 0,
        [PROGRAM_EVAL_SHORT] = i->n_test ? i->n_test % i->eval_batch : 0,
    };
    const struct program *all[TRAINER_PROGRAM_COUNT];
    int n = 0;
    for (int p = 0; p < TRAINER_PROGRAM_COUNT; p++)
        if (batches[p]) {
            TRY(build_program(t, (enum trainer_program)p, batches[p]));
            t->executor_program[p] = n;
            all[n++] = t->programs[p];
        }
    TRY(executor_create(all, n, &t->executor));
    t->info.memory_bytes = executor_memory_bytes(t->executor);
    t->info.n_parameters = graph_count_parameters(t->graphs[PROGRAM_TRAIN]);
    return STATUS_OK;
}

/* ---- the first state ------------------------------------------------------------------------- */

static enum status describe_run(trainer *t)
{
    const struct trainer_options *o = &t->options;
    const struct trainer_info *i = &t->info;
    struct checkpoint_state *s = &t->state;
    *s = (struct checkpoint_state){.channels = i->data.channels,
                                   .height = i->data.height,
                                   .width = i->data.width,
                                   .classes = i->data.classes,
                                   .batch = i->batch,
                                   .n_train = i->n_train,
                                   .seed = o->seed,
                                   .precision = o->precision,
                                   .augment = o->augment,
                                   .drop_probability =
                                       o->drop_probability < 0 ? -1 : o->drop_probability,
                                   .rule = o->rule,
                                   .schedule = o->schedule};
    if (strlen(o->model) >= sizeof s->model || strlen(o->data) >= sizeof s->data)
        return status_fail(STATUS_USAGE, "the name of the model or the dataset is too long");
    memcpy(s->model, o->model, strlen(o->model));
    memcpy(s->data, o->data, strlen(o->data));
    return STATUS_OK;
}

static enum status take_checkpoint(trainer *t, checkpoint *c)
{
    TRY(checkpoint_match(c, &t->state));
    const struct checkpoint_state *saved = checkpoint_get_state(c);
    if (saved->position > t->info.steps_per_epoch)
        return status_fail(STATUS_FAILED, "%s.json: batch %lld of an epoch of %lld", t->checkpoint,
                           (long long)saved->position, (long long)t->info.steps_per_epoch);
    TRY(checkpoint_read(c, t->graphs[PROGRAM_TRAIN], t->executor));
    t->state.step = saved->step;
    t->state.epoch = saved->epoch;
    t->state.position = saved->position;
    t->state.loss_sum = saved->loss_sum;
    t->state.n_seen = saved->n_seen;
    t->saved_step = saved->step;
    t->saved_epoch = saved->epoch;
    t->info.first_step = saved->step;
    t->info.resumed = true;
    log_info("%s.json: continuing after step %lld", t->checkpoint, (long long)saved->step);
    return STATUS_OK;
}

static enum status resume(trainer *t)
{
    checkpoint *c = NULL;
    TRY(checkpoint_open(t->checkpoint, &c));
    enum status st = take_checkpoint(t, c);
    checkpoint_close(c);
    return st;
}

static enum status set_state(trainer *t)
{
    const struct graph *graph = t->graphs[PROGRAM_TRAIN];
    TRY(describe_run(t));
    bool there = *t->checkpoint && checkpoint_exists(t->checkpoint);
    if (t->options.resume && there)
        return resume(t);
    if (there)
        log_warn("%s.json: the checkpoint of an earlier run will be replaced", t->checkpoint);
    if (t->options.weights)
        return checkpoint_load_weights(t->options.weights, graph, t->executor);
    return initialise_parameters(graph, t->executor, t->options.seed);
}

/* ---- the trainer ----------------------------------------------------------------------------- */

static enum status build(trainer *t)
{
    const struct network *network;
    TRY(network_find(t->options.model, &network));
    t->info.model = network->name;
    TRY(check_options(&t->options));
    TRY(set_checkpoint(t));
    TRY(open_device(t));
    TRY(open_train_data(t));
    TRY(open_test_data(t));
    TRY(build_programs(t));
    TRY(set_state(t));
    return STATUS_OK;
}

enum status trainer_create(const struct trainer_options *options, trainer **out)
{
    trainer *t = calloc(1, sizeof *t);
    if (!t)
        return status_no_memory(sizeof *t);
    t->options = *options;
    t->evaluated_step = t->saved_step = t->saved_epoch = -1;
    t->saved_at_ns = timer_now_ns();
    enum status st = build(t);
    if (st != STATUS_OK) {
        trainer_destroy(t);
        return st;
    }
    *out = t;
    return STATUS_OK;
}

void trainer_destroy(trainer *t)
{
    if (!t)
        return;
    executor_destroy(t->executor);
    for (int p = TRAINER_PROGRAM_COUNT - 1; p >= 0; p--) {
        program_destroy(t->programs[p]);
        graph_destroy(t->graphs[p]);
    }
    if (t->device)
        t->backend->device_close(t->device);
    loader_destroy(t->train_loader);
    loader_destroy(t->test_loader);
    dataset_close(t->train_set);
    dataset_close(t->test_set);
    free(t);
}

const struct trainer_info *trainer_get_info(const trainer *t)
{
    return &t->info;
}

enum status trainer_save(trainer *t)
{
    if (!*t->checkpoint || (t->saved_step == t->state.step && t->saved_epoch == t->state.epoch))
        return STATUS_OK;
    TRY(checkpoint_save(t->checkpoint, &t->state, t->graphs[PROGRAM_TRAIN], t->executor));
    t->saved_step = t->state.step;
    t->saved_epoch = t->state.epoch;
    t->saved_at_ns = timer_now_ns();
    return STATUS_OK;
}

enum status trainer_save_weights(trainer *t, const char *path)
{
    return checkpoint_save_weights(path, t->graphs[PROGRAM_TRAIN], t->executor);
}
