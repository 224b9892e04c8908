#include "data/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One output coordinate is a weighted sum of `count` inputs from `start` on; the same along rows
 * and columns, so fitting is a vertical pass into one row of floats and a horizontal one out of it.
 */
struct tap {
    int start, count;
    float *weights;
};

static int most_taps(double ratio)
{
    return ratio > 2 ? (int)ceil(ratio) + 2 : 2;
}

static void bilinear_tap(double centre, int source, struct tap *tap)
{
    double at = centre - 0.5;
    int low = (int)floor(at);
    float f = (float)(at - low);
    if (low < 0 || low + 1 >= source) { /* beyond the last pixel's middle: just that pixel */
        tap->start = low < 0 ? 0 : source - 1;
        tap->count = 1;
        tap->weights[0] = 1;
        return;
    }
    tap->start = low;
    tap->count = 2;
    tap->weights[0] = 1 - f;
    tap->weights[1] = f;
}

static void area_tap(double low, double high, int source, int most, struct tap *tap)
{
    low = fmax(low, 0);
    high = fmin(high, source);
    tap->start = (int)low;
    if (tap->start > source - 1)
        tap->start = source - 1;
    tap->count = 0;
    float total = 0;
    for (int i = tap->start; i < source && tap->count < most && (i < high || tap->count == 0);
         i++) {
        float overlap = (float)(fmin(high, i + 1) - fmax(low, i));
        tap->weights[tap->count++] = fmaxf(overlap, 1e-6f);
        total += fmaxf(overlap, 1e-6f);
    }
    for (int i = 0; i < tap->count; i++)
        tap->weights[i] /= total;
}

/* `ratio` inputs per output, the outputs centred on the inputs. */
static void fill_taps(struct tap *taps, float *weights, int target, int source, double ratio)
{
    double origin = (source - target * ratio) / 2;
    int most = most_taps(ratio);
    for (int i = 0; i < target; i++) {
        taps[i].weights = weights + (size_t)i * (size_t)most;
        if (ratio > 2)
            area_tap(origin + i * ratio, origin + (i + 1) * ratio, source, most, &taps[i]);
        else
            bilinear_tap(origin + (i + 0.5) * ratio, source, &taps[i]);
    }
}

/* row[j] = sum over the tap's rows of weight * pixel, for the bytes [low, low + n) of a row. */
static void sum_rows(const struct image *image, const struct tap *tap, size_t low, size_t n,
                     float *restrict row)
{
    size_t row_bytes = (size_t)image->width * 3;
    memset(row, 0, n * sizeof *row);
    for (int k = 0; k < tap->count; k++) {
        const uint8_t *restrict in = image->rgb.bytes + (size_t)(tap->start + k) * row_bytes + low;
        float weight = tap->weights[k];
        for (size_t j = 0; j < n; j++)
            row[j] += weight * in[j];
    }
}

/* A pixel's three colours and one float of the next pixel, which is thrown away: the row has room
 * for one float behind its end. */
typedef float colours __attribute__((vector_size(16)));
typedef int32_t rounded __attribute__((vector_size(16)));

static void sum_columns(const float *row, const struct tap *taps, int first, int width,
                        size_t plane, uint8_t *out)
{
    for (int x = 0; x < width; x++) {
        const float *in = row + 3 * (size_t)(taps[x].start - first);
        colours sum = {0.5f, 0.5f, 0.5f, 0.5f}; /* rounds; weights add up to 1, give or take 1e-6 */
        for (int k = 0; k < taps[x].count; k++, in += 3) {
            colours pixel;
            memcpy(&pixel, in, sizeof pixel);
            sum += taps[x].weights[k] * pixel;
        }
        rounded value = __builtin_convertvector(sum, rounded);
        out[x] = (uint8_t)value[0];
        out[plane + (size_t)x] = (uint8_t)value[1];
        out[2 * plane + (size_t)x] = (uint8_t)value[2];
    }
}

enum status image_fit(const struct image *image, int height, int width, struct buffer *scratch,
                      uint8_t *pixels)
{
    double ratio = fmin((double)image->height / height, (double)image->width / width);
    size_t h = (size_t)height, w = (size_t)width, most = (size_t)most_taps(ratio);
    size_t taps_bytes = (h + w) * sizeof(struct tap),
           weights_bytes = (h + w) * most * sizeof(float);
    TRY(buffer_reserve(scratch, taps_bytes + weights_bytes +
                                    ((size_t)image->width * 3 + 1) * sizeof(float)));
    struct tap *rows = (struct tap *)(void *)scratch->bytes, *columns = rows + h;
    float *weights = (float *)(void *)(scratch->bytes + taps_bytes);
    float *row = weights + (h + w) * most;
    fill_taps(rows, weights, height, image->height, ratio);
    fill_taps(columns, weights + h * most, width, image->width, ratio);

    int first = columns[0].start, end = columns[w - 1].start + columns[w - 1].count;
    row[3 * (size_t)(end - first)] = 0;
    for (size_t y = 0; y < h; y++) {
        sum_rows(image, &rows[y], 3 * (size_t)first, 3 * (size_t)(end - first), row);
        sum_columns(row, columns, first, width, h * w, pixels + y * w);
    }
    return STATUS_OK;
}

enum status image_decode(const uint8_t *bytes, size_t n_bytes, const char *name, int height,
                         int width, struct image_scratch *scratch, uint8_t *pixels)
{
    static const uint8_t png_magic[] = {0x89, 'P', 'N', 'G'};
    if (n_bytes >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8)
        TRY(image_decode_jpeg(bytes, n_bytes, name, height, width, &scratch->image));
    else if (n_bytes >= sizeof png_magic && memcmp(bytes, png_magic, sizeof png_magic) == 0)
        TRY(image_decode_png(bytes, n_bytes, name, &scratch->image));
    else
        return status_fail_content("%s: neither JPEG nor PNG (%zu bytes)", name, n_bytes);
    return image_fit(&scratch->image, height, width, &scratch->fit, pixels);
}

void image_pool_init(struct image_pool *pool)
{
    (void)pthread_mutex_init(&pool->lock, NULL);
    pool->idle = NULL;
}

void image_pool_deinit(struct image_pool *pool)
{
    for (struct image_scratch *s = pool->idle, *next; s; s = next) {
        next = s->next;
        buffer_free(&s->file);
        buffer_free(&s->fit);
        buffer_free(&s->image.rgb);
        free(s);
    }
    (void)pthread_mutex_destroy(&pool->lock);
}

enum status image_pool_take(struct image_pool *pool, struct image_scratch **out)
{
    (void)pthread_mutex_lock(&pool->lock);
    struct image_scratch *s = pool->idle;
    if (s)
        pool->idle = s->next;
    (void)pthread_mutex_unlock(&pool->lock);
    if (!s)
        s = calloc(1, sizeof *s);
    *out = s;
    return s ? STATUS_OK : status_no_memory(sizeof *s);
}

void image_pool_return(struct image_pool *pool, struct image_scratch *scratch)
{
    (void)pthread_mutex_lock(&pool->lock);
    scratch->next = pool->idle;
    pool->idle = scratch;
    (void)pthread_mutex_unlock(&pool->lock);
}
