#include "cli/packed_trace.h"

#include "predict/predicted_trace.h"

#include <stdio.h>
#include <stdlib.h>

static enum status pack(char *text, size_t n_bytes, json_t *lines)
{
    FILE *f = fmemopen(text, n_bytes, "r");
    if (!f)
        return status_no_memory(n_bytes);
    enum status st = report_pack_trace(f, "the predicted timeline", lines);
    (void)fclose(f);
    return st;
}

enum status packed_trace_json(const struct predict_request *request, const struct prediction *p,
                              json_t **out)
{
    char *text = NULL;
    size_t n_bytes = 0;
    json_t *lines = json_array();
    FILE *f = open_memstream(&text, &n_bytes);
    enum status st = lines && f ? predicted_trace_put(request, p, f) : status_no_memory(0);
    if (f && fclose(f) != 0 && st == STATUS_OK)
        st = status_no_memory(n_bytes);
    if (st == STATUS_OK)
        st = pack(text, n_bytes, lines);
    *out = st == STATUS_OK ? json_incref(json_array_get(lines, 0)) : NULL;
    free(text);
    json_decref(lines);
    return st;
}
