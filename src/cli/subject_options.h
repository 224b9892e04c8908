/* subject_options.h: what a command is about (network, data, batch, machine ..): from its
 * arguments, else from the file of a plan, which says what it was made for, else by default.
 *
 *     struct subject_file s;
 *     TRY(subject_open(&s, "predict", &o->model, &o->plan));   // predict FILE, predict --plan FILE
 *     TRY(subject_take(&s, &o->forecast));
 *     TRY(subject_settle_data(o->model, &o->forecast.data));
 *     subject_tell(&s);
 *     ...
 *     subject_close(&s); // texts that were taken live until then
 */
#ifndef CLEAVE_CLI_SUBJECT_OPTIONS_H
#define CLEAVE_CLI_SUBJECT_OPTIONS_H

#include "plan/plan.h"
#include "predict/forecast.h"

struct subject_file {
    const char *path; /* NULL: there is no plan's file */
    arena *memory;
    struct plan_made_for made;
    char was[256], is[256]; /* where the command line says something else, both */
};

/* Looks for a plan's file in *plan, or in the place of *model, which is then moved to *plan.
 * Without a network among the arguments *model becomes the file's. STATUS_USAGE where nothing names
 * one. *model gets the spelling of the list of networks. Close it also after a failure. */
enum status subject_open(struct subject_file *s, const char *command, const char **model,
                         const char **plan) MUST_USE;
void subject_close(struct subject_file *s);

/* What the file says goes where the command line said nothing; differences are noted. */
void subject_take_data(struct subject_file *s, const char **data, int64_t *batch);
/* Data and batch, and what else a run is told: precision and optimizer. */
enum status subject_take_run(struct subject_file *s, struct forecast_options *o) MUST_USE;
/* All of that, the machine, and the known speed of its devices unless another machine, network or
 * kind of data was asked for. */
enum status subject_take(struct subject_file *s, struct forecast_options *o) MUST_USE;

/* One line on stderr with the differences, if there are any. */
void subject_tell(const struct subject_file *s);

/* Where *data is NULL: Fashion-MNIST for a small network, the shape of ImageNet for a large one,
 * with a line on stderr that says so. */
enum status subject_settle_data(const char *model, const char **data) MUST_USE;
/* For training, which needs data that are there: STATUS_USAGE for a large network without any. */
enum status subject_settle_training_data(const char *model, const char **data) MUST_USE;

/* Notes in the plan what it was made for. machine: whether it was made for the options' one. */
enum status subject_note(const struct forecast_options *o, const struct graph *graph, bool machine,
                         struct plan *plan) MUST_USE;

#endif
