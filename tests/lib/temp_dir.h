/* A private folder for the files of a test. */
#ifndef GEMS_TESTS_TEMP_DIR_H
#define GEMS_TESTS_TEMP_DIR_H

struct temp_dir {
    char path[128]; /* short enough for socket paths */
};

void temp_dir_create(struct temp_dir *dir); /* under $TMPDIR or /tmp; fails the test if it cannot */
void temp_dir_destroy(struct temp_dir *dir); /* with all that is in it */
/* PATH/name; valid until the fourth call after it. */
const char *temp_dir_file(const struct temp_dir *dir, const char *name);

#endif
