#include "runtime/trainer.h"

#include "backend/backend.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/timer.h"
#include "model/network.h"
#include "runtime/plan_choice.h"
#include "runtime/trace.h"
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
        .timeout_s = 60,
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

enum status trainer_set_usual(const char *model, struct update_rule *rule)
{
    const struct network *network;
    TRY(network_find(model, &network));
    rule->learning_rate = rule->kind == UPDATE_SGD ? network->sgd_rate : 0.001;
    rule->weight_decay = rule->kind == UPDATE_SGD ? 5e-4 : 0.01;
    return STATUS_OK;
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
    TRY(check_least("epochs of the schedule", o->schedule_epochs, 0));
    TRY(check_least("data limit", o->data_limit, 0));
    if (o->threads < 0 || o->threads > BACKEND_MAX_THREADS)
        return status_fail(STATUS_USAGE, "threads is %d, it must be 0 to %d", o->threads,
                           BACKEND_MAX_THREADS);
    TRY(check_least("workers", o->workers, 0));
    if (!(o->timeout_s > 0))
        return status_fail(STATUS_USAGE, "the time-out is %g s, it must be more than 0",
                           o->timeout_s);
    TRY(check_least("loader threads", o->loader_threads, 0));
    TRY(check_least("corrupt samples to skip", o->skip_corrupt, 0));
    TRY(check_least("steps between checkpoints", o->checkpoint_every_steps, 0));
    TRY(check_real("seconds between checkpoints", o->checkpoint_every_s, 0, HUGE_VAL));
    TRY(check_least("warm-up steps", o->schedule.warmup_steps, 0));
    if (o->drop_probability >= 0)
        TRY(check_real("drop probability", o->drop_probability, 0, 1));
    if (o->epochs == 0 && o->max_steps == 0)
        return status_fail(STATUS_USAGE, "without a number of epochs or steps there is no end");
    if (o->resume && !o->checkpoint)
        return status_fail(STATUS_USAGE, "to resume, the checkpoint must be named");
    if (o->resume && o->overwrite)
        return status_fail(STATUS_USAGE, "to resume goes on from the checkpoint, to overwrite "
                                         "begins anew: choose one");
    return check_rule(&o->rule);
}

/* Files are the root's. */
static enum status take_checkpoint_place(trainer *t)
{
    const struct trainer_options *o = &t->options;
    TRY(checkpoint_make_place(t->checkpoint));
    TRY(checkpoint_lock(t->checkpoint, &t->lock));
    if (!o->resume && !o->overwrite && checkpoint_exists(t->checkpoint))
        return checkpoint_refuse_overwrite(t->checkpoint);
    return STATUS_OK;
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
    return t->info.root ? take_checkpoint_place(t) : STATUS_OK;
}

/* ---- data ------------------------------------------------------------------------------------ */

static void count_steps(trainer *t)
{
    const struct trainer_options *o = &t->options;
    struct trainer_info *i = &t->info;
    i->steps_per_epoch = (i->n_train + i->batch - 1) / i->batch;
    int64_t all, most = o->max_steps ? o->max_steps : INT64_MAX;
    if (__builtin_mul_overflow(o->epochs, i->steps_per_epoch, &all))
        all = INT64_MAX;
    i->steps_total = o->epochs ? int64_min(all, most) : o->max_steps;
    i->schedule_steps = o->epochs ? all : o->max_steps;
    if (o->schedule_epochs &&
        __builtin_mul_overflow(o->schedule_epochs, i->steps_per_epoch, &i->schedule_steps))
        i->schedule_steps = INT64_MAX;
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
    t->info.batch = int64_min(o->batch, t->info.n_train);
    if (t->info.batch < o->batch && t->info.root)
        log_warn("batch %lld: there are only %lld samples, each step takes all of them",
                 (long long)o->batch, (long long)t->info.batch);
    count_steps(t);
    return STATUS_OK;
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
    t->info.eval_batch = int64_min(o->eval_batch ? o->eval_batch : o->batch, info->n_samples);
    return STATUS_OK;
}

/* ---- the plan and its programs --------------------------------------------------------------- */

/* The network for the batch of a training step. */
static enum status build_by_name(trainer *t)
{
    const struct dataset_info *d = &t->info.data;
    struct graph_variant variant = {.batch = t->info.batch,
                                    .channels = d->channels,
                                    .height = d->height,
                                    .width = d->width,
                                    .classes = d->classes,
                                    .small_form = d->form == DATASET_FORM_SMALL,
                                    .drop_probability = t->options.drop_probability};
    return network_build(t->options.model, &variant, &t->graphs[CREW_TRAIN]);
}

static enum status take_graph(trainer *t)
{
    const struct graph *g = t->options.graph;
    const struct dataset_info *d = &t->info.data;
    const struct shape images = SHAPE4(g->batch, d->channels, d->height, d->width);
    char has[64], wanted[64];
    if (!shape_equal(&g->nodes[0].op.output, &images) || g->classes != d->classes)
        return status_fail(
            STATUS_USAGE, "the graph takes %s images of %lld classes, the data has %s of %d",
            shape_text(has, sizeof has, &g->nodes[0].op.output), (long long)g->classes,
            shape_text(wanted, sizeof wanted, &images), d->classes);
    return graph_resize(g, t->info.batch, &t->graphs[CREW_TRAIN]);
}

/* No graph for a batch of 0. */
static enum status resize_graph(trainer *t, enum crew_program which, int64_t batch)
{
    return batch > 0 ? graph_resize(t->graphs[CREW_TRAIN], batch, &t->graphs[which]) : STATUS_OK;
}

static enum status build_graphs(trainer *t)
{
    const struct trainer_info *i = &t->info;
    TRY(t->options.graph ? take_graph(t) : build_by_name(t));
    TRY(resize_graph(t, CREW_TRAIN_SHORT, i->n_train % i->batch));
    if (i->n_test == 0)
        return STATUS_OK;
    TRY(resize_graph(t, CREW_EVAL, i->eval_batch));
    return resize_graph(t, CREW_EVAL_SHORT, i->n_test % i->eval_batch);
}

static enum status choose_plan(trainer *t)
{
    const struct trainer_options *o = &t->options;
    const struct graph *graph = t->graphs[CREW_TRAIN];
    struct plan_request request = o->request;
    request.n_workers = o->process ? o->process->size : o->workers;
    if (o->process && o->workers && o->workers != o->process->size)
        return status_fail(STATUS_USAGE, "%d workers were asked for, but %d processes started",
                           o->workers, o->process->size);
    if (o->resolved_plan) {
        TRY(plan_check(o->resolved_plan, graph));
        t->plan = o->resolved_plan;
    } else {
        const char *name = o->plan ? o->plan : request.n_workers > 1 ? "data" : "serial";
        TRY(plan_choose(name, graph, &request, &t->own_plan));
        t->plan = t->own_plan;
    }
    t->info.plan = t->plan->name;
    t->info.resolved_plan = t->plan;
    t->info.workers = t->plan->n_workers;
    return STATUS_OK;
}

static enum status create_crew(trainer *t)
{
    const struct trainer_options *o = &t->options;
    struct crew_options c = {
        .plan = t->plan,
        .backend = t->backend,
        .precision = o->precision,
        .threads = o->threads,
        .n_states = update_rule_states(&o->rule),
        .process = o->process,
        .timeout_s = o->timeout_s,
        .on_stuck = o->on_stuck,
        .train_set = t->train_set,
        .test_set = t->test_set,
        .train_loader = {.batch = t->info.batch,
                         .seed = o->seed,
                         .shuffle = true,
                         .augment = o->augment,
                         .threads = o->loader_threads},
        .test_loader = {.batch = t->info.eval_batch, .threads = o->loader_threads},
        .skip_corrupt = o->skip_corrupt,
        .skips_silently = o->skips_silently,
        .trace_steps = !o->trace        ? 0
                       : o->trace_steps ? o->trace_steps
                                        : TRACE_STEPS};
    for (int p = 0; p < CREW_PROGRAM_COUNT; p++)
        c.graphs[p] = t->graphs[p];
    if (t->plan->schedule == PLAN_PIPEDREAM && t->plan->window > 1)
        c.graphs[CREW_TRAIN_ONE] = t->graphs[CREW_TRAIN];
    TRY(crew_create(&c, &t->crew));
    const struct crew_info *made = crew_get_info(t->crew);
    t->window = crew_count_steps(t->crew, CREW_TRAIN);
    t->info.memory_bytes = made->memory_bytes;
    t->info.bytes_moved = made->bytes_moved / t->window;
    t->info.threads = made->threads;
    t->info.device = made->device;
    return STATUS_OK;
}

/* ---- the trainer ----------------------------------------------------------------------------- */

/* The part that every process does by itself. */
static enum status prepare(trainer *t)
{
    const struct network *network;
    if (!t->options.model && t->options.graph)
        t->options.model = t->options.graph->name;
    if (t->options.model && !t->options.graph)
        TRY(network_find(t->options.model, &network));
    TRY(check_options(&t->options));
    t->info.model = t->options.model;
    TRY(set_checkpoint(t));
    t->backend = backend_list()[0];
    if (t->options.backend)
        TRY(backend_find(t->options.backend, &t->backend));
    t->info.backend = t->backend->name;
    TRY(open_train_data(t));
    TRY(open_test_data(t));
    TRY(build_graphs(t));
    t->info.graph = t->graphs[CREW_TRAIN];
    t->info.n_parameters = graph_count_parameters(t->graphs[CREW_TRAIN]);
    return choose_plan(t);
}

static enum status build(trainer *t)
{
    t->info.root = !t->options.process || t->options.process->rank == 0;
    TRY(arena_create(&t->memory));
    TRY(crew_agree(t->options.process, prepare(t)));
    TRY(create_crew(t));
    size_t n = (size_t)t->window;
    t->step_states = calloc(n, sizeof *t->step_states);
    t->step_rules = calloc(n, sizeof *t->step_rules);
    t->results = calloc(n, sizeof *t->results);
    if (!t->step_states || !t->step_rules || !t->results)
        return status_no_memory(n * sizeof *t->results);
    return trainer_set_state(t);
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
    crew_destroy(t->crew);
    plan_destroy(t->own_plan);
    for (int p = CREW_PROGRAM_COUNT - 1; p >= 0; p--)
        graph_destroy(t->graphs[p]);
    dataset_close(t->train_set);
    dataset_close(t->test_set);
    free(t->step_states);
    free(t->step_rules);
    free(t->results);
    lock_file_release(t->lock);
    arena_destroy(t->memory);
    free(t);
}

const struct trainer_info *trainer_get_info(const trainer *t)
{
    return &t->info;
}
