#include "cli/forecast_options.h"

#include "base/numbers.h"
#include "predict/subject.h"

enum status forecast_options_graph(const struct forecast_options *o, struct graph **out)
{
    struct dataset_info data;
    TRY(dataset_describe(o->data, &data));
    int64_t n_images = o->run.limit ? int64_min(data.n_train, o->run.limit) : data.n_train;
    return subject_build(o->model, o->data, n_images > 0 ? int64_min(o->batch, n_images) : o->batch,
                         -1, &data, out);
}
