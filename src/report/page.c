/* The HTML file: web/template.html with styles, libraries, scripts and data in their places.
 *
 * A place is a line of the template of its own: "@@style@@". Everything goes into the one file, so
 * that it can be opened anywhere, sent by mail, and read in ten years.
 */
#include "report/gather.h"

#include "base/whole_file.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { REAL_DIGITS = 9 };

/* The order in which they are run. */
static const char *const libraries[] = {"chart.min.js", "d3.min.js", "dagre.min.js", NULL};
static const char *const notices[] = {"chart.copyright", "d3.copyright", "dagre.copyright", NULL};
static const char *const scripts[] = {"format.js",   "check.js",    "data.js",     "export.js",
                                      "charts.js",   "sections.js", "machine.js",  "fold.js",
                                      "layer.js",    "network.js",  "timeline.js", "marks.js",
                                      "findings.js", "main.js",     NULL};

static const struct report_file *find_file(const char *name)
{
    for (const struct report_file *f = report_files; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

enum status report_check_build(void)
{
    for (int i = 0; libraries[i]; i++)
        if (!find_file(libraries[i]))
            return status_fail(
                STATUS_FAILED,
                "this build cannot write reports: it was made without %s. With a network 'make' "
                "fetches it, from Debian's libjs-chart.js, node-d3 and node-dagre-layout",
                libraries[i]);
    return STATUS_OK;
}

static void put_file(FILE *f, const char *name)
{
    const struct report_file *file = find_file(name);
    if (file)
        (void)fwrite(file->text, 1, file->n_bytes, f);
    (void)fputc('\n', f);
}

static void put_scripts(FILE *f, const char *const *names)
{
    for (int i = 0; names[i]; i++) {
        (void)fprintf(f, "<script>\n");
        put_file(f, names[i]);
        (void)fprintf(f, "</script>\n");
    }
}

/* As text that no browser runs: the licences ask for it. */
static void put_notices(FILE *f)
{
    (void)fprintf(f, "<script type=\"text/plain\" id=\"licences\">\n");
    for (int i = 0; notices[i]; i++)
        put_file(f, notices[i]);
    (void)fprintf(f, "</script>\n");
}

/* Inside a script element "</" and "<!--" would end or change it. */
static int put_escaped(const char *text, size_t n, void *stream)
{
    FILE *f = stream;
    for (size_t i = 0; i < n; i++)
        if (text[i] == '<')
            (void)fputs("\\u003c", f);
        else
            (void)fputc(text[i], f);
    return 0;
}

static void put_data(FILE *f, const json_t *page)
{
    (void)fprintf(f, "<script type=\"application/json\" id=\"data\">");
    (void)json_dump_callback(page, put_escaped, f, JSON_COMPACT | JSON_REAL_PRECISION(REAL_DIGITS));
    (void)fprintf(f, "</script>\n");
}

static void put_style(FILE *f)
{
    (void)fprintf(f, "<style>\n");
    put_file(f, "style.css");
    (void)fprintf(f, "</style>\n");
}

static void put_place(FILE *f, const char *place, size_t n, const json_t *page)
{
    if (strncmp(place, "style", n) == 0)
        put_style(f);
    else if (strncmp(place, "data", n) == 0)
        put_data(f, page);
    else if (strncmp(place, "scripts", n) == 0) {
        put_notices(f);
        put_scripts(f, libraries);
        put_scripts(f, scripts);
    }
}

static void put_page(FILE *f, const json_t *page)
{
    const char *at = find_file("template.html")->text;
    for (;;) {
        const char *begin = strstr(at, "@@"), *end = begin ? strstr(begin + 2, "@@") : NULL;
        if (!end) {
            (void)fputs(at, f);
            return;
        }
        (void)fwrite(at, 1, (size_t)(begin - at), f);
        put_place(f, begin + 2, (size_t)(end - begin - 2), page);
        at = end + 2;
    }
}

static enum status write_page(FILE *f, void *page)
{
    put_page(f, page);
    return STATUS_OK;
}

enum status report_write_page(const json_t *page, const char *path)
{
    return whole_file_write(path, write_page, (void *)(uintptr_t)page);
}

static void put_date(json_t *page)
{
    char text[32];
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) && strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts) > 0)
        (void)json_object_set_new(page, "written", json_string(text));
    (void)json_object_set_new(page, "version", json_string(CLEAVE_VERSION));
}

enum status report_write(const struct report_request *request)
{
    TRY(report_check_build());
    json_t *page = json_object();
    put_date(page);
    enum status st = report_gather(request, page);
    if (st == STATUS_OK)
        st = report_write_page(page, request->output);
    json_decref(page);
    return st;
}
