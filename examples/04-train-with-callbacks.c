/* 04: train on two threads of this process, with a line of progress now and then, and end early
 * once the loss is small enough. It takes data as its argument: fashion-mnist, or your own images
 * as imagefolder:DIR; without one it makes images up, which needs no files.
 *
 *     cc 04-train-with-callbacks.c $(pkg-config --cflags --libs cleave) -o train && ./train
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

struct watcher {
    double good_enough;
    double loss;
};

/* After every step, on the thread that called cleave_trainer_run. */
static int on_step(void *user, const struct cleave_step *step)
{
    struct watcher *watcher = (struct watcher *)user;
    watcher->loss = step->loss;
    if (step->step % 10 == 0)
        printf("step %lld of %lld: loss %.4f, %.0f images/s, %.0f s left\n", (long long)step->step,
               (long long)step->steps_total, step->loss, step->images_per_s, step->left_s);
    return step->loss < watcher->good_enough; /* anything but 0: stop */
}

int main(int argc, char **argv)
{
    cleave_model *model;
    cleave_plan *plan;
    cleave_trainer *trainer;
    check(
        cleave_model_open("lenet5", argc > 1 ? argv[1] : "synthetic:1x28x28/10/2000", 50, &model));
    check(cleave_plan_make(model, "data", 2, NULL, &plan));

    struct watcher watcher = {0.001, 0};
    struct cleave_train_options options = cleave_train_defaults();
    options.epochs = 2;
    options.learning_rate = 0.02;
    options.on_step = on_step;
    options.user = &watcher;
    check(cleave_trainer_create(plan, &options, &trainer));

    const struct cleave_trainer_info *info = cleave_trainer_get_info(trainer);
    printf("%d workers, %.1f MB each, %.2f MB moved in a step\n", info->workers,
           (double)info->memory_bytes / 1e6, (double)info->bytes_moved / 1e6);

    enum cleave_status status = cleave_trainer_run(trainer);
    if (status == CLEAVE_STOPPED)
        printf("good enough after %lld steps: loss %.4f\n", (long long)info->steps, watcher.loss);
    else
        check(status);

    double loss, accuracy;
    check(cleave_trainer_evaluate(trainer, &loss, &accuracy));
    printf("test: loss %.4f, accuracy %.1f %%\n", loss, 100 * accuracy);

    cleave_trainer_destroy(trainer);
    cleave_plan_destroy(plan);
    cleave_model_destroy(model);
    return 0;
}
