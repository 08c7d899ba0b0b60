/* Input: a configuration file. */
#include <stdbool.h>

#include "common/conf.h"
#include "tests/fuzz/fuzz.h"

struct settings {
    char *name, *path;
    struct conf_list list;
    bool is_on;
    uint64_t number, size, duration;
    int choice;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const choices[] = { "low", "high", NULL };
    static const struct conf_key keys[] = {
        { "", "name", CONF_STRING, offsetof(struct settings, name), 0, 0, NULL },
        { "", "on", CONF_BOOL, offsetof(struct settings, is_on), 0, 0, NULL },
        { "a", "number", CONF_UINT, offsetof(struct settings, number), 1, 100, NULL },
        { "a", "size", CONF_SIZE, offsetof(struct settings, size), 0, 0, NULL },
        { "a", "duration", CONF_DURATION, offsetof(struct settings, duration), 0, 0, NULL },
        { "b", "choice", CONF_CHOICE, offsetof(struct settings, choice), 0, 0, choices },
        { "b", "path", CONF_PATH, offsetof(struct settings, path), 0, 0, NULL },
        { "b", "list", CONF_LIST, offsetof(struct settings, list), 0, 0, NULL },
    };
    static const struct conf_table table = { keys, sizeof keys / sizeof keys[0] };
    struct settings settings = { 0 };

    conf_parse((const char *)data, n, "fuzz", &table, &settings, NULL);
    conf_fini(&table, &settings);
    return 0;
}
