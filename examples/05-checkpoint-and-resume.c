/* 05: begin a run with one worker, stop it in the middle, and go on with two, cut another way. A
 * checkpoint does not know the plan it was made under; the losses are those of a run that was never
 * stopped, to float rounding.
 *
 *     cc 05-checkpoint-and-resume.c $(pkg-config --cflags --libs cleave) -o resume && ./resume
 */
#include <cleave/cleave.h>
#include <stdio.h>
#include <stdlib.h>

static void check(enum cleave_status status)
{
    if (status == CLEAVE_OK)
        return;
    fprintf(stderr, "%s\n", cleave_error_message());
    exit((int)status);
}

static int stop_at_15(void *user, const struct cleave_step *step)
{
    (void)user;
    return step->step == 15;
}

/* Trains under a strategy, and returns the last loss. With a name it saves a checkpoint there after
 * each epoch, at the end, and when stopped; and goes on from it if it is to resume. */
static double train(const cleave_model *model, const char *strategy, int workers, const char *name,
                    bool resume, int (*on_step)(void *user, const struct cleave_step *step))
{
    cleave_plan *plan;
    cleave_trainer *trainer;
    struct cleave_train_options options = cleave_train_defaults();
    options.epochs = 3;
    options.checkpoint = name;
    options.resume = resume;
    options.overwrite = !resume; /* of an earlier run of this example */
    options.on_step = on_step;
    check(cleave_plan_make(model, strategy, workers, NULL, &plan));
    check(cleave_trainer_create(plan, &options, &trainer));
    enum cleave_status status = cleave_trainer_run(trainer);
    if (status != CLEAVE_STOPPED)
        check(status);
    const struct cleave_trainer_info *info = cleave_trainer_get_info(trainer);
    double loss = info->loss;
    printf("%s on %d: steps %lld to %lld, loss %.4f\n", strategy, workers,
           (long long)info->first_step + 1, (long long)info->steps, loss);
    cleave_trainer_destroy(trainer);
    cleave_plan_destroy(plan);
    return loss;
}

int main(void)
{
    cleave_model *model;
    check(cleave_model_open("lenet5", "synthetic:1x28x28/10/320", 32, &model));
    double whole = train(model, "serial", 1, NULL, false, NULL);
    (void)train(model, "serial", 1, "half", false, stop_at_15);
    double resumed = train(model, "model", 2, "half", true, NULL);
    double difference = whole > resumed ? whole - resumed : resumed - whole;
    printf("the same as without stopping: %s\n", difference < 1e-3 ? "yes" : "no");
    cleave_model_destroy(model);
    return difference < 1e-3 ? 0 : 1;
}
