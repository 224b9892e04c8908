/* 01: look at a network before anything is trained: what its layers are, what they cost, and which
 * of their loops may be cut to share the work.
 *
 *     cc 01-show-a-network.c $(pkg-config --cflags --libs cleave) -o show && ./show
 */
#include <cleave/cleave.h>
#include <stdio.h>

int main(void)
{
    /* "fashion-mnist" decides the shape: 1x28x28 images of 10 classes. No file is read for that. */
    cleave_model *model;
    if (cleave_model_open("lenet5", "fashion-mnist", 128, &model) != CLEAVE_OK) {
        fprintf(stderr, "%s\n", cleave_error_message());
        return 1;
    }
    const struct cleave_model_info *info = cleave_model_get_info(model);
    printf("%s: %d layers, %lld parameters, %.1f million operations for %lld images\n\n",
           info->network, info->n_layers, (long long)info->parameters, info->forward_flops / 1e6,
           (long long)info->batch);

    /* A layer is a loop nest. Cutting loop n shares out the samples, k the channels, p and q rows
     * and columns; a loop behind | is summed over, and cutting it gives partial sums. */
    printf("%-8s %-22s %-14s %s\n", "layer", "op", "output", "loops");
    for (int i = 0; i < info->n_layers; i++) {
        const struct cleave_layer *layer = cleave_model_get_layer(model, i);
        printf("%-8s %-22s %-14s %s\n", layer->name, layer->op, layer->output, layer->loops);
    }
    cleave_model_destroy(model);
    return 0;
}
