#include "data/image.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_MAX = 65535, CHUNK_BYTES_MAX = 8 << 20, INFLATE_RATIO_MAX = 1032 };

struct png_state {
    const uint8_t *bytes;
    size_t n_left, n_bytes;
    char message[160];
    size_t n_wanting; /* bytes that there was no memory for; 0: there was for all */
    png_structp png;
    png_infop info;
};

static void on_error(png_structp png, png_const_charp message)
{
    struct png_state *s = png_get_error_ptr(png);
    (void)snprintf(s->message, sizeof s->message, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

/* For libpng all failures are one; memory that ran out says nothing of the image. */
static png_voidp on_alloc(png_structp png, png_alloc_size_t n_bytes)
{
    struct png_state *s = png_get_mem_ptr(png);
    void *memory = malloc(n_bytes);
    if (!memory)
        s->n_wanting = n_bytes;
    return memory;
}

static void on_free(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static void on_read(png_structp png, png_bytep out, size_t n_bytes)
{
    struct png_state *s = png_get_io_ptr(png);
    if (n_bytes > s->n_left)
        png_error(png, "truncated: the data stop before the end of the image");
    memcpy(out, s->bytes, n_bytes);
    s->bytes += n_bytes;
    s->n_left -= n_bytes;
}

static void check_size(struct png_state *s, uint64_t height, uint64_t width)
{
    uint64_t packed_bytes = (uint64_t)png_get_rowbytes(s->png, s->info) * height;
    if (height * width > IMAGE_PIXELS_MAX)
        png_error(s->png, "more pixels than are allowed");
    if (packed_bytes / INFLATE_RATIO_MAX > s->n_bytes)
        png_error(s->png, "more pixels than can be in a file of its size");
}

static void ask_for_rgb(struct png_state *s)
{
    png_set_scale_16(s->png);
    png_set_expand(s->png);
    png_set_strip_alpha(s->png);
    png_set_gray_to_rgb(s->png);
}

static enum status decode(struct png_state *s, struct image *out)
{
    png_set_read_fn(s->png, s, on_read);
    png_set_user_limits(s->png, SIDE_MAX, SIDE_MAX);
    png_set_chunk_malloc_max(s->png, CHUNK_BYTES_MAX);
    png_read_info(s->png, s->info);
    out->height = (int)png_get_image_height(s->png, s->info);
    out->width = (int)png_get_image_width(s->png, s->info);
    check_size(s, (uint64_t)out->height, (uint64_t)out->width);
    ask_for_rgb(s);
    int n_passes = png_set_interlace_handling(s->png);
    png_read_update_info(s->png, s->info);
    size_t row_bytes = png_get_rowbytes(s->png, s->info);
    if (row_bytes != (size_t)out->width * 3)
        png_error(s->png, "a colour type that does not become RGB");
    TRY(buffer_reserve(&out->rgb, row_bytes * (size_t)out->height));
    for (int pass = 0; pass < n_passes; pass++)
        for (int y = 0; y < out->height; y++)
            png_read_row(s->png, out->rgb.bytes + row_bytes * (size_t)y, NULL);
    png_read_end(s->png, NULL);
    return STATUS_OK;
}

enum status image_decode_png(const uint8_t *bytes, size_t n_bytes, const char *name,
                             struct image *out)
{
    struct png_state s = {.bytes = bytes, .n_left = n_bytes, .n_bytes = n_bytes};
    s.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning, &s, on_alloc,
                                     on_free);
    if (!s.png)
        return status_no_memory(0);
    s.info = png_create_info_struct(s.png);
    if (!s.info) {
        png_destroy_read_struct(&s.png, NULL, NULL);
        return status_no_memory(0);
    }
    if (setjmp(png_jmpbuf(s.png))) {
        png_destroy_read_struct(&s.png, &s.info, NULL);
        if (s.n_wanting)
            return status_no_memory(s.n_wanting);
        return status_fail_content("%s: corrupt PNG: %s", name, s.message);
    }
    enum status st = decode(&s, out);
    png_destroy_read_struct(&s.png, &s.info, NULL);
    return st;
}
