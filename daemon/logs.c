/* Logs of ranks: kept in STATE/logs/JOB/ATTEMPT-RANK.log as agents ship them
 * (with offsets, so a piece may come twice), read back merged by rank, and
 * followed. Files are touched in the reader thread only. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bg.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "common/log.h"
#include "daemon/handlers.h"
#include "daemon/logs.h"

enum { LOG_CHUNK_BYTES = 64 << 10, LOG_FILES = 1024 };

static void logs_dir(const struct daemon *daemon, uint64_t job, char *ret_path, size_t n)
{
    daemon_path(daemon, ret_path, n, "logs/%llu", (unsigned long long)job);
}

/* ---- from agents ---- */

struct piece {
    struct daemon *daemon;
    uint64_t peer;
    uint32_t call;
    char dir[900], path[1024];
    uint64_t offset, limit;
    bool is_new; /* the folder may be made */
    int result;
    struct gems_error err;
    size_t n;
    uint8_t data[];
};

static void piece_work(void *arg)
{
    struct piece *piece = arg;
    int fd;
    ssize_t n;

    if (piece->offset >= piece->limit) {
        return; /* enough of this rank */
    }
    if (piece->n > piece->limit - piece->offset) {
        piece->n = (size_t)(piece->limit - piece->offset);
    }
    if (piece->is_new) {
        piece->result = fs_mkdirs(piece->dir, 0750, &piece->err);
    }
    if (piece->result < 0) {
        return;
    }
    fd = open(piece->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0) {
        piece->result = gems_error_errno(&piece->err, errno, "%s", piece->path);
        return;
    }
    n = pwrite(fd, piece->data, piece->n, (off_t)piece->offset);
    if (n != (ssize_t)piece->n) {
        piece->result = gems_error_errno(&piece->err, n < 0 ? errno : ENOSPC, "%s", piece->path);
    }
    close(fd);
}

static void piece_done(void *arg, bool is_run)
{
    struct piece *piece = arg;
    struct peer *peer = is_run ? server_peer(piece->daemon->server, piece->peer) : NULL;

    if (is_run && piece->result < 0) {
        log_warning("log of a rank is not kept: %s", piece->err.text);
    }
    if (peer) {
        peer_ok(peer, piece->call);
    }
    free(piece);
}

void on_rank_log(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__RankLog *message = (const Gems__RankLog *)base;
    struct piece *piece = message->ref ? calloc(1, sizeof *piece + message->data.len) : NULL;
    struct gems_error err;

    if (!piece) {
        gems_error_set(&err, message->ref ? GEMS_E_NOMEM : GEMS_E_INVALID,
                       "log: no ref or no memory");
        peer_error(peer, call, &err);
        return;
    }
    piece->daemon = peer->daemon;
    piece->peer = peer->id;
    piece->call = call;
    piece->offset = message->offset;
    piece->limit = peer->daemon->settings->log_bytes;
    piece->is_new = jobs_find(peer->daemon, message->ref->job) != NULL;
    piece->n = message->data.len;
    if (piece->n > 0) {
        memcpy(piece->data, message->data.data, piece->n);
    }
    logs_dir(peer->daemon, message->ref->job, piece->dir, sizeof piece->dir);
    snprintf(piece->path, sizeof piece->path, "%s/%u-%u.log", piece->dir, message->ref->attempt,
             message->ref->rank);
    if (bg_submit(peer->daemon->read_bg, piece_work, piece_done, piece, &err) < 0) {
        free(piece);
        peer_error(peer, call, &err);
    }
}

/* ---- to clients ---- */

struct reading {
    struct stream stream;
    struct list link; /* of the daemon */
    struct daemon *daemon;
    uint64_t job;
    char owner[STORE_NAME_BYTES];
    bool is_following, has_rank, is_gone, is_working, is_waiting, is_known;
    uint32_t rank, tail;
    /* reader thread */
    struct log_file {
        uint32_t attempt, rank;
        uint64_t offset;
    } * files; /* owned */
    size_t n_files;
    size_t at;
    uint32_t got_attempt, got_rank;
    uint64_t got_offset;
    uint8_t *data;
    size_t n_data;
    int result;
    struct gems_error err;
};

static void reading_free(struct reading *reading)
{
    list_remove(&reading->link);
    free(reading->files);
    free(reading->data);
    free(reading);
}

static void on_gone(struct stream *stream)
{
    struct reading *reading = list_item(stream, struct reading, stream);

    reading->is_gone = true;
    if (!reading->is_working) {
        reading_free(reading);
    }
}

/* Where the last n lines begin. */
static uint64_t find_tail(int fd, uint64_t size, uint32_t n)
{
    char block[4096];
    uint64_t at = size;
    uint32_t lines = 0;

    while (at > 0) {
        uint64_t from = at > sizeof block ? at - sizeof block : 0;
        ssize_t got = pread(fd, block, (size_t)(at - from), (off_t)from);

        for (ssize_t i = got - 1; i >= 0; i--) {
            bool is_last_byte = from + (uint64_t)i + 1 == size;

            if (block[i] == '\n' && !is_last_byte && ++lines == n) {
                return from + (uint64_t)i + 1;
            }
        }
        if (got <= 0) {
            break;
        }
        at = from;
    }
    return 0;
}

static int open_log(struct reading *reading, const struct log_file *file)
{
    char dir[900], path[1024];

    logs_dir(reading->daemon, reading->job, dir, sizeof dir);
    snprintf(path, sizeof path, "%s/%u-%u.log", dir, file->attempt, file->rank);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void add_file(struct reading *reading, uint32_t attempt, uint32_t rank, bool is_first_look)
{
    struct log_file *grown, *file;
    struct stat st;
    int fd;

    for (size_t i = 0; i < reading->n_files; i++) {
        if (reading->files[i].attempt == attempt && reading->files[i].rank == rank) {
            return;
        }
    }
    grown = realloc(reading->files, (reading->n_files + 1) * sizeof *grown);
    if (!grown || reading->n_files >= LOG_FILES) {
        reading->files = grown ? grown : reading->files;
        return;
    }
    reading->files = grown;
    file = &grown[reading->n_files++];
    *file = (struct log_file){ .attempt = attempt, .rank = rank };
    fd = is_first_look && reading->tail ? open_log(reading, file) : -1;
    if (fd >= 0) {
        if (fstat(fd, &st) == 0) {
            file->offset = find_tail(fd, (uint64_t)st.st_size, reading->tail);
        }
        close(fd);
    }
}

static int compare_files(const void *a, const void *b)
{
    const struct log_file *x = a, *y = b;

    if (x->attempt != y->attempt) {
        return x->attempt < y->attempt ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Files of the newest attempt that has some; of later ones as they come. */
static void scan(struct reading *reading)
{
    bool is_first_look = reading->n_files == 0;
    uint32_t newest = 0;
    char dir[900];

    logs_dir(reading->daemon, reading->job, dir, sizeof dir);
    for (int pass = 0; pass < 2; pass++) {
        DIR *handle = opendir(dir);
        struct dirent *item;

        while (handle && (item = readdir(handle))) {
            unsigned attempt, rank;

            if (sscanf(item->d_name, "%u-%u.log", &attempt, &rank) != 2 ||
                (reading->has_rank && rank != reading->rank)) {
                continue;
            }
            if (pass == 0) {
                newest = attempt > newest ? attempt : newest;
            } else if (attempt == newest) {
                add_file(reading, attempt, rank, is_first_look);
            }
        }
        if (handle) {
            closedir(handle);
        }
    }
    qsort(reading->files, reading->n_files, sizeof *reading->files, compare_files);
}

static void reading_work(void *arg)
{
    struct reading *reading = arg;

    scan(reading);
    reading->n_data = 0;
    if (!reading->data) {
        reading->data = malloc(LOG_CHUNK_BYTES);
    }
    for (size_t i = 0; reading->data && reading->n_data == 0 && i < reading->n_files; i++) {
        struct log_file *file = &reading->files[i];
        int fd = open_log(reading, file);
        ssize_t n = fd < 0 ? 0 : pread(fd, reading->data, LOG_CHUNK_BYTES, (off_t)file->offset);

        if (fd >= 0) {
            close(fd);
        }
        if (n > 0) {
            reading->n_data = (size_t)n;
            reading->got_attempt = file->attempt;
            reading->got_rank = file->rank;
            reading->got_offset = file->offset;
            file->offset += (uint64_t)n;
        }
    }
}

static int send_chunk(struct reading *reading, bool is_last)
{
    Gems__LogChunk chunk = GEMS__LOG_CHUNK__INIT;

    chunk.rank = reading->got_rank;
    chunk.attempt = reading->got_attempt;
    chunk.offset = reading->got_offset;
    chunk.data.data = reading->data;
    chunk.data.len = reading->n_data;
    chunk.last = is_last;
    return peer_send(reading->stream.peer, MSG_LOG_CHUNK,
                     (uint16_t)(RPC_REPLY | (is_last ? RPC_LAST : 0)), reading->stream.call,
                     &chunk.base);
}

static void reading_done(void *arg, bool is_run);

static void read_next(struct reading *reading)
{
    reading->is_waiting = false;
    reading->is_working = true;
    if (bg_submit(reading->daemon->read_bg, reading_work, reading_done, reading, &reading->err) <
        0) {
        reading->is_working = false;
        peer_error(reading->stream.peer, reading->stream.call, &reading->err);
        stream_end(&reading->stream);
    }
}

static void reading_done(void *arg, bool is_run)
{
    struct reading *reading = arg;
    int full;

    reading->is_working = false;
    if (reading->is_gone) {
        reading_free(reading);
        return;
    }
    if (!is_run) {
        return;
    }
    if (reading->n_data > 0) {
        full = send_chunk(reading, false);
        if (full < 0) {
            stream_end(&reading->stream);
        } else if (full == 0) {
            read_next(reading);
        }
    } else if (reading->is_following && jobs_find(reading->daemon, reading->job)) {
        reading->is_waiting = true;
    } else {
        send_chunk(reading, true);
        stream_end(&reading->stream);
    }
}

static void on_room(struct stream *stream)
{
    struct reading *reading = list_item(stream, struct reading, stream);

    if (!reading->is_working && !reading->is_waiting && reading->is_known) {
        read_next(reading);
    }
}

void logs_tick(struct daemon *daemon)
{
    list_each(&daemon->readings, link)
    {
        struct reading *reading = list_item(link, struct reading, link);

        if (reading->is_waiting) {
            read_next(reading);
        }
    }
}

static void owner_work(void *arg)
{
    struct reading *reading = arg;
    struct store_job job;

    reading->result = store_job(reading->daemon->store, reading->job, &job, &reading->err);
    if (reading->result >= 0) {
        snprintf(reading->owner, sizeof reading->owner, "%s", job.user);
        store_job_fini(&job);
    }
}

static void owner_done(void *arg, bool is_run)
{
    struct reading *reading = arg;

    reading->is_working = false;
    if (reading->is_gone) {
        reading_free(reading);
        return;
    }
    if (!is_run) {
        return;
    }
    if (reading->result >= 0) {
        reading->result = peer_may_act(reading->stream.peer, reading->owner, &reading->err);
    }
    if (reading->result < 0) {
        peer_error(reading->stream.peer, reading->stream.call, &reading->err);
        stream_end(&reading->stream);
        return;
    }
    reading->is_known = true;
    read_next(reading);
}

void on_logs(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__LogsRequest *message = (const Gems__LogsRequest *)base;
    struct reading *reading = calloc(1, sizeof *reading);
    struct gems_error err;

    if (!reading || stream_begin(&reading->stream, peer, call, &err) < 0) {
        if (!reading) {
            gems_error_set(&err, GEMS_E_NOMEM, "logs: no memory");
        }
        free(reading);
        peer_error(peer, call, &err);
        return;
    }
    list_push(&peer->daemon->readings, &reading->link);
    reading->stream.ended = on_gone;
    reading->stream.drained = on_room;
    reading->daemon = peer->daemon;
    reading->job = message->job;
    reading->is_following = message->follow;
    reading->has_rank = message->has_rank;
    reading->rank = message->rank;
    reading->tail = message->tail;
    reading->is_working = true;
    if (bg_submit(peer->daemon->store_bg, owner_work, owner_done, reading, &err) < 0) {
        reading->is_working = false;
        peer_error(peer, call, &err);
        stream_end(&reading->stream);
    }
}
