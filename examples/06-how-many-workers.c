/* 06: how many workers are worth it? ResNet-50 on one to sixty-four H200: for each number the best
 * plan for at most so many, how much faster it is than one worker, and what an epoch costs in
 * worker-hours. The batch stays the same, so at some point communication overtakes computation.
 *
 *     cc 06-how-many-workers.c $(pkg-config --cflags --libs cleave) -o workers && ./workers
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

int main(void)
{
    cleave_model *model;
    cleave_machine *machine;
    double one_s = 0;
    check(cleave_model_open("resnet50", "imagenet", 256, &model));
    check(cleave_machine_open("8x8:h200", &machine));
    printf("%7s %-20s %10s %6s %11s %12s\n", "workers", "plan", "step", "speed", "efficiency",
           "worker-hours");
    for (int workers = 1; workers <= 64; workers *= 4) {
        cleave_search *search;
        struct cleave_search_options options = cleave_search_defaults();
        options.workers = workers; /* at most */
        check(cleave_search_run(model, machine, &options, &search));
        const struct cleave_candidate *best =
            cleave_search_get_candidate(search, cleave_search_get_info(search)->best);
        one_s = workers == 1 ? best->step_s : one_s;
        printf("%7d %-20s %7.2f ms %6.2f %9.0f %% %12.3f\n", workers, best->name,
               best->step_s * 1e3, one_s / best->step_s, 100 * one_s / best->step_s / best->workers,
               best->epoch_s * best->workers / 3600);
        cleave_search_destroy(search);
    }
    cleave_machine_destroy(machine);
    cleave_model_destroy(model);
    return 0;
}
