#include "cli/network_help.h"

#include "model/network.h"

#include <stdio.h>

const char data_notes[] =
    "Data is named by one of\n"
    "  fashion-mnist[:DIR]      mnist:DIR      cifar10:DIR\n"
    "  imagefolder:DIR[@SIZE]   folders of JPEG and PNG images, one per class\n"
    "  packed:FILE[,TESTFILE]   what 'cleave pack' wrote\n"
    "  synthetic:NAME           mnist, cifar10, imagenet, highres or imagenet22k\n"
    "  synthetic:CxHxW/CLASSES[/COUNT]\n";

const char *network_names_help(void)
{
    static char text[512];
    size_t used = 0;
    for (const char *const *name = network_names(); *name && used < sizeof text; name++) {
        const char *between = name == network_names() ? "" : name[1] ? ", " : " or ";
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", between, *name);
    }
    return text;
}

const char *model_or_plan_help(void)
{
    static char text[600];
    (void)snprintf(text, sizeof text, "%s; or a plan's file, which names one",
                   network_names_help());
    return text;
}

const char *network_or_file_help(void)
{
    static char text[600];
    (void)snprintf(text, sizeof text, "%s [the one that the plan's file names]",
                   network_names_help());
    return text;
}
