/* Sizes, durations and configuration files: what is read, what is refused. */
#include "common/conf.h"

#include <check.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/fsutil.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/temp_dir.h"

struct reading {
    const char *text;
    uint64_t value;
};

START_TEST(sizes_are_read)
{
    static const struct reading good[] = {
        { "0", 0 },           { "4096", 4096 },       { "16GiB", 16ull << 30 }, { "1.5 MiB", 3 << 19 },
        { "500MB", 500000000 }, { "2kB", 2000 },      { "7B", 7 },              { "3K", 3072 },
        { "2t", 2ull << 40 },   { "0.000001MB", 1 },  { "8388607TiB", 8388607ull << 40 },
    };
    static const char *const bad[] = { "", "GiB", "-1", "1e3", "1.", "1.5.5", "12 GiBs", "1  B", "0x10",
                                       "8388608TiB", "99999999999999999999", "1.1234567M", " 1" };

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t value = 99;

        ck_assert_msg(parse_size(good[i].text, &value, NULL) == GEMS_OK, "%s", good[i].text);
        ck_assert_msg(value == good[i].value, "%s: %" PRIu64, good[i].text, value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct gems_error err = { 0 };
        uint64_t value = 99;

        ck_assert_msg(parse_size(bad[i], &value, &err) == GEMS_E_INVALID, "%s", bad[i]);
        ck_assert_uint_eq(value, 99);
        ck_assert_ptr_nonnull(strstr(err.text, bad[i]));
    }
}
END_TEST

START_TEST(durations_are_read)
{
    static const struct reading good[] = {
        { "4h", 14400000 }, { "1h30m", 5400000 }, { "90s", 90000 },   { "250ms", 250 },
        { "2d", 172800000 }, { "10", 10000 },     { "1m5s20ms", 65020 }, { "0", 0 },
    };
    static const char *const bad[] = { "", "h", "-1s", "1.5h", "1s1h", "1s1s", "5x", "1h30", "1 h",
                                       "99999999999999999d", "1msx" };

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t value = 99;

        ck_assert_msg(parse_duration(good[i].text, &value, NULL) == GEMS_OK, "%s", good[i].text);
        ck_assert_msg(value == good[i].value, "%s: %" PRIu64, good[i].text, value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct gems_error err = { 0 };
        uint64_t value = 99;

        ck_assert_msg(parse_duration(bad[i], &value, &err) == GEMS_E_INVALID, "%s", bad[i]);
        ck_assert_uint_eq(value, 99);
    }
}
END_TEST

START_TEST(sizes_and_durations_are_written)
{
    char text[32];

    ck_assert_str_eq(format_size(0, text, sizeof text), "0 B");
    ck_assert_str_eq(format_size(1023, text, sizeof text), "1023 B");
    ck_assert_str_eq(format_size(1024, text, sizeof text), "1.0 KiB");
    ck_assert_str_eq(format_size((1 << 20) - 1, text, sizeof text), "1.0 MiB");
    ck_assert_str_eq(format_size(16ull << 30, text, sizeof text), "16.0 GiB");
    ck_assert_str_eq(format_size(UINT64_MAX, text, sizeof text), "16.0 EiB");
    ck_assert_str_eq(format_duration(0, text, sizeof text), "0ms");
    ck_assert_str_eq(format_duration(999, text, sizeof text), "999ms");
    ck_assert_str_eq(format_duration(59999, text, sizeof text), "59s");
    ck_assert_str_eq(format_duration(245000, text, sizeof text), "4m05s");
    ck_assert_str_eq(format_duration(3600000, text, sizeof text), "1h00m");
    ck_assert_str_eq(format_duration(187200000, text, sizeof text), "2d04h");
}
END_TEST

/* ---- files ---- */

struct settings {
    char *name, *path;
    struct conf_list roots;
    bool is_on;
    uint64_t jobs, memory_bytes, timeout_ms;
    int level;
};

static const char *const level_names[] = { "low", "high", NULL };

#define AT(member) offsetof(struct settings, member)
static const struct conf_key keys[] = {
    { "", "name", CONF_STRING, AT(name), 0, 0, NULL },
    { "", "on", CONF_BOOL, AT(is_on), 0, 0, NULL },
    { "limits", "jobs", CONF_UINT, AT(jobs), 1, 1000, NULL },
    { "limits", "memory", CONF_SIZE, AT(memory_bytes), 1 << 20, 0, NULL },
    { "limits", "timeout", CONF_DURATION, AT(timeout_ms), 1000, 3600000, NULL },
    { "log", "level", CONF_CHOICE, AT(level), 0, 0, level_names },
    { "log", "path", CONF_PATH, AT(path), 0, 0, NULL },
    { "log", "roots", CONF_LIST, AT(roots), 0, 0, NULL },
};
static const struct conf_table table = { keys, sizeof keys / sizeof keys[0] };

static int parse(const char *text, struct settings *settings, struct gems_error *err)
{
    return conf_parse(text, strlen(text), "t.conf", &table, settings, err);
}

START_TEST(every_kind_is_read)
{
    static const char text[] = "# comment\n"
                               "name = \"a \\\"b\\\" \\\\ c \"\n"
                               "  on=yes\n"
                               "; comment\n"
                               "[limits]\n"
                               "jobs = 7\r\n"
                               "memory = 16GiB\n"
                               "timeout = 1m30s\n"
                               "\n"
                               "[log]\n"
                               "level = high\n"
                               "path = /var/log/gems\n"
                               "roots = /a, /b\t/c";
    struct settings settings = { .jobs = 1 };
    struct gems_error err = { 0 };

    ck_assert_msg(parse(text, &settings, &err) == GEMS_OK, "%s", err.text);
    ck_assert_str_eq(settings.name, "a \"b\" \\ c ");
    ck_assert(settings.is_on);
    ck_assert_uint_eq(settings.jobs, 7);
    ck_assert_uint_eq(settings.memory_bytes, 16ull << 30);
    ck_assert_uint_eq(settings.timeout_ms, 90000);
    ck_assert_int_eq(settings.level, 1);
    ck_assert_str_eq(settings.path, "/var/log/gems");
    ck_assert_uint_eq(settings.roots.n, 3);
    ck_assert_str_eq(settings.roots.items[2], "/c");
    conf_fini(&table, &settings);
    ck_assert_ptr_null(settings.name);
    ck_assert_uint_eq(settings.roots.n, 0);
}
END_TEST

START_TEST(what_is_not_given_stays)
{
    struct settings settings = { .jobs = 42, .level = 1 };

    ck_assert_int_eq(parse("[limits]\n", &settings, NULL), GEMS_OK);
    ck_assert_uint_eq(settings.jobs, 42);
    ck_assert_int_eq(settings.level, 1);
}
END_TEST

static const struct {
    const char *text, *error, *hint;
} bad_files[] = {
    { "nam = x\n", "t.conf:1:1: unknown key 'nam'", "known here: name, on" },
    { "\n  jobs = 1\n", "t.conf:2:3: unknown key 'jobs'", "known here: name, on" },
    { "[limit]\n", "t.conf:1:1: unknown section [limit]", "known: [limits], [log]" },
    { "[limits\n", "t.conf:1:1: a heading is [section]", "" },
    { "name\n", "t.conf:1:1: 'key = value' expected", "" },
    { "name = a\nname = b\n", "t.conf:2:1: 'name' is given twice", "" },
    { "on = maybe\n", "t.conf:1:6: on: 'maybe' is neither yes nor no", "yes, no, true, false, on or off" },
    { "[limits]\njobs = 0\n", "t.conf:2:8: jobs: 0 is out of range", "from 1 to 1000" },
    { "[limits]\njobs = 1001\n", "t.conf:2:8: jobs: 1001 is out of range", "from 1 to 1000" },
    { "[limits]\njobs = x\n", "t.conf:2:8: jobs: 'x' is not a whole number", "" },
    { "[limits]\nmemory = 5\n", "t.conf:2:10: memory: 5 is out of range", "at least 1.0 MiB" },
    { "[limits]\nmemory = 5GG\n", "t.conf:2:10: memory: '5GG' is not a size",
      "a number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 16GiB" },
    { "[limits]\ntimeout = 2h\n", "t.conf:2:11: timeout: 2h is out of range", "from 1s to 1h00m" },
    { "[log]\nlevel = mid\n", "t.conf:2:9: level: 'mid' is not known here", "one of low, high" },
    { "[log]\npath = here\n", "t.conf:2:8: path: 'here' is not an absolute path", "" },
    { "name = \"open\n", "t.conf:1:8: bad quotes: \"text\" with \\\" and \\\\ inside", "" },
    { "name = \"a\" b\n", "t.conf:1:8: bad quotes: \"text\" with \\\" and \\\\ inside", "" },
};

START_TEST(mistake_is_named_with_its_place)
{
    struct settings settings = { 0 };
    struct gems_error err = { 0 };

    ck_assert_int_eq(parse(bad_files[_i].text, &settings, &err), GEMS_E_INVALID);
    ck_assert_int_eq(err.status, GEMS_E_INVALID);
    ck_assert_str_eq(err.text, bad_files[_i].error);
    ck_assert_str_eq(err.hint, bad_files[_i].hint);
    conf_fini(&table, &settings);
}
END_TEST

START_TEST(file_that_is_no_text_is_refused)
{
    static char text[6000];
    struct settings settings = { 0 };

    ck_assert_int_eq(conf_parse("name = a\0b\n", 11, "t", &table, &settings, NULL), GEMS_E_INVALID);
    memset(text, 'a', sizeof text);
    ck_assert_int_eq(conf_parse(text, sizeof text, "t", &table, &settings, NULL), GEMS_E_INVALID);
    conf_fini(&table, &settings);
}
END_TEST

START_TEST(file_is_loaded_and_options_override_it)
{
    struct settings settings = { 0 };
    struct gems_error err = { 0 };
    struct temp_dir dir;
    const char *path;

    temp_dir_create(&dir);
    path = temp_dir_file(&dir, "gems.conf");
    ck_assert_int_eq(conf_load(path, &table, &settings, &err), GEMS_E_NOTFOUND);
    ck_assert_int_eq(fs_write_atomic(path, "name = a\n[limits]\njobs = 5\n", 27, 0600, NULL), GEMS_OK);
    ck_assert_msg(conf_load(path, &table, &settings, &err) == GEMS_OK, "%s", err.text);
    ck_assert_int_eq(conf_set(&table, &settings, "name", "b", &err), GEMS_OK);
    ck_assert_int_eq(conf_set(&table, &settings, "limits.jobs", "6", &err), GEMS_OK);
    ck_assert_str_eq(settings.name, "b");
    ck_assert_uint_eq(settings.jobs, 6);
    ck_assert_int_eq(conf_set(&table, &settings, "limits.jobs", "0", &err), GEMS_E_INVALID);
    ck_assert_str_eq(err.text, "limits.jobs: 0 is out of range");
    ck_assert_int_eq(conf_set(&table, &settings, "jobs", "1", &err), GEMS_E_INVALID);
    ck_assert_uint_eq(settings.jobs, 6);
    conf_fini(&table, &settings);
    temp_dir_destroy(&dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conf");
    TCase *mistakes = tcase_create("mistakes");

    suite_case(suite, "sizes", sizes_are_read);
    suite_case(suite, "durations", durations_are_read);
    suite_case(suite, "formats", sizes_and_durations_are_written);
    suite_case(suite, "kinds", every_kind_is_read);
    suite_case(suite, "defaults", what_is_not_given_stays);
    suite_case(suite, "no text", file_that_is_no_text_is_refused);
    suite_case(suite, "load", file_is_loaded_and_options_override_it);
    tcase_set_timeout(mistakes, 60);
    tcase_add_loop_test(mistakes, mistake_is_named_with_its_place, 0,
                        sizeof bad_files / sizeof bad_files[0]);
    suite_add_tcase(suite, mistakes);
    return run_suite(suite);
}
