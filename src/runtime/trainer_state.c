/* Where a run begins, and how it is put on disk. Files are the root's affair; the others hand over
 * their tensors. */
#include "base/log.h"
#include "base/timer.h"
#include "runtime/initialise.h"
#include "runtime/trainer_parts.h"

#include <string.h>

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
    return *t->checkpoint ? checkpoint_check_state(t->checkpoint, s) : STATUS_OK;
}

/* ---- resuming -------------------------------------------------------------------------------- */

static enum status take_checkpoint(trainer *t, checkpoint *c, const struct tensor_store *tensors)
{
    TRY(checkpoint_match(c, &t->state));
    const struct checkpoint_state *saved = checkpoint_get_state(c);
    if (saved->position > t->info.steps_per_epoch)
        return status_fail(STATUS_FAILED, "%s.json: batch %lld of an epoch of %lld", t->checkpoint,
                           (long long)saved->position, (long long)t->info.steps_per_epoch);
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
    bool there = *t->checkpoint && checkpoint_exists(t->checkpoint);
    if (t->options.resume && there)
        return resume(t, tensors);
    if (there)
        log_warn("%s.json: the checkpoint of an earlier run will be replaced", t->checkpoint);
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
    return checkpoint_save(t->checkpoint, &t->state, t->graphs[CREW_TRAIN], tensors);
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
    return checkpoint_save_weights(to->path, to->trainer->graphs[CREW_TRAIN], tensors);
}

enum status trainer_save_weights(trainer *t, const char *path)
{
    struct weights_file to = {t, path};
    return crew_with_tensors(t->crew, save_weights, &to);
}
