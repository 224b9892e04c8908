/* 02: what would a plan take on a machine that is not here? Sixteen P100 on four nodes, VGG-16,
 * plain data parallelism: time with an error bar, memory of a worker by what it is for, and bytes
 * that move.
 *
 *     cc 02-predict-a-plan.c $(pkg-config --cflags --libs cleave) -o predict && ./predict
 */
#include <cleave/cleave.h>
#include <stdio.h>
#include <stdlib.h>

/* Most programs want just this: an error is printed, and that is that. */
static void check(enum cleave_status status)
{
    if (status == CLEAVE_OK)
        return;
    fprintf(stderr, "%s\n", cleave_error_message());
    exit((int)status);
}

int main(void)
{
    cleave_model *model;
    cleave_machine *machine;
    cleave_plan *plan;
    cleave_prediction *prediction;
    check(cleave_model_open("vgg16", "imagenet", 512, &model));
    check(cleave_machine_open("4x4:p100,intra=15GB/s,inter=4.5GB/s", &machine));
    check(cleave_plan_make(model, "data", 16, NULL, &plan));

    /* One P100 alone is known to reach 184 images a second with batches of 32. Such a figure makes
     * the estimates of a machine that cannot be measured much better. */
    struct cleave_predict_options options = cleave_predict_defaults();
    options.calibrate_images_per_s = 184;
    options.calibrate_batch = 32;
    check(cleave_predict(plan, machine, &options, &prediction));

    const struct cleave_prediction_info *all = cleave_prediction_get_info(prediction);
    printf("step         %.0f ms +- %.0f ms, %.0f images/s\n", all->step_s * 1e3,
           all->error_s * 1e3, all->images_per_s);
    printf("             %.0f ms if communication were free\n", all->free_step_s * 1e3);
    printf("moved        %.2f GB in a step, by all workers\n", (double)all->bytes_moved / 1e9);
    printf("fits         %s: %.2f GB of %.2f GB\n", all->fits ? "yes" : "no",
           (double)all->needed_bytes / 1e9, (double)all->limit_bytes / 1e9);

    const struct cleave_worker *worker = cleave_prediction_get_worker(prediction, 0);
    printf(
        "worker 0     weights %.0f MB, optimizer %.0f MB, gradients %.0f MB, activations %.0f MB\n",
        (double)worker->weights_bytes / 1e6, (double)worker->optimizer_bytes / 1e6,
        (double)worker->gradients_bytes / 1e6, (double)worker->activations_bytes / 1e6);

    /* In any order. */
    cleave_model_destroy(model);
    cleave_machine_destroy(machine);
    cleave_plan_destroy(plan);
    cleave_prediction_destroy(prediction);
    return 0;
}
