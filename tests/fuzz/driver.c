/* Runs a fuzz target without libFuzzer: usage: fuzz_X FOLDER-OR-FILE...
 *
 * First every file as it is, then GEMS_FUZZ_ROUNDS (default 20000) mutations:
 * a pure function of GEMS_FUZZ_SEED (default 1), so that a failure can be
 * repeated. Before each input its number is known to the handler of fatal
 * signals, which prints it. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "common/rng.h"
#include "common/units.h"
#include "tests/fuzz/fuzz.h"

enum { FUZZ_FILE_BYTES = 1 << 20, FUZZ_MAX_FILES = 1000, FUZZ_MAX_CHANGES = 8, FUZZ_GROW_BYTES = 64 };

static struct buf files[FUZZ_MAX_FILES];
static size_t n_files;
static uint64_t seed, draws, current_round;

static uint64_t below(uint64_t n)
{
    return rng_below(seed, rng_stream(RNG_SYNTHETIC, current_round), draws++, n);
}

static void on_fatal(int number)
{
    char text[96];
    int n = snprintf(text, sizeof text, "fuzz: signal %d in round %llu\n", number,
                     (unsigned long long)current_round);

    /* A message about a crash: nothing can be done if it cannot be written. */
    if (write(STDERR_FILENO, text, (size_t)n) < 0) {
        _exit(2);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void load(const char *path)
{
    struct gems_error err = { 0 };

    if (n_files == FUZZ_MAX_FILES || fs_read(path, FUZZ_FILE_BYTES, &files[n_files], &err) < 0) {
        fprintf(stderr, "fuzz: %s\n", n_files == FUZZ_MAX_FILES ? "too many files" : err.text);
        exit(1);
    }
    n_files++;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void load_all(const char *path)
{
    struct dirent **entries = NULL;
    struct stat file;
    int n;

    if (stat(path, &file) == 0 && !S_ISDIR(file.st_mode)) {
        load(path);
        return;
    }
    n = scandir(path, &entries, is_visible, alphasort);
    for (int i = 0; i < n; i++) {
        char name[4096];

        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        load(name);
        free(entries[i]);
    }
    free(entries);
}

static size_t change(uint8_t *data, size_t n)
{
    static const uint8_t telling[] = { 0, 1, 0x7f, 0x80, 0xff };
    size_t at = n ? below(n) : 0;
    size_t len = 1 + below(FUZZ_GROW_BYTES);

    switch (below(6)) {
    case 0:
        if (n) {
            data[at] ^= (uint8_t)(1u << below(8));
        }
        return n;
    case 1:
        if (n) {
            data[at] = (uint8_t)below(256);
        }
        return n;
    case 2:
        if (n) {
            data[at] = telling[below(sizeof telling)];
        }
        return n;
    case 3: /* shorter at the end */
        return at;
    case 4: /* a piece less */
        len = len < n - at ? len : n - at;
        memmove(data + at, data + at + len, n - at - len);
        return n - len;
    default: /* a piece twice */
        len = len < n - at ? len : n - at;
        memmove(data + at + len, data + at, n - at);
        return n + len;
    }
}

/* The input has memory of exactly its size: sanitizers see any step beyond. */
static void run_exact(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);

    if (copy) {
        memcpy(copy, data, n);
        LLVMFuzzerTestOneInput(copy, n);
        free(copy);
    }
}

static void run_mutation(void)
{
    const struct buf *file = &files[below(n_files)];
    size_t n = file->n;
    uint8_t *data = malloc(n + FUZZ_MAX_CHANGES * FUZZ_GROW_BYTES);

    if (data) {
        memcpy(data, file->data, n);
        for (uint64_t i = 1 + below(FUZZ_MAX_CHANGES); i > 0; i--) {
            n = change(data, n);
        }
        run_exact(data, n);
        free(data);
    }
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t value = otherwise;

    if (text && parse_u64(text, &value, NULL) < 0) {
        fprintf(stderr, "fuzz: %s is not a number\n", name);
        exit(1);
    }
    return value;
}

int main(int argc, char **argv)
{
    uint64_t rounds = setting("GEMS_FUZZ_ROUNDS", 20000);

    seed = setting("GEMS_FUZZ_SEED", 1);
    for (int i = 1; i < argc; i++) {
        load_all(argv[i]);
    }
    if (n_files == 0) {
        fprintf(stderr, "fuzz: no corpus given\n");
        return 1;
    }
    signal(SIGSEGV, on_fatal);
    signal(SIGABRT, on_fatal);
    signal(SIGBUS, on_fatal);
    for (size_t i = 0; i < n_files; i++) {
        run_exact(files[i].data, files[i].n);
    }
    for (current_round = 1; current_round <= rounds; current_round++) {
        draws = 0;
        run_mutation();
    }
    printf("fuzz: %zu files, %llu mutations with seed %llu\n", n_files, (unsigned long long)rounds,
           (unsigned long long)seed);
    for (size_t i = 0; i < n_files; i++) {
        buf_fini(&files[i]);
    }
    return 0;
}
