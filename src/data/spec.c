#include "data/spec.h"

#include "base/numbers.h"
#include "base/printable.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { FOLDER_SIZE = 224, SIDE_MAX = 16384, CLASSES_MAX = 1 << 24 };
static const int64_t COUNT_MAX = (int64_t)1 << 40;
static const int64_t SAMPLE_FLOATS_MAX = (int64_t)1 << 28;

/* Published shapes and counts. ImageNet-22k has no official test split; the size of ImageNet's is
 * used. */
struct known {
    const char *name;
    enum spec_kind kind;
    bool makeable; /* synthetic:NAME exists */
    int channels, height, width, classes;
    int64_t n_train, n_test;
};

static const struct known known_sets[] = {
    {"fashion-mnist", SPEC_IDX, false, 1, 28, 28, 10, 60000, 10000},
    {"mnist", SPEC_IDX, true, 1, 28, 28, 10, 60000, 10000},
    {"cifar10", SPEC_CIFAR, true, 3, 32, 32, 10, 50000, 10000},
    {"imagenet", SPEC_SHAPE, true, 3, 224, 224, 1000, 1281167, 50000},
    {"highres", SPEC_SHAPE, true, 3, 512, 512, 1000, 50000, 10000},
    {"imagenet22k", SPEC_SHAPE, true, 3, 224, 224, 21841, 14197122, 50000},
};
enum { N_KNOWN = sizeof known_sets / sizeof known_sets[0] };

const char *const *spec_beginnings(void)
{
    static char texts[3 * N_KNOWN + 2][32];
    static const char *names[3 * N_KNOWN + 3];
    int n = 0;
    for (int i = 0; i < N_KNOWN && !names[0]; i++) {
        const struct known *k = &known_sets[i];
        (void)snprintf(texts[n++], sizeof texts[0], "%s", k->name);
        if (k->kind != SPEC_SHAPE)
            (void)snprintf(texts[n++], sizeof texts[0], "%s:", k->name);
        if (k->makeable)
            (void)snprintf(texts[n++], sizeof texts[0], "synthetic:%s", k->name);
    }
    if (n > 0) {
        (void)snprintf(texts[n++], sizeof texts[0], "imagefolder:");
        (void)snprintf(texts[n++], sizeof texts[0], "packed:");
    }
    for (int i = 0; i < n; i++)
        names[i] = texts[i];
    return names;
}

enum dataset_form spec_form(int height)
{
    return height <= 32 ? DATASET_FORM_SMALL : DATASET_FORM_LARGE;
}

static const struct known *find_known(const char *name)
{
    for (int i = 0; i < N_KNOWN; i++)
        if (strcasecmp(known_sets[i].name, name) == 0)
            return &known_sets[i];
    return NULL;
}

static void use_known(const struct known *known, struct dataset_info *info)
{
    (void)snprintf(info->name, sizeof info->name, "%s", known->name);
    info->channels = known->channels;
    info->height = known->height;
    info->width = known->width;
    info->classes = known->classes;
    info->n_train = info->n_samples = known->n_train;
    info->n_test = known->n_test;
    info->form = spec_form(known->height);
}

static enum status copy_path(const char *text, size_t length, char path[SPEC_PATH_BYTES])
{
    if (length >= SPEC_PATH_BYTES)
        return status_fail(STATUS_USAGE,
                           "dataset path of %zu bytes is too long (at most %d): %.60s...", length,
                           SPEC_PATH_BYTES - 1, text);
    memcpy(path, text, length);
    path[length] = '\0';
    return STATUS_OK;
}

/* The last part of a path, for a name. */
static void name_after_path(const char *path, struct dataset_info *info)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && path[start - 1] != '/')
        start--;
    char name[sizeof info->name];
    (void)snprintf(name, sizeof name, "%.*s", (int)(length - start), path + start);
    printable_copy(info->name, sizeof info->name, name);
}

/* DIR or DIR@SIZE. */
static enum status parse_folder(const char *rest, struct spec *out)
{
    const char *at = strrchr(rest, '@');
    if (at && (at[1] == '\0' || strspn(at + 1, "0123456789") != strlen(at + 1)))
        at = NULL; /* an @ of the folder's name */
    int64_t size = FOLDER_SIZE;
    if (at)
        TRY(text_parse_integer("image size", at + 1, 1, 4096, &size));
    out->size = (int)size;
    TRY(copy_path(rest, at ? (size_t)(at - rest) : strlen(rest), out->path));
    if (out->path[0] == '\0')
        return status_fail(STATUS_USAGE, "dataset 'imagefolder' needs a folder: imagefolder:DIR");
    name_after_path(out->path, &out->info);
    return STATUS_OK;
}

/* FILE or FILE,TESTFILE. */
static enum status parse_packed(const char *rest, struct spec *out)
{
    size_t length = strcspn(rest, ",");
    TRY(copy_path(rest, length, out->path));
    if (rest[length] == ',')
        TRY(copy_path(rest + length + 1, strlen(rest + length + 1), out->test_path));
    if (out->path[0] == '\0')
        return status_fail(STATUS_USAGE, "dataset 'packed' needs a file: packed:FILE[,TESTFILE]");
    name_after_path(out->path, &out->info);
    return STATUS_OK;
}

/* Reads a number from 1 to `most` at *cursor and moves past it and past one character `after`
 * (0: the end of the text). */
static bool take_number(const char **cursor, int64_t most, char after, int64_t *out)
{
    const char *c = *cursor;
    int64_t value = 0;
    int digits = 0;
    for (; *c >= '0' && *c <= '9' && value <= most; c++, digits++)
        value = value * 10 + (*c - '0');
    if (digits == 0 || value < 1 || value > most || *c != after)
        return false;
    *cursor = after ? c + 1 : c;
    *out = value;
    return true;
}

/* CxHxW/CLASSES[/COUNT]. */
static enum status parse_shape(const char *rest, struct dataset_info *info)
{
    const char *cursor = rest;
    int64_t c, h, w, classes, count = 50000;
    bool good = take_number(&cursor, SIDE_MAX, 'x', &c) &&
                take_number(&cursor, SIDE_MAX, 'x', &h) && take_number(&cursor, SIDE_MAX, '/', &w);
    if (good && strchr(cursor, '/'))
        good = take_number(&cursor, CLASSES_MAX, '/', &classes) &&
               take_number(&cursor, COUNT_MAX, '\0', &count);
    else
        good = good && take_number(&cursor, CLASSES_MAX, '\0', &classes);
    if (good && c * h * w > SAMPLE_FLOATS_MAX)
        return status_fail(STATUS_USAGE,
                           "dataset 'synthetic:%.80s': an image would have %lld values, at most "
                           "%lld are allowed",
                           rest, (long long)(c * h * w), (long long)SAMPLE_FLOATS_MAX);
    if (!good)
        return status_fail(STATUS_USAGE,
                           "dataset 'synthetic:%.80s' must be synthetic:CxHxW/CLASSES[/COUNT] with "
                           "sizes from 1 to %d, for example synthetic:3x224x224/1000",
                           rest, SIDE_MAX);
    (void)snprintf(info->name, sizeof info->name, "%dx%dx%d/%d", (int)c, (int)h, (int)w,
                   (int)classes);
    info->channels = (int)c;
    info->height = (int)h;
    info->width = (int)w;
    info->classes = (int)classes;
    info->n_train = info->n_samples = count;
    info->n_test = int64_max(count / 10, 1);
    info->form = spec_form(info->height);
    return STATUS_OK;
}

static enum status parse_synthetic(const char *rest, struct spec *out)
{
    const char *names[N_KNOWN + 2];
    int n = 0;
    for (int i = 0; i < N_KNOWN; i++)
        if (known_sets[i].makeable)
            names[n++] = known_sets[i].name;
    names[n++] = "CxHxW/CLASSES[/COUNT]";
    names[n] = NULL;
    const struct known *known = find_known(rest);
    if (known && known->makeable)
        use_known(known, &out->info);
    else if (rest[0] >= '0' && rest[0] <= '9')
        TRY(parse_shape(rest, &out->info));
    else
        return text_fail_unknown("synthetic dataset", rest, names);
    out->info.synthetic = out->info.in_memory = true;
    return STATUS_OK;
}

static enum status parse_known(const struct known *known, const char *rest, struct spec *out)
{
    out->kind = known->kind;
    use_known(known, &out->info);
    if (known->kind == SPEC_SHAPE && rest)
        return status_fail(STATUS_USAGE,
                           "dataset '%s' names a shape and has no files: for your own images use "
                           "imagefolder:DIR, without any synthetic:%s",
                           known->name, known->name);
    out->info.in_memory = known->kind != SPEC_SHAPE;
    if (rest && rest[0] == '\0')
        return status_fail(STATUS_USAGE, "dataset '%s:' names no folder after the colon",
                           known->name);
    if (rest)
        return copy_path(rest, strlen(rest), out->path);
    if (strcmp(known->name, "fashion-mnist") == 0)
        return copy_path(DATASET_FASHION_MNIST_DIR, strlen(DATASET_FASHION_MNIST_DIR), out->path);
    return STATUS_OK;
}

/* A path alone does not say its format. */
static enum status fail_path(const char *path)
{
    return status_fail(STATUS_USAGE,
                       "dataset '%.80s': say what is there: imagefolder:%.80s (images in a folder "
                       "for each class), or mnist:, cifar10: or packed: before the path",
                       path, path);
}

enum status spec_parse(const char *text, struct spec *out)
{
    static const char *const names[] = {"fashion-mnist", "mnist",     "cifar10",  "imagefolder",
                                        "packed",        "synthetic", "imagenet", "highres",
                                        "imagenet22k",   NULL};
    memset(out, 0, sizeof *out);
    char name[64];
    size_t length = strcspn(text, ":");
    (void)snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), text);
    const char *rest = text[length] == ':' ? text + length + 1 : NULL;

    const struct known *known = find_known(name);
    if (known)
        return parse_known(known, rest, out);
    if (strcasecmp(name, "imagefolder") == 0) {
        out->kind = SPEC_FOLDER;
        return parse_folder(rest ? rest : "", out);
    }
    if (strcasecmp(name, "packed") == 0) {
        out->kind = SPEC_PACKED;
        return parse_packed(rest ? rest : "", out);
    }
    if (strcasecmp(name, "synthetic") == 0) {
        out->kind = SPEC_SYNTHETIC;
        return parse_synthetic(rest ? rest : "", out);
    }
    if (strchr(text, '/') || access(text, F_OK) == 0)
        return fail_path(text);
    return text_fail_unknown("dataset", name, names);
}
