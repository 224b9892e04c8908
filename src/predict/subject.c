#include "predict/subject.h"

#include "model/network.h"

enum status subject_build(const char *model, const char *spec, int64_t batch,
                          double drop_probability, struct dataset_info *info, struct graph **out)
{
    const struct network *network;
    TRY(network_find(model, &network));
    TRY(dataset_describe(spec, info));
    struct graph_variant variant = {
        .batch = batch,
        .channels = info->channels,
        .height = info->height,
        .width = info->width,
        .classes = info->classes,
        .small_form = info->form == DATASET_FORM_SMALL,
        .drop_probability = drop_probability,
    };
    return network_build(model, &variant, out);
}
