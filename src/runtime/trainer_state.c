/* Where a run begins, and how it is put on disk. Files are the root's affair; the others hand over
 * their tensors. */
#include "base/log.h"
#include "base/timer.h"
#include "runtime/initialise.h"
#include "runtime/trainer_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the first state ------------------------------------------------------------------------- */

static enum status describe_subject(trainer *t)
{
    const struct dataset_info *d = &t->info.data;
    struct checkpoint_subject *s = &t->subject;
    char name[CHECKPOINT_NAME_BYTES];
    const char **names;
    s->form = d->form == DATASET_FORM_SMALL ? "small" : "large";
    s->n_channels = dataset_get_normalisation(t->train_set, &s->mean, &s->std);
    if (!dataset_has_class_names(t->train_set))
        return STATUS_OK;
    TRY(arena_alloc_array(t->memory, (size_t)d->classes, sizeof *names, &names));
    for (int i = 0; i < d->classes; i++)
        TRY(arena_copy_text(t->memory, dataset_class_name(t->train_set, i, name, sizeof name),
                            &names[i]));
    s->names = names;
    s->n_names = d->classes;
    return STATUS_OK;
}

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
                                   .schedule = o->schedule,
                                   .schedule_steps = i->schedule_steps};
    if (strlen(o->model) >= sizeof s->model || strlen(o->data) >= sizeof s->data)
        return status_fail(STATUS_USAGE, "the name of the model or the dataset is too long");
    memcpy(s->model, o->model, strlen(o->model));
    memcpy(s->data, o->data, strlen(o->data));
    (void)graph_groups_text(t->graphs[CREW_TRAIN], s->groups, sizeof s->groups);
    TRY(describe_subject(t));
    return *t->checkpoint ? checkpoint_check_state(t->checkpoint, s, &t->subject) : STATUS_OK;
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* Where it stands must be a place of this run: the data, the batch and so the epochs are the same.
 */
static enum status check_position(const trainer *t, const struct checkpoint_state *saved)
{
    const struct trainer_info *i = &t->info;
    int64_t steps;
    bool sound = saved->position <= i->steps_per_epoch && saved->n_seen <= i->n_train &&
                 !__builtin_mul_overflow(saved->epoch, i->steps_per_epoch, &steps) &&
                 !__builtin_add_overflow(steps, saved->position, &steps) && steps == saved->step;
    if (sound)
        return STATUS_OK;
    return status_fail(STATUS_FAILED,
                       "%s.json: corrupt: step %lld is not batch %lld of epoch %lld, with %lld "
                       "samples seen, where an epoch has %lld batches and %lld samples",
                       t->checkpoint, (long long)saved->step, (long long)saved->position,
                       (long long)saved->epoch, (long long)saved->n_seen,
                       (long long)i->steps_per_epoch, (long long)i->n_train);
}

/* A run that is lengthened has a longer schedule, and another rate at the step where it goes on. */
static void tell_schedule(const trainer *t, const struct checkpoint_state *saved)
{
    const struct trainer_options *o = &t->options;
    const struct trainer_info *i = &t->info;
    if (o->schedule.kind != SCHEDULE_COSINE || saved->schedule_steps == 0 ||
        saved->schedule_steps == i->schedule_steps)
        return;
    double was = schedule_rate(&o->schedule, o->rule.learning_rate, saved->step, i->steps_per_epoch,
                               saved->schedule_steps);
    double is = schedule_rate(&o->schedule, o->rule.learning_rate, saved->step, i->steps_per_epoch,
                              i->schedule_steps);
    if (fabs(is - was) < 5e-5 * was)
        return; /* the same in the digits that would be printed */
    char keep[80] = "";
    if (saved->schedule_steps % i->steps_per_epoch == 0)
        (void)snprintf(keep, sizeof keep, " (--schedule-epochs %lld keeps the former length)",
                       (long long)(saved->schedule_steps / i->steps_per_epoch));
    log_warn(
        "%s.json: the schedule was %lld steps long, it goes on with %lld: the learning rate of "
        "the next step is %.4g, and would have been %.4g%s",
        t->checkpoint, (long long)saved->schedule_steps, (long long)i->schedule_steps, is, was,
        keep);
}

static enum status take_checkpoint(trainer *t, checkpoint *c, const struct tensor_store *tensors)
{
    TRY(checkpoint_match(c, &t->state));
    const struct checkpoint_state *saved = checkpoint_get_state(c);
    TRY(check_position(t, saved));
    tell_schedule(t, saved);
    TRY(checkpoint_read(c, t->graphs[CREW_TRAIN], tensors));
    t->state.step = saved->step;
    t->state.epoch = saved->epoch;
    t->state.position = saved->position;
    t->state.loss_sum = saved->loss_sum;
    t->state.n_seen = saved->n_seen;
    t->info.resumed = true;
    return STATUS_OK;
}

static enum status resume(trainer *t, const struct tensor_store *tensors)
{
    checkpoint *c = NULL;
    TRY(checkpoint_open(t->checkpoint, &c));
    enum status st = take_checkpoint(t, c, tensors);
    checkpoint_close(c);
    return st;
}

/* On the root: from files, if there are any to start from. */
static enum status read_state(const struct tensor_store *tensors, void *user)
{
    trainer *t = user;
    if (t->options.resume && checkpoint_exists(t->checkpoint))
        return resume(t, tensors);
    if (t->options.weights)
        return checkpoint_load_weights(t->options.weights, t->graphs[CREW_TRAIN], tensors);
    return STATUS_OK;
}

/* The root knows whether the run goes on from a checkpoint, and from where. */
static enum status share_position(trainer *t)
{
    comm *process = t->options.process;
    struct {
        struct checkpoint_state state;
        bool resumed;
    } now = {t->state, t->info.resumed};
    if (process && process->size > 1)
        TRY(process->table->broadcast(process, 0, &now, sizeof now));
    t->state = now.state;
    t->info.resumed = now.resumed;
    if (now.resumed) {
        t->saved_step = t->info.first_step = now.state.step;
        t->saved_epoch = now.state.epoch;
    }
    return STATUS_OK;
}

enum status trainer_set_state(trainer *t)
{
    TRY(crew_agree(t->options.process, describe_run(t)));
    TRY(crew_with_tensors(t->crew, read_state, t));
    TRY(share_position(t));
    if (t->info.resumed || t->options.weights)
        return STATUS_OK;
    struct tensor_store tensors = crew_local_tensors(t->crew);
    return initialise_tensors(t->graphs[CREW_TRAIN], &tensors, t->options.seed);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static enum status save_state(const struct tensor_store *tensors, void *user)
{
    const trainer *t = user;
    return checkpoint_save(t->checkpoint, &t->state, &t->subject, t->graphs[CREW_TRAIN], tensors);
}

enum status trainer_save(trainer *t)
{
    if (!*t->checkpoint || (t->saved_step == t->state.step && t->saved_epoch == t->state.epoch))
        return STATUS_OK;
    TRY(crew_with_tensors(t->crew, save_state, t));
    t->saved_step = t->state.step;
    t->saved_epoch = t->state.epoch;
    t->saved_at_ns = timer_now_ns();
    return STATUS_OK;
}

struct weights_file {
    const trainer *trainer;
    const char *path;
};

static enum status save_weights(const struct tensor_store *tensors, void *user)
{
    const struct weights_file *to = user;
    return checkpoint_save_weights(to->path, &to->trainer->subject, to->trainer->graphs[CREW_TRAIN],
                                   tensors);
}

enum status trainer_save_weights(trainer *t, const char *path)
{
    struct weights_file to = {t, path};
    return crew_with_tensors(t->crew, save_weights, &to);
}
