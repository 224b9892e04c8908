/* command_pack.c: `cleave pack`: many small images made one file (data/pack.h). */
#include "data/pack.h"

#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/timer.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct pack_request {
    const char *spec, *out;
    int64_t size, threads;
    int split, encoding;
    bool json;
};

static const char *const split_names[] = {[DATASET_TRAIN] = "train", [DATASET_TEST] = "test", NULL};
static const char *const encoding_names[] = {[PACK_RAW] = "raw", [PACK_JPEG] = "jpeg", NULL};

enum { MAX_SPEC_BYTES = 2048 };

static enum status parse(int argc, char **argv, struct pack_request *r, bool *help)
{
    *r = (struct pack_request){0};
    const struct option options[] = {
        OPTION_TEXT("--out", "FILE", &r->out, NULL, "the file to write; must be given"),
        OPTION_CHOICE("--split", &r->split, split_names, "train", "which images"),
        OPTION_CHOICE("--encoding", &r->encoding, encoding_names, "raw",
                      "pixels, fastest to read, or the image files' own bytes, smaller"),
        OPTION_INTEGER("--size", "N", &r->size, 1, 16384, NULL,
                       "height and width of the images of a folder [224]"),
        OPTION_INTEGER("--threads", "N", &r->threads, 1, 4096, NULL, "that decode [all cores]"),
        OPTION_FLAG("--json", &r->json, "print one JSON object"),
        OPTION_END,
    };
    const struct positional positionals[] = {
        {"SPEC", &r->spec,
         "the data to pack: imagefolder:DIR[@SIZE], mnist:DIR, fashion-mnist[:DIR], cifar10:DIR"},
        {0}};
    const struct option_set set = {
        .command = "pack",
        .about = "Writes all images of a dataset into one file in which any of them is found at\n"
                 "once. Train on it as packed:FILE.",
        .positionals = positionals,
        .options = options,
        .examples =
            "  cleave pack imagefolder:photos --size 128 --out photos.pack\n"
            "  cleave pack imagefolder:photos --size 128 --split test --out photos-test.pack\n"
            "  cleave train resnet18 --data packed:photos.pack,photos-test.pack\n",
    };
    return options_parse(&set, argc, argv, help);
}

/* The spec with --size in it. */
static enum status sized_spec(const struct pack_request *r, char *buffer, size_t size)
{
    static const char folder[] = "imagefolder:";
    if (r->size && strncmp(r->spec, folder, strlen(folder)) != 0)
        return status_fail(STATUS_USAGE,
                           "--size is for image folders: the images of '%.80s' have one already",
                           r->spec);
    const char *at = strrchr(r->spec, '@'), *slash = strrchr(r->spec, '/');
    if (r->size && at && (!slash || at > slash) && at[1 + strspn(at + 1, "0123456789")] == '\0')
        return status_fail(STATUS_USAGE, "'%.80s' and --size both give a size: leave one out",
                           r->spec);
    int n = r->size ? snprintf(buffer, size, "%s@%lld", r->spec, (long long)r->size)
                    : snprintf(buffer, size, "%s", r->spec);
    if (n < 0 || (size_t)n >= size)
        return status_fail(STATUS_USAGE, "the name of the data is too long");
    return STATUS_OK;
}

/* "packed:FILE[,TESTFILE]" may be packed again, but not into itself. */
static enum status check_inputs(const struct pack_request *r)
{
    static const char packed[] = "packed:";
    char path[MAX_SPEC_BYTES];
    const char *list = r->spec + strlen(packed);
    if (strncmp(r->spec, packed, strlen(packed)) != 0)
        return STATUS_OK;
    while (text_next_word(&list, path, sizeof path))
        TRY(whole_file_check_input("--out", r->out, path));
    return STATUS_OK;
}

static void show_progress(void *context, int64_t done, int64_t total)
{
    static struct progress progress;
    const char *out = context;
    progress_show(&progress, total > 0 ? (double)done / (double)total : 0,
                  "%s: %lld of %lld images", out, (long long)done, (long long)total);
}

static enum status read_header(const char *path, struct pack_header *out)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return status_fail(STATUS_FAILED, "%s: cannot open: %s", path, strerror(errno));
    size_t n_read = fread(out, sizeof *out, 1, f);
    (void)fclose(f);
    if (n_read != 1)
        return status_fail(STATUS_FAILED, "%s: cannot read the written file back", path);
    return STATUS_OK;
}

static enum status print_result(const struct pack_request *r, double seconds)
{
    struct pack_header h;
    TRY(read_header(r->out, &h));
    if (r->json)
        return output_json(json_pack("{s:s, s:I, s:I, s:I, s:f}", "file", r->out, "images",
                                     (json_int_t)h.n_samples, "classes", (json_int_t)h.classes,
                                     "bytes", (json_int_t)h.file_bytes, "seconds", seconds));
    char bytes[32], time[32];
    printf("%s: %llu images of %ux%ux%u in %u classes, %s, in %s\n", r->out,
           (unsigned long long)h.n_samples, h.channels, h.height, h.width, h.classes,
           text_bytes(bytes, sizeof bytes, (double)h.file_bytes),
           text_seconds(time, sizeof time, seconds));
    return STATUS_OK;
}

enum status command_pack(int argc, char **argv)
{
    struct pack_request r;
    bool help;
    TRY(parse(argc, argv, &r, &help));
    if (help)
        return STATUS_OK;
    if (!r.out)
        return status_fail(STATUS_USAGE, "--out FILE is missing: the file to write");
    TRY(check_inputs(&r));
    char spec[MAX_SPEC_BYTES];
    TRY(sized_spec(&r, spec, sizeof spec));
    struct pack_options options = {.encoding = (enum pack_encoding)r.encoding,
                                   .threads = (int)r.threads,
                                   .progress = show_progress,
                                   .context = (void *)r.out};
    int64_t began_ns = timer_now_ns();
    TRY(pack_create(spec, (enum dataset_split)r.split, r.out, &options));
    log_progress_end();
    return print_result(&r, (double)(timer_now_ns() - began_ns) * 1e-9);
}
