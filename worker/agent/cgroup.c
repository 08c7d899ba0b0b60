#include "worker/agent/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static bool write_file(const char *dir, const char *name, const char *text)
{
    char path[CGROUP_PATH_BYTES + 64];
    bool is_written;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    is_written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return is_written;
}

/* systemd marks what it has handed over; anything else is not ours to split. */
static bool is_delegated(const char *path)
{
    static const char *const names[] = { "user.delegate", "trusted.delegate" };
    char value[8];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (getxattr(path, names[i], value, sizeof value) >= 1 && value[0] == '1') {
            return true;
        }
    }
    return false;
}

void cgroup_prepare(char ret_base[CGROUP_PATH_BYTES])
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[CGROUP_PATH_BYTES - 64], base[CGROUP_PATH_BYTES] = "", leaf[CGROUP_PATH_BYTES + 16];

    ret_base[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0) {
            snprintf(base, sizeof base, "/sys/fs/cgroup%s", line + 3);
        }
    }
    if (file) {
        fclose(file);
    }
    if (base[0] == '\0' || !is_delegated(base)) {
        return;
    }
    snprintf(leaf, sizeof leaf, "%s/agent", base);
    if ((mkdir(leaf, 0755) == 0 || errno == EEXIST) && write_file(leaf, "cgroup.procs", "0")) {
        /* Without it there is a group all the same, only no word of memory. */
        write_file(base, "cgroup.subtree_control", "+memory");
        snprintf(ret_base, CGROUP_PATH_BYTES, "%s", base);
    }
}

void cgroup_create(const char *base, const char *name, char ret_path[CGROUP_PATH_BYTES])
{
    ret_path[0] = '\0';
    if (base[0] != '\0' && strlen(base) + strlen(name) + 1 < CGROUP_PATH_BYTES) {
        snprintf(ret_path, CGROUP_PATH_BYTES, "%.400s/%.100s", base, name);
        if (mkdir(ret_path, 0755) < 0 && errno != EEXIST) {
            ret_path[0] = '\0';
        }
    }
}

void cgroup_enter(const char *path)
{
    if (path[0] != '\0') {
        write_file(path, "cgroup.procs", "0");
    }
}

void cgroup_kill(const char *path)
{
    if (path[0] != '\0') {
        write_file(path, "cgroup.kill", "1");
    }
}

bool cgroup_had_oom(const char *path)
{
    char name[CGROUP_PATH_BYTES + 64], line[64];
    unsigned long n = 0;
    FILE *file;

    if (path[0] == '\0') {
        return false;
    }
    snprintf(name, sizeof name, "%s/memory.events", path);
    file = fopen(name, "re");
    while (file && n == 0 && fgets(line, sizeof line, file)) {
        if (sscanf(line, "oom_kill %lu", &n) != 1) {
            n = 0;
        }
    }
    if (file) {
        fclose(file);
    }
    return n > 0;
}

void cgroup_remove(const char *path)
{
    if (path[0] != '\0') {
        rmdir(path);
    }
}
