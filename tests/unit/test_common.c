/* Buffers, lists, files, hashes, log, clock, notifications. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "common/hash.h"
#include "common/list.h"
#include "common/log.h"
#include "common/notify.h"
#include "common/rng.h"
#include "tests/lib/clock_fake.h"
#include "tests/lib/log_catch.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/temp_dir.h"

/* ---- buf ---- */

START_TEST(buffer_grows_and_drops)
{
    struct buf buf = { 0 };
    char *text;

    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(buf_printf(&buf, "%03d,", i), GEMS_OK);
    }
    ck_assert_uint_eq(buf.n, 4000);
    buf_drop(&buf, 4 * 998);
    ck_assert_int_eq(buf_add_string(&buf, "end"), GEMS_OK);
    text = buf_take(&buf);
    ck_assert_str_eq(text, "998,999,end");
    ck_assert_ptr_null(buf.data);
    free(text);
}
END_TEST

START_TEST(buffer_failure_sticks_until_cleared)
{
    struct buf buf = { 0 };

    ck_assert_int_eq(buf_add(&buf, "ab", 2), GEMS_OK);
    ck_assert_int_eq(buf_reserve(&buf, SIZE_MAX - 1), GEMS_E_NOMEM);
    ck_assert_int_eq(buf_add(&buf, "c", 1), GEMS_E_NOMEM);
    ck_assert_uint_eq(buf.n, 2);
    buf_clear(&buf);
    ck_assert_int_eq(buf_add(&buf, "c", 1), GEMS_OK);
    ck_assert_int_eq(buf_reserve(&buf, SIZE_MAX / 2), GEMS_E_NOMEM);
    ck_assert_ptr_null(buf_take(&buf));
    buf_fini(&buf);
}
END_TEST

START_TEST(empty_buffer_gives_an_empty_text)
{
    struct buf buf = { 0 };
    char *text = buf_take(&buf);

    ck_assert_str_eq(text, "");
    free(text);
}
END_TEST

/* ---- list ---- */

struct item {
    int value;
    struct list link;
};

START_TEST(list_keeps_order_and_allows_removal_while_walking)
{
    struct item items[5];
    struct list head;
    int sum = 0;

    list_init(&head);
    ck_assert(list_is_empty(&head));
    ck_assert_ptr_null(list_pop(&head));
    for (int i = 0; i < 5; i++) {
        items[i].value = i;
        list_push(&head, &items[i].link);
    }
    list_each (&head, link) {
        struct item *item = list_item(link, struct item, link);

        if (item->value % 2 == 1) {
            list_remove(link);
            list_remove(link); /* twice does no harm */
        }
    }
    ck_assert_uint_eq(list_count(&head), 3);
    list_push_first(&head, &items[1].link);
    list_insert_before(&items[4].link, &items[3].link);
    for (int i = 0; !list_is_empty(&head); i++) {
        static const int expected[] = { 1, 0, 2, 3, 4 };
        struct item *item = list_item(list_pop(&head), struct item, link);

        ck_assert_int_eq(item->value, expected[i]);
        sum += item->value;
    }
    ck_assert_int_eq(sum, 10);
}
END_TEST

/* ---- files ---- */

START_TEST(file_is_replaced_as_a_whole)
{
    struct temp_dir dir;
    struct buf buf = { 0 };
    struct stat file;
    const char *path;

    temp_dir_create(&dir);
    path = temp_dir_file(&dir, "state");
    ck_assert_int_eq(fs_write_atomic(path, "first", 5, 0640, NULL), GEMS_OK);
    ck_assert_int_eq(fs_write_atomic(path, "second one", 10, 0600, NULL), GEMS_OK);
    ck_assert_int_eq(stat(path, &file), 0);
    ck_assert_uint_eq(file.st_mode & 07777, 0600);
    ck_assert_int_eq(buf_add_string(&buf, ">"), GEMS_OK);
    ck_assert_int_eq(fs_read(path, 10, &buf, NULL), GEMS_OK);
    ck_assert_uint_eq(buf.n, 11);
    ck_assert_mem_eq(buf.data, ">second one", 11);
    buf_fini(&buf);
    ck_assert_int_eq(rmdir(dir.path), -1);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(dir.path), 0); /* no temporary file is left */
}
END_TEST

START_TEST(failed_write_leaves_the_old_file)
{
    struct gems_error err = { 0 };

    ck_assert_int_eq(fs_write_atomic("/nonexistent/x", "a", 1, 0600, &err), GEMS_E_NOTFOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/x"));
}
END_TEST

START_TEST(reading_has_a_limit)
{
    struct temp_dir dir;
    struct buf buf = { 0 };
    struct gems_error err = { 0 };
    const char *path;

    temp_dir_create(&dir);
    path = temp_dir_file(&dir, "big");
    ck_assert_int_eq(fs_write_atomic(path, "12345", 5, 0600, NULL), GEMS_OK);
    ck_assert_int_eq(fs_read(path, 4, &buf, &err), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "larger than 4"));
    ck_assert_uint_eq(buf.n, 0);
    ck_assert_int_eq(fs_read(dir.path, 4, &buf, &err), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "is a directory"));
    ck_assert_int_eq(fs_read(temp_dir_file(&dir, "none"), 4, &buf, &err), GEMS_E_NOTFOUND);
    ck_assert_int_eq(fs_read("/dev/zero", 100000, &buf, &err), GEMS_E_INVALID);
    buf_fini(&buf);
    temp_dir_destroy(&dir);
}
END_TEST

START_TEST(folders_are_made_on_the_way)
{
    struct temp_dir dir;
    struct gems_error err = { 0 };
    uint64_t bytes = 0;

    temp_dir_create(&dir);
    ck_assert_int_eq(fs_mkdirs(temp_dir_file(&dir, "a/b//c/"), 0700, &err), GEMS_OK);
    ck_assert_int_eq(access(temp_dir_file(&dir, "a/b/c"), X_OK), 0);
    ck_assert_int_eq(fs_mkdirs(temp_dir_file(&dir, "a/b/c"), 0700, &err), GEMS_OK);
    ck_assert_int_eq(fs_write_atomic(temp_dir_file(&dir, "a/file"), "", 0, 0600, NULL), GEMS_OK);
    ck_assert_int_eq(fs_mkdirs(temp_dir_file(&dir, "a/file"), 0700, &err), GEMS_E_IO);
    ck_assert_int_eq(fs_mkdirs(temp_dir_file(&dir, "a/file/x"), 0700, &err), GEMS_E_IO);
    ck_assert_int_eq(fs_sync_dir(dir.path, &err), GEMS_OK);
    ck_assert_int_eq(fs_free_bytes(dir.path, &bytes, &err), GEMS_OK);
    ck_assert_uint_gt(bytes, 0);
    temp_dir_destroy(&dir);
    ck_assert_int_ne(access(dir.path, F_OK), 0);
}
END_TEST

START_TEST(removal_stays_inside)
{
    static const char *const bad[] = { "", ".", "..", "a/..", "a/../../x", "/etc", "a//b", "a/", "./a" };
    struct temp_dir dir;
    struct gems_error err = { 0 };

    temp_dir_create(&dir);
    ck_assert_int_eq(fs_mkdirs(temp_dir_file(&dir, "keep/deep"), 0700, NULL), GEMS_OK);
    ck_assert_int_eq(fs_mkdirs(temp_dir_file(&dir, "jobs/1/deep"), 0700, NULL), GEMS_OK);
    ck_assert_int_eq(symlink("../../keep", temp_dir_file(&dir, "jobs/1/link")), 0);
    ck_assert_int_eq(symlink("../keep", temp_dir_file(&dir, "jobs/out")), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(fs_remove_tree(temp_dir_file(&dir, "jobs"), bad[i], &err), GEMS_E_INVALID);
    }
    ck_assert_int_lt(fs_remove_tree(temp_dir_file(&dir, "jobs"), "out/deep", &err), 0);
    ck_assert_int_eq(fs_remove_tree(temp_dir_file(&dir, "jobs"), "1", &err), GEMS_OK);
    ck_assert_int_eq(fs_remove_tree(temp_dir_file(&dir, "jobs"), "out", &err), GEMS_OK);
    ck_assert_int_eq(fs_remove_tree(temp_dir_file(&dir, "jobs"), "none", &err), GEMS_OK);
    ck_assert_int_eq(access(temp_dir_file(&dir, "keep/deep"), F_OK), 0);
    ck_assert_int_ne(access(temp_dir_file(&dir, "jobs/1"), F_OK), 0);
    temp_dir_destroy(&dir);
}
END_TEST

/* ---- hashes ---- */

START_TEST(hashes_have_published_values)
{
    uint8_t sum[HASH_SHA256_BYTES];
    char hex[HASH_SHA256_HEX_BYTES];

    /* XXH3-128 of nothing: xxHash's own test vectors. */
    hash_of("", 0, sum);
    hash_to_hex(sum, HASH_BYTES, hex);
    ck_assert_str_eq(hex, "99aa06d3014798d86001c324468d497f");
    /* FIPS 180-2, appendix B.1. */
    ck_assert_int_eq(hash_sha256("abc", 3, sum, NULL), GEMS_OK);
    hash_to_hex(sum, sizeof sum, hex);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    /* RFC 4231, test case 2. */
    ck_assert_int_eq(hash_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, sum, NULL), GEMS_OK);
    hash_to_hex(sum, sizeof sum, hex);
    ck_assert_str_eq(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}
END_TEST

START_TEST(stream_equals_one_shot)
{
    struct hash_stream *stream = hash_create(NULL);
    uint8_t data[5000];
    uint8_t whole[HASH_BYTES];
    uint8_t parts[HASH_BYTES];

    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(i * 31);
    }
    for (size_t at = 0, n = 0; at < sizeof data; at += n) {
        n = 1 + at % 700;
        n = n < sizeof data - at ? n : sizeof data - at;
        hash_add(stream, data + at, n);
        hash_of(data, at + n, whole);
        hash_value(stream, parts);
        ck_assert_mem_eq(whole, parts, HASH_BYTES);
    }
    hash_destroy(stream);
    hash_destroy(NULL);
}
END_TEST

START_TEST(hex_is_read_strictly)
{
    uint8_t bytes[3] = { 9, 9, 9 };

    ck_assert_int_eq(hash_from_hex("00ffA1", bytes, 3, NULL), GEMS_OK);
    ck_assert_mem_eq(bytes, "\x00\xff\xa1", 3);
    ck_assert_int_eq(hash_from_hex("00ffA", bytes, 3, NULL), GEMS_E_INVALID);
    ck_assert_int_eq(hash_from_hex("00ffA100", bytes, 3, NULL), GEMS_E_INVALID);
    ck_assert_int_eq(hash_from_hex("11ffAg", bytes, 3, NULL), GEMS_E_INVALID);
    ck_assert_mem_eq(bytes, "\x00\xff\xa1", 3);
}
END_TEST

START_TEST(random_bytes_differ_and_compare)
{
    uint8_t a[64] = { 0 };
    uint8_t b[64] = { 0 };

    ck_assert_int_eq(hash_random(a, sizeof a, NULL), GEMS_OK);
    ck_assert_int_eq(hash_random(b, sizeof b, NULL), GEMS_OK);
    ck_assert(!hash_equal(a, b, sizeof a));
    memcpy(b, a, sizeof a);
    ck_assert(hash_equal(a, b, sizeof a));
    b[63] ^= 1;
    ck_assert(!hash_equal(a, b, sizeof a));
}
END_TEST

/* ---- random numbers ---- */

START_TEST(random_numbers_belong_to_their_position)
{
    uint64_t stream = rng_stream(RNG_SHUFFLE, 3);
    double sum = 0;
    double squares = 0;
    enum { DRAWS = 20000 };

    ck_assert_uint_eq(rng_u64(1, stream, 7), rng_u64(1, stream, 7));
    ck_assert_uint_ne(rng_u64(1, stream, 7), rng_u64(1, stream, 8));
    ck_assert_uint_ne(rng_u64(1, stream, 7), rng_u64(2, stream, 7));
    ck_assert_uint_ne(rng_u64(1, stream, 7), rng_u64(1, rng_stream(RNG_AUGMENT, 3), 7));
    for (uint64_t i = 0; i < DRAWS; i++) {
        double normal = rng_normal(5, stream, i);
        double unit = rng_unit(5, stream, i);

        ck_assert(unit >= 0 && unit < 1);
        ck_assert_uint_lt(rng_below(5, stream, i, 10), 10);
        sum += normal;
        squares += normal * normal;
    }
    /* Five standard errors: 1/sqrt(n) of the mean, sqrt(2/n) of the variance. */
    ck_assert_double_eq_tol(sum / DRAWS, 0, 5 / 141.4);
    ck_assert_double_eq_tol(squares / DRAWS, 1, 5 / 100.0);
}
END_TEST

/* ---- log and clock ---- */

START_TEST(log_lines_cannot_be_forged)
{
    log_catch_start();
    log_error("job '%s' failed", "a\nb\x1b[31m\x7f");
    ck_assert(log_catch_expect("job 'a\\x0ab\\x1b[31m\\x7f' failed"));
    log_debug("not shown");
    ck_assert(!log_catch_expect("not shown"));
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("shown");
    ck_assert(log_catch_expect("shown"));
    log_set_level(LOG_LEVEL_ERROR);
    log_warning("quiet");
    ck_assert(!log_catch_expect("quiet"));
    log_set_level(LOG_LEVEL_INFO);
    ck_assert_ptr_null(log_catch_end());
}
END_TEST

START_TEST(unexpected_error_line_is_noticed)
{
    log_catch_start();
    log_info("fine");
    log_warning("oh");
    ck_assert_str_eq(log_catch_end(), "oh");
}
END_TEST

/* What a line looks like on stderr; with a variable that names this stderr. */
static void capture_line(bool is_journal, char *line, size_t room)
{
    int fds[2];
    int saved = dup(STDERR_FILENO);
    struct stat st;
    ssize_t n;

    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_ge(dup2(fds[1], STDERR_FILENO), 0);
    if (is_journal) {
        char stream[64];

        fstat(STDERR_FILENO, &st);
        snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev,
                 (unsigned long long)st.st_ino);
        setenv("JOURNAL_STREAM", stream, 1);
    } else {
        setenv("JOURNAL_STREAM", "1:1", 1); /* somebody else's */
    }
    log_warning("node %d is late", 3);
    dup2(saved, STDERR_FILENO);
    unsetenv("JOURNAL_STREAM");
    n = read(fds[0], line, room - 1);
    ck_assert_int_gt(n, 0);
    line[n] = '\0';
    close(saved);
    close(fds[0]);
    close(fds[1]);
}

START_TEST(priority_is_for_the_journal_only)
{
    char line[256];

    capture_line(true, line, sizeof line);
    ck_assert_str_eq(line, "<4>node 3 is late\n");
    capture_line(false, line, sizeof line);
    ck_assert_uint_eq(strlen(line), strlen("2026-12-01T15:04:05.123Z warning: node 3 is late\n"));
    ck_assert_ptr_nonnull(strstr(line, "Z warning: node 3 is late\n"));
}
END_TEST

START_TEST(level_names_are_read_back)
{
    static const char *const names[] = { "error", "warning", "info", "debug" };

    for (size_t i = 0; i < 4; i++) {
        ck_assert_str_eq(log_level_name((enum log_level)log_level_from_name(names[i])), names[i]);
    }
    ck_assert_int_lt(log_level_from_name("verbose"), 0);
}
END_TEST

START_TEST(clock_can_be_moved_and_shown)
{
    struct clock_fake fake;
    char text[CLOCK_TEXT_BYTES];
    int64_t before = clock_monotonic_us(&clock_system);

    clock_fake_init(&fake, 5, 1000);
    clock_fake_advance(&fake, 10);
    ck_assert_int_eq(clock_monotonic_us(&fake.clock), 15);
    ck_assert_int_eq(clock_wall_us(&fake.clock), 1010);
    ck_assert_int_ge(clock_monotonic_us(&clock_system), before);
    clock_format_utc(1796137445123456, text);
    ck_assert_str_eq(text, "2026-12-01T15:04:05.123Z");
    clock_format_utc(-1, text);
    ck_assert_str_eq(text, "1969-12-31T23:59:59.999Z");
    clock_format_utc(INT64_MAX, text);
    ck_assert_uint_gt(strlen(text), 0);
}
END_TEST

/* ---- errors ---- */

START_TEST(a_secret_is_for_its_owner)
{
    static const struct {
        mode_t mode;
        int status;
    } rows[] = { { 0600, GEMS_OK },        { 0400, GEMS_OK },        { 0640, GEMS_OK },
                 { 0644, GEMS_E_INVALID }, { 0602, GEMS_E_INVALID }, { 0660, GEMS_E_INVALID } };
    struct temp_dir dir;
    const char *path;

    temp_dir_create(&dir);
    path = temp_dir_file(&dir, "token");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gems_error err = { 0 };
        struct buf buf = { 0 };

        ck_assert_int_eq(fs_write_atomic(path, "secret", 6, rows[i].mode, &err), GEMS_OK);
        ck_assert_msg(fs_read_secret(path, 64, &buf, &err) == rows[i].status, "%o", rows[i].mode);
        ck_assert_uint_eq(buf.n, rows[i].status == GEMS_OK ? 6 : 0);
        ck_assert(rows[i].status == GEMS_OK || strstr(err.hint, "chmod 600 "));
        buf_fini(&buf);
    }
    temp_dir_destroy(&dir);
}
END_TEST

START_TEST(a_folder_is_held_once)
{
    struct temp_dir dir;
    struct gems_error err = { 0 };
    int first = -1;
    int second = -1;

    temp_dir_create(&dir);
    ck_assert_int_eq(fs_lock_dir(dir.path, &first, &err), GEMS_OK);
    ck_assert_int_eq(fs_lock_dir(dir.path, &second, &err), GEMS_E_STATE);
    ck_assert_ptr_nonnull(strstr(err.text, "another process"));
    close(first);
    ck_assert_int_eq(fs_lock_dir(dir.path, &second, &err), GEMS_OK);
    close(second);
    ck_assert_int_eq(fs_lock_dir("/dev/null", &second, &err), GEMS_E_IO);
    temp_dir_destroy(&dir);
}
END_TEST

START_TEST(errors_carry_text_status_and_scope)
{
    struct gems_error err = { 0 };

    ck_assert_int_eq(gems_error_errno(&err, ENOSPC, "checkpoint %d", 4), GEMS_E_DISKFULL);
    ck_assert_str_eq(err.text, "checkpoint 4: No space left on device");
    gems_error_hint(&err, "free %d bytes", 8);
    ck_assert_str_eq(err.hint, "free 8 bytes");
    ck_assert_int_eq(gems_error_set(&err, GEMS_E_PEER, "gone"), GEMS_E_PEER);
    ck_assert_str_eq(err.hint, "");
    ck_assert_int_eq(gems_error_set(NULL, GEMS_E_PEER, "gone"), GEMS_E_PEER);
    ck_assert_int_eq(gems_status_scope(GEMS_E_PEER), GEMS_SCOPE_ATTEMPT);
    ck_assert_int_eq(gems_status_scope(GEMS_E_DEVICE), GEMS_SCOPE_WORKER);
    ck_assert_int_eq(gems_status_scope(GEMS_E_INVALID), GEMS_SCOPE_CALL);
    ck_assert_str_eq(gems_status_name(GEMS_E_DISKFULL), "disk full");
    ck_assert_str_eq(gems_status_name((enum gems_status)-99), "unknown");
    gems_error_errno(&err, EIO, "a\033[31m\n\177%s", "\xc3\xa9\t");
    gems_error_hint(&err, "%s", "one\ntwo");
    ck_assert_str_eq(err.text, "a?[31m??\xc3\xa9?: Input/output error");
    ck_assert_str_eq(err.hint, "one?two");
    gems_error_set(&err, GEMS_E_DATA, "%s", "x\r\n.png");
    ck_assert_str_eq(err.text, "x??.png");
}
END_TEST

/* ---- notifications ---- */

START_TEST(systemd_gets_its_messages)
{
    struct temp_dir dir;
    struct sockaddr_un own = { .sun_family = AF_UNIX };
    char text[256] = "";
    char pid[32];
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

    unsetenv("NOTIFY_SOCKET");
    notify_ready(); /* nobody there: no harm */
    temp_dir_create(&dir);
    snprintf(own.sun_path, sizeof own.sun_path, "%s", temp_dir_file(&dir, "n"));
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    setenv("NOTIFY_SOCKET", own.sun_path, 1);
    notify_status("%d running\nREADY=1", 12);
    ck_assert_int_gt(recv(fd, text, sizeof text - 1, MSG_DONTWAIT), 0);
    ck_assert_str_eq(text, "STATUS=12 running");
    memset(text, 0, sizeof text);
    notify_watchdog();
    ck_assert_int_gt(recv(fd, text, sizeof text - 1, MSG_DONTWAIT), 0);
    ck_assert_str_eq(text, "WATCHDOG=1");
    memset(text, 0, sizeof text);
    notify_reloading();
    ck_assert_int_gt(recv(fd, text, sizeof text - 1, MSG_DONTWAIT), 0);
    ck_assert_int_eq(strncmp(text, "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
    close(fd);
    unsetenv("NOTIFY_SOCKET");
    temp_dir_destroy(&dir);

    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
    ck_assert_uint_eq(notify_watchdog_us(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    ck_assert_uint_eq(notify_watchdog_us(), 30000000);
    setenv("WATCHDOG_PID", "1", 1);
    ck_assert_uint_eq(notify_watchdog_us(), getpid() == 1 ? 30000000 : 0);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    ck_assert_uint_eq(notify_watchdog_us(), 30000000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common");

    suite_case(suite, "buf", buffer_grows_and_drops);
    suite_case(suite, "buf failure", buffer_failure_sticks_until_cleared);
    suite_case(suite, "buf empty", empty_buffer_gives_an_empty_text);
    suite_case(suite, "list", list_keeps_order_and_allows_removal_while_walking);
    suite_case(suite, "replace", file_is_replaced_as_a_whole);
    suite_case(suite, "failed write", failed_write_leaves_the_old_file);
    suite_case(suite, "read limit", reading_has_a_limit);
    suite_case(suite, "mkdirs", folders_are_made_on_the_way);
    suite_case(suite, "remove", removal_stays_inside);
    suite_case(suite, "hash values", hashes_have_published_values);
    suite_case(suite, "hash stream", stream_equals_one_shot);
    suite_case(suite, "hex", hex_is_read_strictly);
    suite_case(suite, "random", random_bytes_differ_and_compare);
    suite_case(suite, "rng", random_numbers_belong_to_their_position);
    suite_case(suite, "log", log_lines_cannot_be_forged);
    suite_case(suite, "log catch", unexpected_error_line_is_noticed);
    suite_case(suite, "log prefix", priority_is_for_the_journal_only);
    suite_case(suite, "log levels", level_names_are_read_back);
    suite_case(suite, "clock", clock_can_be_moved_and_shown);
    suite_case(suite, "errors", errors_carry_text_status_and_scope);
    suite_case(suite, "files", a_folder_is_held_once);
    suite_case(suite, "files", a_secret_is_for_its_owner);
    suite_case(suite, "notify", systemd_gets_its_messages);
    return run_suite(suite);
}
