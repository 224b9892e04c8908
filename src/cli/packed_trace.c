#include "cli/packed_trace.h"

#include "predict/predicted_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status make_file(char path[REPORT_PATH_BYTES])
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(path, REPORT_PATH_BYTES, "%s/cleave-trace-XXXXXX",
                   folder && strlen(folder) < REPORT_PATH_BYTES / 2 ? folder : "/tmp");
    int file = mkstemp(path);
    if (file >= 0 && close(file) == 0)
        return STATUS_OK;
    path[0] = '\0';
    return status_fail(STATUS_FAILED, "cannot make a file in %s: %s", folder ? folder : "/tmp",
                       strerror(errno));
}

enum status packed_trace_write(const struct predict_request *request, const struct prediction *p,
                               char path[REPORT_PATH_BYTES])
{
    TRY(make_file(path));
    return predicted_trace_write(request, p, path, NULL);
}

enum status packed_trace_json(const struct predict_request *request, const struct prediction *p,
                              json_t **out)
{
    char path[REPORT_PATH_BYTES] = "";
    json_t *lines = json_array();
    enum status st = lines ? packed_trace_write(request, p, path) : status_no_memory(0);
    if (st == STATUS_OK)
        st = report_read_trace(path, lines);
    if (path[0])
        (void)unlink(path);
    *out = st == STATUS_OK ? json_incref(json_array_get(lines, 0)) : NULL;
    json_decref(lines);
    return st;
}
