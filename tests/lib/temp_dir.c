#include "tests/lib/temp_dir.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fsutil.h"

void temp_dir_create(struct temp_dir *dir)
{
    const char *base = getenv("TMPDIR");
    int n = snprintf(dir->path, sizeof dir->path, "%s/gems-test-XXXXXX", base ? base : "/tmp");

    ck_assert_int_lt(n, (int)sizeof dir->path);
    ck_assert_ptr_nonnull(mkdtemp(dir->path));
}

void temp_dir_destroy(struct temp_dir *dir)
{
    const char *name = strrchr(dir->path, '/') + 1;
    char base[sizeof dir->path];

    snprintf(base, sizeof base, "%.*s", (int)(name - dir->path), dir->path);
    fs_remove_tree(base, name, NULL);
}

const char *temp_dir_file(const struct temp_dir *dir, const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", dir->path, name);
    return path;
}
