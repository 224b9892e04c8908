#include "cli/subject.h"

#include "base/text.h"
#include "model/network.h"

#include <stdio.h>
#include <string.h>

const char subject_data_notes[] =
    "Data is named by one of\n"
    "  fashion-mnist[:DIR]      mnist:DIR      cifar10:DIR\n"
    "  imagefolder:DIR[@SIZE]   folders of JPEG and PNG images, one per class\n"
    "  packed:FILE[,TESTFILE]   what 'cleave pack' wrote\n"
    "  synthetic:NAME           mnist, cifar10, imagenet, highres or imagenet22k\n"
    "  synthetic:CxHxW/CLASSES[/COUNT]\n";

const char *subject_model_help(void)
{
    static char text[512];
    size_t used = 0;
    for (const char *const *name = network_names(); *name && used < sizeof text; name++) {
        const char *between = name == network_names() ? "" : name[1] ? ", " : " or ";
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", between, *name);
    }
    return text;
}

enum status subject_parse_batches(const char *option, const char *text,
                                  int64_t sizes[SUBJECT_MAX_BATCHES], int *n_sizes)
{
    *n_sizes = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        char word[32];
        (void)snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), text);
        if (*n_sizes == SUBJECT_MAX_BATCHES)
            return status_fail(STATUS_USAGE, "%s takes at most %d sizes", option,
                               SUBJECT_MAX_BATCHES);
        TRY(text_parse_integer(option, word, 1, SUBJECT_LARGEST_BATCH, &sizes[*n_sizes]));
        ++*n_sizes;
        if (!text[length])
            return STATUS_OK;
        text += length + 1;
    }
}
