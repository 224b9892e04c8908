#include "data/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

/* A progressive file may hold any number of scans that each cost a pass over the image. */
enum { SCANS_MAX = 200, PIXELS_PER_BYTE_MAX = 2048 };

struct jpeg_state {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    char message[JMSG_LENGTH_MAX];
};

/* libjpeg's default prints and exits; this one records and leaves. */
static void on_error(j_common_ptr cinfo)
{
    struct jpeg_state *s = cinfo->client_data;
    cinfo->err->format_message(cinfo, s->message);
    longjmp(s->escape, 1);
}

/* Warnings after which pixels are missing or made up are errors; the rest is let pass. */
static void on_message(j_common_ptr cinfo, int level)
{
    if (level >= 0)
        return;
    switch (cinfo->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_NOT_SEQUENTIAL:
    case JWRN_BOGUS_PROGRESSION:
        on_error(cinfo);
        break;
    default:
        break;
    }
}

static void on_progress(j_common_ptr cinfo)
{
    struct jpeg_state *s = cinfo->client_data;
    if (s->cinfo.input_scan_number > SCANS_MAX) {
        (void)snprintf(s->message, sizeof s->message, "more than %d scans", SCANS_MAX);
        longjmp(s->escape, 1);
    }
}

static void refuse(struct jpeg_state *s, const char *why)
{
    (void)snprintf(s->message, sizeof s->message, "%ux%u pixels %s", s->cinfo.image_width,
                   s->cinfo.image_height, why);
    longjmp(s->escape, 1);
}

static void check_size(struct jpeg_state *s, size_t n_bytes)
{
    uint64_t n_pixels = (uint64_t)s->cinfo.image_width * s->cinfo.image_height;
    if (n_pixels > IMAGE_PIXELS_MAX)
        refuse(s, "are more than are allowed");
    if (n_pixels / PIXELS_PER_BYTE_MAX > n_bytes)
        refuse(s, "cannot be in a file of its size");
}

/* The decoder's cheap scales are 1, 1/2, 1/4 and 1/8. */
static void choose_scale(struct jpeg_decompress_struct *c, int least_height, int least_width)
{
    c->scale_denom = 8;
    for (c->scale_num = 1; c->scale_num < 8; c->scale_num *= 2) {
        jpeg_calc_output_dimensions(c);
        if ((int)c->output_height >= least_height && (int)c->output_width >= least_width)
            break;
    }
    jpeg_calc_output_dimensions(c);
}

/* In place: a pixel's three bytes never lie behind its four. Adobe writes CMYK inverted. */
static void cmyk_to_rgb(uint8_t *row, int width, bool inverted)
{
    for (int x = 0; x < width; x++) {
        const uint8_t *in = row + 4 * x;
        int flip = inverted ? 0 : 255, k = in[3] ^ flip;
        int r = (in[0] ^ flip) * k / 255, g = (in[1] ^ flip) * k / 255,
            b = (in[2] ^ flip) * k / 255;
        row[3 * x] = (uint8_t)r;
        row[3 * x + 1] = (uint8_t)g;
        row[3 * x + 2] = (uint8_t)b;
    }
}

static enum status read_rows(struct jpeg_state *s, struct image *out)
{
    struct jpeg_decompress_struct *c = &s->cinfo;
    size_t row_bytes = (size_t)out->width * 3;
    bool cmyk = c->out_color_space == JCS_CMYK;
    /* A row of CMYK is longer than its RGB; the last one needs room behind the image. */
    TRY(buffer_reserve(&out->rgb, row_bytes * (size_t)out->height + (size_t)out->width));
    (void)jpeg_start_decompress(c);
    while (c->output_scanline < c->output_height) {
        uint8_t *row = out->rgb.bytes + row_bytes * c->output_scanline;
        if (jpeg_read_scanlines(c, &row, 1) == 1 && cmyk)
            cmyk_to_rgb(row, out->width, c->saw_Adobe_marker);
    }
    (void)jpeg_finish_decompress(c); /* reads up to the end marker */
    return STATUS_OK;
}

static enum status decode(struct jpeg_state *s, const uint8_t *bytes, size_t n_bytes,
                          int least_height, int least_width, struct image *out)
{
    struct jpeg_decompress_struct *c = &s->cinfo;
    jpeg_mem_src(c, bytes, n_bytes);
    (void)jpeg_read_header(c, TRUE);
    check_size(s, n_bytes);
    bool cmyk = c->jpeg_color_space == JCS_CMYK || c->jpeg_color_space == JCS_YCCK;
    c->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    choose_scale(c, least_height, least_width);
    out->height = (int)c->output_height;
    out->width = (int)c->output_width;
    return read_rows(s, out);
}

enum status image_decode_jpeg(const uint8_t *bytes, size_t n_bytes, const char *name,
                              int least_height, int least_width, struct image *out)
{
    struct jpeg_state s;
    memset(&s, 0, sizeof s);
    s.cinfo.err = jpeg_std_error(&s.errors);
    s.cinfo.client_data = &s;
    s.errors.error_exit = on_error;
    s.errors.emit_message = on_message;
    s.progress.progress_monitor = on_progress;
    if (setjmp(s.escape)) {
        bool no_memory = s.errors.msg_code == JERR_OUT_OF_MEMORY;
        jpeg_destroy_decompress(&s.cinfo);
        if (no_memory)
            return status_no_memory(0);
        return status_fail_content("%s: corrupt JPEG: %s", name, s.message);
    }
    jpeg_create_decompress(&s.cinfo);
    s.cinfo.progress = &s.progress;
    enum status st = decode(&s, bytes, n_bytes, least_height, least_width, out);
    jpeg_destroy_decompress(&s.cinfo);
    return st;
}
