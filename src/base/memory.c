#include "base/memory.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The least of a limit that stands in `file` of a control group and of those around it. */
static int64_t least_limit(const char *mount, char *where, const char *file, int64_t least)
{
    for (;;) {
        char path[512];
        int64_t limit;
        (void)snprintf(path, sizeof path, "%s%s/%s", mount, where, file);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%" SCNd64, &limit) == 1 && limit > 0 && limit < least)
            least = limit; /* "max" is no number */
        if (f)
            (void)fclose(f);
        char *slash = strrchr(where, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup: "4:memory:/path" (version 1) or "0::/path" (version 2). */
static int64_t limit_of_line(char *line, int64_t least)
{
    line[strcspn(line, "\n")] = '\0';
    char *kinds = strchr(line, ':');
    char *where = kinds ? strchr(kinds + 1, ':') : NULL;
    if (!where)
        return least;
    *where++ = '\0';
    if (kinds[1] == '\0')
        return least_limit("/sys/fs/cgroup", where, "memory.max", least);
    if (strstr(kinds, "memory"))
        return least_limit("/sys/fs/cgroup/memory", where, "memory.limit_in_bytes", least);
    return least;
}

static int64_t limit_of_groups(int64_t least)
{
    FILE *f = fopen("/proc/self/cgroup", "r");
    char line[512];
    while (f && fgets(line, sizeof line, f))
        least = limit_of_line(line, least);
    if (f)
        (void)fclose(f);
    return least;
}

enum status memory_find_limit(int64_t *n_bytes)
{
    const char *asked = getenv("CLEAVE_MEMORY_LIMIT");
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (asked && *asked)
        return text_parse_integer("CLEAVE_MEMORY_LIMIT", asked, 1, INT64_MAX, n_bytes);
    *n_bytes = limit_of_groups(pages > 0 && page_bytes > 0 ? pages * page_bytes : INT64_MAX);
    return STATUS_OK;
}
