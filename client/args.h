/* Options and operands of a command line, read by the tables of command.h. */
#ifndef GEMS_CLIENT_ARGS_H
#define GEMS_CLIENT_ARGS_H

#include "client/command.h"

enum { ARGS_MAX_GIVEN = 256 };

struct args {
    const struct command *command; /* NULL: none was named */
    bool is_help, is_version;
    struct args_given {
        const struct option_entry *entry;
        const char *value;
    } given[ARGS_MAX_GIVEN]; /* in order */
    uint32_t n_given;
    const char **operands; /* within argv */
    uint32_t n_operands;
};

/* Global options may stand before or after the command. argv is reordered and
 * borrowed. GEMS_E_INVALID, GEMS_E_UNSUPPORTED for what a later version has. */
int args_parse(int argc, char **argv, const struct command *const *commands, struct client *client,
               struct args *ret_args, struct gems_error *err);

/* Last value of an option, or NULL; for a flag "" if given. */
const char *args_value(const struct args *args, const char *name);
bool args_has(const struct args *args, const char *name);
/* All values of a repeatable option: at most max, in order; their number. */
uint32_t args_values(const struct args *args, const char *name, const char **ret_values,
                     uint32_t max);

/* Operand i as the number of a job; an option as a whole number in [min, max],
 * *ret_value unchanged if it is not given. GEMS_E_INVALID. */
int args_job(const struct args *args, uint32_t i, uint64_t *ret_job, struct gems_error *err);
int args_number(const struct args *args, const char *name, uint64_t min, uint64_t max,
                uint64_t *ret_value, struct gems_error *err);

/* Text of --help: of a command, or of the program. */
void args_print_help(const struct command *command);
void args_print_overview(const struct command *const *commands);

#endif
