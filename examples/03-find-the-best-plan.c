/* 03: which way to train, and why? Compares the named strategies with the best plans there are,
 * says what to use, which layers it cuts how, and what holds it back. Writes best.json, which
 * `cleave train --plan best.json` takes, or cleave_plan_load.
 *
 *     cc 03-find-the-best-plan.c $(pkg-config --cflags --libs cleave) -o search && ./search
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

static void print_candidates(const cleave_search *search)
{
    const struct cleave_search_info *found = cleave_search_get_info(search);
    printf("  %-28s %9s %9s %9s\n", "plan", "step", "memory", "moved");
    for (int i = 0; i < found->n_candidates; i++) {
        const struct cleave_candidate *c = cleave_search_get_candidate(search, i);
        if (!c->predicted) /* far behind: only estimated */
            continue;
        printf("%c %-28s %6.0f ms %6.2f GB %6.2f GB%s\n", i == found->best ? '*' : ' ', c->name,
               c->step_s * 1e3, (double)c->memory_bytes / 1e9, (double)c->bytes_moved / 1e9,
               c->fits ? c->stale ? "  trains with older weights" : "" : "  does not fit");
    }
}

static void print_reasons(const cleave_search *search)
{
    const struct cleave_search_info *found = cleave_search_get_info(search);
    const struct cleave_candidate *best = cleave_search_get_candidate(search, found->best);
    printf("\nUse %s: %.2f times as fast as data parallelism. It cuts\n", best->name,
           cleave_search_get_candidate(search, found->data)->step_s / best->step_s);
    for (int i = 0; i < found->n_parts; i++) {
        const struct cleave_part *part = cleave_search_get_part(search, i);
        printf("  %s .. %s: %s\n", part->first, part->last, part->cut);
    }
    printf("and computes %.0f %% of the step; without communication it would take %.0f ms.\n",
           100 * found->compute_s / best->step_s, found->free_step_s * 1e3);
}

int main(void)
{
    cleave_model *model;
    cleave_machine *machine;
    cleave_search *search;
    cleave_plan *plan;
    check(cleave_model_open("alexnet", "imagenet", 128, &model));
    check(cleave_machine_open("1x4:p100,intra=15GB/s", &machine));
    check(cleave_search_run(model, machine, NULL, &search));
    print_candidates(search);
    print_reasons(search);

    check(cleave_search_get_plan(search, cleave_search_get_info(search)->best, &plan));
    check(cleave_plan_check(plan)); /* proved sound, instruction by instruction */
    check(cleave_plan_save(plan, "best.json"));

    cleave_plan_destroy(plan);
    cleave_search_destroy(search);
    cleave_machine_destroy(machine);
    cleave_model_destroy(model);
    return 0;
}
