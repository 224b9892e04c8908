#include "data_files.h"

#include <jpeglib.h>
#include <zlib.h>

uint8_t files_pixel(int seed, int y, int x, int c)
{
    return (uint8_t)(128 + (seed * 37 + y * 3 * (c + 1) + x * 5) % 100 - 20 * c);
}

void files_put_be32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

struct file_bytes files_idx(int n, int height, int width)
{
    size_t header = height ? 16 : 8, each = height ? (size_t)height * (size_t)width : 1;
    struct file_bytes f = {NULL, header + (size_t)n * each};
    f.bytes = malloc(f.n);
    assert(f.bytes);
    files_put_be32(f.bytes, height ? 0x803 : 0x801);
    files_put_be32(f.bytes + 4, (uint32_t)n);
    if (height) {
        files_put_be32(f.bytes + 8, (uint32_t)height);
        files_put_be32(f.bytes + 12, (uint32_t)width);
    }
    for (size_t i = 0; i < (size_t)n; i++)
        for (size_t j = 0; j < each; j++)
            f.bytes[header + i * each + j] = (uint8_t)(height ? 7 * i + j : i % 10);
    return f;
}

struct file_bytes files_cifar(int n)
{
    struct file_bytes f = {NULL, (size_t)n * 3073};
    f.bytes = malloc(f.n);
    assert(f.bytes);
    for (size_t i = 0; i < (size_t)n; i++) {
        f.bytes[i * 3073] = (uint8_t)(3 * i % 10);
        for (size_t j = 0; j < 3072; j++)
            f.bytes[i * 3073 + 1 + j] = (uint8_t)(i + j);
    }
    return f;
}

struct file_bytes files_gzip(struct file_bytes plain)
{
    z_stream z = {0};
    int result = deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    assert(result == Z_OK);
    struct file_bytes f = {NULL, deflateBound(&z, plain.n)};
    f.bytes = malloc(f.n);
    assert(f.bytes);
    z.next_in = plain.bytes;
    z.avail_in = (uInt)plain.n;
    z.next_out = f.bytes;
    z.avail_out = (uInt)f.n;
    result = deflate(&z, Z_FINISH);
    assert(result == Z_STREAM_END);
    (void)result;
    f.n = z.total_out;
    (void)deflateEnd(&z);
    return f;
}

struct file_bytes files_jpeg(int seed, int height, int width, int components, bool progressive)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long n = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &n);
    c.image_height = (JDIMENSION)height;
    c.image_width = (JDIMENSION)width;
    c.input_components = components;
    c.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    uint8_t *row = malloc((size_t)width * (size_t)components);
    assert(row);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++)
            for (int k = 0; k < components; k++)
                row[x * components + k] = files_pixel(seed, y, x, k);
        (void)jpeg_write_scanlines(&c, &row, 1);
    }
    free(row);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return (struct file_bytes){out, n};
}

static void files_png_write(png_structp png, png_bytep bytes, size_t n)
{
    struct file_bytes *f = png_get_io_ptr(png);
    f->bytes = realloc(f->bytes, f->n + n);
    assert(f->bytes);
    memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
}

static void files_png_flush(png_structp png)
{
    (void)png;
}

struct file_bytes files_png(int seed, int height, int width, int color_type, int depth,
                            bool interlaced)
{
    struct file_bytes f = {NULL, 0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    assert(png && info);
    png_set_write_fn(png, &f, files_png_write, files_png_flush);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, depth, color_type,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_color palette[256];
    for (int i = 0; i < 256; i++)
        palette[i] = (png_color){(png_byte)i, (png_byte)(255 - i), (png_byte)(i / 2)};
    if (color_type == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(png, info, palette, 1 << depth);
    png_write_info(png, info);
    int n_passes = png_set_interlace_handling(png);
    int channels = png_get_channels(png, info);
    size_t row_bytes = png_get_rowbytes(png, info);
    uint8_t *row = malloc(row_bytes);
    assert(row);
    for (int pass = 0; pass < n_passes; pass++)
        for (int y = 0; y < height; y++) {
            int step = depth == 16 ? 2 * channels : channels;
            for (size_t i = 0; i < row_bytes; i++)
                row[i] = files_pixel(seed, y, (int)i / step, (int)i % step * 8 / depth % 4);
            png_write_row(png, row);
        }
    free(row);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return f;
}

enum status files_read_pack(const uint8_t *bytes, size_t n_bytes, const char *path,
                            struct files_pack *out)
{
    out->bytes = bytes;
    if (n_bytes < sizeof out->header)
        return status_fail(STATUS_FAILED, "%s: truncated", path);
    memcpy(&out->header, bytes, sizeof out->header);
    TRY(pack_check_header(&out->header, n_bytes, path));
    return pack_check_index(&out->header, bytes + out->header.index_offset, path, &out->index);
}

enum status files_check_pack_sample(const struct files_pack *view, const char *path, int64_t index)
{
    const struct pack_entry *e = &view->index.entries[index];
    return pack_check_sample(e, view->bytes + e->offset, path, index);
}
